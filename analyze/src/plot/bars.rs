//! `bars`: the mean of each group from zero, with its interval.

use super::{
    axis::Axis,
    canvas::Colour,
    drawing::{Drawing, Points},
    figure::Figure,
    groups::{self, Groups},
    layer::Layer,
    legend::Key,
    options::Options,
    palette,
    records::Records,
    series::{self, Condense, Point},
    spacing::Spacing,
};
use crate::error::Error;

/// Share of a series' colour in the fill of its bars.
const TINT: f64 = 0.85;

pub fn draw(options: &Options) -> Result<Drawing, Error> {
    if options.zoom || options.log_x() || options.log_y() {
        return Err(Error::Usage(
            "bars start at zero, on an even axis: their lengths are compared. Use `box` or `sweep` to look closer"
                .to_owned(),
        ));
    }
    let (own, others) = groups::read(options)?;
    let column = own.records.metric.as_str();
    let own_points = points(&own, options);
    let mut scale = own_points.clone();
    scale.extend(others.iter().flat_map(|others| points(others, options)));
    let records = &own.records;
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
    Ok(Drawing::new(figure(options, records, column, &own, &own_points, &scale), table, records))
}

fn points(groups: &Groups, options: &Options) -> Vec<Point> {
    let how = Condense::of(options, &groups.records.metric);
    groups.all.iter().filter_map(|g| Point::of(0.0, &g.values, &how)).collect()
}

fn figure(
    options: &Options,
    records: &Records,
    column: &str,
    own: &Groups,
    points: &[Point],
    scale: &[Point],
) -> Figure {
    let (low, high) = series::span(scale.iter(), false);
    let x = Axis::new(records.quantity(column), Spacing::Linear, low, high, false);
    let y = Axis::of_names(Groups::title(records), own.names.clone());
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
    layers.push(Layer::Intervals { ranges, sideways: true, colour: Colour::INK });
    let what = x.quantity.label.clone();
    let mut figure = Figure::new(options, records, &what, x, y, layers);
    figure.panels[0].rows_per_name = own.series.len();
    figure.notes = vec![series::explain(&points.iter(), &Condense::of(options, column), records)];
    figure.legend = own.legend(|series| Key::Patch(palette::fill(series, TINT)));
    figure
}
