//! qperf: a test's name, then its figures with units.

use schemas::columns::Row;
use schemas::words::LatencyKind;

use super::sheet::{Sheet, count, measured, number, set_latency};
use crate::input::ParseError;

/// Whether qperf wrote it.
pub fn looks_like(text: &str) -> bool {
    text.lines().any(|l| workload(l).is_some())
}

/// The heading of a test, `tcp_bw:`.
fn heading(line: &str) -> Option<&str> {
    let name = line.trim_end().strip_suffix(':')?;
    let word = !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    word.then_some(name)
}

fn workload(line: &str) -> Option<&'static str> {
    Some(match heading(line)? {
        "tcp_bw" => "tcp_stream",
        "tcp_lat" => "tcp_rr",
        "udp_bw" => "udp_stream",
        "udp_lat" => "udp_rr",
        "sctp_bw" => "sctp_stream",
        "sctp_lat" => "sctp_rr",
        _ => return None,
    })
}

/// `    bw  =  4.05 GB/sec` as name, value and unit.
fn figure(line: &str) -> Option<(&str, f64, &str)> {
    let (name, value) = line.strip_prefix(' ')?.split_once('=')?;
    let value = value.trim();
    let (digits, unit) = value.split_once(' ').unwrap_or((value, ""));
    Some((name.trim(), number(&digits.replace(',', ""))?, unit.trim()))
}

/// Reads every test.
pub fn read(text: &str, sheet: &mut Sheet) -> Result<(), ParseError> {
    let mut current: Option<(usize, Row)> = None;
    let mut foreign = None;
    for (at, line) in (1..).zip(text.lines()) {
        if let Some(name) = heading(line) {
            finish(current.take(), sheet)?;
            current = workload(line).map(|workload| (at, measured(workload)));
            // RDMA and others; `conf` and `quit` measure nothing.
            foreign = Some(name).filter(|_| current.is_none());
            continue;
        }
        if line.contains(": failed to connect") || line.contains(": unable to ") {
            return Err(ParseError::new(at, format!("qperf failed: {}", line.trim())));
        }
        if let (Some(name), Some(("bw" | "send_bw" | "recv_bw" | "latency", ..))) = (foreign, figure(line)) {
            return Err(ParseError::new(at, format!("qperf's test `{name}` has no workload here")));
        }
        let (Some((_, row)), Some((name, value, unit))) = (current.as_mut(), figure(line)) else { continue };
        let unknown = || ParseError::expected(at, "a unit of qperf's", line);
        match name {
            "bw" | "recv_bw" => row.throughput_bits_per_s = Some(bits(value, unit).ok_or_else(unknown)?),
            "send_bw" => row.sent_bits_per_s = Some(bits(value, unit).ok_or_else(unknown)?),
            "latency" => {
                let microseconds = value
                    * match unit {
                        "ns" => 1e-3,
                        "us" => 1.0,
                        "ms" => 1e3,
                        "sec" => 1e6,
                        _ => return Err(unknown()),
                    };
                sheet.note("qperf's latency is half a round trip: doubled");
                set_latency(row, LatencyKind::RoundTrip, microseconds * 2.0);
            }
            "msg_size" => {
                let size = value
                    * match unit.split(' ').next().unwrap_or_default() {
                        "bytes" | "byte" | "" => 1.0,
                        "KiB" => 1024.0,
                        "MiB" => 1_048_576.0,
                        "KB" => 1e3,
                        "MB" => 1e6,
                        _ => return Err(unknown()),
                    };
                row.message_bytes = count(size);
            }
            "time" if unit == "sec" => row.elapsed_s = Some(value),
            // msg_rate repeats bw; the CPU figures are shares of one CPU.
            _ => {}
        }
    }
    finish(current, sheet)
}

/// Adds a test's row, which has a figure.
fn finish(test: Option<(usize, Row)>, sheet: &mut Sheet) -> Result<(), ParseError> {
    let Some((line, row)) = test else { return Ok(()) };
    if row.throughput_bits_per_s.or(row.latency_mean_us).is_none() {
        return Err(ParseError::new(line, "the test that begins here has no result: it failed, or was cut off"));
    }
    sheet.add_last(row);
    Ok(())
}

/// qperf's prefixes are decimal.
fn bits(value: f64, unit: &str) -> Option<f64> {
    let (prefix, bits) = match unit.split_once('/')? {
        (amount, "sec") => match (amount.strip_suffix("bytes"), amount.strip_suffix('B'), amount.strip_suffix('b')) {
            (Some(prefix), ..) | (_, Some(prefix), _) => (prefix.trim(), 8.0),
            (_, _, Some(prefix)) => (prefix, 1.0),
            _ => return None,
        },
        _ => return None,
    };
    let factor = match prefix {
        "" => 1.0,
        "K" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        _ => return None,
    };
    Some(value * bits * factor)
}
