//! A rank test of two sides that one outlier cannot spoil, for sides measured one after the other or in turns.
//!
//! **Bounded scores.** Mann and Whitney's test scores a value by its rank. One value at the wrong end then costs as much
//! as eight values in slight disorder: with eight a side and one outlier p is 0.0104 at best. Here the outermost ranks
//! share one score (winsorized Wilcoxon scores; Policello and Hettmansperger, Journal of the American Statistical
//! Association 71, 1976), so an outlier counts no more than any other value on the wrong side.
//!
//! **Rounds.** Sides measured in turns (A B A B …) share the drift of the machine. The rounds are cut into blocks of at
//! least two. Each block is aligned to its own median, all values are ranked together, and the null distribution is that
//! of exchanging values within blocks only (aligned ranks; Hodges and Lehmann, Annals of Mathematical Statistics 33,
//! 1962). A block of one round would be the signed-rank test. Its eight pairs have 256 arrangements, so one pair the
//! wrong way ends all hope at 1 %, and a steady drift looks like a difference, as B always comes after A. Four blocks of
//! two rounds have 1296 arrangements, and among them are those that drift favours more.
//!
//! The distribution is exact, ties included, up to [`EXACT_UP_TO`] values; beyond it is normal.

use super::{
    compare::{Differences, smallest_p},
    confidence::Interval,
    quantiles,
};
use statrs::distribution::{ContinuousCDF, Normal};
use std::{cell::RefCell, collections::HashMap};

/// Values of both sides together up to which the null distribution is counted.
pub const EXACT_UP_TO: usize = 40;

/// Rounds in a block, at least.
const BLOCK: usize = 2;

/// Two sides. With more than one block both have the same length, and the i-th values were measured in the same round.
#[derive(Clone, Debug)]
pub struct Sides<'a> {
    a: &'a [f64],
    b: &'a [f64],
    /// Number of rounds in each block; one block of everything for sides that were not measured in turns.
    blocks: Vec<usize>,
}

impl<'a> Sides<'a> {
    /// Sides that were measured at different times.
    pub fn apart(a: &'a [f64], b: &'a [f64]) -> Self {
        Self { a, b, blocks: Vec::new() }
    }

    /// Sides that were measured in turns. The blocks are as short as they can be with a p of `alpha` still in reach, which
    /// depends on the number of rounds only: five rounds need one block at 1 %. `None` if the lengths differ.
    pub fn in_turns(a: &'a [f64], b: &'a [f64], alpha: f64) -> Option<Self> {
        let rounds = a.len();
        if rounds != b.len() || rounds == 0 {
            return None;
        }
        let cut =
            |count: usize| (0..count).map(|i| rounds / count + usize::from(i >= count - rounds % count)).collect();
        let blocks = (1..=(rounds / BLOCK).max(1)).rev().map(cut).find(|blocks: &Vec<usize>| smallest(blocks) <= alpha);
        let blocks = blocks.unwrap_or_default();
        // One block needs no alignment: it is the test of sides apart.
        Some(Self { a, b, blocks: if blocks.len() > 1 { blocks } else { Vec::new() } })
    }

    /// Number of blocks.
    pub fn blocks(&self) -> usize {
        self.blocks.len().max(1)
    }

    /// The smallest two-sided p that these sides can have.
    pub fn smallest_p(&self) -> f64 {
        if self.blocks.is_empty() { smallest_p(self.a.len(), self.b.len()) } else { smallest(&self.blocks) }
    }

    /// Two-sided p of "no difference". `None` if a side is empty.
    pub fn p(&self) -> Option<f64> {
        self.p_shifted(0.0)
    }

    /// The size of the difference, b − a: the median of the differences between values of the same block. Its interval
    /// holds the shifts that the test does not reject at 1 − `level`. `None` if no shift can be rejected.
    pub fn shift(&self, level: f64) -> Option<Interval> {
        let alpha = 1.0 - level;
        if self.a.is_empty() || self.b.is_empty() || self.smallest_p() > alpha {
            return None;
        }
        let (centre, low, high) =
            if self.blocks.is_empty() { self.by_differences(alpha) } else { self.by_bisection(alpha) };
        Some(Interval { centre, low, high, level, n: (self.a.len() + self.b.len()) as u64 })
    }

    /// Without blocks the statistic changes at the differences only, and always the same way.
    fn by_differences(&self, alpha: f64) -> (f64, f64, f64) {
        let pairs = self.a.len() * self.b.len();
        let differences = Differences::new(self.a, self.b);
        let sorted = (pairs <= 1 << 14).then(|| {
            let mut all: Vec<f64> = self.b.iter().flat_map(|b| self.a.iter().map(move |a| b - a)).collect();
            quantiles::sort(&mut all);
            all
        });
        let nth = |n: usize| sorted.as_ref().map_or_else(|| differences.nth(n), |all| all[n]);
        let middle = |x: f64, y: f64| x + (y - x) * 0.5;
        let accepted = |gap: usize| self.p_shifted(middle(nth(gap - 1), nth(gap))).is_some_and(|p| p > alpha);
        let half = pairs / 2;
        // The first and the last gap between differences in which a shift is accepted.
        let (mut low, mut high) = (0, half);
        while high - low > 1 {
            let gap = low + (high - low) / 2;
            if accepted(gap) { high = gap } else { low = gap }
        }
        let first = high.max(1) - 1;
        let (mut low, mut high) = (half, pairs);
        while high - low > 1 {
            let gap = low + (high - low) / 2;
            if accepted(gap) { low = gap } else { high = gap }
        }
        (middle(nth((pairs - 1) / 2), nth(half)), nth(first), nth(low.min(pairs - 1)))
    }

    fn by_bisection(&self, alpha: f64) -> (f64, f64, f64) {
        let mut differences = Vec::new();
        for (start, end) in self.spans() {
            differences.extend(self.b[start..end].iter().flat_map(|b| self.a[start..end].iter().map(move |a| b - a)));
        }
        quantiles::sort(&mut differences);
        let Some(centre) = quantiles::median(&differences) else { return (f64::NAN, f64::NAN, f64::NAN) };
        let rejected = |shift: f64| self.p_shifted(shift).is_some_and(|p| p <= alpha);
        let extreme = |of: fn(f64, f64) -> f64| self.a.iter().chain(self.b).copied().fold(centre, of);
        let span = (extreme(f64::max) - extreme(f64::min)).max(f64::MIN_POSITIVE) * 2.0;
        // "No difference" decides on which side of 0 an end lies, so that interval and p agree.
        let none = rejected(0.0);
        let end = |sign: f64| {
            let (mut inside, mut outside) = (centre, centre + sign * span);
            if centre * sign < 0.0 {
                if none { outside = 0.0 } else { inside = 0.0 }
            }
            for _ in 0..50 {
                let middle = inside + (outside - inside) * 0.5;
                if rejected(middle) { outside = middle } else { inside = middle }
            }
            inside
        };
        (centre, end(-1.0), end(1.0))
    }

    /// Start and end of each block, as indices of rounds.
    fn spans(&self) -> impl Iterator<Item = (usize, usize)> {
        self.blocks.iter().scan(0, |at, length| {
            let start = *at;
            *at += length;
            Some((start, *at))
        })
    }

    /// p if the second side were smaller by `shift`.
    fn p_shifted(&self, shift: f64) -> Option<f64> {
        if self.a.is_empty() || self.b.is_empty() {
            return None;
        }
        // The values of each block, those of the first side first.
        let b = || self.b.iter().map(|v| v - shift);
        let mut blocks: Vec<(Vec<f64>, usize)> = Vec::new();
        if self.blocks.is_empty() {
            blocks.push((self.a.iter().copied().chain(b()).collect(), self.a.len()));
        }
        let b: Vec<f64> = if self.blocks.is_empty() { Vec::new() } else { b().collect() };
        for (start, end) in self.spans() {
            let mut values = [&self.a[start..end], &b[start..end]].concat();
            let mut sorted = values.clone();
            quantiles::sort(&mut sorted);
            let median = quantiles::median(&sorted)?;
            for value in &mut values {
                *value -= median;
            }
            blocks.push((values, end - start));
        }
        let (scores, tied) = scores(&blocks, self.a.len().min(self.b.len()));
        let p = if scores.iter().map(|(s, _)| s.len()).sum::<usize>() > EXACT_UP_TO {
            normal(&scores)
        } else if tied || scores.len() > 1 {
            exact(&scores)
        } else {
            exact_untied(&scores)
        };
        Some(p.clamp(self.smallest_p(), 1.0))
    }
}

/// The smallest two-sided p with such blocks of rounds: 2 ÷ ΠC(2k, k).
fn smallest(blocks: &[usize]) -> f64 {
    blocks.iter().map(|k| smallest_p(*k, *k) / 2.0).product::<f64>().min(0.5) * 2.0
}

/// Doubled ranks of the values among all, with the outermost ones made equal, block by block. Equal values share the mean
/// of their ranks. The flag tells whether there are any.
fn scores(blocks: &[(Vec<f64>, usize)], shorter: usize) -> (Vec<(Vec<u32>, usize)>, bool) {
    let mut sorted: Vec<f64> = blocks.iter().flat_map(|(values, _)| values.iter().copied()).collect();
    quantiles::sort(&mut sorted);
    let tied = sorted.windows(2).any(|w| w[0].total_cmp(&w[1]).is_eq());
    // Two thirds of the shorter side: the split between two sides that do not overlap keeps its own scores.
    let outer = (shorter * 4).div_ceil(3).max(2);
    let bounds = (outer, 2 * (sorted.len() + 1) - outer);
    let score = |v: &f64| {
        let below = sorted.partition_point(|x| x.total_cmp(v).is_lt());
        let up_to = sorted.partition_point(|x| x.total_cmp(v).is_le());
        u32::try_from((below + up_to + 1).clamp(bounds.0.min(bounds.1), bounds.1.max(bounds.0))).unwrap_or(u32::MAX)
    };
    (blocks.iter().map(|(values, k)| (values.iter().map(score).collect(), *k)).collect(), tied)
}

/// The sum of the first side's scores.
fn statistic(scores: &[(Vec<u32>, usize)]) -> usize {
    scores.iter().flat_map(|(s, k)| &s[..*k]).map(|s| *s as usize).sum()
}

/// Twice the smaller tail.
fn two_sided(distribution: &[f64], statistic: usize) -> f64 {
    let [below, above] = [&distribution[..=statistic], &distribution[statistic..]].map(|tail| tail.iter().sum::<f64>());
    // The sums are of rounded numbers.
    (2.0 * below.min(above) * (1.0 - 1e-12)).min(1.0)
}

fn exact(scores: &[(Vec<u32>, usize)]) -> f64 {
    two_sided(&distribution(scores), statistic(scores))
}

thread_local! {
    /// Distributions without ties depend on the lengths only: those of the sides, and of the first side.
    static UNTIED: RefCell<HashMap<(usize, usize), Vec<f64>>> = RefCell::default();
}

fn exact_untied(scores: &[(Vec<u32>, usize)]) -> f64 {
    let key = scores.first().map_or((0, 0), |(s, k)| (s.len(), *k));
    UNTIED.with_borrow_mut(|known| {
        let distribution = known.entry(key).or_insert_with(|| distribution(scores));
        two_sided(distribution, statistic(scores))
    })
}

/// P(sum of the first side's scores = i), if every choice of its values within the blocks is equally likely.
fn distribution(scores: &[(Vec<u32>, usize)]) -> Vec<f64> {
    let mut whole = vec![1.0];
    for (scores, k) in scores {
        let mut largest: Vec<usize> = scores.iter().map(|s| *s as usize).collect();
        largest.sort_unstable();
        let most: usize = largest.iter().rev().take(*k).sum();
        // chosen[j][s]: the number of choices of j values with the sum s.
        let mut chosen = vec![vec![0.0; most + 1]; k + 1];
        chosen[0][0] = 1.0;
        for score in scores.iter().map(|s| *s as usize) {
            for j in (1..=*k).rev() {
                let (fewer, with) = chosen.split_at_mut(j);
                for s in score..=most {
                    with[0][s] += fewer[j - 1][s - score];
                }
            }
        }
        let counts = &chosen[*k];
        let all: f64 = counts.iter().sum();
        let mut next = vec![0.0; whole.len() + most];
        for (i, p) in whole.iter().enumerate().filter(|(_, p)| **p > 0.0) {
            for (s, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0.0) {
                next[i + s] += p * count / all;
            }
        }
        whole = next;
    }
    whole
}

/// From the normal approximation, with a continuity correction of half a rank.
fn normal(scores: &[(Vec<u32>, usize)]) -> f64 {
    let (mut expected, mut variance) = (0.0, 0.0);
    for (scores, k) in scores {
        let (n, k) = (scores.len() as f64, *k as f64);
        let mean = scores.iter().map(|s| f64::from(*s)).sum::<f64>() / n;
        expected += k * mean;
        let squares: f64 = scores.iter().map(|s| (f64::from(*s) - mean).powi(2)).sum();
        variance += k * (n - k) / (n * (n - 1.0)) * squares;
    }
    if variance <= 0.0 {
        return 1.0;
    }
    let z = ((statistic(scores) as f64 - expected).abs() - 1.0).max(0.0) / variance.sqrt();
    Normal::standard().sf(z) * 2.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FASTER: [f64; 8] = [100.0, 101.0, 99.5, 100.5, 100.2, 99.8, 100.9, 99.1];

    fn slower(by: f64) -> Vec<f64> {
        FASTER.iter().rev().map(|v| v * (1.0 - by) + 0.03).collect()
    }

    #[test]
    fn one_outlier_among_eight_does_not_hide_a_difference() {
        let b = slower(0.05);
        let mut a = FASTER;
        a[3] = 60.0;
        assert!((super::super::compare::mann_whitney(&a, &b).unwrap() - 0.0104).abs() < 1e-4);
        assert!(Sides::apart(&a, &b).p().unwrap() < 0.01);
        let turns = Sides::in_turns(&a, &b, 0.01).unwrap();
        assert_eq!(turns.blocks(), 4);
        assert!(turns.p().unwrap() < 0.01, "{:?}", turns.p());
        assert!(turns.shift(0.99).unwrap().high < 0.0);
    }

    #[test]
    fn a_drift_of_both_sides_hides_a_difference_only_without_rounds() {
        let drift = |values: &[f64]| values.iter().enumerate().map(|(i, v)| v * (1.0 + i as f64 * 0.04)).collect();
        let (a, b): (Vec<f64>, Vec<f64>) = (drift(&FASTER), drift(&slower(0.05)));
        assert!(Sides::apart(&a, &b).p().unwrap() > 0.1);
        let turns = Sides::in_turns(&a, &b, 0.01).unwrap();
        assert!(turns.p().unwrap() < 0.01);
        let shift = turns.shift(0.99).unwrap();
        assert!((-9.0..-3.0).contains(&shift.centre), "{shift:?}");
    }

    #[test]
    fn a_steady_drift_is_no_difference() {
        // The signed-rank test would say p = 0.0078: the second side always comes later.
        let at = |i: u32| 100.0 + f64::from(i) * 2.0;
        let (a, b): (Vec<f64>, Vec<f64>) = (0..8).map(|i| (at(2 * i), at(2 * i + 1))).unzip();
        assert!(Sides::in_turns(&a, &b, 0.01).unwrap().p().unwrap() > 0.05);
    }

    #[test]
    fn blocks_leave_p_in_reach() {
        let blocks = |n: usize, alpha: f64| {
            let side = vec![0.0; n];
            Sides::in_turns(&side, &side, alpha).unwrap().blocks
        };
        assert_eq!(blocks(8, 0.01), [2, 2, 2, 2]);
        assert_eq!(blocks(7, 0.01), [2, 2, 3]);
        assert_eq!(blocks(6, 0.01), [2, 2, 2]);
        assert!(blocks(5, 0.01).is_empty());
        // Several comparisons ask for a smaller p, and so for longer blocks.
        assert_eq!(blocks(8, 0.001), [2, 3, 3]);
        assert!(blocks(3, 0.01).is_empty());
    }

    proptest! {
        /// The counted distribution is that of listing every arrangement.
        #[test]
        fn exact_is_enumeration(values in prop::collection::vec(0i32..12, 8)) {
            let values: Vec<f64> = values.into_iter().map(f64::from).collect();
            let blocks = vec![(values[..4].to_vec(), 2), (values[4..].to_vec(), 2)];
            let (scores, _) = scores(&blocks, 4);
            let sums = |(scores, _): &(Vec<u32>, usize)| -> Vec<usize> {
                (0u32..16).filter(|m| m.count_ones() == 2)
                    .map(|m| (0..4).filter(|i| m >> i & 1 == 1).map(|i| scores[i] as usize).sum()).collect()
            };
            let (x, y) = (sums(&scores[0]), sums(&scores[1]));
            let all: Vec<usize> = x.iter().flat_map(|x| y.iter().map(move |y| x + y)).collect();
            let t = statistic(&scores);
            let share = |of: &dyn Fn(usize) -> bool| all.iter().filter(|s| of(**s)).count() as f64 / all.len() as f64;
            let p = (2.0 * share(&|s| s <= t).min(share(&|s| s >= t))).min(1.0);
            prop_assert!((exact(&scores) - p).abs() < 1e-9);
        }

        /// Interval and p agree on "no difference", and the centre is inside.
        #[test]
        fn interval_and_p_agree(
            a in prop::collection::vec(0.0..100.0f64, 5..12), b in prop::collection::vec(0.0..100.0f64, 5..12), by in -60.0..60.0f64,
        ) {
            let b: Vec<f64> = b.into_iter().map(|v| v + by).collect();
            let n = a.len().min(b.len());
            for sides in [Some(Sides::apart(&a, &b)), Sides::in_turns(&a[..n], &b[..n], 0.01)].into_iter().flatten() {
                let (p, shift) = (sides.p().unwrap(), sides.shift(0.99).unwrap());
                prop_assert!(shift.low <= shift.centre && shift.centre <= shift.high, "{shift:?}");
                prop_assert_eq!(p <= 0.01, shift.low > 0.0 || shift.high < 0.0, "{} {:?}", p, shift);
            }
        }

        /// The order of the sides does not matter.
        #[test]
        fn sides_are_alike(values in prop::collection::vec((0i32..30, 0i32..30), 2..10)) {
            let (a, b): (Vec<f64>, Vec<f64>) = values.iter().map(|(x, y)| (f64::from(*x), f64::from(*y))).unzip();
            for alpha in [0.01, 0.5] {
                let p = |a, b| Sides::in_turns(a, b, alpha).unwrap().p().unwrap();
                prop_assert!((p(&a, &b) - p(&b, &a)).abs() < 1e-9);
            }
        }
    }
}
