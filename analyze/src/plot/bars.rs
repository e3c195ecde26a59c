//! `bars`: the mean of each group from zero, with its interval.

use super::{
    Drawing, Options, Points,
    axis::{Axis, Spacing},
    figure::{Figure, Panel},
    groups::{self, Groups},
    layer::Layer,
    legend::Key,
    palette,
    reading::Reading,
    series::{self, Point},
};
use crate::error::Error;

/// How much of a series' colour fills its bars.
const TINT: f64 = 0.85;

/// Reads the files and draws.
pub fn draw(options: &Options) -> Result<Drawing, Error> {
    if options.zoom || options.log_x() || options.log_y() {
        return Err(Error::Usage(
            "bars start at zero, on an even axis: their lengths are compared. Use `box` or `sweep` to look closer"
                .to_owned(),
        ));
    }
    let column = options.y.as_deref().unwrap_or("throughput_bits_per_s");
    let reading = groups::read(options, &options.input, column)?;
    let own = Groups::of(&reading, options, column);
    options.nothing_to_draw(own.all.is_empty(), &reading, &[column])?;
    let mut scale = points(&own, options);
    if let Some(others) = options.same_scale_input() {
        scale.extend(points(&Groups::of(&groups::read(options, &others, column)?, options, column), options));
    }
    let own_points = points(&own, options);
    let mut table = Points::new(&["name", "series", column, "low", "high", "n"]);
    for (group, point) in own.all.iter().zip(&own_points) {
        let end = |value: Option<f64>| value.map(schemas::columns::number).unwrap_or_default();
        table.rows.push(vec![
            own.names[group.name].clone(),
            own.series[group.series].clone(),
            schemas::columns::number(point.y),
            end(point.low),
            end(point.high),
            point.n.to_string(),
        ]);
    }
    Ok(Drawing::new(figure(options, &reading, column, &own, &own_points, &scale), table, &reading))
}

fn points(groups: &Groups, options: &Options) -> Vec<Point> {
    groups.all.iter().filter_map(|g| Point::of(0.0, &g.values, options.spread, options.confidence)).collect()
}

fn figure(
    options: &Options,
    reading: &Reading,
    column: &str,
    own: &Groups,
    points: &[Point],
    scale: &[Point],
) -> Figure {
    let (low, high) = series::span(scale.iter(), false);
    let x = Axis::new(options.quantity(column, reading), Spacing::Linear, low, high, false);
    let y = Axis::of_names(Groups::title(reading, options), own.names.clone());
    let mut layers = Vec::new();
    for (group, point) in own.all.iter().zip(points) {
        let (middle, half) = own.place(group);
        layers.push(Layer::Box {
            from: (0.0, middle - half),
            to: (point.y, middle + half),
            colour: palette::fill(group.series, TINT),
            outline: None,
        });
    }
    let ranges = own.all.iter().zip(points).filter_map(|(g, p)| Some((own.place(g).0, p.low?, p.high?))).collect();
    layers.push(Layer::Intervals { ranges, sideways: true, colour: super::canvas::Colour::INK });
    Figure {
        title: options.title(reading, &x.quantity.label.clone()),
        notes: vec![options.explain(&points.iter(), reading)],
        x,
        panels: vec![Panel { y, layers, rows_per_name: own.series.len() }],
        legend: own.legend(|series| Key::Patch(palette::fill(series, TINT))),
        colours: None,
        footer: options.footer(reading),
    }
}
