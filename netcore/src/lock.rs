//! A mutex that a panic does not poison.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Shares a value between threads. The value is consistent between statements, so a panic elsewhere does not spoil it.
#[derive(Debug, Default)]
pub struct Lock<T: ?Sized>(Mutex<T>);

impl<T> Lock<T> {
    pub const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }
}

impl<T: ?Sized> Lock<T> {
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
