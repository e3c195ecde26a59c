//! iperf3's protocol: this client against this daemon and against stubs, and this daemon against clients that misbehave.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream, UdpSocket},
    thread,
    time::Duration,
};

use netcore::{
    client::{self, ClientError, DataAddresses, Far, Outcome, Peer, Target, Timeouts},
    daemon::{Config, Limits},
    peers::Program,
    report::{Counts, Ending, SideReport},
    spec::{Arrival, Dialect, Direction, Pace, PaceMode, Pattern, Stop, TestSpec, Transport},
};

use crate::served::{Serving, never_stopped};

fn run(address: &str, spec: &TestSpec, timeouts: Timeouts) -> Result<Outcome, ClientError> {
    let target = Target { timeouts, ..Target::new("box", address) };
    let mut peer = Peer::connect(Program::Iperf3, &target)?;
    let prepared = client::prepare(None, Far::Peer(&mut peer), spec, &DataAddresses::default(), timeouts)?;
    prepared.start(None)?.wait(&mut (), &never_stopped())
}

fn spec(transport: Transport, direction: Direction) -> TestSpec {
    let mut spec = TestSpec::new(Pattern::Stream, transport);
    spec.dialect = Dialect::Iperf3 { wide_counter: true };
    (spec.direction, spec.streams, spec.phases.stop) = (direction, 2, Stop::AfterNs(300_000_000));
    if transport == Transport::Udp {
        let (mode, arrival) = (PaceMode::User, Arrival::Closed);
        spec.pace = Some(Pace { events_per_s: 500.0, mode, arrival, burst: 1, catch_up: 500 });
    }
    spec
}

fn sum(report: &SideReport, count: fn(&Counts) -> u64) -> u64 {
    report.totals.iter().map(|flow| count(&flow.counts)).sum()
}

/// Both ends are ours and meet over iperf3's protocol: what one sends the other receives, whatever the kind of test.
#[test]
fn our_client_and_our_daemon_agree_to_the_byte() {
    let serving = Serving::also(Program::Iperf3, Config::default());
    let ways = [Direction::Forward, Direction::Reverse, Direction::Bidirectional];
    thread::scope(|scope| {
        for transport in [Transport::Tcp, Transport::Udp] {
            for direction in ways {
                let address = &serving.address;
                scope.spawn(move || {
                    let spec = spec(transport, direction);
                    let what = format!("{transport:?} {direction:?}");
                    let outcome = run(address, &spec, Timeouts::default()).unwrap_or_else(|e| panic!("{what}: {e}"));
                    let (near, far) = (&outcome.near, outcome.far.as_ref().unwrap());
                    assert_eq!((&near.ending, &far.ending), (&Ending::Complete, &Ending::Complete), "{what}");
                    for (from, to, name) in [(near, far, "forward"), (far, near, "reverse")] {
                        let (sent, received) = (sum(from, |c| c.bytes_sent), sum(to, |c| c.bytes_received));
                        assert!(sent == received || transport == Transport::Udp, "{what} {name}: {sent}, {received}");
                    }
                    let received = sum(near, |c| c.bytes_received) + sum(far, |c| c.bytes_received);
                    assert!(received > 0, "{what}");
                });
            }
        }
    });
}

#[test]
fn bytes_are_counted_and_a_warm_up_is_not() {
    let serving = Serving::also(Program::Iperf3, Config::default());
    let mut counted = spec(Transport::Tcp, Direction::Forward);
    (counted.phases.stop, counted.sizes.message_bytes) = (Stop::AfterBytes(1_000_001), 1000);
    let outcome = run(&serving.address, &counted, Timeouts::default()).unwrap();
    assert_eq!(sum(outcome.far.as_ref().unwrap(), |c| c.bytes_received), 1_000_001);
    let mut warmed = spec(Transport::Udp, Direction::Reverse);
    warmed.phases.warmup_ns = 1_000_000_000;
    let outcome = run(&serving.address, &warmed, Timeouts::default()).unwrap();
    let far = outcome.far.unwrap();
    assert!(far.totals.is_empty(), "its count begins after the warm-up");
    let phase = |report: &SideReport| report.phases.last().unwrap().flows[0].datagrams.unwrap();
    assert_eq!(phase(&far).sent, phase(&outcome.near).received, "nothing is lost");
}

/// A server that answers each control connection with this.
fn stub(play: impl Fn(&mut TcpStream, &TcpListener) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    // Ends with the test's process.
    thread::spawn(move || {
        while let Ok((mut control, _)) = listener.accept() {
            play(&mut control, &listener);
        }
    });
    address
}

fn read<const N: usize>(stream: &mut TcpStream) -> [u8; N] {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).unwrap();
    bytes
}

/// A text behind its length.
fn text(stream: &mut TcpStream) -> String {
    let mut bytes = vec![0; u32::from_be_bytes(read(stream)) as usize];
    stream.read_exact(&mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

fn send_text(stream: &mut TcpStream, text: &str) {
    let length = u32::try_from(text.len()).unwrap();
    stream.write_all(&[&length.to_be_bytes(), text.as_bytes()].concat()).unwrap();
}

/// Asks for the parameters.
fn asks(control: &mut TcpStream) {
    read::<37>(control);
    control.write_all(&[9]).unwrap();
    text(control);
}

/// Begins the test, and reads its data until the client has closed.
fn begins(control: &mut TcpStream, listener: &TcpListener) {
    asks(control);
    control.write_all(&[10]).unwrap();
    for _ in 0..2 {
        let (mut data, _) = listener.accept().unwrap();
        read::<37>(&mut data);
        thread::spawn(move || while data.read(&mut [0; 4096]).is_ok_and(|n| n > 0) {});
    }
    control.write_all(&[1, 2]).unwrap();
}

/// Takes part until the results, and sends these.
fn reports(control: &mut TcpStream, listener: &TcpListener, results: &str) {
    begins(control, listener);
    assert_eq!(read::<1>(control), [4]);
    control.write_all(&[13]).unwrap();
    text(control);
    send_text(control, results);
    control.write_all(&[14]).unwrap();
    // The client's last word, unless it does not like the results.
    let _ = control.read(&mut [0]);
}

const RESULTS: &str = r#"{"cpu_util_total":1,"cpu_util_user":1,"cpu_util_system":0,"sender_has_retransmits":-1,"streams":[
    {"id":1,"bytes":0,"retransmits":-1,"jitter":0,"errors":0,"packets":0},
    {"id":3,"bytes":0,"retransmits":-1,"jitter":0,"errors":0,"packets":0}]}"#;

#[test]
fn whatever_a_server_does_there_is_a_sentence() {
    type Play = fn(&mut TcpStream, &TcpListener);
    let plays: [(Play, &str); 19] = [
        (|control, _| drop(control.read(&mut [0])), "closed its control connection at the begin: is it iperf3 -s?"),
        (|control, _| control.write_all(&[0xFF]).unwrap(), "busy with another test"),
        (|control, _| control.write_all(b"HTTP/1.1 400").unwrap(), "the unknown message 72: is it iperf3 -s?"),
        (|control, _| control.write_all(&[14]).unwrap(), "does not belong there"),
        (|control, _| drop((control.read(&mut [0; 37]), thread::sleep(Duration::from_secs(3)))), "does not answer"),
        (|control, _| (asks(control), control.write_all(&[0xFE, 0, 0, 0, 142])).1.unwrap(), "requires authentication"),
        (|control, _| asks(control), "may require authentication"),
        (
            |control, _| (asks(control), control.write_all(&[0xFE, 0, 0, 0, 27, 0, 0, 0, 0])).1.unwrap(),
            "--server-bitrate-limit",
        ),
        (
            |control, _| (asks(control), control.write_all(&[0xFE, 0, 0, 0, 9, 0, 0, 0, 13])).1.unwrap(),
            "its error 9 (Permission denied there)",
        ),
        (|control, _| (asks(control), control.write_all(&[0xFE, 0, 0])).1.unwrap(), "in the middle of an error"),
        (|control, _| (asks(control), control.write_all(&[10, 11])).1.unwrap(), "it was stopped there"),
        (|control, listener| (begins(control, listener), control.write_all(&[11])).1.unwrap(), "it was stopped there"),
        (|control, listener| begins(control, listener), "closed its control connection during the test"),
        (
            |control, listener| (begins(control, listener), control.write_all(&[13]), drop(control.read(&mut [0]))).2,
            "does not belong there",
        ),
        (|control, listener| reports(control, listener, "{}"), "cannot be true: no results"),
        (
            |control, listener| reports(control, listener, &RESULTS.replace("\"id\":3", "\"id\":2")),
            "a stream 2, which the test does not have",
        ),
        (
            |control, listener| reports(control, listener, &RESULTS.replace("\"bytes\":0", "\"bytes\":-5")),
            "`bytes` is -5",
        ),
        (
            |control, listener| {
                reports(control, listener, &RESULTS.replace("\"bytes\":0", "\"bytes\":900000000000000"));
            },
            "were sent",
        ),
        (
            |control, listener| {
                begins(control, listener);
                assert_eq!(read::<1>(control), [4]);
                control.write_all(&[13]).unwrap();
                text(control);
                control.write_all(&[0x7F, 0, 0, 0]).unwrap();
                let _ = control.read(&mut [0]);
            },
            "a message of 2130706432 bytes",
        ),
    ];
    let timeouts = Timeouts { ready: Duration::from_millis(1500), ..Timeouts::default() };
    thread::scope(|scope| {
        for (play, word) in plays {
            scope.spawn(move || {
                let mut spec = spec(Transport::Tcp, Direction::Forward);
                spec.pace = Some(Pace {
                    events_per_s: 10.0,
                    mode: PaceMode::User,
                    arrival: Arrival::Closed,
                    burst: 1,
                    catch_up: 1,
                });
                let error = run(&stub(play), &spec, timeouts).map(|outcome| outcome.far).unwrap_err().to_string();
                assert!(error.contains(word), "{word}: {error}");
                assert!(error.starts_with("host `box` (127.0.0.1:"), "{error}");
            });
        }
        scope.spawn(move || {
            // A server that says all is well.
            let fine = stub(|control, listener| reports(control, listener, RESULTS));
            run(&fine, &spec(Transport::Tcp, Direction::Forward), timeouts).unwrap();
        });
    });
}

/// The letters of a cookie, all the same.
fn cookie(letter: u8) -> Vec<u8> {
    [vec![letter; 36], vec![0]].concat()
}

/// A client's control connection that has sent its cookie and these parameters; what came back after the first word.
fn asking(address: &str, letter: u8, parameters: &str) -> TcpStream {
    let mut control = TcpStream::connect(address).unwrap();
    control.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    control.write_all(&cookie(letter)).unwrap();
    assert_eq!(read::<1>(&mut control), [9]);
    send_text(&mut control, parameters);
    control
}

#[test]
fn a_client_that_asks_for_too_much_gets_its_own_kind_of_error() {
    let limits = Limits { flows: 4, duration_ns: 60_000_000_000, ..Limits::default() };
    let serving = Serving::also(Program::Iperf3, Config { limits, ..Config::default() });
    for (parameters, code) in [
        (r#"{"tcp":true,"parallel":129}"#, 6),
        (r#"{"tcp":true,"parallel":5}"#, 6),
        (r#"{"tcp":true,"parallel":3,"bidirectional":true}"#, 6),
        (r#"{"tcp":true,"time":61}"#, 37),
        (r#"{"tcp":true,"time":86401}"#, 5),
        (r#"{"tcp":true,"len":1048577}"#, 7),
        (r#"{"udp":true,"len":15}"#, 20),
        (r#"{"sctp":true}"#, 18),
        (r#"{"tcp":true,"num":-1}"#, 114),
        ("no object", 114),
    ] {
        let mut control = asking(&serving.address, b'a', parameters);
        let mut expected = vec![0xFE, 0, 0, 0, code];
        expected.extend([0; 4]);
        assert_eq!(read::<9>(&mut control).to_vec(), expected, "{parameters}");
        assert_eq!(control.read(&mut [0]).unwrap(), 0, "{parameters}");
    }
    let mut long = TcpStream::connect(&serving.address).unwrap();
    long.write_all(&[cookie(b'a'), vec![0, 0, 0x20, 1]].concat()).unwrap();
    assert_eq!(read::<6>(&mut long), [9, 0xFE, 0, 0, 0, 114]);
    let mut stranger = TcpStream::connect(&serving.address).unwrap();
    stranger.write_all(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: */*\r\n\r\n").unwrap();
    assert_eq!(read::<1>(&mut stranger), [0xFF]);
    works(&serving.address);
}

/// A client is served.
fn works(address: &str) {
    run(address, &spec(Transport::Tcp, Direction::Forward), Timeouts::default()).unwrap();
}

#[test]
fn clients_that_vanish_or_meddle_harm_nobody() {
    let serving = Serving::also(Program::Iperf3, Config::default());
    let test = r#"{"tcp":true,"parallel":2,"time":5,"len":1000}"#;
    // Between the control connection and the data connections, and with one of two.
    let mut control = asking(&serving.address, b'b', test);
    assert_eq!(read::<1>(&mut control), [10]);
    let mut data = TcpStream::connect(&serving.address).unwrap();
    data.write_all(&cookie(b'b')).unwrap();
    works(&serving.address);
    drop(control);
    assert_eq!(data.read(&mut [0]).unwrap_or(0), 0, "its session is over");
    // A third connection for two streams, and one before any is wanted.
    let mut control = asking(&serving.address, b'c', test);
    assert_eq!(read::<1>(&mut control), [10]);
    let mut streams: Vec<TcpStream> = (0..3).map(|_| TcpStream::connect(&serving.address).unwrap()).collect();
    for stream in &mut streams {
        stream.write_all(&cookie(b'c')).unwrap();
    }
    assert_eq!(read::<2>(&mut control), [1, 2]);
    let mut refused = 0;
    for stream in &mut streams {
        stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        refused += usize::from(matches!(stream.read(&mut [0]), Ok(1)));
    }
    assert_eq!(refused, 1);
    // Nonsense in the middle of the test, and results of nobody's streams at its end.
    control.write_all(&[77]).unwrap();
    assert_eq!(control.read(&mut [0; 2]).unwrap_or(0), 0);
    works(&serving.address);
    let mut control = asking(&serving.address, b'd', r#"{"tcp":true,"time":5,"len":1000}"#);
    assert_eq!(read::<1>(&mut control), [10]);
    let mut data = TcpStream::connect(&serving.address).unwrap();
    data.write_all(&cookie(b'd')).unwrap();
    assert_eq!(read::<2>(&mut control), [1, 2]);
    control.write_all(&[4]).unwrap();
    assert_eq!(read::<1>(&mut control), [13]);
    send_text(&mut control, &RESULTS.replace("\"id\":3", "\"id\":7"));
    assert_eq!(read::<1>(&mut control), [0xFE]);
    works(&serving.address);
}

/// A spoofed hello would turn the load of a reverse test on its source.
#[test]
fn datagrams_go_to_the_client_alone() {
    let serving = Serving::also(Program::Iperf3, Config::default());
    let mut control =
        asking(&serving.address, b'e', r#"{"udp":true,"reverse":true,"time":5,"len":1000,"bandwidth":8000000}"#);
    assert_eq!(read::<1>(&mut control), [10]);
    let hello = |from: &str, bytes: &[u8]| {
        let socket = UdpSocket::bind((from, 0)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        socket.connect(&serving.address).unwrap();
        // The kernel may refuse what no socket wants.
        let _ = socket.send(bytes);
        let mut answer = [0; 2000];
        let answer = socket.recv(&mut answer).map(|n| answer[..n].to_vec()).ok();
        (socket, answer)
    };
    let (third, silence) = hello("127.0.0.2", b"9876");
    assert_eq!(silence, None, "another host");
    assert_eq!(hello("127.0.0.1", &[0; 1000]).1, None, "a late datagram of an earlier test");
    let (own, reply) = hello("127.0.0.1", b"9876");
    assert_eq!(reply.as_deref(), Some(&b"6789"[..]));
    assert_eq!(read::<2>(&mut control), [1, 2]);
    assert_eq!(own.recv(&mut [0; 2000]).unwrap(), 1000, "the load");
    assert!(third.recv(&mut [0; 2000]).is_err());
    drop(control);
    works(&serving.address);
}
