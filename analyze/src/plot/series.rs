//! Series of points with intervals.

use super::{
    layer::Layer,
    legend::{self, Entry, Look},
    options::{Options, Spread},
    quantity::Quantity,
    records::{Record, Records},
};
use crate::{
    error::Error,
    stats::{confidence, moments::Moments, quantiles},
    table::Record as RecordKind,
};
use indexmap::IndexMap;
use schemas::{
    metrics::{self, Range},
    text::counted,
    units,
};

/// The number of values that stands for several iterations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Centre {
    #[default]
    Mean,
    Median,
    /// Of extremes: the smallest latency of several iterations is the smallest of theirs, not the mean.
    Smallest,
    Largest,
}

/// Values from which on the interval of their mean is short against the mean: Student's t of three is 4.3.
const FEW: u64 = 5;

/// The rule by which values at one place become a point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Condense {
    pub centre: Centre,
    pub spread: Spread,
    /// Whether few values have their range instead: their interval would reach below a logarithmic axis.
    pub is_range_of_few: bool,
    /// Confidence level.
    pub level: f64,
    /// The values that there can be. Intervals end there.
    pub range: Range,
}

impl Condense {
    /// For the values of a column.
    pub fn of(options: &Options, column: &str) -> Self {
        let name = metrics::find(column).map_or(column, |metric| metric.name);
        let is = |word: &str| name.split(['.', '_']).any(|part| part == word);
        let centre = if is("min") {
            Centre::Smallest
        } else if is("max") {
            Centre::Largest
        } else {
            Centre::Mean
        };
        Self {
            centre,
            spread: options.spread.unwrap_or(Spread::Ci),
            is_range_of_few: options.spread.is_none() && options.log_y(),
            level: options.confidence,
            range: metrics::range_of(column),
        }
    }

    /// The rule for points with so many values each. All points of a picture have one.
    pub fn among(self, counts: impl IntoIterator<Item = u64>) -> Self {
        let few = self.is_range_of_few && counts.into_iter().any(|n| (2..FEW).contains(&n));
        let spread = if few { Spread::Range } else { self.spread };
        let centre = if spread == Spread::Range && self.centre == Centre::Mean { Centre::Median } else { self.centre };
        Self { centre, spread, ..self }
    }
}

/// The summary of the values at one x of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub x: f64,
    /// Mean, or an extreme.
    pub y: f64,
    /// Ends of the interval; its kind is [`Spread`].
    pub low: Option<f64>,
    pub high: Option<f64>,
    /// Number of values.
    pub n: u64,
}

impl Point {
    pub fn of(x: f64, values: &[f64], how: &Condense) -> Option<Self> {
        let how = how.among([values.len() as u64]);
        let moments: Moments = values.iter().copied().collect();
        let mean = moments.mean()?;
        let (smallest, largest) = extent(values.iter().copied());
        let y = match how.centre {
            Centre::Mean => mean,
            Centre::Median => quantiles::select_median(&mut values.to_vec())?,
            Centre::Smallest => smallest,
            Centre::Largest => largest,
        };
        let ends = match how.spread {
            Spread::Range => (values.len() > 1).then_some((smallest, largest)),
            // An interval of a mean says nothing of an extreme.
            _ if how.centre != Centre::Mean => None,
            Spread::Ci => confidence::t_interval(values, how.level).map(|i| (i.low, i.high)),
            Spread::Stddev => moments.stddev().map(|s| (y - s, y + s)),
            Spread::None => None,
        };
        let ends = ends.map(|(low, high)| (how.range.clamp(low).min(y), how.range.clamp(high).max(y)));
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
    how: &Condense,
    x: impl Fn(&Record) -> Option<f64>,
    y: impl Fn(&Record) -> Option<f64>,
) -> Vec<Series> {
    let mut groups = IndexMap::<String, Vec<(f64, f64)>>::new();
    for record in &records.list {
        let (Some(x), Some(y)) = (x(record), y(record)) else { continue };
        groups.entry(records.series(record)).or_default().push((x, y));
    }
    for values in groups.values_mut() {
        values.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    let how = &how.among(groups.values().flat_map(|values| places(values)).map(|place| place.len() as u64));
    let points = |values: &[(f64, f64)]| {
        let point = |place: &[(f64, f64)]| {
            let ys: Vec<f64> = place.iter().map(|v| v.1).collect();
            Point::of(place[0].0, &ys, how)
        };
        places(values).filter_map(point).collect()
    };
    groups.iter().map(|(name, values)| Series { name: name.clone(), points: points(values) }).collect()
}

/// Values in the order of x, split by it.
fn places(values: &[(f64, f64)]) -> impl Iterator<Item = &[(f64, f64)]> {
    #[expect(clippy::float_cmp, reason = "the same written value is the same place")]
    values.chunk_by(|a, b| a.0 == b.0)
}

/// Smallest and largest value; infinite where there is none.
pub fn extent(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)))
}

/// Whether values span more than this ratio, so that small ones would all look like zero on an even scale, and all have
/// a place on a logarithmic one. Only without `--log`.
pub fn is_wide(options: &Options, values: impl Iterator<Item = f64>, ratio: f64) -> bool {
    let (least, most) = extent(values);
    options.log.is_none() && least > 0.0 && most / least > ratio
}

/// The range of a value axis. Where all means are at least 0 the axis begins at 0 even if an interval reaches below:
/// such a quantity has no negative values, and the interval is cut at the axis. On a logarithmic axis an interval that
/// comes close to 0 is cut, too: its end would be decades away.
///
/// An interval that reaches far beyond all means is cut, too: two noisy iterations would flatten everything else.
pub fn span<'a>(points: impl Iterator<Item = &'a Point> + Clone, logarithmic: bool) -> (f64, f64) {
    const FAR: f64 = 3.0;
    let (lowest, highest) = extent(points.clone().map(|p| p.y).filter(|y| *y > 0.0 || !logarithmic));
    let ends = points.flat_map(|p| {
        let (low, high) = p.extent();
        [low, high, p.y]
    });
    if logarithmic {
        return extent(ends.filter(|v| *v >= lowest / 2.0 && *v <= highest * FAR));
    }
    let (low, high) = extent(ends);
    let high = if highest > 0.0 { high.min(highest * FAR) } else { high };
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

/// The ratio of the ends of an interval from which on a picture says so: its point could be twice as high.
const WIDE: f64 = 2.0;

/// The note about points and intervals, with the number of values behind them.
pub fn explain<'a>(points: &(impl Iterator<Item = &'a Point> + Clone), how: &Condense, records: &Records) -> String {
    let of = match records.kind {
        None | Some(RecordKind::Iteration) if !records.has("record") => "row",
        Some(RecordKind::Summary) => "summary row",
        kind => kind.unwrap_or(RecordKind::Iteration).as_str(),
    };
    sentence(points, how, of)
}

fn sentence<'a>(points: &(impl Iterator<Item = &'a Point> + Clone), how: &Condense, of: &str) -> String {
    let how = how.among(points.clone().map(|p| p.n));
    let counts = || points.clone().map(|p| p.n as f64);
    let n = numbers(counts());
    if counts().all(|n| n <= 1.0) {
        return format!("one {of} per point, {n}: no interval");
    }
    let centre = match how.centre {
        Centre::Mean => "mean",
        Centre::Median => "median",
        Centre::Smallest => "smallest",
        Centre::Largest => "largest",
    };
    if !points.clone().any(|p| p.low.is_some()) {
        return format!("{centre} of {of}s, {n}");
    }
    let is_wide = |(low, high): &(f64, f64)| {
        let (near, far) = (low.abs().min(high.abs()), low.abs().max(high.abs()));
        far > near * WIDE || (*low < 0.0 && *high > 0.0)
    };
    let ends = || points.clone().filter_map(|p| p.low.zip(p.high));
    let factor = match ends().filter(is_wide).count() {
        0 => String::new(),
        wide => format!("; {wide} of {} intervals span more than a factor of {WIDE}", ends().count()),
    };
    match how.spread {
        Spread::Ci => {
            format!("{centre} of {of}s with {} confidence interval (Student's t), {n}{factor}", units::level(how.level))
        }
        Spread::Range => format!("{centre} of {of}s with smallest and largest, {n}"),
        Spread::Stddev => format!("{centre} of {of}s ± one standard deviation, {n}"),
        Spread::None => format!("{centre} of {of}s, {n}"),
    }
}

/// The largest number of series in one picture. Colours, signs and dashes tell more apart, readers do not.
const MOST: usize = 24;

/// Refuses more series than a reader can tell apart.
pub fn not_too_many(series: usize, records: &Records) -> Result<(), Error> {
    if series <= MOST {
        return Ok(());
    }
    let names = records.by.iter().map(|b| format!("`{b}`")).collect::<Vec<_>>().join(" and ");
    let first = records.by.first().map_or("test", String::as_str);
    Err(Error::Usage(format!(
        "{series} series that differ in {names}: nobody tells more than {MOST} apart. Choose with --test or --where {first}=…, or put one of these columns on an axis"
    )))
}

/// Adds the metric to the name of a series, where several are drawn.
pub fn name(name: &mut String, metric: &str) {
    let separator = if name.is_empty() { "" } else { " " };
    *name = format!("{name}{separator}{metric}");
}

/// The quantity of the values with those of a metric of `--beside`, by its name. `first` is the metric that they are beside, and `what`
/// begins the reason why it must have the same unit.
pub fn beside(
    quantity: Quantity,
    first: &str,
    (metric, other): (&str, &Quantity),
    what: &str,
) -> Result<Quantity, Error> {
    if other.unit != quantity.unit {
        let reason = format!("--beside {metric}: its unit is not that of {first}, and {what} has one axis");
        return Err(Error::Usage(reason));
    }
    Ok(Quantity { label: format!("{}; {}", quantity.label, other.label), ..quantity })
}

/// A note on points that a logarithmic axis has no place for.
pub fn unplaced(lost: usize) -> Option<String> {
    (lost > 0).then(|| format!("{} at or below zero not shown: the axis is logarithmic", counted(lost, "point")))
}

/// A line with signs and intervals for each series, and a legend. `across` gives the x of a point.
pub fn curves(series: &[Series], across: impl Fn(&Point) -> f64) -> (Vec<Layer>, Vec<Entry>) {
    let mut layers = Vec::new();
    let mut legend = Vec::new();
    for (index, one) in series.iter().enumerate() {
        let look = legend::look(index);
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
    use super::{super::options::Log, *};

    const CI: Condense =
        Condense { centre: Centre::Mean, spread: Spread::Ci, is_range_of_few: false, level: 0.95, range: Range::ANY };

    #[test]
    fn a_place_has_its_mean_and_interval() {
        let p = Point::of(1.0, &[9.0, 10.0, 11.0], &CI).unwrap();
        // t(0.975, 2) = 4.3027, s = 1
        assert!((p.high.unwrap() - (10.0 + 4.302_652_7 / 3.0_f64.sqrt())).abs() < 1e-6);
        assert_eq!((p.y, p.n), (10.0, 3));
        assert_eq!(Point::of(1.0, &[5.0], &CI).unwrap().low, None);
        assert_eq!(Point::of(1.0, &[], &CI), None);
        let p = Point::of(1.0, &[9.0, 12.0, 9.5], &Condense { spread: Spread::Range, ..CI }).unwrap();
        assert_eq!((p.extent(), p.y), ((9.0, 12.0), 9.5));
    }

    #[test]
    fn few_values_on_a_logarithmic_axis_have_their_median_and_range() {
        let how = |log, spread| Condense::of(&Options { log, spread, ..Options::default() }, "latency.p50");
        let wide = [9.0, 10.0, 400.0];
        let of = |how: Condense| {
            let point = Point::of(1.0, &wide, &how).unwrap();
            (point.y, point.low, sentence(&[point].iter(), &how, "iteration"))
        };
        let (y, low, words) = of(how(Some(Log::Y), None));
        assert_eq!((y, low), (10.0, Some(9.0)));
        assert_eq!(words, "median of iterations with smallest and largest, n = 3");
        // Asked for, or on a linear axis: as ever. An interval below zero is none of a latency.
        for how in [how(Some(Log::Y), Some(Spread::Ci)), how(None, None)] {
            assert_eq!((of(how).1, of(how).2.starts_with("mean of iterations with 95 %")), (Some(0.0), true));
        }
        // One point with few values decides for all.
        let mixed = how(Some(Log::Y), None).among([20, 3]);
        assert_eq!((mixed.centre, mixed.spread), (Centre::Median, Spread::Range));
        assert_eq!(how(Some(Log::Y), None).among([20, 5, 1]).spread, Spread::Ci);
    }

    #[test]
    fn an_interval_ends_where_the_range_of_its_metric_does() {
        let loss = Condense::of(&Options::default(), "loss_ratio");
        let p = Point::of(1.0, &[0.0, 0.1, 0.2], &loss).unwrap();
        assert_eq!((p.low, p.high.map(|h| h < 0.4)), (Some(0.0), Some(true)));
        let p = Point::of(1.0, &[0.1, 0.9], &loss).unwrap();
        assert_eq!((p.low, p.high), (Some(0.0), Some(1.0)));
    }

    #[test]
    fn extremes_are_not_averaged() {
        let of = |column: &str| Point::of(1.0, &[9.0, 5.0, 7.0], &Condense::of(&Options::default(), column)).unwrap();
        assert_eq!((of("latency.min").y, of("latency.min").low), (5.0, None));
        assert_eq!(of("latency_max_us").y, 9.0);
        assert_eq!(of("min_rtt_us").y, 5.0);
        assert_eq!(of("latency_mean_us").y, 7.0);
        let points = [of("latency.min")];
        let how = Condense::of(&Options::default(), "latency.min");
        assert_eq!(sentence(&points.iter(), &how, "iteration"), "smallest of iterations, n = 3");
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
        let points = [Point::of(1.0, &[9.0, 9.1], &CI).unwrap(), Point::of(2.0, &[9.0, 10.0, 11.0], &CI).unwrap()];
        assert_eq!(
            sentence(&points.iter(), &CI, "iteration"),
            "mean of iterations with 95 % confidence interval (Student's t), n = 2 … 3"
        );
        assert!(sentence(&points[..0].iter(), &CI, "iteration").contains("n = 0"));
        let point = |low, high| Point { x: 1.0, y: 1.0, low: Some(low), high: Some(high), n: 2 };
        let points = [point(1.0, 2.0), point(1.0, 2.5), point(-1.0, 1.0), point(-3.0, -2.0), point(0.0, 0.0)];
        let text = sentence(&points.iter(), &CI, "iteration");
        assert!(text.ends_with("; 2 of 5 intervals span more than a factor of 2"), "{text}");
    }
}
