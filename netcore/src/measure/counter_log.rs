//! Counters of the kernel and its interfaces, sampled at the edges of phases and intervals.
//!
//! With [`Collect::system`] each interval gets a window, the measure phase gets one, and so do two seconds at rest, one
//! before and one after the load. [`Collect::cpu_per_core`] gives the CPUs' part of that, for each interval and the
//! measure phase. The other switches ([`Collect::nic`], [`Collect::interrupts`], [`Collect::snmp`]) give windows of the
//! measure phase.

use std::{thread, time::Duration};

use super::{
    KEPT_BYTES, clock,
    cpu::{CpuReader, STATES},
    kernel::{self, KernelSample, text},
    netlink, nic,
};
use crate::{
    report::{CounterWindow, Span},
    spec::Collect,
};

/// Length of the samples of the machine at rest, before and after the load.
const REST: Duration = Duration::from_secs(1);

/// A sample and its instant.
#[derive(Clone, Debug)]
struct Edge {
    monotonic_ns: u64,
    wall_ns: i64,
    sample: KernelSample,
}

/// The log of one end and one iteration. Every method reads files, so only the sampling thread may call it, never a
/// data thread.
#[derive(Debug)]
pub struct CounterLog {
    collect: Collect,
    interface: Option<String>,
    interfaces: Interfaces,
    measure: Option<Edge>,
    interval: Option<Edge>,
    /// With their starts on the monotonic clock.
    windows: Vec<CounterWindow>,
    /// Bytes of the intervals' windows.
    kept: usize,
    /// Whether intervals are left out, because the earlier ones are as large as a report may be.
    lacks_intervals: bool,
}

impl CounterLog {
    /// A log of the counters in `collect`; `None` if that is empty. `interface`: the one of the route, for
    /// [`Collect::nic`].
    pub fn new(collect: &Collect, interface: Option<String>) -> Option<Self> {
        (collect.system || collect.cpu_per_core || collect.nic || collect.interrupts || collect.snmp).then(|| Self {
            collect: *collect,
            interface,
            interfaces: Interfaces::up(),
            measure: None,
            interval: None,
            windows: Vec::new(),
            kept: 0,
            lacks_intervals: false,
        })
    }

    /// Samples the machine at rest (`span`: [`Span::Before`] or [`Span::After`]); blocks for one second. Does nothing
    /// without [`Collect::system`].
    pub fn rest(&mut self, span: Span) {
        if self.collect.system {
            let start = self.edge(false);
            thread::sleep(REST);
            self.windows.push(window(span, &start, &self.edge(false)));
        }
    }

    pub fn measure_begins(&mut self) {
        let edge = self.edge(true);
        self.interval = Some(edge.clone());
        self.measure = Some(edge);
    }

    /// Ends an interval of the measure phase, and begins the next.
    pub fn interval_ends(&mut self) {
        if !(self.collect.system || self.collect.cpu_per_core) || self.lacks_intervals {
            return;
        }
        let edge = self.edge(false);
        if let Some(start) = self.interval.replace(edge.clone()) {
            let window = window(Span::Interval, &start, &edge);
            // With the names of the fields and two numbers, as the report has them.
            self.kept += window.values.iter().map(|change| 100 + change.source.len() + change.key.len()).sum::<usize>();
            self.lacks_intervals = self.kept > KEPT_BYTES;
            if !self.lacks_intervals {
                self.windows.push(window);
            }
        }
    }

    /// Whether later intervals are left out, because the earlier ones are as large as a report may be.
    pub fn lacks_intervals(&self) -> bool {
        self.lacks_intervals
    }

    pub fn measure_ends(&mut self) {
        if let Some(start) = self.measure.take() {
            let edge = self.edge(true);
            self.windows.push(window(Span::Measure, &start, &edge));
        }
    }

    /// All windows, in the order of their ends, with times relative to `measure_start_ns` on this host's monotonic
    /// clock.
    pub fn into_windows(mut self, measure_start_ns: u64) -> Vec<CounterWindow> {
        for window in &mut self.windows {
            window.start_ns = window.start_ns.wrapping_sub(measure_start_ns.cast_signed());
        }
        self.windows
    }

    /// Takes a sample of the system log, and with `whole` (the measure phase's edges) of the other counters. The clock
    /// is read before the files, at every edge alike, so that a window's length is the distance of its samples.
    fn edge(&self, whole: bool) -> Edge {
        let (monotonic_ns, wall_ns) = (clock::monotonic_ns(), clock::wall_ns());
        let mut sample = KernelSample::default();
        if self.collect.system {
            read_system(&self.interfaces, &mut sample);
        } else if self.collect.cpu_per_core {
            read_cpus(&mut sample);
        }
        if whole && self.collect.interrupts {
            kernel::read_interrupts(&mut sample);
        }
        if whole && self.collect.snmp {
            kernel::read_snmp(&mut sample);
        }
        if let (true, true, Some(name)) = (whole, self.collect.nic, &self.interface) {
            read_interface(name, &mut sample);
        }
        Edge { monotonic_ns, wall_ns, sample }
    }
}

fn window(span: Span, start: &Edge, end: &Edge) -> CounterWindow {
    CounterWindow {
        span,
        start_ns: start.monotonic_ns.cast_signed(),
        elapsed_ns: end.monotonic_ns - start.monotonic_ns,
        wall_end_ns: end.wall_ns,
        values: end.sample.since(&start.sample),
    }
}

// The system log: activity of the whole machine beside the test, as hpcbench writes it with `-c`. CPU states per core,
// memory, interrupts, context switches, paging, swapping, and per interface its traffic and its interrupts per CPU.

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
fn read_system(interfaces: &Interfaces, into: &mut KernelSample) {
    read_cpus(into);
    for of in [TOTALS, MEMORY, PAGING] {
        table(&text(of.1), of, into);
    }
    kernel::read_network_softirqs(into);
    for link in netlink::links(None).unwrap_or_default().iter().filter(|l| interfaces.contains(&l.name)) {
        link_counters(link, into);
    }
    for (name, bus) in &interfaces.0 {
        if let Some(bus) = bus {
            kernel::read_of_interface(name, bus, into);
        }
    }
}

/// Counters of one interface: the kernel's, and the driver's own.
fn read_interface(name: &str, into: &mut KernelSample) {
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
fn read_cpus(into: &mut KernelSample) {
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
    for (name, value) in kernel::numbers(text) {
        if let Some((_, key, factor)) = names.iter().find(|(wanted, ..)| *wanted == name) {
            into.put(source, *key, value.saturating_mul(*factor));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;
    use crate::report::CounterChange;

    fn change<'a>(window: &'a CounterWindow, source: &str, key: &str) -> &'a CounterChange {
        window.values.iter().find(|c| c.source == source && c.key == key).unwrap_or_else(|| panic!("{source} {key}"))
    }

    fn send(count: usize) {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..count {
            sender.send_to(&[0; 1000], receiver.local_addr().unwrap()).unwrap();
            receiver.recv(&mut [0; 1000]).unwrap();
        }
    }

    #[test]
    fn nothing_asked_for_is_no_log() {
        assert!(CounterLog::new(&Collect::default(), None).is_none());
    }

    #[test]
    fn the_system_log_has_an_entry_before_one_per_interval_and_one_after() {
        let collect = Collect { system: true, ..Collect::default() };
        let mut log = CounterLog::new(&collect, None).unwrap();
        log.rest(Span::Before);
        let origin = clock::monotonic_ns();
        log.measure_begins();
        for _ in 0..2 {
            send(100);
            log.interval_ends();
        }
        log.measure_ends();
        log.rest(Span::After);
        let windows = log.into_windows(origin);
        let spans: Vec<Span> = windows.iter().map(|w| w.span).collect();
        assert_eq!(spans, [Span::Before, Span::Interval, Span::Interval, Span::Measure, Span::After]);
        assert!(windows[0].start_ns <= -1_000_000_000 && windows[0].elapsed_ns >= 1_000_000_000);
        assert!(windows[4].start_ns > 0);
        assert_eq!(windows[2].start_ns, windows[1].start_ns + windows[1].elapsed_ns.cast_signed());
        for window in &windows[1..=3] {
            let sent = change(window, "nic:lo", "tx_bytes");
            assert!(sent.after - sent.before >= 100 * 1028, "{sent:?}");
            change(window, "cpu", "cpu0.user_ticks");
            change(window, "memory", "available_bytes");
            change(window, "system", "context_switches");
            change(window, "paging", "swapped_out_pages");
        }
        let whole = change(&windows[3], "nic:lo", "tx_packets");
        assert!(whole.after - whole.before >= 200);
    }

    #[test]
    fn intervals_beyond_the_bound_of_a_report_are_left_out() {
        let mut log = CounterLog::new(&Collect { cpu_per_core: true, ..Collect::default() }, None).unwrap();
        log.measure_begins();
        log.interval_ends();
        assert!(!log.lacks_intervals());
        let one = log.kept;
        log.kept = KEPT_BYTES - one;
        log.interval_ends();
        assert!(!log.lacks_intervals(), "the report is full and has all");
        for _ in 0..2 {
            log.interval_ends();
            assert!(log.lacks_intervals());
        }
        log.measure_ends();
        let windows = log.into_windows(0);
        assert_eq!(windows.iter().map(|w| w.span).collect::<Vec<_>>(), [Span::Interval, Span::Interval, Span::Measure]);
    }

    #[test]
    fn cpus_can_be_had_without_the_rest() {
        let mut log = CounterLog::new(&Collect { cpu_per_core: true, ..Collect::default() }, None).unwrap();
        log.rest(Span::Before);
        log.measure_begins();
        log.interval_ends();
        log.measure_ends();
        let windows = log.into_windows(0);
        assert_eq!(windows.iter().map(|w| w.span).collect::<Vec<_>>(), [Span::Interval, Span::Measure]);
        for window in &windows {
            assert!(window.values.iter().all(|change| change.source == "cpu"));
            change(window, "cpu", "cpu0.idle_ticks");
        }
    }

    #[test]
    fn the_other_sources_cover_the_measure_phase() {
        let collect = Collect { nic: true, interrupts: true, snmp: true, ..Collect::default() };
        let mut log = CounterLog::new(&collect, Some("lo".to_owned())).unwrap();
        log.rest(Span::Before);
        log.measure_begins();
        send(50);
        log.interval_ends();
        log.measure_ends();
        let windows = log.into_windows(0);
        assert_eq!(windows.len(), 1);
        assert_eq!(windows[0].span, Span::Measure);
        let datagrams = change(&windows[0], "snmp", "Udp.InDatagrams");
        assert!(datagrams.after - datagrams.before >= 50);
        change(&windows[0], "nic:lo", "rx_packets");
        change(&windows[0], "sockstat", "TCP.tw");
        assert!(windows[0].values.iter().any(|c| c.source == "softirqs" && c.key.starts_with("NET_RX.")));
        // Hundreds of protocol counters stand still in such a test; they would drown the others.
        assert!(windows[0].values.iter().filter(|c| c.source == "snmp").all(|c| c.before != c.after));
    }

    #[test]
    fn the_whole_machine_is_read() {
        let mut sample = KernelSample::default();
        read_system(&Interfaces::up(), &mut sample);
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
