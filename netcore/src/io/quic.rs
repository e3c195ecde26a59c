//! Calls on a connection of QUIC ([`crate::transport::quic`]): a send hands bytes to the library and its packets to the kernel, a
//! receive takes packets until the stream has bytes. Both also do what else is due: acknowledgements, and packets that were lost.

use std::{
    cell::RefCell,
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;

use super::{Channel, buffers::Buffers, wait::Sleep};
use crate::{
    measure::clock::monotonic_ns,
    transport::{
        Link,
        quic::{Flow, Node, Stream},
    },
};

/// Longest time that an end waits, after the other end's stream has ended, until that has the end of its own.
const FAREWELL: Duration = Duration::from_secs(2);

/// This end's stream of its only connection.
const OUT: (usize, Stream) = (0, Stream::Out);

/// An instant of the monotonic clock on the library's.
fn instant(at_ns: u64) -> Instant {
    // A later one would wake up no earlier.
    let after_ns = if at_ns == u64::MAX { 1 << 40 } else { at_ns.saturating_sub(monotonic_ns()).min(1 << 40) };
    Instant::now() + Duration::from_nanos(after_ns)
}

/// A wait outside the calls: the connection goes on meanwhile.
pub struct Drive(RefCell<Box<Node>>);

impl Sleep for Drive {
    fn sleep_until(&self, wake_ns: u64) {
        // The next call tells an error again.
        let _ = self.0.borrow_mut().turn(instant(wake_ns));
    }
}

/// The streams of a connection.
pub struct Quic {
    link: Arc<Link>,
    drive: Drive,
    /// The messages of a sender, which the library shares and does not copy; none where they are few.
    ring: Vec<Bytes>,
    /// Place in the ring: of the message, and in it.
    at: (usize, usize),
    /// Whether the other end's stream has ended.
    has_ended: bool,
}

impl Quic {
    /// Takes the connection of the link. `messages`: those of a sender of a stream.
    pub fn new(link: Arc<Link>, messages: Option<&Buffers>) -> io::Result<Self> {
        let node = link.quic.get().and_then(Flow::take);
        let node = node.ok_or_else(|| io::Error::other("another loop has the connection of QUIC"))?;
        let ring = messages.into_iter().flat_map(Buffers::iter).map(Bytes::copy_from_slice).collect();
        Ok(Self { link, drive: Drive(RefCell::new(node)), ring, at: (0, 0), has_ended: false })
    }

    fn node(&mut self) -> &mut Node {
        self.drive.0.get_mut()
    }

    fn go_on(&self) -> io::Result<()> {
        if self.link.is_freed() { Err(io::ErrorKind::ConnectionAborted.into()) } else { Ok(()) }
    }

    /// Hands bytes to the library, as many as it takes.
    fn write(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
        let Some(message) = self.ring.get(self.at.0) else {
            return self.node().write(OUT, |stream| stream.write(bytes));
        };
        let (length, from) = (message.len(), self.at.1);
        let part = message.slice(from..length.min(from + bytes.len()));
        let written = self.node().write(OUT, |stream| stream.write_chunks(&mut [part]).map(|written| written.bytes))?;
        self.at.1 += written.unwrap_or(0);
        if self.at.1 == length {
            self.at = ((self.at.0 + 1) % self.ring.len(), 0);
        }
        Ok(written)
    }
}

// Unreliable datagrams.
impl Quic {
    /// Hands a datagram to the library; returns it, after a wait, if there was no room. `more`: others follow at once.
    pub fn send_datagram(&mut self, message: Bytes, more: bool) -> io::Result<Option<Bytes>> {
        let blocked = self.node().send_datagram(message)?;
        if blocked.is_some() {
            self.go_on()?;
            self.node().turn(instant(u64::MAX))?;
        } else if !more {
            self.node().go_on()?;
        }
        Ok(blocked)
    }

    /// The next datagram. `None`: none came until then, or the other end has closed the connection.
    pub fn receive_datagram(&mut self, until_ns: u64) -> io::Result<Option<Bytes>> {
        loop {
            let message = self.node().receive_datagram()?;
            if message.is_some() || self.is_closed() || monotonic_ns() >= until_ns {
                return Ok(message);
            }
            self.go_on()?;
            self.node().turn(instant(until_ns))?;
        }
    }

    /// Whether the other end has closed the connection.
    pub fn is_closed(&self) -> bool {
        self.drive.0.borrow().is_closed()
    }

    /// Waits until all datagrams have been sent and the other end has seen the end of the stream beside them, which comes after those
    /// that others overtook on the way.
    pub fn flush_datagrams(&mut self, at_most: Duration) {
        self.node().finish(OUT);
        let by = Instant::now() + at_most;
        while !(self.node().has_sent_datagrams() && self.node().is_settled()) && Instant::now() < by {
            if self.go_on().is_err() || self.node().turn(by).is_err() {
                break;
            }
        }
    }
}

impl Channel for Quic {
    type Wait = Drive;

    fn wait(&self) -> &Drive {
        &self.drive
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            if let Some(sent) = self.try_send(bytes)? {
                return Ok(sent);
            }
            self.go_on()?;
            self.node().turn(instant(u64::MAX))?;
        }
    }

    fn try_send(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
        let written = self.write(bytes)?;
        if written.is_some() {
            self.node().go_on()?;
        }
        Ok(written)
    }

    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(got) = self.receive_by(buffer, u64::MAX)? {
                return Ok(got);
            }
            self.go_on()?;
        }
    }

    fn receive_by(&mut self, buffer: &mut [u8], until_ns: u64) -> io::Result<Option<usize>> {
        if let Some(got) = self.node().read((0, Stream::In), buffer)? {
            self.has_ended |= got == 0;
            return Ok(Some(got));
        }
        self.node().turn(instant(until_ns))?;
        Ok(None)
    }

    /// Ends the stream. An end that has read the other one's to its end is the last to leave. It waits until the other end has this end,
    /// too: if the packet with it is lost, it must be sent again.
    fn finish(&mut self) {
        self.node().finish(OUT);
        let by = Instant::now() + FAREWELL;
        while self.has_ended && !self.node().is_settled() && Instant::now() < by && self.go_on().is_ok() {
            if self.node().turn(by).is_err() {
                break;
            }
        }
    }
}

impl Drop for Quic {
    fn drop(&mut self) {
        self.node().close(0);
    }
}

#[cfg(test)]
mod tests;
