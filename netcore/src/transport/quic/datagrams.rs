//! The unreliable datagrams of a connection (RFC 9221). A test with them has one connection.

use std::io::{self, ErrorKind};

use bytes::Bytes;
use quinn_proto::{ConnectionError, SendDatagramError};

use super::{Node, over};
use crate::spec::memory::AHEAD_BYTES;

impl Node {
    /// Hands a datagram to the only connection; returns it if there is no room.
    pub fn send_datagram(&mut self, message: Bytes) -> io::Result<Option<Bytes>> {
        let open = self.get(0)?;
        if let Some(reason) = &open.lost {
            return Err(over(reason));
        }
        let mut datagrams = open.connection.datagrams();
        match datagrams.send(message, false) {
            Ok(()) => Ok(None),
            Err(SendDatagramError::Blocked(message)) => Ok(Some(message)),
            Err(SendDatagramError::TooLarge) => {
                let longest = datagrams.max_size().unwrap_or(0);
                let reason = format!(
                    "a packet on this path carries a datagram of at most {longest} bytes: choose a smaller message_size"
                );
                Err(io::Error::new(ErrorKind::InvalidInput, reason))
            }
            Err(error) => Err(io::Error::other(error)),
        }
    }

    /// Whether all datagrams have been sent, or the connection is over.
    pub fn has_sent_datagrams(&mut self) -> bool {
        // The library keeps room for the record of one more, a `Bytes`, when all of the buffer is free.
        let has_all_room = |room: usize| room + size_of::<Bytes>() >= AHEAD_BYTES;
        self.get(0)
            .map_or(true, |open| open.lost.is_some() || has_all_room(open.connection.datagrams().send_buffer_space()))
    }

    /// Takes a datagram that has come on the only connection.
    pub fn receive_datagram(&mut self) -> io::Result<Option<Bytes>> {
        let open = self.get(0)?;
        match (open.connection.datagrams().recv(), &open.lost) {
            (Some(message), _) => Ok(Some(message)),
            (None, Some(ConnectionError::ApplicationClosed(_)) | None) => Ok(None),
            (None, Some(reason)) => Err(over(reason)),
        }
    }

    /// Whether the other end has closed the only connection.
    pub fn is_closed(&self) -> bool {
        self.open.first().is_none_or(|open| matches!(open.lost, Some(ConnectionError::ApplicationClosed(_))))
    }
}
