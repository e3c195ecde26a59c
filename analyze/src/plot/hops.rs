//! `hops`: the table of hops, a line per hop from the near end down: the round trip to it on the idle path and under the load of each direction.

use super::{
    axis::Axis,
    figure::{Drawing, Figure, Points},
    layer::Layer,
    legend::{self, Entry},
    options::Options,
    quantity::Quantity,
    records::{Columns, Record, Records},
    series::{self, Condense, Point, Series},
};
use crate::error::Error;
use indexmap::IndexMap;
use schemas::{
    columns::hops::column as hop,
    text::shown_way,
    units::{Unit, human},
};
use std::collections::BTreeMap;

/// Distance of the lines of two loads at a hop, in hops.
const BESIDE: f64 = 0.12;

/// Round trips to a hop.
#[derive(Default)]
struct RoundTrips {
    /// By iteration, microseconds.
    us: Vec<f64>,
    /// Ends of the interval of the last of them.
    interval_us: Option<(f64, f64)>,
}

pub fn draw(options: &Options) -> Result<Drawing, Error> {
    let columns = Columns {
        optional: &[hop::idle_us, hop::loaded_us, hop::added_us, hop::added_low_us, hop::added_high_us],
        required_texts: &[hop::case, hop::direction, hop::hop],
        texts: &[hop::case_id, hop::iteration, hop::address, hop::note],
        // A line is a hop in an iteration.
        along: &[hop::case, hop::case_id, hop::iteration, hop::direction, hop::hop, hop::address, hop::note],
        ..Columns::default()
    };
    let hint =
        "This picture shows the hops of a path, which a run with `hops: true` writes beside its results: r.hops.csv";
    let ((records, series), others) = options.with_same_scale(|input, _| {
        let records =
            Records::new(options, input, &options.selection, &columns).map_err(|error| error.with_hint(hint))?;
        let series = gather(&records, options)?;
        Ok((records, series))
    })?;
    records.nothing_to_draw(series.iter().all(|s| s.points.is_empty()), options, &[hop::idle_us, hop::loaded_us])?;
    series::not_too_many(series.len(), &records)?;
    let scale: Vec<Series> = series.iter().cloned().chain(others.into_iter().flat_map(|(_, series)| series)).collect();
    let figure = figure(options, &records, &series, &scale);
    Ok(Drawing::new(figure, Points::of(&series, hop::hop, "round_trip_us"), &records))
}

/// The idle path, and the load of each case and direction. The x of a point is the number of its hop.
fn gather(records: &Records, options: &Options) -> Result<Vec<Series>, Error> {
    let several = records.distinct(hop::case_id).len() > records.distinct(hop::direction).len();
    let mut all = IndexMap::<String, BTreeMap<u8, RoundTrips>>::new();
    all.entry("idle".to_owned()).or_default();
    for record in &records.list {
        let Some(number) = number(records, record) else {
            let text = records.text(record, hop::hop);
            return Err(records.error(
                record,
                hop::hop,
                format!("`{text}` is no hop: they count from 1 to {}", u8::MAX),
            ));
        };
        let way = shown_way(records.text(record, hop::direction));
        let load = if several {
            format!("{} {way}", records.labels.get(records.text(record, hop::case)))
        } else {
            way.to_owned()
        };
        let idle = records.number(record, hop::idle_us);
        for (name, value, interval) in [
            ("idle", idle, None),
            (load.as_str(), records.number(record, hop::loaded_us), under_load(records, record, idle)),
        ] {
            let Some(value) = value else { continue };
            let trips = all.entry(name.to_owned()).or_default().entry(number).or_default();
            trips.us.push(value);
            trips.interval_us = interval;
        }
    }
    let how = Condense::of(options, hop::loaded_us);
    let point = |(number, trips): (&u8, &RoundTrips)| {
        let mut point = Point::of((*number).into(), &trips.us, &how)?;
        if is_alone(records) {
            (point.low, point.high) =
                trips.interval_us.map(|(low, high)| (low.clamp(0.0, point.y), high.max(point.y))).unzip();
        }
        Some(point)
    };
    let lines =
        all.iter().map(|(name, hops)| Series { name: name.clone(), points: hops.iter().filter_map(point).collect() });
    Ok(lines.filter(|line| !line.points.is_empty()).collect())
}

/// Whether there is one iteration: then the interval is that of what its load adds.
fn is_alone(records: &Records) -> bool {
    records.distinct(hop::iteration).len() <= 1
}

/// The number of a row's hop, from 1.
fn number(records: &Records, record: &Record) -> Option<u8> {
    records.text(record, hop::hop).parse().ok().filter(|number| *number > 0)
}

/// Ends of the round trip under load, from the interval of what it adds.
fn under_load(records: &Records, record: &Record, idle: Option<f64>) -> Option<(f64, f64)> {
    let end = |column| Some(idle? + records.number(record, column)?);
    end(hop::added_low_us).zip(end(hop::added_high_us))
}

fn figure(options: &Options, records: &Records, series: &[Series], scale: &[Series]) -> Figure {
    let last = records.list.iter().filter_map(|record| number(records, record)).max().unwrap_or(1);
    let name = |at: u8| {
        let of_hop = || records.list.iter().filter(|record| number(records, record) == Some(at));
        let address = of_hop().map(|record| records.text(record, hop::address)).find(|address| !address.is_empty());
        let slow = of_hop().any(|record| !records.text(record, hop::note).is_empty());
        format!("{at} · {}{}", address.unwrap_or("no answer"), if slow { " *" } else { "" })
    };
    let y = Axis::of_names("hop", (1..=last).map(name).collect());
    let (low, high) = series::span(scale.iter().flat_map(|line| &line.points), options.log_x());
    let quantity = Quantity::new("round trip", Some(Unit::Microseconds));
    let spacing = options.spacing_x(&quantity);
    let x = Axis::new(quantity, spacing, low, high, options.zoom);
    let mut layers = Vec::new();
    let mut legend = Vec::new();
    for (index, line) in series.iter().enumerate() {
        let look = legend::look(index);
        // Beside each other, so that no interval hides another.
        let aside = (index as f64 - (series.len() - 1) as f64 / 2.0) * BESIDE;
        let row = |point: &Point| point.x - 1.0 + aside;
        let points: Vec<_> = line.points.iter().map(|point| (point.y, row(point))).collect();
        let ranges = line.points.iter().filter_map(|point| Some((row(point), point.low?, point.high?))).collect();
        layers.push(Layer::Line { points: points.clone(), colour: look.colour, weight: 1.0, dash: look.dash });
        layers.push(Layer::Intervals { ranges, sideways: true, colour: look.colour });
        layers.push(Layer::Marks { points, sign: look.sign, colour: look.colour, weight: 1.0 });
        legend.push(Entry { label: line.name.clone(), key: look.key() });
    }
    let has_intervals = series.iter().flat_map(|line| &line.points).any(|point| point.low.is_some());
    let mut notes = vec![if is_alone(records) {
        let interval = if has_intervals { "; under load with the 95 % interval of what it adds" } else { "" };
        format!("medians of the probes{interval}")
    } else {
        let points = series.iter().flat_map(|line| &line.points);
        series::explain(&points, &Condense::of(options, hop::loaded_us), records)
    }];
    let at_the_end = |line: &Series| line.points.last().filter(|point| point.x >= last.into()).map(|point| point.y);
    if let [idle, loads @ ..] = series
        && let Some(idle) = at_the_end(idle)
    {
        let added = |line: &Series| {
            let added = at_the_end(line)? - idle;
            let sign = if added < 0.0 { '−' } else { '+' };
            Some(format!("{} {sign}{}", line.name, human(Unit::Microseconds, added.abs())))
        };
        let added: Vec<String> = loads.iter().filter_map(added).collect();
        if !added.is_empty() {
            notes.push(format!("at hop {last}: {}", added.join(", ")));
        }
    }
    if records.list.iter().any(|record| !records.text(record, hop::note).is_empty()) {
        notes.push("* answers slowly by itself, or from several addresses".to_owned());
    }
    // The rows are of one path, whatever the load is called.
    let title = options.paper.title.clone().unwrap_or_else(|| "Round trip to each hop".to_owned());
    Figure { title, notes, legend, ..Figure::new(options, records, "", x, y, layers) }
}
