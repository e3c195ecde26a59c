//! Non-blocking calls: `io: nonblocking`, `io: spin`, and every stream on a thread of several flows. The three differ
//! in their reaction to a call that would block.

use std::{io, os::fd::AsRawFd, sync::Arc};

use nix::sys::socket::{MsgFlags, recv, send};

use super::{Channel, attempt, receive_by, wait::Wait};
use crate::transport::{Link, listener::Event};

/// Calls with `MSG_DONTWAIT`, unless the way to wait says otherwise.
pub struct Nonblocking<W> {
    pub link: Arc<Link>,
    pub wait: W,
    /// Flags of every receive call besides `MSG_DONTWAIT` ([`super::receive_flags`]).
    pub receive_flags: MsgFlags,
}

impl<W: Wait> Channel for Nonblocking<W> {
    type Wait = W;

    #[inline]
    fn wait(&self) -> &W {
        &self.wait
    }

    #[inline]
    fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.wait.turn();
        loop {
            match send(self.link.send.as_raw_fd(), bytes, MsgFlags::MSG_NOSIGNAL | self.wait.flags()) {
                Ok(n) => {
                    self.wait.succeeded(Event::Room);
                    return Ok(n);
                }
                Err(nix::Error::EAGAIN) => self.wait.for_room(&self.link, u64::MAX)?,
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
        self.wait.turn();
        loop {
            match recv(self.link.receive.as_raw_fd(), buffer, self.wait.flags() | self.receive_flags) {
                Ok(n) => {
                    self.wait.succeeded(Event::Input);
                    return Ok(n);
                }
                Err(nix::Error::EAGAIN) => {
                    self.wait.after_nothing(&self.link, u64::MAX)?;
                }
                Err(nix::Error::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    #[inline]
    fn receive_by(&mut self, buffer: &mut [u8], until_ns: u64) -> io::Result<Option<usize>> {
        receive_by(&self.link, &self.wait, buffer, until_ns)
    }
}
