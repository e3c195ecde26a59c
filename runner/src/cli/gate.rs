//! `plumb gate --plan`: translates a plan's assertions and comparisons for the filter, which knows no plans.

use analyze::{
    filters::gate::{Args, OnInconclusive, Statement, Survey},
    judge::{Judge, Scope},
};

use crate::{
    error::Error,
    gate::baseline,
    plan::{self, Format, LoadOptions, measures, model::OnUncertain},
};

/// Adds the assertions of each case of the plan that was named, if any.
pub fn prepare(args: &mut Args) -> Result<(), Error> {
    let Some(path) = args.plan.as_ref().map(|p| p.display().to_string()) else { return Ok(()) };
    let options = LoadOptions { sets: args.sets.clone(), ..LoadOptions::default() };
    let plan = plan::load(&path, &options).map_err(|e| Error::Plan(e.render(Format::Human)))?;
    args.terms = baseline::terms(&plan);
    if args.inconclusive.is_none() && plan.gate.on_inconclusive == Some(OnUncertain::Fail) {
        args.inconclusive = Some(OnInconclusive::Fail);
    }
    for case in plan.cases.iter().filter(|c| c.skip.is_none()) {
        let judged = case
            .asserts
            .iter()
            .flat_map(|assertion| case.judged(&assertion.detail).into_iter().map(move |member| (assertion, member)));
        args.statements.extend(judged.map(|(assertion, member)| {
            let detail = &assertion.detail;
            Statement {
                assertion: detail.that.0.clone(),
                case_id: Some(case.id.clone()),
                survey: None,
                member: case.members.get(member).map(|m| m.name.clone()).filter(|name| !name.is_empty()),
                scope: detail.scope.unwrap_or_default(),
                severity: assertion.severity,
                judge: detail.judge.unwrap_or_default(),
                // The same as in the run.
                level: args.level.unwrap_or(case.policy.level),
                file: assertion.place.file.clone(),
                line: Some(assertion.place.line as u64),
                column: Some(assertion.place.column as u64),
            }
        }));
    }
    for survey in &plan.surveys {
        let pairs: Vec<_> = survey.cases(&plan).filter(|case| case.skip.is_none()).collect();
        let Some(metric) = pairs.iter().find_map(|case| measures::of_job(&case.members.first()?.job)) else { continue };
        args.statements.extend(survey.asserts.iter().map(|assertion| Statement {
            assertion: assertion.detail.that.0.clone(),
            case_id: None,
            survey: Some(Survey {
                name: survey.name.to_string(),
                case_ids: pairs.iter().map(|case| case.id.clone()).collect(),
                metric,
            }),
            member: None,
            scope: Scope::Total,
            severity: assertion.severity,
            judge: Judge::default(),
            level: args.level.unwrap_or_default(),
            file: assertion.place.file.clone(),
            line: Some(assertion.place.line as u64),
            column: Some(assertion.place.column as u64),
        }));
    }
    Ok(())
}
