//! nuttcp: its summary lines, its intervals (`-i`), and `-fparse`.

use schemas::columns::Row;
use schemas::words::Record;

use super::{Fault, Sheet, count, measured, number};

/// Whether nuttcp wrote it.
pub fn looks_like(text: &str) -> bool {
    text.lines().any(|l| l.starts_with("megabytes=") || (l.contains(" MB / ") && l.contains(" Mbps")))
}

const MEBIBYTE: f64 = 1_048_576.0;

/// Reads every run: intervals, then their summary.
pub fn read(text: &str, sheet: &mut Sheet) -> Result<(), Fault> {
    let mut start = 0.0;
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        let row = if line.starts_with("megabytes=") {
            Some(parsed(line).ok_or_else(|| Fault::line(at + 1, "`megabytes=… real_seconds=… rate_Mbps=…`", line))?)
        } else if line.contains(" MB / ") {
            Some(summary(line).ok_or_else(|| Fault::line(at + 1, "`N MB / S sec = R Mbps …`", line))?)
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
            sheet.add(row);
            sheet.next_run();
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
    let mut row = measured(if drops.is_some() { "udp_stream" } else { "tcp_stream" });
    row.elapsed_s = Some(before("sec")?);
    row.throughput_bits_per_s = Some(before("Mbps")? * 1e6);
    row.bytes_received = count(before("MB")? * MEBIBYTE);
    row.retransmits = before("retrans").and_then(count);
    row.rtt_us = before("msRTT").map(|v| v * 1e3);
    if let Some(at) = drops {
        let sent = words.get(at.checked_sub(1)?).and_then(|w| number(w)).and_then(count)?;
        let lost = words.get(at.checked_sub(3)?).and_then(|w| number(w)).and_then(count)?;
        row.messages_sent = Some(sent);
        row.lost = Some(lost);
        row.messages_received = Some(sent.saturating_sub(lost));
        row.loss_ratio = (sent > 0).then(|| lost as f64 / sent as f64);
    }
    Some(row)
}

fn parsed(line: &str) -> Option<Row> {
    let value = |name: &str| {
        line.split_whitespace().find_map(|w| w.split_once('=').filter(|(k, _)| *k == name)).and_then(|(_, v)| number(v))
    };
    let udp = value("drop").is_some();
    let mut row = measured(if udp { "udp_stream" } else { "tcp_stream" });
    row.bytes_received = count(value("megabytes")? * MEBIBYTE);
    row.elapsed_s = Some(value("real_seconds")?);
    row.throughput_bits_per_s = Some(value("rate_Mbps")? * 1e6);
    row.retransmits = value("retrans").and_then(count);
    row.rtt_us = value("rtt_ms").map(|v| v * 1e3);
    if let (Some(lost), Some(sent)) = (value("drop").and_then(count), value("pkt").and_then(count)) {
        row.messages_sent = Some(sent);
        row.lost = Some(lost);
        row.messages_received = Some(sent.saturating_sub(lost));
        row.loss_ratio = (sent > 0).then(|| lost as f64 / sent as f64);
    }
    Some(row)
}
