//! Instants of both ends of a test on this host's clock.

use crate::{
    control::clock::ClockOffset,
    report::{ClockReading, SideReport},
};

/// One end's report, and the relation of its clock to this host's before the test; `None`: it is this host's.
pub(super) type Party<'r> = (&'r SideReport, Option<ClockOffset>);

/// Instants of the near and the far end on this host's monotonic clock, nanoseconds; `None`: they never came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Instants {
    /// Begins of the measure phases.
    pub(super) begun: [Option<u64>; 2],
    /// Instants at which the ends were under their whole load.
    pub(super) loaded: [Option<u64>; 2],
    /// Bound of the error of the difference of the two in `loaded`.
    pub(super) bound_ns: u64,
}

impl Instants {
    /// `read`: this host's clocks before and after the test.
    pub(super) fn of(near: Party<'_>, far: Option<Party<'_>>, read: &(ClockReading, ClockReading)) -> Self {
        let here = here(near, read);
        let at_start = |(report, clock): Party<'_>| {
            let clock = clock?;
            let there = |clocks| clock.at(&here, &ClockReading::between(clocks, report.under_load_ns));
            Some(report.clocks.as_ref().map_or(clock, there))
        };
        let mut instants = Self::default();
        for (end, party) in [Some(near), far].into_iter().enumerate() {
            let Some(party) = party else { continue };
            let clock = at_start(party);
            let ours = |theirs_ns: u64| {
                let theirs_ns = (theirs_ns > 0).then_some(theirs_ns)?;
                clock.map_or(Some(theirs_ns), |clock| clock.to_ours(theirs_ns))
            };
            instants.begun[end] = ours(party.0.monotonic_start_ns);
            instants.loaded[end] = ours(party.0.under_load_ns);
            instants.bound_ns = instants.bound_ns.saturating_add(clock.map_or(0, |clock| clock.bound_ns));
        }
        instants
    }
}

/// This host's clocks when the near end was under load: its own, or an estimate from the readings around the test.
fn here((near, clock): Party<'_>, read: &(ClockReading, ClockReading)) -> ClockReading {
    match (clock, &near.clocks) {
        (None, Some(clocks)) => ClockReading::between(clocks, near.under_load_ns),
        (Some(before), Some(clocks)) => {
            let there = ClockReading::between(clocks, near.under_load_ns);
            let (mut clock, mut here) = (before, read.0);
            // Each round leaves a ninth of the error at most: the most by which a clock is slewed.
            for _ in 0..4 {
                here = ClockReading::between(read, clock.to_ours(near.under_load_ns).unwrap_or(0));
                clock = before.at(&here, &there);
            }
            // An error of the estimate moves both ends' instants alike, so it is no part of the bound.
            ClockReading { within_ns: read.0.within_ns, ..here }
        }
        (_, None) => read.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{report::Ending, spec::Side};

    const SECOND: u64 = 1_000_000_000;

    /// Our clocks after a time of the oscillator, slewed by 500 parts per million.
    fn ours(raw_ns: u64) -> ClockReading {
        let monotonic_ns = raw_ns + raw_ns / 2000;
        ClockReading { raw_ns, monotonic_ns, boot_ns: monotonic_ns, ..theirs(raw_ns) }
    }

    /// A daemon's undisturbed clocks.
    fn theirs(raw_ns: u64) -> ClockReading {
        ClockReading { raw_ns, monotonic_ns: raw_ns, boot_ns: raw_ns, wall_ns: raw_ns.cast_signed(), within_ns: 0 }
    }

    fn report(side: Side, clocks: fn(u64) -> ClockReading) -> SideReport {
        let (begin, end) = (clocks(61 * SECOND), clocks(71 * SECOND));
        SideReport {
            monotonic_start_ns: begin.monotonic_ns,
            under_load_ns: begin.monotonic_ns,
            clocks: Some((begin, end)),
            ..SideReport::empty(side, Ending::Complete)
        }
    }

    /// While our clock is slewed, a long warm-up must not part the members of a group whose ends are at different places.
    #[test]
    fn all_ends_have_the_same_instant_wherever_they_are() {
        let clock = ClockOffset { ours: ours(SECOND), theirs: theirs(SECOND), ..ClockOffset::default() };
        // The clocks differ by 500 µs after a second already.
        let clock = ClockOffset { offset_ns: -500_000, ..clock };
        let read = (ours(SECOND), ours(72 * SECOND));
        let far = report(Side::Far, theirs);
        let begin_ns = ours(61 * SECOND).monotonic_ns;
        for (near, near_clock) in [(report(Side::Near, ours), None), (report(Side::Near, theirs), Some(clock))] {
            let instants = Instants::of((&near, near_clock), Some((&far, Some(clock))), &read);
            for loaded_ns in instants.loaded.into_iter().chain(instants.begun) {
                assert!(loaded_ns.unwrap().abs_diff(begin_ns) < 1000, "{instants:?}, {begin_ns}");
            }
            // Drift of the oscillators in a minute, for each daemon.
            assert!(instants.bound_ns < 13_000_000 * 2, "{instants:?}");
        }
    }
}
