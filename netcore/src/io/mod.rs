//! How bytes cross a socket: one file per method.
//!
//! A pattern's loop is generic over its [`Channel`], so the method is chosen once, before the loop, and costs nothing in it.

#[expect(unsafe_code, reason = "the kernel's structures for a batch are kept from call to call")]
pub mod batch;
pub mod blocking;
pub mod buffers;
pub mod expected;
pub mod nonblocking;
pub mod sendfile;
pub mod wait;

use std::{io, os::fd::AsRawFd};

use nix::sys::socket::{MsgFlags, send};

use crate::transport::Link;
use wait::Wait;

/// Moves bytes over one connection.
pub trait Channel {
    /// How its loop waits for what is no call of its own: a due time, or input until then.
    type Wait: Wait;

    /// The way to wait.
    fn wait(&self) -> &Self::Wait;

    /// Sends some of the bytes, at least one.
    fn send(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// Receives some bytes; 0 is the end of the stream.
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Sends what can be sent without waiting; `None`: nothing can.
    fn try_send(&mut self, bytes: &[u8]) -> io::Result<Option<usize>>;

    /// Sends all of the bytes; says how many calls it took.
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
}

/// One attempt to send on a socket.
#[inline]
fn attempt(link: &Link, bytes: &[u8]) -> io::Result<Option<usize>> {
    match retry(|| send(link.send.as_raw_fd(), bytes, MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT)) {
        Ok(n) => Ok(Some(n)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// Repeats a call for as long as a signal interrupts it.
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
