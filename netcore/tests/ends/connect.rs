//! Connections opened and closed.

use std::{
    collections::BTreeSet,
    fs,
    net::{Ipv4Addr, TcpStream},
    time::Duration,
};

use netcore::{
    end::End,
    measure::histogram,
    report::{Ending, Phase, Side},
    spec::{Close, Io, Pattern, Stop, TestSpec, Transport},
};

use crate::pair::{MS, PATIENCE, TOKEN, V4, connect, finish, lasting, measured, phase, run, start, sum};

fn counted(pattern: Pattern, transactions: u64) -> TestSpec {
    let mut spec = TestSpec::new(pattern, Transport::Tcp);
    spec.phases.stop = Stop::AfterTransactions(transactions);
    (spec.sizes.request_bytes, spec.sizes.response_bytes) = (30, 3000);
    spec
}

/// A counter of `/proc/net/snmp`'s TCP lines.
fn snmp(key: &str) -> u64 {
    let text = fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp:"));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let position = names.split_whitespace().position(|name| name == key).unwrap();
    values.split_whitespace().nth(position).unwrap().parse().unwrap()
}

#[test]
fn every_connection_is_counted_at_both_ends() {
    for pattern in [Pattern::Connect, Pattern::ConnectRequestResponse] {
        for close in [Close::FarFirst, Close::NearFirst, Close::Reset] {
            for io in [Io::Blocking, Io::Spin] {
                // Spinning threads starve each other on a machine with few CPUs: a few rounds of one pair suffice.
                let (count, streams) = if io == Io::Spin { (23, 1) } else { (203, 2) };
                let mut spec = counted(pattern, count);
                (spec.close, spec.io, spec.streams) = (close, io, streams);
                let (active, passive) = (snmp("ActiveOpens"), snmp("PassiveOpens"));
                let (near, far) = run(&spec, V4);
                assert_eq!(measured(&near).transactions, count, "{pattern:?} {close:?}");
                assert_eq!(measured(&near).connections, count);
                assert_eq!(sum(&far.totals).connections, count, "{pattern:?} {close:?} {io:?}");
                // The kernel's own count; other tests run beside this one.
                assert!(snmp("ActiveOpens") - active >= count && snmp("PassiveOpens") - passive >= count);
                let data = pattern == Pattern::ConnectRequestResponse;
                let bytes = sum(&near.totals);
                assert_eq!(bytes.bytes_sent, if data { count * 30 } else { 0 });
                assert_eq!(bytes.bytes_received, if data { count * 3000 } else { 0 });
                assert_eq!(sum(&far.totals).bytes_sent, bytes.bytes_received);
                let latencies = phase(&near, Phase::Measure).flows.iter().flat_map(|flow| &flow.latencies);
                let kind = if data { "round_trip" } else { "connect" };
                let timed: u64 = latencies
                    .map(|latencies| {
                        assert_eq!(latencies.kind, kind);
                        histogram::decode(&latencies.histogram).unwrap().len()
                    })
                    .sum();
                assert_eq!(timed, count);
                assert!(near.time_wait.is_some() && far.time_wait.is_some());
            }
        }
    }
}

#[test]
fn time_ends_both_ends() {
    let spec = lasting(Pattern::ConnectRequestResponse, Transport::Tcp, 100);
    let (near, far) = run(&spec, V4);
    assert!(measured(&near).transactions > 0 && measured(&far).transactions > 0);
    assert_eq!(sum(&near.totals).transactions, sum(&far.totals).transactions);
}

#[test]
fn ports_and_addresses_are_used_in_turn() {
    let mut spec = counted(Pattern::Connect, 40);
    spec.near.bind = vec!["127.0.0.5".parse().unwrap(), "127.0.0.6".parse().unwrap()];
    (spec.near.port, spec.near.port_count) = (Some(21_000), Some(10));
    // The near end keeps TIME_WAIT, so that the pairs can be seen afterwards.
    spec.close = Close::NearFirst;
    let (near, _) = run(&spec, V4);
    assert_eq!(measured(&near).transactions, 40);
    let text = fs::read_to_string("/proc/net/tcp").unwrap();
    let used: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.split_whitespace().nth(1))
        .filter(|local| {
            ["0500007F:520", "0600007F:520", "0500007F:521", "0600007F:521"]
                .iter()
                .any(|prefix| local.starts_with(prefix))
        })
        .collect();
    assert_eq!(used.len(), 20, "2 addresses × 10 ports: {used:?}");
    assert_eq!(near.time_wait.unwrap().ports, 10);
}

#[test]
fn resets_leave_no_time_wait() {
    let mut spec = counted(Pattern::ConnectRequestResponse, 300);
    spec.close = Close::Reset;
    // An address of this process alone: what another one has closed waits for a minute.
    let [.., high, low] = std::process::id().to_be_bytes();
    spec.near.bind = vec![Ipv4Addr::new(127, 77, high, low.clamp(1, 254)).into()];
    let _ = run(&spec, V4);
    let text = fs::read_to_string("/proc/net/tcp").unwrap();
    let own = format!("{:02X}{high:02X}4D7F:", low.clamp(1, 254));
    let waiting = text.lines().filter(|line| line.contains(&own) && line.contains(" 06 ")).count();
    // Only the connection by which the ends proved themselves closes in the orderly way.
    assert!(waiting <= 1, "{waiting}");
}

#[test]
fn a_strangers_connection_does_not_count() {
    let spec = counted(Pattern::Connect, 50);
    let mut far = End::prepare(&spec, Side::Far, Some(V4), *TOKEN).unwrap();
    let mut near = End::prepare(&spec, Side::Near, Some("127.0.0.9".parse().unwrap()), *TOKEN).unwrap();
    let endpoints = far.endpoints();
    near.connect(Some((V4, &endpoints)), PATIENCE).unwrap();
    far.connect(None, PATIENCE).unwrap();
    // From 127.0.0.1, which has proven nothing.
    let strangers: Vec<_> = (0..20).map(|_| TcpStream::connect((V4, endpoints.ports[0])).unwrap()).collect();
    let (_, far) = finish(start((near, far)));
    assert_eq!(sum(&far.totals).connections, 50);
    drop(strangers);
}

#[test]
fn a_waiting_acceptor_can_be_freed() {
    let spec = lasting(Pattern::Connect, Transport::Tcp, 3_600_000);
    let (near, far) = connect(&spec, V4).unwrap();
    let far = far.start(netcore::measure::clock::monotonic_ns(), None).unwrap();
    std::thread::sleep(Duration::from_millis(30));
    far.abort();
    assert!(far.wait(PATIENCE));
    drop(near);
}

#[test]
fn unix_sockets_connect_too() {
    let mut spec = counted(Pattern::ConnectRequestResponse, 100);
    spec.transport = Transport::UnixStream;
    spec.phases.warmup_ns = 10 * MS;
    let (near, far) = run(&spec, V4);
    assert_eq!(measured(&near).transactions, 100);
    assert_eq!(sum(&near.totals).transactions, sum(&far.totals).transactions);
}

#[test]
fn an_acceptor_whose_peer_has_ended_ends_too() {
    for transport in [Transport::Tcp, Transport::Mptcp, Transport::UnixStream] {
        let spec = lasting(Pattern::ConnectRequestResponse, transport, 300);
        let ends = match connect(&spec, V4) {
            Ok(ends) => ends,
            Err(error) if transport == Transport::Mptcp => {
                eprintln!("skipped: {error}");
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        let (near, far) = start(ends);
        near.stop_at(netcore::measure::clock::monotonic_ns() + 50 * MS);
        // Nobody connects any more, and nobody tells it.
        assert!(far.wait(PATIENCE), "{transport:?}");
        assert_eq!(far.finish().ending, Ending::Complete, "{transport:?}");
        assert!(sum(&near.finish().totals).connections > 0, "{transport:?}");
    }
}
