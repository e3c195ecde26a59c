//! hpcbench: console lines, result files (fixed size, exponential), round-trip tests, system logs.

use schemas::columns::Row;
use schemas::words::{LatencyKind, Phase, Way};

use super::sheet::{Sheet, count, measured, number, set_latency, set_messages, set_workload, whole};
use crate::input::ParseError;

/// Whether hpcbench wrote it.
pub fn looks_like(text: &str) -> bool {
    text.lines().any(|l| {
        (l.starts_with("# ") && l.contains(" communication test -- "))
            || l.starts_with("TCP Round Trip Time (")
            || l.starts_with("UDP Round Trip Time (")
            || (l.starts_with("# ") && l.contains(" syslog -- "))
            || console(l).is_some()
            || l.starts_with("Network-throughput(Mbps): ")
            || (l.starts_with("Elapsed-time : ") && l.contains("Network-throughput : "))
            || l.starts_with("Unable to establish data connection.")
    })
}

/// ` (3) : 936.252991 Mbps`, and for UDP ` (3) Throughput: 71.604738  Loss-rate: 0.873409`.
fn console(line: &str) -> Option<(f64, Option<f64>)> {
    let (trial, rest) = line.trim().strip_prefix('(')?.split_once(") ")?;
    whole(trial)?;
    if let Some(rest) = rest.strip_prefix("Throughput: ") {
        let (megabits, loss) = rest.split_once("  Loss-rate: ")?;
        return Some((number(megabits)?, Some(number(loss)?)));
    }
    Some((number(rest.strip_prefix(": ")?.strip_suffix(" Mbps")?)?, None))
}

/// Facts of the lines that begin with `#`.
#[derive(Clone, Debug, Default)]
struct Header {
    protocol: String,
    hosts: Option<(String, String)>,
    ping_pong: bool,
    sendfile: bool,
    exponential: bool,
    blocking: Option<bool>,
    no_delay: Option<bool>,
    send_buffers: Option<(u64, u64)>,
    receive_buffers: Option<(u64, u64)>,
    near_buffers: Option<(u64, u64)>,
    mss: Option<u64>,
    piece: Option<u64>,
    message: Option<u64>,
    total: Option<u64>,
    iteration: Option<u64>,
    /// Rows that the file announces.
    repetition: Option<u64>,
}

impl Header {
    fn take(&mut self, line: &str) {
        let text = line.trim_start_matches('#').trim();
        if text.ends_with("directional stream test") {
            self.exponential = text.starts_with("Exponential");
            self.ping_pong = text.contains("bidirectional");
        }
        self.sendfile |= text.contains("sendfile()");
        if let Some((end, sizes)) = text.split_once(" UDP socket buffer size (Bytes) -- SNDBUF: ")
            && let Some((send, receive)) = sizes.split_once(" RCVBUF: ")
            && let (Some(send), Some(receive)) = (whole(send.trim()), whole(receive.trim()))
        {
            let (sends, receives) =
                (self.send_buffers.get_or_insert((0, 0)), self.receive_buffers.get_or_insert((0, 0)));
            if end == "Client" {
                (sends.0, receives.0) = (send, receive);
            } else {
                (sends.1, receives.1) = (send, receive);
            }
        }
        if let Some((send, receive)) =
            text.split_once("-send-buffer: ").and_then(|(_, r)| r.split_once("-recv-buffer: "))
        {
            let size = |text: &str| text.split(' ').next().and_then(whole);
            self.near_buffers = size(send).zip(size(receive));
        }
        let Some((key, value)) = text.split_once(':') else { return };
        let sides = || {
            let (_, value) = value.split_once("client:").or_else(|| line.split_once("client:"))?;
            let (client, server) = value.split_once("server:")?;
            Some((client.trim(), server.trim()))
        };
        let both = || sides().and_then(|(client, server)| Some((whole(client)?, whole(server)?)));
        let on = || sides().map(|(client, _)| client == "ON");
        let value = value.trim();
        match key.split(" -- ").next().unwrap_or(key) {
            "Hosts" => self.hosts = hosts(value),
            k if k.ends_with("test mode") => {
                self.ping_pong = value.starts_with("ping-pong");
                self.exponential = value.contains("exponential");
            }
            "Socket Recv-buffer (Bytes)" => self.receive_buffers = both(),
            "Socket Send-buffer (Bytes)" => self.send_buffers = both(),
            "Socket blocking option" => self.blocking = on(),
            "TCP_NODELAY option" => self.no_delay = on(),
            k if k.starts_with("TCP Maximum-segment-size") => self.mss = both().map(|(client, _)| client),
            // UDP's "message" is its total; a datagram carries what each call writes.
            k if k.starts_with("UDP datagram") => {
                self.message = text.split(' ').rfind(|w| whole(w).is_some()).and_then(whole);
            }
            k if k.starts_with("Data size of each read/write") => self.piece = whole(value),
            k if k.starts_with("Total data size") => self.total = whole(value),
            k if k.starts_with("Message size") && self.protocol != "udp" => self.message = whole(value),
            "Iteration" => self.iteration = whole(value),
            "Test Repetition" | "Test repeat" => self.repetition = whole(value),
            _ => {}
        }
    }

    fn row(&self) -> Row {
        let protocol = if self.protocol.is_empty() { "tcp" } else { &self.protocol };
        let kind = match (self.ping_pong, self.blocking) {
            (false, _) if self.sendfile => "sendfile",
            (false, _) => "stream",
            // Without blocking, and over UDP, hpcbench sends both ways at once and ignores message boundaries.
            (true, Some(false)) => "duplex",
            (true, _) if protocol == "udp" => "duplex",
            (true, _) => "pingpong",
        };
        let mut row = measured(&format!("{protocol}_{kind}"));
        if kind == "duplex" {
            row.direction = Some(Way::Both);
        }
        if let Some((send, receive)) = self.near_buffers {
            (row.local_send_buffer_bytes, row.local_receive_buffer_bytes) = (Some(send), Some(receive));
        }
        (row.from, row.to) = self.hosts.clone().unzip();
        row.io = self.blocking.map(|b| if b { "blocking" } else { "nonblocking" }.to_owned());
        row.no_delay = self.no_delay;
        if self.near_buffers.is_none() {
            (row.local_send_buffer_bytes, row.remote_send_buffer_bytes) = self.send_buffers.unzip();
            (row.local_receive_buffer_bytes, row.remote_receive_buffer_bytes) = self.receive_buffers.unzip();
        }
        row.mss_bytes = self.mss;
        row.message_bytes = self.message;
        row.receive_bytes = self.piece;
        row
    }

    fn is_round_trips(&self) -> bool {
        self.ping_pong && self.blocking != Some(false) && self.protocol != "udp"
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
    let mut file = None;
    // Lines of a console, until a file repeats them.
    let mut console_lines: Vec<(usize, f64, Option<f64>)> = Vec::new();
    let mut trips: Vec<Row> = Vec::new();
    let mut verbose = Verbose::default();
    for (at, line) in (1..).zip(text.lines()) {
        if line.contains("Unable to establish data connection.") || line.contains("communication Error.") {
            return Err(ParseError::new(at, format!("hpcbench failed: {}", line.trim())));
        }
        if let Some((protocol, _)) = line
            .strip_prefix("# ")
            .and_then(|l| l.split_once(" communication test").or(l.split_once(" roundtrip time test")))
        {
            console_lines.clear();
            verbose.rows.clear();
            trips.clear();
            whole_file(file, &header, sheet)?;
            header = Header { protocol: protocol.trim().to_ascii_lowercase(), ..Header::default() };
            file = line.contains(" communication test").then_some((at, sheet.len()));
        } else if line.starts_with('#') {
            if let Some(hosts) = line.strip_prefix("# ").filter(|l| l.contains(" <--> ")).and_then(hosts) {
                header.hosts = Some(hosts);
            }
            header.take(line);
        } else if let Some((megabits, loss)) = console(line) {
            console_lines.push((at, megabits, loss));
        } else if line.contains(" Round Trip Time (") {
            trips.push(round_trip(line, at, &header)?);
        } else if let Some((count, size)) = line.split_once(" trials with message size ") {
            let size = size.split(' ').next().and_then(whole);
            if whole(count.trim()) != Some(trips.len() as u64) {
                return Err(ParseError::new(at, format!("{} lines of round trips above `{line}`", trips.len())));
            }
            for mut row in trips.drain(..) {
                row.message_bytes = size.or(row.message_bytes);
                sheet.add_last(row);
            }
        } else if verbose.take(line, at)? {
        } else if line.starts_with(|c: char| c.is_ascii_digit() || c == ' ') && !header.protocol.is_empty() {
            let cells: Option<Vec<f64>> = line.split_whitespace().map(number).collect();
            let Some(cells) = cells.filter(|c| !c.is_empty()) else { continue };
            let row = table_row(&cells, &header, sheet)
                .ok_or_else(|| ParseError::expected(at, "a row of hpcbench's result table", line))?;
            sheet.add_last(row);
        }
    }
    whole_file(file, &header, sheet)?;
    if !trips.is_empty() {
        return Err(ParseError::new(text.lines().count(), "the summary of the round trips is missing: it was cut off"));
    }
    for row in verbose.rows {
        sheet.add_last(row);
    }
    // A session shows a test's console before its file: only a console without a file counts.
    for (at, megabits, loss) in console_lines {
        let protocol = if loss.is_some() { "udp" } else { "tcp" };
        let kind = sheet.given.workload.as_deref().and_then(|w| w.strip_prefix(protocol)).unwrap_or_default();
        let header = match kind {
            "_stream" | "_sendfile" => {
                Header { protocol: protocol.to_owned(), sendfile: kind == "_sendfile", ..Header::default() }
            }
            "_pingpong" => Header { protocol: protocol.to_owned(), ping_pong: true, ..Header::default() },
            "_duplex" => {
                let blocking = (protocol == "tcp").then_some(false);
                Header { protocol: protocol.to_owned(), ping_pong: true, blocking, ..Header::default() }
            }
            _ => {
                let reason = format!(
                    "hpcbench's console does not say which test ran: import its file (-o), run it with -v, or name the test \
                     (--workload {protocol}_stream)"
                );
                return Err(ParseError::new(at, reason));
            }
        };
        let mut row = header.row();
        row.throughput_bits_per_s = Some(one_way(megabits, &header, sheet));
        row.loss_ratio = loss;
        sheet.add_last(row);
    }
    Ok(())
}

/// Checks that a file has as many rows as it announces.
fn whole_file(file: Option<(usize, usize)>, header: &Header, sheet: &Sheet) -> Result<(), ParseError> {
    let (Some((line, before)), Some(wanted)) = (file, header.repetition) else { return Ok(()) };
    let rows = sheet.len() - before;
    if rows as u64 == wanted {
        return Ok(());
    }
    Err(ParseError::new(
        line,
        format!("the file that begins here announces {wanted} repetitions and has {rows}: it was cut off"),
    ))
}

/// The console of `-v`, which says what ran.
#[derive(Default)]
struct Verbose {
    header: Header,
    udp: Option<[f64; 4]>,
    times: Option<(f64, f64)>,
    megabits: Option<(f64, f64)>,
    rows: Vec<Row>,
}

impl Verbose {
    /// Takes a line; `false` where it is another's.
    fn take(&mut self, line: &str, at: usize) -> Result<bool, ParseError> {
        let fault = || ParseError::expected(at, "a line of hpcbench -v", line);
        let words: Vec<&str> = line.split_whitespace().collect();
        let value = |text: &str| number(text).ok_or_else(fault);
        match words.as_slice() {
            [mode, blocking, no_delay, _] if mode.starts_with("Stream-test[") || mode.starts_with("Pingpong-test[") => {
                self.header =
                    Header { protocol: "tcp".to_owned(), ping_pong: mode.starts_with('P'), ..self.header.clone() };
                self.header.blocking = Some(*blocking == "Blocking[ON]");
                self.header.no_delay = Some(*no_delay == "TCP_NODELAY[ON]");
            }
            [_, "test.", "Message-size:", size, "Iteration:", iteration, ..] => {
                self.header.message = whole(size);
                self.header.iteration = whole(iteration);
            }
            ["Elapsed-time", ":", elapsed, "Seconds", "Network-throughput", ":", megabits, "Mbps"] => {
                if self.header.protocol.is_empty() {
                    return Err(ParseError::new(
                        at,
                        "the beginning of hpcbench's console is missing, which says what ran",
                    ));
                }
                let mut row = self.header.row();
                row.elapsed_s = Some(value(elapsed)?);
                let (megabits, mut sheet) = (value(megabits)?, Sheet::default());
                row.throughput_bits_per_s = Some(one_way(megabits, &self.header, &mut sheet));
                self.rows.push(row);
            }
            ["[Client]", "Sent-bytes:", bytes, "Sent-packets:", packets, "Recv-bytes:", back, ..] => {
                if value(back)? > 0.0 {
                    let reason = "the console of a bidirectional UDP test mixes both directions: import its file (-o)";
                    return Err(ParseError::new(at, reason));
                }
                self.udp = Some([value(bytes)?, value(packets)?, -1.0, -1.0]);
            }
            ["[Server]", "Recv-bytes:", bytes, "Recv-Packets:", packets, ..] => {
                let known = self.udp.as_mut().ok_or_else(fault)?;
                (known[2], known[3]) = (value(bytes)?, value(packets)?);
            }
            ["Client-time(Sec.):", client, "Server-time(Sec.):", server] => {
                self.times = Some((value(client)?, value(server)?));
            }
            ["Network-throughput(Mbps):", network, "Local-throughput:", local] => {
                self.megabits = Some((value(network)?, value(local)?));
            }
            ["Lost-packets", "(c->s):", lost, "Loss-rate(c->s):", share] => {
                let (Some([sent_bytes, sent, received_bytes, received]), Some((_, server)), Some((network, local))) =
                    (self.udp.take(), self.times.take(), self.megabits.take())
                else {
                    return Err(fault());
                };
                let header = Header { protocol: "udp".to_owned(), ..Header::default() };
                let mut row = header.row();
                row.elapsed_s = Some(server);
                (row.throughput_bits_per_s, row.sent_bits_per_s) = (Some(network * 1e6), Some(local * 1e6));
                (row.bytes_sent, row.messages_sent) = (count(sent_bytes), count(sent));
                (row.bytes_received, row.messages_received) = (count(received_bytes), count(received));
                (row.lost, row.loss_ratio) = (count(value(lost)?), Some(value(share)?));
                self.rows.push(row);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Bits per second in one direction.
fn one_way(megabits: f64, header: &Header, sheet: &mut Sheet) -> f64 {
    if header.is_round_trips() {
        sheet.note("hpcbench counts both directions of a ping-pong in its Mbps: halved to one direction");
        return megabits * 1e6 / 2.0;
    }
    if header.ping_pong {
        sheet.note("hpcbench's non-blocking bidirectional test sends both ways at once: its Mbps are the sum of both");
    }
    megabits * 1e6
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
    let header = Header { protocol, ping_pong: true, blocking: None, ..header.clone() };
    let mut row = header.row();
    // UDP sends both ways at once in its other tests, not here.
    set_workload(&mut row, &format!("{}_pingpong", header.protocol));
    row.direction = Some(Way::Forward);
    set_latency(&mut row, LatencyKind::RoundTrip, microseconds);
    Ok(row)
}

/// A row of a result file. Newer versions end each with a time. `None`: the number of columns is another.
fn table_row(cells: &[f64], header: &Header, sheet: &mut Sheet) -> Option<Row> {
    let mut row = header.row();
    let datagrams = |row: &mut Row, sent: [f64; 2], received: [f64; 2]| {
        (row.messages_sent, row.bytes_sent) = (count(sent[0]), count(sent[1]));
        (row.messages_received, row.bytes_received) = (count(received[0]), count(received[1]));
    };
    if header.protocol == "udp" {
        let network = match (cells, header.exponential, header.ping_pong) {
            (
                &[_, network, local, sent, sent_bytes, received, received_bytes, lost, share]
                | &[_, network, local, sent, sent_bytes, received, received_bytes, lost, share, _],
                false,
                false,
            ) => {
                row.sent_bits_per_s = Some(local * 1e6);
                datagrams(&mut row, [sent, sent_bytes], [received, received_bytes]);
                (row.lost, row.loss_ratio) = (count(lost), Some(share));
                network
            }
            (
                &[_, size, network, local, sent, sent_bytes, received, received_bytes, lost, share]
                | &[_, size, network, local, sent, sent_bytes, received, received_bytes, lost, share, _],
                true,
                false,
            ) => {
                row.message_bytes = count(size);
                row.sent_bits_per_s = Some(local * 1e6);
                datagrams(&mut row, [sent, sent_bytes], [received, received_bytes]);
                (row.lost, row.loss_ratio) = (count(lost), Some(share));
                network
            }
            (
                &[_, network, local, cs, csb, sr, srb, cr, crb, ss, ssb, _]
                | &[_, network, local, cs, csb, sr, srb, cr, crb, ss, ssb, _, _],
                false,
                true,
            ) => {
                row.sent_bits_per_s = Some(local * 1e6);
                datagrams(&mut row, [cs + ss, csb + ssb], [sr + cr, srb + crb]);
                // The table's loss is that of one direction.
                set_messages(&mut row, count(cs + ss), count(sr + cr), None);
                network
            }
            _ => return None,
        };
        row.throughput_bits_per_s = Some(one_way(network, header, sheet));
        return Some(row);
    }
    let (megabits, elapsed, iterations) = match (cells, header.exponential) {
        (&[size, megabits, elapsed, iterations], true) => {
            row.message_bytes = count(size);
            (megabits, Some(elapsed), count(iterations))
        }
        (&[_, megabits, client, _, _, server, _, _] | &[_, megabits, client, _, _, server, _, _, _], false) => {
            let elapsed = if header.ping_pong { client } else { server };
            // With both ways at once it is the amount of one.
            row.bytes_received = header.total.filter(|_| !header.ping_pong || header.is_round_trips());
            sheet.note("hpcbench's process times are not the machine's CPU use: left out");
            (megabits, Some(elapsed), header.iteration)
        }
        _ => return None,
    };
    row.elapsed_s = elapsed;
    row.throughput_bits_per_s = Some(one_way(megabits, header, sheet));
    if header.is_round_trips() {
        row.transactions = iterations;
        if let (Some(elapsed), Some(iterations)) = (elapsed.filter(|e| *e > 0.0), iterations.filter(|i| *i > 0)) {
            row.transactions_per_s = Some(iterations as f64 / elapsed);
            row.latency_mean_us = Some(elapsed / iterations as f64 * 1e6);
            row.latency_kind = Some(LatencyKind::RoundTrip);
        }
    }
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
