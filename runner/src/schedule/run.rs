//! The loop: measures the next iteration of the next case, writes its rows, and decides whether that is enough.
//!
//! It measures through [`Bench`], so every rule here is tested without a network. The iterations of a search are probes, and
//! its answer is the result of the case. With `stop_when` the cases of a line run one after the other, and the rest is skipped
//! once the condition holds.
//!
//! - `iteration`: one iteration, with its retries
//! - `checked`: whether the ends measured at the same time, and what they count is plausible
//! - `ending`: summaries, warnings, skipped cases, and iterations that a signal ended early

mod checked;
mod ending;
mod iteration;

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use schemas::{
    columns::Row,
    metrics::{LIMITED_BY, METRICS},
    units::human,
    words::{Phase, Record, Search as Finding, Way},
};

use super::{
    Bench, MeasureError, Measured, RowSink,
    confidence::Samples,
    history::{Done, History},
    rows::summary::Summary,
    search::{Answer, Next, Search},
    step::{self, Step},
};
use crate::{
    error::Error,
    plan::{case, model::Order},
    progress::{Position, Progress},
    signals::Interrupts,
};

#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub order: Order,
    /// Seed of the random order.
    pub seed: u64,
    /// Whether to stop at the first case that fails.
    pub fail_fast: bool,
    /// Retries of a failed iteration.
    pub retries: u32,
}

/// The values of every metric in one iteration's row, in the order of [`METRICS`]; then the index of its cause.
pub type Values = Vec<Option<f64>>;

/// The place of a column in [`Values`].
pub fn place_of(column: &str) -> Option<usize> {
    METRICS.iter().chain([LIMITED_BY]).position(|metric| metric.column == column)
}

/// Half the width of an interval, as a share of the mean, from which readers of the numbers hear what may have widened it.
pub const WIDE: f64 = 0.1;

/// A case after the run.
#[derive(Debug, Default)]
pub struct Finished {
    /// Iterations with a result.
    pub done: u32,
    /// Number of its last iteration or probe in the results.
    pub numbers: u32,
    /// Why it failed.
    pub failed: Option<MeasureError>,
    /// Why it did not run, or not to its end.
    pub skipped: Option<String>,
    /// Whether the plan left it out (`skip`, `stop_when`): its assertions do not count then.
    pub left_out: bool,
    /// The answer of a search, as a sentence.
    pub answer: Option<String>,
    /// Who had its CPUs, as a sentence, if its interval is wide and nothing else says so.
    pub unsteady: Option<String>,
    /// Summary rows, member by member and way by way; the total of a group follows its last member.
    pub summaries: Vec<(usize, Way, Row)>,
    /// Values to judge by member and way, iteration by iteration.
    pub values: BTreeMap<(usize, Way), Vec<Values>>,
    /// The same by member and stream.
    pub streams: BTreeMap<(usize, u64), Vec<Values>>,
}

/// A case during the run.
struct State {
    result: Finished,
    open: bool,
    /// Its iteration that a signal ended early, as a sentence.
    cut: Option<String>,
    samples: Samples,
    /// Shares of what was read that had arrived out of order before the measure phase, one per iteration.
    out_of_order: Vec<f64>,
    /// The headline of each member and way, for its own summary row.
    own: BTreeMap<(usize, Way), Samples>,
    summaries: BTreeMap<(usize, Way), Summary>,
    /// `None` when it has an answer.
    search: Option<Search>,
    /// Outcome of a search, and the lowest load that did not hold.
    answer: Option<(Finding, Option<f64>)>,
}

/// Runs the steps to their ends, starting after `history`. Ends early only if output cannot be written.
pub fn run(
    steps: &[Step],
    settings: Settings,
    history: &History,
    bench: &mut dyn Bench,
    sink: &mut dyn RowSink,
    progress: &mut Progress,
    stop: &Interrupts,
) -> Result<Vec<Finished>, Error> {
    let states = steps.iter().map(State::new).collect();
    let mut run = Run {
        steps,
        settings,
        sink,
        progress,
        stop,
        states,
        give_up: None,
        failures: Vec::new(),
        cpu_taken: HashMap::new(),
    };
    for (i, step) in steps.iter().enumerate() {
        if let Some(reason) = &step.skip {
            run.leave_out(i, if reason.is_empty() { "the plan says skip" } else { reason })?;
        }
    }
    for (i, done) in history.iter().enumerate().filter(|(_, done)| !done.is_empty()) {
        if steps[i].find.is_some() {
            for probe in done {
                run.absorb_probe(i, probe.clone(), Duration::ZERO);
            }
            run.answer_if_known(i)?;
            continue;
        }
        for iteration in done {
            run.absorb(i, iteration);
        }
        if run.states[i].open && run.has_enough(i) {
            run.conclude(i)?;
        }
    }
    loop {
        let done: Vec<Option<u32>> = (0..steps.len())
            .map(|i| (run.states[i].open && !run.waits(i)).then_some(run.states[i].result.done))
            .collect();
        let pass = step::pass(settings.order, settings.seed, &done, |i| steps[i].round.as_ref());
        if pass.is_empty() || run.over() {
            break;
        }
        for cases in pass {
            // A case that ended may have skipped others (`stop_when`).
            let cases: Vec<usize> = cases.into_iter().filter(|i| run.states[*i].open).collect();
            if !run.over() && !cases.is_empty() {
                run.iterate(&cases, bench)?;
                for i in cases.into_iter().filter(|i| !run.states[*i].open) {
                    bench.done(&steps[i], run.progress);
                }
            }
        }
    }
    run.close()?;
    Ok(run.states.into_iter().map(State::finish).collect())
}

struct Run<'a> {
    steps: &'a [Step],
    settings: Settings,
    sink: &'a mut dyn RowSink,
    progress: &'a mut Progress,
    stop: &'a Interrupts,
    states: Vec<State>,
    /// Why nothing more runs.
    give_up: Option<String>,
    failures: Vec<Failure>,
    /// By survey: the shares of the time in which others took a CPU from its measurements.
    cpu_taken: HashMap<String, Vec<f64>>,
}

/// Cases that failed with the same words.
struct Failure {
    message: String,
    /// The words with the first of the cases.
    sentence: String,
    /// The number of further cases.
    more: usize,
}

impl State {
    fn new(step: &Step) -> Self {
        Self {
            result: Finished::default(),
            open: true,
            cut: None,
            samples: Samples::new(step.policy.clone()),
            out_of_order: Vec::new(),
            own: BTreeMap::new(),
            summaries: BTreeMap::new(),
            search: Search::new(step),
            answer: None,
        }
    }

    fn finish(self) -> Finished {
        let numbers = self.result.numbers.max(self.result.done);
        Finished { numbers, ..self.result }
    }
}

impl Run<'_> {
    fn over(&self) -> bool {
        self.give_up.is_some() || self.sink.is_closed() || self.stop.requested()
    }

    fn has_enough(&self, i: usize) -> bool {
        let (step, state) = (&self.steps[i], &self.states[i]);
        match &step.until {
            Some(rule) => rule.enough(step, &state.result),
            None => state.samples.enough(state.result.done),
        }
    }

    fn position(&self, i: usize) -> Position {
        let (step, state) = (&self.steps[i], &self.states[i]);
        let open = self.steps.iter().zip(&self.states).filter(|(_, s)| s.open);
        let to_do = |step: &Step, s: &State| {
            s.search.as_ref().map_or_else(|| step.policy.min.saturating_sub(s.result.done).max(1), Search::left)
        };
        Position {
            case: i + 1,
            cases: self.steps.len(),
            name: step.shown(),
            iteration: state.result.done + 1,
            min: step.policy.min,
            max: step.policy.max,
            range: state.search.as_ref().map(Search::range),
            margin: state.samples.worst_margin(),
            goal: step.policy.margin,
            left: case::one_after_the_other(
                open.map(|(step, s)| (&step.case, step.cost() * to_do(step, s))),
                Duration::max,
            )
            .into_iter()
            .sum(),
        }
    }
}

impl Run<'_> {
    /// Writes a probe, and ends its search if that is enough.
    pub(super) fn take_probe(
        &mut self,
        i: usize,
        at_load: &Step,
        number: u32,
        measured: &Measured,
    ) -> Result<(), Error> {
        let (mut rows, mut done) = self.rows_of(at_load, number, measured);
        let of_probe = |row: &&mut Row| row.record == Some(Record::Iteration);
        for row in rows.iter_mut().chain(done.measured.iter_mut().map(|(_, _, row)| row)).filter(of_probe) {
            row.record = Some(Record::Probe);
        }
        if let Some(cut) = ending::of(at_load, measured, self.stop) {
            return self.cut_off(i, at_load, measured, rows, cut, number);
        }
        // The bound of the clocks' error is half of the fastest round trip.
        let round_trip_ns = measured.members.iter().map(|ends| ends.clock_bound_ns.saturating_mul(2)).max();
        let showed = self.absorb_probe(i, done, Duration::from_nanos(round_trip_ns.unwrap_or(0)));
        for row in rows.iter_mut().filter(|r| r.phase == Some(Phase::Measure)) {
            row.search = showed;
        }
        self.sink.reports(at_load, number, measured)?;
        self.sink.rows(&rows)?;
        self.answer_if_known(i)
    }

    /// Counts a probe, measured now or before an interruption. Returns its finding. `delay`: the longest that data may be on
    /// their way.
    fn absorb_probe(&mut self, i: usize, done: Done, delay: Duration) -> Option<Finding> {
        let state = &mut self.states[i];
        state.result.done += 1;
        state.search.as_mut()?.take(done, delay)
    }

    /// Ends a search if it needs no more probes.
    fn answer_if_known(&mut self, i: usize) -> Result<(), Error> {
        match self.states[i].search.as_ref().map(Search::next) {
            Some(Next::Done(answer)) => self.answer(i, answer),
            _ => Ok(()),
        }
    }

    /// Ends a search. The probes of the answer's load become the iterations of the case.
    pub(super) fn answer(&mut self, i: usize, answer: Answer) -> Result<(), Error> {
        let step = &self.steps[i];
        let Some(mut search) = self.states[i].search.take() else { return Ok(()) };
        let sentence = search.sentence(&step.name, &answer);
        let state = &mut self.states[i];
        (state.result.numbers, state.result.done) = (state.result.done, 0);
        let mut rows = Vec::new();
        for (mut done, finding) in answer.held.map(|load| search.release(load)).unwrap_or_default() {
            let number = self.states[i].result.done + 1;
            for (_, _, row) in &mut done.measured {
                row.record = Some(Record::Iteration);
                row.iteration = Some(number.into());
                row.search = Some(finding);
                rows.push(row.clone());
            }
            for (_, _, row) in &mut done.streams {
                row.iteration = Some(number.into());
            }
            self.absorb(i, &done);
        }
        self.sink.rows(&rows)?;
        let above = answer.above.and_then(|load| search.in_rows(load));
        self.states[i].answer = Some((answer.outcome, above));
        self.states[i].result.answer = Some(sentence.clone());
        match answer.outcome {
            Finding::Found | Finding::AtLeast => self.progress.note(&sentence),
            _ => self.progress.warn(&sentence),
        }
        self.sink.note(sentence);
        self.conclude(i)
    }
}

impl Run<'_> {
    /// Whether an earlier case of its line has not ended.
    pub(super) fn waits(&self, i: usize) -> bool {
        let Some(first) = self.steps[i].line else { return false };
        (first..i).any(|j| self.steps[j].line == Some(first) && self.states[j].open)
    }

    /// Skips the rest of a case's line if the condition holds for the mean of its iterations.
    pub(super) fn leave_line(&mut self, i: usize) -> Result<(), Error> {
        let steps = self.steps;
        let Some((first, stop)) = steps[i].line.zip(steps[i].stop_when.as_ref()) else { return Ok(()) };
        // The total of a group, or of both directions.
        let Some(values) = self.states[i].result.values.values().next_back() else { return Ok(()) };
        let Some(place) = place_of(stop.that.metric.column) else { return Ok(()) };
        let values: Vec<f64> = values.iter().filter_map(|v| v[place]).collect();
        let Some(mean) = analyze::stats::moments::mean(&values) else { return Ok(()) };
        if !stop.that.operator.holds(mean, stop.that.limit) {
            return Ok(());
        }
        let reason =
            format!("stop_when: {} at {} ({})", stop.that.text, steps[i].name, human(stop.that.metric.unit, mean));
        for (j, step) in steps.iter().enumerate().skip(i + 1) {
            if step.line == Some(first) && self.states[j].open {
                self.leave_out(j, &reason)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
