//! Non-blocking calls in a busy loop: no wake-up from idle, at the price of a whole CPU per thread at both ends. Only of
//! use where the two ends run on different CPUs; on one CPU the spinning thread keeps the other from answering.

use std::{io, os::fd::AsRawFd, sync::Arc};

use nix::sys::socket::{MsgFlags, recv, send};

use super::{Channel, attempt};
use crate::transport::Link;

/// Calls with `MSG_DONTWAIT`, over and over.
pub struct Spin {
    link: Arc<Link>,
}

impl Spin {
    /// Over this link.
    #[must_use]
    pub fn new(link: Arc<Link>) -> Self {
        Self { link }
    }
}

impl Channel for Spin {
    #[inline]
    fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match send(self.link.send.as_raw_fd(), bytes, MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT) {
                Ok(n) => return Ok(n),
                Err(nix::Error::EAGAIN | nix::Error::EINTR) => std::hint::spin_loop(),
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
                Err(nix::Error::EAGAIN | nix::Error::EINTR) => std::hint::spin_loop(),
                Err(error) => return Err(error.into()),
            }
        }
    }
}
