//! `signature`: NetPIPE's network signature graph, throughput against transfer time. The curve starts at the latency and
//! reaches up to the bandwidth.

use super::{
    Drawing, Options, Points,
    axis::{Axis, Spacing},
    figure::{Figure, Panel},
    quantity::Quantity,
    series::{self, Point},
    sweep,
    transfer::{self, Transfers},
};
use crate::error::Error;
use schemas::units::{Unit, human};

/// Reads the files and draws.
pub fn draw(options: &Options) -> Result<Drawing, Error> {
    let all = Transfers::read(options)?;
    let mut table = Points::of(&all.own, "message_bytes", "throughput_bits_per_s");
    table.header.push("transfer_time_us".to_owned());
    let times = all.own.iter().flat_map(|s| &s.points).map(|p| schemas::columns::number(time(p)));
    for (row, time) in table.rows.iter_mut().zip(times) {
        row.push(time);
    }
    Ok(Drawing::new(figure(options, &all), table, &all.reading))
}

fn time(point: &Point) -> f64 {
    transfer::time_us(point.x, point.y)
}

fn figure(options: &Options, Transfers { reading, own: series, scale }: &Transfers) -> Figure {
    let points = || scale.iter().flat_map(|s| &s.points);
    let (low, high) = series::extent(points().map(time));
    let mut x = Axis::new(Quantity::new("transfer time", Some(Unit::Microseconds)), Spacing::Log10, low, high, true);
    x.truncated = false;
    let (low, high) = series::span(points(), options.log_y());
    let spacing = if options.log_y() { Spacing::Log10 } else { Spacing::Linear };
    let y = Axis::new(Quantity::of_column("throughput_bits_per_s"), spacing, low, high, options.zoom);
    // The curve goes by size, as it was measured: where larger messages were faster it turns back, as it should.
    let (layers, legend) = sweep::curves(series, time);
    let mut notes = vec![options.explain(&series.iter().flat_map(|s| &s.points), reading)];
    if let [one] = &series[..]
        && let Some(first) = one.points.first()
        && let Some(peak) = one.points.iter().max_by(|a, b| a.y.total_cmp(&b.y))
    {
        let latency = human(Unit::Microseconds, time(first));
        notes.push(format!("latency {latency} at {}", human(Unit::Bytes, first.x)));
        notes.push(format!("peak {} at {}", human(Unit::BitsPerSecond, peak.y), human(Unit::Bytes, peak.x)));
    }
    notes.push(transfer::explain(reading, options).to_owned());
    Figure {
        title: options.title(reading, "network signature"),
        notes,
        x,
        panels: vec![Panel { y, layers, rows_per_name: 1 }],
        legend,
        colours: None,
        footer: options.footer(reading),
    }
}
