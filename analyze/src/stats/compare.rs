//! Tests whether two samples differ: rank test, t test, and the correction of p for several tests.

use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

use super::confidence::Interval;
use super::moments::Moments;

/// The exact distribution is used for samples up to this size without ties.
const EXACT_UP_TO: usize = 50;

/// p of Mann and Whitney's rank test, two-sided (Annals of Mathematical Statistics 18, 1947). Without ties and up to 50
/// values a side, p comes from the exact distribution of U. Otherwise it comes from the normal approximation with σ² =
/// n₁n₂/12 · ((N + 1) − Σ(t³ − t)/(N(N − 1))) and a continuity correction of ½. It is at least [`smallest_p`]: with few
/// values a side the approximation falls below that. `None` if a side is empty. If all values are equal, p is 1.
pub fn mann_whitney(a: &[f64], b: &[f64]) -> Option<f64> {
    if a.is_empty() || b.is_empty() {
        return None;
    }
    let mut all: Vec<(f64, bool)> = a.iter().map(|v| (*v, true)).chain(b.iter().map(|v| (*v, false))).collect();
    all.sort_by(|x, y| x.0.total_cmp(&y.0));
    let (n, m) = (a.len() as f64, b.len() as f64);
    let total = n + m;
    // Sum of the first sample's ranks, equal values sharing the mean of theirs, and Σ(t³ − t) over the ties.
    let (mut rank_sum, mut ties) = (0.0, 0.0);
    let mut start = 0;
    #[expect(clippy::float_cmp, reason = "ties are exactly equal values")]
    while start < all.len() {
        let end = start + all[start..].iter().take_while(|v| v.0 == all[start].0).count();
        let rank = f64::midpoint(start as f64 + 1.0, end as f64);
        rank_sum += rank * all[start..end].iter().filter(|v| v.1).count() as f64;
        let t = (end - start) as f64;
        ties += t * t * t - t;
        start = end;
    }
    let u = rank_sum - n * (n + 1.0) / 2.0;
    let larger = u.max(n * m - u);
    if ties == 0.0 && a.len() <= EXACT_UP_TO && b.len() <= EXACT_UP_TO {
        // Without ties U is a whole number.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 … n·m")]
        let tail = exact_tail(a.len(), b.len(), larger as usize);
        return Some((2.0 * tail).min(1.0));
    }
    let sigma = (n * m / 12.0 * ((total + 1.0) - ties / (total * (total - 1.0)))).sqrt();
    let p = if sigma > 0.0 {
        let z = (larger - n * m / 2.0 - 0.5) / sigma;
        Normal::standard().sf(z) * 2.0
    } else {
        1.0
    };
    Some(p.clamp(smallest_p(a.len(), b.len()), 1.0))
}

/// P(U ≥ u) for samples of n and m without ties.
fn exact_tail(n: usize, m: usize, u: usize) -> f64 {
    exact_distribution(n, m)[u..].iter().sum()
}

/// P(U = u) for u = 0 … n·m, samples of n and m without ties, by the recurrence f(n, m, u) = f(n − 1, m, u − m) + f(n,
/// m − 1, u) for the number of orders.
fn exact_distribution(n: usize, m: usize) -> Vec<f64> {
    // counts[j][v]: number of orders of i values against j with U = v; built up in i. They stay below C(100, 50) < 2^97,
    // and doubles keep their ratios to the last bit that matters.
    let mut counts: Vec<Vec<f64>> = (0..=m).map(|_| vec![1.0]).collect();
    for i in 1..=n {
        let mut next: Vec<Vec<f64>> = vec![vec![1.0]];
        for j in 1..=m {
            let mut row = vec![0.0; i * j + 1];
            // The largest value belongs to the first sample (it beats all j of the second) or to the second.
            for (v, c) in counts[j].iter().enumerate() {
                row[v + j] += c;
            }
            for (v, c) in next[j - 1].iter().enumerate() {
                row[v] += c;
            }
            next.push(row);
        }
        counts = next;
    }
    let orders: f64 = counts[m].iter().sum();
    counts[m].iter().map(|c| c / orders).collect()
}

/// The shift between two samples: Hodges and Lehmann's estimate, which is the median of all differences bⱼ − aᵢ. The
/// interval holds the shifts that [`mann_whitney`] would not reject at 1 − `level` (Annals of Mathematical Statistics
/// 34, 1963). It runs between two of the ordered differences: counted exactly for up to 50 values a side, by the normal
/// approximation beyond. `None` if a side is empty or too short to reject any shift.
pub fn shift(a: &[f64], b: &[f64], level: f64) -> Option<Interval> {
    let differences = Differences::new(a, b);
    let (n, m) = (a.len(), b.len());
    let pairs = n * m;
    if pairs == 0 {
        return None;
    }
    let (below, above) = (differences.nth((pairs - 1) / 2), differences.nth(pairs / 2));
    let centre = below + (above - below) * 0.5;
    let tail = (1.0 - level) / 2.0;
    // The k lowest and the k highest differences are cut off, with the largest k for which P(U < k) ≤ tail.
    let k = if n <= EXACT_UP_TO && m <= EXACT_UP_TO {
        let distribution = exact_distribution(n, m);
        let mut below = 0.0;
        distribution
            .iter()
            .take_while(|p| {
                below += **p;
                below <= tail
            })
            .count()
    } else {
        let (nf, mf) = (n as f64, m as f64);
        let sigma = (nf * mf * (nf + mf + 1.0) / 12.0).sqrt();
        let k = nf * mf / 2.0 + Normal::standard().inverse_cdf(tail) * sigma;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 … n·m/2")]
        let k = k.max(0.0).floor() as usize;
        k
    };
    (k > 0).then(|| Interval {
        centre,
        low: differences.nth(k - 1),
        high: differences.nth(pairs - k),
        level,
        n: (n + m) as u64,
    })
}

/// All differences b − a between the values of two samples, in order, without storing them: ten thousand values a side
/// have a hundred million.
pub(super) struct Differences {
    /// Ascending.
    a: Vec<f64>,
    b: Vec<f64>,
}

impl Differences {
    pub fn new(a: &[f64], b: &[f64]) -> Self {
        let (mut a, mut b) = (a.to_vec(), b.to_vec());
        super::quantiles::sort(&mut a);
        super::quantiles::sort(&mut b);
        Self { a, b }
    }

    /// The number of differences up to `bound`. Rounding keeps the order of differences, so one pass over both samples
    /// counts them.
    fn up_to(&self, bound: f64) -> usize {
        let mut first = 0;
        let mut count = 0;
        for b in &self.b {
            while first < self.a.len() && b - self.a[first] > bound {
                first += 1;
            }
            count += self.a.len() - first;
        }
        count
    }

    /// The n-th difference, from 0. Bisects the numbers between the smallest and the largest; there are at most 2^64.
    pub fn nth(&self, n: usize) -> f64 {
        let ends = self.a.first().zip(self.a.last()).zip(self.b.first().zip(self.b.last()));
        let Some(((a_first, a_last), (b_first, b_last))) = ends else { return f64::NAN };
        let (mut low, mut high) = (rank(b_first - a_last), rank(b_last - a_first));
        while low < high {
            let middle = low + (high - low) / 2;
            if self.up_to(number(middle)) > n {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        // Of the two zeros the bisection finds the negative one.
        number(low) + 0.0
    }
}

/// The place of a number among all doubles, by value.
fn rank(number: f64) -> u64 {
    let bits = number.to_bits();
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

/// The number at a place.
fn number(rank: u64) -> f64 {
    f64::from_bits(if rank >> 63 == 1 { rank & !(1 << 63) } else { !rank })
}

/// The smallest two-sided p that [`mann_whitney`] can give for samples of these sizes: 2 ÷ C(n + m, n). With three a
/// side it is 0.1.
pub fn smallest_p(n: usize, m: usize) -> f64 {
    let choices: f64 = (1..=n).map(|i| (m + i) as f64 / i as f64).product();
    (2.0 / choices).min(1.0)
}

/// The smallest number of values per side with a [`smallest_p`] of at most `alpha`.
pub fn needed_per_side(alpha: f64) -> Option<usize> {
    (1..=64).find(|n| smallest_p(*n, *n) <= alpha)
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Welch {
    /// Mean of the second minus mean of the first, over its standard error.
    pub t: f64,
    /// Degrees of freedom by Welch and Satterthwaite.
    pub df: f64,
    /// Two-sided.
    pub p: f64,
    /// Mean of the second minus mean of the first.
    pub difference: f64,
    /// Standard error of the difference.
    pub standard_error: f64,
}

/// Welch's t test for two means with unequal variances, two-sided (Biometrika 34, 1947). `None` for fewer than two
/// values on a side, or if neither side varies.
pub fn welch(a: &[f64], b: &[f64]) -> Option<Welch> {
    let (a, b): (Moments, Moments) = (a.iter().copied().collect(), b.iter().copied().collect());
    let (va, vb) = (a.variance()? / a.count() as f64, b.variance()? / b.count() as f64);
    let standard_error = (va + vb).sqrt();
    if standard_error == 0.0 {
        return None;
    }
    let df = (va + vb).powi(2) / (va * va / (a.count() - 1) as f64 + vb * vb / (b.count() - 1) as f64);
    let difference = b.mean()? - a.mean()?;
    let t = difference / standard_error;
    let p = 2.0 * StudentsT::new(0.0, 1.0, df).ok()?.sf(t.abs());
    Some(Welch { t, df, p: p.clamp(0.0, 1.0), difference, standard_error })
}

/// Holm's step-down adjustment (Scandinavian Journal of Statistics 6, 1979): returns p values, in the order given, that
/// can be compared with α although there are several. `None` (no test was possible) stays and does not count.
pub fn holm(p: &[Option<f64>]) -> Vec<Option<f64>> {
    let mut order: Vec<(usize, f64)> = p.iter().enumerate().filter_map(|(i, p)| p.map(|p| (i, p))).collect();
    order.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut adjusted = vec![None; p.len()];
    let mut largest: f64 = 0.0;
    for (rank, (i, p)) in order.iter().enumerate() {
        largest = largest.max((p * (order.len() - rank) as f64).min(1.0));
        adjusted[*i] = Some(largest);
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn samples_that_cannot_be_told_apart() {
        assert!(mann_whitney(&[], &[1.0]).is_none());
        assert_eq!(mann_whitney(&[1.0, 1.0, 1.0], &[1.0, 1.0]).unwrap(), 1.0);
        assert!(welch(&[1.0, 1.0], &[1.0, 1.0]).is_none());
        assert!(welch(&[1.0], &[1.0, 2.0]).is_none());
    }

    #[test]
    fn three_a_side_never_reach_five_percent() {
        assert!((smallest_p(3, 3) - 0.1).abs() < 1e-12);
        assert!((smallest_p(5, 5) - 2.0 / 252.0).abs() < 1e-12);
        assert!(shift(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0], 0.95).is_none());
        assert_eq!(needed_per_side(0.01), Some(5));
        assert_eq!(needed_per_side(0.05), Some(4));
        // Nor where they are tied: the normal approximation alone would say 0.047.
        assert!((mann_whitney(&[1.0; 3], &[2.0; 3]).unwrap() - 0.1).abs() < 1e-12);
    }

    #[test]
    fn untested_comparisons_do_not_count() {
        assert_eq!(holm(&[Some(0.01), None, Some(0.04)]), [Some(0.02), None, Some(0.04)]);
        assert_eq!(holm(&[]), []);
    }

    proptest! {
        #[test]
        fn exact_probabilities_are_those_of_enumeration(n in 1usize..5, m in 1usize..5, seed: u64) {
            // Every way to choose which of the n + m ranks belong to the first sample is equally likely.
            let total = n + m;
            let mut at_least = vec![0u32; n * m + 1];
            let mut ways = 0u32;
            for choice in 0u32..1 << total {
                if choice.count_ones() as usize == n {
                    ways += 1;
                    let u = (0..total).filter(|i| choice >> i & 1 == 1).map(|i| (0..i).filter(|j| choice >> j & 1 == 0).count()).sum::<usize>();
                    at_least[..=u].iter_mut().for_each(|c| *c += 1);
                }
            }
            let u = usize::try_from(seed % (n * m + 1) as u64).unwrap();
            prop_assert!((exact_tail(n, m, u) - f64::from(at_least[u]) / f64::from(ways)).abs() < 1e-12);
        }

        /// The interval of the shift and the test agree.
        #[test]
        fn rejected_shifts_lie_outside(
            a in prop::collection::hash_set(0i32..10_000, 5..12), b in prop::collection::hash_set(0i32..10_000, 5..12),
        ) {
            let a: Vec<f64> = a.into_iter().map(f64::from).collect();
            // Thirds keep differences from ever being ties.
            let b: Vec<f64> = b.into_iter().map(|v| f64::from(v) + 1.0 / 3.0).collect();
            let i = shift(&a, &b, 0.95).unwrap();
            let p = |by: f64| mann_whitney(&a, &b.iter().map(|v| v - by).collect::<Vec<_>>()).unwrap();
            for end in [i.low, i.high] {
                let outward = if end == i.low { -0.01 } else { 0.01 };
                prop_assert!(p(end - outward) > 0.05, "{} {:?}", p(end - outward), i);
                prop_assert!(p(end + outward) <= 0.05, "{} {:?}", p(end + outward), i);
            }
        }

        /// Counting finds what sorting finds.
        #[test]
        fn differences_in_their_order(
            a in prop::collection::vec(prop_oneof![-3i32..3, any::<i32>()], 1..9),
            b in prop::collection::vec(prop_oneof![-3i32..3, any::<i32>()], 1..9), scale in 1e-9..1e9f64,
        ) {
            let scaled = |v: Vec<i32>| v.into_iter().map(|v| f64::from(v) * scale).collect::<Vec<_>>();
            let (a, b) = (scaled(a), scaled(b));
            let mut sorted: Vec<f64> = b.iter().flat_map(|b| a.iter().map(move |a| b - a)).collect();
            crate::stats::quantiles::sort(&mut sorted);
            let differences = Differences::new(&a, &b);
            for (n, expected) in sorted.iter().enumerate() {
                prop_assert_eq!(differences.nth(n), *expected);
            }
        }

        #[test]
        fn sides_are_alike(a in prop::collection::vec(0i32..9, 1..12), b in prop::collection::vec(0i32..9, 1..12)) {
            let a: Vec<f64> = a.into_iter().map(f64::from).collect();
            let b: Vec<f64> = b.into_iter().map(f64::from).collect();
            let (x, y) = (mann_whitney(&a, &b).unwrap(), mann_whitney(&b, &a).unwrap());
            prop_assert!((x - y).abs() < 1e-12);
            prop_assert!((0.0..=1.0).contains(&x));
        }
    }
}
