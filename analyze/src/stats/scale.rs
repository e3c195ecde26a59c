//! Scales on which an interval cannot leave the range of its quantity.
//!
//! Noise of a positive quantity is a share of it, so it is judged by its logarithm; a share by its log-odds. Both are
//! undefined at the ends of the range. Where a value lies there, the square root and the arcsine of the square root take
//! their place: these are the scales on which counts and proportions vary about evenly (Bartlett, Biometrics 3, 1947).

use schemas::metrics::Range;

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
