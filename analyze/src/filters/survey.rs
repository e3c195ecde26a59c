//! `plumb survey`: which host, and which link, of a fabric is slow.

use super::{aggregate::parse_level, compare::parse_share};
use crate::{
    distinct,
    error::{Error, Verdict, even_unread},
    survey::{self, DISTURBED, FAILED, Kind, Limit, Pairs, Role, Rule, Survey, survey},
    table::{Format, Table, TableArgs, csv_table, formats, layout::Sheet, write_csv},
};
use schemas::columns::number;
use std::{io::Write, sync::LazyLock};

/// `3%`
static LEAST_EFFECT: LazyLock<String> =
    LazyLock::new(|| format!("{}%", number((Rule::LEAST_EFFECT * 1e6).round() / 1e4)));

const FORMATS: [(Format, &str); 3] = [
    (Format::Csv, "One row per finding"),
    (Format::Text, "Tables and sentences"),
    (Format::Md, "The same in Markdown"),
];

/// Suspects of a survey of a fabric: which hosts and which links are slow, by how much, and the pairs that show it.
///
/// plumb survey results.csv --fail-on suspects
///
/// Prints text on a terminal and CSV anywhere else: in a CI log or before `| head`, add `-f text` or `-f md`.
///
/// A survey is a test that was measured between many pairs of hosts (`pairs` in a plan). Its n × n values are separated
/// into the effect of each host as a sender, as a receiver, and of each directed link, by a robust two-way fit of their
/// logarithms (median polish, then an M-estimate with Tukey's bisquare). A suspect is significantly worse than the rest (at
/// most a share of --alpha of healthy fabrics name any) and by at least --min-effect. A host that is slow is one suspect, and
/// not each of its pairs. Several iterations of a pair count as their median. Pairs that failed or were not measured are
/// listed apart. On a terminal with room for it, and in pipes, the text has the table of all pairs, otherwise one of all hosts.
///
/// The CSV has a row for each survey as a whole, with its overall value, its spread ((95th − 5th percentile) ÷ median) and
/// the noise of a pair, and a row for each finding: host, link, failed, disturbed, missing. Columns `from` and `to` name
/// the slowest pair that shows it.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Metric to survey [default: the headline of each test's workload: throughput of streams, transaction rate of
    /// request/response and connect, median latency of ping and of what has a rate]
    #[arg(short, long, value_name = "METRIC")]
    metric: Option<String>,
    /// Largest share of surveys of a healthy fabric that name a suspect
    #[arg(long, value_name = "ALPHA", default_value_t = Rule::ALPHA, value_parser = parse_level)]
    alpha: f64,
    /// Smallest effect that counts
    #[arg(long, value_name = "RATIO", default_value = LEAST_EFFECT.as_str(), value_parser = parse_share("3%"))]
    min_effect: f64,
    /// Exit with code 1 when there is one of these, with 4 when too few pairs have a value to tell
    #[arg(long, value_name = "WHAT", default_value = "nothing")]
    fail_on: FailOn,
    /// csv, text or md [default: text on a terminal, else csv]
    #[arg(short, long, value_name = "FORMAT", value_parser = formats(FORMATS))]
    format: Option<Format>,
    #[command(flatten)]
    tables: TableArgs,
}

/// When `survey` exits with 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum FailOn {
    /// Never
    Nothing,
    /// A suspect
    Suspects,
    /// A suspect, or a pair that failed, was disturbed or was not measured
    Incomplete,
}

/// A survey and what it tells.
pub(super) struct Judged {
    pub(super) pairs: Pairs,
    found: Survey,
}

impl Judged {
    /// By the defaults.
    pub(super) fn of(pairs: Pairs) -> Self {
        let found = survey(&pairs.matrix, &Rule::new(pairs.metric.better));
        Self { pairs, found }
    }

    pub(super) fn text<'a>(&'a self, name: &'a str) -> survey::Text<'a> {
        let Pairs { metric, ends, ref matrix, .. } = self.pairs;
        survey::Text { name, metric, ends, matrix, found: &self.found }
    }
}

/// For people, one below the other.
fn people(surveys: &[Judged], markdown: bool, sheet: &Sheet, output: &mut dyn Write) -> Result<(), Error> {
    for (i, survey) in surveys.iter().enumerate() {
        if i > 0 {
            writeln!(output)?;
        }
        survey.text(&survey.pairs.name()).write(markdown, sheet, output)?;
    }
    Ok(())
}

pub fn run(args: &Args, output: &mut dyn Write) -> Result<Verdict, Error> {
    let mut table = Table::open(&args.tables.input)?;
    let judge = |pairs: Pairs| {
        let rule = Rule { better: pairs.metric.better, alpha: args.alpha, least_effect: args.min_effect };
        Judged { found: survey(&pairs.matrix, &rule), pairs }
    };
    let surveys: Vec<Judged> =
        survey::read(&mut table, &args.tables.selection, args.metric.as_deref())?.into_iter().map(judge).collect();
    let format = args.tables.output.format(args.format);
    let sheet = Sheet::of(&args.tables.output);
    even_unread(args.tables.output.write(output, |w| match format {
        Format::Csv => csv(&surveys, w),
        Format::Text => people(&surveys, false, &sheet, w),
        Format::Md => people(&surveys, true, &sheet, w),
    }))?;
    Ok(verdict(args.fail_on, &surveys))
}

fn verdict(fail_on: FailOn, surveys: &[Judged]) -> Verdict {
    let any = |is: fn(&Survey) -> bool| surveys.iter().any(|s| is(&s.found));
    let incomplete = fail_on == FailOn::Incomplete
        && any(|s| !s.doubtful.is_empty() || ![&s.failed, &s.disturbed, &s.missing].iter().all(|list| list.is_empty()));
    match fail_on {
        FailOn::Nothing => Verdict::Ok,
        _ if incomplete || any(|s| !s.suspects.is_empty()) => Verdict::Failed,
        _ if any(|s| s.suspect_count().is_none()) => Verdict::Inconclusive,
        _ => Verdict::Ok,
    }
}

csv_table! {
    /// A row of the table of findings.
    Row {
        metric: &'static str,
        finding: &'static str,
        host: String,
        role: &'static str,
        from: String,
        to: String,
        worse_ratio: Option<f64>,
        ci_low_ratio: Option<f64>,
        ci_high_ratio: Option<f64>,
        shown: Option<usize>,
        pairs: Option<usize>,
        overall: Option<f64>,
        spread_ratio: Option<f64>,
        noise_ratio: Option<f64>,
        suspects: Option<usize>,
        note: String,
    }
}

/// Findings as rows, with a row for each survey as a whole before its own.
fn csv(surveys: &[Judged], output: &mut dyn Write) -> Result<(), Error> {
    let keys: Vec<&str> = distinct(surveys.iter().flat_map(|s| &s.pairs.key).map(|(name, _)| name.as_str()));
    let all = surveys.iter().flat_map(|survey| rows(survey).into_iter().map(move |row| (survey, row)));
    let cells = all.map(|(survey, row)| {
        let key = |key: &&str| {
            let own = survey.pairs.key.iter().find(|(name, _)| name == key);
            own.map_or_else(String::new, |(_, text)| text.clone())
        };
        keys.iter().map(key).chain(row.cells()).collect::<Vec<_>>()
    });
    write_csv(output, keys.iter().chain(Row::HEADER), cells)
}

fn rows(survey: &Judged) -> Vec<Row> {
    let found = &survey.found;
    let hosts = survey.pairs.matrix.hosts();
    let notes: Vec<String> = found.limits.iter().map(Limit::sentence).collect();
    let of_survey = Row { metric: survey.pairs.metric.name, ..Row::default() };
    let of_pair =
        |(from, to): (usize, usize)| Row { from: hosts[from].clone(), to: hosts[to].clone(), ..of_survey.clone() };
    let mut rows = vec![Row {
        finding: "survey",
        pairs: Some(found.measured),
        overall: found.overall,
        spread_ratio: found.spread,
        noise_ratio: found.noise,
        suspects: found.suspect_count(),
        note: notes.join("; "),
        ..of_survey.clone()
    }];
    for (suspect, note) in found.suspects.iter().zip(sentences(survey)) {
        let (finding, host, role) = match suspect.kind {
            Kind::Host { host, role: Role::Sender } => ("host", hosts[host].clone(), "from"),
            Kind::Host { host, role: Role::Receiver } => ("host", hosts[host].clone(), "to"),
            Kind::Host { host, role: Role::Both } => ("host", hosts[host].clone(), "both"),
            Kind::Link { .. } => ("link", String::new(), ""),
        };
        rows.push(Row {
            finding,
            host,
            role,
            worse_ratio: Some(suspect.worse).filter(|worse| worse.is_finite()),
            ci_low_ratio: Some(suspect.low).filter(|low| low.is_finite()),
            ci_high_ratio: Some(suspect.high).filter(|high| high.is_finite()),
            shown: Some(suspect.shown),
            pairs: Some(suspect.pairs),
            note,
            ..of_pair(suspect.example)
        });
    }
    let doubtful = found.doubtful.kinds().map(|(list, words, _)| (DISTURBED, list, words));
    let others = [(FAILED, &found.failed[..], ""), (DISTURBED, &found.disturbed, ""), ("missing", &found.missing, "")];
    for (finding, list, note) in others.into_iter().chain(doubtful) {
        rows.extend(list.iter().map(|pair| Row { finding, note: note.to_owned(), ..of_pair(*pair) }));
    }
    rows
}

fn sentences(survey: &Judged) -> Vec<String> {
    survey.found.sentences(survey.pairs.matrix.hosts(), survey.pairs.metric.better, survey.pairs.ends)
}

#[cfg(test)]
mod tests;
