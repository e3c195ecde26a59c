//! Events as file descriptors that `poll` can wait for.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

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
