//! `bars` and `box`: values by name and series. Names stand on the vertical axis, which has room for long ones.

use super::{
    axis::Axis,
    canvas::Colour,
    figure::{Column, Drawing, Figure, Points},
    layer::Layer,
    legend::{self, Entry, Key, Look},
    options::Options,
    quantity::Spacing,
    records::{Columns, Records, TELLING, Wanted},
    series::{self, Condense, Point},
};
use crate::{distinct, error::Error, stats::quantiles, table::cells};

/// The largest number of rows. On the largest page more would touch.
const MOST: usize = 100;

/// The values of one series at one name.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    pub name: usize,
    pub series: usize,
    pub values: Vec<f64>,
}

#[derive(Debug, Default)]
pub struct Groups {
    pub records: Records,
    /// From the top down.
    pub names: Vec<String>,
    pub series: Vec<String>,
    pub all: Vec<Group>,
}

/// The groups of the input, and those of `--same-scale`, for the options' metric.
pub fn read(options: &Options) -> Result<(Groups, Option<Groups>), Error> {
    let names: Vec<Wanted<'_>> = options.x.as_deref().map(Wanted::Column).into_iter().collect();
    let (own, others) = options.with_same_scale(|input, own: Option<&Groups>| {
        let metric = options.y.as_deref().or(own.map(|own| own.records.metric.as_str()));
        let columns = Columns {
            metric: Wanted::of(metric),
            axes: &names,
            texts: TELLING,
            by_case: names.is_empty(),
            ..Columns::default()
        };
        let records = Records::new(options, input, &options.selection, &columns)?;
        Ok(Groups::of(records))
    })?;
    own.records.nothing_to_draw(own.all.is_empty(), options, &[options.y.as_deref().unwrap_or("a headline metric")])?;
    let rows = own.names.len() * own.series.len();
    if rows > MOST {
        return Err(Error::Usage(format!(
            "{rows} rows do not fit on a page: at most {MOST} do. Choose with --test or --where, or draw a `sweep`"
        )));
    }
    Ok((own, others))
}

impl Groups {
    /// Groups by the names in the column `-x` and by series; without `-x` by series alone.
    fn of(records: Records) -> Self {
        let mut found = Self::default();
        for record in &records.list {
            let Some(value) = records.number(record, &records.metric) else { continue };
            let (name, series) = match records.axes.first() {
                Some(x) => (records.quantity(x).name(records.text(record, x)), records.series(record)),
                None if records.by.is_empty() => {
                    (records.labels.get(records.text(record, "case")).to_owned(), String::new())
                }
                None => (records.series(record), String::new()),
            };
            let name = index(&mut found.names, name);
            let series = index(&mut found.series, series);
            match found.all.iter_mut().find(|g| g.name == name && g.series == series) {
                Some(group) => group.values.push(value),
                None => found.all.push(Group { name, series, values: vec![value] }),
            }
        }
        found.sort_numbers(&records);
        Self { records, ..found }
    }

    /// Sorts names that are numbers (sizes, streams).
    fn sort_numbers(&mut self, records: &Records) {
        let Some(x) = records.axes.first() else { return };
        let mut values: Vec<f64> = Vec::new();
        for text in records.distinct(x) {
            match text.parse::<f64>() {
                Ok(value) => values.push(value),
                Err(_) => return,
            }
        }
        if values.len() != self.names.len() {
            return;
        }
        let mut order: Vec<usize> = (0..values.len()).collect();
        order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
        let place = |old: usize| order.iter().position(|o| *o == old).unwrap_or(old);
        for group in &mut self.all {
            group.name = place(group.name);
        }
        self.names = order.iter().map(|old| self.names[*old].clone()).collect();
    }

    /// Gives the groups of several metrics the same names and series: those of the first, then what it lacks.
    pub fn align(all: &mut [&mut Self]) {
        let (mut names, mut series) = (Vec::new(), Vec::new());
        for groups in &*all {
            groups.names.iter().for_each(|name| _ = index(&mut names, name.clone()));
            groups.series.iter().for_each(|one| _ = index(&mut series, one.clone()));
        }
        for groups in all {
            for group in &mut groups.all {
                group.name = index(&mut names, groups.names[group.name].clone());
                group.series = index(&mut series, groups.series[group.series].clone());
            }
            groups.names.clone_from(&names);
            groups.series.clone_from(&series);
        }
    }

    /// The middle of a group along the axis of names, and half its width.
    pub fn place(&self, group: &Group) -> (f64, f64) {
        let room = 0.8 / self.series.len().max(1) as f64;
        let first = group.name as f64 - 0.4 + room / 2.0;
        (first + room * group.series as f64, room * 0.42)
    }

    /// The legend, from two series on. `key` gives the look of a series by its index.
    pub fn legend(&self, key: impl Fn(usize) -> Key) -> Vec<Entry> {
        if self.series.len() < 2 {
            return Vec::new();
        }
        self.series.iter().enumerate().map(|(index, label)| Entry { label: label.clone(), key: key(index) }).collect()
    }

    /// The quantity or kind of the names along the axis.
    pub fn title(records: &Records) -> String {
        if let Some(x) = records.axes.first() {
            return records.quantity(x).label;
        }
        let label = |column: &String| match &records.labels.title {
            Some(title) if column == "case" => title.clone(),
            _ => records.quantity(column).label,
        };
        records.by.iter().map(label).collect::<Vec<_>>().join(", ")
    }
}

fn index(known: &mut Vec<String>, name: String) -> usize {
    known.iter().position(|k| *k == name).unwrap_or_else(|| {
        known.push(name);
        known.len() - 1
    })
}

// `bars`: the mean of each group from zero, with its interval.

/// Share of a series' colour in the fill of its bars.
const BAR_TINT: f64 = 0.85;

/// A metric: its groups, and their bars.
struct Measure {
    own: Groups,
    points: Vec<Point>,
    /// The bars of `--same-scale`, too.
    scale: Vec<Point>,
}

impl Measure {
    fn read(options: &Options) -> Result<Self, Error> {
        let (own, others) = read(options)?;
        let points = points_of(&own, options);
        let mut scale = points.clone();
        scale.extend(others.iter().flat_map(|others| points_of(others, options)));
        Ok(Self { own, points, scale })
    }

    fn axis(&self) -> Axis {
        let (low, high) = series::span(self.scale.iter(), false);
        Axis::new(self.own.records.quantity(&self.own.records.metric), Spacing::Linear, low, high, false)
    }

    fn layers(&self) -> Vec<Layer> {
        let bars = self.own.all.iter().zip(&self.points);
        let mut layers: Vec<Layer> = bars
            .clone()
            .map(|(group, point)| {
                let (middle, half) = self.own.place(group);
                Layer::Box {
                    from: (0.0, middle - half),
                    to: (point.y, middle + half),
                    colour: legend::fill(group.series, BAR_TINT),
                    outline: None,
                }
            })
            .collect();
        let ranges = bars.filter_map(|(g, p)| Some((self.own.place(g).0, p.low?, p.high?))).collect();
        layers.push(Layer::Intervals { ranges, sideways: true, colour: Colour::INK });
        layers
    }

    fn note(&self, options: &Options) -> String {
        let records = &self.own.records;
        series::explain(&self.points.iter(), &Condense::of(options, &records.metric), records)
    }
}

pub fn draw_bars(options: &Options) -> Result<Drawing, Error> {
    if options.zoom || options.log_x() || options.log_y() {
        return Err(Error::Usage(
            "bars start at zero, on an even axis: their lengths are compared. Use `box` or `sweep` to look closer"
                .to_owned(),
        ));
    }
    let mut first = Measure::read(options)?;
    let mut beside = Vec::new();
    for metric in &options.beside {
        beside.push(Measure::read(&Options { y: Some(metric.clone()), ..options.clone() })?);
    }
    let others = beside.iter_mut().map(|measure| &mut measure.own);
    Groups::align(&mut std::iter::once(&mut first.own).chain(others).collect::<Vec<_>>());
    let table = table(std::iter::once(&first).chain(&beside));
    Ok(Drawing::new(figure_of_bars(options, &first, &beside), table, &first.own.records))
}

/// A line for each bar. With several metrics, `metric` names that of the line.
fn table<'a>(measures: impl Iterator<Item = &'a Measure> + Clone) -> Points {
    let several = measures.clone().count() > 1;
    let header: &[&str] = match measures.clone().next() {
        Some(only) if !several => &["name", "series", &only.own.records.metric, "low", "high", "n"],
        _ => &["name", "series", "metric", "mean", "low", "high", "n"],
    };
    let bars =
        measures.flat_map(|measure| measure.own.all.iter().zip(&measure.points).map(move |bar| (&measure.own, bar)));
    let rows = bars.map(|(own, (group, p))| {
        let metric = several.then(|| own.records.metric.clone());
        let names = [&own.names[group.name], &own.series[group.series]].map(String::clone);
        names.into_iter().chain(metric).chain(cells![p.y, p.low, p.high, p.n]).collect::<Vec<_>>()
    });
    Points::new(header, rows)
}

fn points_of(groups: &Groups, options: &Options) -> Vec<Point> {
    let how = Condense::of(options, &groups.records.metric);
    groups.all.iter().filter_map(|g| Point::of(0.0, &g.values, &how)).collect()
}

fn figure_of_bars(options: &Options, first: &Measure, beside: &[Measure]) -> Figure {
    let records = &first.own.records;
    let x = first.axis();
    let y = Axis::of_names(Groups::title(records), first.own.names.clone());
    // What columns have in common is said once.
    let notes: Vec<String> = std::iter::once(first).chain(beside).map(|measure| measure.note(options)).collect();
    let notes = distinct(notes.iter().flat_map(|note| note.split("; ")).map(str::to_owned));
    let beside: Vec<Column> =
        beside.iter().map(|measure| Column { x: measure.axis(), layers: measure.layers() }).collect();
    let axes = std::iter::once(&x).chain(beside.iter().map(|column| &column.x));
    let what = axes.map(|axis| axis.quantity.label.clone()).collect::<Vec<_>>().join(", ");
    let mut figure = Figure::new(options, records, &what, x, y, first.layers());
    figure.beside = beside;
    figure.panels[0].rows_per_name = first.own.series.len();
    figure.notes = notes;
    figure.legend = first.own.legend(|series| Key::Patch(legend::fill(series, BAR_TINT)));
    figure
}

// `box`: every value of each group, with its quartiles.

/// Share of a series' colour in the fill of its boxes.
const BOX_TINT: f64 = 0.3;

pub fn draw_boxes(options: &Options) -> Result<Drawing, Error> {
    let (own, others) = read(options)?;
    let column = own.records.metric.as_str();
    let values: Vec<f64> =
        own.all.iter().chain(others.iter().flat_map(|o| &o.all)).flat_map(|g| &g.values).copied().collect();
    let records = &own.records;
    let values_of = own.all.iter().flat_map(|group| group.values.iter().map(move |value| (group, *value)));
    let rows = values_of.map(|(group, value)| cells![&own.names[group.name], &own.series[group.series], value]);
    let table = Points::new(&["name", "series", column], rows);
    Ok(Drawing::new(figure_of_boxes(options, records, column, &own, &values), table, records))
}

fn figure_of_boxes(options: &Options, records: &Records, column: &str, own: &Groups, values: &[f64]) -> Figure {
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
    figure.legend = own.legend(|series| Look { dash: None, ..legend::look(series) }.key());
    figure
}

fn one(all: &Groups, group: &Group) -> Vec<Layer> {
    let (middle, half) = all.place(group);
    let Look { colour, sign, .. } = legend::look(group.series);
    let mut sorted = group.values.clone();
    quantiles::sort(&mut sorted);
    let mut layers = Vec::new();
    // Fewer than four values have no useful quartiles. The dots show them all.
    if sorted.len() >= 4
        && let Some([q1, median, q3]) = quantiles::quartiles(&sorted)
    {
        let reach = 1.5 * (q3 - q1);
        let low = sorted.iter().copied().find(|v| *v >= q1 - reach).unwrap_or(q1);
        let high = sorted.iter().rev().copied().find(|v| *v <= q3 + reach).unwrap_or(q3);
        layers.push(Layer::Intervals { ranges: vec![(middle, low, high)], sideways: true, colour });
        layers.push(Layer::Box {
            from: (q1, middle - half),
            to: (q3, middle + half),
            colour: legend::fill(group.series, BOX_TINT),
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
