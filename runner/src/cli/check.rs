//! `plumb check`: checks plans and lists their cases.

use std::{collections::BTreeSet, fmt::Write as _};

use super::Selection;
use crate::{
    error::{Error, Exit},
    plan::{self, Format, Plan, case::Round},
    style,
};

pub const EXAMPLES: &str = "\
Examples:
  plumb check lab.yaml
  plumb check --list lab.yaml
  plumb check --explain tests.bulk.socket.no_delay lab.yaml
  plumb check --error-format github plans/*.yaml

Nothing is measured and no host is asked. Exit code 0: the plans can be run; 2: they cannot.";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Plans to check; `-` is standard input.
    #[arg(required = true, value_name = "PLAN")]
    plans: Vec<String>,
    /// List the cases of each plan, with the time they take.
    #[arg(long)]
    list: bool,
    /// Print a value and everything that set it, such as `tests.bulk.socket.no_delay`.
    #[arg(long, value_name = "PATH", conflicts_with = "list")]
    explain: Option<String>,
    /// Format of errors.
    #[arg(long, value_name = "FORMAT", default_value = "human")]
    error_format: Format,
    #[command(flatten)]
    selection: Selection,
}

pub fn run(args: &Args) -> Result<Exit, Error> {
    let format = args.error_format;
    let options = args.selection.options();
    let mut wrong = String::new();
    for path in &args.plans {
        if let Some(key) = &args.explain {
            match plan::explain(path, &options, key) {
                Ok(explanation) => super::print(&explanation.to_string())?,
                Err(diagnostics) => wrong.push_str(&diagnostics.render(format)),
            }
            continue;
        }
        match plan::load(path, &options) {
            Ok(plan) => {
                let warnings = plan.warnings.render(format);
                if !warnings.is_empty() {
                    style::tell(warnings.strip_suffix('\n').unwrap_or(&warnings));
                }
                super::print(&describe(&plan, args.list))?;
            }
            Err(diagnostics) => wrong.push_str(&diagnostics.render(format)),
        }
    }
    if wrong.is_empty() {
        return Ok(Exit::Success);
    }
    // GitHub and programs read standard output, people read standard error.
    if matches!(format, Format::Human) {
        return Err(Error::Plan(wrong));
    }
    super::print(&wrong)?;
    Ok(Exit::Usage)
}

/// Most members of the same workload that are listed one by one.
const MOST_ALIKE: usize = 4;

fn describe(plan: &Plan, list: bool) -> String {
    let mut text = String::new();
    let cases = plan.cases.len();
    let rounds: BTreeSet<&Round> = plan.cases.iter().filter_map(|case| case.round.as_ref()).collect();
    let rounds = match rounds.len() {
        0 => String::new(),
        1 => " · 1 round of pairs".to_owned(),
        count => format!(" · {count} rounds of pairs"),
    };
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "{}: {} · {cases} case{}{rounds} · {}",
        plan.path,
        plan.name,
        if cases == 1 { "" } else { "s" },
        plan.estimate()
    );
    if list {
        let width = plan.cases.iter().map(|c| c.name.chars().count()).max().unwrap_or(0);
        for case in &plan.cases {
            let mut workloads: Vec<String> = Vec::new();
            for alike in case.members.chunk_by(|a, b| a.workload == b.workload) {
                let workload = &alike[0].workload;
                let many = alike.len() > MOST_ALIKE;
                workloads.extend(if many {
                    vec![format!("{}×{workload}", alike.len())]
                } else {
                    vec![workload.clone(); alike.len()]
                });
            }
            let round = case
                .round
                .as_ref()
                .map_or_else(String::new, |round| format!("  round {} of {}", round.number, round.of));
            let time = match &case.skip {
                Some(reason) if reason.is_empty() => "skipped".to_owned(),
                Some(reason) => format!("skipped: {reason}"),
                None => case.estimate().to_string(),
            };
            let _ = writeln!(text, "  {}  {:width$}  {}  {time}{round}", case.id, case.name, workloads.join("+"));
        }
    }
    text
}
