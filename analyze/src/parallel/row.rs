//! Rows of a block and their cells.

use csv::StringRecord;

use super::lines::{Starts, Wanted, simply_quoted};
use crate::error::Error;
use crate::table::{Block, Cells, Header, Records, Shape};

/// Places of a table's columns in the lines of one input.
pub(super) struct Layout<'a> {
    shape: &'a Shape,
    header: &'a Header,
    /// The cells that are located.
    wanted: Wanted,
    /// For each column of the table the slots of its start and its end; out of range if the column is not wanted.
    places: Vec<(u32, u32)>,
    /// Whether the input has the table's columns in the same order.
    identical: bool,
    /// The header as a line without quotes.
    header_line: String,
}

impl<'a> Layout<'a> {
    pub(super) fn new(shape: &'a Shape, header: &'a Header, runs: &[(usize, usize)]) -> Self {
        let identical = shape.columns == header.names();
        let wanted = if identical {
            Wanted::runs(shape.columns.len(), runs)
        } else {
            // In another order they are not neighbours.
            let columns = runs.iter().flat_map(|(first, last)| *first..=*last);
            let own: Vec<_> = columns.filter_map(|column| shape.map[column]).map(|own| (own, own)).collect();
            Wanted::runs(shape.columns.len(), &own)
        };
        let place = |own: usize| (wanted.slot(own), wanted.slot(own + 1));
        let places = shape.map.iter().map(|own| own.map_or((u32::MAX, u32::MAX), place)).collect();
        Self { shape, header, places, wanted, identical, header_line: shape.columns.join(",") }
    }

    /// The input's name.
    pub(super) fn file(&self) -> &str {
        &self.shape.name
    }

    /// Gives every row of a block to `add`. Returns the number of lines.
    pub(super) fn each_row(
        &self,
        block: &Block,
        mut add: impl FnMut(&Row<'_>) -> Result<(), Error>,
    ) -> Result<u64, Error> {
        let text = block.text.as_str();
        if block.quoted && !simply_quoted(text.as_bytes()) {
            let mut records = Records::new(block.line);
            while records.advance(text) {
                let record = &records.record;
                self.shape.check(records.line, record.len(), record.iter().eq(&self.shape.columns))?;
                add(&Row { layout: self, text, slots: &[], record: Some(record), line: records.line })?;
            }
            return Ok(block.lines());
        }
        let mut starts = Starts::new(block.quoted);
        let mut lines = 0;
        while starts.advance(text.as_bytes(), &self.wanted) {
            let line = block.line + lines;
            lines += 1;
            let range = starts.range();
            if range.is_empty() {
                continue;
            }
            let is_header = (block.quoted || range.len() == self.header_line.len())
                && self.header_line.bytes().eq(text.as_bytes()[range].iter().copied().filter(|byte| *byte != b'"'));
            self.shape.check(line, starts.width(), is_header)?;
            add(&Row { layout: self, text, slots: starts.slots(), record: None, line })?;
        }
        Ok(lines)
    }
}

/// One row. A cell that is not the end of a run that [`super::fold`] was asked for costs a search.
pub struct Row<'a> {
    layout: &'a Layout<'a>,
    text: &'a str,
    /// Places of the wanted cells; empty if `record` has them.
    slots: &'a [u32],
    /// All cells, in a block whose quotes are not simple.
    record: Option<&'a StringRecord>,
    line: u64,
}

impl<'a> Row<'a> {
    /// The text of neighbouring columns as it stands in the line, with separators and quotes: equal text means equal
    /// cells. `None` if the input has other columns than the table, if its quotes are not simple, or if [`super::fold`]
    /// was not asked for this run.
    #[inline]
    pub fn run(&self, first: usize, last: usize) -> Option<&'a str> {
        if self.layout.identical { self.located(first, last) } else { None }
    }

    #[inline]
    fn located(&self, first: usize, last: usize) -> Option<&'a str> {
        let start = *self.slots.get(self.layout.places[first].0 as usize)?;
        let end = *self.slots.get(self.layout.places[last].1 as usize)?;
        Some(&self.text[start as usize..end as usize - 1])
    }

    /// The cell of a column that is not located: counts cells from the nearest one that is.
    #[inline(never)]
    fn searched(&self, column: usize) -> Option<&'a str> {
        let own = self.layout.shape.map[column]?;
        let near = self.layout.wanted.before(own);
        let start = *self.slots.get(self.layout.wanted.slot(near) as usize)?;
        let end = *self.slots.last()?;
        let mut quoted = false;
        let mut cells = self.text[start as usize..end as usize - 1].split(|c| {
            quoted ^= c == '"';
            c == ',' && !quoted
        });
        cells.nth(own - near)
    }

    #[inline(never)]
    fn recorded(&self, column: usize) -> &'a str {
        if self.layout.header.is_file(column) {
            return self.file();
        }
        self.record.zip(self.layout.shape.map[column]).and_then(|(record, own)| record.get(own)).unwrap_or_default()
    }

    /// The input it comes from, `-` for standard input.
    pub fn file(&self) -> &'a str {
        &self.layout.shape.name
    }
}

impl Cells for Row<'_> {
    #[inline]
    fn get(&self, column: usize) -> &str {
        match self.located(column, column).or_else(|| self.searched(column)) {
            Some(cell) => cell.strip_prefix('"').map_or(cell, |inner| &inner[..inner.len() - 1]),
            None => self.recorded(column),
        }
    }

    fn error(&self, column: Option<usize>, reason: String) -> Error {
        let layout = self.layout;
        layout.shape.error(self.line, column.map(|c| layout.header.names()[c].clone()), reason)
    }

    fn input(&self) -> usize {
        self.layout.shape.input
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::fold;
    use crate::table::{Cells, Table};

    #[test]
    fn a_cell_inside_a_run_is_found() {
        let text = "a,b,c,d,e,f,g,h,i,j\n1,2,3,\"4,4\",5,6,7,8,9,10\n";
        let mut table = Table::from_text("t", text).unwrap();
        let mut cells = Vec::new();
        let add = |part: &mut Vec<String>, row: &super::Row<'_>| {
            part.extend([1, 2, 3, 4, 9].map(|column| row.get(column).to_owned()));
            Ok(())
        };
        let merge = |part| {
            cells = part;
            Ok(())
        };
        fold(&mut table, &[(1, 4)], Vec::new, add, merge).unwrap();
        assert_eq!(cells, ["2", "3", "4,4", "5", "10"]);
    }

    proptest! {
        /// Simple and other quotes at any place in a step of 64 bytes, whichever cells are wanted.
        #[test]
        fn quotes_are_read_as_the_csv_crate_reads_them(
            rows in prop::collection::vec(prop::collection::vec("[a-c]{0,9}|\"[a-c,]{0,70}\"|\"[a,\n]{0,3}(\"\")?[b,]{0,3}\"", 9), 1..9),
            simple in any::<bool>(), crlf in any::<bool>(), look in prop::collection::vec(0usize..9, 0..3),
        ) {
            let is_kept = |cell: &&String| !simple || !cell.contains('\n') && !cell[1.min(cell.len())..].contains("\"\"");
            let lines = rows.iter().map(|row| row.iter().map(|cell| Some(cell).filter(is_kept).map_or("", String::as_str)).collect::<Vec<_>>().join(","));
            let end = if crlf { "\r\n" } else { "\n" };
            let text = format!("s,t,u,v,w,x,y,z,0{end}{}{end}", lines.collect::<Vec<_>>().join(end));
            let theirs: Vec<Vec<String>> = csv::Reader::from_reader(text.as_bytes())
                .records()
                .map(|row| look.iter().map(|column| row.as_ref().unwrap()[*column].to_owned()).collect())
                .collect();
            let mut table = Table::from_text("t", text.clone()).unwrap();
            let runs: Vec<_> = look.iter().map(|column| (*column, *column)).collect();
            let mut ours: Vec<Vec<String>> = Vec::new();
            let add = |part: &mut Vec<Vec<String>>, row: &super::Row<'_>| {
                part.push(look.iter().map(|column| row.get(*column).to_owned()).collect());
                Ok(())
            };
            fold(&mut table, &runs, Vec::new, add, |part| { ours.extend(part); Ok(()) }).unwrap();
            prop_assert_eq!(ours, theirs);
        }
    }
}
