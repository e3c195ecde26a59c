//! A control connection: whole messages in, whole messages out.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use super::wire::{MESSAGE_BYTES, Message};
use crate::control::event::wait_writable;

/// Time for the peer to take a message: the kernel has room for many.
const SEND: Duration = Duration::from_secs(10);

pub struct Control {
    stream: TcpStream,
    incoming: [u8; MESSAGE_BYTES],
    got: usize,
}

impl Control {
    pub fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, incoming: [0; MESSAGE_BYTES], got: 0 })
    }

    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Bytes of a message that is not complete yet.
    pub fn partial(&self) -> &[u8] {
        &self.incoming[..self.got]
    }

    /// Takes a message, if a whole one is there. The end of the stream is an error of the kind `UnexpectedEof`.
    pub fn try_receive(&mut self) -> io::Result<Option<Message>> {
        while self.got < MESSAGE_BYTES {
            match self.stream.read(&mut self.incoming[self.got..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => self.got += n,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.got = 0;
        Ok(Some(Message(self.incoming)))
    }

    pub fn send(&mut self, message: &Message) -> io::Result<()> {
        let deadline = Instant::now() + SEND;
        let mut rest: &[u8] = &message.0;
        while !rest.is_empty() {
            match self.stream.write(rest) {
                Ok(n) => rest = &rest[n..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !wait_writable(self.stream.as_fd(), None, deadline)? {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
