//! Whether the iterations of a plan can tell two runs of it apart, and how many a change of a given size takes:
//! `plumb check`.

use std::collections::BTreeMap;

use analyze::{
    judge::{
        baseline::{Promise, subjects},
        comparison::Rule,
        power::Noise,
        samples::{Case as Measured, Index},
    },
    stats::compare::needed_per_side,
};
use netcore::lock::Lock;
use schemas::metrics::Metric;

use super::{baseline, confirm};
use crate::{
    plan::{
        Plan,
        case::{Case, Member},
    },
    schedule::{
        run::Finished,
        step::{Enough, Step},
    },
};

/// The comparisons of a plan with an earlier run: those of its baseline, else of each headline, as `plumb compare` makes
/// them.
#[derive(Debug)]
struct Asked {
    promises: Vec<Promise>,
    are_headlines: bool,
}

impl Asked {
    fn of(plan: &Plan) -> Self {
        let own = baseline::terms(plan).map(|terms| terms.promises).filter(|promises| !promises.is_empty());
        let are_headlines = own.is_none();
        let promises = own.unwrap_or_else(|| {
            let cases = plan.cases.iter().filter(|case| case.skip.is_none());
            confirm::promises(cases, &Member::headline, Rule::DEFAULT.min_ratio, Rule::DEFAULT.alpha)
        });
        Self { promises, are_headlines }
    }

    /// Comparisons of a promise about a case, before anything is measured.
    fn count(&self, promise: &Promise, case: &Case) -> usize {
        if self.are_headlines {
            let is_it = |member: &&Member| member.headline().is_some_and(|m| m.name == promise.metric.name);
            return case.members.iter().filter(is_it).count();
        }
        case.measuring(promise.metric).len()
    }
}

/// A promise about comparisons for which no number of values up to that of the plan is significant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TooFew {
    /// Fewest iterations of a case.
    pub has: u32,
    pub needed: usize,
    pub comparisons: usize,
    pub alpha: f64,
}

/// `None`: every case has iterations enough, or is a search, which has its own number of them.
pub fn too_few(plan: &Plan) -> Option<TooFew> {
    let asked = Asked::of(plan);
    let compared = |promise: &Promise| -> Vec<&Case> {
        plan.cases.iter().filter(|case| promise.case_ids.contains(&case.id)).collect()
    };
    let counts = asked.promises.iter().map(|p| compared(p).iter().map(|case| asked.count(p, case)).sum::<usize>());
    let comparisons = counts.sum::<usize>().max(1);
    let of = |promise: &Promise| {
        let cases = compared(promise).into_iter().filter(|case| case.find.is_none());
        let (has, alpha) = (cases.map(|case| case.policy.max).min()?, promise.rule.alpha);
        let needed = needed_per_side(alpha / comparisons as f64)?;
        (needed > has as usize).then_some(TooFew { has, needed, comparisons, alpha })
    };
    asked.promises.iter().filter_map(of).max_by_key(|few| few.needed)
}

/// Measures the noise of each comparison.
#[derive(Debug)]
pub struct Power {
    asked: Asked,
    change: f64,
    measured: Lock<BTreeMap<String, Vec<Measured>>>,
}

/// The iterations that a comparison takes.
#[derive(Clone, Debug)]
pub struct Need {
    /// Name of the case and member.
    pub case: String,
    pub metric: &'static Metric,
    /// `None`: a change has no size here.
    pub noise: Option<Noise>,
    /// `None`: more than are tried.
    pub iterations: Option<usize>,
}

impl Power {
    /// The smallest change that counts is at most half of the one that is looked for: else chance decides on which side of
    /// it a change is seen.
    pub fn of(plan: &Plan, change: f64) -> Self {
        let mut asked = Asked::of(plan);
        for promise in &mut asked.promises {
            if promise.rule.min_ratio >= change {
                promise.rule.min_ratio = change / 2.0;
            }
        }
        Self { asked, change, measured: Lock::default() }
    }

    /// The rule of the comparisons: of several the one with the largest change that counts.
    pub fn rule(&self) -> Option<Rule> {
        self.asked.promises.iter().map(|promise| promise.rule).max_by(|a, b| a.min_ratio.total_cmp(&b.min_ratio))
    }

    /// The iterations that each comparison takes, in the order of the plan.
    pub fn needs(&self, plan: &Plan) -> Vec<Need> {
        let measured = self.measured.lock();
        let all: Vec<Measured> =
            plan.cases.iter().filter_map(|case| measured.get(&case.id)).flatten().cloned().collect();
        let index = Index::new(&all);
        let promises = &self.asked.promises;
        let columns: Vec<String> = promises.iter().map(|promise| promise.metric.column.to_owned()).collect();
        let mut compared: Vec<(usize, &Measured)> = Vec::new();
        for case in &plan.cases {
            for (m, _) in promises.iter().enumerate().filter(|(_, promise)| promise.case_ids.contains(&case.id)) {
                let is_it = |of: &&Measured| !self.asked.are_headlines || of.headline(&columns) == Some(m);
                compared.extend(subjects(&index, &case.id, m).into_iter().filter(is_it).map(|case| (m, case)));
            }
        }
        let need = |&(m, case): &(usize, &Measured)| {
            let Promise { metric, rule, .. } = promises[m];
            let noise = Noise::of(&case.values[m], metric);
            let iterations = noise.and_then(|noise| noise.needed(metric, rule, self.change, compared.len()));
            Need { case: index.label(case), metric, noise, iterations }
        };
        compared.iter().map(need).collect()
    }
}

impl Enough for Power {
    fn enough(&self, step: &Step, so_far: &Finished) -> bool {
        let values = super::promised(step, so_far, &self.asked.promises);
        self.measured.lock().insert(step.id.clone(), values);
        so_far.done >= step.policy.max
    }
}
