//! Workload names: each is only a word for pattern × transport, with a direction and an io method where it says one.

use std::borrow::Cow;

use netcore::spec::{Direction, Io, Pattern, Transport};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use super::diagnostics::nearest;

/// What a workload name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// The name in lower case, as results show it.
    pub name: String,
    /// What runs.
    pub kind: Kind,
    /// What is to be known about the name, where something is.
    pub note: Option<&'static str>,
}

/// What runs under a workload name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bytes between two ends.
    Traffic {
        /// What the ends say.
        pattern: Pattern,
        /// Over what.
        transport: Transport,
        /// The direction in the name (`maerts`, `duplex`), where there is one.
        direction: Option<Direction>,
        /// The io method in the name (`sendfile`), where there is one.
        io: Option<Io>,
        /// Whether requests and responses are both of `message_size`.
        pingpong: bool,
    },
    /// A program that prints numbers.
    Command,
}

const TRANSPORTS: &[(&str, Transport)] = &[
    ("tcp", Transport::Tcp),
    ("mptcp", Transport::Mptcp),
    ("udp", Transport::Udp),
    ("udplite", Transport::UdpLite),
    ("sctp", Transport::Sctp),
    ("dccp", Transport::Dccp),
    ("unix", Transport::UnixStream),
    ("unix_seqpacket", Transport::UnixSeqpacket),
    ("unix_dgram", Transport::UnixDatagram),
    ("vsock", Transport::Vsock),
    ("link", Transport::Link),
    ("pipe", Transport::Pipe),
];

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

/// netperf's names that are not the same words in lower case, and what they are here.
const ALIASES: &[(&str, &str)] = &[
    ("stream_stream", "unix_stream"),
    ("stream_rr", "unix_rr"),
    ("dg_stream", "unix_dgram_stream"),
    ("dg_rr", "unix_dgram_rr"),
    ("dlcl_stream", "link_stream"),
    ("dlcl_rr", "link_rr"),
    ("dlco_stream", "link_stream"),
    ("dlco_rr", "link_rr"),
];

const XTI_NOTE: &str = "XTI has no implementation on Linux: the socket engine runs this";

/// netperf's names that stand for nothing here, and what to do instead.
const REFUSED: &[(&str, &str)] = &[
    ("omni", "name what it does: tcp_stream, udp_rr, …; direction, transport and sizes are keys of the test"),
    ("tcp_mss", "every tcp workload reports mss_bytes: run tcp_rr"),
    ("loc_cpu", "CPU time needs no calibration here: every row has the CPU columns"),
    ("rem_cpu", "CPU time needs no calibration here: every row has the CPU columns"),
    ("uuid", "every run has its own run_id"),
    ("dns_rr", "netperf removed it itself: use a command workload with a resolver benchmark"),
    ("tcp_trr", "T/TCP is gone from every kernel: tcp_crr with socket.fastopen is its heir"),
    ("tcp_nbrr", "write tcp_rr with io: nonblocking"),
    ("sdp_stream", "SDP is gone from Linux: tcp_stream runs over the same address"),
    ("sdp_maerts", "SDP is gone from Linux: tcp_maerts runs over the same address"),
    ("sdp_rr", "SDP is gone from Linux: tcp_rr runs over the same address"),
    ("exs_tcp_stream", "write tcp_stream with io: uring"),
    ("sctp_stream_many", "one association per stream: write sctp_stream with streams: N"),
    ("sctp_rr_many", "one association per stream: write sctp_rr with streams: N"),
];

fn traffic(name: &str) -> Option<Kind> {
    let (transport, suffix) = TRANSPORTS
        .iter()
        // Both halves must be known: `unix_dgram_rr` is no `unix` with a suffix `dgram_rr`.
        .find_map(|(word, t)| {
            let rest = name.strip_prefix(word)?.strip_prefix('_')?;
            SUFFIXES.iter().find(|s| s.name == rest).map(|s| (*t, s))
        })?;
    let connects = matches!(transport, Transport::Tcp | Transport::Mptcp | Transport::Sctp | Transport::Vsock);
    if matches!(suffix.pattern, Pattern::Connect | Pattern::ConnectRequestResponse) && !connects {
        return None;
    }
    Some(Kind::Traffic {
        pattern: suffix.pattern,
        transport,
        direction: suffix.direction,
        io: suffix.io,
        pingpong: suffix.pingpong,
    })
}

/// Every canonical name.
#[must_use]
pub fn names() -> Vec<String> {
    let mut names: Vec<String> = TRANSPORTS
        .iter()
        .flat_map(|(t, _)| SUFFIXES.iter().map(move |s| format!("{t}_{}", s.name)))
        .filter(|n| traffic(n).is_some())
        .collect();
    names.extend(["ping".to_owned(), "command".to_owned()]);
    names
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
            return Err(format!("`{text}` is no workload here: {why}"));
        }
        let kind = match name.as_str() {
            "command" => Kind::Command,
            "ping" => Kind::Traffic {
                pattern: Pattern::Ping,
                transport: Transport::Icmp,
                direction: None,
                io: None,
                pingpong: false,
            },
            _ => traffic(&name).ok_or_else(|| {
                let all = names();
                let help = nearest(&name, all.iter().map(String::as_str)).map_or_else(
                    || "for example tcp_stream, tcp_rr, udp_stream, unix_rr, ping".to_owned(),
                    |near| format!("did you mean `{near}`?"),
                );
                format!("unknown workload `{text}`: {help}")
            })?,
        };
        Ok(Self { name, kind, note })
    }
}

impl<'de> Deserialize<'de> for Workload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

impl Serialize for Workload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.name)
    }
}

impl JsonSchema for Workload {
    fn schema_name() -> Cow<'static, str> {
        "Workload".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        // Upper case and netperf's own names are accepted too, so the names are examples and the pattern decides.
        json_schema!({
            "description": "what runs: transport and pattern in one word",
            "type": "string",
            "examples": names(),
            "pattern": r"^([A-Za-z]+(_[A-Za-z]+)*|.*\$\{vars\..*)$"
        })
    }
}

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
}
