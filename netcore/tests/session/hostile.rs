//! Hostile or broken clients: the daemon answers with an error or not at all, and continues to serve.

use std::{
    io::{Read, Write},
    net::{TcpStream, UdpSocket},
    os::unix::fs::OpenOptionsExt,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};

use netcore::{
    control::{
        frame::REQUEST_BOUND,
        message::{Connect, ErrorCode, Look, Peer, Reply, Request},
    },
    daemon::{Config, Timeouts},
    end::{End, Endpoints},
    measure::clock::monotonic_ns,
    spec::{Direction, Pattern, Side, TestSpec, Transport},
};
use proptest::prelude::*;

use crate::common::{Raw, Served, connect_far, flood, flood_ends, never_stopped, prepare, prepare_near, soon, stream};

fn serves(served: &Served) {
    let outcome =
        served.connect().run(&stream(10), &netcore::client::DataAddresses::default(), &mut (), &never_stopped());
    outcome.unwrap();
}

fn last_word(mut raw: Raw) -> ErrorCode {
    match raw.0.recv(soon()).unwrap() {
        Reply::Error(error) => error.code,
        other => panic!("{other:?}"),
    }
}

#[test]
fn garbage_is_survived() {
    let served = Served::new(Config::default());
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(24));
    let bytes = prop::collection::vec(any::<u8>(), 0..600);
    runner
        .run(&(bytes, any::<bool>()), |(bytes, greeted)| {
            let mut stream = TcpStream::connect(served.address).unwrap();
            if greeted {
                stream.write_all(b"plumb\0\x02\0").unwrap();
            }
            // The daemon may have closed by now.
            let _ = stream.write_all(&bytes);
            let _ = stream.shutdown(std::net::Shutdown::Write);
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            let mut answer = Vec::new();
            match stream.read_to_end(&mut answer) {
                Ok(_) => {}
                Err(error) => prop_assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
            }
            Ok(())
        })
        .unwrap();
    serves(&served);
}

#[test]
fn messages_that_are_none_are_answered_with_a_sentence() {
    let served = Served::new(Config::default());
    let deep = (0..200).fold(serde_json::Value::Null, |inner, _| serde_json::Value::Array(vec![inner]));
    let messages = [
        serde_json::json!({}),
        serde_json::json!("prepare"),
        serde_json::json!({"start": {}}),
        serde_json::json!({"start": {"t0_ns": -1}}),
        serde_json::json!({"abort": null, "probe": null}),
        serde_json::json!({"prepare": {"spec": {}, "side": "far"}}),
        deep,
    ];
    for message in messages {
        let mut raw = Raw::greeted(served.address);
        raw.0.send(&message, usize::MAX, soon()).unwrap();
        assert_eq!(last_word(raw), ErrorCode::Protocol, "{message}");
    }
    serves(&served);
}

#[test]
fn a_frame_beyond_the_bound_is_refused_before_it_is_kept() {
    let served = Served::new(Config::default());
    let mut raw = Raw::greeted(served.address);
    let text = "x".repeat(2 << 20);
    // The daemon may close before it has all.
    let _ = raw.0.send(&text, usize::MAX, soon());
    match raw.0.recv::<Reply>(soon()) {
        Ok(Reply::Error(error)) => assert_eq!(error.code, ErrorCode::Protocol),
        // The reset that our unread bytes cause may lose the error.
        Err(error) => assert!(error.to_string().contains("closed"), "{error}"),
        other => panic!("{other:?}"),
    }
    serves(&served);
}

#[test]
fn requests_out_of_order_end_the_session() {
    let served = Served::new(Config::default());
    for request in [connect_far(), Request::Start { t0_ns: 0 }] {
        let mut raw = Raw::greeted(served.address);
        raw.0.send(&request, 1 << 20, soon()).unwrap();
        assert_eq!(last_word(raw), ErrorCode::Protocol);
    }
    let mut raw = Raw::greeted(served.address);
    assert!(matches!(raw.ask(&prepare(stream(10), [1; 16])), Reply::Prepared(_)));
    raw.0.send(&prepare(stream(10), [1; 16]), 1 << 20, soon()).unwrap();
    assert_eq!(last_word(raw), ErrorCode::Protocol);
    // A stop may cross the report on its way, so it is ignored at any time.
    let mut raw = Raw::greeted(served.address);
    raw.0.send(&Request::Stop { at_ns: 5 }, 1 << 20, soon()).unwrap();
    assert_eq!(raw.ask(&Request::Abort), Reply::Idle);
    serves(&served);
}

#[test]
fn a_stranger_on_the_data_port_is_no_flow() {
    let served = Served::new(Config::default());
    let token = [3; 16];
    let mut raw = Raw::greeted(served.address);
    let Reply::Prepared(endpoints) = raw.ask(&prepare(stream(30), token)) else { panic!() };
    let port = endpoints.ports[0];
    // One that says nothing, one that guesses, one that goes away.
    let silent = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut guessing = TcpStream::connect(("127.0.0.1", port)).unwrap();
    guessing.write_all(&[9; 64]).unwrap();
    drop(TcpStream::connect(("127.0.0.1", port)).unwrap());
    let mut near = End::prepare(&stream(30), Side::Near, None, token).unwrap();
    near.connect(Some(("127.0.0.1".parse().unwrap(), &endpoints)), Duration::from_secs(10)).unwrap();
    assert_eq!(raw.ask(&connect_far()), Reply::Ready);
    let mut rest = Vec::new();
    guessing.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    // Dropped: an end or a reset, but no data.
    let _ = guessing.read_to_end(&mut rest);
    assert!(rest.is_empty(), "{rest:?}");
    drop(silent);
    serves(&served);
}

#[test]
fn a_daemon_is_sent_nowhere() {
    let served = Served::new(Config::default());
    let mut raw = Raw::greeted(served.address);
    let near = prepare_near(stream(10), [0; 16]);
    let places = [
        ("192.0.2.1", Endpoints { ports: vec![9], ..Endpoints::default() }),
        (
            "127.0.0.1",
            Endpoints { ports: vec![9], address: Some("192.0.2.1".parse().unwrap()), ..Endpoints::default() },
        ),
    ];
    for (address, endpoints) in places {
        assert!(matches!(raw.ask(&near), Reply::Prepared(_)));
        let peer = Peer { address: address.parse().unwrap(), endpoints };
        match raw.ask(&Request::Connect(Connect { peers: vec![peer], within_ns: 1_000_000_000 })) {
            Reply::Error(error) => {
                assert_eq!(error.code, ErrorCode::Refused);
                assert!(error.message.contains("192.0.2.1"), "{error}");
            }
            other => panic!("{other:?}"),
        }
    }
}

/// A client could otherwise lead a daemon to any pipe or Unix socket of its user.
#[test]
fn an_end_opens_only_what_the_other_end_of_the_test_made() {
    let served = Served::new(Config::default());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("victim");
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let mut victim = std::fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path).unwrap();
    for transport in [Transport::Pipe, Transport::UnixStream, Transport::UnixDatagram] {
        let spec = TestSpec::new(Pattern::Stream, transport);
        let near = prepare_near(spec, [9; 16]);
        let mut raw = Raw::greeted(served.address);
        assert!(matches!(raw.ask(&near), Reply::Prepared(_)));
        let peer = Peer { address: "127.0.0.1".parse().unwrap(), endpoints: Endpoints::default() };
        match raw.ask(&Request::Connect(Connect { peers: vec![peer], within_ns: 1_000_000_000 })) {
            Reply::Error(error) => assert!(error.message.contains("is not there"), "{error}"),
            other => panic!("{other:?}"),
        }
        // No field of the message holds a path.
        let named = format!(r#"{{"address":"127.0.0.1","endpoints":{{"paths":["{}"]}}}}"#, path.display());
        assert!(serde_json::from_str::<Peer>(&named).unwrap_err().to_string().contains("unknown field"));
    }
    assert_eq!(victim.read(&mut [0; 64]).unwrap(), 0, "nothing was written");
    serves(&served);
}

/// The source address of a datagram is what its sender says: who forges it must not turn a daemon's load on others.
#[test]
fn datagrams_go_only_to_the_client() {
    let token = [5; 16];
    let mut spec = TestSpec::new(Pattern::Stream, Transport::Udp);
    spec.direction = Direction::Reverse;
    let strict = Config::default();
    let open = Config { allow_connect: vec!["127.0.0.9".parse().unwrap()].into(), ..Config::default() };
    for (config, source, refused) in
        [(strict.clone(), "127.0.0.1", false), (strict, "127.0.0.9", true), (open, "127.0.0.9", false)]
    {
        let served = Served::new(config);
        let mut raw = Raw::greeted(served.address);
        let Reply::Prepared(endpoints) = raw.ask(&prepare(spec.clone(), token)) else { panic!() };
        let mut near = End::prepare(&spec, Side::Near, Some(source.parse().unwrap()), token).unwrap();
        let answer = std::thread::scope(|scope| {
            scope.spawn(|| near.connect(Some(("127.0.0.1".parse().unwrap(), &endpoints)), Duration::from_secs(10)));
            raw.ask(&connect_far())
        });
        match answer {
            Reply::Ready if !refused => {}
            Reply::Error(error) if refused => {
                assert_eq!(error.code, ErrorCode::Refused);
                assert!(error.message.contains("--allow-connect 127.0.0.9"), "{error}");
            }
            other => panic!("{source}: {other:?}"),
        }
    }
}

/// They could otherwise shut everybody out, for as long as they are renewed.
#[test]
fn silent_strangers_keep_nobody_out() {
    let served = Served::new(Config::default());
    let silent: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(served.address).unwrap()).collect();
    for _ in 0..3 {
        serves(&served);
    }
    drop(silent);
}

#[test]
fn a_client_that_never_pauses_does_not_keep_a_daemon_from_ending() {
    let served = Served::new(Config::default());
    let raw = Raw::greeted(served.address);
    let stop = served.stop.clone();
    let flooding = std::thread::spawn(move || flood_ends(raw, &Request::Probe, ErrorCode::Stopping));
    stop.request();
    flooding.join().unwrap();
}

#[test]
fn a_client_that_floods_does_not_outlast_its_time() {
    let timeouts = Timeouts { grace: Duration::from_millis(200), ..Timeouts::default() };
    let served = Served::new(Config { timeouts, ..Config::default() });
    let mut raw = Raw::greeted(served.address);
    // The near end never sends: the far end waits for its data until it is given up.
    let _near = raw.connected(&stream(30));
    raw.tell(&Request::Start { t0_ns: monotonic_ns() });
    assert_eq!(flood(raw, &Request::Stop { at_ns: monotonic_ns() + 3_600_000_000_000 }), Some(ErrorCode::Failed));
}

/// An endless stream of invalid preambles on a data port must not delay an end's deadline.
#[test]
fn strangers_on_a_datagram_port_do_not_outlast_the_deadline() {
    let served = Served::new(Config::default());
    let mut raw = Raw::greeted(served.address);
    let spec = TestSpec::new(Pattern::Stream, Transport::Udp);
    let Reply::Prepared(endpoints) = raw.ask(&prepare(spec, [6; 16])) else { panic!() };
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            while !over.load(Relaxed) {
                // The port closes when the test is given up.
                let _ = socket.send_to(&[9; 28], ("127.0.0.1", endpoints.ports[0]));
            }
        });
        let answer = raw.ask(&Request::Connect(Connect { peers: Vec::new(), within_ns: 100_000_000 }));
        over.store(true, Relaxed);
        assert!(matches!(&answer, Reply::Error(error) if error.code == ErrorCode::Failed), "{answer:?}");
    });
    serves(&served);
}

/// A daemon that is stopped at once must not wait for a client that reads nothing.
#[test]
fn a_client_that_reads_nothing_does_not_keep_a_daemon_from_ending() {
    let timeouts = Timeouts { message: Duration::from_hours(1), ..Timeouts::default() };
    let mut served = Served::new(Config { timeouts, ..Config::default() });
    let mut raw = Raw::greeted(served.address);
    // Until the answers fill the buffers of both directions.
    while raw.0.send(&Request::Probe, REQUEST_BOUND, Instant::now() + Duration::from_millis(500)).is_ok() {}
    served.stop.request();
    served.stop.request();
    served.join();
}

#[test]
fn a_transport_is_looked_up_once_however_often_it_is_named() {
    let served = Served::new(Config::default());
    let mut raw = Raw::greeted(served.address);
    let transports = vec![Transport::Tcp; 100_000];
    let look = Look { towards: None, free_cpus: false, transports };
    let Reply::Seen(seen) = raw.ask(&Request::Look(look)) else { panic!() };
    assert_eq!(seen.transports, [Transport::Tcp]);
}
