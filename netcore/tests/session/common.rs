//! Clients of a test's daemon.

use std::{
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use netcore::{
    client::{self, ClientError, DataAddresses, Far, Prepared, Session, Timeouts},
    control::{
        channel::Channel,
        frame::{GREETING_BOUND, REPLY_BOUND, REQUEST_BOUND},
        key::Key,
        message::{Connect, ErrorCode, Greeting, Hello, Part, Prepare, Reply, Request},
    },
    end::End,
    measure::host::HostFacts,
    spec::{Side, TestSpec},
};

pub use crate::served::{Served, eventually, never_stopped, soon, stream};

impl Served {
    pub fn connect(&self) -> Session {
        Session::connect(&self.target()).unwrap()
    }
}

/// A test between two daemons, made ready.
pub fn between<'s>(
    near: &'s mut Session,
    far: &'s mut Session,
    spec: &TestSpec,
    addresses: &DataAddresses,
) -> Result<Prepared<'s>, ClientError> {
    client::prepare(Some(near), Far::Daemon(far), spec, addresses, Timeouts::default())
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
        let hello = Hello { tool_version: "test".into(), process, limits: None, host: HostFacts::default(), mpi: None };
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

pub fn prepare(spec: TestSpec, token: [u8; 16]) -> Request {
    part(Part::End { spec: Box::new(spec), side: Side::Far }, token)
}

/// A near end that is to prove itself with this token.
pub fn prepare_near(spec: TestSpec, token: [u8; 16]) -> Request {
    part(Part::End { spec: Box::new(spec), side: Side::Near }, token)
}

pub fn part(part: Part, token: [u8; 16]) -> Request {
    Request::Prepare(Box::new(Prepare { part, token, data_address: None }))
}

pub fn connect_far() -> Request {
    Request::Connect(Connect { peers: Vec::new(), within_ns: 60_000_000_000 })
}
