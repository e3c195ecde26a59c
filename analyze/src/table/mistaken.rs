//! Files of other kinds that are taken for a table of CSV.

/// The kind of a file by its name and its first line, and the remedy, as the rest of a sentence; `None`: it may be a table.
pub fn kind(name: &str, first: &str) -> Option<String> {
    let has = |separator| !first.contains(',') && first.contains(separator);
    let ends = |endings: &[&str]| endings.iter().any(|ending| name.ends_with(ending));
    Some(if first.trim_start().starts_with(['{', '[']) {
        if ends(&[".run.json"]) {
            let table = name.trim_end_matches(".run.json");
            format!("is the record of a run, and no table: {table}.csv has the results")
        } else {
            format!("is JSON, and no table: `plumb import {name}` makes one of the outputs of other programs")
        }
    } else if first.starts_with("version:") || ends(&[".yaml", ".yml"]) {
        format!("is a plan, and no table: `plumb run {name} -o results.csv` makes one")
    } else if let Some(separator) = [';', '\t'].into_iter().find(|separator| has(*separator)) {
        format!("tables have commas between their cells, not {separator:?}")
    } else if has(' ') && first.contains("  ") {
        "is a table for people, and no CSV: take the file that `plumb run -o` wrote, or a filter's `-f csv`".to_owned()
    } else {
        return None;
    })
}
