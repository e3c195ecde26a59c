//! Streams whose bytes are not copied: pages that the kernel sends itself, and receivers that discard.

use std::{net::Ipv6Addr, thread, time::Duration};

use netcore::{
    measure::clock::monotonic_ns,
    report::{Ending, Phase},
    spec::{Arrival, Direction, Io, Pace, PaceMode, Pattern, Receive, Stop, TestSpec, Transport},
};

use crate::pair::{MS, PATIENCE, V4, allowed, connect, lasting, locked_memory, measured, phase, run, sum};

/// The io methods that send pages.
const PAGES: [Io; 4] = [Io::Sendfile, Io::Splice, Io::Vmsplice, Io::Zerocopy];

fn stream(ms: u64) -> TestSpec {
    lasting(Pattern::Stream, Transport::Tcp, ms)
}

#[test]
fn pages_arrive_unchanged_in_every_direction() {
    let _memory = locked_memory();
    for io in allowed(&PAGES) {
        for direction in [Direction::Forward, Direction::Reverse, Direction::Bidirectional, Direction::Duplex] {
            let mut spec = stream(50);
            // Neither messages nor their pieces begin at pages.
            (spec.io, spec.direction, spec.integrity, spec.sizes.message_bytes) = (io, direction, true, 70_001);
            (spec.near.buffers.ring, spec.far.buffers.ring, spec.streams) = (3, 5, 2);
            // By a count: flows without a copy that share the memory of a user who is not root may wait long for their turns.
            if direction != Direction::Duplex {
                spec.phases.stop = Stop::AfterBytes(20 * 70_001);
            }
            let (near, far) = run(&spec, V4);
            assert_eq!((near.ending, far.ending), (Ending::Complete, Ending::Complete), "{io:?} {direction:?}");
            for (a, b) in near.totals.iter().zip(&far.totals) {
                assert_eq!(a.counts.bytes_sent, b.counts.bytes_received, "{io:?} {direction:?}");
                assert_eq!(b.counts.bytes_sent, a.counts.bytes_received, "{io:?} {direction:?}");
            }
            assert_eq!(near.io, io.name());
        }
    }
}

#[test]
fn the_kernel_counts_the_same_bytes_of_pages() {
    let _memory = locked_memory();
    for io in allowed(&PAGES) {
        let mut spec = stream(50);
        (spec.io, spec.receive) = (io, Receive::Discard);
        let (near, far) = run(&spec, V4);
        let total = &near.totals[0];
        // The preamble of 28 bytes, the SYN and the FIN.
        assert_eq!(total.tcp_info.unwrap().bytes_acked, Some(total.counts.bytes_sent + 28 + 2), "{io:?}");
        assert_eq!(far.totals[0].counts.bytes_received, total.counts.bytes_sent, "{io:?}");
    }
}

#[test]
fn every_zero_copy_send_has_one_completion() {
    let _memory = locked_memory();
    // More sends than completions may wait, small ones and large ones.
    for (ip, message_bytes) in [(V4, 100), (V4, 200_000), (Ipv6Addr::LOCALHOST.into(), 4096)] {
        let mut spec = stream(0);
        (spec.io, spec.sizes.message_bytes) = (Io::Zerocopy, message_bytes);
        spec.phases.stop = Stop::AfterBytes(1000 * message_bytes);
        let (near, far) = run(&spec, ip);
        let (sent, window) = (near.totals[0].counts, measured(&near));
        assert!(sent.sends >= 1000, "{sent:?}");
        assert_eq!(sent.completions, sent.sends, "{message_bytes} to {ip}");
        assert_eq!(sent.copied, sent.completions, "loopback copies");
        assert!(window.completions <= window.sends);
        assert_eq!(near.notes, Vec::<String>::new());
        assert_eq!(sum(&far.totals).completions, 0, "the receiver has none");
    }
}

#[test]
fn a_sender_of_pages_reports_its_pipe() {
    for io in allowed(&[Io::Splice, Io::Vmsplice]) {
        let mut spec = stream(20);
        (spec.io, spec.streams) = (io, 2);
        let (near, far) = run(&spec, V4);
        let pipes: Vec<_> = near.options.iter().filter(|granted| granted.option == "pipe").collect();
        assert_eq!(pipes.iter().map(|pipe| pipe.flow).collect::<Vec<_>>(), [0, 1], "{:?}", near.options);
        for pipe in pipes {
            assert_eq!(pipe.requested.as_deref(), Some("1048576"));
            assert!(pipe.at_start.is_some() && pipe.at_end == pipe.at_start);
        }
        assert!(far.options.iter().all(|granted| granted.option != "pipe"), "it only receives");
    }
}

#[test]
fn a_sender_of_pages_that_is_blocked_can_be_freed() {
    let _memory = locked_memory();
    for io in allowed(&PAGES) {
        let mut spec = stream(3_600_000);
        spec.io = io;
        let (near, far) = connect(&spec, V4).unwrap();
        // The far end never reads.
        let near = near.start(monotonic_ns(), None).unwrap();
        let far = far.start(monotonic_ns() + 3_600_000 * MS, None).unwrap();
        thread::sleep(Duration::from_millis(100));
        near.abort();
        far.abort();
        assert!(near.wait(PATIENCE) && far.wait(PATIENCE), "{io:?}");
        assert!(matches!(near.finish().ending, Ending::Failed(_)));
    }
}

#[test]
fn unix_sockets_take_pages() {
    for io in allowed(&[Io::Splice, Io::Vmsplice]) {
        // On a busy machine one direction may move nothing in a short time.
        let moved = [30, 300, 3000, 30_000].into_iter().any(|ms| {
            let mut spec = lasting(Pattern::Stream, Transport::UnixStream, ms);
            (spec.io, spec.integrity, spec.direction) = (io, true, Direction::Duplex);
            let (near, far) = run(&spec, V4);
            let (near, far) = (sum(&near.totals), sum(&far.totals));
            assert_eq!((near.bytes_sent, near.bytes_received), (far.bytes_received, far.bytes_sent), "{io:?}");
            near.bytes_sent > 0 && near.bytes_received > 0
        });
        assert!(moved, "{io:?}");
    }
}

#[test]
fn discarded_bytes_are_counted() {
    for transport in [Transport::Tcp, Transport::Mptcp] {
        for direction in [Direction::Forward, Direction::Reverse, Direction::Bidirectional, Direction::Duplex] {
            for (io, threads) in [(Io::Auto, None), (Io::Nonblocking, None), (Io::Auto, Some(1))] {
                let mut spec = lasting(Pattern::Stream, transport, 30);
                (spec.receive, spec.direction, spec.io) = (Receive::Discard, direction, io);
                (spec.threads, spec.streams) = (threads, 2);
                let (near, far) = run(&spec, V4);
                for (a, b) in near.totals.iter().zip(&far.totals) {
                    assert_eq!(a.counts.bytes_sent, b.counts.bytes_received, "{transport:?} {direction:?} {io:?}");
                    assert_eq!(b.counts.bytes_sent, a.counts.bytes_received, "{transport:?} {direction:?} {io:?}");
                }
                let moved = sum(&near.totals).bytes_received + sum(&far.totals).bytes_received;
                assert!(moved > 0, "{transport:?} {direction:?} {io:?}");
            }
        }
    }
}

#[test]
fn discarded_datagrams_are_told_apart_and_have_their_length() {
    for transport in [Transport::Udp, Transport::UdpLite] {
        // Without a number, with one, with a time too, and much longer than that.
        for message_bytes in [4, 8, 16, 1000, 9000] {
            for io in [Io::Auto, Io::Blocking] {
                // By a count: a sender that is stopped for longer than the receiver waits for what is on its way loses nothing.
                let mut spec = lasting(Pattern::Stream, transport, 0);
                (spec.receive, spec.io, spec.sizes.message_bytes) = (Receive::Discard, io, message_bytes);
                spec.phases.stop = Stop::AfterBytes(100 * message_bytes);
                spec.pace = Some(Pace {
                    events_per_s: 1000.0,
                    mode: PaceMode::User,
                    arrival: Arrival::Uniform,
                    burst: 1,
                    catch_up: 20,
                });
                if transport == Transport::UdpLite
                    && let Err(error) = connect(&spec, V4)
                {
                    return crate::needs::skip(&error.to_string());
                }
                let (near, far) = run(&spec, V4);
                let (sent, received) = (near.totals[0].counts, far.totals[0].counts);
                assert!(sent.messages_sent >= 100);
                assert_eq!(received.messages_received, sent.messages_sent, "{transport:?} {message_bytes}");
                assert_eq!(received.bytes_received, sent.bytes_sent, "{transport:?} {message_bytes}");
                assert_eq!(received.bytes_received, message_bytes * received.messages_received);
                assert_eq!((received.reordered, received.duplicated), (0, 0));
                let window = &phase(&far, Phase::Measure).flows[0];
                if message_bytes >= 8 {
                    let sent = phase(&near, Phase::Measure).flows[0].datagrams.unwrap().sent;
                    assert_eq!(window.datagrams.unwrap().received, sent);
                }
                assert_eq!(window.jitter_ns.unwrap_or(0) > 0, message_bytes >= 16, "{message_bytes}");
            }
        }
    }
}

#[test]
fn a_discarding_receiver_loses_what_the_kernel_dropped() {
    let mut spec = lasting(Pattern::Stream, Transport::Udp, 100);
    (spec.receive, spec.sizes.message_bytes) = (Receive::Discard, 1400);
    // Much is lost.
    spec.far.socket.receive_buffer = Some(netcore::spec::Bytes(20_000));
    let (near, far) = run(&spec, V4);
    let of = |report| phase(report, Phase::Measure).flows[0].datagrams.unwrap();
    let (a, b) = (of(&near), of(&far));
    assert!(b.received <= a.sent && b.duplicated == 0);
    let (sent, received) = (sum(&near.totals), sum(&far.totals));
    assert!(received.messages_received < sent.messages_sent, "a buffer that small must lose something");
    assert_eq!(received.bytes_received, 1400 * received.messages_received);
}
