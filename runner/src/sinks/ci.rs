//! Reports for CI systems: JUnit XML, a summary in Markdown, annotations at lines of the plan.

use std::{
    fs::OpenOptions,
    io::Write,
    path::{Path, PathBuf},
};

use analyze::{
    export::{
        annotations::{self, At},
        junit,
        page::{self, Block},
    },
    judge::verdicts,
    table::layout::Column,
};
use quick_junit::{NonSuccessKind, TestCase, TestCaseStatus};
use schemas::{columns::VerdictRow, words::Verdict};

use crate::error::{Error, replace};

/// A case in these reports.
#[derive(Clone, Debug, Default)]
pub struct CaseResult {
    pub test: String,
    pub case: String,
    /// Why it failed.
    pub failed: Option<String>,
    /// Why it was not run, or not to its end.
    pub skipped: Option<String>,
    pub verdicts: Vec<VerdictRow>,
    /// Seconds that it measured.
    pub elapsed_s: Option<f64>,
    /// Its result, as the table shows it.
    pub result: String,
}

/// Writes JUnit XML: a suite per test, with a test case per verdict, or one per case without verdicts.
pub fn junit(path: &Path, name: &str, cases: &[CaseResult]) -> Result<(), Error> {
    let cases = cases.iter().flat_map(|c| junit_cases(c).into_iter().map(|made| (c.test.clone(), made)));
    let mut bytes = Vec::new();
    junit::report(name, cases, &mut bytes)?;
    replace(path, bytes)
}

fn junit_cases(case: &CaseResult) -> Vec<TestCase> {
    let whole = |status, message: &str| {
        let mut made = junit::case(&case.case, &case.test, status, message);
        junit::set_seconds(&mut made, case.elapsed_s);
        if !case.result.is_empty() {
            made.set_system_out(format!("{}: {}", case.case, case.result));
        }
        vec![made]
    };
    match (&case.skipped, &case.failed) {
        // A failure that an interrupted case has shown stays one.
        (Some(reason), _) => {
            let fails = case.verdicts.iter().filter(|v| v.fails()).map(|v| junit::of_verdict(v, &case.test));
            whole(TestCaseStatus::skipped(), reason).into_iter().chain(fails).collect()
        }
        (_, Some(reason)) => whole(TestCaseStatus::non_success(NonSuccessKind::Error), reason),
        _ if case.verdicts.is_empty() => whole(TestCaseStatus::success(), ""),
        _ => case.verdicts.iter().map(|v| junit::of_verdict(v, &case.test)).collect(),
    }
}

/// The summary in Markdown: question, answer and surveys (`head`), results, what limited them, verdicts, notes.
pub fn markdown(
    name: &str,
    questions: &[&str],
    head: Vec<Block>,
    results: Vec<Column>,
    limits: &[String],
    rows: &[VerdictRow],
    notes: &[String],
) -> String {
    let mut blocks = vec![Block::Heading(name.to_owned())];
    blocks.extend(questions.iter().map(|question| Block::Paragraph((*question).to_owned())));
    blocks.extend(head);
    if results.iter().any(|column| !column.cells.is_empty()) {
        blocks.push(Block::Table { about: "Results".to_owned(), columns: results });
    }
    if !limits.is_empty() {
        blocks.push(Block::List(limits.to_vec()));
    }
    if !rows.is_empty() {
        blocks.push(Block::Table { about: "Verdicts".to_owned(), columns: verdicts::columns(rows) });
    }
    if !notes.is_empty() {
        blocks.push(Block::List(notes.to_vec()));
    }
    page::part(&blocks)
}

/// Writes the summary to its file, and appends it to GitHub's page of the step. An earlier step may have left a line
/// without an end there.
pub fn write_markdown(path: Option<&PathBuf>, text: &str) -> Result<(), Error> {
    if let Some(path) = path {
        replace(path, text.as_bytes())?;
    }
    if let Some(path) = std::env::var_os("GITHUB_STEP_SUMMARY").map(PathBuf::from) {
        let fault = || Error::output(path.display());
        let mut file = OpenOptions::new().append(true).create(true).open(&path).map_err(fault())?;
        file.write_all(format!("\n\n{text}").as_bytes()).map_err(fault())?;
    }
    Ok(())
}

/// GitHub workflow commands for failures, errors before warnings.
pub fn annotations(cases: &[CaseResult]) -> String {
    let mut all: Vec<(&str, Option<At>, String)> = Vec::new();
    for case in cases {
        for v in case.verdicts.iter().filter(|v| !v.verdict.is_well() && v.verdict != Verdict::Missing) {
            let kind = if v.fails() || v.refuses() { "error" } else { "warning" };
            let place = |v: &u64| usize::try_from(*v).unwrap_or(1);
            let at = At {
                file: v.file.clone(),
                line: v.line.as_ref().map_or(1, place),
                column: Some(v.column.as_ref().map_or(1, place)),
            };
            let text = match v.verdict {
                Verdict::Fail | Verdict::Regression => verdicts::broken(v),
                _ => format!("{}: {}: {}", v.case, v.assertion, v.note),
            };
            all.push((kind, Some(at), text));
        }
        if let Some(reason) = case.failed.as_ref().filter(|_| case.verdicts.is_empty()) {
            all.push(("error", None, format!("{}: {reason}", case.case)));
        }
    }
    annotations::annotations(all)
}

#[cfg(test)]
mod tests {
    use schemas::words::Severity;

    use super::*;

    fn case(verdict: Verdict, severity: Severity) -> CaseResult {
        CaseResult {
            test: "bulk".into(),
            case: "bulk[streams=4]".into(),
            failed: None,
            skipped: None,
            elapsed_s: Some(6.5),
            result: "8.10 Gbit/s".into(),
            verdicts: vec![VerdictRow {
                case: "bulk[streams=4]".into(),
                assertion: "throughput >= 9Gbit/s".into(),
                metric: "throughput_bits_per_s".into(),
                observed: Some(8.1e9),
                ci_low: Some(8.0e9),
                ci_high: Some(8.2e9),
                confidence_level: Some(0.95),
                limit: Some(9e9),
                n: 5,
                elapsed_s: Some(6.5),
                verdict,
                severity,
                file: "lab.yaml".into(),
                line: Some(23),
                column: Some(9),
                ..VerdictRow::default()
            }],
        }
    }

    #[test]
    fn annotations_stand_at_the_plans_line_errors_first() {
        let text = annotations(&[
            case(Verdict::Inconclusive, Severity::Error),
            case(Verdict::Pass, Severity::Error),
            case(Verdict::Fail, Severity::Error),
        ]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "::error file=lab.yaml,line=23,col=9::bulk[streams=4]: throughput >= 9Gbit/s does not hold: 8.10 Gbit/s ± 1.2 %25"
        );
        assert!(lines[1].starts_with("::warning file=lab.yaml,line=23"));
        assert_eq!(lines.len(), 2);
        let refused = |severity| annotations(&[case(Verdict::Error, severity)]);
        assert!(refused(Severity::Error).starts_with("::error ") && refused(Severity::Warn).starts_with("::warning "));
    }

    #[test]
    fn the_summary_is_apart_from_what_follows_it() {
        let cases = vec![Column::of("case", false, &["a|b"], |c| (*c).to_owned())];
        let rows = case(Verdict::Fail, Severity::Error).verdicts;
        let text = markdown(
            "lab",
            &["How fast?"],
            vec![Block::Paragraph("Fast.".to_owned())],
            cases,
            &["a: limited by wire".to_owned()],
            &rows,
            &["<b> is a note".to_owned()],
        );
        assert!(text.starts_with("## lab\n\nHow fast?\n\nFast.\n\n"), "{text}");
        assert!(text.contains("\n\n| case ") && text.contains("| a\\|b |"), "{text}");
        assert!(text.contains("|\n\n- a: limited by wire\n\n"), "{text}");
        // A table may be appended: a list would swallow it without the empty line.
        assert!(text.ends_with(" |\n\n- \\<b> is a note\n\n"), "{text}");
    }

    #[test]
    fn junit_tells_failures_errors_and_skips_apart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("j.xml");
        let broken = CaseResult { failed: Some("no route".into()), ..case(Verdict::Fail, Severity::Error) };
        let skipped = CaseResult { skipped: Some("needs IPv6".into()), ..case(Verdict::Pass, Severity::Error) };
        junit(
            &path,
            "lab",
            &[case(Verdict::Fail, Severity::Error), case(Verdict::Fail, Severity::Warn), broken, skipped],
        )
        .unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(r#"tests="4""#) && text.contains(r#"failures="1""#) && text.contains(r#"errors="1""#));
        // Every test case has its time; the suite counts the case's measurement once.
        assert_eq!(text.matches(r#"time="6.500""#).count(), 6, "{text}");
        assert!(text.contains(r#"<property name="observed" value="8100000000"/>"#), "{text}");
        assert!(text.contains(r#"<property name="limit" value="9000000000"/>"#), "{text}");
        assert!(text.contains("8.10 Gbit/s ± 1.2 % (5 iterations, interval at 95 %)"), "{text}");
        assert!(text.contains("no route") && text.contains("needs IPv6") && text.contains("lab.yaml:23"), "{text}");
    }
}
