//! One cycle, in a process of its own: a run of the plan, its rows in the history, and a look at what they show.
//!
//! A process per cycle keeps the watch's memory flat, and a crash of a run harmless: what the kernel takes back, nothing leaks.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use analyze::{
    history::{
        added, analysed, commits,
        store::{self, Order},
        thin::Period,
    },
    site,
};
use netcore::{control::key::Key, measure::host::HostFacts};
use nix::sys::{prctl::set_pdeathsig, signal::Signal};
use schemas::{
    columns::{CycleRow, Timestamp},
    metrics::Metric,
    units, vocabulary,
    words::CycleStatus,
};
use serde::{Deserialize, Serialize};

use super::levels;
use crate::{
    campaign::{self, Options, Report},
    error::{Error, Exit},
    plan::{self, LoadOptions},
    programs::{self, Allowed},
    progress::{Mode, Progress},
    signals::Interrupts,
    style,
};

/// What is kept of the cycles, and who is told.
#[derive(Clone, Debug, clap::Args)]
pub struct Kept {
    /// Folder of the history, which `plumb trend` and `plumb report --history` read. One watch at a time keeps it.
    #[arg(long, value_name = "DIR")]
    pub history: PathBuf,
    /// Metric to keep besides the headline of each case and what stands beside it; may be repeated.
    #[arg(short = 'k', long = "metric", value_name = "METRIC", value_parser = vocabulary::metric)]
    pub besides: Vec<&'static Metric>,
    /// Thin out runs that are older than this age or before this date, once a day, as `plumb history compact` does.
    #[arg(long, value_name = "AGE|DATE", default_value = "90d", value_parser = age)]
    pub older_than: String,
    /// Write the pages of the history into this folder after each cycle, as `plumb report --history` does.
    #[arg(long, value_name = "DIR")]
    pub site: Option<PathBuf>,
    /// Run this command (by `sh -c`) once for each new level, with JSON about it on its standard input. It is ended after 30 s.
    #[arg(long, value_name = "COMMAND")]
    pub notify: Option<String>,
    /// Smallest change of a level that is told. The trend and the site have smaller ones, too.
    #[arg(long, value_name = "RATIO", default_value = "5%", value_parser = units::parse_margin)]
    pub min_effect: f64,
}

/// An age or a date, as `plumb history compact` takes it. An age counts from each cycle.
fn age(text: &str) -> Result<String, String> {
    store::parse_before(text).map(|_| text.to_owned())
}

/// Facts that all cycles of a watch share.
pub struct Settings {
    /// Name or file of the plan.
    pub plan: String,
    pub options: LoadOptions,
    pub overrides: Vec<String>,
    pub allowed: Allowed,
    pub key: Option<Key>,
    pub kept: Kept,
}

impl Settings {
    /// The watcher's own files, beside the history's.
    pub fn own(&self, name: &str) -> PathBuf {
        self.kept.history.join(".watch").join(name)
    }

    /// The table of the latest run.
    pub fn table(&self) -> PathBuf {
        self.own("last.csv")
    }

    /// A plan from its text, checked as `plumb run` does.
    pub fn load(&self, text: &str) -> Result<plan::Plan, Error> {
        let mut plan = plan::load_str(&self.plan, text, &self.options)?;
        programs::permit(&plan, self.allowed, "")?;
        // Results of each cycle would pile up; the history has them.
        plan.output = plan::model::Output::default();
        Ok(plan)
    }
}

/// How a cycle ended, as its process tells the watch in a line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    pub status: CycleStatus,
    pub reason: String,
    pub run_id: String,
    pub length_s: f64,
}

impl Outcome {
    pub fn of(status: CycleStatus, reason: impl Into<String>) -> Self {
        Self { status, reason: reason.into(), run_id: String::new(), length_s: 0.0 }
    }
}

/// Name of the machine that watches.
pub fn host() -> String {
    HostFacts::collect().hostname.unwrap_or_default()
}

/// A cell of a row, which an empty text leaves empty.
pub fn cell(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// Runs the cycle that began at this time, and whose plan has this text. `tell` hands the outcome over, as soon as it is known.
pub fn run(settings: &Settings, text: &str, began: &str, tell: impl FnOnce(&Outcome)) -> Result<(), Error> {
    let start = Instant::now();
    // A watch that is killed takes its cycle with it.
    let _ = set_pdeathsig(Signal::SIGTERM);
    let interrupts = Interrupts::install(|_| {})?;
    let own = settings.own("");
    fs::create_dir_all(&own).map_err(Error::output(own.display()))?;
    // A cycle that was killed, or that a full disk ended, may have left a whole run.
    if settings.table().exists() {
        let _ = keep(settings);
    }
    let plan = settings.load(text);
    let name = plan.as_ref().map(|plan| plan.name.clone()).unwrap_or_default();
    let mut outcome = measure(settings, plan, &interrupts);
    outcome.length_s = start.elapsed().as_secs_f64();
    tell(&outcome);
    if outcome.status.is_measured() || outcome.status == CycleStatus::Failed {
        look(settings, &outcome)?;
    }
    match &settings.kept.site {
        Some(folder) if outcome.status != CycleStatus::Cut => {
            // The watch adds the row when this process has ended.
            let latest = CycleRow {
                time: Some(Timestamp(began.to_owned())),
                plan: Some(name),
                host: cell(&host()),
                status: Some(outcome.status),
                reason: cell(&outcome.reason),
                ..CycleRow::default()
            };
            let whole = analysed::Asked { plan: None, latest: Some(latest), ..levels::asked("", 0.01) };
            site::write(&settings.kept.history, &whole, None, folder)?;
        }
        _ => {}
    }
    Ok(())
}

/// Measures, and keeps what was measured.
fn measure(settings: &Settings, plan: Result<plan::Plan, Error>, interrupts: &Interrupts) -> Outcome {
    let measured = plan.and_then(|plan| {
        let options = Options {
            output: Some(settings.table()),
            overwrite: true,
            key: settings.key.clone(),
            allow_hooks: settings.allowed.hooks,
            overrides: settings.overrides.clone(),
            ..Options::default()
        };
        campaign::run(&[plan], &options, None, interrupts, &mut Progress::new(Mode::Silent))
    });
    if let Some(signal) = interrupts.name() {
        return Outcome::of(CycleStatus::Cut, format!("ended by {signal}"));
    }
    let report = match measured {
        Ok(report) => report,
        Err(error) => return failed(&error),
    };
    let failures = failures(&report);
    let run_id = match keep(settings) {
        Ok(run_id) => run_id,
        // No case has a value.
        Err(error) if failures.is_empty() || is_unwritten(&error) => return failed(&error),
        Err(_) => return Outcome::of(CycleStatus::Down, failures),
    };
    let (status, reason) = match report.exit(interrupts) {
        _ if !failures.is_empty() => (CycleStatus::Failed, failures),
        Exit::Failed | Exit::Inconclusive => {
            let why = report.broken().unwrap_or_else(|| "a verdict is inconclusive".to_owned());
            (CycleStatus::Judged, why)
        }
        // Also where a signal came after the run.
        _ => (CycleStatus::Ok, String::new()),
    };
    Outcome { run_id, ..Outcome::of(status, reason) }
}

/// Adds the latest run to the history. Returns its id.
fn keep(settings: &Settings) -> Result<String, Error> {
    let commit = commits::present().unwrap_or_default();
    let rows = added::rows(&settings.table(), &commit, &[], &settings.kept.besides)?;
    let (_, notes) = store::append(&settings.kept.history, &rows)?;
    for note in notes {
        style::tell(format_args!("note: {note}"));
    }
    Ok(rows.first().and_then(|row| row.run_id.clone()).unwrap_or_default())
}

fn failed(error: &Error) -> Outcome {
    let status = if is_unwritten(error) { CycleStatus::Unwritten } else { CycleStatus::Down };
    Outcome::of(status, error.sentence())
}

/// Whether the results could not be written.
fn is_unwritten(error: &Error) -> bool {
    let is_full = |source: &std::io::Error| {
        matches!(
            source.kind(),
            std::io::ErrorKind::StorageFull
                | std::io::ErrorKind::QuotaExceeded
                | std::io::ErrorKind::ReadOnlyFilesystem
                | std::io::ErrorKind::PermissionDenied
        )
    };
    match error {
        Error::Output { .. } => true,
        Error::Filter(analyze::Error::File { source, .. }) => is_full(source),
        _ => false,
    }
}

/// The cases that could not be measured, in one sentence.
fn failures(report: &Report) -> String {
    let mut all = report.failures();
    let Some((case, why)) = all.next() else { return String::new() };
    let why = why.lines().next().unwrap_or_default();
    match all.count() {
        0 => format!("{case}: {why}"),
        more => format!("{case}: {why} (and {more} more)"),
    }
}

/// Looks at the history with the new run: thins it out, tells new levels.
fn look(settings: &Settings, outcome: &Outcome) -> Result<(), Error> {
    if let Err(error) = compact(settings) {
        style::tell(format_args!("the history stays as long as it is: {}", error.sentence()));
    }
    let plan = plan_of(&settings.table())?;
    let asked = levels::asked(&plan, settings.kept.min_effect);
    let (reading, all) = analysed::read(&settings.kept.history, &asked)?;
    if outcome.status.is_measured() {
        let of_plan: Vec<_> = reading.series().into_iter().filter(|series| series.key.plan == plan).collect();
        for sentence in levels::differences(&reading, &of_plan, &outcome.run_id) {
            style::tell(format_args!("note: {sentence}"));
        }
    }
    levels::tell(&settings.kept.history, &settings.own("told.csv"), &reading, &all, settings.kept.notify.as_deref())
}

/// The name of the plan of a run.
fn plan_of(table: &Path) -> Result<String, Error> {
    let record = analyze::judge::environment::read(table)?;
    Ok(record.and_then(|record| record.plans.first().map(|plan| plan.name.clone())).unwrap_or_default())
}

/// Thins out old runs, once a day.
fn compact(settings: &Settings) -> Result<(), Error> {
    let (day, done) = (schemas::time::now().get(..10).unwrap_or_default().to_owned(), settings.own("compacted"));
    if fs::read_to_string(&done).is_ok_and(|last| last == day) {
        return Ok(());
    }
    let before = store::parse_before(&settings.kept.older_than).map_err(Error::Usage)?;
    let order = Order { before, keep: Period::Week, repair: true, is_dry: false };
    let (all, _) = store::compact(&settings.kept.history, &order)?;
    for compacted in all.iter().filter(|it| it.rows.1 < it.rows.0) {
        let (went, of) = (compacted.rows.0 - compacted.rows.1, compacted.rows.0);
        style::tell(format_args!("{}: {went} of {of} old rows went", compacted.file.display()));
    }
    crate::error::replace(&done, day)
}
