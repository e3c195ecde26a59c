//! OpenMetrics text: a gauge per metric and a sample per row. Labels tell the rows apart.

use std::io::Write;

use super::Measurements;
use crate::error::Error;
use crate::table::{Selection, Table};

/// Writes the rows that count.
pub fn write(
    table: &mut Table,
    selection: &Selection,
    metrics: &[String],
    output: &mut dyn Write,
) -> Result<(), Error> {
    let found = Measurements::read(table, selection, metrics)?;
    for (metric, index) in &found.metrics {
        let name = format!("plumb_{}", metric.column);
        let mut begun = false;
        let mut seen = std::collections::HashSet::new();
        for row in &found.rows.rows {
            if found.rows.number(row, *index)?.is_none() {
                continue;
            }
            if !begun {
                writeln!(output, "# TYPE {name} gauge\n# HELP {name} {}", escaped(metric.label))?;
                begun = true;
            }
            let labels: Vec<String> = found
                .labels
                .iter()
                .filter(|label| !row.get(**label).is_empty())
                .map(|label| format!("{}=\"{}\"", found.column(*label), escaped(row.get(*label))))
                .collect();
            let labels = labels.join(",");
            if !seen.insert(labels.clone()) {
                let reason = "a second row with the same labels: what tells it from the first has no column here; choose \
                              rows with --where";
                return Err(found.rows.error(row, *index, reason));
            }
            // The cell is a number and keeps its digits.
            writeln!(output, "{name}{{{labels}}} {}", row.get(*index))?;
        }
    }
    writeln!(output, "# EOF")?;
    Ok(())
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
