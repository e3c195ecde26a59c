//! The path's effect on packets: latency (histograms, merged and read), runs of lost messages, congestion marks,
//! and how much of its wire the data filled.

use analyze::{
    stats::responsiveness,
    wire::{Load, Packets, TIMESTAMPS, in_records},
};
use netcore::{
    measure::histogram::{self, Histogram},
    report::{Counts, DatagramPhase, FlowWindow, Latencies, LossRuns, NicFacts, SideReport, TcpInfo, grown},
    spec::{Dialect, Ecn, HANDSHAKES, Pattern, Role, Side, TestSpec, Transport},
};
use schemas::{
    columns::Row,
    words::{CodePoint, EcnPath, LatencyKind, Phase, Way},
};

use super::window::End;

/// Histograms of one kind, merged.
#[derive(Clone, Debug)]
pub struct Merged {
    kind: LatencyKind,
    histogram: Histogram<u64>,
}

/// These latencies, all of one kind: the first of [`LatencyKind::ALL`] that was timed. None where nothing was timed.
pub fn merged(timed: &[&Latencies]) -> Option<Merged> {
    LatencyKind::ALL.iter().find_map(|kind| of_kind(*kind, timed))
}

/// The receive calls where send calls were timed too: they are told beside them and not mixed with them.
pub fn receive_calls(timed: &[&Latencies]) -> Option<Merged> {
    merged(timed).filter(|first| first.kind != LatencyKind::Receive).and_then(|_| of_kind(LatencyKind::Receive, timed))
}

/// The latencies of that kind.
fn of_kind(kind: LatencyKind, timed: &[&Latencies]) -> Option<Merged> {
    named(kind.as_str(), timed).map(|histogram| Merged { kind, histogram })
}

/// All latencies of that name, whether or not it is a [`LatencyKind`].
fn named(name: &str, timed: &[&Latencies]) -> Option<Histogram<u64>> {
    let all = timed.iter().filter(|latencies| latencies.kind == name);
    all.filter_map(|latencies| decode(&latencies.histogram)).reduce(together)
}

/// Reads a histogram back. `None` for a text that is none.
fn decode(text: &str) -> Option<Histogram<u64>> {
    let mut histogram = histogram::decode(text)?;
    // A histogram of a fixed range would refuse larger values of another when they are merged.
    histogram.auto(true);
    Some(histogram)
}

fn together(mut all: Histogram<u64>, other: Histogram<u64>) -> Histogram<u64> {
    // Cannot fail: `auto` lets it grow to any u64.
    let _ = all.add(other);
    all
}

/// Fills cells with quantiles of all latencies of that name, microseconds, and returns their histogram. Does nothing where no value was
/// recorded.
pub(super) fn fill_quantiles(row: &mut Row, name: &str, timed: &[&Latencies], cells: &[(&str, f64)]) -> Option<String> {
    let all = named(name, timed).filter(|all| !all.is_empty())?;
    for (cell, quantile) in cells {
        row.set_number(cell, Some(quantile_us(&all, *quantile)));
    }
    Some(histogram::encode(&all))
}

/// The handshakes of a window: how long they took, and the share of each kind.
pub fn handshakes(row: &mut Row, timed: &[&Latencies]) {
    let kinds = HANDSHAKES.map(|kind| named(kind, timed));
    let [_, resumed, early] = kinds.each_ref().map(|kind| kind.as_ref().map_or(0, Histogram::len) as f64);
    let all = kinds.into_iter().flatten().reduce(together);
    let Some(all) = all.filter(|all| !all.is_empty()) else { return };
    (row.handshake_p50_us, row.handshake_p99_us) = (Some(quantile_us(&all, 0.5)), Some(quantile_us(&all, 0.99)));
    row.handshake_histogram = Some(histogram::encode(&all));
    let count = all.len() as f64;
    (row.resumed_ratio, row.early_ratio) = (Some((resumed + early) / count), Some(early / count));
}

impl Merged {
    /// Reads a histogram back. `None` for a text that is none.
    pub fn decode(kind: LatencyKind, text: &str) -> Option<Self> {
        decode(text).map(|histogram| Self { kind, histogram })
    }

    /// The histogram of a row.
    pub fn of_row(row: &Row) -> Option<Self> {
        Self::decode(row.latency_kind?, row.latency_histogram.as_deref()?)
    }

    /// The receive calls of a row that has them beside its latencies.
    pub fn receive_calls_of_row(row: &Row) -> Option<Self> {
        Self::decode(LatencyKind::Receive, row.receive_call_histogram.as_deref()?)
    }

    /// Both together.
    pub fn with(self, other: Self) -> Self {
        Self { histogram: together(self.histogram, other.histogram), ..self }
    }

    /// Fills the latency cells; does nothing where no value was recorded.
    pub fn fill(&self, row: &mut Row) {
        let h = &self.histogram;
        if h.is_empty() {
            return;
        }
        let quantile = |q: f64| Some(quantile_us(h, q));
        row.latency_kind = Some(self.kind);
        row.latency_min_us = Some(us(h.min()));
        row.latency_mean_us = Some(h.mean() / 1000.0);
        row.latency_p50_us = quantile(0.5);
        row.latency_p90_us = quantile(0.9);
        row.latency_p95_us = quantile(0.95);
        row.latency_p99_us = quantile(0.99);
        row.latency_p999_us = quantile(0.999);
        row.latency_max_us = Some(us(h.max()));
        row.latency_stddev_us = Some(h.stdev() / 1000.0);
        row.latency_histogram = Some(histogram::encode(h));
        row.round_trips_per_min = self.round_trips_per_min();
    }

    /// `None` for latencies that are no round trips.
    pub fn round_trips_per_min(&self) -> Option<f64> {
        let is_round_trip = matches!(self.kind, LatencyKind::RoundTrip | LatencyKind::Response);
        responsiveness::round_trips_per_min(&self.histogram).filter(|_| is_round_trip)
    }

    /// Fills the cells of receive calls; does nothing where no value was recorded.
    pub fn fill_receive_calls(&self, row: &mut Row) {
        let h = &self.histogram;
        if h.is_empty() {
            return;
        }
        row.receive_call_mean_us = Some(h.mean() / 1000.0);
        row.receive_call_p50_us = Some(quantile_us(h, 0.5));
        row.receive_call_p90_us = Some(quantile_us(h, 0.9));
        row.receive_call_p99_us = Some(quantile_us(h, 0.99));
        row.receive_call_max_us = Some(us(h.max()));
        row.receive_call_histogram = Some(histogram::encode(h));
    }
}

/// A quantile is given as the top of its bucket, which may lie above the largest value.
fn quantile_us(histogram: &Histogram<u64>, q: f64) -> f64 {
    us(histogram.value_at_quantile(q).min(histogram.max()))
}

/// Nanoseconds as microseconds.
fn us(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

#[cfg(test)]
pub(in crate::schedule) fn encoded(values: &[u64]) -> String {
    let mut histogram = histogram::empty();
    for value in values {
        histogram.record(*value).unwrap();
    }
    histogram::encode(&histogram)
}

/// Fills the cells of a phase. An end that is another program or an older version tells no runs.
pub(super) fn runs(row: &mut Row, spec: &TestSpec, near: &End<'_>, far: &End<'_>) {
    if row.phase != Some(Phase::Measure) || spec.dialect != Dialect::Plumb || !spec.numbers_messages() {
        return;
    }
    let of_end = |receiver: &End<'_>, sender: &End<'_>| {
        let receivers = receiver.flows.iter().filter(|flow| flow.role == Role::Receiver);
        let of_flow = |flow: &FlowWindow| {
            // Nothing was sent, or nothing arrived in the whole test: there are no counts.
            let sent = sender.flows.iter().find(|other| other.flow == flow.flow)?.datagrams.unwrap_or_default();
            let runs = flow.datagrams.map_or(Some(LossRuns::default()), |counts: DatagramPhase| counts.runs)?;
            Some(runs.whole(sent.before, sent.sent))
        };
        receivers.map(|flow| of_flow(flow)).collect::<Vec<_>>()
    };
    let all = of_end(near, far).into_iter().chain(of_end(far, near)).reduce(|a, b| Some(all_runs(a?, b?)));
    let Some(all) = all.flatten() else { return };
    row.loss_runs = Some(all.runs);
    row.loss_run_mean = (all.runs > 0).then(|| all.lost as f64 / all.runs as f64);
    row.loss_run_max = Some(all.longest);
}

/// The runs of two flows.
fn all_runs(a: LossRuns, b: LossRuns) -> LossRuns {
    LossRuns {
        runs: a.runs.saturating_add(b.runs),
        lost: a.lost.saturating_add(b.lost),
        longest: a.longest.max(b.longest),
        ..LossRuns::default()
    }
}

pub(super) fn marks(row: &mut Row, spec: &TestSpec, near: Option<&End<'_>>, far: Option<&End<'_>>) {
    row.local_ce_packets = near.and_then(|end| arrived(row, spec, Side::Near, end));
    row.remote_ce_packets = far.and_then(|end| arrived(row, spec, Side::Far, end));
    code_points(row, spec, near, far);
    let senders = || near.into_iter().chain(far).flat_map(End::senders);
    let agreed = senders().map(|flow| flow.tcp_info?.limits?.ecn).reduce(|a, b| Some(a? && b?)).flatten();
    row.ecn = row.ecn.or(agreed);
    // A sum without some of the streams would be a wrong number.
    let grown = senders().map(|flow| {
        let [after, before] = [flow.tcp_info, flow.tcp_at_start].map(|info| info?.limits?.delivered_ce);
        Some(grown(after?, before?))
    });
    row.ce_echoed = grown.reduce(|a, b| Some(a?.saturating_add(b?))).flatten();
}

/// Marks that arrived at an end: those of the test's datagrams, or of all packets of its network namespace.
fn arrived(row: &Row, spec: &TestSpec, side: Side, end: &End<'_>) -> Option<u64> {
    if counts_code_points(spec, side) {
        return Some(end.sum(|flow| flow.counts.marked));
    }
    end.window.evidence.as_ref()?.ce_packets.filter(|_| row.stream.is_none())
}

/// Whether an end counts the code points of the datagrams that it receives.
fn counts_code_points(spec: &TestSpec, side: Side) -> bool {
    spec.transport == Transport::Udp && spec.ecn(side).is_some()
}

/// The code points of datagrams, as they were sent and as they arrived.
fn code_points(row: &mut Row, spec: &TestSpec, near: Option<&End<'_>>, far: Option<&End<'_>>) {
    if spec.transport != Transport::Udp {
        return;
    }
    let sender = if row.direction == Some(Way::Reverse) { Side::Far } else { Side::Near };
    row.ecn_sent = spec.ecn(sender).and_then(|ecn| match ecn {
        Ecn::Off => None,
        Ecn::On => Some(CodePoint::Ect0),
        Ecn::Ect1 => Some(CodePoint::Ect1),
        Ecn::Ce => Some(CodePoint::Ce),
    });
    let counts = |side, end: Option<&End<'_>>| {
        let end = end.filter(|_| counts_code_points(spec, side));
        [|c: &Counts| c.not_ect, |c: &Counts| c.ect0, |c: &Counts| c.ect1]
            .map(|count| end.map(|end| end.sum(|flow| count(&flow.counts))))
    };
    [row.local_not_ect_packets, row.local_ect0_packets, row.local_ect1_packets] = counts(Side::Near, near);
    [row.remote_not_ect_packets, row.remote_ect0_packets, row.remote_ect1_packets] = counts(Side::Far, far);
    row.ecn_path = ecn_path(row);
}

/// The path's effect on code points by the counts of a row; `None`: nothing was sent with one or arrived where they are counted.
pub(super) fn ecn_path(row: &Row) -> Option<EcnPath> {
    let sent = row.ecn_sent?;
    let arrived = match row.direction? {
        Way::Reverse => {
            [row.local_not_ect_packets, row.local_ect0_packets, row.local_ect1_packets, row.local_ce_packets]
        }
        _ => [row.remote_not_ect_packets, row.remote_ect0_packets, row.remote_ect1_packets, row.remote_ce_packets],
    };
    let [not_ect, ect0, ect1, marked] = [arrived[0]?, arrived[1]?, arrived[2]?, arrived[3]?].map(|count| count > 0);
    let changes = [
        (marked && sent != CodePoint::Ce, EcnPath::Marked),
        (not_ect, EcnPath::Bleached),
        (ect0 && sent != CodePoint::Ect0 || ect1 && sent != CodePoint::Ect1, EcnPath::Remarked),
    ];
    let mut found = changes.iter().filter(|(is_so, _)| *is_so).map(|(_, word)| *word);
    match (found.next(), found.next()) {
        (None, _) => (ect0 || ect1 || marked).then_some(EcnPath::Kept),
        (only, None) => only,
        _ => Some(EcnPath::Mixed),
    }
}

/// The largest ratio at which an interface's word on its speed is believed: beyond it the data took another way, or the
/// speed is a fiction of a virtual machine.
const BELIEVED: f64 = 1.05;

/// Fills the cells of a phase. The plan's word on the speed is there already.
pub fn wire_share(row: &mut Row, spec: &TestSpec, near: &SideReport, far: Option<&SideReport>) {
    let detected = || Some(f64::from(speed(near)?.min(speed(far?)?)) * 1e6);
    let Some(speed) = row.wire_bits_per_s.or_else(detected) else { return };
    // The two directions of a wire are two wires.
    let directions = if row.direction == Some(Way::Both) { 2.0 } else { 1.0 };
    let load = (spec.pattern == Pattern::Stream).then(|| load(row, spec, near, far)).flatten();
    let ratio = load.and_then(|(load, share)| Some(row.throughput_bits_per_s? / (load.at(speed) * share * directions)));
    if row.wire_bits_per_s.is_none() && ratio.is_some_and(|ratio| ratio > BELIEVED) {
        return;
    }
    row.wire_bits_per_s = Some(speed);
    row.wire_ratio = ratio;
}

/// Mbit/s of the hardware behind an end's interface.
fn speed(end: &SideReport) -> Option<u32> {
    Some(end.nic.as_ref()?.wire?.mbit_per_s)
}

/// Bytes of the header of a datagram in a packet of QUIC: its type and its length.
const FRAME_BYTES: u64 = 3;

/// The packets that carry the row's stream, full segments or single messages, and the share of their load that is payload.
fn load(row: &Row, spec: &TestSpec, near: &SideReport, far: Option<&SideReport>) -> Option<(Load, f64)> {
    let ends = || [Some(near), far].into_iter().flatten();
    let nics = || ends().filter_map(|end| end.nic.as_ref());
    let tags = nics().filter_map(|nic| nic.wire).map(|wire| wire.vlan_tags).max().unwrap_or(0);
    let ipv6 = ends().find_map(|end| end.ipv6)?;
    let packets = |mtu| Packets { ipv6, mtu, tags: tags.into() };
    match spec.transport {
        Transport::Tcp | Transport::Tls => {
            let infos: Vec<&TcpInfo> = ends().flat_map(tcp_infos).collect();
            // Of two directions, each end has a size of its own.
            let mss = row.mss_bytes.or_else(|| infos.first().map(|info| info.mss_bytes.into()))?;
            let timestamps = infos.iter().find_map(|info| info.timestamps)?;
            // The MTU does not count: segments are as long as the kernel makes them.
            let load = packets(0).segments(mss, if timestamps { TIMESTAMPS } else { 0 })?;
            Some((load, if spec.transport == Transport::Tls { in_records(spec.sizes.message_bytes) } else { 1.0 }))
        }
        // Its datagrams fit the path, since the library searched for their length. Streams may have found different ones.
        Transport::Quic | Transport::QuicDatagram => {
            let datagram = row.quic_udp_bytes?.checked_div(row.quic_packets_sent?)?;
            let message = spec.sizes.message_bytes;
            // A packet has room for several short messages, each with a header of its own.
            let joined = spec.transport == Transport::QuicDatagram && message <= datagram / 2;
            let payload = if joined { message as f64 / (message + FRAME_BYTES) as f64 } else { 1.0 };
            Some((packets(u64::from(u16::MAX)).quic(datagram)?, payload))
        }
        Transport::Udp | Transport::UdpLite => {
            let mtu = nics().filter_map(|nic: &NicFacts| nic.mtu_bytes).min()?;
            Some((packets(mtu.into()).udp(spec.sizes.message_bytes)?, 1.0))
        }
        _ => None,
    }
}

fn tcp_infos(end: &SideReport) -> impl Iterator<Item = &TcpInfo> {
    end.phases.iter().flat_map(|window| &window.flows).filter_map(|flow| flow.tcp_info.as_ref())
}

#[cfg(test)]
mod tests {
    use netcore::{report::Window, spec::Direction};

    use super::{super::of_iteration, *};
    use crate::schedule::fake::{self, flow, window};

    fn end(side: Side, role: Role, counts: &[Option<DatagramPhase>]) -> SideReport {
        let flows = (0..).zip(counts).map(|(number, counts)| {
            let mut flow = flow(number, role, 0, 0);
            flow.datagrams = *counts;
            flow
        });
        let measure: Window = window(Phase::Measure, 1_000_000_000, flows.collect());
        fake::report(side, vec![measure])
    }

    #[test]
    fn runs_of_all_flows_come_with_those_at_the_edges() {
        let mut spec = TestSpec::new(Pattern::Stream, Transport::Udp);
        (spec.direction, spec.streams) = (Direction::Forward, 3);
        let sent = |before, sent| Some(DatagramPhase { before, sent, ..DatagramPhase::default() });
        let near = end(Side::Near, Role::Sender, &[sent(100, 50), sent(0, 9), sent(5, 10)]);
        // 100 to 102 and 145 to 149 are lost at the edges, and 4 in two runs between; the second flow lost nothing; of the third
        // nothing arrived.
        let got = |first, end, runs, lost, longest| {
            let all = LossRuns { first, end, runs, lost, longest };
            Some(DatagramPhase { received: end - first - lost, runs: Some(all), ..DatagramPhase::default() })
        };
        let counts = [got(103, 145, 2, 4, 3), got(0, 9, 0, 0, 0), None];
        let far = end(Side::Far, Role::Receiver, &counts);
        let row = &of_iteration(&Row::default(), &spec, &near, Some(&far)).measured[0].1;
        assert_eq!((row.loss_runs, row.loss_run_mean, row.loss_run_max), (Some(5), Some(22.0 / 5.0), Some(10)));
        assert_eq!(row.lost, Some(22));
        // A far end that does not tell.
        let older = counts.map(|counts| counts.map(|counts| DatagramPhase { runs: None, ..counts }));
        let far = end(Side::Far, Role::Receiver, &older);
        let row = &of_iteration(&Row::default(), &spec, &near, Some(&far)).measured[0].1;
        assert_eq!((row.loss_runs, row.loss_run_max, row.lost), (None, None, Some(22)));
    }
}

#[cfg(test)]
mod tests_of_ecn {
    use netcore::report::{Evidence, Phase, TcpLimits};

    use super::{super::of_iteration, *};
    use crate::schedule::fake::{flow, report, window};

    fn end(side: Side, role: Role, marked: u64, limits: [TcpLimits; 2], ce_packets: Option<u64>) -> SideReport {
        let info = |limits| Some(TcpInfo { limits: Some(limits), ..TcpInfo::default() });
        let mut flow = flow(0, role, 0, 0);
        (flow.tcp_at_start, flow.tcp_info) = (info(limits[0]), info(limits[1]));
        flow.counts.marked = marked;
        let mut measure = window(Phase::Measure, 1, vec![flow]);
        measure.evidence = Some(Evidence { ce_packets, ..Evidence::default() });
        report(side, vec![measure])
    }

    fn cells(spec: &TestSpec, near: &SideReport, far: &SideReport) -> (Option<bool>, [Option<u64>; 3]) {
        let row = of_iteration(&Row::default(), spec, near, Some(far)).measured.remove(0).1;
        (row.ecn, [row.local_ce_packets, row.remote_ce_packets, row.ce_echoed])
    }

    #[test]
    fn datagrams_have_their_own_marks_and_connections_those_of_the_namespace() {
        let limits =
            |delivered_ce| TcpLimits { delivered_ce: Some(delivered_ce), ecn: Some(true), ..TcpLimits::default() };
        let near = end(Side::Near, Role::Sender, 0, [limits(5), limits(12)], Some(1));
        let far = end(Side::Far, Role::Receiver, 40, [TcpLimits::default(); 2], Some(9));
        let tcp = TestSpec::new(Pattern::Stream, Transport::Tcp);
        assert_eq!(cells(&tcp, &near, &far), (Some(true), [Some(1), Some(9), Some(7)]));
        let mut udp = TestSpec::new(Pattern::Stream, Transport::Udp);
        (udp.near.socket.ecn, udp.far.socket.ecn) = (Some(Ecn::On), Some(Ecn::On));
        let (_, [local, remote, _]) = cells(&udp, &near, &far);
        assert_eq!((local, remote), (Some(0), Some(40)));
    }

    #[test]
    fn the_path_has_one_word_for_what_became_of_the_code_points() {
        use EcnPath::{Bleached, Kept, Marked, Mixed, Remarked};
        let word = |sent, [not_ect, ect0, ect1, ce]: [u64; 4], direction| {
            let mut row = Row { ecn_sent: Some(sent), direction: Some(direction), ..Row::default() };
            let counts = [not_ect, ect0, ect1, ce].map(Some);
            let cells = if direction == Way::Reverse {
                [
                    &mut row.local_not_ect_packets,
                    &mut row.local_ect0_packets,
                    &mut row.local_ect1_packets,
                    &mut row.local_ce_packets,
                ]
            } else {
                [
                    &mut row.remote_not_ect_packets,
                    &mut row.remote_ect0_packets,
                    &mut row.remote_ect1_packets,
                    &mut row.remote_ce_packets,
                ]
            };
            cells.into_iter().zip(counts).for_each(|(cell, count)| *cell = count);
            ecn_path(&row)
        };
        for (sent, counts, expected) in [
            (CodePoint::Ect1, [0, 0, 9, 0], Some(Kept)),
            (CodePoint::Ect1, [0, 0, 7, 2], Some(Marked)),
            (CodePoint::Ect1, [9, 0, 0, 0], Some(Bleached)),
            (CodePoint::Ect1, [1, 0, 8, 0], Some(Bleached)),
            (CodePoint::Ect1, [0, 9, 0, 0], Some(Remarked)),
            (CodePoint::Ect0, [0, 8, 1, 0], Some(Remarked)),
            (CodePoint::Ect0, [1, 8, 0, 1], Some(Mixed)),
            (CodePoint::Ce, [0, 0, 0, 9], Some(Kept)),
            (CodePoint::Ce, [0, 9, 0, 0], Some(Remarked)),
            (CodePoint::Ect0, [0; 4], None),
        ] {
            for direction in [Way::Forward, Way::Reverse] {
                assert_eq!(word(sent, counts, direction), expected, "{sent} {counts:?} {direction}");
            }
        }
        assert_eq!(ecn_path(&Row { direction: Some(Way::Forward), ..Row::default() }), None);
    }
}

#[cfg(test)]
mod tests_of_wire {
    use netcore::{
        report::{Phase, WireFacts},
        spec::Direction,
    };

    use super::*;
    use crate::schedule::fake::{flow, report, spec, window};

    /// An end whose interface is of a wire of this speed.
    fn end(side: Side, mbit_per_s: Option<u32>, vlan_tags: u32) -> SideReport {
        let mut flow = flow(0, Role::Sender, 0, 0);
        flow.tcp_info = Some(TcpInfo { mss_bytes: 1448, timestamps: Some(true), ..TcpInfo::default() });
        let wire = mbit_per_s.map(|mbit_per_s| WireFacts { mbit_per_s, vlan_tags });
        SideReport {
            nic: Some(NicFacts { mtu_bytes: Some(1500), wire, ..NicFacts::default() }),
            ipv6: Some(false),
            ..report(side, vec![window(Phase::Measure, 1, vec![flow])])
        }
    }

    fn filled(row: Row, spec: &TestSpec, near: &SideReport, far: Option<&SideReport>) -> (Option<f64>, Option<f64>) {
        let mut row = row;
        wire_share(&mut row, spec, near, far);
        (row.wire_bits_per_s, row.wire_ratio.map(|ratio| (ratio * 1e6).round() / 1e6))
    }

    #[test]
    fn the_slower_interface_of_two_real_ones_is_the_wire() {
        let spec = spec(Direction::Forward);
        let row = |rate: f64| Row { throughput_bits_per_s: Some(rate), ..Row::default() };
        let full = 100e6 * 1448.0 / 1538.0;
        let (slow, fast) = (end(Side::Near, Some(100), 0), end(Side::Far, Some(1000), 0));
        assert_eq!(filled(row(full), &spec, &slow, Some(&fast)), (Some(1e8), Some(1.0)));
        let tagged = end(Side::Far, Some(100), 1);
        let ratio = ((1542.0 / 1538.0_f64) * 1e6).round() / 1e6;
        assert_eq!(filled(row(full), &spec, &slow, Some(&tagged)), (Some(1e8), Some(ratio)));
        // More than it can carry is not over it.
        assert_eq!(filled(row(full * 1.06), &spec, &slow, Some(&fast)), (None, None));
        let virtual_one = end(Side::Far, None, 0);
        assert_eq!(filled(row(full), &spec, &slow, Some(&virtual_one)), (None, None));
        assert_eq!(filled(row(full), &spec, &slow, None), (None, None));
        // The plan's word counts, whatever the interfaces say.
        let said = Row { wire_bits_per_s: Some(5e7), ..row(full) };
        assert_eq!(filled(said, &spec, &slow, None), (Some(5e7), Some(2.0)));
        let both = Row { direction: Some(Way::Both), ..row(full) };
        assert_eq!(filled(both, &spec, &slow, Some(&fast)), (Some(1e8), Some(0.5)));
    }

    #[test]
    fn datagrams_count_by_their_size_and_other_patterns_have_a_speed_only() {
        let (near, far) = (end(Side::Near, Some(100), 0), end(Side::Far, Some(100), 0));
        let mut udp = TestSpec::new(Pattern::Stream, Transport::Udp);
        udp.sizes.message_bytes = 18;
        let row = || Row { throughput_bits_per_s: Some(100e6 * 18.0 / 84.0), ..Row::default() };
        assert_eq!(filled(row(), &udp, &near, Some(&far)), (Some(1e8), Some(1.0)));
        let trips = TestSpec::new(Pattern::RequestResponse, Transport::Tcp);
        assert_eq!(filled(row(), &trips, &near, Some(&far)), (Some(1e8), None));
    }
}

#[cfg(test)]
mod tests_of_latency {
    use super::*;

    #[test]
    fn merging_counts_every_value_once() {
        let all = Merged::decode(LatencyKind::RoundTrip, &encoded(&[1000, 2000]))
            .unwrap()
            .with(Merged::decode(LatencyKind::RoundTrip, &encoded(&[3000, 9_000_000])).unwrap());
        let mut row = Row::default();
        all.fill(&mut row);
        assert_eq!(all.histogram.len(), 4);
        assert!((row.latency_min_us.unwrap() - 1.0).abs() < 0.01);
        assert!((row.latency_p50_us.unwrap() - 2.0).abs() < 0.01);
        assert!((row.latency_max_us.unwrap() - 9000.0).abs() < 9.0);
        assert_eq!(Merged::of_row(&row).unwrap().histogram.len(), 4);
    }

    #[test]
    fn receive_calls_stand_beside_send_calls_and_alone_in_their_place() {
        let of = |kind: &str, value| Latencies { kind: kind.into(), histogram: encoded(&[value]) };
        let (send, receive) = (of("send", 1000), of("receive", 7000));
        assert_eq!(merged(&[&receive, &send]).unwrap().kind, LatencyKind::Send);
        let mut row = Row::default();
        receive_calls(&[&send, &receive]).unwrap().fill_receive_calls(&mut row);
        assert!((row.receive_call_p99_us.unwrap() - 7.0).abs() < 0.01 && row.latency_p99_us.is_none());
        assert_eq!(Merged::receive_calls_of_row(&row).unwrap().histogram.len(), 1);
        assert_eq!(merged(&[&receive]).unwrap().kind, LatencyKind::Receive);
        assert!(receive_calls(&[&receive]).is_none());
    }

    #[test]
    fn handshakes_of_all_kinds_are_in_one_histogram() {
        let of = |kind: &str, values: &[u64]| Latencies { kind: kind.into(), histogram: encoded(values) };
        let [full, resumed, early] = HANDSHAKES;
        // Two flows with a full handshake each.
        let timed = [of(full, &[900_000]), of(full, &[900_000]), of(resumed, &[300_000; 5]), of(early, &[100_000; 3])];
        let mut row = Row::default();
        handshakes(&mut row, &timed.each_ref());
        let all = decode(row.handshake_histogram.as_deref().unwrap()).unwrap();
        assert_eq!(all.len(), 10);
        let read = [0.5, 0.99].map(|quantile| Some(quantile_us(&all, quantile)));
        assert_eq!(read, [row.handshake_p50_us, row.handshake_p99_us]);
        assert!((read[0].unwrap() - 300.0).abs() < 0.3 && (read[1].unwrap() - 900.0).abs() < 0.9, "{read:?}");
        assert_eq!((row.resumed_ratio, row.early_ratio), (Some(0.8), Some(0.3)));
        let mut nothing = Row::default();
        handshakes(&mut nothing, &[&of("round_trip", &[1])]);
        assert_eq!(nothing, Row::default());
    }

    #[test]
    fn what_is_no_histogram_is_none() {
        assert!(Merged::decode(LatencyKind::Send, "bm8gaGlzdG9ncmFt").is_none());
        assert!(Merged::decode(LatencyKind::Send, "%").is_none());
    }
}
