//! A pipe between pages and a socket. `splice` moves references to pages through it, and no bytes.

use std::{io, os::fd::OwnedFd};

use nix::{
    fcntl::{FcntlArg, OFlag, SpliceFFlags, fcntl, splice},
    unistd::pipe2,
};

use super::retry;
use crate::{report::Granted, transport::Link};

/// Capacity to ask for, bytes: that of 256 pages. It is the most that `fs.pipe-max-size` allows by default.
const ASKED_BYTES: u32 = 1 << 20;

/// Its name among the options in a report.
const OPTION: &str = "pipe";

/// The pipe of one sender.
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
        Granted {
            flow,
            option: OPTION.to_owned(),
            requested: Some(ASKED_BYTES.to_string()),
            at_start: bytes.clone(),
            // It does not change by itself.
            at_end: bytes,
        }
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
pub fn note(options: &[Granted]) -> Option<String> {
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

#[cfg(test)]
mod tests {
    use nix::unistd::{read, write};

    use super::*;
    use crate::transport::Link;

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
        assert_eq!(note(&[]), None);
        let sentence = note(&[granted, smaller]).unwrap();
        assert!(sentence.contains("1048576 bytes holds 65536"), "{sentence}");
    }
}
