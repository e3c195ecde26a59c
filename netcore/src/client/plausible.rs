//! Whether the reports of a test's two ends can be true together, and the instants of both ends on this host's clock.

use crate::{
    control::{clock::ClockOffset, message::ReportBuilder},
    report::{ClockReading, Counts, Ending, PHASES, SideReport},
    spec::TestSpec,
};

/// Limit of the socket options that are reported for a flow.
const MOST_OPTIONS: u64 = 64;

/// Facts about a test that its reports must agree with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    flows: u32,
    /// The shortest interval, nanoseconds; 0: the test has none.
    interval_ns: u64,
    /// Nothing arrives that was not sent: messages may be lost, come twice or be forged only as datagrams.
    reliable: bool,
    /// Bytes that may arrive beyond those that the sender counted.
    uncounted: u64,
    /// Whether its windows have the shares of each CPU.
    per_cpu: bool,
}

impl Frame {
    pub(crate) fn of(spec: &TestSpec) -> Self {
        let intervals = [spec.phases.interval_ns, spec.phases.settle_ns];
        Self {
            flows: spec.flows(),
            interval_ns: intervals.into_iter().filter(|ns| *ns > 0).min().unwrap_or(0),
            reliable: !spec.transport.is_datagram(),
            // A sender does not count what the call has sent that its timer interrupts.
            uncounted: if spec.dialect.stops_by_timer() { spec.sizes.message_bytes } else { 0 },
            per_cpu: spec.collect.cpu_per_core,
        }
    }

    /// Intervals of a test that takes so long at most. The last one of each phase may be shorter.
    pub(crate) fn intervals(self, most_ns: u64) -> u64 {
        most_ns.checked_div(self.interval_ns).map_or(0, |n| n.saturating_add(PHASES as u64))
    }

    /// Takes the report of an end whose test takes so long at most.
    pub(crate) fn builder(self, most_ns: u64) -> ReportBuilder {
        // The length of their list is that of the machine.
        let intervals = if self.per_cpu { u64::MAX } else { self.intervals(most_ns.saturating_mul(2)) };
        ReportBuilder::of_end(self.flows, intervals)
    }

    /// The first count in a report that exceeds what its test allows, as a sentence. `most_ns`: the longest that the test can
    /// have taken.
    fn excess(self, report: &SideReport, most_ns: u64) -> Option<String> {
        let intervals = self.intervals(most_ns);
        let flows = u64::from(self.flows);
        let windows = report.phases.iter().chain(&report.intervals);
        let of_a_window = windows.map(|window| window.flows.len()).max().unwrap_or(0);
        let counts = [
            ("intervals", report.intervals.len(), intervals),
            ("flows", of_a_window.max(report.totals.len()), flows),
            // One for each interval, and those of the phases and of the machine at rest.
            ("windows of counters", report.counters.len(), intervals.saturating_add(PHASES as u64)),
            ("socket options", report.options.len(), flows.saturating_mul(MOST_OPTIONS)),
        ];
        let (what, has, most) = counts.into_iter().find(|(_, has, most)| *has as u64 > *most)?;
        Some(format!("{has} {what}, and {most} are possible"))
    }

    /// The contradiction, as a sentence. `lasted_ns`: nanoseconds from the begin of the load until the reports were there.
    pub(crate) fn contradiction(self, near: &SideReport, far: Option<&SideReport>, lasted_ns: u64) -> Option<String> {
        let most_ns = slowest_clock(lasted_ns);
        for (end, report) in [("near", Some(near)), ("far", far)] {
            let Some(report) = report else { continue };
            if let Some(excess) = self.excess(report, most_ns) {
                return Some(format!("the {end} end reports {excess}"));
            }
            let windows = report.phases.iter().chain(&report.intervals);
            if let Some(window) = windows.clone().find(|window| window.elapsed_ns > most_ns) {
                return Some(format!(
                    "the {end} end reports a window of {:.3} s, and its test lasted {:.3} s",
                    seconds(window.elapsed_ns),
                    seconds(lasted_ns)
                ));
            }
            let flows = windows.flat_map(|window| &window.flows).chain(&report.totals);
            if let Some(flow) = flows.map(|flow| flow.flow).find(|flow| *flow >= self.flows) {
                return Some(format!("the {end} end reports flow {flow}, and the test has {} flows", self.flows));
            }
        }
        // A far end without totals does not know what came before its count.
        let far = far.filter(|far| self.reliable && !far.totals.is_empty())?;
        if [near, far].iter().any(|report| matches!(report.ending, Ending::Failed(_))) {
            // Its counts may stop at different instants.
            return None;
        }
        let sum = |report: &SideReport, count: fn(&Counts) -> u64| {
            report.totals.iter().map(|flow| count(&flow.counts)).fold(0, u64::saturating_add)
        };
        for (from, sender, to, receiver) in [("near", near, "far", far), ("far", far, "near", near)] {
            let (sent, received) = (sum(sender, |c| c.bytes_sent), sum(receiver, |c| c.bytes_received));
            if received > sent.saturating_add(self.uncounted) {
                return Some(format!("the {to} end reports {received} bytes received, and the {from} end sent {sent}"));
            }
        }
        None
    }
}

/// The longest that a time of this host can be on another's clock, nanoseconds.
pub(super) fn slowest_clock(ns: u64) -> u64 {
    // The kernel slews a clock by at most a tenth, and two of them are compared. Instants are known to less than a tenth of a
    // second.
    ns.saturating_add(ns / 4).saturating_add(100_000_000)
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// One end's report, and the relation of its clock to this host's before the test; `None`: it is this host's.
pub(super) type ClockedReport<'r> = (&'r SideReport, Option<ClockOffset>);

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
    pub(super) fn of(
        near: ClockedReport<'_>,
        far: Option<ClockedReport<'_>>,
        read: &(ClockReading, ClockReading),
    ) -> Self {
        let here = here(near, read);
        let at_start = |(report, clock): ClockedReport<'_>| {
            let clock = clock?;
            let there = |clocks| clock.at(&here, &ClockReading::between(clocks, report.under_load_ns));
            Some(report.clocks.as_ref().map_or(clock, there))
        };
        let mut instants = Self::default();
        for (end, clocked) in [Some(near), far].into_iter().enumerate() {
            let Some(clocked) = clocked else { continue };
            let clock = at_start(clocked);
            let ours = |theirs_ns: u64| {
                let theirs_ns = (theirs_ns > 0).then_some(theirs_ns)?;
                clock.map_or(Some(theirs_ns), |clock| clock.to_ours(theirs_ns))
            };
            instants.begun[end] = ours(clocked.0.monotonic_start_ns);
            instants.loaded[end] = ours(clocked.0.under_load_ns);
            instants.bound_ns = instants.bound_ns.saturating_add(clock.map_or(0, |clock| clock.bound_ns));
        }
        instants
    }
}

/// This host's clocks when the near end was under load: its own, or an estimate from the readings around the test.
fn here((near, clock): ClockedReport<'_>, read: &(ClockReading, ClockReading)) -> ClockReading {
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
    use crate::{
        report::{Ending, FlowWindow, Phase, Window},
        spec::{Pattern, Role, Side, Transport},
    };

    fn report(side: Side, counts: Counts) -> SideReport {
        let flow = FlowWindow::of(0, Role::Sender, counts);
        let window = Window {
            phase: Phase::Measure,
            start_ns: 0,
            elapsed_ns: 1_000_000_000,
            wall_end_ns: 0,
            flows: vec![flow.clone()],
            cpu: None,
            evidence: None,
        };
        SideReport { phases: vec![window], totals: vec![flow], ..SideReport::empty(side, Ending::Complete) }
    }

    #[test]
    fn what_was_not_sent_did_not_arrive() {
        let sent = |bytes_sent| report(Side::Near, Counts { bytes_sent, ..Counts::default() });
        let received = |bytes_received| report(Side::Far, Counts { bytes_received, ..Counts::default() });
        let of = |transport, near: &SideReport, far: &SideReport| {
            Frame::of(&TestSpec::new(Pattern::Stream, transport)).contradiction(near, Some(far), 1_000_000_000)
        };
        assert_eq!(of(Transport::Tcp, &sent(10), &received(10)), None);
        assert_eq!(of(Transport::Tcp, &sent(10), &received(9)), None);
        let said = of(Transport::Tcp, &sent(10), &received(11)).unwrap();
        assert_eq!(said, "the far end reports 11 bytes received, and the near end sent 10");
        assert_eq!(of(Transport::Udp, &sent(10), &received(20)), None, "a datagram may come twice");
        let failed = SideReport { ending: Ending::Failed("no route".into()), ..sent(10) };
        assert_eq!(of(Transport::Tcp, &failed, &received(11)), None);
    }

    #[test]
    fn a_window_is_not_longer_than_its_test_and_has_only_its_flows() {
        let frame = Frame::of(&TestSpec::new(Pattern::Stream, Transport::Tcp));
        let mut far = report(Side::Far, Counts::default());
        let near = report(Side::Near, Counts::default());
        assert_eq!(frame.contradiction(&near, Some(&far), 1_000_000_000), None);
        let said = frame.contradiction(&near, Some(&far), 500_000_000).unwrap();
        assert!(said.contains("window of 1.000 s, and its test lasted 0.500 s"), "{said}");
        let original = far.clone();
        for (change, words) in [
            ((|far| far.intervals = far.phases.clone()) as fn(&mut SideReport), "1 intervals, and 0"),
            (|far| far.totals = vec![far.totals[0].clone(); 2], "2 flows, and 1"),
        ] {
            far = original.clone();
            change(&mut far);
            let said = frame.contradiction(&near, Some(&far), 1_000_000_000).unwrap();
            assert!(said.contains(words), "{said}");
        }
        far = original;
        far.totals[0].flow = 7;
        let said = frame.contradiction(&near, Some(&far), 1_000_000_000).unwrap();
        assert!(said.contains("flow 7, and the test has 1 flows"), "{said}");
    }

    const SECOND: u64 = 1_000_000_000;

    /// Our clocks after a time of the oscillator, slewed by 500 parts per million.
    fn ours(raw_ns: u64) -> ClockReading {
        let monotonic_ns = raw_ns + raw_ns / 2000;
        ClockReading { raw_ns, monotonic_ns, boot_ns: monotonic_ns, ..theirs(raw_ns) }
    }

    /// A daemon's undisturbed clocks.
    fn theirs(raw_ns: u64) -> ClockReading {
        ClockReading {
            raw_ns,
            monotonic_ns: raw_ns,
            boot_ns: raw_ns,
            wall_ns: raw_ns.cast_signed(),
            within_ns: 0,
            wall_error_ns: None,
        }
    }

    fn with_clocks(side: Side, clocks: fn(u64) -> ClockReading) -> SideReport {
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
        let far = with_clocks(Side::Far, theirs);
        let begin_ns = ours(61 * SECOND).monotonic_ns;
        for (near, near_clock) in
            [(with_clocks(Side::Near, ours), None), (with_clocks(Side::Near, theirs), Some(clock))]
        {
            let instants = Instants::of((&near, near_clock), Some((&far, Some(clock))), &read);
            for loaded_ns in instants.loaded.into_iter().chain(instants.begun) {
                assert!(loaded_ns.unwrap().abs_diff(begin_ns) < 1000, "{instants:?}, {begin_ns}");
            }
            // Drift of the oscillators in a minute, for each daemon.
            assert!(instants.bound_ns < 13_000_000 * 2, "{instants:?}");
        }
    }
}
