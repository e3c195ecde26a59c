//! Interrupts, soft interrupts and the receive path's queues, per CPU.

use std::fs;

use super::{files::text, kernel_sample::KernelSample};

/// Samples `/proc/interrupts` (keys `38.virtio2-input.0.cpu1`, `LOC.cpu0`), `/proc/softirqs` (`NET_RX.cpu0`) and
/// `softnet_stat` (`cpu0.processed`).
pub(super) fn read(into: &mut KernelSample) {
    for line in lines(&text("/proc/interrupts")) {
        // Only numbered interrupts end with the name of their owner.
        let prefix = match (line.id.bytes().all(|b| b.is_ascii_digit()), line.action) {
            (true, action) if !action.is_empty() => format!("{}.{action}", line.id),
            _ => line.id.to_owned(),
        };
        for (cpu, count) in &line.counts {
            into.put("interrupts", format!("{prefix}.cpu{cpu}"), *count);
        }
    }
    softirqs(into, |_| true);
    softnet(&text("/proc/thread-self/net/softnet_stat"), into);
}

/// Samples the network's soft interrupts, per CPU.
pub(super) fn read_network_softirqs(into: &mut KernelSample) {
    softirqs(into, |name| name.starts_with("NET_"));
}

/// Samples the interrupts of an interface per CPU: those of the PCI device behind it, summed over its queues. None for
/// an interface without hardware.
pub(super) fn read_of_interface(interface: &str, bus: &str, into: &mut KernelSample) {
    let Ok(entries) = fs::read_dir(format!("/sys/bus/pci/devices/{bus}/msi_irqs")) else { return };
    let irqs: Vec<String> = entries.flatten().filter_map(|e| e.file_name().into_string().ok()).collect();
    let source = format!("nic_interrupts:{interface}");
    for line in lines(&text("/proc/interrupts")).filter(|l| irqs.iter().any(|i| i == l.id)) {
        for (cpu, count) in &line.counts {
            into.add(&source, format!("cpu{cpu}"), *count);
        }
    }
}

fn softirqs(into: &mut KernelSample, wanted: impl Fn(&str) -> bool) {
    for line in lines(&text("/proc/softirqs")).filter(|l| wanted(l.id)) {
        for (cpu, count) in &line.counts {
            into.put("softirqs", format!("{}.cpu{cpu}", line.id), *count);
        }
    }
}

/// A row of a table with a column per online CPU.
struct Line<'a> {
    id: &'a str,
    counts: Vec<(u32, u64)>,
    /// Last word behind the counts: the owner of the interrupt.
    action: &'a str,
}

/// Rows of a table whose heading names the CPUs (`CPU0 CPU2`). Rows with fewer counts than CPUs are left out, such as
/// `ERR`, which belongs to no CPU.
fn lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    let mut rows = text.lines();
    let cpus: Vec<u32> = rows
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .filter_map(|w| w.strip_prefix("CPU")?.parse().ok())
        .collect();
    rows.filter_map(move |row| {
        let (id, rest) = row.split_once(':')?;
        let mut words = rest.split_whitespace();
        let counts: Vec<(u32, u64)> = cpus.iter().map_while(|cpu| Some((*cpu, words.next()?.parse().ok()?))).collect();
        (counts.len() == cpus.len()).then(|| Line { id: id.trim(), counts, action: words.last().unwrap_or_default() })
    })
}

/// Parses `softnet_stat`: a line per online CPU, hexadecimal. The thirteenth column is the CPU's number, where the
/// kernel prints it.
fn softnet(text: &str, into: &mut KernelSample) {
    for (row, line) in text.lines().enumerate() {
        let columns: Vec<u64> = line.split_whitespace().map_while(|w| u64::from_str_radix(w, 16).ok()).collect();
        let cpu = columns.get(12).copied().unwrap_or(row as u64);
        for (name, column) in [("processed", 0), ("dropped", 1), ("time_squeezed", 2), ("received_rps", 9)] {
            if let Some(value) = columns.get(column) {
                into.put("softnet", format!("cpu{cpu}.{name}"), *value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "            CPU0       CPU2
 38:          5      6487 PCI-MSIX-0000:00:03.0   1-edge      virtio2-input.0
 39:       6214          0 PCI-MSIX-0000:00:03.0   2-edge      virtio2-output.0
LOC:     239222     274965   Local timer interrupts
ERR:          0
";

    #[test]
    fn counts_belong_to_the_cpu_that_the_heading_names() {
        let lines: Vec<_> = lines(TABLE).collect();
        assert_eq!(lines.len(), 3, "ERR belongs to no CPU");
        assert_eq!((lines[0].id, lines[0].action), ("38", "virtio2-input.0"));
        assert_eq!(lines[0].counts, vec![(0, 5), (2, 6487)]);
    }

    #[test]
    fn softnet_lines_carry_their_cpu_where_the_kernel_says_it() {
        let mut sample = KernelSample::default();
        softnet("0000000a 1 2 0 0 0 0 0 0 0 0 0 00000003 0 0\n", &mut sample);
        assert_eq!(sample.get("softnet", "cpu3.processed"), Some(10));
        assert_eq!(sample.get("softnet", "cpu3.dropped"), Some(1));
        softnet("ff 0 0 0 0 0 0 0 0 0\n", &mut sample);
        assert_eq!(sample.get("softnet", "cpu0.processed"), Some(255));
    }

    #[test]
    fn this_machine_has_timers_and_network_softirqs() {
        let mut sample = KernelSample::default();
        read(&mut sample);
        assert!(sample.get("softirqs", "NET_RX.cpu0").is_some());
        assert!(sample.get("softirqs", "TIMER.cpu0").is_some_and(|n| n > 0));
        assert!(sample.sources().any(|s| s == "interrupts"));
        let mut network = KernelSample::default();
        read_network_softirqs(&mut network);
        assert!(network.get("softirqs", "NET_TX.cpu0").is_some());
        assert_eq!(network.get("softirqs", "TIMER.cpu0"), None);
    }
}
