//! `sendfile` from a file in memory: the payload goes from the page cache to the socket, and this process copies
//! nothing.

use std::{io, sync::Arc};

use nix::sys::sendfile::sendfile;

use super::{
    buffers::Buffers,
    constant::{ConstantFile, SendPages},
    retry,
};
use crate::transport::Link;

/// Sends from a file that holds the ring's bytes once.
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

impl SendPages for Sendfile {
    #[inline]
    fn link(&self) -> &Link {
        &self.link
    }

    #[inline]
    fn send_pages(&mut self, at_most: usize) -> io::Result<usize> {
        let (link, file) = (&self.link, &mut self.file);
        let n = retry(|| file.take(at_most, |file, offset, count| sendfile(&link.send, file, Some(offset), count)))?;
        if n == 0 { Err(io::ErrorKind::WriteZero.into()) } else { Ok(n) }
    }
}
