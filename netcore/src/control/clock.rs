//! Offset between another host's monotonic clock and ours.
//!
//! A probe reads our clock, asks the other end for its clock, and reads ours again. If both ways took equally long, the
//! other clock was read in the middle. In any case it was read between our two readings, so half of the round trip bounds
//! the error. The fastest of many probes is the most precise (Cristian's algorithm).

use serde::{Deserialize, Serialize};

/// Probes for one offset.
pub const PROBES: usize = 16;

/// Drift between two quartz clocks: PC oscillators are specified for 50 parts per million each.
const DRIFT_PER_MILLION: u64 = 100;

/// One exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Departure of the question on our monotonic clock, nanoseconds.
    pub sent_ns: u64,
    /// Its arrival on their monotonic clock.
    pub arrived_ns: u64,
    /// Departure of the answer on their monotonic clock.
    pub answered_ns: u64,
    /// Their wall clock then, Unix nanoseconds.
    pub wall_ns: i64,
    /// Its arrival on our monotonic clock.
    pub received_ns: u64,
    /// Our wall clock then, Unix nanoseconds.
    pub received_wall_ns: i64,
}

/// Relation of another host's clocks to ours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockOffset {
    /// Their monotonic clock minus ours, nanoseconds.
    pub offset_ns: i64,
    /// Bound of the error of `offset_ns` when it was taken, nanoseconds.
    pub bound_ns: u64,
    /// Round trip of the fastest probe without the time that the other end took, nanoseconds.
    pub rtt_ns: u64,
    /// Their wall clock minus ours, nanoseconds, with the same bound.
    pub wall_offset_ns: i64,
    /// Return of the fastest probe on our monotonic clock, nanoseconds.
    pub taken_ns: u64,
}

impl ClockOffset {
    /// From the fastest of the probes; `None` without a probe that makes sense.
    pub fn from_probes(probes: &[Probe]) -> Option<Self> {
        probes.iter().filter_map(Self::from_probe).min_by_key(|offset| offset.rtt_ns)
    }

    fn from_probe(probe: &Probe) -> Option<Self> {
        let whole = probe.received_ns.checked_sub(probe.sent_ns)?;
        let there = probe.answered_ns.checked_sub(probe.arrived_ns)?;
        // A peer that claims to have taken longer than the whole exchange is not credible.
        let rtt_ns = whole.checked_sub(there)?;
        let arrived = i128::from(probe.arrived_ns) - i128::from(probe.sent_ns);
        let answered = i128::from(probe.answered_ns) - i128::from(probe.received_ns);
        // Our wall clock when the answer left there, by the same estimate.
        let ours = i128::from(probe.received_wall_ns) - i128::from(rtt_ns / 2);
        Some(Self {
            offset_ns: i64::try_from(arrived.midpoint(answered)).ok()?,
            bound_ns: rtt_ns.div_ceil(2),
            rtt_ns,
            wall_offset_ns: i64::try_from(i128::from(probe.wall_ns) - ours).ok()?,
            taken_ns: probe.received_ns,
        })
    }

    /// An instant of our monotonic clock on theirs; `None`: out of range.
    pub fn to_theirs(&self, ours_ns: u64) -> Option<u64> {
        ours_ns.checked_add_signed(self.offset_ns)
    }

    /// An instant of their monotonic clock on ours; `None`: out of range.
    pub fn to_ours(&self, theirs_ns: u64) -> Option<u64> {
        theirs_ns.checked_sub_signed(self.offset_ns)
    }

    /// Bound of the error at an instant of our monotonic clock, nanoseconds. It grows with the time since the probes.
    pub fn bound_at_ns(&self, ours_ns: u64) -> u64 {
        self.bound_ns + ours_ns.abs_diff(self.taken_ns) / 1_000_000 * DRIFT_PER_MILLION
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_true_offset_lies_within_the_bound(
            start in 10_000_000_000u64..1_000_000_000_000,
            offset in -5_000_000_000i64..5_000_000_000,
            ways in prop::collection::vec((0u64..1_000_000, 0u64..1_000_000, 0u64..100_000), 1..20),
        ) {
            let probes: Vec<Probe> = ways.iter().map(|&(out, there, back)| Probe {
                sent_ns: start,
                arrived_ns: (start + out).checked_add_signed(offset).unwrap(),
                answered_ns: (start + out + there).checked_add_signed(offset).unwrap(),
                wall_ns: 7_000_000 + i64::try_from(start + out + there).unwrap(),
                received_ns: start + out + there + back,
                received_wall_ns: i64::try_from(start + out + there + back).unwrap(),
            }).collect();
            let found = ClockOffset::from_probes(&probes).unwrap();
            prop_assert!(found.offset_ns.abs_diff(offset) <= found.bound_ns);
            prop_assert!(found.wall_offset_ns.abs_diff(7_000_000) <= found.bound_ns);
            prop_assert!(probes.iter().zip(&ways).all(|(_, &(out, _, back))| found.rtt_ns <= out + back));
            prop_assert_eq!(found.to_ours(found.to_theirs(start).unwrap()), Some(start));
        }

        #[test]
        fn any_answer_gives_an_offset_or_none(sent: u64, arrived: u64, answered: u64, wall: i64, received: u64) {
            let probe = Probe {
                sent_ns: sent, arrived_ns: arrived, answered_ns: answered, wall_ns: wall,
                received_ns: received, received_wall_ns: wall,
            };
            let _ = ClockOffset::from_probes(&[probe]);
        }
    }

    #[test]
    fn the_bound_grows_with_age() {
        let offset = ClockOffset { bound_ns: 20_000, taken_ns: 5, ..ClockOffset::default() };
        assert_eq!(offset.bound_at_ns(5), 20_000);
        assert_eq!(offset.bound_at_ns(10_000_000_005), 20_000 + 1_000_000);
    }
}
