//! ping: a row per reply, and the summary.

use super::imported::{ImportedRows, count, host, measured, number, set_messages, whole};
use crate::error::ParseError;
use schemas::{
    columns::Row,
    words::{LatencyKind, Status},
};

/// Whether ping wrote it.
pub fn looks_like(text: &str) -> bool {
    text.lines().any(|l| l.starts_with("PING ") || l.starts_with("ping: ") || l.contains(" ping statistics ---"))
}

fn after<'l>(line: &'l str, mark: &str) -> Option<&'l str> {
    line.split_once(mark).and_then(|(_, rest)| rest.split([' ', ',']).next())
}

/// A run whose lines are being read.
struct Run {
    line: usize,
    row: Row,
    /// Times of the single replies, in µs.
    replies: Vec<f64>,
    duplicates: u64,
    has_summary: bool,
}

/// Reads one or more runs.
pub fn read(text: &str, imported: &mut ImportedRows) -> Result<(), ParseError> {
    let mut open: Option<Run> = None;
    for (at, line) in (1..).zip(text.lines()) {
        if let Some(rest) = line.strip_prefix("PING ") {
            finish(open.take(), imported)?;
            let mut row = measured("ping");
            row.to = rest.split([' ', '(']).next().and_then(host);
            // `56(84) bytes of data`; version 6 says `56 data bytes`.
            row.message_bytes = rest
                .split_whitespace()
                .zip(rest.split_whitespace().skip(1))
                .find(|(_, next)| matches!(*next, "bytes" | "data"))
                .and_then(|(word, _)| word.split('(').next().and_then(whole));
            open = Some(Run { line: at, row, replies: Vec::new(), duplicates: 0, has_summary: false });
            continue;
        }
        if let Some(reason) = line.strip_prefix("ping: ").filter(|_| open.is_none()) {
            return Err(ParseError::new(at, format!("ping failed: {reason}")));
        }
        let is_reply = after(line, "time=").is_some();
        let is_summary = line.contains(" packets transmitted, ") || line.contains(" min/avg/max");
        let Some(run) = open.as_mut() else {
            if is_reply || is_summary {
                return Err(ParseError::new(at, "the line `PING …` is missing above: import the whole output of ping"));
            }
            continue;
        };
        if let Some(time) = after(line, "time=") {
            let Some(milliseconds) = number(time.trim_end_matches("ms")) else {
                return Err(ParseError::expected(at, "`time=N ms`", line));
            };
            if line.contains("(DUP!)") {
                run.duplicates += 1;
            } else {
                run.replies.push(milliseconds * 1e3);
            }
        } else if line.contains(" packets transmitted, ") {
            let fault = || ParseError::expected(at, "`N packets transmitted, N received, …`", line);
            let sent = line.split(' ').next().and_then(whole);
            let (_, rest) = line.split_once("transmitted, ").ok_or_else(fault)?;
            let received = rest.split(' ').next().and_then(whole);
            let row = &mut run.row;
            set_messages(row, Some(sent.ok_or_else(fault)?), Some(received.ok_or_else(fault)?), None);
            row.elapsed_s = after(line, ", time ").and_then(|t| number(t.trim_end_matches("ms"))).map(|ms| ms / 1e3);
            // 0 ms is a time too short for the unit.
            row.elapsed_s = row.elapsed_s.filter(|s| *s > 0.0);
            let counted = |what: &str| line.split(", ").find_map(|part| part.strip_prefix('+')?.strip_suffix(what));
            row.errors = counted(" errors").and_then(whole);
            row.duplicated = Some(counted(" duplicates").and_then(whole).unwrap_or(run.duplicates));
            if received == Some(0) {
                row.status = Some(Status::Failed);
                row.error = Some("no reply".to_owned());
            }
            run.has_summary = true;
        } else if line.contains(" min/avg/max") {
            let fault = || ParseError::expected(at, "`rtt min/avg/max/mdev = … ms`", line);
            let (_, values) = line.split_once("= ").ok_or_else(fault)?;
            let mut words = values.split([' ', ',']);
            let figures = words.next().unwrap_or_default();
            if words.next() != Some("ms") {
                return Err(fault());
            }
            let values: Vec<f64> = figures.split('/').map(|v| number(v).ok_or_else(fault)).collect::<Result<_, _>>()?;
            let [min, mean, max, rest @ ..] = values.as_slice() else { return Err(fault()) };
            let row = &mut run.row;
            (row.latency_min_us, row.latency_mean_us) = (Some(min * 1e3), Some(mean * 1e3));
            row.latency_max_us = Some(max * 1e3);
            row.latency_stddev_us = rest.first().map(|v| v * 1e3);
        }
    }
    finish(open, imported)
}

/// Adds the row of a run. ping prints its statistics also when it is interrupted.
fn finish(run: Option<Run>, imported: &mut ImportedRows) -> Result<(), ParseError> {
    let Some(mut run) = run else { return Ok(()) };
    let has_times = run.row.latency_mean_us.is_some() || run.replies.is_empty();
    if !run.has_summary || !has_times {
        return Err(ParseError::new(
            run.line,
            "the run that begins here has no statistics: it was cut off, or is in another language (LC_ALL=C)",
        ));
    }
    imported.add_last(finished(run.row, &mut run.replies));
    Ok(())
}

/// Adds the statistics of the single replies.
pub(super) fn finished(mut row: Row, times: &mut [f64]) -> Row {
    if row.latency_mean_us.is_some() || !times.is_empty() {
        row.latency_kind = Some(LatencyKind::RoundTrip);
    }
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
