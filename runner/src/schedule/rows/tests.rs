use netcore::{
    report::{Counts, FlowWindow, Granted, Latencies, Pacing, TcpInfo},
    spec::{Arrival, Dialect, Direction, Pace, PaceMode, Pattern, Role, Side, Transport},
};

use super::*;
use crate::schedule::fake::{flow, report, spec, stream, window};

const SECOND: u64 = 1_000_000_000;

fn measured(made: &IterationRows, way: Way) -> &Row {
    &made.measured.iter().find(|(w, _)| *w == way).unwrap().1
}

#[test]
fn the_receiver_decides_what_arrived_on_its_own_clock() {
    let mut m = stream(1000);
    let reports = &mut m.members[0];
    reports.far.as_mut().unwrap().phases[0].flows[0].counts.bytes_received = 900;
    reports.far.as_mut().unwrap().phases[0].elapsed_ns = 2 * SECOND;
    let made = of_iteration(&Row::default(), &spec(Direction::Forward), &reports.near, reports.far.as_ref());
    let row = measured(&made, Way::Forward);
    assert_eq!((row.throughput_bits_per_s, row.sent_bits_per_s), (Some(3600.0), Some(8000.0)));
    assert_eq!((row.bytes_sent, row.bytes_received, row.elapsed_s), (Some(1000), Some(900), Some(2.0)));
    // 0.5 busy × 2 CPUs × 1 s over 900/1024 KiB at the sender, of 2 s at the receiver.
    assert!((row.local_service_demand.unwrap() - 1e6 / (900.0 / 1024.0)).abs() < 1.0);
    assert!((row.remote_service_demand.unwrap() - 2e6 / (900.0 / 1024.0)).abs() < 1.0);
    assert_eq!(row.service_demand_unit.as_deref(), Some("us_per_kib"));
    assert_eq!((row.rtt_us, row.cwnd_bytes, row.retransmits), (Some(50.0), Some(10_000), Some(2)));
}

/// Another host may make up its counts.
#[test]
fn counts_of_both_ends_that_no_number_holds_are_the_most() {
    let mut m = stream(1000);
    let reports = &mut m.members[0];
    let mut spec = spec(Direction::Forward);
    spec.transport = Transport::Udp;
    let far = &mut reports.far.as_mut().unwrap().phases[0].flows[0].counts;
    (far.errors, far.messages_received, far.messages_sent) = (u64::MAX, u64::MAX, u64::MAX);
    let near = &mut reports.near.phases[0].flows[0].counts;
    (near.errors, near.messages_received, near.messages_sent) = (5, 5, 5);
    let made = of_iteration(&Row::default(), &spec, &reports.near, reports.far.as_ref());
    let row = measured(&made, Way::Forward);
    let most = Some(u64::MAX);
    assert_eq!((row.errors, row.messages_sent, row.messages_received), (most, most, most));
}

#[test]
fn the_copied_share_is_of_the_sends_that_completed() {
    let mut m = stream(1000);
    let reports = &mut m.members[0];
    let spec = spec(Direction::Forward);
    let share = |reports: &netcore::client::Outcome| {
        let made = of_iteration(&Row::default(), &spec, &reports.near, reports.far.as_ref());
        measured(&made, Way::Forward).zerocopy_copied_ratio
    };
    assert_eq!(share(reports), None, "no zero-copy sends");
    let counts = &mut reports.near.phases[0].flows[0].counts;
    (counts.sends, counts.completions, counts.copied) = (10, 8, 2);
    assert_eq!(share(reports), Some(0.25));
}

#[test]
fn reverse_and_forward_mirror_each_other() {
    let near = report(Side::Near, vec![window(Phase::Measure, SECOND, vec![flow(0, Role::Receiver, 0, 500)])]);
    let far = report(Side::Far, vec![window(Phase::Measure, 2 * SECOND, vec![flow(0, Role::Sender, 600, 0)])]);
    let made = of_iteration(&Row::default(), &spec(Direction::Reverse), &near, Some(&far));
    let row = measured(&made, Way::Reverse);
    assert_eq!((row.throughput_bits_per_s, row.sent_bits_per_s), (Some(4000.0), Some(2400.0)));
    assert_eq!((row.direction.as_deref(), row.elapsed_s), (Some("reverse"), Some(1.0)));
}

#[test]
fn retransmits_are_those_of_whoever_sends_the_rows_data() {
    let of = |pattern, direction, near: Role, far: Role| {
        let end = |side, role, retransmits| {
            let flow = |number, role| FlowWindow { retransmits: Some(retransmits), ..flow(number, role, 1, 1) };
            let other = if role == Role::Sender { Role::Receiver } else { Role::Sender };
            let both = (direction == Direction::Bidirectional).then(|| flow(1, other));
            report(side, vec![window(Phase::Measure, SECOND, [flow(0, role)].into_iter().chain(both).collect())])
        };
        let (near, far) = (end(Side::Near, near, 3), end(Side::Far, far, 20));
        let spec = TestSpec { pattern, ..spec(direction) };
        let made = of_iteration(&Row::default(), &spec, &near, Some(&far)).measured;
        made.iter().map(|(_, row)| [row.retransmits, row.local_retransmits, row.remote_retransmits]).collect::<Vec<_>>()
    };
    let cells = |own| [Some(own), Some(3), Some(20)];
    let (stream, rr) = (Pattern::Stream, Pattern::RequestResponse);
    assert_eq!(of(stream, Direction::Forward, Role::Sender, Role::Receiver), [cells(3)]);
    assert_eq!(of(stream, Direction::Reverse, Role::Receiver, Role::Sender), [cells(20)]);
    let both = [cells(3), cells(20), cells(23)];
    assert_eq!(of(stream, Direction::Duplex, Role::Duplex, Role::Duplex), both);
    // An end's own count has all of its connections, also those in which it receives.
    let both = [cells(3), cells(20), [Some(23), Some(6), Some(40)]];
    assert_eq!(of(stream, Direction::Bidirectional, Role::Sender, Role::Receiver), both);
    // Requests and responses are both data.
    assert_eq!(of(rr, Direction::Forward, Role::Requester, Role::Responder), [cells(23)]);
}

#[test]
fn both_directions_have_rows_of_their_own_and_one_together() {
    let near = vec![flow(0, Role::Sender, 1000, 0), flow(1, Role::Receiver, 0, 300)];
    let far = vec![flow(0, Role::Receiver, 0, 900), flow(1, Role::Sender, 400, 0)];
    let near = report(Side::Near, vec![window(Phase::Measure, SECOND, near)]);
    let far = report(Side::Far, vec![window(Phase::Measure, SECOND, far)]);
    let mut spec = spec(Direction::Bidirectional);
    // 100 bytes a second each way, of which 1000 and 400 were sent.
    spec.sizes.message_bytes = 100;
    spec.pace = Some(Pace { events_per_s: 1.0, mode: PaceMode::User, arrival: Arrival::Closed, burst: 1, catch_up: 1 });
    let made = of_iteration(&Row::default(), &spec, &near, Some(&far));
    let error = |way| measured(&made, way).rate_error_ratio.unwrap();
    assert_eq!((error(Way::Forward), error(Way::Reverse), error(Way::Both)), (9.0, 3.0, 6.0));
    let bits = |way| measured(&made, way).throughput_bits_per_s.unwrap();
    assert_eq!((bits(Way::Forward), bits(Way::Reverse), bits(Way::Both)), (7200.0, 2400.0, 9600.0));
    assert_eq!(measured(&made, Way::Both).bytes_sent, Some(1400));
    assert!(measured(&made, Way::Forward).local_service_demand.is_none());
    assert!(measured(&made, Way::Both).local_service_demand.is_some());
    let streams: Vec<_> = made.rows.iter().filter(|r| r.record == Some(Record::Stream)).collect();
    assert_eq!(streams.len(), 2);
    assert_eq!((streams[1].stream, streams[1].direction.as_deref()), (Some(1), Some("reverse")));
}

#[test]
fn what_limited_the_senders_is_what_their_counters_grew_over_their_own_time() {
    let flow = |number, busy_us: u64, rwnd_limited_us: u64, min_rtt_us| {
        let mut flow = flow(number, Role::Sender, 1, 0);
        let at_start = TcpInfo { busy_us: Some(1_000_000), rwnd_limited_us: Some(500_000), ..TcpInfo::default() };
        flow.tcp_at_start = Some(at_start);
        flow.tcp_info = Some(TcpInfo {
            busy_us: Some(1_000_000 + busy_us),
            rwnd_limited_us: Some(500_000 + rwnd_limited_us),
            min_rtt_us: Some(min_rtt_us),
            ..TcpInfo::default()
        });
        flow
    };
    // The sender's window is two seconds long, the receiver's one. Jiffies may make a full window a little longer.
    let flows = vec![flow(0, 2_004_000, 2_000_000, 30), flow(1, 1_000_000, 1_000_000, 20)];
    let near = report(Side::Near, vec![window(Phase::Measure, 2 * SECOND, flows)]);
    let far = report(Side::Far, vec![window(Phase::Measure, SECOND, vec![self::flow(0, Role::Receiver, 0, 1)])]);
    let made = of_iteration(&Row::default(), &spec(Direction::Forward), &near, Some(&far));
    let row = measured(&made, Way::Forward);
    assert_eq!((row.min_rtt_us, row.busy_ratio, row.rwnd_limited_ratio), (Some(20.0), Some(0.75), Some(0.75)));
    assert_eq!(row.sndbuf_limited_ratio, None, "a kernel that does not tell is not one that was not limited");
}

/// The kernel's word on a flow's option.
fn granted(flow: u32, option: &str, value: &str) -> Granted {
    Granted { flow, option: option.into(), requested: None, at_start: None, at_end: Some(value.into()) }
}

#[test]
fn each_direction_of_a_duplex_connection_is_told_by_the_end_that_sends_it() {
    let timed = |rtt_us, send, receive| {
        let of =
            |kind: &str, values: usize| Latencies { kind: kind.into(), histogram: path::encoded(&vec![1000; values]) };
        let mut flow = flow(0, Role::Duplex, 100, 100);
        flow.latencies = vec![of("send", send), of("receive", receive)];
        flow.tcp_info = Some(TcpInfo { rtt_us, cwnd_segments: rtt_us, mss_bytes: 1000, ..TcpInfo::default() });
        flow.pacing = Some(Pacing { gap_p50_ns: u64::from(rtt_us) * 1000, ..Pacing::default() });
        flow
    };
    let mut near = report(Side::Near, vec![window(Phase::Measure, SECOND, vec![timed(10, 1, 2)])]);
    let mut far = report(Side::Far, vec![window(Phase::Measure, SECOND, vec![timed(30, 4, 8)])]);
    (near.library, far.library) = (Some("near's".to_owned()), Some("far's".to_owned()));
    near.options = vec![granted(0, "congestion_control", "cubic"), granted(0, "no_delay", "true")];
    far.options = vec![granted(0, "congestion_control", "reno"), granted(0, "no_delay", "true")];
    let made = of_iteration(&Row::default(), &spec(Direction::Duplex), &near, Some(&far));
    let calls = |way| {
        let row = measured(&made, way);
        let count = |text: &Option<String>| netcore::measure::histogram::decode(text.as_ref().unwrap()).unwrap().len();
        (count(&row.latency_histogram), count(&row.receive_call_histogram))
    };
    assert_eq!([Way::Forward, Way::Reverse, Way::Both].map(calls), [(1, 8), (4, 2), (5, 10)]);
    let kernel = |way| {
        let row = measured(&made, way);
        (row.rtt_us, row.cwnd_bytes, row.gap_p50_us, row.congestion_control.as_deref(), row.no_delay)
    };
    let library = |way| measured(&made, way).library.as_deref();
    assert_eq!([Way::Forward, Way::Reverse, Way::Both].map(library), [Some("near's"), Some("far's"), None]);
    assert_eq!(kernel(Way::Forward), (Some(10.0), Some(10_000), Some(10.0), Some("cubic"), Some(true)));
    assert_eq!(kernel(Way::Reverse), (Some(30.0), Some(30_000), Some(30.0), Some("reno"), Some(true)));
    assert_eq!(kernel(Way::Both), (Some(20.0), Some(40_000), None, None, Some(true)));
}

#[test]
fn what_the_kernels_say_of_two_directions_is_what_their_senders_say() {
    let flow = |number, role, rtt_us| {
        let mut flow = flow(number, role, 1, 1);
        flow.tcp_info = Some(TcpInfo { rtt_us, cwnd_segments: 1, mss_bytes: rtt_us, ..TcpInfo::default() });
        flow
    };
    let near = vec![flow(0, Role::Sender, 10), flow(1, Role::Receiver, 1000)];
    let far = vec![flow(0, Role::Receiver, 1000), flow(1, Role::Sender, 30)];
    let mut near = report(Side::Near, vec![window(Phase::Measure, SECOND, near)]);
    let mut far = report(Side::Far, vec![window(Phase::Measure, SECOND, far)]);
    near.options = vec![granted(0, "receive_buffer", "1"), granted(1, "receive_buffer", "2")];
    far.options = vec![granted(0, "send_buffer", "3"), granted(1, "send_buffer", "4")];
    let made = of_iteration(&Row::default(), &spec(Direction::Bidirectional), &near, Some(&far));
    let kernel = |way| (measured(&made, way).rtt_us.unwrap(), measured(&made, way).cwnd_bytes.unwrap());
    assert_eq!([Way::Forward, Way::Reverse, Way::Both].map(kernel), [(10.0, 10), (30.0, 30), (20.0, 40)]);
    let row = measured(&made, Way::Both);
    assert_eq!((row.local_receive_buffer_bytes, row.remote_send_buffer_bytes), (Some(2), Some(4)));
}

#[test]
fn an_end_that_missed_an_edge_does_not_shift_the_intervals_after_it() {
    // Cut every second, by the one end late and by the other at the seconds; the near one has missed the third edge.
    let cut = |role, tenths: &[u64]| {
        let windows = tenths.windows(2).map(|edge| {
            let elapsed_ns = (edge[1] - edge[0]) * SECOND / 10;
            let mut window = window(Phase::Measure, elapsed_ns, vec![flow(0, role, elapsed_ns, elapsed_ns)]);
            window.start_ns = (edge[0] * SECOND / 10).cast_signed();
            window
        });
        windows.collect::<Vec<_>>()
    };
    let (mut near, mut far) = (report(Side::Near, Vec::new()), report(Side::Far, Vec::new()));
    near.intervals = cut(Role::Sender, &[0, 12, 21, 43, 51, 55]);
    far.intervals = cut(Role::Receiver, &[0, 10, 20, 30, 40, 50, 54]);
    let mut spec = spec(Direction::Forward);
    spec.phases.interval_ns = SECOND;
    let made = of_iteration(&Row::default(), &spec, &near, Some(&far));
    let tenths = |bytes: Option<u64>| bytes.map(|bytes| bytes / (SECOND / 10));
    let cells: Vec<_> = made.rows.iter().map(|row| (tenths(row.bytes_sent), tenths(row.bytes_received))).collect();
    assert_eq!(
        cells,
        [
            (Some(12), Some(10)),
            (Some(9), Some(10)),
            (None, Some(10)),
            (None, Some(10)),
            (Some(22), None),
            (Some(8), Some(10)),
            (Some(4), Some(4)),
        ]
    );
}

#[test]
fn a_half_seen_exchange_has_no_sum() {
    let near = report(Side::Near, vec![window(Phase::Measure, SECOND, vec![flow(0, Role::Requester, 10, 10)])]);
    let far = report(Side::Far, Vec::new());
    let rr = TestSpec::new(Pattern::RequestResponse, Transport::Tcp);
    let made = of_iteration(&Row::default(), &rr, &near, Some(&far));
    let row = measured(&made, Way::Forward);
    assert_eq!((row.throughput_bits_per_s, row.bytes_sent, row.retransmits), (None, None, None));
}

#[test]
fn without_a_far_end_what_arrived_is_not_known() {
    let near = report(Side::Near, vec![window(Phase::Measure, SECOND, vec![flow(0, Role::Sender, 1000, 0)])]);
    let mut alone = spec(Direction::Forward);
    alone.dialect = Dialect::Service;
    let made = of_iteration(&Row::default(), &alone, &near, None);
    let row = measured(&made, Way::Forward);
    assert_eq!((row.throughput_bits_per_s, row.sent_bits_per_s), (None, Some(8000.0)));
    assert_eq!((row.remote_cpu_ratio, row.elapsed_s), (None, Some(1.0)));
}

#[test]
fn round_trips_count_transactions_at_the_requester() {
    let mut requester = flow(0, Role::Requester, 10, 10);
    requester.counts = Counts { transactions: 500, ..requester.counts };
    requester.latencies = vec![Latencies { kind: "round_trip".into(), histogram: path::encoded(&[20_000, 40_000]) }];
    let near = report(Side::Near, vec![window(Phase::Measure, SECOND / 2, vec![requester])]);
    let far = report(Side::Far, vec![window(Phase::Measure, SECOND, vec![flow(0, Role::Responder, 10, 10)])]);
    let rr = TestSpec::new(Pattern::RequestResponse, Transport::Tcp);
    let made = of_iteration(&Row::default(), &rr, &near, Some(&far));
    let row = measured(&made, Way::Forward);
    assert_eq!((row.transactions, row.transactions_per_s), (Some(500), Some(1000.0)));
    // 10 bytes back in half a second, 10 bytes there in a second.
    assert_eq!(row.throughput_bits_per_s, Some(160.0 + 80.0));
    assert_eq!(
        (row.latency_kind.as_deref(), row.service_demand_unit.as_deref()),
        (Some("round_trip"), Some("us_per_transaction"))
    );
    assert!((row.latency_max_us.unwrap() - 40.0).abs() < 0.1);
}

#[test]
fn phases_are_kept_and_marked_and_only_the_measurement_counts() {
    let windows = |role| {
        [Phase::Warmup, Phase::Measure, Phase::Cooldown]
            .map(|p| window(p, SECOND, vec![flow(0, role, 100, 100)]))
            .to_vec()
    };
    let near = report(Side::Near, windows(Role::Sender));
    let mut far = report(Side::Far, windows(Role::Receiver));
    far.intervals = vec![window(Phase::Measure, SECOND / 2, vec![flow(0, Role::Receiver, 0, 50)])];
    let made = of_iteration(&Row::default(), &spec(Direction::Forward), &near, Some(&far));
    let kinds: Vec<_> = made.rows.iter().map(|r| (r.record.as_deref().unwrap(), r.phase.as_deref().unwrap())).collect();
    assert_eq!(
        kinds,
        [("interval", "measure"), ("iteration", "warmup"), ("iteration", "measure"), ("iteration", "cooldown")]
    );
    assert_eq!(made.measured.len(), 1);
    // The sender gave no interval: what it sent is not known, what arrived is.
    assert_eq!((made.rows[0].throughput_bits_per_s, made.rows[0].sent_bits_per_s), (Some(800.0), None));
}
