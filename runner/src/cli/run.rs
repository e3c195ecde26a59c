//! `plumb run`: plans in, rows out.

use std::{
    fs::{self, File},
    io::{IsTerminal, Write},
    net::SocketAddr,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::MetadataExt,
    },
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use analyze::table::layout::Sheet;
use clap::ValueEnum;
use schemas::units;

use super::Selection;
use crate::{
    campaign::{self, Options, Report},
    error::{Error, Exit},
    metrics::{self, LiveState, Server},
    plan::{self, Format},
    programs::{self, Allowed},
    progress::{Mode, Progress},
    signals::Interrupts,
    sinks::ci::{self, CaseResult},
    style,
};

pub const EXAMPLES: &str = "\
Examples:
  plumb run quick
  plumb run plans/message-size.yaml -o sizes.csv
  plumb run responsiveness --to b.lab -o lab.csv
  plumb run lab.yaml --resume results/0198c2…
  plumb run lab.yaml --resume lab.csv
  plumb run lab.yaml --only 'bulk*' --set duration=1s
  plumb run lab.yaml --metrics 9464 --metrics-linger 30s   Prometheus scrapes 127.0.0.1:9464
  plumb run plans/quick.yaml | plumb aggregate -g case -m throughput_bits_per_s | plumb table

Rows go to FILE with -o, else to standard output if that is a pipe or a file: then the summary goes to standard error. \
Progress, notes and errors always go there.

A table of a run that came to its end is replaced, with the files beside it, when this run has its first rows. Another file \
of that name stays as it is: --resume goes on with a run that was cut off, --overwrite replaces it. One run at a time writes \
to a place.

SIGINT, SIGTERM, SIGHUP and SIGALRM end the measurement early: every iteration that is complete is written and summed up, \
the one that was cut off is kept with the status `cut` and does not count, and what was not measured is said. The exit code \
is 130 after SIGINT, 143 after SIGTERM and 129 after SIGHUP (which nohup keeps away). SIGALRM lets a timer end a long run and \
changes no exit code (timeout -s ALRM 60 plumb run …); the only iteration of a case counts then. A second SIGINT or SIGTERM \
ends it at once.";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Plans to run, one after the other, into one table: files, or names that `plumb plans` lists; `-` is standard input.
    #[arg(required = true, value_name = "PLAN")]
    plans: Vec<String>,
    /// Write the rows to FILE, and facts about the run beside it (results.csv → results.run.json); `-` is standard output.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write JUnit XML to FILE [default: the plan's output.junit].
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Go on with an interrupted run: PLACE is its folder (output.dir) or its table (-o). Finished iterations are kept.
    #[arg(long, value_name = "PLACE", conflicts_with = "output")]
    resume: Option<PathBuf>,
    /// Replace the results of a run that was cut off, or a file other than the table of a run.
    #[arg(long, conflicts_with = "resume")]
    overwrite: bool,
    #[command(flatten)]
    allowed: Allowed,
    #[command(flatten)]
    selection: Selection,
    /// Show progress: auto (a line that rewrites itself on a terminal, plain lines elsewhere), always that line, or never.
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    progress: When,
    /// Print a line on standard error per interval of a running measurement.
    #[arg(long)]
    interim: bool,
    /// Answer scrapes of Prometheus while the run goes on, at http://ADDR/metrics (docs/guide/live.md). A port alone is on
    /// loopback, and 0 is a free one; no key protects another address.
    #[arg(long, value_name = "[ADDR:]PORT", value_parser = metrics::address)]
    metrics: Option<SocketAddr>,
    /// After the end, wait until a scraper has read the last case and the verdicts, for this long at most.
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration, requires = "metrics")]
    metrics_linger: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum When {
    Auto,
    Always,
    Never,
}

impl When {
    pub(super) fn mode(self) -> Mode {
        match self {
            Self::Auto => Mode::auto(),
            Self::Always => Mode::Line,
            Self::Never => Mode::Silent,
        }
    }
}

pub fn run(args: &Args) -> Result<Exit, Error> {
    let options = args.selection.options();
    let mut plans = Vec::new();
    let (mut wrong, mut faults) = (String::new(), Vec::new());
    for path in &args.plans {
        let mistakes = match plan::load(path, &options) {
            Ok(plan) => {
                let refused = programs::check(&plan, args.allowed);
                plans.push(plan);
                refused
            }
            Err(diagnostics) => diagnostics,
        };
        wrong.push_str(&mistakes.render(Format::Human));
        let failed = Some(mistakes.sentences().join("; ")).filter(|text| !text.is_empty());
        faults.push(CaseResult { test: "plan".to_owned(), case: path.clone(), failed, ..CaseResult::default() });
    }
    if !wrong.is_empty() {
        // CI would read the JUnit of an earlier run as that of this one.
        let is = |file: &Path, plan: &String| {
            fs::canonicalize(plan).is_ok_and(|plan| Some(plan) == fs::canonicalize(file).ok())
        };
        let is_plan = |file: &PathBuf| args.plans.iter().any(|plan| is(file, plan));
        if let Some(junit) = args.junit.as_ref().filter(|file| !is_plan(file))
            && let Err(other) = ci::junit(junit, &args.plans.join(" "), &faults)
        {
            other.print();
        }
        return Err(Error::Plan(wrong));
    }
    plan::tell_apart(&mut plans);
    let interrupts = Interrupts::install(announce)?;
    let mode = args.progress.mode();
    let (to_stdout, output) = match &args.output {
        Some(output) if output.as_os_str() == "-" => (true, None),
        output => (false, output.clone()),
    };
    let kept = output.is_some() || args.resume.is_some() || plans.iter().any(|p| p.output.dir.is_some());
    let terminal = std::io::stdout().is_terminal();
    let mut progress = Progress::new(mode);
    let live_state = args.metrics.map(|address| answer_scrapes(address, &mut progress)).transpose()?;
    let options = Options {
        output,
        junit: args.junit.clone(),
        resume: args.resume.clone(),
        overwrite: args.overwrite,
        stdout_rows: to_stdout || !kept && !terminal,
        key: args.selection.key.load()?,
        interim: args.interim,
        allow_hooks: args.allowed.hooks,
        overrides: args.selection.written(),
        until: None,
        live_state: live_state.clone(),
    };
    let report = match campaign::run(&plans, &options, None, &interrupts, &mut progress) {
        Err(error) if interrupts.exit().is_some() => {
            // Whatever was waited for when the signal came did not happen: that is not this error's fault.
            error.print();
            return Ok(interrupts.exit().unwrap_or(Exit::Measurement));
        }
        report => report?,
    };
    show(&report, &options)?;
    if let (Some(live_state), Some(limit)) = (live_state, args.metrics_linger) {
        live_state.linger(limit, &interrupts);
    }
    Ok(report.exit(&interrupts))
}

/// Begins to answer scrapes, and says where.
fn answer_scrapes(address: SocketAddr, progress: &mut Progress) -> Result<Arc<LiveState>, Error> {
    let server = Server::bind(address)?;
    let live_state = LiveState::new(progress.watch())
        .map_err(|e| Error::Measurement(format!("--metrics has no descriptor left: {e}")))?;
    style::tell(format_args!("metrics: {}", server.url()));
    server.start(live_state.clone())?;
    Ok(live_state)
}

/// Says at once that a signal was heard: the end of a measurement may take a while.
pub(super) fn announce(signal: &str) {
    // Over the progress line, if there is one.
    let start = if std::io::stderr().is_terminal() { "\r\u{1b}[2K" } else { "" };
    style::tell(format_args!(
        "{start}{signal}: this measurement ends early; a second SIGINT or SIGTERM ends it at once"
    ));
}

/// Whether one person reads standard output and standard error: on a terminal, or in one file or pipe (`2>&1 | tee log`).
fn is_one_reader() -> bool {
    let (out, err) = (std::io::stdout(), std::io::stderr());
    if out.is_terminal() && err.is_terminal() {
        return true;
    }
    let place = |fd: BorrowedFd<'_>| {
        let meta = File::from(fd.try_clone_to_owned().ok()?).metadata().ok()?;
        Some((meta.dev(), meta.ino()))
    };
    place(out.as_fd()).zip(place(err.as_fd())).is_some_and(|(out, err)| out == err)
}

/// Shows the results to people. A closed pipe is ignored: the exit code still tells the verdict.
fn show(report: &Report, options: &Options) -> Result<(), Error> {
    if options.stdout_rows {
        // A log of rows without an answer helps no person.
        let _ = report.write_summary(true, true, &Sheet::stderr(), &mut anstream::stderr().lock());
        return Ok(());
    }
    let has_seen = is_one_reader();
    let mut out = anstream::stdout().lock();
    let shown = report
        .write_summary(false, has_seen, &Sheet::stdout(), &mut out)
        .and_then(|()| out.flush().map_err(Error::output("standard output")));
    shown.or_else(|error| if error.exit() == Exit::Success { Ok(()) } else { Err(error) })
}
