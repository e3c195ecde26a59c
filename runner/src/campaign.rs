//! One invocation of `plumb run`: plans, hosts, schedule, sinks and verdicts brought together.

mod report;
mod sinks;

use std::{fmt::Write as _, path::PathBuf, sync::Arc};

use analyze::{
    distinct, first_few,
    judge::{environment::Environment, incomplete},
};
use netcore::control::key::Key;
use schemas::text::counted;

pub use self::report::Report;
use self::sinks::Sinks;
use crate::{
    error::Error,
    gate::{self, Expectations, confirm::Confirm},
    hosts::Hosts,
    launch::recipe::DaemonOptions,
    metrics::LiveState,
    plan::{
        Format, Plan,
        case::{Endpoint, Member},
        ranges,
    },
    programs::{Surroundings, hooks::Programs},
    progress::Progress,
    resume::{self, Start},
    schedule::{
        Bench, MeasureError, Measured, RowSink,
        history::{History, Taken},
        run::{self, Settings},
        step::{self, Enough, Step},
    },
    signals::Interrupts,
    sinks::{
        files::{Files, Output, OutputLock, resume_command},
        run_json::plan_record,
    },
};

/// Options of the command line for the run.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent flags of a command line")]
pub struct Options {
    /// File for the rows.
    pub output: Option<PathBuf>,
    /// File for JUnit XML.
    pub junit: Option<PathBuf>,
    /// Folder or table of an interrupted run to go on with.
    pub resume: Option<PathBuf>,
    /// Whether to replace whatever is in the place of the results.
    pub overwrite: bool,
    /// Whether rows go to standard output.
    pub stdout_rows: bool,
    /// Key for daemons without a `key_file` in the plan.
    pub key: Option<Key>,
    /// Whether to print a line per interval.
    pub interim: bool,
    /// Whether daemons that the run starts may run hooks.
    pub allow_hooks: bool,
    /// `--set`, `--only` and `--host`, for the record.
    pub overrides: Vec<String>,
    /// Decides how many iterations are enough.
    pub until: Option<Arc<dyn Enough>>,
    /// The facts of the run that scrapes see.
    pub live_state: Option<Arc<LiveState>>,
}

/// Runs the plans one after the other into one table. `met`: the hosts of the first, where they are open already.
pub fn run(
    plans: &[Plan],
    options: &Options,
    mut met: Option<Hosts>,
    interrupts: &Interrupts,
    progress: &mut Progress,
) -> Result<Report, Error> {
    let axis_paths = distinct(plans.iter().flat_map(|plan| plan.axis_paths.clone()));
    let new = Start::new();
    let output = Output {
        table: options.output.as_deref(),
        rows_elsewhere: options.stdout_rows,
        junit: options.junit.as_deref(),
        resume: options.resume.as_deref(),
    };
    let files = Files::of(plans, &output, &new.run_id)?;
    let mut lock = OutputLock::of(&files)?;
    let start = if let (Some(place), Some(run_json)) = (&options.resume, &files.run_json) {
        Start::of_interrupted(place, run_json, plans)?
    } else {
        if !options.overwrite {
            lock.spare(&files, plans)?;
        }
        lock.find_stale(&files, plans);
        if let Some(table) = files.earlier() {
            let show = if progress.is_brief() { Progress::print } else { Progress::say };
            show(progress, &format!("{} is there already, and this run replaces it", table.display()));
        }
        new
    };
    let mut taken = match (&options.resume, &files.results, plans.first()) {
        (Some(_), Some(results), Some(plan)) => resume::take_up(results, &files, plan, &start.run_id, &axis_paths)?,
        _ => Taken::default(),
    };
    let trimmed = std::mem::take(&mut taken.trimmed);
    let mut sinks = Sinks::new(&files, lock, &start, options, &axis_paths, trimmed)?;
    if let Some(version) = &start.begun_with {
        sinks.note(format!(
            "the run was begun with version {version} of plumb and went on with version {}",
            env!("CARGO_PKG_VERSION")
        ));
    }
    if let Some(live_state) = &options.live_state {
        let names = plans.iter().map(|plan| plan.name.clone()).collect();
        live_state.begin(&start.run_id, names, plans.iter().map(|plan| plan.cases.len()).sum());
    }
    let mut report = Report::default();
    let shared = Shared { start, taken, axis_paths: &axis_paths, files: &files, options, interrupts };
    for (at, plan) in plans.iter().enumerate() {
        if let Err(error) = one(plan, &shared, met.take(), progress, &mut sinks, &mut report) {
            // CI would read the JUnit of an earlier run as that of this one.
            if let Err(other) = report.write_fault(plans, at, &files, &error.to_string()) {
                progress.warn(&other.to_string());
            }
            if let Some(table) = files.earlier().filter(|_| !sinks.is_begun()) {
                progress.warn(&format!("{} stays as it was: it is of an earlier run", table.display()));
            }
            return Err(error);
        }
    }
    progress.clear();
    sinks.end(interrupts.requested())?;
    let is_begun = sinks.is_begun();
    report.kept = files.results.clone().filter(|_| is_begun);
    let record = &mut sinks.record;
    record.facts.ended = Some(resume::now());
    record.facts.interrupted = interrupts.name().map(str::to_owned);
    record.facts.unfinished.clone_from(&report.unfinished);
    report.cut_off = incomplete::cut_off(&record.facts);
    report.notes.extend(interruption(&report, &files, plans, options, interrupts, is_begun));
    report.notes.extend(sinks.notes.of_run(&record.facts.hosts));
    report.notes.extend(report.unsteadiness());
    report.said = report.notes.iter().filter(|note| progress.has_said(note)).cloned().collect();
    record.facts.notes.clone_from(&report.notes);
    record.write()?;
    report.hosts.clone_from(&sinks.record.facts.hosts);
    report.closed = sinks.is_closed();
    report.write_files(plans, &files, is_begun, progress)?;
    if let Some(live_state) = &options.live_state {
        live_state.end();
    }
    Ok(report)
}

/// Names of unfinished cases in the sentence about an interruption; `run.json` has all of them.
const MOST_NAMED: usize = 6;

/// A sentence about what a signal kept from being measured, and the command that goes on.
fn interruption(
    report: &Report,
    files: &Files,
    plans: &[Plan],
    options: &Options,
    interrupts: &Interrupts,
    is_begun: bool,
) -> Option<String> {
    let signal = interrupts.name()?;
    let open = &report.unfinished;
    if open.is_empty() {
        return None;
    }
    let named = open.iter().map(|case| {
        let done = match (case.iterations, case.of) {
            (0, _) => String::new(),
            (done, 0) => format!("{done} probes"),
            (done, of) => format!("{done} of {of} iterations"),
        };
        // The sentence begins with the signal.
        let own = case.reason.strip_prefix(&format!("interrupted by {signal}")).map(str::trim_start);
        let reason = own.unwrap_or(&case.reason);
        let remarks: Vec<&str> = [done.as_str(), reason].into_iter().filter(|text| !text.is_empty()).collect();
        if remarks.is_empty() { case.case.clone() } else { format!("{} ({})", case.case, remarks.join("; ")) }
    });
    let mut sentence = format!(
        "interrupted by {signal}: {} of {} cases not measured to the end: {}",
        open.len(),
        report.measured,
        first_few(named, MOST_NAMED).join(", ")
    );
    let place = match (&files.dir, &files.results) {
        (Some(dir), Some(results)) if results.parent() == Some(dir) => Some(dir),
        (_, results) => results.as_ref().filter(|_| !files.is_special),
    };
    match (place, plans) {
        (Some(place), _) if !is_begun => {
            let _ = write!(sentence, "; nothing was measured, and {} stays as it was", place.display());
        }
        (Some(place), [plan]) => {
            if let Some(command) = resume_command(&plan.path, &options.overrides, place) {
                let _ = write!(sentence, "; go on with {command}");
            }
        }
        _ => {}
    }
    Some(sentence)
}

/// Common to all plans of a run.
struct Shared<'a> {
    start: Start,
    /// Finished iterations of an interrupted run; empty for a new one.
    taken: Taken,
    axis_paths: &'a [String],
    files: &'a Files,
    options: &'a Options,
    interrupts: &'a Interrupts,
}

/// Runs one plan.
fn one(
    plan: &Plan,
    shared: &Shared<'_>,
    met: Option<Hosts>,
    progress: &mut Progress,
    sinks: &mut Sinks<'_>,
    report: &mut Report,
) -> Result<(), Error> {
    let expectations = Expectations::of(plan)?;
    let warnings = plan.warnings.render(Format::Human);
    if !warnings.is_empty() {
        progress.print(warnings.trim_end());
    }
    let (options, interrupts) = (shared.options, shared.interrupts);
    let stop = interrupts.flag();
    let mut steps = step::steps(plan, &shared.start.run_id, shared.axis_paths);
    if let Some(until) = &options.until {
        for step in &mut steps {
            step.until = Some(Arc::clone(until));
        }
    }
    let seed = plan.run.seed.unwrap_or(shared.start.seed);
    if let Some(note) = expectations.gone() {
        sinks.note(note);
    }
    sinks.record.facts.plans.push(plan_record(plan, options.overrides.clone(), seed));
    let settings = Settings {
        order: plan.run.order.unwrap_or_default(),
        seed,
        fail_fast: plan.run.fail_fast.unwrap_or_default(),
        retries: plan.run.retries.unwrap_or_default(),
    };
    if interrupts.requested() {
        // A plan after the one that was interrupted: its hosts are not asked for anything.
        let finished = run::run(&steps, settings, &History::new(), &mut NoBench, sinks, progress, interrupts)?;
        let verdicts = vec![Vec::new(); finished.len()];
        report.add(plan, &steps, finished, verdicts, Vec::new());
        return Ok(());
    }
    progress.say(&headline(plan));
    let allowed = DaemonOptions { hooks: options.allow_hooks };
    let mut hosts = match met {
        Some(hosts) => hosts,
        None => Hosts::open(plan, &steps, options.key.as_ref(), options.interim, allowed, stop, progress)?,
    };
    let warnings = hosts.ready(plan, &steps)?;
    if let Some(line) = hosts.checked() {
        progress.say(&line);
    }
    for warning in warnings {
        progress.warn(&warning);
    }
    sinks.record.facts.hosts.extend(hosts.records().clone());
    sinks.record.write()?;
    let here = Environment::of(&sinks.record.facts);
    expectations.check(&here)?;
    if let Some(note) = options.until.as_ref().map(|until| until.check(&here)).transpose()?.flatten() {
        sinks.note(note);
    }
    let surroundings =
        Surroundings::of(plan, hosts.launchers(), shared.files.dir.as_deref(), options.key.as_ref(), stop)?;
    let mut bench = Programs::around(&mut hosts, surroundings, sinks.hook_log.clone());
    let mut measure = || {
        let finished = run::run(&steps, settings, &shared.taken.history, &mut bench, sinks, progress, interrupts)?;
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
            stop: interrupts,
        };
        confirm.run(&mut verdicts, &mut bench, sinks, progress)?;
        Ok((finished, verdicts))
    };
    let measured: Result<_, Error> = measure();
    // Cleanup runs also after an error.
    bench.finish(progress);
    let (finished, verdicts) = measured?;
    let surveys = gate::surveys(plan, &steps.iter().zip(&finished).collect::<Vec<_>>());
    if let Some(live_state) = &options.live_state {
        let of_surveys = surveys.iter().map(|survey| &survey.verdicts);
        verdicts.iter().chain(of_surveys).for_each(|rows| live_state.verdicts(rows));
    }
    report.add(plan, &steps, finished, verdicts, surveys);
    Ok(())
}

/// Measures nothing.
struct NoBench;

impl Bench for NoBench {
    fn measure(&mut self, _: &Step, _: u32, _: &mut Progress) -> Result<Measured, MeasureError> {
        Err(MeasureError::failed("interrupted"))
    }
}

/// `quick · 3 cases · about 18 s · this machine (loopback, embedded daemon)`
fn headline(plan: &Plan) -> String {
    let ends = plan.cases.iter().flat_map(|c| &c.members).flat_map(Member::places);
    let hosts = ranges::folds(ends.filter(|end| matches!(end, Endpoint::Host(_))).map(Endpoint::name));
    let place = if hosts.is_empty() {
        "this machine (loopback, embedded daemon)".to_owned()
    } else {
        format!("this machine and {}", hosts.join(", "))
    };
    format!("{} · {} · {} · {place}", plan.name, counted(plan.cases.len(), "case"), plan.estimate())
}
