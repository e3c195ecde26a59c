//! One invocation of `plumb run`: plans, hosts, schedule, sinks and verdicts brought together.

mod report;
mod sinks;

use std::path::PathBuf;

use analyze::judge::environment::Environment;
use netcore::control::key::Key;

pub use self::report::Report;
use self::sinks::Sinks;
use crate::{
    error::Error,
    gate::{Expectations, confirm::Confirm},
    hosts::Hosts,
    plan::{Format, Plan, case::Endpoint},
    programs::{Surroundings, hooks::Programs},
    progress::Progress,
    resume::{self, Start},
    schedule::{
        bench::RowSink,
        history::Taken,
        run::{self, Settings},
        step,
    },
    signals::Interrupts,
    sinks::{ci::CaseResult, files::Files, run_json::plan_record},
};

/// What the command line says about the run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// File for the rows.
    pub output: Option<PathBuf>,
    /// File for JUnit XML.
    pub junit: Option<PathBuf>,
    /// Folder of an interrupted run to go on with.
    pub resume: Option<PathBuf>,
    /// Whether rows go to standard output.
    pub stdout_rows: bool,
    /// Key for daemons without a `key_file` in the plan.
    pub key_file: Option<PathBuf>,
    /// Whether to print a line per interval.
    pub interim: bool,
    /// `--set`, `--only` and `--host`, for the record.
    pub overrides: Vec<String>,
}

/// Runs the plans one after the other into one table.
pub fn run(
    plans: &[Plan],
    options: &Options,
    interrupts: &Interrupts,
    progress: &mut Progress,
) -> Result<Report, Error> {
    let start = match &options.resume {
        Some(dir) => Start::of_interrupted(dir, plans)?,
        None => Start::new(),
    };
    let mut axis_paths: Vec<String> = Vec::new();
    for path in plans.iter().flat_map(|p| &p.axis_paths) {
        if !axis_paths.contains(path) {
            axis_paths.push(path.clone());
        }
    }
    let mut files = Files::of(
        plans,
        options.output.as_deref(),
        options.junit.as_deref(),
        options.resume.as_deref(),
        &start.run_id,
    )?;
    if options.stdout_rows {
        // A plan's folder then has everything but the table, as with -o.
        files.results = None;
    }
    files.keep_plans(plans)?;
    let taken = match (&options.resume, &files.results, plans.first()) {
        (Some(_), Some(results), Some(plan)) => resume::take_up(results, &files, plan, &start.run_id, &axis_paths)?,
        _ => Taken::default(),
    };
    let mut sinks = Sinks::open(&files, &start, options, &axis_paths)?;
    let mut report = Report { kept: files.results.clone(), ..Report::default() };
    let shared = Shared { start, taken, axis_paths, files: &files, options, interrupts };
    for plan in plans {
        one(plan, &shared, progress, &mut sinks, &mut report)?;
    }
    progress.clear();
    let record = &mut sinks.record;
    record.facts.ended = Some(resume::now());
    record.facts.interrupted = interrupts.name().map(str::to_owned);
    report.notes = sinks.notes.of_run(&record.facts.hosts);
    record.facts.notes.clone_from(&report.notes);
    record.write()?;
    report.closed = sinks.is_closed();
    report.write_files(plans, &files, progress)?;
    Ok(report)
}

/// Common to all plans of a run.
struct Shared<'a> {
    start: Start,
    /// Finished iterations of an interrupted run; empty for a new one.
    taken: Taken,
    axis_paths: Vec<String>,
    files: &'a Files,
    options: &'a Options,
    interrupts: &'a Interrupts,
}

/// Runs one plan.
fn one(
    plan: &Plan,
    shared: &Shared<'_>,
    progress: &mut Progress,
    sinks: &mut Sinks,
    report: &mut Report,
) -> Result<(), Error> {
    let expectations = Expectations::of(plan)?;
    let warnings = plan.warnings.render(Format::Human);
    if !warnings.is_empty() {
        progress.print(warnings.trim_end());
    }
    let (options, stop) = (shared.options, shared.interrupts.flag());
    let steps = step::steps(plan, &shared.start.run_id, &shared.axis_paths);
    let seed = plan.run.seed.unwrap_or(shared.start.seed);
    sinks.record.facts.plans.push(plan_record(plan, options.overrides.clone(), seed));
    progress.say(&headline(plan));
    let key = options.key_file.as_deref().map(Key::load).transpose().map_err(Error::measurement)?;
    let mut hosts = Hosts::open(plan, &steps, key.as_ref(), options.interim, stop)?;
    if let Some(line) = hosts.checked() {
        progress.say(&line);
    }
    for warning in hosts.required(plan, &steps)? {
        progress.warn(&warning);
    }
    sinks.record.facts.hosts.extend(hosts.take_records());
    sinks.record.write()?;
    expectations.check(&Environment::of(&sinks.record.facts))?;
    let settings = Settings { order: plan.run.order, seed, fail_fast: plan.run.fail_fast, retries: plan.run.retries };
    let surroundings = Surroundings::of(plan, shared.files.dir.as_deref(), key.as_ref(), stop)?;
    let log = shared.files.hooks.as_deref();
    let mut bench = Programs::around(&mut hosts, surroundings, log, options.resume.is_some());
    let mut measure = || {
        let finished = run::run(&steps, settings, &shared.taken.history, &mut bench, sinks, progress, stop)?;
        let cases: Vec<_> = steps.iter().zip(&finished).collect();
        let here = Environment::of(&sinks.record.facts);
        let mut verdicts = expectations.judge(&cases, &here);
        let confirm = Confirm {
            attempts: plan.gate.confirm.unwrap_or(0),
            expectations: &expectations,
            cases: &cases,
            settings: Settings { fail_fast: false, ..settings },
            earlier: &shared.taken.confirmed,
            here: &here,
            stop,
        };
        confirm.run(&mut verdicts, &mut bench, sinks, progress)?;
        Ok((finished, verdicts))
    };
    let measured: Result<_, Error> = measure();
    // Cleanup runs also after an error.
    bench.finish(progress);
    let (finished, verdicts) = measured?;
    for ((step, finished), verdicts) in steps.iter().zip(finished).zip(verdicts) {
        report.failed |= finished.failed.is_some();
        for (member, _, row) in finished.summaries {
            let job = step.members.get(member).or(step.members.first());
            report.summaries.push((job.and_then(|m| m.spec()).map(|spec| spec.pattern), row));
        }
        report.verdicts.add(plan, &verdicts);
        report.cases.push(CaseResult {
            test: step.test.to_string(),
            case: step.name.clone(),
            failed: finished.failed.map(|f| f.message),
            skipped: finished.skipped.filter(|_| finished.done == 0),
            verdicts,
        });
    }
    Ok(())
}

/// `quick · 3 cases · about 18 s · this machine (loopback, embedded daemon)`
fn headline(plan: &Plan) -> String {
    let cases = plan.cases.len();
    let plural = if cases == 1 { "" } else { "s" };
    let mut hosts: Vec<&str> = plan
        .cases
        .iter()
        .flat_map(|c| &c.members)
        .flat_map(|m| [&m.from, &m.to])
        .filter_map(|end| match end {
            Endpoint::Host(name) => Some(name.as_str()),
            Endpoint::Local | Endpoint::Embedded => None,
        })
        .collect();
    hosts.sort_unstable();
    hosts.dedup();
    let place = if hosts.is_empty() {
        "this machine (loopback, embedded daemon)".to_owned()
    } else {
        format!("this machine and {}", hosts.join(", "))
    };
    format!("{} · {cases} case{plural} · {} · {place}", plan.name, plan.estimate())
}
