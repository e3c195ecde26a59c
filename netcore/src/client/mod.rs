//! The client's side of a session: prepares tests on daemons, starts them, and joins both ends' reports.
//!
//! [`Session::connect`] greets a daemon and measures its clock. [`prepare`] makes one test ready, with its near end in
//! this process or on a daemon, and its far end on a daemon or a service. The [`Prepared`] test waits, connected, for
//! [`Prepared::start`] with an instant on this host's monotonic clock, so that any number of them, on any hosts, start
//! together. [`RunningTest::wait`] gives the [`Outcome`]. A session runs one test at a time and as many as wanted one
//! after another; tests at the same time have a session each.

mod peer;
pub(crate) mod plausible;
pub(crate) mod ranks;
mod ready;
mod running;
mod session;

use std::{fmt, net::IpAddr, time::Duration};

use crate::{
    control::{
        DEFAULT_PORT, channel::ChannelError, dial::split_port, key::Key, message::ReplyError, netns::NetnsError,
    },
    error::{EndError, remedy},
    peers::{PeerError, Program},
};

pub use peer::Peer;
pub use ranks::{Arrivals, RankSession, RanksOutcome, prepare_ranks};
pub use ready::{DataAddresses, Far, Prepared, prepare, take_turns};
#[cfg(test)]
pub(crate) use running::MESSAGES_A_TURN;
pub use running::{Observer, Outcome, RunningTest};
pub use session::{Cutter, PeerFacts, Relayed, Session};

/// The longest time that a daemon can make a client wait for a turn.
pub const LONGEST_WAIT: Duration = Duration::from_hours(24);

/// A daemon or another program that serves tests, and how to talk to it.
#[derive(Clone, Debug, Default)]
pub struct Target {
    /// The host's name in sentences.
    pub name: String,
    /// `host`, `host:port` or `[address]:port`; the default port of a daemon is 12864.
    pub control: String,
    /// `None`: in clear.
    pub key: Option<Key>,
    /// Local address of the control connection; `None`: by the route.
    pub bind: Option<IpAddr>,
    /// Network namespace of the control connection; `None`: the process's own.
    pub netns: Option<String>,
    /// Carries the control connections in place of the network.
    pub relay: Option<Relayed>,
    /// Ends the control connections when the daemon is known to be gone.
    pub cutter: Option<Cutter>,
    pub timeouts: Timeouts,
}

impl Target {
    pub fn new(name: impl Into<String>, control: impl Into<String>) -> Self {
        Self { name: name.into(), control: control.into(), ..Self::default() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For the control connection and the greeting.
    pub connect: Duration,
    /// For an answer.
    pub reply: Duration,
    /// For the data connections.
    pub ready: Duration,
    /// For the end of a test after the instant at which it should have ended.
    pub grace: Duration,
    /// For a test that stops after a count, which has no such instant.
    pub counted: Duration,
    /// For a turn at a daemon that runs the tests of one client at a time, where the daemon grants as much.
    pub turn: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            reply: Duration::from_secs(10),
            ready: Duration::from_secs(10),
            grace: Duration::from_secs(10),
            counted: Duration::from_hours(1),
            turn: LONGEST_WAIT,
        }
    }
}

/// A host as error messages name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostLabel {
    /// Name in the plan.
    pub name: String,
    /// Address of its daemon, as it was given.
    pub control: String,
    /// Whether its daemon was started for this client.
    pub launched: bool,
}

impl fmt::Display for HostLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "host `{}` ({})", self.name, self.control)
    }
}

/// Why a session or a test failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    #[error("{host} was not found: {source}; check its spelling, or write its address (10.0.0.2)")]
    Resolve { host: HostLabel, source: std::io::Error },
    #[error("{host} cannot be reached: {source}{}", unreached(host, source))]
    Connect { host: HostLabel, source: std::io::Error },
    #[error(
        "{host} refused the session: it requires a key; give one with hosts.{}.key_file in the plan, --key-file or \
         PLUMB_KEY, as its `plumb serve` printed it",
        host.name
    )]
    KeyRequired { host: HostLabel },
    #[error(
        "{host} uses no key and one was given for it: start its `plumb serve` with --key-file, or leave the key out here"
    )]
    KeyUnknown { host: HostLabel },
    #[error(
        "{host} refused the session: it has another key than the one given for it here; one that `plumb serve` printed ends \
         with it: copy the line that it prints now"
    )]
    KeyDiffers { host: HostLabel },
    #[error("{host}: {source}")]
    Channel { host: HostLabel, source: ChannelError },
    #[error("{host} closed its control connection while the test was going on")]
    Vanished { host: HostLabel },
    /// The daemon refused something or failed.
    #[error("{host}: {error}")]
    Daemon { host: HostLabel, error: ReplyError },
    #[error("{host} is out of step: it answered `{reply}` to `{request}`")]
    UnexpectedReply { host: HostLabel, request: &'static str, reply: String },
    #[error("{host}: {reason}")]
    Invalid { host: HostLabel, reason: String },
    #[error("the clock of {host} cannot be related to this one: its answers to {probes} probes contradict each other")]
    Clock { host: HostLabel, probes: usize },
    /// It names endpoints on a foreign host.
    #[error("{host} wants the data to go to {place}, which is not one of its addresses here: refused")]
    Elsewhere { host: HostLabel, place: String },
    /// A far end that is another program.
    #[error("{host}, {} there: {source}", program.server())]
    Peer { host: HostLabel, program: Program, source: PeerError },
    #[error("{0}")]
    Near(#[from] EndError),
    #[error("{0}")]
    Netns(#[from] NetnsError),
    /// The test did not end within `seconds` after its time.
    #[error("no data from {host} for {seconds:.0} s; its control connection is silent too")]
    Silent { host: HostLabel, seconds: f64 },
    /// The system refused something here.
    #[error("{what}: {source}")]
    System { what: &'static str, source: std::io::Error },
    #[error("interrupted: the measurement was ended at once and has no result")]
    Interrupted,
}

/// Advice where a host was not reached.
fn unreached(host: &HostLabel, source: &std::io::Error) -> String {
    let port = split_port(&host.control).1.unwrap_or(DEFAULT_PORT);
    match remedy(source) {
        "" if host.launched => "; its daemon, which was started for this run, has ended or is out of reach".to_owned(),
        "" if source.kind() == std::io::ErrorKind::ConnectionRefused => {
            let port = if port == DEFAULT_PORT { String::new() } else { format!(":{port}") };
            format!(
                "; no program listens on that port, or on loopback only: on that machine, `plumb serve --listen 0.0.0.0{port}` \
                 lets others in"
            )
        }
        "" => format!(
            "; is the machine up (`ping` it), and does its firewall let the port through ({port}, TCP and UDP)?"
        ),
        ours => ours.to_owned(),
    }
}
