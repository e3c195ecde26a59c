//! A session seen from the side that decides: it prepares tests on a daemon, starts them, and joins both ends' reports.
//!
//! [`Session::connect`] greets a daemon and measures its clock. [`Session::prepare`] makes one test ready with the near
//! end in this process, [`conduct`] with the near end on another daemon, [`alone`] with a far end that is none of ours; the [`Prepared`] test waits, connected, for
//! [`Prepared::start`] with an instant on this host's monotonic clock, so that any number of them, on any hosts, start
//! together. [`RunningTest::wait`] gives the [`Outcome`]. A session runs one test at a time and as many as wanted one
//! after another; tests at the same time have a session each.

mod ready;
mod running;
mod session;

use std::{fmt, net::IpAddr, time::Duration};

pub use ready::{DataAddresses, Prepared, alone, conduct};
pub use running::{Observer, Outcome, RunningTest};
pub use session::{PeerFacts, Session};

use crate::{
    control::{channel::ChannelError, key::Key, message::ReplyError, netns::NetnsError},
    error::{EndError, remedy},
};

/// Where a daemon is, and how to talk to it.
#[derive(Clone, Debug)]
pub struct Target {
    /// The host's name in sentences.
    pub name: String,
    /// `host`, `host:port` or `[address]:port`; the port is 12864 where none is named.
    pub control: String,
    /// The key; `None`: in clear.
    pub key: Option<Key>,
    /// Local address of the control connection; `None`: by the route.
    pub bind: Option<IpAddr>,
    /// Network namespace that the control connection is made in; `None`: the process's own.
    pub netns: Option<String>,
    /// How long to wait for what.
    pub timeouts: Timeouts,
}

impl Target {
    /// A daemon with every option at its default.
    #[must_use]
    pub fn new(name: impl Into<String>, control: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            control: control.into(),
            key: None,
            bind: None,
            netns: None,
            timeouts: Timeouts::default(),
        }
    }
}

/// How long to wait for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For the control connection and the greeting.
    pub connect: Duration,
    /// For an answer.
    pub reply: Duration,
    /// For the data connections to come together.
    pub ready: Duration,
    /// For the end of a test after the instant that it should have ended at.
    pub grace: Duration,
    /// For a test that stops after a count, which has no such instant.
    pub counted: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            reply: Duration::from_secs(10),
            ready: Duration::from_secs(10),
            grace: Duration::from_secs(10),
            counted: Duration::from_hours(1),
        }
    }
}

/// A host as sentences name it: its name, and the address of its daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostLabel {
    /// Name in the plan.
    pub name: String,
    /// Where its daemon was looked for.
    pub control: String,
}

impl fmt::Display for HostLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "host `{}` ({})", self.name, self.control)
    }
}

/// Why a session or a test came to nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// No address.
    #[error("{host} was not found: {source}")]
    Resolve {
        /// Which host.
        host: HostLabel,
        /// What came back.
        source: std::io::Error,
    },
    /// No daemon there.
    #[error("{host} cannot be reached: {source}{}", unreached(source))]
    Connect {
        /// Which host.
        host: HostLabel,
        /// What came back.
        source: std::io::Error,
    },
    /// A key is needed.
    #[error(
        "{host} refused the session: it requires a key; give one with hosts.{}.key_file in the plan or --key-file",
        host.name
    )]
    KeyRequired {
        /// Which host.
        host: HostLabel,
    },
    /// A key is not wanted.
    #[error(
        "{host} uses no key and one was given for it: start its `plumb serve` with --key-file, or leave the key out here"
    )]
    KeyUnknown {
        /// Which host.
        host: HostLabel,
    },
    /// The keys differ.
    #[error("{host} refused the session: it has another key than the one given for it here")]
    KeyDiffers {
        /// Which host.
        host: HostLabel,
    },
    /// The control connection failed.
    #[error("{host}: {source}")]
    Channel {
        /// Which host.
        host: HostLabel,
        /// How.
        source: ChannelError,
    },
    /// The connection ended while a test was going on.
    #[error("{host} closed its control connection while the test was going on")]
    Vanished {
        /// Which host.
        host: HostLabel,
    },
    /// The daemon refused something or failed.
    #[error("{host}: {error}")]
    Daemon {
        /// Which host.
        host: HostLabel,
        /// What it says.
        error: ReplyError,
    },
    /// It answered something else than was asked.
    #[error("{host} is out of step: it answered `{reply}` to `{request}`")]
    OutOfStep {
        /// Which host.
        host: HostLabel,
        /// What was asked.
        request: &'static str,
        /// What came.
        reply: &'static str,
    },
    /// Its report is none.
    #[error("{host}: {reason}")]
    Senseless {
        /// Which host.
        host: HostLabel,
        /// What is wrong.
        reason: String,
    },
    /// Its clock makes no sense.
    #[error("the clock of {host} cannot be related to this one: its answers to {probes} probes contradict each other")]
    Clock {
        /// Which host.
        host: HostLabel,
        /// How many were sent.
        probes: usize,
    },
    /// It names endpoints that have no business in this test.
    #[error("{host} wants the data to go to {place}, which is none of its addresses here: refused")]
    Elsewhere {
        /// Which host.
        host: HostLabel,
        /// Where to.
        place: String,
    },
    /// The near end failed.
    #[error("{0}")]
    Near(#[from] EndError),
    /// The namespace of the near end.
    #[error("{0}")]
    Netns(#[from] NetnsError),
    /// The end of a test did not come.
    #[error("no data from {host} for {seconds:.0} s; its control connection is silent too")]
    Silent {
        /// Which host.
        host: HostLabel,
        /// For how long after the test's end, seconds.
        seconds: f64,
    },
    /// The system refused something here.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What came back.
        source: std::io::Error,
    },
    /// The user asked twice for the end.
    #[error("interrupted: the measurement was ended at once and has no result")]
    Interrupted,
}

/// What to look at where a host was not reached.
fn unreached(source: &std::io::Error) -> &'static str {
    match remedy(source) {
        "" => "; is `plumb serve` running there, and is the port open?",
        ours => ours,
    }
}
