//! `plumb watch`: a plan again and again.

use std::{
    io::{Read as _, Write as _},
    net::SocketAddr,
    time::Duration,
};

use schemas::units;

use super::Selection;
use crate::{
    error::{Error, Exit},
    metrics,
    programs::Allowed,
    watch::{
        self, Timing,
        cycle::{self, Kept, Outcome, Settings},
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
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration)]
    spread: Option<Duration>,
    #[command(flatten)]
    kept: Kept,
    /// End a cycle that takes longer [default: three times the plan's longest estimate, and 15 minutes]
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration)]
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
    match units::parse_duration(text).map_err(|e| e.to_string())? {
        time if time < Duration::from_millis(100) => Err("starts are 100 ms apart at least".to_owned()),
        time => Ok(time),
    }
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
        kept: args.kept.clone(),
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
