//! Outages of a path, from requests at a constant rate.
//!
//! A request is bad if no answer came, or if its answer came later than the fastest one by a threshold. Loss alone does not
//! show an outage: while a link is down, a neighbour's address is resolved anew, and some hundred packets are held and delivered
//! afterwards. An outage begins when its first bad request was due, and ends when the first packet that came afterwards would
//! have left if it had been the fastest. Both are known to one gap between requests.
//!
//! The messages of a stream are judged by its receiver: one is late by the same measure, and its arrival tells the end. The two
//! clocks differ by a constant, which the threshold and the least delay do not see.
//!
//! Reordering and single losses leave a good answer within the threshold. Nothing is judged before the first answer. After the last
//! one, requests that went on for the threshold without any show an outage that lasts to the end: its direction cannot be told.

use crate::report::{Outage, Outages};

/// Most outages that are kept.
const MOST_KEPT: usize = 1024;

/// The least round trip is that of the present period of this length or of the one before: a path may become a longer one.
const PERIOD_NS: u64 = 1_000_000_000;

/// Time by which the first message of a stream may be slower than the fastest, nanoseconds.
const SLACK_NS: u64 = 1_000_000_000;

/// Looks for outages in the answers to the requests of one flow, or in the messages of a stream. All times are of one clock,
/// nanoseconds.
#[derive(Debug)]
pub struct OutageWatch {
    threshold_ns: u64,
    gap_ns: u64,
    /// End of the present period, its least round trip, and that of the period before.
    period: (u64, u64, u64),
    /// Number of the latest request with a good answer, its sending, and what the far end had received then.
    last: Option<(u64, u64, Option<u64>)>,
    /// When the first packet of a later request that came late would have left.
    back_ns: u64,
    /// Sending of the first and of the latest request since the last good answer came.
    waiting: Option<(u64, u64)>,
    found: Vec<Outage>,
    is_stream: bool,
    /// Added to the times of a stream's sender, it puts them on the receiver's clock, so that the first message takes [`SLACK_NS`].
    ahead_ns: Option<u64>,
}

impl OutageWatch {
    /// `gap_ns`: between two requests, or two messages of a stream.
    pub fn new(threshold_ns: u64, gap_ns: u64, is_stream: bool) -> Self {
        let found = Vec::with_capacity(MOST_KEPT);
        Self {
            threshold_ns,
            gap_ns,
            period: (0, u64::MAX, u64::MAX),
            last: None,
            back_ns: u64::MAX,
            waiting: None,
            found,
            is_stream,
            ahead_ns: None,
        }
    }

    /// A request is sent.
    pub fn requested(&mut self, sent_ns: u64) {
        let first_ns = self.waiting.map_or(sent_ns, |(first_ns, _)| first_ns);
        self.waiting = Some((first_ns, sent_ns));
    }

    /// Takes in a message of a stream. `sent_ns` is of its sender's clock.
    pub fn arrived(&mut self, number: u64, sent_ns: u64, arrived_ns: u64) {
        let ahead_ns = *self.ahead_ns.get_or_insert(arrived_ns.wrapping_sub(sent_ns).wrapping_sub(SLACK_NS));
        let sent_ns = sent_ns.wrapping_add(ahead_ns);
        // Only forged times are before the first one's by so much.
        if let Some(trip_ns) = arrived_ns.checked_sub(sent_ns) {
            self.answered(number, sent_ns, trip_ns, Some(0));
        }
    }

    /// Takes in an answer. `trip_ns`: time on the way, there and back; a thread that waits for its CPU at either end has no part in
    /// it. `taken`: requests that the far end had received by then, if it says so.
    pub fn answered(&mut self, number: u64, sent_ns: u64, trip_ns: u64, taken: Option<u64>) {
        let received_ns = sent_ns.saturating_add(trip_ns);
        if received_ns >= self.period.0 {
            self.period = (received_ns.saturating_add(PERIOD_NS), u64::MAX, self.period.1);
        }
        self.period.1 = self.period.1.min(trip_ns);
        let least_ns = self.least_ns();
        let is_later = self.last.is_none_or(|(last, ..)| number > last);
        if !is_later {
            return;
        }
        self.back_ns = self.back_ns.min(received_ns.saturating_sub(least_ns));
        if trip_ns - least_ns >= self.threshold_ns {
            return;
        }
        self.waiting = None;
        if let Some((last, last_ns, had)) = self.last.replace((number, sent_ns, taken))
            && number > last + 1
        {
            let begin_ns = last_ns.saturating_add(self.gap_ns);
            let length_ns = self.back_ns.saturating_sub(begin_ns);
            // Requests in between that the far end received were answered in vain.
            let forward = taken.zip(had).map(|(taken, had)| 2 * taken.saturating_sub(had + 1) < number - last - 1);
            if length_ns >= self.threshold_ns && self.found.len() < MOST_KEPT {
                let begin_ns = begin_ns.saturating_add(self.until_seen_ns());
                self.found.push(Outage { begin_ns: begin_ns.cast_signed(), length_ns, forward });
            }
        }
        self.back_ns = u64::MAX;
    }

    /// Time from the sending of a request to its place on the clock by which outages are told: a stream's receiver knows only
    /// when a message should have come.
    fn until_seen_ns(&self) -> u64 {
        if self.is_stream { self.least_ns() } else { 0 }
    }

    fn least_ns(&self) -> u64 {
        self.period.1.min(self.period.2)
    }

    /// The outage that was still going on when the last request left. Requests whose answers were under way are no part of it. A
    /// stream's messages go on until the phase ends.
    fn lasting(&self, end_ns: u64) -> Option<Outage> {
        let (_, last_ns, _) = self.last?;
        let due_ns = last_ns.saturating_add(self.gap_ns);
        let of_stream = self.is_stream.then(|| (due_ns, end_ns.saturating_sub(self.gap_ns)));
        let (first_ns, latest_ns) = of_stream.or(self.waiting)?;
        // The thread may have stood still before the first of them.
        let begin_ns = due_ns.max(first_ns.saturating_sub(self.least_ns()));
        let length_ns = latest_ns.saturating_add(self.gap_ns).saturating_sub(self.least_ns()).saturating_sub(begin_ns);
        let is_long = length_ns.min(latest_ns.saturating_sub(first_ns)) >= self.threshold_ns;
        let begin_ns = begin_ns.saturating_add(self.until_seen_ns());
        is_long.then_some(Outage { begin_ns: begin_ns.cast_signed(), length_ns, forward: None })
    }

    /// The outages that began between two instants; their begins count from the first one.
    pub fn between(&self, begin_ns: u64, end_ns: u64) -> Outages {
        let within = |outage: &&Outage| (begin_ns..end_ns).contains(&outage.begin_ns.cast_unsigned());
        let relative =
            |outage: &Outage| Outage { begin_ns: outage.begin_ns.wrapping_sub_unsigned(begin_ns), ..*outage };
        let lasting = self.lasting(end_ns);
        let found = self.found.iter().chain(&lasting).filter(within);
        Outages {
            count: found.clone().count() as u64,
            total_ns: found.clone().map(|outage| outage.length_ns).sum(),
            longest: found.max_by_key(|outage| outage.length_ns).map(relative),
            gap_ns: self.gap_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A thousand requests per second for two seconds over a path of 5 ms each way. `fate` says how much later the answer comes,
    /// or that it is lost, and whether the far end received the request.
    fn watched(fate: impl Fn(u64) -> (Option<u64>, bool)) -> Outages {
        let mut watch = OutageWatch::new(20 * MS, MS, false);
        let (mut events, mut taken) = (Vec::new(), 0);
        for number in 0..2000 {
            let (late, received) = fate(number);
            taken += u64::from(received);
            events.push(((1000 + number) * MS, number, taken, 0));
            if let Some(late) = late {
                events.push(((1000 + number) * MS + 10 * MS + late, number, taken, 10 * MS + late));
            }
        }
        events.sort_unstable();
        for (at, number, taken, trip_ns) in events {
            match trip_ns {
                0 => watch.requested(at),
                trip_ns => watch.answered(number, (1000 + number) * MS, trip_ns, Some(taken)),
            }
        }
        watch.between(1000 * MS, 3000 * MS)
    }

    #[test]
    fn silence_is_an_outage_of_its_direction() {
        for forward in [true, false] {
            let found = watched(|n| if (500..637).contains(&n) { (None, !forward) } else { (Some(0), true) });
            let longest = Outage { begin_ns: 500_000_000, length_ns: 137 * MS, forward: Some(forward) };
            let expected = Outages { count: 1, total_ns: 137 * MS, longest: Some(longest), gap_ns: MS };
            assert_eq!(found, expected);
        }
    }

    /// The neighbour's queue delivers the last 80 requests of an outage of 137 ms when it is over.
    #[test]
    fn packets_that_were_held_are_part_of_an_outage() {
        let found = watched(|n| match n {
            500..557 => (None, false),
            557..637 => (Some((637 - n) * MS), true),
            _ => (Some(0), true),
        });
        let longest = found.longest.unwrap();
        assert_eq!(found.count, 1);
        assert!(longest.length_ns.abs_diff(137 * MS) <= MS && longest.begin_ns == 500_000_000, "{longest:?}");
    }

    #[test]
    fn loss_reordering_and_a_longer_path_are_no_outages() {
        let found = watched(|n| match n {
            n if n % 100 == 7 => (None, true),
            n if n % 20 == 3 => (Some(7 * MS), true),
            _ => (Some(n % 5 * 100_000), true),
        });
        assert_eq!((found.count, found.longest), (0, None));
        // The path becomes 30 ms longer: late for a second or two, and then that is the path. No silence, no outage.
        let found = watched(|n| (Some(if n < 500 { 0 } else { 30 * MS }), true));
        assert!(found.total_ns <= 31 * MS, "{found:?}");
    }

    #[test]
    fn a_path_that_stays_down_is_an_outage_to_the_end() {
        let found = watched(|n| if n >= 1700 { (None, false) } else { (Some(0), true) });
        // Answers to the requests of the last 10 ms were under way.
        let longest = Outage { begin_ns: 1_700_000_000, length_ns: 290 * MS, forward: None };
        assert_eq!(found, Outages { count: 1, total_ns: 290 * MS, longest: Some(longest), gap_ns: MS });
        // Shorter than the threshold, or only the thread stood still.
        assert_eq!(watched(|n| if n >= 1975 { (None, false) } else { (Some(0), true) }).count, 0);
        let mut watch = OutageWatch::new(20 * MS, MS, false);
        watch.requested(1000 * MS);
        watch.answered(0, 1000 * MS, 10 * MS, Some(1));
        watch.requested(1500 * MS);
        assert_eq!(watch.between(0, 2000 * MS).count, 0);
    }

    /// The sender's clock is an hour behind; its messages take 5 ms.
    #[test]
    fn a_stream_is_judged_by_its_receiver() {
        let of = |lost: std::ops::Range<u64>, late: u64| {
            let mut watch = OutageWatch::new(20 * MS, MS, true);
            let hour = 3_600_000 * MS;
            for number in (0..2000).filter(|number| !lost.contains(number)) {
                let late = if number == 0 {
                    30 * MS
                } else if number == lost.end {
                    late
                } else {
                    0
                };
                watch.arrived(number, (1000 + number) * MS, hour + (1005 + number) * MS + late);
            }
            watch.between(hour + 1000 * MS, hour + 3000 * MS)
        };
        let outage = |begin, length, forward| Some(Outage { begin_ns: begin, length_ns: length * MS, forward });
        // The first message of each was held by the resolution of an address.
        assert_eq!(of(500..637, 0).longest, outage(505_000_000, 137, Some(true)));
        assert_eq!(of(500..637, 10 * MS).longest, outage(505_000_000, 147, Some(true)));
        assert_eq!(of(500..510, 0).count, 0);
        assert_eq!(of(1700..2000, 0).longest, outage(1_705_000_000, 295, None));
        assert_eq!(of(1990..2000, 0).count, 0);
    }

    #[test]
    fn any_numbers_are_taken() {
        let mut watch = OutageWatch::new(MS, MS, false);
        for (number, sent, trip, taken) in [(9, 5, 1, 7), (u64::MAX - 1, 3, u64::MAX, 0), (0, 0, 0, u64::MAX)] {
            watch.requested(trip);
            watch.answered(number, sent, trip, Some(taken));
        }
        watch.requested(u64::MAX);
        let _ = watch.between(0, u64::MAX);
        let mut stream = OutageWatch::new(MS, MS, true);
        for (number, sent, arrived) in [(9, 5, 1), (u64::MAX, 0, u64::MAX), (0, u64::MAX, 0), (12, 1 << 63, 7)] {
            stream.arrived(number, sent, arrived);
        }
        let _ = stream.between(0, u64::MAX);
    }
}
