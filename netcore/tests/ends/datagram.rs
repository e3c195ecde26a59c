//! Datagrams: streams and exchanges.

use std::net::UdpSocket;

use netcore::{
    error::EndError,
    measure::{clock::monotonic_ns, histogram},
    report::{DatagramPhase, Ending, Phase, SideReport},
    spec::{Arrival, Bytes, Direction, Io, Pace, PaceMode, Pattern, Stop, TestSpec, Transport},
};

use crate::pair::{MS, V4, connect, finish, join, lasting, measured, phase, prepare, run, start, sum, undisturbed};

/// Due times that a sender may make up for.
const CATCH_UP: u32 = 64;

/// A receiver that a busy machine stops loses nothing if all messages of the test fit its buffer: about 400 kB as the kernel counts,
/// 2.3 kB for a message of 1000 bytes.
fn paced(spec: &mut TestSpec, events_per_s: f64) {
    spec.pace =
        Some(Pace { events_per_s, mode: PaceMode::User, arrival: Arrival::Uniform, burst: 1, catch_up: CATCH_UP });
}

fn of_phase(report: &SideReport, of: Phase) -> DatagramPhase {
    phase(report, of).flows[0].datagrams.unwrap()
}

#[test]
fn every_message_is_accounted_for_in_every_direction() {
    for transport in [Transport::Udp, Transport::UdpLite, Transport::UnixDatagram] {
        for direction in [Direction::Forward, Direction::Reverse, Direction::Bidirectional] {
            for io in [Io::Auto, Io::Blocking] {
                let mut spec = lasting(Pattern::Stream, transport, 100);
                (spec.direction, spec.io, spec.integrity, spec.sizes.message_bytes) = (direction, io, true, 1000);
                paced(&mut spec, 1000.0);
                match connect(&spec, V4) {
                    Err(EndError::System { what, source }) if transport == Transport::UdpLite => {
                        crate::needs::skip(&format!("{what}: {source}"));
                        continue;
                    }
                    ends => drop(ends.unwrap()),
                }
                let (near, far) = run(&spec, V4);
                for (a, b) in near.totals.iter().zip(&far.totals) {
                    assert_eq!(
                        a.counts.messages_sent, b.counts.messages_received,
                        "{transport:?} {direction:?} {io:?}"
                    );
                    assert_eq!(
                        b.counts.messages_sent, a.counts.messages_received,
                        "{transport:?} {direction:?} {io:?}"
                    );
                    assert_eq!(a.counts.bytes_sent, 1000 * a.counts.messages_sent);
                    assert_eq!(a.counts.bytes_sent, b.counts.bytes_received);
                    assert_eq!(b.counts.reordered + b.counts.duplicated, 0);
                }
            }
        }
    }
}

#[test]
fn sockets_that_are_not_connected_hear_only_each_other() {
    for ip in [V4, "::1".parse().unwrap()] {
        for (pattern, direction) in [
            (Pattern::Stream, Direction::Forward),
            (Pattern::Stream, Direction::Reverse),
            (Pattern::RequestResponse, Direction::Forward),
        ] {
            let mut spec = lasting(pattern, Transport::Udp, 0);
            (spec.connected, spec.direction, spec.integrity, spec.sizes.message_bytes) = (false, direction, true, 100);
            let requests = pattern == Pattern::RequestResponse;
            spec.phases.stop = if requests { Stop::AfterTransactions(100) } else { Stop::AfterBytes(10_000) };
            paced(&mut spec, 1000.0);
            let (near, far, endpoints) = prepare(&spec, &spec, None, ip).unwrap();
            let (near, far) = join((near, far), &endpoints, ip).unwrap();
            // A daemon checks the peers of a far end before the load, connected or not.
            assert_eq!(far.peers(), [ip]);
            let stranger = UdpSocket::bind((ip, 0)).unwrap();
            for _ in 0..20 {
                stranger.send_to(&[b'?'; 100], (ip, endpoints.ports[0])).unwrap();
            }
            let (near, far) = finish(start((near, far)));
            assert_eq!(
                (&near.ending, &far.ending),
                (&Ending::Complete, &Ending::Complete),
                "{pattern:?} {direction:?}"
            );
            let (near, far) = (sum(&near.totals), sum(&far.totals));
            assert!(near.sends + far.sends >= 100);
            assert_eq!((near.bytes_sent, near.bytes_received), (far.bytes_received, far.bytes_sent));
            assert_eq!((near.errors, near.duplicated, far.duplicated), (0, 0, 0));
        }
    }
}

#[test]
fn loss_belongs_to_the_phase_of_sending_and_is_what_the_kernel_dropped() {
    let mut spec = lasting(Pattern::Stream, Transport::Udp, 200);
    (spec.phases.warmup_ns, spec.phases.cooldown_ns, spec.sizes.message_bytes) = (100 * MS, 100 * MS, 1400);
    // A buffer of a few messages and no pacing: much is lost.
    spec.far.socket.receive_buffer = Some(Bytes(20_000));
    let (near, far) = run(&spec, V4);
    let (mut sent, mut received) = (0, 0);
    for of in [Phase::Warmup, Phase::Measure, Phase::Cooldown] {
        let (a, b) = (of_phase(&near, of), of_phase(&far, of));
        assert!(b.received <= a.sent, "{of:?}");
        assert_eq!(b.duplicated, 0);
        (sent, received) = (sent + a.sent, received + b.received);
    }
    let (near, far) = (sum(&near.totals), sum(&far.totals));
    // After the last phase at most one call's messages follow.
    assert!(near.messages_sent - sent <= 32, "{sent} of {}", near.messages_sent);
    assert!(far.messages_received - received <= 32);
    assert!(far.messages_received < near.messages_sent, "a buffer that small must lose something");
}

#[test]
fn a_count_of_bytes_ends_both_ends() {
    let mut spec = lasting(Pattern::Stream, Transport::Udp, 0);
    (spec.phases.stop, spec.sizes.message_bytes) = (Stop::AfterBytes(50_001), 100);
    paced(&mut spec, 5000.0);
    let (near, far) = run(&spec, V4);
    assert_eq!(measured(&near).messages_sent, 501, "whole messages");
    assert_eq!(measured(&far).messages_received, 501);
    let lasted = phase(&far, Phase::Measure).elapsed_ns;
    // And not when the receiver gives up waiting for more, a second later.
    assert!(lasted <= phase(&near, Phase::Measure).elapsed_ns + 500 * MS, "it ends with the last message: {lasted}");
}

#[test]
fn messages_too_short_for_a_number_are_counted() {
    for size in [1, 8, 15, 16] {
        let mut spec = lasting(Pattern::Stream, Transport::Udp, 50);
        spec.sizes.message_bytes = size;
        paced(&mut spec, 1000.0);
        let (near, far) = run(&spec, V4);
        assert_eq!(sum(&near.totals).messages_sent, sum(&far.totals).messages_received);
        assert_eq!(sum(&far.totals).bytes_received, size * sum(&far.totals).messages_received);
    }
}

/// Every due time of the window was met or is reported as dropped, except those that the sender may still catch up with at either
/// edge.
fn accounts_for_its_schedule(near: &SideReport, events_per_s: f64) -> Result<(), String> {
    let window = phase(near, Phase::Measure);
    let pacing = window.flows[0].pacing.unwrap();
    let due = events_per_s * window.elapsed_ns as f64 / 1e9;
    // The first send of all has no gap before it.
    let reached = pacing.sent as f64 / due - 1.0;
    assert!((pacing.rate_error_ratio - reached).abs() <= 1.5 / due, "{due}: {pacing:?}");
    // A sender that is stopped at the end of the window drops its due times only after it.
    let told = (pacing.sent + pacing.dropped) as f64;
    let whole = pacing.sent > 0 && (told - due).abs() <= f64::from(CATCH_UP) + 2.0;
    whole.then_some(()).ok_or_else(|| format!("{due}: {pacing:?}"))
}

#[test]
fn a_paced_sender_says_how_well_it_kept_its_schedule() {
    let mut spec = lasting(Pattern::Stream, Transport::Udp, 300);
    paced(&mut spec, 1000.0);
    undisturbed(|| {
        let (near, far) = run(&spec, V4);
        let pacing = phase(&near, Phase::Measure).flows[0].pacing.unwrap();
        assert!(pacing.gap_p50_ns <= pacing.gap_p99_ns && pacing.gap_p99_ns <= pacing.gap_max_ns);
        assert!((0.0..=1.0).contains(&pacing.gaps_within_tenth_ratio));
        assert!(phase(&far, Phase::Measure).flows[0].pacing.is_none());
        assert!(phase(&far, Phase::Measure).flows[0].jitter_ns.is_some());
        assert!(phase(&near, Phase::Measure).flows[0].latencies.is_empty());
        accounts_for_its_schedule(&near, 1000.0)
    });
    // The same for a stream of bytes.
    let mut spec = lasting(Pattern::Stream, Transport::Tcp, 300);
    spec.sizes.message_bytes = 1000;
    paced(&mut spec, 1000.0);
    undisturbed(|| accounts_for_its_schedule(&run(&spec, V4).0, 1000.0));
}

#[test]
fn a_burst_is_as_long_as_it_was_asked_for_whatever_a_call_takes() {
    for io in [Io::Auto, Io::Blocking] {
        let mut spec = lasting(Pattern::Stream, Transport::Udp, 300);
        (spec.io, spec.sizes.message_bytes) = (io, 64);
        let (mode, arrival) = (PaceMode::User, Arrival::Uniform);
        spec.pace = Some(Pace { events_per_s: 1000.0, mode, arrival, burst: 10, catch_up: 2 });
        undisturbed(|| {
            let (near, _) = run(&spec, V4);
            let window = phase(&near, Phase::Measure);
            let pacing = window.flows[0].pacing.unwrap();
            // Each due burst has gone or is reported as dropped, except those at either edge.
            let (due, told) = (window.elapsed_ns / MS, measured(&near).messages_sent + 10 * pacing.dropped);
            (told.abs_diff(due) <= 40).then_some(()).ok_or_else(|| format!("{io:?}: {due} were due: {pacing:?}"))
        });
    }
}

#[test]
fn the_kernel_paces_tcp() {
    let mut spec = lasting(Pattern::Stream, Transport::Tcp, 500);
    paced(&mut spec, 1000.0);
    let pace = spec.pace.as_mut().unwrap();
    (pace.mode, pace.arrival) = (PaceMode::Kernel, Arrival::Closed);
    spec.sizes.message_bytes = 10_000;
    let (_, far) = run(&spec, V4);
    let window = phase(&far, Phase::Measure);
    let rate = sum(&window.flows).bytes_received as f64 / (window.elapsed_ns as f64 / 1e9);
    // 10 MB/s were asked for; without pacing there would be hundreds of times as much.
    assert!(rate < 30e6, "{rate}");
    spec.transport = Transport::Udp;
    let (near, _far) = connect(&spec, V4).unwrap();
    match near.start(monotonic_ns(), None) {
        Ok(_) => println!("the loopback has fq here: it paces datagrams too"),
        Err(error) => assert!(error.to_string().contains("mode: user"), "{error}"),
    }
}

#[test]
fn requests_are_answered_and_lost_ones_replaced() {
    for transport in [Transport::Udp, Transport::UnixDatagram] {
        for (inflight, bytes) in [(1, 1), (1, 100), (4, 100)] {
            let mut spec = lasting(Pattern::RequestResponse, transport, 0);
            (spec.phases.stop, spec.inflight) = (Stop::AfterTransactions(300), inflight);
            (spec.sizes.request_bytes, spec.sizes.response_bytes) = (bytes, bytes * 3);
            let (near, far) = run(&spec, V4);
            assert_eq!(measured(&near).transactions, 300, "{transport:?}");
            assert_eq!(sum(&near.totals).errors, 0);
            assert_eq!(sum(&far.totals).transactions, 300);
            let flow = &phase(&near, Phase::Measure).flows[0];
            assert_eq!(histogram::decode(&flow.latencies[0].histogram).unwrap().len(), 300);
        }
    }
}

#[test]
fn a_lost_answer_is_counted_and_does_not_stall_the_test() {
    let mut spec = lasting(Pattern::RequestResponse, Transport::Udp, 400);
    (spec.reply_timeout_ns, spec.sizes.request_bytes, spec.sizes.response_bytes) = (20 * MS, 16, 16);
    let (near, far) = connect(&spec, V4).unwrap();
    // The far end begins to answer only after 200 ms: until then every request is lost for its sender.
    let t0 = monotonic_ns() + 10 * MS;
    let (near, far) = (near.start(t0, None).unwrap(), far.start(t0 + 200 * MS, None).unwrap());
    let (near, _) = finish((near, far));
    assert_eq!(near.ending, Ending::Complete);
    let counts = measured(&near);
    assert!(counts.errors >= 2, "{counts:?}");
    assert!(counts.transactions > 0, "{counts:?}");
}

#[test]
fn spinning_exchanges_work() {
    let mut spec = lasting(Pattern::RequestResponse, Transport::Udp, 0);
    (spec.phases.stop, spec.io) = (Stop::AfterTransactions(50), Io::Spin);
    // An answer that is late on a busy machine is waited for: no request is sent twice.
    spec.reply_timeout_ns = 60_000 * MS;
    let (near, far) = run(&spec, V4);
    assert_eq!((measured(&near).transactions, sum(&far.totals).transactions), (50, 50));
}

#[test]
fn a_strangers_datagrams_do_not_count() {
    let mut spec = lasting(Pattern::Stream, Transport::Udp, 50);
    paced(&mut spec, 1000.0);
    let (near, far, endpoints) = prepare(&spec, &spec, None, V4).unwrap();
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    stranger.send_to(&[0; 28], (V4, endpoints.ports[0])).unwrap();
    let ends = join((near, far), &endpoints, V4).unwrap();
    for _ in 0..10 {
        stranger.send_to(&[0; 1472], (V4, endpoints.ports[0])).unwrap();
    }
    let (near, far) = finish(start(ends));
    assert_eq!(sum(&near.totals).messages_sent, sum(&far.totals).messages_received);
}

#[test]
fn what_does_not_fit_a_datagram_is_refused_by_its_key() {
    let mut spec = lasting(Pattern::Stream, Transport::Udp, 50);
    spec.sizes.message_bytes = 65_508;
    let EndError::Unsupported(error) = connect(&spec, V4).err().unwrap() else { panic!() };
    assert_eq!(error.key, "message_size");
    assert!(error.reason.contains("65507"), "{}", error.reason);
}

#[test]
fn the_receive_buffer_is_asked_for() {
    let mut spec = lasting(Pattern::Stream, Transport::Udp, 20);
    paced(&mut spec, 100.0);
    let (_, far) = run(&spec, V4);
    let granted = far.options.iter().find(|granted| granted.option == "receive_buffer").unwrap();
    assert_eq!(granted.requested.as_deref(), Some("4194304"));
}

#[test]
fn frames_carry_streams_and_requests() {
    let mut spec = lasting(Pattern::Stream, Transport::Link, 100);
    assert!(connect(&spec, V4).err().unwrap().to_string().contains("socket.device"));
    spec.near.socket.device = Some("lo".into());
    spec.far.socket.device = Some("lo".into());
    for (bytes, direction) in [(1000, Direction::Bidirectional), (10, Direction::Reverse)] {
        (spec.sizes.message_bytes, spec.direction, spec.integrity, spec.streams) = (bytes, direction, true, 2);
        (spec.near.buffers.ring, spec.far.buffers.ring, spec.far.buffers.offset) = (3, 5, 7);
        paced(&mut spec, 1000.0);
        match connect(&spec, V4) {
            Err(EndError::System { what, source }) => {
                crate::needs::skip(&format!("{what}: {source}"));
                assert!(what.contains("CAP_NET_RAW"), "{what}");
                return;
            }
            ends => drop(ends.unwrap()),
        }
        let (near, far) = run(&spec, V4);
        for report in [&near, &far] {
            assert_eq!(report.nic.as_ref().map(|nic| nic.name.as_str()), Some("lo"));
        }
        for (a, b) in near.totals.iter().zip(&far.totals) {
            assert_eq!(a.counts.messages_sent, b.counts.messages_received);
            assert_eq!(b.counts.messages_sent, a.counts.messages_received);
            assert_eq!(a.counts.bytes_sent, b.counts.bytes_received);
        }
    }
    for bytes in [1, 40] {
        let mut spec = lasting(Pattern::RequestResponse, Transport::Link, 0);
        (spec.near.socket.device, spec.far.socket.device) = (Some("lo".into()), Some("lo".into()));
        (spec.phases.stop, spec.sizes.request_bytes, spec.sizes.response_bytes) =
            (Stop::AfterTransactions(200), bytes, bytes);
        if bytes > 8 {
            (spec.near.buffers.ring, spec.far.buffers.ring, spec.integrity) = (3, 5, true);
        }
        let (near, far) = run(&spec, V4);
        assert_eq!((measured(&near).transactions, sum(&far.totals).transactions), (200, 200));
    }
    let mut absent = spec.clone();
    absent.near.socket.device = Some("nosuch0".into());
    assert!(connect(&absent, V4).err().unwrap().to_string().contains("`nosuch0`"));
}

#[test]
fn calls_are_timed_on_request() {
    let mut spec = lasting(Pattern::Stream, Transport::Udp, 60);
    paced(&mut spec, 1000.0);
    spec.collect.latency = true;
    let (near, far) = run(&spec, V4);
    for (report, kind) in [(&near, "send"), (&far, "receive")] {
        let latencies = &phase(report, Phase::Measure).flows[0].latencies;
        assert_eq!((latencies.len(), latencies[0].kind.as_str()), (1, kind));
        assert!(!histogram::decode(&latencies[0].histogram).unwrap().is_empty());
    }
}
