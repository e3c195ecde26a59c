//! `/proc/net/softnet_stat`, `/proc/interrupts`, `/proc/softirqs`: a line or a column per CPU.

use super::builder::{Builder, Fault, clip};
use super::words::words;
use super::{Bits, Kind, Value};

/// The columns of `softnet_stat` that have names; the others are always zero.
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

/// Where kernels from 5.10 on put the line's CPU; before that, lines were numbered.
const SOFTNET_CPU: usize = 12;

/// `/proc/net/softnet_stat`.
pub fn softnet(b: &mut Builder<'_>) -> Result<(), Fault> {
    let source = b.default_source();
    let keys: Vec<_> = SOFTNET.iter().map(|(_, name, _)| b.key_of(&[name])).collect();
    for (number, line) in b.lines().filter(|(_, l)| !l.trim().is_empty()) {
        let cells: Vec<&str> = words(line).collect();
        let hex = |index: usize| -> Result<Option<(&str, u64)>, Fault> {
            let Some(cell) = cells.get(index) else { return Ok(None) };
            match u64::from_str_radix(cell, 16) {
                Ok(value) if cell.bytes().all(|c| c.is_ascii_hexdigit()) => Ok(Some((cell, value))),
                _ => Err(Fault::new(number, format!("`{}` is not a hexadecimal number", clip(cell)))),
            }
        };
        let row = u32::try_from(number - 1).unwrap_or(u32::MAX);
        let cpu = hex(SOFTNET_CPU)?.map_or(row, |(_, cpu)| u32::try_from(cpu).unwrap_or(u32::MAX));
        for (&(index, _, kind), key) in SOFTNET.iter().zip(&keys) {
            if let Some((cell, value)) = hex(index)? {
                b.push(source, Some(cpu), *key, cell, Value::Whole(value), kind);
            }
        }
    }
    Ok(())
}

/// `/proc/interrupts` and `/proc/softirqs`. The CPUs are those of the header: offline ones have no column.
pub fn interrupts(b: &mut Builder<'_>) -> Result<(), Fault> {
    let source = b.default_source();
    let mut lines = b.lines();
    let cpus: Vec<u32> = (lines.next().map_or("", |(_, l)| l).split_whitespace())
        .map(|word| word.strip_prefix("CPU").and_then(|n| n.parse().ok()))
        .collect::<Option<_>>()
        .ok_or_else(|| Fault::new(1, "expected a header of CPUs, `CPU0 CPU1 …`"))?;
    for (at, line) in lines.filter(|(_, l)| !l.trim().is_empty()) {
        let Some((label, rest)) = line.split_once(':') else {
            return Err(Fault::new(at, "expected `name: counts`"));
        };
        let label = label.trim();
        // Errors are counted for the whole machine.
        let per_cpu = !matches!(label, "ERR" | "MIS" | "Err");
        let wanted = if per_cpu { cpus.len() } else { 1 };
        // The number of a line can go to another device after a reload: the device's own name belongs to the key.
        let device = if is_digits(label) { rest.split_whitespace().next_back() } else { None };
        let key = match device.filter(|d| !is_digits(d)) {
            Some(device) => b.key_of(&[label, " ", device]),
            None => b.key_in_text(label),
        };
        let cells = b.cells(rest).take(wanted);
        let mut count = 0;
        for (index, cell) in cells.enumerate() {
            if cell.whole.is_none() && !is_digits(b.word(cell)) {
                break;
            }
            let cpu = if per_cpu { cpus.get(index).copied() } else { None };
            b.cell(source, cpu, key, cell, Kind::Counter(Bits::ThirtyTwo))?;
            count += 1;
        }
        if count != wanted {
            return Err(Fault::new(at, format!("`{label}` has {count} counts for {} CPUs", cpus.len())));
        }
    }
    Ok(())
}

fn is_digits(word: &str) -> bool {
    word.bytes().all(|b| b.is_ascii_digit())
}
