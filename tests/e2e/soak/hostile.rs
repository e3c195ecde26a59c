//! Hostile clients of every kind, each on an address of its own (some on the measuring client's), each at a bounded rate.

use std::{
    io::{Read, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket},
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

use netcore::{
    control::{
        channel::{Channel, PROTOCOLS},
        dial::dial,
        frame::{GREETING_BOUND, REPLY_BOUND, REQUEST_BOUND},
        key::{Handshake, Key},
        message::{Connect, Greeting, Hello, Part, Prepare, Reply, Request},
    },
    end::{End, Endpoints},
    measure::{clock::monotonic_ns, host::HostFacts},
    spec::{Pattern, Side, Stop, TestSpec, Transport},
};
use nix::sys::socket::{setsockopt, sockopt};

use super::process::ports;

/// A kind of hostile client.
pub struct Kind {
    pub name: &'static str,
    /// Last byte of its address, 127.0.0.x.
    host: u8,
    /// Time between two of its acts.
    pub pause: Duration,
    act: fn(&mut Hostile<'_>),
}

const fn kind(name: &'static str, host: u8, pause_ms: u64, act: fn(&mut Hostile<'_>)) -> Kind {
    Kind { name, host, pause: Duration::from_millis(pause_ms), act }
}

/// Address 1 is that of the measuring client. There the rate leaves an honest greeting several seconds until sixteen newer
/// connections have pushed it out.
pub const KINDS: &[Kind] = &[
    kind("silent", 2, 50, silent),
    kind("silent, from the client's address", 1, 500, silent),
    kind("slow", 3, 100, slow),
    kind("flooding", 4, 500, flooding),
    kind("flooding, deaf to answers", 4, 2000, deaf),
    kind("garbage", 4, 200, garbage),
    kind("vanishing", 5, 500, vanishing),
    kind("forged", 6, 500, forged),
    kind("data ports", 7, 500, data_ports),
    kind("data ports, from the client's address", 1, 500, data_ports),
    kind("greedy", 8, 1000, greedy),
    kind("hoarding sessions", 9, 1000, hoarding),
];

/// A daemon, and the key to it.
pub struct Target {
    pub control: SocketAddr,
    pub pid: i32,
    pub key: Key,
}

/// All hostile clients of a daemon. They rest until they are let loose.
pub struct Pack {
    target: Target,
    loose: AtomicBool,
    over: AtomicBool,
    busy: AtomicUsize,
    acts: Vec<AtomicU64>,
}

impl Pack {
    pub fn new(target: Target) -> Self {
        Self {
            target,
            loose: AtomicBool::new(false),
            over: AtomicBool::new(false),
            busy: AtomicUsize::new(0),
            acts: KINDS.iter().map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Starts the threads of all kinds.
    pub fn start<'s>(&'s self, scope: &'s thread::Scope<'s, '_>) {
        for (kind, acts) in KINDS.iter().zip(&self.acts) {
            scope.spawn(move || self.live(kind, acts));
        }
    }

    /// Lets them act, or waits until each of them has closed everything.
    pub fn loose(&self, loose: bool) {
        self.loose.store(loose, SeqCst);
        while !loose && self.busy.load(SeqCst) > 0 {
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Ends the threads.
    pub fn end(&self) {
        self.over.store(true, SeqCst);
    }

    /// Acts of each kind so far.
    pub fn acts(&self) -> Vec<u64> {
        self.acts.iter().map(|acts| acts.load(SeqCst)).collect()
    }

    fn live(&self, kind: &Kind, acts: &AtomicU64) {
        yield_to_others();
        while !self.over.load(SeqCst) {
            self.busy.fetch_add(1, SeqCst);
            let mut hostile = Hostile::new(&self.target, kind.host);
            while self.loose.load(SeqCst) && !self.over.load(SeqCst) {
                (kind.act)(&mut hostile);
                hostile.turn += 1;
                acts.fetch_add(1, SeqCst);
                thread::sleep(kind.pause);
            }
            drop(hostile);
            self.busy.fetch_sub(1, SeqCst);
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Gives this thread the lowest priority: hostile clients have machines of their own, and must not measure this one's scheduler.
fn yield_to_others() {
    let thread = nix::unistd::gettid().to_string();
    // Without the program the measurement is only disturbed more.
    let _ =
        Command::new("renice").args(["-n", "19", "-p", &thread]).stdout(Stdio::null()).stderr(Stdio::null()).status();
}

/// One hostile client at work.
struct Hostile<'t> {
    target: &'t Target,
    from: IpAddr,
    /// Acts so far: each kind does several things in turn.
    turn: usize,
    connections: Vec<TcpStream>,
    sessions: Vec<Channel>,
}

/// Limit for one step of a client. It bounds the time that the pack takes to stop.
fn soon() -> Instant {
    Instant::now() + Duration::from_secs(5)
}

/// Long enough for the answers that are under way.
fn now() -> Instant {
    Instant::now() + Duration::from_millis(20)
}

/// The eight bytes of a client that uses a key.
fn preamble(protocol: u8) -> Vec<u8> {
    [&b"plumb\0"[..], &[protocol, 1]].concat()
}

/// Closes with a reset instead of an end.
fn reset(stream: &TcpStream) {
    let linger = nix::libc::linger { l_onoff: 1, l_linger: 0 };
    // The daemon may have closed it already.
    let _ = setsockopt(stream, sockopt::Linger, &linger);
}

/// Whether the other end has closed.
fn is_closed(stream: &TcpStream) -> bool {
    let _ = stream.set_nonblocking(true);
    match stream.peek(&mut [0]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
    }
}

/// The largest test that a daemon grants: an hour of 64 flows with as much buffer as the budget of the soak has.
fn largest() -> TestSpec {
    let mut spec = TestSpec::new(Pattern::Stream, Transport::Tcp);
    spec.phases.stop = Stop::AfterNs(3600 * 1_000_000_000);
    (spec.streams, spec.far.buffers.ring) = (64, 2);
    spec
}

impl<'t> Hostile<'t> {
    fn new(target: &'t Target, host: u8) -> Self {
        let from = Ipv4Addr::new(127, 0, 0, host).into();
        Self { target, from, turn: 0, connections: Vec::new(), sessions: Vec::new() }
    }

    fn connection(&self) -> Option<TcpStream> {
        dial(&[self.target.control], Some(self.from), soon()).ok()
    }

    /// A connection on which these bytes were sent.
    fn said(&self, bytes: &[u8]) -> Option<TcpStream> {
        let mut stream = self.connection()?;
        stream.write_all(bytes).ok()?;
        Some(stream)
    }

    /// Keeps a connection until the daemon drops it.
    fn keep(&mut self, stream: Option<TcpStream>, most: usize) {
        self.connections.retain(|stream| !is_closed(stream));
        self.connections.extend(stream);
        let excess = self.connections.len().saturating_sub(most);
        self.connections.drain(..excess);
    }

    /// A session that was granted.
    fn session(&self) -> Option<Channel> {
        let mut channel = Channel::initiate(self.connection()?, Some(&self.target.key), soon()).ok()?;
        let host = HostFacts { hostname: Some("hostile\x1b[2J\n".repeat(1000)), ..HostFacts::default() };
        let hello = Hello { tool_version: "\x1b[31m".repeat(1000), process: 0, limits: None, host, mpi: None };
        channel.send(&hello, GREETING_BOUND, soon()).ok()?;
        let greeting: Greeting = channel.recv(soon()).ok()?;
        channel.set_bound(REPLY_BOUND);
        matches!(greeting, Greeting::Hello(_)).then_some(channel)
    }

    /// A byte for a token, another one each time.
    fn guess(&self) -> u8 {
        u8::try_from(self.turn % 256).unwrap_or_default()
    }

    /// The session of a client that has one as long as the daemon lets it.
    fn the_session(&mut self) -> Option<Channel> {
        self.sessions.pop().or_else(|| self.session())
    }
}

fn tell(channel: &mut Channel, request: &Request) -> bool {
    channel.send(request, REQUEST_BOUND, soon()).is_ok()
}

fn ask(channel: &mut Channel, request: &Request) -> Option<Reply> {
    if tell(channel, request) { channel.recv(soon()).ok() } else { None }
}

fn prepare(channel: &mut Channel, spec: &TestSpec, token: [u8; 16]) -> Option<Endpoints> {
    let part = Part::End { spec: Box::new(spec.clone()), side: Side::Far };
    let prepare = Prepare { part, token, data_address: None };
    match ask(channel, &Request::Prepare(Box::new(prepare)))? {
        Reply::Prepared(endpoints) => Some(endpoints),
        _ => None,
    }
}

/// Many more connections than there are places, renewed as soon as they are dropped.
fn silent(hostile: &mut Hostile<'_>) {
    let stream = hostile.connection();
    hostile.keep(stream, 100);
}

/// A byte of a greeting now and then.
fn slow(hostile: &mut Hostile<'_>) {
    let greeting = [preamble(*PROTOCOLS.end()), vec![0, 48], vec![7; 40]].concat();
    let byte = greeting[hostile.turn / 8 % greeting.len()];
    for stream in &mut hostile.connections {
        // It may be closed by now.
        let _ = stream.write_all(&[byte]);
    }
    let renewed = if hostile.turn.is_multiple_of(10) { hostile.said(b"p") } else { None };
    hostile.keep(renewed, 20);
}

/// Twenty requests at once.
fn flooding(hostile: &mut Hostile<'_>) {
    let Some(mut session) = hostile.the_session() else { return };
    let at_ns = monotonic_ns();
    let request = match hostile.turn % 4 {
        0 => Request::Stop { at_ns },
        1 => Request::Measure { at_ns },
        2 => Request::Abort,
        _ => Request::Probe,
    };
    let alive = (0..20).all(|_| tell(&mut session, &request));
    let mut heard = 0;
    while heard < 20 && session.recv::<Reply>(now()).is_ok() {
        heard += 1;
    }
    if hostile.turn % 16 == 15 {
        // An unknown request ends the session.
        let _ = session.send(&"unknown", REQUEST_BOUND, soon());
    } else if alive {
        hostile.sessions.push(session);
    }
}

/// Asks without end and reads no answer.
fn deaf(hostile: &mut Hostile<'_>) {
    let Some(mut session) = hostile.the_session() else { return };
    let asked = (0..200).all(|_| session.send(&Request::Probe, REQUEST_BOUND, now()).is_ok());
    if asked && hostile.turn % 16 != 15 {
        hostile.sessions.push(session);
    }
}

/// Random bytes in place of a greeting, or of the record after it.
fn garbage(hostile: &mut Hostile<'_>) {
    let noise: Vec<u8> = (0..5000u32).map(|i| i.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    let stream = match hostile.turn % 3 {
        0 => hostile.said(&noise),
        1 => hostile.said(&[preamble(*PROTOCOLS.end()), noise].concat()),
        _ => hostile.said(b"GET / HTTP/1.1\r\n\r\n"),
    };
    hostile.keep(stream, 4);
}

/// Leaves in each state, by an end or by a reset.
fn vanishing(hostile: &mut Hostile<'_>) {
    let Some(stream) = hostile.connection() else { return };
    if hostile.turn.is_multiple_of(2) {
        reset(&stream);
    }
    let state = hostile.turn / 2 % 7;
    if state == 0 {
        return;
    }
    if state == 1 {
        let _ = (&stream).write_all(&preamble(*PROTOCOLS.end()));
        return;
    }
    let Ok(mut channel) = Channel::initiate(stream, Some(&hostile.target.key), soon()) else { return };
    if state == 2 {
        return;
    }
    let hello = Hello { tool_version: "0".into(), process: 0, limits: None, host: HostFacts::default(), mpi: None };
    if channel.send(&hello, GREETING_BOUND, soon()).is_err()
        || state == 3
        || !matches!(channel.recv(soon()), Ok(Greeting::Hello(_)))
    {
        return;
    }
    channel.set_bound(REPLY_BOUND);
    let mut spec = TestSpec::new(Pattern::Stream, Transport::Tcp);
    spec.streams = 4;
    let token = [hostile.guess(); 16];
    let Some(endpoints) = prepare(&mut channel, &spec, token) else { return };
    if state == 4 {
        return;
    }
    let connect = Request::Connect(Connect { peers: Vec::new(), within_ns: 5_000_000_000 });
    let Ok(mut near) = End::prepare(&spec, Side::Near, Some(hostile.from), token) else { return };
    if !tell(&mut channel, &connect)
        || near.connect(Some((hostile.target.control.ip(), &endpoints)), Duration::from_secs(5)).is_err()
        || !matches!(channel.recv(soon()), Ok(Reply::Ready))
        || state == 5
    {
        return;
    }
    // The load begins, and nothing is ever sent.
    if tell(&mut channel, &Request::Start { t0_ns: monotonic_ns() }) {
        thread::sleep(Duration::from_millis(100));
    }
}

/// Claims that are not true.
fn forged(hostile: &mut Hostile<'_>) {
    let newest = *PROTOCOLS.end();
    let ours = preamble(newest);
    let record = || {
        let prologue = [&ours[..], &ours].concat();
        Handshake::initiator(&hostile.target.key, &prologue).and_then(|mut it| it.write()).expect("a first message")
    };
    let session_that_says = |words: &serde_json::Value| {
        if let Some(mut session) = hostile.session() {
            let _ = session.send(words, usize::MAX, soon());
            let _ = session.recv::<Reply>(soon());
        }
    };
    let stream = match hostile.turn % 10 {
        0 => {
            let stranger = Key::generate().expect("random bytes");
            let _ = hostile.connection().map(|stream| Channel::initiate(stream, Some(&stranger), soon()));
            None
        }
        // A handshake that was overheard: the answer to it cannot be read, nor anything be said after it.
        1 => hostile.said(&[&ours[..], &record(), &[0, 32], &[0; 32]].concat()),
        2 => hostile.said(&preamble(0)),
        3 => hostile.said(&preamble(newest + 1)),
        4 => hostile.said(&preamble(255)),
        // Without a key where one is required.
        5 => hostile.said(&[&b"plumb\0"[..], &[newest, 0]].concat()),
        6 => {
            session_that_says(&serde_json::json!({"abort": null, "probe": null}));
            None
        }
        7 => {
            session_that_says(&serde_json::json!("x".repeat(1 << 20)));
            None
        }
        8 => {
            let deep = (0..500).fold(serde_json::Value::Null, |inner, _| serde_json::json!([inner]));
            session_that_says(&deep);
            None
        }
        _ => {
            session_that_says(&serde_json::json!({"start": {"t0_ns": u64::MAX}}));
            None
        }
    };
    hostile.keep(stream, 8);
}

/// Connections and datagrams to every data port of the daemon, with guessed tokens or without a word.
fn data_ports(hostile: &mut Hostile<'_>) {
    let guess = [&b"plumbln1"[..], &[hostile.guess(); 16], &0u32.to_le_bytes()].concat();
    for port in ports(hostile.target.pid, "tcp") {
        let place = SocketAddr::new(hostile.target.control.ip(), port);
        if place == hostile.target.control {
            continue;
        }
        let Ok(mut stream) = dial(&[place], Some(hostile.from), soon()) else { continue };
        if hostile.turn.is_multiple_of(2) {
            let _ = stream.write_all(&guess);
            let _ = stream.set_read_timeout(Some(Duration::from_millis(1)));
            let _ = stream.read(&mut [0; 16]);
        }
        if hostile.turn % 4 == 3 {
            reset(&stream);
            drop(stream);
        } else {
            hostile.keep(Some(stream), 32);
        }
    }
    let Ok(socket) = UdpSocket::bind((hostile.from, 0)) else { return };
    for port in ports(hostile.target.pid, "udp") {
        let _ = socket.send_to(&guess, (hostile.target.control.ip(), port));
    }
}

/// The largest test again and again: granted, refused beside another one, or beyond the bounds.
fn greedy(hostile: &mut Hostile<'_>) {
    let Some(mut session) = hostile.the_session() else { return };
    let mut spec = largest();
    match hostile.turn % 6 {
        3 => spec.streams = 65,
        4 => spec.far.buffers.ring = u32::MAX,
        5 => spec.phases.interval_ns = 1_000_000,
        _ => {}
    }
    let _ = prepare(&mut session, &spec, [1; 16]);
    if matches!(ask(&mut session, &Request::Abort), Some(Reply::Idle)) {
        hostile.sessions.push(session);
    }
}

/// As many sessions as one address gets, each kept alive.
fn hoarding(hostile: &mut Hostile<'_>) {
    let mut sessions = std::mem::take(&mut hostile.sessions);
    sessions.retain_mut(|session| ask(session, &Request::Probe).is_some());
    sessions.extend(hostile.session());
    hostile.sessions = sessions;
}
