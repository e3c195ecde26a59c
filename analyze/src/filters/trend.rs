//! `plumb trend`: where the level of a history changed.

mod print;

use std::io::Write;
use std::path::PathBuf;

use super::compare::parse_effect;
use crate::error::{Error, Verdict, even_unread};
use crate::history::{
    accepted::{self, Accepted},
    commits,
    series::{Reading, Series},
    store,
    trend::{Finding, Trend, trend},
};
use crate::table::layout::Sheet;
use crate::table::output::OutputArgs;

/// Where the level of a history changed: in which series, by how much, how surely, and which commits lie between.
///
/// plumb trend history/ --fail-on regression --within 5
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
    /// Only series of this plan
    #[arg(long, value_name = "NAME")]
    plan: Option<String>,
    /// Only series of this machine
    #[arg(long, value_name = "MACHINE")]
    machine: Option<String>,
    /// Only series whose case contains this text
    #[arg(long, value_name = "TEXT")]
    case: Option<String>,
    /// Only this metric
    #[arg(short, long, value_name = "METRIC")]
    metric: Option<String>,
    /// Smallest change that counts
    #[arg(long, value_name = "RATIO", default_value = "1%", value_parser = parse_least)]
    min_effect: f64,
    /// Exit with code 1 when there is one of these
    #[arg(long, value_name = "WHAT", default_value = "nothing")]
    fail_on: FailOn,
    /// Of changes, those after which a series has at most this many runs count for --fail-on
    #[arg(long, value_name = "RUNS", default_value_t = 5)]
    within: usize,
    /// Repository of the commits
    #[arg(long, value_name = "DIR", default_value = ".")]
    repository: PathBuf,
    /// Leave out lines that were cut off and marks of a merge
    #[arg(long)]
    repair: bool,
    /// csv, text or md [default: text on a terminal, else csv]
    #[arg(short, long, value_name = "FORMAT")]
    format: Option<Format>,
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

fn parse_least(text: &str) -> Result<f64, String> {
    parse_effect(text).and_then(|ratio| if ratio < 1.0 { Ok(ratio) } else { Err(format!("`{text}` is all of it")) })
}

/// A series with what it tells.
struct Told {
    series: Series,
    trend: Trend,
    /// Of each finding: the known change that covers it.
    accepted: Vec<Option<Accepted>>,
    /// Of each finding: the commits that lie between, or why they are not known.
    commits: Vec<Result<(Vec<commits::Commit>, usize), String>>,
}

pub fn run(args: &Args, output: &mut dyn Write) -> Result<Verdict, Error> {
    let reading = store::read(&args.history, args.repair)?;
    let accepted = if args.history.is_dir() { accepted::read(&args.history)? } else { Vec::new() };
    let told: Vec<Told> = chosen(args, &reading)?;
    let told = tell(args, &reading, &accepted, told);
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
    Ok(verdict(args, &told))
}

/// The series that are asked for, searched on all cores.
fn chosen(args: &Args, reading: &Reading) -> Result<Vec<Told>, Error> {
    use rayon::prelude::*;

    let metric = match &args.metric {
        Some(name) => Some(schemas::vocabulary::metric(name).map_err(Error::Usage)?.name),
        None => None,
    };
    let is_wanted = |series: &Series| {
        let same = |asked: &Option<String>, own: &str| asked.as_ref().is_none_or(|asked| asked == own);
        same(&args.plan, &series.key.plan)
            && same(&args.machine, &series.key.machine)
            && args.case.as_ref().is_none_or(|text| series.case.contains(text))
            && metric.is_none_or(|metric| metric == series.key.metric)
    };
    let all: Vec<Series> = reading.series().into_iter().filter(is_wanted).collect();
    if all.is_empty() {
        return Err(Error::Usage(format!("{} has no such series", args.history.display())));
    }
    let told = |series: Series| {
        let trend = trend(&series, args.min_effect);
        Told { series, trend, accepted: Vec::new(), commits: Vec::new() }
    };
    Ok(all.into_par_iter().map(told).collect())
}

/// Adds what is known of each finding.
fn tell(args: &Args, reading: &Reading, accepted: &[Accepted], mut told: Vec<Told>) -> Vec<Told> {
    for Told { series, trend, accepted: covers, commits } in &mut told {
        for finding in &trend.findings {
            let run = |index: usize| series.points.get(index).map(|point| &reading.runs[point.run]);
            let near: Vec<&str> = (finding.at.saturating_sub(1)..=finding.at + 1)
                .filter_map(|index| run(index).map(|run| run.run_id.as_str()))
                .collect();
            covers.push(accepted.iter().find(|known| known.covers(&series.key, &near, finding.ratio)).cloned());
            let last = if finding.is_drift { finding.end.saturating_sub(1) } else { finding.at };
            let before = run(if finding.is_drift { finding.at } else { finding.at.saturating_sub(1) });
            let (before, first) = (before.map_or("", |run| &run.commit), run(last).map_or("", |run| &run.commit));
            commits.push(commits::between(&args.repository, before, first));
        }
    }
    told
}

fn verdict(args: &Args, told: &[Told]) -> Verdict {
    let fails = |told: &Told, finding: &Finding, known: &Option<Accepted>| {
        let end = if finding.is_drift { finding.end } else { finding.at };
        let is_recent = told.series.points.len() - end <= args.within;
        let counts = args.fail_on == FailOn::Change || finding.worse == Some(true);
        is_recent && counts && known.is_none()
    };
    let any = told
        .iter()
        .any(|told| told.trend.findings.iter().zip(&told.accepted).any(|(finding, known)| fails(told, finding, known)));
    match args.fail_on {
        FailOn::Nothing => Verdict::Ok,
        _ if any => Verdict::Failed,
        _ if told.iter().all(|told| told.trend.missing > 0) => Verdict::Inconclusive,
        _ => Verdict::Ok,
    }
}

#[cfg(test)]
mod tests;
