//! netperf's protocol: this client against netserver, against this daemon and against stubs.

use std::{
    net::TcpListener,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use netcore::{
    client::{self, ClientError, DataAddresses, Far, Outcome, Peer, Target},
    daemon::{Config, Limits},
    peers::Program,
    report::{Counts, Ending, SideReport},
    spec::{Dialect, Direction, Pattern, Stop, TestSpec, Transport},
};

use crate::needs::has_program;
use crate::served::{Serving, never_stopped};

/// A netserver on a free port; it is killed when this is dropped.
struct Netserver {
    child: Child,
    address: String,
}

impl Netserver {
    /// `None`: the program is not installed here, and the test is skipped.
    fn start() -> Option<Self> {
        if !has_program("netserver", "netperf") {
            return None;
        }
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut command = Command::new("netserver");
        command.args(["-4", "-D", "-p", &free.port().to_string()]).stdout(Stdio::null()).stderr(Stdio::null());
        let server = Self { child: command.spawn().unwrap(), address: free.to_string() };
        let patience = Instant::now() + Duration::from_secs(30);
        while std::net::TcpStream::connect(free).is_err() {
            assert!(Instant::now() < patience, "netserver does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(server)
    }
}

impl Drop for Netserver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn run(address: &str, spec: &TestSpec) -> Result<Outcome, ClientError> {
    let target = Target::new("old", address);
    let mut peer = Peer::connect(Program::Netperf, &target)?;
    let prepared = client::prepare(None, Far::Peer(&mut peer), spec, &DataAddresses::default(), target.timeouts)?;
    prepared.start(None)?.wait(&mut (), &never_stopped())
}

pub fn spec(pattern: Pattern, transport: Transport, stop: Stop) -> TestSpec {
    let mut spec = TestSpec::new(pattern, transport);
    (spec.dialect, spec.phases.stop) = (Dialect::Netperf, stop);
    spec
}

const HALF: Stop = Stop::AfterNs(500_000_000);

/// Tests of every kind, by time and by count.
fn all() -> Vec<TestSpec> {
    let reversed = |stop| TestSpec { direction: Direction::Reverse, ..spec(Pattern::Stream, Transport::Tcp, stop) };
    let inflight = TestSpec { inflight: 16, ..spec(Pattern::RequestResponse, Transport::Tcp, HALF) };
    let mut sized = spec(Pattern::RequestResponse, Transport::Tcp, Stop::AfterTransactions(100));
    (sized.sizes.request_bytes, sized.sizes.response_bytes) = (1000, 3000);
    vec![
        spec(Pattern::Stream, Transport::Tcp, HALF),
        spec(Pattern::Stream, Transport::Tcp, Stop::AfterBytes(10_000_000)),
        reversed(Stop::AfterNs(1_000_000_000)),
        reversed(Stop::AfterBytes(1_000_000)),
        spec(Pattern::RequestResponse, Transport::Tcp, HALF),
        spec(Pattern::RequestResponse, Transport::Tcp, Stop::AfterTransactions(1000)),
        inflight,
        sized,
        spec(Pattern::ConnectRequestResponse, Transport::Tcp, Stop::AfterTransactions(100)),
        spec(Pattern::ConnectRequestResponse, Transport::Tcp, HALF),
        spec(Pattern::Connect, Transport::Tcp, Stop::AfterTransactions(100)),
        spec(Pattern::Connect, Transport::Tcp, HALF),
        spec(Pattern::Stream, Transport::Udp, HALF),
        spec(Pattern::RequestResponse, Transport::Udp, HALF),
        spec(Pattern::RequestResponse, Transport::Udp, Stop::AfterTransactions(1000)),
    ]
}

/// Both ends must have counted the same.
fn check(spec: &TestSpec, outcome: &Outcome) {
    let (near, far) = (&outcome.near, outcome.far.as_ref().unwrap());
    let what = format!("{:?} {:?} {:?} {:?}", spec.pattern, spec.transport, spec.direction, spec.phases.stop);
    assert_eq!((&near.ending, &far.ending), (&Ending::Complete, &Ending::Complete), "{what}");
    let of = |report: &SideReport| {
        let sum = |count: fn(&Counts) -> u64| report.totals.iter().map(|flow| count(&flow.counts)).sum::<u64>();
        (sum(|c| c.bytes_sent), sum(|c| c.bytes_received), sum(|c| c.transactions))
    };
    let ((near_sent, near_received, near_done), (far_sent, far_received, far_done)) = (of(near), of(far));
    match (spec.pattern, spec.transport) {
        (Pattern::Stream, Transport::Udp) => assert!(0 < far_received && far_received <= near_sent, "{what}"),
        // A lost datagram is replaced.
        (_, Transport::Udp) => assert!(0 < near_done && near_done <= far_done, "{what}"),
        (Pattern::Stream, _) if spec.direction == Direction::Reverse => {
            // A netserver does not count the call that its timer interrupts.
            let most = far_sent + spec.sizes.message_bytes;
            assert!(0 < near_received && near_received <= most, "{what}: {near_received} of {far_sent}");
            assert!(far_sent <= near_received, "{what}: the stream was read to its end");
        }
        (Pattern::Stream, _) => assert!(0 < near_sent && near_sent == far_received, "{what}"),
        (Pattern::Connect, _) => assert!(0 < near_done && near_done == far_done, "{what}"),
        _ => assert!(
            0 < near_done && (near_sent, near_received, near_done) == (far_received, far_sent, far_done),
            "{what}"
        ),
    }
    match spec.phases.stop {
        Stop::AfterTransactions(count) => assert_eq!(near_done, count, "{what}"),
        Stop::AfterBytes(bytes) => assert!(bytes <= near_sent.max(near_received), "{what}"),
        Stop::AfterNs(_) => assert!(far.phases[0].elapsed_ns > 0, "{what}"),
    }
    let buffer = far.options.iter().find(|granted| granted.option == "receive_buffer").unwrap();
    assert!(buffer.at_start.as_ref().unwrap().parse::<u64>().unwrap() > 0, "{what}");
    let timed_connects = spec.pattern.is_connecting() && matches!(spec.phases.stop, Stop::AfterNs(_));
    assert_eq!(far.phases[0].cpu.is_none(), timed_connects, "{what}");
}

/// A daemon that also serves netperf's clients.
fn daemon() -> Serving {
    let limits = Limits { sessions: 64, sessions_per_client: 64, ..Limits::default() };
    Serving::also(Program::Netperf, Config { limits, ..Config::default() })
}

fn check_all(address: &str) {
    std::thread::scope(|scope| {
        for spec in all() {
            scope.spawn(move || check(&spec, &run(address, &spec).unwrap_or_else(|error| panic!("{error}: {spec:?}"))));
        }
    });
}

#[test]
fn both_ends_of_every_test_count_the_same() {
    let Some(server) = Netserver::start() else { return };
    check_all(&server.address);
}

#[test]
fn this_daemon_serves_what_this_client_asks_for() {
    check_all(&daemon().address);
}
