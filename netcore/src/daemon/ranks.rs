//! A rank of a test of several, at this daemon: enlisted, joined with the others, and run.

use std::{
    os::fd::AsFd,
    time::{Duration, Instant},
};

use super::{
    admission,
    budget::Charge,
    log::{Event, Part, TestEnding, TestResult},
    session::{LONGEST_CONNECT, LONGEST_LEAD, Over, Session, State, refusal, reply_error, stopping, unexpected},
    turns::Ticket,
};
use crate::{
    control::{
        channel::ChannelError,
        event::wait,
        message::{Enlist, ErrorCode, Join, Reply, ReplyError, Request, report_pieces},
        stop::Urgency,
    },
    measure::clock::monotonic_ns,
    ranks::{RankEnd, RankRunning},
    report::RankReport,
};

/// A rank before its start.
pub(super) struct RankTest<'s> {
    end: RankEnd,
    enlist: Box<Enlist>,
    _charge: Charge<'s>,
    /// `None`: the daemon is not exclusive.
    pub(super) turn: Option<Ticket<'s>>,
}

/// The end of a rank under load.
enum Ran {
    Reported(Box<RankReport>),
    /// On request of the client.
    Aborted,
    /// The client got this error.
    Refused(ReplyError),
}

impl<'s> Session<'s> {
    pub(super) fn enlist(&mut self, enlist: Box<Enlist>, state: State<'s>) -> Result<(), Over> {
        let turn = if let State::Granted(turn) = state { Some(turn) } else { None };
        match self.admit_rank(&enlist, turn.is_some()) {
            Ok((end, charge)) => {
                let endpoints = end.endpoints();
                self.state = State::Enlisted(RankTest { end, enlist, _charge: charge, turn });
                Ok(self.reply(&Reply::Prepared(endpoints))?)
            }
            Err(error) => {
                self.log_rank(&enlist, TestResult::without_load(refusal(&error)));
                self.refuse(error)
            }
        }
    }

    fn admit_rank(&self, enlist: &Enlist, has_turn: bool) -> Result<(RankEnd, Charge<'s>), ReplyError> {
        self.check_turn(has_turn)?;
        let memory_bytes = admission::rank(&self.shared.config, enlist)?;
        let charge = self.shared.budget.test(&self.shared.config.limits, memory_bytes, enlist.ranks - 1)?;
        let address = enlist.data_address.unwrap_or(self.addresses.local);
        let end = RankEnd::prepare(&enlist.spec, enlist.rank as usize, (Some(address), &self.ports), enlist.token)
            .map_err(|error| reply_error(&error))?;
        Ok((end, charge))
    }

    pub(super) fn join(&mut self, mut test: RankTest<'s>, join: &Join) -> Result<(), Over> {
        match self.meet(&mut test, join) {
            Ok(()) => {
                self.state = State::Joined(test);
                Ok(self.reply(&Reply::Ready)?)
            }
            Err(error) => {
                self.log_rank(&test.enlist, TestResult::without_load(refusal(&error)));
                self.refuse(error)
            }
        }
    }

    fn meet(&self, test: &mut RankTest<'_>, join: &Join) -> Result<(), ReplyError> {
        let Enlist { rank, ranks, .. } = *test.enlist;
        if join.peers.len() != ranks as usize {
            let message = format!("rank {rank} was told of {} ranks, and there are {ranks}", join.peers.len());
            return Err(ReplyError::new(ErrorCode::Refused, message));
        }
        for (_, peer) in join.peers.iter().enumerate().filter(|(other, _)| *other != rank as usize) {
            admission::connect(&self.shared.config, self.addresses, peer)?;
        }
        let peers: Vec<_> = join.peers.iter().map(|peer| (peer.address, peer.endpoints.clone())).collect();
        let within = Duration::from_nanos(join.within_ns).min(LONGEST_CONNECT);
        test.end.connect(&peers, within, &|| self.is_cancelled()).map_err(|error| reply_error(&error))
    }

    pub(super) fn start_rank(&mut self, test: RankTest<'s>, t0_ns: u64) -> Result<(), Over> {
        // The memory and the turn are in use until the report is sent.
        let RankTest { end, enlist, _charge, turn } = test;
        if let Some(turn) = &turn {
            turn.begin_load();
        }
        let began = Instant::now();
        let ran = self.run_rank(end, &enlist, t0_ns);
        let without_report = |ending| TestResult { elapsed: began.elapsed(), ..TestResult::without_load(ending) };
        let result = match &ran {
            Ok(Ran::Reported(report)) => TestResult::of_rank(report),
            Ok(Ran::Aborted) => without_report(TestEnding::Aborted),
            Ok(Ran::Refused(error)) => without_report(refusal(error)),
            Err(over) => without_report(TestEnding::Failed(over.to_string())),
        };
        self.log_rank(&enlist, result);
        ran?;
        Ok(self.watch_idle_client()?)
    }

    fn run_rank(&mut self, end: RankEnd, enlist: &Enlist, t0_ns: u64) -> Result<Ran, Over> {
        let ahead = Duration::from_nanos(t0_ns.saturating_sub(monotonic_ns()));
        if ahead > LONGEST_LEAD {
            let message = format!("a start in {:.0} s is too far ahead", ahead.as_secs_f64());
            return self.refuse_rank(ReplyError::new(ErrorCode::Refused, message));
        }
        let length_ns = enlist.spec.length_ns();
        self.channel.set_keepalive(length_ns.is_none())?;
        let granted = Duration::from_nanos(self.shared.config.limits.duration_ns);
        let length = length_ns.map_or(granted, Duration::from_nanos);
        let deadline = Instant::now() + ahead + length + self.shared.config.timeouts.grace;
        let running = match end.start(t0_ns) {
            Ok(running) => running,
            Err(error) => return self.refuse_rank(reply_error(&error)),
        };
        let _load = self.shared.loads.begin(self.client, t0_ns);
        self.follow(running, deadline)
    }

    fn follow(&mut self, running: RankRunning, deadline: Instant) -> Result<Ran, Over> {
        let mut seen = self.stop.urgency();
        loop {
            if running.is_finished() {
                let report = running.finish();
                for piece in report_pieces(&report).map_err(ChannelError::Message)? {
                    if self.stop.urgency() == Urgency::Now {
                        return Err(stopping());
                    }
                    self.reply(&piece)?;
                }
                return Ok(Ran::Reported(Box::new(report)));
            }
            let request = self.channel.try_recv()?;
            let more = request.is_some();
            match request {
                Some(Request::Stop { at_ns }) => running.stop_at(at_ns),
                Some(Request::Abort) => {
                    drop(running);
                    self.reply(&Reply::Idle)?;
                    return Ok(Ran::Aborted);
                }
                Some(request) => return Err(unexpected(&request, " while a test runs")),
                None => {}
            }
            if self.stop.urgency() == Urgency::Now {
                return Err(stopping());
            }
            seen = seen.max(self.stop.urgency());
            if Instant::now() >= deadline {
                drop(running);
                let message = "the ranks did not end within their time: the test was given up (--max-duration bounds \
                               what stops by a count)";
                return self.refuse_rank(ReplyError::new(ErrorCode::Failed, message));
            }
            if more {
                continue;
            }
            wait([Some(self.channel.as_fd()), Some(running.as_fd()), self.stop.beyond(seen)], Some(deadline))
                .map_err(|source| ChannelError::Io { what: "waiting for the end of a test failed", source })?;
        }
    }

    fn refuse_rank(&mut self, error: ReplyError) -> Result<Ran, Over> {
        self.refuse(error.clone())?;
        Ok(Ran::Refused(error))
    }

    fn log_rank(&self, enlist: &Enlist, result: TestResult) {
        let Enlist { rank, ranks, spec, .. } = enlist;
        let part = Part::Rank { rank: *rank, ranks: *ranks, spec };
        self.shared.log(&Event::Test { client: &self.caller, part, result });
    }
}
