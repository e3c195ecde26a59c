//! Judges assertions against samples, one per iteration: pass, fail, or inconclusive.
//!
//! From three iterations on, the confidence interval of the mean is judged. It passes if it lies wholly on the good
//! side of the limit, fails if wholly on the bad side, and is inconclusive if it includes the limit. With fewer
//! iterations the mean is judged. A count (`retransmits == 0`) has no interval: every iteration must hold. A metric
//! without a sample fails, because a test that measured nothing must not pass.

use schemars::JsonSchema;
use schemas::assertion::{Assertion, Operator};
use schemas::metrics::Kind;
use schemas::words::Verdict;
use serde::{Deserialize, Serialize};

use crate::stats::confidence::{self, Interval};
use crate::stats::histogram::column_quantile;
use crate::stats::moments::Moments;

/// The fewest iterations for which the interval is judged.
const INTERVAL_FROM: usize = 3;

/// Whether the interval or the mean is judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Judge {
    /// The confidence interval, from three iterations on
    #[default]
    Ci,
    /// The mean, however uncertain
    Point,
}

/// The rows that are judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Each stream.
    Stream,
    /// Each direction.
    Direction,
    /// The sum.
    #[default]
    Total,
}

/// A verdict and its basis. Values are in the unit of the metric's column.
#[derive(Clone, Debug)]
pub struct Judgement {
    pub verdict: Verdict,
    /// The mean over the iterations; for counts the worst of them. `None` without a sample.
    pub observed: Option<f64>,
    pub interval: Option<Interval>,
    /// Iterations with a sample.
    pub n: usize,
    /// About how many iterations would decide, given the spread so far; only if inconclusive and computable.
    pub needed: Option<u64>,
    /// The reason, if the numbers do not show it.
    pub reason: Option<String>,
}

/// Judges `assertion` against one value per iteration at a confidence level. `observations` is the number of
/// transactions behind a latency percentile, if known. A percentile with fewer than ten observations beyond it is
/// inconclusive.
pub fn judge(assertion: &Assertion, samples: &[f64], observations: Option<u64>, level: f64, judge: Judge) -> Judgement {
    let samples: Vec<f64> = samples.iter().copied().filter(|v| v.is_finite()).collect();
    let moments: Moments = samples.iter().copied().collect();
    let Some(mean) = moments.mean() else {
        return Judgement {
            verdict: Verdict::Fail,
            observed: None,
            interval: None,
            n: 0,
            needed: None,
            reason: Some(format!("there is no sample of {}", assertion.metric.name)),
        };
    };
    let exact = matches!(assertion.operator, Operator::Equal | Operator::NotEqual);
    if exact || assertion.metric.kind == Kind::Count && assertion.limit == 0.0 {
        return judge_each(assertion, &samples);
    }
    let holds = |value: f64| assertion.operator.holds(value, assertion.limit);
    let verdict = |holds: bool| if holds { Verdict::Pass } else { Verdict::Fail };
    let interval = confidence::t_interval_of(&moments, level).filter(|i| i.half_width() > 0.0);
    let mut judgement = Judgement {
        verdict: verdict(holds(mean)),
        observed: Some(mean),
        interval,
        n: samples.len(),
        needed: None,
        reason: None,
    };
    if judge == Judge::Ci
        && samples.len() >= INTERVAL_FROM
        && let Some(i) = interval
    {
        if holds(i.low) == holds(i.high) {
            judgement.verdict = verdict(holds(i.low));
        } else {
            judgement.verdict = Verdict::Inconclusive;
            let distance = (mean - assertion.limit).abs();
            judgement.needed = moments.stddev().and_then(|s| confidence::needed_for_half_width(s, level, distance));
            judgement.reason = Some(match judgement.needed {
                Some(n) => format!("needs about {n} iterations"),
                None => "the mean is too close to the limit for any number of iterations".to_owned(),
            });
        }
    }
    if let Some((needed, observed)) = too_few_observations(assertion, observations)
        && judgement.verdict == Verdict::Pass
    {
        judgement.verdict = Verdict::Inconclusive;
        judgement.reason = Some(format!(
            "{} takes at least {needed} observations, there are {observed}: measure longer",
            assertion.metric.name
        ));
    }
    judgement
}

/// Judges counts and exact statements: one bad iteration is enough to fail.
fn judge_each(assertion: &Assertion, samples: &[f64]) -> Judgement {
    let broken = samples.iter().copied().filter(|v| !assertion.operator.holds(*v, assertion.limit));
    let distance = |v: &f64| (v - assertion.limit).abs();
    let worst = broken.clone().max_by(|a, b| distance(a).total_cmp(&distance(b)));
    let count = broken.count();
    let of = samples.len();
    Judgement {
        verdict: if count == 0 { Verdict::Pass } else { Verdict::Fail },
        observed: worst.or_else(|| samples.iter().copied().max_by(f64::total_cmp)),
        interval: None,
        n: of,
        needed: None,
        reason: (count > 0 && of > 1).then(|| format!("in {count} of {of} iterations")),
    }
}

/// If there are too few observations for a percentile (ten beyond it): the number needed and the number there.
fn too_few_observations(assertion: &Assertion, observations: Option<u64>) -> Option<(u64, u64)> {
    let quantile = column_quantile(assertion.metric.column)?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 10 / 10^-6")]
    let needed = (10.0 / (1.0 - quantile)).round() as u64;
    observations.filter(|n| *n < needed).map(|n| (needed, n))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::{Severity, of_assertion};
    use schemas::assertion::parse;

    fn judged(text: &str, samples: &[f64]) -> Judgement {
        judge(&parse(text).unwrap(), samples, None, 0.95, Judge::Ci)
    }

    #[test]
    fn the_interval_is_judged_from_three_iterations_on() {
        let fine = judged("throughput >= 9Gbit/s", &[9.4e9, 9.5e9, 9.45e9]);
        assert_eq!(fine.verdict, Verdict::Pass);
        let bad = judged("throughput >= 9Gbit/s", &[8.4e9, 8.5e9, 8.45e9]);
        assert_eq!(bad.verdict, Verdict::Fail);
        let unclear = judged("throughput >= 9Gbit/s", &[8.8e9, 9.5e9, 9.0e9]);
        assert_eq!(unclear.verdict, Verdict::Inconclusive);
        let needed = unclear.needed.unwrap();
        assert!((20..200).contains(&needed), "{needed}");
        assert_eq!(unclear.reason.unwrap(), format!("needs about {needed} iterations"));
    }

    #[test]
    fn two_iterations_are_judged_by_their_mean() {
        assert_eq!(judged("throughput >= 9Gbit/s", &[8.8e9, 9.5e9]).verdict, Verdict::Pass);
        let all = [8.8e9, 9.5e9, 9.0e9];
        let point = judge(&parse("throughput >= 9Gbit/s").unwrap(), &all, None, 0.95, Judge::Point);
        assert_eq!(point.verdict, Verdict::Pass);
    }

    #[test]
    fn nothing_measured_fails() {
        let none = judged("latency.p99 < 80us", &[]);
        assert_eq!((none.verdict, none.observed, none.n), (Verdict::Fail, None, 0));
        assert!(none.reason.unwrap().contains("no sample of latency.p99"));
    }

    #[test]
    fn one_retransmission_is_one_too_many() {
        assert_eq!(judged("retransmits == 0", &[0.0, 0.0, 0.0]).verdict, Verdict::Pass);
        let one = judged("retransmits == 0", &[0.0, 3.0, 0.0, 0.0]);
        assert_eq!((one.verdict, one.observed), (Verdict::Fail, Some(3.0)));
        assert_eq!(one.reason.unwrap(), "in 1 of 4 iterations");
        assert_eq!(judged("retransmits <= 0", &[0.0, 1.0, 0.0]).verdict, Verdict::Fail);
        assert_eq!(judged("errors < 10", &[1.0, 2.0, 3.0]).verdict, Verdict::Pass);
    }

    #[test]
    fn values_without_spread_are_certain() {
        assert_eq!(judged("latency.p99 < 80us", &[70.0, 70.0, 70.0]).verdict, Verdict::Pass);
        assert_eq!(judged("latency.p99 < 80us", &[80.0, 80.0, 80.0]).verdict, Verdict::Fail);
    }

    #[test]
    fn a_percentile_takes_observations() {
        let assertion = parse("latency.p999 < 80us").unwrap();
        let judged = |n| judge(&assertion, &[70.0, 71.0, 69.0], Some(n), 0.95, Judge::Ci);
        assert_eq!(judged(9_999).verdict, Verdict::Inconclusive);
        assert!(judged(9_999).reason.unwrap().contains("at least 10000 observations, there are 9999"));
        assert_eq!(judged(10_000).verdict, Verdict::Pass);
    }

    #[test]
    fn rows_have_a_cell_per_column() {
        let assertion = parse("throughput >= 9Gbit/s").unwrap();
        let judgement = judged("throughput >= 9Gbit/s", &[9.4e9, 9.5e9, 9.45e9]);
        let row = of_assertion(&assertion, &judgement, Severity::Error);
        let mut cells = 0;
        row.for_each_cell(|_| cells += 1);
        assert_eq!(cells, schemas::columns::verdicts::VERDICT_COLUMNS.len());
    }
}
