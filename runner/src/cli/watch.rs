//! `plumb watch`: a plan again and again.

use std::{
    io::{Read as _, Write as _},
    net::SocketAddr,
    path::PathBuf,
    time::Duration,
};

use schemas::{metrics::Metric, units, vocabulary};

use super::Selection;
use crate::{
    error::{Error, Exit},
    metrics,
    programs::Allowed,
    watch::{
        self, Timing,
        cycle::{self, Outcome, Settings},
        starts::{When, minute},
    },
};

pub const EXAMPLES: &str = "\
Examples:
  plumb watch lab.yaml --every 10m --history history/
  plumb watch lab.yaml --every 10m --history history/ --metrics 9464 --site site/
  plumb watch lab.yaml --at 02:00 --history history/ --notify 'mail -s plumb ops@example.org'
  plumb trend history/                                 what the cycles came to, and outages

Each cycle is a row of DIR/cycles.csv, also one that measured nothing: its status, the reason, and since when. A far end that \
cannot be reached, a failed test or a full disk ends no watch.

SIGHUP reads the plan again; one that does not check changes nothing. SIGTERM and SIGINT end the watch: a running cycle ends \
early, with its row written; a second signal ends it at once.

Exit codes: 0 ended by a signal; 2 the command line or the plan is wrong; 3 another watch has the folder, or the port is taken.";

/// The time over which starts at a time of the day are spread.
const SPREAD: Duration = Duration::from_mins(10);

#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("when").required(true)))]
pub struct Args {
    /// Plan to measure: a file, or a name that `plumb plans` lists.
    #[arg(value_name = "PLAN")]
    plan: String,
    /// Start at the multiples of this time. Where a cycle is still going on, the start is skipped and counted.
    #[arg(long, value_name = "TIME", value_parser = period, group = "when")]
    every: Option<Duration>,
    /// Start at this time of each local day, also where the clocks change; may be repeated.
    #[arg(long, value_name = "HH:MM", value_parser = minute, group = "when")]
    at: Vec<u32>,
    /// Start later by a part of this time, which follows from the names of the plan and of this host: many hosts with the same
    /// command do not start together. 0 starts in time [default: the time of --every; 10 minutes with --at]
    #[arg(long, value_name = "TIME", value_parser = super::duration)]
    spread: Option<Duration>,
    /// Folder of the history, which `plumb trend` and `plumb report --history` read. One watch at a time keeps it.
    #[arg(long, value_name = "DIR")]
    history: PathBuf,
    /// Metric to keep besides the headline of each case and what stands beside it; may be repeated.
    #[arg(short, long = "metric", value_name = "METRIC", value_parser = vocabulary::metric)]
    kept: Vec<&'static Metric>,
    /// Thin out runs that are older than this age or before this date, once a day, as `plumb history compact` does.
    #[arg(long, value_name = "AGE|DATE", default_value = "90d", value_parser = age)]
    older_than: String,
    /// Write the pages of the history into this folder after each cycle, as `plumb report --history` does.
    #[arg(long, value_name = "DIR")]
    site: Option<PathBuf>,
    /// Run this command (by `sh -c`) once for each new level, with JSON about it on its standard input. It is ended after 30 s.
    #[arg(long, value_name = "COMMAND")]
    notify: Option<String>,
    /// Smallest change of a level that is told. The trend and the site have smaller ones, too.
    #[arg(long, value_name = "RATIO", default_value = "5%", value_parser = units::parse_ratio)]
    min_effect: f64,
    /// End a cycle that takes longer [default: three times the plan's longest estimate, and 15 minutes]
    #[arg(long, value_name = "TIME", value_parser = super::duration)]
    limit: Option<Duration>,
    /// Answer scrapes of Prometheus at http://ADDR/metrics, and /probe, /healthz and /readyz (docs/guide/watch.md). A port alone is
    /// on loopback, and 0 is a free one; no key protects another address.
    #[arg(long, value_name = "[ADDR:]PORT", value_parser = metrics::address)]
    metrics: Option<SocketAddr>,
    #[command(flatten)]
    allowed: Allowed,
    #[command(flatten)]
    selection: Selection,
    /// Be the cycle that began at this time: take the plan's text from standard input, and tell the outcome in a line.
    #[arg(long, value_name = "TIME", hide = true)]
    cycle: Option<String>,
}

fn period(text: &str) -> Result<Duration, String> {
    match super::duration(text)? {
        time if time < Duration::from_millis(100) => Err("starts are 100 ms apart at least".to_owned()),
        time => Ok(time),
    }
}

/// An age or a date, as `plumb history compact` takes it. An age counts from each cycle.
fn age(text: &str) -> Result<String, String> {
    analyze::filters::history::parse_before(text).map(|_| text.to_owned())
}

pub fn run(args: &Args) -> Result<Exit, Error> {
    if args.plan == "-" {
        return Err(Error::Usage("a watch reads its plan again on SIGHUP: name a file".to_owned()));
    }
    let settings = Settings {
        plan: args.plan.clone(),
        options: args.selection.options(),
        overrides: args.selection.written(),
        allowed: args.allowed,
        key: args.selection.key.load()?,
        history: args.history.clone(),
        metrics: args.kept.clone(),
        site: args.site.clone(),
        notify: args.notify.clone(),
        min_effect: args.min_effect,
        older_than: args.older_than.clone(),
    };
    if let Some(began) = &args.cycle {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map_err(Error::measurement)?;
        cycle::run(&settings, &text, began, tell)?;
        return Ok(Exit::Success);
    }
    let when = args.every.map_or_else(|| When::At(args.at.clone()), When::Every);
    let spread = args.spread.unwrap_or_else(|| args.every.unwrap_or(SPREAD));
    let timing = Timing { when, spread, limit: args.limit };
    watch::watch(&settings, &timing, args.metrics, args.selection.key.key_file.as_deref())
}

/// The line that a cycle says.
fn tell(outcome: &Outcome) {
    let line = serde_json::to_string(outcome).unwrap_or_default() + "\n";
    let mut out = std::io::stdout().lock();
    // A watch that is gone has ended this process, too.
    let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
}
