//! Counts of a daemon since its start, and its state at an instant, for those who watch it.
//!
//! Sessions count at their edges: where a connection comes or goes, and where a test begins or ends. The loops that move data
//! know nothing of it.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::{
    Shared,
    log::{Cause, Event, TestEnding},
};
use crate::{control::message::Limits, peers::Program};

/// Counts since the start of a daemon. Every name is there from the start.
#[derive(Clone, Debug)]
pub struct Counts {
    /// Sessions by the client's program.
    pub opened: BTreeMap<&'static str, u64>,
    /// Connections without a session.
    pub refused: BTreeMap<Cause, u64>,
    /// Tests by their ending ([`TestEnding::name`]).
    pub tests: BTreeMap<&'static str, u64>,
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
    counts: Mutex<Counts>,
}

impl Default for Tally {
    fn default() -> Self {
        let programs = std::iter::once("plumb").chain(Program::ALL.map(Program::name));
        let counts = Counts {
            opened: programs.map(|name| (name, 0)).collect(),
            refused: Cause::ALL.map(|cause| (cause, 0)).into(),
            tests: TestEnding::NAMES.map(|name| (name, 0)).into(),
            programs: 0,
            bytes_sent: 0,
            bytes_received: 0,
        };
        Self { counts: Mutex::new(counts) }
    }
}

impl Tally {
    pub(super) fn count(&self, event: &Event<'_>) {
        let mut counts = self.lock();
        match event {
            Event::Unaccepted { .. } | Event::Closed { .. } => {}
            Event::Dropped { cause, .. } | Event::Refused { cause, .. } => {
                *counts.refused.entry(*cause).or_default() += 1;
            }
            Event::Opened { program, .. } => *counts.opened.entry(program).or_default() += 1,
            Event::Program { .. } => counts.programs += 1,
            Event::Test { result, .. } => {
                *counts.tests.entry(result.ending.name()).or_default() += 1;
                counts.bytes_sent += result.bytes_sent;
                counts.bytes_received += result.bytes_received;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    pub(super) fn snapshot(&self) -> Snapshot {
        let used = self.budget.in_use();
        Snapshot {
            limits: self.config.limits.clone(),
            sessions: used.sessions,
            greeting: self.door.occupied() + self.side_door.occupied(),
            running: self.loads.running(),
            flows: used.flows,
            memory_bytes: used.memory_bytes,
            waiting: self.turns.waiting(),
            counts: self.tally.lock().clone(),
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
    fn every_ending_and_cause_has_its_name() {
        let endings = [
            TestEnding::Complete,
            TestEnding::Stopped,
            TestEnding::Aborted,
            TestEnding::Refused(String::new()),
            TestEnding::Failed(String::new()),
        ];
        assert_eq!(endings.map(|ending| ending.name()), TestEnding::NAMES);
        let names: std::collections::HashSet<_> = Cause::ALL.map(Cause::name).into();
        assert_eq!(names.len(), Cause::ALL.len());
    }

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
        let counts = tally.lock().clone();
        assert_eq!((counts.refused[&Cause::Key], counts.refused[&Cause::Network]), (2, 1));
        assert_eq!(counts.refused.values().sum::<u64>(), 3);
    }
}
