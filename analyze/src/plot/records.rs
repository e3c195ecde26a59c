//! The rows of a picture: those that count, with the columns that it draws.
//!
//! - `reading` picks them from results files
//! - `offered` gives them the units that stand in other columns
//! - `left_out` says which rows are not drawn
//! - `caption` says what they are about, and where they come from
//!
//! Beside this module, `choice` chooses metric and axes where none are given, and `identity` tells series apart.

mod caption;
mod left_out;
mod offered;
mod reading;
#[cfg(test)]
mod tests;

pub use offered::TELLING;

use super::{choice::Wanted, identity, options::Options};
use crate::{
    error::{Error, Place},
    table::{Record as RecordKind, parse_number},
};
use indexmap::IndexMap;
use schemas::units::Unit;
use std::collections::HashMap;

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
    pub(super) labels: identity::Labels,
    /// The columns of the swept keys.
    pub(super) swept: Vec<String>,
    /// A sentence about swept keys that the cases' labels leave out.
    pub(super) implied: Option<String>,
    /// Units of columns whose values say them.
    units: HashMap<String, Unit>,
    lacking: Lacking,
    /// The table's own names of the columns, by their places.
    own: Vec<String>,
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
        let mut seen = Vec::new();
        for record in &self.list {
            let value = self.text(record, column);
            if !value.is_empty() && !seen.contains(&value) {
                seen.push(value);
            }
        }
        seen
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
}
