//! Cuts a test into phases and intervals: a thread that sleeps from edge to edge and samples every counter at each.
//!
//! Edges are absolute instants of the monotonic clock, so they do not drift; the reported length is the time between
//! the samples. Data threads are neither stopped nor slowed at an edge, and read no clock for it.

use std::sync::Arc;

use super::{
    clock::monotonic_ns,
    counter_log::CounterLog,
    counters::{AFTER, epoch, phase_index},
    cpu::CpuReader,
    sample::{Edge, Readers, Sample, SampledFlow},
    watch::{Wake, Watch},
    windows::Windows,
};
use crate::{
    report::{Counts, Ending, Phase, SideReport, Span, Window},
    spec::{Collect, Pace, Phases, Stop},
};

/// Time for draining after the load's end, before blocked threads are freed by force, nanoseconds. A send buffer of 4
/// MB needs this long at 6 Mbit/s. Shorter than the time that a client waits for the end by default: what was measured
/// counts even if the rest of the data takes longer.
pub const DRAIN_NS: u64 = 5_000_000_000;

/// The same of a test that stops by a count, nanoseconds: the daemon gives one up after the length that it grants.
const COUNTED_NS: u64 = 86_400_000_000_000;

/// Time for a thread to leave after its sockets were shut down, nanoseconds.
pub const LEAVE_NS: u64 = 5_000_000_000;

/// A peer that ends at most this much before this end's own schedule has ended on time, nanoseconds: a bound on the
/// difference between two hosts' starts.
const TOLERANCE_NS: u64 = 250_000_000;

/// CPU time and clocks are first read this long before the load's start, nanoseconds. Where many ends share a machine, their
/// samplers must be out of the way when the data threads begin. CPU shares cannot resolve so short a time.
const LEAD_NS: u64 = 2_000_000;

/// Receives each interval.
pub type OnInterval = Box<dyn FnMut(&Window) + Send>;

pub struct Sampler {
    pub flows: Vec<SampledFlow>,
    pub watch: Arc<Watch>,
    pub phases: Phases,
    pub collect: Collect,
    pub pace: Option<Pace>,
    /// The load's start on the monotonic clock.
    pub t0_ns: u64,
    /// Earliest begin: later than `t0_ns` if that has passed already. Set by [`Self::arm`].
    pub begin_ns: u64,
    /// Due time of the measurement: the end of the warm-up, or earlier on request.
    pub measure_ns: u64,
    pub on_interval: Option<OnInterval>,
    /// Frees data threads that are blocked in a call; called again and again until they have left.
    pub free_threads: Box<dyn Fn() + Send>,
    pub counter_log: Option<CounterLog>,
    pub readers: Readers,
    /// Whether an early stop is this end's normal way to learn that a counted test is over.
    pub stop_is_complete: bool,
    /// Whether the peer counts up to the last byte that is sent: then the measurement lasts until this end has sent it.
    pub to_the_end: bool,
}

impl Sampler {
    fn first_phase(&self) -> Phase {
        if self.phases.warmup_ns > 0 { Phase::Warmup } else { Phase::Measure }
    }

    /// Sets the first window and the limits, and takes the first sample; before the data threads start: the sampling thread may wake
    /// after the load has begun, or even ended.
    pub fn arm(&mut self) -> Sample {
        let phase = self.first_phase();
        self.announce(epoch(0, phase_index(phase)));
        if phase == Phase::Measure {
            self.set_shares(&vec![Counts::default(); self.flows.len()]);
        }
        let first = Sample::take(&self.flows, &mut self.readers, Edge::Phase, |_| ());
        self.begin_ns = self.t0_ns.max(monotonic_ns());
        first
    }

    fn open_readers(&mut self, reports_cpu: bool) -> Readers {
        let Readers { evidence, .. } = std::mem::take(&mut self.readers);
        let cpu = if reports_cpu || evidence.is_some() { CpuReader::open().ok() } else { None };
        Readers { cpu, evidence }
    }

    /// Runs to the end of the load and of draining. `first`: the sample of [`Self::arm`]. The report has what was sampled; the end adds
    /// its own facts.
    pub fn run(mut self, first: Sample) -> SideReport {
        crate::sys::precise_timers();
        let reports_cpu = self.collect.cpu || self.collect.cpu_per_core;
        let mut readers = self.open_readers(reports_cpu);
        let mut windows = Windows::new(self.measure_ns, self.phases.interval_ns > 0, reports_cpu);
        let mut phase = self.first_phase();
        let (mut number, mut notes) = (0, Vec::new());
        let mut wake = self.wait(phase, |sampler| sampler.t0_ns.saturating_sub(LEAD_NS));
        let mut phase_start = first;
        phase_start.begin_at(self.begin_ns, &mut readers);
        let mut interval_start = phase_start.clone();
        if phase == Phase::Measure {
            self.begin_measuring(&mut windows, &phase_start);
        }
        let mut next_interval = self.next_interval(phase, self.t0_ns);
        let mut over = wake != Wake::Due;
        let mut ending = self.ending(Phase::Warmup, u64::MAX, wake, &phase_start);
        while !over {
            wake = self.wait(phase, |sampler| sampler.phase_end(phase).min(next_interval));
            let phase_end = self.phase_end(phase);
            let phase_is_over = wake != Wake::Due || phase_end <= next_interval;
            let next_phase = match (phase, wake) {
                (phase, _) if !phase_is_over => Some(phase),
                (Phase::Warmup, Wake::Due) => Some(Phase::Measure),
                (Phase::Measure, Wake::Due) if self.phases.cooldown_ns > 0 => Some(Phase::Cooldown),
                _ => None,
            };
            let present = epoch(number, phase_index(phase));
            number += 1;
            if next_phase == Some(Phase::Measure) && phase_is_over {
                self.hold();
            }
            if next_phase.is_none() && wake == Wake::Due && self.to_the_end {
                self.stop();
                self.watch.wait_for_senders(monotonic_ns() + DRAIN_NS);
            }
            let edge = if phase_is_over { Edge::Phase } else { Edge::Interval };
            let mut sample = Sample::take(&self.flows, &mut readers, edge, |counts| {
                self.announce(epoch(number, next_phase.map_or(AFTER, phase_index)));
                match next_phase {
                    Some(Phase::Measure) if phase_is_over => self.set_shares(counts),
                    None => self.stop(),
                    _ => {}
                }
            });
            if let Wake::LoadOver(at_ns) = wake {
                // The counters have not changed since then: the window ends with the last operation, not with this
                // sample.
                sample.at_ns = at_ns.max(interval_start.at_ns);
            }
            if wake == Wake::Stop && self.stop_is_complete {
                // A receiver that needs an end-of-data message has got it. Messages that were sent before still count,
                // so the window ends with the last arrival.
                notes = self.drain();
                sample.counts = self.flows.iter().map(|flow| flow.cell.read()).collect();
                sample.at_ns = self.last_arrival().map_or(sample.at_ns, |last| last.max(interval_start.at_ns));
            }
            if self.interval_ns(phase) > 0 && sample.at_ns > interval_start.at_ns {
                windows.end_interval(&self.flows, (present, phase), &interval_start, &sample);
                if let (Phase::Measure, Some(counter_log)) = (phase, &mut self.counter_log) {
                    counter_log.interval_ends();
                }
                interval_start = sample.clone();
                self.deliver(&mut windows);
            }
            if !phase_is_over {
                // Skips edges that a late thread has missed: the interval is longer.
                while next_interval <= sample.at_ns {
                    next_interval = self.next_interval(phase, next_interval);
                }
                continue;
            }
            windows.end_phase(&self.flows, phase, &phase_start, &sample, readers.evidence.as_ref());
            if let (Phase::Measure, Some(counter_log)) = (phase, &mut self.counter_log) {
                counter_log.measure_ends();
            }
            if let Some(next) = next_phase {
                phase = next;
                if phase == Phase::Measure {
                    self.begin_measuring(&mut windows, &sample);
                }
                next_interval = self.next_interval(phase, sample.at_ns.min(phase_end));
                (interval_start, phase_start) = (sample.clone(), sample);
            } else {
                ending = self.ending(phase, phase_end, wake, &sample);
                over = true;
            }
        }
        self.stop();
        self.watch.phases_over();
        notes.extend(self.drain());
        notes.extend(self.watch.take_notes());
        if let Some(counter_log) = &mut self.counter_log {
            counter_log.rest(Span::After);
        }
        windows.collect_histograms(&self.flows);
        let trips = windows.collect_trips(&self.flows);
        let (one_way, outages) = windows.clocks().map(|at| (trips.report(at), trips.outages(at))).unwrap_or_default();
        notes.extend(trips.notes());
        ending = trips.ending(ending);
        let lacks = |what| format!("the report is full: the later intervals have no {what} (use a longer `interval`)");
        notes.extend(windows.lacks_histograms().then(|| lacks("latencies")));
        let lacks_counters = self.counter_log.as_ref().is_some_and(CounterLog::lacks_intervals);
        notes.extend(lacks_counters.then(|| lacks("counters")));
        SideReport { one_way, outages, reflector: trips.reflector(), ..self.finish(windows, ending, notes) }
    }

    fn begin_measuring(&mut self, windows: &mut Windows, sample: &Sample) {
        windows.begin_measuring(sample);
        if let Some(counter_log) = &mut self.counter_log {
            counter_log.measure_begins();
        }
    }

    /// The last arrival (or the end of sending, if later), where an early stop is this end's way to learn of the end.
    fn last_arrival(&self) -> Option<u64> {
        let last = self.flows.iter().map(|flow| flow.cell.last_arrival_ns()).max()?;
        (self.stop_is_complete && last > 0).then(|| last.max(self.watch.sent_ns()))
    }

    /// Waits until an instant, or until something ends the load. The instant may move: the measurement may begin
    /// earlier.
    fn wait(&mut self, phase: Phase, until_ns: impl Fn(&Self) -> u64) -> Wake {
        loop {
            match self.watch.wait(until_ns(self)) {
                Wake::Begin(at_ns) if phase == Phase::Warmup && self.phases.settle_ns > 0 => {
                    self.measure_ns = self.measure_ns.min(at_ns.max(self.t0_ns));
                }
                Wake::Begin(_) => {}
                wake => return wake,
            }
        }
    }

    /// Due time of the phase's end.
    fn phase_end(&self, phase: Phase) -> u64 {
        let measure = self.measure_ns;
        match (phase, self.phases.stop) {
            (Phase::Warmup, _) => measure,
            (Phase::Measure, Stop::AfterNs(duration)) => measure.saturating_add(duration),
            (Phase::Cooldown, Stop::AfterNs(duration)) => {
                measure.saturating_add(duration).saturating_add(self.phases.cooldown_ns)
            }
            _ => u64::MAX,
        }
    }

    fn interval_ns(&self, phase: Phase) -> u64 {
        if phase == Phase::Warmup && self.phases.settle_ns > 0 {
            self.phases.settle_ns
        } else {
            self.phases.interval_ns
        }
    }

    fn next_interval(&self, phase: Phase, after_ns: u64) -> u64 {
        let interval_ns = self.interval_ns(phase);
        if interval_ns == 0 { u64::MAX } else { after_ns.saturating_add(interval_ns) }
    }

    fn announce(&self, epoch: u64) {
        self.flows.iter().for_each(|flow| flow.cell.set_epoch(epoch));
    }

    /// Before the measure phase of a counted test: no flow does more than its share, however long this thread is off
    /// its CPU between sampling and setting the limits.
    fn hold(&self) {
        self.flows.iter().filter(|flow| flow.share.is_some()).for_each(|flow| flow.cell.hold());
    }

    /// At the measure phase's start: gives each flow its share, counted from the sample that the measurement begins
    /// with.
    fn set_shares(&self, counts: &[Counts]) {
        for (flow, counts) in self.flows.iter().zip(counts) {
            if let Some(share) = flow.share {
                flow.cell.set_limit(flow.count(counts).saturating_add(share));
            }
        }
    }

    fn stop(&self) {
        self.flows.iter().for_each(|flow| flow.cell.set_limit(0));
    }

    /// Reports the latest interval, with the histograms of all flows that completed an operation since the edge; the
    /// others follow in the report.
    fn deliver(&mut self, windows: &mut Windows) {
        if self.flows.iter().any(|flow| !flow.latency_slots.is_empty()) {
            std::thread::sleep(std::time::Duration::from_millis(1));
            windows.collect_histograms(&self.flows);
        }
        let latest = windows.latest_interval(&self.flows);
        if let (Some(on_interval), Some(window)) = (&mut self.on_interval, latest) {
            on_interval(&window);
        }
    }

    fn ending(&self, phase: Phase, phase_end: u64, wake: Wake, sample: &Sample) -> Ending {
        match wake {
            // `wait` handles a begin itself.
            Wake::Due | Wake::Begin(_) => Ending::Complete,
            Wake::Failed => Ending::Failed(self.watch.failure().unwrap_or_default()),
            Wake::Aborted => Ending::Failed("aborted before its end, on request".to_owned()),
            // The measurement was complete before the stop.
            _ if phase == Phase::Cooldown => Ending::Complete,
            Wake::Stop if self.stop_is_complete && phase == Phase::Measure => Ending::Complete,
            Wake::Stop | Wake::LoadOver(_) if phase == Phase::Measure => {
                let counted = matches!(wake, Wake::LoadOver(_)) && !matches!(self.phases.stop, Stop::AfterNs(_));
                let on_time = phase_end.saturating_sub(sample.at_ns) <= TOLERANCE_NS;
                if counted || on_time { Ending::Complete } else { Ending::Stopped }
            }
            Wake::Stop | Wake::LoadOver(_) => Ending::Stopped,
        }
    }

    /// Waits until every worker has left, by force if it takes too long.
    fn drain(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let failed = self.watch.failure().is_some();
        let patience = match self.phases.stop {
            _ if failed || self.watch.is_aborted() => 0,
            Stop::AfterNs(_) => DRAIN_NS,
            // All that was counted is to arrive. The end's own limit on the length of a test bounds it.
            _ => COUNTED_NS,
        };
        if self.watch.wait_for_workers(monotonic_ns() + patience, true) {
            return notes;
        }
        if !failed && !self.watch.is_aborted() && !self.watch.is_released() {
            notes.push(format!(
                "after the end of the load the flows did not drain within {} s and were closed: the totals of the two \
                 ends differ by the data in flight",
                DRAIN_NS / 1_000_000_000
            ));
        }
        let last = monotonic_ns() + LEAVE_NS;
        while monotonic_ns() < last {
            (self.free_threads)();
            if self.watch.wait_for_workers(monotonic_ns() + 20_000_000, false) {
                return notes;
            }
        }
        notes.push("a data thread could not be freed and was left behind".to_owned());
        notes
    }

    fn finish(self, windows: Windows, ending: Ending, notes: Vec<String>) -> SideReport {
        let end = Sample::take(&self.flows, &mut Readers::default(), Edge::Interval, |_| ());
        let (wall_start_ns, monotonic_start_ns) = (windows.wall_start_ns, windows.monotonic_start_ns());
        let clocks = windows.clocks;
        let counters = self.counter_log.map_or_else(Vec::new, |log| log.into_windows(windows.origin_ns()));
        let (phases, intervals, totals) = windows.finish(&self.flows, self.pace.as_ref(), &end);
        SideReport {
            phases,
            intervals,
            totals,
            counters,
            wall_start_ns,
            monotonic_start_ns,
            clocks,
            ending,
            notes,
            ..SideReport::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::counters::Published, *};
    use crate::{report::QuicInfo, spec::Role};

    /// The sampling thread may wake when a short load is over.
    #[test]
    fn what_comes_before_the_first_wake_belongs_to_the_first_window() {
        let figures = Arc::new(Published::default());
        let sent = |packets_sent| figures.write(QuicInfo { packets_sent, ..QuicInfo::default() });
        let flow = SampledFlow {
            flow: 0,
            role: Role::Sender,
            cell: Arc::default(),
            latency_slots: Vec::new(),
            gaps: None,
            one_way: None,
            share: Some(1),
            tcp: None,
            quic: Some(figures.clone()),
            tls: Vec::new(),
        };
        let watch = Arc::new(Watch::new(1));
        let t0_ns = monotonic_ns();
        let mut sampler = Sampler {
            flows: vec![flow],
            watch: watch.clone(),
            phases: Phases { warmup_ns: 0, settle_ns: 0, stop: Stop::AfterBytes(1), cooldown_ns: 0, interval_ns: 0 },
            collect: Collect::default(),
            pace: None,
            t0_ns,
            begin_ns: t0_ns,
            measure_ns: t0_ns,
            on_interval: None,
            free_threads: Box::new(|| ()),
            counter_log: None,
            readers: Readers::default(),
            stop_is_complete: false,
            to_the_end: false,
        };
        sent(3);
        let first = sampler.arm();
        sent(10);
        watch.load_over(0, monotonic_ns());
        watch.done(0, None);
        let report = sampler.run(first);
        assert_eq!(report.ending, Ending::Complete);
        assert_eq!(report.phases[0].flows[0].quic.map(|quic| quic.packets_sent), Some(7));
    }
}
