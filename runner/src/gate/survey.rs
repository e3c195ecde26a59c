//! Surveys of a run: all pairs of a test together, and the assertions about them.

use analyze::judge::{statement, survey::Surveyed};
use schemas::columns::VerdictRow;

use super::evidence;
use crate::{
    plan::{Plan, case::Survey},
    schedule::{run::Finished, step::Step},
};

/// A survey after the run.
pub struct Result {
    pub test: String,
    pub name: String,
    pub surveyed: Surveyed,
    pub verdicts: Vec<VerdictRow>,
}

/// The surveys of a plan whose cases these are. Pairs that the plan left out do not count.
pub fn results(plan: &Plan, cases: &[(&Step, &Finished)]) -> Vec<Result> {
    plan.surveys.iter().filter_map(|survey| result(plan, survey, cases)).collect()
}

fn result(plan: &Plan, survey: &Survey, cases: &[(&Step, &Finished)]) -> Option<Result> {
    let is_of = |step: &Step| step.round.as_ref().is_some_and(|round| round.survey == survey.name);
    let ran = cases.iter().copied().filter(|(step, finished)| is_of(step) && !finished.left_out);
    let ran: Vec<(&Step, &Finished)> = ran.collect();
    if ran.is_empty() {
        return None;
    }
    let (pairs, statements) = evidence::of_survey(plan, survey)?;
    let surveyed = evidence::of_run(&ran, vec![pairs.metric.column]).surveyed(&pairs);
    Some(Result {
        test: survey.test.to_string(),
        name: survey.name.to_string(),
        verdicts: statements.iter().map(|of| statement::of_survey(of, &pairs.name, &surveyed)).collect(),
        surveyed: surveyed.0,
    })
}
