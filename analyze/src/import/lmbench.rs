//! lmbench: the one-line results of `bw_*` and `lat_*`.

use schemas::columns::Row;
use schemas::words::{LatencyKind, Way};

use super::sheet::{Sheet, count, measured, number};
use crate::input::ParseError;

/// Result lines: start, workload, meaning of the number.
const LINES: &[(&str, &str, Kind)] = &[
    ("TCP latency using ", "tcp_rr", Kind::RoundTrip),
    ("UDP latency using ", "udp_rr", Kind::RoundTrip),
    ("TCP/IP connection cost to ", "tcp_cc", Kind::Connect),
    ("AF_UNIX sock stream latency", "unix_rr", Kind::RoundTrip),
    ("UNIX connection cost", "unix_cc", Kind::Connect),
    ("Pipe latency", "pipe_rr", Kind::RoundTrip),
    ("Fifo latency", "pipe_rr", Kind::RoundTrip),
    ("RPC/tcp latency using ", "tcp_rr", Kind::RoundTrip),
    ("RPC/udp latency using ", "udp_rr", Kind::RoundTrip),
    ("AF_UNIX sock stream bandwidth", "unix_stream", Kind::Bandwidth),
    ("Pipe bandwidth", "pipe_stream", Kind::Bandwidth),
    ("socket UDP bandwidth using ", "udp_stream", Kind::Bandwidth),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    RoundTrip,
    Connect,
    Bandwidth,
}

/// Whether lmbench wrote it.
pub fn looks_like(text: &str) -> bool {
    text.lines().any(|l| {
        LINES.iter().any(|(start, ..)| l.trim_start().starts_with(start)) || bandwidth(l).is_some() || refused(l)
    })
}

/// `bw_tcp` and `lat_tcp` without their server.
fn refused(line: &str) -> bool {
    line.starts_with("socket connection: ")
}

/// `0.065536 1915.97 MB/sec` of `bw_tcp`: message size in 10^6 bytes, 10^6 bytes per second.
fn bandwidth(line: &str) -> Option<(f64, f64)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [megabytes, rate, "MB/sec"] = words.as_slice() else { return None };
    Some((number(megabytes)?, number(rate)?))
}

/// Reads result lines; other lines come from the shell.
pub fn read(text: &str, sheet: &mut Sheet) -> Result<(), ParseError> {
    for (at, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if refused(line) {
            return Err(ParseError::new(at, format!("lmbench failed: {line}")));
        }
        let row = if let Some((megabytes, rate)) = bandwidth(line) {
            let mut row = measured("tcp_stream");
            row.message_bytes = count(megabytes * 1e6);
            // bw_tcp's server writes, and its client reads.
            row.direction = Some(Way::Reverse);
            row.throughput_bits_per_s = Some(rate * 8e6);
            sheet.note("lmbench's MB are 10^6 bytes; it reports the median of its repetitions");
            row
        } else if let Some((start, workload, kind)) = LINES.iter().find(|(start, ..)| line.starts_with(start)) {
            one(line, start, workload, *kind, at, sheet)?
        } else {
            continue;
        };
        sheet.add_last(row);
    }
    Ok(())
}

fn one(
    line: &str,
    start: &str,
    workload: &str,
    kind: Kind,
    line_number: usize,
    sheet: &mut Sheet,
) -> Result<Row, ParseError> {
    let fault = || ParseError::expected(line_number, "`what: VALUE UNIT`", line);
    let (head, tail) = line.rsplit_once(':').ok_or_else(fault)?;
    let words: Vec<&str> = tail.split_whitespace().collect();
    let [value, unit] = words.as_slice() else { return Err(fault()) };
    let value = number(value).ok_or_else(fault)?;
    let mut row = measured(workload);
    let host = head.get(start.len()..).map(str::trim).filter(|h| !h.is_empty());
    row.to = host.map(str::to_owned);
    match (kind, *unit) {
        (Kind::Bandwidth, "MB/sec") => {
            row.throughput_bits_per_s = Some(value * 8e6);
            sheet.note("lmbench's MB are 10^6 bytes; it reports the median of its repetitions");
        }
        (Kind::RoundTrip | Kind::Connect, "microseconds") => {
            let kind = if kind == Kind::Connect { LatencyKind::Connect } else { LatencyKind::RoundTrip };
            // No rate: with -P several processes ran, and the output does not say so.
            (row.latency_mean_us, row.latency_kind) = (Some(value), Some(kind));
            sheet.note("lmbench's latencies are round trips, the median of its repetitions of their mean");
        }
        _ => return Err(fault()),
    }
    Ok(row)
}
