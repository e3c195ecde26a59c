//! The evidence of a row, by the part that each end plays, and the thresholds of all rules.

use schemas::{
    columns::{Row, results::ends},
    metrics::Family,
    units::{Unit, human},
    words::Way,
};

// The thresholds of the rule, each with its reason. `docs/reference/methodology.md` explains them; `tests/bench/limits` measures how
// often they lead to a right answer.

/// Shortest window that the rule judges, seconds. The kernel counts TCP's times in ticks of up to 10 ms and CPU shares in
/// ticks of 10 ms: in 0.2 s one tick is 5 %.
pub const SHORTEST_S: f64 = 0.2;

/// Share of the window for which nothing arrived, from which on its rates tell of no cause.
pub const SILENT: f64 = 0.1;

/// Share of the time from which on a thread that runs, waits for a CPU or waits for its quota counts as one that never sleeps.
/// A thread that waits for its peer sleeps once per wake-up, which costs it more than a tenth.
pub const FULL: f64 = 0.9;

/// The same where TCP's times point to that end as well.
pub const FULL_WITH_SUPPORT: f64 = 0.8;

/// Share of the time up to which a thread counts as one that mostly sleeps: something else must be the limit. Between this and
/// [`FULL`] a thread proves nothing, and contradicts every cause that leaves it idle.
pub const ASLEEP: f64 = 0.7;

/// Share of the window that TCP's times must name one cause for.
pub const MOST: f64 = 0.5;

/// Share of the window up to which another of TCP's times does not contradict.
pub const LITTLE: f64 = 0.25;

/// Share of the window for which a sender without data must provably have slept, or have waited for a CPU.
pub const PROVEN: f64 = 0.3;

/// Share of the window below which one of TCP's times says that there was no such wait.
pub const TRACE: f64 = 0.1;

/// Share of the window from which on a sender always had data to send or unacknowledged.
pub const BUSY: f64 = 0.9;

/// Share of a link's possible throughput from which on it is full. The rest is acknowledgements of the other direction and
/// the pauses of congestion controls.
pub const WIRE_FULL: f64 = 0.95;

/// Share of what a link can carry beyond which its speed must be wrong: a virtual interface names any.
pub const WIRE_BEYOND: f64 = 1.05;

/// Share by which a sender may miss the offered load that it reached all the same. The engine makes up for late sends; one
/// burst at an edge of the window is less than this.
pub const RATE_SLACK: f64 = 0.02;

/// Growth of QUIC's round trip over the least one from which on a queue stands on the path.
pub const QUEUED: f64 = 1.5;

/// The same as a difference, microseconds: two threads that share a CPU delay packets by as much.
pub const QUEUED_US: f64 = 1000.0;

/// Loss of datagrams from which on it counts, as a share of those sent.
pub const LOSS: f64 = 0.01;

/// Share of the lost packets that the drops at one place must explain.
pub const EXPLAINED: f64 = 0.5;

/// Fewest retransmits or drops that say something.
pub const FEW_PACKETS: f64 = 10.0;

/// Fewest segments that TCP must have lost in a window. One or two are probes of its own.
pub const FEW_LOSSES: f64 = 5.0;

/// Share of the segments that must be lost before BBR counts as slowed by loss: its second version leaves the bandwidth
/// probing at 2 %.
pub const BBR_LOSS: f64 = 0.02;

/// Factor by which a sender may stay below the rate that Mathis' formula gives for its loss and still be slowed by loss.
pub const MATHIS_SLACK: f64 = 4.0;

/// Range of throughput over the pacing rate in which the pacing holds a sender that a limit of its rate paces. Headers are
/// paced as well.
pub const PACED: (f64, f64) = (0.9, 1.02);

/// The same of BBR, whose pacing rate cycles between 0.75 and 1.25 of its estimate.
pub const PACED_BBR: (f64, f64) = (0.75, 1.35);

/// The pacing rate over the congestion window per round trip up to which a limit of the rate decides. Without one, the
/// kernel sets 1.2 (`net.ipv4.tcp_pacing_ca_ratio`) or 2 (`tcp_pacing_ss_ratio`).
pub const PACING_OF_WINDOW: f64 = 1.1;

/// Range of the congestion window over the data in flight in which the window is what limits. A window that the sender
/// does not fill stays where it was.
pub const WINDOW_FILLED: (f64, f64) = (0.6, 1.6);

/// Range of the data in flight over the send buffer, and one packet that may exceed it, in which the buffer is full. The kernel
/// counts the memory of packets, of which half to almost all is data. A buffer that it tunes itself is over three times the
/// window. In its own time of the send buffer it misses packets that left as soon as they were written (Linux 6.18).
pub const BUFFER_FILLED: (f64, f64) = (0.4, 1.4);

/// Bytes of the largest packet that TCP hands down.
pub const ONE_PACKET: f64 = 65_536.0;

/// A queue stands on the path if the round-trip time is this many times the smallest …
pub const QUEUE_FACTOR: f64 = 2.0;

/// … and this much longer, microseconds. Wake-ups of threads make up the rest on a short path.
pub const QUEUE_US: f64 = 2000.0;

/// Range of the delivery rate at the end of the window over the throughput of all of it, in which the rate was steady. A full link
/// delivers the same all the time.
pub const STEADY: (f64, f64) = (0.8, 1.25);

/// The least of it where a queue stands, which keeps the link busy. The kernel measures over the longer of the times between the sends and
/// between the acknowledgements of a round trip, so its last sample may be of a burst and the pause behind it: 0.66 to 1 were seen.
pub const STEADY_BEHIND_QUEUE: f64 = 0.6;

/// Share of a receive buffer below which the data in flight show that its reader is slow, and the buffer not small.
pub const SLOW_READER: f64 = 0.125;

/// Share of the test below which the sender's own time says nothing about the whole.
pub const HANDED_OVER: f64 = 0.5;

/// A receive buffer of at most this many segments has room for two: the kernel uses half of a buffer for data.
pub const BUFFER_OF_TWO: f64 = 4.0;

/// A receive buffer of at most this many bytes is small on any path: it holds five Ethernet segments, and the kernel's own choice
/// begins with eight times as much.
pub const SMALL_BUFFER: f64 = 16_384.0;

/// Share of a CPU's time in soft interrupts from which on that CPU is full with them.
const SOFTIRQ_FULL: f64 = 0.9;

/// Share of the time in which a thread waited for a CPU, or its quota held it back, that a sentence names.
pub const NAMED_WAIT: f64 = 0.1;

/// Share of a machine's CPU time that its hypervisor took, from which on it explains iterations that differ.
pub const STOLEN: f64 = 0.02;

/// Range of the requests under way by rate and latency (Little's law), over those that the test has, in which each
/// transaction waited for the one before it.
pub const CLOSED_LOOP: (f64, f64) = (0.8, 1.1);

/// Share of a case's iterations that must agree on a cause: more than this, or just this if the others know none.
pub const AGREEMENT: f64 = 2.0 / 3.0;

/// A row's evidence about its two ends.
pub struct Evidence<'a> {
    pub row: &'a Row,
    pub family: Family,
    /// The sender of a stream, or the end that asks.
    pub sender: End<'a>,
    /// The receiver of a stream, or the end that answers.
    pub receiver: End<'a>,
}

/// One end of a test.
pub struct End<'a> {
    pub host: &'a str,
    /// Whether it is `to`, whose keys in a plan begin with `remote_`.
    is_remote: bool,
    pub thread: Option<Thread>,
    /// Share of the time in which its data thread ran that encryption took.
    pub encryption: Option<f64>,
    /// Share of the time in which a quota held it back.
    pub throttled: f64,
    /// The CPU with most soft interrupts, and their share.
    softirq: Option<(u64, f64)>,
    /// Packets dropped, by place.
    pub drops: [(Place, Option<f64>); 4],
    /// Whether its threads spin, so that a busy one may have nothing to do.
    pub spins: bool,
}

/// The data thread that ran or waited for a CPU for the longest time.
#[derive(Clone, Copy)]
pub struct Thread {
    pub busy: f64,
    pub waiting: f64,
    pub cpu: Option<u64>,
}

/// A place that drops packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Qdisc,
    Interface,
    Softnet,
    Socket,
}

impl Place {
    /// `the queueing discipline of client's interface`
    pub fn of(self, host: &str) -> String {
        match self {
            Self::Qdisc => format!("the queueing discipline of {host}"),
            Self::Interface => format!("the interface of {host}"),
            Self::Softnet => format!("the queue between interface and protocols of {host} (softnet)"),
            Self::Socket => format!("the receive buffer of {host}"),
        }
    }
}

impl<'a> Evidence<'a> {
    /// `51 packets`; of the mean of several iterations, `51 packets per iteration`.
    pub fn count(&self, n: f64, what: &str) -> String {
        let each = if self.row.iterations.is_some_and(|n| n > 1) { " per iteration" } else { "" };
        format!("{} {what}{each}", human(Unit::Count, n))
    }

    /// `None`: the row is of no test between two ends.
    pub fn of(row: &'a Row) -> Option<Self> {
        let family = Family::of(row.workload.as_deref()?);
        if !matches!(family, Family::Stream | Family::Transactions | Family::Ping) {
            return None;
        }
        let ends = [End::of(row, false), End::of(row, true)];
        let [sender, receiver] = if family == Family::Stream && row.direction == Some(Way::Reverse) {
            let [local, remote] = ends;
            [remote, local]
        } else {
            ends
        };
        Some(Self { row, family, sender, receiver })
    }

    /// Whether the ends run on one machine as far as the row shows it: both then see the same CPUs.
    pub fn shares_cpus(&self) -> bool {
        self.row.same_machine == Some(true)
            || self.row.to.as_deref() == Some("embedded")
            || self.row.from == self.row.to
    }

    pub fn is_tcp(&self) -> bool {
        self.row.busy_ratio.is_some()
    }

    pub fn is_bbr(&self) -> bool {
        self.row.congestion_control.as_deref().is_some_and(|name| name.starts_with("bbr"))
    }

    /// Retransmits of the ends that send.
    pub fn retransmits(&self) -> Option<f64> {
        self.row.retransmits.map(|count| count as f64)
    }

    /// Segments that the sender's bytes need.
    pub fn segments(&self) -> Option<f64> {
        let (bytes, mss) = (self.row.bytes_sent? as f64, self.row.mss_bytes? as f64);
        (mss > 0.0 && bytes > 0.0).then(|| bytes / mss)
    }

    /// Bytes that arrive in a round-trip time: about those in flight.
    pub fn in_flight(&self) -> Option<f64> {
        let bits = self.row.throughput_bits_per_s.or(self.row.sent_bits_per_s)?;
        let rtt_us = self.row.rtt_us?;
        (rtt_us > 0.0).then(|| bits / 8.0 * rtt_us / 1e6)
    }

    /// The SO_RCVBUF of the receiver and the SO_SNDBUF of the sender, in bytes.
    pub fn buffers(&self) -> (Option<f64>, Option<f64>) {
        let row = self.row;
        let (send, receive) = if self.sender.is_remote {
            (row.remote_send_buffer_bytes, row.local_receive_buffer_bytes)
        } else {
            (row.local_send_buffer_bytes, row.remote_receive_buffer_bytes)
        };
        (send.map(|b| b as f64), receive.map(|b| b as f64))
    }
}

impl<'a> End<'a> {
    fn of(row: &'a Row, is_remote: bool) -> Self {
        let (host, side) = if is_remote { (row.to.as_deref(), "remote") } else { (row.from.as_deref(), "local") };
        let cell = |both: [&str; 2]| row.number(both[usize::from(is_remote)]);
        let share = |both| cell(both).map(|share| share.clamp(0.0, 1.0));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the number of a CPU")]
        let cpu = |both| cell(both).map(|number| number as u64);
        let thread = share(ends::thread_busy_ratio).map(|busy| Thread {
            busy,
            waiting: share(ends::thread_waiting_ratio).unwrap_or(0.0),
            cpu: cpu(ends::thread_cpu_id),
        });
        let places = [
            (Place::Qdisc, ends::qdisc_drops),
            (Place::Interface, ends::interface_drops),
            (Place::Softnet, ends::softnet_drops),
            (Place::Socket, ends::socket_drops),
        ];
        // The cell is of all data threads.
        let single = row.threads.is_none_or(|n| n <= 1);
        let encryption = cell(ends::encryption_cpus).zip(thread.filter(|thread| single && thread.busy > 0.0));
        let encryption = encryption.map(|(cpus, thread)| (cpus / thread.busy).clamp(0.0, 1.0));
        Self {
            host: match host {
                // The far end inside this process has no name that a reader has given.
                Some("embedded") => "the far end",
                host => host.unwrap_or(side),
            },
            is_remote,
            thread,
            encryption,
            throttled: share(ends::throttled_ratio).unwrap_or(0.0),
            softirq: cpu(ends::softirq_peak_id).zip(share(ends::softirq_peak_ratio)),
            drops: places.map(|(place, both)| (place, cell(both))),
            spins: row.io.as_deref() == Some("spin") || cell(ends::spin_ratio).is_some(),
        }
    }

    /// A key of this end in a plan: `cpu` or `remote_cpu`.
    pub fn key(&self, key: &str) -> String {
        if self.is_remote { format!("remote_{key}") } else { key.to_owned() }
    }

    /// Share of the time in which its data thread ran, or was ready and could not. `None`: not known, or it spins.
    pub fn load(&self) -> Option<f64> {
        let thread = self.thread.filter(|_| !self.spins)?;
        // A quota's time may be a part of the waiting.
        let own = thread.busy + thread.waiting.max(self.throttled);
        Some(own.min(1.0))
    }

    /// Share of the time in which its thread was ready and waited for a CPU, or its quota held it back.
    pub fn held(&self) -> f64 {
        self.thread.map_or(0.0, |thread| thread.waiting).max(self.throttled)
    }

    /// The CPU that is full with soft interrupts, and their share.
    pub fn full_softirq(&self) -> Option<(u64, f64)> {
        self.softirq.filter(|(_, ratio)| *ratio >= SOFTIRQ_FULL)
    }

    /// Whether its thread waited for a CPU for a time worth naming.
    pub fn waits(&self) -> bool {
        self.thread.is_some_and(|thread| thread.waiting >= NAMED_WAIT)
    }

    /// Whether a quota held it back for a time worth naming.
    pub fn is_throttled(&self) -> bool {
        self.throttled >= NAMED_WAIT
    }
}
