//! A test of several ranks, each on a daemon: all prepared, joined with each other, started at one instant, and their
//! reports.

use std::{
    net::IpAddr,
    os::fd::AsFd,
    time::{Duration, Instant},
};

use super::{
    ClientError, HostLabel, Session, Timeouts,
    arrivals::{Arrivals, RankClock},
    plausible::slowest_clock,
    ready::{start_session, token},
    running::MESSAGES_A_TURN,
};
use crate::{
    control::{
        event::wait_any,
        message::{Connect, Part, Peer, Prepare, Reply, ReportBuilder, Request},
        stop::{StopFlag, Urgency},
    },
    measure::clock::{monotonic_ns, nanoseconds},
    report::{Ending, RankReport, Report},
    spec::ranks::RanksSpec,
};

/// Time for the threads to wake up before the load, besides the time that the messages take.
const LEAD: Duration = Duration::from_millis(10);

/// Time added to the common start per rank: telling one takes a message.
const LEAD_PER_RANK: Duration = Duration::from_micros(100);

/// After one rank has failed, the others learn of it from their connections, and report within this time.
const LAST_WORDS: Duration = Duration::from_secs(3);

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

/// A test whose ranks are connected and wait for their start. Dropping it makes all daemons forget it.
pub struct PreparedRanks<'s> {
    ranks: Ranks<'s>,
    spec: RanksSpec,
    timeouts: Timeouts,
}

/// Ranks under load. Dropping it ends them at once.
pub struct RunningRanks<'s> {
    ranks: Ranks<'s>,
    deadline: Instant,
    timeouts: Timeouts,
    t0_ns: u64,
}

struct Ranks<'s>(Vec<Rank<'s>>);

struct Rank<'s> {
    session: &'s mut Session,
    pieces: ReportBuilder,
    report: Option<RankReport>,
}

impl Drop for Ranks<'_> {
    fn drop(&mut self) {
        self.0.iter_mut().filter(|rank| rank.report.is_none()).for_each(|rank| rank.session.forget());
    }
}

/// Makes a test ready: every rank listens, then each connects to those before it. Daemons that give turns need
/// [`super::take_turns`] before. After an error all daemons forget the test.
pub fn prepare_ranks<'s>(
    seats: Vec<RankSeat<'s>>,
    spec: &RanksSpec,
    timeouts: Timeouts,
) -> Result<PreparedRanks<'s>, ClientError> {
    let addresses: Vec<Option<IpAddr>> = seats.iter().map(|seat| seat.address).collect();
    let of = |seat: RankSeat<'s>| Rank { session: seat.session, pieces: ReportBuilder::of_rank(), report: None };
    let mut ranks = Ranks(seats.into_iter().map(of).collect());
    let count = u32::try_from(ranks.0.len()).unwrap_or(u32::MAX);
    let token = token()?;
    ranks.each(Session::begin)?;
    for (number, (rank, address)) in (0..).zip(ranks.0.iter_mut().zip(&addresses)) {
        let part = Part::Rank { spec: Box::new(spec.clone()), rank: number, ranks: count };
        rank.session.has_turn = false;
        rank.session.send(&Request::Prepare(Box::new(Prepare { part, token, data_address: *address })))?;
    }
    let mut peers = Vec::with_capacity(ranks.0.len());
    for (rank, address) in ranks.0.iter_mut().zip(&addresses) {
        let session = &mut *rank.session;
        let mut endpoints = session.expect("prepare", session.timeouts.reply, |reply| match reply {
            Reply::Prepared(endpoints) => Ok(endpoints),
            other => Err(other),
        })?;
        session.route(&mut endpoints, *address);
        peers.push(Peer { address: address.unwrap_or(session.peer().address), endpoints });
    }
    for rank in &mut ranks.0 {
        let within_ns = nanoseconds(rank.session.timeouts.ready);
        rank.session.send(&Request::Connect(Connect { peers: peers.clone(), within_ns }))?;
    }
    ranks.await_joined()?;
    Ok(PreparedRanks { ranks, spec: spec.clone(), timeouts })
}

impl Ranks<'_> {
    fn each(&mut self, mut act: impl FnMut(&mut Session) -> Result<(), ClientError>) -> Result<(), ClientError> {
        self.0.iter_mut().try_for_each(|rank| act(rank.session))
    }

    /// Waits until every daemon says that its rank is connected. The first one that answers with an error knows why.
    fn await_joined(&mut self) -> Result<(), ClientError> {
        let mut joined = vec![false; self.0.len()];
        let patience = self.0.iter().map(|rank| rank.session.time_to_connect()).max().unwrap_or_default();
        let deadline = Instant::now() + patience;
        while joined.contains(&false) {
            for (rank, joined) in self.0.iter_mut().zip(&mut joined).filter(|(_, joined)| !**joined) {
                match rank.session.try_recv()? {
                    Some(Reply::Ready) => *joined = true,
                    Some(other) => return Err(rank.session.unexpected("connect", other)),
                    None => {}
                }
            }
            let waiting = self.0.iter().zip(&joined).filter(|(_, joined)| !**joined).map(|(rank, _)| rank);
            let fds: Vec<_> = waiting.map(|rank| Some(rank.session.channel.as_fd())).collect();
            if fds.is_empty() {
                break;
            }
            if Instant::now() >= deadline {
                let silent = self.0.iter().zip(&joined).find(|(_, joined)| !**joined);
                let host = silent.map_or_else(nobody, |(rank, _)| rank.session.host.clone());
                return Err(ClientError::Silent { host, seconds: patience.as_secs_f64() });
            }
            wait_any(&fds, Some(deadline))
                .map_err(|source| ClientError::System { what: "waiting for the ranks to connect failed", source })?;
        }
        Ok(())
    }
}

fn nobody() -> HostLabel {
    HostLabel { name: "local".to_owned(), control: "this process".to_owned(), launched: false }
}

impl<'s> PreparedRanks<'s> {
    /// Starts all ranks at the same instant, as soon as all can know it.
    pub fn start(self) -> Result<RunningRanks<'s>, ClientError> {
        let Self { mut ranks, spec, timeouts } = self;
        let rtt_ns = ranks.0.iter().map(|rank| rank.session.peer().clock.rtt_ns).max().unwrap_or(0);
        let count = u32::try_from(ranks.0.len()).unwrap_or(u32::MAX);
        let lead = LEAD + LEAD_PER_RANK * count + Duration::from_nanos(rtt_ns.saturating_mul(2));
        let t0_ns = monotonic_ns() + nanoseconds(lead);
        let is_open = spec.length_ns().is_none();
        ranks.each(|session| start_session(session, t0_ns, is_open))?;
        let granted = ranks.0.iter().map(|rank| rank.session.peer().limits.duration_ns).min().unwrap_or(u64::MAX);
        let longest = nanoseconds(timeouts.counted).min(granted);
        let length = Duration::from_nanos(spec.length_ns().unwrap_or(longest));
        let deadline = Instant::now() + lead + length + timeouts.grace;
        Ok(RunningRanks { ranks, deadline, timeouts, t0_ns })
    }
}

impl RunningRanks<'_> {
    /// Begin of the load on this host's monotonic clock, nanoseconds.
    pub fn t0_ns(&self) -> u64 {
        self.t0_ns
    }

    /// Waits for the end of the test. A raised `stop` ends the measurement early, raised twice it ends everything at once and
    /// there is no outcome.
    pub fn wait(mut self, stop: &StopFlag) -> Result<RanksOutcome, ClientError> {
        let before: Vec<_> = self.ranks.0.iter().map(|rank| rank.session.peer().clock).collect();
        self.watch(stop)?;
        let mut reports = Vec::with_capacity(self.ranks.0.len());
        let mut clocks = Vec::with_capacity(self.ranks.0.len());
        let lasted_ns = monotonic_ns().saturating_sub(self.t0_ns);
        for (number, (rank, before)) in (0..).zip(self.ranks.0.iter_mut().zip(before)) {
            // watch() returns only when all are done.
            let report = rank.report.take().expect("the rank has finished");
            if let Some(contradiction) = contradiction(&report, number, lasted_ns) {
                return Err(rank.session.invalid(format!("a report cannot be true: {contradiction}")));
            }
            reports.push(report);
            rank.session.compare_clocks()?;
            clocks.push(RankClock::between(rank.session, before));
        }
        let arrivals = Arrivals::of(&reports, &clocks);
        Ok(RanksOutcome { reports, t0_ns: self.t0_ns, arrivals })
    }

    fn watch(&mut self, stop: &StopFlag) -> Result<(), ClientError> {
        let mut seen = Urgency::None;
        let mut deadline = self.deadline;
        loop {
            let mut more = false;
            for rank in self.ranks.0.iter_mut().filter(|rank| rank.report.is_none()) {
                more |= rank.pump()?;
            }
            let now = Instant::now();
            let failed =
                |rank: &Rank<'_>| rank.report.as_ref().is_some_and(|report| matches!(report.ending, Ending::Failed(_)));
            if self.ranks.0.iter().any(failed) {
                deadline = deadline.min(now + LAST_WORDS.max(self.timeouts.reply));
            }
            let waiting: Vec<&Rank<'_>> = self.ranks.0.iter().filter(|rank| rank.report.is_none()).collect();
            let Some(first) = waiting.first() else { return Ok(()) };
            if now >= deadline {
                let host = first.session.host.clone();
                return Err(ClientError::Silent { host, seconds: self.timeouts.grace.as_secs_f64() });
            }
            // A daemon that never pauses must keep neither the others nor the stop flag.
            if more && stop.urgency() == seen {
                continue;
            }
            let mut fds: Vec<_> = waiting.iter().map(|rank| Some(rank.session.channel.as_fd())).collect();
            fds.push(stop.beyond(seen));
            wait_any(&fds, Some(deadline))
                .map_err(|source| ClientError::System { what: "waiting for the ranks failed", source })?;
            if stop.urgency() > seen {
                seen = stop.urgency();
                if seen == Urgency::Now {
                    return Err(ClientError::Interrupted);
                }
                deadline = deadline.min(Instant::now() + self.timeouts.grace);
                for rank in &mut self.ranks.0 {
                    if let Some(at_ns) = rank.session.peer().clock.to_theirs(monotonic_ns()) {
                        // Fails only if the connection is broken, and the next pump reports that better.
                        let _ = rank.session.send(&Request::Stop { at_ns });
                    }
                }
            }
        }
    }
}

impl Rank<'_> {
    /// Handles some of what has arrived. Returns whether there may be more.
    fn pump(&mut self) -> Result<bool, ClientError> {
        for _ in 0..MESSAGES_A_TURN {
            match self.session.try_recv()? {
                None => return Ok(false),
                Some(Reply::Report { text, last }) => {
                    self.report = match self.pieces.add(&text, last).map_err(|reason| self.session.invalid(reason))? {
                        Some(Report::Rank(report)) => Some(*report),
                        Some(Report::End(_)) => return Err(self.session.invalid("it reports as an end".to_owned())),
                        None => None,
                    };
                    if self.report.is_some() {
                        self.session.completed();
                        return Ok(false);
                    }
                }
                Some(other) => return Err(self.session.unexpected("start", other)),
            }
        }
        Ok(true)
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
