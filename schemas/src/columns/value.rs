//! The values of cells: their types, and how each is written and read.

use std::borrow::Cow;

use super::{ColumnType, number};
use crate::words::{self, Word};

/// The value of a filled cell.
pub(crate) trait Value: Sized {
    const TYPE: ColumnType;
    const WORDS: &'static [Word] = &[];

    fn text(&self) -> Cow<'_, str>;

    /// The error says what is wrong with the text.
    fn parse(text: &str) -> Result<Self, String>;

    fn number(&self) -> Option<f64> {
        None
    }

    /// `None`: holds no numbers.
    fn of_number(_: f64) -> Option<Self> {
        None
    }
}

/// A field of a row: an `Option` where the cell may be empty, else the value itself.
pub(crate) trait Cell {
    type Value: Value;

    fn get(&self) -> Option<&Self::Value>;

    /// `None` leaves a cell alone that cannot be empty.
    fn put(&mut self, value: Option<Self::Value>);
}

impl<V: Value> Cell for Option<V> {
    type Value = V;

    fn get(&self) -> Option<&V> {
        self.as_ref()
    }

    fn put(&mut self, value: Option<V>) {
        *self = value;
    }
}

macro_rules! plain_cell {
    ($($ty:ty),*) => { $(
        impl Cell for $ty {
            type Value = Self;

            fn get(&self) -> Option<&Self> {
                Some(self)
            }

            fn put(&mut self, value: Option<Self>) {
                if let Some(value) = value {
                    *self = value;
                }
            }
        }
    )* };
}

plain_cell!(String, u64, f64);

/// Makes cells of enums of words.
macro_rules! word_cells {
    ($($name:ident)*) => { $(
        impl Value for words::$name {
            const TYPE: ColumnType = ColumnType::Text;
            const WORDS: &'static [Word] = Self::WORDS;

            fn text(&self) -> Cow<'_, str> {
                self.as_str().into()
            }

            fn parse(text: &str) -> Result<Self, String> {
                text.parse().map_err(|e: words::UnknownWord| e.to_string())
            }
        }

        plain_cell!(words::$name);
    )* };
}

word_cells!(
    Record Phase Status CycleStatus Way Control OfferedUnit LatencyKind CodePoint EcnPath OneWayClock Confidence DemandUnit LimitedBy Search Verdict
    Severity Span
);

impl Value for String {
    const TYPE: ColumnType = ColumnType::Text;

    fn text(&self) -> Cow<'_, str> {
        self.into()
    }

    fn parse(text: &str) -> Result<Self, String> {
        Ok(text.to_owned())
    }
}

/// A time as the contract writes it: RFC 3339 in UTC with a `Z`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(pub String);

impl std::ops::Deref for Timestamp {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Value for Timestamp {
    const TYPE: ColumnType = ColumnType::Time;

    fn text(&self) -> Cow<'_, str> {
        (&self.0).into()
    }

    fn parse(text: &str) -> Result<Self, String> {
        Ok(Self(text.to_owned()))
    }
}

impl Value for u64 {
    const TYPE: ColumnType = ColumnType::Integer;

    fn text(&self) -> Cow<'_, str> {
        self.to_string().into()
    }

    fn parse(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| format!("`{text}` is not a whole number"))
    }

    fn number(&self) -> Option<f64> {
        Some(*self as f64)
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates, as a count may")]
    fn of_number(value: f64) -> Option<Self> {
        value.is_finite().then(|| value.round() as Self)
    }
}

impl Value for f64 {
    const TYPE: ColumnType = ColumnType::Number;

    fn text(&self) -> Cow<'_, str> {
        number(*self).into()
    }

    fn parse(text: &str) -> Result<Self, String> {
        let value = text.parse().ok().filter(|v: &Self| v.is_finite());
        value.ok_or_else(|| format!("`{text}` is not a number"))
    }

    fn number(&self) -> Option<f64> {
        self.is_finite().then_some(*self)
    }

    fn of_number(value: f64) -> Option<Self> {
        Some(value)
    }
}

impl Value for bool {
    const TYPE: ColumnType = ColumnType::Boolean;

    fn text(&self) -> Cow<'_, str> {
        if *self { "true" } else { "false" }.into()
    }

    fn parse(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| format!("`{text}` is neither true nor false"))
    }
}

/// Types of cells that may be empty, as the tables name them.
pub(super) mod may_be_empty {
    pub type Text = Option<String>;
    pub type Integer = Option<u64>;
    pub type Number = Option<f64>;
    pub type Boolean = Option<bool>;
    pub type Time = Option<super::Timestamp>;
}
