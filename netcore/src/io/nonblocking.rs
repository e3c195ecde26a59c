//! Non-blocking calls: `io: nonblocking` and `io: spin`, which differ in what they do about a call that would block.

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

/// What is done when a call would block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WouldBlock {
    /// Wait in `poll`: what hpcbench calls non-blocking. The second system call shows in the CPU columns.
    Poll,
    /// Call again at once: no wake-up from idle, at the price of a whole CPU per thread at both ends. Only of use where the
    /// two ends run on different CPUs; on one CPU the spinning thread keeps the other from answering.
    Spin,
}

/// Calls with `MSG_DONTWAIT`.
pub struct Nonblocking {
    link: Arc<Link>,
    would_block: WouldBlock,
}

impl Nonblocking {
    /// Over this link.
    #[must_use]
    pub fn new(link: Arc<Link>, would_block: WouldBlock) -> Self {
        Self { link, would_block }
    }

    /// Until one of the events may have come, without a bound: `shutdown` on the socket frees the thread.
    #[inline]
    fn wait(&self, fd: &impl AsFd, events: PollFlags) -> io::Result<()> {
        match self.would_block {
            WouldBlock::Poll => retry(|| poll(&mut [PollFd::new(fd.as_fd(), events)], PollTimeout::NONE)).map(|_| ()),
            WouldBlock::Spin => {
                std::hint::spin_loop();
                Ok(())
            }
        }
    }
}

impl Channel for Nonblocking {
    #[inline]
    fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match send(self.link.send.as_raw_fd(), bytes, MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT) {
                Ok(n) => return Ok(n),
                Err(nix::Error::EAGAIN) => self.wait(&self.link.send, PollFlags::POLLOUT)?,
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
                Err(nix::Error::EAGAIN) => self.wait(&self.link.receive, PollFlags::POLLIN)?,
                Err(nix::Error::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
