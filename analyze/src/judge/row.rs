//! The `verdicts` table: one row per assertion and case, or per comparison and case.

use schemas::{assertion::Assertion, columns::Row};

use super::{Judgement, comparison::Comparison};

/// How much an assertion weighs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Severity {
    /// A failure fails the run.
    #[default]
    Error,
    /// A failure is only reported.
    Warn,
}

impl Severity {
    /// `error` or `warn`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
        }
    }
}

/// The header of the `verdicts` table: one row per assertion and case, or per comparison and case.
pub const VERDICT_COLUMNS: &[&str] = &[
    "case_id",
    "case",
    "member",
    "assertion",
    "metric",
    "n",
    "observed",
    "ci_low",
    "ci_high",
    "confidence_level",
    "limit",
    "baseline",
    "change_ratio",
    "p_value",
    "verdict",
    "severity",
    "needed_iterations",
    "note",
    "file",
    "line",
    "column",
    "run_id",
    "from",
    "to",
    "time",
    "baseline_run_id",
];

/// Where and when something was measured, as the results table says it; empty where it does not.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Origin {
    /// Which run.
    pub run_id: String,
    /// The near host.
    pub from: String,
    /// The far host.
    pub to: String,
    /// When, RFC 3339: that of the last iteration.
    pub time: String,
}

impl From<&Row> for Origin {
    fn from(row: &Row) -> Self {
        let text = |cell: &Option<String>| cell.clone().unwrap_or_default();
        Self { run_id: text(&row.run_id), from: text(&row.from), to: text(&row.to), time: text(&row.time) }
    }
}

/// A row of the `verdicts` table.
#[derive(Clone, Debug, Default)]
pub struct VerdictRow {
    /// Which case.
    pub case_id: String,
    /// The same, readable.
    pub case: String,
    /// Member of a concurrent group.
    pub member: String,
    /// The statement as it was written; for a comparison what was compared with what.
    pub assertion: String,
    /// The column that was judged: its name has the unit of the values.
    pub metric: String,
    /// Iterations judged.
    pub n: u64,
    /// What was observed.
    pub observed: Option<f64>,
    /// Its confidence interval; for comparisons the interval of `change_ratio`.
    pub low: Option<f64>,
    /// Its other end.
    pub high: Option<f64>,
    /// Confidence level of the interval.
    pub level: Option<f64>,
    /// The limit; for comparisons the smallest change that counts, as a ratio.
    pub limit: Option<f64>,
    /// For comparisons, the other side's centre.
    pub baseline: Option<f64>,
    /// For comparisons, (observed − baseline) ÷ baseline.
    pub change_ratio: Option<f64>,
    /// For comparisons, after the correction for their number.
    pub p_value: Option<f64>,
    /// `pass`, `fail`, `inconclusive`; for comparisons `regression`, `improvement`, `same`, `inconclusive`, `missing`
    /// (nothing to compare with) and `error` (the comparison may not be made).
    pub verdict: String,
    /// `error` or `warn`.
    pub severity: String,
    /// About how many iterations would decide.
    pub needed: Option<u64>,
    /// Reasons and warnings.
    pub note: String,
    /// Where the statement stands.
    pub file: String,
    /// Its line there, from 1.
    pub line: Option<u64>,
    /// Its column there, from 1.
    pub column: Option<u64>,
    /// Where what is judged was measured.
    pub origin: Origin,
    /// For comparisons, the other side's run.
    pub baseline_run_id: String,
}

impl VerdictRow {
    /// The row for a judged assertion; the case and the place are the caller's.
    #[must_use]
    pub fn of(assertion: &Assertion, judgement: &Judgement, severity: Severity) -> Self {
        let interval = judgement.interval;
        Self {
            assertion: assertion.text.clone(),
            metric: assertion.metric.column.to_owned(),
            n: judgement.n as u64,
            observed: judgement.observed,
            low: interval.map(|i| i.low),
            high: interval.map(|i| i.high),
            level: interval.map(|i| i.level),
            limit: Some(assertion.limit),
            verdict: judgement.outcome.name().to_owned(),
            severity: severity.name().to_owned(),
            needed: judgement.needed,
            note: judgement.reason.clone().unwrap_or_default(),
            ..Self::default()
        }
    }

    /// Takes over what a comparison found; the case, the metric and the place are the caller's.
    pub fn compared(&mut self, found: &Comparison) {
        self.n = found.n.1 as u64;
        self.observed = found.new;
        (self.low, self.high) = (found.interval.map(|i| i.0), found.interval.map(|i| i.1));
        self.level = found.interval.map(|_| 1.0 - found.rule.alpha);
        self.limit = Some(found.rule.min_ratio);
        self.baseline = found.base;
        self.change_ratio = found.change;
        self.p_value = found.p;
        found.finding.name().clone_into(&mut self.verdict);
        self.needed = found.needed;
        self.note = found.notes.join("; ");
    }

    /// Adds a reason behind the others.
    pub fn say(&mut self, reason: &str) {
        self.note = if self.note.is_empty() { reason.to_owned() } else { format!("{}; {reason}", self.note) };
    }

    /// Adds a reason before the others.
    pub fn say_first(&mut self, reason: &str) {
        self.note = if self.note.is_empty() { reason.to_owned() } else { format!("{reason}; {}", self.note) };
    }

    /// Whether it fails the run: a statement that does not hold, or a regression, and not only to be warned of.
    #[must_use]
    pub fn fails(&self) -> bool {
        self.severity == Severity::Error.name() && matches!(self.verdict.as_str(), "fail" | "regression")
    }

    /// Whether it is as it should be.
    #[must_use]
    pub fn is_well(&self) -> bool {
        matches!(self.verdict.as_str(), "pass" | "same" | "improvement" | "changed")
    }

    /// The cells in the order of [`VERDICT_COLUMNS`].
    #[must_use]
    pub fn cells(&self) -> Vec<String> {
        let number = |v: Option<f64>| v.map(schemas::columns::number).unwrap_or_default();
        let whole = |v: Option<u64>| v.map(|v| v.to_string()).unwrap_or_default();
        vec![
            self.case_id.clone(),
            self.case.clone(),
            self.member.clone(),
            self.assertion.clone(),
            self.metric.clone(),
            self.n.to_string(),
            number(self.observed),
            number(self.low),
            number(self.high),
            number(self.level),
            number(self.limit),
            number(self.baseline),
            number(self.change_ratio),
            number(self.p_value),
            self.verdict.clone(),
            self.severity.clone(),
            whole(self.needed),
            self.note.clone(),
            self.file.clone(),
            whole(self.line),
            whole(self.column),
            self.origin.run_id.clone(),
            self.origin.from.clone(),
            self.origin.to.clone(),
            self.origin.time.clone(),
            self.baseline_run_id.clone(),
        ]
    }
}
