//! The evidence of a row, by the part that each end plays.

use schemas::{
    columns::{Row, results::ends},
    metrics::Family,
    words::Way,
};

use super::thresholds::{NAMED_WAIT, SOFTIRQ_FULL};

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
        Self {
            host: match host {
                // The far end inside this process has no name that a reader has given.
                Some("embedded") => "the far end",
                host => host.unwrap_or(side),
            },
            is_remote,
            thread,
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
