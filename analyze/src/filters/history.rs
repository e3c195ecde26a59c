//! `plumb history`: keeps what runs came to, beside the plan in git.

use crate::{
    error::{Error, Verdict},
    history::{
        added, commits,
        store::{self, Compacted, Order},
    },
};
use schemas::{
    metrics::Metric,
    text::counted,
    units::{Unit, human},
    vocabulary,
};
use std::{io::Write, path::PathBuf};

/// Keep what runs came to: one line per run, case and metric, in files beside the plan.
///
/// plumb history add results/0198c2… --to history/
///
/// The files are plain CSV, one per plan and machine. They only grow, so they belong in git: `plumb trend` finds the runs,
/// and the commits, at which a level changed.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Clone, clap::Subcommand)]
enum What {
    /// Add a finished run.
    #[command(after_long_help = "\
Examples:
  plumb history add results/0198c2… --to history/
  plumb history add nightly.csv --to history/ --commit 3f786850e387 --label runner=lab2
  plumb history add nightly.csv --to history/ --metric retransmits

The commit is that of --commit, of the CI service (GITHUB_SHA, CI_COMMIT_SHA and the like), or of the git repository in the \
present folder. A run that is there already is not added again.

Exit codes: 0; 2 the run cannot be added, and why; 3 a file could not be read or written: the history is as it was.")]
    Add(Add),
    /// Leave out old lines that no change needs.
    ///
    /// Of the lines of a series that are older than asked, one of each week stays, twenty on either side of each change and of
    /// the start and the end of the series, those of a drift, and those of accepted changes. More stay where `plumb trend` would
    /// tell other changes without them. Lines that stay are as they were, but for the `sample` of old ones, which goes.
    #[command(after_long_help = "\
Examples:
  plumb history compact history/ --older-than 365d --dry-run
  plumb history compact history/ --older-than 2026-01-01 --keep day

Commit the history first: git keeps what goes. A merge with a branch that has the old lines brings them back; compact again.

Exit codes: 0; 2 the command line is wrong; 3 a file could not be read, which line and why, or not be written: it is as it was.")]
    Compact(Compact),
}

#[derive(Debug, Clone, clap::Args)]
struct Add {
    /// The run: its output.dir, or the table with its run.json beside it
    #[arg(value_name = "RUN")]
    run: PathBuf,
    /// Folder of the history
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Commit that was measured [default: that of the CI, or of git]
    #[arg(long, value_name = "COMMIT", value_parser = parse_commit)]
    commit: Option<String>,
    /// Label to keep with the run, beside those of its plan; may be repeated
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = parse_label)]
    labels: Vec<String>,
    /// Metric to keep besides the headline of each case and what stands beside it; may be repeated
    #[arg(short, long = "metric", value_name = "METRIC", value_parser = vocabulary::metric)]
    metrics: Vec<&'static Metric>,
}

#[derive(Debug, Clone, clap::Args)]
struct Compact {
    /// Folder of the history
    #[arg(value_name = "HISTORY")]
    history: PathBuf,
    #[command(flatten)]
    order: Order,
}

fn parse_commit(text: &str) -> Result<String, String> {
    if commits::is_commit(text) {
        Ok(text.to_owned())
    } else {
        Err("a commit is 7 to 64 hexadecimal digits, as `git rev-parse HEAD` prints it".to_owned())
    }
}

fn parse_label(text: &str) -> Result<String, String> {
    match text.split_once('=') {
        Some((name, _)) if !name.is_empty() && !text.contains(char::is_whitespace) => Ok(text.to_owned()),
        _ => Err("a label is NAME=VALUE, without spaces".to_owned()),
    }
}

pub fn run(args: &Args, output: &mut dyn Write) -> Result<Verdict, Error> {
    match &args.what {
        What::Add(add) => add.run(output),
        What::Compact(compact) => compact.run(output),
    }
}

impl Add {
    fn run(&self, output: &mut dyn Write) -> Result<Verdict, Error> {
        let commit = self.commit.clone().or_else(commits::present).unwrap_or_default();
        let rows = added::rows(&self.run, &commit, &self.labels, &self.metrics)?;
        let (appended, notes) = store::append(&self.to, &rows)?;
        for note in &notes {
            crate::warn(note);
        }
        let commit = if commit.is_empty() { "no commit" } else { commits::short(&commit) };
        for appended in appended {
            let file = appended.file.display();
            match appended.rows {
                0 => writeln!(output, "{file}: the run is there already")?,
                rows => writeln!(output, "{file}: {} added ({commit})", counted(rows, "row"))?,
            }
        }
        Ok(Verdict::Ok)
    }
}

impl Compact {
    fn run(&self, output: &mut dyn Write) -> Result<Verdict, Error> {
        let (all, notes) = store::compact(&self.history, &self.order)?;
        for note in &notes {
            crate::warn(note);
        }
        let go = if self.order.is_dry { "would go" } else { "went" };
        for Compacted { file, rows, runs, bytes } in all {
            let size = |bytes: usize| human(Unit::Bytes, bytes as f64);
            writeln!(
                output,
                "{}: {} of {} runs, {} of {} rows and {} of {} {go}",
                file.display(),
                runs.0 - runs.1,
                runs.0,
                rows.0 - rows.1,
                rows.0,
                size(bytes.0.saturating_sub(bytes.1)),
                size(bytes.0)
            )?;
        }
        Ok(Verdict::Ok)
    }
}
