//! Several messages per system call, by `sendmmsg` and `recvmmsg`. Worth about a tenth of the rate of small datagrams.
//!
//! The only part of the engines that holds pointers: the kernel's structures for a batch are made once and used again
//! and again, since making them anew for each call would cost more than the call saves.

use std::{io, net::SocketAddr, os::fd::RawFd};

use crate::sys;

/// Messages per call, by default.
pub const MESSAGES: usize = 32;

/// Memory for a number of messages of one size, and the structures by which the kernel finds it.
pub struct Batch {
    /// Never resized, so that the pointers into it stay valid.
    memory: Vec<u8>,
    /// Never resized either: the headers point into it.
    vectors: Vec<libc::iovec>,
    headers: Vec<libc::mmsghdr>,
    /// Addresses of messages on sockets that are not connected: one that all go to, or one for each sender. Never resized
    /// either.
    names: Vec<Name>,
    /// Ancillary data, where the kernel is told when to send each message. Never resized either.
    times: Vec<SendTime>,
    size: usize,
}

/// Room for a socket address.
type Name = [u8; 28];

/// A control message with a time, as the kernel takes it: `struct cmsghdr` (length, level, kind) and the time.
#[repr(C)]
struct SendTime {
    length: usize,
    level: libc::c_int,
    kind: libc::c_int,
    ns: u64,
}

impl Batch {
    /// For `count` messages of at most `size` bytes, each filled with a copy of `contents` (cut off or padded by zeros).
    #[must_use]
    pub fn new(count: usize, size: usize, contents: &[u8]) -> Self {
        let mut memory = vec![0u8; count * size];
        for message in memory.chunks_mut(size.max(1)) {
            let n = contents.len().min(message.len());
            message[..n].copy_from_slice(&contents[..n]);
        }
        let mut vectors: Vec<libc::iovec> = memory
            .chunks_mut(size.max(1))
            .map(|message| libc::iovec { iov_base: message.as_mut_ptr().cast(), iov_len: size })
            .collect();
        let headers = vectors
            .iter_mut()
            .map(|vector| {
                // SAFETY: all-zero bytes are a valid mmsghdr: null pointers and zero lengths.
                let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
                header.msg_hdr.msg_iov = std::ptr::from_mut(vector);
                header.msg_hdr.msg_iovlen = 1;
                header
            })
            .collect();
        Self { memory, vectors, headers, names: Vec::new(), times: Vec::new(), size }
    }

    /// Addresses every message to `peer`.
    #[must_use]
    pub fn to(mut self, peer: SocketAddr) -> Self {
        let (name, length) = sys::address_bytes(peer);
        self.names = vec![name];
        for header in &mut self.headers {
            header.msg_hdr.msg_name = self.names[0].as_mut_ptr().cast();
            header.msg_hdr.msg_namelen = length;
        }
        self
    }

    /// Tells the kernel when to send each message ([`Batch::set_time`]), on a socket with SO_TXTIME.
    #[must_use]
    pub fn with_times(mut self) -> Self {
        let one = || SendTime { length: size_of::<SendTime>(), level: libc::SOL_SOCKET, kind: libc::SCM_TXTIME, ns: 0 };
        self.times = self.headers.iter().map(|_| one()).collect();
        for (header, time) in self.headers.iter_mut().zip(&mut self.times) {
            header.msg_hdr.msg_control = std::ptr::from_mut(time).cast();
            header.msg_hdr.msg_controllen = size_of::<SendTime>();
        }
        self
    }

    /// When message `index` is to be sent, nanoseconds of the clock that the socket was told.
    #[inline]
    pub fn set_time(&mut self, index: usize, ns: u64) {
        self.times[index].ns = ns;
    }

    /// Keeps the sender of each message that is received.
    #[must_use]
    pub fn with_senders(mut self) -> Self {
        self.names = vec![[0; 28]; self.headers.len()];
        for (header, name) in self.headers.iter_mut().zip(&mut self.names) {
            header.msg_hdr.msg_name = name.as_mut_ptr().cast();
        }
        self
    }

    /// Who sent message `index` of the last call, where senders are kept.
    #[inline]
    #[must_use]
    pub fn sender(&self, index: usize) -> Option<SocketAddr> {
        sys::ip_address(self.names.get(index)?)
    }

    /// The whole memory of a message.
    #[inline]
    pub fn message_mut(&mut self, index: usize) -> &mut [u8] {
        &mut self.memory[index * self.size..(index + 1) * self.size]
    }

    /// What was received as message `index` of the last call.
    #[inline]
    #[must_use]
    pub fn received(&self, index: usize) -> &[u8] {
        let length = self.headers[index].msg_len as usize;
        &self.memory[index * self.size..index * self.size + length.min(self.size)]
    }

    /// Sends messages `first..first + count`; says how many the kernel took, at least one.
    #[inline]
    pub fn send(&mut self, socket: RawFd, first: usize, count: usize, flags: libc::c_int) -> io::Result<usize> {
        let headers = &mut self.headers[first..first + count];
        // At most as many as there are headers, far below 2^32.
        #[expect(clippy::cast_possible_truncation)]
        let length = headers.len() as libc::c_uint;
        // SAFETY: every header points to one of `vectors` and that to `size` bytes of `memory`; where messages are addressed,
        // to the entry of `names`, of which the kernel reads the length of an address; and where they have times, to its
        // entry of `times`. None of them has been moved or resized since they were made (a move of `Self` does not move what
        // its vectors own), and the exclusive borrow keeps others away from them during the call.
        let sent = unsafe { libc::sendmmsg(socket, headers.as_mut_ptr(), length, flags) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }

    /// Waits for one message and takes as many more as are there; says how many.
    #[inline]
    pub fn receive(&mut self, socket: RawFd, flags: libc::c_int) -> io::Result<usize> {
        #[expect(clippy::cast_possible_truncation)]
        let length = self.headers.len() as libc::c_uint;
        debug_assert_eq!(self.vectors.len(), self.headers.len());
        let flags = flags | libc::MSG_WAITFORONE;
        if !self.names.is_empty() {
            // The kernel has written over them what it used.
            self.headers.iter_mut().for_each(|header| header.msg_hdr.msg_namelen = 28);
        }
        // SAFETY: as in `send`; the kernel writes at most `size` bytes to each message, its length to the header, and at most
        // 28 bytes of an address to the entry of `names` that is the header's own, where senders are kept. The timeout's null
        // pointer says that there is none.
        let received =
            unsafe { libc::recvmmsg(socket, self.headers.as_mut_ptr(), length, flags, std::ptr::null_mut()) };
        usize::try_from(received).map_err(|_| io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use std::{net::UdpSocket, os::fd::AsRawFd};

    use super::*;

    #[test]
    fn messages_arrive_as_they_were_sent() {
        let (a, b) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        a.connect(b.local_addr().unwrap()).unwrap();
        let mut sending = Batch::new(5, 10, b"abcdefghijkl");
        // A move of the whole must not matter.
        let mut moved = std::hint::black_box(std::mem::replace(&mut sending, Batch::new(1, 1, b"")));
        for i in 0..5 {
            moved.message_mut(i)[0] = b'0' + u8::try_from(i).unwrap();
        }
        assert_eq!(moved.send(a.as_raw_fd(), 1, 3, 0).unwrap(), 3);
        let mut receiving = Batch::new(8, 20, b"");
        let mut seen = Vec::new();
        while seen.len() < 3 {
            let n = receiving.receive(b.as_raw_fd(), 0).unwrap();
            seen.extend((0..n).map(|i| receiving.received(i).to_vec()));
        }
        assert_eq!(seen, [b"1bcdefghij", b"2bcdefghij", b"3bcdefghij"]);
        assert_eq!(
            receiving.receive(b.as_raw_fd(), libc::MSG_DONTWAIT).unwrap_err().raw_os_error(),
            Some(libc::EAGAIN)
        );
    }

    #[test]
    fn messages_find_their_way_without_a_connection_and_say_whom_they_are_from() {
        for any in ["127.0.0.1:0", "[::1]:0"] {
            let (Ok(a), Ok(b)) = (UdpSocket::bind(any), UdpSocket::bind(any)) else { continue };
            let mut sending = std::hint::black_box(Batch::new(3, 4, b"abcd").to(b.local_addr().unwrap()));
            let mut receiving = std::hint::black_box(Batch::new(2, 4, b"").with_senders());
            assert_eq!(sending.send(a.as_raw_fd(), 0, 3, 0).unwrap(), 3);
            let mut got = 0;
            while got < 3 {
                let n = receiving.receive(b.as_raw_fd(), 0).unwrap();
                assert!((0..n).all(|i| receiving.sender(i) == Some(a.local_addr().unwrap())));
                assert!((0..n).all(|i| receiving.received(i) == b"abcd"));
                got += n;
            }
        }
        assert_eq!(Batch::new(1, 1, b"").sender(0), None);
    }

    #[test]
    fn a_message_that_is_too_long_is_cut_off_and_not_written_past_its_memory() {
        let (a, b) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        a.send_to(&[b'x'; 100], b.local_addr().unwrap()).unwrap();
        let mut batch = Batch::new(2, 10, b"..........");
        assert_eq!(batch.receive(b.as_raw_fd(), 0).unwrap(), 1);
        assert_eq!(batch.received(0), [b'x'; 10]);
        assert_eq!(batch.message_mut(1), b"..........");
    }
}
