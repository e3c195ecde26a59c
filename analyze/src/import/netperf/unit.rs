//! Units of netperf, and its interim results (`-D`), which all forms of output have.

use schemas::words::Record;

use crate::import::sheet::{Sheet, measured, number};
use crate::input::ParseError;
use schemas::time::from_unix_seconds;

/// A unit word of netperf's `-f`, without its `/s`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unit {
    /// Bits per second.
    Bits(f64),
    /// `10^0bits`, netperf's label for bytes.
    MislabelledBytes,
    /// Transactions per second.
    Transactions,
    /// Microseconds per transaction.
    Microseconds,
}

impl Unit {
    /// The unit of a word such as `10^6bits`, `KBytes` or `Trans`.
    pub fn parse(word: &str) -> Option<Self> {
        Some(match word.trim() {
            "10^3bits" => Self::Bits(1e3),
            "10^6bits" => Self::Bits(1e6),
            "10^9bits" => Self::Bits(1e9),
            "10^0bits" => Self::MislabelledBytes,
            "Bytes" => Self::Bits(8.0),
            "KBytes" => Self::Bits(8.0 * 1024.0),
            "MBytes" => Self::Bits(8.0 * 1024.0 * 1024.0),
            "GBytes" => Self::Bits(8.0 * 1024.0 * 1024.0 * 1024.0),
            "Trans" => Self::Transactions,
            "Usec" => Self::Microseconds,
            _ => return None,
        })
    }

    /// Converts to bits per second; `None` where the unit is no throughput.
    pub fn bits(self, value: f64, sheet: &mut Sheet) -> Option<f64> {
        match self {
            Self::Bits(factor) => {
                if factor.rem_euclid(1024.0) == 0.0 {
                    sheet.note("netperf's KBytes, MBytes and GBytes are 2^10, 2^20 and 2^30 bytes: converted to bits");
                }
                Some(value * factor)
            }
            Self::MislabelledBytes => {
                sheet.note("netperf's -f b prints bytes under the label 10^0bits: converted to bits");
                Some(value * 8.0)
            }
            Self::Transactions | Self::Microseconds => None,
        }
    }
}

/// `… 25425.52 10^6bits/s over 1.250 seconds ending at 1327962078.405`.
pub fn interim(
    line: &str,
    line_number: usize,
    workload: &str,
    hosts: Option<&(String, String)>,
    sheet: &mut Sheet,
) -> Result<(), ParseError> {
    let fault = || ParseError::expected(line_number, "`VALUE UNIT/s over SECONDS seconds ending at TIME`", line);
    let words: Vec<&str> = line.trim_start_matches("Interim result:").split_whitespace().collect();
    let [rate, units, "over", seconds, "seconds", "ending", "at", ending] = words.as_slice() else {
        return Err(fault());
    };
    let (Some(rate), Some(seconds), Some(ending)) = (number(rate), number(seconds), number(ending)) else {
        return Err(fault());
    };
    let unit = Unit::parse(units.trim_end_matches("/s")).ok_or_else(fault)?;
    let mut row = measured(workload);
    row.record = Some(Record::Interval);
    row.elapsed_s = Some(seconds);
    row.time = from_unix_seconds(ending);
    row.start_s = Some(sheet.since_first(ending - seconds));
    match unit {
        Unit::Transactions => row.transactions_per_s = Some(rate),
        unit => row.throughput_bits_per_s = unit.bits(rate, sheet),
    }
    if let Some((from, to)) = hosts {
        (row.from, row.to) = (Some(from.clone()), Some(to.clone()));
    }
    sheet.add(row);
    Ok(())
}
