//! Bootstrap intervals: no assumption about the distribution, and the same result for the same seed.

use super::{confidence::Interval, quantiles};
use chacha20::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use statrs::distribution::{ContinuousCDF, Normal};

/// Resamples per interval. The noise of the interval's ends is then well below a tenth of its length.
pub const RESAMPLES: usize = 10_000;

/// The fewest values per side worth resampling. Resamples of fewer repeat the same few medians and means, and the
/// interval is too narrow.
pub const FEWEST: usize = 8;

/// The default seed.
pub const SEED: u64 = 1;

/// The BCa interval (bias-corrected and accelerated; Efron, Journal of the American Statistical Association 82, 1987)
/// of `statistic` of one sample. The bias z₀ is the normal quantile of the share of resamples below the estimate, ties
/// counting half. The acceleration comes from the jackknife. `None` for fewer than two values, a level outside (0, 1),
/// an undefined statistic or an infinite z₀.
pub fn bca(values: &[f64], level: f64, seed: u64, statistic: impl Fn(&[f64]) -> Option<f64>) -> Option<Interval> {
    Resampled::of(&[values], seed, |samples: &[&[f64]]| statistic(samples[0]))?.interval(level)
}

/// The BCa interval of a statistic of two independent samples, such as the ratio of their medians, and the two-sided p
/// of that statistic being 0. p is the smallest α for which the interval of level 1 − α excludes 0, and at least about
/// 2 ÷ [`RESAMPLES`].
pub fn bca_two(
    a: &[f64],
    b: &[f64],
    level: f64,
    seed: u64,
    statistic: impl Fn(&[f64], &[f64]) -> Option<f64>,
) -> Option<(Interval, f64)> {
    let resampled = Resampled::of(&[a, b], seed, |samples: &[&[f64]]| statistic(samples[0], samples[1]))?;
    Some((resampled.interval(level)?, resampled.p()))
}

/// The distribution of a statistic over resamples, with BCa's corrections.
struct Resampled {
    estimate: f64,
    /// Sorted.
    replicates: Vec<f64>,
    z0: f64,
    acceleration: f64,
    n: u64,
}

impl Resampled {
    fn of(samples: &[&[f64]], seed: u64, statistic: impl Fn(&[&[f64]]) -> Option<f64>) -> Option<Self> {
        if samples.iter().any(|s| s.len() < 2) {
            return None;
        }
        let estimate = statistic(samples)?;
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut resample: Vec<Vec<f64>> = samples.iter().map(|s| s.to_vec()).collect();
        let mut replicates = Vec::with_capacity(RESAMPLES);
        for _ in 0..RESAMPLES {
            for (out, sample) in resample.iter_mut().zip(samples) {
                out.fill_with(|| sample[rng.random_range(0..sample.len())]);
            }
            let views: Vec<&[f64]> = resample.iter().map(Vec::as_slice).collect();
            replicates.extend(statistic(&views));
        }
        if replicates.is_empty() {
            return None;
        }
        quantiles::sort(&mut replicates);
        let z0 = Normal::standard().inverse_cdf(share_below(&replicates, estimate));
        let acceleration = acceleration(samples, &statistic).filter(|a| a.is_finite())?;
        let n = samples.iter().map(|s| s.len() as u64).sum();
        z0.is_finite().then_some(Self { estimate, replicates, z0, acceleration, n })
    }

    fn interval(&self, level: f64) -> Option<Interval> {
        if !(level > 0.0 && level < 1.0) {
            return None;
        }
        let normal = Normal::standard();
        let end = |p: f64| {
            let z = self.z0 + normal.inverse_cdf(p);
            quantiles::quantile(&self.replicates, normal.cdf(self.z0 + z / (1.0 - self.acceleration * z)))
        };
        let tail = (1.0 - level) / 2.0;
        Some(Interval { centre: self.estimate, low: end(tail)?, high: end(1.0 - tail)?, level, n: self.n })
    }

    /// Solves the equation of the interval's end for the tail at which that end is 0.
    fn p(&self) -> f64 {
        let normal = Normal::standard();
        let least = 1.0 / (self.replicates.len() as f64 + 1.0);
        let d = normal.inverse_cdf(share_below(&self.replicates, 0.0).clamp(least, 1.0 - least)) - self.z0;
        let tail = normal.cdf(d / (1.0 + self.acceleration * d) - self.z0);
        (2.0 * tail.min(1.0 - tail)).clamp(2.0 * least, 1.0)
    }
}

/// The share of sorted values below `value`, ties counting half.
fn share_below(sorted: &[f64], value: f64) -> f64 {
    let below = sorted.partition_point(|r| *r < value);
    let not_above = sorted.partition_point(|r| *r <= value);
    f64::midpoint(below as f64, not_above as f64) / sorted.len() as f64
}

/// â = Σ_s Σ u³/n_s³ ÷ (6 · (Σ_s Σ u²/n_s²)^{3/2}) with u = (n_s − 1)(θ̄ − θ₋ᵢ): the jackknife influence values of each
/// sample s.
fn acceleration(samples: &[&[f64]], statistic: &impl Fn(&[&[f64]]) -> Option<f64>) -> Option<f64> {
    let (mut cubes, mut squares) = (0.0, 0.0);
    for (s, sample) in samples.iter().enumerate() {
        let n = sample.len() as f64;
        let mut left_out = Vec::with_capacity(sample.len());
        for i in 0..sample.len() {
            let rest: Vec<f64> = sample.iter().enumerate().filter(|(j, _)| *j != i).map(|(_, v)| *v).collect();
            let mut views = samples.to_vec();
            views[s] = &rest;
            left_out.push(statistic(&views)?);
        }
        let mean = left_out.iter().sum::<f64>() / n;
        for theta in left_out {
            let u = (n - 1.0) * (mean - theta);
            cubes += (u / n).powi(3);
            squares += (u / n).powi(2);
        }
    }
    Some(if squares > 0.0 { cubes / (6.0 * squares.powf(1.5)) } else { 0.0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::moments::mean;

    #[test]
    fn the_seed_decides() {
        let values = [1.017, 2.113, 4.271, 8.909, 16.331, 3.777, 5.519, 7.043];
        let one = bca(&values, 0.95, 1, mean).unwrap();
        assert_eq!(Some(one), bca(&values, 0.95, 1, mean));
        assert_ne!(Some(one), bca(&values, 0.95, 2, mean));
        assert!(one.low < one.centre && one.centre < one.high);
    }

    #[test]
    fn p_and_interval_say_the_same() {
        let a: Vec<f64> = (0..12).map(|i| 100.0 + f64::from(i * 7 % 12)).collect();
        for by in [-9.0, -4.0, 0.3, 2.0, 5.0, 30.0] {
            let b: Vec<f64> = a.iter().map(|v| v + by).collect();
            let difference = |a: &[f64], b: &[f64]| Some(mean(b)? - mean(a)?);
            for level in [0.9, 0.95, 0.99] {
                let (i, p) = bca_two(&a, &b, level, 1, difference).unwrap();
                assert_eq!(p <= 1.0 - level, i.low > 0.0 || i.high < 0.0, "{by} {level}: {p} {i:?}");
            }
        }
        let far = bca_two(&a, &[500.0, 501.0, 502.0], 0.95, 1, |a, b| Some(mean(b)? - mean(a)?)).unwrap();
        assert!(far.1 > 0.0 && far.1 < 0.001, "{far:?}");
    }

    #[test]
    fn what_cannot_be_resampled() {
        assert!(bca(&[1.0], 0.95, 1, mean).is_none());
        assert!(bca(&[1.0, 2.0], 1.5, 1, mean).is_none());
        let same = bca(&[3.0; 5], 0.95, 1, mean).unwrap();
        assert_eq!((same.low, same.high), (3.0, 3.0));
    }
}
