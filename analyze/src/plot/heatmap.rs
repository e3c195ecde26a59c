//! `heatmap`: a metric over two parameters as colours, or latencies over time; [`pairs`] draws one between hosts.

use super::{
    axis::Axis,
    canvas::{Colour, Sign},
    choice::Wanted,
    distribution::{HISTOGRAM, is_latency},
    drawing::{Drawing, Points},
    figure::Figure,
    layer::Layer,
    options::{Options, Spread},
    pairs, palette, phases,
    quantity::Quantity,
    records::{Columns, Records, TELLING},
    series::{self, Condense, Point},
    spacing::Spacing,
};
use crate::{error::Error, stats::histogram::Latencies, table::Table};
use schemas::{metrics::Range, units::Unit};
use std::{
    cell::Cell as Once,
    collections::{BTreeMap, HashMap},
};

/// Ratio of largest to smallest value from which on colours are logarithmic by default: on an even scale all small values
/// would have one colour.
pub(super) const DECADE: f64 = 10.0;

/// Latency buckets per factor of ten in a heat map over time.
const PER_DECADE: f64 = 12.0;

pub fn draw(options: &Options) -> Result<Drawing, Error> {
    if options.y.as_deref().is_some_and(is_latency) {
        return over_time(options);
    }
    let mut table = Table::open(&options.input)?;
    if pairs::are_asked_for(options, &table) {
        pairs::draw(options, &mut table)
    } else {
        over_parameters(options, table)
    }
}

/// One cell: column, row, value.
type Cell = (usize, usize, f64);

fn over_parameters(options: &Options, table: Table) -> Result<Drawing, Error> {
    // Standard input can be opened once.
    let opened = Once::new(Some(table));
    let (records, others) = options.with_same_scale(|input, own: Option<&Records>| {
        let chosen = |axis: usize| own.and_then(|own| own.axes.get(axis)).map(String::as_str);
        let columns = Columns {
            metric: Wanted::of(options.value.as_deref().or(own.map(|own| own.metric.as_str()))),
            axes: &[Wanted::of(options.x.as_deref().or(chosen(0))), Wanted::of(options.y.as_deref().or(chosen(1)))],
            texts: TELLING,
            ..Columns::default()
        };
        match opened.take() {
            Some(mut table) => Records::of_table(&mut table, options, &options.selection, &columns),
            None => Records::new(options, input, &options.selection, &columns),
        }
    })?;
    let asked = [
        (&options.x, "two parameters that vary"),
        (&options.y, "a parameter that varies"),
        (&options.value, "a headline metric"),
    ]
    .map(|(option, default)| option.as_deref().unwrap_or(default));
    records.nothing_to_draw(records.list.is_empty() || records.axes.len() < 2, options, &asked)?;
    let (x, y, value) = (records.axes[0].as_str(), records.axes[1].as_str(), records.metric.as_str());
    records.one_case(&format!("a heat map of `{x}` and `{y}` has one value per cell"))?;
    let (columns, rows) = (in_order(records.distinct(x)), in_order(records.distinct(y)));
    let place = |texts: &[&str]| -> HashMap<String, usize> {
        texts.iter().enumerate().map(|(i, text)| ((*text).to_owned(), i)).collect()
    };
    let (column_of, row_of) = (place(&columns), place(&rows));
    let mut values: BTreeMap<(usize, usize), Vec<f64>> = BTreeMap::new();
    for record in &records.list {
        if let Some(value) = records.number(record, value) {
            let cell = (column_of[records.text(record, x)], row_of[records.text(record, y)]);
            values.entry(cell).or_default().push(value);
        }
    }
    let how = Condense { spread: Spread::None, is_range_of_few: false, ..Condense::of(options, value) };
    let points: Vec<Point> = values.values().filter_map(|v| Point::of(0.0, v, &how)).collect();
    let cells: Vec<Cell> = values.keys().zip(&points).map(|((column, row), point)| (*column, *row, point.y)).collect();
    let mut table = Points::new(&[x, y, value]);
    table.rows = cells
        .iter()
        .map(|(c, r, v)| vec![columns[*c].to_owned(), rows[*r].to_owned(), schemas::columns::number(*v)])
        .collect();
    let mut scale: Vec<f64> = cells.iter().map(|c| c.2).collect();
    if let Some(others) = &others {
        scale.extend(others.list.iter().filter_map(|r| others.number(r, value)));
    }
    let wide = options.wide(scale.iter().copied(), DECADE);
    let spacing = if wide || options.log_y() || options.log_x() { Spacing::Log10 } else { Spacing::Linear };
    let (low, high) = series::extent(scale.iter().copied().filter(|v| spacing.shows(*v)));
    let colours = Axis::new(records.quantity(value), spacing, low, high, options.zoom);
    let (mut layers, mut numbers) = (Vec::new(), Vec::new());
    for (column, row, mean) in &cells {
        let (column, row) = (*column as f64, *row as f64);
        let Some(share) = colours.position(*mean) else {
            layers.push(Layer::Marks {
                points: vec![(column, row)],
                sign: Sign::Cross,
                colour: Colour::MUTED,
                weight: 1.0,
            });
            continue;
        };
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
    let (x_quantity, y_quantity) = (records.quantity(x), records.quantity(y));
    let words =
        |quantity: &Quantity, texts: &[&str]| -> Vec<String> { texts.iter().map(|t| quantity.name(t)).collect() };
    let title = format!("{} over {} and {}", colours.quantity.label, x_quantity.label, y_quantity.label);
    let x_axis = Axis::of_names(x_quantity.label.clone(), words(&x_quantity, &columns));
    let y_axis = Axis::of_names(y_quantity.label.clone(), words(&y_quantity, &rows));
    let mut notes = vec![series::explain(&points.iter(), &how, &records)];
    if cells.len() < columns.len() * rows.len() {
        notes.push("empty: not measured".to_owned());
    }
    if spacing == Spacing::Log10 {
        notes.push("the colours are logarithmic".to_owned());
    }
    let lost = cells.iter().filter(|cell| !spacing.shows(cell.2)).count();
    if lost > 0 {
        notes.push(format!("crossed out: {lost} at or below zero, which a logarithmic scale has no colour for"));
    }
    let figure =
        Figure { notes, colours: Some(colours), ..Figure::new(options, &records, &title, x_axis, y_axis, layers) };
    Ok(Drawing::new(figure, table, &records))
}

/// Sorts numbers; names keep their order.
fn in_order(mut texts: Vec<&str>) -> Vec<&str> {
    if texts.iter().all(|t| t.parse::<f64>().is_ok()) {
        texts.sort_by(|a, b| a.parse::<f64>().unwrap_or(0.0).total_cmp(&b.parse().unwrap_or(0.0)));
    }
    texts
}

/// A share of an interval's latencies: start and end in seconds, bucket, share.
type Stretch = (f64, f64, i32, f64);

/// Lower edge of a latency bucket, microseconds.
fn edge(bucket: i32) -> f64 {
    10_f64.powf(f64::from(bucket) / PER_DECADE)
}

fn over_time(options: &Options) -> Result<Drawing, Error> {
    let columns = Columns {
        numbers: &["start_s", "elapsed_s"],
        required_texts: &[HISTOGRAM],
        texts: &["phase"],
        along: &["stream", "phase"],
        ..Columns::default()
    };
    let selection = options.intervals();
    let ((records, own), others) = options.with_same_scale(|input, _| {
        let mut records = Records::new(options, input, &selection, &columns)?;
        records.nothing_to_draw(records.list.is_empty(), options, &["start_s", HISTOGRAM])?;
        records.one_case("latencies over time are drawn for one case")?;
        records.keep_first("stream");
        records.keep_first("iteration");
        let stretches = stretches(&records)?;
        Ok((records, stretches))
    })?;
    let scale: Vec<Stretch> = own.iter().copied().chain(others.into_iter().flat_map(|(_, found)| found)).collect();
    let (low, high) = series::extent(scale.iter().flat_map(|b| [edge(b.2), edge(b.2 + 1)]));
    let y = Axis::new(Quantity::new("latency", Some(Unit::Microseconds)), Spacing::Log10, low, high, true);
    let (from, to) = series::extent(scale.iter().flat_map(|b| [b.0, b.1]));
    let x =
        Axis::exact(Quantity::new("time since the measurement began", Some(Unit::Seconds)), Spacing::Linear, from, to);
    let (least, most) = series::extent(scale.iter().map(|b| b.3));
    let colours =
        Axis::new(Quantity::new("share", Some(Unit::Ratio)).within(Range::SHARE), Spacing::Log10, least, most, true);
    let mut layers = phases::shades(&records, "start_s");
    let mut notes = vec!["colour: share of an interval's latencies in each range".to_owned()];
    notes.extend(phases::note(&layers));
    // The colours would cover the names.
    phases::without_names(&mut layers);
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
    let figure = Figure::new(options, &records, "latency over time", x, y, layers);
    let figure = Figure { notes, colours: Some(colours), ..figure };
    Ok(Drawing::new(figure, table, &records))
}

/// The latencies of each interval by bucket, as shares, so that slow intervals (with fewer transactions) compare with
/// fast ones.
fn stretches(records: &Records) -> Result<Vec<Stretch>, Error> {
    let mut found = Vec::new();
    for record in &records.list {
        let (Some(start), Some(length)) = (records.number(record, "start_s"), records.number(record, "elapsed_s"))
        else {
            continue;
        };
        let latencies =
            Latencies::decode(records.text(record, HISTOGRAM)).map_err(|r| records.error(record, HISTOGRAM, r))?;
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
