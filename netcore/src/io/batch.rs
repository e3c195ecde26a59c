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
    /// Flags of every receive call.
    receive_flags: libc::c_int,
    /// One per buffer. Never resized: the headers point into it.
    vectors: Vec<libc::iovec>,
    /// One per slot of the buffers, so that a call that begins anywhere in a ring can go on past its end.
    headers: Vec<libc::mmsghdr>,
    /// Addresses on unconnected sockets: one destination, or one sender per message. Never resized either.
    names: Vec<Name>,
    /// Ancillary data with the time to send each message, if the kernel paces. Never resized either.
    times: Vec<SendTime>,
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
        Self { buffers, receive_flags: libc::MSG_WAITFORONE, vectors, headers, names: Vec::new(), times: Vec::new() }
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

    /// Receives only as much of each message as its buffer holds. [`Batch::lengths`] are still the messages' own.
    pub fn cutting_off(mut self) -> Self {
        self.receive_flags |= libc::MSG_TRUNC;
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
        let headers = &mut self.headers[first..first + count];
        // At most the number of headers, far below 2^32.
        #[expect(clippy::cast_possible_truncation)]
        let length = headers.len() as libc::c_uint;
        // SAFETY: every header points to one of `vectors` and that to all of one of `buffers`; where messages are addressed, to
        // the entry of `names`, of which the kernel reads the length of an address; and where they have times, to its entry of
        // `times`. The pointers are valid as the module says, and the exclusive borrow keeps others away during the call.
        let sent = unsafe { libc::sendmmsg(socket, headers.as_mut_ptr(), length, flags) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }

    /// Waits for one message and takes as many more as are there and fit a call, as messages from `first` on; returns
    /// their number.
    #[inline]
    pub fn receive(&mut self, socket: RawFd, first: usize, flags: libc::c_int) -> io::Result<usize> {
        debug_assert_eq!(self.vectors.len(), self.buffers.count());
        let headers = &mut self.headers[first..first + self.buffers.per_call()];
        #[expect(clippy::cast_possible_truncation)]
        let length = headers.len() as libc::c_uint;
        let flags = flags | self.receive_flags;
        if !self.names.is_empty() {
            // The kernel has overwritten them with the lengths that it used.
            for header in headers.iter_mut() {
                header.msg_hdr.msg_namelen = 28;
            }
        }
        // SAFETY: as in `send`; the kernel writes at most the length of a buffer to each of them, and no two headers of a call
        // point to the same one, since a call takes at most as many messages as there are buffers; it writes the message's
        // length to the header, and at most 28 bytes of an address to the entry of `names` that is the header's own, where
        // senders are kept. The timeout's null pointer says that there is none.
        let received = unsafe { libc::recvmmsg(socket, headers.as_mut_ptr(), length, flags, std::ptr::null_mut()) };
        usize::try_from(received).map_err(|_| io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use std::{net::UdpSocket, os::fd::AsRawFd};

    use proptest::prelude::*;

    use super::*;
    use crate::spec::{BufferOptions, Payload, shape::Shape};

    /// Sends and receives up to `per_call` messages of `bytes` at a time.
    fn batch(per_call: usize, bytes: u64, ring: u32) -> Batch {
        let options = BufferOptions { ring, ..BufferOptions::default() };
        let shape = Shape { per_call, ..Shape::plain(bytes) };
        Batch::new(Buffers::to_send(shape, &options, &Payload::Random).unwrap())
    }

    fn message(batch: &mut Batch, index: usize) -> Vec<u8> {
        batch.buffers().beginnings(index..index + 1, std::iter::once(usize::MAX)).next().unwrap().to_vec()
    }

    fn connected() -> (UdpSocket, UdpSocket) {
        let (a, b) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        a.connect(b.local_addr().unwrap()).unwrap();
        (a, b)
    }

    #[test]
    fn messages_arrive_as_they_were_sent() {
        let (a, b) = connected();
        let mut sending = batch(5, 10, 1);
        // A move of the whole must not matter.
        let mut moved = std::hint::black_box(std::mem::replace(&mut sending, batch(1, 1, 1)));
        for i in 0..5 {
            moved.buffers().for_messages(i..i + 1, |_, message| message[0] = b'0' + u8::try_from(i).unwrap());
        }
        let copied = message(&mut moved, 0)[1..].to_vec();
        assert_eq!(moved.send(a.as_raw_fd(), 1, 3, 0).unwrap(), 3);
        let mut receiving = batch(8, 20, 1);
        let mut seen = Vec::new();
        while seen.len() < 3 {
            let n = receiving.receive(b.as_raw_fd(), 0, 0).unwrap();
            seen.extend(receiving.received(0..n).map(<[u8]>::to_vec));
        }
        assert_eq!(seen, [b"1", b"2", b"3"].map(|first| [first, &*copied].concat()));
        assert_eq!(
            receiving.receive(b.as_raw_fd(), 0, libc::MSG_DONTWAIT).unwrap_err().raw_os_error(),
            Some(libc::EAGAIN)
        );
    }

    #[test]
    fn messages_find_their_way_without_a_connection_and_say_whom_they_are_from() {
        for any in ["127.0.0.1:0", "[::1]:0"] {
            let (Ok(a), Ok(b)) = (UdpSocket::bind(any), UdpSocket::bind(any)) else { continue };
            let mut sending = std::hint::black_box(batch(3, 4, 1).to(b.local_addr().unwrap()));
            let sent = message(&mut sending, 0);
            let mut receiving = std::hint::black_box(batch(2, 4, 1).with_senders());
            assert_eq!(sending.send(a.as_raw_fd(), 0, 3, 0).unwrap(), 3);
            let mut got = 0;
            while got < 3 {
                let n = receiving.receive(b.as_raw_fd(), 0, 0).unwrap();
                assert!((0..n).all(|i| receiving.sender(i) == Some(a.local_addr().unwrap())));
                assert!(receiving.received(0..n).all(|received| received == sent));
                got += n;
            }
        }
        assert_eq!(batch(1, 1, 1).sender(0), None);
    }

    #[test]
    fn a_message_that_is_too_long_is_cut_off_and_not_written_past_its_memory() {
        let (a, b) = connected();
        a.send_to(&[b'x'; 100], b.local_addr().unwrap()).unwrap();
        let mut batch = batch(2, 10, 1);
        let untouched = message(&mut batch, 1);
        assert_eq!(batch.receive(b.as_raw_fd(), 0, 0).unwrap(), 1);
        assert!(batch.received(0..1).eq([&[b'x'; 10]]));
        assert_eq!(message(&mut batch, 1), untouched);
    }

    /// The pointers are followed as the kernel follows them, after moves and borrows of all that they lead to. An interpreter that
    /// knows the rules of aliasing (Miri) can run this test: it makes no system call.
    #[test]
    fn pointers_outlive_the_borrows_between_two_calls() {
        let peer = "192.0.2.1:9".parse().unwrap();
        let made = [batch(3, 10, 1).with_times().to(peer), batch(2, 10, 5).with_senders()];
        for mut batch in made.map(std::hint::black_box) {
            let (slots, count) = (batch.headers.len(), batch.buffers.count());
            for round in 0..2 {
                batch.buffers().for_each(|buffer| buffer.fill(round));
                batch.touch_received(0..slots);
                let dues = vec![7; batch.times.len()];
                batch.set_times(0, &dues);
                for index in 0..slots {
                    let header = batch.headers[index].msg_hdr;
                    // SAFETY: as in `send`; nothing is borrowed here.
                    unsafe {
                        let vector = *header.msg_iov;
                        assert_eq!((header.msg_iovlen, vector.iov_len), (1, 10));
                        vector.iov_base.cast::<u8>().add(9).write(b'a' + u8::try_from(index % count).unwrap());
                        if !header.msg_control.is_null() {
                            assert_eq!((*header.msg_control.cast::<SendTime>()).ns, 7);
                        }
                        header.msg_name.cast::<u8>().add(27).write(round);
                    }
                    let place = batch.buffers().beginnings(index..index + 1, std::iter::once(10)).next().unwrap();
                    assert_eq!((place[0], place[9]), (round, b'a' + u8::try_from(index % count).unwrap()));
                    assert_eq!(batch.names.get(index).unwrap_or(&batch.names[0])[27], round);
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Message n leaves from, and arrives in, buffer n of the ring, in calls of any size; and the kernel is given the
        /// addresses that the test asked for.
        #[test]
        fn a_ring_is_walked_in_order_past_its_end(
            per_call in 1usize..9, ring in 1u32..20, alignment in 0u32..9, offset in 0u64..100, bytes in 1u64..200
        ) {
            let alignment = 1 << alignment;
            let options = BufferOptions { ring, alignment: Some(alignment), offset, ..BufferOptions::default() };
            let shape = Shape { per_call, ..Shape::plain(bytes) };
            let mut sending = Batch::new(Buffers::to_send(shape, &options, &Payload::Random).unwrap());
            let mut receiving = Batch::new(Buffers::to_receive(shape, &options).unwrap());
            let ring_of: Vec<Vec<u8>> = (0..ring as usize).map(|index| message(&mut sending, index)).collect();
            let addresses: Vec<usize> = sending.vectors.iter().map(|vector| vector.iov_base.addr()).collect();
            for &address in &addresses {
                prop_assert_eq!(address as u64 % alignment, offset % alignment);
            }
            prop_assert!(addresses.windows(2).all(|pair| pair[1] - pair[0] >= usize::try_from(bytes).unwrap()));
            let (a, b) = connected();
            let (mut sent, mut received) = (0u64, 0u64);
            while received < 50 {
                let first = sending.buffers().slot_of(sent);
                let count = sending.buffers().per_call();
                sent += sending.send(a.as_raw_fd(), first, count, 0).unwrap() as u64;
                while received < sent {
                    let first = receiving.buffers().slot_of(received);
                    let n = receiving.receive(b.as_raw_fd(), first, 0).unwrap();
                    for (index, number) in (first..first + n).zip(received..) {
                        let expected = &ring_of[usize::try_from(number % u64::from(ring)).unwrap()];
                        prop_assert!(receiving.received(index..index + 1).eq([expected]));
                        let place = if ring > 1 { usize::try_from(number % u64::from(ring)).unwrap() } else { index };
                        prop_assert_eq!(&message(&mut receiving, place), expected);
                    }
                    received += n as u64;
                }
            }
        }
    }
}
