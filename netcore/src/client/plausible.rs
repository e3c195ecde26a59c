//! Whether the reports of a test's two ends can be true together.

use crate::{
    control::message::ReportBuilder,
    report::{Counts, Ending, PHASES, SideReport},
    spec::{Dialect, TestSpec},
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
            // Its timer interrupts the last call of a sending netserver, which then does not count what the call has sent.
            uncounted: if spec.dialect == Dialect::Netperf { spec.sizes.message_bytes } else { 0 },
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        report::{FlowWindow, Phase, Window},
        spec::{Pattern, Role, Side, Transport},
    };

    fn report(side: Side, counts: Counts) -> SideReport {
        let flow = FlowWindow {
            flow: 0,
            role: Role::Sender,
            counts,
            latencies: Vec::new(),
            tcp_at_start: None,
            tcp_info: None,
            retransmits: None,
            datagrams: None,
            jitter_ns: None,
            pacing: None,
        };
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
}
