//! One counter a line: `/proc/vmstat` and its like, `/proc/net/snmp6`, `nstat`, `ethtool -S`.

use super::words::words;
use super::{Bits, Builder, Fault, Format, Kind, Value, columns};

/// `key value`, and `nstat`'s third column, a rate that `nstat` made up itself and that is left alone.
pub fn key_value(b: &mut Builder<'_>, format: Format) -> Result<(), Fault> {
    let source = b.default_source();
    for (at, line) in b.text.lines().enumerate() {
        let mut words = words(line);
        let Some(key) = words.next() else { continue };
        if key.starts_with('#') {
            continue;
        }
        let Some(digits) = words.next() else {
            return Err(Fault::new(at as u64 + 1, format!("`{}` has no value", super::clip(key))));
        };
        let kind = match format {
            Format::Nstat => columns::kind(key),
            Format::Snmp6 => Kind::Counter(Bits::SixtyFour),
            // vmstat's levels are its `nr_` lines; other files of this form do not say.
            Format::KeyValue if key.starts_with("nr_") => Kind::Gauge,
            _ => Kind::Number,
        };
        let key = b.key_in_text(key.trim_end_matches(':'));
        b.decimal(source, key, digits, kind)?;
    }
    Ok(())
}

/// `ethtool -S`: `name: value`, the value being everything after the last colon. Headings have none.
pub fn ethtool(b: &mut Builder<'_>) -> Result<(), Fault> {
    let source = b.default_source();
    for (at, line) in b.text.lines().enumerate() {
        let line = line.trim();
        let Some((key, digits)) = line.rsplit_once(':') else {
            if line.is_empty() {
                continue;
            }
            return Err(Fault::new(at as u64 + 1, format!("expected `name: value`, found `{}`", super::clip(line))));
        };
        let digits = digits.trim();
        if digits.is_empty() || line.starts_with("Standard stats for ") {
            continue;
        }
        // Some drivers print states and hexadecimal registers among their counters.
        if Value::parse(digits).is_none() && !digits.bytes().all(|c| c.is_ascii_digit()) {
            continue;
        }
        let key = b.key_in_text(key.trim_end());
        b.decimal(source, key, digits, Kind::Counter(Bits::Unknown))?;
    }
    Ok(())
}
