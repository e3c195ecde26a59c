//! Ways to wake threads that wait in `poll`: events as file descriptors, and a request to end, which any thread may make and
//! which wakes all threads that wait for it.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Instant,
};

use nix::{
    errno::Errno,
    fcntl::OFlag,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    unistd::{pipe2, read, write},
};

/// Readable from [`Event::set`] until [`Event::clear`].
#[derive(Debug)]
pub struct Event {
    reader: OwnedFd,
    writer: OwnedFd,
}

impl Event {
    pub fn new() -> io::Result<Self> {
        let (reader, writer) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        Ok(Self { reader, writer })
    }

    /// Wakes the threads that poll. May be called from a signal handler.
    pub fn set(&self) {
        // It can fail only for a full pipe, and a full pipe is readable already.
        let _ = write(&self.writer, &[1]);
    }

    pub fn clear(&self) {
        while matches!(read(&self.reader, &mut [0; 64]), Ok(64)) {}
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}

/// Waits until one of the descriptors is readable (or has failed or been closed, which a read then shows) or the deadline
/// has passed. Returns which are readable; all `false`: the deadline.
pub fn wait<const N: usize>(fds: [Option<BorrowedFd<'_>>; N], deadline: Option<Instant>) -> io::Result<[bool; N]> {
    let mut ready = [false; N];
    ready.copy_from_slice(&wait_any(&fds, deadline)?);
    Ok(ready)
}

/// [`wait`] for a number of descriptors that is known late.
pub fn wait_any(fds: &[Option<BorrowedFd<'_>>], deadline: Option<Instant>) -> io::Result<Vec<bool>> {
    let (indices, mut list): (Vec<usize>, Vec<PollFd<'_>>) =
        fds.iter().enumerate().filter_map(|(index, fd)| Some((index, PollFd::new((*fd)?, PollFlags::POLLIN)))).unzip();
    poll_until(&mut list, deadline)?;
    let mut ready = vec![false; fds.len()];
    for (index, fd) in indices.into_iter().zip(&list) {
        ready[index] = fd.any().unwrap_or(true);
    }
    Ok(ready)
}

/// Waits until a descriptor is writable, or another one readable; `false`: the deadline has passed.
pub fn wait_writable(fd: BorrowedFd<'_>, or: Option<BorrowedFd<'_>>, deadline: Instant) -> io::Result<bool> {
    let mut list = vec![PollFd::new(fd, PollFlags::POLLOUT)];
    list.extend(or.map(|or| PollFd::new(or, PollFlags::POLLIN)));
    poll_until(&mut list, Some(deadline))?;
    Ok(list.iter().any(|fd| fd.any().unwrap_or(true)))
}

fn poll_until(list: &mut [PollFd<'_>], deadline: Option<Instant>) -> io::Result<()> {
    loop {
        let timeout = match deadline {
            None => PollTimeout::NONE,
            Some(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now());
                // Rounded up: a poll that returns before the deadline would have to be repeated at once, in a loop.
                let ms = left.as_nanos().div_ceil(1_000_000);
                PollTimeout::try_from(ms).unwrap_or(PollTimeout::MAX)
            }
        };
        match poll(list, timeout) {
            Ok(0) if deadline.is_none_or(|deadline| Instant::now() < deadline) => {}
            Ok(_) => return Ok(()),
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

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
    use std::time::{Duration, Instant};

    use super::{wait, *};

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

    #[test]
    fn an_event_wakes_until_it_is_cleared() {
        let (one, other) = (Event::new().unwrap(), Event::new().unwrap());
        let look = || {
            let soon = Instant::now() + Duration::from_millis(1);
            wait([Some(one.as_fd()), None, Some(other.as_fd())], Some(soon)).unwrap()
        };
        assert_eq!(look(), [false; 3]);
        for _ in 0..200 {
            other.set();
        }
        assert_eq!(look(), [false, false, true]);
        other.clear();
        assert_eq!(look(), [false; 3]);
    }

    #[test]
    fn a_full_pipe_does_not_block() {
        let event = Event::new().unwrap();
        for _ in 0..70_000 {
            event.set();
        }
    }
}
