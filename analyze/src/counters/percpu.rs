//! `/proc/net/softnet_stat`, `/proc/interrupts`, `/proc/softirqs`: a line or a column per CPU.

use super::builder::{Builder, clip};
use super::{Bits, Kind, Value};
use crate::input::ParseError;

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
                b.push(&source, Some(cpu), name, cell, Value::Whole(value), kind);
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
