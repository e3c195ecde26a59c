//! Distributions of values by series, from merged histograms or from a column.

use super::{
    choice::Wanted,
    options::Options,
    quantity::Quantity,
    records::{Columns, Records, TELLING},
    series,
};
use crate::{error::Error, stats::histogram::Latencies};
use schemas::units::Unit;

/// The column of histograms.
pub const HISTOGRAM: &str = "latency_histogram";

/// Whether a name means the latencies in the histograms instead of a column of numbers.
pub fn is_latency(column: &str) -> bool {
    matches!(column, "latency" | HISTOGRAM)
}

/// The values of one series.
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    pub name: String,
    /// Values and their counts, by rising value.
    pub values: Vec<(f64, u64)>,
}

impl Distribution {
    pub fn count(&self) -> u64 {
        self.values.iter().map(|v| v.1).sum()
    }

    /// Each value with the share of values at or below it.
    pub fn cumulated(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        let total = self.count() as f64;
        let mut seen = 0;
        self.values.iter().map(move |(value, count)| {
            seen += count;
            (*value, seen as f64 / total)
        })
    }
}

/// The distributions of a picture.
pub struct Distributions {
    pub records: Records,
    /// A distribution for each series.
    pub own: Vec<Distribution>,
    /// These and those of `--same-scale`: the axes have room for all.
    pub scale: Vec<Distribution>,
}

impl Distributions {
    /// Reads the rows that have a distribution for `column`.
    pub fn read(options: &Options, column: &str) -> Result<Self, Error> {
        let texts = TELLING;
        let columns = if is_latency(column) {
            Columns { required_texts: &[HISTOGRAM], texts, by_case: true, lines: true, ..Columns::default() }
        } else {
            Columns { metric: Wanted::Column(column), texts, by_case: true, lines: true, ..Columns::default() }
        };
        let ((records, own), others) = options.with_same_scale(|input, _| {
            let records = Records::new(options, input, &options.selection, &columns)?;
            let found = gather(&records, options, column)?;
            Ok((records, found))
        })?;
        series::not_too_many(own.len(), &records)?;
        let scale = own.iter().cloned().chain(others.into_iter().flat_map(|(_, found)| found)).collect();
        Ok(Self { records, own, scale })
    }
}

/// The distribution of each series. Histograms are merged; an average of percentiles would be wrong.
fn gather(records: &Records, options: &Options, column: &str) -> Result<Vec<Distribution>, Error> {
    let mut merged: Vec<(String, Latencies)> = Vec::new();
    let mut listed: Vec<Distribution> = Vec::new();
    for record in &records.list {
        let name = records.series(record);
        if is_latency(column) {
            let broken = |reason: String| records.error(record, HISTOGRAM, reason);
            let histogram = Latencies::decode(records.text(record, HISTOGRAM)).map_err(broken)?;
            match merged.iter_mut().find(|m| m.0 == name) {
                Some(known) => known.1.merge(&histogram).map_err(broken)?,
                None => merged.push((name, histogram)),
            }
        } else if let Some(value) = records.number(record, column) {
            match listed.iter_mut().find(|d| d.name == name) {
                Some(known) => known.values.push((value, 1)),
                None => listed.push(Distribution { name, values: vec![(value, 1)] }),
            }
        }
    }
    for one in &mut listed {
        one.values.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    listed.extend(
        merged.into_iter().map(|(name, histogram)| Distribution { name, values: histogram.buckets_us().collect() }),
    );
    listed.retain(|d| d.count() > 0);
    records.nothing_to_draw(listed.is_empty(), options, &[column])?;
    Ok(listed)
}

/// The quantity of the values.
pub fn quantity(records: &Records, column: &str) -> Quantity {
    if !is_latency(column) {
        return records.quantity(column);
    }
    Quantity::new(records.latency(), Some(Unit::Microseconds))
}

/// The note with the number of values.
pub fn explain(distributions: &[Distribution], column: &str) -> String {
    let n = series::numbers(distributions.iter().map(|d| d.count() as f64));
    if is_latency(column) { format!("histograms of all iterations merged, {n} latencies") } else { format!("{n} rows") }
}
