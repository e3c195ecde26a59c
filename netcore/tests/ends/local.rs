//! Pipes, and echoes by the kernel.

use std::{
    net::{IpAddr, Ipv6Addr},
    time::Duration,
};

use netcore::{
    error::EndError,
    measure::{clock::monotonic_ns, histogram},
    report::{Ending, Phase, SideReport},
    spec::{Arrival, Bytes, Direction, Pace, PaceMode, Pattern, Stop, TestSpec, Transport},
};

use crate::pair::{MS, PATIENCE, V4, connect, finish, lasting, measured, phase, run, start, sum};

#[test]
fn pipes_carry_streams_in_every_direction() {
    for direction in [Direction::Forward, Direction::Reverse, Direction::Bidirectional, Direction::Duplex] {
        let mut spec = lasting(Pattern::Stream, Transport::Pipe, 50);
        (spec.direction, spec.integrity) = (direction, true);
        let (near, far) = run(&spec, V4);
        for (a, b) in near.totals.iter().zip(&far.totals) {
            assert_eq!(a.counts.bytes_sent, b.counts.bytes_received, "{direction:?}");
            assert_eq!(a.counts.bytes_received, b.counts.bytes_sent, "{direction:?}");
        }
    }
}

#[test]
fn pipes_carry_requests() {
    for inflight in [1, 4] {
        let mut spec = lasting(Pattern::RequestResponse, Transport::Pipe, 0);
        (spec.phases.stop, spec.inflight) = (Stop::AfterTransactions(500), inflight);
        spec.near.socket.send_buffer = Some(Bytes(8192));
        let (near, far) = run(&spec, V4);
        assert_eq!((measured(&near).transactions, sum(&far.totals).transactions), (500, 500));
        assert_eq!(near.options[0].at_start.as_deref(), Some("8192"));
    }
    let mut spec = lasting(Pattern::RequestResponse, Transport::Pipe, 10);
    (spec.inflight, spec.sizes.request_bytes) = (100, 10_000);
    assert!(connect(&spec, V4).err().unwrap().to_string().contains("lock both ends up"));
}

#[test]
fn threads_that_are_blocked_on_pipes_can_be_freed() {
    let spec = lasting(Pattern::Stream, Transport::Pipe, 3_600_000);
    let (near, far) = connect(&spec, V4).unwrap();
    let near = near.start(monotonic_ns(), None).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    // There is no reader: the writer is blocked.
    near.abort();
    assert!(near.wait(PATIENCE));
    drop(far);
    let (near, far) = connect(&spec, V4).unwrap();
    let far = far.start(monotonic_ns(), None).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    // There is no writer: the reader is blocked.
    far.abort();
    assert!(far.wait(PATIENCE));
    drop(near);
}

fn echoes(ms: u64) -> TestSpec {
    lasting(Pattern::Ping, Transport::Icmp, ms)
}

/// Runs the test; `None`: this user may not.
fn ping(spec: &TestSpec, ip: IpAddr) -> Option<SideReport> {
    match connect(spec, ip) {
        Ok(ends) => {
            let (near, far) = finish(start(ends));
            assert_eq!((&near.ending, &far.ending), (&Ending::Complete, &Ending::Complete));
            Some(near)
        }
        Err(EndError::System { what, source }) => {
            crate::needs::skip(&format!("{what}: {source}"));
            assert!(what.contains("ping_group_range"), "{what}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn the_kernel_answers_every_echo() {
    for ip in [V4, Ipv6Addr::LOCALHOST.into()] {
        for (inflight, bytes) in [(1, 56), (1, 0), (8, 1400)] {
            let mut spec = echoes(0);
            (spec.phases.stop, spec.inflight, spec.sizes.message_bytes) =
                (Stop::AfterTransactions(200), inflight, bytes);
            let Some(near) = ping(&spec, ip) else { return };
            assert_eq!(near.nic.as_ref().map(|nic| nic.name.as_str()), Some("lo"));
            let counts = measured(&near);
            assert_eq!((counts.transactions, counts.messages_sent, counts.messages_received), (200, 200, 200), "{ip}");
            assert_eq!((counts.errors, counts.bytes_sent, counts.bytes_received), (0, 200 * bytes, 200 * bytes));
            let flow = &phase(&near, Phase::Measure).flows[0];
            assert_eq!(flow.latencies[0].kind, "round_trip");
            assert_eq!(histogram::decode(&flow.latencies[0].histogram).unwrap().len(), 200);
            let datagrams = flow.datagrams.unwrap();
            assert_eq!((datagrams.sent, datagrams.received), (200, 200));
        }
    }
}

#[test]
fn echoes_at_an_interval() {
    let mut spec = echoes(1000);
    spec.pace =
        Some(Pace { events_per_s: 50.0, mode: PaceMode::User, arrival: Arrival::Closed, burst: 1, catch_up: 5 });
    let Some(near) = ping(&spec, V4) else { return };
    let sent = sum(&near.totals).messages_sent;
    // A machine that stops its CPUs lengthens the window, and what was due meanwhile follows.
    let most = phase(&near, Phase::Measure).elapsed_ns / (20 * MS) + 1 + 5;
    assert!((2..=most).contains(&sent), "{sent} of {most}");
}

#[test]
fn an_echo_that_is_not_answered_is_lost() {
    // No host answers at an address that is never routed: 240/4.
    let mut spec = echoes(200);
    (spec.reply_timeout_ns, spec.phases.warmup_ns) = (20 * MS, 10 * MS);
    spec.near.socket.ttl = Some(1);
    match connect(&spec, "240.0.0.1".parse().unwrap()) {
        Ok(ends) => {
            let (near, _) = finish(start(ends));
            let counts = sum(&near.totals);
            assert!(counts.errors > 0 || matches!(near.ending, Ending::Failed(_)), "{near:?}");
            assert_eq!(counts.messages_received, 0);
        }
        Err(EndError::System { what, .. }) => {
            assert!(what.contains("no way to") || what.contains("ping_group_range"), "{what}");
        }
        Err(error) => panic!("{error}"),
    }
}
