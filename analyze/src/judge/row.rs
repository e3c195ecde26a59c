//! Makes rows of the `verdicts` table from judgements and comparisons.

use schemas::{
    assertion::Assertion,
    columns::{Row, VerdictRow},
    words::Severity,
};

use super::{Judgement, comparison::Comparison};

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
}

impl From<&Row> for Origin {
    fn from(row: &Row) -> Self {
        let text = |cell: &Option<String>| cell.clone().unwrap_or_default();
        let time = row.time.as_deref().unwrap_or_default().to_owned();
        Self { run_id: text(&row.run_id), from: text(&row.from), to: text(&row.to), time, elapsed_s: row.elapsed_s }
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

/// A case's name as verdicts show it, with the member that they are about: `mixed up`.
pub fn subject(case: &str, member: &str) -> String {
    if member.is_empty() { case.to_owned() } else { format!("{case} {member}") }
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
    (row.ci_low, row.ci_high) = (found.interval.map(|i| i.0), found.interval.map(|i| i.1));
    row.confidence_level = found.interval.map(|_| 1.0 - found.rule.alpha);
    row.limit = Some(found.rule.min_ratio);
    row.baseline = found.base;
    row.change_ratio = found.change;
    row.p_value = found.p;
    row.verdict = found.verdict;
    row.needed_iterations = found.needed;
    row.note = found.notes.join("; ");
}
