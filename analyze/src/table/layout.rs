//! Prints tables for people: aligned columns that fit the terminal, or Markdown.

mod fit;

pub use fit::wrapped;

use super::{OutputArgs, markdown::escaped};
use crate::style::{self, Style};
use anstream::{AutoStream, ColorChoice, stream::RawStream};
use schemas::{
    text::{self, counted},
    words::{Severity, Status, Verdict},
};
use std::io::{self, Write};
use unicode_width::UnicodeWidthStr;

pub struct Column {
    pub title: String,
    /// Numbers are aligned right, words left.
    pub right: bool,
    pub cells: Vec<String>,
}

fn width(text: &str) -> usize {
    text.width()
}

impl Column {
    /// A cell per row.
    pub fn of<T>(title: &str, right: bool, rows: &[T], cell: impl Fn(&T) -> String) -> Self {
        Self { title: title.to_owned(), right, cells: rows.iter().map(cell).collect() }
    }

    fn width(&self) -> usize {
        self.cells.iter().map(|c| width(c)).chain([width(&self.title)]).max().unwrap_or(0)
    }

    /// The look of a word that judges.
    fn style(&self, cell: &str) -> Style {
        if matches!(self.title.as_str(), "verdict" | "status") { style_of(cell) } else { Style::new() }
    }
}

/// The look of a verdict or a status.
fn style_of(word: &str) -> Style {
    match (word.parse::<Verdict>(), word.parse::<Status>()) {
        (Ok(verdict), _) if verdict.is_bad() || matches!(verdict, Verdict::Error | Verdict::Unnoticed) => style::ERROR,
        (Ok(Verdict::Same | Verdict::NoWorse), _) => Style::new(),
        (Ok(verdict), _) if verdict.is_well() || verdict == Verdict::Noticed => style::GOOD,
        (_, Ok(Status::Failed | Status::Timeout)) => style::ERROR,
        (Ok(_), _) | (_, Ok(Status::Discarded | Status::Skipped | Status::Cut)) => style::WARNING,
        _ if word == Severity::Warn.as_str() => style::WARNING,
        _ => Style::new(),
    }
}

fn padded(text: &str, to: usize, right: bool, last: bool) -> String {
    let space = " ".repeat(to.saturating_sub(width(text)));
    match (right, last) {
        (true, _) => format!("{space}{text}"),
        // No trailing blanks.
        (false, true) => text.to_owned(),
        (false, false) => format!("{text}{space}"),
    }
}

fn rows(columns: &[Column]) -> usize {
    columns.first().map_or(0, |c| c.cells.len())
}

/// The width of a line in which every cell is whole.
pub fn needed(columns: &[Column]) -> usize {
    columns.iter().map(Column::width).sum::<usize>() + fit::GAP * columns.len().saturating_sub(1)
}

/// The columns as they may be printed: cells come from files and other hosts, and each stays in its line.
fn printable(columns: &[Column]) -> Vec<Column> {
    let plain = |text: &String| text::plain(&text.replace(['\n', '\r', '\t'], " "));
    let of = |column: &Column| Column {
        title: plain(&column.title),
        right: column.right,
        cells: column.cells.iter().map(plain).collect(),
    };
    columns.iter().map(of).collect()
}

/// Prints columns two blanks apart under their titles, within the sheet. Where there is little room, titles and texts
/// break, and names are shortened in the middle; columns that still do not fit are left out, and a last line says so.
pub fn aligned(columns: &[Column], sheet: &Sheet, output: &mut dyn Write) -> io::Result<()> {
    let columns = &printable(columns);
    let room = sheet.width.map(|width| width.saturating_sub(sheet.indent));
    let fitted = fit::fit(columns, room, sheet.all_columns);
    let indent = " ".repeat(sheet.indent);
    let print = |cells: &[String], head: bool, output: &mut dyn Write| -> io::Result<()> {
        let broken: Vec<Vec<String>> = cells
            .iter()
            .zip(&fitted.shown)
            .map(|(cell, (_, width))| match room {
                None => vec![cell.clone()],
                Some(_) if head => fit::title_lines(cell, *width),
                Some(_) => wrapped(cell, *width),
            })
            .collect();
        for at in 0..broken.iter().map(Vec::len).max().unwrap_or(0) {
            let mut line = String::new();
            for (place, ((i, width), parts)) in fitted.shown.iter().zip(&broken).enumerate() {
                if place > 0 {
                    line.push_str(&" ".repeat(fit::GAP));
                }
                let text = parts.get(at).map_or("", String::as_str);
                let text = padded(text, *width, columns[*i].right, place + 1 == fitted.shown.len());
                let look = if head { Style::new() } else { columns[*i].style(text.trim()) };
                line.push_str(&sheet.painted(look, &text));
            }
            let look = if head { style::HEAD } else { Style::new() };
            writeln!(output, "{}", sheet.painted(look, format!("{indent}{line}").trim_end()))?;
        }
        Ok(())
    };
    let titles: Vec<String> = fitted.shown.iter().map(|(i, _)| columns[*i].title.clone()).collect();
    print(&titles, true, output)?;
    let short: Vec<Vec<String>> = fitted
        .shown
        .iter()
        .map(|(i, width)| match room {
            Some(_) => fit::shortened(&columns[*i].cells, *width),
            None => columns[*i].cells.clone(),
        })
        .collect();
    for row in 0..rows(columns) {
        let cells: Vec<String> = short.iter().map(|cells| cells[row].clone()).collect();
        print(&cells, false, output)?;
        if let Some(notes) = fitted.below.map(|i| &columns[i].cells[row]).filter(|notes| !notes.is_empty()) {
            paragraph(notes, sheet.indent + 4, sheet.width, output)?;
        }
    }
    if !fitted.left_out.is_empty() {
        let names: Vec<&str> = fitted.left_out.iter().map(|i| columns[*i].title.as_str()).collect();
        let note = format!("… {} left out ({}): {}", counted(names.len(), "column"), names.join(", "), sheet.hint);
        paragraph(&note, sheet.indent, sheet.width, output)?;
    }
    Ok(())
}

/// Prints a text in lines of the given width.
pub fn paragraph(text: &str, indent: usize, width: Option<usize>, output: &mut dyn Write) -> io::Result<()> {
    let room = width.map_or(usize::MAX, |width| width.saturating_sub(indent));
    wrapped(text, room).iter().try_for_each(|line| writeln!(output, "{:indent$}{line}", ""))
}

/// Prints what a table says, before it; nothing for no text.
pub fn answer(answer: &str, is_markdown: bool, sheet: &Sheet, output: &mut dyn Write) -> io::Result<()> {
    if answer.is_empty() {
        return Ok(());
    }
    // As the table has its cases.
    let answer = text::short_names(answer);
    if is_markdown {
        return writeln!(output, "**{}**\n", escaped(&answer));
    }
    paragraph(&text::plain(&answer), sheet.indent, sheet.width, output)?;
    writeln!(output)
}

/// Prints a Markdown table that is also readable as text.
pub fn markdown(columns: &[Column], output: &mut dyn Write) -> io::Result<()> {
    let widths: Vec<usize> = columns
        .iter()
        .map(|c| c.cells.iter().map(|t| width(&escaped(t))).chain([width(&escaped(&c.title)), 3]).max().unwrap_or(3))
        .collect();
    let mut line = |cell: &dyn Fn(usize, &Column) -> String| -> io::Result<()> {
        let cells: Vec<String> = columns.iter().enumerate().map(|(i, c)| cell(i, c)).collect();
        writeln!(output, "| {} |", cells.join(" | "))
    };
    line(&|i, c| padded(&escaped(&c.title), widths[i], c.right, false))?;
    line(&|i, c| if c.right { format!("{}:", "-".repeat(widths[i] - 1)) } else { "-".repeat(widths[i]) })?;
    for row in 0..rows(columns) {
        line(&|i, c| padded(&escaped(&c.cells[row]), widths[i], c.right, false))?;
    }
    Ok(())
}

// The paper of a table: how wide it is, and whether it has colours.

/// Room and colours of an output. A terminal has a width; a file or a pipe has none, and gets every cell whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sheet {
    /// Columns of characters; `None`: without a limit.
    pub width: Option<usize>,
    /// Blanks before each line.
    pub indent: usize,
    pub colours: bool,
    /// Whether every column is shown, even if the lines become too long.
    pub all_columns: bool,
    /// Advice for seeing columns that did not fit, for the note about them.
    pub hint: &'static str,
}

impl Sheet {
    /// Without a limit and without colours.
    pub const PLAIN: Self =
        Self { width: None, indent: 0, colours: false, all_columns: false, hint: "a wider terminal has room" };

    pub fn stdout() -> Self {
        Self::of_stream(&io::stdout())
    }

    pub fn stderr() -> Self {
        Self::of_stream(&io::stderr())
    }

    /// For standard output, or for the file of `-o`.
    pub fn of(output: &OutputArgs) -> Self {
        if output.is_for_people() { Self::stdout() } else { Self::PLAIN }
    }

    fn of_stream(stream: &impl RawStream) -> Self {
        if !stream.is_terminal() {
            return Self::PLAIN;
        }
        // `NO_COLOR`, `CLICOLOR` and `TERM=dumb` decide.
        let colours = AutoStream::choice(stream) != ColorChoice::Never;
        Self { width: Some(size_or((80, 24)).0), colours, ..Self::PLAIN }
    }

    /// The same with blanks before each line.
    #[must_use]
    pub fn indented(self, indent: usize) -> Self {
        Self { indent, ..self }
    }
}

impl Sheet {
    /// A text in a style, where the sheet has colours.
    pub fn painted(&self, style: Style, text: &str) -> String {
        if self.colours && style != Style::new() && !text.is_empty() {
            format!("{style}{text}{style:#}")
        } else {
            text.to_owned()
        }
    }
}

/// Columns and rows: `COLUMNS` and `LINES` where they are set, else those of the terminal, else these.
pub fn size_or(default: (usize, usize)) -> (usize, usize) {
    let asked = |name: &str| std::env::var(name).ok()?.parse::<usize>().ok().filter(|side| *side > 0);
    let real = terminal_size::terminal_size().map(|(width, height)| (usize::from(width.0), usize::from(height.0)));
    let real = real.filter(|(width, height)| *width > 0 && *height > 0).unwrap_or(default);
    (asked("COLUMNS").unwrap_or(real.0), asked("LINES").unwrap_or(real.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns() -> Vec<Column> {
        vec![
            Column { title: "case".into(), right: false, cells: vec!["a|b".into(), "größe".into()] },
            Column { title: "rate".into(), right: true, cells: vec!["1 µs".into(), "10 µs".into()] },
            Column { title: "note".into(), right: false, cells: vec![String::new(), "x".into()] },
        ]
    }

    #[test]
    fn numbers_stand_right_and_no_line_ends_in_blanks() {
        let mut out = Vec::new();
        aligned(&columns(), &Sheet::PLAIN, &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "case    rate  note\na|b     1 µs\ngröße  10 µs  x\n");
    }

    fn fitted(columns: &[Column], width: usize) -> String {
        let mut out = Vec::new();
        aligned(columns, &Sheet { width: Some(width), ..Sheet::PLAIN }, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.lines().all(|line| line.width() <= width), "{text}");
        text
    }

    fn verdicts() -> Vec<Column> {
        let column = |title: &str, cells: [&str; 2]| Column {
            title: title.into(),
            right: false,
            cells: cells.map(str::to_owned).to_vec(),
        };
        vec![
            column("verdict", ["pass", "inconclusive"]),
            column("case", ["bulk[message_size=1024,streams=1]", "bulk[message_size=65536,streams=1]"]),
            column("assertion", ["throughput >= 90Gbit/s", "latency.p99 < 80us"]),
            column("observed", ["94.1 Gbit/s ± 0.32 %", "157 µs (12.5 µs … 394 µs)"]),
            column("", ["", "the interval leaves room for both; about 40 iterations would decide"]),
        ]
    }

    #[test]
    fn a_table_fits_its_terminal_without_cutting_a_number() {
        for width in [160, 120, 100, 80, 60, 40] {
            let text = fitted(&verdicts(), width);
            let words: Vec<&str> = text.split_whitespace().collect();
            let has = |words_of: &str| words_of.split(' ').all(|word| words.contains(&word));
            assert!(has("inconclusive iterations would decide"), "{width}: {text}");
            assert!(text.contains("94.1 Gbit/s") || text.contains("left out"), "{width}: {text}");
        }
        let text = fitted(&verdicts(), 80);
        assert!(text.contains("157 µs") && text.contains("394 µs)") && !text.contains("left out"), "{text}");
        // The sizes tell the cases apart.
        assert!(text.contains("1024") && text.contains("65536"), "{text}");
    }

    #[test]
    fn columns_without_room_are_named() {
        let number = |title: &str| Column { title: title.into(), right: true, cells: vec!["41.8 Gbit/s".into()] };
        let columns: Vec<Column> = ["one", "two", "three", "four", "five"].map(number).into_iter().collect();
        let text = fitted(&columns, 40);
        assert!(text.starts_with("        one          two        three\n"), "{text}");
        assert!(text.contains("… 2 columns left out (four, five): a"), "{text}");
        assert!(!fitted(&columns, 64).contains("left out"));
    }

    #[test]
    fn verdicts_have_colours_on_terminals_only() {
        let columns = [Column { title: "verdict".into(), right: false, cells: vec!["pass".into(), "fail".into()] }];
        let print = |colours| {
            let mut out = Vec::new();
            aligned(&columns, &Sheet { colours, ..Sheet::PLAIN }, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(print(false), "verdict\npass\nfail\n");
        assert!(print(true).contains("\u{1b}[32mpass\u{1b}[0m"), "{:?}", print(true));
        assert!(print(true).contains("\u{1b}[31m"), "{:?}", print(true));
    }

    #[test]
    fn a_cell_reaches_no_terminal_as_a_code_and_begins_no_line() {
        let cells = vec!["\x1b]0;title\x07".to_owned(), "a\n::set-output name=a::b".into(), "::error::x".into()];
        let columns = [Column { title: "\x1b[2J".into(), right: false, cells }];
        for width in [None, Some(40)] {
            let mut out = Vec::new();
            aligned(&columns, &Sheet { width, ..Sheet::PLAIN }, &mut out).unwrap();
            let mut text = String::from_utf8(out).unwrap();
            text += &{
                let mut out = Vec::new();
                markdown(&columns, &mut out).unwrap();
                String::from_utf8(out).unwrap()
            };
            assert!(!text.contains('\x1b') && !text.contains("\n::") && !text.contains("| ::"), "{text}");
        }
    }

    #[test]
    fn markdown_escapes_bars() {
        let mut out = Vec::new();
        markdown(&columns(), &mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "| case  |  rate | note |\n| ----- | ----: | ---- |\n| a\\|b  |  1 µs |      |\n| größe | 10 µs | x    |\n"
        );
    }
}
