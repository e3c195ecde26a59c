//! Quantities as people write them, and back.
//!
//! One grammar: a decimal number directly followed by a unit. Binary and decimal prefixes are told apart (`KiB` is 1024,
//! `kB` and `KB` are 1000), bits and bytes must be said (`Mbps` is refused), and a number without a unit means bytes,
//! seconds or a count by where it stands. netperf's size suffixes are accepted: `K M G` are 2^10…, `k m g` are 10^3….

mod human;
mod parse;

pub use human::{human, human_with_spread, level, margin, spread, three_digits};
pub use parse::{parse_duration, parse_for, parse_margin, parse_rate, parse_ratio, parse_size, parse_with_unit};

crate::words! {
    /// The unit of a metric's column, as the registry publishes it.
    Unit {
        /// Bits per second.
        BitsPerSecond = "bit/s",
        /// Events per second.
        PerSecond = "1/s",
        /// Millions of operations per second, as the NAS benchmarks count them.
        MopsPerSecond = "Mop/s",
        /// Bytes.
        Bytes = "byte",
        /// Seconds.
        Seconds = "s",
        /// Microseconds.
        Microseconds = "us",
        /// A share, 0 … 1.
        Ratio = "ratio",
        /// A count.
        Count = "count",
        /// Microseconds of CPU per KiB or per transaction: the row's `service_demand_unit` says which.
        ServiceDemand = "us_per_kib|us_per_transaction",
    }
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

    /// The values that a metric of this unit can have, unless its column says otherwise.
    #[must_use]
    pub fn range(self) -> Range {
        match self {
            Self::Ratio => Range::SHARE,
            Self::BitsPerSecond
            | Self::PerSecond
            | Self::MopsPerSecond
            | Self::Bytes
            | Self::Seconds
            | Self::Microseconds
            | Self::Count
            | Self::ServiceDemand => Range::POSITIVE,
        }
    }
}

/// Why a quantity was not understood. The message says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// Nothing that starts like a number.
    #[error("`{text}` is not {wanted}: write {example}")]
    NotANumber {
        /// The text as written.
        text: String,
        /// The kind of quantity wanted there, with its article.
        wanted: &'static str,
        /// A correct example.
        example: &'static str,
    },
    /// A unit that does not exist, or not for this kind of quantity; or none where one is needed.
    #[error("{}: {help}", if unit.is_empty() { format!("`{text}` has no unit") } else { format!("unknown unit `{unit}` in `{text}`") })]
    UnknownUnit {
        /// The text as written.
        text: String,
        /// The unit part of it.
        unit: String,
        /// The text to write instead.
        help: String,
    },
    /// `Mbps` and its like.
    #[error("`{text}` does not say bits or bytes: write {bits} or {bytes}")]
    BitsOrBytes {
        /// The text as written.
        text: String,
        /// The same number in bits.
        bits: String,
        /// The same number in bytes.
        bytes: String,
    },
    /// Too large for the quantity's type.
    #[error("`{text}` is too large: the limit is {limit}")]
    TooLarge {
        /// The text as written.
        text: String,
        /// The largest value.
        limit: &'static str,
    },
    /// Below zero, or a fraction of something that has none.
    #[error("`{text}` is not {wanted}: it is {fault}")]
    OutOfRange {
        /// The text as written.
        text: String,
        /// The kind of quantity wanted there, with its article.
        wanted: &'static str,
        /// The fault.
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

/// The values that a quantity can have, both ends included. An infinite end does not bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    pub low: f64,
    pub high: f64,
}

impl Range {
    /// Any value: a signed quantity, or one of which nothing is known.
    pub const ANY: Self = Self::at_least(f64::NEG_INFINITY);
    /// 0 or more: rates, times, sizes, counts.
    pub const POSITIVE: Self = Self::at_least(0.0);
    /// 0 … 1: a part of a whole.
    pub const SHARE: Self = Self { low: 0.0, high: 1.0 };

    /// [`Self::ANY`], as a column says it.
    pub(crate) const fn any() -> Self {
        Self::ANY
    }

    pub const fn at_least(low: f64) -> Self {
        Self { low, high: f64::INFINITY }
    }

    pub fn contains(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// The value of the range that is next to `value`.
    pub fn clamp(&self, value: f64) -> f64 {
        value.clamp(self.low, self.high)
    }
}
