//! One invocation of `plumb run`: plans, hosts, schedule, sinks and verdict brought together.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    path::PathBuf,
};

use analyze::judge::{VerdictRow, environment::Environment};
use netcore::{control::key::Key, spec::Pattern};
use schemas::columns::Row;

use crate::{
    error::{Error, Exit},
    gate::{Expectations, Verdicts, confirm::Confirm},
    hosts::Hosts,
    plan::{Format, Plan, case::Endpoint},
    programs::{Surroundings, hooks::Programs},
    progress::Progress,
    resume::{self, Earlier},
    schedule::{
        bench::{Measured, RowSink},
        history::Taken,
        run::{self, Finished, Settings},
        step::{self, Step},
    },
    signals::Interrupts,
    sinks::{
        ci::{self, CaseResult},
        counters::CounterSink,
        csv::CsvSink,
        files::Files,
        notes::Notes,
        plots,
        run_json::{PlanFacts, RunFacts, RunJson},
        table,
    },
    style,
};

/// What the command line says about the whole.
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
    /// Key for daemons that the plan names none for.
    pub key_file: Option<PathBuf>,
    /// A line per interval.
    pub interim: bool,
    /// `--set` and its like, for the record.
    pub overrides: Vec<String>,
}

/// What came out.
pub struct Outcome {
    summaries: Vec<(Option<Pattern>, Row)>,
    verdicts: Verdicts,
    cases: Vec<CaseResult>,
    notes: Vec<String>,
    failed: bool,
    /// Where the rows are.
    kept: Option<PathBuf>,
    /// Whether the reader of the rows went away: then nothing is missing to anybody.
    closed: bool,
}

/// Runs the plans one after the other into one table.
pub fn run(
    plans: &[Plan],
    options: &Options,
    interrupts: &Interrupts,
    progress: &mut Progress,
) -> Result<Outcome, Error> {
    let earlier = options.resume.as_deref().map(|dir| Earlier::read(dir, plans)).transpose()?;
    let id = uuid::Uuid::now_v7();
    let run_id = earlier.as_ref().map_or_else(|| id.to_string(), |e| e.run_id.clone());
    let seed = earlier.as_ref().map_or(id.as_u64_pair().1, |e| e.seed);
    let mut axis_paths: Vec<String> = Vec::new();
    for path in plans.iter().flat_map(|p| &p.axis_paths) {
        if !axis_paths.contains(path) {
            axis_paths.push(path.clone());
        }
    }
    let mut files =
        Files::of(plans, options.output.as_deref(), options.junit.as_deref(), options.resume.as_deref(), &run_id)?;
    if options.stdout_rows {
        // A plan's folder then has everything but the table, as it does where -o names a file.
        files.results = None;
    }
    files.keep_plans(plans)?;
    let taken = match (&earlier, &files.results, plans.first()) {
        (Some(_), Some(results), Some(plan)) => resume::take_up(results, &files, plan, &run_id, &axis_paths)?,
        _ => Taken::default(),
    };
    let table = |path: &PathBuf| match &earlier {
        Some(_) if path.exists() => CsvSink::append(path, &axis_paths),
        _ => CsvSink::create(path, &axis_paths),
    };
    let csv = match &files.results {
        Some(path) => Some(table(path)?),
        None if options.stdout_rows => Some(CsvSink::stdout(&axis_paths)?),
        None => None,
    };
    let intervals = files.intervals.as_ref().map(table).transpose()?;
    let facts = RunFacts {
        results_version: schemas::publish::RESULTS_VERSION,
        run_id: run_id.clone(),
        tool_version: env!("CARGO_PKG_VERSION"),
        argv: std::env::args().collect(),
        began: earlier.as_ref().map_or_else(now, |e| e.began.clone()),
        resumed: earlier.as_ref().map_or_else(Vec::new, |e| [e.resumed.clone(), vec![now()]].concat()),
        ended: None,
        interrupted: None,
        plans: Vec::new(),
        hosts: BTreeMap::new(),
        cases: earlier.as_ref().map(|e| e.cases.clone()).unwrap_or_default(),
        notes: Vec::new(),
    };
    let mut sinks = Sinks {
        csv,
        intervals,
        counters: files.counters.as_deref().map(|path| CounterSink::new(path, earlier.is_some())),
        record: RunJson::new(facts, files.run_json.clone()),
        notes: Notes::default(),
    };
    let mut outcome = Outcome {
        summaries: Vec::new(),
        verdicts: Verdicts::default(),
        cases: Vec::new(),
        notes: Vec::new(),
        failed: false,
        kept: files.results.clone(),
        closed: false,
    };
    let shared = Shared {
        run_id,
        seed,
        taken,
        axis_paths,
        options,
        interrupts,
        run_dir: files.dir.clone(),
        hooks_log: files.hooks.clone(),
    };
    for plan in plans {
        let finished = one(plan, &shared, progress, &mut sinks)?;
        for (step, finished, verdicts) in finished {
            outcome.failed |= finished.failed.is_some();
            for (member, _, row) in &finished.summaries {
                let pattern =
                    step.members.get(*member).or(step.members.first()).and_then(|m| m.spec()).map(|s| s.pattern);
                outcome.summaries.push((pattern, row.clone()));
            }
            outcome.verdicts.add(plan, &verdicts);
            outcome.cases.push(CaseResult {
                test: step.test.to_string(),
                case: step.name.clone(),
                failed: finished.failed.map(|f| f.message),
                skipped: finished.skipped.filter(|_| finished.done == 0),
                verdicts,
            });
        }
    }
    progress.clear();
    sinks.record.facts.ended = Some(now());
    sinks.record.facts.interrupted = interrupts.name();
    outcome.notes = sinks.notes.of_run(&sinks.record.facts.hosts);
    sinks.record.facts.notes.clone_from(&outcome.notes);
    sinks.record.write()?;
    outcome.closed = sinks.is_closed();
    leave(plans, &files, &outcome, progress)?;
    Ok(outcome)
}

/// Writes what is made from the results when all is measured.
fn leave(plans: &[Plan], files: &Files, outcome: &Outcome, progress: &Progress) -> Result<(), Error> {
    let names: Vec<&str> = plans.iter().map(|p| p.name.as_str()).collect();
    let name = names.join(" ");
    if let Some(path) = files.verdicts.as_deref().filter(|_| !outcome.verdicts.rows().is_empty()) {
        outcome.verdicts.write_csv(path)?;
    }
    if let Some(path) = &files.junit {
        ci::junit(path, &name, &outcome.cases)?;
    }
    let mut table = Vec::new();
    table::summary(&outcome.summaries).markdown(&mut table).map_err(Error::output("the summary"))?;
    let text = ci::markdown(&name, &String::from_utf8_lossy(&table), outcome.verdicts.rows(), &outcome.notes)?;
    ci::write_markdown(files.markdown.as_ref(), &text)?;
    if files.annotations {
        progress.print(ci::annotations(&outcome.cases).trim_end());
    }
    match &files.results {
        Some(results) => {
            for (plot, file) in &files.plots {
                // Time series are drawn from intervals, wherever those are.
                let table = files
                    .intervals
                    .as_ref()
                    .filter(|_| plot.kind == analyze::plot::Kind::Timeseries)
                    .unwrap_or(results);
                // Rows are what was asked for; a picture that cannot be drawn of them takes nothing from them.
                match plots::draw(plot, table, file) {
                    Ok(notes) => notes.iter().for_each(|note| progress.note(note)),
                    Err(e) => progress.warn(&e.to_string()),
                }
            }
        }
        None if !files.plots.is_empty() => {
            progress.note("the plan's pictures are drawn from kept rows: add -o results.csv, or set output.dir");
        }
        None => {}
    }
    Ok(())
}

/// What every plan of a run shares.
struct Shared<'a> {
    run_id: String,
    /// For the order of plans that name no seed. Part of the record, or the order could not be had again.
    seed: u64,
    /// What an interrupted run had finished; empty for a new one.
    taken: Taken,
    axis_paths: Vec<String>,
    options: &'a Options,
    interrupts: &'a Interrupts,
    /// The folder of the results, for programs that add to them.
    run_dir: Option<PathBuf>,
    hooks_log: Option<PathBuf>,
}

/// Runs one plan.
fn one(
    plan: &Plan,
    shared: &Shared<'_>,
    progress: &mut Progress,
    sinks: &mut Sinks,
) -> Result<Vec<(Step, Finished, Vec<VerdictRow>)>, Error> {
    let expectations = Expectations::of(plan)?;
    let warnings = plan.warnings.render(Format::Human);
    if !warnings.is_empty() {
        progress.print(warnings.trim_end());
    }
    let (options, stop) = (shared.options, shared.interrupts.flag());
    let steps = step::steps(plan, &shared.run_id, &shared.axis_paths);
    let seed = plan.run.seed.unwrap_or(shared.seed);
    sinks.record.facts.plans.push(PlanFacts::of(plan, options.overrides.clone(), seed));
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
    expectations.check(&environment(&sinks.record.facts))?;
    let settings = Settings { order: plan.run.order, seed, fail_fast: plan.run.fail_fast, retries: plan.run.retries };
    let surroundings = Surroundings::of(plan, shared.run_dir.as_deref(), key.as_ref(), stop)?;
    let log = shared.hooks_log.as_deref();
    let mut bench = Programs::around(&mut hosts, surroundings, log, options.resume.is_some());
    let finished = run::run(&steps, settings, &shared.taken.history, &mut bench, sinks, progress, stop);
    let finished = match finished {
        Ok(finished) => finished,
        // Also where the run came to nothing: what was set up is taken down.
        Err(e) => {
            bench.finish(progress);
            return Err(e);
        }
    };
    let cases: Vec<_> = steps.iter().zip(&finished).collect();
    let here = environment(&sinks.record.facts);
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
    let confirmed = confirm.run(&mut verdicts, &mut bench, sinks, progress);
    bench.finish(progress);
    confirmed?;
    Ok(steps.into_iter().zip(finished).zip(verdicts).map(|((s, f), v)| (s, f, v)).collect())
}

/// What tells this run's machines from others.
fn environment(facts: &RunFacts) -> Environment {
    // Of plain data, as it is written to `run.json`.
    Environment::of(&serde_json::to_value(facts).unwrap_or_default())
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

fn now() -> String {
    format!("{:.6}", jiff::Timestamp::now())
}

/// Rows to the table, what the ends say about themselves to the record.
struct Sinks {
    csv: Option<CsvSink>,
    /// Interval rows, where they have a table of their own.
    intervals: Option<CsvSink>,
    counters: Option<CounterSink>,
    record: RunJson,
    notes: Notes,
}

impl RowSink for Sinks {
    fn rows(&mut self, rows: &[Row]) -> Result<(), Error> {
        let apart = self.intervals.is_some();
        let (intervals, rest): (Vec<Row>, Vec<Row>) =
            rows.iter().cloned().partition(|r| apart && r.record.as_deref() == Some("interval"));
        if let Some(table) = &mut self.intervals {
            table.rows(&intervals)?;
        }
        match &mut self.csv {
            Some(csv) => csv.rows(&rest),
            None => Ok(()),
        }
    }

    fn reports(&mut self, step: &Step, iteration: u32, measured: &Measured) -> Result<(), Error> {
        self.record.keep(step, measured)?;
        self.notes.keep(&step.name, measured);
        match &mut self.counters {
            Some(counters) => counters.keep(step, iteration, measured),
            None => Ok(()),
        }
    }

    fn note(&mut self, sentence: String) {
        self.notes.add(sentence);
    }

    fn is_closed(&self) -> bool {
        self.csv.as_ref().is_some_and(CsvSink::is_closed)
    }
}

impl Outcome {
    /// The summary for a person: results, what to know about them, verdicts, and where the rows are.
    pub fn write_summary(&self, out: &mut dyn Write) -> Result<(), Error> {
        self.write_results(out).map_err(Error::output("standard output"))?;
        self.verdicts.write_table(out)?;
        let fault = || Error::output("standard output");
        match &self.kept {
            Some(path) => writeln!(out, "rows: {}", path.display()).map_err(fault()),
            None if self.summaries.is_empty() => Ok(()),
            None => writeln!(out, "rows not kept: add -o results.csv, or pipe them into a filter").map_err(fault()),
        }
    }

    fn write_results(&self, out: &mut dyn Write) -> io::Result<()> {
        if !self.summaries.is_empty() {
            writeln!(out)?;
            table::summary(&self.summaries).write(out)?;
            writeln!(out)?;
        }
        self.write_notes(out)
    }

    fn write_notes(&self, out: &mut dyn Write) -> io::Result<()> {
        for note in &self.notes {
            writeln!(out, "{}note:{} {note}", style::NOTE, style::NOTE.render_reset())?;
        }
        Ok(())
    }

    /// Only notes and verdicts, for where standard output belongs to the rows. A reader who has left wants no notes either.
    pub fn write_remarks(&self, out: &mut dyn Write) -> Result<(), Error> {
        if !self.closed {
            self.write_notes(out).map_err(Error::output("standard error"))?;
        }
        self.verdicts.write_table(out)
    }

    /// How the program ends: a signal's own code, else the worst of verdicts and measurements, in the documented order.
    pub fn exit(&self, interrupts: &Interrupts) -> Exit {
        if self.closed {
            return Exit::Success;
        }
        if let Some(exit) = interrupts.exit() {
            return exit;
        }
        match self.verdicts.exit() {
            Exit::Failed => Exit::Failed,
            _ if self.failed => Exit::Measurement,
            other => other,
        }
    }
}
