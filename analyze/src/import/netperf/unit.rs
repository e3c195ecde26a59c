//! Units of netperf, and its interim results (`-D`), which all forms of output have.

use crate::{
    error::ParseError,
    import::imported::{ImportedRows, measured, number},
};
use schemas::{columns::Row, time::from_unix_seconds, words::Record};

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

    /// The unit of a word with `/s` or `/sec`.
    pub fn of_rate(word: &str) -> Option<Self> {
        let word = word.trim();
        Self::parse(word.strip_suffix("/sec").or_else(|| word.strip_suffix("/s"))?)
    }

    /// Converts to bits per second; `None` if the unit is not one of throughput.
    pub fn bits(self, value: f64, imported: &mut ImportedRows) -> Option<f64> {
        match self {
            Self::Bits(factor) => {
                if factor.rem_euclid(1024.0) == 0.0 {
                    imported
                        .note("netperf's KBytes, MBytes and GBytes are 2^10, 2^20 and 2^30 bytes: converted to bits");
                }
                Some(value * factor)
            }
            Self::MislabelledBytes => {
                imported.note("netperf's -f b prints bytes under the label 10^0bits: converted to bits");
                Some(value * 8.0)
            }
            Self::Transactions | Self::Microseconds => None,
        }
    }
}

/// Sets transactions per second from a request/response throughput, which netperf counts in both directions together.
pub fn set_transactions(row: &mut Row, text: &str, unit: Unit, imported: &mut ImportedRows) {
    let value = number(text).unwrap_or_default();
    match unit {
        Unit::Transactions => row.transactions_per_s = Some(value),
        // -f u of 2.7.1 divides by bytes instead of transactions, which cannot be undone.
        Unit::Microseconds => imported.note("netperf's -f u is wrong in 2.7.1 and was left out"),
        unit => {
            let Some(bits) = unit.bits(value, imported) else { return };
            let sizes = row.request_bytes.zip(row.response_bytes).map(|(a, b)| a + b).filter(|s| *s > 0);
            let Some(size) = sizes else {
                imported
                    .note("netperf's request/response throughput counts both directions: left out without the sizes");
                return;
            };
            let digits = text.trim_start_matches(['0', '.', '-']).bytes().filter(u8::is_ascii_digit).count();
            if digits < 3 {
                imported
                    .note("netperf's request/response throughput has too few digits to count transactions: left out");
                return;
            }
            imported
                .note("netperf's request/response throughput counts both directions: given as transactions per second");
            row.transactions_per_s = Some(bits / 8.0 / size as f64);
        }
    }
}

/// An interim result. It gets its workload when the result is known.
pub struct Interim {
    row: Row,
    rate: f64,
    unit: Unit,
    pub line: usize,
}

impl Interim {
    /// `… 25425.52 10^6bits/s over 1.250 seconds ending at 1327962078.405`.
    pub fn parse(line: &str, line_number: usize, imported: &mut ImportedRows) -> Result<Self, ParseError> {
        let fault = || ParseError::expected(line_number, "`VALUE UNIT/s over SECONDS seconds ending at TIME`", line);
        let words: Vec<&str> = line.trim_start_matches("Interim result:").split_whitespace().collect();
        let [rate, units, "over", seconds, "seconds", "ending", "at", ending] = words.as_slice() else {
            return Err(fault());
        };
        let (Some(rate), Some(seconds), Some(ending)) = (number(rate), number(seconds), number(ending)) else {
            return Err(fault());
        };
        let unit = Unit::of_rate(units).ok_or_else(fault)?;
        let mut row = measured("");
        row.record = Some(Record::Interval);
        row.elapsed_s = Some(seconds);
        row.time = from_unix_seconds(ending);
        row.start_s = Some(imported.since_first(ending - seconds));
        Ok(Self { row, rate, unit, line: line_number })
    }

    /// The row, of the same test as `result`.
    pub fn of(self, result: &Row, imported: &mut ImportedRows) -> Result<Row, ParseError> {
        let mut row = self.row;
        (row.workload, row.transport) = (result.workload.clone(), result.transport.clone());
        row.direction = result.direction;
        let transactions = result.workload.as_deref().is_some_and(|w| w.ends_with("rr") || w.ends_with("_cc"));
        match self.unit {
            Unit::Transactions if transactions => row.transactions_per_s = Some(self.rate),
            Unit::Bits(_) | Unit::MislabelledBytes if !transactions => {
                row.throughput_bits_per_s = self.unit.bits(self.rate, imported);
            }
            Unit::Transactions => {
                let reason = "an interim result in transactions belongs to no stream: the output is mixed";
                return Err(ParseError::new(self.line, reason));
            }
            _ => {
                (row.request_bytes, row.response_bytes) = (result.request_bytes, result.response_bytes);
                set_transactions(&mut row, &self.rate.to_string(), self.unit, imported);
            }
        }
        Ok(row)
    }
}
