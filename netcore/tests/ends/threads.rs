//! Several flows on one thread: every end of a test ends all of them.

use std::{collections::BTreeSet, time::Duration};

use netcore::{
    measure::clock::monotonic_ns,
    report::{Ending, Phase},
    spec::{Direction, Pattern, Stop, TestSpec, Transport},
};

use crate::pair::{MS, PATIENCE, V4, connect, finish, lasting, measured, phase, run, start, sum};

/// Six flows on two threads.
fn shared(pattern: Pattern, transport: Transport, ms: u64) -> TestSpec {
    let mut spec = lasting(pattern, transport, ms);
    (spec.streams, spec.threads) = (6, Some(2));
    spec
}

#[test]
fn the_report_says_how_many_threads_there_were_and_the_ends_agree_to_the_byte() {
    let mut spec = shared(Pattern::Stream, Transport::Tcp, 100);
    spec.phases.warmup_ns = 20 * MS;
    spec.phases.interval_ns = 40 * MS;
    for direction in [Direction::Forward, Direction::Reverse, Direction::Bidirectional, Direction::Duplex] {
        spec.direction = direction;
        let (near, far) = run(&spec, V4);
        for end in [&near, &far] {
            assert_eq!((end.threads, end.io.as_str()), (2, "nonblocking"), "{direction:?}");
        }
        let (near, far) = (sum(&near.totals), sum(&far.totals));
        assert_eq!((near.bytes_sent, far.bytes_sent), (far.bytes_received, near.bytes_received), "{direction:?}");
    }
    spec.direction = Direction::Forward;
    spec.threads = Some(6);
    let (near, _) = run(&spec, V4);
    assert_eq!((near.threads, near.io.as_str()), (6, "blocking"), "each has its own");
    spec.threads = Some(7);
    assert!(connect(&spec, V4).err().unwrap().to_string().contains("at most 6 here"));
}

#[test]
fn counted_tests_stop_at_their_count() {
    let mut spec = shared(Pattern::Stream, Transport::Tcp, 0);
    spec.phases.stop = Stop::AfterBytes(6_000_001);
    assert_eq!(measured(&run(&spec, V4).1).bytes_received, 6_000_001);
    for transport in [Transport::Tcp, Transport::UnixStream, Transport::Udp, Transport::UnixDatagram] {
        let mut spec = shared(Pattern::RequestResponse, transport, 0);
        (spec.inflight, spec.integrity) = (3, true);
        (spec.sizes.request_bytes, spec.sizes.response_bytes) = (100, 200);
        spec.phases.stop = Stop::AfterTransactions(601);
        let (near, far) = run(&spec, V4);
        assert_eq!(measured(&near).transactions, 601, "{transport:?}");
        assert_eq!(sum(&near.totals).transactions, sum(&far.totals).transactions, "{transport:?}");
    }
}

#[test]
fn datagrams_without_a_connection_share_threads() {
    for pattern in [Pattern::Stream, Pattern::RequestResponse] {
        let mut spec = shared(pattern, Transport::Udp, 0);
        spec.connected = false;
        spec.phases.stop =
            if pattern == Pattern::Stream { Stop::AfterBytes(600_000) } else { Stop::AfterTransactions(600) };
        let (near, far) = run(&spec, V4);
        for end in [&near, &far] {
            assert!(phase(end, Phase::Measure).flows.iter().all(|flow| flow.counts.sends + flow.counts.receives > 0));
        }
    }
}

#[test]
fn an_abort_frees_the_flows_of_a_shared_thread_whatever_they_wait_for() {
    for (pattern, transport) in [
        (Pattern::Stream, Transport::Tcp),
        (Pattern::Stream, Transport::UnixDatagram),
        (Pattern::RequestResponse, Transport::Tcp),
        (Pattern::RequestResponse, Transport::Udp),
        (Pattern::Connect, Transport::Tcp),
        (Pattern::ConnectRequestResponse, Transport::Tcp),
    ] {
        let (near, far) = start(connect(&shared(pattern, transport, 3_600_000), V4).unwrap());
        std::thread::sleep(Duration::from_millis(60));
        near.abort();
        far.abort();
        // It would last an hour.
        assert!(near.wait(PATIENCE) && far.wait(PATIENCE), "{pattern:?} {transport:?}");
        for end in [near.finish(), far.finish()] {
            assert!(matches!(&end.ending, Ending::Failed(why) if why.contains("aborted")), "{:?}", end.ending);
            let left_behind = end.notes.iter().any(|note| note.contains("left behind"));
            assert!(!left_behind, "{pattern:?} {transport:?} {:?}", end.side);
        }
    }
}

#[test]
fn an_early_stop_is_whole() {
    for pattern in [Pattern::RequestResponse, Pattern::ConnectRequestResponse] {
        let (near, far) = start(connect(&shared(pattern, Transport::Tcp, 3_600_000), V4).unwrap());
        std::thread::sleep(Duration::from_millis(60));
        near.stop_at(monotonic_ns());
        let (near, far) = finish((near, far));
        assert_eq!(near.ending, Ending::Stopped);
        assert_eq!(sum(&near.totals).transactions, sum(&far.totals).transactions);
    }
}

#[test]
fn threads_are_pinned_in_turn_and_one_that_cannot_be_fails_the_end() {
    let mut spec = shared(Pattern::Stream, Transport::Tcp, 60);
    spec.near.cpus = Some("0".parse().unwrap());
    run(&spec, V4);
    // The threads of a busy machine may begin long after the load should.
    spec.phases.stop = Stop::AfterNs(3_600_000 * MS);
    spec.near.cpus = Some("0,1023".parse().unwrap());
    let (near, _) = finish(start(connect(&spec, V4).unwrap()));
    assert!(matches!(&near.ending, Ending::Failed(why) if why.contains("CPU 1023")), "{:?}", near.ending);
}

#[test]
fn every_request_of_an_offered_load_is_timed_from_its_due_time() {
    let mut spec = shared(Pattern::RequestResponse, Transport::Tcp, 0);
    spec.phases.stop = Stop::AfterTransactions(60);
    spec.pace = Some(netcore::spec::Pace {
        events_per_s: 100.0,
        mode: netcore::spec::PaceMode::User,
        arrival: netcore::spec::Arrival::Uniform,
        burst: 1,
        catch_up: 100,
    });
    let (near, _) = run(&spec, V4);
    let flows = &phase(&near, Phase::Measure).flows;
    let kinds: BTreeSet<_> = flows.iter().flat_map(|flow| &flow.latencies).map(|one| one.kind.as_str()).collect();
    assert_eq!(kinds, BTreeSet::from(["response"]));
    for flow in flows {
        let recorded = netcore::measure::histogram::decode(&flow.latencies[0].histogram).unwrap().len();
        assert_eq!((recorded, flow.counts.transactions), (10, 10));
    }
}
