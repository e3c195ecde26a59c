//! `plumb check --power`: measures how much the results of a plan scatter, and says how many iterations a change takes.

use std::{fmt::Write as _, io::IsTerminal, sync::Arc, time::Duration};

use analyze::{
    judge::power::{FOUND, MOST},
    table::layout::{Column, Sheet, aligned},
};
use netcore::control::key::Key;
use schemas::units;

use super::run::announce;
use crate::{
    campaign::{self, Options},
    error::{Error, Exit},
    gate::power::{Need, Power},
    plan::{Format, Plan, case::Case},
    programs::refusal::{self, Allowed},
    progress::{Mode, Progress},
    signals::Interrupts,
};

/// Time for the noise of a plan.
const TIME: Duration = Duration::from_mins(1);

/// Fewest and most iterations of a case.
const ITERATIONS: [u32; 2] = [5, 30];

/// Measures the noise of a plan, and prints how many iterations show a change of this size.
pub fn run(plan: &mut Plan, change: f64, key: Option<Key>) -> Result<Exit, Error> {
    let refused = refusal::check(plan, Allowed::default()).render(Format::Human);
    if !refused.is_empty() {
        return Err(Error::Plan(format!("{refused}--power runs no programs: leave these tests out with --only\n")));
    }
    let has = measured(plan).map(|case| case.policy.max).min();
    prepare(plan);
    let interrupts = Interrupts::install(announce)?;
    let power = Arc::new(Power::of(plan, change));
    let options = Options { key, until: Some(Arc::clone(&power) as _), ..Options::default() };
    let mut progress = Progress::brief(if std::io::stderr().is_terminal() { Mode::Line } else { Mode::Silent });
    let report = campaign::run(std::slice::from_ref(plan), &options, None, &interrupts, &mut progress)?;
    if let Some(exit) = interrupts.exit() {
        return Ok(exit);
    }
    if let Some((case, why)) = report.failures().next() {
        return Err(Error::Measurement(format!("{case}: {why}")));
    }
    let needs = power.needs(plan);
    super::print(&answer(plan, &power, change, has.unwrap_or_default(), &needs))?;
    Ok(Exit::Success)
}

/// The cases that are measured: a search has no iterations of one load to compare.
fn measured(plan: &Plan) -> impl Iterator<Item = &Case> {
    plan.cases.iter().filter(|case| case.skip.is_none() && case.find.is_none())
}

/// Gives each case as many iterations as fit into the time. Nothing is judged or written.
fn prepare(plan: &mut Plan) {
    plan.output = <_>::default();
    plan.gate = <_>::default();
    plan.cases.retain(|case| case.find.is_none());
    plan.surveys.clear();
    for case in &mut plan.cases {
        case.asserts.clear();
        case.stop_when = None;
    }
    set_iterations(plan, 1);
    let once = plan.estimate().most.as_millis().max(1);
    let fit = u32::try_from(TIME.as_millis() / once).unwrap_or(u32::MAX);
    set_iterations(plan, fit.clamp(ITERATIONS[0], ITERATIONS[1]));
}

fn set_iterations(plan: &mut Plan, n: u32) {
    for case in &mut plan.cases {
        (case.policy.min, case.policy.max, case.policy.margin) = (n, n, None);
    }
}

/// A line per comparison, and what to write into the plan.
fn answer(plan: &mut Plan, power: &Power, change: f64, has: u32, needs: &[Need]) -> String {
    let Some(rule) = power.rule().filter(|_| !needs.is_empty()) else {
        return "nothing of it can be compared\n".to_owned();
    };
    let noise = |need: &Need| need.noise.map_or_else(|| "its mean is 0".to_owned(), |noise| units::margin(noise.ratio));
    let takes = |need: &Need| match (need.noise, need.iterations) {
        (_, Some(n)) => n.to_string(),
        (Some(_), None) => format!("more than {MOST}"),
        (None, None) => String::new(),
    };
    let columns = [
        Column::of("case", false, needs, |need| need.case.clone()),
        Column::of("metric", false, needs, |need| need.metric.name.to_owned()),
        Column::of("noise", true, needs, noise),
        Column::of(&format!("iterations for {}", units::margin(change)), true, needs, takes),
    ];
    let mut table = Vec::new();
    // Writing to memory cannot fail.
    let _ = aligned(&columns, &Sheet::stdout(), &mut table);
    let mut text = String::from_utf8_lossy(&table).into_owned();
    let among = if needs.len() == 1 { String::new() } else { format!(" among {} comparisons", needs.len()) };
    let counts = units::margin(rule.min_ratio).replace(' ', "");
    let sized = needs.iter().filter(|need| need.noise.is_some());
    let most = sized.map(|need| need.iterations.unwrap_or(usize::MAX)).max().unwrap_or(usize::MAX);
    // Writing to a String cannot fail.
    let _ = match u32::try_from(most) {
        Ok(n) if most <= MOST => {
            set_iterations(plan, n);
            write!(
                text,
                "with `iterations: {n}` ({time}; the plan has {has}) {found:.0} % of all pairs of runs show it, at α = {alpha}{among}\n\
                 and with `max_regression: {counts}` in a baseline, or plumb compare --min-effect {counts}\n",
                time = plan.estimate(),
                found = FOUND * 100.0,
                alpha = rule.alpha,
            )
        }
        _ => text
            .write_str("longer iterations (`duration`) scatter less, and so does a machine that does nothing else\n"),
    };
    text
}
