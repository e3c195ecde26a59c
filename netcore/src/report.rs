//! What an end saw: its own counters, cut on its own clock.
//!
//! All instants are nanoseconds relative to the start of the measure phase on the reporting end's monotonic clock
//! (warm-up is negative); wall-clock instants are Unix nanoseconds. Counters of a phase or interval are differences
//! between two readings, and `elapsed_ns` is the time between exactly these readings.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::spec::{Role, Side};

/// A phase of an iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Load, not counted.
    Warmup,
    /// The measurement.
    Measure,
    /// Load, not counted.
    Cooldown,
}

impl Phase {
    /// The phase's name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Warmup => "warmup",
            Self::Measure => "measure",
            Self::Cooldown => "cooldown",
        }
    }
}

/// The counters of a flow, or a difference of two readings of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Payload bytes handed to the kernel.
    pub bytes_sent: u64,
    /// Payload bytes got from the kernel.
    pub bytes_received: u64,
    /// Send calls that moved data.
    pub sends: u64,
    /// Receive calls that moved data.
    pub receives: u64,
    /// Completed transactions (requests answered; connections made by the connect patterns).
    pub transactions: u64,
    /// Connections opened (near) or accepted (far).
    pub connections: u64,
    /// Operations that failed without ending the test.
    pub errors: u64,
    /// Messages sent (datagrams).
    pub messages_sent: u64,
    /// Messages received, duplicates not counted (datagrams).
    pub messages_received: u64,
    /// Messages that arrived after one with a higher sequence number.
    pub reordered: u64,
    /// Messages that arrived again.
    pub duplicated: u64,
}

/// TCP_INFO, as far as results use it. Counters are since the connection began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Bytes acknowledged by the other end, the SYN counted as one.
    pub bytes_acked: Option<u64>,
    /// Delivery rate, bytes per second; `None` before it was sampled.
    pub delivery_rate_bytes_per_s: Option<u64>,
    /// Time limited by the receiver's window, microseconds.
    pub rwnd_limited_us: Option<u64>,
    /// Time limited by the send buffer, microseconds.
    pub sndbuf_limited_us: Option<u64>,
}

/// Latencies of one kind: an HdrHistogram of nanoseconds (three significant digits) in its V2 form, base64.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latencies {
    /// What was timed: `round_trip`, `response`, `connect`, `send` or `receive`.
    pub kind: String,
    /// The histogram.
    pub histogram: String,
}

/// What one flow did in one phase or interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowWindow {
    /// Number of the flow, from 0, the same at both ends.
    pub flow: u32,
    /// What it does at this end.
    pub role: Role,
    /// Counters over the window.
    pub counts: Counts,
    /// Latencies over the window, where they are taken.
    pub latencies: Vec<Latencies>,
    /// TCP_INFO at the end of the window.
    pub tcp_info: Option<TcpInfo>,
    /// Segments retransmitted in the window.
    pub retransmits: Option<u64>,
    /// Messages by the phase of their sending; only in windows that are phases, and only for datagrams.
    pub datagrams: Option<DatagramPhase>,
    /// Interarrival jitter at the window's end (RFC 3550, section 6.4.1), nanoseconds; where datagrams are received.
    pub jitter_ns: Option<u64>,
    /// How well a paced sender kept its schedule; only in windows that are phases.
    pub pacing: Option<Pacing>,
}

/// What became of the messages that were *sent* in a phase, whenever they arrived. Loss in a phase is `sent` at the
/// sending end minus `received` at the receiving end: a gap that straddles an edge belongs to the phase of its sending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatagramPhase {
    /// Messages that this end sent in the phase.
    pub sent: u64,
    /// Messages of the phase that arrived at this end, duplicates not counted.
    pub received: u64,
    /// Of these, messages that arrived after one with a higher sequence number.
    pub reordered: u64,
    /// Messages of the phase that arrived again.
    pub duplicated: u64,
}

/// How well a paced sender kept its schedule, from its own clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pacing {
    /// Due times that were met, or made up for.
    pub sent: u64,
    /// Due times that were dropped because the sender was more than `catch_up` behind.
    pub dropped: u64,
    /// Rate that was reached ÷ rate that was asked for − 1.
    pub rate_error_ratio: f64,
    /// Median gap between two due times' sends, nanoseconds.
    pub gap_p50_ns: u64,
    /// 99th percentile of the gaps, nanoseconds.
    pub gap_p99_ns: u64,
    /// Longest gap, nanoseconds.
    pub gap_max_ns: u64,
    /// Share of the gaps within a tenth of the one that was due, 0 … 1.
    pub gaps_within_tenth_ratio: f64,
}

/// Connections of this host in TIME_WAIT, before and after a connect test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeWait {
    /// Before the load.
    pub before: u64,
    /// After it.
    pub after: u64,
    /// Ephemeral ports of this host (`net.ipv4.ip_local_port_range`), or the test's own range.
    pub ports: u64,
}

/// CPU use over a window: shares of the elapsed time, 0 … 1, over all online CPUs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuUse {
    /// Online CPUs.
    pub cpus: u32,
    /// Everything but idle and iowait.
    pub busy: f64,
    /// User and nice.
    pub user: f64,
    /// System.
    pub system: f64,
    /// Iowait.
    pub iowait: f64,
    /// Hard interrupts.
    pub irq: f64,
    /// Soft interrupts.
    pub softirq: f64,
    /// Stolen by the hypervisor.
    pub steal: f64,
    /// Busy share of the busiest CPU.
    pub peak: f64,
    /// Its number.
    pub peak_id: u32,
    /// Busy share per CPU, by number, where it was asked for.
    pub per_cpu: Vec<(u32, f64)>,
}

/// A network interface. What its driver does not tell is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicFacts {
    /// Its name.
    pub name: String,
    /// Kind of a virtual interface (`veth`, `bridge`, `vlan`, …).
    pub kind: Option<String>,
    /// Driver.
    pub driver: Option<String>,
    /// Version of the driver (for drivers in the kernel's tree: the kernel's).
    pub driver_version: Option<String>,
    /// Version of the firmware.
    pub firmware: Option<String>,
    /// Place on its bus (`0000:3b:00.0`).
    pub bus: Option<String>,
    /// PCI vendor (`0x15b3`).
    pub pci_vendor: Option<String>,
    /// PCI device.
    pub pci_device: Option<String>,
    /// PCI vendor of the card.
    pub pci_subvendor: Option<String>,
    /// PCI device of the card.
    pub pci_subdevice: Option<String>,
    /// Speed and width of the PCI link (`8.0 GT/s PCIe x16`).
    pub pci_link: Option<String>,
    /// NUMA node that the device belongs to.
    pub numa_node: Option<u32>,
    /// Speed of the link, Mbit/s.
    pub speed_mbit_per_s: Option<u32>,
    /// `full` or `half`.
    pub duplex: Option<String>,
    /// MTU, bytes.
    pub mtu_bytes: Option<u32>,
    /// Root queueing discipline.
    pub qdisc: Option<String>,
    /// Receive queues.
    pub rx_queues: Option<u32>,
    /// Transmit queues.
    pub tx_queues: Option<u32>,
    /// Descriptors in each receive ring.
    pub rx_ring: Option<u32>,
    /// Descriptors in each transmit ring.
    pub tx_ring: Option<u32>,
    /// Receive interrupts are delayed by this long, microseconds.
    pub rx_coalesce_us: Option<u32>,
    /// Transmit interrupts are delayed by this long, microseconds.
    pub tx_coalesce_us: Option<u32>,
    /// Offloads, and whether they are on.
    pub offloads: BTreeMap<String, bool>,
}

/// A phase or an interval at one end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// The phase it lies in.
    pub phase: Phase,
    /// Its start, nanoseconds after the measure phase's start at this end.
    pub start_ns: i64,
    /// Its length between the two readings, nanoseconds.
    pub elapsed_ns: u64,
    /// Its end on the wall clock, Unix nanoseconds.
    pub wall_end_ns: i64,
    /// Every flow of this end.
    pub flows: Vec<FlowWindow>,
    /// CPU use, where it was asked for.
    pub cpu: Option<CpuUse>,
}

/// The stretch of time that [`CounterWindow`] covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Span {
    /// The machine at rest before the load began.
    Before,
    /// One interval of the measurement.
    Interval,
    /// The measure phase.
    Measure,
    /// The machine at rest after the load ended.
    After,
}

/// Counters of the kernel and of its interfaces over a stretch of time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterWindow {
    /// What it covers.
    pub span: Span,
    /// Its start, nanoseconds after the measure phase's start at this end.
    pub start_ns: i64,
    /// Its length between the two readings, nanoseconds.
    pub elapsed_ns: u64,
    /// Its end on the wall clock, Unix nanoseconds.
    pub wall_end_ns: i64,
    /// The counters, by source and key.
    pub values: Vec<CounterChange>,
}

/// One counter at both ends of a [`CounterWindow`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterChange {
    /// Where it was read: `cpu`, `memory`, `nic:eth0`, `interrupts`, `snmp`, …
    pub source: String,
    /// Its name there (`Tcp.RetransSegs`).
    pub key: String,
    /// At the start.
    pub before: u64,
    /// At the end; smaller than `before` for a gauge, or where the counter began again.
    pub after: u64,
}

/// A socket option: what was asked for and what the kernel says. Values as text, since they are of many kinds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Granted {
    /// Number of the flow.
    pub flow: u32,
    /// Name of the option as in the plan (`send_buffer`).
    pub option: String,
    /// What was asked for; `None`: the system's default.
    pub requested: Option<String>,
    /// What the kernel reported when the test started.
    pub at_start: Option<String>,
    /// What the kernel reported when the test ended.
    pub at_end: Option<String>,
}

/// How the measurement at one end came to its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// By its stop rule.
    Complete,
    /// Earlier, on request; what was measured until then is whole.
    Stopped,
    /// By an error; the sentence says which. What was measured until then is reported but does not count.
    Failed(String),
}

/// Everything one end has to say about one iteration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SideReport {
    /// Which end.
    pub side: Side,
    /// The io method that was used.
    pub io: String,
    /// Threads that moved data.
    pub threads: u32,
    /// Warm-up, measure and cool-down, as far as they took place.
    pub phases: Vec<Window>,
    /// Interim intervals in order of time; each lies in one phase and the last of a phase may be shorter.
    pub intervals: Vec<Window>,
    /// Payload counters from the first byte to the last, per flow: the two ends' totals of a flow must agree.
    pub totals: Vec<FlowWindow>,
    /// Socket options, asked for and granted.
    pub options: Vec<Granted>,
    /// The interface by which packets to the other end leave, where the transport has one.
    pub nic: Option<NicFacts>,
    /// Counters of the kernel and its interfaces, as far as they were asked for.
    pub counters: Vec<CounterWindow>,
    /// Wall clock at the measure phase's start, Unix nanoseconds.
    pub wall_start_ns: i64,
    /// The same instant on this end's monotonic clock, nanoseconds. 0: the measure phase never began.
    pub monotonic_start_ns: u64,
    /// When this end was measured under its whole load, on the same clock: the measure phase had begun, and the last of the
    /// data threads that begin anything too (receivers wait for their peers). The phase begins when it is due, by definition
    /// where there is no warm-up; a thread begins when the machine lets it. So this, and not the phase's start, tells how
    /// nearly several ends started together. 0: never.
    pub under_load_ns: u64,
    /// Connections in TIME_WAIT; only for the connect patterns.
    pub time_wait: Option<TimeWait>,
    /// How it ended.
    pub ending: Ending,
    /// Facts a reader of the numbers should know (an option without effect, a clamp, …).
    pub notes: Vec<String>,
}

impl SideReport {
    /// Of an end that has measured nothing.
    pub fn empty(side: Side, ending: Ending) -> Self {
        Self {
            side,
            io: String::new(),
            threads: 0,
            phases: Vec::new(),
            intervals: Vec::new(),
            totals: Vec::new(),
            options: Vec::new(),
            nic: None,
            counters: Vec::new(),
            wall_start_ns: 0,
            monotonic_start_ns: 0,
            under_load_ns: 0,
            time_wait: None,
            ending,
            notes: Vec::new(),
        }
    }
}
