//! `/proc/net/snmp`, `/proc/net/netstat` and `/proc/net/dev`: values that stand under their names.

use super::words::words;
use super::{Bits, Builder, Fault, Key, Kind};

/// Whether it is a setting or a level among the counters of `/proc/net/snmp` and `nstat`, by `nstat`'s name for it.
fn is_gauge(key: &str) -> bool {
    matches!(
        key,
        "IpForwarding"
            | "IpDefaultTTL"
            | "IpReasmTimeout"
            | "TcpRtoAlgorithm"
            | "TcpRtoMin"
            | "TcpRtoMax"
            | "TcpMaxConn"
            | "TcpCurrEstab"
            | "SctpCurrEstab"
            | "SctpRtoAlgorithm"
            | "SctpRtoMin"
            | "SctpRtoMax"
            | "SctpRtoInitial"
            | "SctpValCookieLife"
            | "SctpMaxInitRetr"
            | "MPTcpExtMPCurrEstab"
            | "MPTcpExtMPTCPCurrEstab"
    )
}

/// What a counter of these files is, by `nstat`'s name for it. The kernel keeps them in 64 bits.
pub fn kind(key: &str) -> Kind {
    if is_gauge(key) { Kind::Gauge } else { Kind::Counter(Bits::SixtyFour) }
}

/// Pairs of lines, `Tcp: names` and `Tcp: values`. Keys are `nstat`'s: the prefix and the name.
pub fn snmp(b: &mut Builder<'_>) -> Result<(), Fault> {
    let source = b.default_source();
    let mut cells: Vec<&str> = Vec::new();
    let mut lines = b.text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty());
    while let Some((at, names)) = lines.next() {
        let line = at as u64 + 1;
        let Some((prefix, names)) = names.split_once(':') else {
            return Err(Fault::new(line, "expected a line of names, `Prefix: Name Name …`"));
        };
        let Some((values_at, values)) = lines.next() else {
            return Err(Fault::new(line, format!("the line of names of `{prefix}` has no line of values after it")));
        };
        let values_line = values_at as u64 + 1;
        let Some(values) = values.strip_prefix(prefix).and_then(|v| v.strip_prefix(':')) else {
            return Err(Fault::new(values_line, format!("expected the values of `{prefix}`, `{prefix}: …`")));
        };
        cells.clear();
        cells.extend(words(values));
        let (above, below) = (words(names).count(), cells.len());
        if above != below {
            return Err(Fault::new(values_line, format!("`{prefix}` has {above} names and {below} values")));
        }
        for (name, digits) in words(names).zip(&cells) {
            let key = b.key_of(&[prefix, name]);
            let kind = kind(b.name(key));
            b.decimal(source, key, digits, kind)?;
        }
    }
    Ok(())
}

/// `/proc/net/dev`: a source per interface, `rx_` and `tx_` before the file's own column names.
pub fn dev(b: &mut Builder<'_>) -> Result<(), Fault> {
    let mut lines = b.text.lines().enumerate();
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
    let mut cells: Vec<&str> = Vec::new();
    let prefix = match b.default_source.split_once(':') {
        Some((prefix, _)) => prefix.to_owned(),
        None => b.default_source.clone(),
    };
    for (at, line) in lines.filter(|(_, l)| !l.trim().is_empty()) {
        let number = at as u64 + 1;
        // An alias has a colon of its own (`eth0:1`); the values never do.
        let Some((name, values)) = line.rsplit_once(':') else {
            return Err(Fault::new(number, "expected `interface: values`"));
        };
        let name = name.trim();
        cells.clear();
        cells.extend(words(values));
        if cells.len() != keys.len() {
            let count = cells.len();
            return Err(Fault::new(number, format!("`{name}` has {count} values under {} columns", keys.len())));
        }
        let source = b.source(&format!("{prefix}:{name}"));
        for (key, digits) in keys.iter().zip(&cells) {
            b.decimal(source, *key, digits, Kind::Counter(Bits::SixtyFour))?;
        }
    }
    Ok(())
}
