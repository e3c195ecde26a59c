//! Why a test was not faster: the cells of the evidence, from one phase at both ends, and the limit that they name.

use analyze::limits::{self, Limit};
use netcore::{
    report::{Evidence, TcpLimits, TlsInfo, Window},
    spec::TestSpec,
};
use schemas::{
    columns::{Row, results::ends},
    words::Way,
};

use super::{
    ways,
    window::{End, Pair},
};

/// Fills the cells that the sending kernels know about their connections.
pub(super) fn of_connections(row: &mut Row, near: Option<&End<'_>>, far: Option<&End<'_>>) {
    let known = |end: &End<'_>| end.senders().filter_map(|flow| flow.tcp_info?.limits).collect::<Vec<_>>();
    let all: Vec<TcpLimits> = near.into_iter().chain(far).flat_map(known).collect();
    let app_limited: Vec<bool> = all.iter().filter_map(|one| one.app_limited).collect();
    let limited = app_limited.iter().filter(|limited| **limited).count();
    row.app_limited_ratio = (!app_limited.is_empty()).then(|| limited as f64 / app_limited.len() as f64);
    row.pacing_rate_bits_per_s = sum(all.iter().map(|one| one.pacing_rate_bytes_per_s)).map(|bytes| bytes as f64 * 8.0);
    row.receive_window_bytes = sum(all.iter().map(|one| one.peer_window_bytes.map(u64::from)));
}

/// `None` where a value is not known, or where there is none: a sum without some of the streams would be a wrong number.
pub(super) fn sum(mut values: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    let first = values.next()??;
    values.try_fold(first, |sum, value| Some(sum.saturating_add(value?)))
}

/// Whether both ends are on one machine, by the identity of its boot.
pub(super) fn same_machine(pair: Pair<'_>) -> Option<bool> {
    let [near, far] = [pair.near, pair.far].map(|window| evidence(window)?.machine);
    near.zip(far).map(|(near, far)| near == far)
}

/// Fills the cells about the two ends: their threads, CPUs and drops. They are those of all flows, whichever way.
pub(super) fn of_ends(row: &mut Row, pair: Pair<'_>) {
    row.same_machine = same_machine(pair);
    for (end, window) in [pair.near, pair.far].into_iter().enumerate() {
        let Some(Evidence { thread, softirq_peak, drops, .. }) = evidence(window) else { continue };
        let count = |count: Option<u64>| count.map(|count| count as f64);
        let sealed: Vec<_> = window.into_iter().flat_map(|window| &window.flows).filter_map(|flow| flow.tls).collect();
        let encryption_ns = (!sealed.is_empty()).then(|| sealed.into_iter().sum::<TlsInfo>().encryption_ns);
        let cells = [
            (
                ends::encryption_cpus,
                encryption_ns.zip(row.elapsed_s).map(|(ns, elapsed_s)| ns as f64 / 1e9 / elapsed_s),
            ),
            (ends::thread_busy_ratio, thread.map(|thread| thread.busy)),
            (ends::thread_waiting_ratio, thread.and_then(|thread| thread.waiting)),
            (ends::thread_cpu_id, thread.map(|thread| thread.cpu.into())),
            (ends::thread_cpu_busy_ratio, thread.and_then(|thread| thread.cpu_busy)),
            (ends::thread_softirq_ratio, thread.and_then(|thread| thread.cpu_softirq)),
            (ends::softirq_peak_ratio, softirq_peak.map(|peak| peak.ratio)),
            (ends::softirq_peak_id, softirq_peak.map(|peak| peak.cpu.into())),
            (ends::qdisc_drops, count(drops.qdisc)),
            (ends::interface_drops, count(drops.interface)),
            (ends::softnet_drops, count(drops.softnet)),
            (ends::socket_drops, count(drops.socket)),
        ];
        for (names, value) in cells {
            row.set_number(names[end], value);
        }
    }
}

/// The evidence that the hosts of a phase do not show, with their names (of `from` and of `to`).
pub fn missing(row: &Row, pair: Pair<'_>) -> Vec<String> {
    let of = |window: Option<&Window>, host: Option<&String>, end: &str| {
        let host = host.map_or(end, String::as_str).to_owned();
        let missing = evidence(window).map_or(&[][..], |evidence| &evidence.missing);
        missing.iter().map(|what| format!("{what} at {host}")).collect::<Vec<_>>()
    };
    let mut all = of(pair.near, row.from.as_ref(), "the near end");
    all.extend(of(pair.far, row.to.as_ref(), "the far end"));
    all
}

fn evidence(window: Option<&Window>) -> Option<&Evidence> {
    window?.evidence.as_ref()
}

/// Columns about an end as a whole. Of two ways at once they say nothing about one.
const OF_THE_END: [[&str; 2]; 7] = [
    ends::encryption_cpus,
    ends::thread_busy_ratio,
    ends::softirq_peak_ratio,
    ends::qdisc_drops,
    ends::interface_drops,
    ends::softnet_drops,
    ends::socket_drops,
];

/// Fills the cells of these rows, one per way. The test may have left the evidence out.
pub fn limited_by(rows: &mut [(Way, Row)], spec: &TestSpec, pair: Pair<'_>) {
    if !spec.collect.limits {
        return;
    }
    let missing = rows.first().map(|(_, row)| missing(row, pair)).unwrap_or_default();
    if ways(spec.direction).len() == 1 {
        for (_, row) in rows {
            if let Some(limit) = limits::of(&by_its_rate(row, spec), &missing) {
                limit.fill(row);
            }
        }
        return;
    }
    let mut of_ways: Vec<Limit> = Vec::new();
    for (way, row) in rows {
        let limit = match (way, of_ways.as_slice()) {
            (Way::Both, [forward, reverse]) => Some(limits::both_ways(forward, reverse)),
            (Way::Both, _) => None,
            _ => limits::of(&of_one_way(&by_its_rate(row, spec)), &missing),
        };
        if let Some(limit) = limit {
            of_ways.push(limit.clone());
            limit.fill(row);
        }
    }
}

/// The row without the name of BBR if the sender's socket has a rate: the kernel then paces at this one, and not at BBR's estimate.
fn by_its_rate(row: &Row, spec: &TestSpec) -> Row {
    let sender = if row.direction == Some(Way::Reverse) { &spec.far } else { &spec.near };
    let congestion_control = row.congestion_control.clone().filter(|_| sender.socket.pacing_rate.is_none());
    Row { congestion_control, ..row.clone() }
}

/// The row without evidence that both ways share.
fn of_one_way(row: &Row) -> Row {
    let mut row = row.clone();
    for column in OF_THE_END.as_flattened() {
        row.set_number(column, None);
    }
    row
}

#[cfg(test)]
mod tests {
    use netcore::{
        report::{CpuShare, Drops, FlowWindow, Phase, TcpInfo, ThreadUse},
        spec::{Direction, Role, Side, quantity::BitsPerSecond},
    };
    use schemas::{columns::COLUMNS, words::Record};

    use super::*;
    use crate::schedule::{
        fake::{flow, report, spec, window},
        rows::{of_iteration, summary::Summary},
    };

    /// A sender's flow whose connection is limited so.
    fn sender(number: u32, limits: TcpLimits) -> FlowWindow {
        let info = TcpInfo { limits: Some(limits), ..TcpInfo::default() };
        FlowWindow { tcp_info: Some(info), ..flow(number, Role::Sender, 100, 0) }
    }

    /// An end whose numbers all differ.
    fn seen(base: u32, flows: Vec<FlowWindow>) -> Window {
        let share = |place: u32| f64::from(base + place) / 100.0;
        let drops = |place: u32| Some(u64::from(base + place));
        let thread = ThreadUse {
            threads: 2,
            busy: share(1),
            waiting: Some(share(2)),
            cpu: base + 3,
            cpu_busy: Some(share(4)),
            cpu_softirq: Some(share(5)),
        };
        let evidence = Evidence {
            machine: Some(u64::from(base)),
            thread: Some(thread),
            softirq_peak: Some(CpuShare { cpu: base + 6, ratio: share(7) }),
            drops: Drops { qdisc: drops(8), interface: drops(9), softnet: drops(10), socket: drops(11) },
            ce_packets: None,
            missing: vec!["x (y)".to_owned()],
        };
        Window { evidence: Some(evidence), ..window(Phase::Measure, 1_000_000_000, flows) }
    }

    fn cells(row: &Row) -> Vec<(&'static str, f64)> {
        // `cpu_taken_ratio` is derived, also from columns of other groups.
        let ours = COLUMNS.iter().filter(|column| column.group == "limits" && column.name != "cpu_taken_ratio");
        ours.filter_map(|column| Some((column.name, row.number(column.name)?))).collect()
    }

    #[test]
    fn every_cell_has_the_evidence_of_its_end() {
        let limits = |app_limited, rate| TcpLimits {
            app_limited: Some(app_limited),
            pacing_rate_bytes_per_s: rate,
            peer_window_bytes: Some(1000),
            ..TcpLimits::default()
        };
        let flows = vec![sender(0, limits(true, Some(10))), sender(1, limits(false, Some(20)))];
        let receivers = vec![flow(0, Role::Receiver, 0, 100), flow(1, Role::Receiver, 0, 100)];
        let (near, far) = (seen(10, flows), seen(40, receivers));
        let pair = Pair { near: Some(&near), far: Some(&far) };
        let (near, far) = (report(Side::Near, vec![near.clone()]), report(Side::Far, vec![far.clone()]));
        let spec = TestSpec { streams: 2, ..spec(Direction::Forward) };
        let identity = Row { from: Some("a".into()), to: Some("b".into()), ..Row::default() };
        let made = of_iteration(&identity, &spec, &near, Some(&far));
        let row = &made.measured[0].1;
        assert_eq!(row.same_machine, Some(false));
        let mut expected =
            vec![("app_limited_ratio", 0.5), ("pacing_rate_bits_per_s", 240.0), ("receive_window_bytes", 2000.0)];
        let of_end = |names: [&'static str; 11], base: f64| {
            let values = [1.0, 2.0, 3.0, 4.0, 5.0, 7.0, 6.0, 8.0, 9.0, 10.0, 11.0].map(|place| base + place);
            names
                .into_iter()
                .zip(values)
                .map(|(name, value)| (name, if name.ends_with("_ratio") { value / 100.0 } else { value }))
        };
        expected.extend(of_end(
            [
                "local_thread_busy_ratio",
                "local_thread_waiting_ratio",
                "local_thread_cpu_id",
                "local_thread_cpu_busy_ratio",
                "local_thread_softirq_ratio",
                "local_softirq_peak_ratio",
                "local_softirq_peak_id",
                "local_qdisc_drops",
                "local_interface_drops",
                "local_softnet_drops",
                "local_socket_drops",
            ],
            10.0,
        ));
        expected.extend(of_end(
            [
                "remote_thread_busy_ratio",
                "remote_thread_waiting_ratio",
                "remote_thread_cpu_id",
                "remote_thread_cpu_busy_ratio",
                "remote_thread_softirq_ratio",
                "remote_softirq_peak_ratio",
                "remote_softirq_peak_id",
                "remote_qdisc_drops",
                "remote_interface_drops",
                "remote_softnet_drops",
                "remote_socket_drops",
            ],
            40.0,
        ));
        assert_eq!(cells(row), expected);
        assert_eq!(missing(row, pair), ["x (y) at a", "x (y) at b"]);

        // A stream has its connection's; the ends are the whole test's.
        let stream = made.rows.iter().find(|row| row.record == Some(Record::Stream)).unwrap();
        let window =
            vec![("app_limited_ratio", 1.0), ("pacing_rate_bits_per_s", 80.0), ("receive_window_bytes", 1000.0)];
        assert_eq!(cells(stream), window);

        let mut summary = Summary::default();
        summary.push(row);
        summary.push(row);
        let all = summary.row().unwrap();
        assert_eq!((all.local_thread_busy_ratio, all.remote_qdisc_drops), (Some(0.11), Some(96)));
        assert_eq!((all.local_thread_cpu_id, all.remote_softirq_peak_id), (None, None));
    }

    #[test]
    fn a_rate_of_the_senders_socket_is_the_plans_and_not_bbrs() {
        let row = |way| Row { direction: Some(way), congestion_control: Some("bbr".into()), ..Row::default() };
        let mut spec = spec(Direction::Forward);
        let is_bbr = |spec: &TestSpec| {
            [Way::Forward, Way::Reverse].map(|way| by_its_rate(&row(way), spec).congestion_control.is_some())
        };
        assert_eq!(is_bbr(&spec), [true, true]);
        spec.near.socket.pacing_rate = Some(BitsPerSecond(50_000_000));
        assert_eq!(is_bbr(&spec), [false, true]);
    }

    #[test]
    fn an_unknown_number_leaves_its_cell_empty() {
        let unknown = TcpLimits { peer_window_bytes: Some(7), ..TcpLimits::default() };
        let known = TcpLimits { pacing_rate_bytes_per_s: Some(5), ..TcpLimits::default() };
        let mut row = Row::default();
        let thread = ThreadUse { busy: 0.5, cpu: 3, ..ThreadUse::default() };
        let drops = Drops { socket: Some(4), ..Drops::default() };
        let evidence = Evidence { thread: Some(thread), drops, ..Evidence::default() };
        let flows = vec![sender(0, unknown), sender(1, known)];
        let near = Window { evidence: Some(evidence), ..window(Phase::Measure, 1_000_000_000, flows) };
        let made = of_iteration(&row, &spec(Direction::Forward), &report(Side::Near, vec![near.clone()]), None);
        let ours = [("local_thread_busy_ratio", 0.5), ("local_thread_cpu_id", 3.0), ("local_socket_drops", 4.0)];
        assert_eq!(cells(&made.measured[0].1), ours);
        of_ends(&mut row, Pair { near: None, far: Some(&near) });
        assert_eq!(row.remote_socket_drops, Some(4));
        assert_eq!(missing(&row, Pair { near: None, far: None }), [""; 0]);
    }
}
