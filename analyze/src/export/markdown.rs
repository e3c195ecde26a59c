//! A Markdown table of every row and of every column that has a value.

use std::io::Write;

use crate::error::Error;
use crate::table::{Table, markdown::escaped};

/// Writes the table. The input is read whole, because only its end tells which columns are empty.
pub fn write(table: &mut Table, output: &mut dyn Write) -> Result<(), Error> {
    let names = table.header().names().to_vec();
    let mut rows: Vec<Vec<String>> = Vec::new();
    while let Some(row) = table.next_row()? {
        rows.push(row.cells().map(escaped).collect());
    }
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
