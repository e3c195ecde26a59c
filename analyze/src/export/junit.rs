//! JUnit XML for CI: a test case per assertion of a `verdicts` table, or per iteration of a results table.

use std::io::Write;
use std::time::Duration;

use quick_junit::{NonSuccessKind, Property, Report, TestCase, TestCaseStatus, TestSuite};
use schemas::metrics;

use crate::error::Error;
use crate::table::{Row, Table};

/// Writes the report; it is read whole, because its head counts what failed.
pub fn write(table: &mut Table, output: &mut dyn Write) -> Result<(), Error> {
    let mut suites: Vec<(String, Vec<TestCase>)> = Vec::new();
    let verdicts = table.header().find("verdict");
    if verdicts.is_none() {
        table.require("case")?;
    }
    let columns = Columns::of(table);
    while let Some(row) = table.next_row()? {
        let (suite, case) = match verdicts {
            Some(verdict) => (String::from("gate"), columns.verdict(&row, verdict)?),
            None => match columns.result(&row)? {
                Some(found) => found,
                None => continue,
            },
        };
        match suites.iter_mut().find(|(name, _)| *name == suite) {
            Some((_, cases)) => cases.push(case),
            None => suites.push((suite, vec![case])),
        }
    }
    let mut report = Report::new("plumb");
    for (name, cases) in suites {
        let mut suite = TestSuite::new(name);
        suite.add_test_cases(cases);
        report.add_test_suite(suite);
    }
    report.serialize(&mut *output).map_err(|e| Error::Output(std::io::Error::other(e)))?;
    output.write_all(b"\n")?;
    Ok(())
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
        let status = match row.get(column) {
            "fail" | "regression" if self.get(row, "severity") != "warn" => {
                let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
                status.set_message(message);
                status
            }
            "fail" | "regression" | "inconclusive" => {
                let mut status = TestCaseStatus::skipped();
                status.set_message(format!("{}: {message}", row.get(column)));
                status
            }
            "" => return Err(row.error(Some(column), "the verdict is missing")),
            _ => TestCaseStatus::success(),
        };
        let what = match self.get(row, "assertion") {
            "" => self.get(row, "metric"),
            assertion => assertion,
        };
        let mut case = TestCase::new(what, status);
        case.set_classname(self.get(row, "case"));
        Ok(case)
    }

    /// An iteration, or whatever else has a status that is not good. Streams, intervals and summaries only repeat it.
    fn result(&self, row: &Row<'_>) -> Result<Option<(String, TestCase)>, Error> {
        if !matches!(self.get(row, "record"), "" | "iteration") || !matches!(self.get(row, "phase"), "" | "measure") {
            return Ok(None);
        }
        let status = match self.get(row, "status") {
            "" | "ok" => TestCaseStatus::success(),
            word @ ("skipped" | "discarded" | "confirm") => {
                let mut status = TestCaseStatus::skipped();
                status.set_message(format!("{word}: {}", self.get(row, "error")));
                status
            }
            word => {
                let mut status = TestCaseStatus::non_success(NonSuccessKind::Error);
                status.set_message(self.get(row, "error"));
                status.set_type(word);
                status
            }
        };
        let name = match (self.get(row, "case"), self.get(row, "iteration")) {
            (case, "") => case.to_owned(),
            (case, iteration) => format!("{case} #{iteration}"),
        };
        let mut case = TestCase::new(name, status);
        case.set_classname(self.get(row, "test"));
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
