//! `plumb baseline promote`, the only writer of baselines.

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

A baseline is a results table in git, with the facts about its run beside it (main.csv, main.run.json). Only this command \
writes one: a baseline that followed the results by itself would follow a slow decline too. Refused, with exit code 2 and \
every reason: a run that was interrupted or has not ended, left cases out (--only), has a failed case or too few \
iterations, or has failed verdicts (unless they are accepted).";

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Make a finished run the baseline.
    #[command(after_help = EXAMPLES)]
    Promote {
        /// The run: its output.dir, or the FILE of -o.
        #[arg(value_name = "RUN")]
        run: PathBuf,
        /// File of the baseline [default: baseline.source of the run's plan].
        #[arg(long, value_name = "FILE")]
        to: Option<PathBuf>,
        /// Fewest iterations per case; below five no rank test can be significant at alpha 0.01.
        #[arg(long, value_name = "N", default_value_t = 5)]
        min_iterations: u64,
        /// Promote although verdicts failed: these results are the new normal.
        #[arg(long)]
        accept_failures: bool,
        /// Set a value of the run's plan, as for `plumb run`, after the run's own --set; may be repeated.
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
