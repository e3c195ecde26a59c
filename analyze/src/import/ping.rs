//! ping: a row per reply, and the summary.

use schemas::columns::Row;
use schemas::words::{LatencyKind, Status};

use super::sheet::{Sheet, count, measured, number, set_messages, whole};
use crate::input::ParseError;

/// Whether ping wrote it.
pub fn looks_like(text: &str) -> bool {
    text.lines().any(|l| l.starts_with("PING ") || l.contains(" ping statistics ---"))
}

fn after<'l>(line: &'l str, mark: &str) -> Option<&'l str> {
    line.split_once(mark).and_then(|(_, rest)| rest.split([' ', ',']).next())
}

/// Reads one or more runs.
pub fn read(text: &str, sheet: &mut Sheet) -> Result<(), ParseError> {
    let mut open = None;
    let mut replies: Vec<f64> = Vec::new();
    let mut duplicates = 0;
    for (at, line) in (1..).zip(text.lines()) {
        if let Some(rest) = line.strip_prefix("PING ") {
            if let Some(row) = open.take() {
                sheet.add_last(finished(row, &mut replies, &mut duplicates));
            }
            let mut row = measured("ping");
            let host = rest.split([' ', '(']).next().filter(|h| !h.is_empty());
            row.to = host.map(str::to_owned);
            // `56(84) bytes of data`; version 6 says `56 data bytes`.
            row.message_bytes = rest
                .split_whitespace()
                .zip(rest.split_whitespace().skip(1))
                .find(|(_, next)| matches!(*next, "bytes" | "data"))
                .and_then(|(word, _)| word.split('(').next().and_then(whole));
            open = Some(row);
        } else if let Some(time) = after(line, "time=") {
            let number_of = |text: &str| number(text.trim_end_matches("ms"));
            let Some(milliseconds) = number_of(time) else {
                return Err(ParseError::expected(at, "`time=N ms`", line));
            };
            if line.contains("(DUP!)") {
                duplicates += 1;
            } else {
                replies.push(milliseconds * 1e3);
            }
            open.get_or_insert_with(|| measured("ping"));
        } else if line.contains(" packets transmitted, ") {
            let fault = || ParseError::expected(at, "`N packets transmitted, N received, …`", line);
            let row = open.get_or_insert_with(|| measured("ping"));
            let sent = line.split(' ').next().and_then(whole);
            let (_, rest) = line.split_once("transmitted, ").ok_or_else(fault)?;
            let received = rest.split(' ').next().and_then(whole);
            set_messages(row, Some(sent.ok_or_else(fault)?), Some(received.ok_or_else(fault)?), None);
            row.elapsed_s = after(line, ", time ").and_then(|t| number(t.trim_end_matches("ms"))).map(|ms| ms / 1e3);
            if received == Some(0) {
                row.status = Some(Status::Failed);
                row.error = Some("no reply".to_owned());
            }
        } else if line.contains(" min/avg/max") {
            let fault = || ParseError::expected(at, "`rtt min/avg/max/mdev = … ms`", line);
            let row = open.get_or_insert_with(|| measured("ping"));
            let (_, values) = line.split_once("= ").ok_or_else(fault)?;
            let values: Vec<f64> = values
                .split(' ')
                .next()
                .unwrap_or_default()
                .split('/')
                .map(|v| number(v).ok_or_else(fault))
                .collect::<Result<_, _>>()?;
            let [min, mean, max, rest @ ..] = values.as_slice() else { return Err(fault()) };
            (row.latency_min_us, row.latency_mean_us) = (Some(min * 1e3), Some(mean * 1e3));
            row.latency_max_us = Some(max * 1e3);
            row.latency_stddev_us = rest.first().map(|v| v * 1e3);
        }
    }
    if let Some(row) = open {
        sheet.add(finished(row, &mut replies, &mut duplicates));
    }
    Ok(())
}

/// Adds the statistics of the single replies.
fn finished(mut row: Row, replies: &mut Vec<f64>, duplicates: &mut u64) -> Row {
    let mut times = std::mem::take(replies);
    row.duplicated = Some(std::mem::take(duplicates)).filter(|_| !times.is_empty());
    row.latency_kind = Some(LatencyKind::RoundTrip);
    if times.is_empty() {
        return row;
    }
    times.sort_by(f64::total_cmp);
    // Nearest rank: the smallest time that at least this share of the replies did not exceed. `None` where no reply
    // lies beyond it.
    let rank = |share: f64| {
        (times.len() as f64 * (1.0 - share) >= 0.999).then_some(())?;
        let at = count((share * times.len() as f64).ceil()).unwrap_or(1).max(1);
        usize::try_from(at - 1).ok().and_then(|at| times.get(at)).copied()
    };
    row.latency_p50_us = rank(0.5);
    row.latency_p90_us = rank(0.9);
    row.latency_p95_us = rank(0.95);
    row.latency_p99_us = rank(0.99);
    let mean = times.iter().sum::<f64>() / times.len() as f64;
    row.latency_mean_us = row.latency_mean_us.or(Some(mean));
    row.latency_min_us = row.latency_min_us.or(times.first().copied());
    row.latency_max_us = row.latency_max_us.or(times.last().copied());
    row.transactions = Some(times.len() as u64);
    row
}
