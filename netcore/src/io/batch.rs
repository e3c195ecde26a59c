//! Several messages per system call, by `sendmmsg` and `recvmmsg`. This gains about a tenth of the rate of small
//! datagrams.
//!
//! The only part of the engines that holds pointers: the kernel's structures for a batch are made once and reused,
//! since making them for each call would cost more than the call saves. Each pointer is that of a vector that is never resized,
//! plus an offset: [`Vec::as_mut_ptr`] borrows nothing, so that what Rust borrows of the elements between two calls does not
//! end it, and a move of the whole moves no element.

use std::{io, net::SocketAddr, ops::Range, os::fd::RawFd};

use super::buffers::Buffers;
use crate::sys;

/// Buffers, and the kernel's structures that point to them.
pub struct Batch {
    /// `vectors` points into them.
    buffers: Buffers,
    /// One per buffer. Never resized: the headers point into it.
    vectors: Vec<libc::iovec>,
    /// One per slot of the buffers, so that a call that begins anywhere in a ring can go on past its end.
    headers: Vec<libc::mmsghdr>,
    /// Addresses on unconnected sockets: one destination, or one sender per message. Never resized either.
    names: Vec<Name>,
    /// Ancillary data with the time to send each message, if the kernel paces. Never resized either.
    times: Vec<SendTime>,
    /// Messages that are sent as one datagram; 1: each by itself.
    segments: usize,
    /// The slots, first and number, whose messages the headers describe as datagrams of several.
    gathered: (usize, usize),
    /// Ancillary data of each received datagram. Never resized either.
    notices: Vec<[u64; NOTICE_WORDS]>,
    /// Room for them in each header, bytes.
    notice_bytes: usize,
}

/// Room for a socket address.
type Name = [u8; 28];

/// A control message with a time, in the kernel's layout: `struct cmsghdr` (length, level, kind) and the time.
#[repr(C)]
struct SendTime {
    length: usize,
    level: libc::c_int,
    kind: libc::c_int,
    ns: u64,
}

/// Room for the control messages of a received datagram, each with its `struct cmsghdr` (length, level, kind) and aligned to a word:
/// the length of its messages, its type of service, its time of arrival.
const NOTICE_WORDS: usize = 3 + 3 + 4;

const _: () = assert!(size_of::<libc::cmsghdr>() == 2 * size_of::<u64>(), "control messages are read as 64-bit words");

/// The two integers in a word.
fn integers(word: u64) -> [libc::c_int; 2] {
    let bytes = word.to_ne_bytes();
    [0, 4].map(|at| bytes[at..].first_chunk().map_or(0, |four| libc::c_int::from_ne_bytes(*four)))
}

impl Batch {
    pub fn new(mut buffers: Buffers) -> Self {
        let (count, size) = (buffers.count(), buffers.size());
        let mut vectors: Vec<libc::iovec> =
            (0..count).map(|index| libc::iovec { iov_base: buffers.pointer(index).cast(), iov_len: size }).collect();
        let headers = (0..buffers.slots())
            .map(|index| {
                // SAFETY: all-zero bytes are a valid mmsghdr: null pointers and zero lengths.
                let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
                header.msg_hdr.msg_iov = vectors.as_mut_ptr().wrapping_add(index % count);
                header.msg_hdr.msg_iovlen = 1;
                header
            })
            .collect();
        Self {
            buffers,
            vectors,
            headers,
            names: Vec::new(),
            times: Vec::new(),
            segments: 1,
            gathered: (0, 0),
            notices: Vec::new(),
            notice_bytes: 0,
        }
    }

    /// The buffers. A message's index is its buffer's slot.
    #[inline]
    pub fn buffers(&mut self) -> &mut Buffers {
        &mut self.buffers
    }

    /// Addresses every message to `peer`.
    pub fn to(mut self, peer: SocketAddr) -> Self {
        let (name, length) = sys::address_bytes(peer);
        self.names = vec![name];
        for header in &mut self.headers {
            header.msg_hdr.msg_name = self.names.as_mut_ptr().cast();
            header.msg_hdr.msg_namelen = length;
        }
        self
    }

    /// Sends up to `segments` messages as one datagram, on a socket with UDP_SEGMENT. From here on a header is a datagram's.
    pub fn with_segments(mut self, segments: usize) -> Self {
        self.segments = segments.max(1);
        if self.segments > 1 {
            self.headers.truncate(self.buffers.per_call().div_ceil(self.segments));
        }
        self
    }

    /// Describes the messages of these slots as datagrams of several: a vector for each run of neighbours in memory. Without a
    /// ring this is the same for every full call, and done once.
    #[cold]
    fn gather(&mut self, first: usize, count: usize) {
        let mut used = 0;
        for (index, header) in self.headers.iter_mut().enumerate().take(count.div_ceil(self.segments)) {
            let from = first + index * self.segments;
            let runs = self.buffers.runs(from..(from + self.segments).min(first + count));
            header.msg_hdr.msg_iov = self.vectors.as_mut_ptr().wrapping_add(used);
            header.msg_hdr.msg_iovlen = 0;
            for (pointer, bytes) in runs {
                self.vectors[used] = libc::iovec { iov_base: pointer.cast(), iov_len: bytes };
                header.msg_hdr.msg_iovlen += 1;
                used += 1;
            }
        }
        self.gathered = (first, count);
    }

    /// Accepts datagrams of several messages, on a socket with UDP_GRO.
    pub fn with_segment_lengths(self) -> Self {
        self.with_notice(3)
    }

    /// Keeps the type of service of each received datagram, on a socket with IP_RECVTOS or IPV6_RECVTCLASS.
    pub fn with_code_points(self) -> Self {
        self.with_notice(3)
    }

    /// Keeps the time of arrival of each received datagram, on a socket with SO_TIMESTAMPNS.
    pub fn with_arrival_times(self) -> Self {
        self.with_notice(4)
    }

    /// Makes room for one more control message of so many words in each header.
    fn with_notice(mut self, words: usize) -> Self {
        self.notice_bytes += words * size_of::<u64>();
        self.notices = vec![[0; NOTICE_WORDS]; self.headers.len()];
        for (index, header) in self.headers.iter_mut().enumerate() {
            header.msg_hdr.msg_control = self.notices.as_mut_ptr().wrapping_add(index).cast();
        }
        self
    }

    /// Level and value of the control message of one of these kinds with the datagram that was received to this slot by the last
    /// call.
    #[inline]
    fn notice(&self, index: usize, kinds: &[(libc::c_int, libc::c_int)]) -> Option<(libc::c_int, &[u64])> {
        let used = self.headers[index].msg_hdr.msg_controllen.div_ceil(size_of::<u64>());
        let mut rest = self.notices.get(index)?.get(..used)?;
        while let [length, of, value @ ..] = rest {
            let [level, kind] = integers(*of);
            if kinds.contains(&(level, kind)) {
                return Some((level, value));
            }
            let words = usize::try_from(*length).ok()?.div_ceil(size_of::<u64>());
            rest = rest.get(words.max(2)..)?;
        }
        None
    }

    /// Bytes of each message in the datagram that was received to this slot by the last call; the last message may be shorter.
    /// `None`: it is one message.
    #[inline]
    pub fn segment_bytes(&self, index: usize) -> Option<usize> {
        let (_, value) = self.notice(index, &[(libc::SOL_UDP, libc::UDP_GRO)])?;
        usize::try_from(integers(*value.first()?)[0]).ok().filter(|bytes| *bytes > 0)
    }

    /// The code point of ECN, the two lower bits of the type of service, of the datagram that was received to this slot by the
    /// last call.
    #[inline]
    pub fn code_point(&self, index: usize) -> Option<usize> {
        let kinds = [(libc::IPPROTO_IP, libc::IP_TOS), (libc::IPPROTO_IPV6, libc::IPV6_TCLASS)];
        let (level, value) = self.notice(index, &kinds)?;
        let word = *value.first()?;
        // The one is a byte, the other an `int`.
        let class = if level == libc::IPPROTO_IP { word.to_ne_bytes()[0] } else { integers(word)[0].to_le_bytes()[0] };
        Some((class & 3).into())
    }

    /// The kernel's time of arrival of the datagram that was received to this slot by the last call, Unix nanoseconds.
    #[inline]
    pub fn arrival_ns(&self, index: usize) -> Option<i64> {
        match self.notice(index, &[(libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS)])?.1 {
            [seconds, nanoseconds, ..] => Some((seconds * 1_000_000_000 + nanoseconds).cast_signed()),
            _ => None,
        }
    }

    /// Gives the kernel a time to send each message ([`Batch::set_times`]), on a socket with SO_TXTIME.
    pub fn with_times(mut self) -> Self {
        let one = || SendTime { length: size_of::<SendTime>(), level: libc::SOL_SOCKET, kind: libc::SCM_TXTIME, ns: 0 };
        self.times = self.headers.iter().map(|_| one()).collect();
        for (index, header) in self.headers.iter_mut().enumerate() {
            header.msg_hdr.msg_control = self.times.as_mut_ptr().wrapping_add(index).cast();
            header.msg_hdr.msg_controllen = size_of::<SendTime>();
        }
        self
    }

    /// Sets the times to send the messages from `first` on, nanoseconds of the socket's clock.
    #[inline]
    pub fn set_times(&mut self, first: usize, dues_ns: &[u64]) {
        self.times[first..].iter_mut().zip(dues_ns).for_each(|(time, due_ns)| time.ns = *due_ns);
    }

    /// Keeps the sender of each received message.
    pub fn with_senders(mut self) -> Self {
        self.names = vec![[0; 28]; self.headers.len()];
        for (index, header) in self.headers.iter_mut().enumerate() {
            header.msg_hdr.msg_name = self.names.as_mut_ptr().wrapping_add(index).cast();
        }
        self
    }

    /// Sender of message `index` of the last call, if senders are kept.
    #[inline]
    pub fn sender(&self, index: usize) -> Option<SocketAddr> {
        sys::ip_address(self.names.get(index)?)
    }

    /// The bytes received as these messages of the last call, with the header before the message, if any.
    #[inline]
    pub fn received(&self, call: Range<usize>) -> impl Iterator<Item = &[u8]> {
        let lengths = self.lengths(call.clone());
        self.buffers.beginnings(call, lengths)
    }

    /// Lengths of these messages of the last call, with the header before the message, if any.
    #[inline]
    pub fn lengths(&self, call: Range<usize>) -> impl Iterator<Item = usize> {
        self.headers[call].iter().map(|header| header.msg_len as usize)
    }

    /// Touches the bytes received as these messages of the last call ([`Buffers::touch`]).
    pub fn touch_received(&mut self, call: Range<usize>) {
        for index in call {
            self.buffers.touch_beginning(index, self.headers[index].msg_len as usize);
        }
    }

    /// Sends messages `first..first + count`; returns how many the kernel took, at least one.
    #[inline]
    pub fn send(&mut self, socket: RawFd, first: usize, count: usize, flags: libc::c_int) -> io::Result<usize> {
        let headers = if self.segments == 1 {
            &mut self.headers[first..first + count]
        } else {
            if self.gathered != (first, count) {
                self.gather(first, count);
            }
            &mut self.headers[..count.div_ceil(self.segments)]
        };
        // At most the number of headers, far below 2^32.
        #[expect(clippy::cast_possible_truncation)]
        let length = headers.len() as libc::c_uint;
        // SAFETY: every header points to one of `vectors` and that to all of one of `buffers`, or, for datagrams of several
        // messages, to as many of `vectors` as `gather` wrote for it just now, each to neighbours among `buffers` up to the last
        // one's end; where messages are addressed, to the entry of `names`, of which the kernel reads the length of an address; and
        // where they have times, to its entry of `times`. The pointers are valid as the module says, and the exclusive borrow keeps
        // others away during the call.
        let sent = unsafe { libc::sendmmsg(socket, headers.as_mut_ptr(), length, flags) };
        let sent = usize::try_from(sent).map_err(|_| io::Error::last_os_error())?;
        // The last datagram may have fewer messages.
        Ok((sent * self.segments).min(count))
    }

    /// Waits for one message and takes as many more as are there and fit a call, as messages from `first` on; returns
    /// their number.
    #[inline]
    pub fn receive(&mut self, socket: RawFd, first: usize, flags: libc::c_int) -> io::Result<usize> {
        debug_assert_eq!(self.vectors.len(), self.buffers.count());
        let headers = &mut self.headers[first..first + self.buffers.per_call()];
        #[expect(clippy::cast_possible_truncation)]
        let length = headers.len() as libc::c_uint;
        // The lengths are the messages' own, also where only their beginnings fit.
        let flags = flags | libc::MSG_WAITFORONE | libc::MSG_TRUNC;
        if !self.names.is_empty() {
            // The kernel has overwritten them with the lengths that it used.
            for header in headers.iter_mut() {
                header.msg_hdr.msg_namelen = 28;
            }
        }
        if self.notice_bytes > 0 {
            for header in headers.iter_mut() {
                header.msg_hdr.msg_controllen = self.notice_bytes;
            }
        }
        // SAFETY: as in `send`; the kernel writes at most the length of a buffer to each of them, and no two headers of a call
        // point to the same one, since a call takes at most as many messages as there are buffers; it writes the message's
        // length to the header, at most 28 bytes of an address to the entry of `names` that is the header's own, where senders
        // are kept, and at most `notice_bytes`, which fit, to the header's own entry of `notices`, where there are any.
        // The timeout's null pointer says that there is none.
        let received = unsafe { libc::recvmmsg(socket, headers.as_mut_ptr(), length, flags, std::ptr::null_mut()) };
        usize::try_from(received).map_err(|_| io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests;
