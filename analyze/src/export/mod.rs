//! Results in other programs' formats. Each takes a table and writes text. [`page`] is for people.

pub mod annotations;
pub mod benchmarks;
pub mod gnuplot;
pub mod iperf3;
pub mod junit;
pub mod openmetrics;
pub mod page;
pub mod rows;
pub mod time_series;

use crate::{
    error::Error,
    table::{Rows, Selection, Table},
};
use schemas::{
    columns,
    metrics::{self, Metric},
    vocabulary,
};

/// Columns that tell measurements apart, in the order of the labels.
const LABELS: &[&str] =
    &["run_id", "plan", "test", "case", "member", "tag", "from", "to", "direction", "iteration", "stream", "start_s"];

/// Groups of columns that describe the measurement.
const DESCRIBING: [&str; 2] = ["place and time", "what ran"];

/// The rows that count, with labels and metrics.
struct Measurements {
    rows: Rows,
    /// Indices into the cells of a row.
    labels: Vec<usize>,
    metrics: Vec<(&'static Metric, usize)>,
}

impl Measurements {
    /// Without names, reads every registered metric that the table has.
    fn read(table: &mut Table, selection: &Selection, names: &[String]) -> Result<Self, Error> {
        let wanted: Vec<&'static Metric> = if names.is_empty() {
            let mut all: Vec<_> = metrics::METRICS.iter().filter(|m| table.header().find(m.column).is_some()).collect();
            // Results come before descriptions of the run.
            let describes = |m: &Metric| columns::find(m.column).is_some_and(|c| DESCRIBING.contains(&c.group));
            all.sort_by_key(|m| describes(m));
            all
        } else {
            let find = |name: &String| vocabulary::metric(name).map_err(|e| Error::Usage(format!("-m: {e}")));
            names.iter().map(find).collect::<Result<_, _>>()?
        };
        let mut columns: Vec<usize> = LABELS.iter().filter_map(|l| table.header().find(l)).collect();
        let labels: Vec<usize> = (0..columns.len()).collect();
        let mut metrics = Vec::new();
        for metric in wanted {
            metrics.push((metric, columns.len()));
            columns.push(table.require(metric.column)?);
        }
        let rows = Rows::read(table, selection, &columns)?;
        rows.note.iter().for_each(|note| crate::warn(note));
        let valued = |index: usize| rows.rows.iter().any(|row| !row.get(index).is_empty());
        if metrics.is_empty() {
            return Err(table.error(
                "no column is a metric, so this is not a results table (docs/reference/results.md has the names)",
            ));
        }
        if !metrics.iter().any(|(_, index)| valued(*index)) {
            let asked = if names.is_empty() { "a metric".to_owned() } else { names.join(" or ") };
            crate::warn(&format!("no row that counts has a value of {asked}: the output is empty"));
        }
        // The run's identifier is a label where there are several runs.
        let differs = |label: &usize| {
            rows.columns[*label] != "run_id" || rows.rows.iter().any(|r| r.get(*label) != rows.rows[0].get(*label))
        };
        let labels = labels.into_iter().filter(differs).collect();
        Ok(Self { rows, labels, metrics })
    }

    fn column(&self, index: usize) -> &str {
        &self.rows.columns[index]
    }
}

#[cfg(test)]
mod tests;
