//! The data of tests at the control port.

use std::{
    io::{Read, Write},
    net::{TcpStream, UdpSocket},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

use netcore::{
    client::{DataAddresses, Outcome, Session},
    control::message::{Reply, Request},
    daemon::Config,
    end::{End, Endpoints},
    report::Ending,
    spec::{Direction, Pattern, Side, Stop, TestSpec, Transport},
};

use crate::common::{Raw, Served, connect_far, never_stopped, prepare, stream};

const TOKEN: [u8; 16] = [4; 16];

/// Stops by a count: on a busy machine nothing may move for a tenth of a second.
fn spec(pattern: Pattern, transport: Transport, streams: u32) -> TestSpec {
    let mut spec = TestSpec::new(pattern, transport);
    spec.streams = streams;
    spec.phases.stop = match pattern {
        Pattern::Stream => Stop::AfterBytes(6_400_000),
        _ => Stop::AfterTransactions(640),
    };
    spec
}

fn run(session: &mut Session, spec: &TestSpec) -> Outcome {
    let outcome = session.run(spec, &DataAddresses::default(), &mut (), &never_stopped()).unwrap();
    let far = outcome.far.as_ref().unwrap();
    assert_eq!((&outcome.near.ending, &far.ending), (&Ending::Complete, &Ending::Complete), "{spec:?}");
    outcome
}

fn prepared(raw: &mut Raw, spec: &TestSpec) -> Endpoints {
    match raw.ask(&prepare(spec.clone(), TOKEN)) {
        Reply::Prepared(endpoints) => endpoints,
        other => panic!("{other:?}"),
    }
}

/// The preamble of a data connection.
fn proof(token: [u8; 16], flow: u32) -> Vec<u8> {
    [&b"plumbln1"[..], &token, &flow.to_le_bytes()].concat()
}

fn is_closed(mut stream: &TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    match stream.read(&mut [0]) {
        Ok(n) => n == 0,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

#[test]
fn data_comes_to_the_control_port_unless_the_test_asks_for_another() {
    let served = Served::new(Config::default());
    let port = served.address.port();
    let mut raw = Raw::greeted(served.address);
    for transport in [Transport::Tcp, Transport::Udp] {
        let endpoints = prepared(&mut raw, &spec(Pattern::Stream, transport, 3));
        assert_eq!((endpoints.ports, endpoints.at_control), (vec![port], true), "{transport:?}");
        assert_eq!(raw.ask(&Request::Abort), Reply::Idle);
    }
    let asks: [fn(&mut TestSpec); 4] = [
        // Below the ports that the kernel hands out.
        |spec| spec.far.port = Some(28_000 + u16::try_from(std::process::id() % 4_000).unwrap()),
        |spec| spec.far.bind = vec!["127.0.0.1".parse().unwrap()],
        |spec| spec.far.socket.mss = Some(netcore::spec::quantity::Bytes32(1000)),
        |spec| spec.transport = Transport::UnixStream,
    ];
    for ask in asks {
        let mut spec = spec(Pattern::Stream, Transport::Tcp, 1);
        ask(&mut spec);
        let endpoints = prepared(&mut raw, &spec);
        assert!(!endpoints.at_control && !endpoints.ports.contains(&port), "{endpoints:?}");
        assert_eq!(raw.ask(&Request::Abort), Reply::Idle);
    }
}

#[test]
fn every_pattern_runs_at_one_port() {
    let served = Served::new(Config::default());
    let mut session = served.connect();
    for streams in [1, 64] {
        for (pattern, transport) in [
            (Pattern::Stream, Transport::Tcp),
            (Pattern::RequestResponse, Transport::Tcp),
            (Pattern::Connect, Transport::Tcp),
            (Pattern::ConnectRequestResponse, Transport::Tcp),
            (Pattern::RequestResponse, Transport::Udp),
        ] {
            let outcome = run(&mut session, &spec(pattern, transport, streams));
            let moved: u64 =
                outcome.near.totals.iter().map(|flow| flow.counts.transactions + flow.counts.bytes_sent).sum();
            assert!(moved > 0, "{pattern:?} {transport:?}");
        }
    }
    for direction in [Direction::Forward, Direction::Reverse, Direction::Bidirectional] {
        for connected in [true, false] {
            let mut spec = spec(Pattern::Stream, Transport::Udp, 4);
            (spec.direction, spec.connected) = (direction, connected);
            spec.pace = None;
            let outcome = run(&mut session, &spec);
            let far = outcome.far.unwrap();
            let received = |flows: &[netcore::report::FlowWindow]| {
                flows.iter().map(|flow| flow.counts.bytes_received).sum::<u64>()
            };
            let arrived = received(&outcome.near.totals) + received(&far.totals);
            assert!(arrived > 0, "{direction:?}");
        }
    }
}

#[test]
fn a_thread_of_several_flows_accepts_at_the_control_port() {
    let served = Served::new(Config::default());
    let mut session = served.connect();
    let mut spec = spec(Pattern::ConnectRequestResponse, Transport::Tcp, 8);
    spec.threads = Some(2);
    let outcome = run(&mut session, &spec);
    assert!(outcome.near.totals.iter().all(|flow| flow.counts.transactions > 0), "{:?}", outcome.near.totals);
}

/// They say nothing, the wrong thing, too little, or what another test would say.
#[test]
fn strangers_at_the_control_port_are_no_flows_and_keep_none_out() {
    let served = Served::new(Config::default());
    let mut raw = Raw::greeted(served.address);
    let test = spec(Pattern::Stream, Transport::Tcp, 2);
    let endpoints = prepared(&mut raw, &test);
    let open = |words: &[u8]| {
        let mut stream = TcpStream::connect(served.address).unwrap();
        stream.write_all(words).unwrap();
        stream
    };
    let silent: Vec<TcpStream> = (0..40).map(|_| open(b"")).collect();
    let half = open(&proof(TOKEN, 0)[..20]);
    let wrong = [open(&proof([5; 16], 0)), open(&[9; 64]), open(b"GET / HTTP/1.1\r\n\r\n")];
    let beyond = open(&proof(TOKEN, 2));
    for stream in &wrong {
        assert!(is_closed(stream), "{stream:?}");
    }
    let mut near = End::prepare(&test, Side::Near, None, TOKEN).unwrap();
    near.connect(Some(("127.0.0.1".parse().unwrap(), &endpoints)), Duration::from_mins(1)).unwrap();
    assert_eq!(raw.ask(&connect_far()), Reply::Ready);
    assert!(is_closed(&beyond), "the test has no such flow");
    // Its test has all of its flows now.
    let late = open(&proof(TOKEN, 0));
    drop((silent, half));
    assert_eq!(raw.ask(&Request::Abort), Reply::Idle);
    assert!(is_closed(&late));
    assert!(is_closed(&open(&proof(TOKEN, 0))), "its test is forgotten");
    run(&mut served.connect(), &stream(10));
}

#[test]
fn a_proof_that_comes_byte_by_byte_is_one() {
    let served = Served::new(Config::default());
    let mut raw = Raw::greeted(served.address);
    let test = spec(Pattern::Stream, Transport::Tcp, 1);
    prepared(&mut raw, &test);
    let mut slow = TcpStream::connect(served.address).unwrap();
    slow.set_nodelay(true).unwrap();
    for byte in proof(TOKEN, 0) {
        slow.write_all(&[byte]).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(raw.ask(&connect_far()), Reply::Ready);
}

/// The threads of a connect workload accept in the daemon's place. They must keep neither clients nor data of other tests.
#[test]
fn clients_are_served_while_a_connect_workload_accepts() {
    let served = Served::new(Config::default());
    for pattern in [Pattern::Connect, Pattern::ConnectRequestResponse] {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (served, over) = (&served, &over);
            let workload = scope.spawn(move || {
                let mut test = spec(pattern, Transport::Tcp, 4);
                test.phases.stop = Stop::AfterNs(1_500_000_000);
                let outcome = run(&mut served.connect(), &test);
                over.store(true, Relaxed);
                outcome
            });
            let mut beside = 0;
            while !over.load(Relaxed) {
                let mut session = served.connect();
                run(&mut session, &stream(5));
                let mut datagrams = spec(Pattern::RequestResponse, Transport::Udp, 2);
                datagrams.phases.stop = Stop::AfterNs(5_000_000);
                run(&mut session, &datagrams);
                beside += 1;
            }
            let outcome = workload.join().unwrap();
            assert!(beside > 0);
            let errors: u64 = outcome.near.totals.iter().map(|flow| flow.counts.errors).sum();
            assert_eq!(errors, 0, "each of its connections was answered");
        });
    }
}

/// The first packet of a connection does not tell two of them apart.
#[test]
fn a_second_connect_workload_has_ports_of_its_own() {
    let served = Served::new(Config::default());
    let test = spec(Pattern::ConnectRequestResponse, Transport::Tcp, 2);
    let (mut first, mut second) = (Raw::greeted(served.address), Raw::greeted(served.address));
    assert!(prepared(&mut first, &test).at_control);
    let own = prepared(&mut second, &test);
    assert!(!own.at_control && own.ports.len() == 2 && !own.ports.contains(&served.address.port()), "{own:?}");
    run(&mut served.connect(), &test);
    assert_eq!(first.ask(&Request::Abort), Reply::Idle);
    assert!(prepared(&mut first, &test).at_control);
}

#[test]
fn data_ports_may_be_kept_apart() {
    // At an address of its own: the ports of the other tests are at 127.0.0.1.
    let taken = UdpSocket::bind("127.0.0.77:0").unwrap();
    let first = taken.local_addr().unwrap().port();
    let served = Served::at("127.0.0.77:0", Config { data_ports: Some((first, first)), ..Config::default() });
    let mut raw = Raw::greeted(served.address);
    let endpoints = prepared(&mut raw, &spec(Pattern::Stream, Transport::Tcp, 4));
    assert_eq!((endpoints.ports, endpoints.at_control), (vec![first], false));
    assert_eq!(raw.ask(&Request::Abort), Reply::Idle);
    match raw.ask(&prepare(spec(Pattern::Stream, Transport::Udp, 1), TOKEN)) {
        Reply::Error(error) => assert!(error.message.contains(&format!("--data-ports {first}-{first}")), "{error}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn two_ends_of_a_daemons_own_port_are_refused() {
    let served = Served::new(Config::default());
    let second = Config { listen: vec![served.address], ..Config::default() };
    let error = netcore::daemon::Daemon::bind(second).unwrap_err().to_string();
    assert!(error.contains("in use"), "{error}");
    assert!(UdpSocket::bind(served.address).is_err());
}
