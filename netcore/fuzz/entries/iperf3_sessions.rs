//! Bytes of a stranger as messages of iperf3: to the codec, to a client session and to a server session.

use std::{
    io::{Read, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use super::{
    Client, mapping,
    parameters::{MOST_BLOCK_BYTES, MOST_STREAMS, Parameters},
    results::{Results, StreamResults},
    serve,
    wire::{COOKIE_BYTES, MOST_PARAMETERS, MOST_RESULTS, State, frame, length},
};
use crate::{
    control::{
        message::{Limits, ReplyError},
        stop::StopFlag,
    },
    measure::clock::monotonic_ns,
    peers::{Conversation, DataPath, Host, Sessions, Share},
    report::SideReport,
    spec::{Dialect, Direction, Pattern, Stop, TestSpec, Transport, support},
    transport::Deadline,
};

/// Far longer than any of this takes: the stranger always closes its connections.
const PATIENCE: Duration = Duration::from_mins(1);

/// The pure part: what is read is within the bounds, and a test that comes from it can be run.
fn codec(bytes: &[u8]) {
    if let Some(head) = bytes.first_chunk() {
        assert!(
            length(*head, MOST_PARAMETERS).is_ok_and(|length| length <= MOST_PARAMETERS) || length(*head, 0).is_err()
        );
    }
    if let Some(state) = bytes.first().and_then(|byte| State::parse(*byte)) {
        assert_eq!(Some(&state.byte()), bytes.first());
    }
    if let Ok(asked) = Parameters::decode(bytes) {
        assert!((1..=MOST_STREAMS).contains(&asked.parallel) && asked.len <= MOST_BLOCK_BYTES);
        if let Ok(spec) = mapping::test(&asked, Limits::default().duration_ns) {
            assert_eq!(support::check(&spec), Ok(()));
        }
    }
    if let Ok(results) = Results::decode(bytes) {
        assert!(results.streams.len() <= 2 * MOST_STREAMS as usize);
        let again = Results::decode(results.encode().to_string().as_bytes()).expect("its own results can be true");
        assert_eq!(again.streams.len(), results.streams.len());
    }
}

/// A daemon that grants a second of a few streams.
struct Fake {
    limits: Limits,
    stop: StopFlag,
    sessions: Sessions,
    number: Mutex<u64>,
}

impl Fake {
    fn new() -> Self {
        let limits = Limits { flows: 8, duration_ns: 1_000_000_000, buffer_bytes: 16 << 20, ..Limits::default() };
        let stop = StopFlag::new().expect("descriptors for a flag");
        Self { limits, stop, sessions: Sessions::default(), number: Mutex::new(0) }
    }
}

impl Host for Fake {
    fn open(&self, version: &str) -> Result<Box<dyn Share + '_>, ReplyError> {
        assert!(version.len() <= 64 && !version.chars().any(char::is_control), "a log line: {version:?}");
        Ok(Box::new(()))
    }

    fn admit(&self, spec: &TestSpec) -> Result<Box<dyn Share + '_>, ReplyError> {
        assert!(spec.flows() <= self.limits.flows, "{spec:?}");
        assert!(spec.phases.length_ns().is_some_and(|ns| ns <= self.limits.duration_ns), "{spec:?}");
        Ok(Box::new(()))
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn serves(&self, _: IpAddr) -> bool {
        true
    }

    fn number(&self) -> u64 {
        let mut number = self.number.lock().expect("nothing panics with it");
        *number += 1;
        *number
    }

    fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    fn stop(&self) -> &StopFlag {
        &self.stop
    }

    fn ran(&self, _spec: &TestSpec, _report: &SideReport) {}

    fn failed(&self, _spec: &TestSpec, _reason: &str) {}
}

/// What a stranger does of a client's part as it should, before it sends the rest.
#[derive(Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "each is a bit of the input")]
struct Script<'b> {
    cookie: bool,
    parameters: bool,
    streams: bool,
    ends: bool,
    udp: bool,
    reverse: bool,
    rest: &'b [u8],
}

/// A server session: it ends soon after its client has.
fn server(script: Script<'_>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("an address");
    let host = Fake::new();
    let began = Instant::now();
    thread::scope(|scope| {
        let (host, listener) = (&host, &listener);
        let accept = || listener.accept().expect("a connection");
        let near = TcpStream::connect(address).expect("a connection");
        let (far, peer) = accept();
        let session = scope.spawn(move || serve(host, far, peer));
        play_client(near, address, script, || {
            let near = TcpStream::connect(address).expect("a connection");
            let (far, peer) = accept();
            scope.spawn(move || serve(host, far, peer));
            near
        });
        session.join().expect("the session does not panic");
    });
    assert!(began.elapsed() < PATIENCE, "the session outlives its client");
    assert_eq!(host.sessions.iperf3.count(), 0);
}

fn play_client(mut control: TcpStream, address: SocketAddr, script: Script<'_>, open: impl Fn() -> TcpStream) {
    let cookie = [&[b'a'; COOKIE_BYTES - 1][..], &[0]].concat();
    // The server may have closed already: its peer is no client of its kind.
    let mut kept = Vec::new();
    let mut say = |bytes: &[u8], answer: usize| {
        let _ = control.write_all(bytes);
        let _ = control.set_read_timeout(Some(Duration::from_secs(5)));
        let mut answer = vec![0; answer];
        control.read_exact(&mut answer).is_ok()
    };
    let asked = Parameters {
        protocol: if script.udp { super::parameters::Protocol::Udp } else { super::parameters::Protocol::Tcp },
        direction: if script.reverse { Direction::Reverse } else { Direction::Forward },
        parallel: 1,
        len: 1000,
        bandwidth: 1_000_000,
        ..Parameters::default()
    };
    let mut goes_on = script.cookie && say(&cookie, 1);
    goes_on = goes_on && script.parameters && say(&frame(&asked.encode()), 1);
    if goes_on && script.streams {
        if script.udp {
            let socket = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
            let _ = socket.connect(address).and_then(|()| socket.send(&super::wire::HELLO));
        } else {
            let mut stream = open();
            let _ = stream.write_all(&cookie);
            kept.push(stream);
        }
        goes_on = say(&[], 2);
    }
    if goes_on && script.streams && script.ends {
        say(&[State::TestEnd.byte()], 1);
    }
    say(script.rest, 0);
    let _ = control.shutdown(std::net::Shutdown::Write);
    // Read to its end: a close with unread bytes would reset the connection, and the rest would not be read.
    let _ = control.read_to_end(&mut Vec::new());
}

/// A client session: it ends soon after its server has.
fn client(script: Script<'_>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let near = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
    let (far, _) = listener.accept().expect("a connection");
    let began = Instant::now();
    thread::scope(|scope| {
        scope.spawn(move || play_server(far, listener, script));
        let mut spec = TestSpec::new(Pattern::Stream, Transport::Tcp);
        (spec.dialect, spec.phases.stop) = (Dialect::Iperf3 { wide_counter: false }, Stop::AfterNs(1));
        let deadline = Deadline::after(PATIENCE, &|| false);
        let mut session = Client::new(near).expect("a socket");
        session.retried = Duration::ZERO;
        let Ok(end) = session.agree(&spec, DataPath::default(), &deadline) else { return };
        if session.begin(&deadline).is_err() {
            return;
        }
        let Ok(running) = end.start(monotonic_ns(), None) else { return };
        let _ = session.pump();
        while !running.is_load_over() {
            running.wait(Duration::from_millis(1));
        }
        if session.load_over().is_err() {
            return;
        }
        running.release();
        let _ = session.conclude(&running.finish(), &deadline);
    });
    assert!(began.elapsed() < PATIENCE, "the session outlives its server");
}

fn play_server(mut control: TcpStream, listener: TcpListener, script: Script<'_>) {
    let mut say = |bytes: &[u8]| {
        let _ = control.write_all(bytes);
    };
    if script.cookie {
        say(&[State::ParamExchange.byte()]);
    }
    if script.cookie && script.parameters {
        say(&[State::CreateStreams.byte()]);
        if script.streams {
            if let Ok((mut stream, _)) = listener.accept() {
                // What is not read keeps the client waiting. It ends with the client's socket.
                thread::spawn(move || while stream.read(&mut [0; 4096]).is_ok_and(|n| n > 0) {});
            }
            say(&[State::TestStart.byte(), State::TestRunning.byte()]);
        }
    }
    if script.streams && script.ends {
        say(&[State::ExchangeResults.byte()]);
        if script.udp {
            // Only the numbers of the text are the stranger's.
            let results = Results { streams: vec![StreamResults::default()], ..Results::default() };
            say(&frame(&results.encode()));
        }
    }
    say(script.rest);
    drop(listener);
    let _ = control.shutdown(std::net::Shutdown::Write);
    let _ = control.set_read_timeout(Some(Duration::from_secs(5)));
    let _ = control.take(MOST_RESULTS as u64).read_to_end(&mut Vec::new());
}

/// One stranger.
pub fn iperf3_sessions(bytes: &[u8]) {
    codec(bytes);
    let [options, rest @ ..] = bytes else { return };
    let has = |bit: u8| options & 1 << bit != 0;
    let script = Script {
        cookie: !has(0),
        parameters: !has(1),
        streams: !has(2),
        ends: has(3),
        udp: has(4),
        reverse: has(5),
        rest,
    };
    if has(6) { client(script) } else { server(script) }
}

#[cfg(test)]
mod tests {
    use proptest::{
        prelude::*,
        test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
    };

    use super::*;

    /// Messages that are nearly right: what a stranger would try after reading the protocol.
    fn nearly() -> impl Strategy<Value = Vec<u8>> {
        let parameters = prop::sample::select(vec![
            r#"{"tcp":true,"time":1,"parallel":1,"len":1000}"#,
            r#"{"udp":true,"time":1,"parallel":2,"len":16,"reverse":true,"bandwidth":1}"#,
            r#"{"tcp":true,"bidirectional":true,"window":1,"MSS":9000,"congestion":"reno","TOS":255}"#,
        ]);
        let results = prop::sample::select(vec![
            r#"{"cpu_util_total":0,"cpu_util_user":0,"cpu_util_system":0,"sender_has_retransmits":-1,"streams":[{"id":1,"bytes":0,"retransmits":-1,"jitter":0,"errors":0,"packets":0}]}"#,
            r#"{"cpu_util_total":null,"cpu_util_user":0,"cpu_util_system":0,"sender_has_retransmits":1,"streams":[]}"#,
        ]);
        let piece = prop_oneof![
            prop::collection::vec(any::<u8>(), 0..40),
            prop::sample::select(vec![1u8, 2, 4, 9, 10, 11, 12, 13, 14, 16, 0xFE, 0xFF]).prop_map(|state| vec![state]),
            parameters.prop_map(|text: &str| framed(text.as_bytes())),
            results.prop_map(|text: &str| framed(text.as_bytes())),
            (any::<u32>(), prop::collection::vec(any::<u8>(), 0..40)).prop_map(|(length, bytes)| [
                &length.to_be_bytes()[..],
                &bytes
            ]
            .concat()),
        ];
        let change = prop::option::of((any::<prop::sample::Index>(), any::<u8>()));
        (any::<u8>(), prop::collection::vec(piece, 0..4), change).prop_map(|(options, pieces, change)| {
            let mut bytes = [vec![options], pieces.concat()].concat();
            if let Some((at, byte)) = change {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            bytes
        })
    }

    fn framed(text: &[u8]) -> Vec<u8> {
        [&u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes()[..], text].concat()
    }

    fn run(cases: u32, seed: u64) {
        let config = Config { cases, failure_persistence: None, ..Config::default() };
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let random = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let mut runner = TestRunner::new_with_rng(config, random);
        runner
            .run(&nearly(), |bytes| {
                iperf3_sessions(&bytes);
                Ok(())
            })
            .unwrap();
    }

    #[test]
    fn messages_that_are_nearly_right_do_no_harm() {
        run(60, 1);
    }

    /// For hours: `PLUMB_SEED=7 PLUMB_CASES=100000 cargo test -p netcore iperf3_for_long -- --ignored`.
    #[test]
    #[ignore = "takes as long as it is told to"]
    fn iperf3_for_long() {
        let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
        run(number("PLUMB_CASES").unwrap_or(1000), number("PLUMB_SEED").map_or(7, u64::from));
    }
}
