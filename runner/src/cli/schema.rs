//! `plumb schema`: prints the published contracts.

use clap::ValueEnum;

use crate::error::{Error, Exit};

pub const EXAMPLES: &str = "\
Examples:
  plumb schema plan > plan.schema.json
  plumb schema results | jq -r '.fields[].name'";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The contract to print.
    which: Which,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Which {
    /// The JSON Schema of a plan.
    Plan,
    /// The Table Schema of the results table.
    Results,
}

pub fn run(args: &Args) -> Result<Exit, Error> {
    match args.which {
        Which::Plan => super::print(&crate::plan::keys::PUBLISHED)?,
        Which::Results => super::print(&format!("{:#}\n", schemas::publish::results_schema()))?,
    }
    Ok(Exit::Success)
}
