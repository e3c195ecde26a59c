//! `sweep`: a metric against a parameter, one line per series, with intervals.

use super::{
    axis::Axis,
    canvas::{Colour, Sign},
    figure::{Drawing, Figure, Points},
    layer::Layer,
    legend::{self, Entry, Key},
    options::Options,
    records::{Columns, Record, Records, TELLING, Wanted},
    series::{self, Condense, Series},
};
use crate::{error::Error, table::Record as RecordKind};
use schemas::words::Search;

pub fn draw(options: &Options) -> Result<Drawing, Error> {
    let ((records, series), others) = options.with_same_scale(|input, own: Option<&(Records, Vec<Series>)>| {
        let own = own.map(|own| &own.0);
        let wanted = |option: &'_ Option<String>, chosen: Option<&String>| option.clone().or_else(|| chosen.cloned());
        let x = wanted(&options.x, own.and_then(|own| own.axes.first()));
        let y = wanted(&options.y, own.map(|own| &own.metric));
        let columns = Columns {
            metric: Wanted::of(y.as_deref()),
            axes: &[Wanted::of(x.as_deref())],
            numeric_axes: true,
            texts: TELLING,
            lines: true,
            ..Columns::default()
        };
        let records = Records::new(options, input, &options.selection, &columns)?;
        let series = match &records.axes[..] {
            [x] => gather(&records, options, x),
            _ => Vec::new(),
        };
        Ok((records, series))
    })?;
    let asked = [&options.x, &options.y].map(|option| option.as_deref());
    let (x, y) = (asked[0].unwrap_or("a parameter that varies"), asked[1].unwrap_or("a headline metric"));
    records.nothing_to_draw(series.iter().all(|s| s.points.is_empty()), options, &[x, y])?;
    series::not_too_many(series.len(), &records)?;
    let (x, y) = (records.axes[0].as_str(), records.metric.as_str());
    let scale: Vec<Series> = series.iter().cloned().chain(others.into_iter().flat_map(|(_, series)| series)).collect();
    let figure = figure(options, &records, (x, y), &series, &scale)?;
    Ok(Drawing::new(figure, Points::of(&series, &records.header(x), y), &records))
}

fn gather(records: &Records, options: &Options, x: &str) -> Vec<Series> {
    let y = &records.metric;
    let how = Condense::of(options, y);
    series::gather(records, &how, |r| records.number(r, x), |r| records.number(r, y))
}

fn figure(
    options: &Options,
    records: &Records,
    (x, y): (&str, &str),
    series: &[Series],
    scale: &[Series],
) -> Result<Figure, Error> {
    let (x_quantity, y_quantity) = (records.quantity(x), records.quantity(y));
    let x_spacing = options.spacing_x(&x_quantity);
    let y_spacing = options.spacing_y();
    let points = || scale.iter().flat_map(|s| &s.points);
    let (low, high) = series::extent(points().map(|p| p.x).filter(|x| x_spacing.shows(*x)));
    // The axis of a parameter shows the swept range, without zero.
    let mut x_axis = Axis::new(x_quantity, x_spacing, low, high, true);
    x_axis.truncated = false;
    let (low, high) = series::span(points(), y_spacing.is_logarithmic());
    let y_axis = Axis::new(y_quantity, y_spacing, low, high, options.zoom);

    let (mut layers, mut legend) = series::curves(series, |p| p.x);
    let mut notes = vec![series::explain(&series.iter().flat_map(|s| &s.points), &Condense::of(options, y), records)];
    search_layers(records, (x, y), &x_axis, series, &mut layers, &mut legend, &mut notes);
    for (at, label) in options.rules()? {
        layers.push(Layer::Rule { at, upright: true, label, colour: Colour::MUTED });
    }
    if let [one] = series
        && names(x, "message_bytes")
        && names(y, "throughput_bits_per_s")
        && let Some(half) = half_bandwidth(one)
    {
        let words = x_axis.words(half.round());
        layers.push(Layer::Rule {
            at: half,
            upright: true,
            label: format!("half the peak at {words}"),
            colour: Colour::MUTED,
        });
    }
    let points = series.iter().flat_map(|s| &s.points);
    let lost = points.filter(|p| x_axis.position(p.x).is_none() || y_axis.position(p.y).is_none()).count();
    notes.extend(series::unplaced(lost));
    let what = format!("{} against {}", y_axis.quantity.label, x_axis.quantity.label);
    Ok(Figure { notes, legend, ..Figure::new(options, records, &what, x_axis, y_axis, layers) })
}

/// Whether `name` is the column or its metric.
fn names(name: &str, column: &str) -> bool {
    name == column || schemas::metrics::find(name).is_some_and(|metric| metric.column == column)
}

/// The size at which the measured curve first reaches half of its peak, interpolated on the logarithm of the size.
/// Hockney's n½ is another number, that of the fitted line (`plumb fit`). `None` where the smallest size reaches it
/// already.
fn half_bandwidth(series: &Series) -> Option<f64> {
    let half = series.points.iter().map(|p| p.y).fold(f64::NEG_INFINITY, f64::max) / 2.0;
    let pair = series.points.windows(2).find(|w| w[0].y < half && w[1].y >= half)?;
    let share = (half - pair[0].y) / (pair[1].y - pair[0].y);
    let x = (pair[0].x.ln() + (pair[1].x.ln() - pair[0].x.ln()) * share).exp();
    x.is_finite().then_some(x)
}

// Probes of a search in a sweep: which held, and the answer.

/// Marks the probes by what they showed, and the answer of each search with a rule. Nothing where no probes are drawn.
fn search_layers(
    records: &Records,
    (x, y): (&str, &str),
    x_axis: &Axis,
    series: &[Series],
    layers: &mut Vec<Layer>,
    legend: &mut Vec<Entry>,
    notes: &mut Vec<String>,
) {
    if records.kind != Some(RecordKind::Probe) {
        return;
    }
    if let [_] = series {
        outcomes(records, (x, y), layers, legend);
    }
    for answer in &records.answers {
        let (words, found) = words(records, answer);
        let name = if records.answers.len() > 1 { format!("{}: ", records.case_of(answer)) } else { String::new() };
        match records.number(answer, x).filter(|_| found) {
            Some(at) => {
                let label = format!("{name}{words} {}", x_axis.words(at));
                layers.push(Layer::Rule { at, upright: true, label: label.clone(), colour: Colour::MUTED });
                notes.push(label);
            }
            None => notes.push(format!("{name}{words}")),
        }
    }
}

/// The end of a search in words, and whether there is a load that held.
fn words(records: &Records, answer: &Record) -> (&'static str, bool) {
    match records.text(answer, "search").parse() {
        Ok(Search::Found) => (Search::HOLDS, true),
        Ok(Search::AtLeast) => ("holds at least up to", true),
        Ok(Search::Unreached) => ("holds as far as could be offered, up to", true),
        Ok(Search::Nothing) => ("nothing held", false),
        Ok(Search::Open | Search::Held | Search::Exceeded) | Err(_) => ("ended early; held so far up to", true),
    }
}

/// Signs for what the probes of one series showed, in place of the series' own.
fn outcomes(records: &Records, (x, y): (&str, &str), layers: &mut Vec<Layer>, legend: &mut Vec<Entry>) {
    const OUTCOMES: [(Search, &str, Sign, Colour); 3] = [
        (Search::Held, "held", Sign::Circle, Colour(0x00, 0x72, 0xb2)),
        (Search::Exceeded, "did not hold", Sign::Cross, Colour(0xd5, 0x5e, 0x00)),
        (Search::Unreached, "could not be offered", Sign::Ring, Colour(0x6b, 0x6b, 0x6b)),
    ];
    let outcome = |record: &Record| records.text(record, "search").parse::<Search>().ok();
    if !records.list.iter().any(|record| outcome(record).is_some()) {
        return;
    }
    layers.retain(|layer| !matches!(layer, Layer::Marks { .. }));
    for layer in layers.iter_mut() {
        if let Layer::Line { colour, .. } = layer {
            *colour = legend::look(0).colour.tint(0.4);
        }
    }
    legend.clear();
    for (search, label, sign, colour) in OUTCOMES {
        let mine = records.list.iter().filter(|record| outcome(record) == Some(search));
        let points: Vec<_> = mine.filter_map(|r| records.number(r, x).zip(records.number(r, y))).collect();
        if points.is_empty() {
            continue;
        }
        legend.push(Entry {
            label: format!("{label} ({})", points.len()),
            key: Key::Series { colour, sign: Some(sign), dash: None },
        });
        layers.push(Layer::Marks { points, sign, colour, weight: 1.2 });
    }
}

#[cfg(test)]
mod tests {
    use super::{super::series::Point, *};

    #[test]
    fn half_bandwidth_lies_between_its_neighbours() {
        let point = |x: f64, y: f64| Point::of(x, &[y], &Condense::of(&Options::default(), "throughput")).unwrap();
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
