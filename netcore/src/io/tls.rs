//! Calls on a connection of TLS: records are sealed before they are sent, and opened where they arrived
//! ([`crate::transport::records`]).

use std::{io, os::fd::AsRawFd, sync::Arc};

use nix::sys::socket::{MsgFlags, recv};

use super::{Channel, retry, wait::Wait};
use crate::{
    measure::clock::monotonic_ns,
    transport::{
        Link,
        listener::Event,
        records::{Opener, Sealer, broken},
        tls::Secured,
    },
};

/// Longest wait for input while sealed records wait for room, nanoseconds.
const BOTH_NS: u64 = 1_000_000;

fn truncated() -> io::Error {
    let reason = "the stream ended without TLS's own end (close_notify): something on the way cut it off";
    io::Error::new(io::ErrorKind::UnexpectedEof, reason)
}

/// `sendmsg` of sealed records, and `recv`.
pub struct Records<W> {
    link: Arc<Link>,
    wait: W,
    sealer: Option<Sealer>,
    opener: Option<Opener>,
    says_its_end: bool,
}

impl<W: Wait> Records<W> {
    /// Takes the halves of the link's connection that a loop uses.
    pub fn new(link: Arc<Link>, wait: W, sends: bool, receives: bool) -> Self {
        let secured = link.secured.get();
        let sealer = secured.filter(|_| sends).and_then(Secured::sealer);
        let opener = secured.filter(|_| receives).and_then(Secured::opener);
        let says_its_end = secured.is_none_or(Secured::says_its_end);
        Self { link, wait, sealer, opener, says_its_end }
    }

    fn sealer(&mut self) -> io::Result<&mut Sealer> {
        self.sealer.as_mut().ok_or_else(|| broken("another loop sends on this connection"))
    }

    fn opener(&mut self) -> io::Result<&mut Opener> {
        self.opener.as_mut().ok_or_else(|| broken("another loop receives on this connection"))
    }

    /// After the end of the TCP stream: the end of the data, if no other one is due.
    fn ended(&mut self) -> io::Result<usize> {
        if self.says_its_end || self.opener()?.has_part() { Err(truncated()) } else { Ok(0) }
    }

    /// Hands all sealed records to the kernel.
    fn flush(&mut self) -> io::Result<()> {
        let (fd, flags) = (self.link.send.as_raw_fd(), MsgFlags::MSG_NOSIGNAL | self.wait.flags());
        while let Some(sealer) = self.sealer.as_mut().filter(|sealer| !sealer.is_empty()) {
            match sealer.send(fd, flags) {
                Ok(()) => self.wait.succeeded(Event::Room),
                Err(nix::Error::EAGAIN) => self.wait.for_room(&self.link, u64::MAX)?,
                Err(nix::Error::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Hands sealed records to the kernel as far as it has room. Whether none is left.
    fn try_flush(&mut self) -> io::Result<bool> {
        let fd = self.link.send.as_raw_fd();
        while let Some(sealer) = self.sealer.as_mut().filter(|sealer| !sealer.is_empty()) {
            match retry(|| sealer.send(fd, MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT)) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

impl<W: Wait> Channel for Records<W> {
    type Wait = W;

    #[inline]
    fn wait(&self) -> &W {
        &self.wait
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.wait.turn();
        self.flush()?;
        let sealed = self.sealer()?.data(bytes)?;
        self.flush()?;
        Ok(sealed)
    }

    /// Records for which the kernel has no room wait here, and go before anything else.
    fn try_send(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
        if !self.try_flush()? {
            return Ok(None);
        }
        let sealed = self.sealer()?.data(bytes)?;
        self.try_flush()?;
        Ok(Some(sealed))
    }

    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.wait.turn();
        loop {
            if let Some(n) = self.opener()?.take(buffer)? {
                return Ok(n);
            }
            // The peer may wait for room, too, until this end reads.
            while !self.try_flush()? && !self.wait.for_input(&self.link, monotonic_ns() + BOTH_NS)? {}
            let (fd, flags) = (self.link.receive.as_raw_fd(), self.wait.flags());
            match recv(fd, self.opener()?.room(), flags) {
                Ok(0) => return self.ended(),
                Ok(n) => {
                    self.wait.succeeded(Event::Input);
                    self.opener()?.came(n);
                }
                Err(nix::Error::EAGAIN) => {
                    self.wait.after_nothing(&self.link, u64::MAX)?;
                }
                Err(nix::Error::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn receive_by(&mut self, buffer: &mut [u8], until_ns: u64) -> io::Result<Option<usize>> {
        self.try_flush()?;
        if let Some(n) = self.opener()?.take(buffer)? {
            return Ok(Some(n));
        }
        if !self.wait.for_input(&self.link, until_ns)? {
            return Ok(None);
        }
        let fd = self.link.receive.as_raw_fd();
        match recv(fd, self.opener()?.room(), MsgFlags::MSG_DONTWAIT) {
            Ok(0) => self.ended().map(Some),
            Ok(n) => {
                self.wait.succeeded(Event::Input);
                let opener = self.opener()?;
                opener.came(n);
                opener.take(buffer)
            }
            Err(nix::Error::EAGAIN | nix::Error::EINTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Says that no more comes, which a stream that was cut off does not. It fails if the peer has gone.
    fn finish(&mut self) {
        if self.says_its_end
            && let Some(sealer) = &mut self.sealer
            && sealer.end().is_ok()
        {
            let _ = self.flush();
        }
    }
}

#[cfg(test)]
mod tests;
