//! Whether the reports of a test's two ends can be true together.

use crate::{
    report::{Counts, Ending, SideReport},
    spec::TestSpec,
};

/// Facts about a test that its reports must agree with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    flows: u32,
    /// Nothing arrives that was not sent: messages may be lost, come twice or be forged only as datagrams.
    reliable: bool,
}

impl Frame {
    pub(crate) fn of(spec: &TestSpec) -> Self {
        Self { flows: spec.flows(), reliable: !spec.transport.is_datagram() }
    }

    /// The contradiction, as a sentence. `lasted_ns`: nanoseconds from the begin of the load until the reports were there.
    pub(crate) fn contradiction(self, near: &SideReport, far: Option<&SideReport>, lasted_ns: u64) -> Option<String> {
        // Two clocks differ by less than a hundredth, and instants are known to less than a tenth of a second.
        let most_ns = lasted_ns.saturating_add(lasted_ns / 100).saturating_add(100_000_000);
        for (end, report) in [("near", Some(near)), ("far", far)] {
            let Some(report) = report else { continue };
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
        let far = far.filter(|_| self.reliable)?;
        if [near, far].iter().any(|report| matches!(report.ending, Ending::Failed(_))) {
            // Its counts may stop at different instants.
            return None;
        }
        let sum = |report: &SideReport, count: fn(&Counts) -> u64| {
            report.totals.iter().map(|flow| count(&flow.counts)).fold(0, u64::saturating_add)
        };
        for (from, sender, to, receiver) in [("near", near, "far", far), ("far", far, "near", near)] {
            let (sent, received) = (sum(sender, |c| c.bytes_sent), sum(receiver, |c| c.bytes_received));
            if received > sent {
                return Some(format!("the {to} end reports {received} bytes received, and the {from} end sent {sent}"));
            }
        }
        None
    }
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
        far.totals[0].flow = 7;
        let said = frame.contradiction(&near, Some(&far), 1_000_000_000).unwrap();
        assert!(said.contains("flow 7, and the test has 1 flows"), "{said}");
    }
}
