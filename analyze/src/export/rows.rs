//! Rows as JSON, or as lines of a Markdown table: every row that meets the conditions.
//!
//! JSON has an object per row, without its empty cells, in lines or as an array.

use crate::{
    error::Error,
    table::{Picker, Selection, Table, markdown::escaped},
};
use schemas::columns::{self, COLUMNS, ColumnType, Row};
use serde_json::{Map, Value};
use std::io::Write;

/// Streams the rows. Numbers keep their digits.
pub fn write_json_lines(table: &mut Table, selection: &Selection, output: &mut dyn Write) -> Result<(), Error> {
    each(table, selection, output, |_| "", "\n")
}

/// The same rows as the elements of one JSON array.
pub fn write_json_array(table: &mut Table, selection: &Selection, output: &mut dyn Write) -> Result<(), Error> {
    output.write_all(b"[")?;
    each(table, selection, output, |is_first| if is_first { "\n" } else { ",\n" }, "")?;
    Ok(output.write_all(b"\n]\n")?)
}

/// Writes an object per row, with a text before and one after it.
fn each(
    table: &mut Table,
    selection: &Selection,
    output: &mut dyn Write,
    before: impl Fn(bool) -> &'static str,
    after: &str,
) -> Result<(), Error> {
    let names: Vec<(String, Option<ColumnType>)> =
        table.header().names().iter().map(|n| (n.clone(), columns::find(n).map(|c| c.ty))).collect();
    let mut is_first = true;
    let mut picker = Picker::of_every_row(selection, table)?;
    while let Some(row) = table.next_row()? {
        if picker.pick(&row)?.is_none() {
            continue;
        }
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
    picker.matched(table)
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

/// Writes a Markdown table of every row and of every column that has a value. The input is read whole, because only its end tells which columns are empty.
pub fn write_markdown(table: &mut Table, selection: &Selection, output: &mut dyn Write) -> Result<(), Error> {
    let names = table.header().names().to_vec();
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut picker = Picker::of_every_row(selection, table)?;
    while let Some(row) = table.next_row()? {
        if picker.pick(&row)?.is_some() {
            rows.push(row.cells().map(escaped).collect());
        }
    }
    picker.matched(table)?;
    let used: Vec<usize> = (0..names.len()).filter(|i| rows.iter().any(|r| !r[*i].is_empty())).collect();
    // A table without rows keeps its header.
    let used = if rows.is_empty() { (0..names.len()).collect() } else { used };
    let is_number = |i: &usize| rows.iter().all(|r| r[*i].is_empty() || r[*i].parse::<f64>().is_ok());
    let line = |cells: Vec<&str>| format!("| {} |\n", cells.join(" | "));
    output.write_all(line(used.iter().map(|i| names[*i].as_str()).collect()).as_bytes())?;
    let marks = used.iter().map(|i| if !rows.is_empty() && is_number(i) { "---:" } else { "---" }).collect();
    output.write_all(line(marks).as_bytes())?;
    for row in &rows {
        output.write_all(line(used.iter().map(|i| row[*i].as_str()).collect()).as_bytes())?;
    }
    Ok(())
}
