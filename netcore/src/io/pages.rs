//! Senders of pages (`io: sendfile`, `splice` and `vmsplice`): the kernel sends the pages themselves, and nothing is copied. They
//! hold the ring's bytes once, and are never written again.

use std::{
    fs::File,
    io::{self, IoSlice, Write},
    os::fd::OwnedFd,
    sync::Arc,
};

use nix::{
    fcntl::{FcntlArg, OFlag, SpliceFFlags, fcntl, splice, vmsplice},
    sys::{
        memfd::{MFdFlags, memfd_create},
        sendfile::sendfile,
    },
    unistd::pipe2,
};

use super::{Channel, buffers::Buffers, receive, receive_by, retry, wait::Block};
use crate::{report::Granted, sys::Pages, transport::Link};

/// Sends the next bytes of a constant payload. It receives as [`super::SocketCalls`] with [`Block`] does: only the end of the stream.
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

/// Capacity to ask for, bytes: that of 256 pages. It is the most that `fs.pipe-max-size` allows by default.
const ASKED_BYTES: u32 = 1 << 20;

/// Its name among the options in a report.
const OPTION: &str = "pipe";

/// The pipe of one sender between pages and a socket. `splice` moves references to pages through it, and no bytes.
#[derive(Debug)]
pub struct Conduit {
    reader: OwnedFd,
    writer: OwnedFd,
    /// Bytes in the pipe.
    held: usize,
}

impl Conduit {
    /// Makes a pipe and asks for [`ASKED_BYTES`]. The kernel may grant less.
    pub fn new() -> io::Result<Self> {
        let (reader, writer) = pipe2(OFlag::O_CLOEXEC)?;
        // A refusal (fs.pipe-max-size, fs.pipe-user-pages-soft) leaves the pipe as it is; the report says its capacity.
        let _ = fcntl(&writer, FcntlArg::F_SETPIPE_SZ(ASKED_BYTES.cast_signed()));
        Ok(Self { reader, writer, held: 0 })
    }

    /// The capacity that was asked for, and the one that the kernel reports.
    pub fn granted(&self, flow: u32) -> Granted {
        let bytes = fcntl(&self.writer, FcntlArg::F_GETPIPE_SZ).ok().map(|bytes| bytes.to_string());
        Granted::constant(flow, OPTION, ASKED_BYTES.to_string(), bytes)
    }

    /// Sends at least one byte and at most `at_most`. `fill` puts pages into the pipe if it is empty, and never waits then.
    #[inline]
    pub fn send(
        &mut self,
        link: &Link,
        at_most: usize,
        mut fill: impl FnMut(&OwnedFd) -> nix::Result<usize>,
    ) -> io::Result<usize> {
        if self.held == 0 {
            self.held = retry(|| fill(&self.writer))?;
        }
        let count = self.held.min(at_most);
        let n = retry(|| splice(&self.reader, None, &link.send, None, count, SpliceFFlags::empty()))?;
        if n == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.held -= n;
        Ok(n)
    }
}

/// The sentence about a pipe that is smaller than asked for.
pub fn conduit_note(options: &[Granted]) -> Option<String> {
    let of_pipes = options.iter().filter(|granted| granted.option == OPTION);
    let smallest = of_pipes.filter_map(|granted| granted.at_start.as_deref()?.parse::<u32>().ok()).min()?;
    let asked = ASKED_BYTES;
    (smallest < asked).then(|| {
        format!(
            "the pipe that was to hold {asked} bytes holds {smallest}, so a message passes in smaller pieces: raise \
             fs.pipe-max-size or fs.pipe-user-pages-soft, or run fewer streams"
        )
    })
}

/// `sendfile` from a file in memory: the payload goes from the page cache to the socket, and this process copies nothing.
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

/// `splice` from a file in memory through a pipe: the pages of the page cache go to the socket.
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

/// `vmsplice` into a pipe and `splice` from it: pages of this process go to the socket.
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use nix::unistd::{read, write};

    use super::*;
    use crate::{
        io::fill::Contents,
        spec::{BufferOptions, memory::Shape},
        transport::Link,
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

    fn pair() -> (Link, OwnedFd) {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        (Link::of_socket(0, ours.into()), theirs.into())
    }

    #[test]
    fn bytes_pass_in_their_order_whatever_the_calls_take() {
        let (link, theirs) = pair();
        let mut conduit = Conduit::new().unwrap();
        let fills = std::cell::Cell::new(0);
        let mut fill = |pipe: &OwnedFd| {
            fills.set(fills.get() + 1);
            write(pipe, b"0123456789")
        };
        let mut received = Vec::new();
        for at_most in [4, 4, 4, 20, 3] {
            let n = conduit.send(&link, at_most, &mut fill).unwrap();
            let mut bytes = [0; 20];
            let got = read(&theirs, &mut bytes).unwrap();
            assert_eq!(got, n);
            received.extend_from_slice(&bytes[..got]);
        }
        assert_eq!(received, b"012345678901234567890123456789"[..received.len()].to_vec());
        assert_eq!((received.len(), fills.get()), (23, 3));
        let nothing = conduit.send(&link, 0, |_| unreachable!());
        assert_eq!(nothing.unwrap_err().kind(), io::ErrorKind::WriteZero);
        drop(theirs);
        assert_eq!(conduit.send(&link, 1, &mut fill).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn a_smaller_pipe_is_told() {
        let conduit = Conduit::new().unwrap();
        let granted = conduit.granted(3);
        assert_eq!((granted.flow, granted.requested.as_deref()), (3, Some("1048576")));
        fcntl(&conduit.writer, FcntlArg::F_SETPIPE_SZ(65_536)).unwrap();
        let smaller = conduit.granted(4);
        assert_eq!(smaller.at_end.as_deref(), Some("65536"));
        assert_eq!(conduit_note(&[]), None);
        let sentence = conduit_note(&[granted, smaller]).unwrap();
        assert!(sentence.contains("1048576 bytes holds 65536"), "{sentence}");
    }
}
