//! The header of a datagram stream's messages, and the receiver's conclusions from it: loss, reordering, duplication,
//! jitter.
//!
//! A message of 16 bytes or more begins with its sequence number, the phase of its sending and the sender's time; one
//! of 8 to 15 bytes with the first two. A shorter one has no header and can only be counted.
//!
//! iperf3's messages begin with the sender's time, seconds and microseconds, and a counter from 1, all big-endian. They
//! do not tell their phase: it is that of the receiver, when they arrive.
//!
//! A message is lost once its place in the window is needed for a later one. So the loop looks for runs of loss only where
//! such a place is empty, and at the end.

use std::sync::atomic::Ordering::Relaxed;

use crate::{
    measure::counters::Received,
    report::LossRuns,
    spec::{
        Mark,
        memory::{NUMBERED_BYTES, STAMPED_BYTES},
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
    // Whole arrays: with slices of these lengths the compiler calls a function for each copy.
    let Some((place, rest)) = message.split_first_chunk_mut::<NUMBERED_BYTES>() else { return };
    *place = (number | (phase as u64) << PHASE_SHIFT).to_le_bytes();
    if let Some(place) = rest.first_chunk_mut::<{ STAMPED_BYTES - NUMBERED_BYTES }>() {
        *place = now_ns.to_le_bytes();
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
    // No sender comes so far: a forged number must leave room for those after it.
    let number = counter.checked_sub(1).filter(|number| number >> PHASE_SHIFT == 0)?;
    Some((number, word(0)? * 1_000_000_000 + word(4)? * 1000))
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

/// Number of a message, and its sender's time.
pub fn stamp(message: &[u8]) -> Option<(u64, u64)> {
    let (number, _, sent_ns) = read_plumb(message)?;
    Some((number, sent_ns?))
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
#[cfg_attr(test, derive(Debug, PartialEq))]
struct Window {
    /// Highest number so far plus 1.
    next: u64,
    /// A bit per number, for the last [`WINDOW`] numbers; those before the first one count as arrived.
    bits: [u64; WINDOW_WORDS],
    losses: Losses,
}

impl Window {
    fn new() -> Self {
        Self { next: 0, bits: [u64::MAX; WINDOW_WORDS], losses: Losses::default() }
    }

    #[inline]
    fn place(number: u64) -> (usize, u64) {
        // The remainder is below 4096.
        ((number % WINDOW) as usize / 64, 1 << (number % 64))
    }

    #[inline]
    fn arrive(&mut self, number: u64) -> Fate {
        let (word, bit) = Self::place(number);
        if number >= self.next {
            if number > self.next {
                self.skip(number);
            }
            if self.bits[word] & bit == 0 {
                self.losses.lose(number - WINDOW);
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

    /// Leaves out the numbers from the next one to before `number`.
    #[cold]
    fn skip(&mut self, number: u64) {
        let end = number.min(self.next + WINDOW);
        for skipped in self.next..end {
            let (word, bit) = Self::place(skipped);
            if self.bits[word] & bit == 0 {
                self.losses.lose(skipped - WINDOW);
            }
            self.bits[word] &= !bit;
        }
        // Of more than a window, the first ones never had a place.
        self.losses.lose_all(self.next, (number - WINDOW.min(number)).max(self.next));
    }

    /// Lets the next `count` numbers arrive in order.
    #[inline]
    fn extend(&mut self, count: u64) {
        let (mut next, end) = (self.next, self.next + count);
        while next < end {
            let (word, bit) = Self::place(next);
            // As many as lie in this word.
            let here = (64 - next % 64).min(end - next);
            let places = bit.wrapping_mul(u64::MAX >> (64 - here));
            if self.bits[word] & places != places {
                self.lose_places(next, here);
            }
            self.bits[word] |= places;
            next += here;
        }
        self.next = end;
    }

    /// Loses the numbers whose places `count` numbers from `next` on take and that did not arrive.
    #[cold]
    fn lose_places(&mut self, next: u64, count: u64) {
        for number in next..next + count {
            let (word, bit) = Self::place(number);
            if self.bits[word] & bit == 0 {
                self.losses.lose(number - WINDOW);
            }
        }
    }

    /// The runs of loss, now that no message will come.
    fn finish(&mut self) -> LossRuns {
        for number in self.next.saturating_sub(WINDOW)..self.next {
            let (word, bit) = Self::place(number);
            if self.bits[word] & bit == 0 {
                self.losses.lose(number);
            }
        }
        self.losses.finish(self.next)
    }
}

/// Whether one of these messages has a mark that `compare` finds to differ; it is given the message's place, from 1.
#[inline]
fn differ<const N: usize>(messages: &[u8], each: usize, compare: impl Fn(u64, &[u8; N]) -> u64) -> bool {
    let marks = messages.chunks_exact(each).map(|message| message.first_chunk());
    // All are looked at: a branch for each would cost more.
    (1..).zip(marks).fold(0, |different, (place, mark)| different | mark.map_or(1, |mark| compare(place, mark))) != 0
}

/// The word at a byte of a mark.
#[inline]
fn u64_at<const N: usize>(mark: &[u8; N], at: usize) -> u64 {
    mark[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Cap of a difference of two transits (nine years); larger ones come from forged times.
const LONGEST_JITTER_NS: i64 = 1 << 58;

/// Time between sending and arrival. The two clocks differ by a constant, which cancels in the difference of two transits.
#[inline]
fn transit(sent_ns: u64, now_ns: u64) -> i64 {
    now_ns.wrapping_sub(sent_ns).cast_signed()
}

/// Interarrival jitter by RFC 3550 (section 6.4.1 and appendix A.8), in sixteenths of a nanosecond.
#[derive(Default)]
#[cfg_attr(test, derive(Debug, PartialEq))]
struct Jitter {
    transit: Option<i64>,
    sixteenths: i64,
}

impl Jitter {
    #[inline]
    fn arrive(&mut self, sent_ns: u64, now_ns: u64) {
        let transit = transit(sent_ns, now_ns);
        if let Some(before) = self.transit.replace(transit) {
            // The times may be forged. Sixteen times this fits the sum, which grows no further.
            let difference = transit.wrapping_sub(before).saturating_abs().min(LONGEST_JITTER_NS);
            self.sixteenths += difference - ((self.sixteenths + 8) >> 4);
        }
    }

    /// The same for so many further messages of the same times: their transits do not differ.
    #[inline]
    fn repeat(&mut self, count: u64) {
        for _ in 0..count {
            let less = (self.sixteenths + 8) >> 4;
            if less == 0 {
                return;
            }
            self.sixteenths -= less;
        }
    }
}

/// The receiver's counts of one flow.
#[cfg_attr(test, derive(Debug, PartialEq))]
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
            window: Window::new(),
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
        if self.window.losses.is_turn(phase) && number >= self.window.next {
            self.window.losses.turn(phase, number, self.window.next);
        }
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
                if phase == MEASURE {
                    self.window.losses.come_late(number);
                }
            }
            Fate::InOrder => {}
        }
        self.counts[0] += 1;
        of_phase[0] += 1;
        if let Some(sent_ns) = sent_ns {
            self.jitter.arrive(sent_ns, now_ns);
        }
    }

    /// Counts messages of `each` bytes (the last may be shorter) that came as one datagram: exactly as one after the other by
    /// [`Ledger::arrive`], and faster if they were sent in one go and all of them are there.
    #[inline]
    pub fn arrive_together(&mut self, messages: &[u8], each: usize, present: usize, now_ns: u64) {
        let (first, rest) = messages.split_at(each.min(messages.len()));
        self.arrive(first, present, now_ns);
        if self.mark != Mark::Plumb || !self.follow(first, rest, each, now_ns) {
            rest.chunks(each).for_each(|message| self.arrive(message, present, now_ns));
        }
    }

    /// Counts the messages after `first`, the latest arrival, if each has the next number, and the phase and time of `first`.
    /// `false`: one differs, and none is counted.
    #[inline]
    fn follow(&mut self, first: &[u8], rest: &[u8], each: usize, now_ns: u64) -> bool {
        let Some((number, phase, sent_ns)) = read_plumb(first) else { return false };
        let count = (rest.len() / each) as u64;
        // A duplicate of the latest message has the right number and, mostly, another transit. Of another phase it begins none,
        // and the message after it does.
        let is_latest = number + 1 == self.window.next
            && !self.window.losses.is_turn(phase)
            && sent_ns.is_none_or(|sent_ns| self.jitter.transit == Some(transit(sent_ns, now_ns)));
        if !is_latest || !rest.len().is_multiple_of(each) || (number + count) >> PHASE_SHIFT != 0 {
            return false;
        }
        let start = number | (phase as u64) << PHASE_SHIFT;
        let differs = match sent_ns {
            Some(sent_ns) => differ(rest, each, |place, message: &[u8; STAMPED_BYTES]| {
                let (word, time) = (u64_at(message, 0), u64_at(message, NUMBERED_BYTES));
                (word ^ (start + place)) | (time ^ sent_ns)
            }),
            None => differ(rest, each, |place, message: &[u8; NUMBERED_BYTES]| u64_at(message, 0) ^ (start + place)),
        };
        if differs {
            return false;
        }
        self.window.extend(count);
        self.counts[0] += count;
        self.of_phase[phase][0] += count;
        if sent_ns.is_some() {
            self.jitter.repeat(count);
        }
        true
    }

    /// Publishes the runs of loss, now that no message will come. Messages without our mark do not tell their phase.
    pub fn finish(&mut self, to: &Received) {
        if self.mark == Mark::Plumb {
            let _ = to.runs.set(self.window.finish());
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

/// Runs of consecutive messages of the measure phase that were lost, from the numbers that leave the window unseen. Numbers are
/// lost in ascending order.
#[derive(Clone, Copy)]
#[cfg_attr(test, derive(Debug, PartialEq))]
pub struct Losses {
    /// The latest run: from the first of these numbers to before the second.
    run: (u64, u64),
    /// Runs that have ended, between two messages of the measure phase.
    ended: LossRuns,
    /// Phase of the message with the highest number; [`usize::MAX`]: none yet.
    present: usize,
    /// Lowest number of the measure phase that has arrived ([`u64::MAX`]: none yet), and the highest plus 1
    /// ([`u64::MAX`]: it still goes on).
    measure: (u64, u64),
}

impl Default for Losses {
    fn default() -> Self {
        Self { run: (0, 0), ended: LossRuns::default(), present: usize::MAX, measure: (u64::MAX, u64::MAX) }
    }
}

impl Losses {
    /// Whether a message with the highest number so far begins another phase.
    #[inline]
    pub fn is_turn(&self, phase: usize) -> bool {
        phase != self.present
    }

    /// Begins a phase with this number; `next`: the highest number before, plus 1.
    #[cold]
    pub fn turn(&mut self, phase: usize, number: u64, next: u64) {
        if self.present == MEASURE {
            self.measure.1 = next;
        }
        if phase == MEASURE {
            self.measure = (self.measure.0.min(number), u64::MAX);
        }
        self.present = phase;
    }

    /// Counts a message of the measure phase that came after one with a higher number.
    #[cold]
    pub fn come_late(&mut self, number: u64) {
        let (first, end) = self.measure;
        self.measure = if first == u64::MAX { (number, number + 1) } else { (first.min(number), end.max(number + 1)) };
    }

    #[cold]
    pub fn lose(&mut self, number: u64) {
        self.lose_all(number, number + 1);
    }

    /// Loses the numbers from `start` to before `end`.
    fn lose_all(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        if start != self.run.1 {
            self.end_run();
            self.run.0 = start;
        }
        self.run.1 = end;
    }

    /// Counts the latest run if messages of the measure phase arrived on both sides of it.
    fn end_run(&mut self) {
        let (start, end) = self.run;
        if start < end && start > self.measure.0 && end < self.measure.1 {
            self.ended.add(end - start);
        }
    }

    /// The runs of the measure phase, once no number is missing any more; `next`: the highest number plus 1.
    pub fn finish(&mut self, next: u64) -> LossRuns {
        self.measure.1 = self.measure.1.min(next);
        self.end_run();
        self.run = (0, 0);
        let (first, end) = self.measure;
        if first == u64::MAX { LossRuns::default() } else { LossRuns { first, end, ..self.ended } }
    }
}

#[cfg(test)]
mod tests;
