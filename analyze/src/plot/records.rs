//! The rows of a picture: reads results files and picks the rows that count. `choice` chooses metric and axes
//! where none are given, `identity` tells series apart.

use super::{
    choice::Wanted,
    identity::{self, FACTS, NAMES},
    options::Options,
    quantity::Quantity,
};
use crate::{
    error::{Error, Place},
    table::{
        InputArgs, Record as RecordKind, Row, Table, parse_number,
        select::{Picker, Preferred, Selection},
    },
};
use indexmap::IndexMap;
use schemas::{columns::AXIS_PREFIX, units::Unit, words::OfferedUnit};
use std::collections::{HashMap, HashSet};

/// The column of offered loads. Its unit stands in another column.
const OFFERED: &str = "offered_per_s";

/// The start of a note on rows that are not drawn.
const LEFT_OUT: &str = "left out:";

/// A row that counts.
#[derive(Clone, Debug)]
pub struct Record {
    pub(super) cells: Vec<Box<str>>,
    pub(super) numbers: Vec<Option<f64>>,
    /// Line in its file.
    pub line: u64,
}

/// The rows of a picture.
#[derive(Debug, Default)]
pub struct Records {
    /// In the order of the input.
    pub list: Vec<Record>,
    pub kind: Option<RecordKind>,
    /// Columns that tell series apart.
    pub by: Vec<String>,
    /// Column of the metric; empty for pictures without.
    pub metric: String,
    /// Columns along the axes, as asked for or chosen.
    pub axes: Vec<String>,
    /// Rows with the answers of searches, where probes are drawn.
    pub answers: Vec<Record>,
    /// Facts for the reader of the picture: rows that were left out, parameters that all rows share.
    pub notes: Vec<String>,
    pub warnings: Vec<String>,
    pub(super) texts: HashMap<String, usize>,
    pub(super) numbers: HashMap<String, usize>,
    /// Names of series by their values in `by`.
    pub(super) names: HashMap<Vec<Box<str>>, String>,
    /// Labels of cases, without the part that all share.
    pub(super) labels: identity::Labels,
    /// Keys that the cases' names have with their swept values.
    pub(super) swept: Vec<String>,
    /// A sentence about swept keys that the cases' labels leave out.
    pub(super) implied: Option<String>,
    /// Unit of the offered loads.
    offered: Option<Unit>,
    lacking: Lacking,
    /// Names in `--by` that are no columns, with the error that says so. A case's swept key may have such a name.
    pub(super) unknown: Vec<(String, Error)>,
    /// The table's names of the columns that were asked for.
    own: HashMap<String, String>,
}

/// Number of rows that lack a column, by column and case.
type Lacking = IndexMap<(String, String), u64>;

/// The columns of a picture.
#[derive(Clone, Copy, Debug, Default)]
pub struct Columns<'a> {
    /// The metric that is drawn.
    pub metric: Wanted<'a>,
    /// The parameters along the axes.
    pub axes: &'a [Wanted<'a>],
    /// Whether the axes are of numbers, otherwise of names.
    pub numeric_axes: bool,
    /// Numbers that every row must have, beside metric and axes.
    pub numbers: &'a [&'a str],
    /// Numbers that a file may have.
    pub optional: &'a [&'a str],
    /// Texts that a file may have.
    pub texts: &'a [&'a str],
    /// Texts that every file must have, and every row that counts.
    pub required_texts: &'a [&'a str],
    /// Columns that do not tell series apart, beside the axes.
    pub along: &'a [&'a str],
    /// Whether each case is drawn by itself: then its name tells rows apart instead of its parameters.
    pub by_case: bool,
    /// Whether a line joins the rows of a series: rows of different origin then never share one, even where no two of
    /// them lie at one place.
    pub lines: bool,
}

/// The places of a picture's columns in the table and in [`Record`].
#[derive(Default)]
struct Places {
    /// `None` stands for `file`, which tells rows apart like a column.
    texts: Vec<Option<usize>>,
    numbers: Vec<usize>,
    /// Indices of numbers and of texts that every row must have.
    required_numbers: Vec<usize>,
    required_texts: Vec<usize>,
}

impl Places {
    fn record(&self, row: &Row<'_>) -> Result<Record, Error> {
        Ok(Record {
            cells: self.texts.iter().map(|c| c.map_or(row.file(), |c| row.get(c)).into()).collect(),
            numbers: self.numbers.iter().map(|c| row.number(*c)).collect::<Result<_, _>>()?,
            line: row.line(),
        })
    }
}

impl Records {
    /// Reads the files. A row counts if it has all required columns. Without `options.by`, series are told apart by the
    /// fewest columns that keep rows of different identity apart. With it, rows that would still be joined are an error.
    pub fn new(
        options: &Options,
        input: &InputArgs,
        selection: &Selection,
        columns: &Columns<'_>,
    ) -> Result<Self, Error> {
        Self::of_table(&mut Table::open(input)?, options, selection, columns)
    }

    /// [`Records::new`] of a table that is already open.
    pub fn of_table(
        table: &mut Table,
        options: &Options,
        selection: &Selection,
        columns: &Columns<'_>,
    ) -> Result<Self, Error> {
        let mut records = Self::default();
        let places = records.place(table, options, columns)?;
        let test = match options.tests[..] {
            [] => None,
            _ => Some(table.require("test")?),
        };
        let mut picker = Picker::new(selection, table)?;
        let probes = selection.record.as_deref() == Some(RecordKind::Probe.as_str());
        let summaries = Selection { record: Some(RecordKind::Summary.to_string()), ..selection.clone() };
        let mut answers = if probes { Some(Picker::new(&summaries, table)?) } else { None };
        let mut kept: Preferred<Vec<Record>> = Preferred::default();
        let mut lacking: Vec<(RecordKind, Lacking)> = Vec::new();
        while let Some(row) = table.next_row()? {
            if test.is_some_and(|column| !options.tests.iter().any(|name| name == row.get(column))) {
                continue;
            }
            if let Some(answers) = &mut answers
                && answers.pick(&row)?.is_some()
            {
                let record = places.record(&row)?;
                if !records.text(&record, "search").is_empty() {
                    records.answers.push(record);
                }
                continue;
            }
            let Some(kind) = picker.pick(&row)? else { continue };
            let record = places.record(&row)?;
            // A kind of which no row can be drawn must not displace one that can.
            match records.lacks(&record, &places, columns) {
                None => {
                    if let Some(list) = kept.slot(kind) {
                        list.push(record);
                    }
                }
                Some(column) => {
                    let index = lacking.iter().position(|known| known.0 == kind).unwrap_or_else(|| {
                        lacking.push((kind, Lacking::new()));
                        lacking.len() - 1
                    });
                    *lacking[index].1.entry((column, records.case_of(&record))).or_default() += 1;
                }
            }
        }
        records.warnings.extend(picker.note());
        if let Some((kind, list)) = kept.into_kept() {
            records.kind = Some(kind);
            records.list = list;
        }
        // Rows of other kinds were not asked for.
        lacking.retain(|known| records.kind.is_none_or(|kind| kind == known.0));
        records.lacking = lacking.into_iter().flat_map(|known| known.1).collect();
        records.add_swept();
        records.scale_offered();
        records.choose_metric(columns);
        records.choose_axes(columns)?;
        records.tell_apart(options, columns)?;
        records.notes.extend(records.left_out());
        Ok(records)
    }

    /// Finds the columns in the table.
    fn place(&mut self, table: &Table, options: &Options, columns: &Columns<'_>) -> Result<Places, Error> {
        let mut places = Places::default();
        let names = table.header().names();
        let mut number = |records: &mut Self, name: &str, column: usize| {
            let index = places.numbers.iter().position(|known| *known == column).unwrap_or_else(|| {
                places.numbers.push(column);
                places.numbers.len() - 1
            });
            for name in [name, &names[column]] {
                records.numbers.insert(name.to_owned(), index);
            }
            index
        };
        let mut required = Vec::new();
        let asked =
            |wanted: &[Wanted<'_>]| wanted.iter().filter_map(|w| w.given().map(str::to_owned)).collect::<Vec<_>>();
        let metric = asked(&[columns.metric]);
        let axes = asked(columns.axes);
        let numeric_axes: &[String] = if columns.numeric_axes { &axes } else { &[] };
        for name in columns.numbers.iter().copied().chain(metric.iter().chain(numeric_axes).map(String::as_str)) {
            required.push(number(self, name, table.require(name)?));
        }
        let headlines = columns.metric.candidates();
        for name in columns.optional.iter().copied().chain(headlines) {
            if let Some(column) = table.header().find(name) {
                number(self, name, column);
            }
        }
        places.required_numbers = required;
        let mut text = |records: &mut Self, name: &str, column: Option<usize>| {
            if records.texts.contains_key(name) {
                return records.texts[name];
            }
            let index = places.texts.iter().position(|known| *known == column).unwrap_or_else(|| {
                places.texts.push(column);
                places.texts.len() - 1
            });
            records.texts.insert(name.to_owned(), index);
            if let Some(column) = column {
                records.texts.insert(names[column].clone(), index);
            }
            index
        };
        let named: &[String] = if columns.numeric_axes { &[] } else { &axes };
        let mut required = Vec::new();
        for name in columns.required_texts.iter().copied().chain(named.iter().map(String::as_str)) {
            let column = if name == "file" { None } else { Some(table.require(name)?) };
            required.push(text(self, name, column));
        }
        places.required_texts = required;
        let optional = columns.texts.iter().copied().chain(NAMES).chain(identity::parameters()).chain(FACTS);
        let optional = optional.chain(columns.along.iter().copied()).chain(axes.iter().map(String::as_str));
        let optional = optional.chain(names.iter().map(String::as_str).filter(|name| name.starts_with(AXIS_PREFIX)));
        let optional: Vec<&str> = optional.chain(options.by.iter().map(String::as_str)).collect();
        for name in optional {
            let column = if name == "file" { Some(None) } else { table.header().find(name).map(Some) };
            if let Some(column) = column {
                text(self, name, column);
            }
        }
        for name in options.by.iter().filter(|name| *name != "file") {
            if let Err(error) = table.require(name) {
                self.unknown.push((name.clone(), error));
            }
        }
        // A column has several names: the table's own is the one to compare.
        for name in options.by.iter().chain(&axes).chain(&metric) {
            if let Some(column) = table.header().find(name) {
                self.own.insert(name.clone(), names[column].clone());
            }
        }
        self.metric = metric.first().map(|name| self.own_name(name)).unwrap_or_default();
        Ok(places)
    }

    /// The table's name of a column that was asked for.
    pub(super) fn own_name(&self, name: &str) -> String {
        self.own.get(name).map_or_else(|| name.to_owned(), String::clone)
    }

    /// A required column that the row does not have, as a person calls it.
    fn lacks(&self, record: &Record, places: &Places, columns: &Columns<'_>) -> Option<String> {
        let name = |map: &HashMap<String, usize>, index: usize| {
            // A column stands under its name and the name that was asked for. Both have one label.
            let names = map.iter().filter(|entry| *entry.1 == index).map(|entry| entry.0);
            names.max_by_key(|name| name.len()).map(|name| Quantity::of_column(name).label).unwrap_or_default()
        };
        if let Some(index) = places.required_numbers.iter().find(|i| record.numbers[**i].is_none()) {
            return Some(name(&self.numbers, *index));
        }
        if let Some(index) = places.required_texts.iter().find(|i| record.cells[**i].is_empty()) {
            return Some(name(&self.texts, *index));
        }
        (columns.metric == Wanted::Default && self.headline_of(record).is_none()).then(|| "a headline".to_owned())
    }

    /// The case and member of a row, for messages.
    pub(super) fn case_of(&self, record: &Record) -> String {
        let case =
            ["case", "test", "plan"].into_iter().map(|name| self.text(record, name)).find(|name| !name.is_empty());
        let member = self.text(record, "member");
        let case = case.unwrap_or("");
        if member.is_empty() { case.to_owned() } else { format!("{case} {member}") }
    }

    /// Keeps the rows that have something, and notes the others. `what` says what they lack.
    pub fn keep_those_with(&mut self, what: &str, has: impl Fn(&Self, &Record) -> bool) {
        self.keep(what, has);
        let notes = self.left_out();
        self.notes.retain(|note| !note.starts_with(LEFT_OUT));
        self.notes.extend(notes);
    }

    /// Keeps the rows that have something. `what` says what the others lack.
    pub(super) fn keep(&mut self, what: &str, has: impl Fn(&Self, &Record) -> bool) {
        let list = std::mem::take(&mut self.list);
        let (kept, lost): (Vec<_>, Vec<_>) = list.into_iter().partition(|record| has(self, record));
        for record in &lost {
            let case = self.case_of(record);
            *self.lacking.entry((what.to_owned(), case)).or_default() += 1;
        }
        self.list = kept;
    }

    /// A sentence about rows that were left out, for each thing that they lack.
    fn left_out(&self) -> Vec<String> {
        const NAMED: usize = 3;
        let mut columns: Vec<&str> = Vec::new();
        for (column, _) in self.lacking.keys() {
            if !columns.contains(&column.as_str()) {
                columns.push(column);
            }
        }
        let sentence = |column: &str| {
            let mine: Vec<(&String, u64)> =
                self.lacking.iter().filter(|e| e.0.0 == column).map(|e| (&e.0.1, *e.1)).collect();
            let rows: u64 = mine.iter().map(|m| m.1).sum();
            let s = if rows == 1 { "" } else { "s" };
            let mut cases: Vec<String> = mine.iter().map(|m| identity::readable(m.0)).collect();
            if cases.len() > NAMED {
                // Of many cases the tests are named.
                cases = mine.iter().map(|m| identity::test_of(m.0).to_owned()).collect();
            }
            cases.retain(|case| !case.is_empty());
            let mut seen = HashSet::new();
            cases.retain(|case| seen.insert(case.clone()));
            if cases.len() > NAMED {
                let more = cases.len() - NAMED;
                cases.truncate(NAMED);
                cases.push(format!("{more} more"));
            }
            let cases = if cases.is_empty() { String::new() } else { format!(" ({})", cases.join(", ")) };
            format!("{LEFT_OUT} {rows} row{s} without {column}{cases}")
        };
        columns.into_iter().map(sentence).collect()
    }

    /// Offered loads in the unit that people write: datagrams are counted, but their rate is usually swept in bits.
    fn scale_offered(&mut self) {
        let unit_of = |records: &Self, record: &Record| match records.text(record, "offered_unit").parse() {
            Ok(OfferedUnit::Bits) => Some(Unit::BitsPerSecond),
            Ok(OfferedUnit::Transactions) => Some(Unit::PerSecond),
            Ok(OfferedUnit::Messages) => {
                let swept = records.text(record, identity::SWEPT_RATE);
                let counted = !swept.is_empty() && !swept.contains("bit") && !swept.contains('B');
                let sized = parse_number(records.text(record, "message_bytes")).ok().flatten().is_some();
                Some(if counted || !sized { Unit::PerSecond } else { Unit::BitsPerSecond })
            }
            Err(_) => None,
        };
        let Some(&text) = self.texts.get(OFFERED) else { return };
        let number = self.numbers.get(OFFERED).copied();
        let mut list = std::mem::take(&mut self.list);
        let mut answers = std::mem::take(&mut self.answers);
        for record in list.iter_mut().chain(&mut answers) {
            let unit = unit_of(self, record);
            self.offered = self.offered.or(unit);
            let messages = self.text(record, "offered_unit") == OfferedUnit::Messages.as_str();
            if unit != Some(Unit::BitsPerSecond) || !messages {
                continue;
            }
            let bytes = parse_number(self.text(record, "message_bytes")).ok().flatten();
            let load = parse_number(&record.cells[text]).ok().flatten();
            let Some(bits) = bytes.zip(load).map(|(bytes, load)| bytes * load * 8.0) else { continue };
            // The rate was written in bits and divided by the size: the product is off by the last digits.
            let bits = format!("{bits:.9e}").parse().unwrap_or(bits);
            record.cells[text] = schemas::columns::number(bits).into();
            if let Some(number) = number {
                record.numbers[number] = Some(bits);
            }
        }
        self.list = list;
        self.answers = answers;
    }

    /// The text of a column; empty where it is missing.
    pub fn text<'a>(&self, record: &'a Record, column: &str) -> &'a str {
        self.texts.get(column).and_then(|i| record.cells.get(*i)).map_or("", |cell| cell)
    }

    /// Whether a file has the column.
    pub fn has(&self, column: &str) -> bool {
        self.texts.contains_key(column)
    }

    /// The number of a column; `None` where it is missing.
    pub fn number(&self, record: &Record, column: &str) -> Option<f64> {
        self.numbers.get(column).and_then(|i| record.numbers[*i])
    }

    pub fn error(&self, record: &Record, column: &str, reason: impl Into<String>) -> Error {
        let file = self.text(record, "file").to_owned();
        Error::Data { place: Place { file, line: record.line, column: Some(column.to_owned()) }, reason: reason.into() }
    }

    /// Keeps the rows with the first value of a column, or those without a value where there are some. Rows of several
    /// values would cover each other. A warning names the value.
    pub fn keep_first(&mut self, column: &str) {
        let all = self.distinct(column).len();
        let without = self.list.iter().any(|record| self.text(record, column).is_empty());
        let first =
            if without { String::new() } else { self.distinct(column).first().copied().unwrap_or("").to_owned() };
        let list = std::mem::take(&mut self.list);
        self.list = list.into_iter().filter(|record| self.text(record, column) == first).collect();
        if !without && all > 1 {
            self.warnings.push(format!("drawn: {column} {first}, the first of {all}"));
        }
    }

    /// The quantity of a column. Service demand and offered loads take their unit from the rows.
    pub fn quantity(&self, column: &str) -> Quantity {
        let mut quantity = Quantity::of_column(column);
        if column == OFFERED {
            return Quantity { label: "offered rate".to_owned(), unit: self.offered, ..quantity };
        }
        if quantity.unit == Some(Unit::ServiceDemand)
            && let [per] = self.distinct("service_demand_unit")[..]
        {
            quantity.per = match per {
                "us_per_kib" => Some("KiB".to_owned()),
                "us_per_transaction" => Some("transaction".to_owned()),
                _ => None,
            };
        }
        quantity
    }

    /// The name of a column in the points that a picture writes. That of an offered load says the unit of its values.
    pub fn header(&self, column: &str) -> String {
        let in_bits = column == OFFERED && self.offered == Some(Unit::BitsPerSecond);
        if in_bits { "offered_bits_per_s".to_owned() } else { column.to_owned() }
    }

    /// Fails where there is nothing to draw, and says why.
    pub fn nothing_to_draw(&self, empty: bool, options: &Options, columns: &[&str]) -> Result<(), Error> {
        if !empty {
            return Ok(());
        }
        let file = options.input.files.first().map_or_else(|| "-".to_owned(), |p| p.display().to_string());
        let quoted = |c: &&str| if c.contains(' ') { (*c).to_owned() } else { format!("`{c}`") };
        let columns = columns.iter().map(quoted).collect::<Vec<_>>().join(" and ");
        let mut reason = format!("nothing to draw: no row that counts has {columns}");
        for warning in self.warnings.iter().chain(&self.notes) {
            reason.push_str("; ");
            reason.push_str(warning);
        }
        Err(Error::Data { place: Place { file, line: 0, column: None }, reason })
    }

    /// Fails where the rows are of several cases. `what` begins the sentence: "latencies over time are drawn for one case".
    pub fn one_case(&self, what: &str) -> Result<(), Error> {
        let Some(first) = self.by.first() else { return Ok(()) };
        let names = self.by.iter().map(|b| format!("`{b}`")).collect::<Vec<_>>().join(" and ");
        Err(Error::Usage(format!("{what}; the rows differ in {names}: choose with --where {first}=…")))
    }

    /// The distinct values of a column, in the order of the input.
    pub fn distinct(&self, column: &str) -> Vec<&str> {
        let mut seen = Vec::new();
        for record in &self.list {
            let value = self.text(record, column);
            if !value.is_empty() && !seen.contains(&value) {
                seen.push(value);
            }
        }
        seen
    }

    /// The footer: run, hosts, date, iterations.
    pub fn footer(&self) -> Vec<String> {
        let mut parts = Vec::new();
        for (column, word) in [("run_id", "run"), ("baseline_run_id", "baseline run")] {
            match self.distinct(column)[..] {
                [] => {}
                [run] => parts.push(format!("{word} {run}")),
                ref runs => parts.push(format!("{} {word}s", runs.len())),
            }
        }
        let mut hosts: Vec<String> = Vec::new();
        for record in &self.list {
            let pair = format!("{} → {}", self.text(record, "from"), self.text(record, "to"));
            if pair.chars().count() > 3 && !hosts.contains(&pair) {
                hosts.push(pair);
            }
        }
        match hosts.len() {
            0 => {}
            1..=3 => parts.push(hosts.join(", ")),
            more => parts.push(format!("{} and {} more pairs of hosts", hosts[0], more - 1)),
        }
        let mut days: Vec<&str> = self.distinct("time").into_iter().map(|t| t.split('T').next().unwrap_or(t)).collect();
        days.sort_unstable();
        match (days.first(), days.last()) {
            (Some(first), Some(last)) if first == last => parts.push((*first).to_owned()),
            (Some(first), Some(last)) => parts.push(format!("{first} … {last}")),
            _ => {}
        }
        match self.distinct("iteration").len() {
            0 => {}
            1 => parts.push("1 iteration".to_owned()),
            n => parts.push(format!("{n} iterations")),
        }
        parts
    }

    /// The subject of the title: the name of the plan, and of the test and the member where there is only one.
    pub fn subject(&self) -> Option<String> {
        let plans = self.distinct("plan");
        let tests = self.distinct("test");
        let mut parts: Vec<&str> = Vec::new();
        if let [plan] = plans[..] {
            parts.push(plan);
        }
        if let [test] = tests[..]
            && !parts.contains(&test)
        {
            parts.push(test);
        }
        if let [member] = self.distinct("member")[..]
            && self.list.iter().all(|record| !self.text(record, "member").is_empty())
            && !parts.contains(&member)
        {
            parts.push(member);
        }
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "run_id,plan,test,record,phase,iteration,status,from,to,time,streams,message_bytes,throughput_bits_per_s\n\
        r1,p,bulk,iteration,measure,1,ok,a,b,2026-11-20T10:00:00Z,1,64,5\n\
        r1,p,bulk,iteration,measure,1,ok,a,b,2026-11-21T10:00:00Z,4,64,7\n\
        r1,p,bulk,iteration,measure,2,failed,a,b,2026-11-21T10:00:00Z,4,64,\n\
        r1,p,bulk,iteration,measure,3,ok,a,b,2026-11-21T10:00:00Z,4,64,\n\
        r1,p,bulk,iteration,measure,2,ok,a,b,2026-11-21T10:00:00Z,4,128,9\n";

    fn read(text: &str, by: &[&str], columns: &Columns<'_>) -> Result<Records, Error> {
        let options = Options { by: by.iter().map(|b| (*b).to_owned()).collect(), ..Options::default() };
        let mut table = Table::from_text("x/t.csv", text).unwrap();
        Records::of_table(&mut table, &options, &Selection::default(), columns)
    }

    fn sweep<'a>() -> Columns<'a> {
        Columns {
            metric: Wanted::Column("throughput"),
            axes: &[Wanted::Column("message_bytes")],
            numeric_axes: true,
            lines: true,
            ..Columns::default()
        }
    }

    fn series(records: &Records) -> Vec<String> {
        records.list.iter().map(|record| records.series(record)).collect()
    }

    #[test]
    fn series_are_told_apart_by_what_differs_and_nothing_else() {
        let r = read(TABLE, &[], &sweep()).unwrap();
        assert_eq!(r.by, ["streams"]);
        assert_eq!(series(&r), ["streams=1", "streams=4", "streams=4"]);
        assert_eq!(r.number(&r.list[2], "throughput"), Some(9.0));
        assert_eq!((r.metric.as_str(), &r.axes[..]), ("throughput_bits_per_s", &["message_bytes".to_owned()][..]));
    }

    #[test]
    fn a_name_says_only_what_tells_apart() {
        let text = "test,direction,throughput_bits_per_s\nstream,forward,1\nduplex,forward,2\nduplex,reverse,3\n";
        let r = read(text, &[], &Columns { axes: &[], ..sweep() }).unwrap();
        assert_eq!(series(&r), ["stream", "duplex · forward", "duplex · reverse"]);
    }

    #[test]
    fn what_by_leaves_out_is_refused() {
        let error = read(TABLE, &["test"], &sweep()).unwrap_err().to_string();
        assert!(
            error.contains("differ in `streams` would be joined") && error.contains("--by test,streams"),
            "{error}"
        );
        assert!(error.contains("--where streams="), "{error}");
        assert!(read(TABLE, &["thing"], &sweep()).unwrap_err().to_string().contains("there is no column `thing`"));
    }

    #[test]
    fn a_column_has_all_its_names() {
        let text = "test,message_bytes,axis_socket_mss,throughput_bits_per_s\nt,64,500,1\nt,64,900,2\n";
        let columns =
            Columns { metric: Wanted::Column("throughput.mean"), axes: &[Wanted::Column("message_size")], ..sweep() };
        let r = read(text, &["socket.mss"], &columns).unwrap();
        assert_eq!(r.by, ["axis_socket_mss"]);
        assert_eq!(r.axes, ["message_bytes"]);
        assert_eq!((r.text(&r.list[0], "message_size"), r.text(&r.list[0], "message_bytes")), ("64", "64"));
        assert_eq!(Quantity::of_column("rate").label, Quantity::of_column("offered_per_s").label);
        assert_eq!(series(&r), ["socket mss 500", "socket mss 900"]);
    }

    #[test]
    fn rows_of_different_origin_are_apart_even_where_they_do_not_meet() {
        let text = "test,to,message_bytes,throughput_bits_per_s\nt,b,64,1\nt,b,128,2\nt,c,256,3\n";
        assert_eq!(series(&read(text, &[], &sweep()).unwrap()), ["to b", "to b", "to c"]);
        // Two runs in one table, each with its own sizes.
        let text = "run_id,message_bytes,throughput_bits_per_s\n0-aaaaaa,64,1\n0-bbbbbb,128,2\n";
        assert_eq!(series(&read(text, &[], &sweep()).unwrap()), ["run …aaaaaa", "run …bbbbbb"]);
    }

    #[test]
    fn swept_keys_tell_apart_unless_they_go_along() {
        let header = "case,message_bytes,throughput_bits_per_s\n";
        // A key without a column of its own.
        let cases =
            "\"t[message_size=1,socket.send_buffer=4096]\",1,1\n\"t[message_size=1,socket.send_buffer=65536]\",1,2\n";
        let r = read(&format!("{header}{cases}"), &[], &sweep()).unwrap();
        assert_eq!(r.by, ["socket.send_buffer"]);
        assert_eq!(series(&r), ["socket.send_buffer=4 KiB", "socket.send_buffer=64 KiB"]);
        // A reply that grows with its request is no second curve; two blocks of sizes are two.
        let zipped = "\"t[a=1,b=5]\",1,1\n\"t[a=2,b=6]\",2,2\n\"t[a=3,b=7]\",3,2\n";
        assert_eq!(read(&format!("{header}{zipped}"), &[], &sweep()).unwrap().by, Vec::<String>::new());
        let blocks = "\"t[a=1,b=5]\",1,1\n\"t[a=2,b=5]\",2,2\n\"t[a=3,b=7]\",3,2\n";
        assert_eq!(read(&format!("{header}{blocks}"), &[], &sweep()).unwrap().by, ["b"]);
    }

    #[test]
    fn rows_without_the_metric_are_left_out_and_said() {
        let r = read(TABLE, &[], &sweep()).unwrap();
        assert_eq!((r.list.len(), &r.notes[..]), (3, &["left out: 1 row without throughput (bulk)".to_owned()][..]));
        assert!(r.warnings.iter().any(|w| w.contains("1 failed")));
    }

    #[test]
    fn the_metric_is_the_headline_and_probes_do_not_lie_at_zero() {
        let text = "case,member,workload,start_s,throughput_bits_per_s,transactions_per_s\n\
            l,up,tcp_stream,0,9e9,\nl,down,tcp_stream,0,8e9,\nl,probe,tcp_rr,0,1e5,6000\n";
        let columns = Columns { metric: Wanted::Default, lines: true, ..Columns::default() };
        let r = read(text, &[], &columns).unwrap();
        assert_eq!((r.metric.as_str(), r.list.len()), ("throughput_bits_per_s", 2));
        assert!(r.notes[0].starts_with("left out: 1 row without throughput as their headline"), "{:?}", r.notes);
        assert!(r.notes[0].contains("l probe") && r.notes[0].contains("-y transaction_rate"), "{:?}", r.notes);
        let asked = Columns { metric: Wanted::Column("throughput"), ..columns };
        assert_eq!(read(text, &[], &asked).unwrap().list.len(), 2);
        // Asked for by itself it is drawn.
        let alone: String = text.split_inclusive('\n').filter(|l| !l.contains("stream")).collect();
        assert_eq!(read(&alone, &[], &asked).unwrap().list.len(), 1);
        assert_eq!(read(&alone, &[], &columns).unwrap().metric, "transactions_per_s");
    }

    #[test]
    fn the_axis_is_the_parameter_that_varies() {
        let columns = Columns { metric: Wanted::Default, axes: &[Wanted::Default], ..sweep() };
        let of = |text: &str| read(text, &[], &columns).map(|r| r.axes[0].clone());
        assert_eq!(of(TABLE).unwrap(), "message_bytes");
        let text = "test,streams,axis_socket_mss,throughput_bits_per_s\na,1,500,5\na,1,1400,6\n";
        assert_eq!(of(text).unwrap(), "axis_socket_mss");
        let error = of("test,streams,throughput_bits_per_s\na,1,5\nb,2,6\n").unwrap_err().to_string();
        assert!(error.contains("nothing varies") && error.contains("-x") && error.contains("`bars`"), "{error}");
    }

    #[test]
    fn datagram_rates_are_said_in_bits_as_they_were_swept() {
        let header = "case,offered_per_s,offered_unit,message_bytes,loss_ratio\n";
        let columns =
            Columns { metric: Wanted::Column("loss_ratio"), axes: &[Wanted::Column("offered_per_s")], ..sweep() };
        let r =
            read(&format!("{header}t[rate=100Mbit/s],8928.57142857143,messages,1400,0.1\n"), &[], &columns).unwrap();
        assert_eq!(r.number(&r.list[0], "offered_per_s"), Some(1e8));
        assert_eq!(r.quantity("offered_per_s").unit, Some(Unit::BitsPerSecond));
        assert_eq!(r.header("offered_per_s"), "offered_bits_per_s");
        let r = read(&format!("{header}t[rate=9000/s],9000,messages,1400,0.1\n"), &[], &columns).unwrap();
        assert_eq!(r.number(&r.list[0], "offered_per_s"), Some(9000.0));
        assert_eq!(r.quantity("offered_per_s").unit, Some(Unit::PerSecond));
    }

    #[test]
    fn cases_are_called_by_what_differs() {
        let text =
            "case,throughput_bits_per_s\n\"t[message_size=64,streams=4]\",1\n\"t[message_size=1024,streams=4]\",2\n";
        let columns = Columns { metric: Wanted::Default, by_case: true, ..Columns::default() };
        let r = read(text, &[], &columns).unwrap();
        assert_eq!(series(&r), ["64 B", "1 KiB"]);
        assert_eq!(r.labels.title.as_deref(), Some("message size"));
        assert_eq!(r.notes, ["all with streams=4"]);
        let r = read("case,throughput_bits_per_s\na[streams=4],1\nb[streams=8],2\nc,3\n", &[], &columns).unwrap();
        assert_eq!(series(&r), ["a", "b", "c"]);
        assert_eq!(r.notes, ["streams goes along with the test"]);
        let text = "case,throughput_bits_per_s\na[streams=4],1\na[streams=8],2\nb,3\n";
        assert_eq!(series(&read(text, &[], &columns).unwrap()), ["a · streams=4", "a · streams=8", "b"]);
    }

    #[test]
    fn the_footer_says_where_numbers_come_from() {
        let r = read(TABLE, &[], &sweep()).unwrap();
        assert_eq!(r.footer(), ["run r1", "a → b", "2026-11-20 … 2026-11-21", "2 iterations"]);
        assert_eq!(r.subject().as_deref(), Some("p, bulk"));
    }

    #[test]
    fn files_are_series_too() {
        let r = read(TABLE, &["file", "streams"], &sweep()).unwrap();
        assert_eq!(series(&r)[0], "streams=1");
    }
}
