//! A control connection: single bytes, and texts behind their length, each within a deadline.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
};

use nix::{
    poll::PollFlags,
    sys::socket::{MsgFlags, recv},
};
use serde_json::Value;

use super::wire::{self, Malformed, State};
use crate::{sys, transport::Deadline};

/// The end of a control connection, or of its use.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    #[error("the control connection was closed")]
    Closed,
    /// Seconds for which this end waited.
    #[error("nothing came within {0:.1} s")]
    Silent(f64),
    #[error("the wait was given up on request")]
    Cancelled,
    #[error("{0}")]
    Malformed(#[from] Malformed),
    #[error("{0}")]
    Io(io::Error),
}

impl From<io::Error> for ControlError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof => Self::Closed,
            _ => Self::Io(error),
        }
    }
}

/// A byte that is no state.
fn unknown(byte: u8) -> ControlError {
    Malformed(format!("the unknown message {byte}")).into()
}

pub struct Control {
    stream: TcpStream,
}

impl Control {
    pub fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream })
    }

    /// Lets every message leave at once.
    pub fn no_delay(&self) -> io::Result<()> {
        self.stream.set_nodelay(true)
    }

    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Fills the buffer. The deadline bounds all of it, so a slow sender gains nothing.
    pub fn read(&mut self, buffer: &mut [u8], deadline: &Deadline<'_>) -> Result<(), ControlError> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.stream.read(&mut buffer[filled..]) {
                Ok(0) => return Err(ControlError::Closed),
                Ok(n) => filled += n,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait(PollFlags::POLLIN, deadline)?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    pub fn write(&mut self, bytes: &[u8], deadline: &Deadline<'_>) -> Result<(), ControlError> {
        let mut written = 0;
        while written < bytes.len() {
            match self.stream.write(&bytes[written..]) {
                Ok(n) => written += n,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait(PollFlags::POLLOUT, deadline)?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn wait(&self, events: PollFlags, deadline: &Deadline<'_>) -> Result<(), ControlError> {
        loop {
            if deadline.left().is_zero() {
                return Err(if deadline.is_cancelled() {
                    ControlError::Cancelled
                } else {
                    ControlError::Silent(deadline.elapsed_s())
                });
            }
            if sys::wait_for(&self.stream, events, deadline.slice()).map_err(ControlError::Io)? {
                return Ok(());
            }
        }
    }

    pub fn send(&mut self, state: State, deadline: &Deadline<'_>) -> Result<(), ControlError> {
        self.write(&[state.byte()], deadline)
    }

    /// One byte, since the next may begin a text.
    pub fn state(&mut self, deadline: &Deadline<'_>) -> Result<State, ControlError> {
        let mut byte = [0];
        self.read(&mut byte, deadline)?;
        State::parse(byte[0]).ok_or_else(|| unknown(byte[0]))
    }

    /// A state that has arrived already; `None`: there is none yet.
    pub fn arrived_state(&mut self) -> Result<Option<State>, ControlError> {
        let mut byte = [0];
        match self.stream.read(&mut byte) {
            Ok(0) => Err(ControlError::Closed),
            Ok(_) => State::parse(byte[0]).map(Some).ok_or_else(|| unknown(byte[0])),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether something is there to be read, which stays there.
    pub fn has_arrived(&self) -> Result<bool, ControlError> {
        match recv(self.stream.as_raw_fd(), &mut [0], MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT) {
            Ok(0) => Err(ControlError::Closed),
            Ok(_) => Ok(true),
            Err(nix::Error::EAGAIN | nix::Error::EINTR) => Ok(false),
            Err(error) => Err(io::Error::from(error).into()),
        }
    }

    /// Two numbers behind [`State::ServerError`]: iperf3's, and the system's. Version 3.12 sometimes sends only the first.
    pub fn error_numbers(&mut self, deadline: &Deadline<'_>) -> Result<(i32, i32), ControlError> {
        let mut number = || -> Result<i32, ControlError> {
            let mut bytes = [0; 4];
            self.read(&mut bytes, deadline)?;
            Ok(i32::from_be_bytes(bytes))
        };
        let code = number()?;
        Ok((code, number().unwrap_or(0)))
    }

    pub fn send_error(&mut self, code: i32, deadline: &Deadline<'_>) -> Result<(), ControlError> {
        let bytes = [&[State::ServerError.byte()][..], &code.to_be_bytes(), &0i32.to_be_bytes()].concat();
        self.write(&bytes, deadline)
    }

    pub fn send_text(&mut self, value: &Value, deadline: &Deadline<'_>) -> Result<(), ControlError> {
        self.write(&wire::frame(value), deadline)
    }

    /// A text of at most `most` bytes. Memory grows with what arrives, not with what was announced.
    pub fn text(&mut self, most: usize, deadline: &Deadline<'_>) -> Result<Vec<u8>, ControlError> {
        const STEP: usize = 16 << 10;
        let mut head = [0; 4];
        self.read(&mut head, deadline)?;
        let length = wire::length(head, most)?;
        let mut text = Vec::new();
        while text.len() < length {
            let from = text.len();
            text.resize(length.min(from + STEP), 0);
            self.read(&mut text[from..], deadline)?;
        }
        Ok(text)
    }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, time::Duration};

    use super::*;

    fn pair() -> (Control, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (Control::new(listener.accept().unwrap().0).unwrap(), near)
    }

    fn soon() -> Deadline<'static> {
        Deadline::after(Duration::from_secs(20), &|| false)
    }

    #[test]
    fn states_that_arrive_together_are_read_one_by_one() {
        let (mut control, mut peer) = pair();
        assert_eq!(control.arrived_state().unwrap(), None);
        peer.write_all(b"\x01\x02\x00\x00\x00\x02{}\xFE\x00\x00\x00\x8E").unwrap();
        assert_eq!(control.state(&soon()).unwrap(), State::TestStart);
        assert_eq!(control.state(&soon()).unwrap(), State::TestRunning);
        assert!(control.has_arrived().unwrap());
        assert_eq!(control.text(10, &soon()).unwrap(), b"{}");
        assert_eq!(control.state(&soon()).unwrap(), State::ServerError);
        drop(peer);
        assert_eq!(control.error_numbers(&soon()).unwrap(), (142, 0), "the second number is missing");
        assert!(matches!(control.state(&soon()), Err(ControlError::Closed)));
        assert!(matches!(control.has_arrived(), Err(ControlError::Closed)));
    }

    #[test]
    fn a_peer_that_is_silent_or_slow_gains_nothing() {
        let (mut control, mut peer) = pair();
        peer.write_all(&[0, 0, 0x10]).unwrap();
        let deadline = Deadline::after(Duration::from_millis(20), &|| false);
        assert!(matches!(control.text(10, &deadline), Err(ControlError::Silent(_))));
        let cancelled = Deadline::after(Duration::from_secs(20), &|| true);
        assert!(matches!(control.state(&cancelled), Err(ControlError::Cancelled)));
        peer.write_all(&[9, 9, 9, 9, 77]).unwrap();
        assert!(matches!(control.text(10, &soon()), Err(ControlError::Malformed(_))));
        assert!(matches!(control.state(&soon()), Err(ControlError::Malformed(_))));
    }
}
