//! The daemon inside the client's process: for tests on one machine.

use std::{
    net::SocketAddr,
    thread::{self, JoinHandle},
    time::Duration,
};

use super::{Config, Daemon, DaemonError, Limits, Network, Timeouts};
use crate::{
    client::Target,
    control::{key::Key, message::ReportBuilder, stop::StopFlag},
    spec::memory,
};

/// A daemon in this process, on a loopback port that the kernel chose, with a key that only it knows. Dropping it ends it.
#[derive(Debug)]
pub struct Embedded {
    address: SocketAddr,
    key: Key,
    netns: Option<String>,
    stop: StopFlag,
    thread: Option<JoinHandle<()>>,
}

impl Daemon {
    /// Starts a daemon in a thread of this process. It serves only this process, so it grants whatever the machine can do,
    /// and reads files with the rights that this process has anyway.
    ///
    /// `netns`: network namespace of its sockets, whose loopback interface must be up; `None`: the process's own.
    pub fn spawn_embedded(netns: Option<String>) -> Result<Embedded, DaemonError> {
        let key = Key::generate()?;
        let config = Config {
            listen: vec![([127, 0, 0, 1], 0).into()],
            key: Some(key.clone()),
            allow_connect: Network::everything().to_vec().into(),
            allow_files: vec!["/".into()],
            limits: Limits::of_own_client(),
            // The client is in the same process: it cannot vanish without this daemon.
            timeouts: Timeouts::of_own_client(),
            netns: netns.clone(),
            // The client starts programs on its own machine itself: no hooks.
            ..Config::default()
        };
        let system = |what| move |source| DaemonError::System { what, source };
        let daemon = Self::bind(config)?;
        let address = daemon.local_addr().unwrap_or_else(|| ([127, 0, 0, 1], 0).into());
        let stop = StopFlag::new().map_err(system("no descriptors for the embedded daemon"))?;
        let flag = stop.clone();
        let thread = thread::Builder::new()
            .name("daemon".into())
            .spawn(move || {
                // It ends only by the flag, or by a poll that fails; the client then sees its connection closed.
                let _ = daemon.run(&flag);
            })
            .map_err(system("no thread for the embedded daemon"))?;
        Ok(Embedded { address, key, netns, stop, thread: Some(thread) })
    }
}

impl Limits {
    /// For a daemon that serves only the process that started it: bounded only where a report would become too long for its
    /// reader.
    pub fn of_own_client() -> Self {
        Self {
            sessions: 1024,
            sessions_per_client: 1024,
            memory_bytes: u64::MAX,
            flows: 4096,
            duration_ns: 30 * 24 * 3600 * 1_000_000_000,
            buffer_bytes: memory::MOST_BYTES,
            interval_readings: ReportBuilder::READINGS,
            queue_ns: None,
        }
    }
}

impl Timeouts {
    /// For a daemon that ends with its only client.
    pub fn of_own_client() -> Self {
        Self { idle: Duration::from_hours(30 * 24), ..Self::default() }
    }
}

impl Embedded {
    /// The way to reach it, as a host of that name.
    pub fn target(&self, name: impl Into<String>) -> Target {
        Target { key: Some(self.key.clone()), netns: self.netns.clone(), ..Target::new(name, self.address.to_string()) }
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.stop.request();
        self.stop.request();
        if let Some(thread) = self.thread.take() {
            // A panic in it has been reported already.
            let _ = thread.join();
        }
    }
}
