//! `plumb gate`: assertions over a results file.

use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::path::PathBuf;

use schemas::{
    assertion::{self, Operator},
    metrics::{self, Metric},
    words::{self, Way},
};

use super::aggregate::parse_level;
use crate::error::{Error, Verdict, even_unread};
use crate::judge::baseline::{Baseline, Terms};
use crate::judge::environment::{self, Environment};
use crate::judge::offered;
use crate::judge::samples::{self, Case, Index, Samples};
use crate::judge::survey::{Pair, Surveyed};
use crate::judge::verdicts::{self, Format};
use crate::judge::worsening::{self, Worse};
use crate::judge::{self, Judge, Scope, Severity, VerdictRow};
use crate::table::{InputArgs, Selection, Table, TableArgs, layout::Sheet};

/// Whether assertions hold in a results file: pass, fail or inconclusive, case by case.
///
/// plumb run plans/quick.yaml | plumb gate --assert 'throughput >= 1Gbit/s' --where workload!=tcp_rr
///
/// A statement holds if at least half of all iterations would keep it. With three or more iterations the confidence
/// interval of their median is judged; what every iteration violates fails. A case without a sample of the metric fails.
/// With --plan, the promises of the plan's baseline are judged too. Exit code: 1 if something failed, 3 if a
/// comparison may not be made, 4 if nothing failed but something is inconclusive and that counts. The CSV is the
/// `verdicts` table.
///
/// --self-test 10% shows that this gate can fail: each case is made worse by that much, by itself, in each judged
/// metric's bad direction. Exit code 0 if every one is noticed, 1 if one is not. Each row says from which worsening on
/// it is noticed, given these values; in another run with the same variation about half of the worsenings of that size
/// would be.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// A statement such as 'throughput >= 9Gbit/s' or 'latency.p99 < 80us'; may be repeated
    #[arg(long = "assert", value_name = "STATEMENT")]
    assertions: Vec<String>,
    /// Judge the assertions of this plan
    #[arg(long, value_name = "PLAN")]
    pub plan: Option<PathBuf>,
    /// With --plan: set a value of it as its run did, as `duration=1s`; may be repeated
    #[arg(long = "set", value_name = "PATH=VALUE", requires = "plan")]
    pub sets: Vec<String>,
    /// The plan's assertions, filled in by the program that can read plans.
    #[arg(skip)]
    pub statements: Vec<Statement>,
    /// The promises of the plan's baseline, filled in likewise.
    #[arg(skip)]
    pub terms: Option<Terms>,
    /// Make the values worse by this much, and exit with 1 if that is not noticed
    #[arg(long, value_name = "RATIO", value_parser = super::compare::parse_worsening)]
    self_test: Option<f64>,
    /// The rows that are judged
    #[arg(long, value_name = "WHAT", default_value = "ci")]
    judge: Judge,
    /// Confidence level of the interval [default: the plan's, else 95%]
    #[arg(long, value_name = "LEVEL", value_parser = parse_level)]
    pub level: Option<f64>,
    /// Treatment of an inconclusive verdict [default: the plan's, else warn]
    #[arg(long, value_name = "HOW")]
    pub inconclusive: Option<OnInconclusive>,
    /// csv, text or md [default: text on a terminal, else csv]
    #[arg(short, long, value_name = "FORMAT")]
    format: Option<Format>,
    #[command(flatten)]
    tables: TableArgs,
}

/// The default confidence level.
const LEVEL: f64 = 0.95;

/// Effect of an inconclusive verdict on the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum OnInconclusive {
    /// Exit code 0, unless something failed
    Warn,
    /// Exit code 4, unless something failed
    Fail,
}

/// A statement about some cases, and its place.
#[derive(Debug, Clone)]
pub struct Statement {
    pub assertion: assertion::Assertion,
    /// The case; `None`: all.
    pub case_id: Option<String>,
    /// The survey whose figure it is about.
    pub survey: Option<Survey>,
    /// The member of a concurrent group; `None`: the group's total, or each member of a group without a total.
    pub member: Option<String>,
    pub scope: Scope,
    pub severity: Severity,
    pub judge: Judge,
    /// Confidence level of the interval, 0 … 1.
    pub level: f64,
    /// Empty for the command line.
    pub file: String,
    /// From 1.
    pub line: Option<u64>,
    /// From 1.
    pub column: Option<u64>,
}

/// The pairs of a test.
#[derive(Debug, Clone)]
pub struct Survey {
    pub name: String,
    /// Cases of its pairs.
    pub case_ids: Vec<String>,
    /// The metric by which they are compared.
    pub metric: &'static Metric,
}

pub fn run(args: &Args, output: &mut dyn Write) -> Result<Verdict, Error> {
    let mut statements = args.statements.clone();
    for text in &args.assertions {
        let assertion = assertion::parse(text).map_err(|e| Error::Usage(format!("--assert {text}: {e}")))?;
        if metrics::of_survey(assertion.metric.name).is_some() {
            return Err(Error::Usage(format!(
                "--assert {text}: `{}` is a figure of all pairs of a test, which only a plan knows: give --plan PLAN, or use \
                 `plumb survey --fail-on suspects`",
                assertion.metric.name
            )));
        }
        let member = assertion.difference.as_ref().map(|difference| difference.member.clone());
        statements.push(Statement {
            assertion,
            case_id: None,
            survey: None,
            member,
            scope: Scope::Total,
            severity: Severity::Error,
            judge: args.judge,
            level: args.level.unwrap_or(LEVEL),
            file: String::new(),
            line: None,
            column: None,
        });
    }
    if statements.is_empty() && args.terms.is_none() {
        return Err(Error::Usage(match &args.plan {
            Some(plan) => format!("{} asserts nothing: add `assert` to its tests, or give --assert", plan.display()),
            None => "nothing to judge: give --assert 'METRIC OP LIMIT' or --plan PLAN".to_owned(),
        }));
    }
    let mut table = Table::open(&args.tables.input)?;
    let here = here(&args.tables.input)?;
    let baseline = args.terms.clone().map(Baseline::read).transpose()?;
    let data = Data::read(&mut table, &args.tables.selection, &statements, baseline.as_ref())?;
    let rows = data.judge(&statements, baseline.as_ref(), &here, args.self_test);
    let format = args.format.unwrap_or(if args.tables.output.is_for_people() { Format::Text } else { Format::Csv });
    even_unread(
        args.tables.output.write(output, |w| verdicts::write(&rows, format, &Sheet::of(&args.tables.output), w)),
    )?;
    let count = |of: words::Verdict| rows.iter().filter(|r| r.verdict == of && r.severity == Severity::Error).count();
    if args.self_test.is_some() {
        // A gate whose statements only warn cannot fail either.
        return Ok(if count(words::Verdict::Unnoticed) > 0 || count(words::Verdict::Noticed) == 0 {
            Verdict::Failed
        } else {
            Verdict::Ok
        });
    }
    Ok(if rows.iter().any(VerdictRow::fails) {
        Verdict::Failed
    } else if rows.iter().any(VerdictRow::refuses) {
        Verdict::Exit(3)
    } else if count(words::Verdict::Inconclusive) > 0 && args.inconclusive == Some(OnInconclusive::Fail) {
        Verdict::Inconclusive
    } else {
        Verdict::Ok
    })
}

/// Facts about the machine, from the first file that has them beside it.
fn here(input: &InputArgs) -> Result<Environment, Error> {
    for file in input.files.iter().filter(|f| f.as_os_str() != "-") {
        if let Some(run) = environment::read(file)? {
            return Ok(Environment::of(&run));
        }
    }
    Ok(Environment::default())
}

/// The values to judge.
struct Data {
    /// Cases with their directions apart.
    samples: Samples,
    /// Cases as wholes.
    totals: Samples,
    /// Their streams.
    streams: Samples,
    /// Names of the columns, in the order of every case's values.
    columns: Vec<String>,
}

/// Share of the time in which others took a CPU.
const CPU_TAKEN: &str = "cpu_taken_ratio";

impl Data {
    fn read(
        table: &mut Table,
        selection: &Selection,
        statements: &[Statement],
        baseline: Option<&Baseline>,
    ) -> Result<Self, Error> {
        let mut columns: Vec<String> = Vec::new();
        let mut indices: Vec<usize> = Vec::new();
        let promised = baseline.map(Baseline::promises).unwrap_or_default().iter().map(|p| p.metric.column);
        let surveyed = statements.iter().filter_map(|s| s.survey.as_ref());
        let surveyed = surveyed.flat_map(|survey| [survey.metric.column, CPU_TAKEN]);
        let subtracted = statements.iter().filter_map(|s| s.assertion.difference.as_ref()?.subtracted());
        let subtracted = subtracted.map(|metric| metric.column);
        let asserted = statements.iter().map(|s| s.assertion.metric.column).chain(subtracted);
        for name in asserted.chain(surveyed).chain(promised).chain(offered::COLUMNS) {
            // A missing column is a metric without a sample, and fails.
            if let Some(index) = table.header().find(name).filter(|_| !columns.iter().any(|c| c == name)) {
                columns.push(name.to_owned());
                indices.push(index);
            }
        }
        let (samples, streams) = if statements.iter().any(|s| s.scope == Scope::Stream) {
            Samples::read_with_streams(table, selection, &indices)?
        } else {
            let samples = Samples::read(table, selection, &indices, None)?;
            let none = Samples { cases: Vec::new(), ..samples.clone() };
            (samples, none)
        };
        if let Some(note) = &samples.note {
            crate::warn(note);
        }
        let mut totals = samples.clone();
        totals.keep_totals();
        Ok(Self { samples, totals, streams, columns })
    }

    fn values<'a>(&self, case: &'a Case, column: &str) -> &'a [f64] {
        self.columns.iter().position(|c| c == column).and_then(|m| case.values.get(m)).map_or(&[][..], Vec::as_slice)
    }

    /// The values of a column in the rows of each value of another one.
    fn beside(&self, case: &Case, column: &str, other: &str) -> Vec<Option<f64>> {
        let place = |column: &str| self.columns.iter().position(|c| c == column);
        let (Some(own), Some(other)) = (place(column), place(other)) else { return Vec::new() };
        let by_row: HashMap<usize, f64> =
            case.row_of[other].iter().copied().zip(case.values[other].iter().copied()).collect();
        case.row_of[own].iter().map(|row| by_row.get(row).copied()).collect()
    }

    /// The shares of its load that the iterations of a case offered.
    fn offered(&self, case: &Case) -> Vec<f64> {
        let [errors, quanta] = offered::COLUMNS.map(|column| self.values(case, column));
        errors.iter().zip(quanta).map(|(error, quantum)| offered::share(*error, *quantum)).collect()
    }

    fn index(&self) -> Indices<'_> {
        let [samples, totals, streams] = [&self.samples, &self.totals, &self.streams].map(|s| Index::new(&s.cases));
        Indices { samples, totals, streams }
    }

    /// The samples of every case, in the order of a baseline's promises.
    fn promised(&self, baseline: &Baseline) -> Vec<Case> {
        let values = |case: &Case| {
            baseline.promises().iter().map(|p| self.values(case, p.metric.column).to_vec()).collect::<Vec<_>>()
        };
        self.totals.cases.iter().map(|case| Case { values: values(case), ..case.clone() }).collect()
    }

    /// A row per statement and case, in the order of the statements; then a row per promise and case. With `worse_by`,
    /// the rows say whether values worse by that much, each by itself, would be noticed.
    fn judge(
        &self,
        statements: &[Statement],
        baseline: Option<&Baseline>,
        here: &Environment,
        worse_by: Option<f64>,
    ) -> Vec<VerdictRow> {
        let mut rows = Vec::new();
        let index = self.index();
        for statement in statements {
            // A cause is not made worse by a ratio.
            if worse_by.is_some() && statement.assertion.cause.is_some() {
                continue;
            }
            if let Some(survey) = &statement.survey {
                // One value that is worse is one of many pairs, and no measure of the gate.
                rows.extend(worse_by.is_none().then(|| self.of_survey(statement, survey)));
                continue;
            }
            let (cases, among) = index.subjects(statement);
            let metric = statement.assertion.metric;
            let worse = worse(statement);
            // Values, and what is subtracted from each.
            let judged = |case: &Case, values: &[(f64, f64)]| {
                let offered = self.offered(case);
                let row = |by: f64| {
                    let value = |v: f64| if by > 0.0 { worse.make(v, Some(metric), by) } else { v };
                    let values: Vec<f64> = values.iter().map(|(v, minus)| value(*v) - minus).collect();
                    row(statement, case, among, &values, &offered)
                };
                worse_by.map_or_else(|| row(0.0), |by| worsening::row(worse, by, row))
            };
            rows.extend(cases.iter().map(|case| judged(case, &self.subtracted(statement, case, among))));
            // A case that left no row, and was not skipped on purpose, must not pass by silence.
            let skipped = statement.case_id.as_ref().is_some_and(|id| self.samples.skipped.contains(id));
            if cases.is_empty() && !skipped {
                let name = statement.case_id.clone().unwrap_or_default();
                rows.push(judged(&Case { name, ..Case::default() }, &[]));
            }
        }
        if let Some(baseline) = baseline {
            let cases = self.promised(baseline);
            let absent = baseline.absent(&cases, &self.samples.skipped).into_iter();
            match worse_by {
                None => {
                    rows.extend(baseline.judge(&cases, here));
                    rows.extend(absent);
                }
                Some(by) => {
                    rows.extend(baseline.self_test(&cases, here, by));
                    rows.extend(absent.map(|row| worsening::row(Worse::Down, by, |_| row.clone())));
                }
            }
        }
        rows
    }
}

impl Data {
    /// The values of a case, each with what is subtracted from it: the other member's value of the same iteration, or 0.
    fn subtracted(&self, statement: &Statement, case: &Case, among: &Index<'_>) -> Vec<(f64, f64)> {
        let column = statement.assertion.metric.column;
        let Some(difference) = &statement.assertion.difference else {
            return self.values(case, column).iter().map(|v| (*v, 0.0)).collect();
        };
        let index = |column: &str| self.columns.iter().position(|c| c == column);
        let other = among.of(&case.key.id).iter().find(|one| one.key.member == difference.minus);
        let metrics = index(column).zip(difference.subtracted().and_then(|metric| index(metric.column)));
        let pairs = other.zip(metrics).map(|(other, (a, b))| samples::pairs((case, a), (other, b)));
        pairs.unwrap_or_default()
    }

    /// The verdict about all pairs of a survey together.
    fn of_survey(&self, statement: &Statement, survey: &Survey) -> VerdictRow {
        let of: HashSet<&str> = survey.case_ids.iter().map(String::as_str).collect();
        let cases: Vec<&Case> = self.samples.cases.iter().filter(|case| of.contains(case.key.id.as_str())).collect();
        let way = |case: &Case| case.key.direction.parse().unwrap_or(Way::Forward);
        let has_parts: HashSet<&str> =
            cases.iter().filter(|case| way(case) != Way::Both).map(|case| case.key.id.as_str()).collect();
        let is_part = |case: &&&Case| way(case) != Way::Both || !has_parts.contains(case.key.id.as_str());
        let pair = |case: &&Case| Pair {
            from: case.origin.from.clone(),
            to: case.origin.to.clone(),
            way: way(case),
            values: self.values(case, survey.metric.column).to_vec(),
            cpu_taken: self.beside(case, survey.metric.column, CPU_TAKEN),
        };
        let pairs: Vec<Pair> = cases.iter().filter(is_part).map(pair).collect();
        let family = cases.first().map(|case| case.family).unwrap_or_default();
        let judgement = Surveyed::of(&pairs, survey.metric, family).judge(&statement.assertion);
        VerdictRow {
            case: survey.name.clone(),
            run_id: cases.first().map(|case| case.origin.run_id.clone()).unwrap_or_default(),
            file: statement.file.clone(),
            line: statement.line,
            column: statement.column,
            ..judge::of_assertion(&statement.assertion, &judgement, statement.severity)
        }
    }
}

/// The bad direction of a statement.
fn worse(statement: &Statement) -> Worse {
    match statement.assertion.operator {
        Operator::Less | Operator::LessOrEqual => Worse::Up,
        Operator::Greater | Operator::GreaterOrEqual => Worse::Down,
        Operator::Equal | Operator::NotEqual => Worse::of(statement.assertion.metric.better),
    }
}

/// Looks up the cases of [`Data`].
struct Indices<'a> {
    samples: Index<'a>,
    totals: Index<'a>,
    streams: Index<'a>,
}

impl<'a> Indices<'a> {
    /// The cases that a statement is about, and the cases they are named among. Leaves out cases skipped on purpose.
    fn subjects(&self, statement: &Statement) -> (Vec<&'a Case>, &Index<'a>) {
        let of = |index: &Index<'a>| -> Vec<&'a Case> {
            let concerned = |case: &&Case| concerns(statement, case, index);
            match &statement.case_id {
                Some(id) => index.of(id).iter().copied().filter(concerned).collect(),
                None => index.all().iter().filter(concerned).collect(),
            }
        };
        let chosen = match statement.scope {
            Scope::Total => &self.totals,
            Scope::Direction => &self.samples,
            // A case without rows of streams is judged as a whole.
            Scope::Stream if of(&self.streams).is_empty() => &self.totals,
            Scope::Stream => &self.streams,
        };
        (of(chosen), chosen)
    }
}

/// Whether a statement applies to a case with its id.
fn concerns(statement: &Statement, case: &Case, all: &Index<'_>) -> bool {
    let key = &case.key;
    if statement.scope == Scope::Direction && key.direction == Way::Both.as_str() {
        return false;
    }
    match &statement.member {
        Some(member) => *member == key.member,
        None => key.member.is_empty() || !all.of(&key.id).iter().any(|c| c.key.member.is_empty()),
    }
}

fn row(statement: &Statement, case: &Case, among: &Index<'_>, values: &[f64], offered: &[f64]) -> VerdictRow {
    let difference = statement.assertion.difference.as_ref();
    let other = difference.and_then(|d| among.of(&case.key.id).iter().find(|one| one.key.member == d.minus));
    let observations = match other {
        Some(other) => case.transactions.zip(other.transactions).map(|(a, b)| a.min(b)),
        None => case.transactions,
    };
    let mut judgement = judge::judge(&statement.assertion, values, observations, statement.level, statement.judge)
        .at_offered(&statement.assertion, offered.iter().copied());
    if let (Some(difference), true) = (difference, values.is_empty()) {
        let (a, b) = (&difference.member, &difference.minus);
        judgement.reason = Some(format!("no iteration has a value of both members, {a} and {b}"));
    }
    debug_assert!(judgement.verdict != words::Verdict::Pass || judgement.n > 0);
    let mut row = judge::of_assertion(&statement.assertion, &judgement, statement.severity);
    among.mark(case, &mut row);
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
        verdicts_of(TABLE, statements, None)
    }

    fn verdicts_of(table: &str, statements: &[&str], worse: Option<f64>) -> Vec<(String, String, String)> {
        let statements: Vec<Statement> = statements
            .iter()
            .map(|text| Statement {
                member: assertion::parse(text).unwrap().difference.map(|difference| difference.member),
                assertion: assertion::parse(text).unwrap(),
                case_id: None,
                survey: None,
                scope: Scope::Total,
                severity: Severity::Error,
                judge: Judge::Ci,
                level: 0.95,
                file: "p.yaml".into(),
                line: Some(3),
                column: None,
            })
            .collect();
        let mut table = Table::from_text("t", table).unwrap();
        let data = Data::read(&mut table, &Selection::default(), &statements, None).unwrap();
        let rows = data.judge(&statements, None, &Environment::default(), worse);
        rows.into_iter().map(|r| (r.case, r.verdict.to_string(), r.note)).collect()
    }

    #[test]
    fn a_cause_is_judged_by_its_word() {
        let table = "case_id,case,record,phase,status,limited_by\nc1,a,iteration,measure,ok,path\nc1,a,iteration,measure,ok,path\n\
            c1,a,iteration,measure,ok,unknown\nc1,a,iteration,measure,ok,a word of a later version\n\
            c2,b,iteration,measure,ok,sender CPU\nc3,c,iteration,measure,ok,\n";
        let judged = |statement: &str| {
            let rows = verdicts_of(table, &[statement], None);
            rows.into_iter().map(|(_, verdict, note)| format!("{verdict} {note}")).collect::<Vec<_>>()
        };
        assert_eq!(
            judged("limited_by == path"),
            [
                "pass path in 2 of 3 iterations, unknown in 1",
                "fail sender CPU in 1 of 1 iteration",
                "fail there is no sample of limited_by"
            ]
        );
        assert!(judged("limited_by != sender_cpu")[1].starts_with("fail"));
        assert_eq!(verdicts_of(table, &["limited_by == path"], Some(0.1)), [], "nothing to make worse");
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

    #[test]
    fn a_rate_that_was_not_offered_proves_nothing() {
        let header = "case_id,case,record,phase,status,loss_ratio,rate_error_ratio,rate_quantum_ratio\n";
        let rows = |error: f64| format!("{header}{}", format!("c,a,iteration,measure,ok,0,{error},0.001\n").repeat(3));
        let of = |error: f64| verdicts_of(&rows(error), &["loss_ratio < 1%"], None)[0].clone();
        assert_eq!((of(-0.004).1.as_str(), of(-0.4).1.as_str()), ("pass", "inconclusive"));
        assert_eq!(of(-0.4).2, "only 60 % of the plan's rate was offered");
    }

    #[test]
    fn differences_are_of_the_same_iteration() {
        let mut table =
            "run_id,case_id,case,member,iteration,record,phase,status,latency_p95_us,transactions\n".to_owned();
        // The machine becomes slower; the difference stays. The probe under load has no third iteration.
        for (i, (idle, loaded)) in
            [(100, Some(1100)), (500, Some(1490)), (900, None), (2000, Some(3010))].iter().enumerate()
        {
            let row = |member: &str, value: String| format!("r,c1,a,{member},{i},iteration,measure,ok,{value},400\n");
            table += &row("idle-tcp", idle.to_string());
            table += &row("up-tcp", loaded.map(|v: i32| v.to_string()).unwrap_or_default());
        }
        let text = "up-tcp.latency.p95 - idle-tcp.latency.p95 < 1200us";
        let rows = verdicts_of(&table, &[text, "up-tcp.latency.p95 - idle-tcp.latency.p95 < 900us"], None);
        let short: Vec<(&str, &str)> = rows.iter().map(|r| (r.0.as_str(), r.1.as_str())).collect();
        assert_eq!(short, [("a up-tcp", "pass"), ("a up-tcp", "fail")]);
        assert_eq!(verdicts_of(&table, &[text], Some(0.5))[0].1, "noticed");
        let missing = verdicts_of(&table, &["up-tcp.latency.p95 - up.latency.p95 < 5ms"], None);
        assert_eq!(
            (missing[0].1.as_str(), missing[0].2.as_str()),
            ("fail", "no iteration has a value of both members, up-tcp and up")
        );
    }
}
