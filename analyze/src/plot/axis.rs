//! Axes: positions of values and ticks.

use super::quantity::{Notation, Quantity, Spacing};
use schemas::{
    metrics::Range,
    units::{Unit, human, three_digits},
};

/// A tick of an axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Tick {
    /// In the unit of the data.
    pub value: f64,
    /// Empty for a minor tick.
    pub label: String,
}

/// An axis with its range, in the unit of the data.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    pub quantity: Quantity,
    pub spacing: Spacing,
    pub min: f64,
    pub max: f64,
    /// Names along an axis of [`Spacing::Names`].
    pub names: Vec<String>,
    /// Whether zero is left out of a linear axis. The figure then says so.
    pub truncated: bool,
    notation: Notation,
}

impl Axis {
    /// An axis for values between `low` and `high`; equal values get room around them. A linear axis starts at zero
    /// unless `zoom`. It does not reach beyond the range of the quantity, except to values that do.
    pub fn new(quantity: Quantity, spacing: Spacing, low: f64, high: f64, zoom: bool) -> Self {
        let [low, high] = [low, high].map(drawable);
        let (low, high) = if low.is_finite() && high.is_finite() { (low.min(high), high.max(low)) } else { (0.0, 1.0) };
        let mut truncated = false;
        let (min, max) = match spacing {
            Spacing::Names => (-0.5, high + 0.5),
            Spacing::Linear => {
                let (mut min, mut max) = if zoom { (low, high) } else { (low.min(0.0), high.max(0.0)) };
                if (min, max) == (0.0, 0.0) {
                    // All values are zero. Most quantities have no negative values. The whole of a share would say less.
                    max = if quantity.range == Range::SHARE { 0.01 } else { 1.0 };
                } else if max - min <= 0.0 {
                    let around = min.abs() * 0.5;
                    (min, max) = (min - around, max + around);
                }
                let margin = (max - min) * 0.06;
                // A margin below zero would show impossible values.
                min = if min == 0.0 || (min > 0.0 && min < margin) { 0.0 } else { min - margin };
                max = if max == 0.0 { 0.0 } else { max + margin };
                truncated = min > 0.0;
                (min, max)
            }
            Spacing::Log10 | Spacing::Log2 | Spacing::Nines => {
                // Without a positive value there is nothing to show, but the axis must be valid.
                let high = if high > 0.0 { high } else { 10.0 };
                let low = if low > 0.0 { low } else { high / 1000.0 };
                if spacing == Spacing::Nines {
                    (low.min(1.0), high.max(10.0))
                } else if high <= low {
                    (low / 2.0, high * 2.0)
                } else {
                    let margin = (high / low).powf(0.03);
                    (low / margin, high * margin)
                }
            }
        };
        let (min, max) = match spacing {
            Spacing::Linear | Spacing::Log10 | Spacing::Log2 => {
                (min.max(quantity.range.low.min(low)), max.min(quantity.range.high.max(high)))
            }
            Spacing::Names | Spacing::Nines => (min, max),
        };
        let (min, max) = bounded(spacing, min, max);
        let notation = Notation::choose(&quantity, spacing, min, max);
        Self { quantity, spacing, min, max, names: Vec::new(), truncated, notation }
    }

    pub fn of_names(label: impl Into<String>, names: Vec<String>) -> Self {
        let last = names.len().saturating_sub(1) as f64;
        let mut axis = Self::new(Quantity::new(label, None), Spacing::Names, 0.0, last, true);
        axis.names = names;
        axis.truncated = false;
        axis
    }

    /// An axis that begins and ends exactly at these values: for time, the ends of the measurement.
    pub fn exact(quantity: Quantity, spacing: Spacing, min: f64, max: f64) -> Self {
        let mut axis = Self::new(quantity, spacing, min, max, true);
        let (min, max) = bounded(spacing, min, max);
        if min < max {
            (axis.min, axis.max) = (min, max);
            axis.notation = Notation::choose(&axis.quantity, spacing, min, max);
        }
        axis.truncated = false;
        axis
    }

    /// The title: quantity and unit.
    pub fn title(&self) -> String {
        let label = &self.quantity.label;
        let unit = match &self.notation {
            Notation::Scaled { unit, .. } | Notation::Prefixed { unit } => unit,
            Notation::Times { range, .. } => range,
        };
        if unit.is_empty() { label.clone() } else { format!("{label} ({unit})") }
    }

    /// The position of a value: 0 at the start of the axis, 1 at its end. `None` where it has no place (zero on a
    /// logarithmic axis, not a number).
    pub fn position(&self, value: f64) -> Option<f64> {
        let share = if self.spacing.is_logarithmic() {
            if value <= 0.0 {
                return None;
            }
            (value.ln() - self.min.ln()) / (self.max.ln() - self.min.ln())
        } else {
            (value - self.min) / (self.max - self.min)
        };
        share.is_finite().then_some(share)
    }

    /// A value in the unit of the title, with three digits.
    pub fn number(&self, value: f64) -> String {
        match &self.notation {
            Notation::Scaled { factor, .. } => three_digits(value / factor),
            _ => self.label(value, &[value]),
        }
    }

    /// A value with its unit.
    pub fn words(&self, value: f64) -> String {
        let plain = || if value.fract() == 0.0 && value.abs() < 1e6 { value.to_string() } else { three_digits(value) };
        self.quantity.unit.map_or_else(plain, |unit| human(unit, value))
    }

    /// The densest ticks that fit; `fits` sees the labelled ones.
    pub fn ticks(&self, fits: impl Fn(&[Tick]) -> bool) -> Vec<Tick> {
        let candidates = match self.spacing {
            Spacing::Names => {
                return self
                    .names
                    .iter()
                    .enumerate()
                    .map(|(at, name)| Tick { value: at as f64, label: name.clone() })
                    .collect();
            }
            Spacing::Nines => return self.nines(),
            Spacing::Linear => self.linear(),
            Spacing::Log10 => self.decades(),
            Spacing::Log2 => self.doublings(),
        };
        let mut last = Vec::new();
        for values in candidates {
            let ticks: Vec<Tick> = values.iter().map(|v| Tick { value: *v, label: self.label(*v, &values) }).collect();
            if !ticks.is_empty() && fits(&ticks) {
                return self.with_minor(ticks);
            }
            if !ticks.is_empty() {
                last = ticks;
            }
        }
        last.truncate(1);
        last
    }

    /// Adds minor ticks, 2 … 9 between decades, which mark a logarithmic axis. Beyond eight decades they are too many.
    fn with_minor(&self, mut ticks: Vec<Tick>) -> Vec<Tick> {
        let decades = (self.max / self.min).log10();
        if self.spacing == Spacing::Log10 && decades <= 8.0 {
            let mut decade = 10_f64.powf(self.min.log10().floor());
            while decade < self.max {
                for step in 2..10 {
                    let value = decade * f64::from(step);
                    let known = ticks.iter().any(|t| (t.value / value - 1.0).abs() < 1e-9);
                    if value >= self.min && value <= self.max && !known {
                        ticks.push(Tick { value, label: String::new() });
                    }
                }
                decade *= 10.0;
            }
        }
        ticks
    }

    /// Sets of ticks in steps of 1, 2 or 5 times a power of ten, densest first.
    fn linear(&self) -> Vec<Vec<f64>> {
        let factor = match &self.notation {
            Notation::Scaled { factor, .. } => *factor,
            _ => 1.0,
        };
        let (min, max) = (self.min / factor, self.max / factor);
        let span = max - min;
        let mut sets = Vec::new();
        let whole_only = self.quantity.unit == Some(Unit::Count) || self.names_whole_numbers();
        for count in (1..=8).rev() {
            let rough = span / f64::from(count);
            let power = 10_f64.powf(rough.log10().floor());
            let step = [1.0, 2.0, 5.0, 10.0].map(|m| m * power).into_iter().find(|s| *s >= rough * 0.999_999);
            let Some(step) = step.filter(|s| !whole_only || *s >= 1.0 / factor) else { continue };
            let first = (min / step - 1e-9).ceil();
            let values: Vec<f64> = (0..=40)
                .map(|i| (first + f64::from(i)) * step)
                .take_while(|v| *v <= max + step * 1e-9)
                // Rounds through text: 3 × 0.1 is not 0.3.
                .map(|v| format!("{v:.12}").parse::<f64>().unwrap_or(v))
                .map(|v| if v == 0.0 { 0.0 } else { v * factor })
                .collect();
            if values.len() >= 2 && sets.last() != Some(&values) {
                sets.push(values);
            }
        }
        sets
    }

    fn names_whole_numbers(&self) -> bool {
        self.quantity.is_parallel() || self.quantity.label == "iteration"
    }

    fn decades(&self) -> Vec<Vec<f64>> {
        let (low, high) = (self.min.log10(), self.max.log10());
        let mut sets = Vec::new();
        let powers = |every: i32| -> Vec<f64> {
            #[expect(clippy::cast_possible_truncation, reason = "decimal exponents of f64 are small")]
            let (first, last) = ((low - 1e-9).ceil() as i32, (high + 1e-9).floor() as i32);
            (first..=last).filter(|e| e.rem_euclid(every) == 0).map(|e| 10_f64.powi(e)).collect()
        };
        if high - low < 1.2 {
            // Within about a decade powers of ten are too few.
            sets.extend(self.linear().into_iter().map(|set| set.into_iter().filter(|v| *v > 0.0).collect()));
        }
        if high - low < 4.0 {
            for steps in [&[1.0, 2.0, 5.0][..], &[1.0, 3.0]] {
                #[expect(clippy::cast_possible_truncation, reason = "decimal exponents of f64 are small")]
                let (first, last) = (low.floor() as i32, high.ceil() as i32);
                let values: Vec<f64> = (first..=last)
                    .flat_map(|e| steps.iter().map(move |s| s * 10_f64.powi(e)))
                    .filter(|v| *v >= self.min * 0.999_999 && *v <= self.max * 1.000_001)
                    .collect();
                sets.push(values);
            }
        }
        sets.extend([1, 2, 3, 4, 6].map(powers));
        sets.retain(|set| set.len() > 1 || high - low < 1.0);
        sets
    }

    fn doublings(&self) -> Vec<Vec<f64>> {
        let (low, high) = ((self.min.log2() - 1e-9).ceil(), (self.max.log2() + 1e-9).floor());
        #[expect(clippy::cast_possible_truncation, reason = "binary exponents of f64 are small")]
        let (low, high) = (low as i32, high as i32);
        [1, 2, 3, 4, 5, 6, 8, 10, 20]
            .map(|every| (low..=high).filter(|e| e.rem_euclid(every) == 0).map(|e| 2_f64.powi(e)).collect())
            .to_vec()
    }

    fn nines(&self) -> Vec<Tick> {
        let mut ticks = vec![Tick { value: 1.0, label: "0 %".into() }, Tick { value: 2.0, label: "50 %".into() }];
        let mut value = 10.0;
        let mut decimals = 0_usize;
        while value <= self.max * 1.000_001 {
            let share = 100.0 - 100.0 / value;
            ticks.push(Tick { value, label: format!("{share:.decimals$} %") });
            value *= 10.0;
            // 90, 99, 99.9, 99.99
            decimals = if value < 999.0 { 0 } else { decimals + 1 };
        }
        ticks
    }

    fn label(&self, value: f64, all: &[f64]) -> String {
        self.notation.label(self.quantity.unit, self.spacing.is_logarithmic(), value, all)
    }
}

/// The largest number that has a place on an axis, and its inverse the smallest on a logarithmic one. The margins and
/// ticks around it are numbers too.
const MOST: f64 = 1e300;

/// The value, or the nearest that has a place; the smallest are zero. NaN and infinities stay.
fn drawable(value: f64) -> f64 {
    match value.abs() {
        size if !size.is_finite() => value,
        size if size < 1.0 / MOST => 0.0,
        _ => value.clamp(-MOST, MOST),
    }
}

/// The ends of an axis. A margin around a large number may be infinite.
fn bounded(spacing: Spacing, min: f64, max: f64) -> (f64, f64) {
    let (min, max) = (min.clamp(-MOST, MOST), max.clamp(-MOST, MOST));
    if spacing.is_logarithmic() { (min.max(1.0 / MOST), max.max(1.0 / MOST)) } else { (min, max) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis, at_most: usize) -> Vec<String> {
        let ticks = axis.ticks(|t| t.len() <= at_most);
        ticks.into_iter().map(|t| t.label).filter(|l| !l.is_empty()).collect()
    }

    #[test]
    fn throughput_is_said_in_one_unit_from_zero() {
        let axis = Axis::new(Quantity::of_column("throughput_bits_per_s"), Spacing::Linear, 9e9, 41e9, false);
        assert_eq!(axis.title(), "throughput (Gbit/s)");
        assert_eq!(labels(&axis, 6), ["0", "10", "20", "30", "40"]);
        assert!(!axis.truncated);
    }

    #[test]
    fn sizes_have_binary_ticks() {
        let axis = Axis::new(Quantity::of_column("message_bytes"), Spacing::Log2, 1.0, 1_048_576.0, false);
        assert_eq!(axis.title(), "message size (bytes)");
        assert_eq!(labels(&axis, 8), ["1", "8", "64", "512", "4 Ki", "32 Ki", "256 Ki"]);
        assert_eq!(labels(&axis, 6), ["1", "16", "256", "4 Ki", "64 Ki", "1 Mi"]);
    }

    #[test]
    fn events_per_second_read_as_in_tables() {
        let title =
            |high| Axis::new(Quantity::of_column("transactions_per_s"), Spacing::Linear, 0.0, high, false).title();
        assert_eq!(title(500.0), "transaction rate (1/s)");
        assert_eq!(title(5e4), "transaction rate (k/s)");
    }

    #[test]
    fn wide_logarithmic_axes_prefix_each_tick() {
        let axis = Axis::new(Quantity::of_column("throughput_bits_per_s"), Spacing::Log10, 1e6, 5e10, false);
        assert_eq!(axis.title(), "throughput (bit/s)");
        assert_eq!(labels(&axis, 6), ["1 M", "10 M", "100 M", "1 G", "10 G"]);
        let axis = Axis::new(Quantity::of_column("latency_p99_us"), Spacing::Log10, 2.0, 3e6, false);
        assert_eq!(axis.title(), "latency, 99th percentile (µs … s)");
        assert_eq!(labels(&axis, 7), ["10 µs", "100 µs", "1 ms", "10 ms", "100 ms", "1 s"]);
    }

    #[test]
    fn latency_is_said_in_the_unit_that_fits() {
        let axis = Axis::new(Quantity::of_column("latency_p99_us"), Spacing::Linear, 12.0, 91.0, false);
        assert_eq!(axis.title(), "latency, 99th percentile (µs)");
        let axis = Axis::new(Quantity::of_column("latency_p99_us"), Spacing::Linear, 1.2e4, 9.1e4, false);
        assert_eq!(axis.title(), "latency, 99th percentile (ms)");
        assert_eq!(labels(&axis, 6), ["0", "20", "40", "60", "80"]);
    }

    #[test]
    fn a_single_value_gets_room_and_a_small_range_equal_decimals() {
        let axis = Axis::new(Quantity::new("x", None), Spacing::Linear, 5.0, 5.0, true);
        assert!(axis.min < 5.0 && axis.max > 5.0 && axis.truncated);
        let axis = Axis::new(Quantity::new("x", None), Spacing::Linear, 0.0, 0.0, true);
        assert!(axis.min == 0.0 && axis.max >= 1.0, "nothing below zero: {axis:?}");
        let axis = Axis::new(Quantity::new("x", None), Spacing::Linear, 0.97, 1.06, true);
        assert_eq!(labels(&axis, 6), ["0.98", "1.00", "1.02", "1.04", "1.06"]);
        let axis = Axis::new(Quantity::new("x", None), Spacing::Log2, 64.0, 64.0, false);
        assert_eq!(labels(&axis, 3), ["32", "64", "128"]);
    }

    #[test]
    fn percentiles_count_their_nines() {
        let axis = Axis::new(Quantity::new("percentile", None), Spacing::Nines, 1.0, 1e4, false);
        assert_eq!(labels(&axis, 9), ["0 %", "50 %", "90 %", "99 %", "99.9 %", "99.99 %"]);
    }

    #[test]
    fn extreme_values_still_have_ticks() {
        let largest = f64::MAX;
        let ranges = [
            (1e-9, 2e-9),
            (1e15, 3e15),
            (0.0, 0.0),
            (-5.0, 5.0),
            (f64::NAN, 1.0),
            (-largest, largest),
            (largest, largest),
            (f64::MIN_POSITIVE, largest),
            (5e-324, 5e-324),
        ];
        for (low, high) in ranges {
            for spacing in [Spacing::Linear, Spacing::Log10, Spacing::Log2] {
                let axis = Axis::new(Quantity::new("x", None), spacing, low, high, false);
                let labels = labels(&axis, 8);
                assert!(!labels.is_empty(), "{low} {high} {spacing:?}");
                assert!(labels.iter().all(|l| l.chars().count() < 10), "{labels:?}");
            }
        }
    }
}
