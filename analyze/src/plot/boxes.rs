//! `box`: every value of each group, with its quartiles.

use super::{
    Drawing, Options, Points,
    axis::{Axis, Spacing},
    canvas::Colour,
    figure::{Figure, Panel},
    groups::{self, Group, Groups},
    layer::Layer,
    palette::{self, Look},
    reading::Reading,
    series,
};
use crate::{error::Error, stats::quantiles};

/// How much of a series' colour fills its boxes.
const TINT: f64 = 0.3;

/// Reads the files and draws.
pub fn draw(options: &Options) -> Result<Drawing, Error> {
    let column = options.y.as_deref().unwrap_or("throughput_bits_per_s");
    let reading = groups::read(options, &options.input, column)?;
    let own = Groups::of(&reading, options, column);
    options.nothing_to_draw(own.all.is_empty(), &reading, &[column])?;
    let mut values: Vec<f64> = own.all.iter().flat_map(|g| &g.values).copied().collect();
    if let Some(others) = options.same_scale_input() {
        let others = Groups::of(&groups::read(options, &others, column)?, options, column);
        values.extend(others.all.iter().flat_map(|g| &g.values));
    }
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
    Ok(Drawing::new(figure(options, &reading, column, &own, &values), table, &reading))
}

fn figure(options: &Options, reading: &Reading, column: &str, own: &Groups, values: &[f64]) -> Figure {
    let spacing = if options.log_x() || options.log_y() { Spacing::Log10 } else { Spacing::Linear };
    let (low, high) = series::extent(values.iter().copied().filter(|v| *v > 0.0 || !spacing.is_logarithmic()));
    // What a box shows is how values differ; from zero they would be lines. The figure marks the axis.
    let x = Axis::new(options.quantity(column, reading), spacing, low, high, true);
    let y = Axis::of_names(Groups::title(reading, options), own.names.clone());
    let mut layers = Vec::new();
    for group in &own.all {
        layers.extend(one(own, group));
    }
    let counts: Vec<usize> = own.all.iter().map(|g| g.values.len()).collect();
    let (least, most) = (counts.iter().min().copied().unwrap_or(0), counts.iter().max().copied().unwrap_or(0));
    let n = if least == most { format!("n = {least}") } else { format!("n = {least} … {most}") };
    Figure {
        title: options.title(reading, &x.quantity.label.clone()),
        notes: vec![
            format!("dots: every value, {n}"),
            "box: quartiles and median; whiskers: last value within 1.5 interquartile ranges (Tukey)".to_owned(),
        ],
        x,
        panels: vec![Panel { y, layers, rows_per_name: own.series.len() }],
        legend: own.legend(|series| {
            // Boxes have no lines.
            Look { dash: None, ..palette::look(series) }.key()
        }),
        colours: None,
        footer: options.footer(reading),
    }
}

fn one(all: &Groups, group: &Group) -> Vec<Layer> {
    let (middle, half) = all.place(group);
    let Look { colour, sign, .. } = palette::look(group.series);
    let mut sorted = group.values.clone();
    quantiles::sort(&mut sorted);
    let mut layers = Vec::new();
    // Fewer than four values have no quartiles worth a box; they are all shown anyway.
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
    // Dots are spread over the height, in the order of measurement: a drift shows as a slant.
    let step = half * 1.4 / group.values.len().max(2) as f64;
    let first = middle - step * (group.values.len() as f64 - 1.0) / 2.0;
    let points = group.values.iter().enumerate().map(|(i, v)| (*v, first + step * i as f64)).collect();
    layers.push(Layer::Marks { points, sign, colour, weight: 0.55 });
    layers
}

fn quartiles(sorted: &[f64]) -> Option<[f64; 3]> {
    Some([quantiles::quantile(sorted, 0.25)?, quantiles::median(sorted)?, quantiles::quantile(sorted, 0.75)?])
}
