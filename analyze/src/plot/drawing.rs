//! A figure with the points that it shows.

use super::{figure::Figure, records::Records, series::Series};
use crate::error::Error;
use schemas::columns::number;
use std::io::Write;

/// What a figure shows, as the table that `--data` writes.
#[derive(Clone, Debug)]
pub struct Points {
    /// Names of the columns.
    pub header: Vec<String>,
    /// The points, each with a cell per column.
    pub rows: Vec<Vec<String>>,
}

impl Points {
    /// A table without rows.
    #[must_use]
    pub fn new(header: &[&str]) -> Self {
        Self { header: header.iter().map(|h| (*h).to_owned()).collect(), rows: Vec::new() }
    }

    /// Writes them as CSV.
    pub fn write(&self, output: &mut dyn Write) -> Result<(), Error> {
        let mut csv = csv::Writer::from_writer(output);
        csv.write_record(&self.header)?;
        for row in &self.rows {
            csv.write_record(row)?;
        }
        Ok(csv.flush()?)
    }

    /// The points of series.
    #[must_use]
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

/// A figure with the points it shows.
#[derive(Debug)]
pub struct Drawing {
    /// The figure.
    pub figure: Figure,
    /// What was drawn, for `--data`.
    pub points: Points,
    /// Sentences for the user.
    pub warnings: Vec<String>,
}

impl Drawing {
    pub fn new(figure: Figure, points: Points, records: &Records) -> Self {
        Self { figure, points, warnings: records.warnings.clone() }
    }
}
