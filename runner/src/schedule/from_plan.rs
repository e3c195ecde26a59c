//! From the cases of a checked plan to steps.

use std::time::Duration;

use schemas::columns::Row;

use super::{
    confidence::Policy,
    rows::identity,
    step::{Group, Member, Step, StopLine},
};
use crate::plan::{
    case::{Case, Endpoint, Iterations, Job, Plan},
    measures,
    model::{FindBy, Window},
};

/// The confidence level of plain counts, which ask for none.
pub const LEVEL: f64 = 0.95;

/// How much longer than planned an iteration may take when nobody says: connecting, draining and reporting included.
pub const GRACE: Duration = Duration::from_secs(10);

/// How long a program of a plan may run when nobody says: nothing tells how long it should.
const PROGRAM_LIMIT: Duration = Duration::from_mins(10);

/// The steps of a plan, one per case. `axis_paths` are the axis columns of the whole table, which may hold several plans.
#[must_use]
pub fn steps(plan: &Plan, run_id: &str, axis_paths: &[String]) -> Vec<Step> {
    let mut steps: Vec<Step> = plan.cases.iter().map(|case| step(plan, case, run_id, axis_paths)).collect();
    for (i, case) in plan.cases.iter().enumerate() {
        let Some(stop) = &case.stop_when else { continue };
        let others = |c: &'_ Case| c.axes.iter().filter(|(path, _)| *path != stop.axis).cloned().collect::<Vec<_>>();
        let line = others(case);
        let first = plan.cases.iter().position(|c| c.test == case.test && others(c) == line).unwrap_or(i);
        steps[i].stop = Some(StopLine { that: stop.that.clone(), first });
    }
    steps
}

fn step(plan: &Plan, case: &Case, run_id: &str, axis_paths: &[String]) -> Step {
    let shared = Row {
        run_id: Some(run_id.to_owned()),
        plan: Some(plan.name.clone()),
        test: Some(case.test.to_string()),
        case_id: Some(case.id.clone()),
        case: Some(case.name.clone()),
        tag: (!case.tags.is_empty()).then(|| case.tags.join(" ")),
        axes: axis_paths
            .iter()
            .map(|path| case.axes.iter().find(|(p, _)| **p == **path).map(|(_, v)| v.clone()).unwrap_or_default())
            .collect(),
        ..Row::default()
    };
    let members: Vec<Member> = case
        .members
        .iter()
        .map(|m| {
            let mut row = shared.clone();
            row.member = (!m.name.is_empty()).then(|| m.name.clone());
            row.workload = Some(m.workload.clone());
            row.from = Some(m.from.name().to_owned());
            match &m.job {
                Job::Traffic(spec) => {
                    row.to = Some(m.to.name().to_owned());
                    identity::requested(&mut row, spec);
                    // The load of a search is that of its answer, and none before that.
                    match case.find.as_ref().map(|find| find.by) {
                        Some(FindBy::Rate) => row.offered_per_s = None,
                        Some(FindBy::Inflight) => row.inflight = None,
                        None => {}
                    }
                }
                // Whom a program talks to is its own affair, unless the plan says it.
                Job::Command(_) => row.to = Some(m.to.name().to_owned()).filter(|_| m.to != Endpoint::Embedded),
            }
            Member {
                identity: row,
                intervals: m.job.spec().is_some_and(|spec| spec.phases.interval_ns > 0),
                job: m.job.clone(),
                from: m.from.clone(),
                to: m.to.clone(),
            }
        })
        .collect();
    let policy = match &case.iterations {
        Iterations::Count(n) => {
            let metrics = members.first().and_then(|m| measures::of_job(&m.job)).into_iter().collect();
            Policy { min: *n, max: *n, level: LEVEL, margin: None, metrics }
        }
        Iterations::Until { min, max, confidence, margin, metrics } => {
            Policy { min: *min, max: *max, level: *confidence, margin: Some(*margin), metrics: metrics.clone() }
        }
    };
    Step {
        name: case.name.clone(),
        members,
        policy,
        pause: case.pause,
        grace: case.timeout.unwrap_or(if case.members.iter().all(|m| m.job.spec().is_some()) {
            GRACE
        } else {
            PROGRAM_LIMIT
        }),
        skip: case.skip.as_ref().map(
            |reason| {
                if reason.is_empty() { "the plan says skip".to_owned() } else { reason.clone() }
            },
        ),
        group: case.group.as_ref().map(|g| Group { max_skew: g.max_skew, own_windows: g.window == Window::Own }),
        search: case.find.clone(),
        stop: None,
        hooks: case.hooks.clone(),
    }
}
