//! Count, mean, variance, minimum and maximum in one pass; mergeable.

/// Running moments by Welford's recurrence (Technometrics 4, 1962), merged by the pairwise formula of Chan, Golub and
/// LeVeque (1979). Both stay precise where Σx² − (Σx)²/n does not.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moments {
    count: u64,
    mean: f64,
    /// Σ (x − x̄)².
    squares: f64,
    min: f64,
    max: f64,
}

impl Default for Moments {
    fn default() -> Self {
        Self { count: 0, mean: 0.0, squares: 0.0, min: f64::INFINITY, max: f64::NEG_INFINITY }
    }
}

impl Moments {
    #[inline]
    pub fn push(&mut self, value: f64) {
        self.count += 1;
        let delta = value - self.mean;
        self.mean += delta / self.count as f64;
        self.squares += delta * (value - self.mean);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// Adds the values seen by `other`.
    pub fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        if self.count == 0 {
            *self = *other;
            return;
        }
        let (a, b) = (self.count as f64, other.count as f64);
        let delta = other.mean - self.mean;
        self.mean += delta * (b / (a + b));
        self.squares += other.squares + delta * delta * (a * b / (a + b));
        self.count += other.count;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    /// `None` without values.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then_some(self.mean)
    }

    /// `None` without values.
    pub fn sum(&self) -> Option<f64> {
        (self.count > 0).then_some(self.mean * self.count as f64)
    }

    /// The sample variance Σ(x − x̄)² ÷ (n − 1); `None` for fewer than two values.
    pub fn variance(&self) -> Option<f64> {
        (self.count > 1).then(|| self.squares / (self.count - 1) as f64)
    }

    pub fn stddev(&self) -> Option<f64> {
        self.variance().map(f64::sqrt)
    }

    /// Standard deviation over the mean's magnitude; `None` if the mean is 0.
    pub fn variation(&self) -> Option<f64> {
        let ratio = self.stddev()? / self.mean.abs();
        ratio.is_finite().then_some(ratio)
    }

    /// Jain's fairness index (Σx)² ÷ (n · Σx²): 1 if all values are equal, 1/n if one has everything (Jain, Chiu and
    /// Hawe, DEC-TR-301, 1984). `None` without values, for a negative value, or if all are 0.
    pub fn fairness(&self) -> Option<f64> {
        let even = self.count as f64 * self.mean * self.mean;
        (self.min()? >= 0.0 && even > 0.0).then(|| even / (even + self.squares))
    }

    pub fn min(&self) -> Option<f64> {
        (self.count > 0).then_some(self.min)
    }

    pub fn max(&self) -> Option<f64> {
        (self.count > 0).then_some(self.max)
    }
}

impl FromIterator<f64> for Moments {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        let mut moments = Self::default();
        values.into_iter().for_each(|v| moments.push(v));
        moments
    }
}

/// The arithmetic mean; `None` without values.
pub fn mean(values: &[f64]) -> Option<f64> {
    values.iter().copied().collect::<Moments>().mean()
}

/// The sample standard deviation (n − 1); `None` for fewer than two values.
pub fn stddev(values: &[f64]) -> Option<f64> {
    values.iter().copied().collect::<Moments>().stddev()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn small_cases() {
        let none = Moments::default();
        assert_eq!((none.mean(), none.variance(), none.min(), none.sum()), (None, None, None, None));
        let one: Moments = [5.0].into_iter().collect();
        assert_eq!((one.mean(), one.variance(), one.max()), (Some(5.0), None, Some(5.0)));
        let m: Moments = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0].into_iter().collect();
        assert_eq!((m.mean(), m.variance()), (Some(5.0), Some(32.0 / 7.0)));
    }

    #[test]
    fn large_offsets_lose_nothing() {
        let m: Moments = [1e9 + 4.0, 1e9 + 7.0, 1e9 + 13.0, 1e9 + 16.0].into_iter().collect();
        assert_eq!(m.variance(), Some(30.0));
    }

    #[test]
    fn fairness() {
        let fairness = |values: &[f64]| values.iter().copied().collect::<Moments>().fairness();
        assert_eq!(fairness(&[3.0, 3.0, 3.0]), Some(1.0));
        assert_eq!(fairness(&[1.0, 0.0, 0.0, 0.0]), Some(0.25));
        // numpy: sum(x)**2 / (len(x) * sum(x * x)) of x = array([9.1, 4.3, 7.7, 2.9, 8.8])
        assert!((fairness(&[9.1, 4.3, 7.7, 2.9, 8.8]).unwrap() - 0.873_105_015_419_574_6).abs() < 1e-12);
        assert_eq!(fairness(&[7.0]), Some(1.0));
        assert_eq!(fairness(&[0.0]), None);
        assert_eq!(fairness(&[-1.0, 3.0]), None);
        assert_eq!(fairness(&[]), None);
    }

    proptest! {
        #[test]
        fn merging_is_like_pushing(a in prop::collection::vec(-1e6..1e6f64, 0..40), b in prop::collection::vec(-1e6..1e6f64, 0..40)) {
            let mut merged: Moments = a.iter().copied().collect();
            merged.merge(&b.iter().copied().collect());
            let whole: Moments = a.iter().chain(&b).copied().collect();
            prop_assert_eq!(merged.count(), whole.count());
            if let (Some(x), Some(y)) = (merged.variance(), whole.variance()) {
                prop_assert!((x - y).abs() <= 1e-9 * y.abs().max(1.0));
            }
        }
    }
}
