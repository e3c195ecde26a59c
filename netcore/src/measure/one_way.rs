//! Delays of requests and of their answers, told apart, and those of a stream's messages.
//!
//! A message shows the difference of two clocks. The relation of the clocks is known best at the end of a test, and their drift
//! only then. So the differences are kept until then: all of a short test, of a long one every second, fourth, … message.

use super::{
    envelope::{Envelope, Line, RoundTrip},
    histogram::{self, Histogram},
    outage::OutageWatch,
    reflections::Reflections,
};
use crate::{
    lock::Lock,
    report::{ClockReading, Ending, OneWay, Outages, Reflector},
};

/// Most round trips that are kept of a flow.
const MOST_KEPT: usize = 1 << 15;

/// Memory of the round trips of a flow, bytes.
pub const BYTES: u64 = (MOST_KEPT * (size_of::<Kept>() + size_of::<InHost>())) as u64;

/// Names of the two kinds of figures.
pub const KINDS: [&str; 2] = ["forward_variation", "reverse_variation"];

/// Names of all kinds of figures, with the times in a host: from the program to the interface, and from there to the program. A
/// responder has these alone.
pub const REQUESTER_KINDS: [&str; 4] = [KINDS[0], KINDS[1], "forward_sender_host", "reverse_receiver_host"];
pub const RESPONDER_KINDS: [&str; 2] = ["reverse_sender_host", "forward_receiver_host"];

/// No bound is claimed to be smaller, nanoseconds: the readings of clocks themselves take tens of nanoseconds.
const LEAST_BOUND_NS: u64 = 1_000;

/// The figures of a round trip, or of a message of a stream.
#[derive(Clone, Copy, Debug)]
struct Kept {
    epoch: u64,
    /// When the answer came, on our clock; when the message came, on that of its receiver.
    at_ns: u64,
    /// Their clock at the arrival of the request, minus ours at its departure; the receiver's minus the sender's.
    forward: i64,
    /// Their clock at the departure of the answer, minus ours at its arrival; `None`: a message of a stream, which has no answer.
    reverse: Option<i64>,
}

/// A time that a message spent in this host.
#[derive(Clone, Copy, Debug)]
struct InHost {
    epoch: u64,
    /// Whether the message left, and did not come.
    left: bool,
    ns: u64,
}

/// The round trips or arrivals of a flow.
#[derive(Debug)]
pub struct Trips {
    envelope: Envelope,
    kept: Vec<Kept>,
    /// The first ones, of messages that were sampled.
    in_host: Vec<InHost>,
    /// One of so many is kept.
    every: u64,
    seen: u64,
    /// Whether the kernels told all arrivals.
    kernel: bool,
    pub outages: Option<OutageWatch>,
    /// Only with a reflector at the far end.
    pub reflections: Option<Reflections>,
}

/// A place in which a worker finds the memory for its round trips, and leaves them.
#[derive(Debug)]
pub struct TripsSlot(Lock<Option<Trips>>);

impl TripsSlot {
    pub fn new(trips: Trips) -> Self {
        Self(Lock::new(Some(trips)))
    }

    pub fn take(&self) -> Option<Trips> {
        self.0.lock().take()
    }

    pub fn leave(&self, trips: Option<Trips>) {
        *self.0.lock() = trips;
    }
}

impl Trips {
    /// With all of their memory. `in_host`: whether times in the host are told.
    pub fn new(outages: Option<OutageWatch>, in_host: bool) -> Self {
        Self {
            envelope: Envelope::default(),
            kept: Vec::with_capacity(MOST_KEPT),
            in_host: Vec::with_capacity(if in_host { MOST_KEPT } else { 0 }),
            every: 1,
            seen: 0,
            kernel: true,
            outages,
            reflections: None,
        }
    }

    /// Takes in a round trip that ended in this epoch. `kernel`: whether the kernels told both arrivals.
    #[inline]
    pub fn record(&mut self, epoch: u64, trip: &RoundTrip, kernel: bool) {
        self.envelope.push(trip);
        self.kernel &= kernel;
        // A peer that lies may have any clock: the difference wraps, and its round trips contradict each other.
        self.keep(Kept {
            epoch,
            at_ns: trip.received_ns,
            forward: trip.arrived_ns.wrapping_sub(trip.sent_ns).cast_signed(),
            reverse: Some(trip.answered_ns.wrapping_sub(trip.received_ns).cast_signed()),
        });
    }

    /// Takes in a message of a stream that came in this epoch. `sent_ns` is of its sender's clock.
    #[inline]
    pub fn arrived(&mut self, epoch: u64, number: u64, sent_ns: u64, arrived_ns: u64) {
        self.envelope.push_unanswered(sent_ns, arrived_ns);
        if let Some(outages) = &mut self.outages {
            outages.arrived(number, sent_ns, arrived_ns);
        }
        let forward = arrived_ns.wrapping_sub(sent_ns).cast_signed();
        self.keep(Kept { epoch, at_ns: arrived_ns, forward, reverse: None });
    }

    /// Takes in the time that a message spent in this host: one that `left`, from the program to the interface, or one that came.
    pub fn in_host(&mut self, epoch: u64, left: bool, ns: u64) {
        if self.in_host.len() < MOST_KEPT {
            self.in_host.push(InHost { epoch, left, ns });
        }
    }

    #[inline]
    fn keep(&mut self, kept: Kept) {
        self.seen += 1;
        if !self.seen.is_multiple_of(self.every) {
            return;
        }
        if self.kept.len() == MOST_KEPT {
            let mut number = 0;
            self.kept.retain(|_| {
                number += 1;
                number % 2 == 0
            });
            self.every *= 2;
        }
        self.kept.push(kept);
    }
}

/// The round trips of all flows of an end, which have the same two clocks.
pub struct Collected {
    flows: Vec<(usize, Trips)>,
    envelope: Envelope,
    line: Option<Line>,
}

impl Collected {
    /// `slots`: by flow, where it has one.
    pub fn of<'a>(slots: impl Iterator<Item = Option<&'a TripsSlot>>) -> Self {
        let flows: Vec<(usize, Trips)> =
            slots.enumerate().filter_map(|(flow, slot)| Some((flow, slot?.take()?))).collect();
        let mut envelope = Envelope::default();
        for (_, trips) in &flows {
            envelope.extend(&trips.envelope);
        }
        let line = envelope.line();
        Self { flows, envelope, line }
    }

    /// A sentence if the round trips contradict each other.
    fn contradiction(&self) -> Option<String> {
        let any = self.flows.iter().any(|(_, trips)| trips.seen > 0);
        (any && self.line.is_none()).then(|| {
            "one_way: no two clocks can show these times: a machine was suspended or moved during the test, or its clock drifts by \
             more than 200 parts per million; there are no figures of each direction"
                .to_owned()
        })
    }

    /// Calls `add` with the flow, the index among its kinds, the epoch, and a histogram of delays above the least one.
    pub fn for_each(&self, mut add: impl FnMut(usize, usize, u64, &Histogram<u64>)) {
        for (flow, trips) in &self.flows {
            // Behind the two kinds of a requester, which has round trips.
            let behind = if trips.seen > 0 { KINDS.len() } else { 0 };
            for in_host in trips.in_host.chunk_by(|a, b| a.epoch == b.epoch) {
                let mut both = [histogram::empty(), histogram::empty()];
                for one in in_host {
                    both[usize::from(!one.left)].saturating_record(one.ns);
                }
                both.iter().enumerate().for_each(|(kind, times)| add(*flow, behind + kind, in_host[0].epoch, times));
            }
        }
        let Some(line) = self.line else { return };
        for (flow, trips) in &self.flows {
            for kept in trips.kept.chunk_by(|a, b| a.epoch == b.epoch) {
                let mut both = [histogram::empty(), histogram::empty()];
                for trip in kept {
                    let reverse = trip.reverse.map(|reverse| -line.delay_ns(trip.at_ns, reverse));
                    let delays = [Some(line.delay_ns(trip.at_ns, trip.forward)), reverse];
                    for (histogram, delay) in both.iter_mut().zip(delays.into_iter().flatten()) {
                        // Nonnegative, and far below 2^53.
                        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                        histogram.saturating_record((delay - line.least).max(0.0).round() as u64);
                    }
                }
                let directions = if kept[0].reverse.is_some() { 2 } else { 1 };
                both.iter()
                    .take(directions)
                    .enumerate()
                    .for_each(|(kind, histogram)| add(*flow, kind, kept[0].epoch, histogram));
            }
        }
    }

    /// The outages in a phase between these readings of our clocks, of the only flow.
    pub fn outages(&self, (begin, end): (ClockReading, ClockReading)) -> Option<Outages> {
        self.flows.iter().find_map(|(_, trips)| Some(trips.outages.as_ref()?.between(begin.raw_ns, end.raw_ns)))
    }

    fn reflections(&self) -> impl Iterator<Item = &Reflections> {
        self.flows.iter().filter_map(|(_, trips)| trips.reflections.as_ref())
    }

    /// Sentences about what was wrong.
    pub fn notes(&self) -> impl Iterator<Item = String> {
        self.contradiction().into_iter().chain(self.reflections().flat_map(Reflections::notes))
    }

    /// Losses and TTL by the answers of a reflector in the measure phase, summed over the flows.
    pub fn reflector(&self) -> Option<Reflector> {
        self.reflections().map(Reflections::report).reduce(|a, b| Reflector {
            lost: a.lost.zip(b.lost).map(|(a, b)| (a.0.saturating_add(b.0), a.1.saturating_add(b.1))),
            ttl: a.ttl.into_iter().chain(b.ttl).min(),
        })
    }

    /// The end of a test which ended so: without any answer of its reflector it failed.
    pub fn ending(&self, ending: Ending) -> Ending {
        let silent = || self.reflections().map(Reflections::silence).collect::<Option<Vec<String>>>()?.pop();
        if ending == Ending::Complete { silent().map_or(ending, Ending::Failed) } else { ending }
    }

    /// The relation of the clocks in a phase between these readings of ours.
    pub fn report(&self, (begin, end): (ClockReading, ClockReading)) -> Option<OneWay> {
        let line = self.line?;
        let off = |at_ns: u64| {
            let (low, high) = self.envelope.range(at_ns)?;
            Some(line.delay_ns(at_ns, high).max(-line.delay_ns(at_ns, low)))
        };
        // The range is a convex set of lines: it is widest at one of the ends.
        let bound = off(begin.raw_ns)?.max(off(end.raw_ns)?).ceil();
        // All of these are finite, and conversions saturate.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        Some(OneWay {
            kernel: self.flows.iter().all(|(_, trips)| trips.kernel),
            offset_ns: line.offset_ns(begin.raw_ns),
            bound_ns: (bound as u64).max(LEAST_BOUND_NS),
            drift_ppb: (line.rate * 1e9).round() as i64,
            least_ns: line.least.round() as u64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request takes 20 µs, every third 3 ms; an answer 30 µs. Their clock is an hour ahead and 80 ppm fast.
    fn trips(count: u64, flow: u64) -> Trips {
        let theirs = |ns: u64| ns + 3_600_000_000_000 + ns / 12_500;
        let mut trips = Trips::new(None, false);
        for number in 0..count {
            let sent_ns = 1_000_000_000 + number * 100_000 + flow * 50_000;
            let out = if number % 3 == 2 { 3_000_000 } else { 20_000 };
            let (arrived_ns, received_ns) = (theirs(sent_ns + out), sent_ns + out + 5_000 + 30_000);
            let answered_ns = theirs(sent_ns + out + 5_000);
            trips.record(number / 50_000, &RoundTrip { sent_ns, arrived_ns, answered_ns, received_ns }, true);
        }
        trips
    }

    #[test]
    fn each_direction_has_its_own_variation_whatever_the_clocks_do() {
        let slots: Vec<TripsSlot> = (0..2).map(|flow| TripsSlot::new(trips(100_000, flow))).collect();
        let collected = Collected::of(slots.iter().map(Some).chain([None]));
        assert_eq!(collected.contradiction(), None);
        let mut seen = Vec::new();
        collected.for_each(|flow, kind, epoch, histogram| {
            assert!(histogram.len() > 10_000, "{}", histogram.len());
            seen.push((flow, kind, epoch));
            let [p50, p99] = [0.5, 0.99].map(|q| histogram.value_at_quantile(q));
            let expected = if kind == 0 { 2_980_000 } else { 0 };
            assert!(p50 < 2_000 && p99.abs_diff(expected) < 4_000, "{kind}: {p50} {p99}");
        });
        assert_eq!(seen.len(), 8, "{seen:?}");
        let at = |raw_ns| ClockReading { raw_ns, ..ClockReading::default() };
        let found = collected.report((at(2_000_000_000), at(9_000_000_000))).unwrap();
        assert!(found.kernel && found.least_ns.abs_diff(25_000) < 100, "{found:?}");
        let truth = 3_600_000_000_000 + 2_000_000_000 / 12_500;
        assert!(found.offset_ns.abs_diff(truth) <= found.bound_ns && found.bound_ns < 26_000, "{found:?}");
        assert!((found.drift_ppb - 80_000).abs() < 300, "{found:?}");
        // Taken once.
        assert_eq!(Collected::of(slots.iter().map(Some)).report((at(2), at(9))), None);
    }

    #[test]
    fn a_queue_that_grows_is_no_drift_of_one_clock() {
        let mut trips = Trips::new(None, false);
        for number in 0..30_000 {
            let sent_ns = 1_000_000_000 + number * 100_000;
            let arrived_ns = sent_ns + 10_000 + number * 9;
            let trip =
                RoundTrip { sent_ns, arrived_ns, answered_ns: arrived_ns + 1_000, received_ns: arrived_ns + 6_000 };
            trips.record(0, &trip, true);
        }
        let collected = Collected::of([Some(&TripsSlot::new(trips))].into_iter());
        let at = |raw_ns| ClockReading { raw_ns, ..ClockReading::default() };
        let found = collected.report((at(1_000_000_000), at(4_000_000_000))).unwrap();
        assert!(found.drift_ppb == 0 && found.offset_ns.unsigned_abs() <= found.bound_ns, "{found:?}");
        collected.for_each(|_, kind, _, histogram| {
            let expected = if kind == 0 { 135_000 } else { 0 };
            assert!(histogram.value_at_quantile(0.5).abs_diff(expected) < 2_000, "{kind}");
        });
    }

    #[test]
    fn clocks_that_cannot_be_have_a_sentence_and_no_figures() {
        let mut wrong = trips(10, 0);
        let late = RoundTrip { sent_ns: 1 << 40, arrived_ns: 1, answered_ns: 2, received_ns: (1 << 40) + 1_000 };
        wrong.record(0, &late, false);
        let collected = Collected::of([Some(&TripsSlot::new(wrong))].into_iter());
        assert!(collected.contradiction().unwrap().contains("no two clocks"));
        collected.for_each(|_, _, _, _| unreachable!("no figures"));
        assert_eq!(collected.report(Default::default()), None);
    }
}
