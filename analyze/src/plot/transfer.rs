//! `signature` and `saturation`: NetPIPE's two pictures of transfer times and rates of messages.

use super::{
    axis::Axis,
    canvas::{Colour, Point as Place},
    figure::{Drawing, Figure, Points},
    layer::Layer,
    legend::{self, Entry, Look},
    options::Options,
    quantity::{Quantity, Spacing},
    records::{Columns, Record, Records},
    series::{self, Centre, Condense, Point, Series},
};
use crate::{
    error::Error,
    table::{cells, output::CsvCell},
};
use schemas::units::{Unit, human};

/// The latency column: the mean, or `-y` (`latency.min` and `latency.p50` suffer less from a busy machine).
fn latency_column(options: &Options) -> Result<&str, Error> {
    match options.y.as_deref() {
        None => Ok("latency_mean_us"),
        Some(name) if name.starts_with("latency") => Ok(name),
        Some(other) => Err(Error::Usage(format!(
            "-y `{other}`: this picture takes its times from a latency column, for example latency.p50, or from throughput"
        ))),
    }
}

/// The rates of a picture.
pub struct Transfers {
    pub records: Records,
    /// Payload rate (bit/s) against message size (bytes), by series.
    pub own: Vec<Series>,
    /// These and those of `--same-scale`: the axes have room for all.
    pub scale: Vec<Series>,
}

impl Transfers {
    pub fn read(options: &Options) -> Result<Self, Error> {
        let along = ["message_bytes", "request_bytes", "response_bytes", "receive_bytes"];
        let latency = latency_column(options)?;
        let numbers = ["message_bytes", "request_bytes", "response_bytes", "throughput_bits_per_s", latency];
        let columns = Columns { optional: &numbers, along: &along, lines: true, ..Columns::default() };
        let ((records, own), others) = options.with_same_scale(|input, _| {
            let mut records = Records::new(options, input, &options.selection, &columns)?;
            records.keep_those_with("a size and a time", |records, record| {
                size(records, record, latency).is_some() && rate(records, record, latency).is_some()
            });
            let rates = rates(&records, options);
            Ok((records, rates))
        })?;
        records.nothing_to_draw(own.is_empty(), options, &["message_bytes", "throughput_bits_per_s"])?;
        series::not_too_many(own.len(), &records)?;
        let scale = own.iter().cloned().chain(others.into_iter().flat_map(|(_, rates)| rates)).collect();
        Ok(Self { records, own, scale })
    }
}

/// Payload rate (bit/s) against message size (bytes), by series.
///
/// A round trip with equal request and response carries the message once each way, so a transfer takes half of it
/// (Snell, Mikler and Gustafson, "NetPIPE: A Network Protocol Independent Performance Evaluator", 1996). The message of
/// a stream takes its bits over the throughput.
fn rates(records: &Records, options: &Options) -> Vec<Series> {
    let latency = latency_column(options).unwrap_or("latency_mean_us");
    series::gather(records, &condense(records, options), |r| size(records, r, latency), |r| rate(records, r, latency))
        .into_iter()
        .filter(|s| !s.points.is_empty())
        .collect()
}

/// The smallest latency belongs to the largest rate: NetPIPE keeps the fastest trial.
pub fn condense(records: &Records, options: &Options) -> Condense {
    let latency = latency_column(options).unwrap_or("latency_mean_us");
    let how = Condense::of(options, latency);
    let centre = match how.centre {
        _ if !records.list.iter().all(|r| is_round_trip(records, r, latency)) => Centre::Mean,
        Centre::Smallest => Centre::Largest,
        Centre::Largest => Centre::Smallest,
        centre => centre,
    };
    Condense { centre, ..how }
}

fn is_round_trip(records: &Records, record: &Record, latency: &str) -> bool {
    let (request, response) = (records.number(record, "request_bytes"), records.number(record, "response_bytes"));
    request.is_some() && request == response && records.number(record, latency).is_some()
}

fn size(records: &Records, record: &Record, latency: &str) -> Option<f64> {
    let column = if is_round_trip(records, record, latency) { "request_bytes" } else { "message_bytes" };
    records.number(record, column).filter(|bytes| *bytes > 0.0)
}

fn rate(records: &Records, record: &Record, latency: &str) -> Option<f64> {
    if is_round_trip(records, record, latency) {
        let one_way_s = records.number(record, latency)? / 2.0 / 1e6;
        return (one_way_s > 0.0).then_some(size(records, record, latency)? * 8.0 / one_way_s);
    }
    records.number(record, "throughput_bits_per_s").filter(|rate| *rate > 0.0)
}

/// Time of a message at a rate, microseconds.
pub fn time_us(bytes: f64, bits_per_s: f64) -> f64 {
    bytes * 8.0 / bits_per_s * 1e6
}

/// The note about the points.
fn explain_points(series: &[Series], records: &Records, options: &Options) -> String {
    let how = condense(records, options);
    let note = series::explain(&series.iter().flat_map(|s| &s.points), &how, records);
    match how.centre {
        Centre::Mean | Centre::Median => note,
        // Largest and smallest are those of the rate, which is not what was timed.
        Centre::Largest => note.replacen("largest", "fastest", 1),
        Centre::Smallest => note.replacen("smallest", "slowest", 1),
    }
}

/// The axis of these transfer times, microseconds.
pub fn axis(records: &Records, options: &Options, times: impl Iterator<Item = f64>) -> Axis {
    let (low, high) = series::extent(times);
    let quantity = Quantity::new(title(records, options), Some(Unit::Microseconds));
    let mut axis = Axis::new(quantity, Spacing::Log10, low, high, true);
    axis.truncated = false;
    axis
}

/// The title of an axis of transfer times. Latencies are round trips everywhere else.
fn title(records: &Records, options: &Options) -> &'static str {
    if explain(records, options) == OF_ROUND_TRIPS { "transfer time, half a round trip" } else { "transfer time" }
}

const OF_ROUND_TRIPS: &str = "transfer time: half a round trip";

/// The note on what a transfer time is.
pub fn explain(records: &Records, options: &Options) -> &'static str {
    let latency = latency_column(options).unwrap_or("latency_mean_us");
    let drawn = || records.list.iter().filter(|r| rate(records, r, latency).is_some());
    let round_trips = drawn().filter(|r| is_round_trip(records, r, latency)).count();
    if round_trips == 0 {
        "transfer time: message size over throughput"
    } else if round_trips == drawn().count() {
        OF_ROUND_TRIPS
    } else {
        "transfer time: half a round trip where one was timed, else message size over throughput"
    }
}

/// `signature`: NetPIPE's network signature graph, throughput against transfer time. The curve starts at the latency
/// and rises to the bandwidth.
pub fn draw_signature(options: &Options) -> Result<Drawing, Error> {
    let all = Transfers::read(options)?;
    let mut table = Points::of(&all.own, "message_bytes", "throughput_bits_per_s");
    table.header.push("transfer_time_us".to_owned());
    let times = all.own.iter().flat_map(|s| &s.points).map(|p| time(p).cell());
    for (row, time) in table.rows.iter_mut().zip(times) {
        row.push(time);
    }
    Ok(Drawing::new(figure_of_signature(options, &all), table, &all.records))
}

fn time(point: &Point) -> f64 {
    time_us(point.x, point.y)
}

fn figure_of_signature(options: &Options, Transfers { records, own: series, scale }: &Transfers) -> Figure {
    let points = || scale.iter().flat_map(|s| &s.points);
    let x = axis(records, options, points().map(time));
    let (low, high) = series::span(points(), options.log_y());
    let y = Axis::new(Quantity::of_column("throughput_bits_per_s"), options.spacing_y(), low, high, options.zoom);
    // The curve goes by size: it rightly turns back where larger messages were faster.
    let (layers, legend) = series::curves(series, time);
    let mut notes = vec![explain_points(series, records, options)];
    if let [one] = &series[..]
        && let Some(first) = one.points.first()
        && let Some(peak) = one.points.iter().max_by(|a, b| a.y.total_cmp(&b.y))
    {
        let latency = human(Unit::Microseconds, time(first));
        notes.push(format!("latency {latency} at {}", human(Unit::Bytes, first.x)));
        notes.push(format!("peak {} at {}", human(Unit::BitsPerSecond, peak.y), human(Unit::Bytes, peak.x)));
    }
    notes.push(explain(records, options).to_owned());
    Figure { notes, legend, ..Figure::new(options, records, "network signature", x, y, layers) }
}

// `saturation`: NetPIPE's saturation graph, message size against transfer time, both logarithmic. Beyond the knee the
// curve is a straight line: larger messages take longer in proportion and gain nothing.

/// Share of the largest throughput from which on a size saturates.
const SATURATED: f64 = 0.95;

pub fn draw_saturation(options: &Options) -> Result<Drawing, Error> {
    let all = Transfers::read(options)?;
    let points = all.own.iter().flat_map(|one| one.points.iter().map(move |point| (one, point)));
    let rows = points.map(|(one, point)| cells![&one.name, time(point), point.x, point.n]);
    let table = Points::new(&["series", "transfer_time_us", "message_bytes", "n"], rows);
    Ok(Drawing::new(figure_of_saturation(options, &all), table, &all.records))
}

/// Time (µs) and size (bytes) of every point.
fn places(series: &Series) -> Vec<Place> {
    series.points.iter().map(|p| (time_us(p.x, p.y), p.x)).collect()
}

/// The smallest size that saturates.
fn saturation(series: &Series) -> Option<Place> {
    let most = series.points.iter().map(|p| p.y).fold(f64::NEG_INFINITY, f64::max);
    let at = series.points.iter().position(|p| p.y >= SATURATED * most)?;
    places(series).get(at).copied()
}

fn figure_of_saturation(options: &Options, Transfers { records, own: series, scale }: &Transfers) -> Figure {
    let all: Vec<Place> = scale.iter().flat_map(places).collect();
    let x = axis(records, options, all.iter().map(|p| p.0));
    let (low, high) = series::extent(all.iter().map(|p| p.1));
    let y = Axis::new(Quantity::of_column("message_bytes"), Spacing::Log2, low, high, true);
    let mut layers = Vec::new();
    let mut legend = Vec::new();
    for (index, one) in series.iter().enumerate() {
        let look = legend::look(index);
        let Look { colour, sign, dash } = look;
        layers.push(Layer::Line { points: places(one), colour, weight: 1.0, dash });
        layers.push(Layer::Marks { points: places(one), sign, colour, weight: 1.0 });
        if let Some(knee) = saturation(one) {
            if series.len() == 1 {
                let label = format!("saturation at {}", human(Unit::Bytes, knee.1));
                layers.push(Layer::Rule { at: knee.1, upright: false, label, colour: Colour::MUTED });
            } else {
                layers.push(Layer::Marks { points: vec![knee], sign, colour, weight: 2.0 });
            }
        }
        legend.push(Entry { label: one.name.clone(), key: look.key() });
    }
    let large = if series.len() == 1 { "saturation" } else { "large sign" };
    let notes = vec![
        explain_points(series, records, options),
        format!("{large}: first size within {} % of the largest throughput", ((1.0 - SATURATED) * 100.0).round()),
        explain(records, options).to_owned(),
    ];
    Figure { notes, legend, ..Figure::new(options, records, "saturation", x, y, layers) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::series::{Condense, Point};

    #[test]
    fn saturation_is_the_first_size_near_the_top() {
        let rates = [(64.0, 1e9), (1024.0, 8e9), (4096.0, 9.6e9), (65_536.0, 10e9)];
        let points =
            rates.map(|(x, y)| Point::of(x, &[y], &Condense::of(&Options::default(), "throughput")).unwrap()).to_vec();
        let knee = saturation(&Series { name: String::new(), points }).unwrap();
        assert!((knee.1 - 4096.0).abs() < 1e-9);
        assert!((knee.0 - 4096.0 * 8.0 / 9.6e9 * 1e6).abs() < 1e-9);
    }
}
