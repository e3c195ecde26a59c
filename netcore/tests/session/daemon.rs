//! The daemon as its operator sees it: limits, networks, timeouts, stopping.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use netcore::{
    client::{ClientError, DataAddresses, Session},
    control::message::{Connect, ErrorCode, Look, Reply, Request, Seen},
    daemon::{Config, Limits, Timeouts},
    end::End,
    measure::clock::monotonic_ns,
    report::Ending,
    spec::{Pattern, Side, Stop, TestSpec, Transport},
};

use crate::common::{Raw, Served, connect_far, eventually, flood_ends, never_stopped, prepare, soon, stream};

fn one_session() -> Config {
    Config { limits: Limits { sessions: 1, ..Limits::default() }, ..Config::default() }
}

fn error_of(error: ClientError) -> (ErrorCode, String) {
    let sentence = error.to_string();
    match error {
        ClientError::Daemon { error, .. } => (error.code, sentence),
        other => panic!("{other}"),
    }
}

#[test]
fn twenty_sessions_at_once() {
    let limits = Limits { sessions: 20, sessions_per_client: 20, ..Limits::default() };
    let served = Served::new(Config { limits, ..Config::default() });
    let mut sessions: Vec<Session> = (0..20).map(|_| served.connect()).collect();
    std::thread::scope(|scope| {
        for session in &mut sessions {
            scope.spawn(move || {
                for _ in 0..2 {
                    let outcome =
                        session.run(&stream(30), &DataAddresses::default(), &mut (), &never_stopped()).unwrap();
                    assert_eq!(outcome.far.unwrap().ending, Ending::Complete);
                }
            });
        }
    });
    let (code, sentence) = error_of(Session::connect(&served.target()).unwrap_err());
    assert_eq!(code, ErrorCode::Busy);
    assert!(sentence.contains("all 20 sessions") && sentence.contains("--max-sessions"), "{sentence}");
    sessions.pop();
    eventually("a session is free again", || Session::connect(&served.target()).is_ok());
}

/// With one session, the next client is served only after the previous one is forgotten entirely.
#[test]
fn a_client_that_vanishes_at_any_step_leaves_nothing_behind() {
    let served = Served::new(one_session());
    let token = [7; 16];
    for step in 0..6 {
        let mut raw = greeted_when_free(&served);
        if step >= 1 {
            assert!(matches!(raw.ask(&Request::Probe), Reply::Probed { .. }));
        }
        let mut near = None;
        if step >= 2 {
            let Reply::Prepared(endpoints) = raw.ask(&prepare(stream(60_000), token)) else { panic!() };
            let end = End::prepare(&stream(60_000), Side::Near, None, token).unwrap();
            near = Some((end, endpoints));
        }
        if let (true, Some((end, endpoints))) = (step >= 3, &mut near) {
            end.connect(Some(("127.0.0.1".parse().unwrap(), endpoints)), Duration::from_secs(10)).unwrap();
            assert_eq!(raw.ask(&connect_far()), Reply::Ready);
        }
        if step >= 4 {
            let t0_ns = monotonic_ns() + 1_000_000;
            raw.0.send(&Request::Start { t0_ns }, 1 << 20, soon()).unwrap();
        }
        if step >= 5 {
            std::thread::sleep(Duration::from_millis(50));
        }
        drop(raw);
    }
    eventually("the last one is forgotten, too", || Session::connect(&served.target()).is_ok());
}

/// The wait for data connections is a minute here; a vanished client is noticed much earlier.
#[test]
fn a_client_that_leaves_while_its_flows_are_waited_for_is_noticed() {
    let served = Served::new(one_session());
    let patient = Request::Connect(Connect { peers: Vec::new(), within_ns: 60_000_000_000 });
    for transport in [Transport::Tcp, Transport::Udp, Transport::Pipe] {
        let spec = TestSpec::new(Pattern::Stream, transport);
        let mut raw = greeted_when_free(&served);
        assert!(matches!(raw.ask(&prepare(spec.clone(), [7; 16])), Reply::Prepared(_)));
        raw.0.send(&patient, 1 << 20, soon()).unwrap();
        drop(raw);
        let mut raw = greeted_when_free(&served);
        assert!(matches!(raw.ask(&prepare(spec, [7; 16])), Reply::Prepared(_)));
        raw.0.send(&patient, 1 << 20, soon()).unwrap();
        let Reply::Error(error) = raw.ask(&Request::Abort) else { panic!() };
        assert!(error.message.contains("given up"), "{error}");
        assert_eq!(raw.0.recv::<Reply>(soon()).unwrap(), Reply::Idle);
    }
}

fn greeted_when_free(served: &Served) -> Raw {
    let mut raw = None;
    // The session of the previous client is free when its thread has noticed the end.
    eventually("the session is free", || {
        raw = Raw::welcome(served.address);
        raw.is_some()
    });
    raw.unwrap()
}

#[test]
fn a_session_without_requests_is_closed_with_a_sentence() {
    let timeouts = Timeouts {
        idle: Duration::from_millis(100),
        prepared: Duration::from_millis(100),
        message: Duration::from_millis(100),
        ..Timeouts::default()
    };
    let served = Served::new(Config { timeouts, ..one_session() });
    let timed_out = |reply: Reply| match reply {
        Reply::Error(error) => assert_eq!(error.code, ErrorCode::TimedOut, "{error}"),
        other => panic!("{other:?}"),
    };
    let mut idle = Raw::greeted(served.address);
    timed_out(idle.0.recv(soon()).unwrap());
    drop(idle);
    eventually("a client sees it before it needs the session", || {
        let Ok(mut session) = Session::connect(&served.target()) else { return false };
        // A machine that stands still may use up its time.
        let was_alive = session.is_alive();
        std::thread::sleep(Duration::from_millis(300));
        was_alive && !session.is_alive()
    });
    let timeouts = Timeouts { prepared: Duration::from_millis(100), ..Timeouts::default() };
    let served = Served::new(Config { timeouts, ..Config::default() });
    let prepared = || {
        let mut raw = Raw::greeted(served.address);
        assert!(matches!(raw.ask(&prepare(stream(10), [0; 16])), Reply::Prepared(_)));
        raw
    };
    timed_out(prepared().hear());
    // Nor do questions keep its memory.
    flood_ends(prepared(), &Request::Probe, ErrorCode::TimedOut);
}

#[test]
fn a_greeting_that_does_not_come_gives_its_connection_up() {
    let timeouts = Timeouts { greeting: Duration::from_millis(100), ..Timeouts::default() };
    let served = Served::new(Config { timeouts, ..Config::default() });
    for words in [&b""[..], b"plumb\0", b"plumb\0\x02\0", b"plumb\0\x02\0\0\0"] {
        let mut stream = std::net::TcpStream::connect(served.address).unwrap();
        std::io::Write::write_all(&mut stream, words).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut rest = Vec::new();
        // Closed or reset: both are an end.
        let _ = std::io::Read::read_to_end(&mut stream, &mut rest);
        // At most a preamble and an error.
        assert!(rest.len() < 200, "{rest:?}");
    }
}

#[test]
fn only_allowed_networks_have_sessions() {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&lines);
    let served = Served::new(Config {
        allow: vec!["127.0.0.9".parse().unwrap()],
        log: Some(Arc::new(move |event| heard.lock().unwrap().push(format!("{event:?}")))),
        ..Config::default()
    });
    let sentence = Session::connect(&served.target()).unwrap_err().to_string();
    assert!(sentence.contains("serves no clients from this address") && sentence.contains("--allow"), "{sentence}");
    let mut target = served.target();
    target.bind = Some("127.0.0.9".parse().unwrap());
    drop(Session::connect(&target).unwrap());
    eventually("both were logged", || {
        let lines = lines.lock().unwrap();
        lines.iter().any(|line| line.starts_with("Dropped") && line.contains("--allow"))
            && lines.iter().any(|line| line.starts_with("Opened") && line.contains("127.0.0.9"))
    });
}

#[test]
fn the_tests_of_a_daemon_share_its_memory() {
    let limits = Limits { memory_bytes: 3 << 20, ..Limits::default() };
    let served = Served::new(Config { limits, ..Config::default() });
    let mut spec = stream(10);
    (spec.sizes.receive_bytes, spec.far.buffers.ring) = (1 << 20, 2);
    let ask = |raw: &mut Raw| raw.ask(&prepare(spec.clone(), [8; 16]));
    let (mut first, mut second) = (Raw::greeted(served.address), Raw::greeted(served.address));
    assert!(matches!(ask(&mut first), Reply::Prepared(_)));
    let Reply::Error(error) = ask(&mut second) else { panic!("there is room for one only") };
    assert!(error.code == ErrorCode::Busy && error.message.contains("--max-memory"), "{error}");
    assert_eq!(first.ask(&Request::Abort), Reply::Idle);
    assert!(matches!(ask(&mut second), Reply::Prepared(_)));
}

#[test]
fn a_measurement_beside_the_load_of_another_client_says_so() {
    let served = Served::new(Config::default());
    let mut session = served.connect();
    let shared = |session: &mut Session| {
        let outcome = session.run(&stream(50), &DataAddresses::default(), &mut (), &never_stopped()).unwrap();
        outcome.far.unwrap().shared_ns
    };
    assert_eq!(shared(&mut session), 0);
    let mut other = Raw::greeted(served.address);
    let _near = other.connected(&stream(60_000));
    other.tell(&Request::Start { t0_ns: monotonic_ns() });
    eventually("the other load has begun", || shared(&mut session) >= 50_000_000);
    drop(other);
    eventually("the other load is over", || shared(&mut session) == 0);
}

#[test]
fn a_counted_test_is_ended_after_the_granted_time() {
    let limits = Limits { duration_ns: 300_000_000, ..Limits::default() };
    let timeouts = Timeouts { grace: Duration::from_millis(100), ..Timeouts::default() };
    let served = Served::new(Config { limits, timeouts, ..Config::default() });
    let mut spec = stream(0);
    spec.phases.stop = Stop::AfterBytes(1 << 50);
    let error = served.connect().run(&spec, &DataAddresses::default(), &mut (), &never_stopped()).unwrap_err();
    let (code, sentence) = error_of(error);
    assert_eq!(code, ErrorCode::Refused);
    assert!(sentence.contains("0.3 s") && sentence.contains("--max-duration"), "{sentence}");
}

#[test]
fn an_orderly_stop_lets_the_running_test_finish_and_closes_the_others() {
    let mut served = Served::new(Config::default());
    let mut idle = served.connect();
    let mut busy = served.connect();
    let running = busy.prepare(&stream(1000), &DataAddresses::default()).unwrap().start(None).unwrap();
    // The daemon reads the start before it hears of the stop.
    std::thread::sleep(Duration::from_millis(100));
    served.stop.request();
    // New connections are refused at once, and the port is free for the next daemon, while the test still runs.
    eventually("new connections are refused", || {
        matches!(Session::connect(&served.target()), Err(ClientError::Connect { .. }))
    });
    drop(std::net::TcpListener::bind(served.address).unwrap());
    let outcome = running.wait(&mut (), &never_stopped()).unwrap();
    assert_eq!((outcome.near.ending, outcome.far.unwrap().ending), (Ending::Complete, Ending::Complete));
    served.join();
    let error = idle.prepare(&stream(10), &DataAddresses::default()).err().unwrap();
    let sentence = error.to_string();
    assert!(sentence.contains("being stopped") || sentence.contains("closed"), "{sentence}");
    let error = Session::connect(&served.target()).unwrap_err().to_string();
    assert!(error.contains("cannot be reached") && error.contains("plumb serve"), "{error}");
}

#[test]
fn a_second_stop_ends_the_running_test() {
    let mut served = Served::new(Config::default());
    let mut session = served.connect();
    let running = session.prepare(&stream(60_000), &DataAddresses::default()).unwrap().start(None).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    served.stop.request();
    served.stop.request();
    let error = running.wait(&mut (), &never_stopped()).unwrap_err();
    let sentence = error.to_string();
    assert!(sentence.contains("being stopped") || matches!(error, ClientError::Vanished { .. }), "{sentence}");
    served.join();
}

#[test]
fn listening_takes_what_the_machine_has_and_names_what_it_has_not() {
    let bind = |listen: &[&str]| {
        let listen = listen.iter().map(|address| address.parse().unwrap()).collect();
        netcore::daemon::Daemon::bind(Config { listen, ..Config::default() })
    };
    // No host has a documentation address.
    let daemon = bind(&["127.0.0.1:0", "[2001:db8::1]:0"]).unwrap();
    assert_eq!(daemon.local_addrs().count(), 1);
    let daemon = bind(&["[2001:db8::1]:0", "127.0.0.1:0"]).unwrap();
    let taken = daemon.local_addr().unwrap().to_string();
    let error = bind(&["192.0.2.1:5"]).unwrap_err().to_string();
    assert!(error.contains("cannot listen on 192.0.2.1:5"), "{error}");
    let error = bind(&[&taken, "127.0.0.5:0"]).unwrap_err().to_string();
    assert!(error.contains(&taken), "{error}");
}

#[test]
fn a_daemon_looks_around_when_it_is_asked() {
    let served = Served::new(Config::default());
    let mut session = served.connect();
    let loopback = "127.0.0.1".parse().unwrap();
    let seen =
        session.look(Look { towards: Some(loopback), free_cpus: true, transports: vec![Transport::Tcp] }).unwrap();
    let nic = seen.nic.unwrap();
    assert_eq!((nic.name.as_str(), nic.speed_mbit_per_s), ("lo", None));
    assert!(nic.mtu_bytes.unwrap() >= 1500);
    assert!(seen.free_cpus.unwrap() <= session.peer().host.cpus.unwrap());
    assert_eq!(seen.transports, [Transport::Tcp]);
    assert_eq!(session.look(Look::default()).unwrap(), Seen::default());
}
