//! The rows of a picture: those that count, with the columns that it draws.
//!
//! [`Records::new`] picks them from results files (`reading`). On the way, `choice` chooses metric and axes where none are
//! given, and `identity` tells series apart.

use super::{options::Options, quantity::Quantity};
use crate::{
    distinct,
    error::{Error, Place},
    table::{Record as RecordKind, parse_number},
};
use indexmap::IndexMap;
use schemas::{
    columns::{AXIS_PREFIX, number, results::column, verdicts::column as verdict},
    metrics,
    text::{case_parts, counted, short_id, short_names},
    units::{Rate, Unit, parse_rate, parse_with_unit},
    words::{DemandUnit, LatencyKind, OfferedUnit},
};
use std::collections::{HashMap, HashSet};

/// The start of a note on rows that are not drawn.
const LEFT_OUT: &str = "left out:";

/// Columns that tell more of another one.
pub const TELLING: &[&str] = &[column::service_demand_unit, column::latency_kind];

/// The column of offered loads.
const OFFERED: &str = column::offered_per_s;

/// A row that counts.
#[derive(Clone, Debug)]
pub struct Record {
    pub(super) cells: Vec<Box<str>>,
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
    /// A sentence about rows that do not count because of their status.
    pub uncounted: Option<String>,
    /// The places of columns in a record, by each of their names.
    pub(super) columns: HashMap<String, usize>,
    /// Names of series by their values in `by`.
    pub(super) names: HashMap<Vec<Box<str>>, String>,
    /// Labels of cases, without the part that all share.
    pub(super) labels: Labels,
    /// The columns of the swept keys.
    pub(super) swept: Vec<String>,
    /// A sentence about swept keys that the cases' labels leave out.
    pub(super) implied: Option<String>,
    /// Units of columns whose values say them.
    units: HashMap<String, Unit>,
    pub(super) lacking: Lacking,
    /// The table's own names of the columns, by their places.
    pub(super) own: Vec<String>,
}

/// Number of rows that lack a column, by column and case.
pub(super) type Lacking = IndexMap<(String, String), u64>;

/// A column of a picture.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Wanted<'a> {
    #[default]
    Nothing,
    /// The headline of the rows' workload, or a parameter that varies.
    Default,
    Column(&'a str),
}

impl<'a> Wanted<'a> {
    /// The column of an option.
    pub fn of(option: Option<&'a str>) -> Self {
        option.map_or(Self::Default, Self::Column)
    }

    pub fn given(self) -> Option<&'a str> {
        match self {
            Self::Column(name) => Some(name),
            Self::Nothing | Self::Default => None,
        }
    }

    /// The columns that can become the metric.
    pub(super) fn candidates(self) -> Vec<&'static str> {
        if self == Self::Default { metrics::headlines().iter().map(|m| m.column).collect() } else { Vec::new() }
    }
}

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

/// Labels of cases.
#[derive(Debug, Default)]
pub struct Labels {
    pub(super) of: HashMap<String, String>,
    /// The label of the one key in which all cases differ.
    pub title: Option<String>,
}

impl Labels {
    pub fn get<'a>(&'a self, case: &'a str) -> &'a str {
        self.of.get(case).map_or(case, String::as_str)
    }
}

impl Records {
    /// The table's name of a column that was asked for.
    pub(super) fn own_name(&self, name: &str) -> String {
        self.columns.get(name).and_then(|place| self.own.get(*place)).map_or_else(|| name.to_owned(), String::clone)
    }

    /// The text of a column; empty where it is missing.
    pub fn text<'a>(&self, record: &'a Record, column: &str) -> &'a str {
        self.columns.get(column).and_then(|i| record.cells.get(*i)).map_or("", |cell| cell)
    }

    /// Whether a file has the column.
    pub fn has(&self, column: &str) -> bool {
        self.columns.contains_key(column)
    }

    /// The number of a column; `None` where it is missing.
    pub fn number(&self, record: &Record, column: &str) -> Option<f64> {
        parse_number(self.text(record, column)).ok().flatten()
    }

    /// The distinct values of a column, in the order of the input.
    pub fn distinct(&self, column: &str) -> Vec<&str> {
        distinct(self.list.iter().map(|record| self.text(record, column)).filter(|value| !value.is_empty()))
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

    /// Fails where there is nothing to draw, and says why.
    pub fn nothing_to_draw(&self, empty: bool, options: &Options, columns: &[&str]) -> Result<(), Error> {
        if !empty {
            return Ok(());
        }
        let file = options.input.files.first().map_or_else(|| "-".to_owned(), |p| p.display().to_string());
        let quoted = |c: &&str| if c.contains(' ') { (*c).to_owned() } else { format!("`{c}`") };
        let columns = columns.iter().map(quoted).collect::<Vec<_>>().join(" and ");
        let mut reason = format!("nothing to draw: no row that counts has {columns}");
        for warning in self.uncounted.iter().chain(&self.warnings).chain(&self.notes) {
            reason.push_str("; ");
            reason.push_str(warning);
        }
        Err(Error::Data { place: Place { file, line: 0, column: None }, reason })
    }

    /// Fails where the rows are of several cases. `what` begins the sentence: "latencies over time are drawn for one case".
    pub fn one_case(&self, what: &str) -> Result<(), Error> {
        let Some(first) = self.by.first() else { return Ok(()) };
        let names = self.by.iter().map(|b| format!("`{b}`")).collect::<Vec<_>>().join(" and ");
        Err(Error::Usage(format!(
            "{what}; the rows differ in {names}: choose with --where {first}={}",
            self.distinct(first).first().unwrap_or(&"…")
        )))
    }

    /// The case and member of a row, for messages.
    pub(super) fn case_of(&self, record: &Record) -> String {
        let case = [column::case, column::test, column::plan]
            .into_iter()
            .map(|name| self.text(record, name))
            .find(|name| !name.is_empty());
        let member = self.text(record, column::member);
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
    pub(super) fn left_out(&self) -> Vec<String> {
        const NAMED: usize = 3;
        let columns = distinct(self.lacking.keys().map(|(column, _)| column.as_str()));
        let sentence = |column: &str| {
            let mine: Vec<(&String, u64)> =
                self.lacking.iter().filter(|e| e.0.0 == column).map(|e| (&e.0.1, *e.1)).collect();
            let rows: u64 = mine.iter().map(|m| m.1).sum();
            let mut cases: Vec<String> = mine.iter().map(|m| short_names(m.0)).collect();
            if cases.len() > NAMED {
                // Of many cases the tests are named.
                cases = mine.iter().map(|m| m.0.split('[').next().unwrap_or_default().to_owned()).collect();
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
            format!("{LEFT_OUT} {} without {column}{cases}", counted(rows, "row"))
        };
        columns.into_iter().map(sentence).collect()
    }

    /// The footer: run, hosts, date, iterations.
    pub fn footer(&self) -> Vec<String> {
        let mut parts = Vec::new();
        let sides = [(column::run_id, "run"), (verdict::baseline_run_id, "baseline run")];
        // The sides of `compare --by` are of one run.
        let is_one = self.distinct(column::run_id) == self.distinct(verdict::baseline_run_id);
        for (column, word) in sides.into_iter().take(if is_one { 1 } else { 2 }) {
            match self.distinct(column)[..] {
                [] => {}
                [run] => parts.push(format!("{word} {}", short_id(run))),
                ref runs => parts.push(format!("{} {word}s", runs.len())),
            }
        }
        let mut hosts: Vec<String> = Vec::new();
        for record in &self.list {
            let pair = format!("{} → {}", self.text(record, column::from), self.text(record, column::to));
            if pair.chars().count() > 3 && !hosts.contains(&pair) {
                hosts.push(pair);
            }
        }
        match hosts.len() {
            0 => {}
            1..=3 => parts.push(hosts.join(", ")),
            more => parts.push(format!("{} and {} more pairs of hosts", hosts[0], more - 1)),
        }
        let mut days: Vec<&str> =
            self.distinct(column::time).into_iter().map(|t| t.split('T').next().unwrap_or(t)).collect();
        days.sort_unstable();
        match (days.first(), days.last()) {
            (Some(first), Some(last)) if first == last => parts.push((*first).to_owned()),
            (Some(first), Some(last)) => parts.push(format!("{first} … {last}")),
            _ => {}
        }
        match self.distinct(column::iteration).len() {
            0 => {}
            1 => parts.push("1 iteration".to_owned()),
            n => parts.push(format!("{n} iterations")),
        }
        parts
    }

    /// The subject of the title: the name of the plan, and of the test and the member where there is only one.
    pub fn subject(&self) -> Option<String> {
        let plans = self.distinct(column::plan);
        let tests = self.distinct(column::test);
        let mut parts: Vec<&str> = Vec::new();
        if let [plan] = plans[..] {
            parts.push(plan);
        }
        if let [test] = tests[..]
            && !parts.contains(&test)
        {
            parts.push(test);
        }
        if let [member] = self.distinct(column::member)[..]
            && self.list.iter().all(|record| !self.text(record, column::member).is_empty())
            && !parts.contains(&member)
        {
            parts.push(member);
        }
        (!parts.is_empty()).then(|| parts.join(", "))
    }

    /// Reads the values of axis columns that say their unit, as `50ms` does, as numbers of that unit.
    pub(super) fn read_units(&mut self) {
        let axes: Vec<(String, usize)> = self
            .columns
            .iter()
            .filter(|(name, _)| name.starts_with(AXIS_PREFIX))
            .map(|(n, at)| (n.clone(), *at))
            .collect();
        for (name, at) in axes {
            let cells = || self.list.iter().map(|record| &*record.cells[at]).filter(|cell| !cell.is_empty());
            let Some((unit, _)) = cells().next().and_then(parse_with_unit) else { continue };
            if !cells().all(|cell| parse_with_unit(cell).is_some_and(|(other, _)| other == unit)) {
                continue;
            }
            for record in self.list.iter_mut().chain(&mut self.answers) {
                if let Some((_, value)) = parse_with_unit(&record.cells[at]) {
                    record.cells[at] = number(value).into();
                }
            }
            self.units.insert(name, unit);
        }
    }

    /// Offered loads in the unit that people write: datagrams are counted, but their rate is usually swept in bits.
    pub(super) fn scale_offered(&mut self) {
        let unit_of = |records: &Self, record: &Record| match records.text(record, column::offered_unit).parse() {
            Ok(OfferedUnit::Bits) => Some(Unit::BitsPerSecond),
            Ok(OfferedUnit::Transactions) => Some(Unit::PerSecond),
            Ok(OfferedUnit::Messages) => {
                // The column has messages; the case's name has the rate as it was written.
                let swept = case_parts(records.text(record, column::case)).1.into_iter().find(|pair| pair.0 == "rate");
                let counted = swept.is_some_and(|(_, rate)| matches!(parse_rate(rate), Ok(Rate::Events(_))));
                let sized = records.number(record, column::message_bytes).is_some();
                Some(if counted || !sized { Unit::PerSecond } else { Unit::BitsPerSecond })
            }
            Err(_) => None,
        };
        let Some(&place) = self.columns.get(OFFERED) else { return };
        let mut list = std::mem::take(&mut self.list);
        let mut answers = std::mem::take(&mut self.answers);
        for record in list.iter_mut().chain(&mut answers) {
            let unit = unit_of(self, record);
            if let Some(unit) = unit {
                self.units.entry(OFFERED.to_owned()).or_insert(unit);
            }
            let messages = self.text(record, column::offered_unit) == OfferedUnit::Messages.as_str();
            if unit != Some(Unit::BitsPerSecond) || !messages {
                continue;
            }
            let (bytes, load) = (self.number(record, column::message_bytes), self.number(record, OFFERED));
            let Some(bits) = bytes.zip(load).map(|(bytes, load)| bytes * load * 8.0) else { continue };
            // The rate was written in bits and divided by the size: the product is off by the last digits.
            let bits = format!("{bits:.9e}").parse().unwrap_or(bits);
            record.cells[place] = number(bits).into();
        }
        self.list = list;
        self.answers = answers;
    }

    /// The latency that the rows are about: a round trip is twice what `plumb fit` and a signature show.
    pub fn latency(&self) -> &'static str {
        let kind = match self.distinct(column::latency_kind)[..] {
            [kind] => kind.parse().ok(),
            _ => None,
        };
        match kind {
            Some(LatencyKind::RoundTrip) => "round-trip latency",
            Some(LatencyKind::Response) => "response latency, from the intended send",
            Some(LatencyKind::Connect) => "connect latency",
            Some(LatencyKind::Send) => "send latency",
            Some(LatencyKind::Receive) => "receive latency",
            Some(LatencyKind::Operation) => "time of an operation",
            None => "latency",
        }
    }

    /// The quantity of a column. Service demand and offered loads take their unit from the rows, latencies their name.
    pub fn quantity(&self, column: &str) -> Quantity {
        let mut quantity = Quantity::of_column(column);
        if column == OFFERED {
            return Quantity { label: "offered rate".to_owned(), unit: self.units.get(OFFERED).copied(), ..quantity };
        }
        quantity.unit = self.units.get(column).copied().or(quantity.unit);
        if let Some(which) = quantity.label.strip_prefix("latency, ") {
            quantity.label = format!("{}, {which}", self.latency());
        }
        if quantity.unit == Some(Unit::ServiceDemand)
            && let [per] = self.distinct(column::service_demand_unit)[..]
        {
            quantity.per = per.parse::<DemandUnit>().ok().map(|unit| unit.per().to_owned());
        }
        quantity
    }

    /// The name of a column in the points that a picture writes. The name of an offered load's column says the unit of its
    /// values.
    pub fn header(&self, column: &str) -> String {
        let in_bits = column == OFFERED && self.units.get(OFFERED) == Some(&Unit::BitsPerSecond);
        if in_bits { "offered_bits_per_s".to_owned() } else { column.to_owned() }
    }
}

#[cfg(test)]
mod tests;
