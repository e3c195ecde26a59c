//! `box`: every value of each group, with its quartiles.

use super::{
    axis::Axis,
    canvas::Colour,
    drawing::{Drawing, Points},
    figure::Figure,
    groups::{self, Group, Groups},
    layer::Layer,
    options::Options,
    palette::{self, Look},
    records::Records,
    series,
    spacing::Spacing,
};
use crate::{error::Error, stats::quantiles};

/// Share of a series' colour in the fill of its boxes.
const TINT: f64 = 0.3;

pub fn draw(options: &Options) -> Result<Drawing, Error> {
    let (own, others) = groups::read(options)?;
    let column = own.records.metric.as_str();
    let values: Vec<f64> =
        own.all.iter().chain(others.iter().flat_map(|o| &o.all)).flat_map(|g| &g.values).copied().collect();
    let records = &own.records;
    let mut table = Points::new(&["name", "series", column]);
    for group in &own.all {
        for value in &group.values {
            table.rows.push(vec![
                own.names[group.name].clone(),
                own.series[group.series].clone(),
                schemas::columns::number(*value),
            ]);
        }
    }
    Ok(Drawing::new(figure(options, records, column, &own, &values), table, records))
}

fn figure(options: &Options, records: &Records, column: &str, own: &Groups, values: &[f64]) -> Figure {
    let spacing = if options.log_x() || options.log_y() { Spacing::Log10 } else { Spacing::Linear };
    let (low, high) = series::extent(values.iter().copied().filter(|v| spacing.shows(*v)));
    // Boxes show how values differ; on an axis from zero they would be lines. The figure marks the axis as truncated.
    let x = Axis::new(records.quantity(column), spacing, low, high, true);
    let y = Axis::of_names(Groups::title(records), own.names.clone());
    let mut layers = Vec::new();
    for group in &own.all {
        layers.extend(one(own, group));
    }
    let what = x.quantity.label.clone();
    let mut figure = Figure::new(options, records, &what, x, y, layers);
    figure.panels[0].rows_per_name = own.series.len();
    figure.notes = vec![
        format!("dots: every value, {}", series::numbers(own.all.iter().map(|g| g.values.len() as f64))),
        "box: quartiles and median; whiskers: last value within 1.5 interquartile ranges (Tukey)".to_owned(),
    ];
    figure
        .notes
        .extend(series::unplaced(own.all.iter().flat_map(|g| &g.values).filter(|v| !spacing.shows(**v)).count()));
    // Boxes have no lines.
    figure.legend = own.legend(|series| Look { dash: None, ..palette::look(series) }.key());
    figure
}

fn one(all: &Groups, group: &Group) -> Vec<Layer> {
    let (middle, half) = all.place(group);
    let Look { colour, sign, .. } = palette::look(group.series);
    let mut sorted = group.values.clone();
    quantiles::sort(&mut sorted);
    let mut layers = Vec::new();
    // Fewer than four values have no useful quartiles. The dots show them all.
    if sorted.len() >= 4
        && let Some([q1, median, q3]) = quartiles(&sorted)
    {
        let reach = 1.5 * (q3 - q1);
        let low = sorted.iter().copied().find(|v| *v >= q1 - reach).unwrap_or(q1);
        let high = sorted.iter().rev().copied().find(|v| *v <= q3 + reach).unwrap_or(q3);
        layers.push(Layer::Intervals { ranges: vec![(middle, low, high)], sideways: true, colour });
        layers.push(Layer::Box {
            from: (q1, middle - half),
            to: (q3, middle + half),
            colour: palette::fill(group.series, TINT),
            outline: Some(colour),
        });
        layers.push(Layer::Line {
            points: vec![(median, middle - half), (median, middle + half)],
            colour: Colour::INK,
            weight: 1.4,
            dash: None,
        });
    }
    // Dots are spread over the height in the order of measurement: a drift shows as a slant.
    let step = half * 1.4 / group.values.len().max(2) as f64;
    let first = middle - step * (group.values.len() as f64 - 1.0) / 2.0;
    let points = group.values.iter().enumerate().map(|(i, v)| (*v, first + step * i as f64)).collect();
    layers.push(Layer::Marks { points, sign, colour, weight: 0.55 });
    layers
}

fn quartiles(sorted: &[f64]) -> Option<[f64; 3]> {
    Some([quantiles::quantile(sorted, 0.25)?, quantiles::median(sorted)?, quantiles::quantile(sorted, 0.75)?])
}
