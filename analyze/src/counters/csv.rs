//! CSV with a header: text columns identify a row, the column name identifies a number in it.

use super::{
    Kind, Value,
    builder::{Builder, clip},
};
use crate::error::ParseError;
use std::borrow::Cow;

/// A field as it stands in the text.
struct Cell<'a> {
    raw: &'a str,
}

impl<'a> Cell<'a> {
    fn text(&self) -> Cow<'a, str> {
        match self.raw.strip_prefix('"').and_then(|r| r.strip_suffix('"')) {
            Some(inner) if inner.contains('"') => Cow::Owned(inner.replace("\"\"", "\"")),
            Some(inner) => Cow::Borrowed(inner),
            None => Cow::Borrowed(self.raw),
        }
    }

    /// The digits, without quotes around them.
    fn digits(&self) -> &'a str {
        self.raw.strip_prefix('"').and_then(|r| r.strip_suffix('"')).unwrap_or(self.raw)
    }
}

/// Reads the numeric columns. The text output needs the place of each field, which the `csv` crate does not give. This
/// reader takes plain RFC 4180.
pub fn read<'a>(b: &mut Builder<'a>, key_columns: &[String]) -> Result<(), ParseError> {
    let source = b.source.clone();
    let mut rows = Rows { text: b.text, at: 0, line: 1 };
    let header: Vec<String> = match rows.next()? {
        Some((_, cells)) => cells.iter().map(|c| c.text().into_owned()).collect(),
        None => return Err(ParseError::new(1, "the header is missing")),
    };
    for (index, name) in header.iter().enumerate() {
        if header[..index].contains(name) {
            return Err(ParseError::in_column(1, name, "the column is there twice"));
        }
    }
    let mut table: Vec<(usize, Vec<Cell<'a>>)> = Vec::new();
    while let Some((line, cells)) = rows.next()? {
        if cells.len() != header.len() {
            let reason = format!("the row has {} fields, the header {}", cells.len(), header.len());
            return Err(ParseError::new(line, reason));
        }
        // Its names would turn numeric columns into text columns, and leave nothing to compare.
        if cells.iter().zip(&header).all(|(cell, name)| cell.text() == *name) {
            let reason =
                "a second header: two snapshots in one file. Give the one before and the one after as two files";
            return Err(ParseError::new(line, reason));
        }
        table.push((line, cells));
    }
    let is_key: Vec<bool> = if key_columns.is_empty() {
        let numeric = |i: usize| table.iter().all(|(_, row)| row[i].raw.is_empty() || is_number(row[i].digits()));
        (0..header.len()).map(|i| !numeric(i)).collect()
    } else {
        if let Some(missing) = key_columns.iter().find(|k| !header.contains(k)) {
            return Err(ParseError::new(1, format!("there is no column `{missing}` for --key")));
        }
        header.iter().map(|name| key_columns.contains(name)).collect()
    };
    if key_columns.is_empty() && is_key.iter().all(|is_key| *is_key) {
        let reason =
            "no column has a number in every row, so there is no counter to compare; --key names the columns of text";
        return Err(ParseError::new(1, reason));
    }
    for (line, row) in table {
        let keys: Vec<Cow<'_, str>> =
            row.iter().zip(&is_key).filter(|(_, is_key)| **is_key).map(|(cell, _)| cell.text()).collect();
        let row_key = keys.join(" ");
        for ((cell, name), _) in row.iter().zip(&header).zip(&is_key).filter(|(_, is_key)| !**is_key) {
            let digits = cell.digits();
            if digits.is_empty() {
                continue;
            }
            let Some(value) = Value::parse(digits) else {
                return Err(ParseError::in_column(line, name, format!("`{}` is not a number", clip(digits))));
            };
            let key = if row_key.is_empty() { name.clone() } else { format!("{row_key} {name}") };
            b.push(&source, None, key, digits, value, Kind::Number);
        }
    }
    Ok(())
}

fn is_number(text: &str) -> bool {
    Value::parse(text).is_some()
}

struct Rows<'a> {
    text: &'a str,
    at: usize,
    line: usize,
}

impl<'a> Rows<'a> {
    fn next(&mut self) -> Result<Option<(usize, Vec<Cell<'a>>)>, ParseError> {
        let bytes = self.text.as_bytes();
        let mut cells = Vec::new();
        while matches!(bytes.get(self.at), Some(b'\n' | b'\r')) {
            self.line += usize::from(bytes[self.at] == b'\n');
            self.at += 1;
        }
        if self.at >= bytes.len() {
            return Ok(None);
        }
        let line = self.line;
        loop {
            let start = self.at;
            if bytes.get(start) == Some(&b'"') {
                self.quoted(start, line)?;
            } else {
                self.at += memchr::memchr3(b',', b'\n', b'\r', &bytes[start..]).unwrap_or(bytes.len() - start);
            }
            cells.push(Cell { raw: &self.text[start..self.at] });
            match bytes.get(self.at) {
                Some(b',') => self.at += 1,
                Some(b'\n' | b'\r') | None => return Ok(Some((line, cells))),
                Some(_) => return Err(ParseError::new(line, "text follows a closing quote")),
            }
        }
    }

    /// Moves past the quoted field that starts at `start`.
    fn quoted(&mut self, start: usize, line: usize) -> Result<(), ParseError> {
        let bytes = self.text.as_bytes();
        let mut at = start + 1;
        loop {
            let Some(quote) = memchr::memchr(b'"', &bytes[at.min(bytes.len())..]) else {
                return Err(ParseError::new(line, "a quoted field is not closed"));
            };
            self.line += memchr::memchr_iter(b'\n', &bytes[at..at + quote]).count();
            at += quote + 1;
            if bytes.get(at) != Some(&b'"') {
                break;
            }
            at += 1;
        }
        self.at = at;
        Ok(())
    }
}
