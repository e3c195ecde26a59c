//! How values are laid out along an axis.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spacing {
    /// Evenly.
    Linear,
    /// By their decimal logarithm.
    Log10,
    /// By their logarithm to base two, with ticks at powers of two: sizes.
    Log2,
    /// Shares of a distribution by the logarithm of how many are beyond: 90 %, 99 %, 99.9 % are equally far apart. Values
    /// are 1 ÷ (1 − share).
    Nines,
    /// Names, one per whole number from 0.
    Names,
}

impl Spacing {
    /// Whether only positive values have a place.
    pub fn is_logarithmic(self) -> bool {
        matches!(self, Self::Log10 | Self::Log2 | Self::Nines)
    }

    /// Whether a value has a place.
    pub fn shows(self, value: f64) -> bool {
        value > 0.0 || !self.is_logarithmic()
    }
}
