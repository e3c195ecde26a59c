//! `bars`: the mean of each group from zero, with its interval.

use super::{
    axis::Axis,
    canvas::Colour,
    drawing::{Drawing, Points},
    figure::{Column, Figure},
    groups::{self, Groups},
    layer::Layer,
    legend::Key,
    options::Options,
    palette,
    series::{self, Condense, Point},
    spacing::Spacing,
};
use crate::error::Error;

/// Share of a series' colour in the fill of its bars.
const TINT: f64 = 0.85;

/// A metric: its groups, and their bars.
struct Measure {
    own: Groups,
    points: Vec<Point>,
    /// The bars of `--same-scale`, too.
    scale: Vec<Point>,
}

impl Measure {
    fn read(options: &Options) -> Result<Self, Error> {
        let (own, others) = groups::read(options)?;
        let points = points(&own, options);
        let mut scale = points.clone();
        scale.extend(others.iter().flat_map(|others| self::points(others, options)));
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
                    colour: palette::fill(group.series, TINT),
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

pub fn draw(options: &Options) -> Result<Drawing, Error> {
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
    Ok(Drawing::new(figure(options, &first, &beside), table, &first.own.records))
}

/// A line for each bar. With several metrics, `metric` names that of the line.
fn table<'a>(measures: impl Iterator<Item = &'a Measure> + Clone) -> Points {
    let several = measures.clone().count() > 1;
    let mut table = match measures.clone().next() {
        Some(only) if !several => Points::new(&["name", "series", &only.own.records.metric, "low", "high", "n"]),
        _ => Points::new(&["name", "series", "metric", "mean", "low", "high", "n"]),
    };
    for measure in measures {
        let own = &measure.own;
        for (group, point) in own.all.iter().zip(&measure.points) {
            let end = |value: Option<f64>| value.map(schemas::columns::number).unwrap_or_default();
            let mut row = vec![own.names[group.name].clone(), own.series[group.series].clone()];
            row.extend(several.then(|| own.records.metric.clone()));
            row.extend([schemas::columns::number(point.y), end(point.low), end(point.high), point.n.to_string()]);
            table.rows.push(row);
        }
    }
    table
}

fn points(groups: &Groups, options: &Options) -> Vec<Point> {
    let how = Condense::of(options, &groups.records.metric);
    groups.all.iter().filter_map(|g| Point::of(0.0, &g.values, &how)).collect()
}

fn figure(options: &Options, first: &Measure, beside: &[Measure]) -> Figure {
    let records = &first.own.records;
    let x = first.axis();
    let y = Axis::of_names(Groups::title(records), first.own.names.clone());
    let mut notes = Vec::new();
    for note in std::iter::once(first).chain(beside).map(|measure| measure.note(options)) {
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    let beside: Vec<Column> =
        beside.iter().map(|measure| Column { x: measure.axis(), layers: measure.layers() }).collect();
    let axes = std::iter::once(&x).chain(beside.iter().map(|column| &column.x));
    let what = axes.map(|axis| axis.quantity.label.clone()).collect::<Vec<_>>().join(", ");
    let mut figure = Figure::new(options, records, &what, x, y, first.layers());
    figure.beside = beside;
    figure.panels[0].rows_per_name = first.own.series.len();
    figure.notes = notes;
    figure.legend = first.own.legend(|series| Key::Patch(palette::fill(series, TINT)));
    figure
}
