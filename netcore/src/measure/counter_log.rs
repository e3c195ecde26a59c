//! Counters of the kernel and its interfaces, sampled at the edges of phases and intervals.
//!
//! With [`Collect::system`] each interval gets a window, the measure phase gets one, and so do two seconds at rest, one
//! before and one after the load. [`Collect::cpu_per_core`] gives the CPUs' part of that, for each interval and the
//! measure phase. The other switches ([`Collect::nic`], [`Collect::interrupts`], [`Collect::snmp`]) give windows of the
//! measure phase.

use std::{thread, time::Duration};

use super::{KEPT_BYTES, clock, interrupts, kernel_sample::KernelSample, snmp, system};
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
    interfaces: system::Interfaces,
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
            interfaces: system::Interfaces::up(),
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
            system::read(&self.interfaces, &mut sample);
        } else if self.collect.cpu_per_core {
            system::read_cpus(&mut sample);
        }
        if whole && self.collect.interrupts {
            interrupts::read(&mut sample);
        }
        if whole && self.collect.snmp {
            snmp::read(&mut sample);
        }
        if let (true, true, Some(name)) = (whole, self.collect.nic, &self.interface) {
            system::read_interface(name, &mut sample);
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
}
