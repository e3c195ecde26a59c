//! Other programs at an end of a test: netperf and iperf3, with the protocols of their control connections, and STAMP, which has
//! none: a sender is alone with what a reflector answers, and a reflector serves packets and no tests.
//!
//! The data path is ours: the protocol of a program only agrees on a test, opens its data connections, and exchanges results. Its
//! connections become the links of an [`End`], whose loops know the program's manners from the test's
//! [`crate::spec::Dialect`].

pub mod iperf3;
pub mod netperf;
pub(crate) mod stamp;

use std::{
    fs, io,
    net::{IpAddr, SocketAddr, TcpStream},
    os::fd::AsFd,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use socket2::TcpKeepalive;

use crate::{
    control::message::{Limits, ReplyError},
    control::stop::StopFlag,
    end::End,
    error::EndError,
    report::SideReport,
    spec::{
        Dialect, Direction, Io, Pattern, Receive, Role, Side, TestSpec, key,
        support::{Unsupported, refuse_if},
    },
    sys::{self, opt},
    transport::{self, Deadline},
};

schemas::words! {
    /// A program that is not Plumbline.
    #[derive(Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[serde(rename_all = "snake_case")]
    Program {
        /// netserver as the far end, netperf as a client.
        Netperf = "netperf",
        /// `iperf3 -s` as the far end, `iperf3 -c` as a client.
        Iperf3 = "iperf3",
        /// A reflector of STAMP or TWAMP Light, such as routers have, as the far end; a sender of STAMP as a client.
        Stamp = "stamp",
    }
}

impl Program {
    /// Whether tests have a control connection to it.
    pub fn converses(self) -> bool {
        self != Self::Stamp
    }

    /// Port of its control connections; of a reflector, of its packets.
    pub fn port(self) -> u16 {
        match self {
            Self::Netperf => 12_865,
            Self::Iperf3 => 5201,
            Self::Stamp => transport::stamp::PORT,
        }
    }

    /// The program that a test with this dialect agrees with on what is done.
    pub fn of(spec: &TestSpec) -> Option<Self> {
        match spec.dialect {
            Dialect::Plumb | Dialect::Service | Dialect::Stamp { .. } => None,
            Dialect::Netperf => Some(Self::Netperf),
            Dialect::Iperf3 { .. } => Some(Self::Iperf3),
        }
    }

    /// The dialect of its data connections where it serves us.
    pub fn dialect(self) -> Dialect {
        match self {
            Self::Netperf => Dialect::Netperf,
            Self::Iperf3 => Dialect::Iperf3 { wide_counter: true },
            Self::Stamp => Dialect::Stamp { authenticated: false },
        }
    }

    /// Whether its server closes its port for a moment between two tests.
    pub fn closes_between_tests(self) -> bool {
        self == Self::Iperf3
    }

    /// Whether it answers requests, or only takes part in streams.
    pub fn has_round_trips(self) -> bool {
        self != Self::Iperf3
    }

    /// The program that serves, as a user starts it.
    pub fn server(self) -> &'static str {
        match self {
            Self::Netperf => "netserver",
            Self::Iperf3 => "iperf3 -s",
            Self::Stamp => "a STAMP reflector",
        }
    }
}

/// Why a test with another program failed. The sentence follows the peer's name.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PeerError {
    /// Its control connection was not made.
    #[error("it cannot be reached: {0}")]
    Unreached(#[source] io::Error),
    /// It does not run such a test.
    #[error("{0}")]
    Unsupported(#[from] Unsupported),
    /// It refused the test or gave it up, for the reason in the sentence.
    #[error("{0}")]
    Refused(String),
    #[error("it closed its control connection {0}")]
    Closed(&'static str),
    /// `what` did not come in time.
    #[error("{what} within {seconds:.1} s")]
    Silent { what: &'static str, seconds: f64 },
    /// Its messages break its protocol, or its results cannot be true.
    #[error("{0}")]
    Broken(String),
    /// A call on its control connection failed.
    #[error("{what}: {source}")]
    Io { what: &'static str, source: io::Error },
    /// The data connections.
    #[error("{0}")]
    End(#[from] EndError),
    #[error("the test was given up on request")]
    Cancelled,
}

/// Addresses of the data connections, where they differ from those of the control connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct DataPath {
    /// Local address of the near end's sockets.
    pub near: Option<IpAddr>,
    /// Address to connect to.
    pub far: Option<IpAddr>,
}

/// The control connection to another program, for one test: its far end. The near end is in this process.
pub(crate) trait Conversation: AsFd + Send {
    /// Asks for the test and opens its data connections: the near end, ready to start.
    fn agree(&mut self, spec: &TestSpec, path: DataPath, deadline: &Deadline<'_>) -> Result<End, PeerError>;

    /// Waits until the far end is under way. The load starts right after.
    fn begin(&mut self, deadline: &Deadline<'_>) -> Result<(), PeerError>;

    /// The near end's phases have ended, and it has sent its last. Returns whether the far end will close its connections or
    /// has no need to; otherwise the near end closes them.
    fn load_over(&mut self) -> Result<bool, PeerError>;

    /// Looks at what has arrived, without waiting. An error ends the test.
    fn pump(&mut self) -> Result<(), PeerError>;

    /// The near end has reported: exchanges results, and returns the far end's report.
    fn conclude(&mut self, near: &SideReport, deadline: &Deadline<'_>) -> Result<SideReport, PeerError>;

    /// Names the passphrase that the far end may ask for, before the first test.
    fn introduce(&mut self, _passphrase: &str) -> Result<(), PeerError> {
        Err(PeerError::Refused("its protocol has no passphrase".to_owned()))
    }

    /// Asks for the far end's CPU clock.
    fn cpu_clock(&mut self, _deadline: &Deadline<'_>) -> Result<CpuClock, PeerError> {
        Err(PeerError::Refused("its protocol does not tell the CPU clock".to_owned()))
    }
}

/// The clock by which a far end measures CPU time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuClock {
    /// Its rate, ticks per second where it counts ticks.
    pub rate: f32,
    pub cpus: u32,
}

/// Checks that the other program can run a test that the engines can ([`crate::spec::support::check`]).
pub fn check(spec: &TestSpec) -> Result<(), Unsupported> {
    let Some(program) = Program::of(spec) else { return Ok(()) };
    let sends = spec.pattern == Pattern::Stream && spec.direction != Direction::Forward;
    // iperf3's own word for it is -Z.
    let sends_files = program == Program::Iperf3 && spec.io == Io::Sendfile;
    refuse_if! {
        sends && !spec.io.facts().copies && !sends_files => key::io,
            "io: {} is for a sender, and here {} sends: leave `io` out", spec.io.name(), program.as_str();
        // iperf3 has --skip-rx-copy, and one that does not know it copies without a word.
        spec.receive == Receive::Discard && spec.has_role(Side::Far, Role::Receiver) => key::receive,
            "receive: discard is for what arrives at this end, and here {} receives: use it with `direction: reverse`",
            program.as_str();
    }
    match program {
        Program::Netperf => netperf::check(spec),
        Program::Iperf3 => iperf3::check(spec),
        Program::Stamp => Ok(()),
    }
}

/// The sessions with clients at a daemon whose data connections come one by one.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    iperf3: iperf3::Sessions,
}

/// Begins a conversation over a connection that was just made.
pub(crate) fn over(program: Program, stream: TcpStream) -> Result<Box<dyn Conversation>, PeerError> {
    match program {
        Program::Iperf3 => Ok(Box::new(iperf3::Client::new(stream)?)),
        Program::Netperf => Ok(Box::new(netperf::Client::new(stream)?)),
        Program::Stamp => Err(PeerError::Refused("its protocol has no control connection".to_owned())),
    }
}

/// Serves a connection of another program's client to its end. Returns the reason of the end, for the log; `None`: a data
/// connection that was given to its session.
pub(crate) fn serve(program: Program, host: &dyn Host, stream: TcpStream, peer: SocketAddr) -> Option<String> {
    match program {
        Program::Iperf3 => iperf3::serve(host, stream, peer),
        Program::Netperf => Some(netperf::serve(host, stream, peer)),
        Program::Stamp => Some("its protocol has no control connection".to_owned()),
    }
}

/// Of a client's control connection: a machine that is gone is noticed after 60 s.
const KEEPALIVE: TcpKeepalive =
    TcpKeepalive::new().with_time(Duration::from_secs(30)).with_interval(Duration::from_secs(10)).with_retries(3);

/// A session's or a test's share of a daemon. Dropping it gives it back.
pub(crate) trait Share: Send {}

impl<T: Send> Share for T {}

/// The daemon, as a session with another program's client sees it.
pub(crate) trait Host: Sync {
    /// Opens a session, once its first message shows that a client is there. `version`: the client's; empty where it says none.
    fn open(&self, version: &str) -> Result<Box<dyn Share + '_>, ReplyError>;

    /// Admits a test whose far end is here. At a daemon that serves one client at a time it waits for the turn.
    fn admit(&self, spec: &TestSpec) -> Result<Box<dyn Share + '_>, ReplyError>;

    fn limits(&self) -> &Limits;

    /// Whether the daemon serves the program's clients at this address of its host.
    fn serves(&self, address: IpAddr) -> bool;

    /// The number of the connection in the order of arrival.
    fn number(&self) -> u64;

    fn sessions(&self) -> &Sessions;

    /// Ends sessions when raised twice; raised once, no further test is begun.
    fn stop(&self) -> &StopFlag;

    /// Logs a test that has ended with this report.
    fn ran(&self, spec: &TestSpec, report: &SideReport);

    /// Logs a test that was refused or did not come to a report, with the reason.
    fn failed(&self, spec: &TestSpec, reason: &str);
}

/// Congestion controls that are loaded and that this process may choose: a client must not have further ones loaded.
pub(crate) fn congestion_controls() -> Vec<String> {
    let text = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap_or_default();
    let Ok(socket) = sys::socket(libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_TCP) else { return Vec::new() };
    let may_choose = |name: &&str| opt::set(&socket, opt::TCP_CONGESTION, name.as_bytes()).is_ok();
    text.split_whitespace().filter(may_choose).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Transport;

    #[test]
    fn a_senders_method_is_refused_where_the_other_program_sends() {
        for (dialect, io, refused) in [
            (Dialect::Iperf3 { wide_counter: false }, Io::Sendfile, false),
            (Dialect::Iperf3 { wide_counter: false }, Io::Vmsplice, true),
            (Dialect::Netperf, Io::Sendfile, true),
            (Dialect::Netperf, Io::Spin, false),
        ] {
            let mut spec = TestSpec::new(Pattern::Stream, Transport::Tcp);
            (spec.dialect, spec.io, spec.far.port) = (dialect, io, None);
            check(&spec).unwrap();
            spec.direction = Direction::Reverse;
            assert_eq!(check(&spec).err().map(|error| error.key), refused.then_some("io"), "{dialect:?} {io:?}");
        }
    }

    #[test]
    fn only_this_end_discards() {
        for dialect in [Dialect::Iperf3 { wide_counter: false }, Dialect::Netperf] {
            let mut spec = TestSpec::new(Pattern::Stream, Transport::Tcp);
            (spec.dialect, spec.receive) = (dialect, Receive::Discard);
            assert_eq!(check(&spec).err().map(|error| error.key), Some("receive"), "{dialect:?}");
            spec.direction = Direction::Reverse;
            check(&spec).unwrap();
        }
    }
}
