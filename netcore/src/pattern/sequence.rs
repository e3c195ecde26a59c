//! The header of a datagram stream's messages, and the receiver's conclusions from it: loss, reordering, duplication,
//! jitter.
//!
//! A message of 16 bytes or more begins with its sequence number, the phase of its sending and the sender's time; one
//! of 8 to 15 bytes with the first two. A shorter one has no header and can only be counted.
//!
//! iperf3's messages begin with the sender's time, seconds and microseconds, and a counter from 1, all big-endian. They
//! do not tell their phase: it is that of the receiver, when they arrive.

use std::sync::atomic::Ordering::Relaxed;

use crate::{
    measure::counters::Received,
    spec::{
        Mark,
        shape::{NUMBERED_BYTES, STAMPED_BYTES},
    },
};

/// Index of the measure phase.
const MEASURE: usize = 1;

/// The upper two bits of the first word are the phase.
const PHASE_SHIFT: u32 = 62;

/// Writes as much of the header as fits. iperf3's needs 12 or 16 bytes.
#[inline]
pub fn mark(mark: Mark, message: &mut [u8], number: u64, phase: usize, now_ns: u64) {
    match mark {
        Mark::None => {}
        Mark::Plumb => mark_plumb(message, number, phase, now_ns),
        Mark::Iperf3 { wide_counter } => mark_iperf3(wide_counter, message, number, now_ns),
    }
}

#[inline]
fn mark_plumb(message: &mut [u8], number: u64, phase: usize, now_ns: u64) {
    if let Some(place) = message.get_mut(..NUMBERED_BYTES) {
        place.copy_from_slice(&(number | (phase as u64) << PHASE_SHIFT).to_le_bytes());
    }
    if let Some(place) = message.get_mut(NUMBERED_BYTES..STAMPED_BYTES) {
        place.copy_from_slice(&now_ns.to_le_bytes());
    }
}

#[inline]
fn mark_iperf3(wide_counter: bool, message: &mut [u8], number: u64, now_ns: u64) {
    let Some(place) = message.get_mut(..if wide_counter { 16 } else { 12 }) else { return };
    // Its fields have 32 bits and wrap.
    #[expect(clippy::cast_possible_truncation)]
    let (seconds, microseconds, low) =
        ((now_ns / 1_000_000_000) as u32, (now_ns % 1_000_000_000 / 1000) as u32, (number + 1) as u32);
    place[..4].copy_from_slice(&seconds.to_be_bytes());
    place[4..8].copy_from_slice(&microseconds.to_be_bytes());
    if wide_counter {
        place[8..].copy_from_slice(&(number + 1).to_be_bytes());
    } else {
        place[8..].copy_from_slice(&low.to_be_bytes());
    }
}

/// Parses sequence number, phase, and the sender's time, if present. `present`: the receiver's phase.
#[inline]
fn read(mark: Mark, message: &[u8], present: usize) -> Option<(u64, usize, Option<u64>)> {
    match mark {
        Mark::None => None,
        Mark::Plumb => read_plumb(message),
        Mark::Iperf3 { wide_counter } => {
            let (number, sent_ns) = read_iperf3(wide_counter, message)?;
            // There is no cool-down: what comes after the measurement was sent before the sender knew of its end.
            Some((number, present.min(MEASURE), Some(sent_ns)))
        }
    }
}

#[inline]
fn read_iperf3(wide_counter: bool, message: &[u8]) -> Option<(u64, u64)> {
    let word = |at: usize| message.get(at..at + 4)?.try_into().ok().map(|bytes| u64::from(u32::from_be_bytes(bytes)));
    let counter = if wide_counter { word(8)? << 32 | word(12)? } else { word(8)? };
    Some((counter.checked_sub(1)?, word(0)? * 1_000_000_000 + word(4)? * 1000))
}

#[inline]
fn read_plumb(message: &[u8]) -> Option<(u64, usize, Option<u64>)> {
    let word = |at: usize| message.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
    let first = word(0)?;
    Some((first & ((1 << PHASE_SHIFT) - 1), (first >> PHASE_SHIFT) as usize, word(NUMBERED_BYTES)))
}

/// Number of a message; 0 if it has none.
pub fn number(message: &[u8]) -> u64 {
    read_plumb(message).map_or(0, |(number, ..)| number)
}

/// Classification of an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    InOrder,
    Late,
    Again,
}

/// Duplicates are recognized this far back, messages; an older one counts as late.
const WINDOW: u64 = 4096;

/// 64-bit words of the window.
const WINDOW_WORDS: usize = 64;

/// The latest messages that have arrived.
struct Window {
    /// Highest number so far plus 1.
    next: u64,
    /// A bit per number, for the last [`WINDOW`] numbers.
    bits: [u64; WINDOW_WORDS],
}

impl Window {
    #[inline]
    fn place(number: u64) -> (usize, u64) {
        // The remainder is below 4096.
        ((number % WINDOW) as usize / 64, 1 << (number % 64))
    }

    #[inline]
    fn arrive(&mut self, number: u64) -> Fate {
        let (word, bit) = Self::place(number);
        if number >= self.next {
            for skipped in self.next.max((number + 1).saturating_sub(WINDOW))..number {
                let (word, bit) = Self::place(skipped);
                self.bits[word] &= !bit;
            }
            self.bits[word] |= bit;
            self.next = number + 1;
            return Fate::InOrder;
        }
        if self.next - number > WINDOW {
            return Fate::Late;
        }
        if self.bits[word] & bit != 0 {
            return Fate::Again;
        }
        self.bits[word] |= bit;
        Fate::Late
    }
}

/// Cap of a difference of two transits (nine years); larger ones come from forged times.
const LONGEST_JITTER_NS: i64 = 1 << 58;

/// Interarrival jitter by RFC 3550 (section 6.4.1 and appendix A.8), in sixteenths of a nanosecond.
#[derive(Default)]
struct Jitter {
    transit: Option<i64>,
    sixteenths: i64,
}

impl Jitter {
    #[inline]
    fn arrive(&mut self, sent_ns: u64, now_ns: u64) {
        // The two clocks differ by a constant, which cancels in the difference of two transits.
        let transit = now_ns.wrapping_sub(sent_ns).cast_signed();
        if let Some(before) = self.transit.replace(transit) {
            // The times may be forged. Sixteen times this fits the sum, which grows no further.
            let difference = transit.wrapping_sub(before).saturating_abs().min(LONGEST_JITTER_NS);
            self.sixteenths += difference - ((self.sixteenths + 8) >> 4);
        }
    }
}

/// The receiver's counts of one flow.
pub struct Ledger {
    mark: Mark,
    window: Window,
    jitter: Jitter,
    /// Messages, late ones and duplicates since the start; then the same by phase.
    counts: [u64; 3],
    of_phase: [[u64; 3]; 4],
    /// Highest number so far plus 1, when the last message of a phase came; only of iperf3's messages.
    numbered: [u64; 4],
}

impl Ledger {
    pub fn new(mark: Mark) -> Self {
        Self {
            mark,
            window: Window { next: 0, bits: [0; WINDOW_WORDS] },
            jitter: Jitter::default(),
            counts: [0; 3],
            of_phase: [[0; 3]; 4],
            numbered: [0; 4],
        }
    }

    /// Counts an arrival in the receiver's present phase.
    #[inline]
    pub fn arrive(&mut self, message: &[u8], present: usize, now_ns: u64) {
        let Some((number, phase, sent_ns)) = read(self.mark, message, present) else {
            self.counts[0] += 1;
            return;
        };
        let of_phase = &mut self.of_phase[phase];
        let fate = self.window.arrive(number);
        if matches!(self.mark, Mark::Iperf3 { .. }) {
            self.numbered[phase] = self.window.next;
        }
        match fate {
            Fate::Again => {
                self.counts[2] += 1;
                of_phase[2] += 1;
                return;
            }
            Fate::Late => {
                self.counts[1] += 1;
                of_phase[1] += 1;
            }
            Fate::InOrder => {}
        }
        self.counts[0] += 1;
        of_phase[0] += 1;
        if let Some(sent_ns) = sent_ns {
            self.jitter.arrive(sent_ns, now_ns);
        }
    }

    /// Publishes the counts to the sampler.
    #[inline]
    pub fn store(&self, to: &Received) {
        to.messages.store(self.counts[0], Relaxed);
        to.reordered.store(self.counts[1], Relaxed);
        to.duplicated.store(self.counts[2], Relaxed);
        // Never negative: it is a mean of absolute values.
        to.jitter_ns.store((self.jitter.sixteenths >> 4).cast_unsigned(), Relaxed);
        for ((public, own), numbered) in to.of_phase.iter().zip(&self.of_phase).zip(self.numbered) {
            public.numbered.store(numbered, Relaxed);
            public.messages.store(own[0], Relaxed);
            public.reordered.store(own[1], Relaxed);
            public.duplicated.store(own[2], Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
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

    proptest! {
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
}
