//! Series of points with intervals.

use super::{
    layer::Layer,
    legend::Entry,
    options::{Options, Spread},
    palette::{self, Look},
    records::{Record, Records},
};
use crate::{
    stats::{confidence, moments::Moments},
    table::Record as RecordKind,
};
use indexmap::IndexMap;

/// The summary of the values at one x of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub x: f64,
    /// Mean.
    pub y: f64,
    /// Ends of the interval; its kind is [`Spread`].
    pub low: Option<f64>,
    pub high: Option<f64>,
    /// Number of values.
    pub n: u64,
}

impl Point {
    pub fn of(x: f64, values: &[f64], spread: Spread, level: f64) -> Option<Self> {
        let moments: Moments = values.iter().copied().collect();
        let y = moments.mean()?;
        let smallest = values.iter().copied().fold(f64::INFINITY, f64::min);
        let largest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let ends = match spread {
            Spread::Ci => confidence::t_interval(values, level).map(|i| (i.low, i.high)),
            Spread::Range => (values.len() > 1).then_some((smallest, largest)),
            Spread::Stddev => moments.stddev().map(|s| (y - s, y + s)),
            Spread::None => None,
        };
        Some(Self { x, y, low: ends.map(|e| e.0), high: ends.map(|e| e.1), n: moments.count() })
    }

    /// The smallest and largest value, interval included.
    pub fn extent(&self) -> (f64, f64) {
        (self.low.unwrap_or(self.y).min(self.y), self.high.unwrap_or(self.y).max(self.y))
    }
}

/// Points under one name, by rising x.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Empty where there is only one series.
    pub name: String,
    pub points: Vec<Point>,
}

/// Groups rows by series and x, and summarises each group.
pub fn gather(
    records: &Records,
    options: &Options,
    x: impl Fn(&Record) -> Option<f64>,
    y: impl Fn(&Record) -> Option<f64>,
) -> Vec<Series> {
    let mut groups = IndexMap::<String, Vec<(f64, f64)>>::new();
    for record in &records.list {
        let (Some(x), Some(y)) = (x(record), y(record)) else { continue };
        groups.entry(records.series(record)).or_default().push((x, y));
    }
    groups
        .into_iter()
        .map(|(name, mut values)| {
            values.sort_by(|a, b| a.0.total_cmp(&b.0));
            #[expect(clippy::float_cmp, reason = "the same written value is the same place")]
            let places = values.chunk_by(|a, b| a.0 == b.0);
            let points = places.filter_map(|place| {
                let ys: Vec<f64> = place.iter().map(|v| v.1).collect();
                Point::of(place[0].0, &ys, options.spread, options.confidence)
            });
            Series { name, points: points.collect() }
        })
        .collect()
}

/// Smallest and largest value; infinite where there is none.
pub fn extent(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)))
}

/// The range of a value axis. Where all means are at least 0 the axis begins at 0 even if an interval reaches below:
/// such a quantity has no negative values, and the interval is cut at the axis. On a logarithmic axis an interval that
/// comes close to 0 is cut, too: its end would be decades away.
pub fn span<'a>(points: impl Iterator<Item = &'a Point> + Clone, logarithmic: bool) -> (f64, f64) {
    let (lowest, _) = extent(points.clone().map(|p| p.y).filter(|y| *y > 0.0 || !logarithmic));
    let ends = points.flat_map(|p| {
        let (low, high) = p.extent();
        [low, high, p.y]
    });
    if logarithmic {
        return extent(ends.filter(|v| *v >= lowest / 2.0));
    }
    let (low, high) = extent(ends);
    (if low < 0.0 && lowest >= 0.0 { 0.0 } else { low }, high)
}

/// The number of values behind each of several things: `n = 5`, `n = 2 … 5`.
pub fn numbers(counts: impl Iterator<Item = f64>) -> String {
    let (least, most) = extent(counts);
    if least < most {
        format!("n = {least} … {most}")
    } else {
        format!("n = {}", if least.is_finite() { least } else { 0.0 })
    }
}

/// The note about points and intervals, with the number of values behind them.
pub fn explain<'a>(points: &(impl Iterator<Item = &'a Point> + Clone), options: &Options, records: &Records) -> String {
    let of = match records.kind {
        None | Some(RecordKind::Iteration) if records.has("record") => "iteration",
        None | Some(RecordKind::Iteration) => "row",
        Some(RecordKind::Summary) => "summary row",
        Some(RecordKind::Stream) => "stream",
        Some(RecordKind::Interval) => "interval",
        Some(RecordKind::Probe) => "probe",
    };
    sentence(points, options.spread, options.confidence, of)
}

fn sentence<'a>(points: &(impl Iterator<Item = &'a Point> + Clone), spread: Spread, level: f64, of: &str) -> String {
    let counts = || points.clone().map(|p| p.n as f64);
    let n = numbers(counts());
    if counts().all(|n| n <= 1.0) {
        return format!("one {of} per point, {n}: no interval");
    }
    if !points.clone().any(|p| p.low.is_some()) {
        return format!("mean of {of}s, {n}");
    }
    match spread {
        Spread::Ci => format!(
            "mean of {of}s with {} % confidence interval (Student's t), {n}",
            schemas::columns::number(level * 100.0)
        ),
        Spread::Range => format!("mean of {of}s with smallest and largest, {n}"),
        Spread::Stddev => format!("mean of {of}s ± one standard deviation, {n}"),
        Spread::None => format!("mean of {of}s, {n}"),
    }
}

/// A line with signs and intervals for each series, and a legend. `across` gives the x of a point.
pub fn curves(series: &[Series], across: impl Fn(&Point) -> f64) -> (Vec<Layer>, Vec<Entry>) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_its_mean_and_interval() {
        let p = Point::of(1.0, &[9.0, 10.0, 11.0], Spread::Ci, 0.95).unwrap();
        // t(0.975, 2) = 4.3027, s = 1
        assert!((p.high.unwrap() - (10.0 + 4.302_652_7 / 3.0_f64.sqrt())).abs() < 1e-6);
        assert_eq!((p.y, p.n), (10.0, 3));
        assert_eq!(Point::of(1.0, &[5.0], Spread::Ci, 0.95).unwrap().low, None);
        assert_eq!(Point::of(1.0, &[], Spread::Ci, 0.95), None);
        let p = Point::of(1.0, &[9.0, 12.0], Spread::Range, 0.95).unwrap();
        assert_eq!(p.extent(), (9.0, 12.0));
    }

    #[test]
    fn an_interval_does_not_stretch_the_axis_below_what_can_be() {
        let point = |y: f64, low: f64| Point { x: 1.0, y, low: Some(low), high: Some(y + 1.0), n: 3 };
        assert_eq!(span([point(5.0, -3.0), point(8.0, 7.0)].iter(), false), (0.0, 9.0));
        assert_eq!(span([point(-5.0, -6.0)].iter(), false), (-6.0, -4.0));
        assert_eq!(span([point(5.0, 1e-9), point(80.0, 70.0)].iter(), true), (5.0, 81.0));
        assert_eq!(span([point(5.0, 4.0)].iter(), true), (4.0, 6.0));
    }

    #[test]
    fn the_interval_is_named() {
        let points = [
            Point::of(1.0, &[9.0, 10.0], Spread::Ci, 0.95).unwrap(),
            Point::of(2.0, &[9.0, 10.0, 11.0], Spread::Ci, 0.95).unwrap(),
        ];
        assert_eq!(
            sentence(&points.iter(), Spread::Ci, 0.95, "iteration"),
            "mean of iterations with 95 % confidence interval (Student's t), n = 2 … 3"
        );
        assert!(sentence(&points[..0].iter(), Spread::Ci, 0.95, "iteration").contains("n = 0"));
    }
}
