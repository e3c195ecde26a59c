//! Paths with a delay: a relay on loopback holds every datagram for a while.

use std::{
    collections::VecDeque,
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use netcore::{
    error::EndError,
    measure::histogram,
    report::{Ending, Phase, SideReport},
    spec::{Arrival, Direction, Pace, PaceMode, Pattern, Stop, TestSpec, Transport},
};
use socket2::{Domain, Protocol, Socket, Type};

use crate::pair::{MS, V4, finish, join, lasting, measured, phase, prepare, start, sum};

/// Passes the datagrams of one flow on, each after the same time. Ends when it is dropped.
struct Relay {
    port: u16,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    fn new(transport: Transport, far_port: u16, one_way: Duration) -> Self {
        let (near, far) = (socket(transport), socket(transport));
        far.connect((Ipv4Addr::LOCALHOST, far_port)).unwrap();
        let port = near.local_addr().unwrap().port();
        let ends = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let ends = ends.clone();
            move || pass_on(&[near, far], one_way, &ends)
        });
        Self { port, ends, thread: Some(thread) }
    }
}

fn socket(transport: Transport) -> UdpSocket {
    /// Of UDP-Lite.
    const LITE: i32 = 136;
    let protocol = if transport == Transport::UdpLite { Protocol::from(LITE) } else { Protocol::UDP };
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(protocol)).unwrap();
    socket.set_read_timeout(Some(Duration::from_micros(200))).unwrap();
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
    socket.into()
}

fn pass_on(sockets: &[UdpSocket; 2], one_way: Duration, ends: &AtomicBool) {
    let mut waiting = [VecDeque::new(), VecDeque::new()];
    let mut bytes = vec![0; 65536];
    while !ends.load(Relaxed) {
        for side in [0, 1] {
            if let Ok((n, from)) = sockets[side].recv_from(&mut bytes) {
                waiting[side].push_back((Instant::now() + one_way, bytes[..n].to_vec()));
                if side == 0 {
                    sockets[0].connect(from).unwrap();
                }
            }
        }
        for side in [0, 1] {
            while let Some((_, datagram)) = waiting[side].pop_front_if(|(due, _)| *due <= Instant::now()) {
                // The other end may have closed.
                let _ = sockets[1 - side].send(&datagram);
            }
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.ends.store(true, Relaxed);
        let _ = self.thread.take().unwrap().join();
    }
}

/// Both reports of a test on a path with a delay; `None`: this kernel lacks the transport.
fn run(spec: &TestSpec, one_way: Duration) -> Option<(SideReport, SideReport)> {
    let (near, far, mut endpoints) = match prepare(spec, spec, None, V4) {
        Err(EndError::System { what, source }) if spec.transport == Transport::UdpLite => {
            crate::needs::skip(&format!("{what}: {source}"));
            return None;
        }
        prepared => prepared.unwrap(),
    };
    let relays: Vec<Relay> = endpoints.ports.iter().map(|port| Relay::new(spec.transport, *port, one_way)).collect();
    endpoints.ports = relays.iter().map(|relay| relay.port).collect();
    let (near, far) = finish(start(join((near, far), &endpoints, V4).unwrap()));
    assert_eq!((&near.ending, &far.ending), (&Ending::Complete, &Ending::Complete));
    Some((near, far))
}

/// Delays one way. Greetings are repeated every 50 ms until they are answered.
const DELAYS: [Duration; 3] = [Duration::from_millis(25), Duration::from_millis(60), Duration::from_millis(300)];

/// Runs a case for each delay and transport, all at the same time.
fn for_each_path<C: Copy + Send + Sync>(cases: &[C], check: fn(Transport, C, Duration)) {
    thread::scope(|scope| {
        for transport in [Transport::Udp, Transport::UdpLite] {
            for one_way in DELAYS {
                for case in cases {
                    scope.spawn(move || check(transport, *case, one_way));
                }
            }
        }
    });
}

/// A round trip is never shorter than the path's, whatever the sizes: of a greeting too.
#[test]
fn an_answer_belongs_to_its_request() {
    // Requests and responses in bytes, requests in flight, requests per second.
    let cases = [
        (None, 1, None),
        (None, 4, Some(50.0)),
        (Some((1, 1)), 1, None),
        (Some((1, 1)), 4, Some(50.0)),
        (Some((2, 3)), 1, Some(50.0)),
        (Some((1, 64)), 4, None),
        (Some((64, 7)), 1, None),
        (Some((28, 28)), 1, None),
        (Some((28, 1)), 1, None),
        (Some((1, 28)), 1, None),
    ];
    for_each_path(&cases, |transport, (sizes, inflight, rate), one_way| {
        let mut spec = lasting(Pattern::RequestResponse, transport, 0);
        (spec.phases.stop, spec.inflight, spec.integrity) = (Stop::AfterTransactions(6), inflight, true);
        // The relay is late on a busy machine.
        spec.reply_timeout_ns = 60_000 * MS;
        if let Some((request_bytes, response_bytes)) = sizes {
            (spec.sizes.request_bytes, spec.sizes.response_bytes) = (request_bytes, response_bytes);
        }
        let (mode, arrival) = (PaceMode::User, Arrival::Uniform);
        spec.pace = rate.map(|events_per_s| Pace { events_per_s, mode, arrival, burst: 1, catch_up: 64 });
        let case = format!("{transport:?}, {sizes:?}, {inflight} in flight, {rate:?}, {one_way:?}");
        let Some((near, far)) = run(&spec, one_way) else { return };
        let counts = measured(&near);
        assert_eq!((counts.transactions, counts.errors, counts.duplicated), (6, 0, 0), "{case}");
        assert_eq!(sum(&far.totals).transactions, 6, "{case}");
        let latencies = histogram::decode(&phase(&near, Phase::Measure).flows[0].latencies[0].histogram).unwrap();
        // Less the width of a class of the histogram.
        let least = 2.0 * one_way.as_nanos() as f64 * 0.999;
        assert!(latencies.min() as f64 >= least, "{case}: {} ns", latencies.min());
    });
}

/// What is counted of a stream was sent by it: no greeting.
#[test]
fn a_greeting_is_no_message() {
    let cases = [(1, Direction::Forward), (16, Direction::Reverse), (28, Direction::Forward), (28, Direction::Reverse)];
    for_each_path(&cases, |transport, (message_bytes, direction), one_way| {
        let mut spec = lasting(Pattern::Stream, transport, 0);
        (spec.phases.stop, spec.direction) = (Stop::AfterBytes(50 * message_bytes), direction);
        spec.sizes.message_bytes = message_bytes;
        spec.pace =
            Some(Pace { events_per_s: 200.0, mode: PaceMode::User, arrival: Arrival::Uniform, burst: 1, catch_up: 64 });
        let Some((near, far)) = run(&spec, one_way) else { return };
        let (from, to) = if direction == Direction::Forward { (near, far) } else { (far, near) };
        let (sent, received) = (sum(&from.totals), sum(&to.totals));
        let case = format!("{transport:?}, {message_bytes} bytes {direction:?}, {one_way:?}");
        assert!(received.messages_received <= sent.messages_sent, "{case}: {received:?}");
        assert_eq!(received.bytes_received, received.messages_received * message_bytes, "{case}");
        assert_eq!(received.duplicated + received.reordered, 0, "{case}");
    });
}
