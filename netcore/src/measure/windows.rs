//! Assembles phases and intervals: counts between two samples, and the histograms that belong to each.
//!
//! Histograms come later than samples: a thread hands one over when it notices that the next window has begun. They
//! wait here, by flow and epoch, until the windows are passed on.

use std::collections::HashMap;

use super::{
    KEPT_BYTES,
    counters::{phase_index, phase_of},
    histogram::{self, Histogram},
    one_way::Collected,
    sample::{EvidenceReader, Sample, SampledFlow},
};
use crate::{
    report::{ClockReading, FlowWindow, Latencies, Pacing, Phase, TcpInfo, Window, grown},
    spec::{Pace, Role},
};

/// The windows of one end.
#[derive(Default)]
pub struct Windows {
    /// Start of the measure phase; until it has begun, its due time.
    origin_ns: u64,
    /// Wall clock at the measure phase's start, nanoseconds since 1970; 0: not begun.
    pub wall_start_ns: i64,
    /// The clocks at both edges of the measure phase.
    pub clocks: Option<(ClockReading, ClockReading)>,
    phases: Vec<Window>,
    /// With their epochs, by which late histograms are added.
    intervals: Vec<(u64, Window)>,
    /// Whether each interval keeps a histogram, beside those of the phases.
    keeps_intervals: bool,
    /// Whether the test asks for CPU use.
    reports_cpu: bool,
    /// Histograms by flow, kind and phase.
    by_phase: HashMap<(usize, usize, usize), Histogram<u64>>,
    /// Encoded histograms by flow, kind and epoch.
    by_epoch: HashMap<(usize, usize, u64), String>,
    /// Bytes of these.
    encoded: usize,
    /// The first epoch without histograms, because those before it are as large as a report may be.
    left_out_from: Option<u64>,
    /// Gaps between paced sends, and dropped due times, by flow and phase.
    gaps: HashMap<(usize, usize), Histogram<u64>>,
    dropped: HashMap<(usize, usize), u64>,
}

impl Windows {
    /// `origin_ns`: due time of the measure phase. `keeps_intervals`: the test asks for intervals; `reports_cpu`: for CPU
    /// use.
    pub fn new(origin_ns: u64, keeps_intervals: bool, reports_cpu: bool) -> Self {
        Self { origin_ns, keeps_intervals, reports_cpu, ..Self::default() }
    }

    /// Start of the measure phase on the monotonic clock, nanoseconds; 0: it never came.
    pub fn monotonic_start_ns(&self) -> u64 {
        // The wall clock is read at the same time, and is never 0.
        if self.wall_start_ns == 0 { 0 } else { self.origin_ns }
    }

    /// Start or due time of the measure phase on the monotonic clock.
    pub fn origin_ns(&self) -> u64 {
        self.origin_ns
    }

    /// Sets the origin of all instants, and moves those of the warm-up to it.
    pub fn begin_measuring(&mut self, sample: &Sample) {
        let moved = sample.at_ns.cast_signed() - self.origin_ns.cast_signed();
        for window in self.phases.iter_mut().chain(self.intervals.iter_mut().map(|(_, window)| window)) {
            window.start_ns -= moved;
        }
        (self.origin_ns, self.wall_start_ns) = (sample.at_ns, sample.wall_ns);
    }

    /// Ends a phase. `evidence`: the reader of the samples' evidence, if there is any.
    pub fn end_phase(
        &mut self,
        flows: &[SampledFlow],
        phase: Phase,
        before: &Sample,
        after: &Sample,
        evidence: Option<&EvidenceReader>,
    ) {
        let mut window = self.window(flows, phase, before, after);
        let samples = before.evidence.as_ref().zip(after.evidence.as_ref());
        window.evidence = evidence
            .zip(samples)
            .map(|(reader, (start, end))| reader.between(start, end, before.cpu.as_ref().zip(after.cpu.as_ref())));
        self.phases.push(window);
        if phase == Phase::Measure {
            self.clocks = Some((before.clocks, after.clocks));
        }
        for (i, (after, before)) in after.dropped.iter().zip(&before.dropped).enumerate() {
            self.dropped.insert((i, phase_index(phase)), after - before);
        }
    }

    /// Ends an interval whose operations were recorded under `epoch`.
    pub fn end_interval(
        &mut self,
        flows: &[SampledFlow],
        (epoch, phase): (u64, Phase),
        before: &Sample,
        after: &Sample,
    ) {
        let mut window = self.window(flows, phase, before, after);
        for flow in &mut window.flows {
            // An interval may begin or end with a phase, whose samples have them.
            let without = |info: Option<TcpInfo>| info.map(|info| TcpInfo { limits: None, ..info });
            (flow.tcp_at_start, flow.tcp_info) = (without(flow.tcp_at_start), without(flow.tcp_info));
        }
        self.intervals.push((epoch, window));
    }

    /// Whether later intervals lack histograms, because those of the earlier ones are as large as a report may be.
    pub fn lacks_histograms(&self) -> bool {
        self.left_out_from.is_some()
    }

    /// Keeps no histograms from an epoch on: an interval has those of all flows or none.
    fn leave_out(&mut self, from: u64) {
        self.left_out_from = Some(from);
        self.by_epoch.retain(|(_, _, epoch), _| *epoch < from);
        self.encoded = self.by_epoch.values().map(String::len).sum();
    }

    /// The latest interval with the histograms so far. Forgets it if the test asks for no intervals.
    pub fn latest_interval(&mut self, flows: &[SampledFlow]) -> Option<Window> {
        let (epoch, window) = self.intervals.last()?;
        let mut window = window.clone();
        for (i, (window, flow)) in window.flows.iter_mut().zip(flows).enumerate() {
            window.latencies = latencies(flow, |kind| self.by_epoch.get(&(i, kind, *epoch)).cloned());
        }
        if !self.keeps_intervals {
            self.intervals.pop();
        }
        Some(window)
    }

    fn window(&self, flows: &[SampledFlow], phase: Phase, before: &Sample, after: &Sample) -> Window {
        let of_flows = flows.iter().enumerate().map(|(i, flow)| {
            let retransmits =
                after.tcp[i].zip(before.tcp[i]).map(|(after, before)| grown(after.retransmits, before.retransmits));
            FlowWindow {
                counts: after.counts[i] - before.counts[i],
                tcp_at_start: before.tcp[i],
                quic: after.quic[i].map(|after| before.quic[i].map_or(after, |before| after.since(&before))),
                tls: after.tls[i].map(|after| after - before.tls[i].unwrap_or_default()),
                retransmits,
                ..total(flow, i, after)
            }
        });
        let cpu = after.cpu.as_ref().zip(before.cpu.as_ref()).filter(|_| self.reports_cpu);
        Window {
            phase,
            start_ns: before.at_ns.cast_signed() - self.origin_ns.cast_signed(),
            // A load that ends before its start leaves a window of length 0.
            elapsed_ns: after.at_ns.saturating_sub(before.at_ns),
            wall_end_ns: after.wall_ns,
            flows: of_flows.collect(),
            cpu: cpu.and_then(|(after, before)| after.since(before, false)),
            evidence: None,
        }
    }

    /// Takes the histograms that the workers have handed over.
    pub fn collect_histograms(&mut self, flows: &[SampledFlow]) {
        for (i, flow) in flows.iter().enumerate() {
            if let Some(slot) = &flow.gaps {
                slot.collect(|epoch, histogram| {
                    // Both have the same bounds, so adding cannot fail.
                    let _ = self.gaps.entry((i, phase_of(epoch))).or_insert_with(histogram::empty).add(histogram);
                });
            }
            for (kind, (_, slot)) in flow.latency_slots.iter().enumerate() {
                slot.collect(|epoch, histogram| self.add_histogram((i, kind), epoch, histogram));
            }
        }
    }

    /// Takes the round trips of flows that tell the directions apart, when their workers have left.
    pub fn collect_trips(&mut self, flows: &[SampledFlow]) -> Collected {
        let collected = Collected::of(flows.iter().map(|flow| Some(&*flow.one_way.as_ref()?.1)));
        collected.for_each(|flow, kind, epoch, histogram| {
            self.add_histogram((flow, flows[flow].latency_slots.len() + kind), epoch, histogram);
        });
        collected
    }

    /// The clocks at both edges of the measure phase.
    pub fn clocks(&self) -> Option<(ClockReading, ClockReading)> {
        self.clocks
    }

    fn add_histogram(&mut self, (flow, kind): (usize, usize), epoch: u64, histogram: &Histogram<u64>) {
        let sum = self.by_phase.entry((flow, kind, phase_of(epoch))).or_insert_with(histogram::empty);
        // Both have the same bounds, so adding cannot fail.
        let _ = sum.add(histogram);
        if self.keeps_intervals && self.left_out_from.is_none_or(|from| epoch < from) {
            let text = histogram::encode(histogram);
            self.encoded += text.len();
            self.by_epoch.insert((flow, kind, epoch), text);
            if self.encoded > KEPT_BYTES {
                self.leave_out(epoch);
            }
        }
    }

    /// Phases, intervals, and each flow's total, when all histograms have come. `end` was sampled after the last byte.
    pub fn finish(
        mut self,
        flows: &[SampledFlow],
        pace: Option<&Pace>,
        end: &Sample,
    ) -> (Vec<Window>, Vec<Window>, Vec<FlowWindow>) {
        let mut phases = std::mem::take(&mut self.phases);
        for window in &mut phases {
            let index = phase_index(window.phase);
            for (i, (of_flow, flow)) in window.flows.iter_mut().zip(flows).enumerate() {
                of_flow.latencies = latencies(flow, |kind| self.by_phase.get(&(i, kind, index)).map(histogram::encode));
                of_flow.pacing = pace.zip(self.gaps.get(&(i, index))).map(|(pace, gaps)| {
                    let dropped = self.dropped.get(&(i, index)).copied().unwrap_or(0);
                    pacing(pace, of_flow, window.elapsed_ns, gaps, dropped)
                });
                let counts = &end.counts[i];
                of_flow.datagrams = (counts.messages_sent > 0 || counts.messages_received > 0)
                    .then(|| flow.cell.of_phase(window.phase));
            }
        }
        let intervals = std::mem::take(&mut self.intervals).into_iter().map(|(epoch, mut window)| {
            for (i, (of_flow, flow)) in window.flows.iter_mut().zip(flows).enumerate() {
                of_flow.latencies = latencies(flow, |kind| self.by_epoch.get(&(i, kind, epoch)).cloned());
            }
            window
        });
        let intervals = intervals.collect();
        let totals = flows.iter().enumerate().map(|(i, flow)| total(flow, i, end));
        (phases, intervals, totals.collect())
    }
}

/// Everything that flow `i` did until the sample.
fn total(flow: &SampledFlow, i: usize, sample: &Sample) -> FlowWindow {
    FlowWindow {
        tcp_info: sample.tcp[i],
        retransmits: sample.tcp[i].map(|info| info.retransmits),
        quic: sample.quic[i],
        tls: sample.tls[i],
        jitter_ns: (sample.counts[i].messages_received > 0).then(|| flow.cell.jitter_ns()),
        ..FlowWindow::of(flow.flow, flow.role, sample.counts[i])
    }
}

/// A flow's histograms. `encoded` gives that of a kind, by the kind's index.
fn latencies(flow: &SampledFlow, encoded: impl Fn(usize) -> Option<String>) -> Vec<Latencies> {
    let named =
        |(kind, name): (usize, &'static str)| Some(Latencies { kind: name.to_owned(), histogram: encoded(kind)? });
    flow.kinds().enumerate().filter_map(named).collect()
}

/// Accuracy of the schedule in a window.
fn pacing(pace: &Pace, flow: &FlowWindow, elapsed_ns: u64, gaps: &Histogram<u64>, dropped: u64) -> Pacing {
    let counts = &flow.counts;
    let events = match flow.role {
        Role::Requester => counts.transactions,
        _ if counts.messages_sent > 0 => counts.messages_sent,
        _ => counts.sends,
    };
    let rate = events as f64 / (elapsed_ns as f64 / 1e9);
    let due_ns = 1e9 * f64::from(pace.burst.max(1)) / pace.events_per_s;
    // Gaps are shorter than the histogram's maximum, an hour.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let within = gaps.count_between((due_ns * 0.9) as u64, (due_ns * 1.1) as u64);
    Pacing {
        sent: gaps.len(),
        dropped,
        rate_error_ratio: rate / pace.events_per_s - 1.0,
        gap_p50_ns: gaps.value_at_quantile(0.5),
        gap_p99_ns: gaps.value_at_quantile(0.99),
        gap_max_ns: gaps.max(),
        gaps_within_tenth_ratio: within as f64 / gaps.len() as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_keeps_the_histograms_of_all_flows_or_of_none() {
        let mut windows = Windows::new(0, true, true);
        let mut latencies = histogram::empty();
        latencies.record(1000).unwrap();
        let add = |windows: &mut Windows, flow, epoch| windows.add_histogram((flow, 0), epoch, &latencies);
        for (flow, epoch) in [(0, 4), (1, 4), (0, 8), (0, 12)] {
            add(&mut windows, flow, epoch);
        }
        assert!(!windows.lacks_histograms());
        let one = windows.encoded / 4;
        windows.encoded = KEPT_BYTES;
        // A thread that was blocked hands over late.
        add(&mut windows, 1, 8);
        assert!(windows.lacks_histograms());
        assert_eq!(windows.encoded, 2 * one, "those of the epochs from 8 on are given up");
        add(&mut windows, 1, 12);
        let mut kept: Vec<_> = windows.by_epoch.keys().copied().collect();
        kept.sort_unstable();
        assert_eq!(kept, [(0, 0, 4), (1, 0, 4)]);
        assert_eq!(windows.by_phase.values().map(Histogram::len).sum::<u64>(), 6, "the phases have all");
    }

    #[test]
    fn a_full_report_that_has_all_says_nothing() {
        let mut windows = Windows::new(0, true, true);
        let mut latencies = histogram::empty();
        latencies.record(1000).unwrap();
        windows.encoded = KEPT_BYTES - histogram::encode(&latencies).len();
        windows.add_histogram((0, 0), 4, &latencies);
        assert!(!windows.lacks_histograms());
    }
}
