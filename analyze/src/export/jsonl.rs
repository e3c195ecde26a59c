//! JSON: an object per row, without its empty cells, in lines or as an array.

use std::io::Write;

use schemas::columns::{self, COLUMNS, ColumnType, Row};
use serde_json::{Map, Value};

use crate::error::Error;
use crate::table::Table;

/// Streams every row. Numbers keep their digits.
pub fn write(table: &mut Table, output: &mut dyn Write) -> Result<(), Error> {
    each(table, output, |_| "", "\n")
}

/// The same rows as the elements of one JSON array.
pub fn write_array(table: &mut Table, output: &mut dyn Write) -> Result<(), Error> {
    output.write_all(b"[")?;
    each(table, output, |is_first| if is_first { "\n" } else { ",\n" }, "")?;
    Ok(output.write_all(b"\n]\n")?)
}

/// Writes an object per row, with a text before and one after it.
fn each(
    table: &mut Table,
    output: &mut dyn Write,
    before: impl Fn(bool) -> &'static str,
    after: &str,
) -> Result<(), Error> {
    let names: Vec<(String, Option<ColumnType>)> =
        table.header().names().iter().map(|n| (n.clone(), columns::find(n).map(|c| c.ty))).collect();
    let mut is_first = true;
    while let Some(row) = table.next_row()? {
        let mut object = Map::new();
        for ((name, ty), cell) in names.iter().zip(row.cells()) {
            if !cell.is_empty() {
                object.insert(name.clone(), value(cell, *ty));
            }
        }
        output.write_all(before(is_first).as_bytes())?;
        serde_json::to_writer(&mut *output, &object).map_err(|e| Error::Output(e.into()))?;
        output.write_all(after.as_bytes())?;
        is_first = false;
    }
    Ok(())
}

/// A row as an object without its empty cells and its histograms, which are no use to readers of JSON.
pub fn object(row: &Row) -> Value {
    let mut object = Map::new();
    let mut columns = COLUMNS.iter();
    row.for_each_cell(|cell| {
        if let Some(column) = columns.next().filter(|column| !cell.is_empty() && !column.name.ends_with("_histogram")) {
            object.insert(column.name.to_owned(), value(cell, Some(column.ty)));
        }
    });
    Value::Object(object)
}

/// Registered columns have the registry's type. Other cells are numbers where JSON reads them as such.
fn value(cell: &str, ty: Option<ColumnType>) -> Value {
    match ty {
        Some(ColumnType::Text | ColumnType::Time) => Value::String(cell.to_owned()),
        _ => match serde_json::from_str::<Value>(cell) {
            Ok(value @ (Value::Number(_) | Value::Bool(_))) => value,
            _ => Value::String(cell.to_owned()),
        },
    }
}
