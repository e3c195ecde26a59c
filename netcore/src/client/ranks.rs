//! A test of several ranks, each on a daemon, and what their reports come to.

use std::net::IpAddr;

use super::{
    ClientError, Observer, Prepared, RunningTest, Session, Timeouts,
    arrivals::{Arrivals, RankClock},
    plausible::slowest_clock,
    ready::{Daemons, token},
    running::{Party, Plan},
};
use crate::{
    control::{message::Part, stop::StopFlag},
    measure::clock::monotonic_ns,
    report::{Ending, RankReport, Report},
    spec::ranks::RanksSpec,
};

/// One rank of a test.
pub struct RankSeat<'s> {
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
    seats: Vec<RankSeat<'s>>,
    spec: &RanksSpec,
    timeouts: Timeouts,
) -> Result<Prepared<'s>, ClientError> {
    let ranks = u32::try_from(seats.len()).unwrap_or(u32::MAX);
    let (sessions, addresses): (Vec<_>, Vec<_>) = seats.into_iter().map(|seat| (seat.session, seat.address)).unzip();
    let part = |rank| Part::Rank { spec: Box::new(spec.clone()), rank, ranks };
    let mut there = Daemons(sessions);
    let places = there.prepare((0..ranks).map(part).zip(addresses), token()?)?;
    there.0.iter_mut().try_for_each(|session| session.connect_part(places.clone()))?;
    there.await_connected()?;
    Ok(there.ready(|limit_ns| Plan::of_ranks(spec, timeouts, limit_ns)))
}

impl RunningTest<'_> {
    /// [`RunningTest::wait`] for a test of ranks.
    pub fn wait_ranks(mut self, observer: &mut dyn Observer, stop: &StopFlag) -> Result<RanksOutcome, ClientError> {
        let before: Vec<_> = self.parties.iter().filter_map(Party::clock).collect();
        self.watch(observer, stop)?;
        let mut reports = Vec::with_capacity(self.parties.len());
        let mut clocks = Vec::with_capacity(self.parties.len());
        let lasted_ns = monotonic_ns().saturating_sub(self.t0_ns());
        for (number, (rank, before)) in (0..).zip(self.parties.iter_mut().zip(before)) {
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
