//! A request to end, which any thread may make and which wakes all threads that wait for it.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use super::event::Event;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// There is no request.
    None,
    /// Early, but whole: measured results are kept; a daemon lets running tests finish.
    Orderly,
    /// At once.
    Now,
}

/// The first request asks for an orderly end, a second one for an end at once. Clones are the same flag.
#[derive(Clone, Debug)]
pub struct StopFlag(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    requests: AtomicU32,
    orderly: Event,
    now: Event,
}

impl StopFlag {
    /// Fails where the process has no descriptors left.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(Inner { requests: AtomicU32::new(0), orderly: Event::new()?, now: Event::new()? })))
    }

    /// Raises the flag by one step. Safe in a signal handler.
    pub fn request(&self) {
        if self.0.requests.fetch_add(1, Ordering::SeqCst) == 0 {
            self.0.orderly.set();
        } else {
            self.0.now.set();
        }
    }

    pub fn urgency(&self) -> Urgency {
        match self.0.requests.load(Ordering::SeqCst) {
            0 => Urgency::None,
            1 => Urgency::Orderly,
            _ => Urgency::Now,
        }
    }

    /// A descriptor that becomes readable when the flag rises above `seen`; `None`: it cannot rise any more.
    pub fn beyond(&self, seen: Urgency) -> Option<BorrowedFd<'_>> {
        match seen {
            Urgency::None => Some(self.0.orderly.as_fd()),
            Urgency::Orderly => Some(self.0.now.as_fd()),
            Urgency::Now => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::{super::event::wait, *};

    #[test]
    fn each_request_is_heard_once() {
        let flag = StopFlag::new().unwrap();
        let heard = |seen| wait([flag.beyond(seen)], Some(Instant::now())).unwrap()[0];
        assert!(!heard(Urgency::None));
        flag.clone().request();
        assert_eq!(flag.urgency(), Urgency::Orderly);
        assert!(heard(Urgency::None) && !heard(Urgency::Orderly));
        flag.request();
        assert_eq!(flag.urgency(), Urgency::Now);
        assert!(heard(Urgency::Orderly));
    }
}
