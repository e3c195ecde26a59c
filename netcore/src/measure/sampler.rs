//! Cuts a test into phases and intervals: a thread that sleeps from edge to edge and reads every counter at each.
//!
//! Edges are absolute instants of the monotonic clock, so that they do not drift; what is reported is the time between
//! the readings themselves. The data threads are not stopped or slowed at an edge, and never read a clock for it.

use std::{collections::HashMap, os::fd::AsFd, sync::Arc};

use super::{
    clock::{monotonic_ns, wall_ns},
    counter_log::CounterLog,
    counters::{AFTER, FlowCell, epoch, phase_index, phase_of},
    cpu::{CpuReader, CpuSnapshot},
    histogram::{self, Histogram, Tray},
    tcp_info,
    watch::{Wake, Watch},
};
use crate::{
    report::{CounterWindow, Counts, Ending, FlowWindow, Latencies, Pacing, Phase, Role, Span, TcpInfo, Window},
    spec::{Collect, Pace, Phases, Stop},
    transport::Link,
};

/// How long draining may take after the load's end before blocked threads are freed by force, nanoseconds. A send buffer
/// of 4 MB needs this long at 3 Mbit/s.
const DRAIN_NS: u64 = 10_000_000_000;

/// How long a thread may take to leave after its sockets were shut down, nanoseconds.
const LEAVE_NS: u64 = 5_000_000_000;

/// How early a peer may end, or say so, before this end's own schedule and still count as having ended by it: the bound on
/// the difference between two hosts' ideas of the start, nanoseconds.
const TOLERANCE_NS: u64 = 250_000_000;

/// How long before the load's start its first reading is taken, nanoseconds. Where many ends share a machine, their
/// samplers must be out of the way when the data threads begin; CPU shares cannot tell so short a time from none.
const LEAD_NS: u64 = 2_000_000;

/// A flow as the sampler sees it.
pub struct SampledFlow {
    /// Its number.
    pub flow: u32,
    /// What it does at this end.
    pub role: Role,
    /// Its counters.
    pub cell: Arc<FlowCell>,
    /// Where its threads leave histograms, by kind.
    pub trays: Vec<(&'static str, Arc<Tray>)>,
    /// Where a paced thread leaves the gaps between its sends.
    pub gaps: Option<Arc<Tray>>,
    /// Its descriptors, where it keeps them for the whole test.
    pub link: Option<Arc<Link>>,
    /// How much of the stop rule's count falls to it; `None`: this end's flow does not stop by a count.
    pub share: Option<u64>,
    /// Whether TCP_INFO can be had.
    pub tcp: bool,
}

impl SampledFlow {
    /// What the limit counts.
    fn count(&self, counts: &Counts) -> u64 {
        if self.role == Role::Requester { counts.transactions } else { counts.bytes_sent }
    }
}

/// What the sampler has when the end is over.
pub struct Sampled {
    /// Warm-up, measure and cool-down.
    pub phases: Vec<Window>,
    /// Intervals.
    pub intervals: Vec<Window>,
    /// From the first byte to the last.
    pub totals: Vec<FlowWindow>,
    /// Counters of the kernel.
    pub counters: Vec<CounterWindow>,
    /// Wall clock at the measure phase's start.
    pub wall_start_ns: i64,
    /// The same instant on the monotonic clock, nanoseconds; 0: it never came.
    pub monotonic_start_ns: u64,
    /// How it ended.
    pub ending: Ending,
    /// What a reader should know.
    pub notes: Vec<String>,
}

/// A receiver of what is known after each interval.
pub type OnInterval = Box<dyn FnMut(&Window) + Send>;

/// The thread's state.
pub struct Sampler {
    /// Every flow of the end.
    pub flows: Vec<SampledFlow>,
    /// The conversation with the workers.
    pub watch: Arc<Watch>,
    /// The phases.
    pub phases: Phases,
    /// What is collected.
    pub collect: Collect,
    /// The schedule of the senders.
    pub pace: Option<Pace>,
    /// The load's start on the monotonic clock.
    pub t0_ns: u64,
    /// When it can begin at the earliest: later than `t0_ns` where that was past already. Set by [`Self::arm`].
    pub begin_ns: u64,
    /// When the measurement is due: at the end of the warm-up, or earlier where somebody says so.
    pub measure_ns: u64,
    /// Called after each interval.
    pub on_interval: Option<OnInterval>,
    /// Counters of the kernel, where they are asked for.
    pub counter_log: Option<CounterLog>,
    /// Whether an early stop is this end's ordinary way to learn that a counted test is over.
    pub stop_is_complete: bool,
}

/// Every counter at one instant.
#[derive(Clone)]
struct Reading {
    at_ns: u64,
    wall_ns: i64,
    counts: Vec<Counts>,
    dropped: Vec<u64>,
    tcp: Vec<Option<TcpInfo>>,
    cpu: Option<CpuSnapshot>,
}

impl Reading {
    /// The reading as of the load's start, when nothing had been counted: the instant is known even if the thread that
    /// reads was woken too late for it.
    fn begin_at(&mut self, at_ns: u64) {
        self.wall_ns += at_ns.cast_signed() - self.at_ns.cast_signed();
        self.at_ns = at_ns;
        self.counts.fill(Counts::default());
    }
}

/// Windows in the making.
struct Log {
    /// The measure phase's start; until it has begun, when it is due.
    origin_ns: u64,
    wall_start_ns: i64,
    phases: Vec<Window>,
    /// With the epoch of each, to which histograms that come late are added.
    intervals: Vec<(u64, Window)>,
    /// Histograms by flow and kind, one per phase.
    by_phase: HashMap<(usize, usize, usize), Histogram<u64>>,
    /// Gaps between paced sends by flow and phase, and due times that were dropped.
    gaps: HashMap<(usize, usize), Histogram<u64>>,
    dropped: HashMap<(usize, usize), u64>,
    /// Encoded histograms by flow, kind and epoch.
    by_epoch: HashMap<(usize, usize, u64), String>,
}

impl Sampler {
    fn first_phase(&self) -> Phase {
        if self.phases.warmup_ns > 0 { Phase::Warmup } else { Phase::Measure }
    }

    /// Makes the flows ready for their threads to start: before that the first window and the limits must be known.
    pub fn arm(&mut self) {
        let phase = self.first_phase();
        self.announce(epoch(0, phase_index(phase)));
        if phase == Phase::Measure {
            self.set_shares(&vec![Counts::default(); self.flows.len()]);
        }
        self.begin_ns = self.t0_ns.max(monotonic_ns());
    }

    /// Runs to the end of the load and of the draining after it.
    #[must_use]
    pub fn run(mut self) -> Sampled {
        crate::sys::precise_timers();
        let mut cpu = if self.collect.cpu || self.collect.cpu_per_core { CpuReader::open().ok() } else { None };
        let mut log = Log {
            origin_ns: self.measure_ns,
            wall_start_ns: 0,
            phases: Vec::new(),
            intervals: Vec::new(),
            by_phase: HashMap::new(),
            gaps: HashMap::new(),
            dropped: HashMap::new(),
            by_epoch: HashMap::new(),
        };
        let mut phase = self.first_phase();
        let mut number = 0;
        // Read shortly before the load begins: nothing has been counted then, and a reading after it might come late.
        let mut wake = self.wait(phase, |sampler| sampler.t0_ns.saturating_sub(LEAD_NS));
        let mut phase_start = self.read(&mut cpu, |_| ());
        phase_start.begin_at(self.begin_ns);
        let mut interval_start = phase_start.clone();
        if phase == Phase::Measure {
            self.begin_measuring(&mut log, &phase_start);
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
            let mut reading = self.read(&mut cpu, |counts| {
                self.announce(epoch(number, next_phase.map_or(AFTER, phase_index)));
                match next_phase {
                    Some(Phase::Measure) if phase_is_over => self.set_shares(counts),
                    None => self.stop(),
                    _ => {}
                }
            });
            if let Wake::LoadOver(at_ns) = wake {
                // The counters stand still since then: the window ends with the last operation and not with this reading.
                reading.at_ns = at_ns.max(interval_start.at_ns);
            }
            if let (Wake::Stop, Some(last)) = (wake, self.last_arrival()) {
                // The same for who cannot know that a message was the last: the word that it was comes later.
                reading.at_ns = last.clamp(interval_start.at_ns, reading.at_ns);
            }
            if self.interval_ns(phase) > 0 && reading.at_ns > interval_start.at_ns {
                let window = self.window(&log, phase, &interval_start, &reading);
                log.intervals.push((present, window));
                if let (Phase::Measure, Some(counter_log)) = (phase, &mut self.counter_log) {
                    counter_log.interval_ends();
                }
                interval_start = reading.clone();
                self.deliver(&mut log);
                if self.phases.interval_ns == 0 {
                    // Taken to judge the warm-up by: nobody has asked for them to be kept.
                    log.intervals.pop();
                }
            }
            if !phase_is_over {
                // Edges that a late thread has missed are left out: the interval is the longer for it.
                while next_interval <= reading.at_ns {
                    next_interval = self.next_interval(phase, next_interval);
                }
                continue;
            }
            let window = self.window(&log, phase, &phase_start, &reading);
            log.phases.push(window);
            for (i, (after, before)) in reading.dropped.iter().zip(&phase_start.dropped).enumerate() {
                log.dropped.insert((i, phase_index(phase)), after - before);
            }
            if let (Phase::Measure, Some(counter_log)) = (phase, &mut self.counter_log) {
                counter_log.measure_ends();
            }
            if let Some(next) = next_phase {
                phase = next;
                if phase == Phase::Measure {
                    self.begin_measuring(&mut log, &reading);
                }
                next_interval = self.next_interval(phase, reading.at_ns.min(phase_end));
                (interval_start, phase_start) = (reading.clone(), reading);
            } else {
                ending = self.ending(phase, phase_end, wake, &reading);
                over = true;
            }
        }
        self.stop();
        let notes = self.drain();
        if let Some(counter_log) = &mut self.counter_log {
            counter_log.rest(Span::After);
        }
        self.collect_histograms(&mut log);
        self.finish(log, ending, notes)
    }

    fn begin_measuring(&mut self, log: &mut Log, reading: &Reading) {
        log.begin_measuring(reading);
        if let Some(counter_log) = &mut self.counter_log {
            counter_log.measure_begins();
        }
    }

    /// When the last message arrived, where a stop is how this end learns that there are no more.
    fn last_arrival(&self) -> Option<u64> {
        let last = self.flows.iter().map(|flow| flow.cell.last_arrival_ns()).max()?;
        (self.stop_is_complete && last > 0).then_some(last)
    }

    /// Waits until an instant or until something happens that ends the load. The instant may come to be another one: when
    /// the measurement begins earlier.
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

    /// When the phase is due to end.
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

    /// Just before the measure phase's start, where it ends by a count: however long this thread is put aside between
    /// reading the counters and setting the limits, no flow does more than its share.
    fn hold(&self) {
        self.flows.iter().filter(|flow| flow.share.is_some()).for_each(|flow| flow.cell.hold());
    }

    /// At the measure phase's start: from here, each flow has its share to do, counted from the very reading that the
    /// measurement begins with.
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

    /// Reads everything, the counters first; `then` is done between these and what takes longer to read.
    fn read(&self, cpu: &mut Option<CpuReader>, then: impl FnOnce(&[Counts])) -> Reading {
        let (at_ns, wall_ns) = (monotonic_ns(), wall_ns());
        let counts: Vec<_> = self.flows.iter().map(|flow| flow.cell.read()).collect();
        let dropped = self.flows.iter().map(|flow| flow.cell.dropped()).collect();
        then(&counts);
        let tcp = self
            .flows
            .iter()
            .map(|flow| match &flow.link {
                Some(link) if flow.tcp && self.collect.tcp_info => tcp_info::read(link.send.as_fd()),
                _ => None,
            })
            .collect();
        let cpu = cpu.as_mut().and_then(|reader| {
            let mut snapshot = CpuSnapshot::default();
            reader.read(&mut snapshot).is_ok().then_some(snapshot)
        });
        Reading { at_ns, wall_ns, counts, dropped, tcp, cpu }
    }

    fn window(&self, log: &Log, phase: Phase, before: &Reading, after: &Reading) -> Window {
        let flows = self.flows.iter().enumerate().map(|(i, flow)| {
            let retransmits = after.tcp[i]
                .zip(before.tcp[i])
                .map(|(after, before)| after.retransmits.saturating_sub(before.retransmits));
            let receives_datagrams = after.counts[i].messages_received > 0;
            FlowWindow {
                flow: flow.flow,
                role: flow.role,
                counts: after.counts[i] - before.counts[i],
                latencies: Vec::new(),
                tcp_info: after.tcp[i],
                retransmits,
                datagrams: None,
                jitter_ns: receives_datagrams.then(|| flow.cell.jitter_ns()),
                pacing: None,
            }
        });
        let cpu = after.cpu.as_ref().zip(before.cpu.as_ref());
        Window {
            phase,
            start_ns: before.at_ns.cast_signed() - log.origin_ns.cast_signed(),
            // An end before the load was to begin leaves a window of no length.
            elapsed_ns: after.at_ns.saturating_sub(before.at_ns),
            wall_end_ns: after.wall_ns,
            flows: flows.collect(),
            cpu: cpu.and_then(|(after, before)| after.since(before, self.collect.cpu_per_core)),
        }
    }

    /// Takes the histograms that the workers have left so far.
    fn collect_histograms(&self, log: &mut Log) {
        for (i, flow) in self.flows.iter().enumerate() {
            if let Some(tray) = &flow.gaps {
                tray.collect(|epoch, histogram| {
                    // Both have the same bounds, so adding cannot fail.
                    let _ = log.gaps.entry((i, phase_of(epoch))).or_insert_with(histogram::empty).add(histogram);
                });
            }
            for (kind, (_, tray)) in flow.trays.iter().enumerate() {
                tray.collect(|epoch, histogram| {
                    let sum = log.by_phase.entry((i, kind, phase_of(epoch))).or_insert_with(histogram::empty);
                    // Both have the same bounds, so adding cannot fail.
                    let _ = sum.add(histogram);
                    if self.phases.interval_ns > 0 {
                        log.by_epoch.insert((i, kind, epoch), histogram::encode(histogram));
                    }
                });
            }
        }
    }

    fn latencies(&self, flow: usize, encoded: impl Fn(usize) -> Option<String>) -> Vec<Latencies> {
        let trays = self.flows[flow].trays.iter().enumerate();
        trays
            .filter_map(|(kind, (name, _))| Some(Latencies { kind: (*name).to_owned(), histogram: encoded(kind)? }))
            .collect()
    }

    /// How well the schedule was kept in a window.
    fn pacing(&self, flow: &FlowWindow, elapsed_ns: u64, gaps: &Histogram<u64>, dropped: u64) -> Option<Pacing> {
        let pace = self.pace?;
        let counts = &flow.counts;
        let events = match flow.role {
            Role::Requester => counts.transactions,
            _ if counts.messages_sent > 0 => counts.messages_sent,
            _ => counts.sends,
        };
        let rate = events as f64 / (elapsed_ns as f64 / 1e9);
        let due_ns = 1e9 * f64::from(pace.burst.max(1)) / pace.events_per_s;
        // Gaps are below the histogram's longest, an hour.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let within = gaps.count_between((due_ns * 0.9) as u64, (due_ns * 1.1) as u64);
        Some(Pacing {
            sent: gaps.len(),
            dropped,
            rate_error_ratio: rate / pace.events_per_s - 1.0,
            gap_p50_ns: gaps.value_at_quantile(0.5),
            gap_p99_ns: gaps.value_at_quantile(0.99),
            gap_max_ns: gaps.max(),
            gaps_within_tenth_ratio: within as f64 / gaps.len() as f64,
        })
    }

    /// Hands the latest interval on, with the histograms of all flows that completed an operation since the edge; the
    /// others follow in the report.
    fn deliver(&mut self, log: &mut Log) {
        if self.flows.iter().any(|flow| !flow.trays.is_empty()) {
            std::thread::sleep(std::time::Duration::from_millis(1));
            self.collect_histograms(log);
        }
        let Some(on_interval) = &mut self.on_interval else { return };
        let Some((epoch, window)) = log.intervals.last() else { return };
        let mut window = window.clone();
        let by_epoch = &log.by_epoch;
        for i in 0..window.flows.len() {
            let trays = self.flows[i].trays.iter().enumerate();
            window.flows[i].latencies = trays
                .filter_map(|(kind, (name, _))| {
                    let histogram = by_epoch.get(&(i, kind, *epoch))?.clone();
                    Some(Latencies { kind: (*name).to_owned(), histogram })
                })
                .collect();
        }
        on_interval(&window);
    }

    fn ending(&self, phase: Phase, phase_end: u64, wake: Wake, reading: &Reading) -> Ending {
        match wake {
            // The wait hears of a begin by itself.
            Wake::Due | Wake::Begin(_) => Ending::Complete,
            Wake::Failed => Ending::Failed(self.watch.failure().unwrap_or_default()),
            Wake::Aborted => Ending::Failed("aborted before its end, on request".to_owned()),
            // The measurement was whole before the stop.
            _ if phase == Phase::Cooldown => Ending::Complete,
            Wake::Stop if self.stop_is_complete && phase == Phase::Measure => Ending::Complete,
            Wake::Stop | Wake::LoadOver(_) if phase == Phase::Measure => {
                let counted = matches!(wake, Wake::LoadOver(_)) && !matches!(self.phases.stop, Stop::AfterNs(_));
                let on_time = phase_end.saturating_sub(reading.at_ns) <= TOLERANCE_NS;
                if counted || on_time { Ending::Complete } else { Ending::Stopped }
            }
            Wake::Stop | Wake::LoadOver(_) => Ending::Stopped,
        }
    }

    /// Waits until every worker has left: by itself, and when that takes too long by force.
    fn drain(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let free = || self.flows.iter().filter_map(|flow| flow.link.as_ref()).for_each(|link| link.free());
        let failed = self.watch.failure().is_some();
        let patience = if failed || self.watch.is_aborted() { 0 } else { DRAIN_NS };
        if self.watch.wait_for_workers(monotonic_ns() + patience, true) {
            return notes;
        }
        if !failed && !self.watch.is_aborted() {
            notes.push(format!(
                "after the end of the load the flows did not drain within {} s and were cut: the totals of the two ends \
                 differ by what was under way",
                DRAIN_NS / 1_000_000_000
            ));
        }
        let last = monotonic_ns() + LEAVE_NS;
        while monotonic_ns() < last {
            free();
            if self.watch.wait_for_workers(monotonic_ns() + 20_000_000, false) {
                return notes;
            }
        }
        notes.push("a data thread could not be freed and was left behind".to_owned());
        notes
    }

    fn finish(self, mut log: Log, ending: Ending, notes: Vec<String>) -> Sampled {
        let end = self.read(&mut None, |_| ());
        let mut phases = std::mem::take(&mut log.phases);
        for window in &mut phases {
            let index = phase_index(window.phase);
            for i in 0..window.flows.len() {
                let encoded = |kind| log.by_phase.get(&(i, kind, index)).map(histogram::encode);
                window.flows[i].latencies = self.latencies(i, encoded);
                window.flows[i].pacing = log.gaps.get(&(i, index)).and_then(|gaps| {
                    let dropped = log.dropped.get(&(i, index)).copied().unwrap_or(0);
                    self.pacing(&window.flows[i], window.elapsed_ns, gaps, dropped)
                });
                let datagrams = self.flows[i].cell.of_phase(window.phase);
                let counts = &end.counts[i];
                window.flows[i].datagrams =
                    (counts.messages_sent > 0 || counts.messages_received > 0).then_some(datagrams);
            }
        }
        let mut intervals = std::mem::take(&mut log.intervals);
        for (epoch, window) in &mut intervals {
            for i in 0..window.flows.len() {
                let encoded = |kind| log.by_epoch.get(&(i, kind, *epoch)).cloned();
                window.flows[i].latencies = self.latencies(i, encoded);
            }
        }
        let totals = self.flows.iter().enumerate().map(|(i, flow)| FlowWindow {
            flow: flow.flow,
            role: flow.role,
            counts: end.counts[i],
            latencies: Vec::new(),
            tcp_info: end.tcp[i],
            retransmits: end.tcp[i].map(|info| info.retransmits),
            datagrams: None,
            jitter_ns: (end.counts[i].messages_received > 0).then(|| flow.cell.jitter_ns()),
            pacing: None,
        });
        let totals = totals.collect();
        Sampled {
            phases,
            intervals: intervals.into_iter().map(|(_, window)| window).collect(),
            totals,
            counters: self.counter_log.map_or_else(Vec::new, |counters| counters.into_windows(log.origin_ns)),
            wall_start_ns: log.wall_start_ns,
            // The wall clock is read at the same time, and never stands at 0.
            monotonic_start_ns: if log.wall_start_ns == 0 { 0 } else { log.origin_ns },
            ending,
            notes,
        }
    }
}

impl Log {
    /// From here on instants are counted; those of the warm-up so far are moved to the true origin.
    fn begin_measuring(&mut self, reading: &Reading) {
        let moved = reading.at_ns.cast_signed() - self.origin_ns.cast_signed();
        for window in self.phases.iter_mut().chain(self.intervals.iter_mut().map(|(_, window)| window)) {
            window.start_ns -= moved;
        }
        (self.origin_ns, self.wall_start_ns) = (reading.at_ns, reading.wall_ns);
    }
}
