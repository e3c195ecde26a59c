//! `heatmap`: a metric over two parameters as colours, or latencies over time.

use super::{
    Drawing, Options, Points,
    axis::{Axis, Spacing},
    distribution::{HISTOGRAM, is_latency},
    figure::{Figure, Panel},
    layer::Layer,
    palette,
    quantity::Quantity,
    reading::{Reading, Wanted},
    series::{self, Point, Spread},
    timeseries,
};
use crate::{error::Error, stats::histogram::Latencies, table::InputArgs};
use schemas::units::Unit;
use std::collections::{BTreeMap, HashMap};

/// Latency buckets per factor of ten in a heat map over time.
const PER_DECADE: f64 = 12.0;

/// Reads the files and draws.
pub fn draw(options: &Options) -> Result<Drawing, Error> {
    if options.y.as_deref().is_some_and(is_latency) { over_time(options) } else { over_parameters(options) }
}

/// One cell: column, row, value.
type Cell = (usize, usize, f64);

fn over_parameters(options: &Options) -> Result<Drawing, Error> {
    let x = options.x.as_deref().unwrap_or("message_bytes");
    let y = options.y.as_deref().unwrap_or("streams");
    let value = options.value.as_deref().unwrap_or("throughput_bits_per_s");
    let wanted = Wanted {
        numbers: &[value],
        required_texts: &[x, y],
        texts: &["service_demand_unit"],
        along: &[x, y],
        ..Wanted::default()
    };
    let reading = Reading::new(options, &options.input, &options.selection, &wanted)?;
    options.nothing_to_draw(reading.records.is_empty(), &reading, &[x, y, value])?;
    if !reading.by.is_empty() {
        return Err(Error::Usage(format!(
            "a heat map shows one value per cell, but rows of the same `{x}` and `{y}` differ in {}: choose with --where {}=…",
            reading.by.iter().map(|b| format!("`{b}`")).collect::<Vec<_>>().join(" and "),
            reading.by[0]
        )));
    }
    let (columns, rows) = (in_order(reading.distinct(x)), in_order(reading.distinct(y)));
    let place = |texts: &[&str]| -> HashMap<String, usize> {
        texts.iter().enumerate().map(|(i, text)| ((*text).to_owned(), i)).collect()
    };
    let (column_of, row_of) = (place(&columns), place(&rows));
    let mut values: BTreeMap<(usize, usize), Vec<f64>> = BTreeMap::new();
    for record in &reading.records {
        if let Some(value) = reading.number(record, value) {
            let cell = (column_of[reading.text(record, x)], row_of[reading.text(record, y)]);
            values.entry(cell).or_default().push(value);
        }
    }
    let points: Vec<Point> = values.values().filter_map(|v| Point::of(0.0, v, Spread::None, 0.5)).collect();
    let cells: Vec<Cell> = values.keys().zip(&points).map(|((column, row), point)| (*column, *row, point.y)).collect();
    let mut table = Points::new(&[x, y, value]);
    table.rows = cells
        .iter()
        .map(|(c, r, v)| vec![columns[*c].to_owned(), rows[*r].to_owned(), schemas::columns::number(*v)])
        .collect();
    let mut scale: Vec<f64> = cells.iter().map(|c| c.2).collect();
    if let Some(others) = options.same_scale_input() {
        let others = Reading::new(options, &others, &options.selection, &wanted)?;
        scale.extend(others.records.iter().filter_map(|r| others.number(r, value)));
    }
    let spacing = if options.log_y() || options.log_x() { Spacing::Log10 } else { Spacing::Linear };
    let (low, high) = series::extent(scale.iter().copied().filter(|v| *v > 0.0 || !spacing.is_logarithmic()));
    let colours = Axis::new(options.quantity(value, &reading), spacing, low, high, options.zoom);
    let (mut layers, mut numbers) = (Vec::new(), Vec::new());
    for (column, row, mean) in &cells {
        let (column, row) = (*column as f64, *row as f64);
        let Some(share) = colours.position(*mean) else { continue };
        let colour = palette::scale(share);
        layers.push(Layer::Box {
            from: (column - 0.49, row - 0.48),
            to: (column + 0.49, row + 0.48),
            colour,
            outline: None,
        });
        numbers.push(((column, row), palette::readable_on(colour), colours.number(*mean)));
    }
    layers.push(Layer::Numbers(numbers));
    let (x_quantity, y_quantity) = (Quantity::of_column(x), Quantity::of_column(y));
    let words =
        |quantity: &Quantity, texts: &[&str]| -> Vec<String> { texts.iter().map(|t| quantity.name(t)).collect() };
    let title = format!("{} over {} and {}", colours.quantity.label, x_quantity.label, y_quantity.label);
    let figure = Figure {
        title: options.title(&reading, &title),
        notes: vec![options.explain(&points.iter(), &reading), "empty: not measured".to_owned()],
        x: Axis::of_names(x_quantity.label.clone(), words(&x_quantity, &columns)),
        panels: vec![Panel {
            y: Axis::of_names(y_quantity.label.clone(), words(&y_quantity, &rows)),
            layers,
            rows_per_name: 1,
        }],
        legend: Vec::new(),
        colours: Some(colours),
        footer: options.footer(&reading),
    };
    Ok(Drawing::new(figure, table, &reading))
}

/// Numbers by size, names as they came.
fn in_order(mut texts: Vec<&str>) -> Vec<&str> {
    if texts.iter().all(|t| t.parse::<f64>().is_ok()) {
        texts.sort_by(|a, b| a.parse::<f64>().unwrap_or(0.0).total_cmp(&b.parse().unwrap_or(0.0)));
    }
    texts
}

/// A share of an interval's latencies: from and to second, bucket, share.
type Stretch = (f64, f64, i32, f64);

/// Where a bucket of latencies begins, microseconds.
fn edge(bucket: i32) -> f64 {
    10_f64.powf(f64::from(bucket) / PER_DECADE)
}

fn over_time(options: &Options) -> Result<Drawing, Error> {
    let wanted = Wanted {
        numbers: &["start_s", "elapsed_s"],
        required_texts: &[HISTOGRAM],
        texts: &["phase"],
        along: &["iteration", "stream"],
        ..Wanted::default()
    };
    let mut selection = options.selection.clone();
    "all".clone_into(&mut selection.phase);
    selection.record.get_or_insert_with(|| "interval".to_owned());
    let read = |input: &InputArgs| -> Result<(Reading, Vec<Stretch>), Error> {
        let mut reading = Reading::new(options, input, &selection, &wanted)?;
        options.nothing_to_draw(reading.records.is_empty(), &reading, &["start_s", HISTOGRAM])?;
        if !reading.by.is_empty() {
            return Err(Error::Usage(format!(
                "latencies over time are drawn for one case; the rows differ in `{}`: choose with --where {}=…",
                reading.by[0], reading.by[0]
            )));
        }
        reading.keep_first("stream");
        reading.keep_first("iteration");
        let stretches = stretches(&reading)?;
        Ok((reading, stretches))
    };
    let (reading, own) = read(&options.input)?;
    let mut scale = own.clone();
    if let Some(others) = options.same_scale_input() {
        scale.extend(read(&others)?.1);
    }
    let (low, high) = series::extent(scale.iter().flat_map(|b| [edge(b.2), edge(b.2 + 1)]));
    let y = Axis::new(Quantity::new("latency", Some(Unit::Microseconds)), Spacing::Log10, low, high, true);
    let (from, to) = series::extent(scale.iter().flat_map(|b| [b.0, b.1]));
    let x =
        Axis::exact(Quantity::new("time since the measurement began", Some(Unit::Seconds)), Spacing::Linear, from, to);
    let (least, most) = series::extent(scale.iter().map(|b| b.3));
    let colours = Axis::new(Quantity::new("share", Some(Unit::Ratio)), Spacing::Log10, least, most, true);
    let mut layers = timeseries::phases(&reading, "start_s");
    let mut notes = vec!["colour: share of an interval's latencies in each range".to_owned()];
    notes.extend(timeseries::shaded(&layers));
    // The colours would cover their names.
    timeseries::without_names(&mut layers);
    for (from, to, bucket, share) in &own {
        let colour = palette::scale(colours.position(*share).unwrap_or(0.0));
        layers.push(Layer::Box { from: (*from, edge(*bucket)), to: (*to, edge(bucket + 1)), colour, outline: None });
    }
    let number = schemas::columns::number;
    let mut table = Points::new(&["start_s", "end_s", "latency_low_us", "latency_high_us", "share"]);
    table.rows = own
        .iter()
        .map(|(from, to, bucket, share)| [*from, *to, edge(*bucket), edge(bucket + 1), *share].map(number).to_vec())
        .collect();
    let figure = Figure {
        title: options.title(&reading, "latency over time"),
        notes,
        x,
        panels: vec![Panel { y, layers, rows_per_name: 1 }],
        legend: Vec::new(),
        colours: Some(colours),
        footer: options.footer(&reading),
    };
    Ok(Drawing::new(figure, table, &reading))
}

/// The shares of each interval's latencies by bucket, so that slow intervals (with fewer transactions) can be compared.
fn stretches(reading: &Reading) -> Result<Vec<Stretch>, Error> {
    let mut found = Vec::new();
    for record in &reading.records {
        let (Some(start), Some(length)) = (reading.number(record, "start_s"), reading.number(record, "elapsed_s"))
        else {
            continue;
        };
        let latencies =
            Latencies::decode(reading.text(record, HISTOGRAM)).map_err(|r| reading.error(record, HISTOGRAM, r))?;
        let total = latencies.count() as f64;
        let mut counts: BTreeMap<i32, u64> = BTreeMap::new();
        for (value, count) in latencies.buckets_us().filter(|b| b.0 > 0.0) {
            #[expect(clippy::cast_possible_truncation, reason = "logarithms of latencies are small")]
            let bucket = (value.log10() * PER_DECADE).floor() as i32;
            *counts.entry(bucket).or_default() += count;
        }
        found.extend(counts.iter().map(|(bucket, count)| (start, start + length, *bucket, *count as f64 / total)));
    }
    Ok(found)
}
