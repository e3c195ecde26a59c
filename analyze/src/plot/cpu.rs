//! `cpu`: what the processors of both ends did, stacked by kind, under the work that was done: hpcbench's picture of its
//! system log.

use super::{
    Drawing, Options, Points,
    axis::{Axis, Spacing},
    canvas::{Colour, Sign},
    figure::{Figure, Panel},
    layer::Layer,
    legend::{Entry, Key},
    quantity::Quantity,
    reading::{Reading, Record, Wanted},
    series, timeseries,
};
use crate::{
    error::Error,
    stats::moments,
    table::{InputArgs, Selection},
};
use schemas::units::Unit;

/// The kinds of CPU time from the bottom up, and their colours. Idle time and waiting for disks are not work.
const STACK: [(&str, Colour); 5] = [
    ("user", Colour(0x00, 0x72, 0xb2)),
    ("system", Colour(0xe6, 0x9f, 0x00)),
    ("softirq", Colour(0x00, 0x9e, 0x73)),
    ("irq", Colour(0xcc, 0x79, 0xa7)),
    ("steal", Colour(0x99, 0x99, 0x99)),
];

const PEAK: Colour = Colour(0x00, 0x00, 0x00);

/// The shares at one end and one place.
struct Load {
    x: f64,
    stack: [f64; 5],
    peak: Option<f64>,
}

/// What is drawn along which column, of which rows.
struct Question<'a> {
    x: &'a str,
    work: &'a str,
    selection: Selection,
}

/// What one input has to be drawn.
struct Answer {
    reading: Reading,
    /// Where, and the work done there.
    done: Vec<(f64, f64)>,
    /// This end and the other.
    ends: [(&'static str, Vec<Load>); 2],
}

/// Reads the files and draws.
pub fn draw(options: &Options) -> Result<Drawing, Error> {
    let x = match options.x.as_deref() {
        Some(x) => x,
        None => default_axis(options)?,
    };
    let mut selection = options.selection.clone();
    if x == "start_s" {
        "all".clone_into(&mut selection.phase);
        selection.record.get_or_insert_with(|| "interval".to_owned());
    }
    let question = Question { x, work: options.y.as_deref().unwrap_or("throughput_bits_per_s"), selection };
    let own = question.ask(options, &options.input)?;
    let others = options.same_scale_input().map(|input| question.ask(options, &input)).transpose()?;
    let header: Vec<&str> = ["end", x].into_iter().chain(STACK.map(|s| s.0)).chain(["peak"]).collect();
    let mut table = Points::new(&header);
    for (end, loads) in &own.ends {
        for load in loads {
            let number = schemas::columns::number;
            let mut row = vec![(*end).to_owned(), number(load.x)];
            row.extend(load.stack.map(number));
            row.push(load.peak.map(number).unwrap_or_default());
            table.rows.push(row);
        }
    }
    Ok(Drawing::new(figure(options, &question, &own, others.as_ref()), table, &own.reading))
}

impl Question<'_> {
    fn ask(&self, options: &Options, input: &InputArgs) -> Result<Answer, Error> {
        let Self { x, work, .. } = *self;
        let timed = x == "start_s";
        let columns: Vec<String> = ["local", "remote"]
            .iter()
            .flat_map(|end| {
                STACK.iter().map(|s| s.0).chain(["peak"]).map(move |kind| format!("{end}_cpu_{kind}_ratio"))
            })
            .collect();
        let optional: Vec<&str> = columns.iter().map(String::as_str).chain(["elapsed_s"]).collect();
        let along: &[&str] = if timed { &["iteration"] } else { &[x] };
        let wanted = Wanted {
            numbers: &[x, work, "local_cpu_ratio"],
            optional: &optional,
            texts: &["phase"],
            along,
            ..Wanted::default()
        };
        let mut reading = Reading::new(options, input, &self.selection, &wanted)?;
        options.nothing_to_draw(reading.records.is_empty(), &reading, &[x, work, "local_cpu_ratio"])?;
        if !reading.by.is_empty() {
            return Err(Error::Usage(format!(
                "the CPU load is drawn for one case; the rows differ in `{}`: choose with --where {}=…",
                reading.by[0], reading.by[0]
            )));
        }
        if timed {
            reading.keep_first("iteration");
        }
        // By place along x: the rows there.
        let mut places: Vec<(f64, Vec<&Record>)> = Vec::new();
        let mut rows: Vec<(f64, &Record)> =
            reading.records.iter().filter_map(|r| Some((reading.number(r, x)?, r))).collect();
        rows.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (place, row) in rows {
            match places.last_mut() {
                Some(last) if last.0.total_cmp(&place).is_eq() => last.1.push(row),
                _ => places.push((place, vec![row])),
            }
        }
        let mean = |rows: &[&Record], column: &str| {
            moments::mean(&rows.iter().filter_map(|r| reading.number(r, column)).collect::<Vec<_>>())
        };
        let middle = |(place, rows): &(f64, Vec<&Record>)| {
            place + if timed { mean(rows, "elapsed_s").unwrap_or(0.0) / 2.0 } else { 0.0 }
        };
        let done = places.iter().filter_map(|at| Some((middle(at), mean(&at.1, work)?))).collect();
        let loads = |end: &str| -> Vec<Load> {
            let load = |at: &(f64, Vec<&Record>)| {
                let part = |kind: &str| mean(&at.1, &format!("{end}_cpu_{kind}_ratio"));
                part("user")?;
                let stack = STACK.map(|(kind, _)| part(kind).unwrap_or(0.0));
                Some(Load { x: middle(at), stack, peak: part("peak") })
            };
            places.iter().filter_map(load).collect()
        };
        let ends = [("here", loads("local")), ("there", loads("remote"))];
        Ok(Answer { reading, done, ends })
    }
}

fn figure(options: &Options, question: &Question<'_>, own: &Answer, others: Option<&Answer>) -> Figure {
    let (x, reading) = (question.x, &own.reading);
    let all = || std::iter::once(own).chain(others);
    let mut axis = if x == "start_s" {
        let time = Quantity::new("time since the measurement began", Some(Unit::Seconds));
        let ends = all().flat_map(|answer| {
            answer.reading.records.iter().filter_map(|r| {
                let start = answer.reading.number(r, x)?;
                Some([start, start + answer.reading.number(r, "elapsed_s").unwrap_or(0.0)])
            })
        });
        let (from, to) = series::extent(ends.flatten());
        Axis::exact(time, Spacing::Linear, from, to)
    } else {
        let quantity = Quantity::of_column(x);
        let spacing = options.spacing_x(&quantity);
        let (from, to) = series::extent(all().flat_map(|answer| &answer.done).map(|p| p.0));
        Axis::new(quantity, spacing, from, to, true)
    };
    axis.truncated = false;
    let (low, high) = series::extent(all().flat_map(|answer| &answer.done).map(|p| p.1));
    let shades = timeseries::phases(reading, x);
    let mut notes =
        vec!["stacked: share of all CPUs, 100 % is all of them busy; dashed: the busiest CPU alone".to_owned()];
    notes.extend(timeseries::shaded(&shades));
    // The names of the phases stand at the top: no curve there.
    let high = if shades.is_empty() { high } else { high * 1.25 };
    let ink = Colour(0x00, 0x72, 0xb2);
    let mut panels = vec![Panel {
        y: Axis::new(options.quantity(question.work, reading), Spacing::Linear, low, high, options.zoom),
        layers: vec![
            Layer::Line { points: own.done.clone(), colour: ink, weight: 1.0, dash: None },
            Layer::Marks { points: thinned(&own.done), sign: Sign::Circle, colour: ink, weight: 0.8 },
        ],
        rows_per_name: 1,
    }];
    panels[0].layers.extend(shades);
    let mut peaks = false;
    for (index, (end, loads)) in own.ends.iter().enumerate().filter(|(_, e)| !e.1.is_empty()) {
        // The panel above says which phases these are.
        let mut layers = timeseries::phases(reading, x);
        timeseries::without_names(&mut layers);
        let mut below = vec![0.0; loads.len()];
        for (kind, (_, colour)) in STACK.iter().enumerate() {
            let mut points = Vec::new();
            for (load, below) in loads.iter().zip(&mut below) {
                let top = *below + load.stack[kind];
                points.push((load.x, *below, top));
                *below = top;
            }
            if let [(x, low, high)] = points[..] {
                // One place has no width: a bar stands for it.
                points = vec![(x * 0.9, low, high), (x * 1.1, low, high)];
            }
            layers.push(Layer::Area { points, colour: colour.tint(0.8) });
        }
        let peak: Vec<(f64, f64)> = loads.iter().filter_map(|l| Some((l.x, l.peak?))).collect();
        peaks |= !peak.is_empty();
        layers.push(Layer::Marks { points: thinned(&peak), sign: Sign::Plus, colour: PEAK, weight: 0.6 });
        layers.push(Layer::Line { points: peak, colour: PEAK, weight: 0.6, dash: Some((3.0, 2.0)) });
        let high = all().map(|answer| peak_of(&answer.ends[index].1)).fold(f64::NEG_INFINITY, f64::max);
        let y = Axis::new(Quantity::new(format!("CPU {end}"), Some(Unit::Ratio)), Spacing::Linear, 0.0, high, false);
        panels.push(Panel { y, layers, rows_per_name: 1 });
    }
    let mut legend: Vec<Entry> = STACK
        .iter()
        .enumerate()
        .filter(|(index, _)| own.ends.iter().any(|e| e.1.iter().any(|l| l.stack[*index] > 0.0)))
        .map(|(_, (kind, colour))| Entry { label: (*kind).to_owned(), key: Key::Patch(colour.tint(0.8)) })
        .collect();
    if peaks {
        let key = Key::Series { colour: PEAK, sign: Some(Sign::Plus), dash: Some((3.0, 2.0)) };
        legend.push(Entry { label: "busiest CPU".to_owned(), key });
    }
    Figure {
        title: options.title(reading, &format!("CPU load and {}", panels[0].y.quantity.label)),
        notes,
        x: axis,
        panels,
        legend,
        colours: None,
        footer: options.footer(reading),
    }
}

fn peak_of(loads: &[Load]) -> f64 {
    let highest = |load: &Load| load.peak.unwrap_or(0.0).max(load.stack.iter().sum());
    series::extent(loads.iter().map(highest)).1
}

/// Message size if it was swept, else time if there are intervals.
fn default_axis(options: &Options) -> Result<&'static str, Error> {
    let wanted = Wanted { numbers: &["local_cpu_ratio"], texts: &["message_bytes"], ..Wanted::default() };
    let sizes = Reading::new(options, &options.input, &options.selection, &wanted)?.distinct("message_bytes").len();
    if sizes > 1 {
        return Ok("message_bytes");
    }
    let intervals = Selection { record: Some("interval".to_owned()), ..options.selection.clone() };
    let timed = !Reading::new(options, &options.input, &intervals, &wanted)?.records.is_empty();
    Ok(if timed { "start_s" } else { "message_bytes" })
}

/// At most some thirty points: signs that touch say nothing.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    points.iter().step_by(points.len().div_ceil(32).max(1)).copied().collect()
}
