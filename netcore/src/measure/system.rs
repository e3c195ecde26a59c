//! The system log: what the whole machine did beside the test (what hpcbench writes with `-c`). CPU states per core,
//! memory, interrupts, context switches, paging, swapping, and per interface its traffic and its interrupts per CPU.

use std::fs;

use super::{
    counter_log::Reading,
    cpu::{CpuReader, CpuSnapshot},
    interrupts, netlink, nic,
};

/// More interfaces than this are not followed: a host with thousands of them (one per container) would spend the
/// interval on its log.
const MOST_INTERFACES: usize = 64;

/// The interfaces of this namespace and the places of their hardware, found once.
#[derive(Debug)]
pub(super) struct Interfaces(Vec<(String, Option<String>)>);

impl Interfaces {
    /// Those that are up now.
    pub(super) fn up() -> Self {
        let links = netlink::links(None).unwrap_or_default().into_iter().filter(|l| l.up).take(MOST_INTERFACES);
        Self(links.map(|l| (nic::bus(&l.name), l.name)).map(|(bus, name)| (name, bus)).collect())
    }

    fn contains(&self, name: &str) -> bool {
        self.0.iter().any(|(n, _)| n == name)
    }
}

/// Reads everything of the log once.
pub(super) fn read(interfaces: &Interfaces, into: &mut Reading) {
    read_cpus(into);
    totals(&text("/proc/stat"), into);
    memory(&text("/proc/meminfo"), into);
    paging(&text("/proc/vmstat"), into);
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

/// Counters of one interface: the kernel's, and its driver's own.
pub(super) fn read_interface(name: &str, into: &mut Reading) {
    if let Some(link) = netlink::links(None).unwrap_or_default().iter().find(|l| l.name == name) {
        link_counters(link, into);
    }
    for (key, value) in nic::driver_counters(name) {
        into.put(&format!("driver:{name}"), key, value);
    }
}

fn link_counters(link: &netlink::Link, into: &mut Reading) {
    let source = format!("nic:{}", link.name);
    for (key, value) in netlink::LINK_COUNTERS.iter().zip(&link.counters) {
        into.put(&source, (*key).to_owned(), *value);
    }
}

fn text(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Time by state of each CPU, in ticks (hundredths of a second).
pub(super) fn read_cpus(into: &mut Reading) {
    let mut snapshot = CpuSnapshot::default();
    let read = CpuReader::open().and_then(|mut r| r.read(&mut snapshot));
    if read.is_err() {
        return;
    }
    for (id, t) in &snapshot.cpus {
        let states = [
            ("user", t.user),
            ("nice", t.nice),
            ("system", t.system),
            ("idle", t.idle),
            ("iowait", t.iowait),
            ("irq", t.irq),
            ("softirq", t.softirq),
            ("steal", t.steal),
        ];
        for (state, ticks) in states {
            into.put("cpu", format!("cpu{id}.{state}_ticks"), ticks);
        }
    }
}

/// Sums over all CPUs: interrupts, context switches, processes begun.
fn totals(stat: &str, into: &mut Reading) {
    for line in stat.lines() {
        let mut words = line.split_whitespace();
        let key = match words.next() {
            Some("intr") => "interrupts",
            Some("ctxt") => "context_switches",
            Some("processes") => "processes",
            _ => continue,
        };
        if let Some(Ok(value)) = words.next().map(str::parse) {
            into.put("system", key.to_owned(), value);
        }
    }
}

/// Memory, bytes. `available` is what the kernel could still give to programs; what it keeps as cache is part of it.
fn memory(meminfo: &str, into: &mut Reading) {
    for line in meminfo.lines() {
        let Some((name, value)) = line.split_once(':') else { continue };
        let key = match name {
            "MemTotal" => "total_bytes",
            "MemFree" => "free_bytes",
            "MemAvailable" => "available_bytes",
            "Buffers" => "buffers_bytes",
            "Cached" => "cached_bytes",
            "SwapFree" => "swap_free_bytes",
            _ => continue,
        };
        if let Some(Ok(kib)) = value.trim().strip_suffix("kB").map(|v| v.trim().parse::<u64>()) {
            into.put("memory", key.to_owned(), kib.saturating_mul(1024));
        }
    }
}

/// Paging (`pgpgin` and `pgpgout` in KiB), swapping (in pages) and faults.
fn paging(vmstat: &str, into: &mut Reading) {
    for line in vmstat.lines() {
        let Some((name, value)) = line.split_once(' ') else { continue };
        let key = match name {
            "pgpgin" => "paged_in_kib",
            "pgpgout" => "paged_out_kib",
            "pswpin" => "swapped_in_pages",
            "pswpout" => "swapped_out_pages",
            "pgfault" => "faults",
            "pgmajfault" => "major_faults",
            _ => continue,
        };
        if let Ok(value) = value.trim().parse() {
            into.put("paging", key.to_owned(), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_machine_is_read() {
        let mut reading = Reading::default();
        read(&Interfaces::up(), &mut reading);
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
            assert!(reading.get(source, key).is_some(), "{source} {key} is missing");
        }
        assert!(reading.get("memory", "available_bytes") < reading.get("memory", "total_bytes"));
    }

    #[test]
    fn texts_become_counters_with_units() {
        let mut reading = Reading::default();
        totals("cpu  1 2\nintr 55 1 2 3\nctxt 66\nbtime 1\nprocesses 77\n", &mut reading);
        memory("MemTotal:       2 kB\nCached:   x kB\nHugePages_Total:       0\n", &mut reading);
        paging("pgpgin 5\npgpgout 6\nnr_free_pages 9\n", &mut reading);
        assert_eq!(reading.get("system", "interrupts"), Some(55));
        assert_eq!(reading.get("system", "processes"), Some(77));
        assert_eq!(reading.get("memory", "total_bytes"), Some(2048));
        assert_eq!(reading.get("memory", "cached_bytes"), None);
        assert_eq!(reading.get("paging", "paged_out_kib"), Some(6));
    }
}
