use std::{net::UdpSocket, ops::Range, os::fd::AsRawFd};

use proptest::prelude::*;

use super::*;
use crate::{
    io::fill::Contents,
    spec::{BufferOptions, memory::Shape},
    sys::opt,
};

/// Sends and receives up to `per_call` messages of `bytes` at a time.
fn batch(per_call: usize, bytes: u64, ring: u32) -> Batch {
    let options = BufferOptions { ring, ..BufferOptions::default() };
    let shape = Shape { per_call, ..Shape::plain(bytes) };
    Batch::new(Buffers::to_send(shape, &options, Contents::Random).unwrap())
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
    assert_eq!(receiving.receive(b.as_raw_fd(), 0, libc::MSG_DONTWAIT).unwrap_err().raw_os_error(), Some(libc::EAGAIN));
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

/// A socket that splits its datagrams, connected to one that may accept them whole.
fn splitting(bytes: i32, merges: bool) -> (UdpSocket, UdpSocket) {
    let (a, b) = connected();
    opt::set_int(&a, opt::UDP_SEGMENT, bytes).unwrap();
    opt::set_int(&b, opt::UDP_GRO, merges.into()).unwrap();
    (a, b)
}

/// The messages of a call, and their number by received datagram.
fn taken(batch: &Batch, slots: Range<usize>) -> (Vec<Vec<u8>>, Vec<usize>) {
    let datagrams = slots.clone().zip(batch.received(slots));
    let split: Vec<Vec<Vec<u8>>> = datagrams
        .map(|(slot, bytes)| {
            bytes.chunks(batch.segment_bytes(slot).unwrap_or(usize::MAX)).map(<[u8]>::to_vec).collect()
        })
        .collect();
    let counts = split.iter().map(Vec::len).collect();
    (split.into_iter().flatten().collect(), counts)
}

#[test]
fn one_call_carries_datagrams_of_several_messages() {
    for merges in [false, true] {
        let (a, b) = splitting(10, merges);
        let mut sending = std::hint::black_box(batch(8, 10, 1).with_segments(4));
        sending.buffers().for_messages(0..8, |index, message| message[0] = u8::try_from(index).unwrap());
        let mut receiving = std::hint::black_box(batch(16, 100, 1).with_senders().with_segment_lengths());
        // Two whole datagrams, one and a half, and one message.
        for (count, datagrams) in [(8, vec![4, 4]), (6, vec![4, 2]), (1, vec![1]), (8, vec![4, 4])] {
            assert_eq!(sending.send(a.as_raw_fd(), 0, count, 0).unwrap(), count);
            let n = receiving.receive(b.as_raw_fd(), 0, 0).unwrap();
            let (messages, counts) = taken(&receiving, 0..n);
            assert_eq!(counts, if merges { datagrams } else { vec![1; count] });
            assert!(messages.iter().map(|message| usize::from(message[0])).eq(0..count));
            assert!(messages.iter().all(|message| message.len() == 10));
            assert_eq!(receiving.sender(n - 1), Some(a.local_addr().unwrap()));
        }
    }
}

#[test]
fn messages_of_a_datagram_may_lie_anywhere() {
    for (ring, alignment, offset) in [(5, None, 0), (7, Some(64), 3), (1, Some(128), 0), (1, None, 9)] {
        let (a, b) = splitting(10, true);
        let options = BufferOptions { ring, alignment, offset, ..BufferOptions::default() };
        let shape = Shape { per_call: 4, ..Shape::plain(10) };
        let mut sending = Batch::new(Buffers::to_send(shape, &options, Contents::Random).unwrap())
            .with_segments(4)
            .to(b.local_addr().unwrap());
        let ring_of: Vec<Vec<u8>> = (0..ring as usize).map(|index| message(&mut sending, index)).collect();
        let mut receiving = batch(4, 100, 1).with_segment_lengths();
        for call in 0..5 {
            let first = sending.buffers().slot_of(call * 4);
            assert_eq!(sending.send(a.as_raw_fd(), first, 4, 0).unwrap(), 4);
            let n = receiving.receive(b.as_raw_fd(), 0, 0).unwrap();
            let (messages, counts) = taken(&receiving, 0..n);
            assert_eq!(counts, [4], "one datagram");
            let expected =
                (call * 4..).take(4).map(|number| &ring_of[usize::try_from(number).unwrap() % ring as usize]);
            assert!(messages.iter().eq(expected), "call {call} of a ring of {ring}");
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
        let mut sending = Batch::new(Buffers::to_send(shape, &options, Contents::Random).unwrap());
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

/// Code points of single and of merged datagrams, over both versions of IP, beside the length of segments.
#[test]
fn code_points_are_those_of_each_datagram() {
    for (address, own, kept) in
        [("127.0.0.1:0", opt::IP_TOS, opt::IP_RECVTOS), ("[::1]:0", opt::IPV6_TCLASS, opt::IPV6_RECVTCLASS)]
    {
        let (a, b) = (UdpSocket::bind(address).unwrap(), UdpSocket::bind(address).unwrap());
        a.connect(b.local_addr().unwrap()).unwrap();
        opt::set_int(&b, kept, 1).unwrap();
        for merges in [false, true] {
            opt::set_int(&b, opt::UDP_GRO, merges.into()).unwrap();
            let all = batch(4, 100, 4).with_code_points();
            let mut all = if merges { all.with_segment_lengths() } else { all };
            // Not ECT, ECT(1), ECT(0), CE, each with a code point.
            for class in [0xb8, 0xb9, 0xba, 0xbb] {
                opt::set_int(&a, own, class).unwrap();
                a.send(b"message").unwrap();
            }
            let mut found = Vec::new();
            while found.len() < 4 {
                let n = all.receive(b.as_raw_fd(), 0, 0).unwrap();
                found.extend((0..n).map(|index| (all.code_point(index), all.segment_bytes(index))));
            }
            assert_eq!(
                found.iter().map(|(code_point, _)| *code_point).collect::<Vec<_>>(),
                [0, 1, 2, 3].map(Some),
                "{address}"
            );
        }
        // Three messages that stay together have one mark.
        opt::set_int(&a, opt::UDP_SEGMENT, 10).unwrap();
        a.send(&[0; 30]).unwrap();
        let mut all = batch(4, 100, 4).with_segment_lengths().with_code_points();
        assert_eq!(all.receive(b.as_raw_fd(), 0, 0).unwrap(), 1);
        assert_eq!((all.code_point(0), all.segment_bytes(0)), (Some(3), Some(10)), "{address}");
    }
}
