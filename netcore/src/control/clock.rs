//! Offset between another host's monotonic clock and ours.
//!
//! A probe reads our clock, asks the other end for its clock, and reads ours again. If both ways took equally long, the
//! other clock was read in the middle. In any case it was read between our two readings, so half of the round trip bounds
//! the error. The fastest of many probes is the most precise (Cristian's algorithm).
//!
//! The offset changes with time. Programs that steer a clock slew CLOCK_MONOTONIC: ntpd by up to 500 parts per million,
//! chrony by up to a tenth, and both change the rate at any time. No assumption about rates is needed: each host reads
//! CLOCK_MONOTONIC_RAW too, which follows the oscillator alone, and so tells by how much its clock was slewed since the
//! probes. Only the drift between the two oscillators remains unknown.

use serde::{Deserialize, Serialize};

use crate::report::{ClockChange, ClockReading};

/// Probes for one offset.
pub const PROBES: usize = 16;

/// Bound of the drift between two CLOCK_MONOTONIC_RAW: PC oscillators are specified for 50 parts per million each, and as
/// much is left for the kernel's calibration of each.
const DRIFT_PER_MILLION: u64 = 200;

/// One exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Departure of the question on our monotonic clock, nanoseconds.
    pub sent_ns: u64,
    /// Its arrival on their monotonic clock.
    pub arrived_ns: u64,
    /// Their clocks at the departure of the answer.
    pub answered: ClockReading,
    /// Our clocks at its arrival.
    pub received: ClockReading,
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
    /// Our clocks when the fastest probe returned.
    pub ours: ClockReading,
    /// Their clocks when they answered it.
    pub theirs: ClockReading,
}

impl ClockOffset {
    /// From the fastest of the probes; `None` without a probe that makes sense.
    pub fn from_probes(probes: &[Probe]) -> Option<Self> {
        probes.iter().filter_map(Self::from_probe).min_by_key(|offset| offset.rtt_ns)
    }

    fn from_probe(probe: &Probe) -> Option<Self> {
        let (ours, theirs) = (probe.received, probe.answered);
        let whole = ours.monotonic_ns.checked_sub(probe.sent_ns)?;
        let there = theirs.monotonic_ns.checked_sub(probe.arrived_ns)?;
        // A peer that claims to have taken longer than the whole exchange is not credible.
        let rtt_ns = whole.checked_sub(there)?;
        let arrived = i128::from(probe.arrived_ns) - i128::from(probe.sent_ns);
        let answered = i128::from(theirs.monotonic_ns) - i128::from(ours.monotonic_ns);
        // Our wall clock when the answer left there, by the same estimate.
        let our_wall = i128::from(ours.wall_ns) - i128::from(rtt_ns / 2);
        Some(Self {
            offset_ns: i64::try_from(arrived.midpoint(answered)).ok()?,
            bound_ns: rtt_ns.div_ceil(2),
            rtt_ns,
            wall_offset_ns: i64::try_from(i128::from(theirs.wall_ns) - our_wall).ok()?,
            ours,
            theirs,
        })
    }

    /// The relation at another time, at which both hosts read their clocks: what slewing, suspending and setting did
    /// since the probes is known from the readings. The bound grows by the drift between the oscillators.
    pub fn at(&self, ours: &ClockReading, theirs: &ClockReading) -> Self {
        let (here, there) = (ours.since(&self.ours), theirs.since(&self.theirs));
        // The monotonic clock stands still while its machine is suspended.
        let monotonic = |change: ClockChange| i128::from(change.slewed_ns) - i128::from(change.suspended_ns);
        let wall = |change: ClockChange| i128::from(change.slewed_ns) + i128::from(change.stepped_ns);
        let moved = |offset_ns: i64, of: fn(ClockChange) -> i128| {
            let offset = i128::from(offset_ns) + of(there) - of(here);
            // Saturates: an offset at either end converts to `None`.
            i64::try_from(offset).unwrap_or(if offset < 0 { i64::MIN } else { i64::MAX })
        };
        let age_ns = ours.raw_ns.abs_diff(self.ours.raw_ns).max(theirs.raw_ns.abs_diff(self.theirs.raw_ns));
        let drift_ns = age_ns.div_ceil(1_000_000).saturating_mul(DRIFT_PER_MILLION);
        Self {
            offset_ns: moved(self.offset_ns, monotonic),
            bound_ns: [drift_ns, here.within_ns, there.within_ns].into_iter().fold(self.bound_ns, u64::saturating_add),
            rtt_ns: self.rtt_ns,
            wall_offset_ns: moved(self.wall_offset_ns, wall),
            ours: *ours,
            theirs: *theirs,
        }
    }

    /// An instant of our monotonic clock on theirs; `None`: out of range.
    pub fn to_theirs(&self, ours_ns: u64) -> Option<u64> {
        ours_ns.checked_add_signed(self.offset_ns)
    }

    /// An instant of their monotonic clock on ours; `None`: out of range.
    pub fn to_ours(&self, theirs_ns: u64) -> Option<u64> {
        theirs_ns.checked_sub_signed(self.offset_ns)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A host whose clocks begin somewhere, whose oscillator is off by `oscillator_ppm`, and which is slewed and suspended.
    #[derive(Clone, Debug)]
    struct Host {
        begin_ns: u64,
        oscillator_ppm: i64,
        /// Lengths in nanoseconds, and by how many parts per million the clock is slewed meanwhile. The last goes on.
        slews: Vec<(u64, i64)>,
        /// Begin and length of a time in which the machine is suspended, nanoseconds.
        suspended: (u64, u64),
    }

    impl Host {
        /// Its clocks at an instant of true time.
        fn reads(&self, true_ns: u64) -> ClockReading {
            let part = |ns: u64, ppm: i64| i64::try_from(i128::from(ns) * i128::from(ppm) / 1_000_000).unwrap();
            let asleep = true_ns.saturating_sub(self.suspended.0).min(self.suspended.1);
            let awake = true_ns - asleep;
            let (mut left, mut slewed) = (awake, 0);
            for (i, (length, ppm)) in self.slews.iter().enumerate() {
                let spent = if i + 1 == self.slews.len() { left } else { left.min(*length) };
                slewed += part(spent, *ppm);
                left -= spent;
            }
            let raw_ns = (self.begin_ns + awake).checked_add_signed(part(awake, self.oscillator_ppm)).unwrap();
            let monotonic_ns = raw_ns.checked_add_signed(slewed).unwrap();
            let boot_ns = monotonic_ns + asleep;
            ClockReading { monotonic_ns, raw_ns, boot_ns, wall_ns: boot_ns.cast_signed() + 7, within_ns: 0 }
        }
    }

    fn hosts(most_ppm: i64) -> impl Strategy<Value = Host> {
        let slews = prop::collection::vec((1u64..300_000_000_000, -most_ppm..=most_ppm), 1..6);
        let suspended = (1_000_000u64..600_000_000_000, prop_oneof![Just(0), 1u64..60_000_000_000]);
        // The oscillators stay within the assumed drift.
        let own = -(DRIFT_PER_MILLION.cast_signed() / 2 - 1)..DRIFT_PER_MILLION.cast_signed() / 2;
        (1_000_000_000_000u64..2_000_000_000_000, own, slews, suspended).prop_map(
            |(begin_ns, oscillator_ppm, slews, suspended)| Host { begin_ns, oscillator_ppm, slews, suspended },
        )
    }

    /// A probe at the true instant 0, with the fastest of these ways there and back.
    fn compared(ours: &Host, theirs: &Host, ways: &[(u64, u64)]) -> ClockOffset {
        let probe = |(out, back): &(u64, u64)| Probe {
            sent_ns: ours.reads(0).monotonic_ns,
            arrived_ns: theirs.reads(*out).monotonic_ns,
            answered: theirs.reads(*out),
            received: ours.reads(out + back),
        };
        ClockOffset::from_probes(&ways.iter().map(probe).collect::<Vec<_>>()).unwrap()
    }

    proptest! {
        #[test]
        fn the_bound_holds_at_the_end_of_a_long_test(
            // 500 parts per million are ntpd's most, 100 000 the kernel's.
            (ours, theirs) in prop_oneof![Just(500i64), Just(100_000)].prop_flat_map(|most| (hosts(most), hosts(most))),
            ways in prop::collection::vec((1_000u64..400_000, 1_000u64..400_000), 1..5),
            length_ns in 1_000_000_000u64..3_600_000_000_000,
        ) {
            let (here, there) = (ours.reads(length_ns), theirs.reads(length_ns));
            let found = compared(&ours, &theirs, &ways).at(&here, &there);
            let truth = there.monotonic_ns.cast_signed() - here.monotonic_ns.cast_signed();
            // A nanosecond for each number that the model rounds.
            prop_assert!(found.offset_ns.abs_diff(truth) <= found.bound_ns + 20, "{found:?}: {truth}");
            prop_assert!(found.to_ours(there.monotonic_ns).unwrap().abs_diff(here.monotonic_ns) <= found.bound_ns + 20);
            // It is of use: half of a round trip, and the drift of an hour at most.
            prop_assert!(found.bound_ns <= 400_000 + (length_ns / 990_000 + 2) * DRIFT_PER_MILLION);
        }

        #[test]
        fn the_true_offset_lies_within_the_bound(
            start in 10_000_000_000u64..1_000_000_000_000,
            offset in -5_000_000_000i64..5_000_000_000,
            ways in prop::collection::vec((0u64..1_000_000, 0u64..1_000_000, 0u64..100_000), 1..20),
        ) {
            let at = |monotonic_ns: u64, wall_ns: u64| {
                ClockReading { monotonic_ns, wall_ns: wall_ns.cast_signed(), ..ClockReading::default() }
            };
            let probes: Vec<Probe> = ways.iter().map(|&(out, there, back)| Probe {
                sent_ns: start,
                arrived_ns: (start + out).checked_add_signed(offset).unwrap(),
                answered: at((start + out + there).checked_add_signed(offset).unwrap(), 7_000_000 + start + out + there),
                received: at(start + out + there + back, start + out + there + back),
            }).collect();
            let found = ClockOffset::from_probes(&probes).unwrap();
            prop_assert!(found.offset_ns.abs_diff(offset) <= found.bound_ns);
            prop_assert!(found.wall_offset_ns.abs_diff(7_000_000) <= found.bound_ns);
            prop_assert!(probes.iter().zip(&ways).all(|(_, &(out, _, back))| found.rtt_ns <= out + back));
            prop_assert_eq!(found.to_ours(found.to_theirs(start).unwrap()), Some(start));
        }

        #[test]
        fn any_answer_gives_an_offset_or_none(
            sent: u64, arrived: u64, answered in readings(), received in readings(), ours in readings(), theirs in readings(),
        ) {
            let probe = Probe { sent_ns: sent, arrived_ns: arrived, answered, received };
            if let Some(offset) = ClockOffset::from_probes(&[probe]) {
                let later = offset.at(&ours, &theirs);
                let _ = (later.to_ours(arrived), later.to_theirs(sent));
            }
        }
    }

    /// Any numbers: a reading may come from a host that lies.
    fn readings() -> impl Strategy<Value = ClockReading> {
        any::<(u64, u64, u64, i64, u64)>().prop_map(|(monotonic_ns, raw_ns, boot_ns, wall_ns, within_ns)| {
            ClockReading { monotonic_ns, raw_ns, boot_ns, wall_ns, within_ns }
        })
    }

    #[test]
    fn a_slewed_clock_is_followed() {
        let quiet = Host { begin_ns: 1 << 40, oscillator_ppm: 0, slews: vec![(1, 0)], suspended: (0, 0) };
        for ppm in [500, -500, 83_333, -100_000] {
            let slewed = Host { slews: vec![(1, ppm)], ..quiet.clone() };
            let minute = 60_000_000_000;
            let then = compared(&quiet, &slewed, &[(10_000, 10_000)]);
            let now = then.at(&quiet.reads(minute), &slewed.reads(minute));
            let truth = ppm * 60_000;
            assert!(now.offset_ns.abs_diff(truth) <= now.bound_ns, "{ppm}: {now:?}");
            // A bound that assumes two undisturbed quartz clocks is wrong then.
            assert!(then.offset_ns.abs_diff(truth) > then.bound_ns + 60_000 * 100, "{ppm}");
        }
    }

    #[test]
    fn the_bound_grows_with_age() {
        let later =
            |s: u64| ClockReading { monotonic_ns: s * 1_000_000_000, raw_ns: s * 1_000_000_000, ..Default::default() };
        let offset = ClockOffset { bound_ns: 20_000, ..ClockOffset::default() };
        assert_eq!(offset.at(&later(0), &later(0)).bound_ns, 20_000);
        assert_eq!(offset.at(&later(10), &later(10)).bound_ns, 20_000 + 10_000 * DRIFT_PER_MILLION);
    }
}
