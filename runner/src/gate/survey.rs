//! Surveys of a run: all pairs of a test together, and the assertions about them.

use analyze::judge::{
    self,
    survey::{Pair, Surveyed},
};
use schemas::{
    columns::VerdictRow,
    metrics::{self, Family},
    words::Way,
};

use crate::{
    plan::{Plan, case::Survey, measures},
    schedule::{
        rows::ways,
        run::{Finished, value_of},
        step::Step,
    },
};

/// A survey after the run.
pub struct Result {
    pub test: String,
    pub name: String,
    /// `56 of 56 pairs · median 47.9 Mbit/s · spread 1.2 % · no suspects`
    pub summary: String,
    /// A sentence for each suspect.
    pub suspects: Vec<String>,
    pub verdicts: Vec<VerdictRow>,
}

/// The surveys of a plan whose cases these are. Pairs that the plan left out do not count.
pub fn results(plan: &Plan, cases: &[(&Step, &Finished)]) -> Vec<Result> {
    plan.surveys.iter().filter_map(|survey| result(survey, cases)).collect()
}

fn result(survey: &Survey, cases: &[(&Step, &Finished)]) -> Option<Result> {
    let is_of = |step: &Step| step.round.as_ref().is_some_and(|round| round.survey == survey.name);
    let of: Vec<_> = cases.iter().filter(|(step, finished)| is_of(step) && !finished.left_out).collect();
    let member = of.first()?.0.members.first()?;
    let metric = measures::of_job(&member.job)?;
    let cpu_taken = metrics::find("cpu.taken");
    let pairs: Vec<Pair> = of
        .iter()
        .flat_map(|(step, finished)| {
            let all = step.members[0].spec().map_or(&[Way::Forward][..], |spec| ways(spec.direction));
            all.iter().filter(|way| all.len() == 1 || **way != Way::Both).map(|way| {
                let iterations = finished.values.get(&(0, *way)).map_or(&[][..], Vec::as_slice);
                let measured = iterations
                    .iter()
                    .filter_map(|one| Some((value_of(metric, one)?, cpu_taken.and_then(|taken| value_of(taken, one)))));
                let (values, cpu_taken) = measured.unzip();
                Pair {
                    from: step.members[0].from.name().to_owned(),
                    to: step.members[0].to.name().to_owned(),
                    way: *way,
                    values,
                    cpu_taken,
                }
            })
        })
        .collect();
    let surveyed = Surveyed::of(&pairs, metric, Family::of(&member.workload));
    let run_id = of.first().and_then(|(step, _)| step.identity(0).run_id).unwrap_or_default();
    let verdicts = survey.asserts.iter().map(|assertion| VerdictRow {
        case: survey.name.to_string(),
        run_id: run_id.clone(),
        file: assertion.place.file.clone(),
        line: Some(assertion.place.line as u64),
        column: Some(assertion.place.column as u64),
        ..judge::of_assertion(&assertion.detail.that.0, &surveyed.judge(&assertion.detail.that.0), assertion.severity)
    });
    Some(Result {
        test: survey.test.to_string(),
        name: survey.name.to_string(),
        summary: surveyed.summary(),
        suspects: surveyed.suspects(),
        verdicts: verdicts.collect(),
    })
}
