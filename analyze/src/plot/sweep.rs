//! `sweep`: a metric against a parameter, one line per series, with intervals.

use super::{
    Drawing, Options, Points,
    axis::{Axis, Spacing},
    figure::{Figure, Panel},
    layer::Layer,
    legend::Entry,
    palette::{self, Look},
    quantity::Quantity,
    reading::{Reading, Wanted},
    series::{self, Point, Series},
};
use crate::{error::Error, table::InputArgs};

/// Reads the files and draws.
pub fn draw(options: &Options) -> Result<Drawing, Error> {
    let x = options.x.as_deref().unwrap_or("message_bytes");
    let y = options.y.as_deref().unwrap_or("throughput_bits_per_s");
    let wanted = Wanted { numbers: &[x, y], texts: &["service_demand_unit"], along: &[x], ..Wanted::default() };
    let read = |input: &InputArgs| Reading::new(options, input, &options.selection, &wanted);
    let gather = |reading: &Reading| {
        series::gather(reading, |r| reading.number(r, x), |r| reading.number(r, y), options.spread, options.confidence)
    };
    let reading = read(&options.input)?;
    let series = gather(&reading);
    let mut scale = series.clone();
    if let Some(others) = options.same_scale_input() {
        scale.extend(gather(&read(&others)?));
    }
    let figure = figure(options, &reading, (x, y), &series, &scale)?;
    Ok(Drawing::new(figure, Points::of(&series, x, y), &reading))
}

fn figure(
    options: &Options,
    reading: &Reading,
    (x, y): (&str, &str),
    series: &[Series],
    scale: &[Series],
) -> Result<Figure, Error> {
    options.nothing_to_draw(series.iter().all(|s| s.points.is_empty()), reading, &[x, y])?;
    let (x_quantity, y_quantity) = (Quantity::of_column(x), options.quantity(y, reading));
    let x_spacing = options.spacing_x(&x_quantity);
    let y_spacing = if options.log_y() { Spacing::Log10 } else { Spacing::Linear };
    let points = || scale.iter().flat_map(|s| &s.points);
    let (low, high) = series::extent(points().map(|p| p.x).filter(|x| *x > 0.0 || !x_spacing.is_logarithmic()));
    // A parameter is not a length from zero: its axis shows the range that was swept.
    let mut x_axis = Axis::new(x_quantity, x_spacing, low, high, true);
    x_axis.truncated = false;
    let (low, high) = series::span(points(), y_spacing.is_logarithmic());
    let y_axis = Axis::new(y_quantity, y_spacing, low, high, options.zoom);

    let (mut layers, legend) = curves(series, |p| p.x);
    for (at, label) in options.rules()? {
        layers.push(Layer::Rule { at, upright: true, label });
    }
    if let [one] = series
        && names(x, "message_bytes")
        && names(y, "throughput_bits_per_s")
        && let Some(half) = half_bandwidth(one)
    {
        let words = x_axis.words(half.round());
        layers.push(Layer::Rule { at: half, upright: true, label: format!("half the peak at {words}") });
    }
    let mut notes = vec![options.explain(&series.iter().flat_map(|s| &s.points), reading)];
    notes.extend(options.unplaced(series, &x_axis, &y_axis));
    Ok(Figure {
        title: options.title(reading, &format!("{} against {}", y_axis.quantity.label, x_axis.quantity.label)),
        notes,
        x: x_axis,
        panels: vec![Panel { y: y_axis, layers, rows_per_name: 1 }],
        legend,
        colours: None,
        footer: options.footer(reading),
    })
}

/// A line with signs and intervals for each series, and its name; `across` says where on the horizontal axis a point stands.
pub(super) fn curves(series: &[Series], across: impl Fn(&Point) -> f64) -> (Vec<Layer>, Vec<Entry>) {
    let mut layers = Vec::new();
    let mut legend = Vec::new();
    for (index, one) in series.iter().enumerate() {
        let look = palette::look(index);
        let Look { colour, sign, dash } = look;
        let line: Vec<_> = one.points.iter().map(|p| (across(p), p.y)).collect();
        let ranges = one.points.iter().filter_map(|p| Some((across(p), p.low?, p.high?))).collect();
        layers.push(Layer::Intervals { ranges, sideways: false, colour: colour.tint(0.75) });
        layers.push(Layer::Line { points: line.clone(), colour, weight: 1.0, dash });
        layers.push(Layer::Marks { points: line, sign, colour, weight: 1.0 });
        legend.push(Entry { label: one.name.clone(), key: look.key() });
    }
    (layers, legend)
}

/// Whether a column is meant, by its own name or as a metric.
fn names(name: &str, column: &str) -> bool {
    name == column || schemas::metrics::find(name).is_some_and(|metric| metric.column == column)
}

/// The size at which the measured curve first reaches half of its peak, interpolated between measured sizes on the
/// logarithm of the size. Hockney's n½ is another number, that of the fitted line (`plumb fit`). `None` where already the smallest size reaches it.
fn half_bandwidth(series: &Series) -> Option<f64> {
    let half = series.points.iter().map(|p| p.y).fold(f64::NEG_INFINITY, f64::max) / 2.0;
    let pair = series.points.windows(2).find(|w| w[0].y < half && w[1].y >= half)?;
    let share = (half - pair[0].y) / (pair[1].y - pair[0].y);
    let x = (pair[0].x.ln() + (pair[1].x.ln() - pair[0].x.ln()) * share).exp();
    x.is_finite().then_some(x)
}

#[cfg(test)]
mod tests {
    use super::{super::series::Spread, *};

    #[test]
    fn half_bandwidth_lies_between_its_neighbours() {
        let point = |x: f64, y: f64| Point::of(x, &[y], Spread::None, 0.95).unwrap();
        let series = Series {
            name: String::new(),
            points: vec![point(1.0, 1.0), point(16.0, 4.0), point(256.0, 10.0), point(512.0, 12.0)],
        };
        // Half of 12 is a third of the way from 4 to 10, on log2: 4 + 4/3.
        assert!((half_bandwidth(&series).unwrap() - 2_f64.powf(4.0 + 4.0 / 3.0)).abs() < 1e-9);
        let flat = Series { name: String::new(), points: vec![point(1.0, 9.0), point(2.0, 10.0)] };
        assert_eq!(half_bandwidth(&flat), None);
    }
}
