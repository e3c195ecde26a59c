//! The tail of a survey's noise on its slow side.
//!
//! A residual of five standard deviations is rare where the noise is normal, and common where it has a heavy tail. So the
//! limit for links comes from Student's t whose tail, against its own middle, is as heavy as that of the residuals. Its
//! degrees of freedom are those at which the 98th percentile over the 75th is the observed one: a match of quantiles, which
//! the slow links themselves do not move far while they are fewer than 2 %.

use super::fit::QUARTILE;
use crate::stats::{confidence::t_quantile, quantiles};

/// Residuals from which on the tail is looked at: a tail of fewer says nothing.
const FEWEST: usize = 200;

/// The percentile that is compared.
const TAIL: f64 = 0.98;

/// Standard error of that percentile over the scale by the median absolute value, of n normal residuals, times √n: of the
/// percentile √(q(1 − q)) ÷ φ(2.05) = 2.89, of the scale 2.05 · 1.17, together.
const ERROR: f64 = 3.8;

/// Standard errors by which a tail must exceed the normal one to count as heavy.
const EVIDENCE: f64 = 3.0;

/// How far into the tail of heavy-tailed noise the share `p` of the residuals lies, in the residuals' unit. `None` for
/// noise that looks normal, and for few residuals. Residuals are positive on the slow side.
pub fn limit(residuals: &[f64], p: f64) -> Option<f64> {
    if residuals.len() < FEWEST {
        return None;
    }
    let mut sorted = residuals.to_vec();
    quantiles::sort(&mut sorted);
    let centre = quantiles::median(&sorted)?;
    let tail = quantiles::quantile(&sorted, TAIL)? - centre;
    let mut absolute: Vec<f64> = sorted.iter().map(|r| (r - centre).abs()).collect();
    let middle = quantiles::select_median(&mut absolute).filter(|m| *m > 0.0)?;
    let normal = t_quantile(TAIL, 1e6)?;
    if tail / middle <= (normal + EVIDENCE * ERROR / (residuals.len() as f64).sqrt()) / QUARTILE {
        return None;
    }
    // Skewed noise is wider on its slow side than its middle is.
    let slow = quantiles::quantile(&sorted, 0.75)? - centre;
    let ratio = tail / slow;
    // The ratio falls with the degrees of freedom.
    let of = |freedom: f64| Some(t_quantile(TAIL, freedom)? / t_quantile(0.75, freedom)?);
    let (mut low, mut high): (f64, f64) = (1.0, 200.0);
    for _ in 0..40 {
        let between = (low * high).sqrt();
        if of(between)? > ratio { low = between } else { high = between }
    }
    Some(slow * t_quantile(1.0 - p, low)? / t_quantile(0.75, low)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The quantiles of Student's t: a sample without chance.
    fn sample(freedom: f64, count: u32) -> Vec<f64> {
        (0..count).map(|i| t_quantile((f64::from(i) + 0.5) / f64::from(count), freedom).unwrap()).collect()
    }

    #[test]
    fn heavy_tails_are_extrapolated_and_normal_ones_left_alone() {
        assert_eq!(limit(&sample(1e6, 1000), 1e-5), None);
        assert_eq!(limit(&sample(3.0, 150), 1e-5), None, "too few to tell");
        for freedom in [2.0, 3.0, 4.0] {
            let truth = t_quantile(1.0 - 1e-5, freedom).unwrap();
            let found = limit(&sample(freedom, 1000), 1e-5).unwrap();
            assert!((found / truth - 1.0).abs() < 0.1, "{freedom}: {found} for {truth}");
        }
    }
}
