//! hpcbench: console lines, result files (fixed size, exponential), round-trip tests, system logs.

mod header;

use super::imported::{ImportedRows, count, exact, number, set_latency, set_messages, set_workload, whole};
use crate::error::ParseError;
use header::{Header, hosts, system_log};
use schemas::{
    columns::Row,
    words::{LatencyKind, Way},
};

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

/// Reads files and pasted sessions. A session shows a test's console output and then its file: the file counts.
pub fn read(text: &str, imported: &mut ImportedRows) -> Result<(), ParseError> {
    if text.lines().any(|l| l.starts_with("# ") && l.contains(" syslog -- ")) {
        return system_log(text, imported);
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
            whole_file(file, &header, imported)?;
            header = Header { protocol: protocol.trim().to_ascii_lowercase(), ..Header::default() };
            file = line.contains(" communication test").then_some((at, imported.len()));
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
                imported.add_last(row);
            }
        } else if verbose.take(line, at)? {
        } else if line.starts_with(|c: char| c.is_ascii_digit() || c == ' ') && !header.protocol.is_empty() {
            let cells: Option<Vec<f64>> = line.split_whitespace().map(number).collect();
            let Some(cells) = cells.filter(|c| !c.is_empty()) else { continue };
            let row = table_row(&cells, &header, imported)
                .ok_or_else(|| ParseError::expected(at, "a row of hpcbench's result table", line))?;
            imported.add_last(row);
        }
    }
    whole_file(file, &header, imported)?;
    if !trips.is_empty() {
        return Err(ParseError::new(text.lines().count(), "the summary of the round trips is missing: it was cut off"));
    }
    for row in verbose.rows {
        imported.add_last(row);
    }
    // A session shows a test's console before its file: only a console without a file counts.
    for (at, megabits, loss) in console_lines {
        let protocol = if loss.is_some() { "udp" } else { "tcp" };
        let kind = imported.given.workload.as_deref().and_then(|w| w.strip_prefix(protocol)).unwrap_or_default();
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
        row.throughput_bits_per_s = Some(bits(megabits, &header, imported));
        row.loss_ratio = loss;
        imported.add_last(row);
    }
    Ok(())
}

/// Checks that a file has as many rows as it announces.
fn whole_file(file: Option<(usize, usize)>, header: &Header, imported: &ImportedRows) -> Result<(), ParseError> {
    let (Some((line, before)), Some(wanted)) = (file, header.repetition) else { return Ok(()) };
    let rows = imported.len() - before;
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
                let (megabits, mut imported) = (value(megabits)?, ImportedRows::default());
                row.throughput_bits_per_s = Some(bits(megabits, &self.header, &mut imported));
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

/// Bits per second. A ping-pong's Mbps are 2 × size ÷ round trip, as in every table.
fn bits(megabits: f64, header: &Header, imported: &mut ImportedRows) -> f64 {
    if header.ping_pong && !header.is_round_trips() {
        imported
            .note("hpcbench's non-blocking bidirectional test sends both ways at once: its Mbps are the sum of both");
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

/// A row of a result file. Newer versions end each with a time. `None`: its columns are others.
fn table_row(cells: &[f64], header: &Header, imported: &mut ImportedRows) -> Option<Row> {
    let mut row = header.row();
    if header.protocol == "udp" {
        let mut cells = cells.to_vec();
        if header.exponential && cells.len() > 1 {
            row.message_bytes = Some(exact(cells.remove(1))?);
        }
        let &[_, network, local, sent, sent_bytes, received, received_bytes, ref rest @ ..] = cells.as_slice() else {
            return None;
        };
        row.sent_bits_per_s = Some(local * 1e6);
        let (sent, sent_bytes, received, received_bytes) = match *rest {
            [lost, share] | [lost, share, _] if !header.ping_pong => {
                (row.lost, row.loss_ratio) = (count(lost), Some(share));
                (sent, sent_bytes, received, received_bytes)
            }
            // The same of the other direction. The table's loss is that of one.
            [back, back_bytes, answers, answer_bytes, _] | [back, back_bytes, answers, answer_bytes, _, _]
                if header.ping_pong && !header.exponential =>
            {
                set_messages(&mut row, count(sent + answers), count(received + back), None);
                (sent + answers, sent_bytes + answer_bytes, received + back, received_bytes + back_bytes)
            }
            _ => return None,
        };
        (row.messages_sent, row.bytes_sent) = (count(sent), count(sent_bytes));
        (row.messages_received, row.bytes_received) = (count(received), count(received_bytes));
        row.throughput_bits_per_s = Some(bits(network, header, imported));
        return Some(row);
    }
    let (megabits, elapsed, iterations) = match (cells, header.exponential) {
        (&[size, megabits, elapsed, iterations], true) => {
            row.message_bytes = Some(exact(size)?);
            (megabits, Some(elapsed), count(iterations))
        }
        (&[_, megabits, client, _, _, server, _, _] | &[_, megabits, client, _, _, server, _, _, _], false) => {
            let elapsed = if header.ping_pong { client } else { server };
            // It is the amount of one direction.
            row.bytes_received = match (header.ping_pong, header.is_round_trips()) {
                (false, _) => header.total,
                (true, true) => header.total.and_then(|total| total.checked_mul(2)),
                (true, false) => None,
            };
            imported.note("hpcbench's process times are not the machine's CPU use: left out");
            (megabits, Some(elapsed), header.iteration)
        }
        _ => return None,
    };
    row.elapsed_s = elapsed;
    row.throughput_bits_per_s = Some(bits(megabits, header, imported));
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
