//! `plumb gate --plan`: translates a plan's assertions and comparisons for the filter, which knows no plans.

use analyze::{
    filters::gate::{Args, OnInconclusive},
    judge::statement::Statement,
};

use crate::{
    error::Error,
    gate::{baseline, evidence},
    plan::{self, Format, LoadOptions, model::OnUncertain},
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
    let cases = plan.cases.iter().filter(|c| c.skip.is_none());
    let of_surveys = plan.surveys.iter().filter_map(|survey| evidence::of_survey(&plan, survey));
    let stated = cases.flat_map(evidence::statements).chain(of_surveys.flat_map(|of| of.1));
    // The level is the same as in the run.
    args.statements.extend(stated.map(|of| Statement { level: args.level.unwrap_or(of.level), ..of }));
    Ok(())
}
