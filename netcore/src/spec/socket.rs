//! What one end asks of its sockets, buffers and CPUs.

use std::{net::IpAddr, path::PathBuf};

use serde::{Deserialize, Serialize};

/// Socket options. `None` leaves the system's default; what was granted is in the report beside what was asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SocketOptions {
    /// SO_SNDBUF, bytes (the kernel doubles it and clamps it silently).
    pub send_buffer: Option<u64>,
    /// SO_RCVBUF, bytes; setting it switches the receiver's autotuning off.
    pub receive_buffer: Option<u64>,
    /// TCP_NODELAY.
    pub no_delay: Option<bool>,
    /// TCP_CORK.
    pub cork: Option<bool>,
    /// TCP_CONGESTION.
    pub congestion_control: Option<String>,
    /// TCP_MAXSEG, bytes.
    pub mss: Option<u32>,
    /// Differentiated-services code point, 0 … 63.
    pub dscp: Option<u8>,
    /// SO_PRIORITY.
    pub priority: Option<u32>,
    /// SO_KEEPALIVE.
    pub keepalive: Option<bool>,
    /// SO_BUSY_POLL, microseconds.
    pub busy_poll: Option<u32>,
    /// TCP_FASTOPEN (listener) and TCP_FASTOPEN_CONNECT.
    pub fastopen: Option<bool>,
    /// TCP_DEFER_ACCEPT, seconds (rounded up by the kernel).
    pub defer_accept: Option<u32>,
    /// TCP_NOTSENT_LOWAT, bytes.
    pub notsent_lowat: Option<u32>,
    /// IP_TTL or IPV6_UNICAST_HOPS.
    pub ttl: Option<u8>,
    /// SO_DONTROUTE.
    pub dont_route: Option<bool>,
    /// IP_MTU_DISCOVER: `do`, `dont`, `want` or `probe`.
    pub mtu_discover: Option<String>,
    /// SO_LINGER, seconds.
    pub linger: Option<u32>,
    /// SO_BINDTODEVICE.
    pub device: Option<String>,
    /// UDP checksums off (SO_NO_CHECK).
    pub no_checksum: Option<bool>,
    /// UDP-Lite checksum coverage, bytes.
    pub checksum_coverage: Option<u32>,
}

/// Buffers of the data threads.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BufferOptions {
    /// Buffers used in turn; 1 keeps one warm buffer, or one for each datagram of a call.
    pub ring: u32,
    /// Alignment of each, bytes, a power of two. `None`: a page's; the messages of a stream of datagrams lie one after the
    /// other, unless they are to have an offset.
    pub alignment: Option<u64>,
    /// Offset from that alignment, bytes.
    pub offset: u64,
    /// Bytes written before each send and after each receive, from behind what the engine writes itself (a datagram's number).
    pub dirty: u64,
    /// Bytes read after those, each time.
    pub clean: u64,
    /// A file whose bytes fill the send buffers.
    pub fill_file: Option<PathBuf>,
}

impl Default for BufferOptions {
    fn default() -> Self {
        Self { ring: 1, alignment: None, offset: 0, dirty: 0, clean: 0, fill_file: None }
    }
}

/// A set of CPUs, as numbers in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cpus(pub Vec<u32>);

/// Why a CPU list was not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no CPU list: write 3, 0,2 or 2-5")]
pub struct CpusError(pub String);

impl std::str::FromStr for Cpus {
    type Err = CpusError;

    fn from_str(text: &str) -> Result<Self, CpusError> {
        let fault = || CpusError(text.to_owned());
        let mut cpus = std::collections::BTreeSet::new();
        for part in text.split(',') {
            let (low, high) = part.trim().split_once('-').unwrap_or((part.trim(), part.trim()));
            let low: u32 = low.trim().parse().map_err(|_| fault())?;
            let high: u32 = high.trim().parse().map_err(|_| fault())?;
            // CPU_SETSIZE: the kernel's own mask in glibc ends there.
            if low > high || high >= 1024 {
                return Err(fault());
            }
            cpus.extend(low..=high);
        }
        Ok(Self(cpus.into_iter().collect()))
    }
}

impl std::fmt::Display for Cpus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut i = 0;
        while i < self.0.len() {
            let first = self.0[i];
            let mut last = first;
            while i + 1 < self.0.len() && self.0[i + 1] == last + 1 {
                i += 1;
                last = self.0[i];
            }
            i += 1;
            let comma = if i < self.0.len() { "," } else { "" };
            if first == last {
                write!(f, "{first}{comma}")?;
            } else {
                write!(f, "{first}-{last}{comma}")?;
            }
        }
        Ok(())
    }
}

/// What one end is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EndSpec {
    /// Socket options.
    pub socket: SocketOptions,
    /// Buffers.
    pub buffers: BufferOptions,
    /// Affinity of the data threads: thread i runs on the i-th CPU of the set, in turn. `None`: not pinned.
    pub cpus: Option<Cpus>,
    /// Addresses the data sockets are bound to, in turn; empty: chosen by the route.
    pub bind: Vec<IpAddr>,
    /// First data port; `None`: the kernel chooses. Flow i uses port + i where each flow needs one of its own.
    pub port: Option<u16>,
    /// How many ports, from `port`, connect tests cycle through; `None`: the kernel chooses.
    pub port_count: Option<u16>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists_read_back() {
        for (text, shown) in [("3", "3"), ("0,2", "0,2"), ("2-5", "2-5"), ("5,1-3,2", "1-3,5")] {
            assert_eq!(text.parse::<Cpus>().unwrap().to_string(), shown);
        }
        assert!("5-2".parse::<Cpus>().is_err());
        assert!("".parse::<Cpus>().is_err());
        assert!("0-9999".parse::<Cpus>().is_err());
    }
}
