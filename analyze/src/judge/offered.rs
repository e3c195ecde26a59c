//! Whether a sender offered the load that its plan asked for. What was measured below that load proves nothing at it.

use super::Judgement;
use crate::stats::quantiles;
use schemas::{
    assertion::Assertion,
    columns::{Row, results::column},
    metrics::{Better, Family},
    units::{Unit, human, margin},
    words::{OfferedUnit, Verdict},
};

/// Share of the load that may be missing.
const MISSING: f64 = 0.01;

/// Columns that [`share`] is computed from.
pub const COLUMNS: [&str; 2] = ["rate_error_ratio", "rate_quantum_ratio"];

/// The share of the load that was offered, at most 1. At each edge of the window one due time may be missing.
pub fn share(error: f64, quantum: f64) -> f64 {
    (1.0 + error + 2.0 * quantum).min(1.0)
}

/// The same of a row; `None`: it has no load, or what was sent is unknown.
pub fn share_of(row: &Row) -> Option<f64> {
    Some(share(row.rate_error_ratio?, row.rate_quantum_ratio.unwrap_or(0.0)))
}

/// A load of a row in words: `120 Mbit/s`, `20.0 k/s`. The value is in the unit of its `offered_per_s`.
pub fn load(row: &Row, value: f64) -> String {
    match (row.offered_unit, row.message_bytes) {
        (Some(OfferedUnit::Bits), _) => human(Unit::BitsPerSecond, value),
        (Some(OfferedUnit::Messages), Some(bytes)) => human(Unit::BitsPerSecond, value * bytes as f64 * 8.0),
        _ => human(Unit::PerSecond, value),
    }
}

/// `109 Mbit/s of 120 Mbit/s offered`; `None`: the load was offered.
pub fn missed(row: &Row) -> Option<String> {
    let (offered, error) = (row.offered_per_s?, row.rate_error_ratio?);
    let is_missed = share_of(row)? < 1.0 - MISSING;
    is_missed.then(|| format!("{} of {} offered", load(row, offered * (1.0 + error)), load(row, offered)))
}

/// `20 % unanswered`: the share of datagram requests without an answer; `None`: each had one. `number` gives the row's metrics.
pub fn unanswered(workload: &str, number: impl Fn(&str) -> Option<f64>) -> Option<String> {
    let (none, answered) = (number(column::errors)?, number(column::transactions)?);
    let is_told = workload.starts_with("udp_") && Family::of(workload) == Family::Transactions && none > 0.0;
    is_told.then(|| format!("{} unanswered", human(Unit::Ratio, none / (none + answered))))
}

impl Judgement {
    /// The judgement of values measured while these shares of the load were offered, one per iteration. A promise that
    /// something stays low under a load is not proven by less load. One that is broken by less load stays broken.
    #[must_use]
    pub fn at_offered(mut self, assertion: &Assertion, shares: impl Iterator<Item = f64>) -> Self {
        let mut shares: Vec<f64> = shares.collect();
        quantiles::sort(&mut shares);
        let typical = quantiles::median(&shares).filter(|share| *share < 1.0 - MISSING);
        if let Some(share) = typical
            && self.verdict == Verdict::Pass
            && assertion.metric.better == Better::Lower
        {
            self.verdict = Verdict::Inconclusive;
            self.reason = Some(format!("only {} of the plan's rate was offered", margin(share)));
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::{Judge, judge};
    use schemas::assertion::parse;

    #[test]
    fn a_promise_at_a_rate_that_was_not_offered_is_open() {
        let judged = |text: &str, value: f64, shares: &[f64]| {
            let assertion = parse(text).unwrap();
            let judgement = judge(&assertion, &[value; 3], None, 0.95, Judge::Ci);
            judgement.at_offered(&assertion, shares.iter().copied())
        };
        let open = judged("loss_ratio < 1%", 0.0, &[0.75, 0.8, 0.99]);
        assert_eq!(open.verdict, Verdict::Inconclusive);
        assert_eq!(open.reason.as_deref(), Some("only 80 % of the plan's rate was offered"));
        assert_eq!(judged("latency.p99 < 1ms", 50.0, &[0.97]).verdict, Verdict::Inconclusive);
        // One iteration of three that missed the rate is not the typical one.
        assert_eq!(judged("loss_ratio < 1%", 0.0, &[0.7, 1.0, 1.0]).verdict, Verdict::Pass);
        assert_eq!(judged("loss_ratio < 1%", 0.0, &[]).verdict, Verdict::Pass, "without a rate");
        assert_eq!(judged("loss_ratio < 1%", 0.1, &[0.8]).verdict, Verdict::Fail, "more load would lose no less");
        assert_eq!(judged("throughput > 1Mbit/s", 2e6, &[0.8]).verdict, Verdict::Pass);
    }

    #[test]
    fn a_missed_rate_is_said_with_both_loads() {
        let row = |error: f64| Row {
            offered_per_s: Some(10_000.0),
            offered_unit: Some(OfferedUnit::Messages),
            message_bytes: Some(1500),
            rate_error_ratio: Some(error),
            rate_quantum_ratio: Some(0.001),
            ..Row::default()
        };
        assert_eq!(missed(&row(-0.09)).as_deref(), Some("109 Mbit/s of 120 Mbit/s offered"));
        // One per cent, and a message at each edge.
        assert_eq!((missed(&row(-0.011)), missed(&row(0.02))), (None, None));
        assert_eq!(
            missed(&Row { offered_unit: Some(OfferedUnit::Transactions), ..row(-0.5) }).as_deref(),
            Some("5.00 k/s of 10.0 k/s offered")
        );
    }
}
