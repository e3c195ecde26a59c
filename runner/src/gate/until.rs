//! Measures until each comparison with a baseline is decided: the rule of `plumb bisect`.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Mutex, PoisonError},
    time::Instant,
};

use analyze::{
    history::added::results_of,
    judge::{
        VerdictRow,
        baseline::{Baseline, OnMissing, Promise, Terms},
        comparison::Rule,
        environment::Environment,
        power::{Looks, Said, said},
    },
    stats::compare::smallest_p,
};
use schemas::metrics::{self, Metric};

use super::evidence;
use crate::{
    error::Error,
    plan::{
        Plan,
        case::{Case, Member},
    },
    schedule::{
        run::Finished,
        step::{Enough, Step},
    },
};

/// Fewest iterations before the first look: fewer cannot be significant at any useful level.
const FIRST: u32 = 5;

/// The comparisons that are asked for.
#[derive(Clone, Debug)]
pub struct Question {
    /// The results table of the earlier run, or its folder.
    pub against: PathBuf,
    /// `None`: the headline of each case.
    pub metric: Option<&'static Metric>,
    /// The smallest change that counts, over the baseline's centre.
    pub min_effect: f64,
    /// Chance of a false decision.
    pub alpha: f64,
    /// Most iterations of a case.
    pub most: u32,
    /// When the comparisons end undecided.
    pub deadline: Option<Instant>,
}

/// Comparisons of a plan's cases with a baseline.
#[derive(Debug)]
pub struct Until {
    baseline: Baseline,
    looks: Looks,
    deadline: Option<Instant>,
    found: Mutex<Found>,
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
        let looks = Looks::new(least.clamp(FIRST, question.most.max(FIRST)), question.most);
        for case in &mut plan.cases {
            case.asserts.clear();
            (case.policy.min, case.policy.max, case.policy.margin) = (looks.first(), looks.last(), None);
        }
        let comparisons: usize = plan.cases.iter().map(|case| case.members.iter().filter_map(measured).count()).sum();
        // The end of the time is a look of its own.
        let tests = comparisons * (looks.count() + usize::from(question.deadline.is_some()));
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
        };
        let baseline = Baseline::read(terms)?;
        suffices(&baseline, &plan.cases, alpha, looks.last())?;
        Ok(Self { baseline, looks, deadline: question.deadline, found: Mutex::default() })
    }

    /// The comparisons at their last looks.
    pub fn outcome(&self) -> Vec<(Said, VerdictRow)> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
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
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        // One change for the worse is an answer.
        if found.is_worse {
            return true;
        }
        if !self.looks.has(so_far.done) && !is_late {
            return false;
        }
        let values = evidence::promised(step, so_far, self.baseline.promises());
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
        is_decided || found.is_worse || is_late || so_far.done >= self.looks.last()
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
                let rule = Rule {
                    better: metric.better,
                    alpha,
                    min_ratio: min_effect,
                    range: metric.range(),
                    ..Rule::DEFAULT
                };
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
                "{source} has {have} iteration{} of case {}, and no {most} new ones can decide at α = {}: {}",
                if have == 1 { "" } else { "s" },
                name(id),
                schemas::units::three_digits(alpha),
                match needed {
                    Some(needed) => format!("measure it with at least {needed}"),
                    None => "raise --max-iterations".to_owned(),
                }
            )));
        }
    }
    Ok(())
}
