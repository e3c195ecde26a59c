//! One blocking call per operation: the default, as in netperf and iperf3.

use std::{io, os::fd::AsRawFd, sync::Arc};

use nix::{
    sys::socket::{MsgFlags, recv, send},
    unistd::{read, write},
};

use super::{
    Channel, attempt, receive_by, retry,
    wait::{Block, Wait as _},
};
use crate::transport::Link;

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
