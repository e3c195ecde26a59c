//! `percentiles`: values at 90 %, 99 %, 99.9 % …, equally far apart, which shows the tail.

use super::{
    axis::Axis,
    distribution::{self, Distribution, Distributions},
    drawing::{Drawing, Points},
    figure::Figure,
    layer::Layer,
    legend::Entry,
    options::Options,
    palette::{self, Look},
    quantity::Quantity,
    series,
    spacing::Spacing,
};
use crate::error::Error;

/// Number of values that must lie beyond a percentile. With fewer it does not predict the next run.
const BEYOND: f64 = 10.0;

/// Ratio of largest to smallest value from which on the axis is logarithmic by default: on a linear one small values
/// would lie on the axis.
const WIDE: f64 = 50.0;

pub fn draw(options: &Options) -> Result<Drawing, Error> {
    let column = options.y.as_deref().or(options.x.as_deref()).unwrap_or("latency");
    let all = Distributions::read(options, column)?;
    let mut table = Points::new(&["series", "share", "value"]);
    for one in &all.own {
        for (nines, value) in spectrum(one) {
            let number = schemas::columns::number;
            table.rows.push(vec![one.name.clone(), number(1.0 - 1.0 / nines), number(value)]);
        }
    }
    Ok(Drawing::new(figure(options, column, &all), table, &all.records))
}

/// Points of 1 ÷ (1 − share) and the value there, as far as enough values lie beyond.
fn spectrum(one: &Distribution) -> Vec<(f64, f64)> {
    let total = one.count() as f64;
    let last = (total / BEYOND).max(2.0);
    let mut points = Vec::new();
    let mut before = 0.0;
    for (value, share) in one.cumulated() {
        // A bucket covers a range of shares, and the curve has its value over all of them.
        for share in [before, share] {
            let nines = 1.0 / (1.0 - share).max(1.0 / total);
            if nines <= last && points.last() != Some(&(nines, value)) {
                points.push((nines, value));
            }
        }
        before = share;
        if 1.0 / (1.0 - share).max(1.0 / total) > last {
            if points.last().is_none_or(|p| p.0 < last) {
                points.push((last, value));
            }
            break;
        }
    }
    points
}

fn figure(options: &Options, column: &str, Distributions { records, own, scale }: &Distributions) -> Figure {
    let all: Vec<(f64, f64)> = scale.iter().flat_map(spectrum).collect();
    let (_, most) = series::extent(all.iter().map(|p| p.0));
    let x = Axis::new(Quantity::new("percentile", None), Spacing::Nines, 1.0, most, true);
    let wide = options.wide(all.iter().map(|p| p.1), WIDE);
    let spacing = if options.log_y() || wide { Spacing::Log10 } else { Spacing::Linear };
    let values = all.iter().map(|p| p.1).filter(|v| spacing.shows(*v));
    let (low, high) = series::extent(values);
    let y = Axis::new(distribution::quantity(records, column), spacing, low, high, options.zoom);
    // With less than twice as many values the median has too few beyond it, but is drawn, since there would be no
    // picture.
    let few = own.iter().any(|one| (one.count() as f64) < 2.0 * BEYOND);
    let reach = if few { ", and to the median in any case" } else { "" };
    let mut layers = Vec::new();
    let mut legend = Vec::new();
    for (index, one) in own.iter().enumerate() {
        let look = palette::look(index);
        let Look { colour, sign, dash } = look;
        let points = spectrum(one);
        let at = |nines: f64| points.iter().find(|p| p.0 >= nines).map(|p| (nines, p.1));
        let marks = [2.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6].into_iter().filter_map(at).collect();
        layers.push(Layer::Line { points: points.clone(), colour, weight: 1.0, dash });
        layers.push(Layer::Marks { points: marks, sign, colour, weight: 0.9 });
        legend.push(Entry { label: one.name.clone(), key: look.key() });
    }
    let what = format!("percentiles of {}", y.quantity.label);
    let mut notes =
        vec![distribution::explain(own, column), format!("drawn as far as {BEYOND} values lie beyond{reach}")];
    notes.extend(series::unplaced(own.iter().flat_map(spectrum).filter(|p| !spacing.shows(p.1)).count()));
    Figure { notes, legend, ..Figure::new(options, records, &what, x, y, layers) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spectrum_ends_where_too_few_values_lie_beyond() {
        let one = Distribution { name: String::new(), values: (1..=1000).map(|v| (f64::from(v), 1)).collect() };
        let points = spectrum(&one);
        assert_eq!(points[0], (1.0, 1.0));
        let (nines, value) = *points.last().unwrap();
        assert!((nines - 100.0).abs() < 1e-6 && (990.0..=991.0).contains(&value), "{nines} {value}");
        let median = points.iter().find(|p| p.0 >= 2.0).unwrap();
        assert!((500.0..=501.0).contains(&median.1));
        let one = Distribution { name: String::new(), values: vec![(5.0, 3)] };
        assert!(spectrum(&one).iter().all(|p| p.0 <= 2.0 && (p.1 - 5.0).abs() < 1e-9));
    }
}
