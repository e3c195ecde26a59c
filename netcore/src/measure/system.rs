//! The system log: activity of the whole machine beside the test, as hpcbench writes it with `-c`. CPU states per core,
//! memory, interrupts, context switches, paging, swapping, and per interface its traffic and its interrupts per CPU.

use super::{
    cpu::{CpuReader, STATES},
    files::text,
    interrupts,
    kernel_sample::KernelSample,
    netlink, nic,
};

/// Limit of interfaces that are followed: on a host with thousands (one per container) the log would take the whole
/// interval.
const MOST_INTERFACES: usize = 64;

/// Names and bus addresses of this namespace's interfaces, found once.
#[derive(Debug)]
pub(super) struct Interfaces(Vec<(String, Option<String>)>);

impl Interfaces {
    /// Interfaces that are up now.
    pub(super) fn up() -> Self {
        let links = netlink::links(None).unwrap_or_default().into_iter().filter(|l| l.up).take(MOST_INTERFACES);
        Self(links.map(|l| (nic::bus(&l.name), l.name)).map(|(bus, name)| (name, bus)).collect())
    }

    fn contains(&self, name: &str) -> bool {
        self.0.iter().any(|(n, _)| n == name)
    }
}

/// Samples everything in the log.
pub(super) fn read(interfaces: &Interfaces, into: &mut KernelSample) {
    read_cpus(into);
    for of in [TOTALS, MEMORY, PAGING] {
        table(&text(of.1), of, into);
    }
    interrupts::read_network_softirqs(into);
    for link in netlink::links(None).unwrap_or_default().iter().filter(|l| interfaces.contains(&l.name)) {
        link_counters(link, into);
    }
    for (name, bus) in &interfaces.0 {
        if let Some(bus) = bus {
            interrupts::read_of_interface(name, bus, into);
        }
    }
}

/// Counters of one interface: the kernel's, and the driver's own.
pub(super) fn read_interface(name: &str, into: &mut KernelSample) {
    if let Some(link) = netlink::links(None).unwrap_or_default().iter().find(|l| l.name == name) {
        link_counters(link, into);
    }
    for (key, value) in nic::driver_counters(name) {
        into.put(&format!("driver:{name}"), key, value);
    }
}

fn link_counters(link: &netlink::Link, into: &mut KernelSample) {
    let source = format!("nic:{}", link.name);
    for (key, value) in netlink::LINK_COUNTERS.iter().zip(&link.counters) {
        into.put(&source, *key, *value);
    }
}

/// Time by state of each CPU, in ticks (hundredths of a second).
pub(super) fn read_cpus(into: &mut KernelSample) {
    let Ok(snapshot) = CpuReader::open().and_then(|mut reader| reader.read()) else { return };
    for (id, ticks) in &snapshot.cpus {
        for (state, ticks) in STATES.iter().zip(ticks.0) {
            into.put("cpu", format!("cpu{id}.{state}_ticks"), ticks);
        }
    }
}

/// Source, file, and the lines of interest: each line has a name and a value. An entry gives the name, its key, and the
/// factor to the key's unit.
type Table = (&'static str, &'static str, &'static [(&'static str, &'static str, u64)]);

/// Sums over all CPUs.
const TOTALS: Table = (
    "system",
    "/proc/stat",
    &[("intr", "interrupts", 1), ("ctxt", "context_switches", 1), ("processes", "processes", 1)],
);

/// KiB in the file. `available` is what programs could still get; the kernel's caches are part of it.
const MEMORY: Table = (
    "memory",
    "/proc/meminfo",
    &[
        ("MemTotal:", "total_bytes", 1024),
        ("MemFree:", "free_bytes", 1024),
        ("MemAvailable:", "available_bytes", 1024),
        ("Buffers:", "buffers_bytes", 1024),
        ("Cached:", "cached_bytes", 1024),
        ("SwapFree:", "swap_free_bytes", 1024),
    ],
);

/// Paging in KiB, swapping in pages, and faults.
const PAGING: Table = (
    "paging",
    "/proc/vmstat",
    &[
        ("pgpgin", "paged_in_kib", 1),
        ("pgpgout", "paged_out_kib", 1),
        ("pswpin", "swapped_in_pages", 1),
        ("pswpout", "swapped_out_pages", 1),
        ("pgfault", "faults", 1),
        ("pgmajfault", "major_faults", 1),
    ],
);

fn table(text: &str, (source, _, names): Table, into: &mut KernelSample) {
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap_or_default();
        let Some((_, key, factor)) = names.iter().find(|(wanted, ..)| *wanted == name) else { continue };
        if let Some(Ok(value)) = words.next().map(str::parse::<u64>) {
            into.put(source, *key, value.saturating_mul(*factor));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_machine_is_read() {
        let mut sample = KernelSample::default();
        read(&Interfaces::up(), &mut sample);
        for (source, key) in [
            ("cpu", "cpu0.idle_ticks"),
            ("system", "interrupts"),
            ("system", "context_switches"),
            ("memory", "available_bytes"),
            ("paging", "faults"),
            ("paging", "swapped_in_pages"),
            ("nic:lo", "rx_bytes"),
            ("softirqs", "NET_RX.cpu0"),
        ] {
            assert!(sample.get(source, key).is_some(), "{source} {key} is missing");
        }
        assert!(sample.get("memory", "available_bytes") < sample.get("memory", "total_bytes"));
    }

    #[test]
    fn texts_become_counters_with_units() {
        let mut sample = KernelSample::default();
        table("cpu  1 2\nintr 55 1 2 3\nctxt 66\nbtime 1\nprocesses 77\n", TOTALS, &mut sample);
        table("MemTotal:       2 kB\nCached:   x kB\nHugePages_Total:       0\n", MEMORY, &mut sample);
        table("pgpgin 5\npgpgout 6\nnr_free_pages 9\n", PAGING, &mut sample);
        assert_eq!(sample.get("system", "interrupts"), Some(55));
        assert_eq!(sample.get("system", "processes"), Some(77));
        assert_eq!(sample.get("memory", "total_bytes"), Some(2048));
        assert_eq!(sample.get("memory", "cached_bytes"), None);
        assert_eq!(sample.get("paging", "paged_out_kib"), Some(6));
    }
}
