//! The `verdicts` table: its rows, made from judgements and comparisons, as CSV and for people.

use super::{
    Judgement,
    comparison::{Comparison, change_text},
};
use crate::{
    error::{Error, Verdict as Outcome},
    table::{
        Format, Table,
        layout::{self, Column, Sheet},
        write_csv,
    },
};
use schemas::{
    assertion::Assertion,
    columns::{
        Row, VerdictRow, names,
        verdicts::{VERDICT_COLUMNS, column},
    },
    metrics,
    text::short_names,
    units,
    words::{Severity, Verdict},
};
use std::{collections::HashSet, io::Write};

/// Writes the rows; text fits the sheet. `answer`: what they come to in a sentence, which people read first; empty where it was said
/// before. `None`: they are of a self-test, and people read how many were noticed last.
pub fn write(
    rows: &[VerdictRow],
    answer: Option<&str>,
    format: Format,
    sheet: &Sheet,
    output: &mut dyn Write,
) -> Result<(), Error> {
    if format == Format::Csv {
        return csv(rows, output);
    }
    let is_markdown = format == Format::Md;
    layout::answer(answer.unwrap_or_default(), is_markdown, sheet, output)?;
    if rows.is_empty() {
        return Ok(());
    }
    let columns = columns(rows);
    if is_markdown {
        layout::markdown(&columns, output)?;
    } else {
        layout::aligned(&columns, sheet, output)?;
    }
    if answer.is_none() {
        writeln!(output, "{}{}", if is_markdown { "\n" } else { "" }, noticed(rows))?;
    }
    Ok(())
}

/// The rows of a `verdicts` table, which may have fewer columns, or more. Fails for a table without the columns that make
/// a verdict and for a row without a verdict, and names the cell that has a wrong value.
pub fn read(table: &mut Table) -> Result<Vec<VerdictRow>, Error> {
    for name in [column::case, column::assertion, column::metric, column::observed] {
        table.require(name)?;
    }
    let at = table.require(column::verdict)?;
    let known = names(VERDICT_COLUMNS).filter_map(|name| Some((table.header().find(name)?, name)));
    let columns: Vec<(usize, &'static str)> = known.collect();
    let mut rows = Vec::new();
    while let Some(row) = table.next_row()? {
        if row.get(at).is_empty() {
            return Err(row.error(Some(at), "the verdict is missing"));
        }
        let mut verdict = VerdictRow::default();
        for (column, name) in &columns {
            verdict.set(name, row.get(*column)).map_err(|e| row.error(Some(*column), e.to_string()))?;
        }
        rows.push(verdict);
    }
    Ok(rows)
}

/// The `verdicts` table.
pub fn csv(rows: &[VerdictRow], output: &mut dyn Write) -> Result<(), Error> {
    let record = |row: &VerdictRow| {
        let mut record = Vec::new();
        row.for_each_cell(|cell| record.push(cell.to_owned()));
        record
    };
    write_csv(output, names(VERDICT_COLUMNS), rows.iter().map(record))
}

/// What these rows come to; `inconclusive_fails`: an error that is inconclusive counts. A row without a sample of a case that failed
/// says nothing about what was to be measured: the failure has an exit code of its own.
pub fn outcome<'a>(
    rows: &[VerdictRow],
    failed: impl IntoIterator<Item = &'a str>,
    inconclusive_fails: bool,
) -> Outcome {
    let failed: HashSet<&str> = failed.into_iter().collect();
    let is_open = |row: &VerdictRow| row.verdict == Verdict::Inconclusive && row.severity == Severity::Error;
    if rows.iter().any(|row| row.fails() && (row.n > 0 || !failed.contains(&*row.case))) {
        Outcome::Failed
    } else if rows.iter().any(VerdictRow::refuses) {
        Outcome::Exit(3)
    } else if inconclusive_fails && rows.iter().any(is_open) {
        Outcome::Inconclusive
    } else {
        Outcome::Ok
    }
}

/// `1 unnoticed, 2 noticed`
fn noticed(rows: &[VerdictRow]) -> String {
    let counts = [Verdict::Unnoticed, Verdict::Noticed].map(|of| (rows.iter().filter(|r| r.verdict == of).count(), of));
    let said = counts.iter().filter(|(n, _)| *n > 0).map(|(n, of)| format!("{n} {of}"));
    said.collect::<Vec<_>>().join(", ")
}

/// The columns for people, what is bad first.
pub fn columns(all: &[VerdictRow]) -> Vec<Column> {
    let mut rows: Vec<&VerdictRow> = all.iter().collect();
    rows.sort_by_key(|row| row.verdict.place());
    let column = |title: &str, cell: &dyn Fn(&VerdictRow) -> String| Column::of(title, false, &rows, |row| cell(row));
    let place = |r: &VerdictRow| match (r.file.as_str(), r.line) {
        ("", _) => String::new(),
        (file, Some(line)) => format!("{file}:{line}"),
        (file, None) => file.to_owned(),
    };
    // The table of a run has means: a median beside them must say what it is.
    let mut statistics = rows.iter().filter(|r| r.n > 1).map(|r| r.statistic.as_str()).filter(|of| !of.is_empty());
    let common = statistics.next().filter(|first| statistics.all(|other| other == *first));
    let is_common = common.is_some();
    let title = common.map_or("observed".to_owned(), |of| format!("observed ({of})"));
    let mut columns = vec![
        column("verdict", &|r| {
            if r.severity == Severity::Warn && r.verdict.is_bad() {
                r.severity.to_string()
            } else {
                r.verdict.to_string()
            }
        }),
        column("case", &|r| short_names(&r.case)),
        column("assertion", &|r| r.assertion.clone()),
        column("metric", &|r| metrics::find(&r.metric).map_or(r.metric.as_str(), |m| m.name).to_owned()),
        column(&title, &|r| match r.statistic.as_str() {
            of if r.n > 1 && !of.is_empty() && !is_common => format!("{of} {}", observed(r)),
            _ => observed(r),
        }),
        column("where", &place),
        column("", &|r| remark(r).to_owned()),
    ];
    // A comparison of several metrics does not name them otherwise.
    let is_like =
        |a: &VerdictRow, b: &VerdictRow| a.case == b.case && a.assertion == b.assertion && a.metric != b.metric;
    let several = all.windows(2).any(|pair| is_like(&pair[0], &pair[1]));
    columns.retain(|c| c.title != "metric" || several);
    columns.retain(|c| c.title == "verdict" || c.cells.iter().any(|c| !c.is_empty()));
    columns
}

/// What a failing statement was instead: `bulk: throughput >= 9Gbit/s does not hold: 8.1 Gbit/s (median of 5 iterations)`.
pub fn broken(row: &VerdictRow) -> String {
    let what = if row.assertion.is_empty() { &row.metric } else { &row.assertion };
    let basis = if row.n > 1 && !row.statistic.is_empty() { counted(row) } else { String::new() };
    let remark = [&*basis, remark(row)].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("; ");
    let remark = if remark.is_empty() { remark } else { format!(" ({remark})") };
    format!("{}: {what} does not hold: {}{remark}", row.case, shown(row))
}

/// The iterations that were judged: `median of 5 iterations`.
pub fn counted(row: &VerdictRow) -> String {
    match (row.n, &*row.statistic) {
        (1, _) => "1 iteration".to_owned(),
        (n, "") => format!("{n} iterations"),
        (n, statistic) => format!("{statistic} of {n} iterations"),
    }
}

/// [`observed`], or the bare number of a metric that this version does not know.
pub fn shown(row: &VerdictRow) -> String {
    match (observed(row), row.observed) {
        (text, Some(value)) if text.is_empty() => schemas::columns::number(value),
        (text, _) => text,
    }
}

/// `94.1 Gbit/s ± 0.3 %`, or `94.1 Gbit/s (−0.2 % … +0.4 %)` if the interval reaches further on one side; its ends if it
/// is wide. For a comparison the change:
/// `40.1 Gbit/s, −5.2 % (−6.0 … −4.3) from 42.3 Gbit/s`.
pub fn observed(row: &VerdictRow) -> String {
    if is_about_cause(row) {
        return row.note.clone();
    }
    let metric = metrics::find(&row.metric).or_else(|| metrics::of_survey(&row.metric));
    let Some(unit) = metric.map(|m| m.unit) else { return String::new() };
    let human = |v: f64| units::human(unit, v);
    if let (Some(observed), Some(baseline)) = (row.observed, row.baseline) {
        let change = change(row);
        let change = if change.is_empty() { change } else { format!(", {change}") };
        return format!("{}{change} from {}", human(observed), human(baseline));
    }
    match (row.observed, row.ci_low, row.ci_high) {
        // A comparison may be impossible although there are samples.
        (None, ..) => {
            if row.n > 0 {
                String::new()
            } else {
                "no sample".to_owned()
            }
        }
        (Some(observed), Some(low), Some(high)) => units::human_with_spread(unit, observed, low, high),
        (Some(observed), ..) => human(observed),
    }
}

/// The change of a comparison with its interval: `−5.2 % (−6.0 … −4.3)`; empty without one.
pub fn change(row: &VerdictRow) -> String {
    change_text(row.change_ratio, row.ci_low_ratio.zip(row.ci_high_ratio))
}

/// The note beside what was observed. Causes are words, which the note has: they were observed.
pub fn remark(row: &VerdictRow) -> &str {
    if is_about_cause(row) { "" } else { &row.note }
}

fn is_about_cause(row: &VerdictRow) -> bool {
    row.metric == metrics::LIMITED_BY.column && row.n > 0
}

// Makes rows of the `verdicts` table from judgements and comparisons.

/// Place and time of a measurement, from the results table; empty if unknown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Origin {
    pub run_id: String,
    /// The near host.
    pub from: String,
    /// The far host.
    pub to: String,
    /// Time of the last iteration, RFC 3339.
    pub time: String,
    /// Seconds that the iterations measured, together.
    pub elapsed_s: Option<f64>,
    /// Of a survey's pair.
    pub round: Option<u64>,
}

impl From<&Row> for Origin {
    fn from(row: &Row) -> Self {
        let text = |cell: &Option<String>| cell.clone().unwrap_or_default();
        let time = row.time.as_deref().unwrap_or_default().to_owned();
        let [run_id, from, to] = [&row.run_id, &row.from, &row.to].map(text);
        Self { run_id, from, to, time, elapsed_s: row.elapsed_s, round: row.round }
    }
}

impl Origin {
    /// Writes it into a row.
    pub fn mark(&self, row: &mut VerdictRow) {
        row.run_id.clone_from(&self.run_id);
        row.from.clone_from(&self.from);
        row.to.clone_from(&self.to);
        row.time.clone_from(&self.time);
        row.elapsed_s = self.elapsed_s;
    }
}

/// The row of a judged assertion. The caller adds case and place.
pub fn of_assertion(assertion: &Assertion, judgement: &Judgement, severity: Severity) -> VerdictRow {
    let interval = judgement.interval;
    VerdictRow {
        assertion: assertion.text.clone(),
        metric: assertion.metric.column.to_owned(),
        n: judgement.n as u64,
        observed: judgement.observed,
        statistic: judgement.statistic.to_owned(),
        ci_low: interval.map(|i| i.low),
        ci_high: interval.map(|i| i.high),
        confidence_level: interval.map(|i| i.level),
        limit: assertion.cause.is_none().then_some(assertion.limit),
        verdict: judgement.verdict,
        severity,
        needed_iterations: judgement.needed,
        note: judgement.reason.clone().unwrap_or_default(),
        ..VerdictRow::default()
    }
}

/// Writes the result of a comparison into a row. The caller adds case, metric and place.
pub fn compared(row: &mut VerdictRow, found: &Comparison) {
    row.n = found.n.1 as u64;
    row.observed = found.new;
    row.statistic = found.new.map(|_| found.rule.test.statistic().to_owned()).unwrap_or_default();
    (row.ci_low_ratio, row.ci_high_ratio) = found.interval.unzip();
    row.confidence_level = found.interval.map(|_| 1.0 - found.rule.alpha);
    row.limit_ratio = Some(found.rule.min_ratio);
    row.baseline = found.base;
    row.change_ratio = found.change;
    row.p_value = found.p;
    row.verdict = found.verdict;
    row.needed_iterations = found.needed;
    row.note = found.notes.join("; ");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_shown_as_it_lies() {
        let shown = |value: f64, low: f64, high: f64| {
            observed(&VerdictRow {
                metric: "latency_p99_us".into(),
                observed: Some(value),
                ci_low: Some(low),
                ci_high: Some(high),
                ..VerdictRow::default()
            })
        };
        assert_eq!(shown(100.0, 98.0, 102.0), "100 µs ± 2.0 %");
        assert_eq!(shown(100.0, 99.5, 104.0), "100 µs (−0.50 % … +4.0 %)");
        assert_eq!(shown(60.0, 6.08, 1857.0), "60.0 µs (6.08 µs … 1.86 ms)");
        assert_eq!([shown(0.0, 0.0, 0.0), shown(1.0, 1.0, 1.0)], ["0 s", "1.00 µs"], "equal values");
    }

    #[test]
    fn a_cause_is_told_once() {
        let row = VerdictRow {
            case: "bulk".into(),
            assertion: "limited_by == path".into(),
            metric: "limited_by".into(),
            n: 3,
            verdict: Verdict::Fail,
            note: "loss in 3 of 3 iterations".into(),
            ..VerdictRow::default()
        };
        let mut out = Vec::new();
        write(&[row], None, Format::Md, &Sheet::PLAIN, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.matches("loss in 3 of 3 iterations").count(), 1, "{text}");
    }

    #[test]
    fn what_only_warns_has_not_failed() {
        let row = |verdict, severity| VerdictRow { verdict, severity, ..VerdictRow::default() };
        let rows = [
            row(Verdict::Fail, Severity::Warn),
            row(Verdict::Pass, Severity::default()),
            row(Verdict::Fail, Severity::default()),
        ];
        assert_eq!((outcome(&rows[..2], [], false), outcome(&rows, [], false)), (Outcome::Ok, Outcome::Failed));
        let found = [Verdict::Noticed, Verdict::Unnoticed, Verdict::Noticed].map(|v| row(v, Severity::Warn));
        assert_eq!((noticed(&found), noticed(&found[..1])), ("1 unnoticed, 2 noticed".into(), "1 noticed".into()));
    }

    #[test]
    fn a_case_that_was_not_measured_is_no_fault_of_what_is_measured() {
        let row = |case: &str, n| VerdictRow { case: case.into(), n, verdict: Verdict::Fail, ..VerdictRow::default() };
        assert_eq!(outcome(&[row("a", 0)], ["a"], false), Outcome::Ok);
        assert_eq!(outcome(&[row("a", 0), row("b", 0)], ["a"], false), Outcome::Failed, "b ran, and has no value");
        assert_eq!(outcome(&[row("a", 2)], ["a"], false), Outcome::Failed, "what it measured first counts");
    }

    #[test]
    fn the_head_says_which_statistic_was_observed() {
        let row = |statistic: &str, n| VerdictRow {
            metric: "latency_p99_us".into(),
            observed: Some(11.7),
            statistic: statistic.into(),
            n,
            ..VerdictRow::default()
        };
        let shown = |rows: &[VerdictRow]| {
            let columns = columns(rows);
            let of = columns.iter().find(|c| c.title.starts_with("observed")).unwrap();
            (of.title.clone(), of.cells.join(", "))
        };
        let (title, _) = shown(&[row("median", 3), row("worst", 1)]);
        assert_eq!(title, "observed (median)");
        let mixed = shown(&[row("median", 3), row("worst", 3)]);
        assert_eq!(mixed, ("observed".to_owned(), "median 11.7 µs, worst 11.7 µs".to_owned()));
        assert_eq!(shown(&[row("median", 1)]), ("observed".to_owned(), "11.7 µs".to_owned()));
    }

    #[test]
    fn people_read_units() {
        let row = VerdictRow {
            case: "bulk".into(),
            assertion: "throughput >= 90Gbit/s".into(),
            metric: "throughput_bits_per_s".into(),
            observed: Some(94.1e9),
            ci_low: Some(93.8e9),
            ci_high: Some(94.4e9),
            verdict: Verdict::Pass,
            ..VerdictRow::default()
        };
        let mut out = Vec::new();
        write(&[row], Some("It holds."), Format::Text, &Sheet::PLAIN, &mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "It holds.\n\nverdict  case  assertion               observed\n\
             pass     bulk  throughput >= 90Gbit/s  94.1 Gbit/s ± 0.32 %\n"
        );
    }
}
