//! Whether the reports of a test's two ends can be true together.

use super::LONGEST_SENTENCE;
use crate::{
    report::{Counts, Ending, SideReport},
    spec::{Dialect, TestSpec},
};

/// Warm-up, measurement and cool-down.
const PHASES: u64 = 3;

/// Limit of the notes in a report of an end.
pub(crate) const MOST_NOTES: u64 = 64;

/// Limit of the kinds of latencies of a flow.
const MOST_HISTOGRAMS: u64 = 8;

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
        }
    }

    /// The first count in a report that exceeds what its test allows, as a sentence. `most_ns`: the longest that the test can
    /// have taken.
    fn excess(self, report: &SideReport, most_ns: u64) -> Option<String> {
        // The last interval of each phase may be shorter.
        let intervals = most_ns.checked_div(self.interval_ns).map_or(0, |n| n.saturating_add(PHASES));
        let flows = u64::from(self.flows);
        let windows = report.phases.iter().chain(&report.intervals);
        let of_a_window = windows.map(|window| window.flows.len()).max().unwrap_or(0);
        let histograms = report.phases.iter().chain(&report.intervals).flat_map(|window| &window.flows);
        let of_a_flow = histograms.map(|flow| flow.latencies.len()).max().unwrap_or(0);
        let changes = report.counters.iter().flat_map(|window| &window.values);
        let names = changes.flat_map(|change| [change.source.len(), change.key.len()]);
        let options = report.options.iter().flat_map(|granted| {
            let values = [&granted.requested, &granted.at_start, &granted.at_end];
            values.into_iter().flatten().map(String::len).chain([granted.option.len()])
        });
        let windows = report.phases.iter().chain(&report.intervals);
        let missing: Vec<&String> =
            windows.filter_map(|window| window.evidence.as_ref()).flat_map(|e| &e.missing).collect();
        let sentences = report.notes.iter().chain(missing.iter().copied()).map(String::len);
        let longest = sentences.chain(names).chain(options).max().unwrap_or(0);
        let counts = [
            ("phases", report.phases.len(), PHASES),
            ("intervals", report.intervals.len(), intervals),
            ("flows", of_a_window.max(report.totals.len()), flows),
            ("histograms of a flow", of_a_flow, MOST_HISTOGRAMS),
            // One for each interval, and those of the phases and of the machine at rest.
            ("windows of counters", report.counters.len(), intervals.saturating_add(PHASES)),
            ("socket options", report.options.len(), flows.saturating_mul(MOST_OPTIONS)),
            ("notes", report.notes.len(), MOST_NOTES),
            ("sentences on missing evidence", missing.len(), MOST_NOTES),
            ("bytes in a text", longest, LONGEST_SENTENCE as u64),
        ];
        let (what, has, most) = counts.into_iter().find(|(_, has, most)| *has as u64 > *most)?;
        Some(format!("{has} {what}, and {most} are possible"))
    }

    /// The contradiction, as a sentence. `lasted_ns`: nanoseconds from the begin of the load until the reports were there.
    pub(crate) fn contradiction(self, near: &SideReport, far: Option<&SideReport>, lasted_ns: u64) -> Option<String> {
        // The kernel slews a clock by at most a tenth, and two of them are compared. Instants are known to less than a tenth
        // of a second.
        let most_ns = lasted_ns.saturating_add(lasted_ns / 4).saturating_add(100_000_000);
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

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        report::{Evidence, FlowWindow, Phase, Window},
        spec::{Pattern, Role, Side, Transport},
    };

    fn missing(missing: Vec<String>) -> Evidence {
        Evidence { missing, ..Evidence::default() }
    }

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
            ((|far| far.notes = vec![String::new(); 65]) as fn(&mut SideReport), "65 notes, and 64 are possible"),
            (|far| far.notes = vec!["x".repeat(5000)], "5000 bytes in a text"),
            (
                |far| far.phases[0].evidence = Some(missing(vec![String::new(); 65])),
                "65 sentences on missing evidence, and 64 are possible",
            ),
            (|far| far.phases[0].evidence = Some(missing(vec!["x".repeat(5000)])), "5000 bytes in a text"),
            (|far| far.phases = vec![far.phases[0].clone(); 4], "4 phases, and 3"),
            (|far| far.intervals = far.phases.clone(), "1 intervals, and 0"),
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
