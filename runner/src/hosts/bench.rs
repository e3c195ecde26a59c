//! One iteration, or one of each case of a round: takes sessions, prepares the tests, starts them at one instant and waits for
//! them.

use std::{net::Ipv6Addr, sync::mpsc, thread, time::Duration};

use netcore::{
    client::{self, ClientError, DataAddresses, Far, Outcome, Peer, Prepared, RunningTest, Session, Timeouts},
    control::{message::ErrorCode, stop::StopFlag},
    measure::clock::{monotonic_ns, nanoseconds},
    spec::{Family, TestSpec},
};

use super::{
    Hosts,
    watch::{Display, Watch},
};
use crate::{
    plan::{
        case::{Endpoint, Member},
        estimate::measure_length,
    },
    progress::Progress,
    schedule::{
        bench::{Bench, MeasureError, Measured},
        step::Step,
    },
};

/// Interval of `--interim` where the plan has none.
const INTERIM_INTERVAL: Duration = Duration::from_secs(1);

/// Time added to the common start per member: telling one takes a message and a thread.
const LEAD_PER_MEMBER_NS: u64 = 500_000;

/// One member, with the sessions of its ends.
struct Seat {
    /// `None`: this process.
    near: Option<Session>,
    /// `None`: another program.
    far: Option<Session>,
    /// Another program that takes part; `None`: a service that does not.
    peer: Option<Peer>,
    addresses: DataAddresses,
    timeouts: Timeouts,
    spec: TestSpec,
    /// Time from the group's start until its load begins, nanoseconds.
    after_ns: u64,
}

/// A member with its test.
type Part<'a> = (&'a Member, &'a TestSpec, Duration);

impl Bench for Hosts {
    fn measure(&mut self, step: &Step, _: u32, progress: &mut Progress) -> Result<Measured, MeasureError> {
        let names = || step.members.iter().flat_map(Member::places).map(Endpoint::name);
        let parts: Vec<Part<'_>> = parts(step).collect();
        let seats: Result<Vec<Seat>, MeasureError> = self.seats(&parts, progress).into_iter().collect();
        self.measure_once(step, seats?, progress).map_err(|error| self.because(names(), error))
    }

    /// A pair that fails leaves the others of its round as they are.
    fn measure_round(
        &mut self,
        steps: &[(&Step, u32)],
        progress: &mut Progress,
    ) -> Vec<Result<Measured, MeasureError>> {
        if let [(step, iteration)] = steps {
            return vec![self.measure(step, *iteration, progress)];
        }
        let parts: Vec<Part<'_>> = steps.iter().flat_map(|(step, _)| parts(step)).collect();
        let mut seats = self.seats(&parts, progress);
        self.take_turns_apart(&parts, &mut seats, progress);
        let name = steps.first().map_or_else(String::new, |(step, _)| step.shown());
        let mut display = Display::new(progress, &name, self.interim);
        let ended = apart(&mut seats, &parts, &mut display, &self.stop);
        let mut results = Vec::with_capacity(parts.len());
        for (((member, _, grace), seat), ended) in parts.into_iter().zip(seats).zip(ended) {
            results.push(match (seat, ended) {
                (Err(error), _) => Err(error),
                (Ok(seat), Some(Ok((outcome, settled)))) => {
                    self.keep(member, grace, seat);
                    let start_skew = outcome.start_skew_ns.map(|ns| Duration::from_nanos(ns.unsigned_abs()));
                    Ok(Measured { members: vec![outcome], start_skew, settled, ..Measured::default() })
                }
                // The sessions are dropped with the seat: their state is unknown.
                (Ok(_), Some(Err(error))) => Err(self.because([member.from.name(), member.to.name()], error)),
                (Ok(_), None) => Err(MeasureError::failed("it was not started")),
            });
        }
        results
    }
}

/// The members of a step that are tests.
fn parts(step: &Step) -> impl Iterator<Item = Part<'_>> {
    step.members.iter().filter_map(|member| Some((member, member.spec()?, step.grace)))
}

impl Hosts {
    fn because<'a>(&mut self, names: impl IntoIterator<Item = &'a str>, error: ClientError) -> MeasureError {
        let error = MeasureError::from(error);
        MeasureError { message: self.explained(names, error.message), ..error }
    }

    fn measure_once(
        &mut self,
        step: &Step,
        mut seats: Vec<Seat>,
        progress: &mut Progress,
    ) -> Result<Measured, ClientError> {
        if let Some(job) = step.members.first().and_then(Member::ranks) {
            return self.measure_ranks(step, job, progress);
        }
        // After an error the sessions are dropped with the seats: their state is unknown.
        let ends: Vec<Part<'_>> = parts(step).collect();
        self.take_turns(&ends, &mut seats.iter_mut().collect::<Vec<_>>(), progress)?;
        let mut display = Display::new(progress, &step.name, self.interim);
        let names: Vec<&str> = step.members.iter().map(|member| member.name.as_str()).collect();
        let measured = match seats.as_mut_slice() {
            [seat] => alone(seat, names[0], &mut display, &self.stop)?,
            seats => together(seats, &names, &mut display, &self.stop)?,
        };
        for (member, seat) in step.members.iter().zip(seats) {
            self.keep(member, step.grace, seat);
        }
        Ok(measured)
    }

    fn keep(&mut self, member: &Member, grace: Duration, seat: Seat) {
        for (end, session) in [(&member.to, seat.far), (&member.from, seat.near)] {
            if let Some(session) = session {
                self.give_back(end, grace, session);
            }
        }
    }

    /// Waits at the daemons that serve one client at a time. A session that a daemon has closed meanwhile is opened again,
    /// and takes its turn again.
    fn take_turns(
        &mut self,
        parts: &[Part<'_>],
        seats: &mut [&mut Seat],
        progress: &Progress,
    ) -> Result<(), ClientError> {
        loop {
            let mut waited = false;
            let sessions = seats.iter_mut().flat_map(|seat| seat.near.iter_mut().chain(&mut seat.far));
            client::take_turns(sessions, &self.stop, &mut |host, place| {
                waited = true;
                progress.waiting(&host.name, place);
            })?;
            if !waited {
                return Ok(());
            }
            for ((member, _, grace), seat) in parts.iter().zip(seats.iter_mut()) {
                for (end, session) in [(&member.from, &mut seat.near), (&member.to, &mut seat.far)] {
                    if let Some(session) = session
                        && !session.is_alive()
                    {
                        *session = self.session(end, *grace)?;
                    }
                }
            }
        }
    }

    /// The same for tests of their own. Where it fails, a test whose daemon is gone fails, and the others wait again.
    fn take_turns_apart(&mut self, parts: &[Part<'_>], seats: &mut [Result<Seat, MeasureError>], progress: &Progress) {
        loop {
            let there = |(part, seat)| Some((part, Result::as_mut(seat).ok()?));
            let (taking, mut waiting): (Vec<Part<'_>>, Vec<&mut Seat>) =
                parts.iter().copied().zip(seats.iter_mut()).filter_map(there).unzip();
            let Err(error) = self.take_turns(&taking, &mut waiting, progress) else { return };
            let error = MeasureError::from(error);
            let is_there = |seat: &mut Seat| seat.near.iter_mut().chain(&mut seat.far).all(Session::is_alive);
            let gone: Vec<bool> =
                seats.iter_mut().map(|seat| seat.as_mut().is_ok_and(|seat| !is_there(seat))).collect();
            let is_known = gone.contains(&true);
            for (seat, gone) in seats.iter_mut().zip(gone).filter(|(seat, _)| seat.is_ok()) {
                if gone || !is_known {
                    *seat = Err(error.clone());
                }
            }
        }
    }

    /// The seats of tests, with sessions that are opened at the same time.
    fn seats<'a>(&mut self, parts: &[Part<'a>], progress: &Progress) -> Vec<Result<Seat, MeasureError>> {
        let near_is_here = |member: &Member| self.places.get(&member.from).is_none_or(|p| p.target.is_none());
        let ends = |(member, spec, grace): Part<'a>| {
            let near = (!near_is_here(member)).then_some((&member.from, grace));
            [near, spec.has_daemon().then_some((&member.to, grace))]
        };
        let asked: Vec<_> = parts.iter().copied().map(ends).collect();
        let wanted: Vec<_> = asked.iter().flatten().flatten().copied().collect();
        let mut opened = self.sessions(&wanted).into_iter();
        let mut seats = Vec::with_capacity(parts.len());
        for ((member, spec, grace), [near, far]) in parts.iter().zip(asked) {
            // Both are taken before either is looked at: the sessions of the next seat follow them.
            let near = near.and_then(|_| opened.next());
            let far = far.and_then(|_| opened.next());
            seats.push(match (near.transpose(), far.transpose()) {
                (Ok(near), Ok(far)) => {
                    self.seat(member, spec, *grace, (near, far), progress).map_err(MeasureError::from)
                }
                (near, far) => {
                    let mut fault = None;
                    for (end, session) in [(&member.to, far), (&member.from, near)] {
                        match session {
                            Ok(session) => session.into_iter().for_each(|it| self.give_back(end, *grace, it)),
                            Err(error) => fault = Some(error),
                        }
                    }
                    Err(fault.unwrap_or_else(|| MeasureError::failed("no session")))
                }
            });
        }
        seats
    }

    fn seat(
        &self,
        member: &Member,
        spec: &TestSpec,
        grace: Duration,
        (near, far): (Option<Session>, Option<Session>),
        progress: &Progress,
    ) -> Result<Seat, ClientError> {
        let peer = self.peers.get(&member.to).filter(|_| !spec.has_daemon()).map(Peer::connect).transpose()?;
        let data = |end: &Endpoint| match end {
            _ if !spec.has_daemon() => self.services.get(end).copied(),
            // Its control connection is on IPv4's loopback; data may use either family.
            Endpoint::Embedded if spec.family == Family::V6 => Some(Ipv6Addr::LOCALHOST.into()),
            _ => self.places.get(end).and_then(|p| p.data),
        };
        let addresses = DataAddresses { far: data(&member.to), ..DataAddresses::default() };
        let mut spec = spec.clone();
        spec.interim |= self.interim;
        if spec.phases.interval_ns == 0 {
            let every = if self.interim {
                INTERIM_INTERVAL
            } else if near.is_none() {
                progress.interval(measure_length(&spec))
            } else {
                Duration::ZERO
            };
            spec.phases.interval_ns = nanoseconds(every);
        }
        let timeouts = Timeouts { grace, ..Timeouts::default() };
        let after_ns = nanoseconds(member.after);
        Ok(Seat { near, far, peer, addresses, timeouts, spec, after_ns })
    }
}

impl Seat {
    fn prepare(&mut self) -> Result<Prepared<'_>, ClientError> {
        let far = match (&mut self.far, &mut self.peer) {
            (Some(session), _) => Far::Daemon(session),
            (None, Some(peer)) => Far::Peer(peer),
            (None, None) => Far::Service,
        };
        client::prepare(self.near.as_mut(), far, &self.spec, &self.addresses, self.timeouts)
    }
}

/// The end of a test, and whether its warm-up has settled.
type Ended = Result<(Outcome, Option<bool>), ClientError>;

/// Runs the only member of a case.
fn alone(seat: &mut Seat, name: &str, display: &mut Display<'_>, stop: &StopFlag) -> Result<Measured, ClientError> {
    let spec = seat.spec.clone();
    let running = seat.prepare()?.start(None)?;
    display.add(name, &spec, running.t0_ns());
    let (outcome, settled) = watched(vec![running], &[spec], display, stop).remove(0)?;
    let start_skew = outcome.start_skew_ns.map(|ns| Duration::from_nanos(ns.unsigned_abs()));
    Ok(Measured { members: vec![outcome], start_skew, settled, ..Measured::default() })
}

/// Waits for all tests, each in a thread of its own, and shows what they do.
fn watched(
    running: Vec<RunningTest<'_>>,
    specs: &[TestSpec],
    display: &mut Display<'_>,
    stop: &StopFlag,
) -> Vec<Ended> {
    let (sender, news) = mpsc::channel();
    let watches: Vec<Watch> = specs.iter().enumerate().map(|(m, spec)| Watch::new(m, spec, sender.clone())).collect();
    drop(sender);
    thread::scope(|scope| {
        let mut waiting = Vec::with_capacity(running.len());
        for (test, mut watch) in running.into_iter().zip(watches) {
            waiting.push(scope.spawn(move || test.wait(&mut watch, stop).map(|outcome| (outcome, watch.settled()))));
        }
        display.follow(&news);
        waiting.into_iter().map(join).collect()
    })
}

/// Prepares tests at the same time: each takes several round trips.
fn prepared<'s>(seats: impl Iterator<Item = &'s mut Seat>) -> Vec<Result<Prepared<'s>, ClientError>> {
    thread::scope(|scope| {
        let preparing: Vec<_> = seats.map(|seat| scope.spawn(|| seat.prepare())).collect();
        preparing.into_iter().map(join).collect()
    })
}

/// An instant at which all of them can start.
fn common_start_ns<'p>(prepared: impl Iterator<Item = &'p Prepared<'p>>) -> u64 {
    let (lead, count) = prepared.fold((Duration::ZERO, 0), |(lead, n), test| (lead.max(test.lead()), n + 1));
    monotonic_ns() + u64::try_from(lead.as_nanos()).unwrap_or(u64::MAX / 2) + LEAD_PER_MEMBER_NS * count
}

/// Prepares every member, then starts them all at one instant. No message goes to any host between the announcement of that
/// instant and the end of the last measurement.
fn together(
    seats: &mut [Seat],
    names: &[&str],
    display: &mut Display<'_>,
    stop: &StopFlag,
) -> Result<Measured, ClientError> {
    let specs: Vec<TestSpec> = seats.iter().map(|seat| seat.spec.clone()).collect();
    let afters: Vec<u64> = seats.iter().map(|seat| seat.after_ns).collect();
    let prepared: Vec<Prepared<'_>> = prepared(seats.iter_mut()).into_iter().collect::<Result<_, _>>()?;
    let t0_ns = common_start_ns(prepared.iter());
    let begins: Vec<u64> = afters.iter().map(|after| t0_ns.saturating_add(*after)).collect();
    let running: Vec<RunningTest<'_>> =
        prepared.into_iter().zip(&begins).map(|(p, begin)| p.start(Some(*begin))).collect::<Result<_, _>>()?;
    for ((name, spec), begin) in names.iter().zip(&specs).zip(&begins) {
        display.add(name, spec, *begin);
    }
    let ended: Vec<_> = watched(running, &specs, display, stop).into_iter().collect::<Result<_, _>>()?;
    let outcomes: Vec<Outcome> = ended.into_iter().map(|(outcome, _)| outcome).collect();
    // Without `after`, the load should start at t0 everywhere; a member is measured its own warm-up later.
    let starts: Vec<u64> = outcomes
        .iter()
        .zip(specs.iter().zip(afters).map(|(spec, after)| spec.phases.warmup_ns.saturating_add(after)))
        .flat_map(|(o, later)| [o.near_loaded_ns, o.far_loaded_ns].map(|s| s.map(|s| s.saturating_sub(later))))
        .flatten()
        .collect();
    let start_skew = starts.iter().max().zip(starts.iter().min()).map(|(a, b)| Duration::from_nanos(a - b));
    Ok(Measured { members: outcomes, start_skew, ..Measured::default() })
}

/// Runs the tests of a round. Those that can be prepared start at one instant, and each has an end of its own. `None`: the
/// test has no seat.
fn apart(
    seats: &mut [Result<Seat, MeasureError>],
    parts: &[Part<'_>],
    display: &mut Display<'_>,
    stop: &StopFlag,
) -> Vec<Option<Ended>> {
    let mut results: Vec<Option<Ended>> = seats.iter().map(|_| None).collect();
    let there: Vec<usize> = (0..seats.len()).filter(|at| seats[*at].is_ok()).collect();
    let specs: Vec<TestSpec> = seats.iter().flatten().map(|seat| seat.spec.clone()).collect();
    let mut ready = Vec::new();
    for ((at, spec), prepared) in there.into_iter().zip(specs).zip(prepared(seats.iter_mut().flatten())) {
        match prepared {
            Ok(test) => ready.push((at, spec, test)),
            Err(error) => results[at] = Some(Err(error)),
        }
    }
    let t0_ns = common_start_ns(ready.iter().map(|(.., test)| test));
    let (mut started, mut specs, mut running) = (Vec::new(), Vec::new(), Vec::new());
    for (at, spec, test) in ready {
        match test.start(Some(t0_ns)) {
            Ok(test) => {
                let (member, ..) = parts[at];
                display.add(&format!("{} → {}", member.from.name(), member.to.name()), &spec, t0_ns);
                started.push(at);
                specs.push(spec);
                running.push(test);
            }
            Err(error) => results[at] = Some(Err(error)),
        }
    }
    for (at, ended) in started.into_iter().zip(watched(running, &specs, display, stop)) {
        results[at] = Some(ended);
    }
    results
}

fn join<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

impl From<ClientError> for MeasureError {
    fn from(error: ClientError) -> Self {
        let timeout = match &error {
            ClientError::Silent { .. } => true,
            ClientError::Daemon { error, .. } => error.code == ErrorCode::TimedOut,
            _ => false,
        };
        Self { timeout, message: error.to_string() }
    }
}
