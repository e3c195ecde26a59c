//! `vmsplice` into a pipe and `splice` from it: pages of this process go to the socket, and nothing is copied.

use std::{
    io::{self, IoSlice},
    sync::Arc,
};

use nix::fcntl::{SpliceFFlags, vmsplice};

use super::{Channel, buffers::Buffers, conduit::Conduit, constant::ConstantPages, receive, receive_by, wait::Block};
use crate::transport::Link;

/// Sends from pages that hold the ring's bytes once; receives as [`super::blocking`] does.
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

impl Channel for Vmsplice {
    type Wait = Block;

    #[inline]
    fn wait(&self) -> &Block {
        &Block
    }

    #[inline]
    fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let pages = &mut self.pages;
        self.conduit.send(&self.link, bytes.len(), |pipe| {
            pages.take(bytes.len(), |bytes| vmsplice(pipe, &[IoSlice::new(bytes)], SpliceFFlags::empty()))
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
