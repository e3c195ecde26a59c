//! Display of a running measurement: the progress line, and interim results with `--interim`.

use std::{
    sync::{
        atomic::Ordering::Relaxed,
        mpsc::{Receiver, RecvTimeoutError, Sender},
    },
    time::Duration,
};

use analyze::stats::series;
use chrono::DateTime;
use netcore::{
    client::Observer,
    measure::clock::monotonic_ns,
    report::{FlowWindow, Phase, Window},
    spec::{Direction, Pattern, Phases, Role, Side, Stop, TestSpec},
};
use schemas::units::{Unit, human};

use crate::progress::{Live, Progress};

/// An interval of a member of the running iteration.
pub struct IntervalReport {
    member: usize,
    side: Side,
    phase: Phase,
    rate: Option<(f64, Unit)>,
    elapsed_ns: u64,
    /// Its end after the begin of the measure phase, nanoseconds.
    end_ns: i64,
    wall_end_ns: i64,
}

/// Decides when the warm-up of a test has settled, and passes on its intervals. Lives in the thread that waits for the test.
pub struct Watch {
    member: usize,
    spec: TestSpec,
    news: Sender<IntervalReport>,
    /// Rate of the headline's end in each interval of a warm-up that ends by itself.
    warming: Vec<f64>,
    settled: bool,
}

impl Watch {
    /// `member`: its place in the group.
    pub fn new(member: usize, spec: &TestSpec, news: Sender<IntervalReport>) -> Self {
        Self { member, spec: spec.clone(), news, warming: Vec::new(), settled: false }
    }

    /// Whether the warm-up has settled; `None`: its length is fixed.
    pub fn settled(&self) -> Option<bool> {
        (self.spec.phases.settle_ns > 0).then_some(self.settled)
    }
}

impl Observer for Watch {
    fn interval(&mut self, side: Side, window: &Window) {
        let rate = rate(&self.spec, window);
        let settles = window.phase == Phase::Warmup && self.spec.phases.settle_ns > 0;
        if let Some((value, _)) = rate.filter(|_| settles && side == headline_side(&self.spec)) {
            self.warming.push(value);
            // Tested once per batch of the criterion: more often finds no more, and raises the false alarms.
            if self.warming.len().is_multiple_of(series::BATCH) {
                self.settled |= series::settled(&self.warming);
            }
        }
        // Fails only if the receiver is gone.
        let _ = self.news.send(IntervalReport {
            member: self.member,
            side,
            phase: window.phase,
            rate,
            elapsed_ns: window.elapsed_ns,
            end_ns: window.start_ns.saturating_add_unsigned(window.elapsed_ns),
            wall_end_ns: window.wall_end_ns,
        });
    }

    fn has_settled(&mut self) -> bool {
        self.settled
    }
}

/// A member as the display knows it.
struct Shown {
    name: String,
    phases: Phases,
    /// The end that counts the result.
    headline: Side,
    /// Begin of the load on this host's monotonic clock, nanoseconds.
    t0_ns: u64,
    /// Length of its warm-up, nanoseconds; `None`: it ends by itself and has not yet.
    warmup_ns: Option<u64>,
    rate: Option<(f64, Unit)>,
}

/// Shows a running iteration: on the progress lines, and with `--interim` as a line per interval.
pub struct Display<'a> {
    progress: &'a mut Progress,
    case: String,
    interim: bool,
    members: Vec<Shown>,
}

impl<'a> Display<'a> {
    pub fn new(progress: &'a mut Progress, case: &str, interim: bool) -> Self {
        Self { progress, case: case.to_owned(), interim, members: Vec::new() }
    }

    /// Adds a member and returns its number; its name is empty where the case is not a group. `headline`: the end that counts
    /// the result. `t0_ns`: begin of its load on this host's clock.
    pub fn add(&mut self, name: String, phases: &Phases, headline: Side, t0_ns: u64) -> usize {
        let warmup_ns = (phases.settle_ns == 0).then_some(phases.warmup_ns);
        // Of a group, the first one's. A warm-up that ends by itself may end before.
        let measures_from = self.progress.measures_from_ns();
        let _ = measures_from.compare_exchange(0, t0_ns.saturating_add(phases.warmup_ns), Relaxed, Relaxed);
        self.members.push(Shown { name, phases: *phases, headline, t0_ns, warmup_ns, rate: None });
        self.members.len() - 1
    }

    /// Shows what happens until every [`Watch`] is gone.
    pub fn follow(&mut self, news: &Receiver<IntervalReport>) {
        let tick = self.progress.tick();
        loop {
            match news.recv_timeout(tick) {
                Ok(news) => self.hear(&news),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let now_ns = monotonic_ns();
            let lives: Vec<Live> = self.members.iter().map(|member| member.live(now_ns)).collect();
            self.progress.live(&lives);
        }
    }

    fn hear(&mut self, news: &IntervalReport) {
        let Some(member) = self.members.get_mut(news.member) else { return };
        // The progress line shows the near end, interim results the end that counts the headline.
        if news.side == Side::Near {
            member.rate = news.rate;
            if news.phase != Phase::Warmup && member.warmup_ns.is_none() {
                let into_measure = u64::try_from(news.end_ns).unwrap_or(0);
                member.warmup_ns = Some(monotonic_ns().saturating_sub(member.t0_ns).saturating_sub(into_measure));
            }
        }
        let settles = news.phase == Phase::Warmup && member.phases.settle_ns > 0;
        if let Some((value, unit)) = news.rate
            && self.interim
            && !settles
            && news.side == member.headline
        {
            let blank = if member.name.is_empty() { "" } else { " " };
            let name = format!("{}{blank}{}", self.case, member.name);
            self.progress.print(&interim_line(&name, news, value, unit));
        }
    }
}

impl Shown {
    fn live(&self, now_ns: u64) -> Live {
        let phases = &self.phases;
        let since_t0 = now_ns.saturating_sub(self.t0_ns);
        let measure_ns = if let Stop::AfterNs(length) = phases.stop { Some(length) } else { None };
        // Of a warm-up that ends by itself, its bound.
        let warmup_ns = self.warmup_ns.unwrap_or(phases.warmup_ns);
        let warm = self.warmup_ns.is_some() && since_t0 >= warmup_ns;
        let into_measure = since_t0.saturating_sub(warmup_ns);
        let (phase, elapsed_ns, planned_ns) = match measure_ns {
            _ if !warm => (Phase::Warmup, since_t0.min(warmup_ns), Some(warmup_ns)),
            Some(length) if into_measure > length && phases.cooldown_ns > 0 => {
                (Phase::Cooldown, (into_measure - length).min(phases.cooldown_ns), Some(phases.cooldown_ns))
            }
            length => (Phase::Measure, into_measure.min(length.unwrap_or(u64::MAX)), length),
        };
        let whole_ns = measure_ns.map(|length| warmup_ns.saturating_add(length).saturating_add(phases.cooldown_ns));
        Live {
            member: self.name.clone(),
            phase: phase.as_str(),
            elapsed: Duration::from_nanos(elapsed_ns),
            planned: planned_ns.map(Duration::from_nanos),
            rate: self.rate,
            // A member of a group may begin later than the others.
            left: whole_ns.map(|whole| Duration::from_nanos(whole.saturating_add(self.t0_ns).saturating_sub(now_ns))),
        }
    }
}

/// The end that counts the result: the receiver of a stream, the requester otherwise.
pub fn headline_side(spec: &TestSpec) -> Side {
    match (spec.pattern, spec.direction) {
        (Pattern::Stream, Direction::Forward) if !spec.is_alone() => Side::Far,
        _ => Side::Near,
    }
}

/// Rate of one end in an interval: bytes received if it receives, else bytes sent; or transactions.
fn rate(spec: &TestSpec, window: &Window) -> Option<(f64, Unit)> {
    let seconds = window.elapsed_ns as f64 / 1e9;
    if seconds <= 0.0 {
        return None;
    }
    // In floating point: another host may make up its counts.
    let rate = |count: fn(&FlowWindow) -> u64| window.flows.iter().map(|f| count(f) as f64).sum::<f64>() / seconds;
    Some(match spec.pattern {
        Pattern::Stream => {
            // A flow that only sends has received nothing.
            let receives = window.flows.iter().any(|f| matches!(f.role, Role::Receiver | Role::Duplex));
            let bytes = rate(if receives { |f| f.counts.bytes_received } else { |f| f.counts.bytes_sent });
            (bytes * 8.0, Unit::BitsPerSecond)
        }
        _ => (rate(|f| f.counts.transactions), Unit::PerSecond),
    })
}

/// `upload  measure  42.1 Gbit/s  over 1.000 s, ending 12:34:56.789Z`
fn interim_line(name: &str, news: &IntervalReport, value: f64, unit: Unit) -> String {
    let ending = DateTime::from_timestamp_nanos(news.wall_end_ns).format("%H:%M:%S%.3fZ");
    let seconds = news.elapsed_ns as f64 / 1e9;
    format!("{name}  {}  {}  over {seconds:.3} s, ending {ending}", news.phase.as_str(), human(unit, value))
}

#[cfg(test)]
mod tests {
    use netcore::spec::Transport;

    use super::*;
    use crate::schedule::fake::{flow, window};

    #[test]
    fn an_interim_line_has_value_unit_actual_length_and_wall_clock() {
        let w = window(Phase::Measure, 1_000_250_000, vec![flow(0, Role::Receiver, 0, 125_031_250)]);
        let spec = TestSpec::new(Pattern::Stream, Transport::Tcp);
        let (sender, receiver) = std::sync::mpsc::channel();
        Watch::new(0, &spec, sender).interval(Side::Far, &w);
        let news = receiver.recv().unwrap();
        let (value, unit) = news.rate.unwrap();
        assert_eq!(
            interim_line("upload", &news, value, unit),
            "upload  measure  1.00 Gbit/s  over 1.000 s, ending 22:13:20.000Z"
        );
    }

    #[test]
    fn a_two_way_end_shows_what_it_received() {
        let flows = vec![flow(0, Role::Sender, 999, 0), flow(1, Role::Receiver, 0, 125)];
        let spec = TestSpec::new(Pattern::Stream, Transport::Tcp);
        let (value, _) = rate(&spec, &window(Phase::Measure, 1_000_000_000, flows)).unwrap();
        assert!((value - 1000.0).abs() < 1e-9);
    }

    #[test]
    fn the_clock_tells_the_phase_and_the_time_left() {
        let mut spec = TestSpec::new(Pattern::Stream, Transport::Tcp);
        let second = 1_000_000_000;
        (spec.phases.warmup_ns, spec.phases.cooldown_ns) = (second, 2 * second);
        spec.phases.stop = Stop::AfterNs(10 * second);
        let mut shown = Shown {
            name: "load".into(),
            phases: spec.phases,
            headline: Side::Far,
            t0_ns: 5 * second,
            warmup_ns: Some(second),
            rate: None,
        };
        let at = |shown: &Shown, seconds: u64| {
            let live = shown.live((5 + seconds) * second);
            (live.phase, live.elapsed.as_secs(), live.planned.map(|p| p.as_secs()), live.left.map(|l| l.as_secs()))
        };
        assert_eq!(at(&shown, 0), ("warmup", 0, Some(1), Some(13)));
        assert_eq!(at(&shown, 4), ("measure", 3, Some(10), Some(9)));
        assert_eq!(at(&shown, 12), ("cooldown", 1, Some(2), Some(1)));
        assert_eq!(at(&shown, 20), ("cooldown", 2, Some(2), Some(0)));
        // A warm-up that ends by itself lasts until a measured interval comes.
        shown.warmup_ns = None;
        assert_eq!(at(&shown, 4).0, "warmup");
        shown.phases.stop = Stop::AfterBytes(1);
        shown.warmup_ns = Some(0);
        assert_eq!(at(&shown, 4), ("measure", 4, None, None));
    }
}
