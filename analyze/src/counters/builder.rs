//! The list of counters that every format's reader fills, and their values.

use super::{Counter, Kind, line_at};
use crate::error::ParseError;
use std::rc::Rc;

/// A snapshot while it is being read.
pub struct Builder<'a> {
    pub text: &'a str,
    /// Name of the source where the text does not say it.
    pub source: Rc<str>,
    pub counters: Vec<Counter>,
}

impl<'a> Builder<'a> {
    pub fn new(text: &'a str, source: &str) -> Self {
        Self { text, source: source.into(), counters: Vec::new() }
    }

    /// Lines with their numbers from 1.
    pub fn lines(&self) -> impl Iterator<Item = (usize, &'a str)> + use<'a> {
        (1..).zip(self.text.lines())
    }

    /// The source of one interface: `dev:eth0` for a default source `dev` or `dev:…`.
    pub fn interface(&self, name: &str) -> Rc<str> {
        let prefix = self.source.split_once(':').map_or(&*self.source, |(prefix, _)| prefix);
        format!("{prefix}:{name}").into()
    }

    /// Adds a decimal number. `digits` is a slice of the text.
    pub fn decimal(
        &mut self,
        source: &Rc<str>,
        cpu: Option<u32>,
        key: impl Into<String>,
        digits: &str,
        kind: Kind,
    ) -> Result<(), ParseError> {
        let key = key.into();
        let value =
            Value::parse(digits).ok_or_else(|| ParseError::new(self.line_of(digits), not_a_number(&key, digits)))?;
        self.push(source, cpu, key, digits, value, kind);
        Ok(())
    }

    /// Adds a number that is already read. `digits` is a slice of the text.
    pub fn push(
        &mut self,
        source: &Rc<str>,
        cpu: Option<u32>,
        key: impl Into<String>,
        digits: &str,
        value: Value,
        kind: Kind,
    ) {
        let at = self.offset(digits);
        let counter = Counter { source: Rc::clone(source), cpu, key: key.into(), value, kind, at, len: digits.len() };
        self.counters.push(counter);
    }

    fn offset(&self, slice: &str) -> usize {
        (slice.as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize)
    }

    /// The line, from 1, in which a slice of the text starts.
    fn line_of(&self, slice: &str) -> usize {
        line_at(self.text, self.offset(slice))
    }
}

fn not_a_number(key: &str, cell: &str) -> String {
    let cell = clip(cell);
    if cell.bytes().all(|b| b.is_ascii_digit()) && !cell.is_empty() {
        format!("the value `{cell}` of `{key}` does not fit 64 bits")
    } else {
        format!("the value `{cell}` of `{key}` is not a number")
    }
}

/// The first 40 characters of a cell, for messages.
pub fn clip(cell: &str) -> String {
    match cell.char_indices().nth(40) {
        Some((end, _)) => format!("{}…", &cell[..end]),
        None => cell.to_owned(),
    }
}

/// A decimal number as it is written, or a difference of two.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    Whole(i128),
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
            let whole = text.parse::<u64>().map(i128::from).or_else(|_| text.parse::<i64>().map(i128::from));
            return whole.ok().map(Self::Whole);
        }
        if !digits.iter().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-')) {
            return None;
        }
        let value: f64 = text.parse().ok().filter(|v: &f64| v.is_finite())?;
        let fraction = text.split(['e', 'E']).next().and_then(|m| m.split_once('.')).map_or(0, |(_, f)| f.len());
        Some(Self::Real(value, u8::try_from(fraction).unwrap_or(u8::MAX)))
    }

    pub fn whole(self) -> Option<i128> {
        if let Self::Whole(v) = self { Some(v) } else { None }
    }

    pub fn is_zero(self) -> bool {
        match self {
            Self::Whole(v) => v == 0,
            Self::Real(v, _) => v == 0.0,
        }
    }

    pub fn real(self) -> f64 {
        match self {
            Self::Whole(v) => v as f64,
            Self::Real(v, _) => v,
        }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        match (self, other) {
            (Self::Whole(a), Self::Whole(b)) => Self::Whole(a + b),
            (Self::Real(_, d), _) | (_, Self::Real(_, d)) => Self::Real(self.real() + other.real(), d),
        }
    }
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Whole(v) => write!(f, "{v}"),
            // A number without a decimal point (`1e9`) has no digits to keep.
            Self::Real(v, 0) => write!(f, "{v}"),
            Self::Real(v, digits) => write!(f, "{v:.*}", usize::from(*digits)),
        }
    }
}
