//! Sessions and memory that the clients of a daemon share.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::control::message::{ErrorCode, Limits, ReplyError};

#[derive(Debug, Default)]
pub(super) struct Budget {
    used: Mutex<Used>,
}

#[derive(Debug, Default)]
struct Used {
    /// Sessions by the client's address.
    sessions: HashMap<IpAddr, u32>,
    /// Memory of all tests, bytes.
    memory_bytes: u64,
    /// Flows of all tests.
    flows: u64,
}

/// The parts of a budget that are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InUse {
    pub(super) sessions: u32,
    pub(super) memory_bytes: u64,
    pub(super) flows: u64,
}

/// A session's place in the budget; dropping it frees the place.
#[derive(Debug)]
pub(super) struct Slot<'b> {
    budget: &'b Budget,
    client: IpAddr,
}

/// Memory and flows of a test; dropping it gives them back.
#[derive(Debug)]
pub(super) struct Charge<'b> {
    budget: &'b Budget,
    bytes: u64,
    flows: u32,
}

impl Budget {
    /// Takes a session for a client.
    pub(super) fn session(&self, limits: &Limits, client: IpAddr) -> Result<Slot<'_>, ReplyError> {
        let busy = |message| Err(ReplyError::new(ErrorCode::Busy, message));
        let mut used = self.lock();
        let all = used.sessions.values().sum::<u32>();
        if all >= limits.sessions {
            return busy(format!(
                "all {} sessions are in use: wait for one to end, or start the daemon with more (--max-sessions)",
                limits.sessions
            ));
        }
        let of_client = used.sessions.entry(client).or_default();
        if *of_client >= limits.sessions_per_client {
            return busy(format!(
                "{client} has all {} sessions that one address is granted here: wait for one to end, or start the daemon with \
                 more (--max-sessions-per-client)",
                limits.sessions_per_client
            ));
        }
        *of_client += 1;
        Ok(Slot { budget: self, client })
    }

    /// Takes memory for a test, bytes, and counts its flows, which are bounded by test ([`Limits::flows`]).
    pub(super) fn test(&self, limits: &Limits, bytes: u64, flows: u32) -> Result<Charge<'_>, ReplyError> {
        let mut used = self.lock();
        let all = used.memory_bytes.saturating_add(bytes);
        if all > limits.memory_bytes {
            return Err(ReplyError::new(
                ErrorCode::Busy,
                format!(
                    "the test takes {bytes} bytes of memory, and the tests of this daemon already have {} of {}: use smaller \
                     messages, fewer streams or longer intervals, wait for another test to end, or start the daemon with more \
                     (--max-memory)",
                    used.memory_bytes, limits.memory_bytes
                ),
            ));
        }
        used.memory_bytes = all;
        used.flows += u64::from(flows);
        Ok(Charge { budget: self, bytes, flows })
    }

    pub(super) fn in_use(&self) -> InUse {
        let used = self.lock();
        InUse { sessions: used.sessions.values().sum(), memory_bytes: used.memory_bytes, flows: used.flows }
    }

    fn lock(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        let mut used = self.budget.lock();
        if let Some(sessions) = used.sessions.get_mut(&self.client) {
            *sessions -= 1;
            if *sessions == 0 {
                used.sessions.remove(&self.client);
            }
        }
    }
}

impl Drop for Charge<'_> {
    fn drop(&mut self) {
        let mut used = self.budget.lock();
        used.memory_bytes -= self.bytes;
        used.flows -= u64::from(self.flows);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_shared_between_addresses() {
        let limits = Limits { sessions: 3, sessions_per_client: 2, ..Limits::default() };
        let budget = Budget::default();
        let of = |last: u8| budget.session(&limits, [192, 0, 2, last].into());
        let (first, _second) = (of(1).unwrap(), of(1).unwrap());
        let error = of(1).unwrap_err();
        assert!(error.code == ErrorCode::Busy && error.message.contains("--max-sessions-per-client"), "{error}");
        let other = of(2).unwrap();
        assert!(of(3).unwrap_err().message.contains("(--max-sessions)"));
        drop((first, other));
        drop((of(1).unwrap(), of(3).unwrap()));
        assert_eq!(budget.lock().sessions.len(), 1);
    }

    #[test]
    fn memory_is_given_back() {
        let limits = Limits { memory_bytes: 100, ..Limits::default() };
        let budget = Budget::default();
        let most = budget.test(&limits, 99, 4).unwrap();
        assert_eq!(budget.in_use(), InUse { sessions: 0, memory_bytes: 99, flows: 4 });
        let error = budget.test(&limits, 2, 1).unwrap_err();
        assert!(error.message.contains("already have 99 of 100") && error.message.contains("--max-memory"), "{error}");
        budget.test(&limits, u64::MAX, 1).unwrap_err();
        drop(most);
        drop(budget.test(&limits, 100, 1).unwrap());
        assert_eq!(budget.in_use(), InUse { sessions: 0, memory_bytes: 0, flows: 0 });
    }
}
