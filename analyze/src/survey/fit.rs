//! The robust two-way fit.
//!
//! Median polish (Tukey, *Exploratory Data Analysis*, 1977, chapter 11) finds effects that a minority of bad pairs in a
//! row or column cannot move. It starts an M-estimate with Tukey's bisquare, whose scale comes from the start's residuals
//! and stays: the method of Maronna, Martin and Yohai (*Robust Statistics*, 2006, sections 4.4 and 4.5) for designs
//! without leverage points. The bisquare has 95 % of the efficiency of least squares where the noise is normal.

use super::design::{Design, Side};
use crate::stats::quantiles::select_median;

/// Bisquare's constant for 95 % efficiency.
const TUNING: f64 = 4.685;
const EFFICIENCY: f64 = 0.95;

/// The standard normal's upper quartile: the median of its absolute values.
pub const QUARTILE: f64 = 0.674_489_750_196_081_7;

/// Least weight of an observation, so that a row of bad pairs alone still has an estimate.
const LEAST_WEIGHT: f64 = 1e-6;

#[derive(Clone, Debug)]
pub struct Fit {
    /// By column. The effects of each side have the median 0 in each group.
    pub beta: Vec<f64>,
    /// By observation.
    pub residuals: Vec<f64>,
    pub weights: Vec<f64>,
    /// Standard deviation of the noise of a pair.
    pub noise: f64,
    /// Observations less columns.
    pub freedom: f64,
    /// Standard deviation of an estimate, per square root of what [`super::design::Factor::variance`] gives.
    pub error: f64,
}

/// Fits a design. Noise below `least_noise` counts as that much. `None` if the effects take up all observations.
pub fn fit(design: &Design, rank: usize, least_noise: f64) -> Option<Fit> {
    let count = design.observations.len();
    let freedom = count.checked_sub(rank).filter(|f| *f > 0)? as f64;
    let mut beta = median_polish(design);
    let mut residuals = design.residuals(&beta);
    let scale = start_scale(&residuals, rank).max(least_noise);
    let mut weights = vec![1.0; count];
    for _ in 0..50 {
        for (weight, residual) in weights.iter_mut().zip(&residuals) {
            *weight = bisquare(residual / scale).max(LEAST_WEIGHT);
        }
        let next = design.solve(&weights);
        let after = design.residuals(&next);
        let moved = residuals.iter().zip(&after).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        (beta, residuals) = (next, after);
        if moved < 1e-4 * scale {
            break;
        }
    }
    centre(design, &mut beta);
    // Huber, *Robust Statistics*, 1981, section 7.6: the covariance of regression M-estimates, with his correction K.
    let (mut psi_squares, mut slope, mut slope_squares) = (0.0, 0.0, 0.0);
    for residual in &residuals {
        let u = residual / scale / TUNING;
        let inside = (1.0 - u * u).max(0.0);
        let psi = residual / scale * inside * inside;
        let derivative = if inside > 0.0 { inside * (1.0 - 5.0 * u * u) } else { 0.0 };
        psi_squares += psi * psi;
        slope += derivative;
        slope_squares += derivative * derivative;
    }
    let mean_slope = (slope / count as f64).max(0.1);
    let variation = (slope_squares / count as f64 - mean_slope * mean_slope).max(0.0);
    let correction = 1.0 + rank as f64 / count as f64 * variation / (mean_slope * mean_slope);
    let error = (correction * scale * (psi_squares / freedom).sqrt() / mean_slope).max(least_noise);
    Some(Fit { beta, residuals, weights, noise: error * EFFICIENCY.sqrt(), freedom, error })
}

fn bisquare(u: f64) -> f64 {
    let inside = (1.0 - (u / TUNING).powi(2)).max(0.0);
    inside * inside
}

/// Scale of the start's residuals: the median of the absolute ones without the smallest, as many as the model has
/// unknowns, since such a fit passes exactly through about as many observations (Maronna, Martin and Yohai, 4.4).
fn start_scale(residuals: &[f64], rank: usize) -> f64 {
    let mut absolute: Vec<f64> = residuals.iter().map(|r| r.abs()).collect();
    absolute.sort_unstable_by(f64::total_cmp);
    select_median(&mut absolute[rank..]).unwrap_or(0.0) / QUARTILE
}

/// Takes the medians of rows and columns out in turns until they stay.
fn median_polish(design: &Design) -> Vec<f64> {
    let mut beta = vec![0.0; design.columns];
    let mut residuals: Vec<f64> = design.observations.iter().map(|o| o.y).collect();
    let mut members = vec![Vec::new(); design.columns];
    for (i, observation) in design.observations.iter().enumerate() {
        for column in observation.columns() {
            members[column].push(i);
        }
    }
    let mut values = Vec::new();
    for _ in 0..20 {
        let mut moved: f64 = 0.0;
        for (column, members) in members.iter().enumerate() {
            values.clear();
            values.extend(members.iter().map(|i| residuals[*i]));
            let median = select_median(&mut values).unwrap_or(0.0);
            for i in members {
                residuals[*i] -= median;
            }
            beta[column] += median;
            moved = moved.max(median.abs());
        }
        if moved < 1e-7 {
            break;
        }
    }
    beta
}

/// Moves the medians of the effects into the levels.
fn centre(design: &Design, beta: &mut [f64]) {
    for level in 0..design.levels {
        for side in Side::BOTH {
            let mut effects: Vec<f64> = design.side(side, level).map(|(_, column)| beta[column]).collect();
            let Some(median) = select_median(&mut effects) else { continue };
            beta[level] += median;
            for (_, column) in design.side(side, level) {
                beta[column] -= median;
            }
        }
    }
}
