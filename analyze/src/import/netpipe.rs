//! NetPIPE: the console of versions 2 and 3, and the `np.out` file of version 3.

use schemas::words::LatencyKind;

use super::sheet::{Sheet, measured, number, whole};
use crate::input::ParseError;

/// Whether NetPIPE wrote it.
pub fn looks_like(text: &str) -> bool {
    let console = |l: &str| l.contains(" bytes ") && l.contains(" times -->") && l.contains(" Mbps in ");
    text.lines().any(console) || is_file(text)
}

fn is_file(text: &str) -> bool {
    let mut lines = text.lines().filter(|l| !l.trim().is_empty()).peekable();
    lines.peek().is_some() && lines.all(|l| point(l).is_some())
}

/// A line of `np.out`: bytes, 2^20 bit/s, seconds one way. `None` where the three disagree.
fn point(line: &str) -> Option<(u64, f64, f64)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [bytes, rate, seconds] = words.as_slice() else { return None };
    let (bytes, rate, seconds) = (whole(bytes)?, number(rate)?, number(seconds)?);
    // Times are printed to 10 ns, so short ones have few digits.
    let expected = bytes as f64 * 8.0 / MEBIBIT / rate;
    let ratio = seconds / expected;
    (bytes > 0 && rate > 0.0 && (0.4..2.5).contains(&ratio)).then_some((bytes, rate, seconds))
}

const MEBIBIT: f64 = 1_048_576.0;

/// Reads the points of one sweep.
pub fn read(text: &str, sheet: &mut Sheet) -> Result<(), ParseError> {
    let file = is_file(text);
    for (at, line) in (1..).zip(text.lines()) {
        if line.contains("Integrity check passed") {
            continue;
        }
        let (bytes, rate, one_way, transactions) = if file {
            let Some((bytes, rate, seconds)) = point(line) else { continue };
            (bytes, rate, seconds, None)
        } else if line.contains(" times -->") {
            console(line).ok_or_else(|| ParseError::expected(at, "`N: B bytes T times --> R Mbps in S`", line))?
        } else {
            continue;
        };
        sheet.note(
            "NetPIPE: its Mbps are 2^20 bit/s, here 10^6-based bit/s; its times are half a round trip, here the whole one; \
             it reports the best of its trials",
        );
        let mut row = measured("tcp_pingpong");
        row.message_bytes = Some(bytes);
        row.throughput_bits_per_s = Some(rate * MEBIBIT);
        // Rounded to 10^-6 µs: the file has no more digits, and a binary half would print seventeen.
        row.latency_mean_us = Some((one_way * 2e12).round() / 1e6);
        row.latency_kind = Some(LatencyKind::RoundTrip);
        row.transactions_per_s = (one_way > 0.0).then(|| 1.0 / (2.0 * one_way));
        row.transactions = transactions;
        sheet.add_last(row);
    }
    Ok(())
}

/// `  0:       1 bytes  16036 times -->      1.25 Mbps in       6.10 usec`; version 2 has seconds (`sec`).
fn console(line: &str) -> Option<(u64, f64, f64, Option<u64>)> {
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
    Some((whole(bytes)?, number(rate)?, seconds, whole(times)))
}
