//! A figure and its points.

use super::{figure::Figure, records::Records, series::Series};
use crate::error::Error;
use schemas::columns::number;
use std::io::Write;

/// The points of a figure, as `--data` writes them.
#[derive(Clone, Debug)]
pub struct Points {
    pub header: Vec<String>,
    /// A cell per column.
    pub rows: Vec<Vec<String>>,
}

impl Points {
    pub fn new(header: &[&str]) -> Self {
        Self { header: header.iter().map(|h| (*h).to_owned()).collect(), rows: Vec::new() }
    }

    /// Writes CSV.
    pub fn write(&self, output: &mut dyn Write) -> Result<(), Error> {
        let mut csv = csv::Writer::from_writer(output);
        csv.write_record(&self.header)?;
        for row in &self.rows {
            csv.write_record(row)?;
        }
        Ok(csv.flush()?)
    }

    pub fn of(series: &[Series], x: &str, y: &str) -> Self {
        let end = |value: Option<f64>| value.map(number).unwrap_or_default();
        let mut table = Self::new(&["series", x, y, "low", "high", "n"]);
        for one in series {
            table.rows.extend(
                one.points.iter().map(|p| {
                    vec![one.name.clone(), number(p.x), number(p.y), end(p.low), end(p.high), p.n.to_string()]
                }),
            );
        }
        table
    }
}

/// A figure and its points.
#[derive(Debug)]
pub struct Drawing {
    pub figure: Figure,
    pub points: Points,
    pub warnings: Vec<String>,
    /// Warnings that a page around the picture need not repeat: the figure has its notes, and the page counts the rows
    /// that do not count.
    pub told: Vec<String>,
}

impl Drawing {
    pub fn new(mut figure: Figure, points: Points, records: &Records) -> Self {
        figure.notes.extend(records.notes.iter().cloned());
        let told = records.uncounted.iter().chain(&records.notes).cloned().collect();
        Self { figure, points, warnings: records.warnings.clone(), told }
    }
}
