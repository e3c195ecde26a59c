//! iperf3: the JSON of `-J`, the stream of events of `--json-stream`, and the text for people.

pub(super) mod text;

use super::imported::{ImportedRows, count, measured, set_messages};
use crate::error::ParseError;
use schemas::{
    columns::Row,
    time::from_unix_seconds,
    words::{OfferedUnit, Phase, Record, Status, Way},
};
use serde_json::Value;

/// Whether iperf3 wrote it.
pub fn looks_like(text: &str) -> bool {
    is_json(text) || text::looks_like(text)
}

/// Reads JSON or text.
pub fn read(text: &str, imported: &mut ImportedRows) -> Result<(), ParseError> {
    if text.trim_start().starts_with('{') { read_json(text, imported) } else { text::read(text, imported) }
}

/// Whether it is iperf3's JSON.
fn is_json(text: &str) -> bool {
    let head = text.trim_start();
    head.starts_with('{')
        && (head.contains("\"version\":\t\"iperf 3")
            || head.contains("\"iperf 3")
            || head.starts_with("{\"event\":\"start\"")
            || (head.contains("\"sum_received\"") && head.contains("\"test_start\"")))
}

/// Reads one document, several that follow each other, or a stream of events.
fn read_json(text: &str, imported: &mut ImportedRows) -> Result<(), ParseError> {
    let mut streamed = Streamed::default();
    let mut documents = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    while let Some(document) = documents.next() {
        let line = |at: usize| text[..at.min(text.len())].matches('\n').count() + 1;
        let document = document.map_err(|e| ParseError::new(e.line(), format!("{e}")))?;
        let at = line(documents.byte_offset());
        match document.get("event").and_then(Value::as_str) {
            None => {
                outcome(&document, at, imported)?;
                imported.next_run();
            }
            Some(event) => {
                let data = document.get("data").cloned().unwrap_or(Value::Null);
                if streamed.take(event, data) {
                    outcome(&streamed.document(), at, imported)?;
                    imported.next_run();
                }
            }
        }
    }
    if streamed.is_open() {
        outcome(&streamed.document(), text.lines().count(), imported)?;
    }
    Ok(())
}

/// The events of one run, joined to the document that `-J` writes.
#[derive(Default)]
struct Streamed {
    start: Value,
    intervals: Vec<Value>,
    end: Value,
    error: Value,
}

impl Streamed {
    /// Takes an event; returns `true` after the last one of a run.
    fn take(&mut self, event: &str, data: Value) -> bool {
        match event {
            "start" => self.start = data,
            "interval" => self.intervals.push(data),
            "error" => self.error = data,
            "end" => {
                self.end = data;
                return true;
            }
            _ => {}
        }
        false
    }

    fn is_open(&self) -> bool {
        !self.start.is_null() || !self.error.is_null()
    }

    fn document(&mut self) -> Value {
        let run = std::mem::take(self);
        let mut document = serde_json::json!({ "start": run.start, "intervals": run.intervals, "end": run.end });
        if !run.error.is_null() {
            document["error"] = run.error;
        }
        document
    }
}

fn num(value: &Value, path: &str) -> Option<f64> {
    value.pointer(path).and_then(Value::as_f64)
}

fn text(value: &Value, path: &str) -> Option<String> {
    value.pointer(path).and_then(Value::as_str).map(str::to_owned)
}

/// Facts that all rows of a run share.
struct Run {
    base: Row,
    udp: bool,
    bidirectional: bool,
    started: Option<f64>,
    omit: f64,
}

fn outcome(document: &Value, line: usize, imported: &mut ImportedRows) -> Result<(), ParseError> {
    if !document.get("start").is_some_and(Value::is_object) && document.get("error").is_none() {
        return Err(ParseError::new(line, "the document is not iperf3's: it has no `start`"));
    }
    let run = run_of(document);
    if let Some(error) = text(document, "/error") {
        let mut row = run.base.clone();
        row.status = Some(Status::Failed);
        row.error = Some(error);
        imported.add(row);
        return Ok(());
    }
    if !document.get("end").is_some_and(Value::is_object) {
        return Err(ParseError::new(line, "the run has no `end`: the output was cut off"));
    }
    for interval in document.pointer("/intervals").and_then(Value::as_array).into_iter().flatten() {
        intervals(interval, &run, imported);
    }
    ends(document, &run, imported);
    Ok(())
}

fn run_of(document: &Value) -> Run {
    let start = document.get("start").unwrap_or(&Value::Null);
    let protocol = text(start, "/test_start/protocol").unwrap_or_else(|| "TCP".to_owned()).to_ascii_lowercase();
    let reverse = num(start, "/test_start/reverse").is_some_and(|v| v > 0.0);
    // Versions before 3.17 lack it in `start`.
    let bidirectional = num(start, "/test_start/bidir").is_some_and(|v| v > 0.0)
        || document.pointer("/end/sum_sent_bidir_reverse").is_some();
    let mut base = measured(&format!("{protocol}_stream"));
    base.direction = Some(if bidirectional {
        Way::Both
    } else if reverse {
        Way::Reverse
    } else {
        Way::Forward
    });
    base.streams = num(start, "/test_start/num_streams").and_then(count);
    base.message_bytes = num(start, "/test_start/blksize").and_then(count);
    base.from = text(start, "/connected/0/local_host");
    base.to = text(start, "/connecting_to/host").or_else(|| text(start, "/connected/0/remote_host"));
    base.tag = text(document, "/title");
    base.mss_bytes = num(start, "/tcp_mss").or_else(|| num(start, "/tcp_mss_default")).and_then(count);
    base.congestion_control = text(document, "/end/sender_tcp_congestion");
    // iperf3's target is that of one stream.
    let streams = num(start, "/test_start/num_streams").unwrap_or(1.0);
    let offered = num(start, "/test_start/target_bitrate").map(|v| v * streams).filter(|v| *v > 0.0);
    base.offered_per_s = offered;
    base.offered_unit = offered.map(|_| OfferedUnit::Bits);
    // Newer versions have milliseconds.
    let started =
        num(start, "/timestamp/timemillisecs").map(|ms| ms / 1000.0).or_else(|| num(start, "/timestamp/timesecs"));
    base.time = started.and_then(from_unix_seconds);
    let omit = num(start, "/test_start/omit").unwrap_or_default();
    Run { base, udp: protocol == "udp", bidirectional, started, omit }
}

fn intervals(interval: &Value, run: &Run, imported: &mut ImportedRows) {
    let streams = interval.get("streams").and_then(Value::as_array).map_or(&[] as &[Value], Vec::as_slice);
    for (index, stream) in streams.iter().enumerate() {
        let mut row = run.base.clone();
        row.record = Some(Record::Interval);
        row.stream = Some(index as u64);
        row.streams = None;
        row.message_bytes = run.base.message_bytes;
        let sender = stream.get("sender").and_then(Value::as_bool).unwrap_or(true);
        if run.bidirectional {
            row.direction = Some(if sender { Way::Forward } else { Way::Reverse });
        }
        if stream.get("omitted").and_then(Value::as_bool).unwrap_or(false) {
            row.phase = Some(Phase::Warmup);
        }
        // iperf3 counts omitted seconds from 0, and the others from 0 again.
        let shift = if row.phase == Some(Phase::Warmup) { -run.omit } else { 0.0 };
        row.start_s = num(stream, "/start").map(|s| s + shift);
        row.elapsed_s = num(stream, "/seconds");
        row.time = match (run.started, num(stream, "/end")) {
            (Some(started), Some(end)) => from_unix_seconds(started + run.omit + shift + end),
            _ => None,
        };
        let (bits, bytes) = (num(stream, "/bits_per_second"), num(stream, "/bytes").and_then(count));
        // Intervals are counted at the near end only: bytes sent, or bytes received.
        if sender {
            (row.sent_bits_per_s, row.bytes_sent) = (bits, bytes);
            row.messages_sent = num(stream, "/packets").and_then(count);
        } else {
            (row.throughput_bits_per_s, row.bytes_received) = (bits, bytes);
            row.lost = num(stream, "/lost_packets").and_then(count);
            row.jitter_us = num(stream, "/jitter_ms").map(|v| v * 1e3);
        }
        set_retransmits(&mut row, num(stream, "/retransmits").and_then(count));
        row.cwnd_bytes = num(stream, "/snd_cwnd").and_then(count);
        row.rtt_us = num(stream, "/rtt");
        row.rtt_var_us = num(stream, "/rttvar");
        imported.add(row);
    }
}

fn ends(document: &Value, run: &Run, imported: &mut ImportedRows) {
    let Some(end) = document.get("end") else { return };
    for (index, stream) in end.get("streams").and_then(Value::as_array).into_iter().flatten().enumerate() {
        let mut row = run.base.clone();
        row.record = Some(Record::Stream);
        row.stream = Some(index as u64);
        if run.bidirectional {
            let forward = stream.pointer("/sender/sender").and_then(Value::as_bool).unwrap_or(true);
            row.direction = Some(if forward { Way::Forward } else { Way::Reverse });
        }
        let (sent, received) = match stream.get("udp") {
            Some(udp) => (udp, udp),
            None => (&stream["sender"], &stream["receiver"]),
        };
        sums(&mut row, sent, received, run.udp);
        imported.add(row);
    }
    let mut row = run.base.clone();
    let (sent, received) = match (end.get("sum_sent"), end.get("sum_received"), end.get("sum")) {
        (Some(sent), Some(received), _) => (sent, received),
        // UDP before 3.10 has a single sum.
        (_, _, Some(sum)) => (sum, sum),
        _ => return,
    };
    sums(&mut row, sent, received, run.udp);
    if let (Some(sent), Some(received)) = (end.get("sum_sent_bidir_reverse"), end.get("sum_received_bidir_reverse")) {
        let mut back = Row { direction: Some(Way::Reverse), ..Row::default() };
        sums(&mut back, sent, received, run.udp);
        add_back(&mut row, &back, imported);
    }
    // iperf3 reports shares of one CPU; the table's are shares of the machine.
    if end.get("cpu_utilization_percent").is_some() {
        imported.note("iperf3's CPU figures are its own processes' share of one CPU, not the machine's: left out");
    }
    imported.add(row);
}

/// Adds the figures of the reverse direction of a bidirectional run to those of the forward direction.
fn add_back(row: &mut Row, back: &Row, imported: &mut ImportedRows) {
    let add = |a: &mut Option<f64>, b: Option<f64>| *a = a.zip(b).map(|(a, b)| a + b);
    add(&mut row.throughput_bits_per_s, back.throughput_bits_per_s);
    add(&mut row.sent_bits_per_s, back.sent_bits_per_s);
    let add = |a: &mut Option<u64>, b: Option<u64>| *a = a.zip(b).map(|(a, b)| a + b);
    add(&mut row.bytes_sent, back.bytes_sent);
    add(&mut row.bytes_received, back.bytes_received);
    let (mut sent, mut lost) = (row.messages_sent, row.lost);
    add(&mut sent, back.messages_sent);
    add(&mut lost, back.lost);
    set_messages(row, sent, None, lost);
    add(&mut row.retransmits, back.retransmits);
    row.remote_retransmits = back.remote_retransmits;
    row.rtt_us = row.rtt_us.zip(back.rtt_us).map(|(a, b)| f64::midpoint(a, b));
    // Each direction has its own jitter.
    row.jitter_us = None;
    imported.note("iperf3 --bidir: the run's throughput is the sum of both directions; the stream rows have each");
}

/// Retransmissions are the sender's, and the sender of a reverse test is the far end.
fn set_retransmits(row: &mut Row, retransmits: Option<u64>) {
    row.retransmits = retransmits;
    if row.direction == Some(Way::Reverse) {
        row.remote_retransmits = retransmits;
    } else {
        row.local_retransmits = retransmits;
    }
}

/// Sender's and receiver's figures of a stream or of all.
fn sums(row: &mut Row, sent: &Value, received: &Value, udp: bool) {
    row.start_s = Some(0.0);
    row.elapsed_s = num(received, "/seconds").or_else(|| num(sent, "/seconds"));
    row.sent_bits_per_s = num(sent, "/bits_per_second");
    row.bytes_sent = num(sent, "/bytes").and_then(count);
    row.throughput_bits_per_s = num(received, "/bits_per_second");
    row.bytes_received = num(received, "/bytes").and_then(count);
    set_retransmits(row, num(sent, "/retransmits").and_then(count));
    row.rtt_us = num(sent, "/mean_rtt");
    if udp {
        let packets = num(sent, "/packets").and_then(count);
        let lost = num(received, "/lost_packets").and_then(count);
        set_messages(row, packets, None, lost);
        row.jitter_us = num(received, "/jitter_ms").map(|v| v * 1e3);
        row.reordered = num(received, "/out_of_order").and_then(count);
        if std::ptr::eq(sent, received) {
            // A single object for both ends counts the bytes sent.
            row.bytes_received = None;
            if lost.is_some_and(|l| l > 0) {
                row.throughput_bits_per_s = None;
            }
        }
    }
}
