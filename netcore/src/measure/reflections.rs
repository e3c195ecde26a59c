//! The answers of a reflector of STAMP: losses by direction, and datagrams that are refused as answers.
//!
//! A stateful reflector numbers its answers by itself: the difference to the requests' numbers is what it never got. A stateless
//! one repeats the number of the request. The sender's first number is 1, as if the packet with 0 had been lost: so the two are told
//! apart by the first answer.

use super::counters::phase_index;
use crate::report::{Phase, Reflector};

/// Phases, and the time after them.
const PHASES: usize = 4;

/// Why a datagram from the reflector is refused as an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    Short,
    Tag,
    Session,
    Request,
    Times,
    Again,
}

/// The sentences about them, in their order.
const REFUSED: [&str; 6] = [
    "are too short for one",
    "do not prove the key",
    "are of another session (SSID)",
    "name a request that was not sent, or another time of its sending",
    "have times that cannot be: the answer left before its request came, or later than it arrived here",
    "came a second time",
];

/// Findings from one flow's answers.
#[derive(Clone, Debug, Default)]
pub struct Reflections {
    /// The first answer's own number, if the reflector counts, and the number of its request, less what was before both.
    base: Option<(i64, u32)>,
    /// Whether the reflector counts by itself.
    counts: Option<bool>,
    /// Latest number of a request that was answered, and of an answer, both from the base; answers.
    latest: (i64, i64, i64),
    /// Requests and answers that got lost, by phase.
    lost: [(i64, i64); PHASES],
    ttl: [Option<u8>; PHASES],
    unsynchronised: [bool; PHASES],
    refused: [u64; REFUSED.len()],
    answers: u64,
    is_contradictory: bool,
}

impl Reflections {
    /// Takes in the answer to a request under way. `own`: the reflector's number; `synchronised`: whether it says so of its clock.
    pub fn answered(&mut self, phase: usize, (number, own): (u64, u32), ttl: Option<u8>, synchronised: bool) {
        self.answers += 1;
        if let Some(place) = self.unsynchronised.get_mut(phase) {
            *place |= !synchronised;
        }
        if let Some(place) = self.ttl.get_mut(phase) {
            *place = (*place).into_iter().chain(ttl).min();
        }
        let is_repeated = u64::from(own) == number;
        let number = number.cast_signed();
        let counts = *self.counts.get_or_insert(!is_repeated);
        self.is_contradictory |= !counts && !is_repeated;
        // A session that is new to the reflector begins with 0; of one that it knows from before, the first answer is the begin.
        let fresh = i64::from(own) < number;
        let (base, own_base) = *self.base.get_or_insert(if fresh { (0, 0) } else { (number - 1, own) });
        let before = self.totals();
        let own = i64::from(own.wrapping_sub(own_base).cast_signed()) + 1;
        self.latest = (self.latest.0.max(number - base), self.latest.1.max(own), self.latest.2 + 1);
        let after = self.totals();
        if let Some(lost) = self.lost.get_mut(phase) {
            *lost = (lost.0 + after.0 - before.0, lost.1 + after.1 - before.1);
        }
    }

    /// Requests that the reflector has received by its own count, if it has one.
    pub fn taken(&self) -> Option<u64> {
        (self.counts == Some(true)).then(|| self.latest.1.max(0).cast_unsigned())
    }

    /// Requests and answers that got lost so far. Packets that others overtook count as lost until they come.
    fn totals(&self) -> (i64, i64) {
        let (sent, received, answers) = self.latest;
        (sent - received, received - answers)
    }

    pub fn refused(&mut self, why: Refusal) {
        self.refused[why as usize] += 1;
    }

    /// The measure phase.
    pub fn report(&self) -> Reflector {
        let phase = phase_index(Phase::Measure);
        let (forward, reverse) = self.lost[phase];
        let lost = (forward.max(0).cast_unsigned(), reverse.max(0).cast_unsigned());
        Reflector { lost: (self.counts == Some(true) && !self.contradicts()).then_some(lost), ttl: self.ttl[phase] }
    }

    /// Whether the reflector's numbers are impossible: it counts more requests than were sent, or fewer than it answered.
    fn contradicts(&self) -> bool {
        let (forward, reverse) = self.totals();
        self.is_contradictory || (self.counts == Some(true) && (forward < 0 || reverse < 0))
    }

    /// Sentences about what was wrong.
    pub fn notes(&self) -> Vec<String> {
        let refused = self.refused.iter().zip(REFUSED).filter(|(count, _)| **count > 0);
        let mut notes: Vec<String> = refused
            .map(|(count, why)| format!("stamp: {count} datagrams of the reflector are no answers: they {why}"))
            .collect();
        if self.contradicts() {
            let what = "the reflector's own numbers contradict the requests: it is unknown which way packets got lost";
            notes.push(format!("stamp: {what}"));
        }
        if self.answers > 0 && self.unsynchronised[phase_index(Phase::Measure)] {
            let what =
                "the reflector says that its clock is not synchronised; the figures of each direction do not need that";
            notes.push(format!("stamp: {what}"));
        }
        notes
    }

    /// Why there is no answer at all; `None`: there is one.
    pub fn silence(&self) -> Option<String> {
        let why = self.refused.iter().zip(REFUSED).find(|(count, _)| **count > 0);
        (self.answers == 0).then(|| match why {
            Some((count, why)) => format!("no answer from the reflector: {count} datagrams came from it, and they {why}"),
            None => "no answer from the reflector: is it there, and does a firewall let UDP through? One that answers from another \
                     address or port is not heard"
                .to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests from 1 on. `fate` says for each whether it reaches the reflector, and whether its answer comes back.
    fn watched(counts: bool, fate: impl Fn(u64) -> (bool, bool)) -> Reflections {
        let (mut found, mut own) = (Reflections::default(), 0);
        for number in 1..=100u64 {
            let (there, back) = fate(number);
            if there && back {
                let said = if counts { own } else { u32::try_from(number).unwrap() };
                found.answered(usize::from(number > 20), (number, said), Some(61), true);
            }
            own += u32::from(there);
        }
        found
    }

    #[test]
    fn a_reflector_that_counts_tells_which_way_packets_got_lost() {
        let found = watched(true, |n| (n % 10 != 3, n % 10 != 7));
        // Of those up to 20 two and two are of the warm-up.
        assert_eq!(found.report().lost, Some((8, 8)));
        assert_eq!((found.report().ttl, found.notes().len()), (Some(61), 0));
        let found = watched(false, |n| (n % 10 != 3, n % 10 != 7));
        assert_eq!((found.report().lost, found.notes().len()), (None, 0), "it repeats the numbers");
        assert_eq!(watched(true, |_| (true, true)).report().lost, Some((0, 0)));
    }

    #[test]
    fn packets_that_overtake_each_other_are_not_lost() {
        let mut found = Reflections::default();
        // Requests 2 and 3 arrive there in the other order, and answers 3 and 4 here.
        for (number, own) in [(1, 0), (3, 1), (2, 2), (5, 4), (4, 3), (6, 5)] {
            found.answered(1, (number, own), None, true);
        }
        assert_eq!((found.report().lost, found.notes().len()), (Some((0, 0)), 0));
    }

    #[test]
    fn a_session_from_before_goes_on_and_numbers_wrap() {
        let mut found = Reflections::default();
        for (number, own) in [(1, u32::MAX - 1), (2, u32::MAX), (4, 1), (6, 2)] {
            found.answered(1, (number, own), None, true);
        }
        // 3 and its answer: one number was used for it. 5 never came there.
        assert_eq!(found.report().lost, Some((1, 1)));
    }

    #[test]
    fn numbers_that_cannot_be_tell_nothing() {
        for numbers in [
            &[(1, 0), (2, 5), (3, 9)][..],
            &[(1, 0), (2, 0), (3, 0)],
            &[(1, 0), (2, 2), (3, 3)],
            &[(1, 1), (2, 2), (3, 0)],
        ] {
            let mut found = Reflections::default();
            for numbers in numbers {
                found.answered(1, *numbers, None, true);
            }
            assert_eq!(found.report().lost, None, "{numbers:?}");
            assert!(found.notes()[0].contains("contradict"), "{numbers:?}");
        }
    }

    #[test]
    fn what_is_no_answer_has_a_sentence() {
        let mut found = Reflections::default();
        assert!(found.silence().unwrap().contains("firewall"));
        found.refused(Refusal::Session);
        assert!(found.silence().unwrap().contains("1 datagrams came from it, and they are of another session"));
        found.answered(1, (1, 0), None, false);
        found.refused(Refusal::Again);
        let notes = found.notes().join("\n");
        for part in ["another session (SSID)", "a second time", "not synchronised"] {
            assert!(notes.contains(part), "{part}: {notes}");
        }
        assert_eq!(found.silence(), None);
    }
}
