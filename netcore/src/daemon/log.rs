//! Events of a daemon, for its log.

use std::{fmt, net::SocketAddr, sync::Arc, time::Duration};

use super::tally::Cause;
use crate::{
    control::message::Part,
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
