//! `plumb baseline promote`, the only writer of baselines.

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
    Promote(Request),
}

pub fn run(args: &Args) -> Result<Exit, Error> {
    let What::Promote(request) = &args.what;
    super::print(&promote::promote(request)?)?;
    Ok(Exit::Success)
}
