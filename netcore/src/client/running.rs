//! A test under load: waits for both ends at once, passes on their intervals, and notices an end that is silent.

use std::{
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use super::{
    ClientError, HostLabel, Peer, Session, Timeouts,
    plausible::{Frame, Instants},
};
use crate::{
    control::{
        channel::PROGRESS,
        clock::ClockOffset,
        message::{Reply, ReportBuilder, Request},
        part::{Load, RunningPart},
        stop::{StopFlag, Urgency, wait_any},
    },
    error::EndError,
    measure::clock::{self, monotonic_ns, nanoseconds},
    report::{ClockReading, Ending, Report, SideReport, Window},
    spec::{Direction, Pattern, Side, TestSpec},
};

/// The far end normally finishes within this time after the near end; then it is told to stop.
const LINGER: Duration = Duration::from_millis(200);

/// Messages of one end that are handled before the stop flag and the deadline are looked at again.
pub(crate) const MESSAGES_A_TURN: usize = 64;

/// Hears of intervals while a test runs.
pub trait Observer {
    /// An interval has ended. A near end in this process tells of the intervals that the test has; ends on daemons only
    /// if the test also asks for interim reports.
    fn interval(&mut self, side: Side, window: &Window);

    /// Whether a warm-up that may end early ([`crate::spec::Phases::settle_ns`]) has done its work: both ends then
    /// begin to measure at the same instant, soon. Asked until it is true.
    fn has_settled(&mut self) -> bool {
        false
    }
}

/// Ignores the intervals.
impl Observer for () {
    fn interval(&mut self, _: Side, _: &Window) {}
}

/// The result of one iteration: the reports of both ends, and their times.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Report of the end that opened the connections.
    pub near: SideReport,
    /// Report of the end that accepted them; `None`: a service that takes no part.
    pub far: Option<SideReport>,
    /// Planned begin of the load on the client's monotonic clock, nanoseconds.
    pub t0_ns: u64,
    /// Begin of the near end's measure phase on the same clock; `None`: it never began.
    pub near_start_ns: Option<u64>,
    /// The same of the far end, converted.
    pub far_start_ns: Option<u64>,
    /// Instant at which the near end was under its whole load ([`SideReport::under_load_ns`]), on the same clock.
    pub near_loaded_ns: Option<u64>,
    /// The same of the far end, converted.
    pub far_loaded_ns: Option<u64>,
    /// `far_loaded_ns` minus `near_loaded_ns`.
    pub start_skew_ns: Option<i64>,
    /// Bound of the error of `start_skew_ns`, nanoseconds: how well the clocks are known.
    pub clock_bound_ns: u64,
}

impl Outcome {
    /// The reports of the ends that took part.
    pub fn ends(&self) -> impl Iterator<Item = &SideReport> {
        std::iter::once(&self.near).chain(&self.far)
    }
}

/// The facts of a test that waiting for its end needs.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    /// Whether the observer receives intervals.
    pub(super) watched: bool,
    /// Length of a warm-up that may end early.
    settles_within_ns: Option<u64>,
    /// From t0 to the scheduled end of the load; `None`: it stops by a count.
    pub(super) length_ns: Option<u64>,
    counted_ns: u64,
    datagrams: bool,
    /// Whether data comes to the near end without a request.
    pub(super) near_receives: bool,
    /// Time before t0 for probes of the idle path.
    pub(super) idle: Duration,
    pub(super) timeouts: Timeouts,
    /// `None`: its parts are no ends, and each report is at most [`Self::report_bytes`] long.
    frame: Option<Frame>,
    report_bytes: usize,
}

impl Plan {
    pub(super) fn of_ends(spec: &TestSpec, timeouts: Timeouts, daemon_limit_ns: u64) -> Self {
        let phases = &spec.phases;
        Self {
            watched: phases.interval_ns > 0 || phases.settle_ns > 0,
            settles_within_ns: (phases.settle_ns > 0).then_some(phases.warmup_ns),
            length_ns: phases.length_ns(),
            counted_ns: nanoseconds(timeouts.counted).min(daemon_limit_ns),
            datagrams: spec.transport.is_datagram(),
            near_receives: spec.pattern == Pattern::Stream && spec.direction != Direction::Forward,
            idle: spec.idle(),
            timeouts,
            frame: Some(Frame::of(spec)),
            ..Self::default()
        }
    }

    /// A test of other parts, whose reports are bounded.
    pub(super) fn of_others(
        length_ns: Option<u64>,
        report_bytes: usize,
        timeouts: Timeouts,
        daemon_limit_ns: u64,
    ) -> Self {
        let counted_ns = nanoseconds(timeouts.counted).min(daemon_limit_ns);
        Self { length_ns, counted_ns, timeouts, report_bytes, ..Self::default() }
    }

    /// Takes the report of a daemon; and the number of intervals that it may tell of.
    fn report(&self) -> (ReportBuilder, u64) {
        let most_ns = self.length_ns.unwrap_or(self.counted_ns);
        match self.frame {
            Some(frame) => (frame.builder(most_ns), frame.intervals(most_ns.saturating_mul(2))),
            None => (ReportBuilder::bounded(self.report_bytes), 0),
        }
    }
}

/// One part of a test under load.
pub(super) struct Participant<'s> {
    end: ParticipantEnd<'s>,
    pub(super) report: Option<Report>,
}

enum ParticipantEnd<'s> {
    /// In this process; `None` once it has reported.
    Here(Option<Load>),
    There {
        session: &'s mut Session,
        pieces: ReportBuilder,
        has_sent: bool,
        /// Intervals that it may still tell of.
        intervals: u64,
        /// Bytes of the report at the last look.
        counted: usize,
    },
    /// Another program.
    Peer(&'s mut Peer),
}

impl<'s> Participant<'s> {
    pub(super) fn here(load: Load) -> Self {
        Self { end: ParticipantEnd::Here(Some(load)), report: None }
    }

    pub(super) fn there(session: &'s mut Session, plan: &Plan) -> Self {
        let (pieces, intervals) = plan.report();
        let end = ParticipantEnd::There { session, pieces, intervals, has_sent: false, counted: 0 };
        Self { end, report: None }
    }

    pub(super) fn peer(peer: &'s mut Peer) -> Self {
        Self { end: ParticipantEnd::Peer(peer), report: None }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.end {
            ParticipantEnd::Here(load) => load.as_ref().map(AsFd::as_fd),
            ParticipantEnd::There { session, .. } => (!self.is_done()).then(|| session.channel.as_fd()),
            ParticipantEnd::Peer(peer) => (!self.is_done()).then(|| peer.as_fd()),
        }
    }

    fn is_done(&self) -> bool {
        self.report.is_some()
    }

    /// Whether it has sent all of its count and only receives from the other end
    /// ([`crate::spec::support::ends_by_word`]).
    fn is_awaiting_end_of_data(&self) -> bool {
        match &self.end {
            ParticipantEnd::Here(load) => load.as_ref().is_some_and(Load::is_awaiting_end_of_data),
            ParticipantEnd::There { has_sent, .. } => *has_sent,
            ParticipantEnd::Peer(_) => false,
        }
    }

    /// Whether a further part of a long report has arrived.
    fn has_progressed(&mut self) -> bool {
        let ParticipantEnd::There { session, pieces, counted, .. } = &mut self.end else { return false };
        let bytes = pieces.bytes() + session.channel.pending_bytes();
        let progressed = bytes >= *counted + PROGRESS;
        *counted = if progressed { bytes } else { *counted };
        progressed
    }

    /// Handles some of what has arrived. Returns whether there may be more.
    fn pump(&mut self, side: Side, observer: &mut dyn Observer) -> Result<bool, ClientError> {
        match &mut self.end {
            ParticipantEnd::Here(slot) => {
                let Some(load) = slot else { return Ok(false) };
                load.clear_news();
                // Asked first: the last interval is there before the end is.
                let finished = load.is_finished();
                while let Some(window) = load.take_interval() {
                    observer.interval(side, &window);
                }
                if finished {
                    self.report = slot.take().map(|load| Report::End(Box::new(load.finish())));
                }
            }
            ParticipantEnd::There { session, pieces, has_sent, intervals, .. } => {
                for _ in 0..MESSAGES_A_TURN {
                    match session.try_recv()? {
                        None => return Ok(false),
                        Some(Reply::Interim(window)) => {
                            let Some(left) = intervals.checked_sub(1) else {
                                return Err(session.invalid("it tells of more intervals than its test has".to_owned()));
                            };
                            *intervals = left;
                            observer.interval(side, &window);
                        }
                        Some(Reply::Sent) => *has_sent = true,
                        Some(Reply::Report { text, last }) => {
                            self.report = pieces.add(&text, last).map_err(|reason| session.invalid(reason))?;
                            if self.report.is_some() {
                                session.completed();
                                return Ok(false);
                            }
                        }
                        Some(other) => return Err(session.unexpected("start", other)),
                    }
                }
                return Ok(true);
            }
            ParticipantEnd::Peer(peer) => peer.pump()?,
        }
        Ok(false)
    }

    /// Asks for the begin of the measure phase at an instant of this host's clock.
    fn begin_at(&mut self, at_ns: u64) -> Result<(), ClientError> {
        match &mut self.end {
            ParticipantEnd::Here(Some(load)) => load.begin_at(at_ns),
            ParticipantEnd::There { session, .. } if self.report.is_none() => {
                if let Some(at_ns) = session.peer().clock.to_theirs(at_ns) {
                    session.send(&Request::Measure { at_ns })?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Asks for the end of the measure phase at an instant of this host's clock.
    fn stop_at(&mut self, at_ns: u64) {
        match &mut self.end {
            ParticipantEnd::Here(Some(load)) => load.stop_at(at_ns),
            ParticipantEnd::There { session, .. } if self.report.is_none() => {
                if let Some(at_ns) = session.peer().clock.to_theirs(at_ns) {
                    // Fails only if the connection is broken, and the next pump reports that better.
                    let _ = session.send(&Request::Stop { at_ns });
                }
            }
            _ => {}
        }
    }

    pub(super) fn session(&mut self) -> Option<&mut Session> {
        if let ParticipantEnd::There { session, .. } = &mut self.end { Some(session) } else { None }
    }

    /// Relation of its clock to this host's; `None`: it is this host's.
    pub(super) fn clock(&self) -> Option<ClockOffset> {
        if let ParticipantEnd::There { session, .. } = &self.end { Some(session.peer().clock) } else { None }
    }

    /// Its report, after the test.
    fn take_report(&mut self) -> Result<SideReport, ClientError> {
        match self.report.take() {
            Some(Report::End(report)) => Ok(*report),
            _ => Err(self.invalid("it does not report as an end".to_owned())),
        }
    }

    pub(super) fn invalid(&self, reason: String) -> ClientError {
        match self.host() {
            Some(host) => ClientError::Invalid { host: host.clone(), reason },
            None => EndError::Impossible(reason).into(),
        }
    }

    fn host(&self) -> Option<&HostLabel> {
        match &self.end {
            ParticipantEnd::Here(_) => None,
            ParticipantEnd::There { session, .. } => Some(&session.host),
            ParticipantEnd::Peer(peer) => Some(&peer.host),
        }
    }
}

impl Drop for Participant<'_> {
    fn drop(&mut self) {
        // An end in this process ends when it is dropped.
        if let ParticipantEnd::There { session, .. } = &mut self.end {
            session.forget();
        }
    }
}

/// A test under load at all of its parts. Dropping it ends it at once.
pub struct RunningTest<'s> {
    /// All that report: the far end, unless it is a service that takes no part, and the near end; or all ranks.
    pub(super) participants: Vec<Participant<'s>>,
    plan: Plan,
    t0_ns: u64,
    /// This host's clocks before the load.
    begun: ClockReading,
}

impl<'s> RunningTest<'s> {
    pub(super) fn new(participants: Vec<Participant<'s>>, plan: Plan, t0_ns: u64) -> Self {
        Self { participants, plan, t0_ns, begun: clock::reading() }
    }

    /// Begin of the load on this host's monotonic clock, nanoseconds.
    pub fn t0_ns(&self) -> u64 {
        self.t0_ns
    }

    /// Waits for the end of the test and joins the reports. A raised `stop` ends the measure phase at both ends at the
    /// same instant; raised twice, it ends everything at once and there is no outcome.
    pub fn wait(mut self, observer: &mut dyn Observer, stop: &StopFlag) -> Result<Outcome, ClientError> {
        self.watch(observer, stop)?;
        let asked_bound_ns = self.participants.iter().filter_map(Participant::clock).map(|clock| clock.bound_ns);
        let asked_bound_ns = asked_bound_ns.fold(0, u64::saturating_add);
        let lasted_ns = monotonic_ns().saturating_sub(self.t0_ns).saturating_add(asked_bound_ns);
        let (mut far, near) = match &mut self.participants[..] {
            [near] => (None, near),
            [far, near] => (Some(far), near),
            _ => return Err(EndError::Impossible("a test of ranks has no two ends".to_owned()).into()),
        };
        let near_report = near.take_report()?;
        let far_report = far.as_mut().map(|far| far.take_report()).transpose()?;
        let contradiction =
            self.plan.frame.and_then(|frame| frame.contradiction(&near_report, far_report.as_ref(), lasted_ns));
        if let Some(contradiction) = contradiction {
            let reason = format!("a report cannot be true: {contradiction}");
            return Err(far.unwrap_or(near).invalid(reason));
        }
        let read = (self.begun, clock::reading());
        // Another program does not tell its instants.
        let far_clock = far.filter(|far| !matches!(far.end, ParticipantEnd::Peer(_))).map(|far| far.clock());
        let timed = far_report.as_ref().zip(far_clock);
        let instants = Instants::of((&near_report, near.clock()), timed, &read);
        let [near_loaded_ns, far_loaded_ns] = instants.loaded;
        let start_skew_ns =
            near_loaded_ns.zip(far_loaded_ns).map(|(near, far)| far.cast_signed().wrapping_sub(near.cast_signed()));
        let [near_start_ns, far_start_ns] = instants.begun;
        Ok(Outcome {
            near: near_report,
            far: far_report,
            t0_ns: self.t0_ns,
            near_start_ns,
            far_start_ns,
            near_loaded_ns,
            far_loaded_ns,
            start_skew_ns,
            clock_bound_ns: instants.bound_ns,
        })
    }

    pub(super) fn watch(&mut self, observer: &mut dyn Observer, stop: &StopFlag) -> Result<(), ClientError> {
        let began = Instant::now();
        let until_t0 = Duration::from_nanos(self.t0_ns.saturating_sub(monotonic_ns()));
        let length = Duration::from_nanos(self.plan.length_ns.unwrap_or(self.plan.counted_ns));
        let mut deadline = began + until_t0 + length + self.plan.timeouts.grace;
        let mut seen = Urgency::None;
        // The instant at which the first part was done, and whether the others were notified.
        let mut first_done: Option<Instant> = None;
        let mut notified = false;
        loop {
            let mut more = false;
            let last = self.participants.len() - 1;
            for (at, participant) in self.participants.iter_mut().enumerate().rev() {
                let side = if at == last { Side::Near } else { Side::Far };
                more |= !participant.is_done() && participant.pump(side, observer)?;
            }
            self.converse(stop)?;
            if self.participants.iter().all(Participant::is_done) {
                return Ok(());
            }
            if self.plan.settles_within_ns.is_some() && seen == Urgency::None && observer.has_settled() {
                self.begin_soon()?;
            }
            let now = Instant::now();
            // A long report may take long over a slow path.
            let progressed: Vec<bool> = self.participants.iter_mut().map(Participant::has_progressed).collect();
            if progressed.contains(&true) {
                deadline = deadline.max(now + self.plan.timeouts.grace);
            }
            if now >= deadline {
                return Err(self.silent());
            }
            if stop.urgency() > seen {
                seen = stop.urgency();
                if seen == Urgency::Now {
                    return Err(ClientError::Interrupted);
                }
                self.stop_soon();
                deadline = deadline.min(now + self.plan.timeouts.grace);
            }
            if !notified && self.participants.iter().all(Participant::is_awaiting_end_of_data) {
                self.stop_soon();
                notified = true;
                deadline = deadline.min(now + self.plan.timeouts.grace);
            }
            let mut wake = deadline;
            if !notified && self.participants.iter().any(Participant::is_done) {
                let since = *first_done.get_or_insert(now);
                deadline = deadline.min(since + self.plan.timeouts.grace);
                let linger = if self.plan.datagrams { Duration::ZERO } else { LINGER };
                if now >= since + linger {
                    self.tell();
                    notified = true;
                    wake = deadline;
                } else {
                    wake = deadline.min(since + linger);
                }
            }
            if more {
                continue;
            }
            let fds: Vec<_> = self.participants.iter().map(Participant::fd).chain([stop.beyond(seen)]).collect();
            wait_any(&fds, Some(wake))
                .map_err(|source| ClientError::System { what: "waiting for the end of the test failed", source })?;
        }
    }

    /// Tells another program how far the near end is, and takes its report after the near end's.
    fn converse(&mut self, stop: &StopFlag) -> Result<(), ClientError> {
        let [Participant { end: ParticipantEnd::Peer(peer), report: far @ None }, near] = &mut self.participants[..]
        else {
            return Ok(());
        };
        let load = if let ParticipantEnd::Here(load) = &near.end { load.as_ref() } else { None };
        if load.is_none_or(Load::is_load_over)
            && let Some(closes) = peer.load_over()?
            && let (false, Some(load)) = (closes, load)
        {
            load.release();
        }
        if let Some(Report::End(near)) = &near.report {
            let report = match peer.conclude(near, self.plan.timeouts, stop) {
                Ok(report) => report,
                // The near end's measurement until it was stopped stays valid.
                Err(error @ ClientError::Peer { .. }) if stop.urgency() > Urgency::None => SideReport {
                    notes: vec![format!("no results of the far end: {error}")],
                    ..SideReport::empty(Side::Far, Ending::Stopped)
                },
                Err(error) => return Err(error),
            };
            *far = Some(Report::End(Box::new(report)));
        }
        Ok(())
    }

    /// Ends the warm-up at an instant that all parts can still be told in time; a warm-up that is over by then ends by
    /// itself.
    fn begin_soon(&mut self) -> Result<(), ClientError> {
        let Some(within_ns) = self.plan.settles_within_ns.take() else { return Ok(()) };
        let at_ns = self.soon_ns();
        let saved_ns = (self.t0_ns + within_ns).saturating_sub(at_ns);
        if saved_ns > 0 {
            self.participants.iter_mut().try_for_each(|participant| participant.begin_at(at_ns))?;
            self.plan.length_ns = self.plan.length_ns.map(|length| length.saturating_sub(saved_ns));
        }
        Ok(())
    }

    /// An instant that all parts can still be told in time.
    fn soon_ns(&self) -> u64 {
        let rtt_ns =
            self.participants.iter().filter_map(Participant::clock).map(|clock| clock.rtt_ns).max().unwrap_or(0);
        monotonic_ns() + 2_000_000 + rtt_ns.saturating_mul(2)
    }

    /// Ends the measure phase early, at an instant that all parts can still be told in time.
    fn stop_soon(&mut self) {
        let at_ns = self.soon_ns();
        self.participants.iter_mut().for_each(|participant| participant.stop_at(at_ns));
    }

    /// Tells the others that one part is done: they may have no other way to know. They are not stopped before their own time,
    /// unless the first one has failed.
    fn tell(&mut self) {
        let mut reports = self.participants.iter().filter_map(|participant| participant.report.as_ref());
        let failed = reports.any(|report| matches!(report.ending(), Ending::Failed(_)));
        let scheduled = self.plan.length_ns.filter(|_| !failed).map_or(0, |length| self.t0_ns + length);
        let at_ns = monotonic_ns().max(scheduled);
        self.participants
            .iter_mut()
            .filter(|participant| !participant.is_done())
            .for_each(|participant| participant.stop_at(at_ns));
    }

    fn silent(&self) -> ClientError {
        // A near end in this process waits for the far end, too.
        let waiting = self.participants.iter().filter(|participant| !participant.is_done()).find_map(Participant::host);
        let blamed = waiting.or_else(|| self.participants.iter().rev().find_map(Participant::host));
        let here = || HostLabel { name: "local".to_owned(), control: "this process".to_owned(), launched: false };
        ClientError::Silent {
            host: blamed.cloned().unwrap_or_else(here),
            seconds: self.plan.timeouts.grace.as_secs_f64(),
        }
    }
}
