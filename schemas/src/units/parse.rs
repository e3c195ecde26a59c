//! Quantities as people write them: a decimal number directly followed by a unit.

use std::time::Duration;

use super::{QuantityError, Rate, Unit};

fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let bytes = text.as_bytes();
    let mut end = 0;
    while end < bytes.len() {
        let c = bytes[end];
        let exponent = (c == b'e' || c == b'E')
            && end > 0
            && bytes.get(end + 1).is_some_and(|n| {
                n.is_ascii_digit() || ((*n == b'-' || *n == b'+') && bytes.get(end + 2).is_some_and(u8::is_ascii_digit))
            });
        if c.is_ascii_digit() || c == b'.' || (end == 0 && (c == b'-' || c == b'+')) {
            end += 1;
        } else if exponent {
            end += 2;
        } else {
            break;
        }
    }
    (&text[..end], text[end..].trim_start())
}

fn number(text: &str, wanted: &'static str, example: &'static str) -> Result<(f64, String), QuantityError> {
    let (digits, unit) = split(text);
    let value: f64 =
        digits.parse().map_err(|_| QuantityError::NotANumber { text: text.trim().to_owned(), wanted, example })?;
    if value < 0.0 {
        return Err(QuantityError::OutOfRange { text: text.trim().to_owned(), wanted, fault: "negative" });
    }
    if !value.is_finite() {
        return Err(QuantityError::OutOfRange { text: text.trim().to_owned(), wanted, fault: "beyond all numbers" });
    }
    Ok((value, unit.to_owned()))
}

/// The factor of a size unit, `None` for an unknown unit.
fn size_factor(unit: &str) -> Option<f64> {
    const KI: f64 = 1024.0;
    Some(match unit {
        "" | "B" => 1.0,
        "KiB" | "K" | "Ki" => KI,
        "MiB" | "M" | "Mi" => KI * KI,
        "GiB" | "G" | "Gi" => KI * KI * KI,
        "TiB" | "Ti" => KI * KI * KI * KI,
        "kB" | "KB" | "k" => 1e3,
        "MB" | "m" => 1e6,
        "GB" | "g" => 1e9,
        "TB" => 1e12,
        _ => return None,
    })
}

/// Reads a size in bytes: `1472`, `64KiB`, `1MB`, and netperf's `64K` (2^10) or `64k` (10^3).
pub fn parse_size(text: &str) -> Result<u64, QuantityError> {
    const WANTED: &str = "a size";
    let (digits, unit) = split(text);
    // Whole numbers go through integers: sizes above 2^53 must not be rounded.
    let (value, unit) = match digits.parse::<u64>() {
        Ok(whole) if size_factor(unit).is_some() => {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "factors are small whole numbers"
            )]
            let factor = size_factor(unit).unwrap_or(1.0) as u64;
            return whole
                .checked_mul(factor)
                .filter(|v| i64::try_from(*v).is_ok())
                .ok_or_else(|| QuantityError::TooLarge { text: text.trim().to_owned(), limit: "8 EiB" });
        }
        _ => number(text, WANTED, "64KiB, 1MB or 1472")?,
    };
    let factor = size_factor(&unit).ok_or_else(|| {
        let help = match unit.as_str() {
            "kib" | "kiB" | "KIB" => "write KiB".to_owned(),
            "mib" | "miB" | "MIB" => "write MiB".to_owned(),
            "gib" | "giB" | "GIB" => "write GiB".to_owned(),
            "kb" | "Kb" | "mb" | "Mb" | "gb" | "Gb" => format!(
                "a size is in bytes: write {}B or {}iB",
                unit[..1].to_ascii_uppercase(),
                unit[..1].to_ascii_uppercase()
            ),
            _ => "sizes are in B, KiB, MiB, GiB (1024) or kB, MB, GB (1000)".to_owned(),
        };
        QuantityError::UnknownUnit { text: text.trim().to_owned(), unit: unit.clone(), help }
    })?;
    let bytes = value * factor;
    if bytes > i64::MAX as f64 {
        return Err(QuantityError::TooLarge { text: text.trim().to_owned(), limit: "8 EiB" });
    }
    if bytes.fract() != 0.0 {
        return Err(QuantityError::OutOfRange {
            text: text.trim().to_owned(),
            wanted: WANTED,
            fault: "no whole number of bytes",
        });
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked just above")]
    Ok(bytes as u64)
}

/// Reads a duration: `10` (seconds), `1.5s`, `150us`, `2m`, `1h`.
pub fn parse_duration(text: &str) -> Result<Duration, QuantityError> {
    let (value, unit) = number(text, "a duration", "10s, 500ms or 150us")?;
    let seconds = value
        * match unit.as_str() {
            "ns" => 1e-9,
            "us" | "µs" | "μs" => 1e-6,
            "ms" => 1e-3,
            "" | "s" => 1.0,
            "m" | "min" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            _ => {
                return Err(QuantityError::UnknownUnit {
                    text: text.trim().to_owned(),
                    unit,
                    help: "durations are in ns, us, ms, s, m, h or d".to_owned(),
                });
            }
        };
    // A hundred years: longer is a mistake, and everything downstream fits nanoseconds in 64 bits.
    if seconds > 3.2e9 {
        return Err(QuantityError::TooLarge { text: text.trim().to_owned(), limit: "100 years" });
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// Reads a ratio: `2.5%` or `0.025`.
pub fn parse_ratio(text: &str) -> Result<f64, QuantityError> {
    let (value, unit) = number(text, "a ratio", "2.5% or 0.025")?;
    match unit.as_str() {
        "" => Ok(value),
        "%" => Ok(value / 100.0),
        "ppm" => Ok(value / 1e6),
        _ => Err(QuantityError::UnknownUnit {
            text: text.trim().to_owned(),
            unit,
            help: "ratios are in %, in ppm, or plain (0.025)".to_owned(),
        }),
    }
}

/// Reads a ratio that a user means as a share or a change, as [`parse_ratio`] does. A plain number from 1 on is refused: it is nearly
/// always a percentage without its sign.
pub fn parse_margin(text: &str) -> Result<f64, QuantityError> {
    let ratio = parse_ratio(text)?;
    let (digits, unit) = split(text);
    if unit.is_empty() && ratio >= 1.0 {
        let help = format!("as a plain number it is {} %: write {digits}% or {}%", ratio * 100.0, ratio * 100.0);
        return Err(QuantityError::UnknownUnit { text: text.trim().to_owned(), unit: String::new(), help });
    }
    Ok(ratio)
}

fn decimal_prefix(prefix: &str) -> Option<f64> {
    Some(match prefix {
        "" => 1.0,
        "k" | "K" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        _ => return None,
    })
}

/// Reads a rate: `10Gbit/s`, `125MB/s`, `64KiB/s`, or events as `20k/s`, `1000/s`.
pub fn parse_rate(text: &str) -> Result<Rate, QuantityError> {
    let (value, unit) = number(text, "a rate", "10Gbit/s, 125MB/s or 20k/s")?;
    let (digits, _) = split(text);
    if let Some(prefix) = unit.strip_suffix("bps").or_else(|| unit.strip_suffix("Bps"))
        && decimal_prefix(prefix).is_some()
    {
        return Err(QuantityError::BitsOrBytes {
            text: text.trim().to_owned(),
            bits: format!("{digits}{prefix}bit/s"),
            bytes: format!("{digits}{prefix}B/s"),
        });
    }
    let unknown = |help: String| QuantityError::UnknownUnit { text: text.trim().to_owned(), unit: unit.clone(), help };
    let Some(per) = unit.strip_suffix("/s") else {
        let help = match unit.as_str() {
            "" => "a rate needs a unit: Gbit/s, MB/s or /s".to_owned(),
            _ => match unit
                .strip_suffix("bit")
                .map(|p| (p, "bit/s"))
                .or_else(|| unit.strip_suffix('B').map(|p| (p, "B/s")))
            {
                Some((prefix, per)) => format!("write {digits}{prefix}{per}"),
                None => {
                    "rates are in bit/s, kbit/s, Mbit/s, Gbit/s, B/s, kB/s, MB/s, KiB/s … or events as k/s".to_owned()
                }
            },
        };
        return Err(unknown(help));
    };
    if let Some(factor) = decimal_prefix(per) {
        return Ok(Rate::Events(value * factor));
    }
    if let Some(factor) = per.strip_suffix("bit").and_then(decimal_prefix) {
        return Ok(Rate::Bits(value * factor));
    }
    if let Some(factor) = per.strip_suffix("ibit").and_then(|p| size_factor(p).filter(|_| p.len() == 1 && p != "B")) {
        return Ok(Rate::Bits(value * factor));
    }
    if per.ends_with('B')
        && let Some(factor) = size_factor(per)
    {
        return Ok(Rate::Bits(value * factor * 8.0));
    }
    let help = match per.strip_suffix('b').filter(|p| decimal_prefix(p).is_some()) {
        Some(prefix) => format!("did you mean {digits}{prefix}bit/s?"),
        None => "rates are in bit/s, kbit/s, Mbit/s, Gbit/s, B/s, kB/s, MB/s, KiB/s … or events as k/s".to_owned(),
    };
    Err(unknown(help))
}

/// Reads a quantity that says its unit, `50ms`, `1Gbit/s`, `20k/s` or `64KiB`, and returns it in that unit. `None` for other
/// text, also for a plain number.
#[must_use]
pub fn parse_with_unit(text: &str) -> Option<(Unit, f64)> {
    if split(text).1.is_empty() {
        return None;
    }
    let rate = parse_rate(text).ok().map(|rate| match rate {
        Rate::Bits(value) => (Unit::BitsPerSecond, value),
        Rate::Events(value) => (Unit::PerSecond, value),
    });
    let duration = || parse_duration(text).ok().map(|duration| (Unit::Seconds, duration.as_secs_f64()));
    let size = || parse_size(text).ok().map(|bytes| (Unit::Bytes, bytes as f64));
    let ratio = || parse_ratio(text).ok().map(|ratio| (Unit::Ratio, ratio));
    rate.or_else(duration).or_else(size).or_else(ratio)
}

/// Reads a limit for a metric in the metric's own unit and returns it in the unit of the metric's column.
pub fn parse_for(unit: Unit, text: &str) -> Result<f64, QuantityError> {
    match unit {
        Unit::BitsPerSecond | Unit::PerSecond => match (unit, parse_rate(text)?) {
            (Unit::BitsPerSecond, Rate::Bits(v)) | (Unit::PerSecond, Rate::Events(v)) => Ok(v),
            (Unit::BitsPerSecond, Rate::Events(_)) => Err(QuantityError::UnknownUnit {
                text: text.trim().to_owned(),
                unit: split(text).1.to_owned(),
                help: "this metric is in bits per second: write Gbit/s or MB/s".to_owned(),
            }),
            _ => Err(QuantityError::UnknownUnit {
                text: text.trim().to_owned(),
                unit: split(text).1.to_owned(),
                help: "this metric is in events per second: write 20k/s".to_owned(),
            }),
        },
        // The plain rate was how it was written before it had a unit.
        Unit::MopsPerSecond => match split(text) {
            (digits, "Mop/s") => parse_for(Unit::PerSecond, &format!("{digits}/s")),
            _ => parse_for(Unit::PerSecond, text),
        },
        Unit::Bytes => Ok(parse_size(text)? as f64),
        Unit::Seconds => Ok(parse_duration(text)?.as_secs_f64()),
        Unit::Microseconds => {
            if split(text).1.is_empty() {
                return Err(QuantityError::UnknownUnit {
                    text: text.trim().to_owned(),
                    unit: String::new(),
                    help: "say the unit: us, ms or s".to_owned(),
                });
            }
            Ok(parse_duration(text)?.as_secs_f64() * 1e6)
        }
        Unit::Ratio => parse_ratio(text),
        Unit::Count => {
            let (value, suffix) = number(text, "a count", "10 or 20k")?;
            decimal_prefix(&suffix).map(|f| value * f).ok_or_else(|| QuantityError::UnknownUnit {
                text: text.trim().to_owned(),
                unit: suffix,
                help: "counts have no unit; k, M and G are accepted".to_owned(),
            })
        }
        Unit::ServiceDemand => {
            let (value, suffix) = number(text, "a service demand", "0.12us/KiB or 5us/transaction")?;
            match suffix.as_str() {
                "us/KiB" | "us/transaction" => Ok(value),
                _ => Err(QuantityError::UnknownUnit {
                    text: text.trim().to_owned(),
                    unit: suffix,
                    help: "service demand is in us/KiB (streams) or us/transaction".to_owned(),
                }),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes() {
        assert_eq!(parse_size("1472"), Ok(1472));
        assert_eq!(parse_size("64KiB"), Ok(65_536));
        assert_eq!(parse_size("1MB"), Ok(1_000_000));
        assert_eq!(parse_size("1.5KiB"), Ok(1536));
        assert_eq!(parse_size("64K"), Ok(65_536));
        assert_eq!(parse_size("64k"), Ok(64_000));
        assert_eq!(parse_size("9007199254740993"), Ok(9_007_199_254_740_993));
        assert!(matches!(parse_size("99999999999GiB"), Err(QuantityError::TooLarge { .. })));
        assert!(matches!(parse_size("1.3B"), Err(QuantityError::OutOfRange { .. })));
        assert!(matches!(parse_size("-1"), Err(QuantityError::OutOfRange { .. })));
        assert!(parse_size("64kib").unwrap_err().to_string().contains("write KiB"));
        assert!(matches!(parse_size(""), Err(QuantityError::NotANumber { .. })));
    }

    #[test]
    fn a_unit_in_the_text_says_what_it_is() {
        assert_eq!(parse_with_unit("50ms"), Some((Unit::Seconds, 0.05)));
        assert_eq!(parse_with_unit("1Gbit/s"), Some((Unit::BitsPerSecond, 1e9)));
        assert_eq!(parse_with_unit("20k/s"), Some((Unit::PerSecond, 20_000.0)));
        assert_eq!(parse_with_unit("64KiB"), Some((Unit::Bytes, 65_536.0)));
        assert_eq!(parse_with_unit("1%"), Some((Unit::Ratio, 0.01)));
        assert_eq!(["50", "cubic", "1e3", ""].map(parse_with_unit), [None; 4]);
    }

    #[test]
    fn durations() {
        assert_eq!(parse_duration("10"), Ok(Duration::from_secs(10)));
        assert_eq!(parse_duration("150us"), Ok(Duration::from_micros(150)));
        assert_eq!(parse_duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_mins(2)));
        assert!(parse_duration("2 fortnights").is_err());
        assert!(matches!(parse_duration("9e99"), Err(QuantityError::TooLarge { .. })));
    }

    #[test]
    fn rates() {
        assert_eq!(parse_rate("1Gbit/s"), Ok(Rate::Bits(1e9)));
        assert_eq!(parse_rate("125MB/s"), Ok(Rate::Bits(1e9)));
        assert_eq!(parse_rate("1KiB/s"), Ok(Rate::Bits(8192.0)));
        assert_eq!(parse_rate("1Mibit/s"), Ok(Rate::Bits(1_048_576.0)));
        assert_eq!(parse_rate("20k/s"), Ok(Rate::Events(20_000.0)));
        assert_eq!(
            parse_rate("10Mbps").unwrap_err().to_string(),
            "`10Mbps` does not say bits or bytes: write 10Mbit/s or 10MB/s"
        );
        assert!(parse_rate("10Gb/s").unwrap_err().to_string().contains("did you mean 10Gbit/s?"));
        assert_eq!(
            parse_rate("10").unwrap_err().to_string(),
            "`10` has no unit: a rate needs a unit: Gbit/s, MB/s or /s"
        );
    }

    #[test]
    fn ratios_and_limits() {
        assert_eq!(parse_ratio("2.5%"), Ok(0.025));
        assert_eq!(parse_margin("0.03"), Ok(0.03));
        assert_eq!(parse_margin("150%"), Ok(1.5));
        assert_eq!(
            parse_margin("3").unwrap_err().to_string(),
            "`3` has no unit: as a plain number it is 300 %: write 3% or 300%"
        );
        assert_eq!(parse_for(Unit::Microseconds, "80us").map(f64::round), Ok(80.0));
        assert!(parse_for(Unit::Microseconds, "80Mbit/s").is_err());
        assert!(parse_for(Unit::Microseconds, "80").is_err());
        assert!(parse_ratio("1e999%").unwrap_err().to_string().contains("beyond all numbers"));
        assert_eq!(parse_for(Unit::Count, "0"), Ok(0.0));
    }

    proptest! {
        #[test]
        fn whole_sizes_read_back(bytes in 0u64..=i64::MAX as u64) {
            prop_assert_eq!(parse_size(&bytes.to_string()), Ok(bytes));
        }

        #[test]
        fn nothing_panics(text in "\\PC{0,24}") {
            let _ = parse_size(&text);
            let _ = parse_duration(&text);
            let _ = parse_rate(&text);
            let _ = parse_ratio(&text);
        }

        #[test]
        fn binary_sizes_are_exact(n in 1u64..1 << 20) {
            prop_assert_eq!(parse_size(&format!("{n}MiB")), Ok(n << 20));
            prop_assert_eq!(parse_size(&format!("{n}M")), Ok(n << 20));
        }
    }
}
