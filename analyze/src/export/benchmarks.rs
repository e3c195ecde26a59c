//! Results as trackers of benchmarks take them: one value per case and metric, with the interval of its mean.

use std::collections::HashSet;

use schemas::metrics::{self, Metric};
use schemas::vocabulary;

use crate::error::Error;
use crate::judge::samples::{Case, Index, Samples};
use crate::stats::{confidence, moments};
use crate::table::{Selection, Table};

/// The level of the intervals. Trackers draw them and compare their ends, so it is the same in every file.
pub const LEVEL: f64 = 0.95;

/// A metric of a case.
#[derive(Debug)]
pub struct Benchmark {
    /// The case, with its member, and with its direction where it has several.
    pub name: String,
    pub metric: &'static Metric,
    /// Mean of the iterations.
    pub mean: f64,
    /// Student's interval of the mean; `None` for a single iteration.
    pub interval: Option<confidence::Interval>,
    pub iterations: usize,
    pub from: String,
    pub to: String,
}

impl Benchmark {
    /// The ends of the interval, within the values that the metric can have.
    pub fn bounds(&self) -> Option<(f64, f64)> {
        let interval = self.interval?.within(self.metric.range());
        Some((interval.low, interval.high))
    }
}

/// Reads the named metrics of each case, or its headline and what belongs beside it. `wanted` chooses among them.
///
/// An output without benchmarks is an error: trackers refuse it, and a case that vanished would look as if it was never there.
pub fn read(
    table: &mut Table,
    selection: &Selection,
    names: &[String],
    wanted: impl Fn(&Metric) -> bool,
) -> Result<Vec<Benchmark>, Error> {
    let known: Vec<(&'static Metric, usize)> = if names.is_empty() {
        metrics::METRICS.iter().filter_map(|m| Some((m, table.header().find(m.column)?))).collect()
    } else {
        let metric = |name: &String| vocabulary::metric(name).map_err(|e| Error::Usage(format!("-m: {e}")));
        let found = |name| metric(name).and_then(|m| Ok((m, table.require(m.column)?)));
        names.iter().map(found).collect::<Result<_, _>>()?
    };
    let columns: Vec<usize> = known.iter().map(|(_, column)| *column).collect();
    let samples = Samples::read(table, selection, &columns, None)?;
    if let Some(note) = &samples.note {
        crate::warn(note);
    }
    let index = Index::new(&samples.cases);
    let (mut all, mut seen, mut without) = (Vec::new(), HashSet::new(), Vec::new());
    for case in &samples.cases {
        let name = index.label(case);
        if !seen.insert(name.clone()) {
            return Err(table.error(format!(
                "two different cases are called {name}, and a tracker knows a benchmark by its name: choose one with \
                 --where, for example --where plan=NAME"
            )));
        }
        let measured = of_case(case, &known, names.is_empty());
        if measured.is_empty() {
            without.push(name.clone());
        }
        for i in measured.into_iter().filter(|i| wanted(known[*i].0)) {
            all.push(Benchmark {
                name: name.clone(),
                metric: known[i].0,
                mean: moments::mean(&case.values[i]).unwrap_or_default(),
                interval: confidence::t_interval(&case.values[i], LEVEL),
                iterations: case.values[i].len(),
                from: case.origin.from.clone(),
                to: case.origin.to.clone(),
            });
        }
    }
    if let [first, ..] = without.as_slice() {
        let more = if without.len() > 1 { format!(" and {} more", without.len() - 1) } else { String::new() };
        crate::warn(&format!("left out, without a value of an exported metric: {first}{more}"));
    }
    if all.is_empty() {
        return Err(table.error("no row that counts has a value to export; -m and --where choose others"));
    }
    Ok(all)
}

/// The metrics of a case that have values, as indices: all known ones, or its usual ones, the headline first.
fn of_case(case: &Case, known: &[(&'static Metric, usize)], usual: bool) -> Vec<usize> {
    let has = |i: usize| !case.values[i].is_empty();
    if !usual {
        return (0..known.len()).filter(|i| has(*i)).collect();
    }
    let place = |name: &str| known.iter().position(|(m, _)| m.name == name).filter(|i| has(*i));
    let headline = case.family.headlines().iter().find_map(|name| place(name));
    let beside = case.family.beside().iter().filter_map(|name| place(name));
    let mut chosen: Vec<usize> = Vec::new();
    for i in headline.into_iter().chain(beside) {
        if !chosen.contains(&i) {
            chosen.push(i);
        }
    }
    chosen
}
