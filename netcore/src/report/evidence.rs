//! Evidence on what held an end back: its threads, its CPUs, its drops. Readings of a host's clocks, and what happened to the
//! clocks between two of them.

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
    /// Segments that arrived at the other end with a congestion mark (CE), by its echo, since the connection began.
    pub delivered_ce: Option<u64>,
    /// Whether the two ends agreed on Explicit Congestion Notification.
    pub ecn: Option<bool>,
    /// Times that nothing was acknowledged until the retransmission timeout, since the connection began.
    pub timeouts: Option<u64>,
    /// Time from these timeouts until something was acknowledged again, milliseconds.
    pub timeouts_ms: Option<u64>,
}

/// The clocks of a host, read at one instant. Two readings tell what happened to the clocks between them
/// ([`ClockReading::since`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClockReading {
    /// CLOCK_MONOTONIC, nanoseconds. NTP steers its rate.
    pub monotonic_ns: u64,
    /// CLOCK_MONOTONIC_RAW, nanoseconds: the oscillator's own rate.
    pub raw_ns: u64,
    /// CLOCK_BOOTTIME, nanoseconds: it goes on while the machine is suspended.
    pub boot_ns: u64,
    /// CLOCK_REALTIME, Unix nanoseconds. It has the rate of CLOCK_MONOTONIC, and may be set.
    pub wall_ns: i64,
    /// Longest time between two of these readings, nanoseconds.
    pub within_ns: u64,
    /// Bound of the wall clock's error by the kernel (adjtimex), nanoseconds; `None`: it is not synchronised, or it was not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wall_error_ns: Option<u64>,
}

/// Events of a host's clocks between two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockChange {
    /// Time by which CLOCK_MONOTONIC ran faster than the oscillator, nanoseconds; negative: slower.
    pub slewed_ns: i64,
    /// Time for which the machine was suspended, nanoseconds. CLOCK_MONOTONIC stood still then.
    pub suspended_ns: i64,
    /// Sum of the wall clock's steps, nanoseconds; negative: backwards. Excludes slewing.
    pub stepped_ns: i64,
    /// Bound of the error of each, nanoseconds.
    pub within_ns: u64,
}

/// Bound of slewing, as a divisor of the time: adjtimex(2) takes ticks of 90 to 110 %, and the frequency and a single
/// adjustment add 500 parts per million each.
pub(crate) const SLEWED_AT_MOST: u64 = 9;

impl ClockReading {
    /// The clocks at an instant of CLOCK_MONOTONIC between two readings, as far as these tell: at an even rate, and the
    /// error of that in `within_ns`, if the rate was changed in one direction. An instant outside counts as the nearer end.
    pub fn between((start, end): &(Self, Self), monotonic_ns: u64) -> Self {
        let whole_ns = end.monotonic_ns.saturating_sub(start.monotonic_ns);
        let part_ns = monotonic_ns.saturating_sub(start.monotonic_ns).min(whole_ns);
        if part_ns == 0 {
            return *start;
        }
        let change = end.since(start);
        let slewed = i128::from(change.slewed_ns) * i128::from(part_ns) / i128::from(whole_ns);
        // Its size is at most that of the whole change.
        let slewed_ns = i64::try_from(slewed).unwrap_or(0);
        // All or nothing of the slewing may lie before the instant, as far as the part's length allows.
        let uneven_ns = change.slewed_ns.unsigned_abs().min(part_ns / SLEWED_AT_MOST);
        let unknown = [change.within_ns, uneven_ns, change.suspended_ns.unsigned_abs()];
        Self {
            monotonic_ns: start.monotonic_ns + part_ns,
            raw_ns: start.raw_ns.wrapping_add(part_ns).wrapping_sub_signed(slewed_ns),
            boot_ns: start.boot_ns.wrapping_add(part_ns),
            wall_ns: start.wall_ns.wrapping_add_unsigned(part_ns),
            within_ns: unknown.into_iter().fold(start.within_ns, u64::saturating_add),
            wall_error_ns: None,
        }
    }

    /// Events between an earlier reading and this one.
    pub fn since(&self, before: &Self) -> ClockChange {
        // Readings come from another host, too: they may be any numbers.
        let ahead = |clock: i64, than: i64| clock.wrapping_sub(than);
        let monotonic = |reading: &Self| reading.monotonic_ns.cast_signed();
        let change =
            |of: fn(&Self) -> i64| ahead(of(self), monotonic(self)).wrapping_sub(ahead(of(before), monotonic(before)));
        ClockChange {
            slewed_ns: change(|reading| reading.raw_ns.cast_signed()).wrapping_neg(),
            suspended_ns: change(|reading| reading.boot_ns.cast_signed()),
            stepped_ns: change(|reading| reading.wall_ns).wrapping_sub(change(|reading| reading.boot_ns.cast_signed())),
            within_ns: self.within_ns.saturating_add(before.within_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Clocks after times of the oscillator with a slew each.
    fn after(parts: &[(u64, i64)]) -> ClockReading {
        let raw_ns = 1_000_000_000 + parts.iter().map(|(ns, _)| ns).sum::<u64>();
        let slewed = |(ns, per_mille): &(u64, i64)| ns.cast_signed() / 1000 * per_mille;
        let monotonic_ns = raw_ns.checked_add_signed(parts.iter().map(slewed).sum()).unwrap();
        ClockReading {
            raw_ns,
            monotonic_ns,
            boot_ns: monotonic_ns,
            wall_ns: monotonic_ns.cast_signed(),
            within_ns: 0,
            wall_error_ns: None,
        }
    }

    #[test]
    fn the_bound_holds_for_a_clock_that_is_slewed_unevenly() {
        let part = 1_000_000;
        for (first, rest) in [(100, 0), (0, 100), (-90, 0), (0, -90), (50, 100), (1, 1)] {
            for parts in 1..20 {
                let begin = after(&[]);
                let end = after(&[(part, first), (parts * part, rest)]);
                let truth = after(&[(part, first)]);
                let found = ClockReading::between(&(begin, end), truth.monotonic_ns);
                let error_ns = found.raw_ns.abs_diff(truth.raw_ns);
                assert!(error_ns <= found.within_ns + 1, "{first}, {rest}, {parts}: {error_ns} of {found:?}");
                // It is of use at the begin of a long time.
                assert!(found.within_ns <= part / 8, "{found:?}");
            }
        }
    }
}
