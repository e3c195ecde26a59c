//! Records of a text, one at a time, and the row that one of them is.

use super::{Field, Header, Shape};
use crate::error::Error;
use csv::StringRecord;
use memchr::{memchr, memchr2};
use schemas::metrics::Family;
use std::{borrow::Cow, ops::Range};

/// Reads one record after the other from a text of whole records. Empty lines are passed over.
pub(crate) struct Records {
    /// The cells of the current record, without quotes.
    pub record: StringRecord,
    /// The line on which the current record begins.
    pub line: u64,
    next_line: u64,
    at: usize,
}

impl Records {
    /// For a text whose first line has this number.
    pub(crate) fn new(line: u64) -> Self {
        Self { record: StringRecord::new(), line, next_line: line, at: 0 }
    }

    /// Moves to the next record of `text`; `false` after the last.
    pub(crate) fn advance(&mut self, text: &str) -> bool {
        while let Some(rest) = text.get(self.at..).filter(|rest| !rest.is_empty()) {
            let length = read_record(rest, &mut self.record);
            self.at += length;
            self.line = self.next_line;
            self.next_line += super::blocks::lines(&rest.as_bytes()[..length]);
            if self.record.len() > 1 || !self.record[0].is_empty() || rest.starts_with('"') {
                return true;
            }
        }
        false
    }
}

/// Reads the record at the start of `text` by RFC 4180. Returns its length, line end included.
pub(crate) fn read_record(text: &str, record: &mut StringRecord) -> usize {
    record.clear();
    let bytes = text.as_bytes();
    let mut at = 0;
    loop {
        let mut quoted = None;
        if bytes.get(at) == Some(&b'"') {
            let (cell, length) = read_quoted(&text[at..]);
            quoted = Some(cell);
            at += length;
        }
        let end = memchr2(b',', b'\n', &bytes[at..]).map_or(bytes.len(), |i| at + i);
        let is_last = bytes.get(end) != Some(&b',');
        let plain = &text[at..end];
        let plain = if is_last { plain.strip_suffix('\r').unwrap_or(plain) } else { plain };
        match quoted {
            None => record.push_field(plain),
            Some(cell) => record.push_field(&(cell + plain)),
        }
        at = (end + 1).min(bytes.len());
        if is_last {
            return at;
        }
    }
}

/// The content of the quoted cell at the start of `text`, and its length with the quotes.
fn read_quoted(text: &str) -> (String, usize) {
    let mut cell = String::new();
    let mut at = 1;
    loop {
        let Some(length) = memchr(b'"', &text.as_bytes()[at..]) else { return (cell + &text[at..], text.len()) };
        cell.push_str(&text[at..at + length]);
        at += length + 1;
        if text.as_bytes().get(at) != Some(&b'"') {
            return (cell, at);
        }
        cell.push('"');
        at += 1;
    }
}

/// The cells of a row of either reader, by the index that [`Header::find`] or [`super::Table::require`] gave.
pub trait Cells {
    /// The text of a cell; empty where it is undefined or this input lacks the column.
    fn get(&self, column: usize) -> &str;

    /// An error about this row, or about one of its cells.
    fn error(&self, column: Option<usize>, reason: String) -> Error;

    /// The place of its input among those of the table.
    fn input(&self) -> usize;

    /// The number in a cell, `None` where it is empty. Other text is an error, and so are `nan` and `inf`.
    #[inline]
    fn number(&self, column: usize) -> Result<Option<f64>, Error> {
        parse_number(self.get(column)).map_err(|reason| self.error(Some(column), reason))
    }
}

/// One row.
#[derive(Clone, Copy)]
pub struct Row<'a> {
    pub(super) shape: &'a Shape,
    pub(super) header: &'a Header,
    pub(super) record: &'a StringRecord,
    pub(super) line: u64,
}

impl<'a> Row<'a> {
    /// See [`Cells::get`].
    pub fn get(&self, column: usize) -> &'a str {
        match self.shape.map[column] {
            Some(own) => self.record.get(own).unwrap_or_default(),
            None if self.header.is_file(column) => &self.shape.name,
            None => "",
        }
    }

    /// The text of a column of results; empty where the table has no such column.
    pub fn text(&self, field: Field) -> &'a str {
        self.header.place(field).map_or("", |column| self.get(column))
    }

    /// Whether the table has a column of results.
    pub fn has(&self, field: Field) -> bool {
        self.header.place(field).is_some()
    }

    /// The kind of its work.
    pub fn family(&self) -> Family {
        Family::of_row([Field::workload, Field::offered_unit, Field::search].map(|field| self.text(field)))
    }

    /// The number of a column of results; `None` where the cell is empty or the table has no such column.
    pub fn value(&self, field: Field) -> Result<Option<f64>, Error> {
        self.header.place(field).map_or(Ok(None), |column| self.number(column))
    }

    /// All cells in the order of the table's header.
    pub fn cells(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let row = *self;
        (0..self.shape.map.len()).map(move |column| row.get(column))
    }

    /// See [`Cells::number`].
    pub fn number(&self, column: usize) -> Result<Option<f64>, Error> {
        Cells::number(self, column)
    }

    /// The line the row starts at, from 1.
    pub fn line(&self) -> u64 {
        self.line
    }

    /// The input it comes from, `-` for standard input.
    pub fn file(&self) -> &'a str {
        &self.shape.name
    }

    /// See [`Cells::error`].
    pub fn error(&self, column: Option<usize>, reason: impl Into<String>) -> Error {
        self.shape.error(self.line, column.map(|c| self.header.names[c].clone()), reason)
    }
}

impl Cells for Row<'_> {
    fn get(&self, column: usize) -> &str {
        (*self).get(column)
    }

    fn error(&self, column: Option<usize>, reason: String) -> Error {
        (*self).error(column, reason)
    }

    fn input(&self) -> usize {
        self.shape.input
    }
}

/// The places of the fields of a line of CSV, quotes included; `false`: a quoted field has no end.
pub(crate) fn fields(line: &str) -> (Vec<Range<usize>>, bool) {
    let mut found = Vec::with_capacity(20);
    let (mut start, mut is_quoted) = (0, false);
    for at in memchr::memchr2_iter(b',', b'"', line.as_bytes()) {
        if line.as_bytes()[at] == b'"' {
            is_quoted = !is_quoted;
        } else if !is_quoted {
            found.push(start..at);
            start = at + 1;
        }
    }
    found.push(start..line.len());
    (found, !is_quoted)
}

/// The text of a field.
pub(crate) fn unquoted(field: &str) -> Cow<'_, str> {
    if !field.contains('"') {
        return Cow::Borrowed(field);
    }
    let mut cell = String::new();
    let mut chars = field.chars().peekable();
    let mut is_quoted = false;
    while let Some(c) = chars.next() {
        match c {
            '"' if is_quoted && chars.peek() == Some(&'"') => {
                chars.next();
                cell.push('"');
            }
            '"' => is_quoted = !is_quoted,
            c => cell.push(c),
        }
    }
    Cow::Owned(cell)
}

// Numbers in cells.

/// The number in a cell's text: `Ok(None)` for an empty cell, an error for text that is not a finite number.
#[inline]
pub fn parse_number(text: &str) -> Result<Option<f64>, String> {
    match short_decimal(text.as_bytes()) {
        Some(number) => Ok(Some(number)),
        None => parse_any(text),
    }
}

fn parse_any(text: &str) -> Result<Option<f64>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() => Ok(Some(value)),
        Ok(_) => Err(format!("`{text}` is not a finite number; undefined values are empty cells")),
        Err(_) => {
            let shown: String = text.chars().take(40).collect();
            Err(format!("`{shown}` is not a number"))
        }
    }
}

/// Parses up to fifteen digits, with or without a point: most cells are like that. Digits and power of ten are exact
/// doubles, so the quotient is rounded once (Clinger 1990) and equals the standard library's. That one takes longer
/// because it handles every case.
#[inline]
fn short_decimal(text: &[u8]) -> Option<f64> {
    const POWERS: [f64; 16] = [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];
    if text.len() > 16 {
        return None;
    }
    let (mut digits, mut rest) = (0, text);
    if let Some((eight, behind)) = text.split_first_chunk()
        && let Some(number) = eight_digits(*eight)
    {
        (digits, rest) = (number, behind);
    }
    let mut decimals = None;
    for (i, byte) in rest.iter().enumerate() {
        match byte {
            b'0'..=b'9' => digits = digits * 10 + u64::from(byte - b'0'),
            b'.' if decimals.is_none() => decimals = Some(rest.len() - i - 1),
            _ => return None,
        }
    }
    let figures = text.len() - usize::from(decimals.is_some());
    (1..16).contains(&figures).then(|| digits as f64 / POWERS[decimals.unwrap_or(0)])
}

/// Parses eight digits at once; `None` if one of them is something else. Pairs, fours and eights are added up side by
/// side in one word (Lemire, Number parsing at a gigabyte per second, 2021).
#[inline]
fn eight_digits(text: [u8; 8]) -> Option<u64> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const ZEROS: u64 = 0x3030_3030_3030_3030;
    let digits = u64::from_le_bytes(text).wrapping_sub(ZEROS);
    // Adding 118 sets the top bit of a byte that is 10 or more; a byte below '0' has it set already.
    if (digits.wrapping_add(ONES * 118) | digits) & (ONES * 0x80) != 0 {
        return None;
    }
    let pairs = (digits * 10 + (digits >> 8)) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs * 100 + (pairs >> 16)) & 0x0000_ffff_0000_ffff;
    Some((fours * 10_000 + (fours >> 32)) & 0xffff_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn same_as_the_standard_library(text: &str) {
        match (text.parse::<f64>(), parse_number(text)) {
            (Ok(theirs), Ok(Some(ours))) => assert_eq!(theirs.to_bits(), ours.to_bits(), "{text}"),
            (Err(_), Ok(None)) => assert!(text.is_empty()),
            (theirs, ours) => assert!(ours.is_err() && !theirs.is_ok_and(f64::is_finite), "{text}"),
        }
    }

    #[test]
    fn edges() {
        for text in
            ["", ".", "5.", ".5", "0", "-0", "999999999999999", "9007199254740993", "0.000000000000001", "1.2.3"]
        {
            same_as_the_standard_library(text);
        }
        // Every byte at every place among eight digits.
        for byte in 0..128 {
            for place in 0..8 {
                let mut text = *b"12345678";
                text[place] = byte;
                same_as_the_standard_library(str::from_utf8(&text).unwrap());
            }
        }
    }

    proptest! {
        #[test]
        fn every_decimal_is_the_standard_librarys(text in "[0-9]{0,9}[.]?[0-9]{0,9}", odd in "[-+0-9.eE]{0,12}", v: f64) {
            same_as_the_standard_library(&text);
            same_as_the_standard_library(&odd);
            same_as_the_standard_library(&v.to_string());
        }
    }
}
