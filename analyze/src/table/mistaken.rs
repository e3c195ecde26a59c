//! Files of other kinds that are taken for a table of CSV.

use std::path::Path;

/// The kind of a file by its name and its first line, and the remedy, as the rest of a sentence; `None`: it may be a table.
pub fn kind(name: &str, first: &str) -> Option<String> {
    let is_one_cell = !first.contains(',');
    if first.starts_with(['{', '[']) {
        return Some(match name.strip_suffix(".run.json") {
            Some(table) => format!("is the record of a run, and no table: {table}.csv has the results"),
            None => format!("is JSON, and no table: `plumb import {name}` makes one of the outputs of other programs"),
        });
    }
    let extension = Path::new(name).extension().unwrap_or_default();
    if first.starts_with("version:") || extension == "yaml" || extension == "yml" {
        return Some(format!("is a plan, and no table: `plumb run {name} -o results.csv` makes one"));
    }
    if let Some(separator) = [';', '\t'].into_iter().find(|separator| is_one_cell && first.contains(*separator)) {
        return Some(format!("tables have commas between their cells, not {separator:?}"));
    }
    (is_one_cell && first.contains("  ")).then(|| {
        "is a table for people, and no CSV: take the file that `plumb run -o` wrote, or a filter's `-f csv`".to_owned()
    })
}
