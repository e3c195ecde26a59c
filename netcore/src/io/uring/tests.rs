use std::{
    io::{Read, Write},
    os::{
        fd::AsRawFd,
        unix::net::{UnixDatagram, UnixStream},
    },
    panic::{AssertUnwindSafe, catch_unwind},
};

use super::*;

const NEVER: u64 = u64::MAX;

/// A ring over one end of each of so many pairs of sockets, and the other ends. `None`: this machine has no rings.
fn ring(flows: usize, receive_bytes: usize) -> Option<(Ring, Vec<UnixStream>, Vec<UnixStream>)> {
    let (ours, theirs): (Vec<_>, Vec<_>) = (0..flows).map(|_| UnixStream::pair().unwrap()).unzip();
    let sockets: Vec<RawFd> = ours.iter().map(AsRawFd::as_raw_fd).collect();
    match Ring::new(&sockets, receive_bytes) {
        Ok(ring) => Some((ring, ours, theirs)),
        Err(error) => {
            crate::needs::skip(&error.to_string());
            None
        }
    }
}

impl Ring {
    /// Does what a thread does while its flows are suspended.
    fn turn(&self, until_ns: u64) {
        self.enter(until_ns.min(monotonic_ns() + 1_000_000_000)).unwrap();
        self.reap();
        self.woken(|_| ());
    }

    fn send_now(&self, flow: usize, bytes: &[u8], flags: i32) -> io::Result<usize> {
        self.send(flow, bytes, flags, || self.turn(NEVER))
    }

    fn receive_now(&self, flow: usize, buffer: &mut [u8]) -> io::Result<usize> {
        let received = self.receive(flow, buffer, NEVER, |until_ns| self.turn(until_ns))?;
        Ok(received.expect("no instant was given"))
    }
}

#[test]
fn bytes_cross_in_order_through_buffers_of_any_size() {
    // Small messages come through the ring's own buffers, of which there are fewer than messages.
    for receive_bytes in [1, 7, 100, memory::LARGEST_RECEIVE, 100_000] {
        let Some((ring, _ours, mut theirs)) = ring(2, receive_bytes) else { return };
        let sent: Vec<u8> = (0..50_000u32).map(|i| (i % 251) as u8).collect();
        let mut received = Vec::new();
        for (round, piece) in sent.chunks(1000).enumerate() {
            theirs[1].write_all(piece).unwrap();
            let wanted = (round + 1) * 1000;
            while received.len() < wanted {
                let mut buffer = vec![0; receive_bytes.min(wanted - received.len())];
                let n = ring.receive_now(1, &mut buffer).unwrap();
                assert!(n > 0);
                received.extend_from_slice(&buffer[..n]);
            }
        }
        assert!(received == sent, "{receive_bytes}");
        assert_eq!(ring.send_now(0, &sent[..5000], libc::MSG_WAITALL).unwrap(), 5000);
        let mut arrived = vec![0; 5000];
        theirs[0].read_exact(&mut arrived).unwrap();
        assert!(arrived == sent[..5000]);
        drop(theirs);
        assert_eq!(ring.receive_now(1, &mut [0; 1]).unwrap(), 0, "the end");
        assert_eq!(ring.receive_now(1, &mut [0; 1]).unwrap(), 0, "and again");
        assert_eq!(ring.send_now(0, b"x", libc::MSG_NOSIGNAL).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        let (completions, calls) = ring.counts();
        assert!(completions > 50 && calls > 0, "{completions} in {calls}");
    }
}

#[test]
fn a_flow_that_takes_all_buffers_leaves_the_others_their_way() {
    let Some((ring, _ours, mut theirs)) = ring(2, 1) else { return };
    assert_eq!(ring.send_now(0, b"x", 0).unwrap(), 1);
    theirs[0].write_all(b"first").unwrap();
    let mut byte = [0];
    assert_eq!(ring.receive_now(0, &mut byte).unwrap(), 1);
    // One byte takes a buffer, and these are more than there are.
    theirs[0].write_all(&[b'y'; 100]).unwrap();
    theirs[1].write_all(b"abc").unwrap();
    let mut others = Vec::new();
    for _ in 0..3 {
        assert_eq!(ring.receive_now(1, &mut byte).unwrap(), 1);
        others.push(byte[0]);
    }
    assert_eq!(others, b"abc");
    let mut rest = Vec::new();
    while rest.len() < 104 {
        assert_eq!(ring.receive_now(0, &mut byte).unwrap(), 1);
        rest.push(byte[0]);
    }
    assert_eq!(rest, [&b"irst"[..], &[b'y'; 100]].concat());
}

#[test]
fn a_send_without_waiting_returns_when_there_is_no_room() {
    let Some((ring, _ours, mut theirs)) = ring(1, 1) else { return };
    let (message, mut sent) = (vec![1; 100_000], 0);
    let error = loop {
        match ring.send_now(0, &message, libc::MSG_DONTWAIT) {
            Ok(n) => sent += n,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    let mut rest = vec![0; sent];
    theirs[0].read_exact(&mut rest).unwrap();
    assert!(ring.send_now(0, b"x", libc::MSG_DONTWAIT).is_ok());
}

#[test]
fn a_receive_ends_at_its_instant_and_loses_nothing() {
    for receive_bytes in [8, 100_000] {
        let Some((ring, _ours, mut theirs)) = ring(1, receive_bytes) else { return };
        let mut buffer = vec![0; receive_bytes];
        for round in 0..3u8 {
            let until_ns = monotonic_ns() + 2_000_000;
            let received = ring.receive(0, &mut buffer, until_ns, |until_ns| ring.turn(until_ns)).unwrap();
            assert_eq!(received, None);
            assert!(monotonic_ns() >= until_ns, "not before");
            theirs[0].write_all(&[round; 3]).unwrap();
            let mut seen = 0;
            while seen < 3 {
                let n = ring.receive_now(0, &mut buffer).unwrap();
                assert!(buffer[..n].iter().all(|byte| *byte == round));
                seen += n;
            }
        }
    }
}

#[test]
fn memory_is_the_callers_again_when_its_flow_is_dropped() {
    let Some((ring, mut ours, mut theirs)) = ring(1, 0) else { return };
    let mut buffer = vec![0; 100_000];
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        let mut turns = 0;
        ring.receive(0, &mut buffer, NEVER, |_| {
            turns += 1;
            assert!(turns < 3, "on purpose");
            ring.turn(monotonic_ns() + 1_000_000);
        })
    }));
    unwound.unwrap_err();
    // The kernel has let go of the buffer: what comes now stays in the socket.
    theirs[0].write_all(b"late").unwrap();
    ring.turn(monotonic_ns() + 1_000_000);
    assert!(buffer.iter().all(|byte| *byte == 0));
    let mut late = [0; 4];
    ours[0].read_exact(&mut late).unwrap();
    assert_eq!(&late, b"late");
}

#[test]
fn a_cancelled_flow_has_an_error() {
    for receive_bytes in [8, 100_000] {
        let Some((ring, _ours, _theirs)) = ring(1, receive_bytes) else { return };
        let mut buffer = vec![0; receive_bytes];
        let mut turns = 0;
        let received = ring.receive(0, &mut buffer, NEVER, |_| {
            turns += 1;
            if turns == 2 {
                ring.cancel(0);
            }
            ring.turn(monotonic_ns() + 1_000_000);
        });
        assert_eq!(received.unwrap_err().kind(), io::ErrorKind::ConnectionAborted);
    }
}

#[test]
fn sockets_are_closed_when_the_ring_is_gone() {
    let Some((ring, ours, mut theirs)) = ring(1, 8) else { return };
    // A lasting receive is under way.
    assert_eq!(ring.receive(0, &mut [0; 8], monotonic_ns(), |until_ns| ring.turn(until_ns)).unwrap(), None);
    drop((ring, ours));
    theirs[0].set_nonblocking(true).unwrap();
    assert_eq!(theirs[0].read(&mut [0; 1]).unwrap(), 0);
}

#[test]
fn each_message_has_a_buffer_of_its_own() {
    let (ours, theirs) = UnixDatagram::pair().unwrap();
    let Ok(ring) = Ring::new(&[ours.as_raw_fd()], 10) else { return };
    for round in 0..20u8 {
        theirs.send(&[round; 3]).unwrap();
        theirs.send(&[round; 10]).unwrap();
        for length in [3, 10] {
            let mut buffer = [0; 10];
            assert_eq!(ring.receive_now(0, &mut buffer).unwrap(), length);
            assert!(buffer[..length].iter().all(|byte| *byte == round));
        }
    }
}

#[test]
fn a_refusal_names_its_reason_and_the_remedy() {
    let sentence = |errno| explain(&io::Error::from_raw_os_error(errno)).to_string();
    assert!(sentence(libc::ENOSYS).contains("has no io_uring (ENOSYS)"));
    assert!(sentence(libc::EPERM).contains("leave `io` out"));
    assert!(sentence(libc::ENOMEM).contains("raise `ulimit -l`"));
    assert!(sentence(libc::EMFILE).contains("Too many open files"));
    assert!(forbidden("2\n").contains("kernel.io_uring_disabled is 2): set it to 0"));
    assert!(forbidden("1\n").contains("kernel.io_uring_group"));
    assert!(forbidden("0\n").contains("seccomp") || forbidden("").contains("a filter of system calls"));
}

#[test]
fn any_number_of_flows_has_a_ring() {
    for flows in [1, 3, 1000, 100_000] {
        // A kernel or a container without rings says so in the tests of the program.
        let Ok((uring, _)) = set_up(flows) else { return };
        assert!(uring.params().cq_entries() >= uring.params().sq_entries());
    }
}
