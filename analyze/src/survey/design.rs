//! The linear model of a survey: which effects its pairs can tell, and the least squares for them.
//!
//! `y(from, to) = level + sender(from) + receiver(to) + residual`

use super::matrix::{Cell, Matrix, Scatter};
use crate::stats::quantiles::select_median;

/// Pairs in one role from which on a host has an effect of its own in that role. With fewer, a bad link among them
/// cannot be told from the host, and they are judged as links.
const FEWEST_PAIRS: usize = 3;

/// A measured pair and the columns of the model that it depends on.
#[derive(Clone, Debug)]
pub struct Observation {
    pub from: usize,
    pub to: usize,
    pub y: f64,
    /// Its iterations, if it has several.
    pub scatter: Option<Scatter>,
    /// The pairs of a round were measured at the same time.
    pub round: Option<u64>,
    level: usize,
    sender: Option<usize>,
    receiver: Option<usize>,
}

impl Observation {
    pub fn iterations(&self) -> f64 {
        self.scatter.map_or(1.0, |scatter| scatter.count as f64)
    }

    pub fn columns(&self) -> impl Iterator<Item = usize> + '_ {
        [Some(self.level), self.sender, self.receiver].into_iter().flatten()
    }
}

/// Side of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Sender,
    Receiver,
}

impl Side {
    pub const BOTH: [Self; 2] = [Self::Sender, Self::Receiver];
}

#[derive(Clone, Debug)]
pub struct Design {
    pub observations: Vec<Observation>,
    /// Columns of levels come first, one per group of hosts that pairs connect.
    pub levels: usize,
    /// All columns: levels, then effects.
    pub columns: usize,
    /// By host: column of its effect as a sender and as a receiver.
    pub effects: Vec<[Option<usize>; 2]>,
    /// Iterations of a pair: the median over the pairs.
    pub iterations: f64,
    /// By column of an effect: the level of its group.
    group: Vec<usize>,
}

impl Design {
    /// The model of a matrix, whose values `y` maps to the scale of the model.
    pub fn new(matrix: &Matrix, y: impl Fn(f64) -> f64) -> Self {
        let n = matrix.len();
        let measured: Vec<(usize, usize, f64)> = matrix
            .pairs()
            .filter_map(|(from, to, cell)| if let Cell::Value(v) = cell { Some((from, to, y(v))) } else { None })
            .collect();
        let mut counts = vec![[0; 2]; n];
        for (from, to, _) in &measured {
            counts[*from][0] += 1;
            counts[*to][1] += 1;
        }
        // Hosts as senders are nodes 0 … n − 1, as receivers n … 2n − 1. Pairs connect them into groups.
        let mut parent: Vec<usize> = (0..2 * n).collect();
        for (from, to, _) in &measured {
            let (a, b) = (root(&mut parent, *from), root(&mut parent, n + to));
            parent[a] = b;
        }
        let has_effect = |node: usize| counts[node % n][node / n] >= FEWEST_PAIRS;
        // Groups without an effect share level 0. So does the first group with one if there are no others.
        let mut levels_of: Vec<Option<usize>> = vec![None; 2 * n];
        let lonely = measured.iter().any(|(from, to, _)| {
            let group = root(&mut parent, *from);
            debug_assert_eq!(group, root(&mut parent, n + to));
            !(0..2 * n).any(|node| has_effect(node) && root(&mut parent, node) == group)
        });
        let mut levels = usize::from(lonely);
        for node in (0..2 * n).filter(|node| has_effect(*node)) {
            let group = root(&mut parent, node);
            if levels_of[group].is_none() {
                levels_of[group] = Some(levels);
                levels += 1;
            }
        }
        let mut columns = levels;
        let mut effects = vec![[None; 2]; n];
        let mut group = vec![0; levels];
        for node in (0..2 * n).filter(|node| has_effect(*node)) {
            effects[node % n][node / n] = Some(columns);
            group.push(levels_of[root(&mut parent, node)].unwrap_or(0));
            columns += 1;
        }
        let observations: Vec<Observation> = measured
            .into_iter()
            .map(|(from, to, y)| Observation {
                from,
                to,
                y,
                scatter: matrix.scatter(from, to),
                round: matrix.round(from, to),
                level: levels_of[root(&mut parent, from)].unwrap_or(0),
                sender: effects[from][0],
                receiver: effects[to][1],
            })
            .collect();
        let mut counts: Vec<f64> = observations.iter().map(Observation::iterations).collect();
        let iterations = select_median(&mut counts).unwrap_or(1.0);
        Self { observations, levels, columns, effects, iterations, group }
    }

    /// The effects of a side in the group of that level: host and column.
    pub fn side(&self, side: Side, level: usize) -> impl Iterator<Item = (usize, usize)> + '_ {
        let column = move |(host, of): (usize, &[Option<usize>; 2])| of[side as usize].map(|column| (host, column));
        self.effects.iter().enumerate().filter_map(column).filter(move |(_, column)| self.group[*column] == level)
    }

    /// The level of an effect's group.
    pub fn level(&self, column: usize) -> usize {
        self.group[column]
    }

    pub fn residuals(&self, beta: &[f64]) -> Vec<f64> {
        self.observations.iter().map(|o| o.y - o.columns().map(|c| beta[c]).sum::<f64>()).collect()
    }

    /// The normal equations' matrix XᵀWX, factored.
    pub fn factor(&self, weights: Option<&[f64]>) -> Factor {
        let mut a = vec![0.0; self.columns * self.columns];
        for (i, observation) in self.observations.iter().enumerate() {
            let weight = weights.map_or(1.0, |w| w[i]);
            for r in observation.columns() {
                for c in observation.columns() {
                    a[r * self.columns + c] += weight;
                }
            }
        }
        Factor::new(a, self.columns)
    }

    /// Weighted least squares.
    fn solve(&self, weights: &[f64]) -> Vec<f64> {
        let mut right = vec![0.0; self.columns];
        for (observation, weight) in self.observations.iter().zip(weights) {
            for c in observation.columns() {
                right[c] += weight * observation.y;
            }
        }
        let factor = self.factor(Some(weights));
        factor.solve(&mut right);
        right
    }
}

fn root(parent: &mut [usize], mut node: usize) -> usize {
    while parent[node] != node {
        parent[node] = parent[parent[node]];
        node = parent[node];
    }
    node
}

/// Cholesky's factor of a symmetric matrix. Columns that depend on others are left out: their unknown is 0, as in a
/// generalised inverse.
pub struct Factor {
    lower: Vec<f64>,
    n: usize,
    /// Columns kept.
    kept: Vec<bool>,
}

impl Factor {
    fn new(mut a: Vec<f64>, n: usize) -> Self {
        /// Share of a column's own size below which it counts as dependent.
        const DEPENDENT: f64 = 1e-9;
        let mut kept = vec![true; n];
        for j in 0..n {
            let own = a[j * n + j];
            let (_, rest) = a.split_at_mut(j * n);
            let left: f64 = rest[..j].iter().map(|v| v * v).sum();
            let pivot = own - left;
            if pivot <= DEPENDENT * own || own <= 0.0 {
                kept[j] = false;
                rest[..=j].fill(0.0);
                for i in j + 1..n {
                    rest[(i - j) * n + j] = 0.0;
                }
                continue;
            }
            let root = pivot.sqrt();
            let (row, below) = rest.split_at_mut(n);
            row[j] = root;
            for other in below.chunks_exact_mut(n) {
                let dot: f64 = row[..j].iter().zip(&other[..j]).map(|(x, y)| x * y).sum();
                other[j] = (other[j] - dot) / root;
            }
        }
        Self { lower: a, n, kept }
    }

    /// The number of independent columns.
    pub fn rank(&self) -> usize {
        self.kept.iter().filter(|k| **k).count()
    }

    /// Solves in place.
    fn solve(&self, right: &mut [f64]) {
        self.forward(right);
        let n = self.n;
        for i in (0..n).rev() {
            if !self.kept[i] {
                right[i] = 0.0;
                continue;
            }
            right[i] /= self.lower[i * n + i];
            for j in 0..i {
                right[j] -= self.lower[i * n + j] * right[i];
            }
        }
    }

    /// cᵀA⁻c: the variance of the contrast c for observations of variance 1.
    pub fn variance(&self, contrast: &mut [f64]) -> f64 {
        self.forward(contrast);
        contrast.iter().map(|v| v * v).sum()
    }

    fn forward(&self, right: &mut [f64]) {
        let n = self.n;
        for i in 0..n {
            if !self.kept[i] {
                right[i] = 0.0;
                continue;
            }
            let dot: f64 = self.lower[i * n..i * n + i].iter().zip(&right[..i]).map(|(a, b)| a * b).sum();
            right[i] = (right[i] - dot) / self.lower[i * n + i];
        }
    }
}

// The robust two-way fit.
//
// Median polish (Tukey, *Exploratory Data Analysis*, 1977, chapter 11) finds effects that a minority of bad pairs in a
// row or column cannot move. It starts an M-estimate with Tukey's bisquare, whose scale comes from the start's residuals
// and stays: the method of Maronna, Martin and Yohai (*Robust Statistics*, 2006, sections 4.4 and 4.5) for designs
// without leverage points. The bisquare has 95 % of the efficiency of least squares where the noise is normal.

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
