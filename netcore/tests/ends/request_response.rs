//! Requests and responses.

use netcore::{
    measure::histogram,
    report::{Phase, SideReport},
    spec::{Io, Pattern, Stop, TestSpec, Transport},
};

use crate::pair::{MS, V4, lasting, measured, phase, run, sum};

fn requests(ms: u64) -> TestSpec {
    lasting(Pattern::RequestResponse, Transport::Tcp, ms)
}

/// How many latencies the measure phase has.
fn timed(report: &SideReport) -> u64 {
    let flows = &phase(report, Phase::Measure).flows;
    flows.iter().flat_map(|flow| &flow.latencies).map(|l| histogram::decode(&l.histogram).unwrap().len()).sum()
}

fn agree(near: &SideReport, far: &SideReport) {
    let (near, far) = (sum(&near.totals), sum(&far.totals));
    assert_eq!(near.bytes_sent, far.bytes_received);
    assert_eq!(near.bytes_received, far.bytes_sent);
    assert_eq!(near.transactions, far.transactions);
}

#[test]
fn every_transaction_is_counted_and_timed() {
    for (inflight, coalesce) in [(1, false), (16, false), (16, true)] {
        for (request_bytes, response_bytes) in [(1, 1), (100, 3000), (200_000, 70)] {
            let mut spec = requests(0);
            spec.phases.stop = Stop::AfterTransactions(501);
            (spec.inflight, spec.coalesce, spec.streams) = (inflight, coalesce, 2);
            (spec.sizes.request_bytes, spec.sizes.response_bytes) = (request_bytes, response_bytes);
            let (near, far) = run(&spec, V4);
            agree(&near, &far);
            assert_eq!(measured(&near).transactions, 501);
            assert_eq!(timed(&near), 501);
            assert_eq!(sum(&near.totals).bytes_sent, 501 * request_bytes);
            if request_bytes == 1 && !coalesce {
                // One send call per request.
                assert_eq!(sum(&near.totals).sends, 501);
            }
        }
    }
}

#[test]
fn more_in_flight_than_the_buffers_hold_does_not_deadlock() {
    let mut spec = requests(200);
    (spec.inflight, spec.sizes.request_bytes, spec.sizes.response_bytes) = (64, 1 << 20, 1 << 20);
    spec.near.socket.send_buffer = Some(10_000);
    spec.far.socket.send_buffer = Some(10_000);
    let (near, far) = run(&spec, V4);
    agree(&near, &far);
    assert!(sum(&near.totals).transactions > 0);
}

#[test]
fn histograms_are_cut_with_the_phases_and_intervals() {
    let mut spec = requests(100);
    (spec.phases.warmup_ns, spec.phases.interval_ns) = (50 * MS, 25 * MS);
    let (near, far) = run(&spec, V4);
    agree(&near, &far);
    assert!(timed(&near) > 0 && timed(&near) < sum(&near.totals).transactions);
    let in_intervals: u64 = near
        .intervals
        .iter()
        .filter(|window| window.phase == Phase::Measure)
        .flat_map(|window| &window.flows[0].latencies)
        .map(|latencies| histogram::decode(&latencies.histogram).unwrap().len())
        .sum();
    assert_eq!(in_intervals, timed(&near));
    assert_eq!(phase(&near, Phase::Measure).flows[0].latencies[0].kind, "round_trip");
}

#[test]
fn every_io_method_answers() {
    for io in [Io::Blocking, Io::Nonblocking, Io::Spin] {
        for inflight in [1, 4] {
            let mut spec = requests(30);
            (spec.io, spec.inflight) = (io, inflight);
            let (near, far) = run(&spec, V4);
            agree(&near, &far);
            assert!(sum(&near.totals).transactions > 0, "{io:?}");
        }
    }
}
