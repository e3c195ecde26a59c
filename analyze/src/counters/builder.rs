//! The list of counters that every format's reader fills.

use std::rc::Rc;

use super::{Counter, Kind, Value, line_at};
use crate::input::ParseError;

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
