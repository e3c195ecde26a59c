//! `trend`: series of a history, run after run, with their levels, changes and drifts.
//!
//! Runs stand at equal distances in the order of time: on an axis of time, the runs of a busy day would cover each other.

use super::{
    axis::Axis,
    canvas::{Colour, Sign},
    figure::{Drawing, Figure, Panel, Points},
    layer::Layer,
    legend::{Entry, Key},
    options::Paper,
    quantity::{Quantity, Spacing},
};
use crate::{
    error::Error,
    history::{
        added,
        analysed::{self, AnalysedSeries, Asked},
        sentences,
        series::{self, Point, Reading, Run},
        trend::Finding,
    },
    judge::comparison::change_text,
    stats::quantiles,
    table::cells,
};
use schemas::{metrics::Better, units::level};
use std::path::PathBuf;

/// Most series of a picture.
const MOST: usize = 12;

/// Up to so many runs have an interval each; those of more are a band.
const WHISKERS: usize = 60;

/// Digits of a commit beside a change.
const COMMIT: usize = 8;

const VALUES: Colour = Colour(0x00, 0x72, 0xb2);

/// The looks of findings, in the order of the legend. The colours are of the palette of Okabe and Ito.
const LOOKS: [(&str, Colour); 4] = [
    ("for the worse", Colour(0xd5, 0x5e, 0x00)),
    ("for the better", Colour(0x00, 0x9e, 0x73)),
    ("neither better nor worse", Colour(0xe6, 0x9f, 0x00)),
    ("accepted", Colour(0x8a, 0x8a, 0x8a)),
];

/// The series of a history (`plumb history add`), run after run, with levels, changes, drifts and commits
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  plumb plot trend history/ --metric throughput -o trend.svg
  plumb plot trend history/nightly/m1.csv --case bulk --term

Each series has a panel. Dots are the medians of the runs, with their intervals; black lines are levels. A dashed line is the \
first run of a new level, with the change and the commit that the run measured; a sloped line is a drift. Of more than 400 \
runs, neighbours of one level share a dot. Value axes leave zero out, so that small changes show.")]
pub struct Args {
    /// Folder of the history, or one file of it
    #[arg(value_name = "HISTORY")]
    pub history: PathBuf,
    #[command(flatten)]
    pub asked: Asked,
    #[command(flatten)]
    pub paper: Paper,
}

pub fn draw(args: &Args) -> Result<Drawing, Error> {
    let (reading, analysed) = analysed::read(&args.history, &args.asked)?;
    if analysed.is_empty() {
        return Err(Error::Usage(format!("{} has outages only: plumb trend tells them", args.history.display())));
    }
    if analysed.len() > MOST {
        return Err(Error::Usage(format!(
            "{} has {} such series, and a picture shows {MOST} at most: choose with --plan, --machine, --case or --metric, or \
             write a page for each with plumb report --history",
            args.history.display(),
            analysed.len()
        )));
    }
    let all: Vec<&AnalysedSeries> = analysed.iter().collect();
    let mut figure = figure(&reading, &all);
    if let Some(title) = &args.paper.title {
        figure.title.clone_from(title);
    }
    if args.paper.no_annotation {
        figure.footer.clear();
    }
    Ok(Drawing { figure, points: points(&reading, &all), warnings: reading.notes.clone(), notes: Vec::new() })
}

/// A panel per series.
pub fn figure(reading: &Reading, all: &[&AnalysedSeries]) -> Figure {
    let order = Order::of(reading, all);
    let mut seen = Seen::default();
    let several = Several::of(all);
    let panels: Vec<Panel> = all.iter().map(|analysed| panel(reading, analysed, &order, &several, &mut seen)).collect();
    let mut legend = vec![Entry {
        label: if seen.most > 1 {
            format!("median of up to {} runs, from the smallest to the largest", seen.most)
        } else {
            format!("a run: median, interval at {}", level(added::LEVEL))
        },
        key: Key::Series { colour: VALUES, sign: Some(Sign::Circle), dash: None },
    }];
    legend.push(Entry { label: "level".to_owned(), key: Key::Series { colour: Colour::INK, sign: None, dash: None } });
    for ((label, colour), _) in LOOKS.iter().zip(seen.looks).filter(|(_, seen)| *seen) {
        let key = Key::Series { colour: *colour, sign: None, dash: Some((4.0, 3.0)) };
        legend.push(Entry { label: (*label).to_owned(), key });
    }
    let title = match all {
        [one] => sentences::name(one),
        _ => format!("{} series", all.len()),
    };
    let title = match all.first().map(|analysed| &analysed.series.key) {
        Some(key) if !several.plans && !several.machines => {
            format!("{title}: {} on {}", key.plan, reading.host(&key.machine))
        }
        _ => title,
    };
    Figure {
        title,
        notes: notes(all),
        x: Axis::of_names(order.title(), order.names()),
        panels,
        beside: Vec::new(),
        legend,
        colours: None,
        footer: vec![order.span()],
    }
}

/// Elements that the legend has to explain.
#[derive(Default)]
struct Seen {
    looks: [bool; LOOKS.len()],
    /// Most runs of a dot.
    most: usize,
}

/// The parts of names in which the series differ.
struct Several {
    plans: bool,
    machines: bool,
}

impl Several {
    fn of(all: &[&AnalysedSeries]) -> Self {
        let several = |of: fn(&AnalysedSeries) -> &str| all.iter().any(|analysed| of(analysed) != of(all[0]));
        Self {
            plans: several(|analysed| &analysed.series.key.plan),
            machines: several(|analysed| &analysed.series.key.machine),
        }
    }
}

/// Why little can be said of the series; what is said of all stands once.
fn notes(all: &[&AnalysedSeries]) -> Vec<String> {
    let doubts: Vec<(String, Vec<String>)> =
        all.iter().map(|analysed| (sentences::name(analysed), sentences::doubts(analysed))).collect();
    let Some((_, first)) = doubts.first() else { return Vec::new() };
    if doubts.iter().all(|(_, of)| of == first) {
        return first.clone();
    }
    doubts.iter().flat_map(|(name, of)| of.iter().map(move |doubt| format!("{name}: {doubt}"))).collect()
}

fn panel(reading: &Reading, analysed: &AnalysedSeries, order: &Order, several: &Several, seen: &mut Seen) -> Panel {
    let series = &analysed.series;
    let places: Vec<usize> = series.points.iter().map(|point| order.place(point.run)).collect();
    let breaks: Vec<usize> = analysed.trend.stretches.iter().map(|stretch| stretch.start).collect();
    let dots = condensed(&series.points, &places, &breaks, DOTS);
    seen.most = seen.most.max(dots.iter().map(|dot| dot.runs).max().unwrap_or(0));
    let mut layers = spread(&dots, places.len());
    let crowded = dots.len() > 150;
    let weight = if crowded { 0.4 } else { 1.0_f64.min(60.0 / dots.len() as f64).max(0.55) };
    let points: Vec<_> = dots.iter().map(|dot| (dot.x, dot.centre)).collect();
    layers.push(Layer::Marks { points, sign: Sign::Circle, colour: VALUES, weight });
    let drifts = |start: usize| analysed.trend.findings.iter().any(|finding| finding.is_drift && finding.at == start);
    for stretch in analysed.trend.stretches.iter().filter(|stretch| !drifts(stretch.start)) {
        let (from, to) = (places[stretch.start] as f64, places[stretch.end - 1] as f64);
        // A level of one run has a width, too.
        let points = vec![(from - 0.4, stretch.from), (to + 0.4, stretch.to)];
        layers.push(Layer::Line { points, colour: Colour::INK, weight: 1.0, dash: None });
    }
    // Where labels have no room beside each other, the latest have it.
    for (i, finding) in analysed.trend.findings.iter().enumerate().rev() {
        let look = look(analysed, i);
        seen.looks[look] = true;
        let (label, colour) = (label(reading, analysed, finding), LOOKS[look].1);
        let at = places[finding.at] as f64;
        if finding.is_drift {
            let to = places[finding.end - 1] as f64;
            let points = vec![(at, finding.was), (to, finding.is)];
            layers.push(Layer::Line { points, colour, weight: 1.6, dash: None });
        }
        layers.push(Layer::Rule { at: at - 0.5, upright: true, label, colour });
    }
    let (low, high) = range(&dots);
    let remark = match analysed.trend.metric.map_or(Better::Neither, |metric| metric.better) {
        Better::Higher => ", higher is better",
        Better::Lower => ", lower is better",
        Better::Neither => "",
    };
    Panel {
        y: Axis::new(quantity(reading, analysed, several), Spacing::Linear, low, high, true),
        layers,
        rows_per_name: 1,
        remark,
    }
}

/// The intervals: one each, or a band.
fn spread(dots: &[Dot], runs: usize) -> Vec<Layer> {
    let ranges = |dots: &[Dot]| -> Vec<(f64, f64, f64)> {
        dots.iter().filter_map(|dot| dot.range.map(|(low, high)| (dot.x, low, high))).collect()
    };
    if runs <= WHISKERS {
        return vec![Layer::Intervals { ranges: ranges(dots), sideways: false, colour: VALUES.tint(0.45) }];
    }
    // A gap, or a new level, ends the band.
    let mut steps: Vec<f64> = dots.windows(2).map(|pair| pair[1].x - pair[0].x).collect();
    steps.sort_by(f64::total_cmp);
    let usual = steps.get(steps.len() / 2).copied().unwrap_or(1.0);
    dots.chunk_by(|a, b| b.x - a.x <= usual * 3.0 && !b.begins)
        .map(|part| Layer::Area { points: ranges(part), colour: VALUES.tint(0.25) })
        .collect()
}

/// The range of a value axis: the values, and intervals as far as they are no wider than all values.
fn range(dots: &[Dot]) -> (f64, f64) {
    let (low, high) = super::series::extent(dots.iter().map(|dot| dot.centre));
    let room = if high > low { high - low } else { low.abs() * 0.02 };
    let ends = dots.iter().filter_map(|dot| dot.range);
    let (lowest, highest) = ends.fold((low, high), |all, (low, high)| (all.0.min(low), all.1.max(high)));
    // Equal values have room around them that does not look like a change of tens of percent.
    let around = if high > low { 0.0 } else { room };
    (lowest.max(low - room).min(low - around), highest.min(high + room).max(high + around))
}

fn quantity(reading: &Reading, analysed: &AnalysedSeries, several: &Several) -> Quantity {
    let key = &analysed.series.key;
    let mut label = sentences::name(analysed);
    if several.machines {
        label = format!("{}: {label}", reading.host(&key.machine));
    }
    if several.plans {
        label = format!("{}: {label}", key.plan);
    }
    let Some(metric) = analysed.trend.metric else { return Quantity::new(label, None) };
    Quantity::new(label, Some(metric.unit)).within(metric.range())
}

/// Index of the look of a finding.
fn look(analysed: &AnalysedSeries, i: usize) -> usize {
    match (&analysed.accepted[i], analysed.trend.findings[i].worse) {
        (Some(_), _) => 3,
        (None, Some(true)) => 0,
        (None, Some(false)) => 1,
        (None, None) => 2,
    }
}

/// `−5.0 % 0123abcd`
fn label(reading: &Reading, analysed: &AnalysedSeries, finding: &Finding) -> String {
    let change = change_text(Some(finding.ratio), None);
    if finding.is_drift {
        return format!("drift {change}");
    }
    let (_, first) = analysed.runs(reading, finding);
    let commit = first.commit.get(..COMMIT).unwrap_or(&first.commit);
    format!("{change} {commit}").trim_end().to_owned()
}

/// A row for each run of each series.
fn points(reading: &Reading, all: &[&AnalysedSeries]) -> Points {
    let header = [
        "plan",
        "machine",
        "case_id",
        "case",
        "member",
        "direction",
        "metric",
        "run_id",
        "time",
        "commit",
        "centre",
        "low",
        "high",
        "level",
        "finding",
    ];
    let runs = all.iter().flat_map(|analysed| {
        let stretches = analysed.trend.stretches.iter();
        stretches.flat_map(move |stretch| (stretch.start..stretch.end).map(move |at| (*analysed, stretch, at)))
    });
    let rows = runs.map(|(analysed, stretch, at)| {
        let series::Key { plan, machine, case_id, member, direction, metric } = &analysed.series.key;
        let Point { run, centre, low, high } = analysed.series.points[at];
        let Run { run_id, time, commit, .. } = &reading.runs[run];
        let finding = analysed.trend.findings.iter().position(|finding| finding.at == at);
        let of_series = cells![plan, machine, case_id, &analysed.series.case, member, direction, metric];
        let of_run = cells![run_id, time, commit, centre, low, high, stretch.at(at)];
        [&of_series[..], &of_run, &cells![finding.map(|i| sentences::word(analysed, i))]].concat()
    });
    Points::new(&header, rows)
}

// The runs of a history along an axis.

/// Most dots of a series in a picture. Of more runs, neighbours share one.
const DOTS: usize = 400;

/// The runs of some series in the order of time.
pub struct Order<'a> {
    reading: &'a Reading,
    /// Indices in [`Reading::runs`].
    runs: Vec<usize>,
    /// The place of each run of the reading in `runs`; of the others, 0.
    places: Vec<usize>,
}

impl<'a> Order<'a> {
    pub fn of(reading: &'a Reading, all: &[&AnalysedSeries]) -> Self {
        let mut runs: Vec<usize> =
            all.iter().flat_map(|analysed| analysed.series.points.iter().map(|point| point.run)).collect();
        runs.sort_unstable();
        runs.dedup();
        // Stable: runs of the same time stay in the order of their arrival, as in a series.
        runs.sort_by(|a, b| reading.runs[*a].time.cmp(&reading.runs[*b].time));
        let mut places = vec![0; reading.runs.len()];
        for (place, run) in runs.iter().enumerate() {
            places[*run] = place;
        }
        Self { reading, runs, places }
    }

    /// Place of a run, by its index in [`Reading::runs`].
    pub fn place(&self, run: usize) -> usize {
        self.places[run]
    }

    fn day(&self, run: usize) -> &str {
        sentences::day(&self.reading.runs[run])
    }

    fn days(&self) -> usize {
        self.runs.chunk_by(|a, b| self.day(*a) == self.day(*b)).count()
    }

    /// Whether most days have several runs.
    fn by_minute(&self) -> bool {
        self.runs.len() > 2 * self.days()
    }

    /// The day of each run; where days have several, with the minute and without the year. Of one day, the minute.
    pub fn names(&self) -> Vec<String> {
        let by_minute = self.by_minute();
        let start = if self.days() == 1 { 11 } else { 5 };
        let name = |run: &usize| {
            let time = &self.reading.runs[*run].time;
            match time.get(start..16).filter(|_| by_minute) {
                Some(minute) => minute.replace('T', " "),
                None => self.day(*run).to_owned(),
            }
        };
        self.runs.iter().map(name).collect()
    }

    pub fn title(&self) -> String {
        match self.runs.first() {
            Some(first) if self.by_minute() && self.days() == 1 => {
                format!("runs of {} in their order, by time (UTC)", self.day(*first))
            }
            _ if self.by_minute() => "runs in their order, by month, day and time (UTC)".to_owned(),
            _ => "runs in their order, by day (UTC)".to_owned(),
        }
    }

    /// The number of runs, the first and the last.
    pub fn span(&self) -> String {
        sentences::span(self.reading, &self.runs)
    }
}

/// A run, or neighbouring runs of one level.
pub struct Dot {
    /// The middle of their places.
    pub x: f64,
    /// The median of their values.
    pub centre: f64,
    /// A run's interval; of several runs, their smallest and largest values.
    pub range: Option<(f64, f64)>,
    pub runs: usize,
    /// Whether it is the first of a level.
    pub begins: bool,
}

/// The dots of a series, about `most`. `breaks`: the first indices of its levels, which no dot crosses.
pub fn condensed(points: &[Point], places: &[usize], breaks: &[usize], most: usize) -> Vec<Dot> {
    let each = points.len().div_ceil(most).max(1);
    let mut dots = Vec::new();
    let ends = breaks.iter().skip(1).copied().chain([points.len()]);
    for (start, end) in breaks.iter().copied().zip(ends) {
        for from in (start..end).step_by(each) {
            let to = (from + each).min(end);
            let mut values: Vec<f64> = points[from..to].iter().map(|point| point.centre).collect();
            quantiles::sort(&mut values);
            let range = match &points[from..to] {
                [one] => one.low.zip(one.high),
                _ => values.first().copied().zip(values.last().copied()),
            };
            dots.push(Dot {
                x: f64::midpoint(places[from] as f64, places[to - 1] as f64),
                centre: quantiles::median(&values).unwrap_or(f64::NAN),
                range,
                runs: to - from,
                begins: from == start && from > 0,
            });
        }
    }
    dots
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_are_bounded_and_cross_no_level() {
        let points: Vec<Point> = (0..3650)
            .map(|run| Point { run, centre: if run < 1001 { 1.0 } else { 2.0 }, low: None, high: None })
            .collect();
        let places: Vec<usize> = (0..3650).collect();
        let dots = condensed(&points, &places, &[0, 1001], DOTS);
        assert!(dots.len() <= DOTS + 2, "{}", dots.len());
        assert_eq!(dots.iter().map(|dot| dot.runs).sum::<usize>(), 3650);
        assert!(dots.iter().all(|dot| dot.range.is_none_or(|(low, high)| low == high)), "one level each");
        assert_eq!(dots.iter().filter(|dot| dot.begins).count(), 1);
        let few = condensed(&points[..3], &places[..3], &[0], DOTS);
        assert_eq!(few.iter().map(|dot| dot.x).collect::<Vec<_>>(), [0.0, 1.0, 2.0]);
    }
}
