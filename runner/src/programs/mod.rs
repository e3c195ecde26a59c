//! Programs that a plan starts: what is measured by another program, and what is done around a measurement.
//!
//! Plans come from strangers' branches, so that nothing here runs unless the command line allows it
//! (`--allow-commands`, `--allow-hooks`). Programs are started by their argv, without a shell, in a process group of their
//! own, and within bounds of time and of output.
//!
//! - [`child`]: one program, from its start to its end
//! - [`reading`]: from what it printed to numbers
//! - [`command`]: `workload: command`, one iteration
//! - [`hooks`]: `setup`, `prepare`, `conclude` and `cleanup`, around whoever measures
//! - [`refusal`]: what the command line has not allowed

pub mod child;
pub mod command;
pub mod hooks;
pub mod reading;
pub mod refusal;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use netcore::control::stop::StopFlag;

use crate::{
    plan::{Plan, case::Endpoint, model::Host},
    schedule::step::Step,
};

/// What programs of a run are told and where they run.
#[derive(Clone, Debug)]
pub struct Surroundings {
    hosts: BTreeMap<String, Host>,
    run_dir: Option<PathBuf>,
    stop: StopFlag,
}

impl Surroundings {
    /// Of one plan's run, whose results are kept in `run_dir`.
    #[must_use]
    pub fn of(plan: &Plan, run_dir: Option<&Path>, stop: &StopFlag) -> Self {
        let run_dir = run_dir.map(|dir| std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned()));
        Self { hosts: plan.hosts.clone(), run_dir, stop: stop.clone() }
    }

    /// What a program may want to know of the case it runs for.
    fn environment(&self, step: &Step, iteration: Option<u32>) -> Vec<(&'static str, String)> {
        let identity = step.members.first().map(|m| m.identity.clone()).unwrap_or_default();
        let mut all: Vec<(&'static str, String)> = [
            ("PLUMB_RUN_ID", identity.run_id),
            ("PLUMB_PLAN", identity.plan),
            ("PLUMB_TEST", identity.test),
            ("PLUMB_CASE", identity.case),
            ("PLUMB_CASE_ID", identity.case_id),
            ("PLUMB_ITERATION", iteration.map(|n| n.to_string())),
            ("PLUMB_RUN_DIR", self.run_dir.as_ref().map(|dir| dir.display().to_string())),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .collect();
        // The addresses, since a program is started by words that know no plan.
        for (name, end) in
            [("PLUMB_FROM", step.members.first().map(|m| &m.from)), ("PLUMB_TO", step.members.first().map(|m| &m.to))]
        {
            if let Some(Endpoint::Host(host)) = end
                && let Some(address) = self.hosts.get(host).and_then(|h| h.address.clone())
            {
                all.push((name, address));
            }
        }
        all
    }

    /// The network namespace of a host of the plan; `None`: this process's own.
    fn netns(&self, host: Option<&str>) -> Option<&str> {
        self.hosts.get(host?)?.netns.as_deref()
    }
}

/// Whether programs for that host run on this machine: it is this process's own, or a network namespace here.
#[must_use]
pub fn is_here(host: Option<&Host>) -> bool {
    host.is_none_or(|host| host.netns.is_some() || host.address.as_deref() == Some("local"))
}

/// An argv as a person would type it.
#[must_use]
pub fn shown(argv: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    let word = |word: &String| {
        if !word.is_empty() && word.chars().all(plain) {
            word.clone()
        } else {
            format!("'{}'", word.replace('\'', "'\\''"))
        }
    };
    argv.iter().map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_argv_is_shown_so_that_it_can_be_typed() {
        let argv = ["printf", "%s\\n", "it's", ""].map(str::to_owned);
        assert_eq!(shown(&argv), "printf '%s\\n' 'it'\\''s' ''");
    }
}
