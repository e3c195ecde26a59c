//! Display of a running measurement: the progress line, and interim results with `--interim`.

use std::time::Duration;

use analyze::stats::series;
use chrono::DateTime;
use netcore::{
    client::Observer,
    report::{FlowWindow, Phase, Window},
    spec::{Direction, Pattern, Role, Side, TestSpec},
};
use schemas::units::{Unit, human};

use crate::{
    plan::estimate::measure_length,
    progress::{Live, Progress},
};

/// Shows intervals, and decides when a warm-up has settled.
pub struct Watch<'a> {
    progress: &'a mut Progress,
    spec: TestSpec,
    name: String,
    interim: bool,
    /// Rate of the headline's end in each interval of a warm-up that ends by itself.
    warming: Vec<f64>,
    settled: bool,
}

impl<'a> Watch<'a> {
    pub fn new(progress: &'a mut Progress, spec: &TestSpec, name: &str, interim: bool) -> Self {
        Self { progress, spec: spec.clone(), name: name.to_owned(), interim, warming: Vec::new(), settled: false }
    }

    /// Whether the warm-up has settled; `None`: its length is fixed.
    pub fn settled(&self) -> Option<bool> {
        (self.spec.phases.settle_ns > 0).then_some(self.settled)
    }
}

impl Observer for Watch<'_> {
    fn interval(&mut self, side: Side, window: &Window) {
        let rate = rate(&self.spec, window);
        // The progress line shows the near end, interim results the end that counts the headline.
        if side == Side::Near {
            let phases = &self.spec.phases;
            let end_ns = window.start_ns.saturating_add_unsigned(window.elapsed_ns);
            let measured = measure_length(&self.spec).unwrap_or_default();
            let (before, planned) = match window.phase {
                Phase::Warmup => (-phases.warmup_ns.cast_signed(), Some(Duration::from_nanos(phases.warmup_ns))),
                Phase::Measure => (0, measure_length(&self.spec)),
                Phase::Cooldown => {
                    (i64::try_from(measured.as_nanos()).unwrap_or(0), Some(Duration::from_nanos(phases.cooldown_ns)))
                }
            };
            let elapsed = Duration::from_nanos(u64::try_from(end_ns.saturating_sub(before)).unwrap_or(0));
            self.progress.live(&Live { phase: window.phase.name(), elapsed, planned, rate });
        }
        if side != headline_side(&self.spec) {
            return;
        }
        let Some((value, unit)) = rate else { return };
        if window.phase == Phase::Warmup && self.spec.phases.settle_ns > 0 {
            self.warming.push(value);
            // Tested once per batch of the criterion: more often finds no more, and raises the false alarms.
            if self.warming.len().is_multiple_of(series::BATCH) {
                self.settled |= series::settled(&self.warming);
            }
        } else if self.interim {
            self.progress.print(&interim_line(&self.name, window, value, unit));
        }
    }

    fn has_settled(&mut self) -> bool {
        self.settled
    }
}

/// The end that counts the result: the receiver of a stream, the requester otherwise.
fn headline_side(spec: &TestSpec) -> Side {
    match (spec.pattern, spec.direction) {
        (Pattern::Stream, Direction::Forward) if !spec.alone => Side::Far,
        _ => Side::Near,
    }
}

/// Rate of one end in an interval: bytes received if it receives, else bytes sent; or transactions.
fn rate(spec: &TestSpec, window: &Window) -> Option<(f64, Unit)> {
    let seconds = window.elapsed_ns as f64 / 1e9;
    if seconds <= 0.0 {
        return None;
    }
    let sum = |count: fn(&FlowWindow) -> u64| window.flows.iter().map(count).sum::<u64>() as f64 / seconds;
    Some(match spec.pattern {
        Pattern::Stream => {
            let receivers = || window.flows.iter().filter(|f| matches!(f.role, Role::Receiver | Role::Duplex));
            let bytes = match receivers().next() {
                Some(_) => receivers().map(|f| f.counts.bytes_received).sum::<u64>() as f64 / seconds,
                None => sum(|f| f.counts.bytes_sent),
            };
            (bytes * 8.0, Unit::BitsPerSecond)
        }
        _ => (sum(|f| f.counts.transactions), Unit::PerSecond),
    })
}

/// `upload  measure  42.1 Gbit/s  over 1.000 s, ending 12:34:56.789Z`
fn interim_line(name: &str, window: &Window, value: f64, unit: Unit) -> String {
    let ending = DateTime::from_timestamp_nanos(window.wall_end_ns).format("%H:%M:%S%.3fZ");
    let seconds = window.elapsed_ns as f64 / 1e9;
    format!("{name}  {}  {}  over {seconds:.3} s, ending {ending}", window.phase.name(), human(unit, value))
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
        let (value, unit) = rate(&spec, &w).unwrap();
        assert_eq!(
            interim_line("upload", &w, value, unit),
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
}
