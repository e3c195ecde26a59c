//! Requests and responses.

use std::net::UdpSocket;

use netcore::{
    measure::{clock::monotonic_ns, histogram},
    report::{Ending, Phase, SideReport},
    spec::{Arrival, Bytes, Io, Pace, PaceMode, Pattern, Payload, Side, Stop, TestSpec, Transport},
};

use crate::pair::{
    MS, V4, connect, eventually, finish, join, lasting, measured, meet, phase, prepare, run, start, sum,
};

fn requests(ms: u64) -> TestSpec {
    lasting(Pattern::RequestResponse, Transport::Tcp, ms)
}

/// Number of latencies in the measure phase.
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
    let mut spec = requests(0);
    spec.phases.stop = Stop::AfterTransactions(100);
    (spec.inflight, spec.sizes.request_bytes, spec.sizes.response_bytes) = (64, 1 << 20, 1 << 20);
    spec.near.socket.send_buffer = Some(Bytes(10_000));
    spec.far.socket.send_buffer = Some(Bytes(10_000));
    let (near, far) = run(&spec, V4);
    agree(&near, &far);
    assert_eq!(measured(&near).transactions, 100);
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

/// Both ends have one clock here: the truth is an offset of 0.
#[test]
fn delays_of_requests_and_answers_are_told_apart() {
    for (io, streams, threads, integrity) in
        [(Io::Auto, 1, None, true), (Io::Spin, 1, None, false), (Io::Auto, 3, Some(1), true)]
    {
        let mut spec = lasting(Pattern::RequestResponse, Transport::Udp, 0);
        spec.phases.stop = Stop::AfterTransactions(600);
        (spec.one_way, spec.io, spec.streams, spec.threads, spec.integrity) = (true, io, streams, threads, integrity);
        (spec.sizes.request_bytes, spec.sizes.response_bytes) = (40, 1000);
        let (near, far) = run(&spec, V4);
        agree(&near, &far);
        let found = near.one_way.unwrap();
        assert!(found.kernel, "the kernel tells arrivals on loopback");
        assert!(found.offset_ns.unsigned_abs() <= found.bound_ns && found.bound_ns >= 1000, "{found:?}");
        assert!(far.one_way.is_none());
        for flow in &phase(&near, Phase::Measure).flows {
            let kinds: Vec<&str> = flow.latencies.iter().map(|latencies| &*latencies.kind).collect();
            assert_eq!(kinds, ["round_trip", "forward_variation", "reverse_variation"]);
            for latencies in &flow.latencies {
                assert_eq!(histogram::decode(&latencies.histogram).unwrap().len(), flow.counts.transactions);
            }
        }
    }
}

#[test]
fn every_byte_of_requests_and_responses_is_checked() {
    let rr = Pattern::RequestResponse;
    let crr = Pattern::ConnectRequestResponse;
    let cases = [
        (rr, Transport::Tcp, 1, false, false),
        (rr, Transport::Tcp, 8, false, false),
        (rr, Transport::Tcp, 8, true, false),
        (rr, Transport::Tcp, 4, false, true),
        (rr, Transport::UnixSeqpacket, 1, false, false),
        (rr, Transport::Pipe, 1, false, false),
        (rr, Transport::Pipe, 4, false, true),
        (rr, Transport::Udp, 3, false, false),
        (rr, Transport::UnixDatagram, 1, false, false),
        (crr, Transport::Tcp, 1, false, false),
    ];
    for (pattern, transport, inflight, coalesce, paced) in cases {
        for (request_bytes, response_bytes) in [(5, 7), (3000, 100), (9, 2000)] {
            let mut spec = lasting(pattern, transport, 0);
            spec.phases.stop = Stop::AfterTransactions(100);
            (spec.inflight, spec.coalesce, spec.integrity) = (inflight, coalesce, true);
            (spec.sizes.request_bytes, spec.sizes.response_bytes) = (request_bytes, response_bytes);
            // A datagram from a ring is identified by its number.
            if !coalesce && (!transport.is_datagram() || request_bytes.min(response_bytes) >= 8) {
                (spec.near.buffers.ring, spec.far.buffers.ring) = (3, 2);
            }
            spec.pace = paced.then_some(Pace {
                events_per_s: 2000.0,
                mode: PaceMode::User,
                arrival: Arrival::Uniform,
                burst: 1,
                catch_up: 1000,
            });
            let (near, _) = run(&spec, V4);
            assert_eq!((measured(&near).transactions, measured(&near).errors), (100, 0), "{spec:?}");
            // Each end in turn sends other bytes than its peer expects.
            for liar in [Side::Near, Side::Far] {
                let (near, far) = lie(&spec, liar);
                let honest = if liar == Side::Near { far } else { near };
                let Ending::Failed(sentence) = honest.ending else { panic!("{liar:?} {spec:?} {:?}", honest.ending) };
                assert!(sentence.contains("wrong data: byte "), "{sentence}");
            }
        }
    }
}

/// Both ends of a test, one of which sends zeros instead of the expected payload.
fn lie(spec: &TestSpec, liar: Side) -> (SideReport, SideReport) {
    let mut spec = spec.clone();
    // An end that rejects the bytes does not answer.
    spec.reply_timeout_ns = 20 * MS;
    let mut wrong = spec.clone();
    (wrong.payload, wrong.integrity) = (Payload::Zero, false);
    let of = |side| if side == liar { &wrong } else { &spec };
    finish(start(meet(of(Side::Near), of(Side::Far), V4).unwrap()))
}

#[test]
fn every_io_method_answers() {
    for io in [Io::Blocking, Io::Nonblocking, Io::Spin] {
        for inflight in [1, 4] {
            let mut spec = requests(0);
            (spec.io, spec.inflight, spec.phases.stop) = (io, inflight, Stop::AfterTransactions(300));
            let (near, far) = run(&spec, V4);
            agree(&near, &far);
            assert_eq!(measured(&near).transactions, 300, "{io:?}");
        }
    }
}

/// A responder that cannot answer for a while. Its effect on latencies depends on the instant from which they count.
fn longest_at_a_rate(arrival: Arrival, transport: Transport) -> (u64, SideReport) {
    let mut spec = lasting(Pattern::RequestResponse, transport, 600);
    (spec.sizes.request_bytes, spec.sizes.response_bytes, spec.reply_timeout_ns) = (16, 16, 5_000 * MS);
    spec.pace = Some(Pace { events_per_s: 500.0, mode: PaceMode::User, arrival, burst: 1, catch_up: 1_000_000 });
    let (near, far) = connect(&spec, V4).unwrap();
    let t0 = monotonic_ns() + 10 * MS;
    // The far end answers nothing in the first 300 ms.
    let running = (near.start(t0, None).unwrap(), far.start(t0 + 300 * MS, None).unwrap());
    let (near, _) = finish(running);
    let latencies = &phase(&near, Phase::Measure).flows[0].latencies[0];
    let kind = if arrival == Arrival::Closed { "round_trip" } else { "response" };
    assert_eq!(latencies.kind, kind);
    let histogram = histogram::decode(&latencies.histogram).unwrap();
    let delayed = histogram.count_between(20 * MS, u64::MAX);
    assert!(histogram.max() >= 100 * MS, "the first request waited");
    (delayed, near)
}

#[test]
fn a_stall_is_not_hidden_from_open_arrivals() {
    for transport in [Transport::Tcp, Transport::Udp] {
        // One in flight: in a closed loop the stall costs one request; against the schedule it delays dozens.
        let (closed, _) = longest_at_a_rate(Arrival::Closed, transport);
        let (uniform, near) = longest_at_a_rate(Arrival::Uniform, transport);
        assert!(uniform >= closed + 30, "{closed} {uniform}");
        assert!(phase(&near, Phase::Measure).flows[0].pacing.is_some());
    }
}

#[test]
fn an_offered_rate_is_kept_with_several_in_flight() {
    for transport in [Transport::Tcp, Transport::Udp, Transport::Pipe] {
        for arrival in [Arrival::Uniform, Arrival::Poisson] {
            let mut spec = lasting(Pattern::RequestResponse, transport, 0);
            spec.phases.stop = Stop::AfterTransactions(200);
            (spec.inflight, spec.sizes.request_bytes, spec.sizes.response_bytes) = (8, 16, 16);
            spec.pace = Some(Pace { events_per_s: 1000.0, mode: PaceMode::User, arrival, burst: 1, catch_up: 1000 });
            let (near, far) = run(&spec, V4);
            assert_eq!(measured(&near).transactions, 200);
            assert_eq!(sum(&far.totals).transactions, 200);
            assert_eq!(timed(&near), 200);
            // Not faster than asked for: 200 at 1000 per second take a fifth of a second, give or take chance.
            assert!(phase(&near, Phase::Measure).elapsed_ns > 100 * MS);
        }
    }
}

#[test]
fn connections_can_be_offered_at_a_rate_too() {
    let mut spec = lasting(Pattern::Connect, Transport::Tcp, 0);
    spec.phases.stop = Stop::AfterTransactions(50);
    let arrival = Arrival::Uniform;
    spec.pace = Some(Pace { events_per_s: 500.0, mode: PaceMode::User, arrival, burst: 1, catch_up: 10 });
    let (near, _) = run(&spec, V4);
    assert_eq!(measured(&near).transactions, 50);
    assert!(phase(&near, Phase::Measure).elapsed_ns > 80 * MS);
}

/// Waits until the receive queue of a UDP socket on IPv4 has so many bytes. Returns their number.
fn queued(port: u16, at_least: u64) -> u64 {
    let mut bytes = 0;
    eventually(|| {
        let sockets = std::fs::read_to_string("/proc/net/udp").unwrap();
        // A reading may miss entries while others come and go.
        let Some(socket) = sockets.lines().find(|line| line.contains(&format!(":{port:04X} "))) else { return false };
        // The fifth column: bytes to send and received bytes, in hexadecimal.
        let received = socket.split_whitespace().nth(4).and_then(|queues| queues.split_once(':')).unwrap().1;
        bytes = u64::from_str_radix(received, 16).unwrap();
        bytes >= at_least
    });
    bytes
}

#[test]
fn after_the_end_a_responder_looks_behind_strangers_for_the_last_request() {
    let mut spec = lasting(Pattern::RequestResponse, Transport::Udp, 1);
    (spec.connected, spec.sizes.request_bytes, spec.reply_timeout_ns) = (false, 100, 60_000 * MS);
    let mut one = spec.clone();
    one.phases.stop = Stop::AfterTransactions(1);
    let (near, far, endpoints) = prepare(&one, &spec, None, V4).unwrap();
    let (near, far) = join((near, far), &endpoints, V4).unwrap();
    let port = endpoints.ports[0];
    let stranger = UdpSocket::bind((V4, 0)).unwrap();
    let strange = || assert_eq!(stranger.send_to(&[b'?'; 100], (V4, port)).unwrap(), 100);
    let before = queued(port, 0);
    strange();
    let each = queued(port, before + 1) - before;
    (0..9).for_each(|_| strange());
    queued(port, before + 10 * each);
    let near = near.start(monotonic_ns(), None).unwrap();
    queued(port, before + 11 * each);
    // Its time is over before it looks at its queue.
    let far = far.start(monotonic_ns() - 1000 * MS, None).unwrap();
    let (near, far) = finish((near, far));
    assert_eq!((near.ending, far.ending), (Ending::Complete, Ending::Complete));
    assert_eq!((sum(&near.totals).transactions, sum(&far.totals).transactions), (1, 1));
}
