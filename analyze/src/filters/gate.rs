//! `plumb gate`: assertions over a results file. The help text is [`Args`]'s.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;

use schemas::{assertion, metrics};

use super::aggregate::parse_level;
use super::samples::{Case, Samples};
use super::verdicts::{self, Format};
use crate::error::{Error, Verdict};
use crate::judge::{self, Judge, Outcome, Severity, VerdictRow};
use crate::table::{InputArgs, OutputArgs, Selection, Table};

/// Whether assertions hold in a results file: pass, fail or inconclusive, case by case.
///
/// plumb run plans/quick.yaml | plumb gate --assert 'throughput >= 1Gbit/s' --where workload!=tcp_rr
///
/// With three or more iterations the confidence interval is judged, not the mean; a case without a sample of the metric
/// fails. Exit code 1 when something failed, 4 when nothing did, something is inconclusive and --inconclusive fail is given.
/// The CSV is the `verdicts` table.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// A statement such as 'throughput >= 9Gbit/s' or 'latency.p99 < 80us'; may be repeated
    #[arg(long = "assert", value_name = "STATEMENT")]
    assertions: Vec<String>,
    /// Judge the assertions of this plan
    #[arg(long, value_name = "PLAN")]
    pub plan: Option<PathBuf>,
    /// The plan's assertions: whoever can read plans fills them in.
    #[arg(skip)]
    pub statements: Vec<Statement>,
    /// What is judged from three iterations on
    #[arg(long, value_name = "WHAT", default_value = "ci")]
    judge: Judge,
    /// Confidence level of the interval
    #[arg(long, value_name = "LEVEL", default_value = "95%", value_parser = parse_level)]
    pub level: f64,
    /// What an inconclusive verdict is
    #[arg(long, value_name = "HOW", default_value = "warn")]
    inconclusive: OnInconclusive,
    /// csv or text [default: text on a terminal, else csv]
    #[arg(short, long, value_name = "FORMAT")]
    format: Option<Format>,
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    input: InputArgs,
}

/// What an inconclusive verdict does to the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum OnInconclusive {
    /// Exit code 0, unless something failed
    Warn,
    /// Exit code 4, unless something failed
    Fail,
}

/// Which rows a statement is about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Scope {
    /// The case as a whole.
    #[default]
    Total,
    /// Each direction by itself.
    Direction,
    /// Each stream by itself.
    Stream,
}

/// A statement about some cases, and where it was made.
#[derive(Debug, Clone)]
pub struct Statement {
    /// What must hold.
    pub assertion: assertion::Assertion,
    /// The `case_id`s it is about; empty: all.
    pub case_ids: Vec<String>,
    /// The member of a concurrent group it is about; `None`: the group's total, or each member where there is no total.
    pub member: Option<String>,
    /// What it is about within a case.
    pub scope: Scope,
    /// How much it weighs.
    pub severity: Severity,
    /// Interval or point.
    pub judge: Judge,
    /// Confidence level of the interval, 0 … 1.
    pub level: f64,
    /// The file it stands in; empty for the command line.
    pub file: String,
    /// Its line there, from 1.
    pub line: Option<u64>,
    /// Its column there, from 1.
    pub column: Option<u64>,
}

/// Runs the filter.
pub fn run(args: &Args, output: &mut dyn Write) -> Result<Verdict, Error> {
    let mut statements = args.statements.clone();
    for text in &args.assertions {
        let assertion =
            assertion::parse(text).map_err(|e| Error::Usage(format!("--assert {text}: {e}{}", hint(&e))))?;
        statements.push(Statement {
            assertion,
            case_ids: Vec::new(),
            member: None,
            scope: Scope::Total,
            severity: Severity::Error,
            judge: args.judge,
            level: args.level,
            file: String::new(),
            line: None,
            column: None,
        });
    }
    if statements.is_empty() {
        return Err(Error::Usage(match &args.plan {
            Some(plan) => format!("{} asserts nothing: add `assert` to its tests, or give --assert", plan.display()),
            None => "nothing to judge: give --assert 'METRIC OP LIMIT' or --plan PLAN".to_owned(),
        }));
    }
    let mut table = Table::open(&args.input)?;
    let rows = judge_table(&mut table, &args.selection, &statements)?;
    let format = args.format.unwrap_or_else(|| {
        if args.output.output.is_none() && std::io::stdout().is_terminal() { Format::Text } else { Format::Csv }
    });
    args.output.write(output, |w| verdicts::write(&rows, format, w))?;
    let count = |name: &str| rows.iter().filter(|r| r.verdict == name && r.severity == "error").count();
    Ok(if count("fail") > 0 {
        Verdict::Failed
    } else if count("inconclusive") > 0 && args.inconclusive == OnInconclusive::Fail {
        Verdict::Inconclusive
    } else {
        Verdict::Ok
    })
}

fn hint(error: &assertion::AssertionError) -> String {
    let assertion::AssertionError::UnknownMetric(name) = error else { return String::new() };
    let near = metrics::METRICS
        .iter()
        .map(|m| (strsim::jaro_winkler(m.name, name), m.name))
        .max_by(|a, b| a.0.total_cmp(&b.0));
    near.filter(|(score, _)| *score > 0.75).map(|(_, n)| format!("; did you mean `{n}`?")).unwrap_or_default()
}

/// Judges statements over a table: a row per statement and case, in the order of the statements.
pub fn judge_table(
    table: &mut Table,
    selection: &Selection,
    statements: &[Statement],
) -> Result<Vec<VerdictRow>, Error> {
    let mut columns: Vec<usize> = Vec::new();
    let mut of: Vec<Option<usize>> = Vec::new();
    for statement in statements {
        if statement.scope == Scope::Stream {
            return Err(Error::Usage(format!(
                "`{}`: scope `stream` is judged while the plan runs; a results file is judged by case or by direction",
                statement.assertion.text
            )));
        }
        // A column that is not there is a metric without a sample, and fails.
        let column = table.header().find(statement.assertion.metric.column);
        of.push(column.map(|column| {
            columns.iter().position(|c| *c == column).unwrap_or_else(|| {
                columns.push(column);
                columns.len() - 1
            })
        }));
    }
    let samples = Samples::read(table, selection, &columns, None)?;
    if let Some(note) = &samples.note {
        crate::warn(note);
    }
    let mut totals = samples.clone();
    totals.keep_totals();
    let mut rows = Vec::new();
    for (statement, metric) in statements.iter().zip(of) {
        let cases = if statement.scope == Scope::Total { &totals.cases } else { &samples.cases };
        let mut judged = 0;
        for case in cases.iter().filter(|c| concerns(statement, c, cases)) {
            let values = metric.map_or(&[][..], |m| &case.values[m]);
            rows.push(row(statement, case, cases, values));
            judged += 1;
        }
        if judged == 0 {
            // A statement about a case that left no row at all must not pass by silence.
            let nobody = Case { name: statement.case_ids.join(" "), ..Case::default() };
            rows.push(row(statement, &nobody, &[], &[]));
        }
    }
    Ok(rows)
}

fn concerns(statement: &Statement, case: &Case, all: &[Case]) -> bool {
    let key = &case.key;
    if !statement.case_ids.is_empty() && !statement.case_ids.contains(&key.id) {
        return false;
    }
    if statement.scope == Scope::Direction && key.direction == "both" {
        return false;
    }
    match &statement.member {
        Some(member) => *member == key.member,
        None => key.member.is_empty() || !all.iter().any(|c| c.key.id == key.id && c.key.member.is_empty()),
    }
}

fn row(statement: &Statement, case: &Case, among: &[Case], values: &[f64]) -> VerdictRow {
    let judgement = judge::judge(&statement.assertion, values, case.transactions, statement.level, statement.judge);
    debug_assert!(judgement.outcome != Outcome::Pass || judgement.n > 0);
    let mut row = VerdictRow::of(&statement.assertion, &judgement, statement.severity);
    row.case_id.clone_from(&case.key.id);
    row.case = case.label(among);
    row.member.clone_from(&case.key.member);
    row.file.clone_from(&statement.file);
    (row.line, row.column) = (statement.line, statement.column);
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "case_id,case,record,phase,status,throughput_bits_per_s,retransmits\n\
        c1,a,iteration,measure,ok,9.4e9,0\nc1,a,iteration,measure,ok,9.5e9,0\nc1,a,iteration,measure,ok,9.45e9,2\n\
        c2,b,iteration,measure,failed,,\nc2,b,summary,,ok,,\n";

    fn verdicts(statements: &[&str]) -> Vec<(String, String, String)> {
        let statements: Vec<Statement> = statements
            .iter()
            .map(|text| Statement {
                assertion: assertion::parse(text).unwrap(),
                case_ids: Vec::new(),
                member: None,
                scope: Scope::Total,
                severity: Severity::Error,
                judge: Judge::Ci,
                level: 0.95,
                file: "p.yaml".into(),
                line: Some(3),
                column: None,
            })
            .collect();
        let mut table = Table::from_text("t", TABLE).unwrap();
        let rows = judge_table(&mut table, &Selection::default(), &statements).unwrap();
        rows.into_iter().map(|r| (r.case, r.verdict, r.note)).collect()
    }

    #[test]
    fn each_case_is_judged() {
        let rows = verdicts(&["throughput >= 9Gbit/s", "retransmits == 0", "latency.p99 < 1ms"]);
        let short: Vec<(&str, &str)> = rows.iter().map(|r| (r.0.as_str(), r.1.as_str())).collect();
        // Every iteration of b failed: it has no sample, and must not pass by silence.
        assert_eq!(short, [("a", "pass"), ("b", "fail"), ("a", "fail"), ("b", "fail"), ("a", "fail"), ("b", "fail")]);
        assert_eq!(rows[1].2, "there is no sample of throughput");
        assert_eq!(rows[2].2, "in 1 of 3 iterations");
        assert_eq!(rows[4].2, "there is no sample of latency.p99");
    }
}
