//! `cpu`: CPU time of both ends, stacked by kind, under the work done. hpcbench draws its system log like this.

use super::{
    axis::Axis,
    canvas::{Colour, Sign},
    figure::{Drawing, Figure, Panel, Points},
    layer::Layer,
    legend::{Entry, Key},
    options::Options,
    quantity::{Quantity, Spacing},
    records::{Columns, Record, Records, Wanted},
    series, timeseries,
};
use crate::{
    error::Error,
    stats::moments,
    table::{InputArgs, Record as RecordKind, Selection, cells, output::CsvCell},
};
use schemas::{metrics::Range, units::Unit};

/// Kinds of CPU time from the bottom up, with their colours. Idle time and waiting for disks are left out.
const STACK: [(&str, Colour); 5] = [
    ("user", Colour(0x00, 0x72, 0xb2)),
    ("system", Colour(0xe6, 0x9f, 0x00)),
    ("softirq", Colour(0x00, 0x9e, 0x73)),
    ("irq", Colour(0xcc, 0x79, 0xa7)),
    ("steal", Colour(0x99, 0x99, 0x99)),
];

const PEAK: Colour = Colour(0x00, 0x00, 0x00);

/// CPU shares of one end at one place along x.
struct Load {
    x: f64,
    stack: [f64; 5],
    peak: Option<f64>,
}

/// The columns to draw and the rows that count.
struct Question<'a> {
    x: &'a str,
    work: &'a str,
    selection: Selection,
}

/// The values of one input.
struct Answer {
    records: Records,
    /// Place along x, and the work done there.
    done: Vec<(f64, f64)>,
    /// `from` and `to`.
    ends: [(&'static str, Vec<Load>); 2],
}

pub fn draw(options: &Options) -> Result<Drawing, Error> {
    let x = match options.x.as_deref() {
        Some(x) => x,
        None => default_axis(options)?,
    };
    let selection = if x == "start_s" { options.intervals() } else { options.selection.clone() };
    let question = Question { x, work: options.y.as_deref().unwrap_or("throughput_bits_per_s"), selection };
    let (own, others) = options.with_same_scale(|input, _| question.ask(options, input))?;
    let header: Vec<&str> = ["end", x].into_iter().chain(STACK.map(|s| s.0)).chain(["peak"]).collect();
    let loads = own.ends.iter().flat_map(|(end, loads)| loads.iter().map(move |load| (*end, load)));
    let rows = loads
        .map(|(end, load)| [&cells![end, load.x][..], &load.stack.map(CsvCell::cell), &cells![load.peak]].concat());
    let table = Points::new(&header, rows);
    Ok(Drawing::new(figure(options, &question, &own, others.as_ref()), table, &own.records))
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
        let along: &[&str] = if timed { &["phase"] } else { &[] };
        let axis = [Wanted::Column(x)];
        let columns = Columns {
            metric: Wanted::Column(work),
            axes: if timed { &[] } else { &axis },
            numeric_axes: true,
            numbers: if timed { &["start_s", "local_cpu_ratio"] } else { &["local_cpu_ratio"] },
            optional: &optional,
            texts: &["phase"],
            along,
            lines: true,
            ..Columns::default()
        };
        let mut records = Records::new(options, input, &self.selection, &columns)?;
        records.nothing_to_draw(records.list.is_empty(), options, &[x, work, "local_cpu_ratio"])?;
        records.one_case("the CPU load is drawn for one case")?;
        if timed {
            records.keep_first("iteration");
        }
        // Rows by place along x.
        let mut places: Vec<(f64, Vec<&Record>)> = Vec::new();
        let mut rows: Vec<(f64, &Record)> =
            records.list.iter().filter_map(|r| Some((records.number(r, x)?, r))).collect();
        rows.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (place, row) in rows {
            match places.last_mut() {
                Some(last) if last.0.total_cmp(&place).is_eq() => last.1.push(row),
                _ => places.push((place, vec![row])),
            }
        }
        let mean = |rows: &[&Record], column: &str| {
            moments::mean(&rows.iter().filter_map(|r| records.number(r, column)).collect::<Vec<_>>())
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
        Ok(Answer { records, done, ends })
    }
}

fn figure(options: &Options, question: &Question<'_>, own: &Answer, others: Option<&Answer>) -> Figure {
    let (x, records) = (question.x, &own.records);
    let all = || std::iter::once(own).chain(others);
    let mut axis = if x == "start_s" {
        let time = Quantity::new("time since the measurement began", Some(Unit::Seconds));
        let ends = all().flat_map(|answer| {
            answer.records.list.iter().filter_map(|r| {
                let start = answer.records.number(r, x)?;
                Some([start, start + answer.records.number(r, "elapsed_s").unwrap_or(0.0)])
            })
        });
        let (from, to) = series::extent(ends.flatten());
        Axis::exact(time, Spacing::Linear, from, to)
    } else {
        let quantity = records.quantity(x);
        let spacing = options.spacing_x(&quantity);
        let (from, to) = series::extent(all().flat_map(|answer| &answer.done).map(|p| p.0));
        Axis::new(quantity, spacing, from, to, true)
    };
    axis.truncated = false;
    let (low, high) = series::extent(all().flat_map(|answer| &answer.done).map(|p| p.1));
    let shades = timeseries::shades(records, x);
    let mut notes =
        vec!["stacked: share of all CPUs, 100 % is all of them busy; dashed: the busiest CPU alone".to_owned()];
    notes.extend(timeseries::note(&shades));
    // Room above the curve for the names of the phases.
    let high = if shades.is_empty() { high } else { high * 1.25 };
    let ink = Colour(0x00, 0x72, 0xb2);
    let work = Axis::new(records.quantity(question.work), Spacing::Linear, low, high, options.zoom);
    let what = format!("CPU load and {}", work.quantity.label);
    let mut layers = vec![
        Layer::Line { points: own.done.clone(), colour: ink, weight: 1.0, dash: None },
        Layer::Marks { points: thinned(&own.done), sign: Sign::Circle, colour: ink, weight: 0.8 },
    ];
    layers.extend(shades);
    let mut figure = Figure { notes, ..Figure::new(options, records, &what, axis, work, layers) };
    let mut peaks = false;
    for (index, (end, loads)) in own.ends.iter().enumerate().filter(|(_, e)| !e.1.is_empty()) {
        // The panel above names the phases.
        let mut layers = timeseries::shades(records, x);
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
                // A single place has no width, so a bar shows it.
                points = vec![(x * 0.9, low, high), (x * 1.1, low, high)];
            }
            layers.push(Layer::Area { points, colour: colour.tint(0.8) });
        }
        let peak: Vec<(f64, f64)> = loads.iter().filter_map(|l| Some((l.x, l.peak?))).collect();
        peaks |= !peak.is_empty();
        layers.push(Layer::Marks { points: thinned(&peak), sign: Sign::Plus, colour: PEAK, weight: 0.6 });
        layers.push(Layer::Line { points: peak, colour: PEAK, weight: 0.6, dash: Some((3.0, 2.0)) });
        let high = all().map(|answer| peak_of(&answer.ends[index].1)).fold(f64::NEG_INFINITY, f64::max);
        let y = Axis::new(
            Quantity::new(format!("CPU {end}"), Some(Unit::Ratio)).within(Range::SHARE),
            Spacing::Linear,
            0.0,
            high,
            false,
        );
        figure.panels.push(Panel { y, layers, rows_per_name: 1, remark: "" });
    }
    figure.legend = STACK
        .iter()
        .enumerate()
        .filter(|(index, _)| own.ends.iter().any(|e| e.1.iter().any(|l| l.stack[*index] > 0.0)))
        .map(|(_, (kind, colour))| Entry { label: (*kind).to_owned(), key: Key::Patch(colour.tint(0.8)) })
        .collect();
    if peaks {
        let key = Key::Series { colour: PEAK, sign: Some(Sign::Plus), dash: Some((3.0, 2.0)) };
        figure.legend.push(Entry { label: "busiest CPU".to_owned(), key });
    }
    figure
}

fn peak_of(loads: &[Load]) -> f64 {
    let highest = |load: &Load| load.peak.unwrap_or(0.0).max(load.stack.iter().sum());
    series::extent(loads.iter().map(highest)).1
}

/// The default: message size if it was swept, else time if there are interval rows.
fn default_axis(options: &Options) -> Result<&'static str, Error> {
    if options.input.files.iter().all(|file| file.as_os_str() == "-") {
        return Err(Error::Usage(
            "a table from standard input is read only once: name the axis with -x message_bytes or -x start_s"
                .to_owned(),
        ));
    }
    let columns = Columns { numbers: &["local_cpu_ratio"], texts: &["message_bytes"], ..Columns::default() };
    let sizes = Records::new(options, &options.input, &options.selection, &columns)?.distinct("message_bytes").len();
    if sizes > 1 {
        return Ok("message_bytes");
    }
    let intervals = Selection { record: Some(RecordKind::Interval.to_string()), ..options.selection.clone() };
    let timed = !Records::new(options, &options.input, &intervals, &columns)?.list.is_empty();
    Ok(if timed { "start_s" } else { "message_bytes" })
}

/// At most 32 points, so that signs do not touch.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    points.iter().step_by(points.len().div_ceil(32).max(1)).copied().collect()
}
