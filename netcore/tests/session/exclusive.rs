//! An exclusive daemon: one client's tests at a time, and the queue of the others.

use std::{
    net::SocketAddr,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use netcore::{
    client::{ClientError, DataAddresses, Session, take_turns},
    control::{
        message::{ErrorCode, Limits, Reply, ReplyError, Request},
        stop::StopFlag,
    },
    daemon::{Config, Timeouts},
    measure::clock::monotonic_ns,
};

use crate::common::{Raw, Served, between, eventually, flood_ends, never_stopped, prepare, stream};

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
    gets_the_turn(&mut busy);
}

/// Nor do requests without a pause.
#[test]
fn a_flood_does_not_keep_a_turn() {
    let served = served(100, Timeouts { prepared: Duration::from_millis(100), ..Timeouts::default() });
    let [mut floods, mut waits] = [1, 2].map(|process| client(process, served.address));
    assert_eq!(floods.ask(&Request::Turn), Reply::Granted);
    flood_ends(floods, &Request::Probe, ErrorCode::TimedOut);
    gets_the_turn(&mut waits);
}

/// Asks for the turn until it is granted. The client before may hear of its end before the turn is given back, and a busy machine
/// may give it back later than a short wait in the queue lasts.
fn gets_the_turn(client: &mut Raw) {
    let began = Instant::now();
    client.tell(&Request::Turn);
    loop {
        match client.hear() {
            Reply::Granted => return,
            Reply::Waiting { .. } => {}
            Reply::Error(error) if error.code == ErrorCode::Busy => client.tell(&Request::Turn),
            other => panic!("{other:?}"),
        }
        assert!(began.elapsed() < Duration::from_mins(1), "the turn never comes");
    }
}

/// Keep-alive ends the session of a client whose host is gone: between two tests it may be silent for as long as a turn.
#[test]
fn an_idle_client_is_watched() {
    let served = exclusive(LONG);
    let mut session = served.connect();
    let client = session.local_addr().unwrap();
    let watched = || eventually("keep-alive", || has_keepalive(served.address, client));
    watched();
    // A test of known length goes without.
    session.run(&stream(10), &DataAddresses::default(), &mut (), &never_stopped()).unwrap();
    watched();
}

/// Whether the kernel's timer of a connection is that of keep-alive.
fn has_keepalive(ours: SocketAddr, theirs: SocketAddr) -> bool {
    let hex = |address: SocketAddr| {
        let SocketAddr::V4(address) = address else { panic!("{address}") };
        format!("{:08X}:{:04X}", u32::from_ne_bytes(address.ip().octets()), address.port())
    };
    let (ours, theirs) = (hex(ours), hex(theirs));
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    // The fields after the number: both addresses, state, queues, timer.
    table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).any(|fields| {
        fields.get(1) == Some(&ours.as_str())
            && fields.get(2) == Some(&theirs.as_str())
            && fields.get(5).is_some_and(|timer| timer.starts_with("02:"))
    })
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

/// Asks for a turn, and waits until it is there.
fn await_turn(mut raw: Raw) {
    raw.tell(&Request::Turn);
    while raw.hear() != Reply::Granted {}
}

#[test]
fn an_unused_turn_is_kept_for_the_next_test() {
    let served = exclusive(LONG);
    let mut session = served.connect();
    for _ in 0..2 {
        take_turns([&mut session], &never_stopped(), &mut |_, _| panic!("the daemon is free")).unwrap();
    }
    session.run(&stream(10), &DataAddresses::default(), &mut (), &never_stopped()).unwrap();
}

#[test]
fn a_test_that_is_not_made_gives_its_turns_back() {
    let (near, far) = (exclusive(LONG), Served::new(Config::default()));
    let (mut with_turn, mut other) = (near.connect(), far.connect());
    let take = |session: &mut Session| take_turns([session], &never_stopped(), &mut |_, _| ()).unwrap();
    take(&mut with_turn);
    let mut spec = stream(10);
    spec.streams = 65;
    let refused = between(&mut with_turn, &mut other, &spec, &DataAddresses::default()).map(drop).unwrap_err();
    assert!(refused.to_string().contains("65 flows"), "{refused}");
    await_turn(client(1, near.address));
    take(&mut with_turn);
    drop(with_turn.prepare(&stream(10), &DataAddresses::default()).unwrap());
    await_turn(client(1, near.address));
    take(&mut with_turn);
    let running = with_turn.prepare(&stream(60_000), &DataAddresses::default()).unwrap().start(None).unwrap();
    drop(running);
    await_turn(client(1, near.address));
}

/// The client hears it at once, and not after its wait at the second daemon.
#[test]
fn a_turn_that_is_lost_during_the_wait_for_another_ends_that_wait() {
    let hurried = Timeouts { prepared: Duration::from_millis(100), ..Timeouts::default() };
    let (first, second) = std::iter::repeat_with(|| (served(100, hurried), exclusive(LONG)))
        .find(|(first, second)| first.connect().peer().number < second.connect().peer().number)
        .unwrap();
    let mut holder = client(1, second.address);
    assert_eq!(holder.ask(&Request::Turn), Reply::Granted);
    let (mut one, mut other) = (first.connect(), second.connect());
    let lost = take_turns([&mut one, &mut other], &never_stopped(), &mut |_, _| ()).unwrap_err();
    let ClientError::Daemon { host, error } = &lost else { panic!("{lost:?}") };
    assert_eq!((host.control.as_str(), error.code), (first.address.to_string().as_str(), ErrorCode::TimedOut));
    assert!(error.message.contains("had a turn for 0.1 s"), "{error}");
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
