//! Io methods, by which bytes cross a socket. Here are the calls on a socket or a pipe: one blocking call per operation is the
//! default, as in netperf and iperf3; calls that do not block are those of `io: nonblocking`, `io: spin`, and every stream on a
//! thread of several flows, which differ in their reaction to a call that would block.
//!
//! A pattern's loop is generic over its [`Channel`], so the method is chosen once, before the loop, and costs nothing in it.

#[expect(unsafe_code, reason = "the kernel's structures for a batch are kept from call to call")]
pub mod batch;
pub mod buffers;
pub mod fill;
#[expect(unsafe_code, reason = "MPI uses memory after a call has returned")]
pub mod message;
pub mod pages;
pub mod quic;
pub mod tls;
#[expect(unsafe_code, reason = "the kernel uses memory after a call has returned")]
pub mod uring;
pub mod wait;
pub mod zerocopy;

use std::{io, os::fd::AsRawFd, sync::Arc};

use nix::{
    sys::socket::{MsgFlags, recv, send},
    unistd::{read, write},
};

use crate::transport::{Link, listener::Event};
use wait::{Block, Sleep, Wait};

/// Moves bytes over one connection.
pub trait Channel {
    /// Waiting in its loop outside its own calls: for a due time.
    type Wait: Sleep;

    fn wait(&self) -> &Self::Wait;

    /// Sends at least one of the bytes; returns how many.
    fn send(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// Receives some bytes; 0 is the end of the stream.
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Receives some bytes, and waits for them until an instant of the monotonic clock at most; 0 is the end of the
    /// stream. `None`: nothing has come, or it is time to look at the clock.
    fn receive_by(&mut self, buffer: &mut [u8], until_ns: u64) -> io::Result<Option<usize>>;

    /// Sends as much as possible without waiting; `None`: nothing.
    fn try_send(&mut self, bytes: &[u8]) -> io::Result<Option<usize>>;

    /// Sends all of the bytes; returns the number of calls.
    #[inline]
    fn send_all(&mut self, mut bytes: &[u8]) -> io::Result<u64> {
        let mut calls = 0;
        while !bytes.is_empty() {
            let n = self.send(bytes)?;
            bytes = &bytes[n..];
            calls += 1;
        }
        Ok(calls)
    }

    /// Before the end of the stream: sends what the protocol has to say about it.
    fn finish(&mut self) {}

    /// After the peer's end of the stream: waits until the kernel says that it is done with what was sent, where it says so.
    /// The error is a sentence.
    fn settle(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Receives in one blocking call.
#[inline]
fn receive(link: &Link, buffer: &mut [u8]) -> io::Result<usize> {
    let fd = link.receive.as_raw_fd();
    retry(|| recv(fd, buffer, MsgFlags::empty()))
}

/// Tries once to send on a socket.
#[inline]
fn attempt(link: &Link, bytes: &[u8]) -> io::Result<Option<usize>> {
    match retry(|| send(link.send.as_raw_fd(), bytes, MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT)) {
        Ok(n) => Ok(Some(n)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// [`Channel::receive_by`] on a socket: waits for input, and then tries once to receive.
#[inline]
fn receive_by(link: &Link, wait: &impl Wait, buffer: &mut [u8], until_ns: u64) -> io::Result<Option<usize>> {
    if !wait.for_input(link, until_ns)? {
        return Ok(None);
    }
    match recv(link.receive.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT) {
        Ok(n) => {
            wait.succeeded(Event::Input);
            Ok(Some(n))
        }
        Err(nix::Error::EAGAIN | nix::Error::EINTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Repeats a call while signals interrupt it.
#[inline]
fn retry<T>(mut call: impl FnMut() -> nix::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Ok(value) => return Ok(value),
            Err(nix::Error::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// `send` and `recv` on a socket. `wait` says whether they block, and what comes after one that did not.
pub struct SocketCalls<W> {
    pub link: Arc<Link>,
    pub wait: W,
    /// Flags of every receive call besides those of `wait` ([`receive_flags`]).
    pub receive_flags: MsgFlags,
}

impl<W: Wait> Channel for SocketCalls<W> {
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
