//! Spacing of values along an axis.

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
