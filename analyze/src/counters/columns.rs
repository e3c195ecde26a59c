//! `/proc/net/snmp`, `/proc/net/netstat` and `/proc/net/dev`: values under their names.

use super::builder::Builder;
use super::{Bits, Kind};
use crate::input::ParseError;

/// Settings and levels among the counters of `/proc/net/snmp` and `nstat`, by prefix and name.
const GAUGES: &[(&str, &[&str])] = &[
    ("Ip", &["Forwarding", "DefaultTTL", "ReasmTimeout"]),
    ("Tcp", &["RtoAlgorithm", "RtoMin", "RtoMax", "MaxConn", "CurrEstab"]),
    ("Sctp", &["CurrEstab", "RtoAlgorithm", "RtoMin", "RtoMax", "RtoInitial", "ValCookieLife", "MaxInitRetr"]),
    ("MPTcpExt", &["MPCurrEstab", "MPTCPCurrEstab"]),
];

/// The kernel keeps these counters in 64 bits.
const COUNTER: Kind = Kind::Counter(Bits::SixtyFour);

/// The kind of a counter, by `nstat`'s name for it: prefix and name in one word.
pub fn kind(key: &str) -> Kind {
    let is_gauge =
        |(prefix, names): &(&str, &[&str])| key.strip_prefix(prefix).is_some_and(|name| names.contains(&name));
    if GAUGES.iter().any(is_gauge) { Kind::Gauge } else { COUNTER }
}

/// Pairs of lines, `Tcp: names` and `Tcp: values`. Keys are `nstat`'s: the prefix and the name.
pub fn snmp(b: &mut Builder<'_>) -> Result<(), ParseError> {
    let source = b.source.clone();
    let mut lines = b.lines().filter(|(_, l)| !l.trim().is_empty());
    while let Some((at, names)) = lines.next() {
        let Some((prefix, names)) = names.split_once(':') else {
            return Err(ParseError::new(at, "expected a line of names, `Prefix: Name Name …`"));
        };
        let Some((values_at, values)) = lines.next() else {
            let reason = format!("the line of names of `{prefix}` has no line of values after it");
            return Err(ParseError::new(at, reason));
        };
        let Some(values) = values.strip_prefix(prefix).and_then(|v| v.strip_prefix(':')) else {
            return Err(ParseError::new(values_at, format!("expected the values of `{prefix}`, `{prefix}: …`")));
        };
        for (name, digits) in names.split_whitespace().zip(values.split_whitespace()) {
            let key = format!("{prefix}{name}");
            let kind = kind(&key);
            b.decimal(&source, None, key, digits, kind)?;
        }
        let (above, below) = (names.split_whitespace().count(), values.split_whitespace().count());
        if above != below {
            return Err(ParseError::new(values_at, format!("`{prefix}` has {above} names and {below} values")));
        }
    }
    Ok(())
}

/// `/proc/net/dev`: a source per interface; keys are `rx_` or `tx_` and the file's own column names.
pub fn dev(b: &mut Builder<'_>) -> Result<(), ParseError> {
    let mut lines = b.lines().skip(1);
    let Some((_, names)) = lines.next() else {
        return Err(ParseError::new(1, "the line with the column names is missing"));
    };
    let mut halves = names.split('|').skip(1);
    let (Some(receive), Some(transmit)) = (halves.next(), halves.next()) else {
        return Err(ParseError::new(2, "expected the columns as ` face |receive…|transmit…`"));
    };
    let keys = |prefix: &'static str, names: &str| -> Vec<String> {
        names.split_whitespace().map(|name| format!("{prefix}{name}")).collect()
    };
    let keys = [keys("rx_", receive), keys("tx_", transmit)].concat();
    for (at, line) in lines.filter(|(_, l)| !l.trim().is_empty()) {
        // An alias has a colon of its own (`eth0:1`); the values never do.
        let Some((name, values)) = line.rsplit_once(':') else {
            return Err(ParseError::new(at, "expected `interface: values`"));
        };
        let name = name.trim();
        let source = b.interface(name);
        for (key, digits) in keys.iter().zip(values.split_whitespace()) {
            b.decimal(&source, None, key, digits, COUNTER)?;
        }
        let count = values.split_whitespace().count();
        if count != keys.len() {
            return Err(ParseError::new(at, format!("`{name}` has {count} values under {} columns", keys.len())));
        }
    }
    Ok(())
}
