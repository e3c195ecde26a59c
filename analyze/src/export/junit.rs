//! JUnit XML for CI: a test case per assertion of a `verdicts` table, or per iteration of a results table.

use std::io::Write;
use std::time::Duration;

use quick_junit::{NonSuccessKind, Property, Report, TestCase, TestCaseStatus, TestSuite};
use schemas::{
    metrics,
    words::{Phase, Record, Severity, Status, Verdict},
};

use crate::error::Error;
use crate::table::{Row, Table};

/// Writes the report; it is read whole, because its head counts what failed.
pub fn write(table: &mut Table, output: &mut dyn Write) -> Result<(), Error> {
    let mut cases = Vec::new();
    let verdicts = table.header().find("verdict");
    if verdicts.is_none() {
        table.require("case")?;
    }
    let columns = Columns::of(table);
    while let Some(row) = table.next_row()? {
        match verdicts {
            Some(verdict) => cases.push((String::from("gate"), columns.verdict(&row, verdict)?)),
            None => cases.extend(columns.result(&row)?),
        }
    }
    report("plumb", cases, output)
}

/// Writes test cases, each behind the name of its suite.
pub fn report(
    name: &str,
    cases: impl IntoIterator<Item = (String, TestCase)>,
    output: &mut dyn Write,
) -> Result<(), Error> {
    let mut suites: Vec<TestSuite> = Vec::new();
    for (name, case) in cases {
        let at = suites.iter().position(|s| s.name.as_str() == name).unwrap_or_else(|| {
            suites.push(TestSuite::new(name));
            suites.len() - 1
        });
        suites[at].add_test_case(case);
    }
    let mut report = Report::new(name);
    report.add_test_suites(suites);
    report.serialize(output).map_err(|e| Error::Output(std::io::Error::other(e)))
}

/// A test case with the message of its status. Success has none.
pub fn case(name: &str, class: &str, mut status: TestCaseStatus, message: &str) -> TestCase {
    status.set_message(message);
    let mut case = TestCase::new(name, status);
    case.set_classname(class);
    case
}

/// Where the cells are that a report shows.
struct Columns {
    named: Vec<(String, usize)>,
    metrics: Vec<(&'static metrics::Metric, usize)>,
}

impl Columns {
    fn of(table: &Table) -> Self {
        let names = table.header().names();
        let named = names.iter().enumerate().map(|(i, n)| (n.clone(), i)).collect();
        let metrics =
            metrics::METRICS.iter().filter_map(|m| names.iter().position(|n| n == m.column).map(|i| (m, i))).collect();
        Self { named, metrics }
    }

    fn get<'r>(&self, row: &Row<'r>, name: &str) -> &'r str {
        self.named.iter().find(|(n, _)| n == name).map_or("", |(_, i)| row.get(*i))
    }

    fn verdict(&self, row: &Row<'_>, column: usize) -> Result<TestCase, Error> {
        let observed = format!("observed {}, limit {}", self.get(row, "observed"), self.get(row, "limit"));
        let note = self.get(row, "note");
        let message = if note.is_empty() { observed } else { format!("{observed}: {note}") };
        let (status, message) = match row.get(column).parse::<Verdict>() {
            Ok(v) if v.is_bad() && self.get(row, "severity") != Severity::Warn.as_str() => {
                (TestCaseStatus::non_success(NonSuccessKind::Failure), message)
            }
            Ok(v) if v.is_bad() || v == Verdict::Inconclusive => (TestCaseStatus::skipped(), format!("{v}: {message}")),
            Err(e) if e.found.is_empty() => return Err(row.error(Some(column), "the verdict is missing")),
            _ => (TestCaseStatus::success(), String::new()),
        };
        let what = match self.get(row, "assertion") {
            "" => self.get(row, "metric"),
            assertion => assertion,
        };
        Ok(case(what, self.get(row, "case"), status, &message))
    }

    /// An iteration, or whatever else has a status that is not good. Streams, intervals and summaries only repeat it.
    fn result(&self, row: &Row<'_>) -> Result<Option<(String, TestCase)>, Error> {
        let is = |name, word: &str| ["", word].contains(&self.get(row, name));
        if !is("record", Record::Iteration.as_str()) || !is("phase", Phase::Measure.as_str()) {
            return Ok(None);
        }
        let (word, error) = (self.get(row, "status"), self.get(row, "error"));
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
        let name = match (self.get(row, "case"), self.get(row, "iteration")) {
            (case, "") => case.to_owned(),
            (case, iteration) => format!("{case} #{iteration}"),
        };
        let mut case = case(&name, self.get(row, "test"), status, &message);
        for (metric, index) in &self.metrics {
            if row.number(*index)?.is_some() {
                case.add_property(Property::new(metric.column, row.get(*index)));
            }
        }
        if let Some((_, elapsed)) = self.metrics.iter().find(|(m, _)| m.name == "elapsed")
            && let Some(time) = row.number(*elapsed)?.and_then(|s| Duration::try_from_secs_f64(s).ok())
        {
            case.set_time(time);
        }
        let plan = self.get(row, "plan");
        Ok(Some((if plan.is_empty() { "plumb" } else { plan }.to_owned(), case)))
    }
}
