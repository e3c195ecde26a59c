//! Bounds of the offset between the clocks of two hosts, from round trips.
//!
//! A message that left here at `sent` and came there at `arrived` shows that their clock is at most `arrived - sent` ahead of
//! ours; its answer shows that it is at least `answered - received` ahead. With all of these bounds over time, the offset is a
//! line above every lower and below every upper one: two oscillators drift apart at a nearly constant rate, of which only a
//! limit is known. The bound at an instant is the range of these lines there. Moon, Skelly and Towsley (INFOCOM 1999) take
//! such a line from one direction; this takes both at once.
//!
//! Times are those of CLOCK_MONOTONIC_RAW, which follows the oscillator alone. On CLOCK_MONOTONIC a clock that is slewed in
//! the middle leaves no line at all.
//!
//! Only the corners of the two convex hulls matter, some ten to thirty points however many round trips there are.

/// Bound of the drift between two CLOCK_MONOTONIC_RAW: PC oscillators are specified for 50 parts per million each, and as
/// much is left for the kernel's calibration of each.
pub const DRIFT_PER_MILLION: u64 = 200;

/// The same as a ratio.
const DRIFT: f64 = DRIFT_PER_MILLION as f64 / 1e6;

/// Most corners of a hull. Beyond it every second one is forgotten, which only widens the bound.
const MOST_CORNERS: usize = 512;

/// Bounds that miss each other by less are rounded ones, nanoseconds.
const ROUNDING_NS: f64 = 1.0;

/// A message and its answer, nanoseconds. The instants of sending lie at or before the truth, the others at or after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundTrip {
    /// Departure of the message on our clock.
    pub sent_ns: u64,
    /// Its arrival on their clock.
    pub arrived_ns: u64,
    /// Departure of the answer on their clock.
    pub answered_ns: u64,
    /// Its arrival on our clock.
    pub received_ns: u64,
}

impl RoundTrip {
    /// Time on the way, both ways together, nanoseconds. `None`: a peer claims to have taken longer than the whole exchange.
    pub fn on_the_way_ns(&self) -> Option<u64> {
        let whole = self.received_ns.checked_sub(self.sent_ns)?;
        (whole.saturating_add(drift_ns(whole))).checked_sub(self.answered_ns.checked_sub(self.arrived_ns)?)
    }
}

/// The most that two oscillators drift apart in this time, nanoseconds.
pub fn drift_ns(ns: u64) -> u64 {
    ns.div_ceil(1_000_000 / DRIFT_PER_MILLION)
}

/// Bounds of the offset of another clock, theirs minus ours, from round trips.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Envelope {
    /// Our time and the offset from which the corners count: a double holds differences to a nanosecond.
    origin: Option<(u64, i64)>,
    /// Upper bounds.
    highs: Hull,
    /// Lower bounds, mirrored.
    lows: Hull,
}

impl Envelope {
    /// Takes in a round trip. One that makes no sense is left out.
    pub fn push(&mut self, trip: &RoundTrip) {
        let difference = |theirs: u64, ours: u64| i64::try_from(i128::from(theirs) - i128::from(ours)).ok();
        let bounds = (|| {
            trip.on_the_way_ns()?;
            Some((
                difference(trip.answered_ns, trip.received_ns)?,
                difference(trip.arrived_ns, trip.sent_ns)?,
                drift_ns(trip.received_ns - trip.sent_ns) as f64,
            ))
        })();
        let Some((low, high, drift)) = bounds else { return };
        let (from_ns, from) = *self.origin.get_or_insert((trip.received_ns, low));
        // Both bounds are those of some instant of the round trip, and count for its end.
        let at = trip.received_ns.wrapping_sub(from_ns).cast_signed() as f64;
        self.highs.push((at, difference_ns(high, from) + drift));
        self.lows.push((at, drift - difference_ns(low, from)));
    }

    /// Takes in a message without an answer. From such messages alone [`Self::line`] lies beneath the delays of all, and
    /// nothing is known of the offset itself.
    pub fn push_unanswered(&mut self, sent_ns: u64, arrived_ns: u64) {
        let difference = arrived_ns.wrapping_sub(sent_ns).cast_signed();
        let (from_ns, from) = *self.origin.get_or_insert((arrived_ns, difference));
        let at = arrived_ns.wrapping_sub(from_ns).cast_signed() as f64;
        self.highs.push((at, difference_ns(difference, from)));
    }

    /// Takes in what another one knows.
    pub fn extend(&mut self, other: &Self) {
        let Some((other_ns, other_from)) = other.origin else { return };
        let (from_ns, from) = *self.origin.get_or_insert((other_ns, other_from));
        let (at, up) = (other_ns.wrapping_sub(from_ns).cast_signed() as f64, difference_ns(other_from, from));
        other.highs.0.iter().for_each(|(x, y)| self.highs.push((x + at, y + up)));
        other.lows.0.iter().for_each(|(x, y)| self.lows.push((x + at, y - up)));
    }

    /// Least and largest offset at an instant of our clock, nanoseconds. `None`: nothing is known, no message was answered, or the round trips contradict
    /// each other, since a machine was suspended or a peer lies.
    pub fn range(&self, at_ns: u64) -> Option<(i64, i64)> {
        let line = self.line().filter(|_| !self.lows.0.is_empty())?;
        let at = line.after(at_ns);
        let (first, last) = (self.feasible(line.rate, -DRIFT), self.feasible(line.rate, DRIFT));
        let high = |rate: f64| self.highs.least(rate, at);
        let low = |rate: f64| -self.lows.least(-rate, at);
        let top = high(peak(high, first, last, false));
        let bottom = low(peak(|rate| -low(rate), first, last, false));
        // Offsets are far below the limits of i64, except at a peer that lies: then the conversion saturates.
        #[expect(clippy::cast_possible_truncation)]
        let whole = |ns: f64| line.from.saturating_add(ns as i64);
        Some((whole((bottom - ROUNDING_NS).floor()), whole((top + ROUNDING_NS).ceil())))
    }

    /// The line in the middle, at the rate that leaves the most room above and below. `None` as in [`Self::range`].
    ///
    /// That rate also leaves the least delay in sum over all messages of both directions, so it stays right where one
    /// direction has a queue most of the time. A queue that grows all the time looks like a drift: one clock has none.
    pub fn line(&self) -> Option<Line> {
        let (from_ns, from) = self.origin?;
        if let (Some(first), Some(last), true) = (self.highs.0.first(), self.highs.0.last(), self.lows.0.is_empty()) {
            // The rate that leaves the least delay in sum: the highest line in the middle.
            let middle = first.0.midpoint(last.0);
            let highest = |rate: f64| self.highs.least(rate, middle);
            let rate = peak(highest, -DRIFT, DRIFT, false).midpoint(peak(highest, -DRIFT, DRIFT, true));
            return Some(Line { from_ns, from, start: self.highs.least(rate, 0.0), rate, least: 0.0 });
        }
        let room = |rate: f64| self.room(rate);
        let rate = if self.is_one_clock(from) {
            0.0
        } else {
            peak(room, -DRIFT, DRIFT, false).midpoint(peak(room, -DRIFT, DRIFT, true))
        };
        let room = room(rate);
        (room >= -ROUNDING_NS).then(|| {
            let start = self.highs.least(rate, 0.0) - room / 2.0;
            Line { from_ns, from, start, rate, least: room.max(0.0) / 2.0 }
        })
    }

    /// Whether both ends may read one clock: no offset and no drift fit all round trips. Clocks that count from the boots of two
    /// machines are further apart than a round trip takes.
    fn is_one_clock(&self, from: i64) -> bool {
        let zero = -difference_ns(from, 0);
        self.highs.least(0.0, 0.0) >= zero && -self.lows.least(0.0, 0.0) <= zero
    }

    /// Room between the highest lower and the lowest upper bound, for lines of this rate.
    fn room(&self, rate: f64) -> f64 {
        self.highs.least(rate, 0.0) + self.lows.least(-rate, 0.0)
    }

    /// The rate closest to `end` at which there is a line, from one at which there is.
    fn feasible(&self, from: f64, end: f64) -> f64 {
        if self.room(end) >= -ROUNDING_NS {
            return end;
        }
        let (mut good, mut bad) = (from, end);
        for _ in 0..60 {
            let middle = good.midpoint(bad);
            *(if self.room(middle) >= -ROUNDING_NS { &mut good } else { &mut bad }) = middle;
        }
        good
    }
}

/// An offset that changes at a constant rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    from_ns: u64,
    from: i64,
    /// Offset at `from_ns`, less `from`.
    start: f64,
    /// Nanoseconds per nanosecond.
    pub rate: f64,
    /// The least delay of a message, nanoseconds, in both directions: the line is in the middle.
    pub least: f64,
}

impl Line {
    fn after(&self, at_ns: u64) -> f64 {
        at_ns.wrapping_sub(self.from_ns).cast_signed() as f64
    }

    /// The offset at an instant of our clock, nanoseconds.
    pub fn offset_ns(&self, at_ns: u64) -> i64 {
        // Far below the limits of i64.
        #[expect(clippy::cast_possible_truncation)]
        let apart = (self.start + self.rate * self.after(at_ns)).round() as i64;
        self.from.saturating_add(apart)
    }

    /// The delay of a message that shows this difference of the two clocks, nanoseconds: with the sign of one that arrives
    /// there.
    pub fn delay_ns(&self, at_ns: u64, difference: i64) -> f64 {
        difference_ns(difference, self.from) - self.start - self.rate * self.after(at_ns)
    }
}

/// Their difference; of a peer that lies it may exceed an `i64`.
fn difference_ns(a: i64, b: i64) -> f64 {
    (i128::from(a) - i128::from(b)) as f64
}

/// A lower convex hull: its corners by time, only between edges of possible rates.
#[derive(Clone, Debug, Default, PartialEq)]
struct Hull(Vec<(f64, f64)>);

impl Hull {
    fn push(&mut self, point: (f64, f64)) {
        if self.0.last().is_none_or(|last| last.0 <= point.0) {
            return self.append(point);
        }
        // An answer that others overtook.
        let mut all = std::mem::take(&mut self.0);
        all.push(point);
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        for point in all {
            self.append(point);
        }
    }

    fn append(&mut self, (x, y): (f64, f64)) {
        // Above every line of a possible rate that the last corner allows: nearly all points.
        if self.0.last().is_some_and(|last| y > last.1 + DRIFT * (x - last.0)) {
            return;
        }
        while let Some(last) = self.0.last() {
            let beneath = last.1 >= y + DRIFT * (x - last.0);
            let inside = self.0.len().checked_sub(2).is_some_and(|at| {
                let before = self.0[at];
                (last.0 - before.0) * (y - before.1) <= (last.1 - before.1) * (x - before.0)
            });
            if !beneath && !inside {
                break;
            }
            self.0.pop();
        }
        self.0.push((x, y));
        if self.0.len() > MOST_CORNERS {
            let mut number = 0usize;
            self.0.retain(|_| {
                number += 1;
                number % 2 == 1 || number > MOST_CORNERS
            });
        }
    }

    /// The least value at `at` of lines of this rate through its corners: the highest line below all of them.
    fn least(&self, rate: f64, at: f64) -> f64 {
        self.0.iter().map(|(x, y)| y - rate * (x - at)).fold(f64::INFINITY, f64::min)
    }
}

/// The place at which a concave function is largest; of several such places the first or the last one.
fn peak(of: impl Fn(f64) -> f64, mut low: f64, mut high: f64, last: bool) -> f64 {
    /// Differences below this are rounding, nanoseconds.
    const EQUAL: f64 = 1e-3;
    for _ in 0..80 {
        let third = (high - low) / 3.0;
        let (a, b) = (low + third, high - third);
        let margin = if last { -EQUAL } else { EQUAL };
        if of(a) + margin < of(b) { low = a } else { high = b }
    }
    low.midpoint(high)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A clock that is ahead of ours, and runs faster.
    #[derive(Clone, Copy, Debug)]
    struct Truth {
        offset: i64,
        ppm: f64,
    }

    const BEGIN: u64 = 1 << 50;

    impl Truth {
        #[expect(clippy::cast_possible_truncation)]
        fn theirs(self, after: u64) -> u64 {
            (BEGIN + after).checked_add_signed(self.offset + (after as f64 * self.ppm / 1e6).round() as i64).unwrap()
        }

        /// A round trip that leaves at an instant, and takes so long there, inside and back.
        fn trip(self, at: u64, (out, there, back): (u64, u64, u64)) -> RoundTrip {
            RoundTrip {
                sent_ns: BEGIN + at,
                arrived_ns: self.theirs(at + out),
                answered_ns: self.theirs(at + out + there),
                received_ns: BEGIN + at + out + there + back,
            }
        }

        fn offset_at(self, after: u64) -> i64 {
            self.theirs(after).cast_signed() - (BEGIN + after).cast_signed()
        }
    }

    fn truths() -> impl Strategy<Value = Truth> {
        (-(1i64 << 48)..1 << 48, -190.0..190.0).prop_map(|(offset, ppm)| Truth { offset, ppm })
    }

    fn ways() -> impl Strategy<Value = (u64, u64, u64)> {
        (500u64..200_000, 0u64..100_000, 500u64..200_000)
    }

    proptest! {
        #[test]
        fn the_truth_lies_within_the_range_at_any_instant(
            truth in truths(),
            trips in prop::collection::vec((0u64..10_000_000_000, ways()), 1..200),
            at in 0u64..20_000_000_000,
        ) {
            let mut envelope = Envelope::default();
            let mut parts = [Envelope::default(), Envelope::default()];
            for (number, (begin, ways)) in trips.iter().enumerate() {
                envelope.push(&truth.trip(*begin, *ways));
                parts[number % 2].push(&truth.trip(*begin, *ways));
            }
            let (low, high) = envelope.range(BEGIN + at).unwrap();
            let offset = truth.offset_at(at);
            prop_assert!((low..=high).contains(&offset), "{offset} is not in {low}..={high}");
            // Two streams between the same hosts know as much as one.
            let mut joined = parts[1].clone();
            joined.extend(&parts[0]);
            let (low_of, high_of) = joined.range(BEGIN + at).unwrap();
            prop_assert!(low_of.abs_diff(low) <= 3 && high_of.abs_diff(high) <= 3);
            // No wider than any of the round trips alone.
            let widest = |(begin, (out, there, back)): &(u64, (u64, u64, u64))| {
                let end = begin + out + there + back;
                out + back + 3 * drift_ns(end - begin) + 2 * drift_ns(at.abs_diff(end)) + 10
            };
            prop_assert!(high.abs_diff(low) <= trips.iter().map(widest).min().unwrap());
        }

        #[test]
        fn the_line_has_the_rate_of_the_clocks_beside_a_queue_in_one_direction(
            truth in truths(), jitter in prop::collection::vec(0u64..4_000, 700), forward: bool,
        ) {
            let mut envelope = Envelope::default();
            for (number, jitter) in (0u64..).zip(&jitter) {
                // Seven seconds, of which the first 1.5 are idle.
                let queue = if number < 150 { 0 } else { 30_000_000 + (number * 7_919 % 40) * 1_000_000 };
                let (out, back) = if forward { (20_000 + queue, 20_000 + jitter) } else { (20_000 + jitter, 20_000 + queue) };
                envelope.push(&truth.trip(number * 10_000_000, (out, 5_000, back)));
            }
            let line = envelope.line().unwrap();
            prop_assert!((line.rate * 1e6 - truth.ppm).abs() < 4.0, "{} {}", line.rate * 1e6, truth.ppm);
            prop_assert!(line.least < 24_000.0);
        }

        #[test]
        fn any_numbers_give_a_range_or_none(trips in prop::collection::vec(any::<(u64, u64, u64, u64)>(), 1..20), at: u64) {
            let mut envelope = Envelope::default();
            for (sent_ns, arrived_ns, answered_ns, received_ns) in trips {
                envelope.push(&RoundTrip { sent_ns, arrived_ns, answered_ns, received_ns });
            }
            if let Some((low, high)) = envelope.range(at) {
                prop_assert!(low <= high);
            }
        }
    }

    /// A peer whose clock stood still for a second, and one that makes its times up.
    #[test]
    fn what_no_pair_of_clocks_shows_has_no_range() {
        let truth = Truth { offset: 7_000_000_000, ppm: 30.0 };
        let mut envelope = Envelope::default();
        for number in 0..100 {
            envelope.push(&truth.trip(number * 10_000_000, (20_000, 5_000, 20_000)));
        }
        assert!(envelope.range(BEGIN).is_some());
        let suspended = Truth { offset: 6_000_000_000, ppm: 30.0 };
        envelope.push(&suspended.trip(1_000_000_000, (20_000, 5_000, 20_000)));
        assert_eq!((envelope.range(BEGIN), envelope.line()), (None, None));
        let mut claims = Envelope::default();
        claims.push(&RoundTrip { sent_ns: 100, arrived_ns: 500, answered_ns: 900, received_ns: 200 });
        assert_eq!(claims, Envelope::default());
    }

    #[test]
    fn memory_stays_small() {
        let mut envelope = Envelope::default();
        for number in 0..200_000u64 {
            // Bounds on a parabola: each of them is a corner.
            let bend = number * number / 2_000_000;
            let trip = Truth { offset: 0, ppm: 0.0 }.trip(number * 1_000_000, (50_000 + bend, 0, 50_000 + bend));
            envelope.push(&trip);
        }
        assert!(envelope.highs.0.len() <= MOST_CORNERS && envelope.lows.0.len() <= MOST_CORNERS);
        assert!(envelope.range(BEGIN).unwrap().0 <= 0);
    }
}
