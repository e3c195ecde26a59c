//! `splice` from a file in memory through a pipe: the pages of the page cache go to the socket, and nothing is copied.

use std::{io, sync::Arc};

use nix::fcntl::{SpliceFFlags, splice};

use super::{
    buffers::Buffers,
    conduit::Conduit,
    constant::{ConstantFile, SendPages},
};
use crate::transport::Link;

/// Sends from a file that holds the ring's bytes once.
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

impl SendPages for Splice {
    #[inline]
    fn link(&self) -> &Link {
        &self.link
    }

    #[inline]
    fn send_pages(&mut self, at_most: usize) -> io::Result<usize> {
        let file = &mut self.file;
        self.conduit.send(&self.link, at_most, |pipe| {
            file.take(at_most, |file, offset, count| {
                splice(file, Some(offset), pipe, None, count, SpliceFFlags::empty())
            })
        })
    }
}
