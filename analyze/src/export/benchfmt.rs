//! Go's benchmark format, which `benchstat` reads: a line per row, a unit per metric.

use std::fmt::Write as _;
use std::io::Write;

use schemas::metrics::Better;

use super::Measurements;
use crate::error::Error;
use crate::table::rows::OwnedRow;
use crate::table::{Selection, Table};

/// Default metrics.
const USUAL: &[&str] =
    &["throughput", "transaction_rate", "latency.mean", "latency.p50", "latency.p99", "cpu.local", "cpu.remote"];

/// Writes the rows that count.
pub fn write(
    table: &mut Table,
    selection: &Selection,
    metrics: &[String],
    output: &mut dyn Write,
) -> Result<(), Error> {
    let usual: Vec<String> = USUAL
        .iter()
        .filter(|m| schemas::metrics::find(m).is_some_and(|m| table.header().find(m.column).is_some()))
        .map(|m| (*m).to_owned())
        .collect();
    let names = if metrics.is_empty() && !usual.is_empty() { &usual } else { metrics };
    let found = Measurements::read(table, selection, names)?;
    let unit = |metric: &schemas::metrics::Metric| format!("{}-{}", metric.name, metric.unit.name());
    for (metric, _) in &found.metrics {
        // benchstat's default is that less is better.
        if metric.better != Better::Neither {
            writeln!(output, "Unit {} better={}", unit(metric), metric.better.name())?;
        }
    }
    for row in &found.rows.rows {
        let mut values = String::new();
        for (metric, index) in &found.metrics {
            if found.rows.number(row, *index)?.is_some() {
                let _ = write!(values, " {} {}", row.get(*index), unit(metric));
            }
        }
        if !values.is_empty() {
            writeln!(output, "{} 1{values}", name(&found, row))?;
        }
    }
    Ok(())
}

/// `bulk[message_size=64,streams=2]` from a to b becomes `BenchmarkBulk/message_size=64/streams=2/direction=forward`.
/// The iteration is left out: lines of one name are benchstat's samples.
fn name(found: &Measurements, row: &OwnedRow) -> String {
    let cell = |column: &str| {
        found.labels.iter().find(|l| found.column(**l) == column).map(|l| row.get(*l)).filter(|c| !c.is_empty())
    };
    let case = cell("case").or(cell("test")).unwrap_or("row");
    let (test, axes) = match case.strip_suffix(']').and_then(|c| c.split_once('[')) {
        Some((test, axes)) => (test, axes),
        None => (case, ""),
    };
    let mut name = String::from("Benchmark");
    for word in test.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty()) {
        let mut letters = word.chars();
        name.extend(letters.next().into_iter().flat_map(char::to_uppercase));
        name.push_str(letters.as_str());
    }
    for axis in axes.split(',').filter(|a| !a.is_empty()) {
        name.push('/');
        name.push_str(&plain(axis));
    }
    for label in ["member", "from", "to", "direction", "stream"] {
        if let Some(value) = cell(label) {
            let _ = write!(name, "/{label}={}", plain(value));
        }
    }
    name
}

/// Replaces blanks and slashes, which end a name or begin another part of it.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_whitespace() || c == '/' { '_' } else { c }).collect()
}
