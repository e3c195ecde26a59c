//! `splice` from a file in memory through a pipe: the pages of the page cache go to the socket, and nothing is copied.

use std::{io, sync::Arc};

use nix::fcntl::{SpliceFFlags, splice};

use super::{Channel, buffers::Buffers, conduit::Conduit, constant::ConstantFile, receive, receive_by, wait::Block};
use crate::transport::Link;

/// Sends from a file that holds the ring's bytes once; receives as [`super::blocking`] does.
pub struct Splice {
    link: Arc<Link>,
    conduit: Conduit,
    file: ConstantFile,
}

impl Splice {
    /// Fills the file with the contents of these buffers.
    pub fn new(link: Arc<Link>, conduit: Conduit, buffers: &Buffers) -> io::Result<Self> {
        Ok(Self { link, conduit, file: ConstantFile::new(buffers)? })
    }
}

impl Channel for Splice {
    type Wait = Block;

    #[inline]
    fn wait(&self) -> &Block {
        &Block
    }

    #[inline]
    fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let file = &mut self.file;
        self.conduit.send(&self.link, bytes.len(), |pipe| {
            file.take(bytes.len(), |file, offset, count| {
                splice(file, Some(offset), pipe, None, count, SpliceFFlags::empty())
            })
        })
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
