//! Judges assertions against samples, one per iteration: pass, fail, or inconclusive.
//!
//! A statement is about the typical iteration: it holds if at least half of all iterations would keep it. The typical
//! value's interval ([`confidence::typical_interval`]) is judged from three iterations on:
//!
//! - pass: the interval lies wholly on the good side of the limit
//! - fail: it lies wholly on the bad side, or every iteration violates the limit
//! - inconclusive: everything else
//!
//! So a pass of few iterations takes room beside their agreement, and a fail does not. No shape of the noise is assumed
//! for what is promised: with n iterations, at most 2^-n of the verdicts are false passes and at most 2^-n false fails,
//! and at most half of 1 − level each from [`confidence::fewest_for_median`] iterations on. `docs/reference/statistics.md` has the
//! reasons and the simulation.
//!
//! One or two iterations have no interval: they pass or fail if they agree. A count that must be 0 (`retransmits == 0`),
//! an exact statement, and a limit at the end of the metric's range are about every iteration. A metric without a sample
//! fails, because a test that measured nothing must not pass.
//!
//! A statement about `limited_by` is about the cause on which the iterations agree, as in the case's summary. Where they
//! agree on none, or the cause is unknown, only a statement about `unknown` is decided.

use crate::stats::{
    confidence::{self, Interval},
    histogram::{column_quantile, needed_observations},
    moments, quantiles,
};
use schemars::JsonSchema;
use schemas::{
    assertion::{Assertion, Difference, Operator},
    words::{LimitedBy, Verdict},
};
use serde::{Deserialize, Serialize};

/// The fewest iterations for which the interval is judged.
const INTERVAL_FROM: usize = 3;

/// Whether the iterations or their mean are judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Judge {
    /// The typical iteration: its confidence interval, from three iterations on
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
    /// `None` without a sample.
    pub observed: Option<f64>,
    /// The statistic of the iterations that was observed: `median`, `mean`, or `worst` where each is judged.
    pub statistic: &'static str,
    /// Of the median, or of the mean if that is judged. Never leaves the range of the metric.
    pub interval: Option<Interval>,
    /// Iterations with a sample.
    pub n: usize,
    /// About how many iterations would decide, given the spread so far; only if inconclusive and computable.
    pub needed: Option<u64>,
    /// The reason, if the numbers do not show it.
    pub reason: Option<String>,
}

impl Judgement {
    /// A verdict alone.
    pub fn of(verdict: Verdict, n: usize) -> Self {
        Self { verdict, observed: None, statistic: "", interval: None, n, needed: None, reason: None }
    }
}

/// Judges `assertion` against one value per iteration at a confidence level. `observations` is the number of
/// transactions behind a latency percentile, if known. A percentile with fewer than ten observations beyond it is
/// inconclusive.
pub fn judge(assertion: &Assertion, samples: &[f64], observations: Option<u64>, level: f64, judge: Judge) -> Judgement {
    let mut samples: Vec<f64> = samples.iter().copied().filter(|v| v.is_finite()).collect();
    quantiles::sort(&mut samples);
    if samples.is_empty() {
        let reason = Some(format!("there is no sample of {}", assertion.metric.name));
        return Judgement { reason, ..Judgement::of(Verdict::Fail, 0) };
    }
    if let Some(cause) = assertion.cause {
        return judge_cause(assertion, cause, &samples);
    }
    if is_about_each(assertion) {
        return judge_each(assertion, &samples);
    }
    let mut judgement = match judge {
        Judge::Ci => judge_typical(assertion, &samples, level),
        Judge::Point => judge_mean(assertion, &samples, level),
    };
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

fn verdict(holds: bool) -> Verdict {
    if holds { Verdict::Pass } else { Verdict::Fail }
}

/// Whether one bad iteration is enough to fail: for exact statements, and for limits at an end of the metric's range,
/// such as a count that must be 0.
fn is_about_each(assertion: &Assertion) -> bool {
    let range = assertion.range();
    matches!(assertion.operator, Operator::Equal | Operator::NotEqual)
        || [range.low, range.high].contains(&assertion.limit)
}

/// Judges the cause on which the iterations agree. The samples are indices of causes.
fn judge_cause(assertion: &Assertion, cause: LimitedBy, samples: &[f64]) -> Judgement {
    let found = crate::limits::agreed(samples.iter().filter_map(|index| LimitedBy::at(*index)));
    let (by, counts) = found.unwrap_or((LimitedBy::Unknown, "no iteration has a cause".to_owned()));
    let outcome = if by == LimitedBy::Unknown && cause != by {
        Verdict::Inconclusive
    } else {
        verdict(assertion.operator.holds(by.index(), assertion.limit))
    };
    Judgement { reason: Some(counts), ..Judgement::of(outcome, samples.len()) }
}

/// Judges whether at least half of all iterations would keep the statement. The samples are sorted.
fn judge_typical(assertion: &Assertion, samples: &[f64], level: f64) -> Judgement {
    let n = samples.len();
    let holds = |value: f64| assertion.operator.holds(value, assertion.limit);
    let broken = samples.iter().filter(|v| !holds(**v)).count();
    // Equal values say nothing of their spread. If some differ, the middle ones may still be equal.
    let varies = samples.first() < samples.last();
    let interval = (n >= INTERVAL_FROM && varies)
        .then(|| confidence::typical_interval(samples, level, assertion.range()))
        .flatten();
    // The limit may lie in the room that the interval of few values leaves around them.
    let includes_limit = interval.is_some_and(|i| holds(i.low) != holds(i.high));
    let outcome = match interval {
        _ if broken == n => Verdict::Fail,
        Some(i) if !includes_limit => verdict(holds(i.low)),
        None if broken == 0 => Verdict::Pass,
        _ => Verdict::Inconclusive,
    };
    let needed = if outcome == Verdict::Inconclusive { needed(broken, n, level) } else { None };
    let iterations = |count: usize| format!("in {count} of {n} iterations");
    let reason = match outcome {
        Verdict::Fail if includes_limit => {
            Some(format!("{}, although the interval includes the limit", iterations(broken)))
        }
        Verdict::Fail => (broken < n || n == 2).then(|| iterations(broken)),
        Verdict::Pass => (broken > 0).then(|| format!("violated {}", iterations(broken))),
        _ => {
            let why = if broken == 0 {
                format!("kept {}, but with too little room", iterations(n))
            } else {
                format!("violated {}", iterations(broken))
            };
            Some(match needed {
                Some(needed) => format!("{why}: needs about {needed} iterations"),
                None => format!("{why}: more of them may not decide"),
            })
        }
    };
    let (observed, statistic) = (quantiles::median(samples), "median");
    Judgement { verdict: outcome, observed, statistic, interval, n, needed, reason }
}

/// About how many iterations would decide, if `broken` of `n` violate the limit: as few as possible if all agree.
fn needed(broken: usize, n: usize, level: f64) -> Option<u64> {
    if broken == 0 {
        return Some(confidence::fewest_for_median(level));
    }
    // Half an iteration on each side: few that agree do not prove that all would.
    let share = (broken as f64 + 0.5) / (n as f64 + 1.0);
    confidence::needed_for_majority(share, level).map(|needed| needed.max(n as u64 + 1))
}

/// Judges the mean, however uncertain.
fn judge_mean(assertion: &Assertion, samples: &[f64], level: f64) -> Judgement {
    let mean = moments::mean(samples);
    let interval = confidence::t_interval(samples, level).map(|i| i.within(assertion.range()));
    let outcome = verdict(mean.is_some_and(|mean| assertion.operator.holds(mean, assertion.limit)));
    let interval = interval.filter(|i| i.half_width() > 0.0);
    Judgement { observed: mean, statistic: "mean", interval, ..Judgement::of(outcome, samples.len()) }
}

/// Judges counts and exact statements: one bad iteration is enough to fail.
fn judge_each(assertion: &Assertion, samples: &[f64]) -> Judgement {
    let broken = samples.iter().copied().filter(|v| !assertion.operator.holds(*v, assertion.limit));
    let distance = |v: &f64| (v - assertion.limit).abs();
    let worst = broken.clone().max_by(|a, b| distance(a).total_cmp(&distance(b)));
    let count = broken.count();
    let of = samples.len();
    Judgement {
        observed: worst.or_else(|| samples.iter().copied().max_by(f64::total_cmp)),
        statistic: "worst",
        reason: (count > 0 && of > 1).then(|| format!("in {count} of {of} iterations")),
        ..Judgement::of(verdict(count == 0), of)
    }
}

/// If there are too few observations for a percentile (ten beyond it): the number needed and the number there.
fn too_few_observations(assertion: &Assertion, observations: Option<u64>) -> Option<(u64, u64)> {
    let subtracted = assertion.difference.as_ref().and_then(Difference::subtracted);
    let quantiles = std::iter::once(assertion.metric).chain(subtracted).filter_map(|m| column_quantile(m.column));
    let needed = quantiles.map(needed_observations).max()?;
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
        assert_eq!(unclear.reason.unwrap(), format!("violated in 1 of 3 iterations: needs about {needed} iterations"));
    }

    #[test]
    fn a_cause_is_that_on_which_the_iterations_agree() {
        use LimitedBy::{Loss, Path, Unknown};
        let of = |text: &str, causes: &[LimitedBy]| {
            let found = judged(text, &causes.iter().map(|cause| cause.index()).collect::<Vec<_>>());
            assert_eq!((found.observed, found.n), (None, causes.len()), "a cause is no number");
            (found.verdict, found.reason.unwrap())
        };
        let (verdict, why) = of("limited_by == path", &[Path, Path, Unknown]);
        assert_eq!((verdict, why.as_str()), (Verdict::Pass, "path in 2 of 3 iterations, unknown in 1"));
        assert_eq!(of("limited_by != path", &[Path; 3]).0, Verdict::Fail);
        assert_eq!(of("limited_by != sender_cpu", &[Path]), (Verdict::Pass, "path in 1 of 1 iteration".into()));
        let (verdict, why) = of("limited_by == path", &[Loss; 4]);
        assert_eq!((verdict, why.as_str()), (Verdict::Fail, "loss in 4 of 4 iterations"));
        // An unknown value neither keeps nor breaks a promise.
        for causes in [[Path, Loss, Unknown], [Unknown; 3], [Path, Loss, Path]] {
            for text in ["limited_by == path", "limited_by != path", "limited_by != sender_cpu"] {
                assert_eq!(of(text, &causes).0, Verdict::Inconclusive, "{text} {causes:?}");
            }
        }
        assert_eq!(of("limited_by == unknown", &[Unknown; 3]).0, Verdict::Pass);
        assert_eq!(judged("limited_by != path", &[]).verdict, Verdict::Fail, "no sample");
    }

    #[test]
    fn what_every_iteration_violates_fails() {
        for values in [[50.0, 60.0, 400.0], [2.0, 157.0, 394.0], [1.0, 1.0, 1.1]] {
            let bad = judged("latency.p99 < 1us", &values);
            assert_eq!(bad.verdict, Verdict::Fail, "{values:?}");
            assert!(bad.interval.is_some_and(|i| i.low > 0.0), "a latency is positive: {bad:?}");
            assert_eq!(judged("latency.p99 > 500us", &values).verdict, Verdict::Fail);
        }
        // The interval alone would not say so.
        let bad = judged("latency.p99 < 10us", &[50.0, 60.0, 400.0]);
        assert_eq!(bad.verdict, Verdict::Fail);
        assert_eq!(bad.reason.unwrap(), "in 3 of 3 iterations, although the interval includes the limit");
        assert_eq!(judged("loss_ratio < 0.1%", &[0.002, 0.01, 0.9]).verdict, Verdict::Fail);
    }

    #[test]
    fn what_every_iteration_keeps_passes_with_room_or_from_six_iterations_on() {
        let [far, near] =
            [judged("latency.p99 < 5ms", &[50.0, 60.0, 400.0]), judged("latency.p99 < 500us", &[50.0, 60.0, 400.0])];
        assert_eq!(far.verdict, Verdict::Pass);
        assert_eq!((near.verdict, near.needed), (Verdict::Inconclusive, Some(6)));
        assert_eq!(
            near.reason.unwrap(),
            "kept in 3 of 3 iterations, but with too little room: needs about 6 iterations"
        );
        let six = judged("latency.p99 < 500us", &[50.0, 60.0, 400.0, 80.0, 450.0, 70.0]);
        assert_eq!((six.verdict, six.observed), (Verdict::Pass, Some(75.0)));
        let most = judged("latency.p99 < 95us", &[90.0, 91.0, 92.0, 93.0, 94.0, 90.5, 91.5, 92.5, 93.5, 400.0]);
        assert_eq!(most.verdict, Verdict::Pass);
        assert_eq!(most.reason.unwrap(), "violated in 1 of 10 iterations");
        let least = judged("latency.p99 > 95us", &[90.0, 91.0, 92.0, 93.0, 94.0, 90.5, 91.5, 92.5, 93.5, 400.0]);
        assert_eq!(least.verdict, Verdict::Fail);
        assert_eq!(least.reason.unwrap(), "in 9 of 10 iterations");
    }

    /// Counts and coarse clocks repeat values: order statistics may coincide, and then the interval has no width.
    #[test]
    fn equal_middle_values_decide_like_others() {
        let equal = [[0.0; 9].as_slice(), &[5.0]].concat();
        let most = judged("retransmits < 3", &equal);
        assert_eq!((most.verdict, most.reason.as_deref()), (Verdict::Pass, Some("violated in 1 of 10 iterations")));
        assert!(most.interval.is_some_and(|i| i.low == 0.0 && i.high == 0.0 && i.level > 0.95));
        let least = judged("retransmits > 3", &equal);
        assert_eq!((least.verdict, least.reason.as_deref()), (Verdict::Fail, Some("in 9 of 10 iterations")));
        // Without a spread an interval cannot be estimated.
        assert_eq!(judged("retransmits < 3", &[1.0; 3]).interval, None);
    }

    #[test]
    fn more_agreement_is_asked_for_at_a_higher_level() {
        let values = [50.0, 60.0, 400.0, 80.0, 450.0, 70.0];
        let assertion = parse("latency.p99 < 500us").unwrap();
        let at = |level| judge(&assertion, &values, None, level, Judge::Ci);
        assert_eq!((at(0.95).verdict, at(0.99).verdict), (Verdict::Pass, Verdict::Inconclusive));
        assert_eq!((at(0.99).needed, at(0.99).interval.map(|i| i.level)), (Some(8), Some(0.99)));
        assert!(at(0.95).interval.unwrap().level > 0.95, "the level that order statistics reach");
    }

    #[test]
    fn a_verdict_agrees_with_its_interval() {
        let values = [0.0, 1.0, 3.0, 60.0, 61.0, 62.0, 63.0, 64.0, 65.0, 400.0, 2e6];
        for n in 3..=values.len() {
            for limit in values.iter().flat_map(|v| [*v, v + 0.5, v / 3.0, v * 7.0]) {
                for operator in ["<", "<=", ">", ">="] {
                    let found = judged(&format!("latency.p99 {operator} {limit}us"), &values[..n]);
                    let Some(i) = found.interval else { continue };
                    assert!(i.low >= 0.0 && found.observed.is_some_and(|o| (i.low..=i.high).contains(&o)));
                    let includes = (i.low..=i.high).contains(&limit);
                    let reason = found.reason.clone().unwrap_or_default();
                    match found.verdict {
                        Verdict::Inconclusive => assert!(includes && !reason.is_empty(), "{found:?}"),
                        Verdict::Fail if reason.contains("although") => assert!(includes, "{found:?}"),
                        _ => assert!(!includes || limit == i.low || limit == i.high, "{limit} {found:?}"),
                    }
                    assert!(found.needed.is_none_or(|needed| needed > n as u64), "{found:?}");
                }
            }
        }
    }

    #[test]
    fn one_or_two_iterations_decide_if_they_agree() {
        assert_eq!(judged("throughput >= 9Gbit/s", &[8.8e9]).verdict, Verdict::Fail);
        let two = judged("throughput >= 9Gbit/s", &[9.2e9, 9.5e9]);
        assert_eq!((two.verdict, two.interval), (Verdict::Pass, None));
        let two = judged("throughput >= 9Gbit/s", &[8.8e9, 9.5e9]);
        assert_eq!(
            (two.verdict, two.reason.unwrap().as_str()),
            (Verdict::Inconclusive, "violated in 1 of 2 iterations: more of them may not decide")
        );
    }

    #[test]
    fn the_mean_is_judged_on_request() {
        let all = [8.8e9, 9.5e9, 9.0e9];
        let point = judge(&parse("throughput >= 9Gbit/s").unwrap(), &all, None, 0.95, Judge::Point);
        assert_eq!((point.verdict, point.observed), (Verdict::Pass, Some(9.1e9)));
        let wild = judge(&parse("latency.p99 < 1us").unwrap(), &[50.0, 60.0, 400.0], None, 0.95, Judge::Point);
        assert_eq!((wild.verdict, wild.interval.map(|i| i.low)), (Verdict::Fail, Some(0.0)));
    }

    #[test]
    fn a_limit_at_the_end_of_a_range_is_about_each_iteration() {
        assert_eq!(judged("loss_ratio <= 0%", &[0.0, 0.0, 1e-6]).verdict, Verdict::Fail);
        assert_eq!(judged("loss_ratio <= 0%", &[0.0, 0.0, 0.0]).verdict, Verdict::Pass);
        assert_eq!(judged("throughput > 0bit/s", &[0.0, 1e9, 1e9]).verdict, Verdict::Fail);
        assert_eq!(judged("busy_ratio >= 100%", &[1.0, 0.999]).verdict, Verdict::Fail);
        assert_eq!(judged("loss_ratio < 0.1%", &[0.0, 0.0, 0.0]).verdict, Verdict::Pass);
        assert_eq!(judged("rate_error < 10%", &[0.0, -0.001, 0.001]).verdict, Verdict::Pass);
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
