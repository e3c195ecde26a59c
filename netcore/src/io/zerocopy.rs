//! `MSG_ZEROCOPY`: the kernel sends this process's own pages, and says on the socket's error queue when it is done with them.
//! A completion also says whether the kernel copied the bytes after all, as it does on loopback.

use std::{
    io,
    os::fd::{AsFd, AsRawFd},
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use nix::{
    cmsg_space,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, send},
};

use super::{
    buffers::Buffers,
    pages::{ConstantPages, SendPages},
    retry,
};
use crate::{
    measure::counters::FlowCell,
    sys::{self, opt},
    transport::Link,
};

/// Origin of a completion (`SO_EE_ORIGIN_ZEROCOPY` of `linux/errqueue.h`).
const ORIGIN_ZEROCOPY: u8 = 5;

/// The kernel has copied the bytes (`SO_EE_CODE_ZEROCOPY_COPIED`).
const CODE_COPIED: u8 = 1;

/// Sends between two readings of the error queue. The kernel merges completions of consecutive sends meanwhile, and keeps at
/// least 100 of them at the default of `net.core.optmem_max`.
const READ_EVERY: u32 = 16;

/// Longest wait for completions after all bytes were acknowledged.
const PATIENCE: Duration = Duration::from_secs(2);

/// Longest wait at a time, so that a freed link is noticed, milliseconds.
const LOOK_UP_MS: u16 = 50;

/// Sends with `MSG_ZEROCOPY` from pages that hold the ring's bytes once.
pub struct Zerocopy {
    link: Arc<Link>,
    pages: ConstantPages,
    cell: Arc<FlowCell>,
    /// Room for the ancillary data of a completion.
    control: Vec<u8>,
    /// Sends, and those since the last reading.
    sent: u64,
    unread: u32,
    /// Sends whose completion has come, and of these, those that the kernel copied.
    completed: u64,
    copied: u64,
}

/// Lets zero-copy sends happen on a socket.
pub fn allow(link: &Link) -> io::Result<()> {
    opt::set_int(&link.send, opt::SO_ZEROCOPY, 1)
}

impl Zerocopy {
    /// Fills the pages with the contents of these buffers. The socket needs [`allow`].
    pub fn new(link: Arc<Link>, cell: Arc<FlowCell>, buffers: &Buffers) -> io::Result<Self> {
        let pages = ConstantPages::new(buffers)?;
        let control = cmsg_space!(libc::sock_extended_err, libc::sockaddr_in6);
        Ok(Self { link, pages, cell, control, sent: 0, unread: 0, completed: 0, copied: 0 })
    }

    /// Reads the completions at hand; returns how many sends they complete.
    fn read(&mut self) -> io::Result<u64> {
        self.unread = 0;
        let before = self.completed;
        let (fd, flags) = (self.link.send.as_raw_fd(), MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT);
        loop {
            let message = match recvmsg::<()>(fd, &mut [], Some(&mut self.control), flags) {
                Ok(message) => message,
                Err(nix::Error::EAGAIN) => break,
                Err(nix::Error::EINTR) => continue,
                Err(error) => return Err(error.into()),
            };
            for control in message.cmsgs()? {
                let (ControlMessageOwned::Ipv4RecvErr(error, _) | ControlMessageOwned::Ipv6RecvErr(error, _)) = control
                else {
                    continue;
                };
                let completed = completed(&error);
                self.completed += completed;
                self.copied += if error.ee_code & CODE_COPIED == 0 { 0 } else { completed };
            }
        }
        self.cell.sent.0.completions.store(self.completed, Relaxed);
        self.cell.sent.0.copied.store(self.copied, Relaxed);
        Ok(self.completed - before)
    }

    /// Sends without a completion.
    fn pending(&self) -> u64 {
        self.sent - self.completed
    }

    /// Waits for completions until some come. The error is a sentence: none will come.
    #[cold]
    fn wait_for_completions(&mut self) -> io::Result<()> {
        let mut since = Instant::now();
        while self.read()? == 0 {
            if self.link.is_freed() {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            if sys::unacknowledged(&self.link.send)? > 0 {
                // The peer reads slowly.
                since = Instant::now();
            }
            if since.elapsed() > PATIENCE {
                return Err(io::Error::other(self.lack()));
            }
            let fds = &mut [PollFd::new(self.link.send.as_fd(), PollFlags::empty())];
            if retry(|| poll(fds, PollTimeout::from(LOOK_UP_MS)))? > 0 && self.read()? > 0 {
                break;
            }
            // An event that is not a completion: the next look must not come at once.
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// The sentence about completions that do not come.
    fn lack(&self) -> String {
        if self.pending() == 0 {
            return "the kernel has no memory for zero-copy sends: allow more of it (net.core.optmem_max, ulimit -l), or choose \
                    smaller messages"
                .to_owned();
        }
        format!(
            "{} of {} zero-copy sends have no completion {} s after the peer acknowledged their bytes",
            self.pending(),
            self.sent,
            PATIENCE.as_secs()
        )
    }
}

/// Sends that a completion stands for: a range of numbers that wrap at 2^32.
fn completed(error: &libc::sock_extended_err) -> u64 {
    if error.ee_origin != ORIGIN_ZEROCOPY {
        return 0;
    }
    u64::from(error.ee_data.wrapping_sub(error.ee_info)) + 1
}

impl SendPages for Zerocopy {
    #[inline]
    fn link(&self) -> &Link {
        &self.link
    }

    #[inline]
    fn send_pages(&mut self, at_most: usize) -> io::Result<usize> {
        if self.unread >= READ_EVERY {
            self.read()?;
        }
        let fd = self.link.send.as_raw_fd();
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::from_bits_retain(libc::MSG_ZEROCOPY);
        loop {
            match self.pages.take(at_most, |bytes| send(fd, bytes, flags)) {
                Ok(n) => {
                    self.sent += 1;
                    self.unread += 1;
                    return Ok(n);
                }
                Err(nix::Error::ENOBUFS) => self.wait_for_completions()?,
                Err(nix::Error::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn settle(&mut self) -> io::Result<()> {
        self.read()?;
        while self.pending() > 0 && !self.link.is_freed() {
            self.wait_for_completions()?;
        }
        Ok(())
    }
}
