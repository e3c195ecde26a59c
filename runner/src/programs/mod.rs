//! Programs that a plan starts: to measure, and around a measurement.
//!
//! Plans come from strangers' branches, so nothing here runs unless the command line allows it (`--allow-commands`,
//! `--allow-hooks`). Programs start by their argv, without a shell, in a process group of their own, with bounds on time and
//! output ([`netcore::control::child`]).
//!
//! - [`command`]: `workload: command`, one iteration
//! - [`hooks`]: `setup`, `prepare`, `conclude` and `cleanup`, around another bench
//! - [`elsewhere`]: a hook on another host, run by its daemon
//! - [`refusal`]: refuses what the command line has not allowed

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
    launch::fleet::Fleet,
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

/// The environment of a run's programs, and where they run.
#[derive(Clone, Debug)]
pub struct Surroundings {
    hosts: BTreeMap<String, Host>,
    /// Daemons of the other hosts that hooks run on.
    daemons: BTreeMap<String, Target>,
    run_dir: Option<PathBuf>,
    stop: StopFlag,
}

impl Surroundings {
    /// For one plan, whose results are kept in `run_dir`. `default_key`: for daemons without a `key_file` in the plan. Fails
    /// if a hook's host has no address, or its key cannot be read.
    pub fn of(
        plan: &Plan,
        fleet: &Fleet,
        run_dir: Option<&Path>,
        default_key: Option<&Key>,
        stop: &StopFlag,
    ) -> Result<Self, Error> {
        let run_dir = run_dir.map(|dir| std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned()));
        let mut daemons = BTreeMap::new();
        for case in plan.cases.iter().filter(|case| case.skip.is_none()) {
            for name in case.hooks.all().filter_map(|(_, hook)| hook.places()).flatten() {
                let host = plan.hosts.get(&name);
                if !is_here(host) && !daemons.contains_key(&name) {
                    let target = match fleet.end(&name) {
                        Some(end) => Some(end.target.clone()),
                        None => targets::of_host(&name, host, default_key)?.target,
                    };
                    daemons.extend(target.map(|target| (name.clone(), target)));
                }
            }
        }
        let mut hosts = plan.hosts.clone();
        for (name, host) in &mut hosts {
            if let Some(end) = fleet.end(name) {
                host.address = Some(end.data.to_string());
            }
        }
        Ok(Self { hosts, daemons, run_dir, stop: stop.clone() })
    }

    /// Environment variables that describe the case a program runs for.
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
        // The addresses of both ends: a program's arguments cannot refer to the plan's hosts.
        for (name, end) in step.members.first().into_iter().flat_map(|m| [("PLUMB_FROM", &m.from), ("PLUMB_TO", &m.to)])
        {
            if let Endpoint::Host(host) = end
                && let Some(address) = self.hosts.get(host).and_then(|h| h.address.clone())
            {
                all.push((name, address));
            }
        }
        all
    }

    /// The daemon that runs hooks of that host; `None`: they run here.
    fn daemon(&self, host: Option<&str>) -> Option<&Target> {
        self.daemons.get(host?)
    }

    /// The network namespace of a host of the plan; `None`: this process's own.
    fn netns(&self, host: Option<&str>) -> Option<&str> {
        self.hosts.get(host?)?.netns.as_deref()
    }
}
