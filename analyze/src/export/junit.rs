//! JUnit XML for CI: a test case per assertion of a `verdicts` table, or per iteration of a results table.

use crate::{
    error::Error,
    judge::verdicts,
    table::{Field, Picker, Row, Selection, Table},
};
use indexmap::IndexMap;
use quick_junit::{NonSuccessKind, Property, Report, TestCase, TestCaseStatus, TestSuite};
use schemas::{
    columns::{VerdictRow, results::column, verdicts::column as verdict},
    metrics::{self, Metric},
    units,
    words::{Phase, Record, Severity, Status, Verdict},
};
use std::{collections::BTreeMap, io::Write, time::Duration};

/// Writes the report; it is read whole, because its head counts what failed.
pub fn write(table: &mut Table, selection: &Selection, output: &mut dyn Write) -> Result<(), Error> {
    let mut cases = Vec::new();
    if table.header().find(verdict::verdict).is_some() {
        if !selection.conditions.is_empty() {
            return Err(Error::Usage("--where chooses rows of results, and this table has verdicts".to_owned()));
        }
        for row in verdicts::read(table)? {
            let class = row.case.split('[').next().unwrap_or_default();
            cases.push((String::from("gate"), of_verdict(&row, class)));
        }
    } else {
        table.require(column::case)?;
        let place = |metric: &Metric| table.header().names().iter().position(|name| name == metric.column);
        let metrics: Vec<(&Metric, usize)> =
            metrics::METRICS.iter().filter_map(|metric| Some((metric, place(metric)?))).collect();
        let mut picker = Picker::of_every_row(selection, table)?;
        while let Some(row) = table.next_row()? {
            if picker.pick(&row)?.is_some() {
                cases.extend(result(&row, &metrics)?);
            }
        }
        picker.matched(table)?;
    }
    report("plumb", cases, output)
}

/// Writes test cases, each behind the name of its suite. A suite lasts as long as its test cases together, where each
/// measurement counts once: several verdicts of a case are about the same one.
pub fn report(
    name: &str,
    cases: impl IntoIterator<Item = (String, TestCase)>,
    output: &mut dyn Write,
) -> Result<(), Error> {
    let mut suites: IndexMap<String, (TestSuite, BTreeMap<String, Duration>)> = IndexMap::new();
    for (name, case) in cases {
        let empty = |name: &String| (TestSuite::new(name), BTreeMap::new());
        let (suite, times) = suites.entry(name).or_insert_with_key(empty);
        if let Some(time) = case.time {
            // The name of a verdict begins with its case.
            let measured = case.name.as_str().split(": ").next().unwrap_or_default().to_owned();
            let longest = times.entry(measured).or_default();
            *longest = time.max(*longest);
        }
        suite.add_test_case(case);
    }
    let mut report = Report::new(name);
    let mut whole = Duration::ZERO;
    for (mut suite, times) in suites.into_values() {
        let time = times.values().sum();
        suite.set_time(time);
        whole += time;
        report.add_test_suite(suite);
    }
    report.set_time(whole);
    report.serialize(output).map_err(|e| Error::Output(std::io::Error::other(e)))
}

/// A test case with the message of its status. Success has none.
pub fn case(name: &str, class: &str, mut status: TestCaseStatus, message: &str) -> TestCase {
    status.set_message(message);
    let mut case = TestCase::new(name, status);
    case.set_classname(class);
    case
}

/// Sets how long something took.
pub fn set_seconds(case: &mut TestCase, seconds: Option<f64>) {
    if let Some(time) = seconds.and_then(|s| Duration::try_from_secs_f64(s).ok()) {
        case.set_time(time);
    }
}

/// The columns of a verdict that are properties of its test case.
const PROPERTIES: [&str; 17] = [
    verdict::verdict,
    verdict::metric,
    verdict::member,
    verdict::n,
    verdict::observed,
    verdict::statistic,
    verdict::ci_low,
    verdict::ci_high,
    verdict::confidence_level,
    verdict::limit,
    verdict::baseline,
    verdict::change_ratio,
    verdict::ci_low_ratio,
    verdict::ci_high_ratio,
    verdict::limit_ratio,
    verdict::p_value,
    verdict::needed_iterations,
];

/// The test case of a verdict, with its values twice: as properties for programs, and in a sentence (`system-out`) for
/// GitLab, Jenkins and GitHub's reporters, which show no properties.
pub fn of_verdict(row: &VerdictRow, class: &str) -> TestCase {
    let observed = verdicts::shown(row);
    let what = if row.assertion.is_empty() { &row.metric } else { &row.assertion };
    let note = verdicts::remark(row);
    let note = if note.is_empty() { String::new() } else { format!(" ({note})") };
    let (mut status, message) = match row.verdict {
        _ if row.fails() => (TestCaseStatus::non_success(NonSuccessKind::Failure), verdicts::broken(row)),
        _ if row.refuses() => (TestCaseStatus::non_success(NonSuccessKind::Error), row.note.clone()),
        Verdict::Unnoticed if row.severity == Severity::Error => (
            TestCaseStatus::non_success(NonSuccessKind::Failure),
            format!("{}: {what} does not notice worse data{note}", row.case),
        ),
        v if v.is_well() || v == Verdict::Noticed => (TestCaseStatus::success(), String::new()),
        v => (TestCaseStatus::skipped(), format!("{v}: {}", format!("{observed}{note}").trim_start())),
    };
    if matches!(status, TestCaseStatus::NonSuccess { .. }) && !row.file.is_empty() {
        status.set_type(row.verdict.as_str());
        status.set_description(format!("{}:{}", row.file, row.line.unwrap_or(0)));
    }
    let mut case = case(&format!("{}: {what}", row.case), class, status, &message);
    set_seconds(&mut case, row.elapsed_s);
    for name in PROPERTIES {
        let value = row.text(name);
        if !value.is_empty() {
            case.add_property(Property::new(name, value));
        }
    }
    let level = row.confidence_level.map(|l| format!(", interval at {}", units::level(l))).unwrap_or_default();
    let counted = verdicts::counted(row);
    case.set_system_out(format!("{}: {}: {what}: {observed} ({counted}{level}){note}", row.verdict, row.case));
    case
}

/// An iteration, or whatever else has a status that is not good. Streams, intervals and summaries only repeat it.
fn result(row: &Row<'_>, metrics: &[(&Metric, usize)]) -> Result<Option<(String, TestCase)>, Error> {
    let is = |field, word: &str| ["", word].contains(&row.text(field));
    if !is(Field::record, Record::Iteration.as_str()) || !is(Field::phase, Phase::Measure.as_str()) {
        return Ok(None);
    }
    let (word, error) = (row.text(Field::status), row.text(Field::error));
    let (status, message) = match word.parse() {
        Ok(Status::Ok) => (TestCaseStatus::success(), String::new()),
        Ok(Status::Skipped | Status::Discarded | Status::Confirm | Status::Cut) => {
            (TestCaseStatus::skipped(), format!("{word}: {error}"))
        }
        _ if word.is_empty() => (TestCaseStatus::success(), String::new()),
        _ => {
            let mut status = TestCaseStatus::non_success(NonSuccessKind::Error);
            status.set_type(word);
            (status, error.to_owned())
        }
    };
    let name = match (row.text(Field::case), row.text(Field::iteration)) {
        (case, "") => case.to_owned(),
        (case, iteration) => format!("{case} #{iteration}"),
    };
    let mut case = case(&name, row.text(Field::test), status, &message);
    for (metric, index) in metrics {
        if row.number(*index)?.is_some() {
            case.add_property(Property::new(metric.column, row.get(*index)));
        }
    }
    if let Some((_, elapsed)) = metrics.iter().find(|(m, _)| m.name == "elapsed") {
        set_seconds(&mut case, row.number(*elapsed)?);
    }
    let plan = row.text(Field::plan);
    let place = |metric: &Metric| metrics.iter().find(|(m, _)| m.column == metric.column).map(|(_, column)| *column);
    let has = |metric: &Metric| place(metric).is_some_and(|column| !row.get(column).is_empty());
    if let Some(metric) = row.family().headline(has)
        && let Some(value) = place(metric).map_or(Ok(None), |column| row.number(column))?
    {
        case.set_system_out(format!("{}: {}", metric.label, units::human(metric.unit, value)));
    }
    Ok(Some((if plan.is_empty() { "plumb" } else { plan }.to_owned(), case)))
}
