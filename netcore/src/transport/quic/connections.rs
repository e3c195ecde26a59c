//! The connections of the connect patterns: begun by the near end, one after the other, over the sockets of a flow.

use std::{io, os::fd::AsRawFd, sync::atomic::Ordering::Relaxed, time::Instant};

use nix::sys::socket::{MsgFlags, send};
use quinn_proto::Dir;

use super::{Node, over, streams::gone};
use crate::transport::certificate;

/// Empty datagrams by which a near end says that it begins no more connections. One may be lost.
const FAREWELLS: usize = 3;

impl Node {
    /// Near end: begins a connection, which is then the last one.
    pub fn begin(&mut self) -> io::Result<()> {
        let Some(opening) = &self.opening else { return Ok(()) };
        opening.checked.store(false, Relaxed);
        let begun = self.endpoint.connect(Instant::now(), opening.config.clone(), self.peer, certificate::NAME);
        let (handle, connection) = begun.map_err(io::Error::other)?;
        self.add(handle, connection);
        Ok(())
    }

    /// Connections that are open.
    pub fn count(&self) -> usize {
        self.open.len()
    }

    /// Whether the handshake of the `at`-th connection has ended. An error if the connection has.
    pub fn is_made(&mut self, at: usize) -> io::Result<bool> {
        let open = self.get(at)?;
        match &open.lost {
            Some(reason) => Err(over(reason)),
            None => Ok(open.is_made),
        }
    }

    /// Whether the handshake of the `at`-th connection ended, before the connection perhaps did.
    pub fn was_made(&self, at: usize) -> bool {
        self.open.get(at).is_some_and(|open| open.is_made)
    }

    /// Near end: opens the stream of the last connection's request, if it can be sent now: in the first flight with the ticket of a
    /// session, else after the handshake.
    pub fn open_exchange(&mut self) -> io::Result<bool> {
        let at = self.open.len().saturating_sub(1);
        let open = self.get(at)?;
        if open.connection.is_handshaking() && !open.connection.has_0rtt() {
            return Ok(false);
        }
        open.connection.streams().open(Dir::Bi).map(|_| true).ok_or_else(gone)
    }

    /// Near end, after the handshake of the last connection: its place in [`crate::spec::HANDSHAKES`].
    pub fn kind_of_handshake(&mut self) -> usize {
        let is_full = self.opening.as_ref().is_none_or(|opening| opening.checked.load(Relaxed));
        let is_early = self.open.last().is_some_and(|open| open.connection.accepted_0rtt());
        match (is_full, is_early) {
            (true, _) => 0,
            (false, false) => 1,
            (false, true) => 2,
        }
    }

    /// Near end: whether the next connection has what it begins with: a ticket, if it is to resume a session.
    pub fn may_begin(&self) -> bool {
        self.opening.as_ref().and_then(|opening| opening.tickets.as_ref()).is_none_or(|tickets| !tickets.is_empty())
    }

    /// Near end: says that it begins no more connections.
    pub fn leave(&self) {
        for _ in 0..FAREWELLS {
            // The peer may be gone.
            let _ = send(self.socket.as_raw_fd(), &[], MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT);
        }
    }

    /// Far end: whether the other end has said so.
    pub fn has_left(&self) -> bool {
        self.has_left
    }
}
