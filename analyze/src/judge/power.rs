//! The number of iterations with which a comparison finds a change of a given size.
//!
//! Comparisons of made-up samples are decided by the rule itself, so that the number holds for every test, correction and
//! smallest change that counts.

use super::{
    comparison::{Comparison, Rule, is_no_worse},
    worsening::Worse,
};
use crate::stats::{compare::needed_per_side, confidence::Scale, moments::Moments};
use chacha20::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use schemas::{
    columns::VerdictRow,
    metrics::{Better, Metric},
};
use statrs::distribution::{ChiSquared, ContinuousCDF, Normal};

/// Share of the comparisons that must find the change.
pub const FOUND: f64 = 0.9;

/// Level at which the noise is at most what is assumed: few iterations show it only roughly.
const SURE: f64 = 0.9;

/// Most iterations per side that are tried.
pub const MOST: usize = 256;

/// Comparisons by which a number of iterations is judged.
const TRIALS: usize = 400;

/// The scatter of a metric from one iteration to the next.
#[derive(Clone, Copy, Debug)]
pub struct Noise {
    /// Standard deviation over the mean, as measured.
    pub ratio: f64,
    scale: Scale,
    /// On the scale.
    mean: f64,
    /// On the scale: the upper end of its one-sided interval.
    stddev: f64,
}

impl Noise {
    /// `None`: fewer than two values, or a mean of 0, of which a change has no size.
    pub fn of(values: &[f64], metric: &Metric) -> Option<Self> {
        let scale = Scale::of(metric.range(), values);
        let plain: Moments = values.iter().copied().collect();
        let scaled: Moments = values.iter().map(|v| scale.to(*v)).collect();
        let (mean, stddev) = (scaled.mean()?, scaled.stddev()?);
        let freedom = scaled.count() as f64 - 1.0;
        let least = ChiSquared::new(freedom).ok()?.inverse_cdf(1.0 - SURE);
        let ratio = plain.stddev()? / plain.mean()?.abs();
        ratio.is_finite().then(|| Self { ratio, scale, mean, stddev: stddev * (freedom / least).sqrt() })
    }

    /// The smallest number of iterations per side with which a change for the worse by `change` is found, as one of so many
    /// comparisons, in a share of [`FOUND`]. `None`: more than [`MOST`], or none.
    pub fn needed(&self, metric: &Metric, rule: Rule, change: f64, comparisons: usize) -> Option<usize> {
        let first = needed_per_side(rule.alpha / comparisons.max(1) as f64).unwrap_or(MOST);
        let finds = |n: usize| self.finds(n, metric, rule, change, comparisons);
        let (mut low, mut high) = (first.saturating_sub(1), first);
        while !finds(high) {
            if high >= MOST {
                return None;
            }
            (low, high) = (high, (high * 2).min(MOST));
        }
        while high - low > 1 {
            let middle = usize::midpoint(low, high);
            if finds(middle) { high = middle } else { low = middle }
        }
        Some(high)
    }

    /// Whether enough comparisons of `n` iterations per side find the change.
    fn finds(&self, n: usize, metric: &Metric, rule: Rule, change: f64, comparisons: usize) -> bool {
        let mut rng = ChaCha8Rng::seed_from_u64(rule.seed);
        let worse = Worse::of(rule.better);
        let mut missed = 0;
        for _ in 0..TRIALS {
            let mut value = || self.mean + self.stddev * Normal::standard().inverse_cdf(1.0 - rng.random::<f64>());
            let mut side = || -> Vec<f64> { (0..n).map(|_| self.scale.back(value())).collect() };
            let (base, mut new) = (side(), side());
            for value in &mut new {
                *value = worse.make(*value, Some(metric), change);
            }
            let mut comparison = Comparison::of(&base, &new, rule);
            comparison.decide_among(comparisons);
            missed += usize::from(!comparison.is_noticed());
            if missed as f64 > TRIALS as f64 * (1.0 - FOUND) {
                return false;
            }
        }
        true
    }
}

// A comparison that is tested again and again while iterations are added, until it is decided.
//
// A test that is repeated until it says something says something false more often than once. The level of the intervals
// therefore grows with the number of tests (Bonferroni: α over the tests of all comparisons): with 1 − α all of them hold
// the true change, at every look. A statement needs the whole interval on one side of the smallest change that counts, so
// a decision is false with at most α, however the looks depend on each other.

/// The numbers of iterations at which a comparison is tested: from the first on, each twice the one before, and the last.
pub fn looks(first: u32, last: u32) -> Vec<u32> {
    let doubled = std::iter::successors(Some(first.max(1)), |n| n.checked_mul(2));
    doubled.take_while(|n| *n < last).chain([last]).collect()
}

/// The statement of an interval about the smallest change that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// Every value of the interval is a change for the worse that counts.
    Worse,
    /// None is.
    NoWorse,
    Undecided,
}

/// The statement of a comparison's row. A metric that is neither better nor worse gets worse by a change in either direction.
pub fn said(metric: &Metric, row: &VerdictRow) -> Said {
    let (Some(low), Some(high), Some(least)) = (row.ci_low_ratio, row.ci_high_ratio, row.limit_ratio) else {
        return Said::Undecided;
    };
    let is_beyond = match metric.better {
        Better::Higher => high <= -least,
        Better::Lower => low >= least,
        Better::Neither => high <= -least || low >= least,
    };
    match () {
        () if is_beyond => Said::Worse,
        () if is_no_worse(metric.better, (low, high), least) => Said::NoWorse,
        () => Said::Undecided,
    }
}

#[cfg(test)]
mod tests;
