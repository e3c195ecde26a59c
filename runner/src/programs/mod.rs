//! Programs that a plan starts: what is measured by another program, and what is done around a measurement.
//!
//! Plans come from strangers' branches, so that nothing here runs unless the command line allows it
//! (`--allow-commands`, `--allow-hooks`). Programs are started by their argv, without a shell, in a process group of their
//! own, and within bounds of time and of output ([`netcore::control::child`]).
//!
//! - [`command`]: `workload: command`, one iteration
//! - [`hooks`]: `setup`, `prepare`, `conclude` and `cleanup`, around whoever measures
//! - [`elsewhere`]: one of them on another host, by its daemon
//! - [`refusal`]: what the command line has not allowed

pub mod command;
pub mod elsewhere;
pub mod hooks;
pub mod refusal;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use netcore::{
    client::Target,
    control::{child::Failure, key::Key, stop::StopFlag},
};

use crate::{
    error::Error,
    hosts::targets,
    plan::{
        Plan,
        case::{Endpoint, is_here},
        model::Host,
    },
    schedule::{bench::MeasureError, step::Step},
};

impl From<Failure> for MeasureError {
    fn from(failure: Failure) -> Self {
        Self { timeout: failure.is_timeout(), message: failure.to_string() }
    }
}

/// What programs of a run are told and where they run.
#[derive(Clone, Debug)]
pub struct Surroundings {
    hosts: BTreeMap<String, Host>,
    /// Daemons of the hosts elsewhere that hooks are on.
    daemons: BTreeMap<String, Target>,
    run_dir: Option<PathBuf>,
    stop: StopFlag,
}

impl Surroundings {
    /// Of one plan's run, whose results are kept in `run_dir`. `key_file`: for daemons that the plan names none for. Fails
    /// where a host that a hook is on has no address, or a key cannot be read.
    pub fn of(plan: &Plan, run_dir: Option<&Path>, key_file: Option<&Path>, stop: &StopFlag) -> Result<Self, Error> {
        let run_dir = run_dir.map(|dir| std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned()));
        let default_key = key_file.map(Key::load).transpose().map_err(|e| Error::Measurement(e.to_string()))?;
        let mut daemons = BTreeMap::new();
        for case in plan.cases.iter().filter(|case| case.skip.is_none()) {
            for name in case.hooks.all().filter_map(|(_, hook)| hook.on.as_ref()) {
                let host = plan.hosts.get(name);
                if !is_here(host) && !daemons.contains_key(name) {
                    let place = targets::of_host(name, host, default_key.as_ref())?;
                    daemons.extend(place.target.map(|target| (name.clone(), target)));
                }
            }
        }
        Ok(Self { hosts: plan.hosts.clone(), daemons, run_dir, stop: stop.clone() })
    }

    /// What a program may want to know of the case it runs for.
    fn environment(&self, step: &Step, iteration: Option<u32>) -> Vec<(&'static str, String)> {
        let identity = step.identity(0);
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

    /// The daemon that a hook on that host runs by; `None`: it runs here.
    fn daemon(&self, host: Option<&str>) -> Option<&Target> {
        self.daemons.get(host?)
    }

    /// The network namespace of a host of the plan; `None`: this process's own.
    fn netns(&self, host: Option<&str>) -> Option<&str> {
        self.hosts.get(host?)?.netns.as_deref()
    }
}
