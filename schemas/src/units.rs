//! Quantities as people write them, and back.
//!
//! One grammar: a decimal number directly followed by a unit. Binary and decimal prefixes are told apart (`KiB` is 1024,
//! `kB` and `KB` are 1000), bits and bytes must be said (`Mbps` is refused), and a number without a unit means bytes,
//! seconds or a count by where it stands. netperf's size suffixes are accepted: `K M G` are 2^10…, `k m g` are 10^3….

use std::time::Duration;

/// The unit of a metric's column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bits per second.
    BitsPerSecond,
    /// Events per second.
    PerSecond,
    /// Bytes.
    Bytes,
    /// Seconds.
    Seconds,
    /// Microseconds.
    Microseconds,
    /// A share, 0 … 1.
    Ratio,
    /// A count.
    Count,
    /// Microseconds of CPU per KiB or per transaction: the row's `service_demand_unit` says which.
    ServiceDemand,
}

impl Unit {
    /// The unit that the end of a column's name says, and the name without it: `gap_us` is a gap in microseconds.
    #[must_use]
    pub fn of_column(name: &str) -> Option<(&str, Self)> {
        // Longer endings come first: the last ones are a part of them.
        const ENDINGS: [(&str, Unit); 7] = [
            ("_bits_per_s", Unit::BitsPerSecond),
            ("_per_s", Unit::PerSecond),
            ("_bytes", Unit::Bytes),
            ("_us", Unit::Microseconds),
            ("_s", Unit::Seconds),
            ("_ratio", Unit::Ratio),
            ("_service_demand", Unit::ServiceDemand),
        ];
        ENDINGS.iter().find_map(|(ending, unit)| Some((name.strip_suffix(ending)?, *unit)))
    }

    /// The unit as the registry publishes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::BitsPerSecond => "bit/s",
            Self::PerSecond => "1/s",
            Self::Bytes => "byte",
            Self::Seconds => "s",
            Self::Microseconds => "us",
            Self::Ratio => "ratio",
            Self::Count => "count",
            Self::ServiceDemand => "us_per_kib|us_per_transaction",
        }
    }
}

/// Why a quantity was not understood. The message says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// Nothing that starts like a number.
    #[error("`{text}` is not {wanted}: write {example}")]
    NotANumber {
        /// What was written.
        text: String,
        /// What is wanted there, with its article.
        wanted: &'static str,
        /// A correct example.
        example: &'static str,
    },
    /// A unit that does not exist, or not for this kind of quantity; or none where one is needed.
    #[error("{}: {help}", if unit.is_empty() { format!("`{text}` has no unit") } else { format!("unknown unit `{unit}` in `{text}`") })]
    UnknownUnit {
        /// What was written.
        text: String,
        /// The unit part of it.
        unit: String,
        /// What to write.
        help: String,
    },
    /// `Mbps` and its like.
    #[error("`{text}` does not say bits or bytes: write {bits} or {bytes}")]
    BitsOrBytes {
        /// What was written.
        text: String,
        /// The same number in bits.
        bits: String,
        /// The same number in bytes.
        bytes: String,
    },
    /// Too large for the quantity's type.
    #[error("`{text}` is too large: the limit is {limit}")]
    TooLarge {
        /// What was written.
        text: String,
        /// The largest value.
        limit: &'static str,
    },
    /// Below zero, or a fraction of something that has none.
    #[error("`{text}` is not {wanted}: it is {fault}")]
    OutOfRange {
        /// What was written.
        text: String,
        /// What is wanted there, with its article.
        wanted: &'static str,
        /// What is wrong with it.
        fault: &'static str,
    },
}

/// An offered load or a limit on one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    /// Payload bits per second.
    Bits(f64),
    /// Messages or transactions per second.
    Events(f64),
}

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
    Ok((value, unit.to_owned()))
}

/// The factor of a size unit, `None` where there is no such unit.
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

/// A value with three significant digits and an SI prefix: `41.8 G`, `612 M`, `9.81 k`, `0.5 `.
fn si(value: f64) -> String {
    const STEPS: &[(f64, &str)] = &[(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    let magnitude = value.abs();
    // 999.6 would be printed as 1000: the next prefix takes it.
    for (step, prefix) in STEPS {
        if magnitude >= step * 0.9995 {
            return format!("{} {prefix}", three_digits(value / step));
        }
    }
    format!("{} ", three_digits(value))
}

/// Three significant digits without an exponent; whole numbers of more digits stay whole.
#[must_use]
pub fn three_digits(value: f64) -> String {
    let magnitude = value.abs();
    if !value.is_finite() {
        return String::new();
    }
    if magnitude == 0.0 {
        return "0".to_owned();
    }
    let decimals = match magnitude {
        m if m >= 99.95 => 0,
        m if m >= 9.995 => 1,
        m if m >= 0.9995 => 2,
        m if m >= 0.099_95 => 3,
        m if m >= 0.009_995 => 4,
        _ => 6,
    };
    format!("{value:.decimals$}")
}

/// The words for a value of that unit, for tables and axes: `41.8 Gbit/s`, `19.7 k/s`, `49 µs`, `48 %`, `64 KiB`.
#[must_use]
pub fn human(unit: Unit, value: f64) -> String {
    if !value.is_finite() {
        return String::new();
    }
    match unit {
        Unit::BitsPerSecond => format!("{}bit/s", si(value)),
        Unit::PerSecond => format!("{}/s", si(value)),
        Unit::Bytes => human_bytes(value),
        Unit::Seconds => human_seconds(value),
        Unit::Microseconds => human_seconds(value / 1e6),
        Unit::Ratio => format!("{} %", three_digits(value * 100.0)),
        // 9 retransmits are not 9.00 of them.
        Unit::Count if value.fract() == 0.0 && value.abs() < 1000.0 => format!("{value:.0}"),
        Unit::Count => si(value).trim_end().to_owned(),
        Unit::ServiceDemand => format!("{} µs", three_digits(value)),
    }
}

/// A margin of error, a ratio, in words: two digits say all that an interval of a few iterations is worth.
#[must_use]
pub fn margin(ratio: f64) -> String {
    let percent = ratio * 100.0;
    let decimals = match percent.abs() {
        m if !m.is_finite() => return String::new(),
        m if m >= 9.95 || m == 0.0 => 0,
        m if m >= 0.995 => 1,
        _ => 2,
    };
    format!("{percent:.decimals$} %")
}

fn human_bytes(value: f64) -> String {
    const KI: f64 = 1024.0;
    for (step, name) in [(KI * KI * KI * KI, "TiB"), (KI * KI * KI, "GiB"), (KI * KI, "MiB"), (KI, "KiB")] {
        if value.abs() >= step {
            let scaled = value / step;
            return if scaled.fract() == 0.0 {
                format!("{scaled:.0} {name}")
            } else {
                format!("{} {name}", three_digits(scaled))
            };
        }
    }
    format!("{value:.0} B")
}

fn human_seconds(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude == 0.0 {
        "0 s".to_owned()
    } else if magnitude < 0.9995e-6 {
        format!("{} ns", three_digits(value * 1e9))
    } else if magnitude < 0.9995e-3 {
        format!("{} µs", three_digits(value * 1e6))
    } else if magnitude < 0.9995 {
        format!("{} ms", three_digits(value * 1e3))
    } else {
        format!("{} s", three_digits(value))
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
        assert_eq!(parse_for(Unit::Microseconds, "80us").map(f64::round), Ok(80.0));
        assert!(parse_for(Unit::Microseconds, "80Mbit/s").is_err());
        assert!(parse_for(Unit::Microseconds, "80").is_err());
        assert_eq!(parse_for(Unit::Count, "0"), Ok(0.0));
    }

    #[test]
    fn people_can_read_it() {
        assert_eq!(human(Unit::BitsPerSecond, 41.84e9), "41.8 Gbit/s");
        assert_eq!(human(Unit::BitsPerSecond, 999.96e6), "1.00 Gbit/s");
        assert_eq!(human(Unit::PerSecond, 19_700.0), "19.7 k/s");
        assert_eq!(human(Unit::Microseconds, 49.0), "49.0 µs");
        assert_eq!(human(Unit::Bytes, 65_536.0), "64 KiB");
        assert_eq!(human(Unit::Ratio, 0.019), "1.90 %");
        assert_eq!(human(Unit::Count, f64::NAN), "");
        assert_eq!(human(Unit::Count, 9.0), "9");
        assert_eq!(human(Unit::Count, 9.5), "9.50");
        assert_eq!(human(Unit::Count, 24_501.0), "24.5 k");
        assert_eq!([0.123, 0.0192, 0.00514, 0.0].map(margin), ["12 %", "1.9 %", "0.51 %", "0 %"]);
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
