//! Options of QUIC.

use serde::{Deserialize, Serialize};

use super::{
    Direction, LONGEST_DATAGRAM, TestSpec, Transport,
    key::{self, Unsupported, refuse_if},
    quantity::Bytes,
};

/// How the connections of `quic` send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct QuicOptions {
    /// Congestion control of the senders; `cubic` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion_control: Option<QuicCongestionControl>,
    /// Most bytes of a connection that are under way, or have arrived and were not read; 8 MiB by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<Bytes>,
    /// Longest UDP payload for which the path is searched, bytes; 1452 by default, which fits 1500 bytes with IPv6.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
}

/// A congestion control of QUIC's library.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum QuicCongestionControl {
    /// CUBIC (RFC 9438).
    #[default]
    Cubic,
    /// NewReno (RFC 9002, section 7).
    NewReno,
    /// BBR, which the library calls experimental.
    Bbr,
}

impl QuicCongestionControl {
    /// Name in plans and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cubic => "cubic",
            Self::NewReno => "new_reno",
            Self::Bbr => "bbr",
        }
    }
}

/// Bounds of [`QuicOptions::mtu`]: the least that QUIC works with (RFC 9000, section 14), and the longest payload of UDP over IPv4.
const MTU: std::ops::RangeInclusive<u64> = 1200..=LONGEST_DATAGRAM;

/// Most bytes of a packet beside a datagram in it, as the library counts them: flags, identifier, number and seal of the packet, and
/// type and length of the frame.
const DATAGRAM_HEADERS: u64 = 1 + 8 + 4 + 16 + 9;

/// Bounds of [`QuicOptions::window`], bytes.
pub(crate) const WINDOW: std::ops::RangeInclusive<u64> = 16 << 10..=256 << 20;

impl QuicOptions {
    /// [`Self::window`], or its default, bytes.
    pub fn window_bytes(&self) -> u64 {
        self.window.map_or(8 << 20, |window| window.0)
    }

    /// [`Self::mtu`], or its default, bytes.
    pub fn mtu_bytes(&self) -> u16 {
        self.mtu.unwrap_or(1452)
    }

    /// Longest datagram of RFC 9221 that the library puts into a packet of this length, bytes.
    pub fn longest_datagram(&self) -> u64 {
        u64::from(self.mtu_bytes()).saturating_sub(DATAGRAM_HEADERS)
    }
}

impl TestSpec {
    /// The options of its connections of QUIC; `None`: it has none.
    pub fn quic_options(&self) -> Option<QuicOptions> {
        self.transport.is_quic().then(|| self.quic.unwrap_or_default())
    }
}

pub(super) fn check(spec: &TestSpec) -> Result<(), Unsupported> {
    let Some(options) = spec.quic_options() else {
        refuse_if! {
            spec.quic.is_some() => key::quic,
                "`quic` is about quic_stream, quic_dgram_stream, quic_rr, quic_cc and quic_crr, and this test runs over {}: leave it out",
                spec.transport.name();
        }
        return Ok(());
    };
    // The library sets the whole byte with each packet, for its congestion marks.
    let class = [(&spec.near, "socket.dscp"), (&spec.far, "remote_socket.dscp")];
    let class = class.into_iter().find(|(end, _)| end.socket.dscp.is_some()).map(|(_, key)| key);
    let (datagrams, longest) = (spec.transport == Transport::QuicDatagram, options.longest_datagram());
    let touches = |end: &super::EndSpec| end.buffers.dirty.max(end.buffers.clean) > 0;
    refuse_if! {
        spec.direction == Direction::Duplex => key::workload,
            "one thread drives a connection of QUIC, and a duplex stream has two: use quic_stream with `direction: bidirectional`";
        spec.shares_threads() => key::threads,
            "a thread drives one connection of QUIC, with its timers: leave `threads` out";
        spec.coalesce => key::coalesce, "over QUIC the library joins requests in packets by itself: leave `coalesce` out";
        touches(&spec.near) || touches(&spec.far) => key::buffers,
            "QUIC's library keeps what it was given until the other end has it: leave out dirty and clean";
        class.is_some() => class.unwrap_or(key::quic),
            "QUIC's library sets the class of each packet by itself, for its congestion marks: leave `dscp` out";
        !MTU.contains(&options.mtu_bytes().into()) => key::quic,
            "`quic.mtu` is the longest UDP payload: {} to {} bytes, not {}", MTU.start(), MTU.end(), options.mtu_bytes();
        datagrams && options.window.is_some() => key::quic,
            "`quic.window` bounds streams; of datagrams only the congestion control holds any back: leave it out";
        datagrams && spec.sizes.message_bytes > longest => key::message_size,
            "a packet of at most {} bytes (`quic.mtu`) carries a datagram of at most {longest} bytes, not {}: choose a smaller \
             message_size, or a larger `quic.mtu` where the path carries it", options.mtu_bytes(), spec.sizes.message_bytes;
        !WINDOW.contains(&options.window_bytes()) => key::quic,
            "`quic.window` is {} KiB to {} MiB, not {} bytes", WINDOW.start() >> 10, WINDOW.end() >> 20, options.window_bytes();
    }
    Ok(())
}
