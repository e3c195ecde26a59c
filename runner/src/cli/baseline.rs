//! Commands that judge by a baseline: `plumb bisect`, one step of `git bisect run`; `plumb baseline promote`, the only writer of
//! baselines; and `plumb gate --plan`, whose filter knows no plans and gets their assertions and comparisons translated.

use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::Arc,
};

use analyze::{
    filters::gate::{Args, OnInconclusive},
    history::commits,
    judge::{VerdictRow, power::Said, statement::Statement, verdicts},
};
use clap::Subcommand;
use schemas::{metrics, text::counted, units};

use super::{
    Selection, print,
    run::{When, announce},
};
use crate::{
    campaign::{self, Options, Report},
    error::{Error, Exit},
    gate::{
        self,
        baseline::{self, Request},
        confirm::{Question, Until},
    },
    plan::{self, LoadOptions, Plan, model::OnUncertain},
    programs::{self, Allowed},
    progress::Progress,
    signals::Interrupts,
    sinks::run_json,
    why::Source,
};

pub const BISECT_EXAMPLES: &str = "\
Examples:
  git bisect run plumb bisect ../lab.yaml --against ../good.csv
  git bisect run sh -c './build || exit 125; plumb bisect ../lab.yaml --against ../good.csv'
  plumb bisect ../lab.yaml --against ../good.csv --only bulk --min-effect 2% --max-iterations 40

Exit codes, as git bisect run reads them:
  0    good: no case is worse by --min-effect
  1    bad: a case is worse by at least that
  125  cannot tell: iterations do not decide, or something was not measured; git skips the commit
  129  hung up (SIGHUP); git stops
  130  interrupted (SIGINT), or the command line, the plan or the baseline is wrong; git stops
  131  a file could not be read or written; git stops
  143  terminated (SIGTERM); git stops

Each step checks out another commit: keep the plan and the baseline outside of the work tree, or they change with it.";

/// git skips the commit.
const CANNOT_TELL: Exit = Exit::Command(125);

/// git stops from this exit code on.
const STOP: u8 = 128;

/// Results of steps, in the git directory.
const FOLDER: &str = "plumb-bisect";

/// Measure this commit until it is known whether it is slower than a baseline.
///
/// A step of `git bisect run`. Each case of the plan is compared with the same case of the baseline. The commit is bad if
/// the whole interval of a change lies beyond --min-effect, and good if that of every case lies inside. Until then
/// iterations are added, up to --max-iterations. Comparisons are made at 10, 20, 40 … iterations (from the plan's own
/// number on), and their intervals are so wide that all of them together are wrong with at most --alpha.
#[derive(Debug, clap::Args)]
pub struct BisectArgs {
    /// The plan.
    #[arg(value_name = "PLAN")]
    plan: String,
    #[command(flatten)]
    question: Question,
    /// Folder for the results of each commit [default: plumb-bisect in the git directory].
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    #[command(flatten)]
    allowed: Allowed,
    #[command(flatten)]
    selection: Selection,
    /// Show progress: auto (a line that rewrites itself on a terminal, plain lines elsewhere), always that line, or never.
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    progress: When,
}

/// The exit code for an end that says nothing about the commit: git stops.
pub fn stop(code: u8) -> u8 {
    if code >= STOP { code } else { STOP + code }
}

/// Measures, and says good, bad or neither. Everything else, a fault of this program included, stops git.
pub fn bisect(args: &BisectArgs) -> Exit {
    let ended = catch_unwind(AssertUnwindSafe(|| step(args)));
    match ended {
        Ok(Ok(exit)) => exit,
        Ok(Err(error)) => {
            error.print();
            Exit::Command(stop(match error.exit() {
                Exit::Success => Exit::Measurement.code(),
                other => other.code(),
            }))
        }
        // The exit code of a panic is 101, which git takes for bad.
        Err(_) => Exit::Command(stop(101)),
    }
}

fn step(args: &BisectArgs) -> Result<Exit, Error> {
    let progress = &mut Progress::new(args.progress.mode());
    let mut plan = load(args)?;
    for file in [Path::new(&args.plan), &args.question.against] {
        if commits::is_tracked(file) {
            progress.warn(&format!(
                "{} is in the repository, and each step has its own commit's version: copy it elsewhere and name the copy",
                file.display()
            ));
        }
    }
    let key = args.selection.key.load().map_err(|e| Error::Usage(e.to_string()))?;
    let until = Arc::new(Until::of(&mut plan, &args.question)?);
    let commit = commits::checked_out().map_or_else(|| "unknown".to_owned(), |id| commits::short(&id).to_owned());
    let table = place(args, &commit)?;
    let interrupts = Interrupts::install(announce)?;
    let options = Options {
        output: Some(table.clone()),
        key,
        allow_hooks: args.allowed.hooks,
        overrides: args.selection.written(),
        until: Some(Arc::clone(&until) as _),
        ..Options::default()
    };
    let report = campaign::run(&[plan], &options, None, &interrupts, progress);
    if let Some(exit) = interrupts.exit() {
        if let Err(error) = report {
            error.print();
        }
        return Ok(exit);
    }
    let answer = match report {
        Ok(_) if interrupts.by_timer() => Answer::cut(),
        Ok(report) => Answer::of(&until, &report),
        // A far end that does not start or answer may be this commit's fault.
        Err(error @ Error::Measurement(_)) => {
            error.print();
            Answer { exit: CANNOT_TELL, lines: Vec::new(), last: "it could not be measured".to_owned() }
        }
        Err(error) => return Err(error),
    };
    let word = match answer.exit {
        Exit::Success => "good",
        Exit::Failed => "bad",
        _ => "cannot tell",
    };
    let kept = if table.exists() { format!("; results: {}", table.display()) } else { String::new() };
    let mut lines = answer.lines;
    lines.push(format!("plumb bisect {commit}: {word}: {}{kept}\n", answer.last));
    // The exit code is the answer, whoever reads the text.
    let _ = print(&lines.join("\n"));
    Ok(answer.exit)
}

/// Reads the plan. It is measured as it is, without its outputs.
fn load(args: &BisectArgs) -> Result<Plan, Error> {
    if !Path::new(&args.plan).exists() {
        return Err(Error::Usage(format!(
            "there is no plan {}: this commit may not have it: keep a copy outside of the work tree and name that",
            args.plan
        )));
    }
    let mut plan = plan::load(&args.plan, &args.selection.options())?;
    programs::permit(&plan, args.allowed, "")?;
    plan.output = <_>::default();
    Ok(plan)
}

/// A file for the results of this commit. Earlier ones stay: a commit may be measured again.
fn place(args: &BisectArgs, commit: &str) -> Result<PathBuf, Error> {
    let folder = args.output.clone().or_else(|| commits::in_git_directory(FOLDER)).ok_or_else(|| {
        Error::Usage("this folder is in no git repository: name a folder for the results with -o".to_owned())
    })?;
    fs::create_dir_all(&folder).map_err(Error::output(folder.display()))?;
    let names = std::iter::once(format!("{commit}.csv")).chain((2..).map(|n| format!("{commit}-{n}.csv")));
    let free = names.map(|name| folder.join(name)).find(|path| !path.exists());
    Ok(free.unwrap_or_else(|| folder.join("results.csv")))
}

/// The answer about a commit.
struct Answer {
    exit: Exit,
    /// A line per comparison, where there are several.
    lines: Vec<String>,
    /// The comparison that decides.
    last: String,
}

impl Answer {
    fn of(until: &Until, report: &Report) -> Self {
        let mut all = until.outcome();
        let failed: Vec<String> = report.failures().map(|(case, why)| format!("{case} failed: {why}")).collect();
        // The worst statement first, and of those the largest change.
        let order = |said: Said| [Said::Worse, Said::Undecided, Said::NoWorse].iter().position(|other| *other == said);
        all.sort_by(|a, b| order(a.0).cmp(&order(b.0)).then_with(|| worse_by(&b.1).total_cmp(&worse_by(&a.1))));
        let texts: Vec<String> = all.iter().map(|(said, row)| sentence(*said, row, until.of_baseline(row))).collect();
        let exit = match all.first() {
            Some((Said::Worse, _)) => Exit::Failed,
            Some((Said::NoWorse, _)) if failed.is_empty() => Exit::Success,
            _ => CANNOT_TELL,
        };
        let last = match (exit, failed.first(), texts.first()) {
            (CANNOT_TELL, Some(why), _) | (_, _, Some(why)) | (_, Some(why), None) => why.clone(),
            (_, None, None) => "nothing was measured".to_owned(),
        };
        let lines: Vec<String> = failed.into_iter().chain(texts).collect();
        Self { exit, lines: if lines.len() > 1 { lines } else { Vec::new() }, last }
    }

    /// A timer's signal ends the measurement at a number of iterations that is no look.
    fn cut() -> Self {
        let last = "SIGALRM ended the measurement (--budget ends one with an answer)".to_owned();
        Self { exit: CANNOT_TELL, lines: Vec::new(), last }
    }
}

/// The change in the bad direction.
fn worse_by(row: &VerdictRow) -> f64 {
    let change = row.change_ratio.unwrap_or(f64::NEG_INFINITY);
    let metric = metrics::METRICS.iter().find(|metric| metric.column == row.metric);
    match metric.map(|metric| metric.better) {
        Some(metrics::Better::Higher) => -change,
        Some(metrics::Better::Neither) => change.abs(),
        _ => change,
    }
}

/// `bulk throughput −5.1 % (−5.4 … −4.8), 10 iterations`
fn sentence(said: Said, row: &VerdictRow, of_baseline: usize) -> String {
    let name = metrics::METRICS.iter().find(|metric| metric.column == row.metric).map_or("", |metric| metric.name);
    let change = match verdicts::change(row) {
        text if text.is_empty() => "no change to tell".to_owned(),
        text => text,
    };
    let n = row.n;
    let room = match row.ci_low_ratio {
        _ if said != Said::Undecided => String::new(),
        Some(_) => {
            format!(
                ", and the interval leaves room for both sides of {}",
                units::margin(row.limit_ratio.unwrap_or_default())
            )
        }
        None => ", which are too few for an interval".to_owned(),
    };
    // The shorter side limits the interval.
    let remedy = if said == Said::Undecided && n >= 2 * of_baseline as u64 {
        let more = 2 * of_baseline;
        format!(
            "; the {of_baseline} iterations of the baseline limit that: measure it again with `iterations: {more}` or more"
        )
    } else {
        String::new()
    };
    format!("{} {name} {change}, {}{room}{remedy}", row.case, counted(n, "iteration"))
}

pub const PROMOTE_EXAMPLES: &str = "\
Examples:
  plumb baseline promote results/0198c2…
  plumb baseline promote main.csv --to baselines/main.csv
  plumb baseline promote main.csv --to baselines/main.csv --accept-failures

A baseline is a results table in git, with the facts about its run beside it (main.csv, main.run.json). Only this command \
writes one: a baseline that followed the results by itself would follow a slow decline too. Refused, with exit code 2 and \
every reason: a run that was interrupted or has not ended, left cases out (--only), has a failed case or too few \
iterations, or has failed verdicts (unless they are accepted).";

#[derive(Debug, clap::Args)]
pub struct PromoteArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Make a finished run the baseline.
    #[command(after_help = PROMOTE_EXAMPLES)]
    Promote(Request),
}

pub fn promote(args: &PromoteArgs) -> Result<Exit, Error> {
    let What::Promote(request) = &args.what;
    print(&baseline::promote(request)?)?;
    Ok(Exit::Success)
}

/// Adds the assertions of each case of the plan that was named, or of the run's own plan.
pub fn prepare_gate(args: &mut Args) -> Result<(), Error> {
    let plan = match (&args.plan, args.own_record()?) {
        (Some(path), _) => {
            let options = LoadOptions { sets: args.sets.clone(), ..LoadOptions::default() };
            plan::load(&path.display().to_string(), &options)?
        }
        (None, Some(record)) => {
            let Source { name, text, options } = Source::of_run(&record, LoadOptions::default())
                .map_err(|what| Error::Usage(format!("{what}: name one of them with --plan")))?;
            args.plan = Some(PathBuf::from(&name));
            plan::load_str(&name, &text, &options)?
        }
        (None, None) => return Ok(()),
    };
    args.terms = baseline::terms(&plan);
    // The plan's own path may be relative to where it ran.
    if let (Some(terms), Some(results)) = (&mut args.terms, args.tables.input.files.first()) {
        terms.source = baseline::found(&terms.source, results);
    }
    args.planned = plan.cases.iter().flat_map(run_json::planned).collect();
    if args.inconclusive.is_none() && plan.gate.on_inconclusive == Some(OnUncertain::Fail) {
        args.inconclusive = Some(OnInconclusive::Fail);
    }
    let cases = plan.cases.iter().filter(|c| c.skip.is_none());
    let of_surveys = plan.surveys.iter().filter_map(|survey| gate::of_survey(&plan, survey));
    let stated = cases.flat_map(gate::statements).chain(of_surveys.flat_map(|of| of.1));
    // The level is the same as in the run.
    args.statements.extend(stated.map(|of| Statement { level: args.level.unwrap_or(of.level), ..of }));
    Ok(())
}
