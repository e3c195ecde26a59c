//! hpcbench: console lines, result files (fixed size, exponential), round-trip tests, system logs.

use schemas::columns::Row;
use schemas::words::{LatencyKind, Phase, Way};

use super::sheet::{Sheet, count, measured, number, set_latency, whole};
use crate::input::ParseError;

/// Whether hpcbench wrote it.
pub fn looks_like(text: &str) -> bool {
    text.lines().any(|l| {
        (l.starts_with("# ") && l.contains(" communication test -- "))
            || l.starts_with("TCP Round Trip Time (")
            || l.starts_with("UDP Round Trip Time (")
            || (l.starts_with("# ") && l.contains(" syslog -- "))
            || console(l).is_some()
    })
}

/// ` (3) : 936.252991 Mbps`.
fn console(line: &str) -> Option<f64> {
    let (trial, rest) = line.trim().strip_prefix('(')?.split_once(") : ")?;
    whole(trial)?;
    number(rest.strip_suffix(" Mbps")?)
}

/// Facts of the lines that begin with `#`.
#[derive(Clone, Debug, Default)]
struct Header {
    protocol: String,
    hosts: Option<(String, String)>,
    ping_pong: bool,
    exponential: bool,
    blocking: Option<bool>,
    no_delay: Option<bool>,
    send_buffers: Option<(u64, u64)>,
    receive_buffers: Option<(u64, u64)>,
    mss: Option<u64>,
    piece: Option<u64>,
    message: Option<u64>,
    total: Option<u64>,
    iteration: Option<u64>,
}

impl Header {
    fn take(&mut self, line: &str) {
        let Some((key, value)) = line.trim_start_matches('#').trim().split_once(':') else { return };
        let sides = || {
            let (_, value) = value.split_once("client:").or_else(|| line.split_once("client:"))?;
            let (client, server) = value.split_once("server:")?;
            Some((client.trim(), server.trim()))
        };
        let sizes = || sides().and_then(|(client, server)| Some((whole(client)?, whole(server)?)));
        let on = || sides().map(|(client, _)| client == "ON");
        let value = value.trim();
        match key.split(" -- ").next().unwrap_or(key) {
            "Hosts" => self.hosts = hosts(value),
            k if k.ends_with("test mode") => {
                self.ping_pong = value.starts_with("ping-pong");
                self.exponential = value.contains("exponential");
            }
            "Socket Recv-buffer (Bytes)" => self.receive_buffers = sizes(),
            "Socket Send-buffer (Bytes)" => self.send_buffers = sizes(),
            "Socket blocking option" => self.blocking = on(),
            "TCP_NODELAY option" => self.no_delay = on(),
            k if k.starts_with("TCP Maximum-segment-size") => self.mss = sizes().map(|(client, _)| client),
            k if k.starts_with("Data size of each read/write") => self.piece = whole(value),
            k if k.starts_with("Total data size") => self.total = whole(value),
            k if k.starts_with("Message size") => self.message = whole(value),
            "Iteration" => self.iteration = whole(value),
            _ => {}
        }
    }

    fn row(&self) -> Row {
        let protocol = if self.protocol.is_empty() { "tcp" } else { &self.protocol };
        let kind = match (self.ping_pong, self.blocking) {
            (false, _) => "stream",
            // Without blocking, hpcbench sends both ways at once and ignores message boundaries.
            (true, Some(false)) => "duplex",
            (true, _) => "pingpong",
        };
        let mut row = measured(&format!("{protocol}_{kind}"));
        if kind == "duplex" {
            row.direction = Some(Way::Both);
        }
        (row.from, row.to) = self.hosts.clone().unzip();
        row.io = self.blocking.map(|b| if b { "blocking" } else { "nonblocking" }.to_owned());
        row.no_delay = self.no_delay;
        (row.local_send_buffer_bytes, row.remote_send_buffer_bytes) = self.send_buffers.unzip();
        (row.local_receive_buffer_bytes, row.remote_receive_buffer_bytes) = self.receive_buffers.unzip();
        row.mss_bytes = self.mss;
        row.message_bytes = self.message;
        row.receive_bytes = self.piece;
        row
    }

    fn is_round_trips(&self) -> bool {
        self.ping_pong && self.blocking != Some(false)
    }
}

/// `mk1 (client) <----> mk4 (server)` and `mk1 <--> mk4`.
fn hosts(value: &str) -> Option<(String, String)> {
    let mut words = value.split_whitespace().filter(|w| !w.starts_with(['(', '<']));
    Some((words.next()?.to_owned(), words.next()?.to_owned()))
}

/// Reads files and pasted sessions. A session shows a test's console output and then its file: the file counts.
pub fn read(text: &str, sheet: &mut Sheet) -> Result<(), ParseError> {
    if text.lines().any(|l| l.starts_with("# ") && l.contains(" syslog -- ")) {
        return system_log(text, sheet);
    }
    let mut header = Header::default();
    let mut pending: Vec<Row> = Vec::new();
    for (at, line) in (1..).zip(text.lines()) {
        if let Some((protocol, _)) = line
            .strip_prefix("# ")
            .and_then(|l| l.split_once(" communication test").or(l.split_once(" roundtrip time test")))
        {
            pending.clear();
            header = Header { protocol: protocol.trim().to_ascii_lowercase(), ..Header::default() };
        } else if line.starts_with('#') {
            if let Some(hosts) = line.strip_prefix("# ").filter(|l| l.contains(" <--> ")).and_then(hosts) {
                header.hosts = Some(hosts);
            }
            header.take(line);
        } else if let Some(megabits) = console(line) {
            let mut row = Header { ping_pong: false, ..Header::default() }.row();
            row.throughput_bits_per_s = Some(megabits * 1e6);
            pending.push(row);
        } else if line.contains(" Round Trip Time (") {
            pending.push(round_trip(line, at, &header)?);
        } else if line.contains(" trials with message size ") {
            let size =
                line.split(" trials with message size ").nth(1).and_then(|r| r.split(' ').next()).and_then(whole);
            for row in &mut pending {
                row.message_bytes = size.or(row.message_bytes);
            }
            flush(&mut pending, sheet);
        } else if line.starts_with(|c: char| c.is_ascii_digit() || c == ' ') && !header.protocol.is_empty() {
            let cells: Option<Vec<f64>> = line.split_whitespace().map(number).collect();
            let Some(cells) = cells.filter(|c| c.len() > 2) else { continue };
            let row = table_row(&cells, &header, sheet)
                .ok_or_else(|| ParseError::expected(at, "a row of hpcbench's result table", line))?;
            sheet.add_last(row);
        }
    }
    if pending.iter().any(|r| r.throughput_bits_per_s.is_some()) {
        sheet.note(
            "hpcbench's console does not say what ran: a stream is assumed. A ping-pong counts both directions there: import \
             its file",
        );
    }
    flush(&mut pending, sheet);
    Ok(())
}

fn flush(pending: &mut Vec<Row>, sheet: &mut Sheet) {
    for row in pending.drain(..) {
        sheet.add_last(row);
    }
}

/// `TCP Round Trip Time (1) : 61.551 usec`; from 1000 µs on the unit is `msec`.
fn round_trip(line: &str, at: usize, header: &Header) -> Result<Row, ParseError> {
    let fault = || ParseError::expected(at, "`TCP Round Trip Time (N) : T usec`", line);
    let (head, tail) = line.rsplit_once(" : ").ok_or_else(fault)?;
    let words: Vec<&str> = tail.split_whitespace().collect();
    let [time, unit] = words.as_slice() else { return Err(fault()) };
    let time = number(time).ok_or_else(fault)?;
    let microseconds = match *unit {
        "usec" => time,
        "msec" => time * 1e3,
        _ => return Err(fault()),
    };
    let protocol = head.split(' ').next().unwrap_or("TCP").to_ascii_lowercase();
    let mut row = measured(&format!("{protocol}_pingpong"));
    (row.from, row.to) = header.hosts.clone().unzip();
    set_latency(&mut row, LatencyKind::RoundTrip, microseconds);
    Ok(row)
}

/// A row of a result file: 4 columns (exponential), 8 (TCP, MPI), 9 (UDP one way).
fn table_row(cells: &[f64], header: &Header, sheet: &mut Sheet) -> Option<Row> {
    let mut row = header.row();
    let (megabits, elapsed, iterations) = match (cells, header.exponential) {
        (&[size, megabits, elapsed, iterations], true) => {
            row.message_bytes = count(size);
            (megabits, Some(elapsed), count(iterations))
        }
        (&[_, megabits, client, _, _, server, _, _], false) => {
            let elapsed = if header.ping_pong { client } else { server };
            row.bytes_received = header.total;
            sheet.note("hpcbench's process times are not the machine's CPU use: left out");
            (megabits, Some(elapsed), header.iteration)
        }
        (&[_, network, local, sent, sent_bytes, received, received_bytes, lost, loss], false) => {
            row.sent_bits_per_s = Some(local * 1e6);
            (row.messages_sent, row.bytes_sent) = (count(sent), count(sent_bytes));
            (row.messages_received, row.bytes_received) = (count(received), count(received_bytes));
            (row.lost, row.loss_ratio) = (count(lost), Some(loss));
            (network, None, None)
        }
        _ => return None,
    };
    row.elapsed_s = elapsed;
    let mut bits = megabits * 1e6;
    if header.is_round_trips() {
        sheet.note("hpcbench counts both directions of a ping-pong in its Mbps: halved to one direction");
        bits /= 2.0;
        row.transactions = iterations;
        if let (Some(elapsed), Some(iterations)) = (elapsed.filter(|e| *e > 0.0), iterations.filter(|i| *i > 0)) {
            row.transactions_per_s = Some(iterations as f64 / elapsed);
            row.latency_mean_us = Some(elapsed / iterations as f64 * 1e6);
            row.latency_kind = Some(LatencyKind::RoundTrip);
        }
    } else if header.ping_pong {
        sheet.note("hpcbench's non-blocking bidirectional test sends both ways at once: its Mbps are the sum of both");
    }
    row.throughput_bits_per_s = Some(bits);
    Some(row)
}

/// `-c`: CPU load of the trials, with an idle second before (warm-up here) and after (cool-down).
fn system_log(text: &str, sheet: &mut Sheet) -> Result<(), ParseError> {
    let mut host = None;
    let mut records = 0;
    let mut cpu = None;
    let mut rows: Vec<Row> = Vec::new();
    for (at, line) in (1..).zip(text.lines()) {
        if let Some((name, _)) = line.strip_prefix("# ").and_then(|l| l.split_once(" syslog -- ")) {
            finish_log(&mut rows, sheet);
            host = Some(name.trim().to_owned());
        } else if let Some(n) = line.strip_prefix("# Watch times: ") {
            records = whole(n.trim()).ok_or_else(|| ParseError::expected(at, "`# Watch times: N`", line))?;
        } else if line.starts_with('#') {
            let named = line.split_whitespace().find_map(|w| w.strip_prefix("CPU").and_then(whole));
            if line.contains("workload (%)") {
                cpu = named;
            } else if line.starts_with("#####") {
                cpu = None;
            }
        } else if let Some(cpu) = cpu
            && line.starts_with(|c: char| c.is_ascii_digit())
        {
            let cells: Option<Vec<f64>> = line.split_whitespace().map(number).collect();
            let Some(&[record, load, _, _, _, all, user, system, _]) = cells.as_deref() else {
                return Err(ParseError::expected(at, "a record of 9 columns of CPU load", line));
            };
            let Some(record) = count(record).filter(|r| *r < records) else {
                return Err(ParseError::new(at, format!("record {record} of {records}")));
            };
            let at_record = rows.iter().position(|r| r.start_s == Some(record as f64)).unwrap_or_else(|| {
                let mut row = measured("system_log");
                row.transport = None;
                row.direction = None;
                row.from.clone_from(&host);
                let phase = match record {
                    0 => Phase::Warmup,
                    r if r + 1 == records => Phase::Cooldown,
                    _ => Phase::Measure,
                };
                row.phase = Some(phase);
                row.iteration = Some(record.max(1).min(records.saturating_sub(2).max(1)));
                // A mark to find the record again, removed at the end: the log has no times.
                row.start_s = Some(record as f64);
                row.local_cpu_ratio = Some(all / 100.0);
                row.local_cpu_user_ratio = Some(user / 100.0);
                row.local_cpu_system_ratio = Some(system / 100.0);
                rows.push(row);
                rows.len() - 1
            });
            let row = &mut rows[at_record];
            if row.local_cpu_peak_ratio.is_none_or(|peak| load / 100.0 > peak) {
                row.local_cpu_peak_ratio = Some(load / 100.0);
                row.local_cpu_peak_id = Some(cpu);
            }
        }
    }
    finish_log(&mut rows, sheet);
    sheet.note("hpcbench's system log: CPU load only; its interrupt and packet counts have no column here");
    Ok(())
}

fn finish_log(rows: &mut Vec<Row>, sheet: &mut Sheet) {
    for mut row in rows.drain(..) {
        row.start_s = None;
        sheet.add(row);
    }
    sheet.next_run();
}
