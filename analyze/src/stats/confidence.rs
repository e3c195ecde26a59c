//! Confidence intervals, and the number of observations that a given precision needs.

use super::{moments::Moments, quantiles};
use schemas::metrics::Range;
use statrs::distribution::{Binomial, ContinuousCDF, DiscreteCDF, Normal, StudentsT};

/// An interval around an estimate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The estimate in the middle: the mean for [`t_interval`], the median for [`median_interval`].
    pub centre: f64,
    pub low: f64,
    pub high: f64,
    /// Confidence level, 0 … 1: as asked for; with order statistics the level reached.
    pub level: f64,
    pub n: u64,
}

impl Interval {
    pub fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0
    }

    /// Half-width over the centre's magnitude; `None` if the centre is 0.
    pub fn margin_ratio(&self) -> Option<f64> {
        let ratio = self.half_width() / self.centre.abs();
        ratio.is_finite().then_some(ratio)
    }

    /// The part of it that lies within the range of its quantity, which covers the truth as often. [`Self::margin_ratio`]
    /// of the part is smaller: take it before.
    #[must_use]
    pub fn within(self, range: Range) -> Self {
        Self { low: range.clamp(self.low), high: range.clamp(self.high), ..self }
    }
}

/// The quantile of Student's t with `df` degrees of freedom. `None` unless `df` is positive and `p` in (0, 1).
pub fn t_quantile(p: f64, df: f64) -> Option<f64> {
    if !(p > 0.0 && p < 1.0) {
        return None;
    }
    StudentsT::new(0.0, 1.0, df).ok().map(|t| t.inverse_cdf(p))
}

/// Student's interval of the mean: x̄ ± t(1 − α/2, n − 1) · s / √n (Student 1908). It assumes independent observations.
/// `None` for fewer than two values or a level outside (0, 1).
pub fn t_interval(values: &[f64], level: f64) -> Option<Interval> {
    t_interval_of(&values.iter().copied().collect(), level)
}

/// [`t_interval`] from moments.
pub fn t_interval_of(moments: &Moments, level: f64) -> Option<Interval> {
    if !(level > 0.0 && level < 1.0) {
        return None;
    }
    let n = moments.count();
    let s = moments.stddev()?;
    let t = t_quantile(f64::midpoint(1.0, level), n as f64 - 1.0)?;
    let half = t * s / (n as f64).sqrt();
    let mean = moments.mean()?;
    Some(Interval { centre: mean, low: mean - half, high: mean + half, level, n })
}

/// More observations than anybody would wait for: none that are needed are named beyond them.
pub const MOST_NEEDED: u64 = 10_000;

/// The number of observations, with the standard deviation seen so far, at which the half-width of the mean's interval
/// is `margin` × the mean: the smallest n with t(1 − α/2, n − 1) · s / √n ≤ margin · |x̄|. `None` for fewer than two
/// values, a mean of 0, or more than [`MOST_NEEDED`].
pub fn needed_for_margin(moments: &Moments, level: f64, margin: f64) -> Option<u64> {
    needed_for_half_width(moments.stddev()?, level, margin * moments.mean()?.abs())
}

/// The smallest n ≥ 2 for which t(1 − α/2, n − 1) · s / √n ≤ `half_width`; `None` past [`MOST_NEEDED`].
fn needed_for_half_width(stddev: f64, level: f64, half_width: f64) -> Option<u64> {
    let enough = |n: u64| -> Option<bool> {
        let t = t_quantile(f64::midpoint(1.0, level), n as f64 - 1.0)?;
        Some(t * stddev / (n as f64).sqrt() <= half_width)
    };
    if half_width.is_nan() || half_width <= 0.0 || !enough(MOST_NEEDED)? {
        return None;
    }
    // t(n) · √(1/n) falls with n, so bisection finds the first n that is enough.
    let (mut low, mut high) = (1, MOST_NEEDED);
    while high - low > 1 {
        let middle = u64::midpoint(low, high);
        if enough(middle)? { high = middle } else { low = middle }
    }
    Some(high)
}

/// The distribution-free interval of the median, between the order statistics x₍ₖ₎ and x₍ₙ₊₁₋ₖ₎. k is the largest with
/// a coverage 1 − 2·P(B ≤ k − 1), B ~ Binomial(n, ½), of at least `level` (David & Nagaraja, Order Statistics, 7.1).
/// The interval's `level` is that coverage. `None` if even the extremes do not reach `level`: 95 % takes six values, 99
/// % eight.
pub fn median_interval(sorted: &[f64], level: f64) -> Option<Interval> {
    let n = sorted.len();
    let binomial = Binomial::new(0.5, n as u64).ok()?;
    let coverage = |k: usize| 1.0 - 2.0 * binomial.cdf(k as u64 - 1);
    // The number of usable ks grows with n: bisect, since n may be large.
    let (mut low, mut high) = (0, n / 2 + 1);
    while high - low > 1 {
        let middle = usize::midpoint(low, high);
        if coverage(middle) >= level { low = middle } else { high = middle }
    }
    let k = (low > 0).then_some(low)?;
    Some(Interval {
        centre: quantiles::median(sorted)?,
        low: sorted[k - 1],
        high: sorted[n - k],
        level: coverage(k),
        n: n as u64,
    })
}

/// The interval of the typical value of a quantity with that range: of the value that half of all values do not exceed.
///
/// With enough values it is [`median_interval`]. Fewer have none of that level. Then it is Student's interval on the
/// quantity's [`Scale`], widened to include every value: it rests on the shape of the noise, but no interval of so few
/// values does without. `None` for fewer than two values or a level outside (0, 1).
pub fn typical_interval(sorted: &[f64], level: f64, range: Range) -> Option<Interval> {
    if let Some(interval) = median_interval(sorted, level) {
        return Some(interval);
    }
    let (least, most) = (*sorted.first()?, *sorted.last()?);
    let scale = Scale::of(range, sorted);
    let student = t_interval_of(&sorted.iter().map(|v| scale.to(*v)).collect(), level)?;
    // Equal values do not always come back equal from a scale.
    let spread = least < most;
    let end = |place: f64| scale.back(place).clamp(f64::MIN, f64::MAX);
    Some(Interval {
        centre: quantiles::median(sorted)?,
        low: if spread { end(student.low).min(least) } else { least },
        high: if spread { end(student.high).max(most) } else { most },
        level,
        n: student.n,
    })
}

/// The fewest values for which [`median_interval`] reaches a level: 6 for 95 %, 8 for 99 %. The level is below 1.
pub fn fewest_for_median(level: f64) -> u64 {
    const MOST: u64 = 1100;
    (2..MOST).find(|n| 1.0 - 2.0 * 0.5f64.powf(*n as f64) >= level).unwrap_or(MOST)
}

/// About how many values put a limit outside of [`median_interval`] as often as not, if the share `kept` of all values
/// lies on one side of it. `None` for half of them, or more than [`MOST_NEEDED`].
pub fn needed_for_majority(kept: f64, level: f64) -> Option<u64> {
    let z = Normal::standard().inverse_cdf(f64::midpoint(1.0, level));
    let lead = (2.0 * kept - 1.0).abs();
    let needed = (z / lead).powi(2) + 1.0 / lead;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive, and bounded")]
    (needed <= MOST_NEEDED as f64).then(|| (needed.ceil() as u64).max(fewest_for_median(level)))
}

// Scales on which an interval cannot leave the range of its quantity.
//
// Noise of a positive quantity is a share of it, so it is judged by its logarithm; a share by its log-odds. Both are
// undefined at the ends of the range. Where a value lies there, the square root and the arcsine of the square root take
// their place: these are the scales on which counts and proportions vary about evenly (Bartlett, Biometrics 3, 1947).

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scale {
    Plain,
    Logarithm { low: f64 },
    SquareRoot { low: f64 },
    LogOdds { low: f64, width: f64 },
    Arcsine { low: f64, width: f64 },
}

impl Scale {
    /// The scale for values of a quantity with that range. Values outside of it are judged as they are.
    pub fn of(range: Range, values: &[f64]) -> Self {
        let Range { low, high } = range;
        if !low.is_finite() || !values.iter().all(|v| range.contains(*v)) {
            return Self::Plain;
        }
        let inside = values.iter().all(|v| *v > low && *v < high);
        match (high.is_finite(), inside) {
            (false, true) => Self::Logarithm { low },
            (false, false) => Self::SquareRoot { low },
            (true, true) => Self::LogOdds { low, width: high - low },
            (true, false) => Self::Arcsine { low, width: high - low },
        }
    }

    /// The value on the scale.
    pub fn to(self, value: f64) -> f64 {
        match self {
            Self::Plain => value,
            Self::Logarithm { low } => (value - low).ln(),
            Self::SquareRoot { low } => (value - low).sqrt(),
            Self::LogOdds { low, width } => {
                let share = (value - low) / width;
                share.ln() - (-share).ln_1p()
            }
            Self::Arcsine { low, width } => ((value - low) / width).sqrt().asin(),
        }
    }

    /// The value at a place of the scale. Places beyond its ends are the ends.
    pub fn back(self, place: f64) -> f64 {
        match self {
            Self::Plain => place,
            Self::Logarithm { low } => low + place.exp(),
            Self::SquareRoot { low } => low + place.max(0.0).powi(2),
            Self::LogOdds { low, width } => low + width / (1.0 + (-place).exp()),
            Self::Arcsine { low, width } => low + width * place.clamp(0.0, std::f64::consts::FRAC_PI_2).sin().powi(2),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SAMPLE: [f64; 10] = [41.2, 42.3, 40.8, 41.9, 42.8, 41.1, 41.7, 42.0, 41.5, 39.9];

    fn close(a: f64, b: f64) {
        assert!((a - b).abs() <= 1e-9 * b.abs().max(1e-300), "{a} is not {b}");
    }

    #[test]
    fn needs_two_values() {
        assert!(t_interval(&[1.0], 0.95).is_none());
        assert!(t_interval(&[1.0, 2.0], 1.0).is_none());
        let i = t_interval(&[3.0, 3.0], 0.95).unwrap();
        close(i.low, 3.0);
        assert_eq!(i.margin_ratio(), Some(0.0));
        assert_eq!(t_interval(&[-1.0, 1.0], 0.95).unwrap().margin_ratio(), None);
    }

    #[test]
    fn needed_is_the_smallest_that_is_enough() {
        let moments: Moments = SAMPLE.into_iter().collect();
        let n = needed_for_margin(&moments, 0.95, 0.01).unwrap();
        let half = |n: u64| t_quantile(0.975, n as f64 - 1.0).unwrap() * moments.stddev().unwrap() / (n as f64).sqrt();
        let goal = 0.01 * moments.mean().unwrap();
        assert!(half(n) <= goal && half(n - 1) > goal, "{n}");
        assert_eq!(needed_for_margin(&moments, 0.95, 0.0), None);
        assert_eq!(needed_for_half_width(0.0, 0.95, 1.0), Some(2));
    }

    #[test]
    fn medians_need_six_values_for_95_percent() {
        let sorted: Vec<f64> = (1..=5).map(f64::from).collect();
        assert!(median_interval(&sorted, 0.95).is_none());
        let sorted: Vec<f64> = (1..=6).map(f64::from).collect();
        let i = median_interval(&sorted, 0.95).unwrap();
        assert_eq!((i.low, i.high, i.centre), (1.0, 6.0, 3.5));
        close(i.level, 0.96875);
        let sorted: Vec<f64> = (1..=8).map(f64::from).collect();
        assert!(median_interval(&sorted[..7], 0.99).is_none());
        assert!(median_interval(&sorted, 0.99).is_some());
        assert_eq!([0.5, 0.9, 0.95, 0.99].map(fewest_for_median), [2, 5, 6, 8]);
    }

    #[test]
    fn typical_intervals_stay_within_the_range() {
        let interval = |values: &[f64], range| {
            let i = typical_interval(values, 0.95, range).unwrap();
            assert!(range.contains(i.low) && range.contains(i.high), "{i:?}");
            assert!(i.low <= values[0] && i.high >= *values.last().unwrap(), "{i:?}");
            (i.low, i.centre, i.high)
        };
        // In R, of x = log(c(50, 60, 400)): exp(mean(x) + c(-1, 1) * 4.302652729911275 * sd(x) / sqrt(3))
        let (low, centre, high) = interval(&[50.0, 60.0, 400.0], Range::POSITIVE);
        close(low, 6.082_034_085_498_298);
        close(high, 1_856.686_790_608_006);
        close(centre, 60.0);
        // The plain one is −323 … 663.
        interval(&[0.0, 0.0, 3.0], Range::POSITIVE);
        interval(&[0.0, 0.5, 1.0], Range::SHARE);
        interval(&[0.97, 0.98, 1.0], Range::SHARE);
        let (low, _, high) = interval(&[0.97, 0.98, 0.999], Range::SHARE);
        assert!(low < 0.97 && high < 1.0);
        interval(&[-0.9, 0.1, 0.2], Range::at_least(-1.0));
        interval(&[1e-300, 1.0, 1e300], Range::POSITIVE);
        assert_eq!(interval(&[0.3, 0.3, 0.3], Range::SHARE), (0.3, 0.3, 0.3));
        let six = [1.0, 2.0, 3.0, 4.0, 5.0, 600.0];
        assert_eq!(typical_interval(&six, 0.95, Range::POSITIVE), median_interval(&six, 0.95));
        assert_eq!(typical_interval(&[1.0], 0.95, Range::ANY), None);
    }

    #[test]
    fn a_majority_decides_about_every_other_time() {
        for kept in [0.55, 0.6, 0.7, 0.8, 0.9] {
            let n = needed_for_majority(kept, 0.95).unwrap();
            let values: Vec<f64> = (1..=n).map(|i| i as f64).collect();
            // The first value of the interval is k: at most k − 1 of the others may lie beyond the limit.
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small whole number")]
            let k = median_interval(&values, 0.95).unwrap().low as u64;
            let decided = Binomial::new(1.0 - kept, n).unwrap().cdf(k - 1);
            assert!((0.35..0.7).contains(&decided), "{kept}: {n} decide in {decided}");
        }
        assert_eq!(needed_for_majority(1.0, 0.95), Some(6));
        assert_eq!(needed_for_majority(0.3, 0.95), needed_for_majority(0.7, 0.95));
        assert_eq!(needed_for_majority(0.5, 0.95), None);
    }

    #[test]
    fn the_range_and_its_ends_choose_the_scale() {
        let of = Scale::of;
        assert_eq!(of(Range::ANY, &[-1.0, 2.0]), Scale::Plain);
        assert_eq!(of(Range::POSITIVE, &[1.0, 2.0]), Scale::Logarithm { low: 0.0 });
        assert_eq!(of(Range::POSITIVE, &[0.0, 2.0]), Scale::SquareRoot { low: 0.0 });
        assert_eq!(of(Range::POSITIVE, &[-1.0, 2.0]), Scale::Plain, "another program's table");
        assert_eq!(of(Range::SHARE, &[0.1, 0.9]), Scale::LogOdds { low: 0.0, width: 1.0 });
        assert_eq!(of(Range::SHARE, &[0.1, 1.0]), Scale::Arcsine { low: 0.0, width: 1.0 });
        assert_eq!(of(Range::at_least(-1.0), &[-0.5, 0.1]), Scale::Logarithm { low: -1.0 });
    }

    proptest! {
        #[test]
        fn there_and_back(value in 0.001..0.999f64, others in prop::collection::vec(0.0..=1.0f64, 1..4), place in -40.0..40.0f64) {
            for range in [Range::ANY, Range::POSITIVE, Range::SHARE, Range::at_least(-1.0)] {
                let scale = Scale::of(range, &[&[value], others.as_slice()].concat());
                prop_assert!((scale.back(scale.to(value)) - value).abs() < 1e-9, "{scale:?}");
                prop_assert!(range.contains(scale.back(place)), "{scale:?}");
                prop_assert!(scale.to(0.9995) > scale.to(value));
            }
        }
    }
}
