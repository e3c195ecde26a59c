//! Counters in text files of the kernel: interrupts and the receive path's queues per CPU, those of the network stack, and
//! connections in TIME_WAIT.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    path::Path,
};

use crate::{
    report::{CounterChange, TimeWait},
    spec::TestSpec,
};

/// A file's text; empty where it cannot be read.
pub(super) fn text(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// First line of a file, trimmed; `None` if it is empty or cannot be read.
pub(super) fn line(path: impl AsRef<Path>) -> Option<String> {
    let text = text(path);
    let first = text.lines().next()?.trim();
    (!first.is_empty()).then(|| first.to_owned())
}

/// Reads an open file of the kernel anew into `buffer`; returns its text. `None`: it cannot be read any more.
pub(super) fn again<'a>(file: &File, buffer: &'a mut Vec<u8>) -> Option<&'a str> {
    let mut length = 0;
    loop {
        if buffer.len() == length {
            buffer.resize((2 * length).max(4096), 0);
        }
        // Files of many lines come in pieces.
        match file.read_at(&mut buffer[length..], length as u64).ok()? {
            0 => return std::str::from_utf8(&buffer[..length]).ok(),
            more => length += more,
        }
    }
}

/// Lines of a name and a number; others are left out.
pub(super) fn numbers(text: &str) -> impl Iterator<Item = (&str, u64)> {
    text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        Some((words.next()?, words.next()?.parse().ok()?))
    })
}

/// Sources that are reported even without a change: there, "nothing happened" is the answer one looks for.
const WHOLE: [&str; 5] = ["cpu", "memory", "paging", "sockstat", "system"];

/// Values of the kernel's counters at an instant, by source and key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct KernelSample(BTreeMap<(String, String), u64>);

impl KernelSample {
    pub(super) fn put(&mut self, source: &str, key: impl Into<String>, value: u64) {
        self.0.insert((source.to_owned(), key.into()), value);
    }

    pub(super) fn add(&mut self, source: &str, key: String, value: u64) {
        *self.0.entry((source.to_owned(), key)).or_default() += value;
    }

    pub(super) fn get(&self, source: &str, key: &str) -> Option<u64> {
        self.0.get(&(source.to_owned(), key.to_owned())).copied()
    }

    #[cfg(test)]
    pub(super) fn sources(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(|(source, _)| source.as_str())
    }

    /// Changes since an earlier sample. A counter that one of them lacks (an interface came or went) is left out: it has no
    /// difference.
    pub(super) fn since(&self, before: &Self) -> Vec<CounterChange> {
        self.0
            .iter()
            .filter_map(|((source, key), after)| {
                let before = *before.0.get(&(source.clone(), key.clone()))?;
                let whole = WHOLE.contains(&source.as_str())
                    || (source.starts_with("nic:") && (key.ends_with("_bytes") || key.ends_with("_packets")));
                (whole || before != *after).then(|| CounterChange {
                    source: source.clone(),
                    key: key.clone(),
                    before,
                    after: *after,
                })
            })
            .collect()
    }
}

/// Samples `/proc/interrupts` (keys `38.virtio2-input.0.cpu1`, `LOC.cpu0`), `/proc/softirqs` (`NET_RX.cpu0`) and
/// `softnet_stat` (`cpu0.processed`).
pub(super) fn read_interrupts(into: &mut KernelSample) {
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

/// Samples `snmp`, `netstat`, `snmp6` and `sockstat`. A missing file (IPv6 switched off) is left out.
pub(super) fn read_snmp(into: &mut KernelSample) {
    pairs(&net("snmp"), "snmp", into);
    pairs(&net("netstat"), "netstat", into);
    numbers(&net("snmp6")).for_each(|(name, value)| into.put("snmp6", name, value));
    sockets(&net("sockstat"), into);
    sockets(&net("sockstat6"), into);
}

/// Connections in TIME_WAIT.
pub fn time_wait() -> Option<u64> {
    let mut sample = KernelSample::default();
    sockets(&net("sockstat"), &mut sample);
    sample.get("sockstat", "TCP.tw")
}

/// Packets that arrived with the mark "congestion experienced", over IPv4 and IPv6. The files stay open.
#[derive(Debug)]
pub(super) struct CeReader {
    netstat: File,
    /// Missing where the kernel has no IPv6.
    snmp6: Option<File>,
}

impl CeReader {
    pub(super) fn open() -> io::Result<Self> {
        let netstat = File::open("/proc/thread-self/net/netstat")?;
        Ok(Self { netstat, snmp6: File::open("/proc/thread-self/net/snmp6").ok() })
    }

    pub(super) fn read(&self, buffer: &mut Vec<u8>) -> Option<u64> {
        let v4 = pair(again(&self.netstat, buffer)?, "IpExt", "InCEPkts")?;
        let v6 = self.snmp6.as_ref().and_then(|file| {
            let (_, count) = numbers(again(file, buffer)?).find(|(name, _)| *name == "Ip6InCEPkts")?;
            Some(count)
        });
        Some(v4.saturating_add(v6.unwrap_or(0)))
    }
}

/// One value of a text of pairs of lines.
fn pair(text: &str, group: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(group)?.strip_prefix(':'));
    let place = lines.next()?.split_whitespace().position(|word| word == name)?;
    lines.next()?.split_whitespace().nth(place)?.parse().ok()
}

/// A file of the calling thread's network namespace: `/proc/net` shows that of the process's first thread, which is another one
/// where a plan gives a host its own namespace.
fn net(name: &str) -> String {
    text(format!("/proc/thread-self/net/{name}"))
}

/// Parses pairs of lines, names above values: `Tcp: RtoMin …` and `Tcp: 200 …`. Negative values are settings and left
/// out (`MaxConn` -1: no limit).
fn pairs(text: &str, source: &str, into: &mut KernelSample) {
    let mut lines = text.lines();
    while let (Some(names), Some(values)) = (lines.next(), lines.next()) {
        let (Some((group, names)), Some((same, values))) = (names.split_once(':'), values.split_once(':')) else {
            return;
        };
        if group != same {
            return;
        }
        for (name, value) in names.split_whitespace().zip(values.split_whitespace()) {
            if let Ok(value) = value.parse() {
                into.put(source, format!("{group}.{name}"), value);
            }
        }
    }
}

/// Parses sockets in use by kind: `TCP: inuse 1 orphan 0 tw 3 …`. These are gauges.
fn sockets(text: &str, into: &mut KernelSample) {
    for line in text.lines() {
        let Some((kind, rest)) = line.split_once(':') else { continue };
        let words: Vec<&str> = rest.split_whitespace().collect();
        for pair in words.chunks_exact(2) {
            if let Ok(value) = pair[1].parse() {
                into.put("sockstat", format!("{kind}.{}", pair[0]), value);
            }
        }
    }
}

// Connections in TIME_WAIT, which slow connect tests down: each keeps its pair of addresses and ports for a minute,
// and the kernel's search for a free port takes longer with their number, long before it fails.

/// Share of ports in TIME_WAIT from which on the search for a free port takes noticeably longer.
const FELT: f64 = 0.3;

/// Number of ports that the kernel chooses local ports from.
fn ephemeral_ports() -> u64 {
    let range = text("/proc/sys/net/ipv4/ip_local_port_range");
    let mut bounds = range.split_whitespace().map(str::parse::<u64>);
    match (bounds.next(), bounds.next()) {
        (Some(Ok(low)), Some(Ok(high))) if low <= high => high - low + 1,
        // The kernel's default range.
        _ => 60_999 - 32_768 + 1,
    }
}

/// The counts at the end of the test.
pub fn time_wait_after(before: u64, spec: &TestSpec) -> TimeWait {
    let own_range = spec.near.port.and(spec.near.port_count).map(u64::from);
    TimeWait { before, after: time_wait().unwrap_or(before), ports: own_range.unwrap_or_else(ephemeral_ports) }
}

/// A note if they are enough to slow the test down.
pub fn time_wait_note(counts: &TimeWait, spec: &TestSpec) -> Option<String> {
    let addresses = spec.near.bind.len().max(1) as u64;
    // Older ones do not occupy the test's own range.
    let own_range = spec.near.port_count.is_some();
    let taken = if own_range { counts.after.saturating_sub(counts.before) } else { counts.after };
    let share = taken as f64 / (counts.ports * addresses) as f64;
    (share > FELT).then(|| {
        // The counts are in the rows, and below the table. The same sentence for each iteration is said once.
        format!(
            "of the {} local ports that the host in `from` has for one destination, more than {:.0} % were in TIME_WAIT: connecting \
             gets slower from about a third of them on. Remedies: close: far_first or reset, more source addresses (bind), own ports \
             in turn (ports)",
            counts.ports * addresses,
            FELT * 100.0
        )
    })
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;
    use crate::spec::{Pattern, Transport};

    #[test]
    fn names_above_values_become_keys() {
        let mut sample = KernelSample::default();
        pairs("Ip: Forwarding TTL\nIp: 1 64\nTcp: MaxConn InSegs\nTcp: -1 7\n", "snmp", &mut sample);
        assert_eq!(sample.get("snmp", "Ip.TTL"), Some(64));
        assert_eq!(sample.get("snmp", "Tcp.InSegs"), Some(7));
        assert_eq!(sample.get("snmp", "Tcp.MaxConn"), None);
        // A text that is cut off, or is not of this form, gives what can be trusted and no more.
        pairs("Ip: A B\nUdp: 1 2\n", "other", &mut sample);
        pairs("Ip: A B\n", "other", &mut sample);
        assert_eq!(sample.get("other", "Ip.A"), None);
    }

    #[test]
    fn a_single_value_is_the_one_among_all() {
        let (reader, mut buffer) = (CeReader::open().unwrap(), Vec::new());
        let mut sample = KernelSample::default();
        read_snmp(&mut sample);
        let (v4, v6) = (sample.get("netstat", "IpExt.InCEPkts"), sample.get("snmp6", "Ip6InCEPkts"));
        assert!(reader.read(&mut buffer).unwrap() >= v4.unwrap() + v6.unwrap_or(0));
        assert_eq!(pair("TcpExt: A B\nTcpExt: 1 2\nIpExt: B A\nIpExt: 3 4\n", "IpExt", "A"), Some(4));
        assert_eq!(pair("IpExt: A\n", "IpExt", "A"), None);
    }

    #[test]
    fn sockets_are_counted_by_kind() {
        let mut sample = KernelSample::default();
        sockets("sockets: used 16\nTCP: inuse 1 orphan 0 tw 3 alloc 1 mem 0\nUDP: inuse 3 mem 1\n", &mut sample);
        assert_eq!(sample.get("sockstat", "TCP.tw"), Some(3));
        assert_eq!(sample.get("sockstat", "sockets.used"), Some(16));
    }

    #[test]
    fn datagrams_that_were_sent_are_counted() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (mut before, mut after) = (KernelSample::default(), KernelSample::default());
        read_snmp(&mut before);
        for _ in 0..100 {
            sender.send_to(b"x", receiver.local_addr().unwrap()).unwrap();
            receiver.recv(&mut [0; 8]).unwrap();
        }
        read_snmp(&mut after);
        for key in ["Udp.OutDatagrams", "Udp.InDatagrams"] {
            let delta = after.get("snmp", key).unwrap() - before.get("snmp", key).unwrap();
            assert!(delta >= 100, "{key} grew by {delta}");
        }
        assert!(after.get("netstat", "IpExt.OutOctets").unwrap() > before.get("netstat", "IpExt.OutOctets").unwrap());
    }

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
        read_interrupts(&mut sample);
        assert!(sample.get("softirqs", "NET_RX.cpu0").is_some());
        assert!(sample.get("softirqs", "TIMER.cpu0").is_some_and(|n| n > 0));
        assert!(sample.sources().any(|s| s == "interrupts"));
        let mut network = KernelSample::default();
        read_network_softirqs(&mut network);
        assert!(network.get("softirqs", "NET_TX.cpu0").is_some());
        assert_eq!(network.get("softirqs", "TIMER.cpu0"), None);
    }

    #[test]
    fn a_counter_that_came_or_went_has_no_difference() {
        let (mut before, mut after) = (KernelSample::default(), KernelSample::default());
        before.put("nic:gone", "rx_bytes", 5);
        after.put("nic:new", "rx_bytes", 5);
        before.put("snmp", "same", 1);
        after.put("snmp", "same", 1);
        after.add("memory", "x".to_owned(), 1);
        assert_eq!(after.since(&before), vec![]);
    }

    #[test]
    fn a_file_is_read_anew_whatever_its_length() {
        let path = std::env::temp_dir().join(format!("plumb-again-{}", std::process::id()));
        let mut buffer = Vec::new();
        for length in [0, 10, 4096, 100_000, 7] {
            fs::write(&path, "x".repeat(length)).unwrap();
            assert_eq!(again(&File::open(&path).unwrap(), &mut buffer).unwrap().len(), length);
        }
        fs::remove_file(path).unwrap();
        let file = File::open("/proc/thread-self/stat").unwrap();
        assert!(again(&file, &mut buffer).unwrap().ends_with('\n'));
    }

    #[test]
    fn connections_and_ports_are_counted() {
        assert!(time_wait().is_some());
        assert!(ephemeral_ports() > 0);
    }

    #[test]
    fn a_third_of_the_ports_is_worth_a_word() {
        let mut spec = TestSpec::new(Pattern::Connect, Transport::Tcp);
        let counts = TimeWait { before: 7, after: 400, ports: 1000 };
        assert!(time_wait_note(&counts, &spec).is_some());
        spec.near.port_count = Some(1000);
        let others = TimeWait { before: 380, ..counts };
        assert_eq!(time_wait_note(&others, &spec), None, "those from before are on other ports");
        assert!(time_wait_note(&counts, &spec).unwrap().contains("of the 1000 local ports"));
        spec.near.port_count = None;
        spec.near.bind = vec!["127.0.0.1".parse().unwrap(), "127.0.0.2".parse().unwrap()];
        assert_eq!(time_wait_note(&counts, &spec), None);
    }
}
