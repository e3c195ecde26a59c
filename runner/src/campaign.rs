//! One invocation of `plumb run`: plans, hosts, schedule, sinks and verdict brought together.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    path::PathBuf,
};

use netcore::spec::Pattern;
use schemas::columns::Row;

use crate::{
    cli::check::estimate,
    error::{Error, Exit},
    gate::{self, Verdicts},
    hosts::Hosts,
    plan::{Format, Plan, case::Endpoint, model::PlotKind},
    schedule::{
        from_plan,
        run::{self, Finished, Measured, RowSink, Settings},
        step::Step,
    },
    signals::Interrupts,
    sinks::{
        ci::{self, CaseResult},
        counters::CounterSink,
        csv::CsvSink,
        files::Files,
        notes::Notes,
        plots,
        progress::Progress,
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
    summaries: Vec<(Pattern, Row)>,
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
    let id = uuid::Uuid::now_v7();
    let run_id = id.to_string();
    let mut axis_paths: Vec<String> = Vec::new();
    for path in plans.iter().flat_map(|p| &p.axis_paths) {
        if !axis_paths.contains(path) {
            axis_paths.push(path.clone());
        }
    }
    let files = Files::of(plans, options.output.as_deref(), options.junit.as_deref(), None, &run_id)?;
    files.keep_plans(plans)?;
    let csv = match &files.results {
        Some(path) => Some(CsvSink::create(path, &axis_paths)?),
        None if options.stdout_rows => Some(CsvSink::stdout(&axis_paths)?),
        None => None,
    };
    let intervals = files.intervals.as_ref().map(|path| CsvSink::create(path, &axis_paths)).transpose()?;
    let facts = RunFacts {
        results_version: schemas::publish::RESULTS_VERSION,
        run_id: run_id.clone(),
        tool_version: env!("CARGO_PKG_VERSION"),
        argv: std::env::args().collect(),
        began: now(),
        ended: None,
        interrupted: None,
        plans: Vec::new(),
        hosts: BTreeMap::new(),
        cases: BTreeMap::new(),
    };
    let mut sinks = Sinks {
        csv,
        intervals,
        counters: files.counters.as_deref().map(CounterSink::new),
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
    let shared = Shared { run_id, seed: id.as_u64_pair().1, axis_paths, options, interrupts };
    for plan in plans {
        let finished = one(plan, &shared, progress, &mut sinks)?;
        for (case, (step, finished)) in plan.cases.iter().zip(&finished) {
            outcome.failed |= finished.failed.is_some();
            for (member, _, row) in &finished.summaries {
                let pattern = step.members.get(*member).or(step.members.first()).map(|m| m.spec.pattern);
                outcome.summaries.push((pattern.unwrap_or(Pattern::Stream), row.clone()));
            }
            let verdicts = gate::judge(plan, case, step, finished);
            outcome.cases.push(CaseResult {
                test: case.test.to_string(),
                case: case.name.clone(),
                failed: finished.failed.as_ref().map(|f| f.message.clone()),
                skipped: finished.skipped.clone().filter(|_| finished.done == 0),
                verdicts: verdicts.rows().to_vec(),
            });
            outcome.verdicts.add(verdicts);
        }
    }
    progress.clear();
    sinks.record.facts.ended = Some(now());
    sinks.record.facts.interrupted = interrupts.name();
    sinks.record.write()?;
    outcome.closed = sinks.is_closed();
    outcome.notes = sinks.notes.of_run(&sinks.record.facts.hosts);
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
        progress.plain(ci::annotations(&outcome.cases).trim_end());
    }
    match &files.results {
        Some(results) => {
            for (plot, file) in &files.plots {
                // Time series are drawn from intervals, wherever those are.
                let table = files.intervals.as_ref().filter(|_| plot.kind == PlotKind::Timeseries).unwrap_or(results);
                // Rows are what was asked for; a picture that cannot be drawn of them takes nothing from them.
                if let Err(e) = plots::draw(plot, table, file) {
                    progress.warn(&e.to_string());
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
    axis_paths: Vec<String>,
    options: &'a Options,
    interrupts: &'a Interrupts,
}

/// Runs one plan.
fn one(
    plan: &Plan,
    shared: &Shared<'_>,
    progress: &mut Progress,
    sinks: &mut Sinks,
) -> Result<Vec<(Step, Finished)>, Error> {
    let warnings = plan.warnings.render(Format::Human);
    if !warnings.is_empty() {
        progress.plain(warnings.trim_end());
    }
    let (options, stop) = (shared.options, shared.interrupts.flag());
    let steps = from_plan::steps(plan, &shared.run_id, &shared.axis_paths);
    let seed = plan.run.seed.unwrap_or(shared.seed);
    sinks.record.facts.plans.push(PlanFacts::of(plan, options.overrides.clone(), seed));
    progress.say(&headline(plan));
    let mut hosts = Hosts::open(plan, &steps, options.key_file.as_deref(), options.interim, stop)?;
    if let Some(line) = hosts.checked() {
        progress.say(&line);
    }
    sinks.record.facts.hosts.extend(hosts.take_records());
    sinks.record.write()?;
    let settings = Settings { order: plan.run.order, seed, fail_fast: plan.run.fail_fast, retries: plan.run.retries };
    let finished = run::run(&steps, settings, &mut hosts, sinks, progress, stop)?;
    Ok(steps.into_iter().zip(finished).collect())
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
    format!("{} · {cases} case{plural} · {} · {place}", plan.name, estimate(plan.estimate()))
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
    fn row(&mut self, row: &Row) -> Result<(), Error> {
        let csv = match &mut self.intervals {
            Some(intervals) if row.record.as_deref() == Some("interval") => Some(intervals),
            _ => self.csv.as_mut(),
        };
        match csv {
            Some(csv) => csv.row(row),
            None => Ok(()),
        }
    }

    fn reports(&mut self, step: &Step, iteration: u32, measured: &Measured) -> Result<(), Error> {
        self.record.keep(step, measured);
        self.notes.keep(measured);
        match &mut self.counters {
            Some(counters) => counters.keep(step, iteration, measured),
            None => Ok(()),
        }
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
        for note in &self.notes {
            writeln!(out, "{}note:{} {note}", style::NOTE, style::NOTE.render_reset())?;
        }
        Ok(())
    }

    /// Only the verdicts, for where standard output belongs to the rows.
    pub fn write_verdicts(&self, out: &mut dyn Write) -> Result<(), Error> {
        self.verdicts.write_table(out)
    }

    /// How the program ends: a signal's own code, else the worst of verdicts and measurements, in the documented order.
    #[must_use]
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
