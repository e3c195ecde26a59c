//! The streams of a connection: bytes that are written and read, and their end.

use std::io::{self, ErrorKind};

use quinn_proto::{Dir, ReadError, ReadableError, SendStream, Side, StreamId, WriteError};

use super::{Node, over};

/// Least bytes that a stream may hold ahead of its acknowledgements, whatever the congestion window.
const LEAST_AHEAD: u64 = 256 << 10;

/// A stream of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// From this end to the other, of a stream or request/response.
    Out,
    /// From the other end to this one.
    In,
    /// The request and its response, of a connect pattern.
    Exchange,
}

impl Stream {
    fn id(self, side: Side) -> StreamId {
        match self {
            Self::Out => StreamId::new(side, Dir::Uni, 0),
            Self::In => StreamId::new(!side, Dir::Uni, 0),
            Self::Exchange => StreamId::new(Side::Client, Dir::Bi, 0),
        }
    }
}

/// The connection has no such stream any more.
pub(super) fn gone() -> io::Error {
    io::Error::new(ErrorKind::BrokenPipe, "the stream of QUIC is closed")
}

impl Node {
    /// Writes to a stream of the `at`-th connection; `None`: it holds as much as it may. As with TCP, that grows with the congestion
    /// window: what a stream holds beyond it has only been waiting longer.
    pub fn write(
        &mut self,
        (at, stream): (usize, Stream),
        write: impl FnOnce(&mut SendStream<'_>) -> Result<usize, WriteError>,
    ) -> io::Result<Option<usize>> {
        let window = self.window;
        let open = self.get(at)?;
        if let Some(reason) = &open.lost {
            return Err(over(reason));
        }
        let ahead = (2 * open.connection.congestion_state().window()).clamp(LEAST_AHEAD.min(window), window);
        open.connection.set_send_window(ahead);
        let stream = stream.id(open.connection.side());
        match write(&mut open.connection.send_stream(stream)) {
            Ok(written) => Ok(Some(written)),
            Err(WriteError::Blocked) => Ok(None),
            Err(_) => Err(gone()),
        }
    }

    /// Takes bytes that have come on a stream of the `at`-th connection; 0: its end. `None`: none are there.
    pub fn read(&mut self, (at, stream): (usize, Stream), buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let open = self.get(at)?;
        let stream = stream.id(open.connection.side());
        let mut receive = open.connection.recv_stream(stream);
        let mut chunks = match receive.read(true) {
            Ok(chunks) => chunks,
            Err(ReadableError::ClosedStream) => return Ok(Some(0)),
            Err(ReadableError::IllegalOrderedRead) => return Err(gone()),
        };
        let mut got = 0;
        let end = loop {
            if got == buffer.len() {
                break Ok(None);
            }
            match chunks.next(buffer.len() - got) {
                Ok(Some(chunk)) => {
                    buffer[got..got + chunk.bytes.len()].copy_from_slice(&chunk.bytes);
                    got += chunk.bytes.len();
                }
                Ok(None) => break Ok(Some(())),
                Err(ReadError::Blocked) => break Ok(None),
                Err(ReadError::Reset(_)) => break Err(gone()),
            }
        };
        let _ = chunks.finalize();
        match end? {
            _ if got > 0 => Ok(Some(got)),
            Some(()) => Ok(Some(0)),
            // Data that came before the end of the connection are still there.
            None => open.lost.as_ref().map_or(Ok(None), |reason| Err(over(reason))),
        }
    }

    /// Ends a stream of the `at`-th connection.
    pub fn finish(&mut self, (at, stream): (usize, Stream)) {
        if let Ok(open) = self.get(at) {
            let stream = stream.id(open.connection.side());
            // It fails if the stream has ended.
            let _ = open.connection.send_stream(stream).finish();
        }
    }

    /// Whether the other end has all of a stream's bytes, or is gone.
    pub fn is_settled(&mut self) -> bool {
        self.get(0).map_or(true, |open| open.is_acknowledged || open.lost.is_some())
    }
}
