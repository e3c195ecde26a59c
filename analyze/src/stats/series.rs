//! Values in the order of time: independence, drift and the end of the warm-up.

use super::moments::Moments;

/// The lag-1 autocorrelation Σ(xᵢ − x̄)(xᵢ₊₁ − x̄) ÷ Σ(xᵢ − x̄)² (Box and Jenkins). `None` for fewer than three values
/// or if nothing varies.
pub fn lag1(values: &[f64]) -> Option<f64> {
    if values.len() < 3 {
        return None;
    }
    let mean = super::moments::mean(values)?;
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    let products: f64 = values.windows(2).map(|w| (w[0] - mean) * (w[1] - mean)).sum();
    (squares > 0.0).then(|| products / squares)
}

/// Values are called serially correlated above this lag-1 autocorrelation, if there are [`CORRELATED_FROM`] of them. An
/// interval of nominally 95 % then covers less than about 80 %.
pub const CORRELATED: f64 = 0.4;
/// The fewest values for a statement about autocorrelation.
pub const CORRELATED_FROM: usize = 8;

/// Whether values that should be independent are not; `false` for fewer than [`CORRELATED_FROM`].
pub fn correlated(values: &[f64]) -> bool {
    values.len() >= CORRELATED_FROM && lag1(values).is_some_and(|r| r > CORRELATED)
}

/// A straight line through values at 0, 1, 2 …
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drift {
    /// Change per step.
    pub slope: f64,
    /// Change from the first to the last value along the line, over the mean's magnitude.
    pub ratio: f64,
    /// Two-sided p of the slope being 0 (t test with n − 2 degrees of freedom).
    pub p: f64,
}

/// The least-squares line through equally spaced values. `None` for fewer than three values or a mean of 0.
pub fn drift(values: &[f64]) -> Option<Drift> {
    let x: Vec<f64> = (0..values.len()).map(|i| i as f64).collect();
    let fit = line(&x, values)?;
    let mean = super::moments::mean(values)?;
    let ratio = fit.slope * (values.len() - 1) as f64 / mean.abs();
    ratio.is_finite().then_some(Drift { slope: fit.slope, ratio, p: fit.p? })
}

/// The fewest values for a statement about drift.
pub const DRIFTING_FROM: usize = 5;
/// A drift counts if chance produces one as large less often than this.
const DRIFTING_P: f64 = 0.01;

/// The drift of values that should have none; `None` for fewer than [`DRIFTING_FROM`] values or if chance explains it.
pub fn drifting(values: &[f64]) -> Option<Drift> {
    drift(values).filter(|d| values.len() >= DRIFTING_FROM && d.p < DRIFTING_P)
}

/// A least-squares line y = intercept + slope · x.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    /// y at x = 0.
    pub intercept: f64,
    /// Change of y per x.
    pub slope: f64,
    /// Coefficient of determination, 0 … 1; `None` where y does not vary.
    pub r2: Option<f64>,
    /// Two-sided p of the slope being 0; `None` for two points.
    pub p: Option<f64>,
}

/// Ordinary least squares. `None` for fewer than two points or if x does not vary.
pub fn line(x: &[f64], y: &[f64]) -> Option<Line> {
    use statrs::distribution::{ContinuousCDF, StudentsT};
    let n = x.len().min(y.len());
    let (mx, my): (Moments, Moments) = (x[..n].iter().copied().collect(), y[..n].iter().copied().collect());
    let (mean_x, mean_y) = (mx.mean()?, my.mean()?);
    let (mut sxx, mut sxy, mut syy) = (0.0, 0.0, 0.0);
    for (x, y) in x.iter().zip(y) {
        sxx += (x - mean_x).powi(2);
        sxy += (x - mean_x) * (y - mean_y);
        syy += (y - mean_y).powi(2);
    }
    if n < 2 || sxx == 0.0 {
        return None;
    }
    let slope = sxy / sxx;
    let left = (syy - slope * sxy).max(0.0);
    let df = n as f64 - 2.0;
    let p = (df >= 1.0).then(|| {
        let t = slope / (left / df / sxx).sqrt();
        match t {
            // No slope and no scatter: nothing to see. A slope without scatter: certain.
            t if t.is_nan() => 1.0,
            t if t.is_infinite() => 0.0,
            t => StudentsT::new(0.0, 1.0, df).map_or(1.0, |d| 2.0 * d.sf(t.abs())),
        }
    });
    Some(Line { intercept: mean_y - slope * mean_x, slope, r2: (syy > 0.0).then(|| 1.0 - left / syy), p })
}

/// Result of [`warm_up`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WarmUp {
    /// Too few values to tell: MSER-5 needs ten batches of five.
    TooShort,
    /// The start is like the rest.
    None,
    /// The warm-up is this many values.
    Until(usize),
    /// Half of the values are not enough: measure longer.
    NotOver,
}

/// Values per batch of MSER-5.
pub const BATCH: usize = 5;
/// The fewest batches with a useful variance.
const BATCHES: usize = 10;
/// A cut counts if the mean before it differs from the mean after it by more than this many standard errors.
const GUARD: f64 = 3.0;

/// The end of the warm-up, by MSER-5 (White, Cobb and Spratt, Winter Simulation Conference 2000) with a guard. Of all
/// cuts d up to half of the batches of five, MSER takes the one that minimises Σ_{i ≥ d}(xᵢ − x̄_d)² ÷ (k − d)². Alone
/// it cuts stationary noise in four runs of ten. So a cut counts only if the mean before it differs from the mean after
/// it by more than three standard errors, given the serial correlation of each part: n_eff = n(1 − ρ)/(1 + ρ).
pub fn warm_up(values: &[f64]) -> WarmUp {
    let batches: Vec<f64> = values.chunks_exact(BATCH).map(|b| b.iter().sum::<f64>() / BATCH as f64).collect();
    let k = batches.len();
    if k < BATCHES {
        return WarmUp::TooShort;
    }
    let last = k / 2;
    // From the end, so that each step adds one batch to the moments of the rest.
    let mut rest = Moments::default();
    let mut best = (f64::INFINITY, 0);
    for d in (0..k).rev() {
        rest.push(batches[d]);
        if d <= last {
            let left = (k - d) as f64;
            let score = rest.variance().unwrap_or(0.0) * (left - 1.0) / (left * left);
            if score <= best.0 {
                best = (score, d);
            }
        }
    }
    let cut = best.1 * BATCH;
    if cut == 0 || !differs(&values[..cut], &values[cut..]) {
        return WarmUp::None;
    }
    if best.1 >= last { WarmUp::NotOver } else { WarmUp::Until(cut) }
}

/// The fewest values for which [`settled`] can be true.
pub const SETTLED_FROM: usize = BATCH * BATCHES;
/// The largest drift of a settled load, over its mean.
pub const SETTLED_DRIFT: f64 = 0.05;

/// Whether a running load has settled, judged by equally long intervals since its start. [`warm_up`] must find the end
/// of the transient in the first half of them, and the rest must not drift ([`drifting`]) by more than
/// [`SETTLED_DRIFT`]. If nothing happens in half of the intervals or more, they are too short to tell.
pub fn settled(values: &[f64]) -> bool {
    let flat = match warm_up(values) {
        WarmUp::None => values,
        WarmUp::Until(cut) => &values[cut..],
        WarmUp::TooShort | WarmUp::NotOver => return false,
    };
    flat.iter().filter(|value| **value > 0.0).count() * 2 > flat.len()
        && drifting(flat).is_none_or(|drift| drift.ratio.abs() <= SETTLED_DRIFT)
}

fn differs(head: &[f64], tail: &[f64]) -> bool {
    let (a, b): (Moments, Moments) = (head.iter().copied().collect(), tail.iter().copied().collect());
    // The warm-up's own spread is the ramp, not noise: the rest's noise is what a cut has to stand out from.
    let Some(variance) = b.variance() else { return false };
    let rho = lag1(tail).unwrap_or(0.0).clamp(0.0, 0.99);
    let effective = |n: usize| (n as f64 * (1.0 - rho) / (1.0 + rho)).max(1.0);
    let error = (variance / effective(head.len()) + variance / effective(tail.len())).sqrt();
    match (a.mean(), b.mean()) {
        (Some(a), Some(b)) => (a - b).abs() > GUARD * error,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chacha20::ChaCha8Rng;
    use rand::{RngExt, SeedableRng};

    /// 100 values of autocorrelated noise around 100, as intervals of 100 ms are.
    fn noise(seed: u64, ramp: Option<f64>) -> Vec<f64> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut state = 0.0;
        (0..100)
            .map(|i| {
                state = 0.5 * state + rng.random_range(-3.0..3.0);
                100.0 + state - ramp.map_or(0.0, |tau| 60.0 * (-f64::from(i) / tau).exp())
            })
            .collect()
    }

    #[test]
    fn correlation_needs_values() {
        assert_eq!(lag1(&[1.0, 2.0]), None);
        assert_eq!(lag1(&[2.0; 5]), None);
        assert!(lag1(&[1.0, -1.0, 1.0, -1.0]).unwrap() < -0.7);
        assert!(correlated(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]));
        assert!(!correlated(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]));
    }

    #[test]
    fn drift_is_relative_to_the_mean() {
        let d = drift(&[95.0, 100.0, 105.0]).unwrap();
        assert!((d.ratio - 0.1).abs() < 1e-12 && d.p < 1e-6, "{d:?}");
        assert_eq!(drift(&[5.0, 5.0, 5.0]).unwrap().p, 1.0);
        assert_eq!(drift(&[1.0, 2.0]), None);
    }

    #[test]
    fn stationary_noise_is_rarely_cut() {
        let cut = (0..100).filter(|seed| !matches!(warm_up(&noise(*seed, None)), WarmUp::None)).count();
        assert!(cut <= 10, "{cut} of 100");
    }

    #[test]
    fn a_load_has_settled_once_its_ramp_is_the_smaller_part() {
        // Judged again after each batch, as a warm-up is: when is it over?
        let over = |values: &[f64]| (1..=values.len() / 5).map(|n| n * 5).find(|n| settled(&values[..*n]));
        let (mut early, mut found) = (0, 0);
        for seed in 0..100 {
            found += usize::from(over(&noise(seed, None)).is_some_and(|n| n <= 70));
            // After 50 values, a ramp with a time constant of 25 has an eighth of its height before it.
            early += usize::from(over(&noise(seed, Some(25.0))).is_some_and(|n| n < 75));
        }
        assert!(found >= 95, "{found} of 100 steady loads");
        assert!(early <= 10, "{early} of 100 ramps");
        assert!(!settled(&noise(1, None)[..49]));
        let rising: Vec<f64> = (0..100).map(f64::from).collect();
        assert_eq!(over(&rising), None);
        let mut rare = [0.0; 100];
        assert_eq!(over(&rare), None, "nothing moves");
        (rare[0], rare[49]) = (1000.0, 1000.0);
        assert_eq!(over(&rare), None, "two events are no state");
        assert_eq!(over(&[7.0; 100]), Some(50));
    }

    #[test]
    fn a_ramp_is_found() {
        let found = (0..100)
            .filter(|seed| matches!(warm_up(&noise(*seed, Some(5.0))), WarmUp::Until(5..=50) | WarmUp::NotOver))
            .count();
        assert!(found >= 93, "{found} of 100");
        assert!(warm_up(&[0.0; 49]) == WarmUp::TooShort);
        let rising: Vec<f64> = (0..100).map(f64::from).collect();
        assert_eq!(warm_up(&rising), WarmUp::NotOver);
    }
}
