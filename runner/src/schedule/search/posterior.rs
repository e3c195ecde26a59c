//! The probability of each place where the limit may be, given probes that fail or hold by chance.
//!
//! Between two neighbouring loads of the grid lies a cell. A limit in cell `k` lets the loads below index `k` hold. The
//! noise is unknown: each combination of a share of probes that fail at any load, a share that hold at any load, and a
//! width over which the one turns into the other, is a hypothesis of its own. Each probe multiplies a hypothesis by the
//! probability that it gave this outcome (Bayes). The next probe is the one from which most is learned about the cell. This is
//! psychophysics' psi method with lapses and guesses (Kontsevich and Tyler 1999, Prins 2013).
//!
//! Shares of a load that the sender offered and the path carried.

use std::{rc::Rc, time::Duration};

use analyze::judge::offered;
use schemas::columns::Row;

/// A value of the noise, and its share of the prior.
type Weighted = [f64; 2];

/// Share of probes that fail at any load: a busy machine stalls.
const STALLS: [Weighted; 5] = [[0.01, 0.45], [0.05, 0.2], [0.1, 0.13], [0.2, 0.12], [0.35, 0.1]];

/// Share of probes that hold at any load.
const LUCK: [Weighted; 3] = [[0.01, 0.6], [0.05, 0.25], [0.15, 0.15]];

/// Scale of the logistic curve by which probes turn from holding to failing, in cells. 0: at once.
const SLOPES: [Weighted; 4] = [[0.0, 0.5], [1.5, 0.2], [6.0, 0.15], [24.0, 0.15]];

/// Prior of each end: the lowest load does not hold, or the highest one does.
const END: f64 = 0.1;

/// Quantiles of the cells near which the next probe is looked for.
const QUANTILES: [f64; 5] = [0.1, 0.25, 0.5, 0.75, 0.9];

/// Probability of all cells on one side that are left out when probes are weighed.
const NEGLIGIBLE: f64 = 1e-6;

pub struct Posterior {
    /// Loads of the grid; one less than the cells.
    loads: usize,
    /// The probability of each cell; together 1.
    cells: Vec<f64>,
    /// Empty before the first probe: a plan may have many searches.
    noises: Vec<Noise>,
}

struct Noise {
    stalls: f64,
    luck: f64,
    /// Shared by the noises of one slope. By the load's index plus `loads`, minus the cell: the share of probes that hold
    /// but for stalls and luck.
    curve: Rc<[f64]>,
    /// Per cell: relative to the likeliest of all noises.
    weights: Vec<f64>,
}

impl Noise {
    /// The probability that a probe of a load holds if the limit is in that cell.
    fn holds(&self, load: usize, cell: usize, loads: usize) -> f64 {
        let share = match cell {
            0 => 0.0,
            _ if cell == loads => 1.0,
            _ => self.curve[load + loads - cell],
        };
        self.luck + (1.0 - self.stalls - self.luck) * share
    }
}

impl Posterior {
    /// Before any probe. `loads`: at least 1.
    pub fn new(loads: usize) -> Self {
        let inner = if loads > 1 { (1.0 - 2.0 * END) / (loads - 1) as f64 } else { END };
        let mut cells = vec![inner; loads + 1];
        (cells[0], cells[loads]) = (END, END);
        normalize(&mut cells);
        Self { loads, cells, noises: Vec::new() }
    }

    /// All hypotheses before any probe.
    fn noises(&self) -> Vec<Noise> {
        let mut noises = Vec::with_capacity(SLOPES.len() * STALLS.len() * LUCK.len());
        for [slope, of_slope] in SLOPES {
            let at = |i: usize| i as f64 - self.loads as f64 + 0.5;
            let share = |x: f64| if slope > 0.0 { 1.0 / (1.0 + (x / slope).exp()) } else { f64::from(x < 0.0) };
            let curve: Rc<[f64]> = (0..2 * self.loads).map(|i| share(at(i))).collect();
            for [stalls, of_stalls] in STALLS {
                for [luck, of_luck] in LUCK {
                    let prior = of_slope * of_stalls * of_luck;
                    let weights = self.cells.iter().map(|cell| prior * cell).collect();
                    noises.push(Noise { stalls, luck, curve: Rc::clone(&curve), weights });
                }
            }
        }
        noises
    }

    /// Adds a probe of the load with that index.
    pub fn take(&mut self, load: usize, held: bool) {
        if self.noises.is_empty() {
            self.noises = self.noises();
        }
        let mut most = f64::MIN_POSITIVE;
        for noise in &mut self.noises {
            let mut weights = std::mem::take(&mut noise.weights);
            for (cell, weight) in weights.iter_mut().enumerate() {
                let holds = noise.holds(load, cell, self.loads);
                *weight *= if held { holds } else { 1.0 - holds };
                most = most.max(*weight);
            }
            noise.weights = weights;
        }
        self.cells.fill(0.0);
        for noise in &mut self.noises {
            for (cell, weight) in self.cells.iter_mut().zip(&mut noise.weights) {
                *weight /= most;
                *cell += *weight;
            }
        }
        normalize(&mut self.cells);
    }

    /// The probability of each cell; together 1.
    pub fn cells(&self) -> &[f64] {
        &self.cells
    }

    /// The load from whose probe most is learned about the cell.
    pub fn most_telling(&self) -> usize {
        let cells = &self.cells;
        let mut near: Vec<usize> = QUANTILES
            .iter()
            .flat_map(|share| {
                let at = quantile(cells, *share);
                [at.saturating_sub(1), at.min(self.loads - 1)]
            })
            .collect();
        near.sort_unstable();
        near.dedup();
        let learned = near.into_iter().map(|load| (load, self.information(load, cells)));
        learned.reduce(|best, other| if other.1 > best.1 { other } else { best }).map_or(0, |(load, _)| load)
    }

    /// Information about the cell that a probe of this load is expected to give, nats.
    fn information(&self, load: usize, cells: &[f64]) -> f64 {
        let likely = quantile(cells, NEGLIGIBLE)..=quantile(cells, 1.0 - NEGLIGIBLE);
        let mut sums = vec![[0.0; 2]; likely.clone().count()];
        for noise in &self.noises {
            for (cell, sum) in likely.clone().zip(&mut sums) {
                sum[0] += noise.weights[cell];
                sum[1] += noise.weights[cell] * noise.holds(load, cell, self.loads);
            }
        }
        let (mut holds, mut unsure) = (0.0, 0.0);
        for (cell, [weight, held]) in cells[likely].iter().zip(sums).filter(|(_, [weight, _])| *weight > 0.0) {
            holds += cell * held / weight;
            unsure += cell * entropy(held / weight);
        }
        entropy(holds) - unsure
    }
}

/// Divides by the sum.
fn normalize(cells: &mut [f64]) {
    let whole: f64 = cells.iter().sum();
    for cell in cells {
        *cell /= whole;
    }
}

/// Entropy of a yes with that probability, nats.
fn entropy(p: f64) -> f64 {
    let term = |p: f64| if p > 0.0 { -p * p.ln() } else { 0.0 };
    term(p) + term(1.0 - p)
}

/// The first cell up to which the probabilities reach that share.
pub fn quantile(cells: &[f64], share: f64) -> usize {
    let mut sum = 0.0;
    let reached = cells.iter().position(|cell| {
        sum += cell;
        sum >= share
    });
    reached.unwrap_or(cells.len() - 1)
}

/// Operations that may be missing at the edges of a window of a load that counts as reached.
const EDGE: f64 = 2.0;

/// Time by which a busy machine may read the two edges of a window late. The window of the arrivals may be off by that.
pub const EDGE_S: f64 = 0.005;

/// Shares of the load of one probe, each 0 to 1.
#[derive(Clone, Copy, Debug)]
pub struct Carried {
    /// Offered by the sender.
    pub offered: f64,
    /// Of that, neither arrived in the window nor lost: a queue took it in.
    pub queued: f64,
}

impl Carried {
    /// Without a sender that falls behind, and without a queue.
    pub const WHOLE: Self = Self { offered: 1.0, queued: 0.0 };

    /// `filling`: see `queued_share`.
    pub fn of(row: &Row, filling: Duration) -> Self {
        Self {
            // Unknown counts as not offered.
            offered: offered::share_of(row).unwrap_or(0.0),
            queued: queued_share(row, filling),
        }
    }

    /// The worse of two directions.
    pub fn or_worse(self, other: Self) -> Self {
        Self { offered: self.offered.min(other.offered), queued: self.queued.max(other.queued) }
    }
}

/// Growth of a queue that counts as none, as a share of what was offered: the edges of the window are not exact.
pub fn tolerance(within: f64, window_s: Option<f64>) -> f64 {
    let edges = window_s.map_or(f64::INFINITY, |window_s| EDGE_S / window_s);
    edges.clamp(within / 10.0, within / 2.0)
}

/// The share of what was sent that neither arrived in the window nor was lost. `filling`: time in which the first data of the
/// window were still on their way.
pub fn queued_share(row: &Row, filling: Duration) -> f64 {
    let share = || {
        let (sent, arrived, elapsed) = (row.sent_bits_per_s?, row.throughput_bits_per_s?, row.elapsed_s?);
        let messages = EDGE * row.message_bytes.unwrap_or(0) as f64 * 8.0 / elapsed;
        let on_the_way = sent * filling.as_secs_f64() / elapsed;
        let gone = sent * row.loss_ratio.unwrap_or(0.0);
        (sent > 0.0).then(|| (sent - gone - arrived - messages - on_the_way) / sent)
    };
    // Only a stream has a receiver whose arrivals say something about the sender's load.
    let is_stream = row.transactions_per_s.is_none();
    share().filter(|_| is_stream).map_or(0.0, |share| share.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_that_agree_leave_one_cell() {
        let mut posterior = Posterior::new(20);
        for load in [0, 19, 9, 14, 11, 12, 11, 12, 11, 12] {
            posterior.take(load, load < 12);
        }
        assert!(posterior.cells()[12] > 0.9, "{:?}", posterior.cells());
        assert!((posterior.cells().iter().sum::<f64>() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn probes_that_disagree_leave_many() {
        let mut posterior = Posterior::new(20);
        for _ in 0..6 {
            for load in [4, 8, 12, 16] {
                posterior.take(load, true);
                posterior.take(load, false);
            }
        }
        assert!(posterior.cells().iter().all(|cell| *cell < 0.5), "{:?}", posterior.cells());
    }

    #[test]
    fn the_next_probe_halves_what_is_open() {
        let mut posterior = Posterior::new(101);
        posterior.take(0, true);
        posterior.take(100, false);
        assert!((40..=60).contains(&posterior.most_telling()), "{}", posterior.most_telling());
    }
}
