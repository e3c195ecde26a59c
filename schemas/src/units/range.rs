//! The values that a quantity can have.

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
