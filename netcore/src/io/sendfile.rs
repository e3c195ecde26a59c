//! `sendfile` from a file in memory: the payload goes from the page cache to the socket, and this process copies
//! nothing.

use std::{io, sync::Arc};

use nix::sys::sendfile::sendfile;

use super::{Channel, buffers::Buffers, constant::ConstantFile, receive, receive_by, retry, wait::Block};
use crate::transport::Link;

/// Sends from a file that holds the ring's bytes once; receives as [`super::blocking`] does.
pub struct Sendfile {
    link: Arc<Link>,
    file: ConstantFile,
}

impl Sendfile {
    /// Fills the file with the contents of these buffers.
    pub fn new(link: Arc<Link>, buffers: &Buffers) -> io::Result<Self> {
        Ok(Self { link, file: ConstantFile::new(buffers)? })
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
        let (link, file) = (&self.link, &mut self.file);
        let n =
            retry(|| file.take(bytes.len(), |file, offset, count| sendfile(&link.send, file, Some(offset), count)))?;
        if n == 0 { Err(io::ErrorKind::WriteZero.into()) } else { Ok(n) }
    }

    #[inline]
    fn try_send(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
        self.send(bytes).map(Some)
    }

    #[inline]
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        receive(&self.link, buffer)
    }

    #[inline]
    fn receive_by(&mut self, buffer: &mut [u8], until_ns: u64) -> io::Result<Option<usize>> {
        receive_by(&self.link, &Block, buffer, until_ns)
    }
}
