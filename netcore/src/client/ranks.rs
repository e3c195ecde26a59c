//! A test of several ranks, each on a daemon, and what their reports come to: also who came late to collective operations, told
//! apart from the operation's own time.

use std::net::IpAddr;

use super::{
    ClientError, Observer, Prepared, RunningTest, Session, Timeouts,
    plausible::slowest_clock,
    ready::{Daemons, token},
    running::{Participant, Plan},
};
use crate::{
    control::{clock::ClockOffset, message::Part, stop::StopFlag},
    measure::{clock::monotonic_ns, host::HostFacts},
    report::{Ending, RankReport, Report},
    spec::ranks::RanksSpec,
};

/// The longest report of a rank, bytes: its notes, a histogram, and the instants of its operations.
pub(crate) const REPORT_BYTES: usize = 4 << 20;

/// One rank of a test.
pub struct RankSession<'s> {
    pub session: &'s mut Session,
    /// The address that other ranks connect to, and connect from; `None`: the one at which its daemon was reached.
    pub address: Option<IpAddr>,
}

/// The result of one iteration.
#[derive(Clone, Debug, PartialEq)]
pub struct RanksOutcome {
    /// By rank.
    pub reports: Vec<RankReport>,
    /// Planned begin of the load on the client's monotonic clock, nanoseconds.
    pub t0_ns: u64,
    /// Arrival at the operations, by the clocks of all ranks; `None`: the ranks have told of none.
    pub arrivals: Option<Arrivals>,
}

/// Makes a test ready: every rank listens, then each connects to those before it. Daemons that give turns need
/// [`super::take_turns`] before. After an error all daemons forget the test.
pub fn prepare_ranks<'s>(
    parts: Vec<RankSession<'s>>,
    spec: &RanksSpec,
    timeouts: Timeouts,
) -> Result<Prepared<'s>, ClientError> {
    let ranks = u32::try_from(parts.len()).unwrap_or(u32::MAX);
    let (sessions, addresses): (Vec<_>, Vec<_>) = parts.into_iter().map(|part| (part.session, part.address)).unzip();
    let part = |rank| Part::Rank { spec: Box::new(spec.clone()), rank, ranks };
    let mut there = Daemons(sessions);
    let places = there.prepare((0..ranks).map(part).zip(addresses), token()?)?;
    there.0.iter_mut().try_for_each(|session| session.connect_part(places.clone()))?;
    there.await_connected()?;
    Ok(there.ready(|limit_ns| Plan::of_others(spec.length_ns(), REPORT_BYTES, timeouts, limit_ns)))
}

impl RunningTest<'_> {
    /// [`RunningTest::wait`] for a test of ranks.
    pub fn wait_ranks(mut self, observer: &mut dyn Observer, stop: &StopFlag) -> Result<RanksOutcome, ClientError> {
        let before: Vec<_> = self.participants.iter().filter_map(Participant::clock).collect();
        self.watch(observer, stop)?;
        let mut reports = Vec::with_capacity(self.participants.len());
        let mut clocks = Vec::with_capacity(self.participants.len());
        let lasted_ns = monotonic_ns().saturating_sub(self.t0_ns());
        for (number, (rank, before)) in (0..).zip(self.participants.iter_mut().zip(before)) {
            let Some(Report::Rank(report)) = rank.report.take() else {
                return Err(rank.invalid("it does not report as a rank".to_owned()));
            };
            if let Some(contradiction) = contradiction(&report, number, lasted_ns) {
                return Err(rank.invalid(format!("a report cannot be true: {contradiction}")));
            }
            reports.push(*report);
            if let Some(session) = rank.session() {
                session.compare_clocks()?;
                clocks.push(RankClock::between(session, before));
            }
        }
        let arrivals = Arrivals::of(&reports, &clocks);
        Ok(RanksOutcome { reports, t0_ns: self.t0_ns(), arrivals })
    }
}

/// Why the report of this rank cannot be true, as a sentence. `lasted_ns`: from the begin of the load until all reports were
/// there.
pub(crate) fn contradiction(report: &RankReport, rank: u32, lasted_ns: u64) -> Option<&'static str> {
    let most_ns = slowest_clock(lasted_ns);
    let longest_ns = report.instants.iter().map(|(_, exit)| *exit).max().unwrap_or(0).max(report.elapsed_ns);
    [
        (report.rank != rank, "it is that of another rank"),
        (report.instants.iter().any(|(entry, exit)| entry > exit), "an operation ended before it began"),
        (report.operations == 0 && matches!(report.ending, Ending::Complete), "it is complete and has no operation"),
        (
            report.sum_ns > report.elapsed_ns.saturating_add(report.elapsed_ns / 10),
            "its operations took longer than the whole",
        ),
        (longest_ns > most_ns, "it measured for longer than the test lasted"),
    ]
    .into_iter()
    .find_map(|(holds, sentence)| holds.then_some(sentence))
}

/// Relation of a rank's clock to this host's over a test, from comparisons before and after it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RankClock {
    before: ClockOffset,
    after: ClockOffset,
    /// Whether it is the same clock: processes of one machine.
    same: bool,
}

impl RankClock {
    /// After a test, from the session's comparison then and an earlier one.
    pub(super) fn between(session: &Session, before: ClockOffset) -> Self {
        let peer = session.peer();
        let boot = HostFacts::boot_id();
        let close = |clock: &ClockOffset| clock.offset_ns.unsigned_abs() <= clock.bound_ns;
        // A time namespace has the same boot id and another monotonic clock.
        let same = boot.is_some() && peer.host.boot_id == boot && close(&before) && close(&peer.clock);
        Self { before, after: peer.clock, same }
    }

    fn bound_ns(&self) -> u64 {
        if self.same { 0 } else { self.before.bound_ns.max(self.after.bound_ns) }
    }

    /// An instant of the rank's clock on this host's, nanoseconds, along the line between the two comparisons.
    fn to_ours(self, theirs_ns: u64) -> f64 {
        if self.same {
            return theirs_ns as f64;
        }
        let at = |clock: &ClockOffset| clock.theirs.monotonic_ns as f64;
        let (first, last) = (at(&self.before), at(&self.after));
        let part = if last > first { ((theirs_ns as f64 - first) / (last - first)).clamp(0.0, 1.0) } else { 0.0 };
        let offset_ns = self.before.offset_ns as f64 * (1.0 - part) + self.after.offset_ns as f64 * part;
        theirs_ns as f64 - offset_ns
    }
}

/// Arrival at the operations of a test, over those whose instants all ranks know.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrivals {
    /// Time from entry to exit at the slowest rank of each operation, mean, nanoseconds. Clocks have no part in it.
    pub slowest_ns: f64,
    /// From the entry of the first rank to that of the last one, mean, nanoseconds.
    pub spread_ns: f64,
    /// From the entry of the last rank to the last exit, mean, nanoseconds.
    pub own_ns: f64,
    /// Bound of the error of both, nanoseconds.
    pub bound_ns: u64,
    /// Operations that were looked at.
    pub operations: usize,
}

impl Arrivals {
    /// `None`: the ranks tell of no common operation.
    pub(super) fn of(reports: &[RankReport], clocks: &[RankClock]) -> Option<Self> {
        let stride = reports.first()?.stride;
        if reports.iter().any(|report| report.stride != stride) {
            return None;
        }
        let operations = reports.iter().map(|report| report.instants.len()).min().filter(|count| *count > 0)?;
        // Of this host's clock only differences within a test matter, and a double holds them to a nanosecond from here on.
        let origin = clocks[0].to_ours(reports[0].monotonic_start_ns);
        let (mut slowest, mut spread, mut own) = (0.0, 0.0, 0.0);
        for number in 0..operations {
            let mut longest_ns = 0;
            let (mut first, mut last, mut exit) = (f64::INFINITY, f64::NEG_INFINITY, f64::NEG_INFINITY);
            for (report, clock) in reports.iter().zip(clocks) {
                let (entered, left) = report.instants[number];
                let entry = clock.to_ours(report.monotonic_start_ns.saturating_add(entered)) - origin;
                first = first.min(entry);
                last = last.max(entry);
                exit = exit.max(entry + (left - entered) as f64);
                longest_ns = longest_ns.max(left - entered);
            }
            slowest += longest_ns as f64;
            spread += last - first;
            own += (exit - last).max(0.0);
        }
        let mut bounds: Vec<u64> = clocks.iter().map(RankClock::bound_ns).collect();
        bounds.sort_unstable();
        // Two clocks are compared: the least known ones.
        let bound_ns = bounds.iter().rev().take(2).sum();
        let count = operations as f64;
        Some(Self { slowest_ns: slowest / count, spread_ns: spread / count, own_ns: own / count, bound_ns, operations })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{ClockReading, Ending};

    #[test]
    fn a_rank_measures_no_longer_than_its_test_and_for_itself() {
        let report = RankReport {
            elapsed_ns: 1_000_000_000,
            operations: 1,
            sum_ns: 900_000_000,
            instants: vec![(0, 900_000_000)],
            ..RankReport::empty(1, Ending::Complete)
        };
        let of = |report: &RankReport| contradiction(report, 1, 1_000_000_000);
        assert_eq!(of(&report), None);
        for (change, words) in [
            ((|report| report.rank = 0) as fn(&mut RankReport), "another rank"),
            (|report| report.elapsed_ns = 2_000_000_000, "longer than the test"),
            (|report| report.instants[0].1 = u64::MAX, "longer than the test"),
            (|report| report.sum_ns = u64::MAX, "longer than the whole"),
            (|report| report.operations = 0, "no operation"),
        ] {
            let mut wrong = report.clone();
            change(&mut wrong);
            let said = of(&wrong).unwrap();
            assert!(said.contains(words), "{said}");
        }
    }

    fn clock(offset_ns: i64, moved_ns: i64) -> RankClock {
        let at = |ours: u64, offset_ns: i64| ClockOffset {
            offset_ns,
            bound_ns: 1_000,
            theirs: ClockReading {
                monotonic_ns: ours.checked_add_signed(offset_ns).unwrap(),
                ..ClockReading::default()
            },
            ..ClockOffset::default()
        };
        RankClock {
            before: at(10_000_000_000, offset_ns),
            after: at(20_000_000_000, offset_ns + moved_ns),
            same: false,
        }
    }

    fn report(rank: u32, start_ns: u64, instants: &[(u64, u64)]) -> RankReport {
        RankReport {
            monotonic_start_ns: start_ns,
            instants: instants.to_vec(),
            ..RankReport::empty(rank, Ending::Complete)
        }
    }

    /// Rank 1 comes 3 µs late to the first operation and 1 µs to the second; the operation takes 5 µs from there.
    #[test]
    fn late_arrival_is_no_part_of_the_operation() {
        let clocks = [clock(0, 0), clock(7_000_000_000, 0)];
        let reports = [
            report(0, 15_000_000_000, &[(0, 8_000), (100_000, 105_500)]),
            report(1, 22_000_000_000, &[(3_000, 7_900), (101_000, 106_000)]),
        ];
        let arrivals = Arrivals::of(&reports, &clocks).unwrap();
        assert!((arrivals.slowest_ns - 6_750.0).abs() < 0.1, "{arrivals:?}");
        assert!((arrivals.spread_ns - 2_000.0).abs() < 10.0, "{arrivals:?}");
        assert!((arrivals.own_ns - 5_000.0).abs() < 10.0, "{arrivals:?}");
        assert_eq!((arrivals.bound_ns, arrivals.operations), (2_000, 2));
    }

    /// A clock that gains 10 µs a second is 50 µs ahead in the middle of ten seconds.
    #[test]
    fn a_clock_that_runs_faster_is_followed() {
        let clocks = [clock(0, 0), clock(1_000_000, 100_000)];
        let reports = [report(0, 15_000_000_000, &[(0, 10_000)]), report(1, 15_001_050_000, &[(0, 10_000)])];
        let arrivals = Arrivals::of(&reports, &clocks).unwrap();
        assert!(arrivals.spread_ns < 20.0, "{arrivals:?}");
    }

    #[test]
    fn ranks_that_looked_at_other_operations_are_not_compared() {
        let clocks = [clock(0, 0), clock(0, 0)];
        let mut reports = [report(0, 15_000_000_000, &[(0, 1)]), report(1, 15_000_000_000, &[(0, 1)])];
        reports[1].stride = 2;
        assert_eq!(Arrivals::of(&reports, &clocks), None);
        assert_eq!(Arrivals::of(&[], &[]), None);
    }
}
