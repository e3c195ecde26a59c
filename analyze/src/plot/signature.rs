//! `signature`: NetPIPE's network signature graph, throughput against transfer time. The curve starts at the latency
//! and rises to the bandwidth.

use super::{
    axis::Axis,
    drawing::{Drawing, Points},
    figure::Figure,
    options::Options,
    quantity::Quantity,
    series::{self, Point},
    transfer::{self, Transfers},
};
use crate::error::Error;
use schemas::units::{Unit, human};

pub fn draw(options: &Options) -> Result<Drawing, Error> {
    let all = Transfers::read(options)?;
    let mut table = Points::of(&all.own, "message_bytes", "throughput_bits_per_s");
    table.header.push("transfer_time_us".to_owned());
    let times = all.own.iter().flat_map(|s| &s.points).map(|p| schemas::columns::number(time(p)));
    for (row, time) in table.rows.iter_mut().zip(times) {
        row.push(time);
    }
    Ok(Drawing::new(figure(options, &all), table, &all.records))
}

fn time(point: &Point) -> f64 {
    transfer::time_us(point.x, point.y)
}

fn figure(options: &Options, Transfers { records, own: series, scale }: &Transfers) -> Figure {
    let points = || scale.iter().flat_map(|s| &s.points);
    let x = transfer::axis(records, options, points().map(time));
    let (low, high) = series::span(points(), options.log_y());
    let y = Axis::new(Quantity::of_column("throughput_bits_per_s"), options.spacing_y(), low, high, options.zoom);
    // The curve goes by size: it rightly turns back where larger messages were faster.
    let (layers, legend) = series::curves(series, time);
    let mut notes = vec![transfer::explain_points(series, records, options)];
    if let [one] = &series[..]
        && let Some(first) = one.points.first()
        && let Some(peak) = one.points.iter().max_by(|a, b| a.y.total_cmp(&b.y))
    {
        let latency = human(Unit::Microseconds, time(first));
        notes.push(format!("latency {latency} at {}", human(Unit::Bytes, first.x)));
        notes.push(format!("peak {} at {}", human(Unit::BitsPerSecond, peak.y), human(Unit::Bytes, peak.x)));
    }
    notes.push(transfer::explain(records, options).to_owned());
    Figure { notes, legend, ..Figure::new(options, records, "network signature", x, y, layers) }
}
