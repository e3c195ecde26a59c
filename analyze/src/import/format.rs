//! Programs whose lines have fixed words: a table of patterns says which column takes each figure.

use super::imported::{ImportedRows, number, set_workload, unknown};
use crate::error::ParseError;
use schemas::columns::{self, ColumnType, Row, results::column};
use std::borrow::Cow;

/// How one program writes its results. [`LMBENCH`](super::by_pattern::LMBENCH) is a short example.
pub(super) struct Format {
    pub name: &'static str,
    /// Parts of lines by which the program says that it failed.
    pub failures: &'static [&'static str],
    /// The form expected of a line that begins like a pattern and goes on otherwise. Empty: the type of its column.
    pub wanted: &'static str,
    /// Without a line that begins a row, the whole text is one.
    pub lines: &'static [Line],
    /// Each line of figures below headings becomes a row, which has what the lines above say.
    pub table: Option<Table>,
    /// Judges the open row after each line.
    pub check: fn(&mut Row, &str) -> Result<(), String>,
    /// Completes a row, of which the last line was seen or not. `None`: it has no result. An error points at its first line.
    pub finish: fn(Row, bool, &mut ImportedRows) -> Result<Option<Row>, String>,
}

/// A line: its place, its pattern, and the cells that it implies, as `COLUMN=VALUE` with spaces between.
///
/// In a pattern, a space stands for any number of them. `{COLUMN}` takes a word, `{COLUMN*FACTOR}` a number in another unit,
/// `{COLUMN:unit*FACTOR}` a number and its unit, `{}` a word without a column. `…` at the end is any rest.
pub(super) struct Line(pub Place, pub &'static str, pub &'static str);

/// The place of a line among those of its row.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Begins,
    Inside,
    /// A line of a table without figures.
    Alone,
    Ends,
}

/// Tables with headings, one or more below a line that begins.
pub(super) struct Table {
    pub headings: &'static [Heading],
    /// The line above the table that names the test, for people.
    pub title: &'static str,
}

/// A heading, then the figure below it: in a test between two ends, and in an operation between ranks.
///
/// A figure is written as in a pattern, without braces; empty: it has no column. After a figure, `COLUMN=VALUE` begins another
/// row of the same line. A heading that stands twice in a line is twice in the table.
pub(super) struct Heading(pub &'static str, pub &'static str, pub &'static str);

/// The row whose lines are being read, and its table.
struct Open {
    line: usize,
    row: Row,
    headings: Vec<&'static Heading>,
    results: usize,
}

impl Open {
    fn new(line: usize, row: Row) -> Self {
        Self { line, row, headings: Vec::new(), results: 0 }
    }
}

/// Units after a number, each with its size in the unit of columns whose names end so.
const UNITS: [(&str, &str); 5] = [
    ("_us", "ns 1e-3 us 1 ms 1e3 sec 1e6"),
    ("elapsed_s", "sec 1"),
    ("_bytes", "byte 1 bytes 1 KiB 1024 MiB 1048576 KB 1e3 MB 1e6"),
    ("_bits_per_s", "bytes/sec 8 KB/sec 8e3 MB/sec 8e6 GB/sec 8e9 TB/sec 8e12"),
    ("_bits_per_s", "b/sec 1 Kb/sec 1e3 Mb/sec 1e6 Gb/sec 1e9 Tb/sec 1e12"),
];

/// The size of a unit. A number of bytes may have none.
fn unit(column: &str, unit: &str) -> Option<f64> {
    if unit.is_empty() {
        return column.ends_with("_bytes").then_some(1.0);
    }
    let units = UNITS.iter().filter(|(end, _)| column.ends_with(end));
    let mut words = units.flat_map(|(_, units)| units.split(' '));
    words.find(|word| *word == unit)?;
    words.next()?.parse().ok()
}

impl Format {
    fn is_one_row(&self) -> bool {
        !self.lines.iter().any(Line::is_first)
    }

    /// Whether the program wrote the text.
    pub fn looks_like(&self, text: &str) -> bool {
        text.lines().map(words).any(|line| {
            let mut first = self.lines.iter().filter(|l| l.is_first() && !l.2.is_empty());
            first.any(|l| l.has_head(&line) || l.is_taken(&mut unknown(), &line))
                || self.table.as_ref().is_some_and(|t| t.headings_of(&line).is_ok_and(|found| found.len() > 1))
                || self.failures.iter().any(|failure| line.starts_with(failure))
                || self.is_one_row() && line.strip_prefix(self.name).is_some_and(|rest| rest.starts_with(':'))
        })
    }

    pub fn read(&self, text: &str, imported: &mut ImportedRows) -> Result<(), ParseError> {
        let mut open = self.is_one_row().then(|| Open::new(0, unknown()));
        for (at, raw) in (1..).zip(text.lines()) {
            let line = words(raw);
            if self.failures.iter().any(|failure| line.contains(failure)) {
                let said = line.strip_prefix(self.name).and_then(|l| l.strip_prefix(": ")).unwrap_or(&line);
                return Err(ParseError::new(at, format!("{} failed: {said}", self.name)));
            }
            let mut fresh = unknown();
            let taken = self.lines.iter().find(|l| match (l.0, &mut open) {
                (Place::Begins, _) => l.is_taken(&mut fresh, &line),
                (Place::Alone, Some(open)) => {
                    fresh.clone_from(&open.row);
                    l.is_taken(&mut fresh, &line)
                }
                (_, Some(open)) => l.is_taken(&mut open.row, &line),
                (_, None) => false,
            });
            match taken.map(|l| l.0) {
                Some(Place::Begins) => self.close(open.replace(Open::new(at, fresh)), false, imported)?,
                Some(Place::Alone) => {
                    if let Some(open) = &mut open {
                        open.results += 1;
                    }
                    self.finish_row(at, fresh, true, imported)?;
                }
                Some(_) => {}
                None => {
                    let is_near = |l: &&Line| (l.is_first() || open.is_some()) && l.has_head(&line);
                    if let Some(like) = self.lines.iter().find(is_near) {
                        let wanted = if self.wanted.is_empty() { like.type_wanted() } else { self.wanted };
                        return Err(ParseError::expected(at, wanted, raw));
                    }
                    if let Some(table) = &self.table {
                        let rows = table.take(&line, &mut open).map_err(|reason| ParseError::new(at, reason))?;
                        for row in rows {
                            self.finish_row(at, row, true, imported)?;
                        }
                    }
                }
            }
            if let Some(open) = &mut open {
                (self.check)(&mut open.row, &line).map_err(|reason| ParseError::new(at, reason))?;
            }
            // In a table, what ends it also stands above it.
            let is_end = taken.is_some_and(|l| l.0 == Place::Ends);
            if is_end && (self.table.is_none() || open.as_ref().is_some_and(|open| open.results > 0)) {
                self.close(open.take(), true, imported)?;
            }
        }
        if let Some(open) = &open
            && self.table.is_some()
            && self.lines.iter().any(|l| l.0 == Place::Ends)
        {
            return Err(ParseError::new(open.line, "the test that begins here has no end: it failed, or was cut off"));
        }
        self.close(open, false, imported)
    }

    fn close(&self, open: Option<Open>, is_whole: bool, imported: &mut ImportedRows) -> Result<(), ParseError> {
        match open {
            Some(open) if self.table.is_none() => self.finish_row(open.line, open.row, is_whole, imported),
            Some(Open { line, results: 0, .. }) => {
                Err(ParseError::new(line, "the test that begins here has no result: it failed, or was cut off"))
            }
            _ => Ok(()),
        }
    }

    fn finish_row(&self, line: usize, row: Row, is_whole: bool, imported: &mut ImportedRows) -> Result<(), ParseError> {
        if let Some(row) = (self.finish)(row, is_whole, imported).map_err(|reason| ParseError::new(line, reason))? {
            imported.add_last(row);
        }
        Ok(())
    }
}

impl Table {
    /// Takes headings, or a line of figures: returns its rows.
    fn take(&self, line: &str, open: &mut Option<Open>) -> Result<Vec<Row>, String> {
        let headings = self.headings_of(line)?;
        let Some(open) = open else {
            return if headings.is_empty() { Ok(Vec::new()) } else { Err(format!("{} is missing above", self.title)) };
        };
        if !headings.is_empty() {
            open.headings = headings;
        } else if !open.headings.is_empty() && line.starts_with(|c: char| c.is_ascii_digit()) {
            open.results += 1;
            return rows_of(open, line).ok_or_else(|| {
                let wanted: Vec<&str> = open.headings.iter().map(|heading| heading.0).collect();
                format!("expected figures for `{}`, found `{line}`", wanted.join("`, `"))
            });
        }
        Ok(Vec::new())
    }

    /// The headings of a line that consists of them; none of another line.
    fn headings_of(&self, line: &str) -> Result<Vec<&'static Heading>, String> {
        let mut rest = line.strip_prefix("# ").unwrap_or(line);
        let mut found: Vec<&Heading> = Vec::new();
        while !rest.is_empty() {
            let is_next = |heading: &&Heading| {
                let after = rest.strip_prefix(heading.0);
                after.is_some_and(|after| after.is_empty() || after.starts_with(' '))
            };
            let mut left = self.headings.iter().filter(|heading| !found.iter().any(|f| std::ptr::eq(*f, *heading)));
            match left.find(is_next) {
                Some(next) => found.push(next),
                None if found.len() > 1 => return Err(format!("a table with the heading `{rest}` is unknown")),
                None => return Ok(Vec::new()),
            }
            rest = found.last().map_or("", |next| rest[next.0.len()..].trim_start());
        }
        Ok(found)
    }
}

/// The rows of a line of figures, or `None` where it does not fit the headings.
fn rows_of(open: &Open, line: &str) -> Option<Vec<Row>> {
    let mut row = open.row.clone();
    let mut rows = Vec::new();
    let figures: Vec<&str> = line.split(' ').collect();
    if figures.len() != open.headings.len() {
        return None;
    }
    for (heading, text) in open.headings.iter().zip(figures) {
        let figure = if row.operation.is_some() { heading.2 } else { heading.1 };
        let (figure, cells) = figure.split_once(' ').unwrap_or((figure, ""));
        if !cells.is_empty() {
            rows.push(row.clone());
            set_cells(&mut row, cells)?;
        }
        if !figure.is_empty() {
            fill(&mut row, figure, text)?;
        }
    }
    rows.push(row);
    Some(rows)
}

impl Line {
    fn is_first(&self) -> bool {
        self.0 == Place::Begins
    }

    /// Whether a line begins with the words before the first figure.
    fn has_head(&self, line: &str) -> bool {
        self.1.split_once('{').is_some_and(|(head, _)| head.contains(' ') && line.starts_with(head))
    }

    /// Sets the cells of a line that fits the pattern.
    fn is_taken(&self, row: &mut Row, line: &str) -> bool {
        let Some(figures) = captures(self.1, line) else { return false };
        set_cells(row, self.2).is_some()
            && figures.into_iter().all(|(figure, value)| figure.is_empty() || fill(row, figure, value).is_some())
    }

    /// The form expected of the first figure.
    fn type_wanted(&self) -> &'static str {
        let figure = self.1.split(['{', '*', ':', '}']).nth(1).and_then(columns::find);
        if figure.is_some_and(|column| column.ty == ColumnType::Integer) { "a whole number" } else { "a number" }
    }
}

/// Sets cells that are written as `COLUMN=VALUE` with spaces between.
fn set_cells(row: &mut Row, cells: &str) -> Option<()> {
    for (column, value) in cells.split_whitespace().filter_map(|cell| cell.split_once('=')) {
        if column == "workload" {
            set_workload(row, value);
        } else {
            row.set(column, value).ok()?;
        }
    }
    Some(())
}

/// A line without colours, with one space between its words.
fn words(line: &str) -> String {
    let mut pieces = line.split('\u{1b}');
    let mut plain = pieces.next().unwrap_or_default().to_owned();
    plain.extend(pieces.map(|piece| piece.split_once('m').map_or("", |(_, rest)| rest)));
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The figures of a pattern with their texts in a line; `None` where it does not fit.
fn captures<'l>(pattern: &'l str, line: &'l str) -> Option<Vec<(&'l str, &'l str)>> {
    let (pattern, is_whole) = pattern.strip_suffix('…').map_or((pattern, true), |pattern| (pattern, false));
    let mut pieces = pattern.split('{');
    let mut rest = line.strip_prefix(pieces.next()?)?;
    let mut figures = Vec::new();
    for piece in pieces {
        let (figure, literal) = piece.split_once('}')?;
        let (value, after) = if figure.contains(":unit") {
            let end = rest.match_indices(' ').nth(1).map_or(rest.len(), |(at, _)| at);
            (&rest[..end], rest[end..].strip_prefix(literal)?)
        } else {
            let end = if literal.is_empty() { rest.find(' ').unwrap_or(rest.len()) } else { rest.find(literal)? };
            (&rest[..end], &rest[end + literal.len()..])
        };
        if value.is_empty() || value.contains(' ') && !figure.contains(":unit") {
            return None;
        }
        figures.push((figure, value));
        rest = after;
    }
    (rest.is_empty() || !is_whole).then_some(figures)
}

/// Sets the column of a figure.
pub(super) fn fill(row: &mut Row, figure: &str, text: &str) -> Option<()> {
    let (figure, factor) = match figure.split_once('*') {
        Some((figure, factor)) => (figure, factor.parse().ok()?),
        None => (figure, 1.0),
    };
    let (column, size, text) = match figure.strip_suffix(":unit") {
        Some(column) => {
            let (value, name) = text.split_once(' ').unwrap_or((text, ""));
            // A comma separates thousands.
            (column, unit(column, name)?, Cow::from(value.replace(',', "")))
        }
        None if columns::find(figure)?.ty == ColumnType::Number || factor > 1.0 => (figure, 1.0, Cow::from(text)),
        None => return row.set(figure, text).ok(),
    };
    let value = number(&text).filter(|value| *value >= 0.0)? * size * factor;
    // A message has whole bytes, which lmbench prints in millions. In units they are rounded.
    let is_part = figure == column::message_bytes && (value - value.round()).abs() > 1e-6 * value;
    (value.is_finite() && !is_part).then(|| row.set_number(column, Some(value)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::{
        by_pattern::{LMBENCH, NPB, QPERF, SOCKPERF},
        by_table::{IMB, NCCL, OSU, PERFTEST},
    };

    /// A column that is misspelt in a table would be a line that is never taken.
    #[test]
    fn tables_name_columns_that_exist() {
        for format in [&LMBENCH, &NPB, &QPERF, &SOCKPERF, &OSU, &IMB, &NCCL, &PERFTEST] {
            let headings = format.table.iter().flat_map(|table| table.headings);
            for cell in headings.flat_map(|heading| heading.1.split(' ').chain(heading.2.split(' '))) {
                let column = cell.split(['*', '=']).next().unwrap_or_default();
                assert!(column.is_empty() || columns::find(column).is_some(), "{}: no column `{column}`", format.name);
            }
            for Line(_, pattern, cells) in format.lines {
                let figures = pattern.split('{').skip(1).filter_map(|piece| piece.split(['}', '*', ':']).next());
                let cells = cells.split_whitespace().filter_map(|cell| cell.split('=').next());
                for column in figures.chain(cells).filter(|column| !column.is_empty()) {
                    assert!(columns::find(column).is_some(), "{}: `{pattern}` has no column `{column}`", format.name);
                }
            }
        }
    }

    #[test]
    fn patterns_take_words_numbers_and_units() {
        let row = |pattern, line: &str| {
            let mut row = Row::default();
            Line(Place::Inside, pattern, "workload=tcp_rr").is_taken(&mut row, &words(line)).then_some(row)
        };
        let taken = row("to {to}: {latency_mean_us:unit*2}", " to  ::1:   1,000.5 ms ").expect("a fit");
        assert_eq!((taken.to.as_deref(), taken.latency_mean_us), (Some("::1"), Some(2_001_000.0)));
        assert_eq!(taken.transport.as_deref(), Some("tcp"));
        assert_eq!(row("{} of {lost}…", "\u{1b}[2;35mone of 7 \u{1b}[0mmore").expect("a fit").lost, Some(7));
        for wrong in ["to h: 5 MB/sec", "to h: -5 us", "to h: 5 us more", "to h i: 5 us", "to h:", "to : 5 us"] {
            assert_eq!(row("to {to}: {latency_mean_us:unit*2}", wrong), None, "{wrong}");
        }
    }
}
