//! A daemon for a test, and the tests that are run on it.

use std::{net::SocketAddr, thread::JoinHandle};

use netcore::{
    client::{Session, Target},
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

/// A TCP stream for so long.
pub fn stream(milliseconds: u64) -> TestSpec {
    let mut spec = TestSpec::new(Pattern::Stream, Transport::Tcp);
    spec.phases.stop = Stop::AfterNs(milliseconds * 1_000_000);
    spec
}

pub fn nobody_stops() -> StopFlag {
    StopFlag::new().unwrap()
}
