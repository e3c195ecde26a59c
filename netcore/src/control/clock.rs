//! Offset between another host's monotonic clock and ours.
//!
//! A probe reads our clocks, asks the other end for its clocks, and reads ours again. Its clock was read between our two
//! readings, so each probe bounds the offset from both sides; [`Envelope`] joins the bounds of all probes of a session. The
//! offset is taken in the middle of what they leave: exact if both ways took equally long.
//!
//! The offset changes with time. Programs that steer a clock slew CLOCK_MONOTONIC: ntpd by up to 500 parts per million,
//! chrony by up to a tenth, and both change the rate at any time. No assumption about rates is needed: each host reads
//! CLOCK_MONOTONIC_RAW too, which follows the oscillator alone, and so tells by how much its clock was slewed since the
//! probes. Only the drift between the two oscillators remains unknown.

use serde::{Deserialize, Serialize};

use crate::{
    measure::envelope::{Envelope, RoundTrip, drift_ns},
    report::{ClockChange, ClockReading, SLEWED_AT_MOST},
};

/// Probes for one offset.
pub const PROBES: usize = 16;

/// One exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Our clocks before the departure of the question.
    pub sent: ClockReading,
    /// Its arrival on their monotonic clock, nanoseconds.
    pub arrived_ns: u64,
    /// Their clocks at the departure of the answer.
    pub answered: ClockReading,
    /// Our clocks after its arrival.
    pub received: ClockReading,
}

impl Probe {
    /// Time on the way, both ways together, nanoseconds.
    fn on_the_way_ns(&self) -> Option<u64> {
        let whole_ns = self.received.raw_ns.checked_sub(self.sent.raw_ns)?;
        Some(whole_ns.saturating_sub(self.answered.monotonic_ns.checked_sub(self.arrived_ns)?))
    }

    /// The exchange on the clocks that nobody slews. `None`: it makes no sense.
    fn round_trip(&self) -> Option<RoundTrip> {
        let there_ns = self.answered.monotonic_ns.checked_sub(self.arrived_ns)?;
        // Their clock may be slewed meanwhile: an arrival later than the truth only widens the bound.
        let least_ns = there_ns - there_ns.div_ceil(SLEWED_AT_MOST);
        Some(RoundTrip {
            sent_ns: self.sent.raw_ns,
            arrived_ns: self.answered.raw_ns.checked_sub(least_ns)?,
            answered_ns: self.answered.raw_ns,
            received_ns: self.received.raw_ns,
        })
    }
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
    /// Our clocks when the last probe returned.
    pub ours: ClockReading,
    /// Their clocks when they answered it.
    pub theirs: ClockReading,
}

impl ClockOffset {
    /// At the last of these probes, which are in the order of their sending, by all that is known of the two clocks. `None`
    /// without a probe that makes sense, or if they contradict each other.
    pub fn of(known: &mut Envelope, probes: &[Probe]) -> Option<Self> {
        let trip = |probe: &Probe| probe.round_trip().filter(|trip| trip.on_the_way_ns().is_some());
        let Probe { answered: theirs, received: ours, .. } = probes.iter().rfind(|probe| trip(probe).is_some())?;
        let mut now = Envelope::default();
        probes.iter().filter_map(trip).for_each(|trip| now.push(&trip));
        known.extend(&now);
        if known.range(ours.raw_ns).is_none() {
            // A machine was suspended since the earlier comparisons.
            *known = now;
        }
        let (low, high) = known.range(ours.raw_ns)?;
        let apart = |theirs: i128, ours: i128| i64::try_from(theirs - ours).ok();
        let raw = i128::from(low).midpoint(high.into());
        let steered = |reading: &ClockReading| i128::from(reading.monotonic_ns) - i128::from(reading.raw_ns);
        let set = |reading: &ClockReading| i128::from(reading.wall_ns) - i128::from(reading.raw_ns);
        Some(Self {
            offset_ns: apart(raw + steered(theirs), steered(ours))?,
            bound_ns: [theirs.within_ns, ours.within_ns]
                .into_iter()
                .fold(high.abs_diff(low).div_ceil(2), u64::saturating_add),
            rtt_ns: probes.iter().filter_map(Probe::on_the_way_ns).min()?,
            wall_offset_ns: apart(raw + set(theirs), set(ours))?,
            ours: *ours,
            theirs: *theirs,
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
        Self {
            offset_ns: moved(self.offset_ns, monotonic),
            bound_ns: [drift_ns(age_ns), here.within_ns, there.within_ns]
                .into_iter()
                .fold(self.bound_ns, u64::saturating_add),
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
    use crate::measure::envelope::DRIFT_PER_MILLION;

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
            ClockReading {
                monotonic_ns,
                raw_ns,
                boot_ns,
                wall_ns: boot_ns.cast_signed() + 7,
                within_ns: 0,
                wall_error_ns: None,
            }
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
            sent: ours.reads(0),
            arrived_ns: theirs.reads(*out).monotonic_ns,
            answered: theirs.reads(*out),
            received: ours.reads(out + back),
        };
        ClockOffset::of(&mut Envelope::default(), &ways.iter().map(probe).collect::<Vec<_>>()).unwrap()
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
                let raw_ns = monotonic_ns;
                ClockReading { monotonic_ns, raw_ns, wall_ns: wall_ns.cast_signed(), ..ClockReading::default() }
            };
            let probes: Vec<Probe> = ways.iter().map(|&(out, there, back)| Probe {
                sent: at(start, start),
                arrived_ns: (start + out).checked_add_signed(offset).unwrap(),
                answered: at((start + out + there).checked_add_signed(offset).unwrap(), 7_000_000 + start + out + there),
                received: at(start + out + there + back, start + out + there + back),
            }).collect();
            let found = ClockOffset::of(&mut Envelope::default(), &probes).unwrap();
            // As tight as the fastest probe, but for what their clock may be slewed meanwhile.
            let fastest = ways.iter().map(|(out, there, back)| (out + back).div_ceil(2) + there / 18).min().unwrap();
            prop_assert!(found.bound_ns <= fastest + 1_000, "{found:?}");
            prop_assert!(found.offset_ns.abs_diff(offset) <= found.bound_ns);
            prop_assert!(found.wall_offset_ns.abs_diff(7_000_000) <= found.bound_ns);
            prop_assert!(probes.iter().zip(&ways).all(|(_, &(out, _, back))| found.rtt_ns <= out + back));
            prop_assert_eq!(found.to_ours(found.to_theirs(start).unwrap()), Some(start));
        }

        #[test]
        fn any_answer_gives_an_offset_or_none(
            sent in readings(), arrived: u64, answered in readings(), received in readings(), ours in readings(),
            theirs in readings(),
        ) {
            let probe = Probe { sent, arrived_ns: arrived, answered, received };
            if let Some(offset) = ClockOffset::of(&mut Envelope::default(), &[probe]) {
                let later = offset.at(&ours, &theirs);
                let _ = (later.to_ours(arrived), later.to_theirs(sent.monotonic_ns));
            }
        }
    }

    /// Any numbers: a reading may come from a host that lies.
    fn readings() -> impl Strategy<Value = ClockReading> {
        any::<(u64, u64, u64, i64, u64)>().prop_map(|(monotonic_ns, raw_ns, boot_ns, wall_ns, within_ns)| {
            ClockReading { monotonic_ns, raw_ns, boot_ns, wall_ns, within_ns, wall_error_ns: None }
        })
    }

    /// Comparisons some seconds apart sharpen each other, until one of the machines is suspended in between.
    #[test]
    fn a_session_knows_more_with_each_comparison_and_forgets_what_no_longer_holds() {
        let ours = Host { begin_ns: 1 << 40, oscillator_ppm: 20, slews: vec![(1, 300)], suspended: (0, 0) };
        let theirs = Host { oscillator_ppm: -30, suspended: (30_000_000_000, 1_000_000_000), ..ours.clone() };
        let (mut known, second) = (Envelope::default(), 1_000_000_000);
        let probes = [(0, 5_000, 5_100), (10, 5_000, 7_200), (20, 90_000, 20_000), (40, 50_000, 50_200)];
        for (at, way, bound_ns) in probes.map(|(seconds, way, bound_ns)| (seconds * second, way, bound_ns)) {
            let probe = Probe {
                sent: ours.reads(at),
                arrived_ns: theirs.reads(at + way).monotonic_ns,
                answered: theirs.reads(at + way),
                received: ours.reads(at + 2 * way),
            };
            let found = ClockOffset::of(&mut known, &[probe]).unwrap();
            let now = at + 2 * way;
            let truth = theirs.reads(now).monotonic_ns.cast_signed() - ours.reads(now).monotonic_ns.cast_signed();
            assert!(found.offset_ns.abs_diff(truth) <= found.bound_ns + 20, "{found:?}, {truth}");
            assert!(found.bound_ns <= bound_ns, "{found:?}, {bound_ns}");
        }
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
