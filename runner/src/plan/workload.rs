//! Workload names: a transport and a pattern, sometimes with a direction or an io method, in one word.

use netcore::{
    daemon::Part,
    spec::{
        Direction, Io, Pattern, Side, TestSpec, Transport,
        ranks::{Kernel, RanksSpec, Work},
        support,
    },
};
use serde_json::{Value as Json, json};

use super::{diagnostics::nearest, quantity::word};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// In lower case, as in results.
    pub name: String,
    pub kind: Kind,
    /// A remark about the name.
    pub note: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bytes between two ends.
    Traffic {
        pattern: Pattern,
        transport: Transport,
        /// Direction in the name (`maerts`, `duplex`).
        direction: Option<Direction>,
        /// Io method in the name (`sendfile`).
        io: Option<Io>,
        /// Requests and responses both have `message_size`.
        pingpong: bool,
    },
    /// Bytes between several ranks.
    Ranks {
        transport: Transport,
        /// `None`: the test names an operation.
        kernel: Option<Kernel>,
    },
    /// Latency under load: stands for a group of streams and probes.
    Responsiveness,
    /// A program that prints numbers.
    Command,
}

impl Kind {
    /// Why `pairs` cannot say between whom it is, and what to do; `None`: it can. `alone`: one pair is measured at a time.
    pub fn refuses_pairs(&self, alone: bool) -> Option<(&'static str, &'static str)> {
        let what = match self {
            Self::Traffic { .. } => return None,
            Self::Responsiveness if alone => return None,
            Self::Responsiveness => {
                let what = "responsiveness is a group for each pair, and groups are measured one at a time";
                return Some((what, "add `alone: true` to `pairs`"));
            }
            Self::Ranks { .. } => "a test of ranks is between all of its hosts at once, which `ranks` names",
            Self::Command => "a command runs on this machine, and has no pairs of hosts",
        };
        Some((what, "leave `pairs` out"))
    }
}

struct Suffix {
    name: &'static str,
    pattern: Pattern,
    direction: Option<Direction>,
    io: Option<Io>,
    pingpong: bool,
}

const fn suffix(name: &'static str, pattern: Pattern) -> Suffix {
    Suffix { name, pattern, direction: None, io: None, pingpong: false }
}

const SUFFIXES: &[Suffix] = &[
    suffix("stream", Pattern::Stream),
    Suffix { direction: Some(Direction::Reverse), ..suffix("maerts", Pattern::Stream) },
    Suffix { direction: Some(Direction::Duplex), ..suffix("duplex", Pattern::Stream) },
    Suffix { io: Some(Io::Sendfile), ..suffix("sendfile", Pattern::Stream) },
    suffix("rr", Pattern::RequestResponse),
    Suffix { pingpong: true, ..suffix("pingpong", Pattern::RequestResponse) },
    suffix("crr", Pattern::ConnectRequestResponse),
    suffix("cc", Pattern::Connect),
];

/// The workload that a test runs, as a plan would name it without a direction.
fn name_of(spec: &TestSpec) -> String {
    let transport = spec.transport.name();
    match SUFFIXES.iter().find(|suffix| suffix.pattern == spec.pattern) {
        Some(suffix) => format!("{transport}_{}", suffix.name),
        None => "ping".to_owned(),
    }
}

/// Names of tests of ranks over one transport, and their kernels. A kernel without a transport runs over TCP.
fn of_ranks(transport: Transport) -> Vec<(String, Option<Kernel>)> {
    if !transport.has_ranks() {
        return Vec::new();
    }
    let named = |kernel: Kernel| match transport {
        Transport::Tcp => (kernel.as_str().to_owned(), Some(kernel)),
        other => (format!("{}_{}", other.name(), kernel.as_str()), Some(kernel)),
    };
    std::iter::once((format!("{}_collective", transport.name()), None))
        .chain(Kernel::ALL.iter().copied().map(named))
        .collect()
}

/// The workload of a test of several ranks.
fn name_of_ranks(spec: &RanksSpec) -> String {
    let kernel = match spec.work {
        Work::Operation { .. } => None,
        Work::Nas { kernel, .. } => Some(kernel),
    };
    let named = of_ranks(spec.transport).into_iter().find(|(_, of)| *of == kernel);
    named.map_or_else(|| spec.transport.name().to_owned(), |(name, _)| name)
}

/// A part of a test by its workload, in words and as the keys of a log line.
pub fn of_part(part: &Part) -> (String, Json) {
    match part {
        Part::End { side, spec } => {
            let name = name_of(spec);
            let side = if *side == Side::Near { "near" } else { "far" };
            let streams = if spec.streams == 1 { String::new() } else { format!(", {} streams", spec.streams) };
            let words = format!("{name}{streams}");
            let direction = spec.direction.name();
            (words, json!({"workload": name, "direction": direction, "side": side, "streams": spec.streams}))
        }
        Part::Rank { rank, ranks, spec } => {
            let name = name_of_ranks(spec);
            (format!("{name}, rank {rank} of {ranks}"), json!({"workload": name, "rank": rank, "ranks": ranks}))
        }
    }
}

/// netperf's names that differ in more than case, and ours in full.
const ALIASES: &[(&str, &str)] = &[
    ("tcp_nas_ep", "nas_ep"),
    ("tcp_nas_is", "nas_is"),
    ("stream_stream", "unix_stream"),
    ("stream_rr", "unix_rr"),
    ("dg_stream", "unix_dgram_stream"),
    ("dg_rr", "unix_dgram_rr"),
    ("quic_datagram", "quic_dgram_stream"),
    ("dlcl_stream", "link_stream"),
    ("dlcl_rr", "link_rr"),
    ("dlco_stream", "link_stream"),
    ("dlco_rr", "link_rr"),
];

const XTI_NOTE: &str = "XTI has no implementation on Linux: the socket engine runs this";

/// netperf's names without a counterpart, and what to use instead.
const REFUSED: &[(&str, &str)] = &[
    ("omni", "name what it does: tcp_stream, udp_rr, …; direction, transport and sizes are keys of the test"),
    ("tcp_mss", "every tcp workload reports mss_bytes: run tcp_rr"),
    ("loc_cpu", "CPU time needs no calibration here: every row has the CPU columns"),
    ("rem_cpu", "CPU time needs no calibration here: every row has the CPU columns"),
    ("uuid", "every run has its own run_id"),
    ("dns_rr", "netperf itself removed it: use a command workload with a resolver benchmark"),
    ("tcp_trr", "T/TCP is gone from every kernel: use tcp_crr with socket.fastopen"),
    ("tcp_nbrr", "write tcp_rr with io: nonblocking"),
    ("sdp_stream", "SDP is gone from Linux: tcp_stream runs over the same address"),
    ("sdp_maerts", "SDP is gone from Linux: tcp_maerts runs over the same address"),
    ("sdp_rr", "SDP is gone from Linux: tcp_rr runs over the same address"),
    ("exs_tcp_stream", "EXS is gone from Linux: use tcp_stream, with io: nonblocking if calls must not block"),
    ("sctp_stream_many", "one association per stream: write sctp_stream with streams: N"),
    ("sctp_rr_many", "one association per stream: write sctp_rr with streams: N"),
];

/// Splits a name into transport and suffix.
fn words(name: &str) -> Option<(Transport, &'static Suffix)> {
    // Both parts must be known: `unix_dgram_rr` is not `unix` with the suffix `dgram_rr`.
    Transport::ALL.iter().find_map(|transport| {
        let rest = name.strip_prefix(transport.name())?.strip_prefix('_')?;
        SUFFIXES.iter().find(|suffix| suffix.name == rest).map(|suffix| (*transport, suffix))
    })
}

/// Whether the engines run it, given the interface that a link test needs.
fn runs(transport: Transport, suffix: &Suffix) -> bool {
    let mut spec = TestSpec::new(suffix.pattern, transport);
    spec.direction = suffix.direction.unwrap_or_default();
    spec.io = suffix.io.unwrap_or_default();
    (spec.near.socket.device, spec.far.socket.device) = (Some(String::new()), Some(String::new()));
    support::check(&spec).is_ok()
}

/// Workload names over one transport.
pub fn names_over(transport: Transport) -> Vec<String> {
    let suffixes = SUFFIXES.iter().filter(|suffix| runs(transport, suffix));
    suffixes.map(|suffix| format!("{}_{}", transport.name(), suffix.name)).collect()
}

/// Workload names of tests of several ranks.
pub fn names_of_ranks() -> Vec<String> {
    Transport::ALL.into_iter().flat_map(of_ranks).map(|(name, _)| name).collect()
}

/// All workload names, in their canonical form.
pub fn names() -> Vec<String> {
    let mut names: Vec<String> = Transport::ALL.into_iter().flat_map(names_over).collect();
    names.extend(names_of_ranks());
    names.extend(["ping", "responsiveness", "command"].map(str::to_owned));
    names
}

fn ranks(name: &str) -> Option<(Transport, Option<Kernel>)> {
    Transport::ALL.into_iter().find_map(|transport| {
        of_ranks(transport).into_iter().find(|(known, _)| known == name).map(|(_, kernel)| (transport, kernel))
    })
}

fn traffic(name: &str) -> Result<Kind, String> {
    match words(name) {
        // `support::check` refuses an io method or direction that the transport lacks, with the reason.
        Some((transport, suffix)) if !transport.methods(suffix.pattern).is_empty() => Ok(Kind::Traffic {
            pattern: suffix.pattern,
            transport,
            direction: suffix.direction,
            io: suffix.io,
            pingpong: suffix.pingpong,
        }),
        Some((transport, _)) if transport != Transport::Icmp => {
            Err(format!("{} runs {}", transport.name(), names_over(transport).join(", ")))
        }
        _ => Err(nearest(name, names().iter().map(String::as_str)).map_or_else(
            || "for example tcp_stream, tcp_rr, udp_stream, unix_rr, ping".to_owned(),
            |near| format!("did you mean `{near}`?"),
        )),
    }
}

impl std::str::FromStr for Workload {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let lower = text.to_ascii_lowercase();
        let (name, note) = match lower.strip_prefix("xti_") {
            Some(rest) => (rest.to_owned(), Some(XTI_NOTE)),
            None => (lower, None),
        };
        let name = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, real)| (*real).to_owned());
        if let Some((_, why)) = REFUSED.iter().find(|(refused, _)| *refused == name) {
            return Err(format!("`{text}` is not a workload here: {why}"));
        }
        let kind = match name.as_str() {
            "command" => Kind::Command,
            "responsiveness" => Kind::Responsiveness,
            "ping" => Kind::Traffic {
                pattern: Pattern::Ping,
                transport: Transport::Icmp,
                direction: None,
                io: None,
                pingpong: false,
            },
            _ if let Some((transport, kernel)) = ranks(&name) => Kind::Ranks { transport, kernel },
            _ => traffic(&name).map_err(|help| format!("unknown workload `{text}`: {help}"))?,
        };
        Ok(Self { name, kind, note })
    }
}

// Upper case and netperf's own names are accepted too, so the names are examples and the pattern decides.
word!(Workload as "Workload", str::parse, {
    "description": "what runs: transport and pattern in one word",
    "type": "string",
    "examples": names(),
    "pattern": r"^([A-Za-z]+(_[A-Za-z]+)*|.*\$\{vars\..*)$"
});

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(name: &str) -> Kind {
        name.parse::<Workload>().unwrap_or_else(|e| panic!("{e}")).kind
    }

    #[test]
    fn names_are_words_for_orthogonal_things() {
        assert_eq!(
            kind("tcp_maerts"),
            Kind::Traffic {
                pattern: Pattern::Stream,
                transport: Transport::Tcp,
                direction: Some(Direction::Reverse),
                io: None,
                pingpong: false
            }
        );
        assert!(matches!(kind("unix_dgram_rr"), Kind::Traffic { transport: Transport::UnixDatagram, .. }));
        assert!(matches!(kind("tcp_sendfile"), Kind::Traffic { io: Some(Io::Sendfile), .. }));
        assert!(matches!(kind("udp_pingpong"), Kind::Traffic { pingpong: true, .. }));
        assert_eq!(kind("command"), Kind::Command);
    }

    #[test]
    fn netperf_users_find_their_words() {
        assert_eq!(kind("TCP_MAERTS"), kind("tcp_maerts"));
        assert_eq!(kind("STREAM_STREAM"), kind("unix_stream"));
        assert_eq!(kind("DG_RR"), kind("unix_dgram_rr"));
        assert_eq!(kind("DLCL_STREAM"), kind("link_stream"));
        assert_eq!("XTI_UDP_RR".parse::<Workload>().unwrap().note, Some(XTI_NOTE));
        assert!("LOC_CPU".parse::<Workload>().unwrap_err().contains("no calibration"));
        assert!("tcp_steam".parse::<Workload>().unwrap_err().contains("did you mean `tcp_stream`?"));
        assert!("udp_crr".parse::<Workload>().unwrap_err().contains("unknown workload"));
    }

    #[test]
    fn every_name_reads_back() {
        for name in names() {
            assert_eq!(name.parse::<Workload>().unwrap().name, name);
        }
    }

    /// The names published in the schema are those that run.
    #[test]
    fn names_are_those_that_run() {
        let names = names();
        for name in ["sctp_crr", "vsock_cc", "udp_duplex", "udp_sendfile"] {
            assert!(!names.contains(&name.to_owned()), "{name} does not run");
        }
        for name in ["unix_crr", "unix_cc", "mptcp_crr", "link_rr", "pipe_stream", "vsock_rr"] {
            assert!(names.contains(&name.to_owned()), "{name} runs");
        }
        for name in ["sctp_crr", "vsock_cc"] {
            let error = name.parse::<Workload>().unwrap_err();
            assert!(error.contains("unknown workload") && error.contains("_stream"), "{error}");
        }
        assert!(kind("unix_crr") != kind("unix_rr"));
    }

    /// Messages recommend only io methods that run.
    #[test]
    fn advice_can_be_followed() {
        let options = |text: &str| text.split("io: ").nth(1).map(|io| io.split([' ', ',']).next().unwrap().to_owned());
        for (name, why) in REFUSED {
            if let Some(io) = options(why) {
                assert!(
                    Transport::Tcp.methods(Pattern::Stream).iter().any(|known| known.name() == io),
                    "{name}: {why}"
                );
            }
        }
    }
}
