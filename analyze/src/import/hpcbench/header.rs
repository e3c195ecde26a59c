//! What surrounds hpcbench's results: the head of its files (lines that begin with `#`), and its system log.

use crate::{
    error::ParseError,
    import::imported::{ImportedRows, count, measured, number, whole},
};
use schemas::{
    columns::Row,
    words::{Phase, Way},
};

/// Facts of the lines that begin with `#`.
#[derive(Clone, Debug, Default)]
pub(super) struct Header {
    pub(super) protocol: String,
    pub(super) hosts: Option<(String, String)>,
    pub(super) ping_pong: bool,
    pub(super) sendfile: bool,
    pub(super) exponential: bool,
    pub(super) blocking: Option<bool>,
    pub(super) no_delay: Option<bool>,
    pub(super) send_buffers: Option<(u64, u64)>,
    pub(super) receive_buffers: Option<(u64, u64)>,
    pub(super) near_buffers: Option<(u64, u64)>,
    pub(super) mss: Option<u64>,
    pub(super) piece: Option<u64>,
    pub(super) message: Option<u64>,
    pub(super) total: Option<u64>,
    pub(super) iteration: Option<u64>,
    /// Rows that the file announces.
    pub(super) repetition: Option<u64>,
}

impl Header {
    pub(super) fn take(&mut self, line: &str) {
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

    pub(super) fn row(&self) -> Row {
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

    pub(super) fn is_round_trips(&self) -> bool {
        self.ping_pong && self.blocking != Some(false) && self.protocol != "udp"
    }
}

/// `mk1 (client) <----> mk4 (server)` and `mk1 <--> mk4`.
pub(super) fn hosts(value: &str) -> Option<(String, String)> {
    let mut words = value.split_whitespace().filter(|w| !w.starts_with(['(', '<']));
    Some((words.next()?.to_owned(), words.next()?.to_owned()))
}

// hpcbench's system log (`-c`).

/// `-c`: CPU load of the trials, with an idle second before (warm-up here) and after (cool-down).
pub fn system_log(text: &str, imported: &mut ImportedRows) -> Result<(), ParseError> {
    let mut host = None;
    let mut records = 0;
    let mut cpu = None;
    let mut rows: Vec<Row> = Vec::new();
    for (at, line) in (1..).zip(text.lines()) {
        if let Some((name, _)) = line.strip_prefix("# ").and_then(|l| l.split_once(" syslog -- ")) {
            finish_log(&mut rows, imported);
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
    finish_log(&mut rows, imported);
    imported.note("hpcbench's system log: CPU load only; its interrupt and packet counts have no column here");
    Ok(())
}

fn finish_log(rows: &mut Vec<Row>, imported: &mut ImportedRows) {
    for mut row in rows.drain(..) {
        row.start_s = None;
        imported.add(row);
    }
    imported.next_run();
}
