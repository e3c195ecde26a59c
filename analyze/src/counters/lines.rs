//! One counter a line: `/proc/vmstat` and its like, `/proc/net/snmp6`, `nstat`, `ethtool -S`.

use super::builder::{Builder, clip};
use super::{Bits, Format, Kind, Value, columns};
use crate::input::ParseError;

/// `key value`. `nstat` prints a rate of its own making as third column, which is ignored.
pub fn key_value(b: &mut Builder<'_>, format: Format) -> Result<(), ParseError> {
    let source = b.source.clone();
    for (at, line) in b.lines() {
        let mut words = line.split_whitespace();
        let Some(key) = words.next().filter(|key| !key.starts_with('#')) else { continue };
        let Some(digits) = words.next() else {
            return Err(ParseError::new(at, format!("`{}` has no value", clip(key))));
        };
        let kind = match format {
            Format::Nstat => columns::kind(key),
            Format::Snmp6 => Kind::Counter(Bits::SixtyFour),
            // The levels of vmstat are its `nr_` lines; other files of this form do not say.
            Format::KeyValue if key.starts_with("nr_") => Kind::Gauge,
            _ => Kind::Number,
        };
        b.decimal(&source, None, key.trim_end_matches(':'), digits, kind)?;
    }
    Ok(())
}

/// `ethtool -S`: `name: value`; the value follows the last colon. Headings have no value.
pub fn ethtool(b: &mut Builder<'_>) -> Result<(), ParseError> {
    let source = b.source.clone();
    for (at, line) in b.lines() {
        let line = line.trim();
        if line.is_empty() {
            continue;
        }
        let Some((key, digits)) = line.rsplit_once(':') else {
            return Err(ParseError::new(at, format!("expected `name: value`, found `{}`", clip(line))));
        };
        let digits = digits.trim();
        // Some drivers print states and hexadecimal registers among their counters.
        let is_number = Value::parse(digits).is_some() || digits.bytes().all(|c| c.is_ascii_digit());
        if digits.is_empty() || line.starts_with("Standard stats for ") || !is_number {
            continue;
        }
        b.decimal(&source, None, key.trim_end(), digits, Kind::Counter(Bits::Unknown))?;
    }
    Ok(())
}
