//! `plumb trend`: where the level of a history changed.

use crate::{
    error::{Error, Verdict, even_unread},
    export::annotations::{Annotations, At, annotations},
    history::{
        analysed::{self, AnalysedSeries, Asked, Event, events},
        sentences::{self, acceptance, answer, commits, doubts, heading, line, name, notes, sentence, word},
        series::{Key, Outage, Reading, Run},
        store::place,
    },
    style,
    table::{
        Format, OutputArgs, csv_table, formats,
        layout::{self, Column, Sheet},
        write_csv,
    },
};
use schemas::{
    text::{counted, plain},
    units::{human, margin, three_digits},
};
use std::{
    io::Write,
    path::{Path, PathBuf},
};

const FORMATS: [(Format, &str); 3] = [
    (Format::Csv, "One row per series and finding"),
    (Format::Text, "Sentences"),
    (Format::Md, "The same in Markdown"),
];

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
/// Cycles of `plumb watch` without values are told as outages, apart from the levels: nothing was measured, slow or fast.
///
/// The CSV has a row for each series (finding `level`), one for each finding in it (change, drift), and one for each outage.
#[derive(Debug, Clone, clap::Args)]
#[command(after_long_help = "\
Examples:
  plumb trend history/
  plumb trend history/ --plan nightly --metric throughput
  plumb trend history/ --fail-on regression --within 5 --format md >> \"$GITHUB_STEP_SUMMARY\"

Exit codes: 0; 1 with --fail-on, there is such a change; 2 the command line is wrong; 3 a file could not be read: which \
line, why; 4 with --fail-on inconclusive, no series has enough runs to tell.")]
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
    #[arg(short, long, value_name = "FORMAT", value_parser = formats(FORMATS))]
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
    /// The same; too few runs in every series give exit code 4
    Inconclusive,
    /// Any change or drift that is not accepted
    Change,
}

pub fn run(args: &Args, output: &mut dyn Write) -> Result<Verdict, Error> {
    let (reading, analysed) = analysed::read(&args.history, &args.asked)?;
    let format = args.output.format(args.format);
    let sheet = Sheet::of(&args.output);
    even_unread(args.output.write(output, |w| match format {
        Format::Csv => csv(&reading, &analysed, w),
        Format::Text => text(&reading, &analysed, &sheet, w),
        Format::Md => markdown(&reading, &analysed, w),
    }))?;
    if format == Format::Csv {
        reading.notes.iter().for_each(|note| crate::warn(note));
    }
    if let Some(note) = too_old(args, &analysed) {
        crate::warn(&note);
    }
    if args.annotations.are_wanted() {
        write(args, &reading, &analysed, &mut std::io::stderr().lock())?;
    }
    Ok(verdict(args, &analysed))
}

/// Outages that are listed for people, the latest ones.
const OUTAGES: usize = 5;

/// The latest outages as sentences, and how many there were before.
fn outage_lines(all: &[Outage]) -> Vec<String> {
    let earlier = all.len().saturating_sub(OUTAGES);
    let before = (earlier > 0).then(|| format!("{earlier} earlier outages: the CSV has all"));
    before.into_iter().chain(all[earlier..].iter().map(sentences::outage)).collect()
}

/// Whether a finding is one of those that `--fail-on` names.
fn is_named(args: &Args, analysed: &AnalysedSeries, i: usize) -> bool {
    let is_kind = match args.fail_on {
        FailOn::Nothing => false,
        FailOn::Regression | FailOn::Inconclusive => analysed.trend.findings[i].worse == Some(true),
        FailOn::Change => true,
    };
    is_kind && analysed.accepted[i].is_none()
}

/// Whether a finding counts for `--fail-on`.
fn fails(args: &Args, analysed: &AnalysedSeries, i: usize) -> bool {
    is_named(args, analysed, i) && analysed.since(&analysed.trend.findings[i]) <= args.within
}

/// That findings were too long ago to count, where none counts.
fn too_old(args: &Args, all: &[AnalysedSeries]) -> Option<String> {
    let findings = || all.iter().flat_map(|of| (0..of.trend.findings.len()).map(move |i| (of, i)));
    let old = findings().filter(|(of, i)| is_named(args, of, *i)).count();
    let counts = findings().any(|(of, i)| fails(args, of, i));
    (old > 0 && !counts).then(|| {
        format!(
            "{} from before the last {} of a series: not counted for --fail-on; --within sets the number of runs",
            counted(old, "finding"),
            counted(args.within, "run")
        )
    })
}

fn verdict(args: &Args, analysed: &[AnalysedSeries]) -> Verdict {
    let any = analysed.iter().any(|analysed| (0..analysed.trend.findings.len()).any(|i| fails(args, analysed, i)));
    // A history grows by a run a night: a job that keeps it must not fail before it has enough.
    let too_few = || analysed.iter().all(|analysed| analysed.trend.missing > 0);
    match args.fail_on {
        _ if any => Verdict::Failed,
        FailOn::Inconclusive if too_few() => Verdict::Inconclusive,
        _ => Verdict::Ok,
    }
}

// Regressions as annotations at lines of the history.

/// Commits in an annotation.
const COMMITS: usize = 5;

/// Writes errors for what counts, and warnings for regressions that do not, with the commits that lie between.
pub fn write(args: &Args, reading: &Reading, all: &[AnalysedSeries], output: &mut dyn Write) -> Result<(), Error> {
    let mut found = Vec::new();
    for analysed in all {
        for (i, finding) in analysed.trend.findings.iter().enumerate() {
            let kind = match (fails(args, analysed, i), finding.worse, &analysed.accepted[i]) {
                (true, ..) => "error",
                (false, Some(true), None) => "warning",
                _ => continue,
            };
            found.push(annotation(&args.history, kind, reading, analysed, i)?);
        }
    }
    Ok(output.write_all(annotations(found).as_bytes())?)
}

/// The annotation of a finding, at the line of its first run.
pub fn annotation<'a>(
    history: &Path,
    kind: &'a str,
    reading: &Reading,
    analysed: &AnalysedSeries,
    i: usize,
) -> Result<(&'a str, Option<At>, String), Error> {
    let (_, first) = analysed.runs(reading, &analysed.trend.findings[i]);
    let at = place(history, &analysed.series.key, &first.run_id)?;
    let at = at.map(|(file, line)| At { file: file.display().to_string(), line, column: None });
    let commits = commits(analysed, i);
    let listed = commits.iter().take(COMMITS).map(|line| format!("\n{line}"));
    let more = commits.len().saturating_sub(COMMITS);
    let more = (more > 0).then(|| format!("\nand {more} more lines of commits: see the trend"));
    let text: String = listed.chain(more).collect();
    Ok((kind, at, sentence(reading, analysed, i) + &text))
}

// Trends for people, and as a table.

csv_table! {
    /// A row for a series, or for a finding in one.
    Row {
        finding: &'static str,
        plan: String,
        machine: String,
        case_id: String,
        case: String,
        member: String,
        direction: String,
        metric: String,
        runs: Option<usize>,
        missing_runs: String,
        run_id: String,
        time: String,
        commit: String,
        run_before: String,
        commit_before: String,
        was: Option<f64>,
        is: Option<f64>,
        change_ratio: Option<f64>,
        ci_low_ratio: Option<f64>,
        ci_high_ratio: Option<f64>,
        p: Option<f64>,
        worse: Option<bool>,
        runs_since: Option<usize>,
        noise_ratio: Option<f64>,
        lag1: Option<f64>,
        accepted: String,
        commits: String,
        note: String,
    }
}

impl Row {
    /// A row about a series, at one of its runs.
    fn of(finding: &'static str, analysed: &AnalysedSeries, run: Option<&Run>) -> Self {
        let series = &analysed.series;
        let Key { plan, machine, case_id, member, direction, metric } = series.key.clone();
        let run = run.cloned().unwrap_or_default();
        Self {
            finding,
            plan,
            machine,
            case_id,
            case: series.case.clone(),
            member,
            direction,
            metric,
            runs: Some(series.points.len()),
            missing_runs: analysed.trend.missing.to_string(),
            run_id: run.run_id,
            time: run.time,
            commit: run.commit,
            ..Self::default()
        }
    }

    fn of_finding(reading: &Reading, analysed: &AnalysedSeries, i: usize) -> Self {
        let finding = &analysed.trend.findings[i];
        let (before, first) = analysed.runs(reading, finding);
        let known = analysed.accepted[i].as_ref();
        let (commits, note) = match &analysed.commits[i] {
            Ok((list, _)) => (list.iter().map(|c| c.id.as_str()).collect::<Vec<_>>().join(" "), String::new()),
            Err(reason) => (String::new(), reason.clone()),
        };
        Self {
            run_before: before.run_id.clone(),
            commit_before: before.commit.clone(),
            was: Some(finding.was),
            is: Some(finding.is),
            change_ratio: Some(finding.ratio),
            ci_low_ratio: finding.interval.map(|i| i.0),
            ci_high_ratio: finding.interval.map(|i| i.1),
            p: finding.p,
            worse: finding.worse,
            runs_since: Some(analysed.since(finding)),
            accepted: known.map(|known| format!("{}: {}", known.date, known.reason)).unwrap_or_default(),
            commits,
            note,
            ..Self::of(if finding.is_drift { "drift" } else { "change" }, analysed, Some(first))
        }
    }
}

/// A row for each series and one for each finding.
pub fn csv(reading: &Reading, all: &[AnalysedSeries], output: &mut dyn Write) -> Result<(), Error> {
    let of_series = all.iter().flat_map(|analysed| {
        let last = analysed.series.points.last().map(|point| &reading.runs[point.run]);
        let level = Row {
            is: analysed.trend.level,
            noise_ratio: analysed.trend.noise_ratio,
            lag1: analysed.trend.correlated,
            note: doubts(analysed).join("; "),
            ..Row::of("level", analysed, last)
        };
        let findings = (0..analysed.trend.findings.len()).map(move |i| Row::of_finding(reading, analysed, i));
        std::iter::once(level).chain(findings)
    });
    let outages = reading.outages.iter().map(|outage| Row {
        finding: "outage",
        plan: outage.plan.clone(),
        machine: outage.host.clone(),
        missing_runs: outage.cycles.to_string(),
        time: outage.begin.clone(),
        note: format!("to {}: {}", outage.end.as_deref().unwrap_or("now"), outage.reason),
        ..Row::default()
    });
    write_csv(output, Row::HEADER, of_series.chain(outages).map(Row::cells))
}

/// Sentences: the answer, what changed, then the levels of all series.
pub fn text(reading: &Reading, all: &[AnalysedSeries], sheet: &Sheet, output: &mut dyn Write) -> Result<(), Error> {
    layout::answer(&answer(reading, all).1, false, sheet, output)?;
    let events = events(reading, all);
    for event in &events {
        layout::paragraph(&plain(&heading(reading, all, event)), sheet.indent, sheet.width, output)?;
        for (analysed, i) in event.findings.iter().map(|(series, i)| (&all[*series], *i)) {
            let style = match (analysed.trend.findings[i].worse, &analysed.accepted[i]) {
                (_, Some(_)) | (None, _) => style::NOTE,
                (Some(true), None) => style::ERROR,
                (Some(false), None) => style::GOOD,
            };
            let head = sheet.painted(style, word(analysed, i));
            layout::paragraph(
                &format!("{head}: {}", plain(&line(analysed, i))),
                sheet.indent + 2,
                sheet.width,
                output,
            )?;
            if let Some(line) = acceptance(analysed, i) {
                layout::paragraph(&plain(&line), sheet.indent + 4, sheet.width, output)?;
            }
        }
        for line in commits_of(all, event) {
            layout::paragraph(&plain(&line), sheet.indent + 4, sheet.width, output)?;
        }
    }
    for line in outage_lines(&reading.outages) {
        layout::paragraph(&plain(&line), sheet.indent, sheet.width, output)?;
    }
    if !(events.is_empty() && reading.outages.is_empty()) {
        writeln!(output)?;
    }
    layout::aligned(&levels(reading, all), sheet, output)?;
    for note in notes(reading, all) {
        layout::paragraph(&plain(&format!("note: {note}")), sheet.indent, sheet.width, output)?;
    }
    Ok(())
}

/// The same in Markdown.
pub fn markdown(reading: &Reading, all: &[AnalysedSeries], output: &mut dyn Write) -> Result<(), Error> {
    layout::answer(&answer(reading, all).1, true, &Sheet::PLAIN, output)?;
    let escaped = crate::table::markdown::escaped;
    let events = events(reading, all);
    for event in &events {
        writeln!(output, "- {}", escaped(&heading(reading, all, event)))?;
        for (analysed, i) in event.findings.iter().map(|(series, i)| (&all[*series], *i)) {
            writeln!(output, "  - **{}**: {}", word(analysed, i), escaped(&line(analysed, i)))?;
            if let Some(line) = acceptance(analysed, i) {
                writeln!(output, "    - {}", escaped(&line))?;
            }
        }
        for line in commits_of(all, event) {
            writeln!(output, "  - {}", escaped(&line))?;
        }
    }
    for line in outage_lines(&reading.outages) {
        writeln!(output, "\n{}", escaped(&line))?;
    }
    if !(events.is_empty() && reading.outages.is_empty()) {
        writeln!(output)?;
    }
    layout::markdown(&levels(reading, all), output)?;
    for note in notes(reading, all) {
        writeln!(output, "\nNote: {}", escaped(&note))?;
    }
    Ok(())
}

/// The commits of an event: those of each of its findings, since all lie between the same runs.
fn commits_of(all: &[AnalysedSeries], event: &Event) -> Vec<String> {
    event.findings.first().map(|(series, i)| commits(&all[*series], *i)).unwrap_or_default()
}

/// The present level of each series.
fn levels(reading: &Reading, all: &[AnalysedSeries]) -> Vec<Column> {
    let several = |of: fn(&AnalysedSeries) -> &str| all.iter().any(|analysed| of(analysed) != of(&all[0]));
    let mut columns = Vec::new();
    if several(|analysed| &analysed.series.key.plan) {
        columns.push(Column::of("plan", false, all, |analysed| analysed.series.key.plan.clone()));
    }
    if several(|analysed| &analysed.series.key.machine) {
        columns
            .push(Column::of("machine", false, all, |analysed| reading.host(&analysed.series.key.machine).to_owned()));
    }
    columns.extend([
        Column::of("series", false, all, name),
        Column::of("runs", true, all, |analysed| analysed.series.points.len().to_string()),
        Column::of("level", true, all, |analysed| match (analysed.trend.level, analysed.trend.metric) {
            (Some(level), Some(metric)) => human(metric.unit, level),
            (Some(level), None) => three_digits(level),
            (None, _) => String::new(),
        }),
        Column::of("noise", true, all, |analysed| analysed.trend.noise_ratio.map(margin).unwrap_or_default()),
        Column::of("changes", true, all, |analysed| match analysed.trend.missing {
            0 => analysed.trend.findings.len().to_string(),
            _ => "too few runs".to_owned(),
        }),
    ]);
    columns
}

#[cfg(test)]
mod tests;
