//! nuttcp: its summary lines, its intervals (`-i`), `-fparse`, and the reports of both ends (`-v`).

use super::imported::{ImportedRows, count, host, measured, number, set_messages};
use crate::error::ParseError;
use schemas::{
    columns::Row,
    words::{Record, Way},
};

/// Whether nuttcp wrote it.
pub fn looks_like(text: &str) -> bool {
    text.lines().any(|l| {
        l.starts_with("megabytes=")
            || l.starts_with("nuttcp-t: ")
            || l.starts_with("nuttcp-r: ")
            || (l.contains(" MB / ") && l.contains(" Mbps"))
    })
}

const MEBIBYTE: f64 = 1_048_576.0;

/// Reads every run: intervals, then their summary.
pub fn read(text: &str, imported: &mut ImportedRows) -> Result<(), ParseError> {
    let mut start = 0.0;
    // Line of the first interval that has no summary yet.
    let mut open = None;
    let mut reports = Reports::default();
    for (at, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.contains(": Error: ") {
            return Err(ParseError::new(at, format!("nuttcp failed: {line}")));
        }
        let row = if line.starts_with("megabytes=") {
            let wanted = "`megabytes=… real_seconds=… rate_Mbps=…`";
            parsed(line).ok_or_else(|| ParseError::expected(at, wanted, line))?
        } else if line.contains(" MB / ") {
            summary(line).ok_or_else(|| ParseError::expected(at, "`N MB / S sec = R Mbps …`", line))?
        } else {
            if let Some(row) = reports.take(line, at)? {
                units(imported);
                imported.add_last(row);
            }
            continue;
        };
        units(imported);
        // An interval has no CPU shares.
        let interval = !line.contains(" %TX") && !line.contains(" tx_cpu=");
        let mut row = row;
        if interval {
            row.record = Some(Record::Interval);
            row.start_s = Some((start * 1e6_f64).round() / 1e6);
            start += row.elapsed_s.unwrap_or_default();
            open = open.or(Some(at));
            imported.add(row);
        } else {
            start = 0.0;
            open = None;
            imported.add_last(row);
        }
    }
    match open.or(reports.open) {
        Some(line) => Err(ParseError::new(line, "the run that begins here has no summary: it failed, or was cut off")),
        None => Ok(()),
    }
}

fn units(imported: &mut ImportedRows) {
    imported.note(
        "nuttcp's MB are 2^20 bytes, its Mbps 10^6 bit/s; it does not say in which direction a test ran, but with -v",
    );
}

/// ` 3749.5000 MB /   1.00 sec = 31456.1999 Mbps 98 %TX 72 %RX 0 retrans 0.09 msRTT`; for UDP `0 / 763 drop/pkt`.
fn summary(line: &str) -> Option<Row> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let before = |name: &str| {
        let at = words.iter().position(|w| *w == name)?;
        number(words.get(at.checked_sub(1)?)?)
    };
    let drops = words.iter().position(|w| matches!(*w, "drop/pkt" | "~drop/pkt"));
    let mut row = figures(drops.is_some(), before("MB")?, before("sec")?, before("Mbps")?);
    row.retransmits = before("retrans").and_then(count);
    row.rtt_us = before("msRTT").map(|v| v * 1e3);
    if let Some(at) = drops {
        let cell = |back: usize| words.get(at.checked_sub(back)?).and_then(|w| number(w)).and_then(count);
        set_messages(&mut row, Some(cell(1)?), None, Some(cell(3)?));
    }
    Some(row)
}

/// `megabytes=3749.5 real_seconds=1.00 rate_Mbps=31456.2 … retrans=0 rtt_ms=0.09`; for UDP `drop=0 pkt=763`. Intervals
/// have `real_sec`.
fn parsed(line: &str) -> Option<Row> {
    let value = |name: &str| {
        line.split_whitespace().find_map(|w| w.split_once('=').filter(|(k, _)| *k == name)).and_then(|(_, v)| number(v))
    };
    let seconds = value("real_seconds").or_else(|| value("real_sec"))?;
    let mut row = figures(value("drop").is_some(), value("megabytes")?, seconds, value("rate_Mbps")?);
    row.retransmits = value("retrans").and_then(count);
    row.rtt_us = value("rtt_ms").map(|v| v * 1e3);
    if let (Some(lost), Some(sent)) = (value("drop").and_then(count), value("pkt").and_then(count)) {
        set_messages(&mut row, Some(sent), None, Some(lost));
    }
    Some(row)
}

/// A row of what arrived. The direction is unknown.
fn figures(udp: bool, megabytes: f64, seconds: f64, megabits: f64) -> Row {
    let mut row = measured(if udp { "udp_stream" } else { "tcp_stream" });
    row.direction = None;
    // Four decimals are too few for a small amount, two for a short time.
    row.bytes_received = Some(megabytes).filter(|m| *m >= 0.1).and_then(|m| count(m * MEBIBYTE));
    row.elapsed_s = Some(seconds).filter(|s| *s > 0.0);
    row.throughput_bits_per_s = Some(megabits * 1e6);
    row
}

/// The reports of `-v`, of the transmitter and of the receiver. The first one is of the near end.
#[derive(Default)]
struct Reports {
    open: Option<usize>,
    row: Row,
    near: Option<char>,
    transport: Option<&'static str>,
    /// Transmitter, receiver: MB, seconds, Mbit/s.
    figures: [Option<[f64; 3]>; 2],
    retransmits: Option<u64>,
    drops: Option<(u64, u64)>,
}

impl Reports {
    /// Takes a line; returns the row after the last line of the second report.
    fn take(&mut self, line: &str, at: usize) -> Result<Option<Row>, ParseError> {
        let (end, fact) = match (line.strip_prefix("nuttcp-t: "), line.strip_prefix("nuttcp-r: ")) {
            (Some(fact), _) => ('t', fact),
            (_, Some(fact)) => ('r', fact),
            _ => return Ok(None),
        };
        let fault = || ParseError::expected(at, "a line of nuttcp -v", line);
        let words: Vec<&str> = fact.split_whitespace().collect();
        self.open = self.open.or(Some(at));
        let near = *self.near.get_or_insert(end) == end;
        let option = |name: &str| {
            let value = fact.split([',', ' ']).find_map(|f| f.strip_prefix(name))?;
            value.trim_end_matches("ms").trim().parse::<f64>().ok()
        };
        if fact.starts_with("buflen=") {
            self.transport = Some(if words.contains(&"udp") { "udp" } else { "tcp" });
            self.row.message_bytes = option("buflen=").and_then(count);
            self.row.streams = option("nstream=").and_then(count);
            if let ["->", peer] = words[words.len().saturating_sub(2)..] {
                if near { self.row.to = host(peer) } else { self.row.from = host(peer) }
            }
        } else if fact.starts_with("connect to ") {
            self.row.mss_bytes = option("mss=").and_then(count);
            self.row.rtt_us = option("RTT=").map(|ms| ms * 1e3);
        } else if let [lost, "/", sent, "drop/pkt", ..] = words.as_slice() {
            self.drops = Some((lost.parse().map_err(|_| fault())?, sent.parse().map_err(|_| fault())?));
        } else if let ["retrans", "=", retransmits] = words.as_slice() {
            self.retransmits = Some(retransmits.parse().map_err(|_| fault())?);
        } else if let [megabytes, "MB", "in", seconds, "real", "seconds", "=", .., megabits, "Mbps"] = words.as_slice()
        {
            let value = |text: &str| number(text).ok_or_else(fault);
            self.figures[usize::from(end == 'r')] = Some([value(megabytes)?, value(seconds)?, value(megabits)?]);
        } else if let [.., last] = words.as_slice()
            && last.ends_with("csw")
            && let ([Some(sent), Some(received)], Some(transport)) = (self.figures, self.transport)
        {
            let mut row = figures(transport == "udp", received[0], received[1], received[2]);
            let known = std::mem::take(self);
            (row.sent_bits_per_s, row.bytes_sent) = (Some(sent[2] * 1e6), count(sent[0] * MEBIBYTE));
            (row.message_bytes, row.streams) = (known.row.message_bytes, known.row.streams);
            (row.mss_bytes, row.rtt_us, row.to) = (known.row.mss_bytes, known.row.rtt_us, known.row.to);
            if known.near == Some('t') {
                row.direction = Some(Way::Forward);
                row.local_retransmits = known.retransmits;
            } else {
                row.direction = Some(Way::Reverse);
                row.remote_retransmits = known.retransmits;
            }
            row.retransmits = known.retransmits;
            if let Some((lost, sent)) = known.drops {
                set_messages(&mut row, Some(sent), None, Some(lost));
            }
            return Ok(Some(row));
        }
        Ok(None)
    }
}
