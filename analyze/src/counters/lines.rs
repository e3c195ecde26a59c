//! One counter a line: `/proc/vmstat` and its like, `/proc/net/snmp6`, `nstat`, `ethtool -S`.

use super::builder::{Builder, Fault, clip};
use super::words::at_last_colon;
use super::{Bits, Format, Kind, Value, columns};

/// `key value`, and `nstat`'s third column, a rate that `nstat` made up itself and that is left alone.
pub fn key_value(b: &mut Builder<'_>, format: Format) -> Result<(), Fault> {
    let source = b.default_source();
    for (at, line) in b.lines() {
        let mut words = b.cells(line);
        let Some(key) = words.next().map(|key| b.word(key)) else { continue };
        if key.starts_with('#') {
            continue;
        }
        let Some(digits) = words.next() else {
            return Err(Fault::new(at, format!("`{}` has no value", clip(key))));
        };
        let kind = match format {
            Format::Nstat => columns::kind(key),
            Format::Snmp6 => Kind::Counter(Bits::SixtyFour),
            // vmstat's levels are its `nr_` lines; other files of this form do not say.
            Format::KeyValue if key.starts_with("nr_") => Kind::Gauge,
            _ => Kind::Number,
        };
        let key = if key.ends_with(':') { key.trim_end_matches(':') } else { key };
        let key = b.key_in_text(key);
        b.cell(source, None, key, digits, kind)?;
    }
    Ok(())
}

/// `ethtool -S`: `name: value`, the value being everything after the last colon. Headings have none.
pub fn ethtool(b: &mut Builder<'_>) -> Result<(), Fault> {
    let source = b.default_source();
    for (at, line) in b.lines() {
        let line = line.trim();
        let Some((key, digits)) = at_last_colon(line) else {
            if line.is_empty() {
                continue;
            }
            return Err(Fault::new(at, format!("expected `name: value`, found `{}`", clip(line))));
        };
        let digits = digits.trim();
        if digits.is_empty() || line.starts_with("Standard stats for ") {
            continue;
        }
        let key = b.key_in_text(key.trim_end());
        let kind = Kind::Counter(Bits::Unknown);
        match b.cells(digits).next().filter(|cell| cell.whole.is_some() && cell.len == digits.len()) {
            Some(cell) => b.cell(source, None, key, cell, kind)?,
            // Some drivers print states and hexadecimal registers among their counters.
            None if Value::parse(digits).is_none() && !digits.bytes().all(|c| c.is_ascii_digit()) => {}
            None => b.decimal(source, key, digits, kind)?,
        }
    }
    Ok(())
}
