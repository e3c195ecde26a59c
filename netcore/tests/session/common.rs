//! A daemon for a test, and clients of it.

use std::{
    net::{SocketAddr, TcpStream},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use netcore::{
    client::{self, ClientError, DataAddresses, Prepared, Session, Target, Timeouts},
    control::{
        channel::Channel,
        frame::{GREETING_BOUND, REPLY_BOUND, REQUEST_BOUND},
        key::Key,
        message::{Connect, ErrorCode, Greeting, Hello, Prepare, Reply, Request},
        stop::StopFlag,
    },
    daemon::{Config, Daemon},
    end::End,
    measure::host::HostFacts,
    spec::{Pattern, Side, Stop, TestSpec, Transport},
};

/// A daemon in a thread, stopped at once when it is dropped.
pub struct Served {
    pub address: SocketAddr,
    pub stop: StopFlag,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    pub fn new(config: Config) -> Self {
        let config = Config { listen: vec!["127.0.0.1:0".parse().unwrap()], ..config };
        let daemon = Daemon::bind(config).unwrap();
        let address = daemon.local_addr().unwrap();
        let stop = StopFlag::new().unwrap();
        let flag = stop.clone();
        let thread = std::thread::spawn(move || daemon.run(&flag).unwrap());
        Self { address, stop, thread: Some(thread) }
    }

    pub fn target(&self) -> Target {
        Target::new("server", self.address.to_string())
    }

    pub fn connect(&self) -> Session {
        Session::connect(&self.target()).unwrap()
    }

    /// Waits until the daemon has returned from [`Daemon::run`].
    pub fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.request();
        self.stop.request();
        self.join();
    }
}

/// A TCP stream.
pub fn stream(milliseconds: u64) -> TestSpec {
    let mut spec = TestSpec::new(Pattern::Stream, Transport::Tcp);
    spec.phases.stop = Stop::AfterNs(milliseconds * 1_000_000);
    spec
}

/// A test between two daemons, made ready.
pub fn between<'s>(
    near: &'s mut Session,
    far: &'s mut Session,
    spec: &TestSpec,
    addresses: &DataAddresses,
) -> Result<Prepared<'s>, ClientError> {
    client::prepare(Some(near), Some(far), spec, addresses, Timeouts::default())
}

pub fn never_stopped() -> StopFlag {
    StopFlag::new().unwrap()
}

/// Waits for an effect of another thread.
pub fn eventually(what: &str, mut happened: impl FnMut() -> bool) {
    let patience = Instant::now() + Duration::from_mins(1);
    while !happened() {
        assert!(Instant::now() < patience, "{what}: not within a minute");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A client that sends arbitrary messages.
pub struct Raw(pub Channel);

impl Raw {
    /// Greets as a client does.
    pub fn greeted(address: SocketAddr) -> Self {
        Self::with_key(address, None)
    }

    /// The same with a key.
    pub fn with_key(address: SocketAddr, key: Option<&Key>) -> Self {
        Self::admitted(address, key, 0).expect("a session is free")
    }

    /// The same; `None`: the daemon is busy.
    pub fn welcome(address: SocketAddr) -> Option<Self> {
        Self::admitted(address, None, 0)
    }

    /// The same, as a session of this client process.
    pub fn of_process(process: u64, address: SocketAddr) -> Option<Self> {
        Self::admitted(address, None, process)
    }

    fn admitted(address: SocketAddr, key: Option<&Key>, process: u64) -> Option<Self> {
        let mut raw = Self(Channel::initiate(TcpStream::connect(address).unwrap(), key, soon()).unwrap());
        let hello = Hello { tool_version: "test".into(), process, limits: None, host: HostFacts::default() };
        raw.0.send(&hello, GREETING_BOUND, soon()).unwrap();
        let greeting: Greeting = raw.0.recv(soon()).unwrap();
        raw.0.set_bound(REPLY_BOUND);
        matches!(greeting, Greeting::Hello(_)).then_some(raw)
    }

    pub fn ask(&mut self, request: &Request) -> Reply {
        self.tell(request);
        self.hear()
    }

    pub fn tell(&mut self, request: &Request) {
        self.0.send(request, REQUEST_BOUND, soon()).unwrap();
    }

    pub fn hear(&mut self) -> Reply {
        self.0.recv(soon()).unwrap()
    }

    /// Connects a test whose far end is the daemon. Returns its near end, which is here and need not start.
    pub fn connected(&mut self, spec: &TestSpec) -> End {
        let token = [7; 16];
        let Reply::Prepared(endpoints) = self.ask(&prepare(spec.clone(), token)) else { panic!() };
        let mut near = End::prepare(spec, Side::Near, None, token).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                near.connect(Some(("127.0.0.1".parse().unwrap(), &endpoints)), Duration::from_mins(1)).unwrap();
            });
            assert_eq!(self.ask(&connect_far()), Reply::Ready);
        });
        near
    }
}

/// Sends the same request without a pause until the daemon ends the session or the test. Returns its last word, which a
/// reset may lose: the daemon closes a connection with unread requests.
pub fn flood(mut raw: Raw, request: &Request) -> Option<ErrorCode> {
    let patience = soon();
    loop {
        assert!(Instant::now() < patience, "the flood goes on");
        for _ in 0..100 {
            if raw.0.send(request, REQUEST_BOUND, soon()).is_err() {
                break;
            }
        }
        loop {
            match raw.0.try_recv() {
                Ok(Some(Reply::Error(error))) => return Some(error.code),
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_) => return None,
            }
        }
    }
}

/// Floods a session; the daemon ends it for this reason.
#[track_caller]
pub fn flood_ends(raw: Raw, request: &Request, reason: ErrorCode) {
    let last_word = flood(raw, request);
    assert!(last_word.is_none_or(|code| code == reason), "{last_word:?}");
}

pub fn soon() -> Instant {
    Instant::now() + Duration::from_mins(1)
}

pub fn prepare(spec: TestSpec, token: [u8; 16]) -> Request {
    Request::Prepare(Box::new(Prepare { spec, side: Side::Far, token, data_address: None }))
}

pub fn connect_far() -> Request {
    Request::Connect(Connect { peer: None, within_ns: 60_000_000_000 })
}
