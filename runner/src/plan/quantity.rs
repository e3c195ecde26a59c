//! Quantities in plans: text with a unit, or a bare number.

use std::{fmt, time::Duration};

use netcore::spec::quantity::TIMES;
use schemas::{
    published,
    units::{self, QuantityError},
};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error as _, Visitor},
};

/// A type that is one word of a plan: `$read` makes it of the text, or says what is wrong.
macro_rules! word {
    ($type:ident as $name:literal, $read:expr, $schema:tt) => {
        impl<'de> ::serde::Deserialize<'de> for $type {
            fn deserialize<D: ::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let read: fn(&str) -> Result<Self, _> = $read;
                let text = <String as ::serde::Deserialize>::deserialize(deserializer)?;
                read(&text).map_err(::serde::de::Error::custom)
            }
        }

        ::schemas::published!($type as $name, $schema);
    };
}
pub(super) use word;

struct Text<T>(fn(&str) -> Result<T, QuantityError>, &'static str);

impl<T> Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.1)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        (self.0)(text).map_err(E::custom)
    }
}

macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident($inner:ty) as $published:literal, $parse:path, $wanted:literal, $types:tt, $pattern:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct $name(pub $inner);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(Text($parse, $wanted)).map(Self)
            }
        }

        published!($name as $published, {
            "description": $wanted,
            "type": $types,
            "pattern": $pattern,
            "minimum": 0
        });
    };
}

quantity!(
    /// Bytes: `1472`, `64KiB`, `1MB`, netperf's `64K`.
    Size(u64) as "Size",
    units::parse_size,
    "a size such as 64KiB, 1MB or 1472",
    ["string", "number"],
    r"^([0-9.]+([eE][-+]?[0-9]+)? *(B|KiB|MiB|GiB|TiB|kB|KB|MB|GB|TB|[KMG]i?|Ti|[kmg])?|.*\$\{vars\..*)$"
);
quantity!(
    /// A length of time: `10` (seconds), `150us`, `500ms`, `2m`.
    Time(Duration) as "Time",
    units::parse_duration,
    "a duration such as 10s, 500ms or 150us",
    ["string", "number"],
    r"^([0-9.]+([eE][-+]?[0-9]+)? *(ns|us|µs|μs|ms|s|m|min|h|d)?|.*\$\{vars\..*)$"
);
quantity!(
    /// A share: `2.5%`, `0.025`, `10ppm`.
    Ratio(f64) as "Ratio",
    units::parse_margin,
    "a ratio such as 2.5% or 0.025",
    ["string", "number"],
    r"^([0-9.]+([eE][-+]?[0-9]+)? *(%|ppm)?|.*\$\{vars\..*)$"
);
quantity!(
    /// An offered load: `10Gbit/s`, `125MB/s`, `20k/s`.
    Rate(units::Rate) as "Rate",
    units::parse_rate,
    "a rate such as 10Gbit/s, 125MB/s or 20k/s",
    ["string"],
    r"^([0-9.]+([eE][-+]?[0-9]+)? *([kKMGT]?(bit|B)?|[KMGT]i(bit|B))/s|.*\$\{vars\..*)$"
);

impl Time {
    /// Durations are limited to a hundred years when read, which fits.
    pub fn nanoseconds(self) -> u64 {
        u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Parses a plan's text for the type `name` of [`netcore::spec::quantity`]; `None`: `name` is another type.
pub(super) fn number<'de, D: Deserializer<'de>>(name: &str, text: D) -> Result<Option<u64>, D::Error> {
    if let Some((_, unit_ns)) = TIMES.iter().find(|(time, _)| *time == name) {
        // Rounded up: the kernel counts whole units, and 0 means something else.
        let units = Time::deserialize(text)?.nanoseconds().div_ceil(u64::from(*unit_ns));
        return Ok(Some(units.min(u32::MAX.into())));
    }
    match name {
        "Bytes" => Size::deserialize(text).map(|Size(bytes)| Some(bytes)),
        "Bytes32" => match Size::deserialize(text)? {
            Size(bytes) if u32::try_from(bytes).is_err() => {
                Err(D::Error::custom(format!("{bytes} bytes are too many: the limit is 4 GiB")))
            }
            Size(bytes) => Ok(Some(bytes)),
        },
        "BitsPerSecond" => match Rate::deserialize(text)? {
            // A rate beyond 2^64 limits nothing, and rates are positive.
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            Rate(units::Rate::Bits(bits)) => Ok(Some(bits as u64)),
            Rate(units::Rate::Events(_)) => {
                Err(D::Error::custom("a connection has no messages: write it in bits, for example 100Mbit/s"))
            }
        },
        _ => Ok(None),
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0.as_secs_f64())
    }
}

/// A metric by its registered name.
#[derive(Clone, Copy, Debug)]
pub struct MetricName(pub &'static schemas::metrics::Metric);

word!(MetricName as "Metric", |name| schemas::vocabulary::metric(name).map(MetricName), {
    "description": "a metric",
    "anyOf": [
        {"enum": schemas::metrics::METRICS.iter().flat_map(|m| [m.name, m.column]).collect::<Vec<_>>()},
        {"type": "string", "pattern": r"^[a-z_.]+\.mean$"}
    ]
});
