//! `timeseries`: interval rows over time, with warm-up and cool-down shaded.

use super::{
    axis::Axis,
    canvas::Point,
    figure::{Drawing, Figure, Points},
    layer::Layer,
    legend::{self, Entry, Look},
    options::Options,
    quantity::{Quantity, Spacing},
    records::{Columns, Records, Wanted},
    series,
};
use crate::{distinct, error::Error, table::cells};
use schemas::{units::Unit, words::Phase};

/// The intervals of one iteration (and stream) of a series.
struct Track {
    name: String,
    iteration: String,
    /// Empty for the total over streams.
    stream: String,
    points: Vec<Point>,
}

/// The tracks of one input.
struct Tracks {
    lines: Vec<Track>,
    /// Start and end of all.
    range: (f64, f64),
}

/// Reads the intervals of one metric, and of the files of `--same-scale`.
fn read(options: &Options, x: &str) -> Result<(Records, Tracks, Option<Tracks>), Error> {
    let selection = options.intervals();
    let ((records, tracks), others) = options.with_same_scale(|input, own: Option<&(Records, Tracks)>| {
        let columns = Columns {
            metric: Wanted::of(options.y.as_deref().or(own.map(|own| own.0.metric.as_str()))),
            numbers: &[x],
            optional: &["elapsed_s"],
            texts: &["phase", "stream", "service_demand_unit"],
            along: &["stream", "phase"],
            lines: true,
            ..Columns::default()
        };
        let records = Records::new(options, input, &selection, &columns)?;
        let tracks = gather(&records, x);
        Ok((records, tracks))
    })?;
    let asked = options.y.as_deref().unwrap_or("a headline metric");
    records.nothing_to_draw(tracks.lines.is_empty(), options, &[x, asked]).map_err(|error| match error {
        Error::Data { place, reason } if options.selection.record.is_none() => Error::Data {
            place,
            reason: format!("{reason}. Interval rows are written where a plan's test sets `interval`"),
        },
        other => other,
    })?;
    Ok((records, tracks, others.map(|(_, tracks)| tracks)))
}

/// Adds the lines of further metrics, which must have the same unit. Returns what all of them are.
fn add_beside(options: &Options, x: &str, records: &Records, tracks: &mut Tracks) -> Result<Quantity, Error> {
    let mut quantity = records.quantity(&records.metric);
    for track in tracks.lines.iter_mut().filter(|_| !options.beside.is_empty()) {
        series::name(&mut track.name, &quantity.label);
    }
    for metric in &options.beside {
        let of_it = Options { y: Some(metric.clone()), same_scale: Vec::new(), ..options.clone() };
        let (more, mut its, _) = read(&of_it, x)?;
        let other = more.quantity(&more.metric);
        quantity = series::beside(quantity, &records.metric, (metric, &other), "a picture over time")?;
        its.lines.iter_mut().for_each(|track| series::name(&mut track.name, &other.label));
        tracks.lines.append(&mut its.lines);
        tracks.range = (tracks.range.0.min(its.range.0), tracks.range.1.max(its.range.1));
    }
    Ok(quantity)
}

pub fn draw(options: &Options) -> Result<Drawing, Error> {
    let x = options.x.as_deref().unwrap_or("start_s");
    let (records, mut tracks, others) = read(options, x)?;
    let quantity = add_beside(options, x, &records, &mut tracks)?;
    let y = if options.beside.is_empty() { records.metric.as_str() } else { "value" };
    let mut names: Vec<&str> = tracks.lines.iter().map(|track| track.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    series::not_too_many(names.len(), &records)?;
    let points = tracks.lines.iter().flat_map(|track| track.points.iter().map(move |point| (track, *point)));
    let rows = points.map(|(track, (x, y))| cells![&track.name, &track.iteration, &track.stream, x, y]);
    let table = Points::new(&["series", "iteration", "stream", x, y], rows);
    Ok(Drawing::new(figure(options, &records, (x, quantity), &tracks, others.as_ref()), table, &records))
}

fn gather(records: &Records, x: &str) -> Tracks {
    let y = records.metric.as_str();
    let mut tracks: Vec<Track> = Vec::new();
    let mut range = (f64::INFINITY, f64::NEG_INFINITY);
    let timed = x == "start_s";
    for record in &records.list {
        let (Some(start), Some(value)) = (records.number(record, x), records.number(record, y)) else { continue };
        let length = if timed { records.number(record, "elapsed_s").unwrap_or(0.0) } else { 0.0 };
        range = (range.0.min(start), range.1.max(start + length));
        let name = records.series(record);
        let (iteration, stream) = (records.text(record, "iteration"), records.text(record, "stream"));
        // An interval's value belongs to its middle.
        let point = (start + length / 2.0, value);
        match tracks.iter_mut().find(|t| t.name == name && t.iteration == iteration && t.stream == stream) {
            Some(track) => track.points.push(point),
            None => tracks.push(Track {
                name,
                iteration: iteration.to_owned(),
                stream: stream.to_owned(),
                points: vec![point],
            }),
        }
    }
    for track in &mut tracks {
        track.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    Tracks { lines: tracks, range }
}

fn figure(
    options: &Options,
    records: &Records,
    (x, quantity): (&str, Quantity),
    own: &Tracks,
    others: Option<&Tracks>,
) -> Figure {
    let all = || std::iter::once(own).chain(others);
    let x_quantity = if x == "start_s" {
        Quantity::new("time since the measurement began", Some(Unit::Seconds))
    } else {
        Quantity::of_column(x)
    };
    let (low, high) = all().fold((f64::INFINITY, f64::NEG_INFINITY), |r, t| (r.0.min(t.range.0), r.1.max(t.range.1)));
    let x_axis = Axis::exact(x_quantity, Spacing::Linear, low, high);
    let spacing = options.spacing_y();
    let values = || all().flat_map(|t| &t.lines).flat_map(|t| t.points.iter().map(|p| p.1));
    let (low, high) = series::extent(values().filter(|v| spacing.shows(*v)));
    let mut layers = shades(records, x);
    // Room above the curves for the names of the phases.
    let high = if layers.is_empty() || spacing.is_logarithmic() { high } else { high * 1.08 };
    let y_axis = Axis::new(quantity, spacing, low, high, options.zoom);

    let names = distinct(own.lines.iter().map(|track| track.name.as_str()));
    let mut legend = Vec::new();
    let most = own.lines.iter().map(|t| t.points.len()).max().unwrap_or(0);
    let iterations = records.distinct("iteration").len();
    // Totals cover single streams.
    let mut totals = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let look = legend::look(index);
        let Look { colour, sign, dash } = look;
        let tracks: Vec<&Track> = own.lines.iter().filter(|t| t.name == *name).collect();
        let with_total = tracks.iter().any(|t| t.stream.is_empty());
        for track in tracks {
            let faint = with_total && !track.stream.is_empty();
            let (colour, weight) =
                if faint { (colour.tint(0.4), 0.5) } else { (colour, if iterations > 1 { 0.65 } else { 1.0 }) };
            let line = Layer::Line { points: track.points.clone(), colour, weight, dash };
            if faint {
                layers.push(line);
                continue;
            }
            totals.push(line);
            // Signs tell series apart. Dense ones would hide the line, so only every n-th point has one.
            let every = track.points.len().div_ceil(if names.len() > 1 { 24 } else { 60 });
            let marked = most <= 60 || names.len() > 1;
            if marked {
                let first = (index * every) / names.len().max(1);
                let points = track.points.iter().skip(first).step_by(every.max(1)).copied().collect();
                totals.push(Layer::Marks { points, sign, colour, weight: 0.8 });
            }
        }
        legend.push(Entry { label: (*name).to_owned(), key: look.key() });
    }
    layers.extend(totals);
    let mut notes = vec!["each point: one interval, drawn at its middle".to_owned()];
    notes.extend(note(&layers));
    let own_values = own.lines.iter().flat_map(|t| &t.points);
    notes.extend(series::unplaced(own_values.filter(|p| !spacing.shows(p.1)).count()));
    if iterations > 1 {
        notes.push(format!("{iterations} iterations, a line each"));
    }
    if own.lines.iter().any(|t| !t.stream.is_empty()) && own.lines.iter().any(|t| t.stream.is_empty()) {
        notes.push("faint: single streams".to_owned());
    }
    let what = format!("{} over time", y_axis.quantity.label);
    Figure { notes, legend, ..Figure::new(options, records, &what, x_axis, y_axis, layers) }
}

// Warm-up and cool-down in pictures over time.

/// A shade for each phase, where x is time.
pub fn shades(records: &Records, x: &str) -> Vec<Layer> {
    let mut found: Vec<(f64, f64, &str)> = Vec::new();
    for record in records.list.iter().filter(|_| x == "start_s") {
        let phase = match records.text(record, "phase").parse() {
            Ok(Phase::Warmup) => "warm-up",
            Ok(Phase::Cooldown) => "cool-down",
            Ok(Phase::Measure) | Err(_) => continue,
        };
        let Some(start) = records.number(record, x) else { continue };
        let end = start + records.number(record, "elapsed_s").unwrap_or(0.0);
        match found.iter_mut().find(|p| p.2 == phase) {
            Some(known) => (known.0, known.1) = (known.0.min(start), known.1.max(end)),
            None => found.push((start, end, phase)),
        }
    }
    found.into_iter().map(|(from, to, label)| Layer::Shade { from, to, label: label.to_owned() }).collect()
}

/// Removes the names, where they stand elsewhere.
pub fn without_names(layers: &mut [Layer]) {
    for layer in layers {
        if let Layer::Shade { label, .. } = layer {
            label.clear();
        }
    }
}

/// A note that names the shaded phases: their names may not fit into them.
pub fn note(layers: &[Layer]) -> Option<String> {
    let names = layers.iter().filter_map(|layer| match layer {
        Layer::Shade { label, .. } => Some(label.as_str()),
        _ => None,
    });
    let names: Vec<&str> = names.collect();
    (!names.is_empty()).then(|| format!("shaded: {}", names.join(" and ")))
}
