//! Events of a daemon, for its log.

use std::{collections::BTreeMap, fmt, net::SocketAddr, sync::Arc, time::Duration};

use super::Shared;
use crate::{
    control::{
        channel::ChannelError,
        message::{ErrorCode, Limits, Part, ReplyError},
    },
    lock::Lock,
    peers::Program,
    report::{Ending, Volume},
};

/// Receives each event.
pub type Log = Arc<dyn Fn(&Event<'_>) + Send + Sync>;

/// The client of a session.
#[derive(Clone, Debug)]
pub struct ClientLabel {
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
    Opened { client: &'a ClientLabel, program: &'static str, version: &'a str },
    /// A session ended.
    Closed { client: &'a ClientLabel, reason: String },
    /// A program starts for a client.
    Program { client: &'a ClientLabel, argv: &'a [String] },
    /// A test ended, or was not admitted.
    Test { client: &'a ClientLabel, part: &'a Part, result: TestResult },
}

/// The end of a session.
#[derive(Debug, thiserror::Error)]
pub(super) enum Over {
    #[error("{0}")]
    Channel(#[from] ChannelError),
    #[error("{0}")]
    Refused(ReplyError),
}

schemas::words! {
    /// Why a connection got no session.
    Cause {
        /// It came from a network that is not served.
        Network = "network",
        /// A newer connection took its place before its greeting was over.
        Crowded = "crowded",
        /// This process had no descriptor or thread for it.
        Resources = "resources",
        /// It had another key, or none.
        Key = "key",
        /// It was silent for too long.
        Timeout = "timeout",
        /// It ended early, or spoke otherwise than a client does.
        Greeting = "greeting",
        /// All sessions were in use, or all of its address.
        Sessions = "sessions",
        /// The daemon was being stopped.
        Stopping = "stopping",
    }
}

impl Cause {
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
    /// Why it was refused or failed.
    pub reason: Option<String>,
}

schemas::words! {
    /// End of a test at this daemon.
    TestEnding {
        /// The client cancelled it.
        Aborted = "aborted",
        /// By its stop rule.
        Complete = "complete",
        Failed = "failed",
        /// It was not admitted.
        Refused = "refused",
        /// Earlier, on request; the measurement until then counts.
        Stopped = "stopped",
    }
}

impl TestResult {
    pub(super) fn without_load(ending: TestEnding, reason: Option<String>) -> Self {
        Self { bytes_sent: 0, bytes_received: 0, elapsed: Duration::ZERO, ending, reason }
    }

    pub(super) fn of((bytes_sent, bytes_received, elapsed_ns): Volume, ending: &Ending) -> Self {
        let (ending, reason) = match ending {
            Ending::Complete => (TestEnding::Complete, None),
            Ending::Stopped => (TestEnding::Stopped, None),
            Ending::Failed(reason) => (TestEnding::Failed, Some(reason.clone())),
        };
        Self { bytes_sent, bytes_received, elapsed: Duration::from_nanos(elapsed_ns), ending, reason }
    }
}

impl fmt::Display for ClientLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Some(host) => write!(f, "{} ({host})", self.address),
            None => self.address.fmt(f),
        }
    }
}

// Counts of a daemon since its start, and its state at an instant, for those who watch it.
//
// Sessions count at their edges: where a connection comes or goes, and where a test begins or ends. The loops that move data
// know nothing of it.

/// Counts since the start of a daemon. Every name is there from the start.
#[derive(Clone, Debug)]
pub struct Counts {
    /// Sessions by the client's program.
    pub opened: BTreeMap<&'static str, u64>,
    /// Connections without a session.
    pub refused: BTreeMap<Cause, u64>,
    pub tests: BTreeMap<TestEnding, u64>,
    /// Programs that were run for clients.
    pub programs: u64,
    /// Payload of ended tests.
    pub bytes_sent: u64,
    pub bytes_received: u64,
}

/// A daemon at an instant.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub limits: Limits,
    pub sessions: u32,
    /// Connections that have proven nothing yet.
    pub greeting: usize,
    /// Tests under load.
    pub running: usize,
    /// Flows of all admitted tests.
    pub flows: u64,
    /// Memory of all admitted tests.
    pub memory_bytes: u64,
    /// Sessions that wait for their turn at an exclusive daemon.
    pub waiting: usize,
    pub counts: Counts,
}

#[derive(Debug)]
pub(super) struct Tally {
    counts: Lock<Counts>,
}

impl Default for Tally {
    fn default() -> Self {
        let programs = std::iter::once("plumb").chain(Program::ALL.iter().copied().map(Program::as_str));
        let counts = Counts {
            opened: programs.map(|name| (name, 0)).collect(),
            refused: Cause::ALL.iter().map(|cause| (*cause, 0)).collect(),
            tests: TestEnding::ALL.iter().map(|ending| (*ending, 0)).collect(),
            programs: 0,
            bytes_sent: 0,
            bytes_received: 0,
        };
        Self { counts: Lock::new(counts) }
    }
}

impl Tally {
    pub(super) fn count(&self, event: &Event<'_>) {
        let mut counts = self.counts.lock();
        match event {
            Event::Unaccepted { .. } | Event::Closed { .. } => {}
            Event::Dropped { cause, .. } | Event::Refused { cause, .. } => {
                *counts.refused.entry(*cause).or_default() += 1;
            }
            Event::Opened { program, .. } => *counts.opened.entry(program).or_default() += 1,
            Event::Program { .. } => counts.programs += 1,
            Event::Test { result, .. } => {
                *counts.tests.entry(result.ending).or_default() += 1;
                counts.bytes_sent += result.bytes_sent;
                counts.bytes_received += result.bytes_received;
            }
        }
    }
}

impl Shared {
    pub(super) fn snapshot(&self) -> Snapshot {
        let used = self.budget.in_use();
        Snapshot {
            limits: self.config.limits.clone(),
            sessions: used.sessions,
            greeting: self.unproven.occupied() + self.unproven_of_programs.occupied(),
            running: self.loads.running(),
            flows: used.flows,
            memory_bytes: used.memory_bytes,
            waiting: self.turns.waiting(),
            counts: self.tally.counts.lock().clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        control::{
            channel::ChannelError,
            message::{ErrorCode, ReplyError},
        },
        daemon::log::Over,
    };

    #[test]
    fn refusals_are_told_apart() {
        let busy = Over::Refused(ReplyError::new(ErrorCode::Busy, ""));
        assert_eq!(Cause::of(&busy), Cause::Sessions);
        assert_eq!(Cause::of(&ChannelError::KeyDiffers.into()), Cause::Key);
        assert_eq!(Cause::of(&ChannelError::Closed.into()), Cause::Greeting);
        let tally = Tally::default();
        for cause in [Cause::Key, Cause::Key, Cause::Network] {
            tally.count(&Event::Refused { address: String::new(), reason: String::new(), cause });
        }
        let counts = tally.counts.lock().clone();
        assert_eq!((counts.refused[&Cause::Key], counts.refused[&Cause::Network]), (2, 1));
        assert_eq!(counts.refused.values().sum::<u64>(), 3);
    }
}
