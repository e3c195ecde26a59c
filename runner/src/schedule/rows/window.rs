//! The cells of one phase or interval, from the windows that the two ends cut: a [`Pair`].
//!
//! Senders count what they sent over their own elapsed time, receivers what arrived over theirs. If both ends receive (round
//! trips, both directions at once), the two rates are added.

use netcore::{
    measure::cpu::{process_demand_us, service_demand_us},
    report::{CpuUse, DatagramPhase, FlowWindow, Latencies, Pacing, QuicInfo, TcpInfo, TlsInfo, Window},
    spec::{Direction, Mark, Pace, Pattern, Role, TestSpec},
};
use schemas::{
    columns::{Row, results::ends},
    words::{DemandUnit, LatencyKind, OfferedUnit, Status, Way},
};

use super::{limits, one_way, path};
use crate::plan::answers;

/// The same phase or interval at both ends; an end that reported none of it is `None`.
#[derive(Clone, Copy, Debug)]
pub struct Pair<'a> {
    /// At the near end.
    pub near: Option<&'a Window>,
    /// At the far end.
    pub far: Option<&'a Window>,
}

/// A sum of counts that another host may have made up.
pub(super) fn total(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

/// The flows of one end that a row is about.
pub(super) struct End<'a> {
    pub(super) window: &'a Window,
    pub(super) flows: Vec<&'a FlowWindow>,
    /// In a duplex flow each end both sends and receives; a row about one way takes one of the two.
    pub(super) sends: bool,
    receives: bool,
}

impl End<'_> {
    pub(super) fn sum(&self, count: impl Fn(&FlowWindow) -> u64) -> u64 {
        total(self.flows.iter().map(|f| count(f)))
    }

    pub(super) fn has(&self, roles: &[Role]) -> bool {
        self.flows.iter().any(|f| roles.contains(&f.role))
    }

    fn is_sender(&self) -> bool {
        self.sends && self.has(&[Role::Sender, Role::Duplex, Role::Requester, Role::Responder])
    }

    fn is_receiver(&self) -> bool {
        self.receives && self.has(&[Role::Receiver, Role::Duplex, Role::Requester, Role::Responder])
    }

    /// The flows in whose sending the row is interested: of a duplex flow's two ends, one where the row is about one way.
    pub(super) fn senders(&self) -> impl Iterator<Item = &FlowWindow> {
        let sends = |f: &&FlowWindow| self.sends && matches!(f.role, Role::Sender | Role::Duplex | Role::Requester);
        self.flows.iter().copied().filter(sends)
    }

    /// Latencies that belong to the row: a duplex flow's send calls go the one way, its receive calls the other.
    pub(super) fn latencies(&self) -> impl Iterator<Item = &Latencies> {
        let counts = |l: &&Latencies| match l.kind.parse() {
            Ok(LatencyKind::Send) => self.sends,
            Ok(LatencyKind::Receive) => self.receives,
            _ => true,
        };
        self.flows.iter().flat_map(|f| &f.latencies).filter(counts)
    }

    pub(super) fn seconds(&self) -> f64 {
        self.window.elapsed_ns as f64 / 1e9
    }
}

/// The part of an end that a row about `way` needs. Flows with the role `reverse` carry payload in reverse only: receivers of
/// the near end, senders of the far end.
pub(super) fn end(window: &Window, way: Way, stream: Option<u32>, reverse: Role) -> End<'_> {
    let takes = |role: Role| match way {
        Way::Both => true,
        Way::Forward => role != reverse,
        Way::Reverse => role == reverse || role == Role::Duplex,
    };
    let flows = window.flows.iter().filter(|f| stream.is_none_or(|s| s == f.flow) && takes(f.role)).collect();
    let one_of_two = way != Way::Both && window.flows.iter().any(|f| f.role == Role::Duplex);
    let is_source = (way == Way::Forward) == (reverse == Role::Receiver);
    End { window, flows, sends: !one_of_two || is_source, receives: !one_of_two || !is_source }
}

/// The way of one stream, from its role at whichever end reported it.
pub fn way_of(direction: Direction, pair: Pair<'_>, stream: u32) -> Option<Way> {
    let find = |w: Option<&Window>| w.and_then(|w| w.flows.iter().find(|f| f.flow == stream)).map(|f| f.role);
    let way = match (find(pair.near), find(pair.far)) {
        (Some(Role::Duplex), _) | (_, Some(Role::Duplex)) => Way::Both,
        (Some(Role::Receiver), _) | (_, Some(Role::Sender)) => Way::Reverse,
        (None, None) => return None,
        _ => Way::Forward,
    };
    Some(if direction == Direction::Duplex { Way::Both } else { way })
}

/// Fills a row for that way, and for one stream where one is named. The record's kind is the caller's.
pub fn row(identity: &Row, spec: &TestSpec, pair: Pair<'_>, way: Way, stream: Option<u32>) -> Row {
    let mut row = identity.clone();
    row.status = Some(Status::Ok);
    row.direction = Some(way);
    row.stream = stream.map(u64::from);
    let near = pair.near.map(|window| end(window, way, stream, Role::Receiver));
    let far = pair.far.map(|window| end(window, way, stream, Role::Sender));

    // The headline's end: the receiver of a stream, the requester otherwise.
    let head = match (spec.pattern, way) {
        (Pattern::Stream, Way::Forward) => far.as_ref().or(near.as_ref()),
        _ => near.as_ref().or(far.as_ref()),
    };
    if let Some(head) = head {
        row.phase = Some(head.window.phase);
        row.time = Some(schemas::time::from_unix_ns(head.window.wall_end_ns));
        row.start_s = Some(head.window.start_ns as f64 / 1e9);
        row.elapsed_s = Some(head.seconds());
    }
    // The listeners of a port serve connections of every stream.
    let others_too = stream.is_some() && spec.shares_port();
    volume(&mut row, spec, near.as_ref(), far.as_ref().filter(|_| !others_too));
    if spec.pattern.is_connecting() && spec.has_daemon() {
        row.remote_connections = far.as_ref().map(|end| end.sum(|flow| flow.counts.connections));
    }
    datagrams(&mut row, spec, near.as_ref(), far.as_ref());
    pacing(&mut row, near.as_ref(), far.as_ref());
    tcp(&mut row, spec, near.as_ref(), far.as_ref());
    quic(&mut row, near.as_ref(), far.as_ref());
    tls(&mut row, near.as_ref(), far.as_ref());
    limits::of_connections(&mut row, near.as_ref(), far.as_ref());
    path::marks(&mut row, spec, near.as_ref(), far.as_ref());
    let timed: Vec<_> = near.iter().chain(&far).flat_map(End::latencies).collect();
    if let Some(latencies) = path::merged(&timed) {
        latencies.fill(&mut row);
    }
    one_way::variation(&mut row, &timed);
    path::handshakes(&mut row, &timed);
    if let Some(receive_calls) = path::receive_calls(&timed) {
        receive_calls.fill_receive_calls(&mut row);
    }
    if stream.is_none() {
        // One way of two at once has no CPU time of its own: only `both` gets the cost of the work.
        let whole = way == Way::Both || spec.direction == Direction::Forward || spec.direction == Direction::Reverse;
        cpu(&mut row, spec, near.as_ref(), far.as_ref(), whole);
        limits::of_ends(&mut row, pair);
    }
    row
}

/// Whether both ends send and receive. A sum then needs both of them: half of it would be a wrong number.
fn is_two_way(row: &Row, spec: &TestSpec) -> bool {
    spec.pattern != Pattern::Stream || row.direction == Some(Way::Both)
}

fn volume(row: &mut Row, spec: &TestSpec, near: Option<&End<'_>>, far: Option<&End<'_>>) {
    let ends = || near.into_iter().chain(far);
    let senders: Vec<_> = ends().filter(|e| e.is_sender()).collect();
    let receivers: Vec<_> = ends().filter(|e| e.is_receiver()).collect();
    let sum = |ends: &[&End<'_>], of: fn(&FlowWindow) -> u64| total(ends.iter().map(|e| e.sum(of)));
    let rate = |ends: &[&End<'_>], of: fn(&FlowWindow) -> u64| {
        ends.iter().map(|e| e.sum(of) as f64 / e.seconds()).reduce(|a, b| a + b)
    };
    let both = near.is_some() && far.is_some();
    let counts_calls = |ends: &[&End<'_>]| {
        !(spec.dialect.reports_sums() && ends.iter().any(|end| far.is_some_and(|far| std::ptr::eq(*end, far))))
    };
    let two_way = is_two_way(row, spec);
    if !senders.is_empty() && (both || !two_way) {
        row.bytes_sent = Some(sum(&senders, |f| f.counts.bytes_sent));
        row.sends = counts_calls(&senders).then(|| sum(&senders, |f| f.counts.sends));
        row.sent_bits_per_s = rate(&senders, |f| f.counts.bytes_sent).map(|bytes| bytes * 8.0);
        let completions = sum(&senders, |f| f.counts.completions);
        // The two are read one after the other while they grow.
        let copied = sum(&senders, |f| f.counts.copied).min(completions);
        row.zerocopy_copied_ratio = (completions > 0).then(|| copied as f64 / completions as f64);
    }
    if !receivers.is_empty() && (both || !two_way) {
        row.bytes_received = Some(sum(&receivers, |f| f.counts.bytes_received));
        row.receives = counts_calls(&receivers).then(|| sum(&receivers, |f| f.counts.receives));
        row.throughput_bits_per_s = rate(&receivers, |f| f.counts.bytes_received).map(|bytes| bytes * 8.0);
    }
    if spec.pattern == Pattern::Stream && spec.transport.is_datagram() {
        let per_call = |messages: u64, calls: Option<u64>| calls.filter(|n| *n > 0).map(|n| messages as f64 / n as f64);
        row.messages_per_send = per_call(sum(&senders, |f| f.counts.messages_sent), row.sends);
        let arrivals = |f: &FlowWindow| f.counts.messages_received.saturating_add(f.counts.duplicated);
        row.messages_per_receive = per_call(sum(&receivers, arrivals), row.receives);
    }
    if spec.pattern != Pattern::Stream
        && let Some(near) = near
    {
        let transactions = near.sum(|f| f.counts.transactions);
        row.transactions = Some(transactions);
        row.transactions_per_s = Some(transactions as f64 / near.seconds());
    }
    row.connections = near.map(|e| e.sum(|f| f.counts.connections));
    row.errors = ends().map(|e| e.sum(|f| f.counts.errors)).reduce(u64::saturating_add);
    if row.stream.is_none()
        && let Some((offered, unit)) = answers::offered(spec)
    {
        let sent = match unit {
            OfferedUnit::Bits => row.sent_bits_per_s,
            OfferedUnit::Messages => rate(&senders, |f| f.counts.messages_sent),
            OfferedUnit::Transactions => row.transactions_per_s,
        };
        // The load is that of each direction.
        let ways = if row.direction == Some(Way::Both) { 2.0 } else { 1.0 };
        let offered = offered * ways;
        row.rate_error_ratio = sent.map(|sent| (sent - offered) / offered);
        let due = |pace: &Pace| pace.events_per_s / f64::from(pace.burst.max(1)) * row.elapsed_s.unwrap_or(0.0);
        row.rate_quantum_ratio = spec.pace.as_ref().map(due).filter(|due| *due > 0.0).map(|due| due.recip().min(1.0));
    }
}

fn datagrams(row: &mut Row, spec: &TestSpec, near: Option<&End<'_>>, far: Option<&End<'_>>) {
    // Requests are transactions; those that were lost are errors.
    if !spec.transport.is_datagram() || !matches!(spec.pattern, Pattern::Stream | Pattern::Ping) {
        return;
    }
    let ends = || near.into_iter().chain(far);
    let jitters: Vec<u64> = ends().flat_map(|e| &e.flows).filter_map(|f| f.jitter_ns).collect();
    if !jitters.is_empty() && spec.times_messages() {
        row.jitter_us = Some(jitters.iter().map(|ns| *ns as f64).sum::<f64>() / jitters.len() as f64 / 1000.0);
    }
    if spec.is_alone() {
        row.messages_sent = near.filter(|e| e.has(&[Role::Sender])).map(|e| e.sum(|f| f.counts.messages_sent));
    }
    // Of echoes one end knows all.
    let Some(near) = near.filter(|_| far.is_some() || spec.pattern == Pattern::Ping) else { return };
    // By the phase of their sending, where the ends kept count of that; an interval knows only what came and went in it.
    // Nor is the phase of a message known that is too short to say it.
    let phases: Vec<&DatagramPhase> = ends()
        .flat_map(|e| &e.flows)
        .filter_map(|f| f.datagrams.as_ref().filter(|_| spec.numbers_messages()))
        .collect();
    if phases.is_empty() {
        let sum =
            |count: fn(&FlowWindow) -> u64| total([Some(near), far].into_iter().flatten().map(|end| end.sum(count)));
        row.messages_sent = Some(sum(|f| f.counts.messages_sent));
        row.messages_received = Some(sum(|f| f.counts.messages_received));
        if let (Mark::None, Some(sent), Some(received)) =
            (spec.dialect.mark(), row.messages_sent, row.messages_received)
        {
            // Both ends count the whole test.
            row.lost = Some(sent.saturating_sub(received));
            row.loss_ratio = (sent > 0).then(|| sent.saturating_sub(received) as f64 / sent as f64);
        }
        if spec.numbers_messages() {
            row.reordered = Some(sum(|f| f.counts.reordered));
            row.duplicated = Some(sum(|f| f.counts.duplicated));
        }
        return;
    }
    let sum = |count: fn(&DatagramPhase) -> u64| total(phases.iter().map(|p| count(p)));
    let (sent, received) = (sum(|p| p.sent), sum(|p| p.received));
    row.messages_sent = Some(sent);
    row.messages_received = Some(received);
    let counts_arrivals = |end: &End<'_>| end.flows.iter().any(|flow| flow.role == Role::Receiver);
    if !(spec.dialect.reports_sums() && far.is_some_and(counts_arrivals)) {
        row.reordered = Some(sum(|p| p.reordered));
        row.duplicated = Some(sum(|p| p.duplicated));
    }
    row.lost = Some(sent.saturating_sub(received));
    row.loss_ratio = (sent > 0).then(|| sent.saturating_sub(received) as f64 / sent as f64);
    if let Some(far) = far {
        path::runs(row, spec, near, far);
    }
}

/// Punctuality of paced senders. Gaps of several senders have no common percentile.
fn pacing(row: &mut Row, near: Option<&End<'_>>, far: Option<&End<'_>>) {
    let all: Vec<&Pacing> =
        near.into_iter().chain(far).flat_map(End::senders).filter_map(|f| f.pacing.as_ref()).collect();
    let us = |ns: u64| ns as f64 / 1000.0;
    row.gap_max_us = all.iter().map(|p| us(p.gap_max_ns)).reduce(f64::max);
    if let [one] = all.as_slice() {
        row.rate_error_ratio = Some(one.rate_error_ratio);
        row.gap_p50_us = Some(us(one.gap_p50_ns));
        row.gap_p99_us = Some(us(one.gap_p99_ns));
        row.gap_within_tenth_ratio = Some(one.gaps_within_tenth_ratio);
    }
}

fn tcp(row: &mut Row, spec: &TestSpec, near: Option<&End<'_>>, far: Option<&End<'_>>) {
    let of_end = |end: &End<'_>| limits::sum(end.flows.iter().map(|f| f.retransmits));
    row.local_retransmits = near.and_then(of_end);
    row.remote_retransmits = far.and_then(of_end);
    if (near.is_some() && far.is_some()) || !is_two_way(row, spec) {
        let senders = near.into_iter().chain(far).filter(|end| end.sends).flat_map(|end| &end.flows);
        row.retransmits = limits::sum(senders.filter(|f| f.role != Role::Receiver).map(|f| f.retransmits));
    }
    let infos: Vec<&TcpInfo> =
        near.into_iter().chain(far).flat_map(End::senders).filter_map(|f| f.tcp_info.as_ref()).collect();
    if infos.is_empty() {
        return;
    }
    let mean =
        |value: fn(&TcpInfo) -> u32| Some(infos.iter().map(|i| f64::from(value(i))).sum::<f64>() / infos.len() as f64);
    row.rtt_us = mean(|i| i.rtt_us);
    row.rtt_var_us = mean(|i| i.rtt_var_us);
    row.min_rtt_us = infos.iter().filter_map(|i| i.min_rtt_us).min().map(f64::from);
    row.cwnd_bytes = Some(total(infos.iter().map(|i| u64::from(i.cwnd_segments) * u64::from(i.mss_bytes))));
    row.mss_bytes = row.mss_bytes.or_else(|| infos.first().map(|i| i.mss_bytes.into()));
    // Growth of a counter of microseconds in the window, over its length. The kernel counts in jiffies: a full window may
    // come out a little over 1.
    let share = |spent_us: fn(&TcpInfo) -> Option<u64>| {
        let of_flow = |end: &End<'_>, flow: &FlowWindow| {
            let grown = spent_us(&flow.tcp_info?)?.saturating_sub(spent_us(&flow.tcp_at_start?)?);
            (end.window.elapsed_ns > 0).then(|| (grown as f64 / 1e6 / end.seconds()).min(1.0))
        };
        let shares: Vec<f64> =
            near.into_iter().chain(far).flat_map(|end| end.senders().filter_map(move |f| of_flow(end, f))).collect();
        (!shares.is_empty()).then(|| shares.iter().sum::<f64>() / shares.len() as f64)
    };
    row.busy_ratio = share(|i| i.busy_us);
    row.rwnd_limited_ratio = share(|i| i.rwnd_limited_us);
    row.sndbuf_limited_ratio = share(|i| i.sndbuf_limited_us);
    row.delivery_rate_bits_per_s = infos
        .iter()
        .map(|i| i.delivery_rate_bytes_per_s)
        .reduce(|a, b| Some(a? + b?))
        .flatten()
        .map(|b| b as f64 * 8.0);
}

/// The connections of QUIC whose ends send the row's data.
fn quic(row: &mut Row, near: Option<&End<'_>>, far: Option<&End<'_>>) {
    let of = |end: &End<'_>| end.senders().filter_map(|flow| flow.quic).collect::<Vec<QuicInfo>>();
    let infos: Vec<QuicInfo> = near.into_iter().chain(far).flat_map(of).collect();
    if infos.is_empty() {
        return;
    }
    let sum = |value: fn(&QuicInfo) -> u64| total(infos.iter().map(value));
    let least = |value: fn(&QuicInfo) -> u32| infos.iter().map(value).min();
    row.rtt_us = Some(infos.iter().map(|info| f64::from(info.rtt_us)).sum::<f64>() / infos.len() as f64);
    row.min_rtt_us = least(|info| info.min_rtt_us).map(f64::from);
    row.cwnd_bytes = Some(sum(|info| info.cwnd_bytes));
    let (sent, lost) = (sum(|info| info.packets_sent), sum(|info| info.packets_lost));
    (row.quic_packets_sent, row.quic_lost) = (Some(sent), Some(lost));
    row.quic_loss_ratio = (sent > 0).then(|| (lost as f64 / sent as f64).min(1.0));
    row.quic_congestion_events = Some(sum(|info| info.congestion_events));
    row.quic_blocked = Some(sum(|info| info.blocked));
    row.quic_udp_bytes = Some(sum(|info| info.udp_bytes_sent));
    row.quic_mtu_bytes = least(|info| info.mtu_bytes).map(u64::from);
    let per_call = |messages: u64, calls: u64| (calls > 0).then(|| messages as f64 / calls as f64);
    row.messages_per_send = per_call(sum(|info| info.datagrams_sent), sum(|info| info.send_calls));
    let receivers = near.into_iter().chain(far).filter(|end| end.is_receiver());
    let received: Vec<QuicInfo> = receivers.flat_map(|end| &end.flows).filter_map(|flow| flow.quic).collect();
    let sum = |value: fn(&QuicInfo) -> u64| total(received.iter().map(value));
    row.messages_per_receive = per_call(sum(|info| info.datagrams_received), sum(|info| info.receive_calls));
}

/// The records of TLS that the row's senders sealed.
fn tls(row: &mut Row, near: Option<&End<'_>>, far: Option<&End<'_>>) {
    let sent: TlsInfo = near.into_iter().chain(far).flat_map(End::senders).filter_map(|flow| flow.tls).sum();
    row.tls_record_bytes = (sent.records > 0).then(|| sent.bytes as f64 / sent.records as f64);
}

/// The shares of an end's CPUs: 0 is the near end.
pub fn cpu_shares(row: &mut Row, end: usize, cpu: &CpuUse) {
    let cells = [
        (ends::cpu_ratio, Some(cpu.busy)),
        (ends::cpu_user_ratio, Some(cpu.user)),
        (ends::cpu_system_ratio, Some(cpu.system)),
        (ends::cpu_iowait_ratio, Some(cpu.iowait)),
        (ends::cpu_irq_ratio, Some(cpu.irq)),
        (ends::cpu_softirq_ratio, Some(cpu.softirq)),
        (ends::cpu_steal_ratio, Some(cpu.steal)),
        (ends::cpu_peak_ratio, Some(cpu.peak)),
        (ends::cpu_peak_id, Some(cpu.peak_id.into())),
        (ends::process_cpus, cpu.process_cpus),
        (ends::involuntary_switches, cpu.involuntary_switches.map(|count| count as f64)),
        (ends::throttled_ratio, cpu.throttled),
    ];
    for (names, value) in cells {
        row.set_number(names[end], value);
    }
}

fn cpu(row: &mut Row, spec: &TestSpec, near: Option<&End<'_>>, far: Option<&End<'_>>, whole: bool) {
    let (units, unit) = match spec.pattern {
        Pattern::Stream => (row.bytes_received.map(|b| b as f64 / 1024.0), DemandUnit::PerKib),
        _ => (row.transactions.map(|t| t as f64), DemandUnit::PerTransaction),
    };
    let units = units.filter(|_| whole);
    for (side, end) in [near, far].into_iter().enumerate() {
        let Some((end, cpu)) = end.and_then(|end| Some((end, end.window.cpu.as_ref()?))) else { continue };
        let per_unit = |demand: fn(&CpuUse, u64, f64) -> Option<f64>| demand(cpu, end.window.elapsed_ns, units?);
        if side == 1 && spec.dialect.reports_sums() {
            row.remote_process_cpus = cpu.process_cpus;
        } else {
            cpu_shares(row, side, cpu);
            row.set_number(ends::service_demand[side], per_unit(service_demand_us));
        }
        row.set_number(ends::process_demand[side], per_unit(process_demand_us));
    }
    let demands = [ends::service_demand, ends::process_demand].concat();
    if demands.iter().any(|name| row.number(name).is_some()) {
        row.service_demand_unit = Some(unit);
    }
}
