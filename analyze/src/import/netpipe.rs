//! NetPIPE: the console of versions 2 and 3, and the `np.out` file of version 3.

use super::imported::{ImportedRows, number, set_workload, unknown, whole};
use crate::error::ParseError;
use schemas::words::{LatencyKind, Way};

/// Whether NetPIPE wrote it.
pub fn looks_like(text: &str) -> bool {
    text.lines().any(|l| l.contains(" bytes ") && l.contains(" times -->") || l.contains("Client: Cannot Connect!"))
        || is_file(text)
}

fn is_file(text: &str) -> bool {
    let mut lines = text.lines().filter(|l| !l.trim().is_empty()).peekable();
    lines.peek().is_some() && lines.all(|l| point(l).is_some())
}

/// A point of a sweep.
struct Point {
    bytes: u64,
    mebibits: f64,
    seconds: f64,
    times: Option<u64>,
}

/// A line of `np.out`: bytes, 2^20 bit/s, seconds. `None` where the three disagree.
fn point(line: &str) -> Option<Point> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [bytes, rate, seconds] = words.as_slice() else { return None };
    let point = Point { bytes: whole(bytes)?, mebibits: number(rate)?, seconds: number(seconds)?, times: None };
    // Times are printed to 10 ns, so short ones have few digits.
    (point.bytes > 0 && point.mebibits > 0.0 && (0.4..2.5).contains(&point.directions())).then_some(point)
}

const MEBIBIT: f64 = 1_048_576.0;

impl Point {
    /// The rate over that of one direction: 2 for tests in both directions.
    fn directions(&self) -> f64 {
        self.mebibits * MEBIBIT * self.seconds / (self.bytes as f64 * 8.0)
    }
}

/// Options of a sweep. The file does not name them, and its sizes are those of both directions together with `-2`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    PingPong,
    OneWay,
    BothWays,
}

/// Reads the points of one sweep.
pub fn read(text: &str, imported: &mut ImportedRows) -> Result<(), ParseError> {
    let file = is_file(text);
    let mut points = Vec::new();
    for (at, line) in (1..).zip(text.lines()) {
        if line.contains("Client: Cannot Connect!") {
            return Err(ParseError::new(at, format!("NetPIPE failed: {}", line.trim())));
        }
        if line.contains("Integrity check passed") {
            return Err(ParseError::new(at, "an integrity check (-i) measures nothing"));
        }
        let point = if file {
            let Some(point) = point(line) else { continue };
            point
        } else if line.contains(" times -->") {
            console(line).ok_or_else(|| ParseError::expected(at, "`N: B bytes T times --> R Mbps in S`", line))?
        } else {
            continue;
        };
        points.push((at, point));
    }
    let Some((first, _)) = points.first() else { return Ok(()) };
    let said = |words: &str| text.lines().any(|l| l.starts_with(words));
    let given = imported.given.workload.clone();
    let mode = if let Some(given) = given.as_deref().filter(|_| file) {
        match given.rsplit('_').next() {
            Some("stream") => Mode::OneWay,
            Some("duplex") => Mode::BothWays,
            _ => Mode::PingPong,
        }
    } else if said("Streaming in one direction") {
        Mode::OneWay
    } else if said("Passing data in both directions") {
        Mode::BothWays
    } else {
        Mode::PingPong
    };
    // Versions for TCP and SCTP alone print their buffers.
    let transport = given.as_deref().and_then(|w| w.split('_').next()).or(
        if said("Send and receive buffers are ") || said("Send and Recv Buffers are ") { Some("tcp") } else { None },
    );
    let Some(transport) = transport else {
        let reason = "the output does not say which test ran: name it (--workload tcp_pingpong; mpi_pingpong; tcp_stream \
                      for -s; tcp_duplex for -2)";
        return Err(ParseError::new(*first, reason));
    };
    let workload = match mode {
        Mode::PingPong => format!("{transport}_pingpong"),
        Mode::OneWay => format!("{transport}_stream"),
        Mode::BothWays => format!("{transport}_duplex"),
    };
    for (at, point) in points {
        if !file && (point.directions() > 1.5) != (mode == Mode::BothWays) && point.mebibits >= 1.0 {
            let reason = "the rate, the size and the time do not fit together for this test: the output is not whole";
            return Err(ParseError::new(at, reason));
        }
        let mut row = unknown();
        set_workload(&mut row, &workload);
        row.message_bytes = Some(point.bytes);
        row.throughput_bits_per_s = Some(point.mebibits * MEBIBIT);
        match mode {
            Mode::PingPong => {
                // Rounded to 10^-6 µs: the file has no more digits, and a binary half would print seventeen.
                row.latency_mean_us = Some((point.seconds * 2e12).round() / 1e6);
                row.latency_min_us = row.latency_mean_us;
                row.latency_kind = Some(LatencyKind::RoundTrip);
                row.transactions_per_s = (point.seconds > 0.0).then(|| 1.0 / (2.0 * point.seconds));
                row.transactions = point.times;
                imported.note(
                    "NetPIPE: its Mbps are 2^20 bit/s, here 10^6-based bit/s; its times are half a round trip, here the \
                     whole one, as the smallest and the mean: it reports the mean round trip of its fastest trial",
                );
            }
            Mode::OneWay => imported.note("NetPIPE: its Mbps are 2^20 bit/s; it reports the best of its trials"),
            Mode::BothWays => {
                row.direction = Some(Way::Both);
                if file {
                    row.message_bytes = Some(point.bytes / 2);
                }
                imported.note(
                    "NetPIPE -2: its Mbps are 2^20 bit/s, the sum of both directions; it reports the best of its trials",
                );
            }
        }
        imported.add_last(row);
    }
    Ok(())
}

/// `  0:       1 bytes  16036 times -->      1.25 Mbps in       6.10 usec`; version 2 has seconds (`sec`).
fn console(line: &str) -> Option<Point> {
    let (_, rest) = line.split_once(':')?;
    let words: Vec<&str> = rest.split_whitespace().collect();
    let [bytes, "bytes", times, "times", "-->", rate, "Mbps", "in", time, unit] = words.as_slice() else {
        return None;
    };
    let seconds = match *unit {
        "usec" => number(time)? / 1e6,
        "sec" => number(time)?,
        _ => return None,
    };
    Some(Point { bytes: whole(bytes)?, mebibits: number(rate)?, seconds, times: whole(times) })
}
