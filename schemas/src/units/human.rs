//! Quantities in words, for tables and axes: three digits and the prefix that suits them.

use super::Unit;

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
    signed(format!("{value:.decimals$}"))
}

/// A number with a minus sign, which is as wide as a plus, in place of the hyphen.
fn signed(number: String) -> String {
    if number.starts_with('-') { number.replacen('-', "−", 1) } else { number }
}

/// The words for a value of that unit, for tables and axes: `41.8 Gbit/s`, `19.7 k/s`, `49 µs`, `48 %`, `64 KiB`.
#[must_use]
pub fn human(unit: Unit, value: f64) -> String {
    if !value.is_finite() {
        return String::new();
    }
    if value < 0.0 {
        return format!("−{}", human(unit, -value));
    }
    match unit {
        Unit::BitsPerSecond => format!("{}bit/s", si(value)),
        Unit::PerSecond => format!("{}/s", si(value)),
        Unit::MopsPerSecond => format!("{} Mop/s", three_digits(value)),
        Unit::Bytes => human_bytes(value),
        Unit::Seconds => human_seconds(value),
        Unit::Microseconds => human_seconds(value / 1e6),
        Unit::Ratio => format!("{} %", three_digits(value * 100.0)),
        // 9 retransmits are not 9.00 of them.
        Unit::Count if value.fract() == 0.0 && value.abs() < 1000.0 => signed(format!("{value:.0}")),
        Unit::Count => si(value).trim_end().to_owned(),
        Unit::ServiceDemand => format!("{} µs", three_digits(value)),
    }
}

/// A margin of error, a ratio, in words: two digits say all that an interval of a few iterations is worth.
#[must_use]
pub fn margin(ratio: f64) -> String {
    if ratio < 0.0 {
        return format!("−{}", margin(-ratio));
    }
    let percent = ratio * 100.0;
    let decimals = match percent.abs() {
        m if !m.is_finite() => return String::new(),
        m if m >= 9.95 || m == 0.0 => 0,
        m if m >= 0.995 => 1,
        _ => 2,
    };
    signed(format!("{percent:.decimals$} %"))
}

/// A confidence level, 0 … 1, in words: `95 %`, `99.9 %`. It has two digits of what is missing to 100 %, so that none
/// looks like certainty; past six decimals it is 99.999999 %.
#[must_use]
pub fn level(level: f64) -> String {
    let mut decimals = 0;
    let mut missing = (1.0 - level) * 100.0;
    let largest = if level < 1.0 { 99.999_999 } else { 100.0 };
    while missing < 9.95 && decimals < 6 {
        missing *= 10.0;
        decimals += 1;
    }
    let digits = format!("{:.decimals$}", (level * 100.0).min(largest));
    let digits = if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { &digits };
    format!("{digits} %")
}

/// An interval around a value, in words: `± 0.32 %`; `−0.50 % … +4.0 %` if it reaches further on one side; its ends,
/// `8.86 … 18.0 Gbit/s`, if it is wide or the value lies outside, and of a ratio, whose own unit is the per cent. `None` without a width: equal values say nothing of
/// their spread.
#[must_use]
pub fn spread(unit: Unit, centre: f64, low: f64, high: f64) -> Option<String> {
    (low < high).then(|| wide_spread(unit, centre, low, high))
}

/// A value with its interval: `100 µs ± 2.0 %`, `100 µs (−0.50 % … +4.0 %)`, `60.0 µs (6.08 µs … 1.86 ms)`.
#[must_use]
pub fn human_with_spread(unit: Unit, value: f64, low: f64, high: f64) -> String {
    let value_text = human(unit, value);
    match spread(unit, value, low, high) {
        None => value_text,
        Some(margin) if margin.starts_with('±') => format!("{value_text} {margin}"),
        Some(ends) => format!("{value_text} ({ends})"),
    }
}

fn wide_spread(unit: Unit, centre: f64, low: f64, high: f64) -> String {
    const WIDE: f64 = 0.1;
    let [below, above] = [centre - low, high - centre].map(|side| side / centre.abs());
    let [less, more] = [below, above].map(margin);
    if unit != Unit::Ratio && below.min(above) >= 0.0 && below.max(above) < WIDE {
        return if less == more { format!("± {less}") } else { format!("−{less} … +{more}") };
    }
    let [low, high] = [low, high].map(|end| human(unit, end));
    match (low.split_once(' '), high.split_once(' ')) {
        (Some((number, unit)), Some((_, other))) if unit == other => format!("{number} … {high}"),
        _ => format!("{low} … {high}"),
    }
}

fn human_bytes(value: f64) -> String {
    const KI: f64 = 1024.0;
    for (step, name) in [(KI * KI * KI * KI, "TiB"), (KI * KI * KI, "GiB"), (KI * KI, "MiB"), (KI, "KiB")] {
        if value.abs() >= step {
            let scaled = value / step;
            return if scaled.fract() == 0.0 {
                signed(format!("{scaled:.0} {name}"))
            } else {
                format!("{} {name}", three_digits(scaled))
            };
        }
    }
    signed(format!("{value:.0} B"))
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

    #[test]
    fn people_can_read_it() {
        assert_eq!(human(Unit::BitsPerSecond, 41.84e9), "41.8 Gbit/s");
        assert_eq!(human(Unit::BitsPerSecond, 999.96e6), "1.00 Gbit/s");
        assert_eq!(human(Unit::PerSecond, 19_700.0), "19.7 k/s");
        assert_eq!(human(Unit::MopsPerSecond, 767.12), "767 Mop/s");
        assert_eq!(human(Unit::Microseconds, 49.0), "49.0 µs");
        assert_eq!(human(Unit::Bytes, 65_536.0), "64 KiB");
        assert_eq!(human(Unit::Ratio, 0.019), "1.90 %");
        assert_eq!(human(Unit::Count, f64::NAN), "");
        assert_eq!(human(Unit::Count, 9.0), "9");
        assert_eq!(human(Unit::Count, 9.5), "9.50");
        assert_eq!(human(Unit::Count, 24_501.0), "24.5 k");
        assert_eq!(human(Unit::Microseconds, -49.0), "−49.0 µs");
        assert_eq!([human(Unit::Count, -9.0), human(Unit::Bytes, -2048.0), margin(-0.05)], ["−9", "−2 KiB", "−5.0 %"]);
        assert_eq!([0.123, 0.0192, 0.00514, 0.0].map(margin), ["12 %", "1.9 %", "0.51 %", "0 %"]);
    }

    #[test]
    fn no_level_looks_like_certainty() {
        for (ratio, text) in [
            (0.5, "50 %"),
            (0.95, "95 %"),
            (0.96875, "96.9 %"),
            (0.99, "99 %"),
            (0.992_187_5, "99.22 %"),
            (0.999, "99.9 %"),
            (0.9999, "99.99 %"),
            (0.999_996, "99.9996 %"),
            (0.999_999_999_9, "99.999999 %"),
            (1.0 - f64::EPSILON, "99.999999 %"),
        ] {
            assert_eq!(level(ratio), text);
        }
    }

    #[test]
    fn an_interval_is_shown_as_it_lies() {
        let us = |centre, low, high| spread(Unit::Microseconds, centre, low, high).unwrap_or_default();
        assert_eq!(us(100.0, 98.0, 102.0), "± 2.0 %");
        assert_eq!(us(100.0, 99.5, 104.0), "−0.50 % … +4.0 %");
        assert_eq!(us(60.0, 6.08, 1857.0), "6.08 µs … 1.86 ms");
        assert_eq!(us(60.0, 12.0, 394.0), "12.0 … 394 µs");
        assert_eq!(us(-60.0, -394.0, 12.0), "−394 … 12.0 µs");
        assert_eq!(us(0.0, 0.0, 3.0), "0 s … 3.00 µs");
        assert_eq!(us(100.0, 102.0, 104.0), "102 … 104 µs", "around another value");
        assert_eq!(spread(Unit::Ratio, 0.0293, 0.0291, 0.0297).unwrap(), "2.91 … 2.97 %");
        assert_eq!([us(100.0, 100.0, 100.0), us(0.0, 0.0, 0.0)], ["", ""], "equal values");
    }
}
