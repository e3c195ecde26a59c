//! Connections opened and closed.

use std::{
    collections::BTreeSet,
    fs,
    io::{Read, Write},
    net::TcpStream,
    os::fd::{AsRawFd, OwnedFd},
    time::Duration,
};

use netcore::{
    end::{End, Endpoints, Running},
    measure::histogram,
    report::{Ending, Phase, SideReport},
    spec::{Close, Dialect, Io, Pattern, Side, Stop, TestSpec, Transport},
};
use nix::sys::socket::{
    AddressFamily, Backlog, Shutdown, SockFlag, SockType, SockaddrIn, bind, getsockname, listen, shutdown, socket,
};

use crate::pair::{
    MS, PATIENCE, V4, connect, finish, join, lasting, measured, phase, prepare, run, start, sum, token, undisturbed,
};

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
            // Spinning threads starve each other on a machine with few CPUs: a few rounds of one pair suffice.
            for (io, count, streams, threads) in
                [(Io::Blocking, 203, 2, None), (Io::Spin, 23, 1, None), (Io::Nonblocking, 203, 6, Some(2))]
            {
                let mut spec = counted(pattern, count);
                (spec.close, spec.io, spec.streams, spec.threads) = (close, io, streams, threads);
                let (active, passive) = (snmp("ActiveOpens"), snmp("PassiveOpens"));
                let (near, far) = run(&spec, V4);
                assert_eq!(measured(&near).transactions, count, "{pattern:?} {close:?}");
                assert_eq!(measured(&near).connections, count);
                assert_eq!((near.threads, far.threads), (threads.unwrap_or(streams), threads.unwrap_or(streams)));
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

/// Whether an end's flows had to be cut off.
fn was_cut(report: &SideReport) -> bool {
    report.notes.iter().any(|note| note.contains("did not drain") || note.contains("left behind"))
}

#[test]
fn time_ends_both_ends() {
    for (streams, threads, ms) in [(1, None, 100), (8, Some(1), 500)] {
        let mut spec = lasting(Pattern::ConnectRequestResponse, Transport::Tcp, ms);
        (spec.streams, spec.threads) = (streams, threads);
        let (near, far) = run(&spec, V4);
        assert!(measured(&near).transactions > 0 && measured(&far).transactions > 0);
        assert_eq!(sum(&near.totals).transactions, sum(&far.totals).transactions);
        assert!(![near, far].iter().any(was_cut));
    }
}

/// The sockets that are, or were, connected to that port of 127.0.0.1, as `/proc/net/tcp` has them: local address and state.
fn sockets_to(port: u16) -> Vec<(String, String)> {
    let text = fs::read_to_string("/proc/net/tcp").unwrap();
    let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines
        .filter(|words| words[2] == format!("0100007F:{port:04X}"))
        .map(|words| (words[1].to_owned(), words[3].to_owned()))
        .collect()
}

#[test]
fn ports_and_addresses_are_used_in_turn() {
    for (streams, threads, hosts) in [(1, None, [5, 6]), (4, Some(1), [7, 8])] {
        let mut spec = counted(Pattern::Connect, 20 * u64::from(streams));
        (spec.streams, spec.threads) = (streams, threads);
        spec.near.bind = hosts.map(|host| [127, 0, 0, host].into()).to_vec();
        (spec.near.port, spec.near.port_count) = (Some(21_000), Some(10));
        // The near end keeps TIME_WAIT, so that the pairs can be seen afterwards.
        spec.close = Close::NearFirst;
        let ends = connect(&spec, V4).unwrap();
        let ports = ends.1.endpoints().ports;
        let (near, _) = finish(start(ends));
        assert_eq!(measured(&near).transactions, 20 * u64::from(streams));
        for port in ports {
            let is_own = |local: &str| hosts.iter().any(|host| local.starts_with(&format!("{host:02X}00007F:52")));
            let mut used = BTreeSet::new();
            // The kernel writes the table in pieces: one reading misses entries while other tests open and close sockets.
            for _ in 0..10 {
                used.extend(sockets_to(port).into_iter().map(|(local, _)| local).filter(|local| is_own(local)));
            }
            assert_eq!(used.len(), 20, "2 addresses × 10 ports: {used:?}");
        }
        assert_eq!(near.time_wait.unwrap().ports, 10);
    }
}

#[test]
fn resets_leave_no_time_wait() {
    let mut spec = counted(Pattern::ConnectRequestResponse, 300);
    spec.close = Close::Reset;
    for (streams, threads) in [(1, None), (4, Some(1))] {
        (spec.streams, spec.threads) = (streams, threads);
        let ends = connect(&spec, V4).unwrap();
        let ports = ends.1.endpoints().ports;
        let in_time_wait = |port: &u16| -> BTreeSet<String> {
            sockets_to(*port).into_iter().filter(|(_, state)| state == "06").map(|(local, _)| local).collect()
        };
        // The kernel hands a port out again while connections of an earlier test wait there.
        let before: Vec<_> = ports.iter().map(in_time_wait).collect();
        let (near, _) = finish(start(ends));
        assert_eq!((&near.ending, measured(&near).transactions), (&Ending::Complete, 300));
        for (port, before) in ports.iter().zip(before) {
            let waiting: Vec<_> = in_time_wait(port).difference(&before).cloned().collect();
            // Only the connection by which the ends proved themselves closes in the orderly way.
            assert!(waiting.len() <= 1, "{waiting:?}");
        }
    }
}

#[test]
fn a_strangers_connection_does_not_count() {
    let spec = counted(Pattern::Connect, 50);
    let (near, far, endpoints) = prepare(&spec, &spec, Some("127.0.0.9".parse().unwrap()), V4).unwrap();
    let ends = join((near, far), &endpoints, V4).unwrap();
    // From 127.0.0.1, which has proven nothing.
    let strangers: Vec<_> = (0..20).map(|_| TcpStream::connect((V4, endpoints.ports[0])).unwrap()).collect();
    let (_, far) = finish(start(ends));
    assert_eq!(sum(&far.totals).connections, 50);
    drop(strangers);
}

/// The clocks of the ends differ, and a loaded machine wakes one end late: the far end's own time is no reason to break a transaction.
#[test]
fn a_connection_is_answered_after_the_far_ends_time() {
    let spec = lasting(Pattern::ConnectRequestResponse, Transport::Tcp, 50);
    let (near, far, endpoints) = prepare(&spec, &spec, None, V4).unwrap();
    let (near, far) = join((near, far), &endpoints, V4).unwrap();
    let far = far.start(netcore::measure::clock::monotonic_ns(), None).unwrap();
    let mut late = TcpStream::connect((V4, endpoints.ports[0])).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    late.write_all(&[0]).unwrap();
    late.read_exact(&mut [0]).unwrap();
    drop(near);
    assert!(far.wait(PATIENCE));
}

#[test]
fn a_waiting_acceptor_can_be_freed() {
    let mut spec = lasting(Pattern::Connect, Transport::Tcp, 3_600_000);
    for (streams, threads) in [(1, None), (3, Some(1))] {
        (spec.streams, spec.threads) = (streams, threads);
        let (near, far) = connect(&spec, V4).unwrap();
        let far = far.start(netcore::measure::clock::monotonic_ns(), None).unwrap();
        std::thread::sleep(Duration::from_millis(30));
        far.abort();
        assert!(far.wait(PATIENCE));
        drop(near);
    }
}

/// A listener whose queue is full, so that the kernel drops further connections; the returned values keep it open.
fn deaf() -> (OwnedFd, Vec<TcpStream>, u16) {
    let listener = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
    bind(listener.as_raw_fd(), &SockaddrIn::new(127, 0, 0, 1, 0)).unwrap();
    listen(&listener, Backlog::new(0).unwrap()).unwrap();
    let port = getsockname::<SockaddrIn>(listener.as_raw_fd()).unwrap().port();
    let to = (V4, port).into();
    let queued = (0..4).map_while(|_| TcpStream::connect_timeout(&to, Duration::from_millis(100)).ok()).collect();
    (listener, queued, port)
}

/// The near end of a test whose far end is a service on that port.
fn alone(spec: &mut TestSpec, port: u16) -> Running {
    (spec.dialect, spec.close, spec.far.port) = (Dialect::Service, Close::NearFirst, Some(port));
    let mut near = End::prepare(spec, Side::Near, None, token()).unwrap();
    near.connect(Some((V4, &Endpoints::default())), PATIENCE).unwrap();
    near.start(netcore::measure::clock::monotonic_ns(), None).unwrap()
}

#[test]
fn connecting_to_where_nothing_answers_ends_with_the_test() {
    let (_listener, queued, port) = deaf();
    assert!(queued.len() < 4, "the queue is full");
    for (streams, threads) in [(1, None), (3, Some(1))] {
        let mut spec = lasting(Pattern::Connect, Transport::Tcp, 3_600_000);
        (spec.streams, spec.threads) = (streams, threads);
        let near = alone(&mut spec, port);
        std::thread::sleep(Duration::from_millis(100));
        near.abort();
        assert!(near.wait(PATIENCE));
        let report = near.finish();
        assert_eq!(sum(&report.totals).connections, 0, "a connection that is not there is none");
        let left_behind = report.notes.iter().any(|note| note.contains("left behind"));
        assert!(!left_behind);
    }
}

/// Connections to that port that are begun and not yet made.
fn begun(port: u16) -> usize {
    sockets_to(port).iter().filter(|(_, state)| state == "02").count()
}

#[test]
fn a_connection_is_there_when_the_kernel_says_so_and_its_latency_is_the_time_until_then() {
    const HELD: Duration = Duration::from_millis(150);
    for (streams, threads) in [(3, None), (3, Some(1))] {
        let (listener, queued, port) = deaf();
        let mut spec = counted(Pattern::Connect, 3);
        (spec.streams, spec.threads) = (streams, threads);
        let near = alone(&mut spec, port);
        while begun(port) < 3 {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(HELD);
        drop(queued);
        // From here on a service accepts them, each until the near end has closed it.
        let listener = std::net::TcpListener::from(listener);
        let closer = listener.try_clone().unwrap();
        let service = std::thread::spawn(move || {
            while let Ok((mut connection, _)) = listener.accept() {
                // A reset that came before the connection was in the queue is lost: nobody closes that one.
                connection.set_read_timeout(Some(HELD)).unwrap();
                let _ = connection.read(&mut [0]);
            }
        });
        let ended = near.wait(PATIENCE);
        shutdown(closer.as_raw_fd(), Shutdown::Both).unwrap();
        service.join().unwrap();
        assert!(ended);
        let report = near.finish();
        assert_eq!((&report.ending, measured(&report).connections), (&Ending::Complete, 3));
        for flow in &phase(&report, Phase::Measure).flows {
            let latencies = histogram::decode(&flow.latencies[0].histogram).unwrap();
            assert!(u128::from(latencies.min()) >= HELD.as_nanos(), "{} ns", latencies.min());
        }
    }
}

#[test]
fn a_connection_that_is_refused_fails_the_end_by_name() {
    let port = std::net::TcpListener::bind((V4, 0)).unwrap().local_addr().unwrap().port();
    for (streams, threads) in [(1, None), (3, Some(1))] {
        let mut spec = lasting(Pattern::Connect, Transport::Tcp, 3_600_000);
        (spec.streams, spec.threads) = (streams, threads);
        let near = alone(&mut spec, port);
        assert!(near.wait(PATIENCE));
        let ending = near.finish().ending;
        assert!(
            matches!(&ending, Ending::Failed(why) if why.contains("cannot connect: Connection refused")),
            "{ending:?}"
        );
    }
}

#[test]
fn a_range_of_ports_that_are_all_taken_fails_the_end_by_name() {
    for (streams, threads) in [(1, None), (3, Some(1))] {
        let taken = std::net::TcpListener::bind(("127.0.0.78", 0)).unwrap();
        let mut spec = counted(Pattern::Connect, 100);
        (spec.streams, spec.threads) = (streams, threads);
        spec.near.bind = vec!["127.0.0.78".parse().unwrap()];
        (spec.near.port, spec.near.port_count) = (Some(taken.local_addr().unwrap().port()), Some(1));
        let (near, far) = start(connect(&spec, V4).unwrap());
        assert!(near.wait(PATIENCE));
        far.abort();
        let near = near.finish();
        assert!(
            matches!(&near.ending, Ending::Failed(why) if why.contains("local ports in a row are taken")),
            "{:?}",
            near.ending
        );
    }
}

#[test]
fn unix_sockets_connect_too() {
    let mut spec = counted(Pattern::ConnectRequestResponse, 100);
    spec.transport = Transport::UnixStream;
    spec.phases.warmup_ns = 10 * MS;
    for (streams, threads) in [(1, None), (4, Some(2))] {
        (spec.streams, spec.threads) = (streams, threads);
        let (near, far) = run(&spec, V4);
        assert_eq!(measured(&near).transactions, 100);
        assert_eq!(sum(&near.totals).transactions, sum(&far.totals).transactions);
    }
}

#[test]
fn an_acceptor_whose_peer_has_ended_ends_too() {
    let transports = [Transport::Tcp, Transport::Mptcp, Transport::UnixStream];
    for (transport, threads) in transports.into_iter().flat_map(|transport| [(transport, None), (transport, Some(1))]) {
        let mut spec = lasting(Pattern::ConnectRequestResponse, transport, 700);
        (spec.streams, spec.threads) = (3, threads);
        undisturbed(|| {
            let ends = match connect(&spec, V4) {
                Ok(ends) => ends,
                Err(error) if transport == Transport::Mptcp => {
                    crate::needs::skip(&error.to_string());
                    return Ok(());
                }
                Err(error) => panic!("{error}"),
            };
            let (near, far) = start(ends);
            near.stop_at(netcore::measure::clock::monotonic_ns() + 400 * MS);
            // The near end connects no more, and no message tells the far end.
            assert!(far.wait(PATIENCE), "{transport:?}");
            assert_eq!(far.finish().ending, Ending::Complete, "{transport:?}");
            let connected = sum(&near.finish().totals).connections > 0;
            connected.then_some(()).ok_or_else(|| format!("{transport:?}: nothing was connected in 400 ms"))
        });
    }
}
