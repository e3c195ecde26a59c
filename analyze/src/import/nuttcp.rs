//! nuttcp: its summary lines, its intervals (`-i`), and `-fparse`.

use schemas::columns::Row;
use schemas::words::Record;

use super::sheet::{Sheet, count, measured, number, set_messages};
use crate::input::ParseError;

/// Whether nuttcp wrote it.
pub fn looks_like(text: &str) -> bool {
    text.lines().any(|l| l.starts_with("megabytes=") || (l.contains(" MB / ") && l.contains(" Mbps")))
}

const MEBIBYTE: f64 = 1_048_576.0;

/// Reads every run: intervals, then their summary.
pub fn read(text: &str, sheet: &mut Sheet) -> Result<(), ParseError> {
    let mut start = 0.0;
    for (at, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        let row = if line.starts_with("megabytes=") {
            Some(
                parsed(line)
                    .ok_or_else(|| ParseError::expected(at, "`megabytes=… real_seconds=… rate_Mbps=…`", line))?,
            )
        } else if line.contains(" MB / ") {
            Some(summary(line).ok_or_else(|| ParseError::expected(at, "`N MB / S sec = R Mbps …`", line))?)
        } else {
            None
        };
        let Some(mut row) = row else { continue };
        sheet.note("nuttcp's MB are 2^20 bytes, its Mbps 10^6 bit/s");
        // An interval has no CPU shares.
        let interval = !line.contains(" %TX") && !line.starts_with("megabytes=");
        if interval {
            row.record = Some(Record::Interval);
            row.start_s = Some(start);
            start += row.elapsed_s.unwrap_or_default();
            sheet.add(row);
        } else {
            start = 0.0;
            sheet.add_last(row);
        }
    }
    Ok(())
}

/// ` 3749.5000 MB /   1.00 sec = 31456.1999 Mbps 98 %TX 72 %RX 0 retrans 0.09 msRTT`; for UDP `0 / 763 drop/pkt`.
fn summary(line: &str) -> Option<Row> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let before = |name: &str| {
        let at = words.iter().position(|w| *w == name)?;
        number(words.get(at.checked_sub(1)?)?)
    };
    let drops = words.iter().position(|w| matches!(*w, "drop/pkt" | "~drop/pkt"));
    let mut row = figures(drops.is_some(), ["MB", "sec", "Mbps", "retrans", "msRTT"], before)?;
    if let Some(at) = drops {
        let cell = |back: usize| words.get(at.checked_sub(back)?).and_then(|w| number(w)).and_then(count);
        set_messages(&mut row, Some(cell(1)?), None, Some(cell(3)?));
    }
    Some(row)
}

/// `megabytes=3749.5 real_seconds=1.00 rate_Mbps=31456.2 … retrans=0 rtt_ms=0.09`; for UDP `drop=0 pkt=763`.
fn parsed(line: &str) -> Option<Row> {
    let value = |name: &str| {
        line.split_whitespace().find_map(|w| w.split_once('=').filter(|(k, _)| *k == name)).and_then(|(_, v)| number(v))
    };
    let names = ["megabytes", "real_seconds", "rate_Mbps", "retrans", "rtt_ms"];
    let mut row = figures(value("drop").is_some(), names, value)?;
    if let (Some(lost), Some(sent)) = (value("drop").and_then(count), value("pkt").and_then(count)) {
        set_messages(&mut row, Some(sent), None, Some(lost));
    }
    Some(row)
}

/// A row of the named figures: megabytes, seconds, Mbit/s, retransmissions, round-trip time (ms).
fn figures(udp: bool, names: [&str; 5], value: impl Fn(&str) -> Option<f64>) -> Option<Row> {
    let [megabytes, seconds, megabits, retransmits, rtt_ms] = names;
    let mut row = measured(if udp { "udp_stream" } else { "tcp_stream" });
    row.bytes_received = count(value(megabytes)? * MEBIBYTE);
    row.elapsed_s = Some(value(seconds)?);
    row.throughput_bits_per_s = Some(value(megabits)? * 1e6);
    row.retransmits = value(retransmits).and_then(count);
    row.rtt_us = value(rtt_ms).map(|v| v * 1e3);
    Some(row)
}
