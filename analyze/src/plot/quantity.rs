//! Spacing of a quantity's values along an axis, and their notation.

pub use crate::table::quantity::Quantity;

use schemas::units::Unit;

// Spacing of values along an axis.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spacing {
    Linear,
    Log10,
    /// Logarithmic with ticks at powers of two: sizes.
    Log2,
    /// Shares of a distribution by the logarithm of the rest: 90 %, 99 %, 99.9 % are equally far apart. Values are 1 ÷
    /// (1 − share).
    Nines,
    /// Names at the whole numbers from 0 on.
    Names,
}

impl Spacing {
    pub fn is_logarithmic(self) -> bool {
        matches!(self, Self::Log10 | Self::Log2 | Self::Nines)
    }

    /// Whether the value has a place: only positive ones have on a logarithmic axis.
    pub fn shows(self, value: f64) -> bool {
        value > 0.0 || !self.is_logarithmic()
    }
}

// Notation of the values of an axis: one unit for all, or a prefix each.

/// Notation of the values of an axis.
#[derive(Clone, Debug, PartialEq)]
pub enum Notation {
    /// Divided by a factor; the title of the axis has the unit.
    Scaled {
        factor: f64,
        /// In the title.
        unit: String,
    },
    /// Each with its prefix; the title has the plain unit.
    Prefixed {
        /// In the title.
        unit: String,
    },
    /// Times from nanoseconds to seconds, each with its unit.
    Times {
        /// Number of the data's units in a second.
        per_second: f64,
        /// In the title: the units that occur.
        range: String,
    },
}

fn is_whole(value: f64) -> bool {
    (value - value.round()).abs() < 1e-6
}

/// Up to four significant digits, no trailing zeros.
fn plain(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    if value.abs() >= 1e6 || value.abs() < 1e-6 {
        let text = format!("{value:.2e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        return format!("{}e{exponent}", digits.trim_end_matches('0').trim_end_matches('.'));
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 9")]
    let decimals = (3.0 - value.abs().log10().floor()).clamp(0.0, 9.0) as usize;
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

fn prefixed(value: f64, step: f64, prefixes: &[&str]) -> String {
    let mut scaled = value;
    let mut index = 0;
    while scaled.abs() >= step * 0.9995 && index + 1 < prefixes.len() {
        scaled /= step;
        index += 1;
    }
    format!("{}{}", plain(scaled), prefixes[index])
}

/// The unit for a time, and its length in seconds.
fn time_unit(seconds: f64) -> (f64, &'static str) {
    const UNITS: [(f64, &str); 3] = [(1.0, "s"), (1e-3, "ms"), (1e-6, "µs")];
    UNITS.into_iter().find(|(length, _)| seconds.abs() >= length * 0.9995).unwrap_or((1e-9, "ns"))
}

impl Notation {
    /// The label of a tick; `all` are the values of the axis' ticks.
    pub fn label(&self, unit: Option<Unit>, logarithmic: bool, value: f64, all: &[f64]) -> String {
        // A minus sign is as wide as a digit, a hyphen is not.
        self.plain_label(unit, logarithmic, value, all).replace('-', "−")
    }

    fn plain_label(&self, unit: Option<Unit>, logarithmic: bool, value: f64, all: &[f64]) -> String {
        match self {
            Notation::Scaled { factor, .. } => {
                let step = all.windows(2).map(|w| (w[1] - w[0]).abs()).fold(f64::INFINITY, f64::min) / factor;
                if logarithmic || !step.is_finite() {
                    plain(value / factor)
                } else {
                    // Ticks of one axis have equal decimals: 0.5, 1.0, 1.5.
                    let decimals = (0..=9).find(|d| is_whole(step * 10_f64.powi(*d))).unwrap_or(9);
                    #[expect(clippy::cast_sign_loss, reason = "0 to 9")]
                    let decimals = decimals as usize;
                    // Beyond the prefixes zeros are hard to count.
                    if value.abs() / factor >= 1e7 {
                        plain(value / factor)
                    } else {
                        format!("{:.decimals$}", value / factor)
                    }
                }
            }
            Notation::Prefixed { .. } if unit == Some(Unit::Bytes) => {
                const PREFIXES: [&str; 6] = ["", " Ki", " Mi", " Gi", " Ti", " Pi"];
                prefixed(value, 1024.0, &PREFIXES)
            }
            Notation::Prefixed { .. } => {
                if value.abs() < 0.9995 {
                    return plain(value);
                }
                prefixed(value, 1000.0, &["", " k", " M", " G", " T", " P"])
            }
            Notation::Times { per_second, .. } => {
                let seconds = value / per_second;
                let (factor, unit) = time_unit(seconds);
                format!("{} {unit}", plain(seconds / factor))
            }
        }
    }

    /// The notation for an axis between two values.
    pub fn choose(quantity: &Quantity, spacing: Spacing, min: f64, max: f64) -> Self {
        let largest = min.abs().max(max.abs());
        // On a logarithmic axis the middle decides, and four decades do not fit under one unit.
        let wide = spacing.is_logarithmic() && max / min > 1e4;
        let typical = if spacing.is_logarithmic() { (min * max).sqrt() } else { largest };
        let scaled = |factor: f64, unit: String| Self::Scaled { factor, unit };
        let si = |base: &str| {
            if wide {
                return Self::Prefixed { unit: base.to_owned() };
            }
            let prefixes = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
            let (factor, prefix) = prefixes.into_iter().find(|(f, _)| typical >= *f).unwrap_or((1.0, ""));
            scaled(factor, format!("{prefix}{base}"))
        };
        let time = |per_second: f64| {
            let unit = time_unit(typical / per_second);
            if wide {
                let range = format!("{} … {}", time_unit(min / per_second).1, time_unit(max / per_second).1);
                return Self::Times { per_second, range };
            }
            scaled(unit.0 * per_second, unit.1.to_owned())
        };
        if matches!(spacing, Spacing::Names | Spacing::Nines) {
            return scaled(1.0, String::new());
        }
        match quantity.unit {
            Some(Unit::BitsPerSecond) => si("bit/s"),
            Some(Unit::PerSecond) => match si("/s") {
                // Without a prefix the slash would stand alone.
                Self::Scaled { factor, unit } if unit == "/s" => scaled(factor, "1/s".to_owned()),
                Self::Prefixed { .. } => Self::Prefixed { unit: "1/s".to_owned() },
                other => other,
            },
            Some(Unit::MopsPerSecond) => scaled(1.0, "Mop/s".to_owned()),
            Some(Unit::Bytes) if spacing.is_logarithmic() => Self::Prefixed { unit: "bytes".to_owned() },
            Some(Unit::Bytes) => {
                let units =
                    [(1_099_511_627_776.0, "TiB"), (1_073_741_824.0, "GiB"), (1_048_576.0, "MiB"), (1024.0, "KiB")];
                let (factor, unit) = units.into_iter().find(|(f, _)| typical >= *f).unwrap_or((1.0, "bytes"));
                scaled(factor, unit.to_owned())
            }
            // The largest value decides the unit: 0.5 s beside 10 s, instead of 500 ms.
            Some(Unit::Seconds) => time(1.0),
            Some(Unit::Microseconds) => time(1e6),
            Some(Unit::Ratio) => scaled(0.01, "%".to_owned()),
            Some(Unit::ServiceDemand) => {
                scaled(1.0, quantity.per.as_ref().map_or_else(|| "µs".to_owned(), |per| format!("µs/{per}")))
            }
            Some(Unit::Count) | None if largest >= 1e5 || (wide && max >= 1e4) => si(""),
            Some(Unit::Count) | None => scaled(1.0, String::new()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_prefix_reaches_has_an_exponent() {
        let axis = Notation::choose(&Quantity::of_column("throughput_bits_per_s"), Spacing::Linear, 0.0, 2e19);
        let label = |value| axis.label(Some(Unit::BitsPerSecond), false, value, &[0.0, 5e18, 1e19, 1.5e19]);
        assert_eq!([0.0, 5e18, 1.5e19].map(label), ["0", "5000000", "1.5e7"]);
        assert_eq!(plain(4e-7), "4e-7");
    }
}
