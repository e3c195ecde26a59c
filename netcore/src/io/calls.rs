//! Calls on a socket or a pipe. One blocking call per operation is the default, as in netperf and iperf3. Calls that do not block
//! are those of `io: nonblocking`, `io: spin`, and every stream on a thread of several flows: the three differ in their reaction
//! to a call that would block.

use std::{io, os::fd::AsRawFd, sync::Arc};

use nix::{
    sys::socket::{MsgFlags, recv, send},
    unistd::{read, write},
};

use super::{
    Channel, attempt, receive_by, retry,
    wait::{Block, Wait},
};
use crate::transport::{Link, listener::Event};

/// `send` and `recv` on a socket.
pub struct Blocking {
    pub link: Arc<Link>,
    /// Flags of every receive call ([`super::receive_flags`]).
    pub receive_flags: MsgFlags,
}

impl Channel for Blocking {
    type Wait = Block;

    #[inline]
    fn wait(&self) -> &Block {
        &Block
    }

    #[inline]
    fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let fd = self.link.send.as_raw_fd();
        retry(|| send(fd, bytes, MsgFlags::MSG_NOSIGNAL))
    }

    #[inline]
    fn try_send(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
        attempt(&self.link, bytes)
    }

    #[inline]
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let fd = self.link.receive.as_raw_fd();
        retry(|| recv(fd, buffer, self.receive_flags))
    }

    #[inline]
    fn receive_by(&mut self, buffer: &mut [u8], until_ns: u64) -> io::Result<Option<usize>> {
        receive_by(&self.link, &Block, buffer, until_ns)
    }
}

/// `write` and `read` on pipes.
pub struct Pipe {
    pub link: Arc<Link>,
}

impl Channel for Pipe {
    type Wait = Block;

    #[inline]
    fn wait(&self) -> &Block {
        &Block
    }

    #[inline]
    fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = retry(|| write(&self.link.send, bytes));
        if self.link.is_freed() { Err(io::ErrorKind::ConnectionAborted.into()) } else { sent }
    }

    /// Blocks all the same, since a pipe has no call that does not. The test's check keeps the bytes in flight below a
    /// pipe's capacity, so the call returns at once.
    #[inline]
    fn try_send(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
        self.send(bytes).map(Some)
    }

    #[inline]
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let received = retry(|| read(&self.link.receive, buffer));
        if self.link.is_freed() { Err(io::ErrorKind::ConnectionAborted.into()) } else { received }
    }

    /// A read always waits, but the pipe has one reader: available bytes stay available.
    #[inline]
    fn receive_by(&mut self, buffer: &mut [u8], until_ns: u64) -> io::Result<Option<usize>> {
        if Block.for_input(&self.link, until_ns)? { self.receive(buffer).map(Some) } else { Ok(None) }
    }
}

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
