//! The running iteration, as readers in other threads see it.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::{Live, Position};

/// Longest time between two updates of the members of a running iteration.
pub(super) const BEAT: Duration = Duration::from_secs(1);

/// Kept by [`super::Progress`] while somebody watches. The lock is held for a copy; no thread that moves data takes it.
#[derive(Clone, Debug, Default)]
pub struct Watched(Arc<Mutex<Now>>);

#[derive(Clone, Debug, Default)]
pub struct Now {
    /// The running iteration, and its begin.
    pub iteration: Option<(Position, Instant)>,
    /// States of its members, and the instant at which they were so. Empty before its load begins.
    pub members: Option<(Vec<Live>, Instant)>,
    /// The host whose turn is waited for, and the place in its queue.
    pub waiting: Option<(String, u32)>,
    pub warnings: u64,
    pub errors: u64,
}

impl Watched {
    pub fn read(&self) -> Now {
        self.lock().clone()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Now> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Now {
    /// Estimated time left of the run.
    pub fn left(&self) -> Option<Duration> {
        self.iteration.as_ref().map(|(position, began)| position.left.saturating_sub(began.elapsed()))
    }
}
