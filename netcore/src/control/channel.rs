//! A control connection: messages with deadlines, in clear or encrypted.
//!
//! Before anything else both ends send eight bytes: a magic word, the protocol's version, and whether a key is used. So
//! both ends recognise a mismatch of either, tell a stranger from a peer, and never wait for a message that the other end
//! would not send.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    ops::RangeInclusive,
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use nix::sys::socket::{setsockopt, sockopt};
use serde::{Serialize, de::DeserializeOwned};
use socket2::{Domain, Socket};

use super::{
    frame::{self, Decoder, FrameError, GREETING_BOUND},
    key::{Cipher, Handshake, Key, Undecipherable},
    stop::{StopFlag, Urgency, wait, wait_writable},
};
use crate::{foreign, measure::tcp_info};

/// The protocols that this end speaks. Both ends name their newest one, and the older of the two is spoken. Any change of the
/// messages or of the types in them is a new protocol.
pub const PROTOCOLS: RangeInclusive<u8> = 6..=6;

const MAGIC: [u8; 6] = *b"plumb\0";
const CLEAR: u8 = 0;
const KEYED: u8 = 1;
/// In place of the use of a key: no client from this address is served.
const TURNED_AWAY: u8 = 2;
pub(crate) const PREAMBLE: usize = 8;

/// Bytes of a long message that must pass within its deadline; each further ones have as long again.
pub const PROGRESS: usize = 64 << 10;

/// Silence after which the kernel probes a peer, and the pause between two probes, seconds.
const IDLE_S: u32 = 30;
const REPEAT_S: u32 = 10;
/// Unanswered probes after which a peer is given up.
const REPEATS: u32 = 3;

/// Time after which keep-alive gives up a silent peer.
pub const KEEPALIVE: Duration = Duration::from_secs((IDLE_S + REPEAT_S * REPEATS) as u64);

/// Why a control connection cannot be used (any more).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelError {
    #[error("the other end closed the control connection")]
    Closed,
    /// `what` did not happen in time. `stuck`: evidence of the kernel, behind a semicolon.
    #[error("{what} within {seconds:.1} s{stuck}")]
    TimedOut { what: &'static str, seconds: f64, stuck: String },
    /// A message was given up because this end must end at once.
    #[error("this end is being stopped")]
    Stopped,
    /// `what` was refused by the system.
    #[error("{what}: {source}")]
    Io { what: &'static str, source: io::Error },
    /// Another program answers.
    #[error("the program that answers there is no Plumbline: its first bytes are {0:?}")]
    Stranger(String),
    #[error(
        "the other end speaks protocol {theirs}, this one (plumb {}) protocols {} to {}: use the same version at both ends \
         (`plumb --version`; over ssh, `copy: true` or --copy sends this one)",
        env!("CARGO_PKG_VERSION"), PROTOCOLS.start(), PROTOCOLS.end()
    )]
    Version { theirs: u8 },
    #[error("the other end requires a key and none was given here")]
    KeyRequired,
    #[error("a key was given here and the other end uses none")]
    KeyUnknown,
    #[error(
        "it serves no clients from this address: the option --allow of its `plumb serve` names the networks that it serves"
    )]
    TurnedAway,
    #[error("the two ends have different keys")]
    KeyDiffers,
    /// Decryption failed after the handshake.
    #[error("the control connection is corrupt: {0}")]
    Undecipherable(#[from] Undecipherable),
    #[error("the control connection is out of step: {0}")]
    Frame(#[from] FrameError),
    /// The content of a frame is not a known message.
    #[error("a message was not understood: {0}")]
    Message(#[source] serde_json::Error),
}

#[derive(Debug)]
pub struct Channel {
    stream: Socket,
    /// Whether its own TCP carries it: options of TCP have a meaning.
    is_tcp: bool,
    cipher: Option<Cipher>,
    decoder: Decoder,
    closed: bool,
    /// The peer's newest protocol, where it is newer than ours, until its first message: it may not speak ours any more.
    newer: Option<u8>,
    /// Whether the texts of its messages are printed here: a client's are those of a daemon.
    tames: bool,
    /// Gives up messages that the peer does not read.
    stop: Option<StopFlag>,
}

impl Channel {
    /// Greets a daemon over a connected stream.
    pub fn initiate(stream: impl Into<Socket>, key: Option<&Key>, deadline: Instant) -> Result<Self, ChannelError> {
        let mut channel = Self { tames: true, ..Self::over(stream.into())? };
        let ours = preamble(key);
        channel.write_all(&ours, deadline)?;
        let theirs = channel.read_preamble(deadline)?;
        channel.newer = agree(theirs, key)?;
        if let Some(key) = key {
            let mut handshake = Handshake::initiator(key, &[ours, theirs].concat())?;
            channel.write_all(&handshake.write()?, deadline)?;
            let mut record = [0; Handshake::RECORD_BYTES];
            match channel.read_exact(&mut record, deadline, |_| Ok(())) {
                // A daemon that cannot read our message with its key closes the connection.
                Err(ChannelError::Closed) => return Err(ChannelError::KeyDiffers),
                other => other?,
            }
            handshake.read(&record).map_err(|_| ChannelError::KeyDiffers)?;
            channel.cipher = Some(handshake.finish()?);
        }
        Ok(channel)
    }

    /// Answers a client's greeting on an accepted stream.
    pub fn accept(stream: impl Into<Socket>, key: Option<&Key>, deadline: Instant) -> Result<Self, ChannelError> {
        let mut channel = Self::over(stream.into())?;
        let ours = preamble(key);
        let theirs = channel.read_preamble(deadline)?;
        channel.write_all(&ours, deadline)?;
        channel.newer = agree(theirs, key)?;
        if let Some(key) = key {
            let mut handshake = Handshake::responder(key, &[theirs, ours].concat())?;
            let mut record = [0; Handshake::RECORD_BYTES];
            channel.read_exact(&mut record, deadline, |_| Ok(()))?;
            handshake.read(&record).map_err(|_| ChannelError::KeyDiffers)?;
            channel.write_all(&handshake.write()?, deadline)?;
            channel.cipher = Some(handshake.finish()?);
        }
        Ok(channel)
    }

    /// Tells a client that it is not served. Nothing is read from it, and nothing is waited for.
    pub fn turn_away(mut stream: &TcpStream) {
        let mut words = preamble(None);
        words[PREAMBLE - 1] = TURNED_AWAY;
        // The client may be gone. There is always room for the first bytes of a connection.
        let _ = stream.set_nonblocking(true).and_then(|()| stream.write_all(&words));
        let _ = stream.shutdown(std::net::Shutdown::Write);
    }

    fn over(stream: Socket) -> Result<Self, ChannelError> {
        let io = |source| ChannelError::Io { what: "the control connection cannot be set up", source };
        stream.set_nonblocking(true).map_err(io)?;
        let is_tcp = stream.domain().map_err(io)? != Domain::UNIX;
        if is_tcp {
            // Small messages and answers: Nagle's algorithm would add a delayed acknowledgement to the clock probes.
            stream.set_tcp_nodelay(true).map_err(io)?;
        }
        Ok(Self {
            stream,
            is_tcp,
            cipher: None,
            decoder: Decoder::new(GREETING_BOUND),
            closed: false,
            newer: None,
            tames: false,
            stop: None,
        })
    }

    /// Gives up the sending of a message when this flag says to end at once.
    pub fn heed(&mut self, stop: StopFlag) {
        self.stop = Some(stop);
    }

    /// Sets the bound of received frames, bytes.
    pub fn set_bound(&mut self, bytes: usize) {
        self.decoder.set_bound(bytes);
    }

    /// Switches TCP keep-alive: the kernel probes a silent peer after 30 s, then every 10 s, and gives up after three
    /// ([`KEEPALIVE`]).
    pub fn set_keepalive(&self, on: bool) -> Result<(), ChannelError> {
        if !self.is_tcp {
            return Ok(());
        }
        let set = || {
            setsockopt(&self.stream, sockopt::TcpKeepIdle, &IDLE_S)?;
            setsockopt(&self.stream, sockopt::TcpKeepInterval, &REPEAT_S)?;
            setsockopt(&self.stream, sockopt::TcpKeepCount, &REPEATS)?;
            setsockopt(&self.stream, sockopt::KeepAlive, &on)
        };
        set().map_err(|error: nix::Error| ChannelError::Io {
            what: "keep-alive of the control connection cannot be set",
            source: error.into(),
        })
    }

    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let local = self.stream.local_addr()?.as_socket();
        local.ok_or_else(|| io::Error::from(io::ErrorKind::AddrNotAvailable))
    }

    pub fn send<T: Serialize>(&mut self, message: &T, bound: usize, deadline: Instant) -> Result<(), ChannelError> {
        let body = serde_json::to_vec(message).map_err(ChannelError::Message)?;
        let mut bytes = frame::encode(&body, bound)?;
        if let Some(cipher) = &mut self.cipher {
            bytes = cipher.seal(&bytes)?;
        }
        self.write_all(&bytes, deadline)
    }

    /// Waits for the next message.
    pub fn recv<T: DeserializeOwned>(&mut self, deadline: Instant) -> Result<T, ChannelError> {
        let since = Instant::now();
        loop {
            if let Some(message) = self.try_recv()? {
                return Ok(message);
            }
            self.wait_readable(since, deadline)?;
        }
    }

    /// The next message, if it has arrived whole.
    pub fn try_recv<T: DeserializeOwned>(&mut self) -> Result<Option<T>, ChannelError> {
        loop {
            if let Some(body) = self.decoder.take()? {
                self.newer = None;
                let read = if self.tames { foreign::from_slice(&body) } else { serde_json::from_slice(&body) };
                return read.map(Some).map_err(ChannelError::Message);
            }
            if self.closed {
                return Err(self.newer.map_or(ChannelError::Closed, |theirs| ChannelError::Version { theirs }));
            }
            let mut bytes = [0; 16 << 10];
            match self.read_some(&mut bytes)? {
                None => return Ok(None),
                Some(0) => self.closed = true,
                Some(count) => self.feed(&bytes[..count])?,
            }
        }
    }

    /// Whether a message has begun to arrive.
    pub fn is_amid_frame(&self) -> bool {
        !self.decoder.is_empty()
    }

    /// Bytes that have arrived of messages that are not yet taken.
    pub fn pending_bytes(&self) -> usize {
        self.decoder.pending_bytes()
    }

    fn feed(&mut self, bytes: &[u8]) -> Result<(), ChannelError> {
        if let Some(cipher) = &mut self.cipher {
            let mut clear = Vec::new();
            cipher.open(bytes, &mut clear)?;
            self.decoder.push(&clear);
        } else {
            self.decoder.push(bytes);
        }
        Ok(())
    }

    /// `None`: nothing has arrived; 0: closed.
    fn read_some(&mut self, bytes: &mut [u8]) -> Result<Option<usize>, ChannelError> {
        loop {
            match self.stream.read(bytes) {
                Ok(count) => return Ok(Some(count)),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(None),
                    io::ErrorKind::Interrupted => {}
                    kind if is_closed(kind) => return Ok(Some(0)),
                    _ => {
                        return Err(ChannelError::Io { what: "the control connection cannot be read", source: error });
                    }
                },
            }
        }
    }

    /// Fills `bytes`; `check` looks at every beginning of them as it arrives.
    fn read_exact(
        &mut self,
        bytes: &mut [u8],
        deadline: Instant,
        check: fn(&[u8]) -> Result<(), ChannelError>,
    ) -> Result<(), ChannelError> {
        let since = Instant::now();
        let mut filled = 0;
        while filled < bytes.len() {
            match self.read_some(&mut bytes[filled..])? {
                None => self.wait_readable(since, deadline)?,
                Some(0) => return Err(ChannelError::Closed),
                Some(count) => filled += count,
            }
            check(&bytes[..filled])?;
        }
        Ok(())
    }

    fn read_preamble(&mut self, deadline: Instant) -> Result<[u8; PREAMBLE], ChannelError> {
        let mut bytes = [0; PREAMBLE];
        // A stranger may send fewer than eight bytes and then wait for an answer that never comes.
        self.read_exact(&mut bytes, deadline, |beginning| {
            let known = beginning.len().min(MAGIC.len());
            if beginning[..known] == MAGIC[..known] {
                return Ok(());
            }
            Err(ChannelError::Stranger(String::from_utf8_lossy(beginning).into_owned()))
        })?;
        Ok(bytes)
    }

    fn wait_readable(&self, since: Instant, deadline: Instant) -> Result<(), ChannelError> {
        let io = |source| ChannelError::Io { what: "waiting for the control connection failed", source };
        match wait([Some(self.stream.as_fd())], Some(deadline)).map_err(io)? {
            [true] => Ok(()),
            [false] => Err(self.timed_out("no answer came", since, deadline)),
        }
    }

    fn timed_out(&self, what: &'static str, since: Instant, deadline: Instant) -> ChannelError {
        let seconds = deadline.max(since + Duration::from_millis(1)).duration_since(since).as_secs_f64();
        self.late(what, seconds)
    }

    /// `what` did not happen in time, with what the kernel knows about it.
    pub fn late(&self, what: &'static str, seconds: f64) -> ChannelError {
        let stuck = tcp_info::stuck(self.as_fd()).map(|why| format!("; {why}")).unwrap_or_default();
        ChannelError::TimedOut { what, seconds, stuck }
    }

    /// The deadline is for each [`PROGRESS`] bytes: a long message may take long over a slow path.
    fn write_all(&mut self, mut bytes: &[u8], mut deadline: Instant) -> Result<(), ChannelError> {
        let since = Instant::now();
        let patience = deadline.saturating_duration_since(since);
        let mut due = bytes.len().saturating_sub(PROGRESS);
        let io = |source| ChannelError::Io { what: "the control connection cannot be written to", source };
        while !bytes.is_empty() {
            match self.stream.write(bytes) {
                Ok(count) => {
                    bytes = &bytes[count..];
                    if bytes.len() < due {
                        due = bytes.len().saturating_sub(PROGRESS);
                        deadline = Instant::now() + patience;
                    }
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted => {}
                    io::ErrorKind::WouldBlock => {
                        if self.stop.as_ref().is_some_and(|stop| stop.urgency() == Urgency::Now) {
                            return Err(ChannelError::Stopped);
                        }
                        let stop = self.stop.as_ref().and_then(|stop| stop.beyond(Urgency::Orderly));
                        if !wait_writable(self.stream.as_fd(), stop, deadline).map_err(io)? {
                            return Err(self.timed_out("a message could not be sent", since, deadline));
                        }
                    }
                    kind if is_closed(kind) => return Err(ChannelError::Closed),
                    _ => return Err(io(error)),
                },
            }
        }
        Ok(())
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Whether the peer has gone away. One that leaves bytes of ours unread resets the connection.
fn is_closed(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted | io::ErrorKind::BrokenPipe)
}

pub(crate) fn preamble(key: Option<&Key>) -> [u8; PREAMBLE] {
    let mut bytes = [0; PREAMBLE];
    bytes[..MAGIC.len()].copy_from_slice(&MAGIC);
    bytes[6] = *PROTOCOLS.end();
    bytes[7] = if key.is_some() { KEYED } else { CLEAR };
    bytes
}

/// The peer's newest protocol, if it is newer than ours.
fn agree(theirs: [u8; PREAMBLE], key: Option<&Key>) -> Result<Option<u8>, ChannelError> {
    // Their newest is older than our oldest. If ours is older than their oldest, they close the connection.
    if theirs[6] < *PROTOCOLS.start() {
        return Err(ChannelError::Version { theirs: theirs[6] });
    }
    match (key, theirs[7]) {
        (None, CLEAR) | (Some(_), KEYED) => Ok(Some(theirs[6]).filter(|newest| newest > PROTOCOLS.end())),
        (_, TURNED_AWAY) => Err(ChannelError::TurnedAway),
        (None, _) => Err(ChannelError::KeyRequired),
        (Some(_), _) => Err(ChannelError::KeyUnknown),
    }
}

#[cfg(test)]
mod tests;
