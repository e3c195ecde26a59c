//! A sender's payload where the kernel sends the pages themselves: the ring's bytes, once, and never written again.

use std::{
    fs::File,
    io::{self, Write},
};

use nix::sys::memfd::{MFdFlags, memfd_create};

use super::{Channel, buffers::Buffers, receive, receive_by, wait::Block};
use crate::{sys::pages::Pages, transport::Link};

/// Sends the next bytes of a constant payload. It receives as [`super::blocking`] does: only the end of the stream.
pub trait SendPages {
    fn link(&self) -> &Link;

    /// Sends at least one byte and at most `at_most`; returns how many.
    fn send_pages(&mut self, at_most: usize) -> io::Result<usize>;

    /// As [`Channel::settle`].
    fn settle(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<S: SendPages> Channel for S {
    type Wait = Block;

    #[inline]
    fn wait(&self) -> &Block {
        &Block
    }

    #[inline]
    fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.send_pages(bytes.len())
    }

    #[inline]
    fn try_send(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
        self.send_pages(bytes.len()).map(Some)
    }

    #[inline]
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        receive(self.link(), buffer)
    }

    #[inline]
    fn receive_by(&mut self, buffer: &mut [u8], until_ns: u64) -> io::Result<Option<usize>> {
        receive_by(self.link(), &Block, buffer, until_ns)
    }

    fn settle(&mut self) -> io::Result<()> {
        SendPages::settle(self)
    }
}

/// Position in a ring of bytes.
#[derive(Debug)]
pub struct Position {
    bytes: usize,
    at: usize,
}

impl Position {
    fn new(bytes: usize) -> Self {
        Self { bytes, at: 0 }
    }

    /// Bytes from here on, at most `at_most` and not beyond the ring's end.
    #[inline]
    fn count(&self, at_most: usize) -> usize {
        at_most.min(self.bytes - self.at)
    }

    /// Goes on by `n` bytes, at most as many as counted.
    #[inline]
    fn advance(&mut self, n: usize) {
        self.at += n;
        if self.at >= self.bytes {
            self.at = 0;
        }
    }
}

/// The payload in a file in memory.
pub struct ConstantFile {
    file: File,
    position: Position,
}

impl ConstantFile {
    pub fn new(buffers: &Buffers) -> io::Result<Self> {
        let mut file = File::from(memfd_create("plumbline payload", MFdFlags::MFD_CLOEXEC)?);
        let mut bytes = 0;
        for buffer in buffers.iter() {
            file.write_all(buffer)?;
            bytes += buffer.len();
        }
        Ok(Self { file, position: Position::new(bytes) })
    }

    /// Has `take` send from the file at an offset, up to a number of bytes; returns how many it took.
    #[inline]
    pub fn take(
        &mut self,
        at_most: usize,
        take: impl FnOnce(&File, &mut libc::off_t, usize) -> nix::Result<usize>,
    ) -> nix::Result<usize> {
        // A file's length fits.
        #[expect(clippy::cast_possible_wrap)]
        let mut offset = self.position.at as libc::off_t;
        let n = take(&self.file, &mut offset, self.position.count(at_most))?;
        self.position.advance(n);
        Ok(n)
    }
}

/// The payload in pages of this process.
pub struct ConstantPages {
    pages: Pages,
    position: Position,
}

impl ConstantPages {
    pub fn new(buffers: &Buffers) -> io::Result<Self> {
        let bytes = buffers.iter().map(<[u8]>::len).sum();
        let pages = Pages::filled(bytes, |all| {
            let mut rest = all;
            for buffer in buffers.iter() {
                let (here, behind) = rest.split_at_mut(buffer.len());
                here.copy_from_slice(buffer);
                rest = behind;
            }
        })?;
        Ok(Self { pages, position: Position::new(bytes) })
    }

    /// Has `take` send from these bytes; returns how many it took.
    #[inline]
    pub fn take(&mut self, at_most: usize, take: impl FnOnce(&[u8]) -> nix::Result<usize>) -> nix::Result<usize> {
        let at = self.position.at;
        let n = take(&self.pages.as_slice()[at..at + self.position.count(at_most)])?;
        self.position.advance(n);
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::{
        io::fill::Contents,
        spec::{BufferOptions, shape::Shape},
    };

    #[test]
    fn both_hold_the_ring_and_begin_again_at_its_end() {
        let options = BufferOptions { ring: 3, ..BufferOptions::default() };
        let buffers = Buffers::to_send(Shape::plain(100), &options, Contents::Random).unwrap();
        let ring: Vec<u8> = buffers.iter().flatten().copied().collect();
        let (mut file, mut pages) = (ConstantFile::new(&buffers).unwrap(), ConstantPages::new(&buffers).unwrap());
        let (mut from_file, mut from_pages) = (Vec::new(), Vec::new());
        while from_pages.len() < 1000 {
            let n = pages
                .take(70, |bytes| {
                    from_pages.extend_from_slice(bytes);
                    Ok(bytes.len())
                })
                .unwrap();
            let taken = file.take(70, |file, offset, count| {
                let mut bytes = vec![0; count];
                file.read_exact_at(&mut bytes, u64::try_from(*offset).unwrap()).unwrap();
                from_file.extend(bytes);
                Ok(count)
            });
            assert_eq!(taken, Ok(n), "never beyond the end of the ring");
        }
        assert!(from_pages.iter().eq(ring.iter().cycle().take(from_pages.len())));
        assert_eq!(from_file, from_pages);
        assert_eq!(pages.take(70, |_| Err(nix::Error::EPIPE)), Err(nix::Error::EPIPE));
        let here = pages.position.at;
        pages.take(5, |_| Ok(2)).unwrap();
        assert_eq!(pages.position.at, here + 2, "by what was taken");
    }
}
