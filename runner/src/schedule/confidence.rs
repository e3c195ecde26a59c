//! Whether a case has enough iterations: Student's t, metric by metric.

use analyze::stats::{
    confidence::{needed_for_margin, t_interval_of},
    moments::Moments,
    series::{self, Drift},
};
use schemas::metrics::Metric;

use crate::plan::case::Policy;

/// Precision of a metric so far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reached {
    /// Half-width of the confidence interval over the mean; `None`: undefined (fewer than two iterations, a mean of zero,
    /// or a metric that the case does not produce).
    pub margin: Option<f64>,
    /// Iterations needed at the variation seen so far; `None`: unknown.
    pub needed: Option<u64>,
}

/// The values of a case's metrics, iteration by iteration.
#[derive(Clone, Debug)]
pub struct Samples {
    policy: Policy,
    moments: Vec<Moments>,
    /// Values of the first metric in order of time, for drift and serial correlation.
    headline: Vec<f64>,
}

impl Samples {
    pub fn new(policy: Policy) -> Self {
        let moments = vec![Moments::default(); policy.metrics.len()];
        Self { policy, moments, headline: Vec::new() }
    }

    /// Adds the measured row of an iteration.
    pub fn push(&mut self, row: &schemas::columns::Row) {
        for (i, (metric, moments)) in self.policy.metrics.iter().zip(&mut self.moments).enumerate() {
            if let Some(value) = row.number(metric.column) {
                moments.push(value);
                if i == 0 {
                    self.headline.push(value);
                }
            }
        }
    }

    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// In the order of the policy's metrics.
    pub fn reached(&self) -> Vec<Reached> {
        self.moments
            .iter()
            .map(|m| Reached {
                margin: margin(m, self.policy.level),
                needed: self.policy.margin.and_then(|goal| needed_for_margin(m, self.policy.level, goal)),
            })
            .collect()
    }

    /// The worst margin of all metrics; `None`: one is undefined.
    pub fn worst_margin(&self) -> Option<f64> {
        self.reached().into_iter().map(|r| r.margin).reduce(|a, b| Some(a?.max(b?))).flatten()
    }

    /// Whether every metric is inside its margin; `None`: the policy asks for none.
    pub fn confident(&self) -> Option<bool> {
        let goal = self.policy.margin?;
        Some(self.worst_margin().is_some_and(|m| m <= goal))
    }

    /// Whether this many finished iterations are enough.
    pub fn enough(&self, finished: u32) -> bool {
        finished >= self.policy.max || (finished >= self.policy.min && self.confident() == Some(true))
    }

    /// The mean of that metric, if it is the first.
    pub fn mean_of(&self, metric: &Metric) -> Option<f64> {
        let first = self.policy.metrics.first().filter(|first| first.column == metric.column);
        first.and(self.moments.first())?.mean()
    }

    pub fn stddev(&self) -> Option<f64> {
        self.moments.first()?.stddev()
    }

    /// Change of the headline along its fitted line, first iteration to last, over its mean. Needs three iterations.
    pub fn drift_ratio(&self) -> Option<f64> {
        series::drift(&self.headline).map(|drift| drift.ratio)
    }

    /// The drift of the headline, if chance does not explain it.
    pub fn drift(&self) -> Option<Drift> {
        series::drifting(&self.headline)
    }

    /// Lag-1 autocorrelation of the headline, if the iterations are not independent.
    pub fn serial_correlation(&self) -> Option<f64> {
        series::correlated(&self.headline).then(|| series::lag1(&self.headline)).flatten()
    }
}

/// The relative half-width; 0 where all values are the same, even zero.
fn margin(moments: &Moments, level: f64) -> Option<f64> {
    let interval = t_interval_of(moments, level)?;
    if interval.half_width() == 0.0 { Some(0.0) } else { interval.margin_ratio() }
}

#[cfg(test)]
mod tests {
    use schemas::{columns::Row, metrics};

    use super::*;

    fn samples(min: u32, max: u32, margin: Option<f64>, values: &[f64]) -> Samples {
        let metrics = vec![metrics::find("throughput").unwrap()];
        let mut samples = Samples::new(Policy { min, max, level: 0.95, margin, metrics });
        for value in values {
            samples.push(&Row { throughput_bits_per_s: Some(*value), ..Row::default() });
        }
        samples
    }

    #[test]
    fn a_count_is_a_count() {
        let s = samples(3, 3, None, &[1.0, 2.0]);
        let mean = |name| s.mean_of(metrics::find(name).unwrap());
        assert_eq!((mean("throughput"), mean("latency.p50")), (Some(1.5), None));
        assert!(!s.enough(2));
        assert!(s.enough(3));
        assert_eq!(s.confident(), None);
    }

    #[test]
    fn confidence_stops_between_min_and_max() {
        let steady = samples(3, 30, Some(0.025), &[100.0, 100.1, 99.9]);
        assert!(!steady.enough(2) && steady.enough(3));
        let wild = samples(3, 5, Some(0.025), &[100.0, 150.0, 50.0]);
        assert!(!wild.enough(3) && wild.enough(5));
        assert_eq!(wild.confident(), Some(false));
        // s = 50, mean 100: t(0.975, n−1)·0.5/√n ≤ 0.025 first at n = 1539.
        assert!((1530..1550).contains(&wild.reached()[0].needed.unwrap()));
    }

    #[test]
    fn a_metric_that_never_appears_is_never_confident() {
        let mut s = samples(2, 4, Some(0.1), &[]);
        s.push(&Row::default());
        s.push(&Row::default());
        assert_eq!((s.confident(), s.enough(3), s.enough(4)), (Some(false), false, true));
    }

    #[test]
    fn equal_values_leave_no_doubt() {
        assert_eq!(samples(2, 9, Some(0.01), &[0.0, 0.0]).confident(), Some(true));
    }

    #[test]
    fn drift_is_the_fitted_change_over_the_mean() {
        let drift = samples(1, 9, None, &[90.0, 100.0, 110.0]).drift_ratio().unwrap();
        assert!((drift - 0.2).abs() < 1e-12);
        assert_eq!(samples(1, 9, None, &[90.0, 100.0]).drift_ratio(), None);
        // Ten per cent, but three values lie on a line by chance.
        assert_eq!(samples(1, 9, None, &[90.0, 100.0, 111.0]).drift(), None);
        assert!(samples(1, 9, None, &[90.0, 95.0, 101.0, 105.0, 110.0]).drift().unwrap().ratio > 0.15);
    }

    #[test]
    fn only_iterations_that_resemble_each_other_are_correlated() {
        let alternating: Vec<f64> = (0..8).map(|i| if i % 2 == 0 { 1.0 } else { 3.0 }).collect();
        assert_eq!(samples(1, 9, None, &alternating).serial_correlation(), None);
        let runs = [1.0, 1.0, 1.0, 1.0, 3.0, 3.0, 3.0, 3.0];
        assert!(samples(1, 9, None, &runs).serial_correlation().unwrap() > 0.6);
        assert_eq!(samples(1, 9, None, &runs[1..]).serial_correlation(), None, "seven say nothing");
    }
}
