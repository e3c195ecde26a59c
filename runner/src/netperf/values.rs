//! Values of netperf's options: pairs, numbers with suffixes, times, families and types of service.

use std::time::Duration;

use netcore::spec::Family;

/// The two halves of `a,b`.
pub type Halves<'a> = (Option<&'a str>, Option<&'a str>);

/// `a` sets both halves, `a,` the first, `,b` the second.
pub fn both(text: &str) -> Halves<'_> {
    match text.split_once(',') {
        None => (Some(text), Some(text)),
        Some((first, second)) => (given(first), given(second)),
    }
}

/// `a` sets the first half only.
pub fn first(text: &str) -> Halves<'_> {
    match text.split_once(',') {
        None => (given(text), None),
        Some((first, second)) => (given(first), given(second)),
    }
}

fn given(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

/// A pair of values, set as far as an option names them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pair<T> {
    pub local: Option<T>,
    pub remote: Option<T>,
}

impl<T> Pair<T> {
    /// Sets what is given.
    pub fn set(&mut self, (local, remote): Halves<'_>, read: impl Fn(&str) -> Result<T, String>) -> Result<(), String> {
        if let Some(text) = local {
            self.local = Some(read(text)?);
        }
        if let Some(text) = remote {
            self.remote = Some(read(text)?);
        }
        Ok(())
    }
}

/// A whole number with suffixes: `K M G` are powers of 1024, `k m g` of 1000. Other letters have no meaning, as in `64KB`.
pub fn number(text: &str) -> Result<i64, String> {
    let wrong = || format!("`{text}` is not a number: write 16384, 64K or 10m");
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let value: i64 = digits.parse().map_err(|_| wrong())?;
    let factor = text[digits.len()..].chars().map(|suffix| match suffix {
        'K' => 1 << 10,
        'M' => 1 << 20,
        'G' => 1 << 30,
        'k' => 1_000,
        'm' => 1_000_000,
        'g' => 1_000_000_000,
        _ => 1,
    });
    factor.into_iter().try_fold(value, i64::checked_mul).ok_or_else(wrong)
}

/// A size or a count: [`number`] that is not negative.
pub fn size(text: &str) -> Result<u64, String> {
    u64::try_from(number(text)?).map_err(|_| format!("`{text}` is negative"))
}

/// A port: a number below 65536.
pub fn port(text: &str) -> Result<u16, String> {
    text.trim().parse().map_err(|_| format!("`{text}` is not a port: write a number up to 65535"))
}

/// Seconds, with a fraction if wanted (netperf reads the whole part only).
pub fn seconds(text: &str) -> Result<Duration, String> {
    let time = text.trim().parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.ok_or_else(|| format!("`{text}` is not a time in seconds"))
}

/// A family by netperf's rules: the first of these that the text contains.
pub fn family(text: &str) -> Result<Family, String> {
    let lower = text.to_ascii_lowercase();
    Ok(match () {
        () if lower.contains('6') => Family::V6,
        () if lower.contains("inet") || lower.contains('4') => Family::V4,
        () if lower.contains("unspec") || lower.contains('0') => Family::Any,
        () => return Err(format!("`{text}` is not an address family: write 4 or 6")),
    })
}

/// A type of service: a name, or a number of 0 to 255 in C's notation.
pub fn type_of_service(text: &str) -> Result<u8, String> {
    let lower = text.trim().to_ascii_lowercase();
    let digits = |text: &str, base| u8::from_str_radix(text, base).ok();
    let class = |text: &str| digits(text, 10).filter(|class| *class < 8 && text.len() == 1);
    let named = match lower.as_str() {
        "ef" => Some(0xb8),
        "lowdelay" => Some(0x10),
        "throughput" => Some(0x08),
        "reliability" => Some(0x04),
        name if name.starts_with("cs") => class(&name[2..]).map(|class| class << 5),
        name if name.starts_with("af") && name.len() == 4 && name.is_ascii() => {
            let (class, drop) = (class(&name[2..3]), class(&name[3..4]));
            class.zip(drop).filter(|(c, d)| (1..=4).contains(c) && (1..=3).contains(d)).map(|(c, d)| c << 5 | d << 3)
        }
        hex if hex.starts_with("0x") => digits(&hex[2..], 16),
        octal if octal.len() > 1 && octal.starts_with('0') => digits(octal, 8),
        decimal => digits(decimal, 10),
    };
    named
        .ok_or_else(|| format!("`{text}` is not a type of service: write 0 to 255, 0xb8, or a name such as ef or af41"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pairs_split_by_their_kind() {
        for (text, sets_both, sets_first) in [
            ("a", (Some("a"), Some("a")), (Some("a"), None)),
            ("a,", (Some("a"), None), (Some("a"), None)),
            (",b", (None, Some("b")), (None, Some("b"))),
            ("a,b", (Some("a"), Some("b")), (Some("a"), Some("b"))),
        ] {
            assert_eq!(both(text), sets_both, "{text}");
            assert_eq!(first(text), sets_first, "{text}");
        }
        let mut pair = Pair { local: Some(1), remote: Some(2) };
        pair.set(both(",7"), number).unwrap();
        assert_eq!(pair, Pair { local: Some(1), remote: Some(7) });
        assert!(pair.set(both("x"), number).unwrap_err().contains("`x` is not a number"));
    }

    #[test]
    fn suffixes_multiply() {
        for (text, value) in [
            ("0", 0),
            ("-1000", -1000),
            ("64K", 65536),
            ("64KB", 65536),
            ("1M", 1 << 20),
            ("10m", 10_000_000),
            ("3G", 3 << 30),
            ("2g", 2_000_000_000),
        ] {
            assert_eq!(number(text), Ok(value), "{text}");
        }
        for text in ["", "K", "1.5", "0x10", "1K2", "99999999999G"] {
            assert!(number(text).is_err(), "{text}");
        }
        assert!(size("-1").is_err());
        assert!(port("65536").is_err());
    }

    #[test]
    fn services_have_names() {
        for (text, value) in [
            ("ef", 0xb8),
            ("EF", 0xb8),
            ("af11", 0x28),
            ("af43", 0x98),
            ("cs0", 0),
            ("cs7", 0xe0),
            ("lowdelay", 0x10),
            ("0xb8", 0xb8),
            ("0x0", 0),
            ("010", 8),
            ("255", 255),
            ("0", 0),
        ] {
            assert_eq!(type_of_service(text), Ok(value), "{text}");
        }
        for text in ["256", "0x100", "af44", "af5", "afé", "cs8", "-1", "fast", ""] {
            assert!(type_of_service(text).is_err(), "{text}");
        }
    }

    #[test]
    fn families_are_found_in_the_text() {
        for (text, expected) in [
            ("4", Family::V4),
            ("inet", Family::V4),
            ("AF_INET", Family::V4),
            ("inet6", Family::V6),
            ("6", Family::V6),
            ("unspec", Family::Any),
            ("0", Family::Any),
        ] {
            assert_eq!(family(text), Ok(expected), "{text}");
        }
        assert!(family("x").is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_a_value_or_an_error(text in "\\PC{0,12}") {
            let _ = (number(&text), port(&text), seconds(&text), family(&text), type_of_service(&text));
            let (_, _) = (both(&text), first(&text));
        }

        #[test]
        fn numbers_read_back(value in any::<i32>()) {
            prop_assert_eq!(number(&value.to_string()), Ok(i64::from(value)));
        }
    }
}
