//! Lines of counters, as the kernel and `ethtool` print them.

use super::{
    Bits, Format, Kind, Value,
    builder::{Builder, clip},
};
use crate::error::ParseError;

// One counter a line: `/proc/vmstat` and its like, `/proc/net/snmp6`, `nstat`, `ethtool -S`.

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
            Format::Nstat => kind(key),
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

// `/proc/net/snmp`, `/proc/net/netstat` and `/proc/net/dev`: values under their names.

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

// `/proc/net/softnet_stat`, `/proc/interrupts`, `/proc/softirqs`: a line or a column per CPU.

/// Named columns of `softnet_stat`; the others are always zero.
const SOFTNET: &[(usize, &str, Kind)] = &[
    (0, "processed", Kind::Counter(Bits::ThirtyTwo)),
    (1, "dropped", Kind::Counter(Bits::ThirtyTwo)),
    (2, "time_squeeze", Kind::Counter(Bits::ThirtyTwo)),
    (8, "cpu_collision", Kind::Counter(Bits::ThirtyTwo)),
    (9, "received_rps", Kind::Counter(Bits::ThirtyTwo)),
    (10, "flow_limit_count", Kind::Counter(Bits::ThirtyTwo)),
    (11, "backlog_length", Kind::Gauge),
    (13, "input_queue_length", Kind::Gauge),
    (14, "process_queue_length", Kind::Gauge),
];

/// Column of the line's CPU, from kernel 5.10 on. Older kernels print a line for each CPU in order.
const SOFTNET_CPU: usize = 12;

/// `/proc/net/softnet_stat`.
pub fn softnet(b: &mut Builder<'_>) -> Result<(), ParseError> {
    let source = b.source.clone();
    for (at, line) in b.lines().filter(|(_, l)| !l.trim().is_empty()) {
        let cells: Vec<&str> = line.split_whitespace().collect();
        let hex = |index: usize| -> Result<Option<(&str, u64)>, ParseError> {
            let Some(cell) = cells.get(index) else { return Ok(None) };
            match u64::from_str_radix(cell, 16) {
                Ok(value) if cell.bytes().all(|c| c.is_ascii_hexdigit()) => Ok(Some((cell, value))),
                _ => Err(ParseError::new(at, format!("`{}` is not a hexadecimal number", clip(cell)))),
            }
        };
        let cpu = hex(SOFTNET_CPU)?.map_or(at as u64 - 1, |(_, cpu)| cpu);
        let cpu = u32::try_from(cpu).unwrap_or(u32::MAX);
        for &(index, name, kind) in SOFTNET {
            if let Some((cell, value)) = hex(index)? {
                b.push(&source, Some(cpu), name, cell, Value::Whole(value.into()), kind);
            }
        }
    }
    Ok(())
}

/// `/proc/interrupts` and `/proc/softirqs`. The header names the CPUs: offline ones have no column.
pub fn interrupts(b: &mut Builder<'_>) -> Result<(), ParseError> {
    let source = b.source.clone();
    let mut lines = b.lines();
    let cpus: Vec<u32> = (lines.next().map_or("", |(_, l)| l).split_whitespace())
        .map(|word| word.strip_prefix("CPU").and_then(|n| n.parse().ok()))
        .collect::<Option<_>>()
        .ok_or_else(|| ParseError::new(1, "expected a header of CPUs, `CPU0 CPU1 …`"))?;
    for (at, line) in lines.filter(|(_, l)| !l.trim().is_empty()) {
        let Some((label, rest)) = line.split_once(':') else {
            return Err(ParseError::new(at, "expected `name: counts`"));
        };
        let label = label.trim();
        // Errors are counted for the whole machine.
        let per_cpu = !matches!(label, "ERR" | "MIS" | "Err");
        let wanted = if per_cpu { cpus.len() } else { 1 };
        // The number of a line can go to another device after a reload, so the key has the device's name too.
        let device = if is_digits(label) { rest.split_whitespace().next_back() } else { None };
        let key = match device.filter(|d| !is_digits(d)) {
            Some(device) => format!("{label} {device}"),
            None => label.to_owned(),
        };
        let mut count = 0;
        for (cpu, digits) in cpus.iter().take(wanted).zip(rest.split_whitespace().take_while(|w| is_digits(w))) {
            b.decimal(&source, per_cpu.then_some(*cpu), &*key, digits, Kind::Counter(Bits::ThirtyTwo))?;
            count += 1;
        }
        if count != wanted {
            return Err(ParseError::new(at, format!("`{label}` has {count} counts for {} CPUs", cpus.len())));
        }
    }
    Ok(())
}

fn is_digits(word: &str) -> bool {
    word.bytes().all(|b| b.is_ascii_digit())
}
