use proptest::prelude::*;

use super::*;

fn message(number: u64, phase: usize, time: u64) -> [u8; 16] {
    let mut message = [0; 16];
    mark(Mark::Plumb, &mut message, number, phase, time);
    message
}

fn counts(ledger: &Ledger) -> (u64, u64, u64) {
    let public = Received::default();
    ledger.store(&public);
    (public.messages.load(Relaxed), public.reordered.load(Relaxed), public.duplicated.load(Relaxed))
}

#[test]
fn late_and_repeated_messages_are_told_apart_and_belong_to_the_phase_of_their_sending() {
    let mut ledger = Ledger::new(Mark::Plumb);
    for (number, phase) in [(0, 0), (1, 0), (3, 1), (2, 0), (3, 1), (2, 0), (10_000, 1), (4, 1)] {
        ledger.arrive(&message(number, phase, 0), 0, 0);
    }
    assert_eq!(counts(&ledger), (6, 2, 2));
    assert_eq!(ledger.of_phase[0], [3, 1, 1]);
    assert_eq!(ledger.of_phase[1], [3, 1, 1]);
}

#[test]
fn short_messages_are_only_counted() {
    let mut ledger = Ledger::new(Mark::Plumb);
    ledger.arrive(b"1234567", 0, 0);
    ledger.arrive(b"1234567", 0, 0);
    assert_eq!(counts(&ledger), (2, 0, 0));
    let mut short = [0; 7];
    mark(Mark::Plumb, &mut short, u64::MAX, 3, 9);
    assert_eq!(short, [0; 7]);
}

/// Recorded from iperf3 3.12: the first datagrams of tests with a counter of 32 and of 64 bits.
#[test]
fn iperf3s_mark_is_read_and_written_as_recorded() {
    let narrow = b"\x00\x00\x05\x8b\x00\x0a\x60\x85\x00\x00\x00\x02\xc4\x81\x08\x10";
    assert_eq!(read_iperf3(false, narrow), Some((1, 1_419_680_069_000)));
    let wide = b"\x00\x00\x05\x8b\x00\x09\xb9\xec\x00\x00\x00\x00\x00\x00\x00\x01\xdc\x10\x32\x43";
    assert_eq!(read_iperf3(true, wide), Some((0, 1_419_637_420_000)));
    let mut message = [7; 16];
    mark(Mark::Iperf3 { wide_counter: false }, &mut message, 1, 3, 1_419_680_069_999);
    assert_eq!((&message[..12], &message[12..]), (&narrow[..12], &[7; 4][..]));
    mark(Mark::Iperf3 { wide_counter: true }, &mut message, 0, 3, 1_419_637_420_999);
    assert_eq!(message, wide[..16]);
    for short in [&narrow[..11], &wide[..15], &[]] {
        assert_eq!(read_iperf3(short.len() != 11, short), None);
    }
    assert_eq!(read_iperf3(false, &[0; 16]), None, "the first is 1");
}

#[test]
fn iperf3s_messages_belong_to_the_phase_of_their_arrival() {
    let form = Mark::Iperf3 { wide_counter: false };
    let mut ledger = Ledger::new(form);
    for (number, present) in [(0, 0), (2, 0), (3, 1), (1, 1), (5, 3), (5, 3)] {
        let mut message = [0; 16];
        mark(form, &mut message, number, 0, 0);
        ledger.arrive(&message, present, 0);
    }
    assert_eq!(ledger.of_phase[..2], [[2, 0, 0], [3, 1, 1]]);
    assert_eq!(ledger.numbered, [3, 6, 0, 0]);
}

#[test]
fn jitter_follows_the_formula() {
    let mut ledger = Ledger::new(Mark::Plumb);
    let mut expected = 0.0;
    let transits = [100, 100, 260, 100, 900, 100, 100, 5000];
    for (number, transit) in (0..).zip(transits) {
        ledger.arrive(&message(number, 1, number * 1000), 0, number * 1000 + transit + 77_777);
        if number > 0 {
            let before = transits[usize::try_from(number).unwrap() - 1];
            expected += (f64::from(u32::try_from(transit.abs_diff(before)).unwrap()) - expected) / 16.0;
        }
    }
    let public = Received::default();
    ledger.store(&public);
    assert!((public.jitter_ns.load(Relaxed) as f64 - expected).abs() < 1.5, "{expected}");
}

/// Number, phase and time of the messages of a datagram.
type Numbered = Vec<(u64, usize, u64)>;

/// A datagram of messages of `each` bytes, less the last `cut` bytes.
fn datagram(each: usize, messages: &[(u64, usize, u64)], cut: usize) -> Vec<u8> {
    let mut bytes = vec![0; each * messages.len()];
    for (place, (number, phase, time)) in bytes.chunks_exact_mut(each).zip(messages) {
        mark(Mark::Plumb, place, *number, *phase, *time);
    }
    bytes.truncate(bytes.len().saturating_sub(cut).max(1));
    bytes
}

#[test]
fn what_came_together_is_counted_in_one_go_if_nothing_is_missing() {
    let sent = |numbers: std::ops::Range<u64>| numbers.map(|number| (number, 1, 500)).collect::<Vec<_>>();
    let mut ledger = Ledger::new(Mark::Plumb);
    for (numbers, in_one_go) in
        [(0..128, true), (128..129, true), (200..8000, true), (100..130, false), (7999..8003, true)]
    {
        let messages = datagram(16, &sent(numbers.clone()), 0);
        let (first, rest) = messages.split_at(16);
        let mut copy = Ledger::new(Mark::Plumb);
        (copy.window, copy.jitter) = (Window { ..ledger.window }, Jitter { ..ledger.jitter });
        copy.arrive(first, 0, 900);
        assert_eq!(copy.follow(first, rest, 16, 900), in_one_go, "{numbers:?}");
        ledger.arrive_together(&messages, 16, 0, 900);
    }
    // The thirty from 100 on are too far back to be known as duplicates; 7999 came again.
    assert_eq!(counts(&ledger), (129 + 7800 + 30 + 3, 30, 1));
}

/// Found by the property below: a duplicate with the phase of the messages after it.
#[test]
fn a_phase_begins_after_a_duplicate_that_claims_it() {
    let (mut together, mut alone) = (Ledger::new(Mark::Plumb), Ledger::new(Mark::Plumb));
    for messages in [&[(397, 0, 0)][..], &[(397, 1, 0), (398, 1, 0)]] {
        let bytes = datagram(8, messages, 0);
        together.arrive_together(&bytes, 8, 1, 5000);
        bytes.chunks(8).for_each(|message| alone.arrive(message, 1, 5000));
        assert_eq!(together, alone);
    }
    assert!(!together.window.losses.is_turn(1));
}

/// A raw sender's datagrams, split and merged by the kernel: in another order, and again.
#[test]
fn a_senders_datagrams_out_of_order_and_twice_are_told_by_message() {
    use std::net::UdpSocket;

    use crate::{
        io::{batch::Batch, buffers::Buffers},
        spec::{BufferOptions, memory::Shape},
        sys::opt,
    };
    let eight = |first: u64| (first..first + 8).map(|number| (number, 1, 1000)).collect::<Vec<_>>();
    for merges in [false, true] {
        let (from, to) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        from.connect(to.local_addr().unwrap()).unwrap();
        opt::set_int(&from, opt::UDP_SEGMENT, 32).unwrap();
        opt::set_int(&to, opt::UDP_GRO, merges.into()).unwrap();
        // 24 to 31 never come; 8 to 15 come late; 0 to 7 and 8 to 15 come again, and 40 to 42 alone.
        let orders = [eight(0), eight(16), eight(8), eight(0), eight(32), eight(8), eight(40)[..3].to_vec()];
        for messages in &orders {
            assert_eq!(from.send(&datagram(32, messages, 0)).unwrap(), 32 * messages.len());
        }
        let shape = Shape { per_call: 16, ..Shape::plain(65_536) };
        let mut batch =
            Batch::new(Buffers::to_receive(shape, &BufferOptions::default()).unwrap()).with_segment_lengths();
        let (mut ledger, mut bytes, mut datagrams) = (Ledger::new(Mark::Plumb), 0, 0);
        while bytes < 51 * 32 {
            let fd = std::os::fd::AsRawFd::as_raw_fd(&to);
            let n = batch.receive(fd, 0, 0).unwrap();
            datagrams += n;
            for (slot, received) in (0..n).zip(batch.received(0..n)) {
                bytes += received.len();
                ledger.arrive_together(received, batch.segment_bytes(slot).unwrap_or(received.len()), 0, 2000);
            }
        }
        assert_eq!(datagrams, if merges { 7 } else { 51 });
        assert_eq!(counts(&ledger), (35, 8, 16));
        assert_eq!(ledger.of_phase[1], [35, 8, 16]);
    }
}

/// Datagrams of several messages as a network may deliver them: whole, in another order, again, and cut off.
fn datagrams() -> impl Strategy<Value = Vec<(Numbered, usize)>> {
    let run = (0u64..400, 1u64..140, 0usize..3, 0u64..4, 0usize..9).prop_map(|(first, count, phase, time, cut)| {
        ((first..first + count).map(|number| (number, phase, time * 1000)).collect::<Vec<_>>(), cut / 8 * 5)
    });
    let odd = (prop::collection::vec((0u64..400, 0usize..4, 0u64..4), 1..9), Just(0));
    prop::collection::vec(prop_oneof![3 => run, 1 => odd], 0..30)
}

proptest! {
    /// The fast path is the plain one: all of the ledger's state is the same after every datagram.
    #[test]
    fn together_is_as_one_after_the_other(
        datagrams in datagrams(), each in 1usize..40, mark in 0usize..3, steps in prop::collection::vec(0u64..9, 30)
    ) {
        let mark = [Mark::Plumb, Mark::Iperf3 { wide_counter: false }, Mark::None][mark];
        let (mut together, mut alone) = (Ledger::new(mark), Ledger::new(mark));
        let mut now_ns = 5000;
        for ((messages, cut), step) in datagrams.iter().zip(steps) {
            now_ns += step * 700;
            let bytes = datagram(each, messages, *cut);
            together.arrive_together(&bytes, each, 1, now_ns);
            bytes.chunks(each).for_each(|message| alone.arrive(message, 1, now_ns));
            prop_assert_eq!(&together, &alone);
        }
    }

    /// In order and without loss, as most datagrams are, from any number on.
    #[test]
    fn in_order_it_is_the_same_at_any_number(
        first in prop_oneof![0u64..10_000, ((1u64 << 62) - 300)..(1 << 62)], counts in prop::collection::vec(1u64..200, 1..30),
        each in 8usize..24
    ) {
        let (mut together, mut alone) = (Ledger::new(Mark::Plumb), Ledger::new(Mark::Plumb));
        let mut next = first;
        for (count, time) in counts.into_iter().zip(1u64..) {
            let end = (next + count).min((1 << 62) - 1).max(next + 1);
            let messages: Vec<_> = (next..end).map(|number| (number & ((1 << 62) - 1), 1, time * 977)).collect();
            let bytes = datagram(each, &messages, 0);
            together.arrive_together(&bytes, each, 0, time * 1000);
            bytes.chunks(each).for_each(|message| alone.arrive(message, 0, time * 1000));
            prop_assert_eq!(&together, &alone);
            next = end;
        }
    }

    #[test]
    fn nothing_is_counted_twice_or_lost(numbers in prop::collection::vec(0u64..300, 0..500)) {
        let mut ledger = Ledger::new(Mark::Plumb);
        let mut seen = std::collections::BTreeSet::new();
        let (mut highest, mut late) = (None, 0);
        for number in numbers.iter().copied() {
            ledger.arrive(&message(number, 2, 0), 0, 0);
            if seen.insert(number) && highest.is_some_and(|highest| number < highest) {
                late += 1;
            }
            highest = highest.max(Some(number));
        }
        let new = seen.len() as u64;
        prop_assert_eq!(counts(&ledger), (new, late, numbers.len() as u64 - new));
    }
}

/// Runs of zeros among the numbers of the measure phase that were sent: `sent` messages after `before` others.
fn naive_runs(arrived: &std::collections::BTreeSet<u64>, before: u64, sent: u64) -> (u64, u64, u64) {
    let lost: Vec<bool> = (before..before + sent).map(|number| !arrived.contains(&number)).collect();
    let runs = lost.chunk_by(|a, b| a == b).filter(|run| run[0]).map(<[bool]>::len);
    runs.fold((0, 0, 0), |(runs, lost, longest), length| (runs + 1, lost + length as u64, longest.max(length as u64)))
}

/// The same by a ledger that was told the messages in this order, each with the phase of its number.
fn counted_runs(numbers: impl Iterator<Item = u64>, before: u64, sent: u64) -> (u64, u64, u64) {
    let mut ledger = Ledger::new(Mark::Plumb);
    let phase = |number: u64| usize::from(number >= before) + usize::from(number >= before + sent);
    numbers.for_each(|number| ledger.arrive(&message(number, phase(number), 0), 0, 0));
    let runs = ledger.window.finish().whole(before, sent);
    (runs.runs, runs.lost, runs.longest)
}

#[test]
fn a_run_ends_where_a_message_arrives() {
    let runs = |numbers: &[u64]| counted_runs(numbers.iter().copied(), 10, 20);
    assert_eq!(runs(&(0..40).collect::<Vec<_>>()), (0, 0, 0));
    assert_eq!(runs(&[9, 10, 12, 13, 17, 29, 30]), (3, 15, 11));
    assert_eq!(runs(&[9, 30]), (1, 20, 20), "none of the phase arrived");
    assert_eq!(runs(&[]), (1, 20, 20));
    assert_eq!(runs(&[15]), (2, 19, 14), "before and after");
    assert_eq!(runs(&[5, 35, 29, 12, 11]), (2, 17, 16), "late ones of both edges");
    assert_eq!(counted_runs((0..10).chain([100_000]), 10, 50_000), (1, 50_000, 50_000));
    assert_eq!(
        counted_runs([0, 4095, 4096, 8192, 8193, 100_000, 100_001].into_iter(), 0, 100_002),
        (3, 99_995, 91_806)
    );
    // A forged number ends no loop.
    assert_eq!(counted_runs([0, (1 << 62) - 1].into_iter(), 0, 1 << 62).0, 1);
}

proptest! {
    /// Lost in runs, late within the window, and again.
    #[test]
    fn runs_are_those_of_the_list_of_numbers(
        steps in prop::collection::vec((1u64..60, prop_oneof![3 => 0u64..6, 1 => 0u64..9000], 0u64..4), 1..200),
        late in prop::collection::vec((0usize..100_000, 1u64..4000), 0..40),
        edges in (0u64..60, 0u64..=100)
    ) {
        // Each step: messages that arrive, a gap after them, and how often the last one arrives again.
        let (mut order, mut next) = (Vec::new(), 0);
        for (arrive, lost, again) in steps {
            order.extend(next..next + arrive);
            order.extend((0..again).map(|_| next + arrive - 1));
            next += arrive + lost;
        }
        // Some are delayed, by less than a window in numbers.
        for (place, by) in late {
            let from = place % order.len();
            let number = order.remove(from);
            let to = order[from..].iter().position(|other| *other > number + by).map_or(order.len(), |at| from + at);
            order.insert(to, number);
        }
        let before = next * edges.0 / 100;
        let sent = (next - before) * edges.1 / 100;
        let arrived = order.iter().copied().collect();
        prop_assert_eq!(counted_runs(order.into_iter(), before, sent), naive_runs(&arrived, before, sent));
    }

    /// Datagrams of several messages leave the same places empty.
    #[test]
    fn runs_are_the_same_of_messages_that_came_together(
        datagrams in prop::collection::vec((1u64..100, 0u64..200), 1..150)
    ) {
        let (mut together, mut numbers, mut next) = (Ledger::new(Mark::Plumb), Vec::new(), 0);
        for (count, lost) in datagrams {
            let messages: Vec<_> = (next..next + count).map(|number| (number, 1, 0)).collect();
            together.arrive_together(&datagram(16, &messages, 0), 16, 1, 0);
            numbers.extend(next..next + count);
            next += count + lost;
        }
        let runs = together.window.finish().whole(0, next);
        prop_assert_eq!((runs.runs, runs.lost, runs.longest), counted_runs(numbers.into_iter(), 0, next));
    }
}
