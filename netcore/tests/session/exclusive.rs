//! An exclusive daemon: one client's tests at a time, and the queue of the others.

use std::{
    net::SocketAddr,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use netcore::{
    client::{ClientError, DataAddresses, take_turns},
    control::{
        message::{ErrorCode, Limits, Reply, ReplyError, Request},
        stop::StopFlag,
    },
    daemon::{Config, Timeouts},
    measure::clock::monotonic_ns,
};

use crate::common::{Raw, Served, never_stopped, prepare, stream};

/// A daemon whose clients wait for so many milliseconds.
fn exclusive(queue_ms: u64) -> Served {
    served(queue_ms, Timeouts::default())
}

fn served(queue_ms: u64, timeouts: Timeouts) -> Served {
    let limits = Limits { queue_ns: Some(queue_ms * 1_000_000), ..Limits::default() };
    Served::new(Config { limits, timeouts, ..Config::default() })
}

const LONG: u64 = 3_600_000;

fn client(process: u64, address: SocketAddr) -> Raw {
    Raw::of_process(process, address).expect("a session is free")
}

fn error(reply: Reply) -> ReplyError {
    match reply {
        Reply::Error(error) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn clients_wait_in_the_order_of_their_arrival_and_hear_their_place() {
    let served = exclusive(LONG);
    let [mut first, mut second, mut third] = [1, 2, 3].map(|process| client(process, served.address));
    assert_eq!(first.ask(&Request::Turn), Reply::Granted);
    assert_eq!(second.ask(&Request::Turn), Reply::Waiting { place: 1 });
    assert_eq!(third.ask(&Request::Turn), Reply::Waiting { place: 2 });
    // It vanishes; a place in the queue ends with its connection.
    drop(second);
    assert_eq!(third.hear(), Reply::Waiting { place: 1 });
    // So does a turn.
    drop(first);
    assert_eq!(third.hear(), Reply::Granted);
    assert!(matches!(third.ask(&prepare(stream(10), [1; 16])), Reply::Prepared(_)));
}

#[test]
fn a_turn_is_for_one_test_and_for_all_of_a_group() {
    let served = exclusive(LONG);
    let [mut first, mut second, mut other] = [1, 1, 2].map(|process| client(process, served.address));
    assert_eq!(first.ask(&Request::Turn), Reply::Granted);
    assert_eq!(other.ask(&Request::Turn), Reply::Waiting { place: 1 });
    assert_eq!(second.ask(&Request::Turn), Reply::Granted, "they are of one client");
    let _near = first.connected(&stream(60_000));
    first.tell(&Request::Start { t0_ns: monotonic_ns() });
    // Its answer shows that the start has been read.
    first.tell(&Request::Abort);
    assert_eq!(first.hear(), Reply::Idle);
    let refused = error(first.ask(&prepare(stream(10), [2; 16])));
    assert!(refused.code == ErrorCode::Refused && refused.message.contains("ask for a turn"), "{refused}");
    assert_eq!(first.ask(&Request::Turn), Reply::Waiting { place: 2 }, "a load has begun: this is its next turn");
    assert_eq!(second.ask(&Request::Abort), Reply::Idle);
    assert_eq!(other.hear(), Reply::Granted);
    assert_eq!(first.hear(), Reply::Waiting { place: 1 });
    assert_eq!(first.ask(&Request::Abort), Reply::Idle, "a waiting client may give up");
    assert!(matches!(first.ask(&Request::Probe), Reply::Probed { .. }));
}

#[test]
fn a_client_that_waited_too_long_hears_why_and_may_ask_again() {
    let served = exclusive(50);
    let [mut first, mut second] = [1, 2].map(|process| client(process, served.address));
    assert_eq!(first.ask(&Request::Turn), Reply::Granted);
    for _ in 0..2 {
        assert_eq!(second.ask(&Request::Turn), Reply::Waiting { place: 1 });
        let late = error(second.hear());
        assert_eq!(late.code, ErrorCode::Busy);
        assert!(late.message.contains("0.05 s") && late.message.contains("--queue-timeout"), "{late}");
    }
    assert_eq!(first.ask(&Request::Abort), Reply::Idle);
    assert_eq!(second.ask(&Request::Turn), Reply::Granted);
}

/// Requests that change nothing do not lengthen a turn.
#[test]
fn a_turn_without_a_test_is_taken_away() {
    let served = served(100, Timeouts { prepared: Duration::from_millis(100), ..Timeouts::default() });
    let [mut idle, mut busy] = [1, 2].map(|process| client(process, served.address));
    assert_eq!(idle.ask(&Request::Turn), Reply::Granted);
    let began = Instant::now();
    let ended = loop {
        if let Reply::Error(error) = idle.ask(&Request::Probe) {
            break error;
        }
        assert!(began.elapsed() < Duration::from_mins(1), "it keeps its turn");
        thread::sleep(Duration::from_millis(10));
    };
    assert_eq!(ended.code, ErrorCode::TimedOut);
    assert_eq!(busy.ask(&Request::Turn), Reply::Granted);
}

#[test]
fn a_daemon_that_stops_sends_waiting_clients_away() {
    let served = exclusive(LONG);
    let [mut first, mut second] = [1, 2].map(|process| client(process, served.address));
    assert_eq!(first.ask(&Request::Turn), Reply::Granted);
    assert_eq!(second.ask(&Request::Turn), Reply::Waiting { place: 1 });
    served.stop.request();
    assert_eq!(error(second.hear()).code, ErrorCode::Stopping);
}

#[test]
fn a_client_that_is_interrupted_stops_waiting() {
    let served = exclusive(LONG);
    let mut other = client(1, served.address);
    assert_eq!(other.ask(&Request::Turn), Reply::Granted);
    let mut session = served.connect();
    let stop = StopFlag::new().unwrap();
    let mut places = Vec::new();
    let given_up = take_turns([&mut session], &stop, &mut |host, place| {
        places.push((host.name.clone(), place));
        stop.request();
    });
    assert!(matches!(given_up, Err(ClientError::Interrupted)), "{given_up:?}");
    assert_eq!(places, [("server".to_owned(), 1)]);
    drop(other);
    session.run(&stream(10), &DataAddresses::default(), &mut (), &never_stopped()).unwrap();
}

/// Clients that hold one daemon's turn wait only at daemons with larger numbers, so that none waits in a circle.
#[test]
fn several_daemons_are_asked_in_the_order_of_their_numbers() {
    let both = [exclusive(LONG), exclusive(LONG)];
    let [mut one, mut two] = [&both[0], &both[1]].map(Served::connect);
    let low = usize::from(two.peer().number < one.peer().number);
    let mut holder = client(1, both[low].address);
    assert_eq!(holder.ask(&Request::Turn), Reply::Granted);
    let (waits, waiting) = mpsc::channel();
    thread::scope(|scope| {
        let asking = scope.spawn(|| {
            take_turns([&mut two, &mut one], &never_stopped(), &mut |_, place| waits.send(place).unwrap()).unwrap();
        });
        assert_eq!(waiting.recv_timeout(Duration::from_mins(1)), Ok(1));
        let mut other = client(2, both[1 - low].address);
        assert_eq!(
            other.ask(&Request::Turn),
            Reply::Granted,
            "a client that waits at the first has no turn at the second"
        );
        drop((holder, other));
        asking.join().unwrap();
    });
    let mut late = client(3, both[1 - low].address);
    assert_eq!(late.ask(&Request::Turn), Reply::Waiting { place: 1 });
}
