//! Decimal numbers as they are written.

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// A whole number from 0 on.
    Whole(u64),
    /// A negative whole number.
    Below(i64),
    /// A number with its digits after the decimal point.
    Real(f64, u8),
}

impl Value {
    /// Parses a decimal number. `None` if it is infinite, does not fit 64 bits, or is not a number.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix('-').unwrap_or(text).as_bytes();
        if !digits.first()?.is_ascii_digit() {
            return None;
        }
        if digits.iter().all(u8::is_ascii_digit) {
            return match text.parse::<u64>() {
                Ok(v) => Some(Self::Whole(v)),
                Err(_) => text.parse::<i64>().ok().map(Self::signed),
            };
        }
        if !digits.iter().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-')) {
            return None;
        }
        let value: f64 = text.parse().ok().filter(|v: &f64| v.is_finite())?;
        let fraction = text.split(['e', 'E']).next().and_then(|m| m.split_once('.')).map_or(0, |(_, f)| f.len());
        Some(Self::Real(value, u8::try_from(fraction).unwrap_or(u8::MAX)))
    }

    fn signed(v: i64) -> Self {
        u64::try_from(v).map_or(Self::Below(v), Self::Whole)
    }

    pub fn whole(self) -> Option<i128> {
        match self {
            Self::Whole(v) => Some(v.into()),
            Self::Below(v) => Some(v.into()),
            Self::Real(..) => None,
        }
    }

    pub fn real(self) -> f64 {
        match self {
            Self::Whole(v) => v as f64,
            Self::Below(v) => v as f64,
            Self::Real(v, _) => v,
        }
    }
}
