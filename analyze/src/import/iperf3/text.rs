//! iperf3's text. Three digits of each figure are all that it has; `-J` has them all.

use crate::{
    distinct,
    error::ParseError,
    import::imported::{ImportedRows, count, host, measured, number, set_messages, without_noise},
};
use schemas::{
    columns::Row,
    words::{OfferedUnit, Phase, Record, Way},
};

/// The words with which iperf3's lines begin, behind a title (`-T`) or a time (`--timestamps`).
const MARKS: [&str; 15] = [
    "Connecting to host ",
    "Accepted connection from ",
    "Reverse mode, ",
    "Starting Test: ",
    "Server listening on ",
    "Server output:",
    "iperf Done.",
    "iperf3: ",
    "- - - - - ",
    "CPU Utilization: ",
    "TCP MSS: ",
    "Target Bitrate: ",
    "snd_tcp_congestion ",
    "[ ID]",
    "[SUM]",
];

pub fn looks_like(text: &str) -> bool {
    let figures = |l: &str| l.contains("bits/sec") || l.contains("Bytes/sec");
    text.lines().any(|l| l.contains("iperf3: error") || l.contains("iperf3: interrupt"))
        || (text.lines().any(|l| l.contains("[ ID]") && l.contains("Interval"))
            && text.lines().any(|l| stream_id(begin(l).1).is_some() && figures(l)))
}

/// Splits a title or a time from a line.
fn begin(line: &str) -> (&str, &str) {
    let marked = MARKS.iter().filter_map(|mark| line.find(mark)).min();
    let stream = line.match_indices('[').map(|(at, _)| at).find(|at| stream_id(&line[*at..]).is_some());
    match marked.into_iter().chain(stream).min() {
        Some(at) => line.split_at(at),
        None => ("", line),
    }
}

/// The identifier of `[  5] …` and the rest of the line.
pub(in crate::import) fn stream_id(line: &str) -> Option<(&str, &str)> {
    let (id, rest) = line.strip_prefix('[')?.split_once(']')?;
    let id = id.trim();
    (id == "SUM" || (!id.is_empty() && id.bytes().all(|b| b.is_ascii_digit()))).then_some((id, rest))
}

/// A line of figures.
struct Figures<'t> {
    id: &'t str,
    role: Option<&'t str>,
    start: f64,
    end: f64,
    bytes: f64,
    /// `None`: the unit is too coarse to show it.
    bits: Option<f64>,
    retransmits: Option<u64>,
    cwnd: Option<f64>,
    jitter_ms: Option<f64>,
    /// Datagrams lost and of all; of a sender's interval only those of all.
    datagrams: Option<(Option<u64>, u64)>,
    omitted: bool,
    /// `sender` or `receiver` in a summary.
    end_of: Option<&'t str>,
}

/// Bytes of an amount: iperf3's KBytes are 2^10 bytes.
pub(in crate::import) fn bytes(value: &str, unit: &str) -> Option<f64> {
    let factor = match unit {
        "Bytes" => 1.0,
        "KBytes" => 1024.0,
        "MBytes" => 1_048_576.0,
        "GBytes" => 1_073_741_824.0,
        "TBytes" => 1_099_511_627_776.0,
        _ => return None,
    };
    Some(number(value)? * factor)
}

/// Bits per second of a rate: Kbits are 10^3 bits, KBytes 2^10 bytes.
pub(in crate::import) fn rate(value: &str, unit: &str) -> Option<f64> {
    let unit = unit.strip_suffix("/sec")?;
    let factor = match unit {
        "bits" => 1.0,
        "Kbits" => 1e3,
        "Mbits" => 1e6,
        "Gbits" => 1e9,
        "Tbits" => 1e12,
        _ => return bytes(value, unit).map(|b| b * 8.0),
    };
    Some(number(value)? * factor)
}

impl<'t> Figures<'t> {
    fn parse(id: &'t str, rest: &'t str) -> Option<Self> {
        let (role, rest) = match rest.strip_prefix('[').and_then(|r| r.split_once(']')) {
            Some((role, rest)) => (Some(role), rest),
            None => (None, rest),
        };
        let words: Vec<&str> = rest.split_whitespace().collect();
        let [interval, "sec", transfer, transfer_unit, bits, bits_unit, tail @ ..] = words.as_slice() else {
            return None;
        };
        let (start, end) = interval.split_once('-')?;
        let mut found = Self {
            id,
            role,
            start: number(start)?,
            end: number(end)?,
            bytes: bytes(transfer, transfer_unit)?,
            bits: Some(rate(bits, bits_unit)?),
            retransmits: None,
            cwnd: None,
            jitter_ms: None,
            datagrams: None,
            omitted: tail.last() == Some(&"(omitted)"),
            end_of: tail.last().copied().filter(|w| matches!(*w, "sender" | "receiver")),
        };
        // -f t prints 0.00 Tbits/sec for 4 Gbits/sec.
        if found.bits == Some(0.0) && found.bytes > 0.0 {
            found.bits = None;
        }
        let kept = tail.len() - usize::from(found.omitted || found.end_of.is_some());
        match &tail[..kept] {
            [] => {}
            // Datagrams of a sender, or retransmissions: the headings tell which.
            [single] => found.retransmits = Some(single.parse().ok()?),
            [retransmits, cwnd, unit] if unit.ends_with("Bytes") => {
                found.retransmits = Some(retransmits.parse().ok()?);
                found.cwnd = Some(bytes(cwnd, unit)?);
            }
            [jitter, "ms", datagrams, percent] if percent.starts_with('(') => {
                found.jitter_ms = Some(number(jitter)?);
                let (lost, all) = datagrams.split_once('/')?;
                found.datagrams = Some((Some(lost.parse().ok()?), all.parse().ok()?));
            }
            _ => return None,
        }
        Some(found)
    }
}

/// One run: a client's, or one test of a server.
#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "four independent facts of the text")]
struct Run<'t> {
    line: usize,
    is_server: bool,
    done: bool,
    title: Option<String>,
    from: Option<String>,
    to: Option<String>,
    reverse: bool,
    transport: Option<String>,
    block: Option<u64>,
    mss: Option<u64>,
    congestion: Option<String>,
    offered: Option<f64>,
    /// The headings above the figures.
    heading: String,
    in_server_output: bool,
    intervals: Vec<(Figures<'t>, bool)>,
    ends: Vec<Figures<'t>>,
}

/// Reads every run. Other lines come from shells and scripts.
pub fn read(text: &str, imported: &mut ImportedRows) -> Result<(), ParseError> {
    let mut open: Option<Run> = None;
    for (at, line) in (1..).zip(text.lines()) {
        if line.trim_start().starts_with('{') && open.as_ref().is_none_or(|run| !run.in_server_output) {
            return Err(ParseError::new(at, "JSON follows text: import them as two files"));
        }
        let (title, line) = begin(line);
        let line = line.trim_end();
        if line.starts_with("iperf3: error") || line.starts_with("iperf3: interrupt") {
            return Err(ParseError::new(at, format!("iperf3 failed: {}", line.trim_start_matches("iperf3: "))));
        }
        let connecting = line.strip_prefix("Connecting to host ");
        let accepted = line.strip_prefix("Accepted connection from ");
        if let Some(peer) = connecting.or(accepted)
            && open.as_ref().is_none_or(|run| !run.in_server_output)
        {
            finish(open.take(), imported)?;
            let peer = peer.split(", port").next().and_then(host);
            let title = title.trim_end().strip_suffix(':').map(str::to_owned);
            let mut run = Run { line: at, is_server: accepted.is_some(), title, ..Run::default() };
            if run.is_server {
                run.from = peer;
            } else {
                run.to = peer;
            }
            open = Some(run);
            continue;
        }
        let Some(run) = &mut open else {
            if stream_id(line).is_some_and(|(id, rest)| Figures::parse(id, rest).is_some()) {
                return Err(ParseError::new(at, "the run's beginning is missing: import the whole output of iperf3"));
            }
            continue;
        };
        run.take(line, at)?;
        if run.done {
            finish(open.take(), imported)?;
        }
    }
    finish(open, imported)
}

impl<'t> Run<'t> {
    fn take(&mut self, line: &'t str, at: usize) -> Result<(), ParseError> {
        let word = |text: &str| text.split([' ', ',']).next().unwrap_or_default().to_owned();
        if line.starts_with("iperf Done.") {
            self.done = true;
        } else if self.in_server_output {
        } else if line.starts_with("Server output:") {
            self.in_server_output = true;
        } else if line.starts_with("Reverse mode, ") {
            self.reverse = true;
        } else if let Some(facts) = line.strip_prefix("Starting Test: ") {
            for fact in facts.split(", ") {
                if let Some(protocol) = fact.strip_prefix("protocol: ") {
                    self.transport = Some(protocol.to_ascii_lowercase());
                } else if let Some(size) = fact.strip_suffix(" byte blocks") {
                    self.block = size.parse().ok();
                }
            }
        } else if let Some(mss) = line.strip_prefix("TCP MSS: ") {
            self.mss = word(mss).parse().ok();
        } else if let Some(algorithm) = line.strip_prefix("snd_tcp_congestion ") {
            self.congestion = Some(algorithm.to_owned());
        } else if let Some(offered) = line.strip_prefix("Target Bitrate: ") {
            self.offered = number(offered).filter(|o| *o > 0.0);
        } else if line.starts_with("[ ID]") {
            line.clone_into(&mut self.heading);
            if line.contains("Datagrams") {
                self.transport = Some("udp".to_owned());
            } else if line.contains(" Retr") {
                self.transport = Some("tcp".to_owned());
            }
        } else if let Some((id, rest)) = stream_id(line) {
            if let Some((local, _)) = rest.split_once(" local ").and_then(|(_, r)| r.split_once(" port ")) {
                let address = host(local);
                if self.is_server {
                    self.to = self.to.take().or(address);
                } else {
                    self.from = self.from.take().or(address);
                }
                return Ok(());
            }
            let wanted = "`[ID] START-END sec AMOUNT RATE …`";
            let mut figures = Figures::parse(id, rest).ok_or_else(|| ParseError::expected(at, wanted, line))?;
            if self.heading.is_empty() {
                return Err(ParseError::new(at, "figures without iperf3's headings"));
            }
            if self.heading.contains("Datagrams")
                && let Some(datagrams) = figures.retransmits.take()
            {
                figures.datagrams = Some((None, datagrams));
            }
            if figures.end_of.is_some() {
                self.ends.push(figures);
            } else {
                let sends = self.sends(&figures);
                self.intervals.push((figures, sends));
            }
        }
        Ok(())
    }

    /// Whether an interval was counted by the sender of its stream.
    fn sends(&self, figures: &Figures) -> bool {
        match figures.role {
            Some(role) => role.starts_with("TX"),
            None if self.is_server => {
                self.heading.contains("Retr")
                    || self.heading.contains("Total Datagrams") && !self.heading.contains("Lost")
            }
            None => !self.reverse,
        }
    }

    /// The direction of a stream, seen from the client.
    fn way(&self, role: Option<&str>) -> Way {
        let server_sends = || self.is_server && self.intervals.iter().any(|(_, sends)| *sends);
        let reverse = match role {
            Some(role) => matches!(role, "RX-C" | "TX-S"),
            None => self.reverse || server_sends(),
        };
        if reverse { Way::Reverse } else { Way::Forward }
    }

    fn base(&self, imported: &mut ImportedRows) -> Result<Row, ParseError> {
        let given = imported.given.workload.as_deref().and_then(|w| w.strip_suffix("_stream")).map(str::to_owned);
        let Some(transport) = self.transport.clone().or(given) else {
            let reason = "the output does not say which protocol the test used: run iperf3 with -V, or name the test \
                          (--workload tcp_stream)";
            return Err(ParseError::new(self.line, reason));
        };
        let mut row = measured(&format!("{transport}_stream"));
        let ids = |role: Option<&str>| {
            let mut ids: Vec<&str> =
                self.ends.iter().filter(|f| f.id != "SUM" && f.role == role).map(|f| f.id).collect();
            ids.dedup();
            ids.len() as u64
        };
        let role = self.ends.first().and_then(|f| f.role);
        let streams = ids(role);
        row.streams = Some(streams);
        row.direction = Some(if role.is_some() { Way::Both } else { self.way(None) });
        (row.from, row.to) = (self.from.clone(), self.to.clone());
        row.tag.clone_from(&self.title);
        row.message_bytes = self.block;
        row.mss_bytes = self.mss;
        row.congestion_control.clone_from(&self.congestion);
        // iperf3's target is that of one stream.
        row.offered_per_s = self.offered.map(|bits| bits * streams as f64);
        row.offered_unit = self.offered.map(|_| OfferedUnit::Bits);
        Ok(row)
    }
}

/// Adds the rows of a run: intervals, streams, and the whole.
fn finish(run: Option<Run>, imported: &mut ImportedRows) -> Result<(), ParseError> {
    let Some(run) = run else { return Ok(()) };
    if !run.done && !run.is_server {
        let reason = "the run that begins here does not end with `iperf Done.`: it was interrupted, or cut off";
        return Err(ParseError::new(run.line, reason));
    }
    if run.ends.is_empty() {
        return Err(ParseError::new(run.line, "the run that begins here has no summary: it failed, or was cut off"));
    }
    let base = run.base(imported)?;
    let figures = run.intervals.iter().map(|(f, _)| f).chain(&run.ends);
    let ids = distinct(figures.map(|f| f.id).filter(|id| *id != "SUM"));
    let index = |id: &str| ids.iter().position(|i| *i == id).map(|i| i as u64);
    let omitted = run.intervals.iter().filter(|(f, _)| f.omitted).map(|(f, _)| f.end).fold(0.0, f64::max);
    for (figures, sends) in run.intervals.iter().filter(|(f, _)| f.id != "SUM") {
        let mut row = base.clone();
        row.record = Some(Record::Interval);
        row.stream = index(figures.id);
        row.streams = None;
        row.direction = Some(run.way(figures.role));
        let shift = if figures.omitted { omitted } else { 0.0 };
        if figures.omitted {
            row.phase = Some(Phase::Warmup);
        }
        row.start_s = Some(figures.start - shift);
        row.elapsed_s = Some(figures.end - figures.start);
        if *sends {
            sent(&mut row, figures);
            row.messages_sent = figures.datagrams.map(|(_, all)| all);
        } else {
            received(&mut row, figures);
            row.lost = figures.datagrams.and_then(|(lost, _)| lost);
        }
        row.cwnd_bytes = figures.cwnd.and_then(count);
        without_noise(&mut row);
        imported.add(row);
    }
    for id in &ids {
        let mut row = base.clone();
        row.record = Some(Record::Stream);
        row.stream = index(id);
        let role = run.ends.iter().find(|f| f.id == *id).and_then(|f| f.role);
        row.direction = Some(run.way(role));
        summary(&mut row, &run, id, role);
        without_noise(&mut row);
        imported.add(row);
    }
    let total = if run.ends.iter().any(|f| f.id == "SUM") { Some("SUM") } else { None };
    let mut roles: Vec<Option<&str>> = run.ends.iter().map(|f| f.role).collect();
    roles.dedup();
    let of = |role: Option<&str>| {
        let mut row = base.clone();
        row.direction = Some(run.way(role));
        let id = total.or_else(|| run.ends.iter().find(|f| f.role == role).map(|f| f.id)).unwrap_or_default();
        summary(&mut row, &run, id, role);
        row
    };
    let mut row = of(roles.first().copied().flatten());
    if let [Some(_), Some(back)] = roles.as_slice() {
        super::add_back(&mut row, &of(Some(back)), imported);
        row.direction = Some(Way::Both);
    }
    if run.ends.iter().any(|f| f.bits.is_none()) {
        imported.note("iperf3's unit is too coarse for its rates, which it prints as 0.00: left out");
    }
    imported.note("iperf3's text has three digits; its MBytes are 2^20 bytes, its Mbits 10^6 bits");
    without_noise(&mut row);
    imported.add_last(row);
    Ok(())
}

fn sent(row: &mut Row, figures: &Figures) {
    (row.sent_bits_per_s, row.bytes_sent) = (figures.bits, count(figures.bytes));
    super::set_retransmits(row, figures.retransmits);
}

fn received(row: &mut Row, figures: &Figures) {
    (row.throughput_bits_per_s, row.bytes_received) = (figures.bits, count(figures.bytes));
    row.jitter_us = figures.jitter_ms.map(|ms| ms * 1e3);
}

/// Sender's and receiver's lines of a stream or of all.
fn summary(row: &mut Row, run: &Run, id: &str, role: Option<&str>) {
    let line = |end: &str| run.ends.iter().find(|f| f.id == id && f.role == role && f.end_of == Some(end));
    let (sender, receiver) = (line("sender"), line("receiver"));
    row.start_s = Some(0.0);
    row.elapsed_s = receiver.or(sender).map(|f| f.end - f.start);
    if let Some(figures) = sender {
        sent(row, figures);
    }
    if let Some(figures) = receiver {
        received(row, figures);
    }
    let packets = sender.and_then(|f| f.datagrams).map(|(_, all)| all);
    let lost = receiver.and_then(|f| f.datagrams).and_then(|(lost, _)| lost);
    if packets.is_some() {
        set_messages(row, packets, None, lost);
    }
}
