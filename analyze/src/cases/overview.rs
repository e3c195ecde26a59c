//! The answer to what was asked: a table for runs of many cases (swept values down, the values of a setting across).

use super::{Case, Cases};
use crate::{
    error::Error,
    table::{InputArgs, Table, layout::Column, quantity::Quantity},
};
use indexmap::{IndexMap, IndexSet};
use schemas::{
    metrics::{self, Metric},
    text::case_parts,
    units,
};
use std::{collections::BTreeMap, path::Path};

/// Cases that a reader takes in as a list; of more, the table begins with this one.
const LONG: usize = 12;

/// The largest number of columns of a setting, and the largest one in which there is room for intervals.
const ACROSS: usize = 6;
const WITH_INTERVALS: usize = 4;

/// Something in which cases differ.
struct Factor {
    title: String,
    /// The distinct values, in the order of the cases.
    values: IndexSet<String>,
    /// The value of each case, as an index into `values`.
    of: Vec<usize>,
    /// Whether it is a swept key, and no member.
    is_swept: bool,
}

impl Factor {
    fn new(title: String, is_swept: bool, cells: impl Iterator<Item = String>) -> Self {
        let mut values = IndexSet::new();
        let of = cells.map(|cell| values.insert_full(cell).0).collect();
        Self { title, values, of, is_swept }
    }

    /// How well it stands across: settings with words first, then members, then numbers; few values before many.
    fn rank(&self) -> (bool, bool, usize) {
        let has_numbers = self.values.iter().all(|value| value.starts_with(|c: char| c.is_ascii_digit()));
        (has_numbers, !self.is_swept, self.values.len())
    }
}

/// The table of a test.
pub struct Overview {
    pub test: String,
    /// Its heading: `sizes: throughput by message size, io, with the 95 % interval.`
    pub said: String,
    /// Its heading without the interval.
    pub about: String,
    pub columns: Vec<Column>,
}

/// The tables of a file of results with so many cases that their list is long. Of others none.
pub fn read(results: &Path) -> Result<Vec<Overview>, Error> {
    let mut table = Table::open(&InputArgs { files: vec![results.to_owned()] })?;
    Ok(tables(&Cases::read(&mut table)?.pairs_apart().1.list))
}

/// A table for each test that varies two things; none for a run of few cases.
pub fn tables(cases: &[Case]) -> Vec<Overview> {
    let mut tests = IndexMap::<&str, Vec<&Case>>::new();
    for case in cases.iter().filter(|case| case.count() > 0) {
        tests.entry(case.test()).or_default().push(case);
    }
    if cases.len() <= LONG {
        return Vec::new();
    }
    tests.iter().filter_map(|(test, cases)| table(test, cases)).collect()
}

/// The metric that the cases of a test are about: the added latency where a case has it, else the one of most cases.
pub fn metric(cases: &[&Case]) -> Option<&'static Metric> {
    let mut votes = IndexMap::<&str, (usize, &'static Metric)>::new();
    for metric in cases.iter().filter_map(|case| case.headline()) {
        votes.entry(metric.column).or_insert((0, metric)).0 += 1;
    }
    let added = votes.values().find(|(_, metric)| metric.name == metrics::ADDED);
    added.or_else(|| votes.values().rev().max_by_key(|(count, _)| *count)).map(|(_, metric)| *metric)
}

fn table(test: &str, all: &[&Case]) -> Option<Overview> {
    let metric = metric(all)?;
    let cases: Vec<&Case> =
        all.iter().copied().filter(|case| case.headline().is_some_and(|m| m.column == metric.column)).collect();
    let mut down = factors(&cases);
    let across = (0..down.len()).filter(|at| down[*at].values.len() <= ACROSS).min_by_key(|at| down[*at].rank())?;
    let across = down.remove(across);
    if down.is_empty() {
        return None;
    }
    let mut rows = BTreeMap::<Vec<usize>, Vec<Option<&Case>>>::new();
    for (at, case) in cases.iter().enumerate() {
        let row = rows.entry(down.iter().map(|factor| factor.of[at]).collect());
        row.or_insert_with(|| vec![None; across.values.len()])[across.of[at]] = Some(case);
    }
    let rows: Vec<_> = rows.into_iter().collect();
    let heads = down
        .iter()
        .enumerate()
        .map(|(at, factor)| Column::of(&factor.title, false, &rows, |(key, _)| factor.values[key[at]].clone()));
    let cells = across.values.iter().enumerate().map(|(at, value)| {
        let text = |case: &Case| {
            let centre = case.centre(metric)?;
            let ends = case.interval(metric).filter(|_| across.values.len() <= WITH_INTERVALS);
            let (low, high) = ends.unwrap_or((centre, centre));
            Some(units::human_with_spread(metric.unit, centre, low, high))
        };
        let number = value.starts_with(|c: char| c.is_ascii_digit());
        let title = if number { format!("{} {value}", across.title) } else { value.clone() };
        Column::of(&title, true, &rows, |(_, row)| row[at].and_then(text).unwrap_or_default())
    });
    let by = down.iter().chain([&across]).map(|factor| factor.title.as_str()).collect::<Vec<_>>();
    let about = format!("{test}: {} by {}", metric.label, by.join(", "));
    let intervals = match all.iter().map(|case| case.level()).fold(0.0, f64::max) {
        level if across.values.len() <= WITH_INTERVALS => format!(", with the {} interval", units::level(level)),
        _ => String::new(),
    };
    let said = format!("{about}{intervals}.");
    Some(Overview { test: test.to_owned(), said, about, columns: heads.chain(cells).collect() })
}

/// The members, then the swept keys, with several values each.
fn factors(cases: &[&Case]) -> Vec<Factor> {
    let member = |case: &&Case| case.label.strip_prefix(case.name()).unwrap_or_default().trim().to_owned();
    let mut found = vec![Factor::new("member".to_owned(), false, cases.iter().map(member))];
    let keys: IndexSet<&str> = cases.iter().flat_map(|case| case_parts(case.name()).1).map(|(key, _)| key).collect();
    for key in keys {
        let quantity = Quantity::of_column(key);
        let value = |case: &&Case| {
            let value = case_parts(case.name()).1.into_iter().find(|(known, _)| *known == key);
            value.map_or_else(String::new, |(_, value)| quantity.name(value))
        };
        found.push(Factor::new(quantity.label.clone(), true, cases.iter().map(value)));
    }
    found.retain(|factor| factor.values.len() > 1);
    // A key that goes along with one before it says nothing new.
    let mut at = 1;
    while at < found.len() {
        let follows = |other: &Factor| {
            let pairs: IndexSet<(usize, usize)> = other.of.iter().copied().zip(found[at].of.iter().copied()).collect();
            pairs.len() == other.values.len()
        };
        if found[..at].iter().any(follows) { drop(found.remove(at)) } else { at += 1 }
    }
    found
}
