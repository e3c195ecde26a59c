//! How long a message takes and how fast that is, for the two pictures NetPIPE made known.

use super::{
    Options,
    reading::{Reading, Record, Wanted},
    series::{self, Series},
};
use crate::{error::Error, table::InputArgs};

/// The round trip's column: the mean, or what `-y` says (`latency.min`, `latency.p50`: less disturbed by a busy machine).
fn latency_column(options: &Options) -> Result<&str, Error> {
    match options.y.as_deref() {
        None => Ok("latency_mean_us"),
        Some(name) if name.starts_with("latency") => Ok(name),
        Some(other) => Err(Error::Usage(format!(
            "-y `{other}`: this picture takes its times from a latency column, for example latency.p50, or from throughput"
        ))),
    }
}

/// What a picture of transfer times shows, and what its axes must have room for.
pub struct Transfers {
    /// The rows of the picture.
    pub reading: Reading,
    /// Payload rate against message size (bit/s against bytes), by series.
    pub own: Vec<Series>,
    /// The same, and those of `--same-scale`.
    pub scale: Vec<Series>,
}

impl Transfers {
    /// Reads the rows from which transfer times can be told.
    pub fn read(options: &Options) -> Result<Self, Error> {
        let reading = read(options, &options.input)?;
        let own = rates(&reading, options);
        options.nothing_to_draw(own.is_empty(), &reading, &["message_bytes", "throughput_bits_per_s"])?;
        let mut scale = own.clone();
        if let Some(others) = options.same_scale_input() {
            scale.extend(rates(&read(options, &others)?, options));
        }
        Ok(Self { reading, own, scale })
    }
}

fn read(options: &Options, input: &InputArgs) -> Result<Reading, Error> {
    let along = ["message_bytes", "request_bytes", "response_bytes", "receive_bytes"];
    let latency = latency_column(options)?;
    let numbers = ["message_bytes", "request_bytes", "response_bytes", "throughput_bits_per_s", latency];
    let wanted = Wanted { optional: &numbers, along: &along, ..Wanted::default() };
    Reading::new(options, input, &options.selection, &wanted)
}

/// Payload rate against message size (bit/s against bytes), by series.
///
/// A round trip with equal request and response carries the message once each way: the transfer takes half of it
/// (Snell, Mikler and Gustafson, "NetPIPE: A Network Protocol Independent Performance Evaluator", 1996). A stream's
/// message takes its bits over the throughput.
fn rates(reading: &Reading, options: &Options) -> Vec<Series> {
    let latency = latency_column(options).unwrap_or("latency_mean_us");
    series::gather(
        reading,
        |r| size(reading, r, latency),
        |r| rate(reading, r, latency),
        options.spread,
        options.confidence,
    )
    .into_iter()
    .filter(|s| !s.points.is_empty())
    .collect()
}

fn is_round_trip(reading: &Reading, record: &Record, latency: &str) -> bool {
    let (request, response) = (reading.number(record, "request_bytes"), reading.number(record, "response_bytes"));
    request.is_some() && request == response && reading.number(record, latency).is_some()
}

fn size(reading: &Reading, record: &Record, latency: &str) -> Option<f64> {
    let column = if is_round_trip(reading, record, latency) { "request_bytes" } else { "message_bytes" };
    reading.number(record, column).filter(|bytes| *bytes > 0.0)
}

fn rate(reading: &Reading, record: &Record, latency: &str) -> Option<f64> {
    if is_round_trip(reading, record, latency) {
        let one_way_s = reading.number(record, latency)? / 2.0 / 1e6;
        return (one_way_s > 0.0).then_some(size(reading, record, latency)? * 8.0 / one_way_s);
    }
    reading.number(record, "throughput_bits_per_s").filter(|rate| *rate > 0.0)
}

/// The time a message of that size takes at that rate, microseconds.
#[must_use]
pub fn time_us(bytes: f64, bits_per_s: f64) -> f64 {
    bytes * 8.0 / bits_per_s * 1e6
}

/// The sentence about what a transfer time is.
#[must_use]
pub fn explain(reading: &Reading, options: &Options) -> &'static str {
    let latency = latency_column(options).unwrap_or("latency_mean_us");
    let drawn = || reading.records.iter().filter(|r| rate(reading, r, latency).is_some());
    let round_trips = drawn().filter(|r| is_round_trip(reading, r, latency)).count();
    if round_trips == 0 {
        "transfer time: message size over throughput"
    } else if round_trips == drawn().count() {
        "transfer time: half a round trip"
    } else {
        "transfer time: half a round trip where one was timed, else message size over throughput"
    }
}
