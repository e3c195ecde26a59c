//! Refuses programs that the command line has not allowed, before anything runs.

use crate::plan::{Plan, diagnostics::Diagnostics};

/// The programs of a plan that may run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    /// Programs that measure.
    pub commands: bool,
    /// Programs around a measurement.
    pub hooks: bool,
}

/// An error for each kind of program that is not allowed, once per test.
pub fn check(plan: &Plan, allowed: Allowed) -> Diagnostics {
    let mut out = Diagnostics::new(plan.sources.clone());
    let mut last = None;
    for case in plan.cases.iter().filter(|case| case.skip.is_none()) {
        // The cases of a test all have the same.
        if last == Some(&case.test) {
            continue;
        }
        last = Some(&case.test);
        let mut refuse = |span, message: &str, flag: &str| {
            let help = format!("look at what it runs; {flag} then allows it");
            out.error(span, message, help);
        };
        if !allowed.commands && case.members.iter().any(|m| m.job.command().is_some()) {
            refuse(case.command_span, "this plan runs a program of its author's choice", "--allow-commands");
        }
        if !allowed.hooks && !case.hooks.is_empty() {
            refuse(case.hooks_span, "this plan runs programs around its measurements", "--allow-hooks");
        }
    }
    out
}
