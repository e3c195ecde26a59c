//! `cdf` and `percentiles`: distributions of values by series, from merged histograms or from a column.

use super::{
    axis::Axis,
    figure::{Drawing, Figure, Points},
    layer::Layer,
    legend::{self, Entry, Key, Look},
    options::Options,
    quantity::{Quantity, Spacing},
    records::{Columns, Records, TELLING, Wanted},
    series,
};
use crate::{error::Error, stats::histogram::Latencies, table::cells};
use schemas::{metrics::Range, units::Unit};

/// The column of histograms.
pub const HISTOGRAM: &str = "latency_histogram";

/// The end of the names of all columns of histograms.
const ENDING: &str = "_histogram";

/// Whether a name means the latencies in the histograms instead of a column of numbers.
pub fn is_latency(column: &str) -> bool {
    matches!(column, "latency" | HISTOGRAM)
}

/// The column of histograms that a name means; `None`: it means a column of numbers.
fn histogram(column: &str) -> Option<&str> {
    if is_latency(column) { Some(HISTOGRAM) } else { Some(column).filter(|column| column.ends_with(ENDING)) }
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
    fn cumulated(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
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
    /// The quantity of all values.
    pub quantity: Quantity,
}

impl Distributions {
    /// Reads the rows that have a distribution for `column`, and for each of `--beside`.
    pub fn read(options: &Options, column: &str) -> Result<Self, Error> {
        let mut all = Self::of(options, column)?;
        let first = all.quantity.label.clone();
        all.own.iter_mut().filter(|_| !options.beside.is_empty()).for_each(|one| series::name(&mut one.name, &first));
        for metric in &options.beside {
            let mut more = Self::of(options, metric)?;
            more.own.iter_mut().for_each(|one| series::name(&mut one.name, &more.quantity.label));
            all.quantity = series::beside(all.quantity, column, (metric, &more.quantity), "a distribution")?;
            all.own.append(&mut more.own);
            all.scale.append(&mut more.scale);
        }
        series::not_too_many(all.own.len(), &all.records)?;
        Ok(all)
    }

    /// Reads the rows that have a distribution for this column.
    fn of(options: &Options, column: &str) -> Result<Self, Error> {
        let (texts, histogram) = (TELLING, histogram(column));
        let required_texts = histogram.as_slice();
        let metric = if histogram.is_some() { Wanted::Nothing } else { Wanted::Column(column) };
        let columns = Columns { metric, required_texts, texts, by_case: true, lines: true, ..Columns::default() };
        let ((records, own), others) = options.with_same_scale(|input, _| {
            let records = Records::new(options, input, &options.selection, &columns)?;
            let found = gather(&records, options, column)?;
            Ok((records, found))
        })?;
        let scale = own.iter().cloned().chain(others.into_iter().flat_map(|(_, found)| found)).collect();
        let quantity = quantity(&records, column);
        Ok(Self { records, own, scale, quantity })
    }
}

/// The distribution of each series. Histograms are merged; an average of percentiles would be wrong.
fn gather(records: &Records, options: &Options, column: &str) -> Result<Vec<Distribution>, Error> {
    let mut merged: Vec<(String, Latencies)> = Vec::new();
    let mut listed: Vec<Distribution> = Vec::new();
    for record in &records.list {
        let name = records.series(record);
        if let Some(histogram) = histogram(column) {
            let broken = |reason: String| records.error(record, histogram, reason);
            let histogram = Latencies::decode(records.text(record, histogram)).map_err(broken)?;
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
fn quantity(records: &Records, column: &str) -> Quantity {
    let Some(stem) = histogram(column).and_then(|histogram| histogram.strip_suffix(ENDING)) else {
        return records.quantity(column);
    };
    // As the column of their median is named.
    let label = records.quantity(&format!("{stem}_p50_us")).label;
    Quantity::new(label.trim_end_matches(", median"), Some(Unit::Microseconds))
}

/// The note with the number of values.
fn explain(distributions: &[Distribution], column: &str) -> String {
    let n = series::numbers(distributions.iter().map(|d| d.count() as f64));
    match histogram(column) {
        Some(HISTOGRAM) => format!("histograms of all iterations merged, {n} latencies"),
        Some(_) => format!("histograms of all iterations merged, {n} values"),
        None => format!("{n} rows"),
    }
}

/// `cdf`: the share of values at or below a value.
pub fn draw_cdf(options: &Options) -> Result<Drawing, Error> {
    let column = options.x.as_deref().or(options.y.as_deref()).unwrap_or("latency");
    let all = Distributions::read(options, column)?;
    let rows = all.own.iter().flat_map(|one| one.cumulated().map(|(value, share)| cells![&one.name, value, share]));
    let table = Points::new(&["series", "value", "share"], rows);
    Ok(Drawing::new(figure_of_shares(options, column, &all), table, &all.records))
}

fn figure_of_shares(options: &Options, column: &str, all: &Distributions) -> Figure {
    let Distributions { records, own, scale, quantity } = all;
    // Latencies have long tails: on a linear axis most values would form a vertical line.
    let logarithmic = options.log_x() || (options.log.is_none() && histogram(column).is_some());
    let spacing = if logarithmic { Spacing::Log10 } else { Spacing::Linear };
    // The first one may be 0, which a logarithmic axis lacks.
    let values = scale.iter().flat_map(|d| &d.values).map(|v| v.0);
    let (low, high) = series::extent(values.filter(|v| spacing.shows(*v)));
    let mut x = Axis::new(quantity.clone(), spacing, low, high, options.zoom);
    x.truncated = false;
    let share = Quantity::new("share of values at or below", Some(Unit::Ratio)).within(Range::SHARE);
    let y = Axis::exact(share, Spacing::Linear, 0.0, 1.0);
    let mut layers = Vec::new();
    let mut legend = Vec::new();
    for (index, one) in own.iter().enumerate() {
        let Look { colour, sign, dash } = legend::look(index);
        // Steps: the share jumps at each value and stays until the next.
        let mut points = Vec::new();
        let mut before = 0.0;
        for (value, share) in one.cumulated() {
            points.push((value, before));
            points.push((value, share));
            before = share;
        }
        let quartiles = marks(one);
        layers.push(Layer::Line { points, colour, weight: 1.0, dash });
        // Without signs, colour alone would tell the lines apart.
        if own.len() > 1 {
            layers.push(Layer::Marks { points: quartiles, sign, colour, weight: 0.9 });
        }
        let sign = (own.len() > 1).then_some(sign);
        legend.push(Entry { label: one.name.clone(), key: Key::Series { colour, sign, dash } });
    }
    let what = format!("distribution of {}", x.quantity.label);
    let mut notes = vec![explain(own, column)];
    notes.extend(series::unplaced(own.iter().flat_map(|d| &d.values).filter(|v| !spacing.shows(v.0)).count()));
    Figure { notes, legend, ..Figure::new(options, records, &what, x, y, layers) }
}

/// The points where each tenth of the values is passed.
fn marks(one: &Distribution) -> Vec<(f64, f64)> {
    let mut points = Vec::new();
    let mut next = 0.1;
    for (value, share) in one.cumulated() {
        if share >= next && share < 0.95 {
            points.push((value, share));
            next = ((share * 10.0).floor() + 1.0) / 10.0;
        }
    }
    points
}

// `percentiles`: values at 90 %, 99 %, 99.9 % …, equally far apart, which shows the tail.

/// Number of values that must lie beyond a percentile. With fewer it does not predict the next run.
const BEYOND: f64 = 10.0;

/// Ratio of largest to smallest value from which on the axis is logarithmic by default: on a linear one small values
/// would lie on the axis.
const WIDE: f64 = 50.0;

pub fn draw_percentiles(options: &Options) -> Result<Drawing, Error> {
    let column = options.y.as_deref().or(options.x.as_deref()).unwrap_or("latency");
    let all = Distributions::read(options, column)?;
    let row = |one: &Distribution, (nines, value): (f64, f64)| cells![&one.name, 1.0 - 1.0 / nines, value];
    let rows = all.own.iter().flat_map(|one| spectrum(one).into_iter().map(move |point| row(one, point)));
    let table = Points::new(&["series", "share", "value"], rows);
    Ok(Drawing::new(figure_of_tail(options, column, &all), table, &all.records))
}

/// Points of 1 ÷ (1 − share) and the value there, as far as enough values lie beyond.
fn spectrum(one: &Distribution) -> Vec<(f64, f64)> {
    let total = one.count() as f64;
    let last = (total / BEYOND).max(2.0);
    let mut points = Vec::new();
    let mut before = 0.0;
    for (value, share) in one.cumulated() {
        // A bucket covers a range of shares, and the curve has its value over all of them.
        for share in [before, share] {
            let nines = 1.0 / (1.0 - share).max(1.0 / total);
            if nines <= last && points.last() != Some(&(nines, value)) {
                points.push((nines, value));
            }
        }
        before = share;
        if 1.0 / (1.0 - share).max(1.0 / total) > last {
            if points.last().is_none_or(|p| p.0 < last) {
                points.push((last, value));
            }
            break;
        }
    }
    points
}

fn figure_of_tail(options: &Options, column: &str, all: &Distributions) -> Figure {
    let Distributions { records, own, scale, quantity } = all;
    let points: Vec<(f64, f64)> = scale.iter().flat_map(spectrum).collect();
    let (_, most) = series::extent(points.iter().map(|p| p.0));
    let x = Axis::new(Quantity::new("percentile", None), Spacing::Nines, 1.0, most, true);
    let wide = series::is_wide(options, points.iter().map(|p| p.1), WIDE);
    let spacing = if options.log_y() || wide { Spacing::Log10 } else { Spacing::Linear };
    let values = points.iter().map(|p| p.1).filter(|v| spacing.shows(*v));
    let (low, high) = series::extent(values);
    let y = Axis::new(quantity.clone(), spacing, low, high, options.zoom);
    // With less than twice as many values the median has too few beyond it, but is drawn, since there would be no
    // picture.
    let few = own.iter().any(|one| (one.count() as f64) < 2.0 * BEYOND);
    let reach = if few { ", and to the median in any case" } else { "" };
    let mut layers = Vec::new();
    let mut legend = Vec::new();
    for (index, one) in own.iter().enumerate() {
        let look = legend::look(index);
        let Look { colour, sign, dash } = look;
        let points = spectrum(one);
        let at = |nines: f64| points.iter().find(|p| p.0 >= nines).map(|p| (nines, p.1));
        let marks = [2.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6].into_iter().filter_map(at).collect();
        layers.push(Layer::Line { points: points.clone(), colour, weight: 1.0, dash });
        layers.push(Layer::Marks { points: marks, sign, colour, weight: 0.9 });
        legend.push(Entry { label: one.name.clone(), key: look.key() });
    }
    let what = format!("percentiles of {}", y.quantity.label);
    let mut notes = vec![explain(own, column), format!("drawn as far as {BEYOND} values lie beyond{reach}")];
    notes.extend(series::unplaced(own.iter().flat_map(spectrum).filter(|p| !spacing.shows(p.1)).count()));
    Figure { notes, legend, ..Figure::new(options, records, &what, x, y, layers) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spectrum_ends_where_too_few_values_lie_beyond() {
        let one = Distribution { name: String::new(), values: (1..=1000).map(|v| (f64::from(v), 1)).collect() };
        let points = spectrum(&one);
        assert_eq!(points[0], (1.0, 1.0));
        let (nines, value) = *points.last().unwrap();
        assert!((nines - 100.0).abs() < 1e-6 && (990.0..=991.0).contains(&value), "{nines} {value}");
        let median = points.iter().find(|p| p.0 >= 2.0).unwrap();
        assert!((500.0..=501.0).contains(&median.1));
        let one = Distribution { name: String::new(), values: vec![(5.0, 3)] };
        assert!(spectrum(&one).iter().all(|p| p.0 <= 2.0 && (p.1 - 5.0).abs() < 1e-9));
    }
}
