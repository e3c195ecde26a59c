//! Non-blocking calls driven by `poll`: what hpcbench calls non-blocking. The second system call of an operation that had
//! to wait shows in the CPU columns.

use std::{
    io,
    os::fd::{AsFd, AsRawFd},
    sync::Arc,
};

use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{MsgFlags, recv, send},
};

use super::{Channel, attempt, retry};
use crate::transport::Link;

/// Calls with `MSG_DONTWAIT`; what would block waits in `poll`.
pub struct Nonblocking {
    link: Arc<Link>,
}

impl Nonblocking {
    /// Over this link.
    #[must_use]
    pub fn new(link: Arc<Link>) -> Self {
        Self { link }
    }
}

/// Waits for one of the events, without a bound: `shutdown` on the socket frees the thread.
fn wait(fd: &impl AsFd, events: PollFlags) -> io::Result<()> {
    retry(|| poll(&mut [PollFd::new(fd.as_fd(), events)], PollTimeout::NONE)).map(|_| ())
}

impl Channel for Nonblocking {
    #[inline]
    fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match send(self.link.send.as_raw_fd(), bytes, MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT) {
                Ok(n) => return Ok(n),
                Err(nix::Error::EAGAIN) => wait(&self.link.send, PollFlags::POLLOUT)?,
                Err(nix::Error::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    #[inline]
    fn try_send(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
        attempt(&self.link, bytes)
    }

    #[inline]
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match recv(self.link.receive.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(n) => return Ok(n),
                Err(nix::Error::EAGAIN) => wait(&self.link.receive, PollFlags::POLLIN)?,
                Err(nix::Error::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
