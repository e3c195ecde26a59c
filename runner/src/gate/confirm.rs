//! Measures again before it judges: `gate.confirm`, and the rule of `plumb bisect`, which measures until each comparison with a
//! baseline is decided.
//!
//! With `gate.confirm` a case with a failing verdict is measured again from its first iteration on, up to `confirm` times. Each
//! attempt is judged by itself. A verdict fails only if it failed at first and in every attempt. The first attempt in which it does
//! not fail makes it inconclusive: two measurements that disagree decide nothing. The rows of attempts follow the case's own
//! iterations with the status `confirm`, and filters leave them out by default.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    time::{Duration, Instant},
};

use analyze::{
    filters::compare::parse_share,
    history::added::results_of,
    judge::{
        VerdictRow,
        baseline::{Baseline, OnMissing, Promise, Terms},
        comparison::Rule,
        environment::Environment,
        power::{Said, looks, said},
        verdicts::observed,
    },
    stats::compare::smallest_p,
};
use netcore::lock::Lock;
use schemas::{
    columns::Row,
    metrics::{self, Metric},
    text::counted,
    units, vocabulary,
    words::{Record, Status, Verdict},
};

use super::Expectations;
use crate::{
    error::Error,
    plan::{
        Plan,
        case::{Case, Member},
    },
    progress::Progress,
    schedule::{
        Bench, Measured, RowSink,
        history::{Done, History, confirmation},
        run::{self, Finished, Settings},
        step::{Enough, Step},
    },
    signals::Interrupts,
};

/// Cases of a plan, with what is needed to measure them again.
pub struct Confirm<'a> {
    pub attempts: u32,
    pub expectations: &'a Expectations<'a>,
    /// All cases of the plan.
    pub cases: &'a [(&'a Step, &'a Finished)],
    pub settings: Settings,
    /// Per case, attempts and their iterations of an interrupted run.
    pub earlier: &'a [Vec<(u32, Done)>],
    pub here: &'a Environment,
    pub stop: &'a Interrupts,
}

impl Confirm<'_> {
    /// Measures failing cases again and withdraws verdicts that are not confirmed. `verdicts` has a list per case.
    pub fn run(
        &self,
        verdicts: &mut [Vec<VerdictRow>],
        bench: &mut dyn Bench,
        sink: &mut dyn RowSink,
        progress: &mut Progress,
    ) -> Result<(), Error> {
        // The last iteration number of each case in the table.
        let mut behind: Vec<u32> = self.cases.iter().map(|(_, finished)| finished.numbers).collect();
        for attempt in 1..=self.attempts {
            // A case that could not be measured has nothing to confirm; `run.retries` is for that.
            let failing: Vec<usize> = (0..self.cases.len())
                .filter(|i| self.cases[*i].1.failed.is_none() && verdicts[*i].iter().any(VerdictRow::fails))
                .collect();
            if failing.is_empty() || self.stop.requested() || sink.is_closed() {
                return Ok(());
            }
            let names: Vec<&str> = failing.iter().map(|i| self.cases[*i].0.name.as_str()).collect();
            progress.say(&format!("measuring again what failed, {attempt} of {}: {}", self.attempts, names.join(", ")));
            let steps: Vec<Step> = failing.iter().map(|i| Step { line: None, ..self.cases[*i].0.clone() }).collect();
            let marks = failing.iter().map(|i| {
                let why: Vec<&str> = verdicts[*i].iter().filter(|v| v.fails()).map(|v| v.assertion.as_str()).collect();
                let said = confirmation(attempt, self.attempts, &format!("{} did not hold", why.join(", ")));
                (self.cases[*i].0.id.clone(), Mark { after: behind[*i], said })
            });
            let mut marked = Marked { marks: marks.collect(), sink };
            let history: History = failing.iter().map(|i| self.earlier_of(*i, attempt)).collect();
            let finished = run::run(&steps, self.settings, &history, bench, &mut marked, progress, self.stop)?;
            let again: Vec<_> = steps.iter().zip(&finished).collect();
            let judged = self.expectations.judge(&again, self.here);
            for ((i, finished), judged) in failing.iter().zip(&finished).zip(judged) {
                behind[*i] += finished.numbers;
                settle(&mut verdicts[*i], finished, &judged, attempt);
            }
        }
        Ok(())
    }

    fn earlier_of(&self, case: usize, attempt: u32) -> Vec<Done> {
        let all = self.earlier.get(case).map(Vec::as_slice).unwrap_or_default();
        all.iter().filter(|(k, _)| *k == attempt).map(|(_, done)| done.clone()).collect()
    }
}

/// Applies an attempt to the failing verdicts of a case.
fn settle(verdicts: &mut [VerdictRow], finished: &Finished, judged: &[VerdictRow], attempt: u32) {
    for verdict in verdicts.iter_mut().filter(|v| v.fails()) {
        if let Some(fault) = &finished.failed {
            verdict.say(&format!("confirmation {attempt} could not be measured: {}", fault.message));
            continue;
        }
        if let Some(why) = &finished.skipped {
            verdict.say(&format!("confirmation {attempt} did not come to its end: {why}"));
            continue;
        }
        let same = |v: &&VerdictRow| {
            (&v.assertion, &v.case, &v.member, v.line, v.column)
                == (&verdict.assertion, &verdict.case, &verdict.member, verdict.line, verdict.column)
        };
        let Some(again) = judged.iter().find(same) else { continue };
        if again.fails() {
            verdict.say(&format!("confirmed by confirmation {attempt}: {}", observed(again)));
        } else {
            let first = observed(verdict);
            verdict.say_first(&format!(
                "not confirmed: {first} at first, {} when measured again ({})",
                observed(again),
                again.verdict
            ));
            verdict.verdict = Verdict::Inconclusive;
        }
    }
}

/// Marks for the rows of a case that is measured again.
struct Mark {
    /// Last iteration number before them.
    after: u32,
    /// Text of the `error` cell.
    said: String,
}

/// A sink that marks rows as confirmations.
struct Marked<'a> {
    marks: BTreeMap<String, Mark>,
    sink: &'a mut dyn RowSink,
}

impl RowSink for Marked<'_> {
    fn rows(&mut self, rows: &[Row]) -> Result<(), Error> {
        let marked = rows.iter().filter(|row| row.record != Some(Record::Summary)).map(|row| {
            let mut row = row.clone();
            if let Some(mark) = row.case_id.as_ref().and_then(|id| self.marks.get(id)) {
                row.iteration = row.iteration.map(|i| i + u64::from(mark.after));
                if row.status == Some(Status::Ok) {
                    row.status = Some(Status::Confirm);
                    row.error = Some(mark.said.clone());
                }
            }
            row
        });
        let marked: Vec<Row> = marked.collect();
        if marked.is_empty() { Ok(()) } else { self.sink.rows(&marked) }
    }

    fn reports(&mut self, step: &Step, iteration: u32, measured: &Measured) -> Result<(), Error> {
        let after = self.marks.get(&step.id).map_or(0, |mark| mark.after);
        self.sink.reports(step, iteration + after, measured)
    }

    fn note(&mut self, sentence: String) {
        self.sink.note(format!("{sentence} (when measured again)"));
    }

    fn is_closed(&self) -> bool {
        self.sink.is_closed()
    }
}

/// Fewest iterations before the first look: fewer cannot be significant at any useful level.
const FIRST: u32 = 5;

/// The comparisons that are asked for.
#[derive(Clone, Debug, clap::Args)]
pub struct Question {
    /// Results of the good commit: a table, a run's folder, or a baseline.
    #[arg(long, value_name = "BASELINE")]
    pub against: PathBuf,
    /// Metric to compare [default: the headline of each case].
    #[arg(short, long, value_name = "METRIC", value_parser = vocabulary::metric)]
    metric: Option<&'static Metric>,
    /// Smallest change for the worse that makes a commit bad; half of the change that is looked for is a good choice.
    #[arg(long, value_name = "RATIO", default_value = "3%", value_parser = parse_share("3%"))]
    min_effect: f64,
    /// Chance of a false answer of a step.
    #[arg(long, value_name = "ALPHA", default_value_t = Rule::DEFAULT.alpha, value_parser = parse_alpha)]
    alpha: f64,
    /// Most iterations of a case.
    #[arg(long = "max-iterations", value_name = "N", default_value_t = 80, value_parser = clap::value_parser!(u32).range(2..))]
    most: u32,
    /// Longest time of a step.
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration)]
    budget: Option<Duration>,
}

fn parse_alpha(text: &str) -> Result<f64, String> {
    let alpha = text.parse::<f64>().ok().filter(|alpha| *alpha > 0.0 && *alpha < 0.5);
    alpha.ok_or_else(|| format!("`{text}`: write a number between 0 and 0.5"))
}

/// Comparisons of a plan's cases with a baseline.
#[derive(Debug)]
pub struct Until {
    baseline: Baseline,
    /// The numbers of iterations at which they are tested.
    looks: Vec<u32>,
    deadline: Option<Instant>,
    found: Lock<Found>,
}

/// The comparisons at the last looks.
#[derive(Debug, Default)]
struct Found {
    is_worse: bool,
    of_case: BTreeMap<String, Vec<(Said, VerdictRow)>>,
}

impl Until {
    /// Reads the baseline, and prepares the plan: cases that do not measure the metric are left out, and so are
    /// expectations of the plan's own. What could never be decided is refused.
    pub fn of(plan: &mut Plan, question: &Question) -> Result<Self, Error> {
        let measured = |member: &Member| match question.metric {
            Some(metric) => Some(metric).filter(|metric| member.lacks(metric).is_none()),
            None => member.headline(),
        };
        plan.cases.retain(|case| case.skip.is_none() && case.members.iter().any(|m| measured(m).is_some()));
        if plan.cases.is_empty() {
            let metric = question.metric.map_or("anything", |metric| metric.name);
            return Err(Error::Usage(format!("no case of {} measures {metric}", plan.path)));
        }
        if let Some(case) = plan.cases.iter().find(|case| case.find.is_some()) {
            return Err(Error::Usage(format!(
                "case {} is a search, which has no iterations to add: leave it out with --only",
                case.name
            )));
        }
        plan.baseline = None;
        plan.gate = <_>::default();
        let least = plan.cases.iter().map(|case| case.policy.min).min().unwrap_or(FIRST);
        let looks = looks(least.clamp(FIRST, question.most.max(FIRST)), question.most);
        for case in &mut plan.cases {
            case.asserts.clear();
            (case.policy.min, case.policy.max, case.policy.margin) = (looks[0], question.most, None);
        }
        let comparisons: usize = plan.cases.iter().map(|case| case.members.iter().filter_map(measured).count()).sum();
        // The end of the time is a look of its own.
        let tests = comparisons * (looks.len() + usize::from(question.budget.is_some()));
        let alpha = question.alpha / tests as f64;
        let source = results_of(&question.against);
        if !source.exists() {
            return Err(Error::Usage(format!(
                "there is no {}: a table of results, or the folder of a run, is needed to compare with",
                source.display()
            )));
        }
        let terms = Terms {
            promises: promises(&plan.cases, &measured, question.min_effect, alpha),
            source,
            on_missing: OnMissing::Fail,
            // Machines are told apart before anything is measured.
            require_same: Some(Vec::new()),
            planned: BTreeMap::new(),
        };
        let baseline = Baseline::read(terms)?;
        suffices(&baseline, &plan.cases, alpha, question.most)?;
        let deadline = question.budget.and_then(|budget| Instant::now().checked_add(budget));
        Ok(Self { baseline, looks, deadline, found: Lock::default() })
    }

    /// The comparisons at their last looks.
    pub fn outcome(&self) -> Vec<(Said, VerdictRow)> {
        let found = self.found.lock();
        found.of_case.values().flatten().cloned().collect()
    }

    /// The number of iterations that the baseline has for a row's comparison.
    pub fn of_baseline(&self, row: &VerdictRow) -> usize {
        let counts = self.baseline.counts();
        let own = counts.iter().find(|(promise, id, _)| promise.metric.column == row.metric && *id == row.case_id);
        own.map_or(0, |(.., count)| *count)
    }
}

impl Enough for Until {
    fn check(&self, here: &Environment) -> Result<Option<String>, Error> {
        match self.baseline.machine_differs(here) {
            Ok(None) => Ok(None),
            Ok(Some(what)) => Err(Error::Usage(format!(
                "the baseline {} is of another machine: {what}: measure one on this machine",
                self.baseline.source().display()
            ))),
            Err(why) => Ok(Some(why.to_owned())),
        }
    }

    fn enough(&self, step: &Step, so_far: &Finished) -> bool {
        let is_late = self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        let mut found = self.found.lock();
        // One change for the worse is an answer.
        if found.is_worse {
            return true;
        }
        if !self.looks.contains(&so_far.done) && !is_late {
            return false;
        }
        let values = super::promised(step, so_far, self.baseline.promises());
        let rows = self.baseline.judge(&values, &Environment::default());
        let all: Vec<(Said, VerdictRow)> = rows
            .into_iter()
            .map(|row| {
                let metric = metrics::METRICS.iter().find(|metric| metric.column == row.metric);
                (metric.map_or(Said::Undecided, |metric| said(metric, &row)), row)
            })
            .collect();
        let is_decided = all.iter().all(|(said, _)| *said != Said::Undecided);
        found.is_worse = all.iter().any(|(said, _)| *said == Said::Worse);
        found.of_case.insert(step.id.clone(), all);
        is_decided || found.is_worse || is_late || Some(&so_far.done) >= self.looks.last()
    }
}

/// One promise per metric, about the cases that are compared by it.
pub(super) fn promises<'a>(
    cases: impl IntoIterator<Item = &'a Case>,
    measured: &dyn Fn(&Member) -> Option<&'static Metric>,
    min_effect: f64,
    alpha: f64,
) -> Vec<Promise> {
    let mut all: Vec<Promise> = Vec::new();
    for case in cases {
        for metric in case.members.iter().filter_map(measured) {
            let place = all.iter().position(|promise| promise.metric.name == metric.name);
            let place = place.unwrap_or_else(|| {
                let rule = Rule { alpha, min_ratio: min_effect, ..Rule::of(metric) };
                let (file, line, column) = (String::new(), None, None);
                all.push(Promise { metric, rule, case_ids: Vec::new(), file, line, column });
                all.len() - 1
            });
            if !all[place].case_ids.contains(&case.id) {
                all[place].case_ids.push(case.id.clone());
            }
        }
    }
    all
}

/// Refuses a baseline without a case, or with so few iterations that no number of new ones decides.
fn suffices(baseline: &Baseline, cases: &[Case], alpha: f64, most: u32) -> Result<(), Error> {
    let source = baseline.source().display();
    let name = |id: &str| cases.iter().find(|case| case.id == id).map_or("", |case| &*case.name);
    for (promise, id, have) in baseline.counts() {
        let metric = promise.metric.name;
        if have == 0 {
            return Err(Error::Usage(format!(
                "{source} has no {metric} of case {} ({id}): measure it with this plan, or leave the case out with --only",
                name(id)
            )));
        }
        if smallest_p(have, most as usize) > alpha {
            let needed = (have..=have + 1000).find(|n| smallest_p(*n, most as usize) <= alpha);
            return Err(Error::Usage(format!(
                "{source} has {} of case {}, and no {most} new ones can decide at α = {}: {}",
                counted(have, "iteration"),
                name(id),
                units::three_digits(alpha),
                match needed {
                    Some(needed) => format!("measure it with at least {needed}"),
                    None => "raise --max-iterations".to_owned(),
                }
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        plan::{LoadOptions, load_str, model::Order},
        progress::Mode,
        schedule::{
            fake::{FakeBench, Rows, stream},
            step,
        },
    };

    fn plan() -> Plan {
        let text = "version: 1\nname: t\ngate: {confirm: 2}\ntests:\n  a: {workload: tcp_stream, duration: 1s, iterations: 2, assert: \
                    [throughput >= 8kbit/s]}\n";
        load_str("p.yaml", text, &LoadOptions::default()).unwrap_or_else(|e| panic!("{e:?}"))
    }

    /// The verdict if the iterations move these bytes, and the rows written.
    fn verdict(bytes: &[u64]) -> (VerdictRow, Vec<String>) {
        let plan = plan();
        let steps = step::steps(&plan, "r", &[]);
        let expectations = Expectations::of(&plan).unwrap();
        let settings = Settings { order: Order::Interleave, seed: 1, fail_fast: false, retries: 0 };
        let (mut bench, mut rows) = (FakeBench::default(), Rows::default());
        bench.results.extend(bytes.iter().map(|b| Ok(stream(*b))));
        let (mut progress, stop) = (Progress::new(Mode::Silent), Interrupts::uncaught().unwrap());
        let finished =
            run::run(&steps, settings, &History::new(), &mut bench, &mut rows, &mut progress, &stop).unwrap();
        let cases: Vec<_> = steps.iter().zip(&finished).collect();
        let here = Environment::default();
        let mut verdicts = expectations.judge(&cases, &here);
        let confirm = Confirm {
            attempts: 2,
            expectations: &expectations,
            cases: &cases,
            settings,
            earlier: &[],
            here: &here,
            stop: &stop,
        };
        confirm.run(&mut verdicts, &mut bench, &mut rows, &mut progress).unwrap();
        (verdicts[0][0].clone(), rows.of("a"))
    }

    #[test]
    fn what_passes_is_not_measured_again() {
        let (row, written) = verdict(&[2000; 9]);
        assert_eq!((row.verdict.as_str(), written.len()), ("pass", 3));
    }

    #[test]
    fn what_fails_every_time_fails() {
        let (row, written) = verdict(&[500; 9]);
        assert!(row.fails() && row.note.contains("confirmed by confirmation 2"), "{}", row.note);
        assert_eq!(
            written,
            [
                "iteration ok 1",
                "iteration ok 2",
                "summary ok",
                "iteration confirm 3",
                "iteration confirm 4",
                "iteration confirm 5",
                "iteration confirm 6"
            ]
        );
    }

    #[test]
    fn two_measurements_that_disagree_decide_nothing() {
        let (row, written) = verdict(&[500, 500, 500, 500, 2000, 2000]);
        assert_eq!(row.verdict, Verdict::Inconclusive);
        assert!(
            row.note.starts_with("not confirmed: 4.00 kbit/s at first, 16.0 kbit/s when measured again (pass)"),
            "{}",
            row.note
        );
        assert_eq!(written.len(), 7);
        // The first attempt that does not fail ends it.
        assert_eq!(verdict(&[500, 500, 2000, 2000]).1.len(), 5);
    }
}
