//! The numbers of requests. A short number is used again after its request was answered, or, if it was lost, after a rest.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// Time for which the number of a lost request is used for no other: its answer may still be under way.
const REST: Duration = Duration::from_secs(30);

pub struct Numbers {
    next: u64,
    /// Whether a short number is under way or rests.
    taken: Vec<bool>,
    /// Numbers of lost requests, and when their rest ends; oldest first.
    resting: VecDeque<(Instant, u64)>,
    rest: Duration,
}

impl Numbers {
    /// Numbers of so many bits: 64, or at most 16. Without any there is one, which rests as long as an answer is waited for.
    pub fn new(bits: u32, first: u64, timeout: Duration) -> Self {
        let taken = if bits < u64::BITS { vec![false; 1 << bits] } else { Vec::new() };
        Self { next: first, taken, resting: VecDeque::new(), rest: if bits == 0 { timeout } else { REST } }
    }

    /// The next number, if one is free.
    #[inline]
    pub fn next(&mut self, now: Instant) -> Option<u64> {
        if self.taken.is_empty() { Some(self.next) } else { self.next_free(now) }
    }

    fn next_free(&mut self, now: Instant) -> Option<u64> {
        while let Some((_, number)) = self.resting.pop_front_if(|(until, _)| *until <= now) {
            self.release(number);
        }
        let count = self.taken.len() as u64;
        let mut numbers = (self.next..self.next + count).map(|number| number % count);
        self.next = numbers.find(|number| !self.is_taken(*number))?;
        Some(self.next)
    }

    /// Takes the number that [`Numbers::next`] has named.
    #[inline]
    pub fn take(&mut self) {
        self.set(self.next, true);
        self.next += 1;
    }

    /// The request of this number was answered.
    #[inline]
    pub fn release(&mut self, number: u64) {
        self.set(number, false);
    }

    /// The request of this number is given up.
    pub fn lose(&mut self, number: u64, now: Instant) {
        if !self.taken.is_empty() {
            self.resting.push_back((now + self.rest, number));
        }
    }

    /// A message with this number came that answers no request under way: perhaps a lost one.
    pub fn come_late(&mut self, number: u64) {
        if let Some(place) = self.resting.iter().position(|(_, resting)| *resting == number) {
            self.resting.remove(place);
            self.release(number);
        }
    }

    #[inline]
    fn is_taken(&self, number: u64) -> bool {
        usize::try_from(number).ok().and_then(|place| self.taken.get(place)).is_some_and(|taken| *taken)
    }

    #[inline]
    fn set(&mut self, number: u64, is_taken: bool) {
        if let Some(taken) = usize::try_from(number).ok().and_then(|place| self.taken.get_mut(place)) {
            *taken = is_taken;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn take(numbers: &mut Numbers, now: Instant) -> Option<u64> {
        let number = numbers.next(now)?;
        numbers.take();
        Some(number)
    }

    #[test]
    fn the_number_of_a_lost_request_rests_until_its_answer_cannot_come() {
        let (mut numbers, start) = (Numbers::new(8, 0, SECOND), Instant::now());
        let all: Vec<u64> = std::iter::from_fn(|| take(&mut numbers, start)).collect();
        assert_eq!(all, (0..256).collect::<Vec<_>>());
        (0..256).filter(|number| number % 2 == 1).for_each(|number| numbers.release(number));
        numbers.lose(4, start);
        numbers.lose(6, start + SECOND);
        for number in (1..256).step_by(2) {
            assert_eq!(take(&mut numbers, start + SECOND), Some(number));
        }
        assert_eq!(numbers.next(start + REST / 2), None, "two rest and the others are under way");
        numbers.come_late(6);
        assert_eq!(take(&mut numbers, start + SECOND), Some(6), "its answer has come");
        assert_eq!(take(&mut numbers, start + REST), Some(4), "its answer comes no more");
        assert_eq!(numbers.next(start + 2 * REST), None);
        numbers.come_late(9);
        assert_eq!(numbers.next(start + 2 * REST), None, "it does not rest: it is under way");
    }

    #[test]
    fn without_numbers_one_request_is_under_way() {
        let (mut numbers, start) = (Numbers::new(0, 0, SECOND), Instant::now());
        assert_eq!((take(&mut numbers, start), numbers.next(start)), (Some(0), None));
        numbers.release(0);
        assert_eq!(take(&mut numbers, start), Some(0));
        numbers.lose(0, start);
        assert_eq!((numbers.next(start + SECOND / 2), numbers.next(start + SECOND)), (None, Some(0)));
    }

    #[test]
    fn long_numbers_are_used_once() {
        let (mut numbers, start) = (Numbers::new(64, 0, SECOND), Instant::now());
        for number in 0..100_000 {
            assert_eq!(take(&mut numbers, start), Some(number));
            numbers.lose(number, start);
        }
        assert!(numbers.resting.is_empty());
    }
}
