//! The `verdicts` table: one row per assertion and case, or per comparison and case.

use super::{
    columns,
    may_be_empty::{Integer, Number},
};
use crate::words::{Severity, Verdict};

columns! {
    #[derive(Clone, Debug, Default, PartialEq)]
    VerdictRow, VERDICT_COLUMNS, _;

    "verdicts" {
        case_id: String = "Identifies the case.";
        case: String = "The case, readable.";
        member: String = "Member of a concurrent group.";
        assertion: String = "The statement as it was written; for a comparison what was compared with what.";
        metric: String = "The column that was judged; its name has the unit of the values.";
        n: u64 = "Iterations judged.";
        observed: Number = "What was observed, as `statistic` says.";
        statistic: String = "The statistic of the iterations: `median`; `worst` where each of them is judged; `mean` with `judge: point`. Of a comparison, that of either side: `median`, or `mean` with `--test welch`. Empty for surveys.";
        ci_low: Number = "Of an assertion, the lower end of the confidence interval of `observed`.";
        ci_high: Number = "Its upper end.";
        confidence_level: Number = "Confidence level of the interval, 0 … 1.";
        limit: Number = "Of an assertion, the limit.";
        baseline: Number = "For comparisons, the centre of the other side.";
        change_ratio: Number = "For comparisons, the change over the baseline's centre: with rank tests the median of the differences between values of both sides ÷ baseline, with the others (observed − baseline) ÷ baseline.";
        ci_low_ratio: Number = "For comparisons, the lower end of the confidence interval of `change_ratio`.";
        ci_high_ratio: Number = "Its upper end.";
        limit_ratio: Number = "For comparisons, the smallest change that counts.";
        p_value: Number = "For comparisons, after the correction for their number.";
        verdict: Verdict = "{words}.";
        severity: Severity = "{words}.";
        needed_iterations: Integer = "About how many iterations would decide.";
        note: String = "Reasons and warnings.";
        file: String = "File of the statement.";
        line: Integer = "Its line there, from 1.";
        column: Integer = "Its column there, from 1.";
        run_id: String = "Run that is judged.";
        from: String = "Its near host.";
        to: String = "Its far host.";
        time: String = "Time of its last iteration.";
        elapsed_s: Number = "Seconds that its iterations measured, together.";
        baseline_run_id: String = "For comparisons, the run that it was compared with.";
    }
}

impl VerdictRow {
    /// Whether it is a comparison, and no assertion.
    pub fn compares(&self) -> bool {
        self.limit_ratio.is_some()
    }

    /// Whether it fails the run: a statement that does not hold, or a regression, and not only to be warned of.
    pub fn fails(&self) -> bool {
        self.severity == Severity::Error && self.verdict.is_bad()
    }

    /// Whether the run cannot be judged by it: an error, and not only to be warned of.
    pub fn refuses(&self) -> bool {
        self.severity == Severity::Error && self.verdict == Verdict::Error
    }

    /// Adds a reason behind the others.
    pub fn say(&mut self, reason: &str) {
        self.note = if self.note.is_empty() { reason.to_owned() } else { format!("{}; {reason}", self.note) };
    }

    /// Adds a reason before the others.
    pub fn say_first(&mut self, reason: &str) {
        self.note = if self.note.is_empty() { reason.to_owned() } else { format!("{reason}; {}", self.note) };
    }
}
