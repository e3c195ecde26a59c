//! iperf 2: its text, and the lines of `-y C`. Nothing marks the end of a run.

use super::{
    imported::{ImportedRows, count, host, measured, number, set_messages, whole},
    iperf3::text::{bytes, rate, stream_id},
};
use crate::error::ParseError;
use indexmap::IndexSet;
use schemas::{
    columns::Row,
    words::{Record, Way},
};
use std::collections::HashMap;

fn begin(line: &str) -> Option<bool> {
    let is_server =
        line.starts_with("Server listening on TCP port ") || line.starts_with("Server listening on UDP port ");
    (is_server || line.starts_with("Client connecting to ")).then_some(is_server)
}

/// Whether iperf 2 wrote it.
pub fn looks_like(text: &str) -> bool {
    text.lines().any(|l| begin(l).is_some() || csv(l).is_some())
}

/// The fields of a line of `-y C`: time, client, its port, server, its port, stream, interval, bytes, bit/s; of UDP jitter, lost, all, …
fn csv(line: &str) -> Option<Vec<&str>> {
    let fields: Vec<&str> = line.split(',').collect();
    let time = fields[0].split('.').next().unwrap_or_default();
    let is_time = time.len() == 14 && time.bytes().all(|b| b.is_ascii_digit());
    (is_time && fields.len() >= 9 && fields[6].contains('-')).then_some(fields)
}

/// A line of figures.
struct Figures {
    /// `SUM`, or the number of a stream.
    id: String,
    start: f64,
    end: f64,
    bytes: f64,
    bits: f64,
    /// Jitter in milliseconds, datagrams lost, and of all.
    datagrams: Option<(f64, u64, u64)>,
    is_csv: bool,
}

impl Figures {
    /// `0.0000-1.0016 sec 1.25 MBytes 10.5 Mbits/sec 0.001 ms 0/ 895 (0%)`, behind the number of the stream.
    fn parse(id: &str, words: &[&str]) -> Option<Self> {
        let [interval, "sec", transfer, transfer_unit, bits, bits_unit, tail @ ..] = words else { return None };
        let (start, end) = interval.split_once('-')?;
        let datagrams = match tail {
            [jitter, "ms", counts @ ..] => {
                let counts: String = counts.iter().copied().take_while(|word| !word.starts_with('(')).collect();
                let (lost, all) = counts.split_once('/')?;
                Some((number(jitter)?, whole(lost)?, whole(all)?))
            }
            _ => None,
        };
        let (start, end, id) = (number(start)?, number(end)?, id.to_owned());
        let (bytes, bits) = (bytes(transfer, transfer_unit)?, rate(bits, bits_unit)?);
        Some(Self { id, start, end, bytes, bits, datagrams, is_csv: false })
    }

    /// The sum of all streams has the number -1. The sender of datagrams prints -1 datagrams at its end.
    fn parse_csv(fields: &[&str]) -> Option<Self> {
        let id = if fields[5] == "-1" { "SUM" } else { fields[5] };
        let mut words = vec![fields[6], "sec", fields[7], "Bytes", fields[8], "bits/sec"];
        let counts = fields.get(10..12).map(|counts| counts.join("/"));
        if let Some(counts) = counts.as_deref().filter(|counts| !counts.ends_with("/-1")) {
            words.extend([fields[9], "ms", counts]);
        }
        Some(Self { is_csv: true, ..Self::parse(id, &words)? })
    }

    fn fill(&self, row: &mut Row, is_received: bool) {
        row.elapsed_s = Some(self.end - self.start);
        if is_received {
            (row.throughput_bits_per_s, row.bytes_received) = (Some(self.bits), count(self.bytes));
        } else {
            (row.sent_bits_per_s, row.bytes_sent) = (Some(self.bits), count(self.bytes));
            row.messages_sent = self.datagrams.map(|(_, _, all)| all);
        }
        if let Some((jitter, lost, all)) = self.datagrams.filter(|_| is_received) {
            row.jitter_us = Some(jitter * 1e3);
            set_messages(row, Some(all), None, Some(lost));
        }
    }
}

/// One run of a client, or of a server with one client.
#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "four independent facts of the text")]
struct Run {
    line: usize,
    is_server: bool,
    is_udp: bool,
    is_reverse: bool,
    client: Option<String>,
    server: Option<String>,
    datagram: Option<u64>,
    /// The streams that connected.
    ids: Vec<String>,
    /// The server of a UDP test did not answer at its end.
    is_unanswered: bool,
    figures: Vec<Figures>,
}

/// Reads every run.
pub fn read(text: &str, imported: &mut ImportedRows) -> Result<(), ParseError> {
    let mut open = Run::default();
    for (at, line) in (1..).zip(text.lines()) {
        if line.starts_with("connect failed: ") || line.contains("bind failed: ") {
            return Err(ParseError::new(at, format!("iperf failed: {line}")));
        }
        let is_next = begin(line).is_some() || line.contains(" connected with ");
        if is_next && !open.figures.is_empty() {
            let next = Run { is_server: open.is_server, is_udp: open.is_udp, ..Run::default() };
            std::mem::replace(&mut open, next).finish(imported)?;
        }
        if open.line == 0 && (is_next || csv(line).is_some()) {
            open.line = at;
        }
        open.take(line).ok_or_else(|| ParseError::expected(at, "a line of iperf 2", line))?;
    }
    if open.figures.is_empty() && !open.is_server {
        return Err(ParseError::new(open.line, "the run that begins here has no result: it failed, or was cut off"));
    }
    open.finish(imported)
}

impl Run {
    fn take(&mut self, line: &str) -> Option<()> {
        if let Some(fields) = csv(line) {
            self.is_udp = fields.len() == 14;
            (self.client, self.server) = (host(fields[1]), host(fields[3]));
            self.figures.push(Figures::parse_csv(&fields)?);
        } else if let Some(is_server) = begin(line) {
            (self.is_server, self.is_udp) = (is_server, line.contains(", UDP port ") || line.contains(" on UDP port "));
        } else if let Some(size) = line.strip_prefix("Sending ").and_then(|l| l.split_once(" byte datagrams")) {
            self.datagram = whole(size.0);
        } else if let Some((id, rest)) = stream_id(&line.replacen("[ *", "[ ", 1)) {
            let words: Vec<&str> = rest.split_whitespace().collect();
            match words.as_slice() {
                ["local", local, "port", _, "connected", "with", peer, ..] => {
                    self.ids.push(id.to_owned());
                    let near = local.split('%').next().and_then(host);
                    self.is_reverse |= line.contains("(reverse)");
                    (self.client, self.server) = if self.is_server { (host(peer), near) } else { (near, host(peer)) };
                }
                [interval, "sec", ..] if interval.contains('-') && !line.contains("received out-of-order") => {
                    self.figures.push(Figures::parse(id, &words)?);
                }
                ["WARNING:", "did", "not", "receive", "ack", ..] => self.is_unanswered = true,
                _ => {}
            }
        }
        Some(())
    }

    /// Adds the rows: intervals, several streams, and the whole. The last line of a stream, or of all, is its total.
    fn finish(self, imported: &mut ImportedRows) -> Result<(), ParseError> {
        let fault = |reason: &str| Err(ParseError::new(self.line, reason));
        let mut ids: IndexSet<&str> = self.ids.iter().map(String::as_str).collect();
        ids.extend(self.figures.iter().map(|f| &*f.id).filter(|id| *id != "SUM"));
        let csv_is_received = self.figures.iter().rfind(|f| f.is_csv).is_some_and(|total| total.datagrams.is_some());
        // Whether the receiver of the data counted them.
        let is_received = |f: &Figures| {
            if f.is_csv { csv_is_received } else { f.datagrams.is_some() || self.is_server != self.is_reverse }
        };
        // The line of each total, and the latest end of its stream.
        let mut totals: HashMap<(&str, bool), (usize, f64)> = HashMap::new();
        for (at, figures) in self.figures.iter().enumerate() {
            let (last, end) = totals.entry((&figures.id, is_received(figures))).or_default();
            (*last, *end) = (at, end.max(figures.end));
        }
        if self.figures.is_empty() {
            return Ok(());
        }
        let has_sum = self.figures.iter().any(|f| f.id == "SUM");
        if ids.len() > 1 && !has_sum {
            return fault("several streams have no sum ([SUM], --sum-only): they were cut off, or are of several runs");
        }
        let result = ids.first().filter(|_| !has_sum).copied().unwrap_or("SUM");
        let awaits_report = self.is_udp && !self.is_server && !self.is_reverse && !self.is_unanswered;
        if awaits_report && !self.figures.iter().any(|f| f.is_csv || f.datagrams.is_some()) {
            return fault("the server's report is missing: the output was cut off");
        }
        let mut base = measured(if self.is_udp { "udp_stream" } else { "tcp_stream" });
        base.direction = Some(if self.is_reverse { Way::Reverse } else { Way::Forward });
        (base.from, base.to) = (self.client.clone(), self.server.clone());
        base.message_bytes = self.datagram;
        let mut row = Row { streams: Some(ids.len().max(1) as u64), ..base.clone() };
        for (at, figures) in self.figures.iter().enumerate() {
            let is_received = is_received(figures);
            let (last, end) = totals[&(&*figures.id, is_received)];
            let is_total = last == at;
            if is_total && (figures.start > 0.0 || figures.end < end) {
                return fault("the run that begins here has no total: it failed, or was cut off");
            }
            if is_total && figures.id == result {
                let elapsed = row.elapsed_s;
                figures.fill(&mut row, is_received);
                row.elapsed_s = elapsed.or(row.elapsed_s);
            } else if figures.id != "SUM" && figures.end > figures.start {
                let kind = if is_total { Record::Stream } else { Record::Interval };
                let stream = ids.get_index_of(&*figures.id).map(|at| at as u64);
                let mut part = Row { record: Some(kind), stream, ..base.clone() };
                part.start_s = Some(figures.start).filter(|_| !is_total);
                figures.fill(&mut part, is_received);
                imported.add(part);
            }
        }
        imported.note("iperf 2's MBytes are 2^20 bytes, its Mbits 10^6 bits; -y C is taken as a client's");
        imported.add_last(row);
        Ok(())
    }
}
