//! The kind of a netperf test, joined from all places that say something of it.

use crate::input::ParseError;

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
    pub fn of_direction(text: &str) -> Option<Self> {
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
