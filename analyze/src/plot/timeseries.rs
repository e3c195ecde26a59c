//! `timeseries`: interval results over time, with warm-up and cool-down shaded.

use super::{
    Drawing, Options, Points,
    axis::{Axis, Spacing},
    canvas::Point,
    figure::{Figure, Panel},
    layer::Layer,
    legend::Entry,
    palette::{self, Look},
    quantity::Quantity,
    reading::{Reading, Wanted},
    series,
};
use crate::{error::Error, table::InputArgs};

/// The intervals of one iteration (and stream) of a series.
struct Track {
    name: String,
    iteration: String,
    /// Empty for the total over streams.
    stream: String,
    points: Vec<Point>,
}

/// Everything drawn of one input.
struct Tracks {
    lines: Vec<Track>,
    /// Start and end of the whole.
    range: (f64, f64),
}

/// Reads the files and draws.
pub fn draw(options: &Options) -> Result<Drawing, Error> {
    let x = options.x.as_deref().unwrap_or("start_s");
    let y = options.y.as_deref().unwrap_or("throughput_bits_per_s");
    let wanted = Wanted {
        numbers: &[x, y],
        optional: &["elapsed_s"],
        texts: &["phase", "stream", "service_demand_unit"],
        along: &["iteration", "stream"],
        ..Wanted::default()
    };
    let mut selection = options.selection.clone();
    // Warm-up and cool-down are shown, shaded: leaving them out would hide what they are for.
    "all".clone_into(&mut selection.phase);
    selection.record.get_or_insert_with(|| "interval".to_owned());
    let read = |input: &InputArgs| Reading::new(options, input, &selection, &wanted);
    let reading = read(&options.input)?;
    let tracks = gather(&reading, x, y);
    options.nothing_to_draw(tracks.lines.is_empty(), &reading, &[x, y]).map_err(|error| match error {
        Error::Data { place, reason } if options.selection.record.is_none() => Error::Data {
            place,
            reason: format!("{reason}. Interval rows are written where a plan's test sets `interval`"),
        },
        other => other,
    })?;
    let others = match options.same_scale_input() {
        Some(input) => Some(gather(&read(&input)?, x, y)),
        None => None,
    };
    let mut table = Points::new(&["series", "iteration", "stream", x, y]);
    for track in &tracks.lines {
        for (x, y) in &track.points {
            let number = schemas::columns::number;
            table.rows.push(vec![
                track.name.clone(),
                track.iteration.clone(),
                track.stream.clone(),
                number(*x),
                number(*y),
            ]);
        }
    }
    Ok(Drawing::new(figure(options, &reading, (x, y), &tracks, others.as_ref()), table, &reading))
}

fn gather(reading: &Reading, x: &str, y: &str) -> Tracks {
    let mut tracks: Vec<Track> = Vec::new();
    let mut range = (f64::INFINITY, f64::NEG_INFINITY);
    let timed = x == "start_s";
    for record in &reading.records {
        let (Some(start), Some(value)) = (reading.number(record, x), reading.number(record, y)) else { continue };
        let length = if timed { reading.number(record, "elapsed_s").unwrap_or(0.0) } else { 0.0 };
        range = (range.0.min(start), range.1.max(start + length));
        let name = reading.series(record);
        let (iteration, stream) = (reading.text(record, "iteration"), reading.text(record, "stream"));
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

/// The stretches of warm-up and cool-down, to be shaded.
pub fn phases(reading: &Reading, x: &str) -> Vec<Layer> {
    let mut found: Vec<(f64, f64, &str)> = Vec::new();
    for record in reading.records.iter().filter(|_| x == "start_s") {
        let phase = match reading.text(record, "phase") {
            "warmup" => "warm-up",
            "cooldown" => "cool-down",
            _ => continue,
        };
        let Some(start) = reading.number(record, x) else { continue };
        let end = start + reading.number(record, "elapsed_s").unwrap_or(0.0);
        match found.iter_mut().find(|p| p.2 == phase) {
            Some(known) => (known.0, known.1) = (known.0.min(start), known.1.max(end)),
            None => found.push((start, end, phase)),
        }
    }
    found.into_iter().map(|(from, to, label)| Layer::Shade { from, to, label: label.to_owned() }).collect()
}

/// Shades without their names, where those stand elsewhere.
pub fn without_names(layers: &mut [Layer]) {
    for layer in layers {
        if let Layer::Shade { label, .. } = layer {
            label.clear();
        }
    }
}

/// What the shaded stretches are, where there are some: their names may not fit into them.
pub fn shaded(layers: &[Layer]) -> Option<String> {
    let names = layers.iter().filter_map(|layer| match layer {
        Layer::Shade { label, .. } => Some(label.as_str()),
        _ => None,
    });
    let names: Vec<&str> = names.collect();
    (!names.is_empty()).then(|| format!("shaded: {}", names.join(" and ")))
}

fn figure(options: &Options, reading: &Reading, (x, y): (&str, &str), own: &Tracks, others: Option<&Tracks>) -> Figure {
    let all = || std::iter::once(own).chain(others);
    let x_quantity = if x == "start_s" {
        Quantity::new("time since the measurement began", Some(schemas::units::Unit::Seconds))
    } else {
        Quantity::of_column(x)
    };
    let (low, high) = all().fold((f64::INFINITY, f64::NEG_INFINITY), |r, t| (r.0.min(t.range.0), r.1.max(t.range.1)));
    let x_axis = Axis::exact(x_quantity, Spacing::Linear, low, high);
    let spacing = if options.log_y() { Spacing::Log10 } else { Spacing::Linear };
    let values = all().flat_map(|t| &t.lines).flat_map(|t| t.points.iter().map(|p| p.1));
    let (low, high) = series::extent(values.filter(|v| *v > 0.0 || !spacing.is_logarithmic()));
    let mut layers = phases(reading, x);
    // The names of the phases stand at the top: no curve there.
    let high = if layers.is_empty() || spacing.is_logarithmic() { high } else { high * 1.08 };
    let y_axis = Axis::new(options.quantity(y, reading), spacing, low, high, options.zoom);

    let mut names: Vec<&str> = Vec::new();
    for track in &own.lines {
        if !names.contains(&track.name.as_str()) {
            names.push(&track.name);
        }
    }
    let mut legend = Vec::new();
    let most = own.lines.iter().map(|t| t.points.len()).max().unwrap_or(0);
    let iterations = reading.distinct("iteration").len();
    // Single streams lie under the totals.
    let mut totals = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let look = palette::look(index);
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
            // Signs tell series apart; where points are dense they would hide the line, so every so many has one.
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
    notes.extend(shaded(&layers));
    if iterations > 1 {
        notes.push(format!("{iterations} iterations, a line each"));
    }
    if own.lines.iter().any(|t| !t.stream.is_empty()) && own.lines.iter().any(|t| t.stream.is_empty()) {
        notes.push("faint: single streams".to_owned());
    }
    Figure {
        title: options.title(reading, &format!("{} over time", y_axis.quantity.label)),
        notes,
        x: x_axis,
        panels: vec![Panel { y: y_axis, layers, rows_per_name: 1 }],
        legend,
        colours: None,
        footer: options.footer(reading),
    }
}
