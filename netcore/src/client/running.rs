//! A test under load: waiting for both ends at once, passing on what they say, and noticing when one of them is silent.

use std::{
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use super::{ClientError, Session, Timeouts, ready::nanoseconds};
use crate::{
    control::{
        clock::ClockOffset,
        event::wait,
        load::Load,
        message::{Reply, ReportBuilder, Request},
        stop::{StopFlag, Urgency},
    },
    measure::clock::monotonic_ns,
    report::{Ending, SideReport, Window},
    spec::{Side, Stop, TestSpec},
};

/// The far end's own end of a test normally shows within this time after the near end's; then it is told.
const LINGER: Duration = Duration::from_millis(200);

/// Hears of intervals while a test runs.
pub trait Observer {
    /// An interval has ended at that end: at the near end if it is in this process and the test has intervals, at ends on
    /// daemons only if the test also asks for interim reports.
    fn interval(&mut self, side: Side, window: &Window);

    /// Whether the warm-up has done its work, where it may end early ([`crate::spec::Phases::settle_ns`]): both ends then
    /// begin to measure at the same instant, soon. Asked until it says so.
    fn has_settled(&mut self) -> bool {
        false
    }
}

/// Nobody listens.
impl Observer for () {
    fn interval(&mut self, _: Side, _: &Window) {}
}

/// What both ends saw of one iteration.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The report of the end that opened the connections.
    pub near: SideReport,
    /// The report of the end that accepted them; `None`: a service that takes no part in tests.
    pub far: Option<SideReport>,
    /// When the load was to begin, this host's monotonic clock, nanoseconds.
    pub t0_ns: u64,
    /// When the near end's measure phase began, on this host's monotonic clock, nanoseconds; `None`: it never did.
    pub near_start_ns: Option<u64>,
    /// The same of the far end, converted.
    pub far_start_ns: Option<u64>,
    /// When the near end was under its whole load ([`SideReport::under_load_ns`]), on this host's monotonic clock.
    pub near_loaded_ns: Option<u64>,
    /// The same of the far end, converted.
    pub far_loaded_ns: Option<u64>,
    /// Far minus near end's instant of being under load, nanoseconds.
    pub start_skew_ns: Option<i64>,
    /// The error of `start_skew_ns` is at most this, nanoseconds: how well the clocks are known.
    pub clock_bound_ns: u64,
}

/// What waiting needs to know about a test.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// Whether somebody wants to hear of intervals.
    pub(super) watched: bool,
    /// The longest that a warm-up may last that can end early.
    settles_within_ns: Option<u64>,
    /// From t0 to the scheduled end of the load; `None`: it stops by a count.
    length_ns: Option<u64>,
    counted_ns: u64,
    datagrams: bool,
    grace: Duration,
}

impl Plan {
    pub(super) fn new(spec: &TestSpec, timeouts: Timeouts, daemon_limit_ns: u64) -> Self {
        let phases = &spec.phases;
        let length_ns = match phases.stop {
            Stop::AfterNs(measure_ns) => {
                Some(phases.warmup_ns.saturating_add(measure_ns).saturating_add(phases.cooldown_ns))
            }
            _ => None,
        };
        Self {
            watched: phases.interval_ns > 0 || phases.settle_ns > 0,
            settles_within_ns: (phases.settle_ns > 0).then_some(phases.warmup_ns),
            length_ns,
            counted_ns: nanoseconds(timeouts.counted).min(daemon_limit_ns),
            datagrams: spec.transport.is_datagram(),
            grace: timeouts.grace,
        }
    }

    pub(super) fn is_counted(&self) -> bool {
        self.length_ns.is_none()
    }
}

pub(super) enum Party<'s> {
    Here { load: Option<Load>, report: Option<Box<SideReport>> },
    There { session: &'s mut Session, pieces: ReportBuilder, has_sent: bool, report: Option<Box<SideReport>> },
}

impl<'s> Party<'s> {
    pub(super) fn here(load: Load) -> Self {
        Self::Here { load: Some(load), report: None }
    }

    pub(super) fn there(session: &'s mut Session) -> Self {
        Self::There { session, pieces: ReportBuilder::default(), has_sent: false, report: None }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Here { load, .. } => load.as_ref().map(AsFd::as_fd),
            Self::There { session, report, .. } => report.is_none().then(|| session.channel.as_fd()),
        }
    }

    fn is_done(&self) -> bool {
        let (Self::Here { report, .. } | Self::There { report, .. }) = self;
        report.is_some()
    }

    /// Whether it has sent all of its count and only listens to the other one ([`crate::spec::support::ends_by_word`]).
    fn is_awaiting_end_of_data(&self) -> bool {
        match self {
            Self::Here { load, .. } => load.as_ref().is_some_and(Load::is_awaiting_end_of_data),
            Self::There { has_sent, .. } => *has_sent,
        }
    }

    /// Takes the news that have arrived.
    fn pump(&mut self, side: Side, observer: &mut dyn Observer) -> Result<(), ClientError> {
        match self {
            Self::Here { load: slot, report } => {
                let Some(load) = slot else { return Ok(()) };
                load.clear_news();
                // Looked at first: the last interval is there before the end is.
                let finished = load.is_finished();
                while let Some(window) = load.take_interval() {
                    observer.interval(side, &window);
                }
                if finished {
                    *report = slot.take().map(|load| Box::new(load.finish()));
                }
            }
            Self::There { session, pieces, has_sent, report } => {
                while report.is_none() {
                    match session.try_recv()? {
                        None => break,
                        Some(Reply::Interim(window)) => observer.interval(side, &window),
                        Some(Reply::Sent) => *has_sent = true,
                        Some(Reply::Report { text, last }) => {
                            let whole = pieces.add(&text, last).map_err(|reason| session.senseless(reason))?;
                            if let Some(whole) = whole {
                                *report = Some(Box::new(whole));
                                session.completed();
                            }
                        }
                        Some(other) => return Err(session.unexpected("start", other)),
                    }
                }
            }
        }
        Ok(())
    }

    /// Asks for the begin of the measure phase at an instant of this host's clock.
    fn begin_at(&mut self, at_ns: u64) -> Result<(), ClientError> {
        match self {
            Self::Here { load: Some(load), .. } => load.begin_at(at_ns),
            Self::There { session, report: None, .. } => {
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
        match self {
            Self::Here { load: Some(load), .. } => load.stop_at(at_ns),
            Self::There { session, report: None, .. } => {
                if let Some(at_ns) = session.peer().clock.to_theirs(at_ns) {
                    // If it cannot be told, its connection is broken, and the next pump says so better.
                    let _ = session.send(&Request::Stop { at_ns });
                }
            }
            _ => {}
        }
    }

    fn abort(&mut self) {
        match self {
            // Dropping it aborts it.
            Self::Here { load, .. } => drop(load.take()),
            // If it cannot be told, its connection is broken, and whoever uses it next hears of that.
            Self::There { session, report: None, .. } => drop(session.abort()),
            Self::There { .. } => {}
        }
    }

    fn has_failed(&self) -> bool {
        let (Self::Here { report, .. } | Self::There { report, .. }) = self;
        report.as_ref().is_some_and(|report| matches!(report.ending, Ending::Failed(_)))
    }

    fn report(self) -> Option<SideReport> {
        let (Self::Here { report, .. } | Self::There { report, .. }) = self;
        report.map(|report| *report)
    }

    /// How its clock is related to this host's; `None`: it is this host's.
    fn clock(&self) -> Option<ClockOffset> {
        match self {
            Self::Here { .. } => None,
            Self::There { session, .. } => Some(session.peer().clock),
        }
    }

    fn rtt_ns(&self) -> u64 {
        self.clock().map_or(0, |clock| clock.rtt_ns)
    }

    fn host(&self) -> Option<&super::HostLabel> {
        match self {
            Self::Here { .. } => None,
            Self::There { session, .. } => Some(&session.host),
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
}

impl<'s> RunningTest<'s> {
    pub(super) fn new(near: Party<'s>, far: Option<Party<'s>>, plan: Plan, t0_ns: u64) -> Self {
        Self { near, far, plan, t0_ns }
    }

    /// The ends that report.
    fn parties(&self) -> impl Iterator<Item = &Party<'s>> {
        std::iter::once(&self.near).chain(&self.far)
    }

    fn parties_mut(&mut self) -> impl Iterator<Item = &mut Party<'s>> {
        std::iter::once(&mut self.near).chain(&mut self.far)
    }

    /// When the load begins, this host's monotonic clock, nanoseconds.
    #[must_use]
    pub fn t0_ns(&self) -> u64 {
        self.t0_ns
    }

    /// Waits for the end of the test and joins the reports. A raised `stop` ends the measure phase at both ends at the
    /// same instant; raised twice, it ends everything at once and there is no outcome.
    pub fn wait(mut self, observer: &mut dyn Observer, stop: &StopFlag) -> Result<Outcome, ClientError> {
        if let Err(error) = self.watch(observer, stop) {
            self.parties_mut().for_each(Party::abort);
            return Err(error);
        }
        let bound_at = self.t0_ns;
        let clocks = [self.near.clock(), self.far.as_ref().and_then(Party::clock)];
        let clock_bound_ns = clocks.iter().flatten().map(|clock| clock.bound_at_ns(bound_at)).sum();
        let Self { near, far, t0_ns, .. } = self;
        // watch() returns only when all are done.
        let near = near.report().expect("the near end has finished");
        let far = far.map(|far| far.report().expect("the far end has finished"));
        let start = |started_ns: u64, clock: Option<ClockOffset>| {
            let started_ns = (started_ns > 0).then_some(started_ns)?;
            clock.map_or(Some(started_ns), |clock| clock.to_ours(started_ns))
        };
        let near_start_ns = start(near.monotonic_start_ns, clocks[0]);
        let far_start_ns = far.as_ref().and_then(|far| start(far.monotonic_start_ns, clocks[1]));
        let near_loaded_ns = start(near.under_load_ns, clocks[0]);
        let far_loaded_ns = far.as_ref().and_then(|far| start(far.under_load_ns, clocks[1]));
        let start_skew_ns =
            near_loaded_ns.zip(far_loaded_ns).map(|(near, far)| far.cast_signed().wrapping_sub(near.cast_signed()));
        Ok(Outcome {
            near,
            far,
            t0_ns,
            near_start_ns,
            far_start_ns,
            near_loaded_ns,
            far_loaded_ns,
            start_skew_ns,
            clock_bound_ns,
        })
    }

    fn watch(&mut self, observer: &mut dyn Observer, stop: &StopFlag) -> Result<(), ClientError> {
        let began = Instant::now();
        let until_t0 = Duration::from_nanos(self.t0_ns.saturating_sub(monotonic_ns()));
        let length = Duration::from_nanos(self.plan.length_ns.unwrap_or(self.plan.counted_ns));
        let mut deadline = began + until_t0 + length + self.plan.grace;
        let mut seen = Urgency::None;
        // When the first of the two was done, and whether the other one was told.
        let mut first_done: Option<Instant> = None;
        let mut told = false;
        loop {
            for (party, side) in self.parties_mut().zip([Side::Near, Side::Far]) {
                party.pump(side, observer)?;
            }
            if self.parties().all(Party::is_done) {
                return Ok(());
            }
            if self.plan.settles_within_ns.is_some() && seen == Urgency::None && observer.has_settled() {
                self.begin_both()?;
            }
            let now = Instant::now();
            if now >= deadline {
                return Err(self.silent());
            }
            if stop.urgency() > seen {
                seen = stop.urgency();
                if seen == Urgency::Now {
                    return Err(ClientError::Interrupted);
                }
                self.stop_both();
                deadline = deadline.min(now + self.plan.grace);
            }
            if !told && self.parties().all(Party::is_awaiting_end_of_data) {
                self.stop_both();
                told = true;
                deadline = deadline.min(now + self.plan.grace);
            }
            let mut wake = deadline;
            if !told && self.parties().any(Party::is_done) {
                let since = *first_done.get_or_insert(now);
                deadline = deadline.min(since + self.plan.grace);
                let linger = if self.plan.datagrams { Duration::ZERO } else { LINGER };
                if now >= since + linger {
                    self.tell();
                    told = true;
                    wake = deadline;
                } else {
                    wake = deadline.min(since + linger);
                }
            }
            let fds = [self.near.fd(), self.far.as_ref().and_then(Party::fd), stop.beyond(seen)];
            wait(fds, Some(wake))
                .map_err(|source| ClientError::System { what: "waiting for the end of the test failed", source })?;
        }
    }

    /// Ends the warm-up at one instant that both ends can still be told about; where that is none before its own end, it
    /// ends by itself.
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

    /// An instant that both ends can still be told about.
    fn soon_ns(&self) -> u64 {
        let rtt_ns = self.parties().map(Party::rtt_ns).max().unwrap_or(0);
        monotonic_ns() + 2_000_000 + rtt_ns.saturating_mul(2)
    }

    /// Ends the measure phase early, at one instant that both ends can still be told about.
    fn stop_both(&mut self) {
        let at_ns = self.soon_ns();
        self.parties_mut().for_each(|party| party.stop_at(at_ns));
    }

    /// One end is done: the other one may have no other way to know. It is not stopped before its own time, unless the
    /// first one has failed.
    fn tell(&mut self) {
        let failed = self.parties().any(Party::has_failed);
        let scheduled = self.plan.length_ns.filter(|_| !failed).map_or(0, |length| self.t0_ns + length);
        let at_ns = monotonic_ns().max(scheduled);
        self.parties_mut().filter(|party| !party.is_done()).for_each(|party| party.stop_at(at_ns));
    }

    fn silent(&self) -> ClientError {
        // The far end is the one that a near end in this process waits for, too; and it is always a daemon.
        let far = self.far.as_ref().and_then(|far| far.host().filter(|_| !far.is_done()));
        let blamed = far.or_else(|| self.near.host()).or_else(|| self.far.as_ref().and_then(Party::host));
        let here = || super::HostLabel { name: "local".to_owned(), control: "this process".to_owned() };
        ClientError::Silent { host: blamed.cloned().unwrap_or_else(here), seconds: self.plan.grace.as_secs_f64() }
    }
}
