//! A daemon for a test. Also in the tests that play random conversations.

use std::{
    net::SocketAddr,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use netcore::{
    client::Target,
    control::stop::StopFlag,
    daemon::{Config, Daemon},
    spec::{Pattern, Stop, TestSpec, Transport},
};

/// A daemon in a thread, stopped at once when it is dropped.
pub struct Served {
    pub address: SocketAddr,
    pub stop: StopFlag,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    pub fn new(config: Config) -> Self {
        Self::at("127.0.0.1:0", config)
    }

    pub fn at(address: &str, config: Config) -> Self {
        let config = Config { listen: vec![address.parse().unwrap()], ..config };
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

pub fn soon() -> Instant {
    Instant::now() + Duration::from_mins(1)
}
