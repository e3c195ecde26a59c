//! netperf: tells its forms of output apart.

mod classic;
mod omni;
mod unit;

use super::sheet::Sheet;
use crate::input::ParseError;

/// Whether netperf wrote it.
pub fn looks_like(text: &str) -> bool {
    text.lines().take(200).any(|l| {
        let words: Vec<&str> = l.split_whitespace().take(4).collect();
        l.starts_with("Interim result:")
            || l.starts_with("NETPERF_")
            || omni::is_key_value(l)
            || omni::is_csv_header(l)
            || (l.contains(" TEST from ") && l.contains(" port "))
            || matches!(words.as_slice(), ["Recv", "Send", "Send" | "Recv", ..] | ["Local", "/Remote"])
    }) || text.lines().find(|l| !l.trim().is_empty()).is_some_and(|l| omni::csv_interim(l).is_some())
}

/// Reads any of the forms.
pub fn read(text: &str, sheet: &mut Sheet) -> Result<(), ParseError> {
    if text.lines().any(omni::is_csv_header) || text.lines().any(|l| omni::csv_interim(l).is_some()) {
        omni::csv(text, sheet)
    } else if text.lines().any(|l| omni::is_key_value(l) || l.starts_with("NETPERF_")) {
        omni::key_value(text, sheet)
    } else {
        classic::read(text, sheet)
    }
}
