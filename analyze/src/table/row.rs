//! Rows of a block of text, one at a time, and the cells of one.

use super::{
    Header, Shape,
    blocks::Block,
    number::parse_number,
    starts::{Starts, Wanted, simply_quoted, unquoted},
};
use crate::error::{Error, Place};

/// The rows of one block, one at a time.
pub(crate) struct BlockRows {
    block: Block,
    line: u64,
    /// The next row's line, or where the `csv` crate reads the current row's.
    next_line: u64,
    /// The `csv` crate's reader over the same text, for blocks whose quotes are not simple.
    quoted: Option<csv::Reader<std::io::Cursor<Vec<u8>>>>,
    record: csv::StringRecord,
    /// Where cells are in any other block.
    starts: Starts,
}

impl BlockRows {
    pub(crate) fn new(block: Block) -> Self {
        let simply = block.quoted && simply_quoted(block.text.as_bytes());
        let quoted = (block.quoted && !simply).then(|| {
            csv::ReaderBuilder::new()
                .has_headers(false)
                .flexible(true)
                .from_reader(std::io::Cursor::new(block.text.clone().into_bytes()))
        });
        let line = block.line;
        Self { block, line, next_line: line, quoted, record: csv::StringRecord::new(), starts: Starts::new(simply) }
    }

    /// Moves to the next row; `false` after the last.
    pub(crate) fn advance(&mut self, shape: &Shape) -> Result<bool, Error> {
        let found = match &mut self.quoted {
            None => self.advance_plain(&shape.wanted),
            Some(reader) => {
                let found = reader.read_record(&mut self.record).map_err(|e| Error::Data {
                    place: Place { file: shape.name.to_string(), line: self.line, column: None },
                    reason: e.to_string(),
                })?;
                self.line = self.block.line + self.record.position().map_or(1, csv::Position::line) - 1;
                found
            }
        };
        if !found {
            return Ok(false);
        }
        let cells = if self.quoted.is_some() { self.record.len() } else { self.starts.width() };
        let again = match self.quoted {
            None => {
                let line = self.starts.range();
                line.len() == shape.header_line.len() && self.block.text[line] == shape.header_line
                    || self.starts.is_quoted()
                        && cells == shape.width
                        && shape.header_line.split(',').eq((0..cells).map(|own| self.cell(shape, own)))
            }
            Some(_) => {
                cells == shape.width
                    && shape.header_line.len() >= self.record.as_slice().len()
                    && shape.header_line.split(',').eq(self.record.iter())
            }
        };
        let error = |reason| Error::Data {
            place: Place { file: shape.name.to_string(), line: self.line, column: None },
            reason,
        };
        if again {
            return Err(error(
                "a second header: two tables in one stream. Give the files as arguments instead of joining them with cat"
                    .to_owned(),
            ));
        }
        if cells != shape.width {
            let s = if cells == 1 { "" } else { "s" };
            return Err(error(format!("the row has {cells} cell{s}, the header {}", shape.width)));
        }
        Ok(true)
    }

    fn advance_plain(&mut self, wanted: &Wanted) -> bool {
        while self.starts.advance(self.block.text.as_bytes(), wanted) {
            self.line = self.next_line;
            self.next_line += 1;
            if !self.starts.range().is_empty() {
                return true;
            }
        }
        false
    }

    /// The text of one of the input's own columns.
    fn cell(&self, shape: &Shape, own: usize) -> &str {
        if self.quoted.is_some() {
            return self.record.get(own).unwrap_or_default();
        }
        let text = &self.block.text;
        unquoted(&text[self.starts.cells(text.as_bytes(), &shape.wanted, own, own)])
    }

    /// The block's text, and how many lines it has: call it when all rows have been seen.
    pub(crate) fn into_text(self) -> (String, u64) {
        let lines = if self.quoted.is_some() { self.block.lines() } else { self.next_line - self.block.line };
        (self.block.text, lines)
    }

    pub(crate) fn row<'a>(&'a self, shape: &'a Shape, header: &'a Header) -> Row<'a> {
        let slots = if self.quoted.is_some() { &[] } else { self.starts.slots() };
        Row { block: self, shape, header, slots }
    }
}

/// One row. Cells are addressed by the index that [`Header::find`] or [`super::Table::require`] gave.
#[derive(Clone, Copy)]
pub struct Row<'a> {
    block: &'a BlockRows,
    shape: &'a Shape,
    header: &'a Header,
    /// Where wanted cells are; nothing where the `csv` crate reads them.
    slots: &'a [u32],
}

impl<'a> Row<'a> {
    /// The text of a cell; empty where it is undefined or this input lacks the column.
    #[must_use]
    #[inline]
    pub fn get(&self, column: usize) -> &'a str {
        match self.wanted(column, column) {
            Some(text) => unquoted(text),
            None => self.get_elsewhere(column),
        }
    }

    #[inline(never)]
    fn get_elsewhere(&self, column: usize) -> &'a str {
        let Some(own) = self.shape.map[column] else { return "" };
        self.block.cell(self.shape, own as usize)
    }

    /// The text from the beginning of a column to the end of another, where both were wanted.
    #[inline]
    fn wanted(&self, first: usize, last: usize) -> Option<&'a str> {
        let start = *self.slots.get(self.shape.places[first].0 as usize)?;
        let end = *self.slots.get(self.shape.places[last].1 as usize)?;
        Some(&self.block.block.text[start as usize..end as usize - 1])
    }

    /// The text of consecutive columns as it stands in the line, separators and quotes included: where it is the same, so
    /// are the cells. `None` where the `csv` crate reads them, the input has other columns than the table (then they have to
    /// be looked at one by one), or nobody said that it would be looked at.
    #[must_use]
    #[inline]
    pub(crate) fn run(&self, first: usize, last: usize) -> Option<&'a str> {
        if self.shape.identical { self.wanted(first, last) } else { None }
    }

    /// All cells in the order of the table's header.
    pub fn cells(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let row = *self;
        (0..self.shape.map.len()).map(move |column| row.get(column))
    }

    /// The number in a cell, `None` where it is empty. What is neither is an error; so are `nan` and `inf`.
    #[inline]
    pub fn number(&self, column: usize) -> Result<Option<f64>, Error> {
        parse_number(self.get(column)).map_err(|reason| self.error(Some(column), reason))
    }

    /// The line the row starts at, from 1.
    #[must_use]
    pub fn line(&self) -> u64 {
        self.block.line
    }

    /// The input it comes from, `-` for standard input.
    #[must_use]
    pub fn file(&self) -> &'a str {
        &self.shape.name
    }

    /// An error about this row, or about one of its cells.
    #[must_use]
    pub fn error(&self, column: Option<usize>, reason: impl Into<String>) -> Error {
        Error::Data {
            place: Place {
                file: self.shape.name.to_string(),
                line: self.block.line,
                column: column.map(|c| self.header.names[c].clone()),
            },
            reason: reason.into(),
        }
    }
}
