//! The loop: measures the next iteration of the next case, writes its rows, and decides whether that is enough.
//!
//! It measures through [`Bench`], so every rule here is tested without a network.
//!
//! - `iteration`: one iteration, with its retries
//! - `cut`: iterations that a signal ended early
//! - `ending`: summaries, warnings and skipped cases
//! - `probing`: the iterations of a search
//! - `line`: `stop_when`, which skips the rest of an axis
//! - `together`: whether the ends measured at the same time

mod arrived;
mod cut;
mod ending;
mod iteration;
mod line;
mod probing;
mod together;

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use schemas::{
    columns::Row,
    metrics::{LIMITED_BY, METRICS},
    words::{Search as Finding, Way},
};

use super::{
    bench::{Bench, MeasureError, RowSink},
    confidence::Samples,
    history::History,
    order,
    rows::summary::Summary,
    search::Search,
    step::Step,
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
        let pass = order::pass(settings.order, settings.seed, &done, |i| steps[i].round.as_ref());
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

#[cfg(test)]
mod tests;
