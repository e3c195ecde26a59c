//! Evidence on what held an end back: its threads, its CPUs, its drops.

use serde::{Deserialize, Serialize};

use crate::foreign;

/// Evidence of one end over one phase.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Evidence {
    /// A number that the ends on one boot of one machine share, and no others; `None`: not known.
    pub machine: Option<u64>,
    /// The data thread that was on a CPU or waited for one for the longest time; `None`: not known.
    pub thread: Option<ThreadUse>,
    /// The CPU that spent the largest share of the phase on soft interrupts; `None`: not known.
    pub softirq_peak: Option<CpuShare>,
    pub drops: Drops,
    /// IP packets that arrived in this network namespace with a congestion mark (CE); `None`: not known.
    pub ce_packets: Option<u64>,
    /// Evidence that this host does not show, and why: `soft interrupts (/proc/stat names no CPU)`.
    #[serde(deserialize_with = "foreign::at_most::<_, _, { foreign::MOST_SENTENCES }>")]
    pub missing: Vec<String>,
}

/// A data thread. Shares are of the phase's length, 0 … 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThreadUse {
    /// Data threads of this end, among which this is the busiest.
    pub threads: u32,
    /// Share on a CPU.
    pub busy: f64,
    /// Share in which it was ready to run and waited for a CPU; `None`: the kernel does not count it.
    pub waiting: Option<f64>,
    /// The CPU that it ran on last.
    pub cpu: u32,
    /// Busy share of that CPU; `None`: not known.
    pub cpu_busy: Option<f64>,
    /// Share of soft interrupts on that CPU; `None`: not known.
    pub cpu_softirq: Option<f64>,
}

/// A share of one CPU's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuShare {
    /// The CPU's number.
    pub cpu: u32,
    /// Its share, 0 … 1.
    pub ratio: f64,
}

/// Packets that this host dropped in the phase, by place. `None`: not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drops {
    /// By the queueing discipline of the interface, before they were sent.
    pub qdisc: Option<u64>,
    /// By the interface: no room in its ring, or dropped by its driver.
    pub interface: Option<u64>,
    /// By the kernel's queues between interface and protocols (softnet), on all CPUs.
    pub softnet: Option<u64>,
    /// By the data sockets of this end: no room in their receive buffers.
    pub socket: Option<u64>,
}

/// Fields of TCP_INFO that tell what limits a connection. `None`: this kernel does not have the field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TcpLimits {
    /// Whether the last sample of the delivery rate was taken while the sender had too little to send.
    pub app_limited: Option<bool>,
    /// Rate at which the kernel paces the connection, bytes per second; also `None` where it does not limit it.
    pub pacing_rate_bytes_per_s: Option<u64>,
    /// Window that the other end announced last, bytes.
    pub peer_window_bytes: Option<u32>,
    /// Round-trip time as the receiving side of the connection estimates it, microseconds; also `None` before it did.
    pub receive_rtt_us: Option<u32>,
    /// Segments that arrived at the other end with a congestion mark (CE), by its echo, since the connection began.
    pub delivered_ce: Option<u64>,
    /// Segments with data sent since the connection began; those sent again count again.
    pub segments_sent: Option<u64>,
    /// Whether the two ends agreed on Explicit Congestion Notification.
    pub ecn: Option<bool>,
}
