//! Programs that a plan starts: to measure, and around a measurement.
//!
//! Plans come from strangers' branches, so nothing here runs unless the command line allows it (`--allow-commands`,
//! `--allow-hooks`). Programs start by their argv, without a shell, in a process group of their own, with bounds on time and
//! output ([`netcore::control::child`]).
//!
//! An iteration of `workload: command` runs a program once and reads its output as the result. [`hooks`] run around another bench.

pub mod hooks;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use netcore::{
    client::Target,
    control::{
        child::{self, Failure, Program, Said, shown},
        key::Key,
        stop::{StopFlag, Urgency},
    },
    measure::cpu::{CpuReader, CpuSnapshot},
};

use crate::{
    error::Error,
    hosts::sessions,
    launch::launchers::Launchers,
    plan::{
        Plan,
        case::{Endpoint, is_here},
        diagnostics::{Diagnostics, Format},
        model::{Command, Host},
        output::OutputParser,
    },
    schedule::{
        MeasureError, Printed, ProgramFacts,
        rows::{printed, window::cpu_shares},
        step::Step,
    },
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
        launchers: &Launchers,
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
                    let target = match launchers.end(&name) {
                        Some(end) => Some(end.target.clone()),
                        None => sessions::of_host(&name, host, default_key)?.target,
                    };
                    daemons.extend(target.map(|target| (name.clone(), target)));
                }
            }
        }
        let mut hosts = plan.hosts.clone();
        for (name, host) in &mut hosts {
            if let Some(end) = launchers.end(name) {
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

/// Largest output that is read, bytes: a program that prints for ever must not use up the memory.
const OUTPUT_BOUND: usize = 64 << 20;

/// Runs it once.
pub fn measure(
    step: &Step,
    command: &Command,
    iteration: u32,
    surroundings: &Surroundings,
) -> Result<Printed, MeasureError> {
    let parser = OutputParser::of(command)
        .map_err(|wrong| MeasureError::failed(format!("{}: {}", wrong.message, wrong.help)))?;
    let argv: Vec<String> = command.run.iter().map(|word| word.0.clone()).collect();
    let environment = surroundings.environment(step, Some(iteration));
    let from = step.members.first().map(|m| &m.from);
    let program = Program {
        argv: &argv,
        environment: &environment,
        netns: match from {
            Some(Endpoint::Host(name)) => surroundings.netns(Some(name)),
            _ => None,
        },
        limit: step.grace,
        keep: OUTPUT_BOUND,
        whole: true,
        ends_all: true,
        heeds: Urgency::None,
    };
    let before = cpu_now();
    let ran = child::run(&program, &surroundings.stop)?;
    let cpu = cpu_now().zip(before).and_then(|(after, before)| after.since(&before, false));
    let text = String::from_utf8_lossy(&ran.stdout);
    let mut lines = parser
        .rows(&text)
        .map_err(|why| MeasureError::failed(format!("`{}`: {why}{}", shown(&argv), Said::of(&ran.stdout, &[]))))?;
    if step.policy.margin.is_some() {
        let results = lines.iter().filter(|row| printed::is_measured(row)).count();
        let ways: std::collections::BTreeSet<_> = lines.iter().map(printed::way).collect();
        if results > ways.len() {
            return Err(MeasureError::failed(format!(
                "`{}` printed {results} results, and a margin is about one: set iterations to a plain count",
                shown(&argv)
            )));
        }
    }
    let now = schemas::time::now();
    for row in &mut lines {
        row.time = row.time.take().or_else(|| Some(now.clone()));
        if printed::is_measured(row) {
            row.elapsed_s = row.elapsed_s.or(Some(ran.elapsed.as_secs_f64()));
            if let Some(cpu) = cpu.as_ref().filter(|_| row.local_cpu_ratio.is_none()) {
                // Of the whole machine, from the program's start to its end, as for every other workload.
                cpu_shares(row, 0, cpu);
            }
        }
    }
    let complaints = Said::of(&[], &ran.stderr);
    let facts = ProgramFacts {
        run: argv,
        elapsed_s: ran.elapsed.as_secs_f64(),
        cpu_user_s: ran.user.as_secs_f64(),
        cpu_system_s: ran.system.as_secs_f64(),
        complaints: (complaints != Said::default()).then(|| complaints.to_string().trim_start_matches(": ").to_owned()),
    };
    Ok(Printed { lines, facts })
}

fn cpu_now() -> Option<CpuSnapshot> {
    CpuReader::open().ok()?.read().ok()
}

/// The programs of a plan that may run, as the options of each command that runs plans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct Allowed {
    /// Let the plan measure with programs of its choice (`workload: command`). Read it first: they run as you.
    #[arg(long = "allow-commands")]
    pub commands: bool,
    /// Let the plan run programs around its measurements (`hooks`). Read it first: they run as you, and on other hosts as
    /// the user who started `plumb serve --allow-hooks` there.
    #[arg(long = "allow-hooks")]
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

/// The same as one error, with a further line of advice.
pub fn permit(plan: &Plan, allowed: Allowed, advice: &str) -> Result<(), Error> {
    let refused = check(plan, allowed).render(Format::Human);
    if refused.is_empty() { Ok(()) } else { Err(Error::Plan(refused + advice)) }
}
