//! `plumb gate`: assertions over a results file.

use super::{aggregate::parse_level, compare::parse_share};
use crate::{
    error::{Error, Verdict, even_unread},
    judge::{
        self, Judge, Severity, VerdictRow,
        baseline::{Baseline, Terms},
        environment::{self, Environment},
        incomplete, setting,
        statement::{Evidence, Statement},
        verdicts,
    },
    table::{Format, Table, TableArgs, layout::Sheet},
};
use schemas::{
    assertion, metrics,
    run_record::{CaseRecord, RunRecord},
    words,
};
use std::{collections::BTreeMap, io::Write, path::PathBuf};

/// Whether assertions hold in a results file: pass, fail or inconclusive, case by case.
///
/// plumb run plans/quick.yaml | plumb gate --assert 'throughput >= 1Gbit/s' --where workload!=tcp_rr
///
/// Prints text on a terminal and CSV anywhere else: in a CI log or before `| head`, add `-f text` or `-f md`.
///
/// A statement holds if at least half of all iterations would keep it. With three or more iterations the confidence
/// interval of their median is judged; what every iteration violates fails. A case without a sample of the metric fails.
/// With --plan, the promises of the plan's baseline are judged too. Exit code: 1 if something failed, 3 if a
/// comparison may not be made, or the run was cut off or a case of it failed, 4 if nothing failed but something is
/// inconclusive and that counts. The CSV is the `verdicts` table.
///
/// --self-test 10% shows that this gate can fail: each case is made worse by that much, by itself, in each judged
/// metric's bad direction. Exit code 0 if every one is noticed, 1 if one is not, or if all statements only warn
/// (`severity: warn`): they cannot fail. Each row says from which worsening on
/// it is noticed, given these values; in another run with the same variation about half of the worsenings of that size
/// would be.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// A statement such as 'throughput >= 9Gbit/s' or 'latency.p99 < 80us'; may be repeated. It is about every case, also
    /// about the throughput of requests and responses: --where workload=tcp_stream leaves them out
    #[arg(long = "assert", value_name = "STATEMENT")]
    assertions: Vec<String>,
    /// Judge the assertions of this plan [default: without --assert, that of the run, whose run.json lies beside the table]
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
    /// The plan's cases by their keys in a `run.json`, filled in likewise.
    #[arg(skip)]
    pub planned: BTreeMap<String, CaseRecord>,
    /// Make the values worse by this much, and exit with 1 if that is not noticed
    #[arg(long, value_name = "RATIO", value_parser = parse_share("10%"))]
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
    pub tables: TableArgs,
}

/// Effect of an inconclusive verdict on the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum OnInconclusive {
    /// Exit code 0, unless something failed
    Warn,
    /// Exit code 4, unless something failed
    Fail,
}

impl Args {
    /// The record of the run whose own plan is judged: where neither a plan nor a statement is named.
    pub fn own_record(&self) -> Result<Option<RunRecord>, Error> {
        if self.plan.is_some() || !self.assertions.is_empty() {
            return Ok(None);
        }
        Ok(environment::read_all(&self.tables.input.files)?.into_iter().next())
    }
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
        let level = args.level.unwrap_or(Statement::LEVEL);
        statements.push(Statement { judge: args.judge, level, ..Statement::of(assertion) });
    }
    if statements.is_empty() && args.terms.is_none() {
        return Err(Error::Usage(match &args.plan {
            Some(plan) => format!("{} asserts nothing: add `assert` to its tests, or give --assert", plan.display()),
            None => "nothing to judge, and no run.json with a plan lies beside the table: give --assert 'METRIC OP LIMIT' or \
                     --plan PLAN"
                .to_owned(),
        }));
    }
    let mut table = Table::open(&args.tables.input)?;
    let mut records = environment::read_all(&args.tables.input.files)?;
    let here = records.first().map(Environment::of).unwrap_or_default();
    let baseline = args.terms.clone().map(Baseline::read).transpose()?;
    if let Some(note) = baseline.as_ref().and_then(Baseline::gone) {
        crate::warn(&note);
    }
    let mut evidence = Evidence::read(&mut table, &args.tables.selection, &statements, baseline.as_ref())?;
    // Without the record of a run nothing tells that it was cut off.
    if records.len() < args.tables.input.files.len().max(1) {
        evidence.expect_cut_short();
    }
    for record in records.iter_mut().filter(|record| record.ended.is_none() && !record.began.is_empty()) {
        record.unfinished = evidence.leave_out_absent(&args.planned);
    }
    let mut rows = evidence.judge(&statements, baseline.as_ref(), &here, args.self_test);
    for row in &mut rows {
        explain(row, args, records.first());
    }
    let format = args.tables.output.format(args.format);
    let incomplete = incomplete::sentences(&records, evidence.cases().iter());
    for sentence in records.iter().filter(|record| !record.is_cut_off()).filter_map(incomplete::of_run) {
        crate::warn(&sentence);
    }
    if format == Format::Csv || args.self_test.is_some() {
        for sentence in &incomplete {
            crate::warn(sentence);
        }
    }
    // A self-test has its answer in the table.
    let judged = judge::answer(&rows, "the baseline").map(|(_, text)| text);
    let answer = incomplete.iter().cloned().chain(judged).collect::<Vec<_>>().join(" ");
    let answer = args.self_test.is_none().then_some(answer);
    let sheet = Sheet::of(&args.tables.output);
    even_unread(args.tables.output.write(output, |w| verdicts::write(&rows, answer.as_deref(), format, &sheet, w)))?;
    let count = |of: words::Verdict| rows.iter().filter(|r| r.verdict == of && r.severity == Severity::Error).count();
    if args.self_test.is_some() {
        // A gate whose statements only warn cannot fail either.
        return Ok(if count(words::Verdict::Unnoticed) > 0 || count(words::Verdict::Noticed) == 0 {
            Verdict::Failed
        } else {
            Verdict::Ok
        });
    }
    let failed = evidence.cases().iter().filter(|case| case.failed.is_some()).map(|case| &*case.name);
    let outcome = verdicts::outcome(&rows, failed, args.inconclusive == Some(OnInconclusive::Fail));
    Ok(incomplete::outcome(outcome, &incomplete))
}

/// Names a case of the plan that the table lacks, and says what it has instead.
fn explain(row: &mut VerdictRow, args: &Args, record: Option<&RunRecord>) {
    let id = &row.case_id;
    let of_case = args.planned.iter().find(|(key, _)| setting::is_of(key, id));
    let Some((_, CaseRecord { case, .. })) = of_case.filter(|_| row.n == 0 && row.case == *id) else { return };
    let changes = record.and_then(|run| setting::changes(id, &args.planned, &run.cases));
    let plan = args.plan.as_deref().map(|plan| plan.display().to_string()).unwrap_or_default();
    let of_run = record.and_then(|run| run.plans.first()).map(|plan| plan.path.as_str());
    let why = if let Some(changes) = changes {
        format!("these results have other settings than {plan} ({changes})")
    } else if let Some(other) = of_run.filter(|other| *other != plan) {
        format!("these results are of {other}, and the case of {plan} is not among them")
    } else {
        "the results do not have this case, or have it with other settings".to_owned()
    };
    row.case = case.clone();
    row.say_first(&why);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Selection;

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
                file: "p.yaml".into(),
                line: Some(3),
                ..Statement::of(assertion::parse(text).unwrap())
            })
            .collect();
        let mut table = Table::from_text("t", table).unwrap();
        let data = Evidence::read(&mut table, &Selection::default(), &statements, None).unwrap();
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
