//! JSON lines: an object per row, without its empty cells.

use std::io::Write;

use schemas::columns::{self, COLUMNS, ColumnType, Row};
use serde_json::{Map, Value};

use crate::error::Error;
use crate::table::Table;

/// Streams every row. Numbers keep their digits.
pub fn write(table: &mut Table, output: &mut dyn Write) -> Result<(), Error> {
    let names: Vec<(String, Option<ColumnType>)> =
        table.header().names().iter().map(|n| (n.clone(), columns::find(n).map(|c| c.ty))).collect();
    while let Some(row) = table.next_row()? {
        let mut object = Map::new();
        for ((name, ty), cell) in names.iter().zip(row.cells()) {
            if !cell.is_empty() {
                object.insert(name.clone(), value(cell, *ty));
            }
        }
        serde_json::to_writer(&mut *output, &object).map_err(|e| Error::Output(e.into()))?;
        output.write_all(b"\n")?;
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
