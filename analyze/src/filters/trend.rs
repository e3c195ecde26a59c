//! `plumb trend`: where the level of a history changed.

mod annotate;
mod print;

use std::io::Write;
use std::path::PathBuf;

use crate::error::{Error, Verdict, even_unread};
use crate::export::annotations::Annotations;
use crate::history::told::{self, Asked, Told};
use crate::table::layout::Sheet;
use crate::table::output::OutputArgs;

/// Changes of level in a history: in which series, by how much, how surely, and which commits lie between.
///
/// plumb trend history/ --fail-on regression --within 5
///
/// Prints text on a terminal and CSV anywhere else: in a CI log or before `| head`, add `-f text` or `-f md`.
///
/// A series is one metric of one case of one plan on one machine, with at least twenty runs. A change is one that at most
/// six in a thousand orders of the same runs show (E-divisive with means; the same history gives the same answer). Steady
/// movement is called a drift. Changes that are known stand in `accepted.csv` in the history's folder, with the columns
/// case_id, member, direction, metric, run_id and change_ratio of the CSV output, and a reason and a date: they are told and
/// do not fail, until they grow by a quarter.
///
/// The CSV has a row for each series (finding `level`) and one for each finding in it: change, drift.
#[derive(Debug, Clone, clap::Args)]
#[command(after_long_help = "\
Examples:
  plumb trend history/
  plumb trend history/ --plan nightly --metric throughput
  plumb trend history/ --fail-on regression --within 5 --format md >> \"$GITHUB_STEP_SUMMARY\"

Exit codes: 0; 1 with --fail-on, there is such a change; 2 the command line is wrong; 3 a file could not be read: which \
line, why; 4 with --fail-on, no series has enough runs to tell.")]
pub struct Args {
    /// Folder of the history, or one file of it
    #[arg(value_name = "HISTORY")]
    history: PathBuf,
    #[command(flatten)]
    asked: Asked,
    /// Exit with code 1 when there is one of these
    #[arg(long, value_name = "WHAT", default_value = "nothing")]
    fail_on: FailOn,
    /// Of changes, those after which a series has at most this many runs count for --fail-on
    #[arg(long, value_name = "RUNS", default_value_t = 5)]
    within: usize,
    /// csv, text or md [default: text on a terminal, else csv]
    #[arg(short, long, value_name = "FORMAT")]
    format: Option<Format>,
    /// Annotations of GitHub Actions, at the line of the first run after a change: errors for what --fail-on counts, warnings
    /// for other regressions. They go to standard error
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    annotations: Annotations,
    #[command(flatten)]
    output: OutputArgs,
}

/// When `trend` exits with 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum FailOn {
    /// Never
    Nothing,
    /// A change or a drift for the worse that is not accepted
    Regression,
    /// Any change or drift that is not accepted
    Change,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// One row per series and finding
    Csv,
    /// Sentences
    Text,
    /// The same in Markdown
    Md,
}

pub fn run(args: &Args, output: &mut dyn Write) -> Result<Verdict, Error> {
    let (reading, told) = told::read(&args.history, &args.asked)?;
    let format = args.format.unwrap_or(if args.output.is_for_people() { Format::Text } else { Format::Csv });
    let sheet = Sheet::of(&args.output);
    even_unread(args.output.write(output, |w| match format {
        Format::Csv => print::csv(&reading, &told, w),
        Format::Text => print::text(&reading, &told, &sheet, w),
        Format::Md => print::markdown(&reading, &told, w),
    }))?;
    if format == Format::Csv {
        reading.notes.iter().for_each(|note| crate::warn(note));
    }
    if args.annotations.are_wanted() {
        annotate::write(args, &reading, &told, &mut std::io::stderr().lock())?;
    }
    Ok(verdict(args, &told))
}

/// Whether a finding counts for `--fail-on`.
fn fails(args: &Args, told: &Told, i: usize) -> bool {
    let finding = &told.trend.findings[i];
    let counts = match args.fail_on {
        FailOn::Nothing => false,
        FailOn::Regression => finding.worse == Some(true),
        FailOn::Change => true,
    };
    counts && told.since(finding) <= args.within && told.accepted[i].is_none()
}

fn verdict(args: &Args, told: &[Told]) -> Verdict {
    let any = told.iter().any(|told| (0..told.trend.findings.len()).any(|i| fails(args, told, i)));
    match args.fail_on {
        FailOn::Nothing => Verdict::Ok,
        _ if any => Verdict::Failed,
        _ if told.iter().all(|told| told.trend.missing > 0) => Verdict::Inconclusive,
        _ => Verdict::Ok,
    }
}

#[cfg(test)]
mod tests;
