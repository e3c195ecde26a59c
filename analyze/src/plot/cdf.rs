//! `cdf`: the share of values at or below a value.

use super::{
    axis::Axis,
    distribution::{self, Distribution, Distributions},
    drawing::{Drawing, Points},
    figure::Figure,
    layer::Layer,
    legend::{Entry, Key},
    options::Options,
    palette::{self, Look},
    quantity::Quantity,
    series,
    spacing::Spacing,
};
use crate::error::Error;
use schemas::{metrics::Range, units::Unit};

pub fn draw(options: &Options) -> Result<Drawing, Error> {
    let column = options.x.as_deref().or(options.y.as_deref()).unwrap_or("latency");
    let all = Distributions::read(options, column)?;
    let mut table = Points::new(&["series", "value", "share"]);
    for one in &all.own {
        for (value, share) in one.cumulated() {
            let number = schemas::columns::number;
            table.rows.push(vec![one.name.clone(), number(value), number(share)]);
        }
    }
    Ok(Drawing::new(figure(options, column, &all), table, &all.records))
}

fn figure(options: &Options, column: &str, Distributions { records, own, scale }: &Distributions) -> Figure {
    // Latencies have long tails: on a linear axis most values would form a vertical line.
    let logarithmic = options.log_x() || (options.log.is_none() && distribution::is_latency(column));
    let spacing = if logarithmic { Spacing::Log10 } else { Spacing::Linear };
    let ends = scale.iter().flat_map(|d| d.values.first().into_iter().chain(d.values.last())).map(|v| v.0);
    let (low, high) = series::extent(ends.filter(|v| spacing.shows(*v)));
    let mut x = Axis::new(distribution::quantity(records, column), spacing, low, high, options.zoom);
    x.truncated = false;
    let share = Quantity::new("share of values at or below", Some(Unit::Ratio)).within(Range::SHARE);
    let y = Axis::exact(share, Spacing::Linear, 0.0, 1.0);
    let mut layers = Vec::new();
    let mut legend = Vec::new();
    for (index, one) in own.iter().enumerate() {
        let Look { colour, sign, dash } = palette::look(index);
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
    let mut notes = vec![distribution::explain(own, column)];
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
