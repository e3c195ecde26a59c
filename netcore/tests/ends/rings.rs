//! Buffers of datagrams: rings, alignment and offset, and touched bytes.

use netcore::{
    report::{Ending, Phase},
    spec::{Arrival, BufferOptions, Bytes, Direction, Io, Pace, PaceMode, Pattern, Side, Stop, Transport},
};

use crate::pair::{MS, V4, finish, lasting, measured, meet, phase, run, start, sum, undisturbed};

/// Slow enough for a debug build to lose nothing; on a busy machine too, with a small `catch_up`.
fn pace(events_per_s: f64, burst: u32, catch_up: u32) -> Pace {
    Pace { events_per_s, mode: PaceMode::User, arrival: Arrival::Uniform, burst, catch_up }
}

/// Buffers of two ends with different rings and odd offsets.
fn rings(near: u32, far: u32) -> [BufferOptions; 2] {
    let near = BufferOptions { ring: near, alignment: Some(256), offset: 3, ..BufferOptions::default() };
    [near, BufferOptions { ring: far, offset: 77, ..BufferOptions::default() }]
}

#[test]
fn streams_from_rings_arrive_whole() {
    for transport in [Transport::Udp, Transport::UnixDatagram] {
        for (near, far) in [(1, 3), (33, 1), (70, 5)] {
            for (direction, io, threads) in [
                (Direction::Forward, Io::Auto, None),
                (Direction::Reverse, Io::Auto, None),
                (Direction::Bidirectional, Io::Blocking, None),
                (Direction::Bidirectional, Io::Auto, Some(1)),
            ] {
                let mut spec = lasting(Pattern::Stream, transport, 300);
                (spec.direction, spec.io, spec.threads, spec.integrity) = (direction, io, threads, true);
                // All messages of a test fit the receive buffer, so that a receiver that the machine stops loses none.
                spec.sizes.message_bytes = 200;
                if direction != Direction::Bidirectional {
                    spec.phases.stop = Stop::AfterBytes(30_000);
                }
                spec.pace = Some(pace(500.0, 7, 2));
                [spec.near.buffers, spec.far.buffers] = rings(near, far);
                let (near, far) = run(&spec, V4);
                for (a, b) in near.totals.iter().zip(&far.totals) {
                    assert_eq!(a.counts.messages_sent, b.counts.messages_received, "{spec:?}");
                    assert_eq!(b.counts.messages_sent, a.counts.messages_received, "{spec:?}");
                    assert_eq!(a.counts.reordered + b.counts.reordered, 0, "{spec:?}");
                }
            }
        }
    }
}

#[test]
fn a_receiver_knows_each_message_of_a_ring_whatever_is_lost() {
    let mut spec = lasting(Pattern::Stream, Transport::Udp, 200);
    (spec.sizes.message_bytes, spec.integrity) = (1400, true);
    [spec.near.buffers, spec.far.buffers] = rings(7, 4);
    // A buffer of a few messages and no pacing: much is lost.
    spec.far.socket.receive_buffer = Some(Bytes(20_000));
    let (near, far) = run(&spec, V4);
    let (sent, received) = (sum(&near.totals).messages_sent, sum(&far.totals).messages_received);
    assert!(0 < received && received < sent, "{received} of {sent}: a buffer that small must lose something");
    // The check works: it finds a sender with another ring.
    let mut wrong = spec.clone();
    wrong.near.buffers.ring = 6;
    let (_, far) = finish(start(meet(&wrong, &spec, V4).unwrap()));
    let Ending::Failed(sentence) = far.ending else { panic!("{:?}", far.ending) };
    assert!(sentence.contains("wrong data: byte 16 of a message"), "{sentence}");
}

#[test]
fn exchanges_from_rings_are_checked_by_their_numbers() {
    for (transport, inflight, threads, io) in [
        (Transport::Udp, 1, None, Io::Auto),
        (Transport::Udp, 5, None, Io::Auto),
        (Transport::Udp, 4, None, Io::Spin),
        (Transport::UnixDatagram, 4, None, Io::Auto),
        (Transport::Udp, 4, Some(1), Io::Auto),
    ] {
        let mut spec = lasting(Pattern::RequestResponse, transport, 0);
        (spec.phases.stop, spec.inflight, spec.integrity) = (Stop::AfterTransactions(300), inflight, true);
        (spec.threads, spec.io, spec.streams) = (threads, io, if threads.is_some() { 3 } else { 1 });
        (spec.sizes.request_bytes, spec.sizes.response_bytes) = (100, 300);
        [spec.near.buffers, spec.far.buffers] = rings(3, 5);
        let (near, far) = run(&spec, V4);
        assert_eq!((measured(&near).transactions, sum(&near.totals).errors), (300, 0), "{spec:?}");
        assert_eq!(sum(&far.totals).transactions, 300, "{spec:?}");
    }
    let mut spec = lasting(Pattern::RequestResponse, Transport::Udp, 1000);
    (spec.sizes.request_bytes, spec.sizes.response_bytes, spec.integrity) = (100, 100, true);
    [spec.near.buffers, spec.far.buffers] = rings(3, 5);
    spec.reply_timeout_ns = 20 * MS;
    for liar in [Side::Near, Side::Far] {
        let mut wrong = spec.clone();
        let end = if liar == Side::Near { &mut wrong.near } else { &mut wrong.far };
        end.buffers.ring = 2;
        wrong.integrity = false;
        let (near, far) = finish(start(match liar {
            Side::Near => meet(&wrong, &spec, V4).unwrap(),
            Side::Far => meet(&spec, &wrong, V4).unwrap(),
        }));
        let honest = if liar == Side::Near { far } else { near };
        let Ending::Failed(sentence) = honest.ending else { panic!("{liar:?} {:?}", honest.ending) };
        assert!(sentence.contains("wrong data: byte 8 of a re"), "{sentence}");
    }
}

#[test]
fn what_is_touched_breaks_no_number_and_no_count() {
    for (pattern, transport) in [
        (Pattern::Stream, Transport::Udp),
        (Pattern::Stream, Transport::UnixDatagram),
        (Pattern::RequestResponse, Transport::Udp),
    ] {
        for bytes in [4, 12, 600] {
            for (dirty, clean) in [(1, 0), (u64::MAX, u64::MAX), (0, 300)] {
                let mut spec = lasting(pattern, transport, 0);
                (spec.sizes.request_bytes, spec.sizes.response_bytes, spec.inflight) = (bytes, bytes, 3);
                spec.phases.stop = Stop::AfterTransactions(100);
                if pattern == Pattern::Stream {
                    (spec.sizes.message_bytes, spec.inflight) = (bytes, 1);
                    (spec.pace, spec.phases.stop) = (Some(pace(2000.0, 1, 16)), Stop::AfterBytes(100 * bytes));
                }
                for end in [&mut spec.near, &mut spec.far] {
                    (end.buffers.dirty, end.buffers.clean, end.buffers.ring) = (dirty, clean, 5);
                }
                // Reading does not change the bytes.
                spec.integrity = dirty == 0 && bytes >= 8;
                let (near, far) = run(&spec, V4);
                let (near, far) = (sum(&near.totals), sum(&far.totals));
                assert_eq!((near.messages_sent, near.errors), (far.messages_received, 0), "{spec:?}");
                assert_eq!((near.bytes_sent, near.bytes_received), (far.bytes_received, far.bytes_sent), "{spec:?}");
                assert_eq!((far.reordered, far.duplicated, near.duplicated), (0, 0, 0), "{spec:?}");
            }
        }
    }
}

#[test]
fn a_burst_goes_several_times_round_a_ring_that_is_shorter() {
    for (io, ring) in [(Io::Blocking, 2), (Io::Auto, 2), (Io::Auto, 3)] {
        let mut spec = lasting(Pattern::Stream, Transport::Udp, 300);
        (spec.io, spec.near.buffers.ring, spec.integrity) = (io, ring, true);
        (spec.sizes.message_bytes, spec.pace) = (64, Some(pace(1000.0, 10, 2)));
        undisturbed(|| {
            let (near, _) = run(&spec, V4);
            let window = phase(&near, Phase::Measure);
            let pacing = window.flows[0].pacing.unwrap();
            // Each due burst has gone or is reported as dropped, except those at either edge.
            let (due, told) = (window.elapsed_ns / MS, measured(&near).messages_sent + 10 * pacing.dropped);
            let whole = told.abs_diff(due) <= 40;
            whole.then_some(()).ok_or_else(|| format!("{io:?}, a ring of {ring}: {due} were due: {pacing:?}"))
        });
    }
}
