//! Order statistics of sorted values.

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

/// Distance from the bulk of the values, by Tukey's fences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outlier {
    /// Within 1.5 interquartile ranges of the quartiles.
    None,
    /// Beyond 1.5.
    Mild,
    /// Beyond 3.
    Severe,
}

/// Tukey's fences (Exploratory Data Analysis, 1977): Q1 − k·IQR and Q3 + k·IQR with k 1.5 and 3.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fences {
    q1: f64,
    q3: f64,
}

impl Fences {
    /// Takes at least four sorted values; fewer have no useful quartiles.
    pub fn new(sorted: &[f64]) -> Option<Self> {
        (sorted.len() >= 4).then_some(())?;
        Some(Self { q1: quantile(sorted, 0.25)?, q3: quantile(sorted, 0.75)? })
    }

    /// Labels a value. Outliers are never removed.
    pub fn label(&self, value: f64) -> Outlier {
        let range = self.q3 - self.q1;
        let beyond = |k: f64| value < self.q1 - k * range || value > self.q3 + k * range;
        if beyond(3.0) {
            Outlier::Severe
        } else if beyond(1.5) {
            Outlier::Mild
        } else {
            Outlier::None
        }
    }
}

/// Share of the median by which a value must differ from it to be worth a warning: values that agree to a fraction of a per
/// cent have outliers too, which change no result.
const WORTH_NAMING: f64 = 0.01;

/// The number of severe outliers among values in any order that differ from the median by a hundredth of it or more.
pub fn severe_outliers(values: &[f64]) -> usize {
    let mut sorted = values.to_vec();
    sort(&mut sorted);
    let middle = median(&sorted).unwrap_or(0.0);
    let is_far = |value: f64| (value - middle).abs() >= WORTH_NAMING * middle.abs();
    let is_severe = |fences: &Fences, v: f64| fences.label(v) == Outlier::Severe && is_far(v);
    let severe = |fences: Fences| values.iter().filter(|v| is_severe(&fences, **v)).count();
    Fences::new(&sorted).map_or(0, severe)
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
    fn fences_label() {
        let sorted = [10.0, 11.0, 12.0, 13.0, 14.0];
        let fences = Fences::new(&sorted).unwrap();
        assert_eq!(fences.label(15.9), Outlier::None);
        assert_eq!(fences.label(18.0), Outlier::Mild);
        assert_eq!(fences.label(4.0), Outlier::Severe);
        assert!(Fences::new(&sorted[..3]).is_none());
    }
}
