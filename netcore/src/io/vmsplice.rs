//! `vmsplice` into a pipe and `splice` from it: pages of this process go to the socket, and nothing is copied.

use std::{
    io::{self, IoSlice},
    sync::Arc,
};

use nix::fcntl::{SpliceFFlags, vmsplice};

use super::{
    buffers::Buffers,
    conduit::Conduit,
    constant::{ConstantPages, SendPages},
};
use crate::transport::Link;

/// Sends from pages that hold the ring's bytes once.
pub struct Vmsplice {
    link: Arc<Link>,
    conduit: Conduit,
    pages: ConstantPages,
}

impl Vmsplice {
    /// Fills the pages with the contents of these buffers.
    pub fn new(link: Arc<Link>, conduit: Conduit, buffers: &Buffers) -> io::Result<Self> {
        Ok(Self { link, conduit, pages: ConstantPages::new(buffers)? })
    }
}

impl SendPages for Vmsplice {
    #[inline]
    fn link(&self) -> &Link {
        &self.link
    }

    #[inline]
    fn send_pages(&mut self, at_most: usize) -> io::Result<usize> {
        let pages = &mut self.pages;
        self.conduit.send(&self.link, at_most, |pipe| {
            pages.take(at_most, |bytes| vmsplice(pipe, &[IoSlice::new(bytes)], SpliceFFlags::empty()))
        })
    }
}
