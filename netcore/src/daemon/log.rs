//! Events of a daemon, for its log.

use std::{fmt, net::SocketAddr, sync::Arc, time::Duration};

use crate::{
    control::{
        channel::ChannelError,
        message::{ErrorCode, Part, ReplyError},
    },
    report::{Ending, RankReport, Report, SideReport},
};

/// Receives each event.
pub type Log = Arc<dyn Fn(&Event<'_>) + Send + Sync>;

/// The client of a session.
#[derive(Clone, Debug)]
pub struct Caller {
    pub address: SocketAddr,
    /// Its host's name, by its own account.
    pub host: Option<String>,
}

/// One event. Its texts may be the client's own words: escape them before printing.
#[derive(Clone, Debug)]
pub enum Event<'a> {
    /// Connections cannot be accepted at the moment.
    Unaccepted { reason: String },
    /// A connection was closed before its greeting.
    Dropped { address: String, reason: String, cause: Cause },
    /// A connection got no session.
    Refused { address: String, reason: String, cause: Cause },
    /// A session began. `program` is the client's; its `version` is empty where it says none.
    Opened { client: &'a Caller, program: &'static str, version: &'a str },
    /// A session ended.
    Closed { client: &'a Caller, reason: String },
    /// A program starts for a client.
    Program { client: &'a Caller, argv: &'a [String] },
    /// A test ended, or was not admitted.
    Test { client: &'a Caller, part: &'a Part, result: TestResult },
}

/// The end of a session.
#[derive(Debug, thiserror::Error)]
pub(super) enum Over {
    #[error("{0}")]
    Channel(#[from] ChannelError),
    #[error("{0}")]
    Refused(ReplyError),
}

/// Why a connection got no session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// It came from a network that is not served.
    Network,
    /// A newer connection took its place before its greeting was over.
    Crowded,
    /// This process had no descriptor or thread for it.
    Resources,
    /// It had another key, or none.
    Key,
    /// It was silent for too long.
    Timeout,
    /// It ended early, or spoke otherwise than a client does.
    Greeting,
    /// All sessions were in use, or all of its address.
    Sessions,
    /// The daemon was being stopped.
    Stopping,
}

impl Cause {
    pub const ALL: [Self; 8] = [
        Self::Network,
        Self::Crowded,
        Self::Resources,
        Self::Key,
        Self::Timeout,
        Self::Greeting,
        Self::Sessions,
        Self::Stopping,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::Crowded => "crowded",
            Self::Resources => "resources",
            Self::Key => "key",
            Self::Timeout => "timeout",
            Self::Greeting => "greeting",
            Self::Sessions => "sessions",
            Self::Stopping => "stopping",
        }
    }

    pub(super) fn of(over: &Over) -> Self {
        match over {
            Over::Channel(error) => match error {
                ChannelError::KeyRequired | ChannelError::KeyUnknown | ChannelError::KeyDiffers => Self::Key,
                ChannelError::TimedOut { .. } => Self::Timeout,
                ChannelError::Stopped => Self::Stopping,
                _ => Self::Greeting,
            },
            Over::Refused(error) => Self::of_code(error.code),
        }
    }

    pub(super) fn of_code(code: ErrorCode) -> Self {
        match code {
            ErrorCode::Busy => Self::Sessions,
            ErrorCode::Stopping => Self::Stopping,
            ErrorCode::TimedOut => Self::Timeout,
            _ => Self::Greeting,
        }
    }
}

/// The end of a test at this daemon.
#[derive(Clone, Debug, PartialEq)]
pub struct TestResult {
    /// Payload from the first byte to the last.
    pub bytes_sent: u64,
    pub bytes_received: u64,
    /// Time under load: warm-up, measurement and cool-down.
    pub elapsed: Duration,
    pub ending: TestEnding,
}

/// End of a test at this daemon.
#[derive(Clone, Debug, PartialEq)]
pub enum TestEnding {
    /// By its stop rule.
    Complete,
    /// Earlier, on request; the measurement until then counts.
    Stopped,
    /// The client cancelled it.
    Aborted,
    /// It was not admitted.
    Refused(String),
    Failed(String),
}

impl TestEnding {
    /// Every name.
    pub const NAMES: [&str; 5] = ["complete", "stopped", "aborted", "refused", "failed"];

    fn of(ending: &Ending) -> Self {
        match ending {
            Ending::Complete => Self::Complete,
            Ending::Stopped => Self::Stopped,
            Ending::Failed(reason) => Self::Failed(reason.clone()),
        }
    }

    /// Its name in the log.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Stopped => "stopped",
            Self::Aborted => "aborted",
            Self::Refused(_) => "refused",
            Self::Failed(_) => "failed",
        }
    }

    /// The reason, where there is one.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Complete | Self::Stopped | Self::Aborted => None,
            Self::Refused(reason) | Self::Failed(reason) => Some(reason),
        }
    }
}

impl TestResult {
    pub(super) fn without_load(ending: TestEnding) -> Self {
        Self { bytes_sent: 0, bytes_received: 0, elapsed: Duration::ZERO, ending }
    }

    pub(super) fn of(report: &SideReport) -> Self {
        let sum = |count: fn(&crate::report::Counts) -> u64| report.totals.iter().map(|flow| count(&flow.counts)).sum();
        Self {
            bytes_sent: sum(|counts| counts.bytes_sent),
            bytes_received: sum(|counts| counts.bytes_received),
            elapsed: Duration::from_nanos(report.phases.iter().map(|phase| phase.elapsed_ns).sum()),
            ending: TestEnding::of(&report.ending),
        }
    }

    pub(super) fn of_part(report: &Report) -> Self {
        match report {
            Report::End(report) => Self::of(report),
            Report::Rank(report) => Self::of_rank(report),
        }
    }

    fn of_rank(report: &RankReport) -> Self {
        let traffic = report.traffic.unwrap_or_default();
        Self {
            bytes_sent: traffic.bytes_sent,
            bytes_received: traffic.bytes_received,
            elapsed: Duration::from_nanos(report.elapsed_ns),
            ending: TestEnding::of(&report.ending),
        }
    }
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Some(host) => write!(f, "{} ({host})", self.address),
            None => self.address.fmt(f),
        }
    }
}
