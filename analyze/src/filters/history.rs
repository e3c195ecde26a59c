//! `plumb history`: keeps what runs came to, beside the plan in git.

use std::io::Write;
use std::path::PathBuf;

use schemas::metrics::Metric;
use schemas::vocabulary;

use crate::error::{Error, Verdict};
use crate::history::{
    added, commits,
    store::{self, Appended},
};

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
    #[arg(short, long = "metric", value_name = "METRIC", value_parser = parse_metric)]
    metrics: Vec<&'static Metric>,
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

fn parse_metric(text: &str) -> Result<&'static Metric, String> {
    vocabulary::metric(text)
}

pub fn run(args: &Args, output: &mut dyn Write) -> Result<Verdict, Error> {
    match &args.what {
        What::Add(add) => add.run(output),
    }
}

impl Add {
    fn run(&self, output: &mut dyn Write) -> Result<Verdict, Error> {
        let commit = self.commit.clone().or_else(commits::present).unwrap_or_default();
        let rows = added::rows(&self.run, &commit, &self.labels, &self.metrics)?;
        let (appended, notes) = store::append(&self.to, &rows)?;
        for note in notes {
            crate::warn(&note);
        }
        match appended {
            Appended::Known(file) => writeln!(output, "{}: the run is there already", file.display())?,
            Appended::Rows(files) => {
                let commit = if commit.is_empty() { "no commit" } else { commits::short(&commit) };
                for file in files {
                    writeln!(output, "{}: {} rows added ({commit})", file.display(), rows.len())?;
                }
            }
        }
        Ok(Verdict::Ok)
    }
}
