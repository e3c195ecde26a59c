//! OpenMetrics text: a gauge per metric and a sample per row. Labels tell the rows apart.
//!
//! Prometheus keeps everything in base units, and `promtool check metrics` flags names with others: bits per second become bytes
//! per second, microseconds become seconds. No digit is lost.

use std::io::Write;

use schemas::units::Unit;

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
        let family = Family::of(metric.column);
        let mut begun = false;
        let mut seen = std::collections::HashSet::new();
        for row in &found.rows.rows {
            if found.rows.number(row, *index)?.is_none() {
                continue;
            }
            if !begun {
                output.write_all(head(&family.name, "gauge", family.unit, metric.label).as_bytes())?;
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
            writeln!(output, "{}{{{labels}}} {}", family.name, family.value(row.get(*index)))?;
        }
    }
    writeln!(output, "# EOF")?;
    Ok(())
}

/// The lines before the samples of a family.
pub fn head(name: &str, kind: &str, unit: Option<&str>, help: &str) -> String {
    let unit = unit.map_or_else(String::new, |unit| format!("# UNIT {name} {unit}\n"));
    format!("# TYPE {name} {kind}\n{unit}# HELP {name} {}\n", escaped(help))
}

/// The family of samples that a column becomes.
#[derive(Clone, Debug)]
pub struct Family {
    pub name: String,
    /// The unit, where the name ends with it.
    pub unit: Option<&'static str>,
    scale: Scale,
}

#[derive(Clone, Copy, Debug)]
enum Scale {
    Same,
    Eighth,
    Millionth,
}

impl Family {
    pub fn of(column: &str) -> Self {
        let (stem, ending, unit, scale) = match Unit::of_column(column) {
            Some((stem, Unit::BitsPerSecond)) => (stem, "_bytes_per_second", Some("bytes_per_second"), Scale::Eighth),
            Some((stem, Unit::PerSecond)) => (stem, "_per_second", None, Scale::Same),
            Some((stem, Unit::Seconds)) => (stem, "_seconds", Some("seconds"), Scale::Same),
            Some((stem, Unit::Microseconds)) => (stem, "_seconds", Some("seconds"), Scale::Millionth),
            Some((stem, Unit::Bytes)) => (stem, "_bytes", Some("bytes"), Scale::Same),
            Some((stem, Unit::Ratio)) => (stem, "_ratio", Some("ratio"), Scale::Same),
            _ => (column, "", None, Scale::Same),
        };
        Self { name: format!("plumb_{stem}{ending}"), unit, scale }
    }

    /// The value of a cell in the unit of the family.
    pub fn value(&self, cell: &str) -> String {
        match self.scale {
            Scale::Same => cell.to_owned(),
            // Exact: only the exponent of a binary number changes.
            Scale::Eighth => cell.parse::<f64>().map_or_else(|_| cell.to_owned(), |value| (value / 8.0).to_string()),
            Scale::Millionth => millionth(cell),
        }
    }
}

/// A millionth of a decimal number, with its digits: `24.4` becomes `24.4e-6`.
fn millionth(cell: &str) -> String {
    let (digits, exponent) = cell.split_once(['e', 'E']).unwrap_or((cell, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    format!("{digits}e{}", exponent.saturating_sub(6))
}

/// The text of a label or of a description.
pub fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
