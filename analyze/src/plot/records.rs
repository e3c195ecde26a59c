//! The rows of a picture: reads results files, picks rows that count, and assigns each to a series.

use super::{options::Options, quantity::Quantity};
use crate::{
    error::{Error, Place},
    table::{
        InputArgs, Record as RecordKind, Table,
        select::{Picker, Preferred, Selection},
    },
};
use schemas::{
    columns::{AXIS_PREFIX, COLUMNS},
    units::Unit,
};
use std::collections::{HashMap, HashSet};

/// Columns that name what ran.
const NAMES: [&str; 6] = ["file", "plan", "case", "test", "member", "direction"];

/// The parameters of the contract; `axis_` columns are parameters, too.
fn parameters<'a>() -> impl Iterator<Item = &'a str> {
    COLUMNS.iter().filter(|c| c.is_parameter()).map(|c| c.name)
}

/// The origin of rows, for footers.
const FACTS: [&str; 7] = ["run_id", "baseline_run_id", "from", "to", "time", "iteration", "record"];

/// A row that counts.
#[derive(Clone, Debug)]
pub struct Record {
    cells: Vec<Box<str>>,
    numbers: Vec<Option<f64>>,
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
    pub warnings: Vec<String>,
    texts: HashMap<String, usize>,
    numbers: HashMap<String, usize>,
    /// Names of series by their values in `by`.
    names: HashMap<Vec<Box<str>>, String>,
}

/// The columns of a picture.
#[derive(Clone, Copy, Debug, Default)]
pub struct Columns<'a> {
    /// Numbers that every file must have.
    pub numbers: &'a [&'a str],
    /// Numbers that a file may have.
    pub optional: &'a [&'a str],
    /// Texts that a file may have.
    pub texts: &'a [&'a str],
    /// Texts that every file must have, and every row that counts.
    pub required_texts: &'a [&'a str],
    /// Columns along an axis, which do not tell series apart.
    pub along: &'a [&'a str],
    /// Whether each case is drawn by itself: then its name tells rows apart instead of its parameters.
    pub by_case: bool,
}

impl Records {
    /// Reads the files. A row counts if it has all required columns. Without `options.by`, series are told apart by the
    /// fewest columns that make rows at one place on the axes equal in all parameters.
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
        let by = &options.by[..];
        let mut records = Self::default();
        // `None` stands for `file`, which tells rows apart like a column.
        let mut text_columns: Vec<Option<usize>> = Vec::new();
        let mut number_columns = Vec::new();
        for name in columns.numbers {
            records.numbers.insert((*name).to_owned(), number_columns.len());
            number_columns.push(table.require(name)?);
        }
        for name in columns.optional {
            if let Some(column) = table.header().find(name) {
                records.numbers.insert((*name).to_owned(), number_columns.len());
                number_columns.push(column);
            }
        }
        let by: Vec<String> = by.iter().map(|name| named(table, name)).collect::<Result<_, _>>()?;
        for name in columns.required_texts.iter().copied() {
            let column = if name == "file" { None } else { Some(table.require(name)?) };
            records.read_text(name, column, &mut text_columns);
        }
        let required = text_columns.len();
        for name in &by {
            let column = if name == "file" { None } else { Some(table.require(name)?) };
            records.read_text(name, column, &mut text_columns);
        }
        let axes: Vec<String> =
            table.header().names().iter().filter(|name| name.starts_with(AXIS_PREFIX)).cloned().collect();
        let optional = columns.texts.iter().copied().chain(NAMES).chain(parameters()).chain(FACTS);
        for name in optional.chain(columns.along.iter().copied()).chain(axes.iter().map(String::as_str)) {
            let column = if name == "file" { Some(None) } else { table.header().find(name).map(Some) };
            if let Some(column) = column {
                records.read_text(name, column, &mut text_columns);
            }
        }
        let test = match options.tests[..] {
            [] => None,
            _ => Some(table.require("test")?),
        };
        let mut picker = Picker::new(selection, table)?;
        let mut kept: Preferred<Vec<Record>> = Preferred::default();
        while let Some(row) = table.next_row()? {
            if test.is_some_and(|column| !options.tests.iter().any(|name| name == row.get(column))) {
                continue;
            }
            let Some(kind) = picker.pick(&row)? else { continue };
            let numbers: Vec<Option<f64>> = number_columns.iter().map(|c| row.number(*c)).collect::<Result<_, _>>()?;
            if numbers[..columns.numbers.len()].iter().any(Option::is_none) {
                continue;
            }
            let cells: Vec<Box<str>> =
                text_columns.iter().map(|c| c.map_or(row.file(), |c| row.get(c)).into()).collect();
            if cells[..required].iter().any(|cell| cell.is_empty()) {
                continue;
            }
            if let Some(slot) = kept.slot(kind) {
                slot.push(Record { cells, numbers, line: row.line() });
            }
        }
        records.warnings.extend(picker.note());
        if let Some((kind, list)) = kept.into_kept() {
            records.kind = Some(kind);
            records.list = list;
        }
        let found = records.distinguishing(&by, columns, &axes);
        if by.is_empty() {
            records.by = found;
        } else {
            records.by.clone_from(&by);
            if !found.is_empty() {
                let names: Vec<String> = found.iter().map(|name| format!("`{name}`")).collect();
                records.warnings.push(format!(
                    "rows drawn as one differ in {}; --by {} tells them apart",
                    names.join(" and "),
                    by.iter().chain(&found).cloned().collect::<Vec<_>>().join(",")
                ));
            }
        }
        records.names = records.series_names();
        Ok(records)
    }

    /// Keeps the text of a column, under this name too.
    fn read_text(&mut self, name: &str, column: Option<usize>, columns: &mut Vec<Option<usize>>) {
        let place = columns.iter().position(|known| *known == column).unwrap_or_else(|| {
            columns.push(column);
            columns.len() - 1
        });
        self.texts.entry(name.to_owned()).or_insert(place);
    }

    fn key(&self, record: &Record) -> Vec<Box<str>> {
        self.by.iter().map(|column| self.text(record, column).into()).collect()
    }

    /// A name for each combination of values in `by`. A value is part of the name where rows with equal values before
    /// it differ in it: `stream`, `duplex · forward`, `duplex · reverse`.
    fn series_names(&self) -> HashMap<Vec<Box<str>>, String> {
        let keys: HashSet<Vec<Box<str>>> = self.list.iter().map(|record| self.key(record)).collect();
        let mut following: HashMap<&[Box<str>], HashSet<&str>> = HashMap::new();
        for key in &keys {
            for at in 0..key.len() {
                following.entry(&key[..at]).or_default().insert(&key[at]);
            }
        }
        let name = |key: &Vec<Box<str>>| {
            let parts = self.by.iter().enumerate().filter_map(|(at, column)| {
                let differs = following.get(&key[..at]).is_some_and(|values| values.len() > 1);
                (differs || self.by.len() == 1).then(|| part(column, &key[at])).flatten()
            });
            parts.collect::<Vec<_>>().join(" · ")
        };
        keys.iter().map(|key| (key.clone(), name(key))).collect()
    }

    /// The fewest columns, in addition to those given, that make rows at one place on the axes equal.
    fn distinguishing(&self, given: &[String], columns: &Columns<'_>, axes: &[String]) -> Vec<String> {
        let names = NAMES.into_iter().filter(|name| columns.by_case || *name != "case");
        let candidates = names.chain(parameters()).chain(axes.iter().map(String::as_str));
        let mut keys: Vec<&str> = columns.along.iter().copied().chain(given.iter().map(String::as_str)).collect();
        let mut found = Vec::new();
        for name in candidates.filter(|name| self.texts.contains_key(*name)) {
            // One column may have several names.
            if keys.iter().any(|key| self.texts.get(*key) == self.texts.get(name)) {
                continue;
            }
            let mut first: HashMap<Vec<&str>, &str> = HashMap::new();
            let differs = self.list.iter().any(|record| {
                let key = keys.iter().map(|k| self.text(record, k)).collect();
                *first.entry(key).or_insert_with(|| self.text(record, name)) != self.text(record, name)
            });
            if differs {
                keys.push(name);
                found.push(name.to_owned());
            }
        }
        found
    }

    /// The text of a column; empty where it is missing.
    pub fn text<'a>(&self, record: &'a Record, column: &str) -> &'a str {
        self.texts.get(column).map_or("", |i| &record.cells[*i])
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

    /// The quantity of a column. Service demand takes its unit from the rows.
    pub fn quantity(&self, column: &str) -> Quantity {
        let mut quantity = Quantity::of_column(column);
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

    /// Fails where there is nothing to draw, and says why.
    pub fn nothing_to_draw(&self, empty: bool, options: &Options, columns: &[&str]) -> Result<(), Error> {
        if !empty {
            return Ok(());
        }
        let file = options.input.files.first().map_or_else(|| "-".to_owned(), |p| p.display().to_string());
        let columns = columns.iter().map(|c| format!("`{c}`")).collect::<Vec<_>>().join(" and ");
        let mut reason = format!("nothing to draw: no row that counts has {columns}");
        for warning in &self.warnings {
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

    /// The name of the series a row belongs to.
    pub fn series(&self, record: &Record) -> String {
        self.names.get(&self.key(record)).cloned().unwrap_or_default()
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

    /// The subject of the title: the name of the plan, and of the test where there is only one.
    pub fn subject(&self) -> Option<String> {
        let plans = self.distinct("plan");
        let tests = self.distinct("test");
        match (&plans[..], &tests[..]) {
            ([plan], [test]) if plan == test => Some((*plan).to_owned()),
            ([plan], [test]) => Some(format!("{plan}, {test}")),
            ([plan], _) => Some((*plan).to_owned()),
            (_, [test]) => Some((*test).to_owned()),
            _ => None,
        }
    }
}

/// The name of a column in the table, from any name that it has.
fn named(table: &Table, name: &str) -> Result<String, Error> {
    if name == "file" {
        return Ok(name.to_owned());
    }
    Ok(table.header().names()[table.require(name)?].clone())
}

/// A value as part of a series' name.
fn part(column: &str, value: &str) -> Option<String> {
    match column {
        "member" if value.is_empty() => Some("total".to_owned()),
        _ if value.is_empty() => None,
        "file" => Some(stem(value).to_owned()),
        "plan" | "test" | "member" | "direction" | "case" | "tag" | "workload" | "from" | "to"
        | "congestion_control" | "transport" | "io" => Some(value.to_owned()),
        _ => Some(match column.strip_prefix(AXIS_PREFIX) {
            Some(path) => format!("{path}={value}"),
            None => parameter(column, value),
        }),
    }
}

/// `results/main.csv` → `main`.
fn stem(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.rsplit_once('.').map_or(name, |(stem, _)| if stem.is_empty() { name } else { stem })
}

/// A parameter for people: `message_bytes`, `65536` → `message size 64 KiB`.
fn parameter(column: &str, value: &str) -> String {
    match (schemas::metrics::find(column), value.parse::<f64>()) {
        (Some(metric), Ok(number)) => format!("{} {}", metric.label, schemas::units::human(metric.unit, number)),
        _ => format!("{column}={value}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "run_id,plan,test,record,phase,iteration,status,from,to,time,streams,message_bytes,throughput_bits_per_s\n\
        r1,p,bulk,iteration,measure,1,ok,a,b,2026-11-20T10:00:00Z,1,64,5\n\
        r1,p,bulk,iteration,measure,1,ok,a,b,2026-11-21T10:00:00Z,4,64,7\n\
        r1,p,bulk,iteration,measure,2,failed,a,b,2026-11-21T10:00:00Z,4,64,\n\
        r1,p,bulk,iteration,measure,2,ok,a,b,2026-11-21T10:00:00Z,4,128,9\n";

    fn records(by: &[&str]) -> Records {
        let options = Options { by: by.iter().map(|b| (*b).to_owned()).collect(), ..Options::default() };
        let columns =
            Columns { numbers: &["message_bytes", "throughput"], along: &["message_bytes"], ..Columns::default() };
        let mut table = Table::from_text("x/t.csv", TABLE).unwrap();
        Records::of_table(&mut table, &options, &Selection::default(), &columns).unwrap()
    }

    #[test]
    fn series_are_told_apart_by_what_differs_and_nothing_else() {
        let r = records(&[]);
        assert_eq!(r.by, ["streams"]);
        let names: Vec<String> = r.list.iter().map(|record| r.series(record)).collect();
        assert_eq!(names, ["streams=1", "streams=4", "streams=4"]);
        assert_eq!(r.number(&r.list[2], "throughput"), Some(9.0));
    }

    #[test]
    fn a_name_says_only_what_tells_apart() {
        let text = "test,direction,throughput_bits_per_s\nstream,forward,1\nduplex,forward,2\nduplex,reverse,3\n";
        let columns = Columns { numbers: &["throughput"], ..Columns::default() };
        let mut table = Table::from_text("t", text).unwrap();
        let r = Records::of_table(&mut table, &Options::default(), &Selection::default(), &columns).unwrap();
        let names: Vec<String> = r.list.iter().map(|record| r.series(record)).collect();
        assert_eq!(names, ["stream", "duplex · forward", "duplex · reverse"]);
    }

    #[test]
    fn a_column_has_all_its_names() {
        let text = "test,message_bytes,axis_socket_mss,throughput_bits_per_s\nt,64,500,1\nt,64,900,2\n";
        let options = Options { by: vec!["socket.mss".to_owned()], ..Options::default() };
        let columns = Columns {
            numbers: &["throughput.mean"],
            along: &["message_size"],
            required_texts: &["message_size"],
            ..Columns::default()
        };
        let mut table = Table::from_text("t", text).unwrap();
        let r = Records::of_table(&mut table, &options, &Selection::default(), &columns).unwrap();
        assert_eq!((r.by.clone(), &*r.warnings), (vec!["axis_socket_mss".to_owned()], &[][..]));
        assert_eq!((r.text(&r.list[0], "message_size"), r.text(&r.list[0], "message_bytes")), ("64", "64"));
        assert_eq!(Quantity::of_column("rate").label, Quantity::of_column("offered_per_s").label);
    }

    #[test]
    fn what_by_leaves_out_is_said() {
        let r = records(&["test"]);
        assert_eq!(r.by, ["test"]);
        assert!(r.warnings.iter().any(|w| w.contains("differ in `streams`") && w.contains("--by test,streams")));
        assert!(r.warnings.iter().any(|w| w.contains("1 failed")));
    }

    #[test]
    fn the_footer_says_where_numbers_come_from() {
        assert_eq!(records(&[]).footer(), ["run r1", "a → b", "2026-11-20 … 2026-11-21", "2 iterations"]);
        assert_eq!(records(&[]).subject().as_deref(), Some("p, bulk"));
    }

    #[test]
    fn files_are_series_too() {
        assert_eq!(stem("results/main.csv"), "main");
        assert_eq!(stem(".csv"), ".csv");
        assert_eq!(records(&["file"]).series(&records(&["file"]).list[0]), "t");
    }
}
