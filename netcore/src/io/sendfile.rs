//! `sendfile` from a file in memory: the payload goes from the page cache to the socket, and this process copies
//! nothing.

use std::{fs::File, io, io::Write, os::fd::AsRawFd, sync::Arc};

use nix::sys::{
    memfd::{MFdFlags, memfd_create},
    sendfile::sendfile,
    socket::{MsgFlags, recv},
};

use super::{Channel, buffers::Buffers, retry, wait::Block};
use crate::transport::Link;

/// Sends from a file that holds the ring's bytes once; receives as [`super::blocking`] does.
pub struct Sendfile {
    link: Arc<Link>,
    file: File,
    bytes: u64,
    at: u64,
}

impl Sendfile {
    /// Fills the file with the contents of these buffers.
    pub fn new(link: Arc<Link>, buffers: &Buffers) -> io::Result<Self> {
        let mut file = File::from(memfd_create("plumbline payload", MFdFlags::MFD_CLOEXEC)?);
        let mut bytes = 0;
        for buffer in buffers.iter() {
            file.write_all(buffer)?;
            bytes += buffer.len() as u64;
        }
        Ok(Self { link, file, bytes, at: 0 })
    }
}

impl Channel for Sendfile {
    type Wait = Block;

    #[inline]
    fn wait(&self) -> &Block {
        &Block
    }

    #[inline]
    fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = (bytes.len() as u64).min(self.bytes - self.at);
        let mut offset = self.at.cast_signed();
        // `count` is at most the length of a slice.
        #[expect(clippy::cast_possible_truncation)]
        let n = retry(|| sendfile(&self.link.send, &self.file, Some(&mut offset), count as usize))?;
        if n == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.at = (self.at + n as u64) % self.bytes;
        Ok(n)
    }

    #[inline]
    fn try_send(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
        self.send(bytes).map(Some)
    }

    #[inline]
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let fd = self.link.receive.as_raw_fd();
        retry(|| recv(fd, buffer, MsgFlags::empty()))
    }
}
