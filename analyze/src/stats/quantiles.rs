//! Order statistics of sorted values, and of more values than memory holds.

/// Sorts numbers. NaNs would come last; the table reader lets none through.
pub fn sort(values: &mut [f64]) {
    values.sort_unstable_by(f64::total_cmp);
}

/// The quantile q (0 … 1) with linear interpolation between neighbours: definition 7 of Hyndman and Fan (The American
/// Statistician 50, 1996), the default of R, NumPy and DuckDB's `quantile_cont`. `None` without values.
pub fn quantile(sorted: &[f64], q: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let at = q.clamp(0.0, 1.0) * last as f64;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and the last index")]
    let below = at.floor() as usize;
    let above = (below + 1).min(last);
    let (a, b) = (sorted[below], sorted[above]);
    Some(a + (b - a) * (at - below as f64))
}

/// The middle value, or the mean of the two in the middle. `None` without values.
pub fn median(sorted: &[f64]) -> Option<f64> {
    quantile(sorted, 0.5)
}

/// The [`median`] of unsorted values, which it reorders: cheaper than sorting.
pub fn select_median(values: &mut [f64]) -> Option<f64> {
    let half = values.len() / 2;
    let odd = values.len() % 2 == 1;
    if values.is_empty() {
        return None;
    }
    let (below, middle, _) = values.select_nth_unstable_by(half, f64::total_cmp);
    let b = *middle;
    let a = if odd { b } else { below.iter().copied().max_by(f64::total_cmp)? };
    Some(a + (b - a) * 0.5)
}

/// The mean without the share `cut` (0 … 0.5) of the values at each end, rounded down to whole values. `None` if
/// nothing is left.
pub fn trimmed_mean(sorted: &[f64], cut: f64) -> Option<f64> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a length")]
    let off = (sorted.len() as f64 * cut.clamp(0.0, 0.5)).floor() as usize;
    super::moments::mean(sorted.get(off..sorted.len() - off)?)
}

/// The quartiles of sorted values, with the median between them.
pub fn quartiles(sorted: &[f64]) -> Option<[f64; 3]> {
    Some([quantile(sorted, 0.25)?, median(sorted)?, quantile(sorted, 0.75)?])
}

/// Share of the median by which a value must differ from it to be worth a warning: values that agree to a fraction of a per
/// cent have outliers too, which change no result.
const WORTH_NAMING: f64 = 0.01;

/// The number of severe outliers, more than 3 interquartile ranges beyond the quartiles (Tukey, Exploratory Data Analysis,
/// 1977), among values in any order that differ from the median by a hundredth of it or more.
pub fn severe_outliers(values: &[f64]) -> usize {
    let mut sorted = values.to_vec();
    sort(&mut sorted);
    // Fewer than four values have no useful quartiles.
    let Some([q1, middle, q3]) = quartiles(&sorted).filter(|_| sorted.len() >= 4) else { return 0 };
    let reach = 3.0 * (q3 - q1);
    let is_far = |value: f64| (value - middle).abs() >= WORTH_NAMING * middle.abs();
    values.iter().filter(|v| (**v < q1 - reach || **v > q3 + reach) && is_far(**v)).count()
}

// Quantiles in bounded memory: exact for as many values as fit, then from counts in narrow buckets.
//
// Up to [`EXACT_LIMIT`] values are kept, and every quantile is exact (interpolated, see [`quantile`]). Beyond
// that, values are counted in buckets, 1024 per factor of two (the leading ten bits of a double's fraction), so a
// quantile is within 0.05 % of the true one. The result depends only on the set of values: merged parts and a single
// pass give the same numbers.

/// Values kept exactly.
pub const EXACT_LIMIT: usize = 4096;

/// Bits of a double that are dropped to number its bucket: 52 − 10.
const SHIFT: u32 = 42;

#[derive(Clone, Debug, Default)]
pub struct Sketch {
    exact: Vec<f64>,
    buckets: Option<Buckets>,
}

/// Consecutive buckets and their counts.
#[derive(Clone, Debug, Default)]
struct Buckets {
    first: i64,
    counts: Vec<u64>,
    total: u64,
}

/// The number of a value's bucket; keeps the order across zero.
fn bucket(value: f64) -> i64 {
    let magnitude = ((value.abs().to_bits()) >> SHIFT).cast_signed();
    if value < 0.0 { -magnitude - 1 } else { magnitude }
}

/// The middle of a bucket.
fn middle(bucket: i64) -> f64 {
    let (magnitude, sign) = if bucket < 0 { (-(bucket + 1), -1.0) } else { (bucket, 1.0) };
    if magnitude == 0 {
        return 0.0;
    }
    let low = f64::from_bits(magnitude.cast_unsigned() << SHIFT);
    let high = f64::from_bits((magnitude + 1).cast_unsigned() << SHIFT);
    sign * f64::midpoint(low, high)
}

impl Buckets {
    fn add(&mut self, value: f64) {
        self.add_count(bucket(value), 1);
    }

    fn add_count(&mut self, bucket: i64, count: u64) {
        let i = self.reach(bucket);
        self.counts[i] += count;
        self.total += count;
    }

    /// The index of a bucket; makes room for it.
    fn reach(&mut self, bucket: i64) -> usize {
        if self.counts.is_empty() {
            self.first = bucket;
        }
        if bucket < self.first {
            let more = usize::try_from(self.first - bucket).unwrap_or(0);
            self.counts.splice(0..0, std::iter::repeat_n(0, more));
            self.first = bucket;
        }
        // At most 2^22 buckets exist.
        let i = usize::try_from(bucket - self.first).unwrap_or(0);
        if i >= self.counts.len() {
            self.counts.resize(i + 1, 0);
        }
        i
    }
}

impl Sketch {
    #[inline]
    pub fn push(&mut self, value: f64) {
        if let Some(buckets) = &mut self.buckets {
            buckets.add(value);
        } else {
            self.exact.push(value);
            if self.exact.len() > EXACT_LIMIT {
                self.condense();
            }
        }
    }

    fn condense(&mut self) {
        let buckets = self.buckets.get_or_insert_default();
        for value in std::mem::take(&mut self.exact) {
            buckets.add(value);
        }
    }

    /// Adds the values seen by `other`.
    pub fn merge(&mut self, other: &Self) {
        for value in &other.exact {
            self.push(*value);
        }
        if let Some(theirs) = &other.buckets {
            self.condense();
            let ours = self.buckets.get_or_insert_default();
            for (bucket, count) in (theirs.first..).zip(&theirs.counts).filter(|(_, count)| **count > 0) {
                ours.add_count(bucket, *count);
            }
        }
    }

    /// All values, if they are still known.
    pub fn exact(&self) -> Option<&[f64]> {
        self.buckets.is_none().then_some(&self.exact)
    }

    /// Sorts exact values. Call it once after the last `push`, before asking for quantiles.
    pub fn sort(&mut self) {
        sort(&mut self.exact);
    }

    /// The quantile q, 0 … 1: interpolated between exact values, else by nearest rank. Needs [`Self::sort`].
    pub fn quantile(&self, q: f64) -> Option<f64> {
        match &self.buckets {
            None => quantile(&self.exact, q),
            Some(buckets) => {
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a count")]
                let rank = ((q.clamp(0.0, 1.0) * buckets.total as f64).ceil() as u64).max(1);
                let mut seen = 0;
                for (bucket, count) in (buckets.first..).zip(&buckets.counts) {
                    seen += count;
                    if seen >= rank {
                        return Some(middle(bucket));
                    }
                }
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_selected_median_is_the_sorted_ones(mut values in prop::collection::vec(-1e3..1e6f64, 0..40)) {
            let selected = select_median(&mut values);
            sort(&mut values);
            prop_assert_eq!(selected, median(&values));
        }
    }

    #[test]
    fn an_outlier_that_changes_nothing_is_not_named() {
        let values = |last: f64| [100.0, 100.01, 100.02, 100.01, 100.0, last];
        assert_eq!([100.2, 99.8, 102.0, 50.0].map(|last| severe_outliers(&values(last))), [0, 0, 1, 1]);
    }

    #[test]
    fn edges() {
        assert_eq!(quantile(&[], 0.5), None);
        assert_eq!(quantile(&[7.0], 0.99), Some(7.0));
        assert_eq!(median(&[1.0, 2.0, 3.0, 10.0]), Some(2.5));
        assert_eq!(trimmed_mean(&[1.0, 2.0, 3.0, 100.0], 0.25), Some(2.5));
        assert_eq!(trimmed_mean(&[1.0, 2.0], 0.5), None);
    }

    #[test]
    fn an_outlier_is_severe_from_three_interquartile_ranges_on() {
        let values = |last: f64| [10.0, 11.0, 12.0, 13.0, 14.0, last];
        assert_eq!([15.9, 21.0, 21.5, 40.0, -5.0].map(|last| severe_outliers(&values(last))), [0, 0, 1, 1, 1]);
        assert_eq!(severe_outliers(&[10.0, 11.0, 1000.0]), 0);
    }

    #[test]
    fn buckets_keep_the_order_and_are_narrow() {
        let values = [-1e300, -5.0, -1e-9, 0.0, 1e-300, 1.0, 1.0009, 1.001, 41.8e9, 1e300];
        for pair in values.windows(2) {
            assert!(bucket(pair[0]) <= bucket(pair[1]), "{pair:?}");
        }
        for value in values {
            assert!((middle(bucket(value)) - value).abs() <= value.abs() * 0.0005, "{value}");
        }
    }

    #[test]
    fn long_runs_are_within_the_promise() {
        let mut sketch = Sketch::default();
        let n = 50_000;
        for i in 0..n {
            sketch.push(f64::from((i * 7919) % n) + 1.0);
        }
        assert!(sketch.exact().is_none());
        for q in [0.01, 0.5, 0.99] {
            let exact = q * f64::from(n);
            assert!((sketch.quantile(q).unwrap() / exact - 1.0).abs() < 0.0006, "{q}");
        }
    }

    proptest! {
        #[test]
        fn the_way_it_was_put_together_does_not_matter(
            values in prop::collection::vec(-1e3..1e6f64, 1..50), copies in prop::sample::select(vec![1usize, 200]), cut: usize,
        ) {
            let values: Vec<f64> = values.iter().copied().cycle().take(values.len() * copies).collect();
            let at = cut % (values.len() + 1);
            let (mut whole, mut parts) = (Sketch::default(), Sketch::default());
            for v in &values {
                whole.push(*v);
            }
            for part in [&values[at..], &values[..at]] {
                let mut sketch = Sketch::default();
                for v in part {
                    sketch.push(*v);
                }
                parts.merge(&sketch);
            }
            whole.sort();
            parts.sort();
            for q in [0.0, 0.3, 0.5, 0.99, 1.0] {
                prop_assert_eq!(whole.quantile(q), parts.quantile(q));
            }
        }
    }
}
