//! What the formats' readers put a snapshot together with.

use std::borrow::Cow;

use super::part::Part;
use super::words::{Cell, Cells};
use super::{Counter, Key, Kind, Store, Value, line_at};
use crate::error::{Error, Place};

/// What is wrong with a text, before its file's name is known.
#[derive(Debug, PartialEq, Eq)]
pub struct Fault {
    pub line: u64,
    pub column: Option<String>,
    pub reason: String,
}

impl Fault {
    pub fn new(line: u64, reason: impl Into<String>) -> Self {
        Self { line, column: None, reason: reason.into() }
    }

    /// The error, of a file.
    pub fn of(self, file: &str) -> Error {
        let place = Place { file: file.to_owned(), line: self.line, column: self.column };
        Error::Data { place, reason: self.reason }
    }
}

/// The snapshot while it is being read.
pub struct Builder<'a> {
    /// The whole text, in which the places of numbers and names are.
    pub text: &'a str,
    /// What is to be read of it.
    part: Part,
    /// The source's name where the text does not say it.
    pub default_source: &'a str,
    store: Store,
}

impl<'a> Builder<'a> {
    pub fn new(text: &'a str, part: Part, default_source: &'a str, store: Store) -> Self {
        Self { text, part, default_source, store }
    }

    pub fn finish(self) -> Store {
        self.store
    }

    /// The lines to be read, without their ends, and their numbers from 1.
    pub fn lines(&self) -> impl Iterator<Item = (u64, &'a str)> + use<'a> {
        self.part.lines(self.text)
    }

    /// The index of the source whose name is made of these parts. Sources come in runs: the last may be it.
    pub fn source(&mut self, parts: &[&str]) -> u32 {
        let new = self.key_of(parts);
        let last = self.store.sources.last().is_some_and(|last| self.name(*last) == self.name(new));
        if last {
            self.store.names.truncate(new.at);
        } else {
            self.store.sources.push(new);
        }
        u32::try_from(self.store.sources.len() - 1).unwrap_or(u32::MAX)
    }

    pub fn default_source(&mut self) -> u32 {
        self.source(&[self.default_source])
    }

    /// The key that is a slice of the text.
    pub fn key_in_text(&self, slice: &'a str) -> Key {
        Key::in_text(self.offset(slice), slice.len())
    }

    /// The key that is made of these parts, stored.
    #[inline]
    pub fn key_of(&mut self, parts: &[&str]) -> Key {
        let names = &mut self.store.names;
        let at = names.len();
        for part in parts {
            names.push_str(part);
        }
        Key::stored(at, names.len() - at)
    }

    /// The key that is a slice of the text or had to be made.
    pub fn key(&mut self, key: Cow<'a, str>) -> Key {
        match key {
            Cow::Borrowed(slice) => self.key_in_text(slice),
            Cow::Owned(made) => self.key_of(&[&made]),
        }
    }

    pub fn name(&self, key: Key) -> &str {
        self.store.name(key, self.text)
    }

    /// The words of a slice of the text.
    pub fn cells(&self, slice: &'a str) -> Cells<'a> {
        let from = self.offset(slice);
        Cells::new(self.text, from, from + slice.len())
    }

    /// The word itself.
    pub fn word(&self, cell: Cell) -> &'a str {
        self.text.get(cell.at..cell.at + cell.len).unwrap_or_default()
    }

    /// Adds the number that a word spells in decimal.
    #[inline]
    pub fn cell(&mut self, source: u32, cpu: Option<u32>, key: Key, cell: Cell, kind: Kind) -> Result<(), Fault> {
        let Some(value) = cell.whole else {
            let digits = self.word(cell);
            let value = self.value(key, digits)?;
            self.push(source, cpu, key, digits, value, kind);
            return Ok(());
        };
        // Not from one place with the above: a value that is first put together elsewhere is waited for.
        let (value, len) = (Value::Whole(value), u32::try_from(cell.len).unwrap_or(u32::MAX));
        self.store.counters.push(Counter { source, cpu, key, value, kind, at: cell.at, len });
        Ok(())
    }

    /// Adds the number that `digits`, a slice of the text, spells in decimal.
    pub fn decimal(&mut self, source: u32, key: Key, digits: &'a str, kind: Kind) -> Result<(), Fault> {
        let value = self.value(key, digits)?;
        self.push(source, None, key, digits, value, kind);
        Ok(())
    }

    #[cold]
    fn value(&self, key: Key, digits: &'a str) -> Result<Value, Fault> {
        let fault = || Fault::new(self.line_of(digits), not_a_number(self.name(key), digits));
        Value::parse(digits).ok_or_else(fault)
    }

    /// Adds a number that has been read.
    pub fn push(&mut self, source: u32, cpu: Option<u32>, key: Key, digits: &'a str, value: Value, kind: Kind) {
        let at = self.offset(digits);
        let len = u32::try_from(digits.len()).unwrap_or(u32::MAX);
        self.store.counters.push(Counter { source, cpu, key, value, kind, at, len });
    }

    /// Where a slice of the text starts in it.
    fn offset(&self, slice: &str) -> usize {
        (slice.as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize)
    }

    /// The line, from 1, in which a slice of the text starts.
    pub fn line_of(&self, slice: &str) -> u64 {
        line_at(self.text, self.offset(slice))
    }
}

pub fn not_a_number(key: &str, cell: &str) -> String {
    let cell = clip(cell);
    if cell.bytes().all(|b| b.is_ascii_digit()) && !cell.is_empty() {
        format!("the value `{cell}` of `{key}` does not fit 64 bits")
    } else {
        format!("the value `{cell}` of `{key}` is not a number")
    }
}

/// The start of a cell, short enough for a message.
pub fn clip(cell: &str) -> Cow<'_, str> {
    match cell.char_indices().nth(40) {
        Some((end, _)) => format!("{}…", &cell[..end]).into(),
        None => cell.into(),
    }
}
