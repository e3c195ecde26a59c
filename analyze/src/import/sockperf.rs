//! sockperf: ping-pong, under-load and throughput.

use schemas::words::LatencyKind;

use super::sheet::{Sheet, count, number, set_workload, unknown};
use crate::input::ParseError;

/// Whether sockperf wrote it.
pub fn looks_like(text: &str) -> bool {
    text.lines().any(|l| l.starts_with("sockperf:"))
}

/// Removes the terminal's colours.
fn plain(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(start) = rest.find('\u{1b}') {
        out.push_str(&rest[..start]);
        let after = &rest[start..];
        let end = after.find('m').map_or(after.len(), |at| at + 1);
        rest = &after[end..];
    }
    out + rest
}

/// The value of `name=value` in a line.
fn field(line: &str, name: &str) -> Option<f64> {
    let (_, rest) = line.split_once(name)?;
    let rest = rest.trim_start_matches([' ', '=']);
    let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
    number(&rest[..end])
}

/// Reads one run.
pub fn read(text: &str, sheet: &mut Sheet) -> Result<(), ParseError> {
    let mut row = unknown();
    let (mut latency, mut throughput) = (false, false);
    let mut half = true;
    for (at, line) in (1..).zip(text.lines()) {
        let line = plain(line);
        let fault = || ParseError::expected(at, "a result of sockperf's", &line);
        if line.contains("sockperf: ERROR: ") || line.contains("No messages were received") {
            return Err(ParseError::new(at, format!("sockperf failed: {}", line.trim_start_matches("sockperf: "))));
        }
        if line.contains("No valid observations found") {
            return Err(ParseError::new(at, "sockperf found no valid observations: nothing was measured"));
        }
        if line.contains("Warmup stage") && (latency || throughput) {
            return Err(ParseError::new(at, "a second run begins here: import each as a file of its own"));
        }
        if line.contains("IP = ") && line.contains("PORT = ") {
            let transport = line.rsplit('#').next().map(|t| t.trim().to_ascii_lowercase());
            row.transport = transport.filter(|t| !t.is_empty());
            row.to = line.split("IP = ").nth(1).and_then(|r| r.split_whitespace().next()).map(str::to_owned);
        } else if line.contains("[Valid Duration]") {
            row.elapsed_s = field(&line, "RunTime");
            row.messages_sent = field(&line, "SentMessages").and_then(count);
            row.messages_received = field(&line, "ReceivedMessages").and_then(count);
        } else if line.contains("# dropped messages") {
            row.lost = field(&line, "dropped messages").and_then(count);
            row.duplicated = field(&line, "duplicated messages").and_then(count);
            row.reordered = field(&line, "out-of-order messages").and_then(count);
        } else if line.contains("avg-latency") || line.contains("avg-rtt") {
            half = line.contains("avg-latency");
            let name = if half { "avg-latency" } else { "avg-rtt" };
            row.latency_mean_us = Some(field(&line, name).ok_or_else(fault)?);
            row.latency_stddev_us = field(&line, "std-dev");
            latency = true;
        } else if line.contains("observation = ") || line.contains("---> percentile") {
            let value = line.rsplit('=').next().and_then(|v| number(v.trim())).ok_or_else(fault)?;
            let slot = match line.split("---> ").nth(1).unwrap_or_default() {
                l if l.starts_with("<MIN>") => &mut row.latency_min_us,
                l if l.starts_with("<MAX>") => &mut row.latency_max_us,
                l if l.starts_with("percentile 99.900") => &mut row.latency_p999_us,
                l if l.starts_with("percentile 99.000") => &mut row.latency_p99_us,
                l if l.starts_with("percentile 95.000") => &mut row.latency_p95_us,
                l if l.starts_with("percentile 90.000") => &mut row.latency_p90_us,
                l if l.starts_with("percentile 50.000") => &mut row.latency_p50_us,
                _ => continue,
            };
            *slot = Some(value);
        } else if line.contains("Summary: Message Rate is") {
            field(&line, "Message Rate is").ok_or_else(fault)?;
            throughput = true;
        } else if line.contains("Summary: BandWidth is") {
            let mebibytes = field(&line, "BandWidth is").ok_or_else(fault)?;
            row.sent_bits_per_s = Some(mebibytes * 8.0 * 1_048_576.0);
        } else if line.contains("Total of ") && line.contains(" messages sent in ") {
            row.messages_sent = field(&line, "Total of").and_then(count);
        } else if let Some(size) = line.split("msg-size=").nth(1).filter(|_| line.contains("NOTE: test was performed"))
        {
            row.message_bytes = size.split(|c: char| !c.is_ascii_digit()).next().and_then(|d| d.parse().ok());
        }
    }
    if !latency && !throughput {
        return Err(ParseError::new(0, "sockperf was cut off before its summary"));
    }
    let Some(transport) = row.transport.clone() else {
        return Err(ParseError::new(0, "the line with sockperf's address and protocol is missing (`IP = … # TCP`)"));
    };
    if latency {
        set_workload(&mut row, &format!("{transport}_rr"));
        row.latency_kind = Some(LatencyKind::RoundTrip);
        if half {
            sheet.note("sockperf's latencies are half a round trip: doubled");
            for slot in [
                &mut row.latency_min_us,
                &mut row.latency_mean_us,
                &mut row.latency_p50_us,
                &mut row.latency_p90_us,
                &mut row.latency_p95_us,
                &mut row.latency_p99_us,
                &mut row.latency_p999_us,
                &mut row.latency_max_us,
                &mut row.latency_stddev_us,
            ] {
                *slot = slot.map(|v| v * 2.0);
            }
        }
        row.transactions = row.messages_received;
        row.transactions_per_s =
            row.messages_received.zip(row.elapsed_s).filter(|(_, s)| *s > 0.0).map(|(n, s)| n as f64 / s);
    } else {
        set_workload(&mut row, &format!("{transport}_stream"));
        sheet.note("sockperf's throughput test counts at the sender only, in MB of 2^20 bytes: see sent_bits_per_s");
    }
    sheet.add(row);
    Ok(())
}
