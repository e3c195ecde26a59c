//! Options of sockets and buffers.

use std::{borrow::Cow, path::PathBuf};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};

use crate::plan::quantity::{Size, Time};

/// Socket options; what is left out stays as the system has it. Results show what was granted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Socket {
    /// `SO_SNDBUF` (netperf -s, iperf3 -w). The kernel doubles it; results show its figure.
    pub send_buffer: Option<Size>,
    /// `SO_RCVBUF` (netperf -S, iperf3 -w). Setting it switches the receiver's autotuning off.
    pub receive_buffer: Option<Size>,
    /// `TCP_NODELAY` (netperf -D, iperf3 -N).
    pub no_delay: Option<bool>,
    /// `TCP_CORK`.
    pub cork: Option<bool>,
    /// `TCP_CONGESTION` (netperf -K, iperf3 -C): cubic, bbr, reno, …
    pub congestion_control: Option<String>,
    /// `TCP_MAXSEG` (netperf -G, iperf3 -M).
    pub mss: Option<Size>,
    /// Differentiated-services code point: 0 to 63, or a name such as ef, af41, cs1, le (netperf -Y, iperf3 -S).
    pub dscp: Option<Dscp>,
    /// `SO_PRIORITY`.
    pub priority: Option<u32>,
    /// `SO_KEEPALIVE`.
    pub keepalive: Option<bool>,
    /// `SO_BUSY_POLL`, for example 50us.
    pub busy_poll: Option<Time>,
    /// TCP Fast Open at both ends (netperf -F).
    pub fastopen: Option<bool>,
    /// `TCP_DEFER_ACCEPT`.
    pub defer_accept: Option<Time>,
    /// `TCP_NOTSENT_LOWAT`.
    pub notsent_lowat: Option<Size>,
    /// `IP_TTL`, or the IPv6 hop limit (netperf -I).
    pub ttl: Option<u8>,
    /// `SO_DONTROUTE` (netperf -R).
    pub dont_route: Option<bool>,
    /// `IP_MTU_DISCOVER`.
    pub mtu_discover: Option<MtuDiscover>,
    /// `SO_LINGER`.
    pub linger: Option<Time>,
    /// true: IPv6 only; false: IPv4 only (netperf -6, -4). At the near end only: both ends use the same.
    pub ipv6: Option<bool>,
    /// `SO_BINDTODEVICE`: an interface.
    pub device: Option<String>,
    /// UDP without checksums (`SO_NO_CHECK`).
    pub no_checksum: Option<bool>,
    /// UDP-Lite's checksum coverage.
    pub checksum_coverage: Option<Size>,
}

/// `IP_MTU_DISCOVER`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MtuDiscover {
    /// Always set Don't Fragment.
    Do,
    /// Never set it.
    Dont,
    /// Discover per route.
    Want,
    /// Set it, but ignore the discovered MTU.
    Probe,
}

impl MtuDiscover {
    /// The word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Do => "do",
            Self::Dont => "dont",
            Self::Want => "want",
            Self::Probe => "probe",
        }
    }
}

/// Buffers of the data threads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Buffers {
    /// Buffers used in turn (netperf -W).
    #[schemars(range(min = 1))]
    pub ring: Option<u32>,
    /// Alignment, a power of two (netperf -a); 4096, or for streams of datagrams: one after the other.
    pub alignment: Option<Size>,
    /// Offset from the alignment (netperf -o).
    pub offset: Option<Size>,
    /// Bytes written before each send and after each receive (netperf -k).
    pub dirty: Option<Size>,
    /// Bytes read behind those (netperf -k).
    pub clean: Option<Size>,
    /// A file whose bytes are sent (netperf -F).
    pub fill_file: Option<PathBuf>,
}

/// How connections of the connect workloads are closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Close {
    /// The far end closes first, so that TIME_WAIT gathers where it costs no ports.
    FarFirst,
    /// The near end closes first.
    NearFirst,
    /// Aborted with a reset: no TIME_WAIT.
    Reset,
}

/// A differentiated-services code point, by number or by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Dscp(pub u8);

impl Dscp {
    /// RFC 2474 (cs), 2597 (af), 3246 (ef), 5865 (va), 8622 (le).
    fn named(name: &str) -> Option<u8> {
        let digit = |text: &str, range: std::ops::RangeInclusive<u8>| {
            text.parse::<u8>().ok().filter(|n| range.contains(n) && text.len() == 1)
        };
        match name {
            "ef" => Some(46),
            "va" => Some(44),
            "le" => Some(1),
            "default" | "be" => Some(0),
            _ if name.starts_with("cs") => digit(&name[2..], 0..=7).map(|n| n * 8),
            _ if name.starts_with("af") && name.len() == 4 && name.is_ascii() => {
                let (class, drop) = (digit(&name[2..3], 1..=4)?, digit(&name[3..4], 1..=3)?);
                Some(class * 8 + drop * 2)
            }
            _ => None,
        }
    }
}

impl<'de> Deserialize<'de> for Dscp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse::<u8>()
            .ok()
            .filter(|n| *n < 64)
            .or_else(|| Self::named(&text.to_ascii_lowercase()))
            .map(Self)
            .ok_or_else(|| {
                D::Error::custom(format!("`{text}` is no DSCP: write 0 to 63, or a name such as ef, af41, cs1, le"))
            })
    }
}

impl JsonSchema for Dscp {
    fn schema_name() -> Cow<'static, str> {
        "Dscp".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "a code point: 0 to 63, or ef, va, le, be, cs0 to cs7, af11 to af43",
            "type": ["integer", "string"],
            "minimum": 0,
            "maximum": 63
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_points_have_names() {
        for (name, value) in [("ef", 46), ("af41", 34), ("af11", 10), ("cs1", 8), ("le", 1)] {
            assert_eq!(Dscp::named(name), Some(value));
        }
        for name in ["af51", "af4", "cs8", "cs", "xx", "afµ"] {
            assert_eq!(Dscp::named(name), None, "{name}");
        }
    }
}
