//! Rows in memory: for filters that need all of them at once or look at them more than once.

use std::{io::Write, sync::Arc};

use super::{
    Field, Header, Record, Row, Table, parse_number,
    select::{Picker, Preferred, Selection},
    write_csv,
};
use crate::error::{Error, Place};

/// The chosen columns of a row.
#[derive(Debug, Clone)]
pub struct OwnedRow {
    file: Arc<str>,
    line: u64,
    cells: csv::StringRecord,
}

impl OwnedRow {
    fn of(row: &Row<'_>, columns: &[usize]) -> Self {
        let cells = columns.iter().map(|c| row.get(*c)).collect();
        Self { file: row.shape.name.clone(), line: row.line, cells }
    }

    /// The text of the i-th chosen column.
    pub fn get(&self, i: usize) -> &str {
        &self.cells[i]
    }

    pub fn cells(&self) -> impl Iterator<Item = &str> {
        self.cells.iter()
    }
}

/// Rows in memory, with the chosen columns.
#[derive(Debug, Clone)]
pub struct Rows {
    pub kind: Record,
    /// Names of the chosen columns.
    pub columns: Vec<String>,
    header: Header,
    /// The place of each column of the table among the chosen ones.
    places: Vec<Option<usize>>,
    /// In the order of the input.
    pub rows: Vec<OwnedRow>,
    /// A sentence for the user about rows left out because of their status.
    pub note: Option<String>,
    /// Number of rows left out because of their kind, phase or a condition.
    pub passed_over: u64,
}

impl Rows {
    /// Reads a table to its end and keeps the given columns of the rows that count.
    pub fn read(table: &mut Table, selection: &Selection, columns: &[usize]) -> Result<Self, Error> {
        Self::read_with(table, Picker::new(selection, table)?, columns)
    }

    /// Like [`Self::read`], with rows of any status: for showing, not for counting.
    pub fn read_any_status(table: &mut Table, selection: &Selection, columns: &[usize]) -> Result<Self, Error> {
        Self::read_with(table, Picker::of_any_status(selection, table)?, columns)
    }

    /// Reads every row and every column.
    pub fn read_all(table: &mut Table) -> Result<Self, Error> {
        let columns: Vec<usize> = (0..table.header().names().len()).collect();
        let mut rows = Vec::new();
        while let Some(row) = table.next_row()? {
            rows.push(OwnedRow::of(&row, &columns));
        }
        Ok(Self { rows, ..Self::of(table, &columns) })
    }

    /// Reads every row with the given columns, and beside each row its kind if the picker counts it.
    pub fn read_all_picked(
        table: &mut Table,
        mut picker: Picker,
        columns: &[usize],
    ) -> Result<(Self, Vec<Option<Record>>), Error> {
        let (mut rows, mut kinds) = (Vec::new(), Vec::new());
        while let Some(row) = table.next_row()? {
            kinds.push(picker.pick(&row)?);
            rows.push(OwnedRow::of(&row, columns));
        }
        Ok((Self { rows, ..Self::of(table, columns) }, kinds))
    }

    /// The place of a column among the chosen ones.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column == name)
    }

    /// Writes the header and the given rows as CSV.
    pub fn write<'a>(&self, rows: impl IntoIterator<Item = &'a OwnedRow>, output: &mut dyn Write) -> Result<(), Error> {
        write_csv(output, &self.columns, rows.into_iter().map(|row| &row.cells))
    }

    fn read_with(table: &mut Table, mut picker: Picker, columns: &[usize]) -> Result<Self, Error> {
        let mut kept: Preferred<Vec<OwnedRow>> = Preferred::default();
        let mut all: u64 = 0;
        while let Some(row) = table.next_row()? {
            all += 1;
            let Some(slot) = picker.pick(&row)?.and_then(|kind| kept.slot(kind)) else { continue };
            slot.push(OwnedRow::of(&row, columns));
        }
        picker.matched(table)?;
        let (kind, rows) = kept.into_kept().unwrap_or((Record::Iteration, Vec::new()));
        let passed_over = all - rows.len() as u64 - picker.left_out();
        Ok(Self { kind, rows, note: picker.note(), passed_over, ..Self::of(table, columns) })
    }

    fn of(table: &Table, columns: &[usize]) -> Self {
        let header = table.header().clone();
        let places = (0..header.names().len()).map(|c| columns.iter().position(|chosen| *chosen == c)).collect();
        let columns = columns.iter().map(|c| header.names()[*c].clone()).collect();
        let (kind, rows) = (Record::Iteration, Vec::new());
        Self { kind, columns, header, places, rows, note: None, passed_over: 0 }
    }

    /// The place of a column of results among the chosen ones. One that the table has must have been chosen.
    fn place(&self, field: Field) -> Option<usize> {
        let column = self.header.place(field)?;
        debug_assert!(self.places[column].is_some(), "`{}` was not read", field.name());
        self.places[column]
    }

    /// The text of a column of results; empty where the table has no such column.
    pub fn text<'r>(&self, row: &'r OwnedRow, field: Field) -> &'r str {
        self.place(field).map_or("", |i| row.get(i))
    }

    /// The number of a column of results; `None` where the cell is empty or the table has no such column.
    pub fn value(&self, row: &OwnedRow, field: Field) -> Result<Option<f64>, Error> {
        self.place(field).map_or(Ok(None), |i| self.number(row, i))
    }

    pub fn number(&self, row: &OwnedRow, i: usize) -> Result<Option<f64>, Error> {
        parse_number(row.get(i)).map_err(|reason| self.error(row, i, reason))
    }

    /// An error about the i-th chosen column of a row.
    pub fn error(&self, row: &OwnedRow, i: usize, reason: impl Into<String>) -> Error {
        Error::Data {
            place: Place { file: row.file.to_string(), line: row.line, column: Some(self.columns[i].clone()) },
            reason: reason.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_written_as_it_was_read() {
        let text = "case_id,record,note\nc1,iteration,\"a,b\"\nc1,summary,\n";
        let rows = Rows::read_all(&mut Table::from_text("t", text).unwrap()).unwrap();
        let written = |rows: &Rows, of: &[OwnedRow]| {
            let mut out = Vec::new();
            rows.write(of, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(written(&rows, &rows.rows), text);
        let record = rows.column("record").unwrap();
        assert_eq!(rows.rows[1].get(record), "summary");
        assert_eq!(written(&rows, &rows.rows[1..]), "case_id,record,note\nc1,summary,\n");
    }
}
