//! netperf's tables for people, and the kind of test that they show.

use super::{
    omni::agreed,
    unit::{Unit, set_transactions},
};
use crate::{
    error::ParseError,
    import::imported::{ImportedRows, count, measured, number, set_messages, whole},
};
use schemas::{
    columns::Row,
    words::{DemandUnit, Way},
};

/// The three shapes of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Stream,
    RequestResponse,
    Datagrams,
}

/// Facts of the column headings about the next result.
#[derive(Clone, Debug, Default)]
pub struct Heading {
    shape: Option<Shape>,
    /// Whether there are columns of CPU; `None`: the number of values tells.
    cpu: Option<bool>,
    unit: Option<Unit>,
    demand: Option<DemandUnit>,
}

impl Heading {
    /// The heading of results that are printed without one (`-P 0`): the command line names the test and the unit.
    pub fn given(kind: &Kind, unit: Option<Unit>) -> Self {
        let (Ok((transport, pattern)), Some(unit)) = (kind.known(0), unit) else { return Self::default() };
        let shape = match pattern {
            _ if pattern.has_transactions() => Shape::RequestResponse,
            Pattern::Stream if matches!(transport.as_str(), "udp" | "unix_dgram") => Shape::Datagrams,
            _ => Shape::Stream,
        };
        Self { shape: Some(shape), unit: Some(unit), ..Self::default() }
    }

    /// Takes a line of headings; `false` where it is none.
    pub fn take(&mut self, words: &[&str]) -> bool {
        let has = |word: &str| words.contains(&word);
        match words {
            ["Recv", "Send", "Send" | "Recv", ..] => {
                *self = Self { shape: Some(Shape::Stream), cpu: Some(has("Utilization")), ..Self::default() };
            }
            ["Local", "/Remote", ..] => {
                *self = Self { shape: Some(Shape::RequestResponse), cpu: Some(false), ..Self::default() };
            }
            ["Socket", "Size", "Request", "Resp.", "Elapsed", ..] => self.cpu = Some(has("CPU")),
            ["Socket", "Message", "Elapsed", "Messages", ..] => {
                *self = Self { shape: Some(Shape::Datagrams), cpu: Some(has("CPU")), ..Self::default() };
            }
            // `Rate` over `per sec`; with CPU, other units stand here, over the same `per sec`.
            ["Send", "Recv", "Size", "Size", "Time", rest @ ..] => {
                self.unit = match rest {
                    ["Rate", ..] => Some(Unit::Transactions),
                    [unit, ..] => Unit::parse(unit),
                    [] => None,
                };
            }
            ["bytes" | "Bytes", "bytes" | "Bytes", ..] => {
                // `10^6bits/sec`; with CPU the unit is padded: `KBytes  /s`.
                let padded = words.windows(2).find(|w| matches!(w[1], "/s" | "/sec")).and_then(|w| Unit::parse(w[0]));
                self.unit = padded.or_else(|| words.iter().find_map(|w| Unit::of_rate(w))).or(self.unit);
                self.demand = words.iter().find_map(|w| match *w {
                    "us/KB" => Some(DemandUnit::PerKib),
                    "us/Tr" => Some(DemandUnit::PerTransaction),
                    _ => None,
                });
            }
            ["Socket" | "Size", "Socket" | "Size" | "Recv", ..] => {}
            _ => return false,
        }
        true
    }

    /// The number of columns that the words fill, if they are a result under this heading.
    pub fn fits(&self, words: &[&str]) -> Option<usize> {
        let (without, with) = match self.shape? {
            Shape::Stream => (5, 9),
            Shape::RequestResponse => (6, 10),
            Shape::Datagrams => (6, 8),
        };
        // -B adds a tag of any words.
        // A CPU share that was not measured is -1.
        let is_figure = |at: usize, word: &str| number(word).is_some_and(|v| v >= 0.0 || at >= without);
        let filled = |wanted: usize| {
            words.len() >= wanted && words[..wanted].iter().enumerate().all(|(at, word)| is_figure(at, word))
        };
        let wanted = match self.cpu {
            Some(cpu) => [without, with][usize::from(cpu)],
            None if filled(with) => with,
            None => without,
        };
        filled(wanted).then_some(wanted)
    }

    pub fn has_second_line(&self) -> bool {
        self.shape != Some(Shape::Stream)
    }

    /// The next table has other columns.
    pub fn forget(&mut self) {
        self.shape = None;
    }
}

/// A result of `wanted` columns, and its second line.
pub fn result(
    words: &[&str],
    second: &[&str],
    wanted: usize,
    heading: &Heading,
    kind: &Kind,
    line: usize,
    imported: &mut ImportedRows,
) -> Result<Row, ParseError> {
    let shape = heading.shape.unwrap_or(Shape::Stream);
    let (transport, pattern) = kind.known(line)?;
    if (shape == Shape::RequestResponse) != pattern.has_transactions() {
        let name = workload(&transport, pattern);
        return Err(ParseError::new(line, format!("this is no table of {name}: these are parts of different tests")));
    }
    let unit = heading.unit.ok_or_else(|| ParseError::new(line, "the headings above name no unit of netperf's"))?;
    let unit = agreed(unit, imported.given.unit.as_deref(), line)?;
    let cell = |index: usize| number(words[index]).unwrap_or_default();
    let size = |index: usize| whole(words[index]).filter(|s| *s > 0);
    let mut row = measured(&workload(&transport, pattern));
    let tag = words[wanted..].join(" ");
    row.tag = (!tag.is_empty()).then_some(tag);
    let missing = |what: &str| ParseError::expected(line + 1, what, &second.join(" "));
    match shape {
        Shape::Stream => {
            row.elapsed_s = Some(cell(3));
            row.message_bytes = size(2);
            let cpu = wanted > 5;
            if pattern == Pattern::Maerts {
                row.direction = Some(Way::Reverse);
                if cpu {
                    imported.note("netperf prints the wrong buffer sizes for TCP_MAERTS with CPU: left out");
                } else {
                    row.local_receive_buffer_bytes = size(0);
                    row.remote_send_buffer_bytes = size(1);
                }
            } else {
                row.remote_receive_buffer_bytes = size(0);
                row.local_send_buffer_bytes = size(1);
            }
            row.throughput_bits_per_s = unit.bits(cell(4), imported);
            if cpu {
                set_cpu(&mut row, (cell(5), cell(6)), (cell(7), cell(8)), heading.demand);
            }
        }
        Shape::RequestResponse => {
            (row.local_send_buffer_bytes, row.local_receive_buffer_bytes) = (size(0), size(1));
            (row.request_bytes, row.response_bytes) = (size(2), size(3));
            row.elapsed_s = Some(cell(4));
            set_transactions(&mut row, words[5], unit, imported);
            if wanted > 6 {
                set_cpu(&mut row, (cell(6), cell(7)), (cell(8), cell(9)), heading.demand);
            }
            let sizes: Option<Vec<u64>> = second.iter().map(|w| whole(w)).collect();
            let Some(&[send, receive]) = sizes.as_deref() else {
                return Err(missing("the far end's line of a request/response result"));
            };
            (row.remote_send_buffer_bytes, row.remote_receive_buffer_bytes) = (Some(send), Some(receive));
        }
        Shape::Datagrams => {
            row.local_send_buffer_bytes = size(0);
            row.message_bytes = size(1);
            row.elapsed_s = Some(cell(2));
            row.errors = count(cell(4));
            row.sent_bits_per_s = unit.bits(cell(5), imported);
            let cpu = wanted > 6;
            let found: Option<Vec<f64>> = second.iter().map(|w| number(w)).collect();
            let Some(found) = found.filter(|f| f.len() == if cpu { 6 } else { 4 }) else {
                return Err(missing("the receiver's line of a UDP result"));
            };
            row.remote_receive_buffer_bytes = count(found[0]);
            set_messages(&mut row, count(cell(3)), count(found[2]), None);
            row.throughput_bits_per_s = unit.bits(found[3], imported);
            if cpu {
                set_cpu(&mut row, (cell(6), found[4]), (cell(7), found[5]), heading.demand);
            }
        }
    }
    Ok(row)
}

/// Utilisation in per cent (local, remote) and service demand; −1 means not measured.
fn set_cpu(row: &mut Row, busy: (f64, f64), demand: (f64, f64), unit: Option<DemandUnit>) {
    let known = |v: f64| (v >= 0.0).then_some(v);
    row.local_cpu_ratio = known(busy.0).map(|v| v / 100.0);
    row.remote_cpu_ratio = known(busy.1).map(|v| v / 100.0);
    if unit.is_some() {
        row.local_service_demand = known(demand.0);
        row.remote_service_demand = known(demand.1);
        row.service_demand_unit = unit;
    }
}

// The kind of a netperf test, joined from all places that say something of it.

/// The kind of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    Stream,
    Maerts,
    Sendfile,
    RequestResponse,
    ConnectRequestResponse,
    Connect,
}

/// Patterns with their ends of a workload's name, and netperf's words in `DIRECTION` and in banners.
const PATTERNS: [(Pattern, &str, &str, &[&str]); 6] = [
    (Pattern::ConnectRequestResponse, "crr", "Connect|Send|Recv", &["Connect/Request/Response"]),
    (Pattern::Connect, "cc", "Connection", &["Connect/Close"]),
    (Pattern::RequestResponse, "rr", "Send|Recv", &["REQUEST/RESPONSE"]),
    (Pattern::Sendfile, "sendfile", "", &["SENDFILE"]),
    (Pattern::Maerts, "maerts", "Receive", &["MAERTS"]),
    (Pattern::Stream, "stream", "Send", &["STREAM", "UNIDIRECTIONAL SEND"]),
];

impl Pattern {
    /// Whether its unit of work is a transaction.
    pub fn has_transactions(self) -> bool {
        matches!(self, Self::RequestResponse | Self::ConnectRequestResponse | Self::Connect)
    }

    fn name(self) -> &'static str {
        PATTERNS.iter().find(|(p, ..)| *p == self).map_or("", |(_, name, ..)| name)
    }

    /// The pattern of a value of `DIRECTION`.
    fn of_direction(text: &str) -> Option<Self> {
        PATTERNS.iter().find(|(.., direction, _)| !direction.is_empty() && *direction == text).map(|(p, ..)| *p)
    }
}

/// Transport and pattern, as far as they are known, and the place that said so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kind {
    transport: Option<(String, &'static str)>,
    pattern: Option<(Pattern, &'static str)>,
}

impl Kind {
    /// The kind of a test's name: of netperf (`TCP_RR`, `DG_STREAM`) or of a plan (`tcp_rr`, `unix_dgram_stream`).
    pub fn of_name(name: &str, source: &'static str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        let name = match name.as_str() {
            "stream_stream" | "stream_rr" => name.replacen("stream_", "unix_", 1),
            "dg_stream" | "dg_rr" => name.replacen("dg_", "unix_dgram_", 1),
            _ => name.trim_start_matches("xti_").to_owned(),
        };
        let (transport, end) = name.rsplit_once('_')?;
        let pattern = PATTERNS.iter().find(|(_, p, ..)| *p == end)?.0;
        let known = ["tcp", "udp", "sctp", "dccp", "udplite", "sdp", "unix", "unix_dgram"].contains(&transport);
        known.then(|| Self { transport: Some((transport.to_owned(), source)), pattern: Some((pattern, source)) })
    }

    /// The kind of a banner's title. `OMNI … TEST` says the direction only, and not in old versions.
    pub fn of_title(title: &str) -> Self {
        let source = "the banner";
        let title = title.trim_start_matches("MIGRATED ");
        if let Some(direction) = title.strip_prefix("OMNI ") {
            let pattern = Pattern::of_direction(direction.trim_end_matches("TEST").trim());
            return Self { transport: None, pattern: pattern.map(|p| (p, source)) };
        }
        let transport = if title.starts_with("STREAM ") {
            Some("unix")
        } else if title.starts_with("DG ") {
            Some("unix_dgram")
        } else {
            [("TCP ", "tcp"), ("UDP ", "udp"), ("SCTP ", "sctp"), ("DCCP ", "dccp"), ("SDP ", "sdp")]
                .into_iter()
                .find(|(word, _)| title.trim_start_matches("XTI ").starts_with(word))
                .map(|(_, transport)| transport)
        };
        let pattern = PATTERNS.iter().find(|(.., words)| words.iter().any(|w| title.contains(w))).map(|(p, ..)| *p);
        Self { transport: transport.map(|t| (t.to_owned(), source)), pattern: pattern.map(|p| (p, source)) }
    }

    /// Adds what another place says. Two places that contradict each other are an error.
    pub fn and(mut self, other: &Self, line: usize) -> Result<Self, ParseError> {
        let contradiction = |one: &str, source: &str, another: &str, other: &str| {
            Err(ParseError::new(
                line,
                format!("{source} says {one}, but {other} says {another}: these are parts of different tests"),
            ))
        };
        match (&self.transport, &other.transport) {
            (Some((a, s)), Some((b, t))) if a != b => return contradiction(a, s, b, t),
            (None, _) => self.transport.clone_from(&other.transport),
            _ => {}
        }
        match (&self.pattern, &other.pattern) {
            // Selectors have no word for sendfile.
            (Some((Pattern::Sendfile, _)), Some((Pattern::Stream, _))) => {}
            (Some((a, s)), Some((b, t))) if a != b => return contradiction(a.name(), s, b.name(), t),
            (None, _) => self.pattern = other.pattern,
            _ => {}
        }
        Ok(self)
    }

    pub fn protocol(name: &str) -> Self {
        Self { transport: Some((name.to_ascii_lowercase(), "PROTOCOL")), pattern: None }
    }

    pub fn direction(text: &str) -> Self {
        Self { transport: None, pattern: Pattern::of_direction(text).map(|p| (p, "DIRECTION")) }
    }

    /// Transport and pattern. Without them a result could be that of any test, so it is refused.
    pub fn known(&self, line: usize) -> Result<(String, Pattern), ParseError> {
        let missing = match (&self.transport, self.pattern) {
            (Some((transport, _)), Some((pattern, _))) => return Ok((transport.clone(), pattern)),
            (None, None) => "which test ran: run netperf without -P 0, add PROTOCOL and DIRECTION to its selectors",
            (None, _) => "which protocol the test used: add PROTOCOL to its selectors",
            (_, None) => "in which direction the test ran: add DIRECTION to its selectors",
        };
        Err(ParseError::new(line, format!("the output does not say {missing}, or name the test (--workload tcp_rr)")))
    }
}

/// The workload's name of a transport and a pattern.
pub fn workload(transport: &str, pattern: Pattern) -> String {
    format!("{transport}_{}", pattern.name())
}
