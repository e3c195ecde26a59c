//! The report of one end: its own counters, cut on its own clock.
//!
//! All instants are nanoseconds relative to the start of the measure phase on the reporting end's monotonic clock
//! (warm-up is negative); wall-clock instants are Unix nanoseconds. Counters of a phase or interval are differences
//! between two samples, and `elapsed_ns` is the time between exactly these samples.

mod connections;
mod datagrams;
mod evidence;
mod hops;
mod one_way;
mod outages;
mod ranks;
mod reflector;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    foreign,
    spec::{Role, Side},
};

pub use connections::{QuicInfo, TcpInfo, TcpInfoHere, grown};
pub use datagrams::{DatagramPhase, LossRuns};
pub(crate) use evidence::SLEWED_AT_MOST;
pub use evidence::{ClockChange, ClockReading, CpuShare, Drops, Evidence, TcpLimits, ThreadUse};
pub use hops::{Hop, MOST_ADDRESSES, MOST_HOPS, MOST_TRIPS, ProbedPath, RoundTrips};
pub use one_way::OneWay;
pub use outages::{Outage, Outages};
pub use ranks::{MOST_INSTANTS, NasResult, RankReport, RankTraffic};
pub use reflector::Reflector;
pub use schemas::words::{Phase, Span};

/// Warm-up, measurement and cool-down.
pub const PHASES: usize = 3;

/// Limit of the kinds of latencies of a flow.
pub const MOST_HISTOGRAMS: usize = 8;

/// A struct of counters, with their differences and sums.
macro_rules! counters {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: u64,)*
        }

        impl std::ops::Sub for $name {
            type Output = Self;

            fn sub(self, before: Self) -> Self {
                Self { $($field: self.$field - before.$field,)* }
            }
        }

        impl std::iter::Sum for $name {
            fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
                all.fold(Self::default(), |sum, one| Self { $($field: sum.$field.saturating_add(one.$field),)* })
            }
        }
    };
}

counters! {
    /// Counters of a flow, or a difference of two samples of them.
    Counts {
        /// Payload bytes handed to the kernel.
        bytes_sent,
        /// Payload bytes got from the kernel.
        bytes_received,
        /// Send calls that moved data.
        sends,
        /// Receive calls that moved data.
        receives,
        /// Completed transactions (requests answered; connections made by the connect patterns).
        transactions,
        /// Connections opened (near) or accepted (far).
        connections,
        /// Operations that failed without ending the test.
        errors,
        /// Messages sent (datagrams).
        messages_sent,
        /// Messages received, duplicates not counted (datagrams).
        messages_received,
        /// Messages that arrived after one with a higher sequence number.
        reordered,
        /// Messages that arrived again.
        duplicated,
        /// Zero-copy sends whose completion has come.
        #[serde(default, skip_serializing_if = "is_zero")]
        completions,
        /// Of these, sends whose bytes the kernel copied after all.
        #[serde(default, skip_serializing_if = "is_zero")]
        copied,
        /// Messages that arrived as Not-ECT, where code points are counted (`ecn`), as in the next three; also those that came again.
        #[serde(default, skip_serializing_if = "is_zero")]
        not_ect,
        /// Messages that arrived as ECT(0).
        #[serde(default, skip_serializing_if = "is_zero")]
        ect0,
        /// Messages that arrived as ECT(1).
        #[serde(default, skip_serializing_if = "is_zero")]
        ect1,
        /// Messages that arrived with a congestion mark (CE).
        #[serde(default, skip_serializing_if = "is_zero")]
        marked,
    }
}

counters! {
    /// The records of data that a connection of TLS sealed in user space and sent.
    TlsInfo {
        records,
        /// The data in them, bytes.
        bytes,
        /// CPU time that sealing and opening took, estimated from some of the records, nanoseconds.
        #[serde(default, skip_serializing_if = "is_zero")]
        encryption_ns,
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Latencies of one kind: an HdrHistogram of nanoseconds (three significant digits) in its V2 form, base64.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latencies {
    /// The timed operation: `round_trip`, `response`, `connect`, `send` or `receive`.
    pub kind: String,
    #[serde(deserialize_with = "foreign::base64")]
    pub histogram: String,
}

/// Counts of one flow in one phase or interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowWindow {
    /// Number of the flow, from 0, the same at both ends.
    pub flow: u32,
    pub role: Role,
    pub counts: Counts,
    /// Empty where latencies are not collected.
    #[serde(deserialize_with = "foreign::at_most::<_, _, MOST_HISTOGRAMS>")]
    pub latencies: Vec<Latencies>,
    /// TCP_INFO at the start of the window, for what grew in it.
    pub tcp_at_start: Option<TcpInfo>,
    /// TCP_INFO at the end of the window.
    pub tcp_info: Option<TcpInfo>,
    /// Segments retransmitted in the window.
    pub retransmits: Option<u64>,
    /// The flow's connection of QUIC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quic: Option<QuicInfo>,
    /// The flow's connection of TLS, where its records are sealed in user space.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsInfo>,
    /// Messages by the phase of their sending; only in windows that are phases, and only for datagrams.
    pub datagrams: Option<DatagramPhase>,
    /// Interarrival jitter at the window's end (RFC 3550, section 6.4.1), nanoseconds; where datagrams are received.
    pub jitter_ns: Option<u64>,
    /// Accuracy of a paced sender's schedule; only in windows that are phases.
    pub pacing: Option<Pacing>,
}

impl FlowWindow {
    /// Nothing but counts.
    pub fn of(flow: u32, role: Role, counts: Counts) -> Self {
        Self {
            flow,
            role,
            counts,
            latencies: Vec::new(),
            tcp_at_start: None,
            tcp_info: None,
            retransmits: None,
            quic: None,
            tls: None,
            datagrams: None,
            jitter_ns: None,
            pacing: None,
        }
    }
}

/// Accuracy of a paced sender's schedule, from its own clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pacing {
    /// Due times that were met, or made up for.
    pub sent: u64,
    /// Due times that were dropped because the sender was more than `catch_up` behind.
    pub dropped: u64,
    /// Achieved rate ÷ requested rate − 1.
    pub rate_error_ratio: f64,
    /// Median gap between sends, nanoseconds.
    pub gap_p50_ns: u64,
    /// 99th percentile of the gaps, nanoseconds.
    pub gap_p99_ns: u64,
    /// Longest gap, nanoseconds.
    pub gap_max_ns: u64,
    /// Share of gaps within 10 % of the due gap, 0 … 1.
    pub gaps_within_tenth_ratio: f64,
}

/// Connections of this host in TIME_WAIT, before and after a connect test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimeWait {
    /// Before the load.
    pub before: u64,
    /// After the load.
    pub after: u64,
    /// Ephemeral ports of this host (`net.ipv4.ip_local_port_range`), or the test's own range.
    pub ports: u64,
}

/// Waits of an end's threads with `io: spin`, over the whole test. A call that blocks at once counts as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spinning {
    /// Waits for input, room or a connection.
    pub waits: u64,
    /// Of these, waits that ended while the thread spun.
    pub spun: u64,
    /// Waits that blocked at once, since both ends shared a CPU.
    pub at_once: u64,
    /// The last such CPU.
    pub cpu: Option<u32>,
}

impl Spinning {
    /// Share of the waits that ended while the thread spun, 0 … 1.
    pub fn spun_ratio(&self) -> Option<f64> {
        self.share(self.spun)
    }

    /// Share of the waits that blocked at once, since both ends shared a CPU, 0 … 1.
    pub fn at_once_ratio(&self) -> Option<f64> {
        self.share(self.at_once)
    }

    fn share(&self, count: u64) -> Option<f64> {
        (self.waits > 0).then(|| (count as f64 / self.waits as f64).min(1.0))
    }
}

/// CPU use over a window: shares of the elapsed time, 0 … 1, over all online CPUs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuUse {
    pub cpus: u32,
    /// All states but idle and iowait.
    pub busy: f64,
    /// User and nice.
    pub user: f64,
    pub system: f64,
    pub iowait: f64,
    /// Hard interrupts.
    pub irq: f64,
    /// Soft interrupts.
    pub softirq: f64,
    /// Stolen by the hypervisor.
    pub steal: f64,
    /// Busy share of the busiest CPU.
    pub peak: f64,
    /// Number of that CPU.
    pub peak_id: u32,
    /// Busy share by CPU number, if requested.
    pub per_cpu: Vec<(u32, f64)>,
    /// CPUs that this end's own process kept busy, user and system time; of both ends where they share a process.
    pub process_cpus: Option<f64>,
    /// Times that the kernel took a CPU from that process, to let something else run; `None`: unknown.
    pub involuntary_switches: Option<u64>,
    /// Share of the window in which a CPU quota held back the control group of this end at most, 0 … 1
    /// ([`crate::measure::cgroup`]); `None`: unknown.
    pub throttled: Option<f64>,
    /// The smallest quota in force on this end's control group and its ancestors, in CPUs; `None`: no quota is visible.
    pub quota_cpus: Option<f64>,
}

/// A network interface. Properties that its driver does not report are absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NicFacts {
    pub name: String,
    /// Kind of a virtual interface (`veth`, `bridge`, `vlan`, …).
    pub kind: Option<String>,
    pub driver: Option<String>,
    /// Version of the driver (for drivers in the kernel's tree: the kernel's).
    pub driver_version: Option<String>,
    pub firmware: Option<String>,
    /// Bus address (`0000:3b:00.0`).
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
    /// NUMA node of the device.
    pub numa_node: Option<u32>,
    pub speed_mbit_per_s: Option<u32>,
    /// The wire that carries its packets; `None`: there is no hardware behind it, or its speed is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire: Option<WireFacts>,
    /// `full` or `half`.
    pub duplex: Option<String>,
    pub mtu_bytes: Option<u32>,
    /// Root queueing discipline.
    pub qdisc: Option<String>,
    pub rx_queues: Option<u32>,
    pub tx_queues: Option<u32>,
    /// Descriptors in each receive ring.
    pub rx_ring: Option<u32>,
    /// Descriptors in each transmit ring.
    pub tx_ring: Option<u32>,
    /// Delay of receive interrupts, microseconds.
    pub rx_coalesce_us: Option<u32>,
    /// Delay of transmit interrupts, microseconds.
    pub tx_coalesce_us: Option<u32>,
    /// Offloads, and whether they are on.
    pub offloads: BTreeMap<String, bool>,
}

/// The wire behind an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WireFacts {
    /// Of a bond: the sum of its ports.
    pub mbit_per_s: u32,
    /// VLAN tags of its frames.
    pub vlan_tags: u32,
}

/// A phase or an interval at one end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Window {
    pub phase: Phase,
    /// Start, nanoseconds after the measure phase's start at this end.
    pub start_ns: i64,
    /// Time between the two samples, nanoseconds.
    pub elapsed_ns: u64,
    /// End on the wall clock, Unix nanoseconds.
    pub wall_end_ns: i64,
    pub flows: Vec<FlowWindow>,
    /// CPU use, if requested.
    pub cpu: Option<CpuUse>,
    /// Evidence on what held this end back, if requested; only in windows that are phases.
    pub evidence: Option<Evidence>,
}

/// Counters of the kernel and its interfaces over a stretch of time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CounterWindow {
    pub span: Span,
    /// Start, nanoseconds after the measure phase's start at this end.
    pub start_ns: i64,
    /// Time between the two samples, nanoseconds.
    pub elapsed_ns: u64,
    /// End on the wall clock, Unix nanoseconds.
    pub wall_end_ns: i64,
    pub values: Vec<CounterChange>,
}

/// One counter at both ends of a [`CounterWindow`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CounterChange {
    /// Source: `cpu`, `memory`, `nic:eth0`, `interrupts`, `snmp`, …
    pub source: String,
    /// Name in that source (`Tcp.RetransSegs`).
    pub key: String,
    /// Value at the start.
    pub before: u64,
    /// Value at the end; smaller than `before` for a gauge, or after the counter restarted.
    pub after: u64,
}

/// A socket option, as requested and as the kernel reports it. Values are text, since they are of many kinds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Granted {
    pub flow: u32,
    /// Name of the option as in the plan (`send_buffer`).
    pub option: String,
    /// Requested value; `None`: the system's default.
    pub requested: Option<String>,
    /// Value at the start of the test.
    pub at_start: Option<String>,
    /// Value at the end of the test.
    pub at_end: Option<String>,
}

impl Granted {
    /// An option whose value does not change after the start.
    pub fn constant(flow: u32, option: &str, requested: impl Into<Option<String>>, granted: Option<String>) -> Self {
        let (option, requested) = (option.to_owned(), requested.into());
        Self { flow, option, requested, at_start: granted.clone(), at_end: granted }
    }

    /// The last known value.
    pub fn last(&self) -> Option<&str> {
        self.at_end.as_deref().or(self.at_start.as_deref())
    }
}

/// The end of the measurement at one end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// Ended by its stop rule.
    #[default]
    Complete,
    /// Ended early, on request; the measurement until then is valid.
    Stopped,
    /// Ended by the error in the sentence. The measurement until then is reported but does not count.
    Failed(String),
}

/// Report of a part of a test on one iteration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// Of one of two ends.
    End(Box<SideReport>),
    /// Of one of several ranks.
    Rank(Box<RankReport>),
}

impl Report {
    pub fn ending(&self) -> &Ending {
        match self {
            Self::End(report) => &report.ending,
            Self::Rank(report) => &report.ending,
        }
    }

    pub(crate) fn volume(&self) -> Volume {
        match self {
            Self::End(report) => report.volume(),
            Self::Rank(report) => report.volume(),
        }
    }
}

/// Payload bytes sent and received, and the time that was measured, nanoseconds.
pub(crate) type Volume = (u64, u64, u64);

/// Report of one end on one iteration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SideReport {
    pub side: Side,
    /// The io method used.
    pub io: String,
    /// Threads that moved data.
    pub threads: u32,
    /// The library that carried the data, with its version; `None`: our own connections.
    pub library: Option<String>,
    /// Warm-up, measure and cool-down, as far as reached.
    #[serde(deserialize_with = "foreign::at_most::<_, _, PHASES>")]
    pub phases: Vec<Window>,
    /// Interim intervals in order of time; each lies in one phase and the last of a phase may be shorter.
    pub intervals: Vec<Window>,
    /// Payload counters from the first byte to the last, per flow: the two ends' totals of a flow must agree.
    pub totals: Vec<FlowWindow>,
    /// Socket options, asked for and granted.
    pub options: Vec<Granted>,
    /// The interface that routes to the other end, if the transport has one.
    pub nic: Option<NicFacts>,
    /// Whether its data goes over IPv6; `None`: not over IP, or unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv6: Option<bool>,
    /// Counters of the kernel and its interfaces, if requested.
    pub counters: Vec<CounterWindow>,
    /// Wall clock at the measure phase's start, Unix nanoseconds.
    pub wall_start_ns: i64,
    /// The same instant on this end's monotonic clock, nanoseconds. 0: the measure phase never began.
    pub monotonic_start_ns: u64,
    /// This end's clocks at the start and at the end of the measure phase; `None`: it did not come to its end.
    pub clocks: Option<(ClockReading, ClockReading)>,
    /// Instant at which this end was measured under its whole load, on the same clock: the measure phase had begun, and
    /// so had the last data thread that begins by itself (receivers wait for their peers). The phase begins when it is
    /// due, by definition if there is no warm-up; a thread begins when the machine lets it. So this instant, not the
    /// phase's start, tells how nearly several ends started together. 0: never.
    pub under_load_ns: u64,
    /// Time of the measure phase during which a load of another client ran on the same daemon, nanoseconds. An end without a
    /// daemon has 0.
    pub shared_ns: u64,
    /// Connections in TIME_WAIT; only for the connect patterns.
    pub time_wait: Option<TimeWait>,
    /// Only with `io: spin`.
    pub spinning: Option<Spinning>,
    /// The hops of the path; only of a near end that was to probe them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<ProbedPath>,
    /// Relation of the ends' clocks; only of a requester that was to tell the directions apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub one_way: Option<OneWay>,
    /// Only of a requester that was to look for outages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outages: Option<Outages>,
    /// Only of a requester whose far end is a reflector of STAMP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reflector: Option<Reflector>,
    pub ending: Ending,
    /// Facts for the reader of the numbers (an option without effect, a clamp, …).
    #[serde(deserialize_with = "foreign::at_most::<_, _, { foreign::MOST_SENTENCES }>")]
    pub notes: Vec<String>,
}

impl SideReport {
    /// Report of an end without a measurement.
    pub fn empty(side: Side, ending: Ending) -> Self {
        Self { side, ending, ..Self::default() }
    }

    /// The last known value of a socket option, of its first flow.
    pub fn last_value(&self, option: &str) -> Option<&str> {
        self.options.iter().find(|granted| granted.option == option)?.last()
    }

    pub(crate) fn volume(&self) -> Volume {
        let sum = |count: fn(&Counts) -> u64| self.totals.iter().map(|flow| count(&flow.counts)).sum();
        let elapsed_ns = self.phases.iter().map(|phase| phase.elapsed_ns).sum();
        (sum(|counts| counts.bytes_sent), sum(|counts| counts.bytes_received), elapsed_ns)
    }

    /// The window of a phase, if it was reached.
    pub fn phase(&self, phase: Phase) -> Option<&Window> {
        self.phases.iter().find(|window| window.phase == phase)
    }
}
