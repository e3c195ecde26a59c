use netcore::{
    report::{Counts, Latencies, Role, Side},
    spec::{Arrival, Pace, PaceMode, Pattern, Transport},
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
    let streams: Vec<_> = made.rows.iter().filter(|r| r.record.as_deref() == Some("stream")).collect();
    assert_eq!(streams.len(), 2);
    assert_eq!((streams[1].stream, streams[1].direction.as_deref()), (Some(1), Some("reverse")));
}

#[test]
fn a_half_seen_exchange_has_no_sum() {
    let near = report(Side::Near, vec![window(Phase::Measure, SECOND, vec![flow(0, Role::Requester, 10, 10)])]);
    let far = report(Side::Far, Vec::new());
    let rr = TestSpec::new(Pattern::RequestResponse, Transport::Tcp);
    let made = of_iteration(&Row::default(), &rr, &near, Some(&far));
    let row = measured(&made, Way::Forward);
    assert_eq!((row.throughput_bits_per_s, row.bytes_sent), (None, None));
}

#[test]
fn without_a_far_end_what_arrived_is_not_known() {
    let near = report(Side::Near, vec![window(Phase::Measure, SECOND, vec![flow(0, Role::Sender, 1000, 0)])]);
    let mut alone = spec(Direction::Forward);
    alone.alone = true;
    let made = of_iteration(&Row::default(), &alone, &near, None);
    let row = measured(&made, Way::Forward);
    assert_eq!((row.throughput_bits_per_s, row.sent_bits_per_s), (None, Some(8000.0)));
    assert_eq!((row.remote_cpu_ratio, row.elapsed_s), (None, Some(1.0)));
}

#[test]
fn round_trips_count_transactions_at_the_requester() {
    let mut requester = flow(0, Role::Requester, 10, 10);
    requester.counts = Counts { transactions: 500, ..requester.counts };
    requester.latencies = vec![Latencies { kind: "round_trip".into(), histogram: latency::encoded(&[20_000, 40_000]) }];
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
