//! `/proc/net/snmp`, `/proc/net/netstat` and `/proc/net/dev`: values that stand under their names.

use super::builder::{Builder, Fault};
use super::words::{at_last_colon, words};
use super::{Bits, Key, Kind};

/// The settings and levels among the counters of `/proc/net/snmp` and `nstat`, by prefix and name.
const GAUGES: &[(&str, &[&str])] = &[
    ("Ip", &["Forwarding", "DefaultTTL", "ReasmTimeout"]),
    ("Tcp", &["RtoAlgorithm", "RtoMin", "RtoMax", "MaxConn", "CurrEstab"]),
    ("Sctp", &["CurrEstab", "RtoAlgorithm", "RtoMin", "RtoMax", "RtoInitial", "ValCookieLife", "MaxInitRetr"]),
    ("MPTcpExt", &["MPCurrEstab", "MPTCPCurrEstab"]),
];

/// The kernel keeps these counters in 64 bits.
const COUNTER: Kind = Kind::Counter(Bits::SixtyFour);

/// What a counter of these files is, by `nstat`'s name for it, which is prefix and name in one.
pub fn kind(key: &str) -> Kind {
    let is_gauge =
        |(prefix, names): &(&str, &[&str])| key.strip_prefix(prefix).is_some_and(|name| names.contains(&name));
    if GAUGES.iter().any(is_gauge) { Kind::Gauge } else { COUNTER }
}

/// Pairs of lines, `Tcp: names` and `Tcp: values`. Keys are `nstat`'s: the prefix and the name.
pub fn snmp(b: &mut Builder<'_>) -> Result<(), Fault> {
    let source = b.default_source();
    let mut lines = b.lines().filter(|(_, l)| !l.trim().is_empty());
    while let Some((at, names)) = lines.next() {
        let Some((prefix, names)) = names.split_once(':') else {
            return Err(Fault::new(at, "expected a line of names, `Prefix: Name Name …`"));
        };
        let Some((values_at, values)) = lines.next() else {
            return Err(Fault::new(at, format!("the line of names of `{prefix}` has no line of values after it")));
        };
        let Some(values) = values.strip_prefix(prefix).and_then(|v| v.strip_prefix(':')) else {
            return Err(Fault::new(values_at, format!("expected the values of `{prefix}`, `{prefix}: …`")));
        };
        let gauges = GAUGES.iter().find(|(of, _)| *of == prefix).map_or(&[] as &[&str], |(_, names)| names);
        let (mut above, mut below) = (b.cells(names), b.cells(values));
        loop {
            let (name, cell) = match (above.next(), below.next()) {
                (Some(name), Some(cell)) => (name, cell),
                (None, None) => break,
                _ => {
                    let (above, below) = (words(names).count(), words(values).count());
                    return Err(Fault::new(values_at, format!("`{prefix}` has {above} names and {below} values")));
                }
            };
            let name = b.word(name);
            let key = b.key_of(&[prefix, name]);
            b.cell(source, None, key, cell, if gauges.contains(&name) { Kind::Gauge } else { COUNTER })?;
        }
    }
    Ok(())
}

/// `/proc/net/dev`: a source per interface, `rx_` and `tx_` before the file's own column names.
pub fn dev(b: &mut Builder<'_>) -> Result<(), Fault> {
    let mut lines = b.lines();
    lines.next();
    let Some((_, names)) = lines.next() else {
        return Err(Fault::new(1, "the line with the column names is missing"));
    };
    let mut halves = names.split('|').skip(1);
    let (Some(receive), Some(transmit)) = (halves.next(), halves.next()) else {
        return Err(Fault::new(2, "expected the columns as ` face |receive…|transmit…`"));
    };
    let mut keys: Vec<Key> = words(receive).map(|name| b.key_of(&["rx_", name])).collect();
    keys.extend(words(transmit).map(|name| b.key_of(&["tx_", name])));
    let prefix = b.default_source.split_once(':').map_or(b.default_source, |(prefix, _)| prefix);
    for (at, line) in lines.filter(|(_, l)| !l.trim().is_empty()) {
        // An alias has a colon of its own (`eth0:1`); the values never do.
        let Some((name, values)) = at_last_colon(line) else {
            return Err(Fault::new(at, "expected `interface: values`"));
        };
        let name = name.trim();
        let source = b.source(&[prefix, ":", name]);
        let mut cells = b.cells(values);
        let mut count = 0;
        for (key, cell) in keys.iter().zip(cells.by_ref()) {
            b.cell(source, None, *key, cell, COUNTER)?;
            count += 1;
        }
        count += cells.count();
        if count != keys.len() {
            return Err(Fault::new(at, format!("`{name}` has {count} values under {} columns", keys.len())));
        }
    }
    Ok(())
}
