//! A case as the schedule runs it: with the cells that its rows share, and its line on an axis.

use std::{fmt::Debug, ops::Deref, sync::Arc, time::Duration};

use schemas::{
    columns::Row,
    words::{Record, Way},
};

use super::{
    rows::{identity, ranks, ways},
    run::Finished,
};
use crate::plan::{
    case::{Case, Endpoint, Job, Member, Plan},
    model::FindBy,
};

/// A rule that decides in place of a case's policy whether it has enough iterations.
pub trait Enough: Debug + Send + Sync {
    /// Asked after each iteration.
    fn enough(&self, step: &Step, so_far: &Finished) -> bool;
}

/// A case and what the schedule adds to it.
#[derive(Clone, Debug)]
pub struct Step {
    /// If it searches, its iterations are probes, and its own rows are those of the answer.
    pub case: Case,
    /// Per member, the cells that all its rows share: identity, place, and what the plan asks for.
    pub identities: Vec<Row>,
    /// With `stop_when`: the first step of its line, the cases that differ from it on that axis alone. They run one after
    /// the other, since each decides whether the next one runs.
    pub line: Option<usize>,
    /// `None`: its policy decides.
    pub until: Option<Arc<dyn Enough>>,
}

impl Deref for Step {
    type Target = Case;

    fn deref(&self) -> &Case {
        &self.case
    }
}

impl Step {
    pub fn members_with_identity(&self) -> impl Iterator<Item = (&Member, &Row)> {
        self.members.iter().zip(&self.identities)
    }

    /// The shared cells of a member. The total of a group has the number after the last member and the cells of the first.
    pub fn identity(&self, member: usize) -> Row {
        self.identities.get(member).or(self.identities.first()).cloned().unwrap_or_default()
    }

    /// The record of its measured rows. The rows of a search are its probes; those of its answer are written when it ends.
    pub fn measured_record(&self) -> Record {
        if self.find.is_some() { Record::Probe } else { Record::Iteration }
    }

    /// The way of a member's headline: both together if it has two, as a group's total has.
    pub fn headline_way(&self, member: usize) -> Way {
        let Some(member) = self.members.get(member).filter(|member| member.ranks().is_none()) else { return Way::Both };
        member.spec().and_then(|spec| ways(spec.direction).last().copied()).unwrap_or(Way::Forward)
    }

    /// Its name while it runs: a case that is a pair runs with the others of its round.
    pub fn shown(&self) -> String {
        match &self.round {
            Some(round) => format!("{} round {} of {}", round.survey, round.number, round.of),
            None => self.name.clone(),
        }
    }

    /// The estimated time of one iteration.
    pub fn cost(&self) -> Duration {
        self.estimate_iteration().most
    }
}

/// The steps of a plan, one per case. `axis_paths` are the axis columns of the whole table, which may hold several plans.
pub fn steps(plan: &Plan, run_id: &str, axis_paths: &[String]) -> Vec<Step> {
    let line = |case: &Case| {
        let stop = case.stop_when.as_ref()?;
        let others = |c: &Case| c.axes.iter().filter(|(path, _)| *path != stop.axis).cloned().collect::<Vec<_>>();
        let own = others(case);
        plan.cases.iter().position(|c| c.test == case.test && others(c) == own)
    };
    let step = |case: &Case| Step {
        case: case.clone(),
        identities: identities(plan, case, run_id, axis_paths),
        line: line(case),
        until: None,
    };
    plan.cases.iter().map(step).collect()
}

fn identities(plan: &Plan, case: &Case, run_id: &str, axis_paths: &[String]) -> Vec<Row> {
    let shared = Row {
        run_id: Some(run_id.to_owned()),
        plan: Some(plan.name.clone()),
        test: Some(case.test.to_string()),
        case_id: Some(case.id.clone()),
        case: Some(case.name.clone()),
        round: case.round.as_ref().map(|round| round.number.into()),
        tag: (!case.tags.is_empty()).then(|| case.tags.join(" ")),
        axes: axis_paths
            .iter()
            .map(|path| case.axes.iter().find(|(p, _)| **p == **path).map(|(_, v)| v.clone()).unwrap_or_default())
            .collect(),
        ..Row::default()
    };
    let of_member = |m: &Member| {
        let mut row = shared.clone();
        row.member = (!m.name.is_empty()).then(|| m.name.clone());
        row.workload = Some(m.workload.clone());
        row.from = Some(m.from.name().to_owned());
        row.wire_bits_per_s = m.wire.map(|speed| speed as f64);
        match &m.job {
            Job::Traffic(spec) => {
                row.to = Some(m.to.name().to_owned());
                identity::requested(&mut row, spec);
                // The load of a search is that of its answer; before that it has none.
                match case.find.as_ref().map(|find| find.by) {
                    Some(FindBy::Rate) => row.offered_per_s = None,
                    Some(FindBy::Inflight) => row.inflight = None,
                    None => {}
                }
            }
            Job::Ranks(job) => ranks::requested(&mut row, job),
            // Only the plan can say which host a program talks to.
            Job::Command(_) => row.to = Some(m.to.name().to_owned()).filter(|_| m.to != Endpoint::Embedded),
        }
        row
    };
    case.members.iter().map(of_member).collect()
}
