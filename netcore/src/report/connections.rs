//! Connections as the kernel (TCP) or a library (QUIC) sees them.

use serde::{Deserialize, Serialize};

use super::evidence::TcpLimits;

/// Growth of a 32-bit counter of the kernel, which wraps. A smaller value is that of a new counter, which began at 0, unless the
/// difference is plausible.
pub fn grown(after: u64, before: u64) -> u64 {
    let difference = after.wrapping_sub(before) & u64::from(u32::MAX);
    if difference > u64::from(u32::MAX / 2) { after } else { difference }
}

/// TCP_INFO, as far as results use it. Counters count from the connection's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TcpInfo {
    /// Segments retransmitted since the connection began.
    pub retransmits: u64,
    /// Smoothed round-trip time, microseconds.
    pub rtt_us: u32,
    /// Its variation, microseconds.
    pub rtt_var_us: u32,
    /// Smallest round-trip time, microseconds; `None` before the first acknowledgement, and on kernels without it, as
    /// with every `None` here.
    pub min_rtt_us: Option<u32>,
    /// Congestion window, segments.
    pub cwnd_segments: u32,
    /// Sending maximum segment size, bytes.
    pub mss_bytes: u32,
    /// Path MTU, bytes.
    pub pmtu_bytes: u32,
    /// Whether segments have timestamps; `None` in reports of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamps: Option<bool>,
    /// Fields that only the process with the socket looks at.
    #[serde(skip)]
    pub here: TcpInfoHere,
    /// Bytes acknowledged by the other end, the SYN counted as one.
    pub bytes_acked: Option<u64>,
    /// Bytes that reached the other end, in order or not, each counted once. The kernel counts segments, which are taken for as long as
    /// the mean of all that were sent. `None` past 2^32 segments, too.
    pub delivered_bytes: Option<u64>,
    /// Delivery rate, bytes per second; `None` before it was sampled.
    pub delivery_rate_bytes_per_s: Option<u64>,
    /// Time with data to send or unacknowledged, microseconds; the next two are parts of it.
    pub busy_us: Option<u64>,
    /// Time limited by the receiver's window, microseconds.
    pub rwnd_limited_us: Option<u64>,
    /// Time limited by the send buffer, microseconds.
    pub sndbuf_limited_us: Option<u64>,
    /// Evidence on what limited the connection; only in windows that are phases, and `None` where it was not asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<TcpLimits>,
}

/// Fields of TCP_INFO that reports do not carry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfoHere {
    /// Retransmission timeout, microseconds.
    pub rto_us: u32,
    /// Delay of an acknowledgement, microseconds.
    pub ato_us: u32,
    /// Limit of the window that is announced, bytes.
    pub rcv_ssthresh_bytes: u32,
    /// Congestion window at which slow start ends, segments.
    pub snd_ssthresh_segments: u32,
    /// Reordering that the sender expects, segments.
    pub reordering_segments: u32,
}

/// A connection of QUIC as its library sees it: round trips, window and MTU at the end of a window, and what it counted in the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuicInfo {
    /// Smoothed round-trip time, microseconds.
    pub rtt_us: u32,
    /// Smallest round-trip time, microseconds.
    pub min_rtt_us: u32,
    /// Congestion window, bytes.
    pub cwnd_bytes: u64,
    /// Longest UDP payload that the path is known to carry, bytes.
    pub mtu_bytes: u32,
    /// Packets sent.
    pub packets_sent: u64,
    /// Packets that the loss detection gave up.
    pub packets_lost: u64,
    /// Times that the congestion control saw congestion.
    pub congestion_events: u64,
    /// Times that the other end was told that its window holds this one back.
    pub blocked: u64,
    /// UDP datagrams sent.
    pub datagrams_sent: u64,
    /// UDP datagrams received.
    pub datagrams_received: u64,
    /// Payload of the UDP datagrams sent, bytes.
    pub udp_bytes_sent: u64,
    /// System calls that sent datagrams.
    pub send_calls: u64,
    /// System calls that received datagrams.
    pub receive_calls: u64,
}

impl QuicInfo {
    /// The counts since then.
    #[must_use]
    pub fn since(self, before: &Self) -> Self {
        let grown = |of: fn(&Self) -> u64| of(&self).saturating_sub(of(before));
        Self {
            packets_sent: grown(|info| info.packets_sent),
            packets_lost: grown(|info| info.packets_lost),
            congestion_events: grown(|info| info.congestion_events),
            blocked: grown(|info| info.blocked),
            datagrams_sent: grown(|info| info.datagrams_sent),
            datagrams_received: grown(|info| info.datagrams_received),
            udp_bytes_sent: grown(|info| info.udp_bytes_sent),
            send_calls: grown(|info| info.send_calls),
            receive_calls: grown(|info| info.receive_calls),
            ..self
        }
    }
}
