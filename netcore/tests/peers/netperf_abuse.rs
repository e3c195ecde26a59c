//! Clients that break netperf's protocol, or want what they must not have, against this daemon.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream, UdpSocket},
    time::{Duration, Instant},
};

use netcore::{
    daemon::{Config, Limits},
    peers::{
        Program,
        netperf::{
            messages::{self, direction, flag, socket_type},
            request::{Place, request},
            wire::{MESSAGE_BYTES, Message, Text, WireIp, kind},
        },
    },
    spec::{Direction, Pattern, Stop, Transport},
};
use proptest::{
    prelude::*,
    test_runner::{Config as Cases, RngSeed, TestRunner},
};

use crate::{netperf::spec, served::Serving};

/// A control connection that sends what it likes.
struct Raw(TcpStream);

impl Raw {
    fn new(daemon: &Serving) -> Self {
        let stream = TcpStream::connect(&daemon.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
        Self(stream)
    }

    fn tell(&mut self, message: &Message) {
        self.0.write_all(&message.0).unwrap();
    }

    /// The next answer; `None`: the daemon has closed the connection.
    fn hear(&mut self) -> Option<Message> {
        let mut bytes = [0; MESSAGE_BYTES];
        self.0.read_exact(&mut bytes).ok().map(|()| Message(bytes))
    }

    #[track_caller]
    fn ask(&mut self, message: &Message) -> Message {
        self.tell(message);
        self.hear().expect("an answer")
    }

    /// Whether the daemon closes the connection, rather than to answer.
    fn is_closed(&mut self) -> bool {
        matches!(self.0.read(&mut [0]), Ok(0) | Err(_))
    }
}

fn daemon() -> Serving {
    Serving::also(Program::Netperf, Config::default())
}

/// A request of OMNI, changed.
fn omni(pattern: Pattern, transport: Transport, change: impl FnOnce(&mut messages::OmniRequest)) -> Message {
    let mut message = request(&spec(pattern, transport, Stop::AfterNs(1_000_000_000)), &Place::default());
    let mut request = messages::OmniRequest::read(&message);
    change(&mut request);
    request.write(&mut message);
    message
}

fn stream(change: impl FnOnce(&mut messages::OmniRequest)) -> Message {
    omni(Pattern::Stream, Transport::Tcp, change)
}

fn data_port(response: &Message) -> u16 {
    assert_eq!(response.second(), 0, "{response:?}");
    messages::OmniResponse::read(response).data_port.try_into().unwrap()
}

#[test]
fn requests_beyond_the_bounds_are_refused_with_their_errno() {
    let daemon = daemon();
    let refusals = [
        (libc::EINVAL, stream(|r| r.receive_size = -2)),
        (libc::EINVAL, stream(|r| r.receive_size = i32::MAX)),
        (libc::EINVAL, stream(|r| r.send_size = i32::MIN)),
        (libc::EINVAL, stream(|r| r.send_buffer = -5)),
        (libc::EINVAL, stream(|r| r.test_length = i32::MAX)),
        (libc::EINVAL, stream(|r| r.data_port = 70_000)),
        (libc::EACCES, stream(|r| r.data_port = 80)),
        (libc::EPROTONOSUPPORT, stream(|r| r.protocol = 33)),
        (libc::EPROTONOSUPPORT, stream(|r| r.socket_type = socket_type::DATAGRAM)),
        (libc::EAFNOSUPPORT, stream(|r| r.family = 7)),
        (libc::EAFNOSUPPORT, stream(|r| r.family = 6)),
        (libc::EOPNOTSUPP, stream(|r| r.direction = 0)),
        (libc::EOPNOTSUPP, stream(|r| r.flags |= flag::CONNECT)),
        (libc::EINVAL, omni(Pattern::RequestResponse, Transport::Tcp, |r| r.request_size = 65 << 20)),
        (libc::EINVAL, omni(Pattern::RequestResponse, Transport::Tcp, |r| r.response_size = -1)),
        (libc::EINVAL, omni(Pattern::RequestResponse, Transport::Udp, |r| r.request_size = 65_508)),
    ];
    for (errno, message) in refusals {
        let mut raw = Raw::new(&daemon);
        assert_eq!(raw.ask(&message).second(), errno.unsigned_abs(), "{message:?}");
        assert!(raw.is_closed());
    }
    // Widths, alignments, offsets, files, files' sizes and CPUs are ignored: one buffer, and no file is opened.
    let mut raw = Raw::new(&daemon);
    let mut message = stream(|r| {
        (r.send_width, r.receive_width, r.send_alignment, r.receive_offset) = (i32::MAX, i32::MAX, 3, i32::MIN);
        (r.priority, r.fill_file) = (7, Text::new("/etc/shadow").unwrap());
        r.flags |= flag::SENDFILE | 0x1000;
    });
    message.0[4..8].copy_from_slice(&63u32.to_be_bytes());
    let response = raw.ask(&message);
    assert_eq!(messages::OmniResponse::read(&response).priority, -1, "it needs a privilege");
    drop(TcpStream::connect(("127.0.0.1", data_port(&response))).unwrap());
    assert_eq!(raw.hear().unwrap().second(), 0);
}

/// The time of a client that receives began later than the daemon's, and it reads on until it is over.
#[test]
fn a_slow_reader_gets_all_that_was_sent() {
    let daemon = daemon();
    let mut raw = Raw::new(&daemon);
    let mut spec = spec(Pattern::Stream, Transport::Tcp, Stop::AfterNs(1_000_000_000));
    spec.direction = Direction::Reverse;
    let response = raw.ask(&request(&spec, &Place::default()));
    let mut data = TcpStream::connect(("127.0.0.1", data_port(&response))).unwrap();
    // The daemon has ended, blocked by a full buffer.
    let results = messages::OmniResults::read(&raw.hear().unwrap());
    let mut received = Vec::new();
    data.read_to_end(&mut received).expect("an end, and no reset");
    assert_eq!(received.len() as u64, results.bytes_sent);
}

#[test]
fn other_questions_leave_the_session_open() {
    let daemon = daemon();
    let mut raw = Raw::new(&daemon);
    for number in [0, 4, 7, 22, 96, 99, 400, 500, 1000, u32::MAX] {
        assert_eq!(raw.ask(&Message::new(number, u32::MAX)).second(), 998, "{number}");
    }
    assert_eq!(raw.ask(&Message::new(kind::DEBUG_ON, 0)).kind(), kind::DEBUG_OK);
    raw.tell(&Message::new(kind::PASSPHRASE, 0));
    let calibrated = raw.ask(&Message::new(kind::CPU_CALIBRATE, 0));
    assert!(calibrated.get::<f32>(0) > 0.0 && calibrated.get::<u32>(1) > 0);
    assert_eq!(raw.ask(&Message::new(kind::SYSINFO, 0)).kind(), kind::SYSINFO + 1);
    let port = data_port(&raw.ask(&stream(|_| ())));
    TcpStream::connect(("127.0.0.1", port)).unwrap().write_all(&[7; 12_345]).unwrap();
    let results = messages::OmniResults::read(&raw.hear().unwrap());
    assert_eq!(results.bytes_received, 12_345);
}

#[test]
fn an_old_netperf_a_silent_one_and_one_that_leaves_are_noticed() {
    let daemon = daemon();
    let mut old = Raw::new(&daemon);
    old.0.write_all(&Message::new(kind::TCP_STREAM, u32::MAX).0[..256]).unwrap();
    assert!(old.is_closed(), "its messages have 256 bytes");
    // The control connection ends while the daemon waits for the data, and while it sends.
    let mut waiting = Raw::new(&daemon);
    let port = data_port(&waiting.ask(&stream(|r| r.test_length = 3000)));
    drop(waiting);
    let patience = Instant::now() + Duration::from_mins(1);
    while TcpStream::connect(("127.0.0.1", port)).is_ok() {
        assert!(Instant::now() < patience, "its data port is still open");
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut sending = Raw::new(&daemon);
    let port = data_port(&sending.ask(&stream(|r| (r.direction, r.test_length) = (direction::SEND, 3000))));
    let mut data = TcpStream::connect(("127.0.0.1", port)).unwrap();
    data.read_exact(&mut [0; 10_000]).unwrap();
    drop(sending);
    // It reads to an end, by a reset or not.
    let _ = std::io::copy(&mut data, &mut std::io::sink());
    // A message during a test ends it, too.
    let mut impatient = Raw::new(&daemon);
    let port = data_port(&impatient.ask(&stream(|r| r.test_length = 3000)));
    let _data = TcpStream::connect(("127.0.0.1", port)).unwrap();
    impatient.tell(&stream(|_| ()));
    assert!(impatient.is_closed());
}

#[test]
fn classic_clients_end_without_a_word() {
    let daemon = daemon();
    // By a count, and by a time.
    for (test_length, exchanges) in [(-3, 3), (1, 5)] {
        let mut raw = Raw::new(&daemon);
        let mut message = Message::new(kind::TCP_RR, u32::MAX);
        let (request_size, response_size) = (10, 20);
        messages::ExchangeRequest { request_size, response_size, test_length, ..Default::default() }
            .write(&mut message);
        let response = raw.ask(&message);
        let port = messages::ExchangeResponse::read(&response).data_port.try_into().unwrap();
        let mut data = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port))).unwrap();
        for _ in 0..exchanges {
            data.write_all(&[1; 10]).unwrap();
            data.read_exact(&mut [0; 20]).unwrap();
        }
        let results = messages::ExchangeResults::read(&raw.hear().unwrap());
        assert_eq!((results.transactions, results.bytes_received), (exchanges, 10 * exchanges));
    }
}

#[test]
fn a_client_that_reads_no_more_gets_its_results_at_once() {
    let daemon = daemon();
    let mut raw = Raw::new(&daemon);
    let port = data_port(&raw.ask(&stream(|r| (r.direction, r.test_length) = (direction::SEND, 3000))));
    let mut data = TcpStream::connect(("127.0.0.1", port)).unwrap();
    data.read_exact(&mut [0; 10_000]).unwrap();
    data.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(messages::OmniResults::read(&raw.hear().unwrap()).bytes_sent >= 10_000);
}

#[test]
fn only_the_client_can_take_its_data_connection() {
    let daemon = daemon();
    let mut raw = Raw::new(&daemon);
    let port = data_port(&raw.ask(&stream(|_| ())));
    let from = |ip: [u8; 4]| {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((ip, 0)).into()).unwrap();
        socket.connect(&SocketAddr::from(([127, 0, 0, 1], port)).into()).unwrap();
        TcpStream::from(socket)
    };
    let mut stranger = from([127, 0, 0, 3]);
    assert!(matches!(stranger.read(&mut [0]), Ok(0) | Err(_)), "it is dropped");
    from([127, 0, 0, 1]).write_all(&[1; 1000]).unwrap();
    assert_eq!(messages::OmniResults::read(&raw.hear().unwrap()).bytes_received, 1000);
}

#[test]
fn a_client_opens_no_address_that_the_daemon_does_not_serve() {
    let daemon = daemon();
    let mut raw = Raw::new(&daemon);
    let elsewhere = "127.0.0.2".parse().unwrap();
    let port = data_port(&raw.ask(&stream(|r| r.server_address = WireIp::of(elsewhere))));
    assert!(TcpStream::connect((elsewhere, port)).is_err(), "nothing listens there");
    TcpStream::connect(("127.0.0.1", port)).unwrap().write_all(&[1; 1000]).unwrap();
    assert_eq!(messages::OmniResults::read(&raw.hear().unwrap()).bytes_received, 1000);
}

/// A socket of another host, and whether anything has come to it.
struct Third(UdpSocket);

impl Third {
    fn new() -> Self {
        let socket = UdpSocket::bind("127.0.0.3:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        Self(socket)
    }

    fn address(&self) -> SocketAddr {
        self.0.local_addr().unwrap()
    }

    fn has_heard(&self) -> bool {
        self.0.recv(&mut [0; 2000]).is_ok()
    }
}

#[test]
fn a_third_host_never_gets_a_datagram() {
    let (daemon, third) = (daemon(), Third::new());
    let aim = |r: &mut messages::OmniRequest| {
        (r.client_address, r.client_port) = (WireIp::of(third.address().ip()), third.address().port().into());
    };
    // A stream of datagrams to it, and answers to it.
    let reflected = omni(Pattern::Stream, Transport::Udp, |r| {
        aim(r);
        r.direction = direction::SEND;
    });
    assert_eq!(Raw::new(&daemon).ask(&reflected).second(), libc::EOPNOTSUPP.unsigned_abs());
    let answered = omni(Pattern::RequestResponse, Transport::Udp, aim);
    assert_eq!(Raw::new(&daemon).ask(&answered).second(), libc::EACCES.unsigned_abs());
    // It sends to the data port of somebody's test, before that one's client and after.
    let mut raw = Raw::new(&daemon);
    let request = omni(Pattern::RequestResponse, Transport::Udp, |r| {
        (r.test_length, r.request_size, r.response_size) = (-3, 100, 200);
    });
    let port = data_port(&raw.ask(&request));
    let to = SocketAddr::from(([127, 0, 0, 1], port));
    let ask_as_third = || third.0.send_to(&[3; 100], to).and_then(|_| third.0.send_to(&[], to)).unwrap();
    ask_as_third();
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    client.connect(to).unwrap();
    let mut answer = [0; 1000];
    for _ in 0..3 {
        client.send(&[1; 100]).unwrap();
        assert_eq!(client.recv(&mut answer).unwrap(), 200);
        // The daemon's socket may be gone after the last answer.
        let _ = third.0.send_to(&[], to);
    }
    client.send(&[]).unwrap();
    let results = messages::OmniResults::read(&raw.hear().unwrap());
    assert_eq!((results.transactions, results.bytes_received, results.bytes_sent), (3, 300, 600));
    assert!(!third.has_heard());
}

#[test]
fn datagrams_that_never_come_or_never_end_have_their_time() {
    let daemon = daemon();
    let request = omni(Pattern::Stream, Transport::Udp, |r| r.receive_size = -1);
    let received = &|datagrams: u32| {
        let mut raw = Raw::new(&daemon);
        let port = data_port(&raw.ask(&request));
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..datagrams {
            client.send_to(&[1; 1400], ("127.0.0.1", port)).unwrap();
        }
        let results = messages::OmniResults::read(&raw.hear().unwrap());
        assert_eq!(results.bytes_received, u64::from(1400 * datagrams));
        results.receives
    };
    std::thread::scope(|scope| {
        let sent = [0, 3].map(|datagrams| scope.spawn(move || (datagrams, received(datagrams))));
        for (datagrams, receives) in sent.map(|thread| thread.join().unwrap()) {
            assert_eq!(datagrams, receives);
        }
    });
}

/// A session of a client that does what it likes.
#[derive(Clone, Debug)]
enum Act {
    /// A message, whole or cut.
    Say(Box<Message>, usize),
    /// A data connection, with bytes, to the port of the last response.
    Connect(usize),
    /// Datagrams likewise.
    Datagram(usize),
    Hear,
    Wait(u64),
}

fn act() -> impl Strategy<Value = Act> {
    let word = prop_oneof![5 => Just(u32::MAX), 5 => 0u32..8, 2 => 0u32..70_000, 2 => Just(17), 1 => any::<u32>()];
    let known = prop::sample::select(vec![97u32, 97, 10, 13, 16, 19, 34, 94, 300]);
    let kinds = prop_oneof![3 => known, 1 => 0u32..=1000, 1 => any::<u32>()];
    let random = (kinds, prop::collection::vec(word, 162)).prop_map(|(kind, words)| {
        let mut message = Message::new(kind, u32::MAX);
        words.iter().enumerate().for_each(|(number, word)| message.put(number, word));
        message
    });
    let patterns = prop::sample::select(vec![
        (Pattern::Stream, Transport::Tcp),
        (Pattern::RequestResponse, Transport::Tcp),
        (Pattern::ConnectRequestResponse, Transport::Tcp),
        (Pattern::Stream, Transport::Udp),
        (Pattern::RequestResponse, Transport::Udp),
    ]);
    // A request that is nearly right.
    let changed = (patterns, 0usize..40, any::<u32>(), 0u32..16, any::<bool>()).prop_map(
        |((pattern, transport), at, large, small, is_small)| {
            let mut message = omni(pattern, transport, |_| ());
            message.put(at, if is_small { &small } else { &large });
            message
        },
    );
    let message = prop_oneof![random, changed].prop_map(Box::new);
    prop_oneof![
        6 => (message.clone(), Just(MESSAGE_BYTES)).prop_map(|(message, bytes)| Act::Say(message, bytes)),
        1 => (message, 0..=MESSAGE_BYTES).prop_map(|(message, bytes)| Act::Say(message, bytes)),
        4 => Just(Act::Hear),
        3 => (0usize..100_000).prop_map(Act::Connect),
        3 => (0usize..2000).prop_map(Act::Datagram),
        1 => (0u64..30).prop_map(Act::Wait),
    ]
}

/// Plays a session. Whoever reads an address in its messages finds that of a third host.
fn play(address: &str, third: SocketAddr, acts: &[Act]) {
    let Ok(stream) = TcpStream::connect(address) else { return };
    stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let mut raw = Raw(stream);
    let mut port = 9;
    let (mut connections, datagrams) = (Vec::new(), UdpSocket::bind("127.0.0.1:0").unwrap());
    for act in acts {
        match act {
            Act::Say(message, bytes) => {
                let mut message = message.clone();
                if message.kind() == kind::OMNI {
                    message.put(25, &u32::from(third.port()));
                    message.put(28, &WireIp::of(third.ip()));
                }
                let _ = raw.0.write_all(&message.0[..*bytes]);
            }
            Act::Hear => {
                let Some(answer) = raw.hear() else { continue };
                let word = if answer.kind() == 98 { 11 } else { 5 };
                port = u16::try_from(answer.get::<u32>(word)).ok().filter(|port| *port > 0).unwrap_or(port);
            }
            Act::Connect(bytes) => {
                if let Ok(mut data) = TcpStream::connect(("127.0.0.1", port)) {
                    data.set_write_timeout(Some(Duration::from_millis(50))).unwrap();
                    let _ = data.write_all(&vec![0; *bytes]);
                    connections.push(data);
                }
            }
            Act::Datagram(bytes) => drop(datagrams.send_to(&vec![0; *bytes], ("127.0.0.1", port))),
            Act::Wait(milliseconds) => std::thread::sleep(Duration::from_millis(*milliseconds)),
        }
    }
}

/// `FULL=1 cargo test -p netcore --test peers random` plays many more sessions, of another seed each time.
#[test]
fn random_sessions_leave_the_daemon_as_it_was() {
    let full = std::env::var_os("FULL").is_some();
    let limits = Limits { sessions: 64, sessions_per_client: 64, ..Limits::default() };
    let daemon = Serving::also(Program::Netperf, Config { limits, ..Config::default() });
    let third = Third::new();
    let seed = if full { RngSeed::Random } else { RngSeed::Fixed(7) };
    let cases = if full { 2000 } else { 12 };
    let mut runner = TestRunner::new(Cases { cases, failure_persistence: None, rng_seed: seed, ..Cases::default() });
    runner
        .run(&prop::collection::vec(prop::collection::vec(act(), 1..12), 8), |sessions| {
            std::thread::scope(|scope| {
                for acts in &sessions {
                    scope.spawn(|| play(&daemon.address, third.address(), acts));
                }
            });
            prop_assert!(!third.has_heard(), "a third host got a datagram");
            Ok(())
        })
        .unwrap();
    // It still serves, and counts right.
    let mut raw = Raw::new(&daemon);
    let port = data_port(&raw.ask(&stream(|_| ())));
    TcpStream::connect(("127.0.0.1", port)).unwrap().write_all(&[7; 4711]).unwrap();
    assert_eq!(messages::OmniResults::read(&raw.hear().unwrap()).bytes_received, 4711);
}
