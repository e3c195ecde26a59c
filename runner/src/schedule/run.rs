//! The loop: next case, next iteration, rows out, enough?
//!
//! The loop knows no socket: what measures is behind [`Bench`], so that every rule here is tested without a network.
//!
//! - `iteration`: one iteration, tried again where it may be
//! - `ending`: what is said of a case when it has ended
//! - `probing`: the iterations of a search
//! - `line`: the cases of an axis that is left once something holds

mod ending;
mod iteration;
mod line;
mod probing;
mod together;

use std::collections::BTreeMap;

use netcore::control::stop::{StopFlag, Urgency};
use schemas::{columns::Row, words::Way};

use super::{
    bench::{Bench, MeasureError, RowSink},
    confidence::Samples,
    history::History,
    order,
    rows::summary::Summary,
    search::{Outcome, Search},
    step::Step,
};
use crate::{
    error::Error,
    plan::model::Order,
    progress::{Position, Progress},
};

/// How the cases are run.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The order of iterations.
    pub order: Order,
    /// Seed of the random order.
    pub seed: u64,
    /// Stop at the first case that fails.
    pub fail_fast: bool,
    /// How often a failed iteration is tried again.
    pub retries: u32,
}

/// The values of every metric in one iteration's row, in the registry's order.
pub type Values = Vec<Option<f64>>;

/// A case after the run.
#[derive(Debug)]
pub struct Finished {
    /// Iterations with a result.
    pub done: u32,
    /// The highest number that one of its iterations has in the results, or one of its probes.
    pub numbers: u32,
    /// Why it failed.
    pub failed: Option<MeasureError>,
    /// Why it did not run, or not to its end.
    pub skipped: Option<String>,
    /// Whether it did not run because the plan says so (`skip`, `stop_when`): nothing was promised of it then.
    pub left_out: bool,
    /// What a search found, as a sentence.
    pub answer: Option<String>,
    /// Summary rows, member by member and way by way; the total of a group stands behind its last member.
    pub summaries: Vec<(usize, Way, Row)>,
    /// Values by member and way, iteration by iteration: what is judged.
    pub values: BTreeMap<(usize, Way), Vec<Values>>,
    /// The same by member and stream.
    pub streams: BTreeMap<(usize, u64), Vec<Values>>,
}

struct State {
    samples: Samples,
    /// What is searched, until there is an answer.
    search: Option<Search>,
    /// How a search ended, the lowest load that did not hold, and the sentence.
    answer: Option<(Outcome, Option<f64>, String)>,
    /// The headline of each member and way by itself, for its own summary row.
    own: BTreeMap<(usize, Way), Samples>,
    done: u32,
    /// Of a search that has ended, how many probes there were.
    probes: u32,
    open: bool,
    failed: Option<MeasureError>,
    skipped: Option<String>,
    left_out: bool,
    summaries: BTreeMap<(usize, Way), Summary>,
    values: BTreeMap<(usize, Way), Vec<Values>>,
    streams: BTreeMap<(usize, u64), Vec<Values>>,
    written: Vec<(usize, Way, Row)>,
}

/// Runs the steps to their ends, from where `history` (empty: the beginning) left them, and says what became of each. Only output that cannot be written ends it early.
pub fn run(
    steps: &[Step],
    settings: Settings,
    history: &History,
    bench: &mut dyn Bench,
    sink: &mut dyn RowSink,
    progress: &mut Progress,
    stop: &StopFlag,
) -> Result<Vec<Finished>, Error> {
    let mut run =
        Run { steps, settings, sink, progress, stop, states: steps.iter().map(State::new).collect(), give_up: None };
    for (i, step) in steps.iter().enumerate() {
        if let Some(reason) = &step.skip {
            run.leave_out(i, if reason.is_empty() { "the plan says skip" } else { reason })?;
        }
    }
    for (i, done) in history.iter().enumerate().filter(|(_, done)| !done.is_empty()) {
        if steps[i].find.is_some() {
            for probe in done {
                run.absorb_probe(i, probe.clone());
            }
            run.answer_if_known(i)?;
            continue;
        }
        for iteration in done {
            run.absorb(i, iteration);
        }
        let state = &run.states[i];
        if state.open && state.samples.enough(state.done) {
            run.conclude(i)?;
        }
    }
    loop {
        let done: Vec<Option<u32>> =
            (0..steps.len()).map(|i| (run.states[i].open && !run.waits(i)).then_some(run.states[i].done)).collect();
        let round = order::round(settings.order, settings.seed, &done);
        if round.is_empty() || run.over() {
            break;
        }
        for i in round {
            // One that ended may have left others out.
            if !run.over() && run.states[i].open {
                run.iterate(i, bench)?;
                if !run.states[i].open {
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
    stop: &'a StopFlag,
    states: Vec<State>,
    /// Why nothing more is run.
    give_up: Option<String>,
}

impl State {
    fn new(step: &Step) -> Self {
        Self {
            samples: Samples::new(step.policy.clone()),
            search: Search::new(step),
            answer: None,
            own: BTreeMap::new(),
            done: 0,
            probes: 0,
            open: true,
            failed: None,
            skipped: None,
            left_out: false,
            summaries: BTreeMap::new(),
            values: BTreeMap::new(),
            streams: BTreeMap::new(),
            written: Vec::new(),
        }
    }

    fn finish(self) -> Finished {
        Finished {
            done: self.done,
            numbers: self.probes.max(self.done),
            failed: self.failed,
            skipped: self.skipped,
            left_out: self.left_out,
            answer: self.answer.map(|(_, _, sentence)| sentence),
            summaries: self.written,
            values: self.values,
            streams: self.streams,
        }
    }
}

impl Run<'_> {
    fn over(&self) -> bool {
        self.give_up.is_some() || self.sink.is_closed() || self.stop.urgency() != Urgency::None
    }

    fn position(&self, i: usize) -> Position {
        let (step, state) = (&self.steps[i], &self.states[i]);
        let left = self.steps.iter().zip(&self.states).filter(|(_, s)| s.open);
        let to_do = |step: &Step, s: &State| {
            s.search.as_ref().map_or_else(|| step.policy.min.saturating_sub(s.done).max(1), Search::left)
        };
        Position {
            case: i + 1,
            cases: self.steps.len(),
            name: step.name.clone(),
            iteration: state.done + 1,
            min: step.policy.min,
            max: step.policy.max,
            range: state.search.as_ref().map(Search::range),
            margin: state.samples.worst_margin(),
            goal: step.policy.margin,
            left: left.map(|(step, s)| step.cost() * to_do(step, s)).sum(),
        }
    }
}

#[cfg(test)]
mod tests;
