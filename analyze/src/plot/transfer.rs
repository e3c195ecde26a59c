//! Transfer times and rates of messages, for NetPIPE's two pictures.

use schemas::units::Unit;

use super::{
    axis::Axis,
    options::Options,
    quantity::Quantity,
    records::{Columns, Record, Records},
    series::{self, Centre, Condense, Series},
    spacing::Spacing,
};
use crate::error::Error;

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
pub fn explain_points(series: &[Series], records: &Records, options: &Options) -> String {
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
