//! `plumb baseline promote`: the only writer of baselines.

use std::path::PathBuf;

use clap::Subcommand;

use crate::{
    error::{Error, Exit},
    gate::promote::{self, Request},
};

pub const EXAMPLES: &str = "\
Examples:
  plumb baseline promote results/0198c2…
  plumb baseline promote main.csv --to baselines/main.csv
  plumb baseline promote main.csv --to baselines/main.csv --accept-failures

A baseline is a results table in git with what is known about its run beside it (main.csv, main.run.json). Nothing but \
this command writes one, and no run ever moves it: a baseline that follows the results by itself follows a slow decline \
too. Refused, with exit code 2 and every reason: a run that was interrupted or did not come to its end, that left cases \
out (--only), in which a case failed, with too few iterations, or with verdicts that failed (unless they are accepted).";

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Make a finished run the baseline: its folder, or its results file.
    #[command(after_help = EXAMPLES)]
    Promote {
        /// The run: the folder that output.dir named, or the FILE of -o.
        #[arg(value_name = "RUN")]
        run: PathBuf,
        /// Where the baseline is kept [default: baseline.source of the run's plan].
        #[arg(long, value_name = "FILE")]
        to: Option<PathBuf>,
        /// Iterations that every case must have; below five no rank test can find anything at alpha 0.01.
        #[arg(long, value_name = "N", default_value_t = 5)]
        min_iterations: u64,
        /// Promote although verdicts failed: what they complain of is the new normal.
        #[arg(long)]
        accept_failures: bool,
        /// Set a value of the run's plan, as for `plumb run`; what the run itself set counts already. May be repeated.
        #[arg(long = "set", value_name = "PATH=VALUE", conflicts_with = "to")]
        sets: Vec<String>,
    },
}

pub fn run(args: &Args) -> Result<Exit, Error> {
    let What::Promote { run, to, min_iterations, accept_failures, sets } = &args.what;
    let request = Request {
        run: run.clone(),
        to: to.clone(),
        min_iterations: *min_iterations,
        accept_failures: *accept_failures,
        sets: sets.clone(),
    };
    super::print(&promote::promote(&request)?)?;
    Ok(Exit::Success)
}
