//! `plumb why`: proves what limited a test by changing it.

use std::{io::Write, path::Path};

use analyze::{
    history::added::results_of,
    judge::environment,
    table::{Rows, Table, layout::Sheet},
};
use schemas::columns::Row;

use super::{
    Selection,
    run::{When, announce},
};
use crate::{
    campaign::{self, Options},
    error::{Error, Exit},
    plan::{self, Format as Diagnosed},
    progress::Progress,
    schedule::history,
    signals::Interrupts,
    why::{
        self, Means, Source,
        finding::{self, Answer},
        trial::ChangeOutcome,
    },
};

pub const EXAMPLES: &str = "\
Examples:
  plumb why lab.csv                               the causes that a run named, with its own plan
  plumb why lab.yaml --only upload                measures first
  plumb why quick -f json
  plumb why lab.csv -f csv >why.csv

Each cause names a setting: a receiver window the receive buffer, a full link more streams, which must change nothing. The test \
runs in turns with that one setting changed, six rounds and at most twelve, until the interval of the change decides. A cause that \
is confirmed is followed by the next one, three at most. What to write into the plan stands at the end.

Exit codes:
  0  the cause of each test is confirmed
  1  one is refuted
  3  one is neither, or something was not measured";

/// Prove what limited a test: change the one setting that its cause names, and look again.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A results table, the folder of a run, or a plan, which is measured first.
    #[arg(value_name = "RESULTS|PLAN")]
    of: String,
    /// Format of the answer.
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    format: Format,
    #[command(flatten)]
    selection: Selection,
    /// Show progress: auto (a line that rewrites itself on a terminal, plain lines elsewhere), always that line, or never.
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    progress: When,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Lines for people
    Text,
    /// A row per change
    Csv,
    /// Markdown tables
    Md,
    /// An object per change
    Json,
}

pub fn run(args: &Args) -> Result<Exit, Error> {
    let key = args.selection.key.load()?;
    let interrupts = Interrupts::install(announce)?;
    let mut means = Means { key, interrupts: &interrupts, progress: Progress::new(args.progress.mode()) };
    let results = results_of(Path::new(&args.of));
    let is_table = Path::new(&args.of).is_dir() || results.extension().is_some_and(|ending| ending == "csv");
    let (source, rows) = if is_table { of_results(&results, args)? } else { of_plan(args, &mut means)? };
    let answers = match prove(&source, &rows, &mut means)? {
        none if none.is_empty() && !interrupts.requested() => {
            let what = "no test with a limit is there: rates of two ends have one, windows of 0.2 s and more";
            return Err(Error::Usage(format!("{}: {what}", args.of)));
        }
        answers => answers,
    };
    show(args, &answers)?;
    if let Some(exit) = interrupts.exit() {
        return Ok(exit);
    }
    let first = |said| answers.iter().any(|answer| answer.first() == said);
    Ok(match () {
        () if first(Some(ChangeOutcome::Refuted)) => Exit::Failed,
        () if first(None) => Exit::Measurement,
        () => Exit::Success,
    })
}

/// The answer for each case of the plan that a row names the limit of, in the order of the rows.
pub(super) fn prove(source: &Source, rows: &[Row], means: &mut Means<'_>) -> Result<Vec<Answer>, Error> {
    let plan = source.load()?;
    let mut answers = Vec::new();
    for row in rows {
        let Some(case) = plan.cases.iter().find(|case| Some(&case.id) == row.case_id.as_ref()) else { continue };
        if means.interrupts.requested() {
            answers.push(Answer::cut(why::name(case, row), row));
            continue;
        }
        match why::ask(source, case, row, means) {
            Ok(answer) => answers.push(answer),
            Err(error) if means.interrupts.requested() => {
                error.print();
                answers.push(Answer::cut(why::name(case, row), row));
            }
            // The other answers are shown.
            Err(error) if !answers.is_empty() => {
                error.print();
                break;
            }
            Err(error) => return Err(error),
        }
    }
    means.progress.clear();
    Ok(answers)
}

/// The plan of a run, with its own overrides and then those of the command line, and its rows.
fn of_results(results: &Path, args: &Args) -> Result<(Source, Vec<Row>), Error> {
    let wrong = |what: String| Error::Usage(format!("{}: {what}", results.display()));
    let (name, text) = analyze::error::read_text(results)?;
    let record = environment::read(results)?.ok_or_else(|| {
        wrong("its run.json, which has its plan, does not lie beside it: name the plan in its place".into())
    })?;
    let source = Source::of_run(&record, args.selection.options())
        .map_err(|what| wrong(format!("{what}: name one of them in its place")))?;
    let broken = |e: analyze::Error| wrong(format!("this is not a results table: {e}"));
    let mut table = Table::from_text(&name, text).map_err(broken)?;
    let table = Rows::read_all(&mut table).map_err(broken)?;
    let rows = why::limited(table.rows.iter().map(|cells| history::typed(&table, cells)));
    Ok((source, rows))
}

/// The plan, and the rows of a run of it.
fn of_plan(args: &Args, means: &mut Means<'_>) -> Result<(Source, Vec<Row>), Error> {
    let refused = |diagnostics: plan::diagnostics::Diagnostics| Error::Plan(diagnostics.render(Diagnosed::Human));
    let (name, text) = plan::load::read(&args.of).map_err(refused)?;
    let source = Source { name, text, options: args.selection.options() };
    let plan = source.load()?;
    let options = Options { key: means.key.clone(), overrides: args.selection.written(), ..Options::default() };
    let report = campaign::run(&[plan], &options, None, means.interrupts, &mut means.progress)?;
    if let Some((case, why)) = report.failures().next() {
        return Err(Error::Measurement(format!("{case}: {why}")));
    }
    Ok((source, why::limited(report.summaries.iter().cloned())))
}

fn show(args: &Args, answers: &[Answer]) -> Result<(), Error> {
    let mut out = anstream::stdout().lock();
    let written = match args.format {
        Format::Text => finding::write(answers, false, &Sheet::stdout(), &mut out),
        Format::Csv => finding::csv(answers, &mut out).map_err(Into::into),
        Format::Md => finding::markdown(answers, &mut out),
        Format::Json => writeln!(out, "{:#}", finding::json(answers)),
    };
    super::shown(written.and_then(|()| out.flush()))
}
