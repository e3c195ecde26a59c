//! A test under load: waits for both ends at once, passes on their intervals, and notices an end that is silent.

use std::{
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use super::{ClientError, HostLabel, Peer, Session, Timeouts, instants::Instants, plausible::Frame};
use crate::{
    control::{
        channel::PROGRESS,
        clock::ClockOffset,
        event::wait,
        load::Load,
        message::{Reply, ReportBuilder, Request},
        part::RunningPart,
        stop::{StopFlag, Urgency},
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

/// The parts of a test that waiting for its end needs.
#[derive(Clone, Debug)]
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
    pub(super) timeouts: Timeouts,
    frame: Frame,
}

impl Plan {
    pub(super) fn new(spec: &TestSpec, timeouts: Timeouts, daemon_limit_ns: u64) -> Self {
        let phases = &spec.phases;
        Self {
            watched: phases.interval_ns > 0 || phases.settle_ns > 0,
            settles_within_ns: (phases.settle_ns > 0).then_some(phases.warmup_ns),
            length_ns: phases.length_ns(),
            counted_ns: nanoseconds(timeouts.counted).min(daemon_limit_ns),
            datagrams: spec.transport.is_datagram(),
            near_receives: spec.pattern == Pattern::Stream && spec.direction != Direction::Forward,
            timeouts,
            frame: Frame::of(spec),
        }
    }
}

/// One end of a test under load.
pub(super) struct Party<'s> {
    end: PartyEnd<'s>,
    report: Option<SideReport>,
}

enum PartyEnd<'s> {
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

impl<'s> Party<'s> {
    pub(super) fn here(load: Load) -> Self {
        Self { end: PartyEnd::Here(Some(load)), report: None }
    }

    pub(super) fn there(session: &'s mut Session, plan: &Plan) -> Self {
        let most_ns = plan.length_ns.unwrap_or(plan.counted_ns);
        let (pieces, intervals) = (plan.frame.builder(most_ns), plan.frame.intervals(most_ns.saturating_mul(2)));
        let end = PartyEnd::There { session, pieces, intervals, has_sent: false, counted: 0 };
        Self { end, report: None }
    }

    pub(super) fn peer(peer: &'s mut Peer) -> Self {
        Self { end: PartyEnd::Peer(peer), report: None }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.end {
            PartyEnd::Here(load) => load.as_ref().map(AsFd::as_fd),
            PartyEnd::There { session, .. } => (!self.is_done()).then(|| session.channel.as_fd()),
            PartyEnd::Peer(peer) => (!self.is_done()).then(|| peer.as_fd()),
        }
    }

    fn is_done(&self) -> bool {
        self.report.is_some()
    }

    /// Whether it has sent all of its count and only receives from the other end
    /// ([`crate::spec::support::ends_by_word`]).
    fn is_awaiting_end_of_data(&self) -> bool {
        match &self.end {
            PartyEnd::Here(load) => load.as_ref().is_some_and(Load::is_awaiting_end_of_data),
            PartyEnd::There { has_sent, .. } => *has_sent,
            PartyEnd::Peer(_) => false,
        }
    }

    /// Whether a further part of a long report has arrived.
    fn has_progressed(&mut self) -> bool {
        let PartyEnd::There { session, pieces, counted, .. } = &mut self.end else { return false };
        let bytes = pieces.bytes() + session.channel.pending_bytes();
        let progressed = bytes >= *counted + PROGRESS;
        *counted = if progressed { bytes } else { *counted };
        progressed
    }

    /// Handles some of what has arrived. Returns whether there may be more.
    fn pump(&mut self, side: Side, observer: &mut dyn Observer) -> Result<bool, ClientError> {
        match &mut self.end {
            PartyEnd::Here(slot) => {
                let Some(load) = slot else { return Ok(false) };
                load.clear_news();
                // Asked first: the last interval is there before the end is.
                let finished = load.is_finished();
                while let Some(window) = load.take_interval() {
                    observer.interval(side, &window);
                }
                if finished {
                    self.report = slot.take().map(Load::finish);
                }
            }
            PartyEnd::There { session, pieces, has_sent, intervals, .. } => {
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
                            self.report = match pieces.add(&text, last).map_err(|reason| session.invalid(reason))? {
                                Some(Report::End(report)) => Some(*report),
                                Some(Report::Rank(_)) => return Err(session.invalid("it reports as a rank".to_owned())),
                                None => None,
                            };
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
            PartyEnd::Peer(peer) => peer.pump()?,
        }
        Ok(false)
    }

    /// Asks for the begin of the measure phase at an instant of this host's clock.
    fn begin_at(&mut self, at_ns: u64) -> Result<(), ClientError> {
        match &mut self.end {
            PartyEnd::Here(Some(load)) => load.begin_at(at_ns),
            PartyEnd::There { session, .. } if self.report.is_none() => {
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
            PartyEnd::Here(Some(load)) => load.stop_at(at_ns),
            PartyEnd::There { session, .. } if self.report.is_none() => {
                if let Some(at_ns) = session.peer().clock.to_theirs(at_ns) {
                    // Fails only if the connection is broken, and the next pump reports that better.
                    let _ = session.send(&Request::Stop { at_ns });
                }
            }
            _ => {}
        }
    }

    fn session(&self) -> Option<&Session> {
        match &self.end {
            PartyEnd::Here(_) | PartyEnd::Peer(_) => None,
            PartyEnd::There { session, .. } => Some(session),
        }
    }

    /// Relation of its clock to this host's; `None`: it is this host's.
    fn clock(&self) -> Option<ClockOffset> {
        Some(self.session()?.peer().clock)
    }

    fn host(&self) -> Option<&HostLabel> {
        match &self.end {
            PartyEnd::Here(_) => None,
            PartyEnd::There { session, .. } => Some(&session.host),
            PartyEnd::Peer(peer) => Some(&peer.host),
        }
    }
}

impl Drop for Party<'_> {
    fn drop(&mut self) {
        // An end in this process ends when it is dropped.
        if let PartyEnd::There { session, .. } = &mut self.end {
            session.forget();
        }
    }
}

/// A test under load at both ends. Dropping it ends it at once.
pub struct RunningTest<'s> {
    near: Party<'s>,
    /// `None`: a service that takes no part.
    far: Option<Party<'s>>,
    plan: Plan,
    t0_ns: u64,
    /// This host's clocks before the load.
    begun: ClockReading,
}

impl<'s> RunningTest<'s> {
    pub(super) fn new(near: Party<'s>, far: Option<Party<'s>>, plan: Plan, t0_ns: u64) -> Self {
        Self { near, far, plan, t0_ns, begun: clock::reading() }
    }

    /// The ends that report.
    fn parties(&self) -> impl Iterator<Item = &Party<'s>> {
        std::iter::once(&self.near).chain(&self.far)
    }

    fn parties_mut(&mut self) -> impl Iterator<Item = &mut Party<'s>> {
        std::iter::once(&mut self.near).chain(&mut self.far)
    }

    /// Begin of the load on this host's monotonic clock, nanoseconds.
    pub fn t0_ns(&self) -> u64 {
        self.t0_ns
    }

    /// Waits for the end of the test and joins the reports. A raised `stop` ends the measure phase at both ends at the
    /// same instant; raised twice, it ends everything at once and there is no outcome.
    pub fn wait(mut self, observer: &mut dyn Observer, stop: &StopFlag) -> Result<Outcome, ClientError> {
        self.watch(observer, stop)?;
        let clocks = [self.near.clock(), self.far.as_ref().and_then(Party::clock)];
        let has_peer = matches!(&self.far, Some(Party { end: PartyEnd::Peer(_), .. }));
        let far_host = self.far.as_ref().and_then(Party::host).or(self.near.host()).cloned();
        // watch() returns only when all are done.
        let near = self.near.report.take().expect("the near end has finished");
        let far = self.far.as_mut().map(|far| far.report.take().expect("the far end has finished"));
        let asked_bound_ns = clocks.iter().flatten().map(|clock| clock.bound_ns).fold(0, u64::saturating_add);
        let lasted_ns = monotonic_ns().saturating_sub(self.t0_ns).saturating_add(asked_bound_ns);
        if let Some(contradiction) = self.plan.frame.contradiction(&near, far.as_ref(), lasted_ns) {
            let reason = format!("a report cannot be true: {contradiction}");
            return Err(match far_host {
                Some(host) => ClientError::Invalid { host, reason },
                None => EndError::Impossible(reason).into(),
            });
        }
        let read = (self.begun, clock::reading());
        // Another program does not tell its instants.
        let timed = far.as_ref().filter(|_| !has_peer).map(|far| (far, clocks[1]));
        let instants = Instants::of((&near, clocks[0]), timed, &read);
        let [near_loaded_ns, far_loaded_ns] = instants.loaded;
        let start_skew_ns =
            near_loaded_ns.zip(far_loaded_ns).map(|(near, far)| far.cast_signed().wrapping_sub(near.cast_signed()));
        let [near_start_ns, far_start_ns] = instants.begun;
        Ok(Outcome {
            near,
            far,
            t0_ns: self.t0_ns,
            near_start_ns,
            far_start_ns,
            near_loaded_ns,
            far_loaded_ns,
            start_skew_ns,
            clock_bound_ns: instants.bound_ns,
        })
    }

    fn watch(&mut self, observer: &mut dyn Observer, stop: &StopFlag) -> Result<(), ClientError> {
        let began = Instant::now();
        let until_t0 = Duration::from_nanos(self.t0_ns.saturating_sub(monotonic_ns()));
        let length = Duration::from_nanos(self.plan.length_ns.unwrap_or(self.plan.counted_ns));
        let mut deadline = began + until_t0 + length + self.plan.timeouts.grace;
        let mut seen = Urgency::None;
        // The instant at which the first of the two was done, and whether the other one was notified.
        let mut first_done: Option<Instant> = None;
        let mut notified = false;
        loop {
            let mut more = false;
            for (party, side) in self.parties_mut().zip([Side::Near, Side::Far]) {
                more |= !party.is_done() && party.pump(side, observer)?;
            }
            self.converse(stop)?;
            if self.parties().all(Party::is_done) {
                return Ok(());
            }
            if self.plan.settles_within_ns.is_some() && seen == Urgency::None && observer.has_settled() {
                self.begin_both()?;
            }
            let now = Instant::now();
            // A long report may take long over a slow path.
            let progressed: Vec<bool> = self.parties_mut().map(Party::has_progressed).collect();
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
                self.stop_both();
                deadline = deadline.min(now + self.plan.timeouts.grace);
            }
            if !notified && self.parties().all(Party::is_awaiting_end_of_data) {
                self.stop_both();
                notified = true;
                deadline = deadline.min(now + self.plan.timeouts.grace);
            }
            let mut wake = deadline;
            if !notified && self.parties().any(Party::is_done) {
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
            let fds = [self.near.fd(), self.far.as_ref().and_then(Party::fd), stop.beyond(seen)];
            wait(fds, Some(wake))
                .map_err(|source| ClientError::System { what: "waiting for the end of the test failed", source })?;
        }
    }

    /// Tells another program how far the near end is, and takes its report after the near end's.
    fn converse(&mut self, stop: &StopFlag) -> Result<(), ClientError> {
        let Some(Party { end: PartyEnd::Peer(peer), report: far @ None }) = &mut self.far else { return Ok(()) };
        let load = if let PartyEnd::Here(load) = &self.near.end { load.as_ref() } else { None };
        if load.is_none_or(Load::is_load_over)
            && let Some(closes) = peer.load_over()?
            && let (false, Some(load)) = (closes, load)
        {
            load.release();
        }
        if let Some(near) = &self.near.report {
            *far = Some(match peer.conclude(near, self.plan.timeouts, stop) {
                Ok(report) => report,
                // The near end's measurement until it was stopped stays valid.
                Err(error @ ClientError::Peer { .. }) if stop.urgency() > Urgency::None => SideReport {
                    notes: vec![format!("no results of the far end: {error}")],
                    ..SideReport::empty(Side::Far, Ending::Stopped)
                },
                Err(error) => return Err(error),
            });
        }
        Ok(())
    }

    /// Ends the warm-up at an instant that both ends can still be told in time; a warm-up that is over by then ends by
    /// itself.
    fn begin_both(&mut self) -> Result<(), ClientError> {
        let Some(within_ns) = self.plan.settles_within_ns.take() else { return Ok(()) };
        let at_ns = self.soon_ns();
        let saved_ns = (self.t0_ns + within_ns).saturating_sub(at_ns);
        if saved_ns > 0 {
            self.parties_mut().try_for_each(|party| party.begin_at(at_ns))?;
            self.plan.length_ns = self.plan.length_ns.map(|length| length.saturating_sub(saved_ns));
        }
        Ok(())
    }

    /// An instant that both ends can still be told in time.
    fn soon_ns(&self) -> u64 {
        let rtt_ns = self.parties().filter_map(Party::clock).map(|clock| clock.rtt_ns).max().unwrap_or(0);
        monotonic_ns() + 2_000_000 + rtt_ns.saturating_mul(2)
    }

    /// Ends the measure phase early, at an instant that both ends can still be told in time.
    fn stop_both(&mut self) {
        let at_ns = self.soon_ns();
        self.parties_mut().for_each(|party| party.stop_at(at_ns));
    }

    /// Tells the other end that one end is done: it may have no other way to know. It is not stopped before its own time,
    /// unless the first one has failed.
    fn tell(&mut self) {
        let reports = self.parties().filter_map(|party| party.report.as_ref());
        let failed = reports.map(|report| &report.ending).any(|ending| matches!(ending, Ending::Failed(_)));
        let scheduled = self.plan.length_ns.filter(|_| !failed).map_or(0, |length| self.t0_ns + length);
        let at_ns = monotonic_ns().max(scheduled);
        self.parties_mut().filter(|party| !party.is_done()).for_each(|party| party.stop_at(at_ns));
    }

    fn silent(&self) -> ClientError {
        // The far end is always a daemon, and a near end in this process waits for it, too.
        let far = self.far.as_ref().and_then(|far| far.host().filter(|_| !far.is_done()));
        let blamed = far.or_else(|| self.near.host()).or_else(|| self.far.as_ref().and_then(Party::host));
        let here = || HostLabel { name: "local".to_owned(), control: "this process".to_owned(), launched: false };
        ClientError::Silent {
            host: blamed.cloned().unwrap_or_else(here),
            seconds: self.plan.timeouts.grace.as_secs_f64(),
        }
    }
}
