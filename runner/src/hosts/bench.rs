//! One iteration, or one of each case of a round: takes sessions, prepares the tests, starts them at one instant and waits for
//! them.

use std::{
    net::{IpAddr, Ipv6Addr},
    sync::mpsc,
    thread,
    time::Duration,
};

use netcore::{
    client::{
        self, ClientError, DataAddresses, Far, Outcome, Peer, Prepared, RankSession, RunningTest, Session, Timeouts,
    },
    control::{key::Key, message::ErrorCode, stop::StopFlag},
    measure::clock::{monotonic_ns, nanoseconds},
    spec::{Family, Phases, Side, Stop, TestSpec, ranks::RanksSpec},
};

use super::{
    Hosts,
    watch::{Display, IntervalReport, Watch, headline_side},
};
use crate::{
    plan::{
        answers::measure_length,
        case::{Endpoint, Member},
        job::Job,
    },
    progress::Progress,
    schedule::{Bench, MeasureError, Measured, step::Step, whole::Whole},
};

/// Interval of `--interim` where the plan has none.
const INTERIM_INTERVAL: Duration = Duration::from_secs(1);

/// Time added to the common start per member: telling one takes a message and a thread.
const LEAD_PER_MEMBER_NS: u64 = 500_000;

/// One member, with the sessions of its ends.
struct Slot<'a> {
    member: &'a Member,
    grace: Duration,
    sessions: Sessions<'a>,
    /// Addresses of their data, where these differ from those of their daemons.
    data: Vec<Option<IpAddr>>,
    /// Another program that takes part.
    peer: Option<Peer>,
    /// The key of a reflector.
    key: Option<Key>,
    test: Test<'a>,
}

/// A test as the engines run it.
#[derive(Clone)]
enum Test<'a> {
    Ends(Box<TestSpec>),
    Ranks(&'a RanksSpec),
}

/// Sessions of [`Member::ends`]. `None`: this process, another program or a service.
type Sessions<'a> = Vec<(&'a Endpoint, Option<Session>)>;

/// A member with its test, and the time that this may run over its length.
type Part<'a> = (&'a Member, Test<'a>, Duration);

impl Bench for Hosts {
    fn measure(&mut self, step: &Step, _: u32, progress: &mut Progress) -> Result<Measured, MeasureError> {
        let slots: Result<Vec<Slot<'_>>, MeasureError> =
            self.slots(parts(step).collect(), progress).into_iter().collect();
        // After an error the sessions are dropped with the slots: their state is unknown.
        let mut slots = slots?;
        let measured = self.take_turns(&mut slots.iter_mut().collect::<Vec<_>>(), progress).and_then(|()| {
            let mut display = Display::new(progress, &step.name, self.interim);
            let name = |member: &Member| member.name.clone();
            run(slots.iter_mut().collect(), name, true, &mut display, &self.stop).into_iter().collect()
        });
        let places = || step.members.iter().flat_map(Member::places);
        let measured: Vec<Measured> = measured.map_err(|error| self.because(places(), error))?;
        for slot in slots {
            self.keep(slot.sessions, slot.grace);
        }
        Ok(joined(measured, &step.members))
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
        let mut slots = self.slots(steps.iter().flat_map(|(step, _)| parts(step)).collect(), progress);
        self.take_turns_apart(&mut slots, progress);
        let name = steps.first().map_or_else(String::new, |(step, _)| step.shown());
        let mut display = Display::new(progress, &name, self.interim);
        let pair = |member: &Member| format!("{} → {}", member.from.name(), member.to.name());
        let mut ended = run(slots.iter_mut().flatten().collect(), pair, false, &mut display, &self.stop).into_iter();
        let result = |slot: Result<Slot<'_>, MeasureError>| {
            let slot = slot?;
            match ended.next() {
                Some(Ok(measured)) => {
                    self.keep(slot.sessions, slot.grace);
                    Ok(measured)
                }
                // The sessions are dropped with the slot: their state is unknown.
                Some(Err(error)) => Err(self.because(slot.member.places(), error)),
                None => Err(MeasureError::failed("it was not started")),
            }
        };
        slots.into_iter().map(result).collect()
    }
}

/// The members of a step that are tests.
fn parts(step: &Step) -> impl Iterator<Item = Part<'_>> {
    step.members.iter().filter_map(|member| {
        let test = match &member.job {
            Job::Traffic(spec) => Test::Ends(spec.clone()),
            Job::Ranks(job) => Test::Ranks(&job.spec),
            Job::Command(_) => return None,
        };
        Some((member, test, step.grace))
    })
}

/// The ends of a member, and whether each is at a daemon.
fn daemons(member: &Member) -> impl Iterator<Item = (&Endpoint, bool)> {
    member.ends().into_iter().map(|(end, has_daemon)| (end, has_daemon && *end != Endpoint::Local))
}

impl Hosts {
    fn because<'a>(&mut self, ends: impl IntoIterator<Item = &'a Endpoint>, error: ClientError) -> MeasureError {
        let error = MeasureError::from(error);
        MeasureError { message: self.explained(ends.into_iter().map(Endpoint::name), error.message), ..error }
    }

    fn keep(&mut self, sessions: Sessions<'_>, grace: Duration) {
        for (end, session) in sessions {
            if let Some(session) = session {
                self.give_back(end, grace, session);
            }
        }
    }

    /// Waits at the daemons that serve one client at a time. A session that a daemon has closed meanwhile is opened again,
    /// and takes its turn again.
    fn take_turns(&mut self, slots: &mut [&mut Slot<'_>], progress: &Progress) -> Result<(), ClientError> {
        loop {
            let mut waited = false;
            let sessions = slots.iter_mut().flat_map(|slot| slot.open());
            client::take_turns(sessions, &self.stop, &mut |host, place| {
                waited = true;
                progress.waiting(&host.name, place);
            })?;
            if !waited {
                return Ok(());
            }
            for slot in &mut *slots {
                for (end, session) in &mut slot.sessions {
                    if let Some(session) = session
                        && !session.is_alive()
                    {
                        *session = self.session(end, slot.grace)?;
                    }
                }
            }
        }
    }

    /// The same for tests of their own. Where it fails, a test whose daemon is gone fails, and the others wait again.
    fn take_turns_apart(&mut self, slots: &mut [Result<Slot<'_>, MeasureError>], progress: &Progress) {
        loop {
            let mut waiting: Vec<&mut Slot<'_>> = slots.iter_mut().flatten().collect();
            let Err(error) = self.take_turns(&mut waiting, progress) else { return };
            let error = MeasureError::from(error);
            let is_there = |slot: &mut Slot<'_>| slot.open().all(Session::is_alive);
            let gone: Vec<bool> =
                slots.iter_mut().map(|slot| slot.as_mut().is_ok_and(|slot| !is_there(slot))).collect();
            let is_known = gone.contains(&true);
            for (slot, gone) in slots.iter_mut().zip(gone).filter(|(slot, _)| slot.is_ok()) {
                if gone || !is_known {
                    *slot = Err(error.clone());
                }
            }
        }
    }

    /// The slots of tests, with sessions that are opened at the same time.
    fn slots<'a>(&mut self, parts: Vec<Part<'a>>, progress: &Progress) -> Vec<Result<Slot<'a>, MeasureError>> {
        let ends = |(member, _, grace): &Part<'a>| {
            let there = daemons(member).filter(|(_, is_there)| *is_there);
            there.map(|(end, _)| (end, *grace)).collect::<Vec<_>>()
        };
        let wanted: Vec<_> = parts.iter().flat_map(ends).collect();
        let mut opened = self.sessions(&wanted).into_iter();
        let mut slots = Vec::with_capacity(parts.len());
        for part in parts {
            let (member, _, grace) = part;
            let (mut sessions, mut fault) = (Vec::new(), None);
            for (end, is_there) in daemons(member) {
                // All are taken, whatever they are: the sessions of the next slot follow them.
                match if is_there { opened.next() } else { None } {
                    Some(Err(error)) => fault = fault.or(Some(error)),
                    session => sessions.push((end, session.and_then(Result::ok))),
                }
            }
            slots.push(match fault {
                None => self.slot(part, sessions, progress).map_err(MeasureError::from),
                Some(error) => {
                    self.keep(sessions, grace);
                    Err(error)
                }
            });
        }
        slots
    }

    fn slot<'a>(
        &self,
        (member, mut test, grace): Part<'a>,
        sessions: Sessions<'a>,
        progress: &Progress,
    ) -> Result<Slot<'a>, ClientError> {
        let (family, has_daemon) = match &mut test {
            Test::Ranks(spec) => (spec.family, true),
            Test::Ends(spec) => {
                let near_is_here = sessions.first().is_some_and(|(_, near)| near.is_none());
                self.watch_intervals(spec, near_is_here, progress);
                (spec.family, spec.has_daemon())
            }
        };
        let peer = self.peers.get(&member.to).filter(|_| !has_daemon);
        let peer = peer.map(|(program, target)| Peer::connect(*program, target)).transpose()?;
        let data = |(end, _): &(&Endpoint, _)| match *end {
            _ if !has_daemon => self.services.get(*end).copied(),
            // Its control connection is on IPv4's loopback; data may use either family.
            Endpoint::Embedded if family == Family::V6 => Some(Ipv6Addr::LOCALHOST.into()),
            end => self.places.get(end).and_then(|place| place.data),
        };
        let data = sessions.iter().map(data).collect();
        Ok(Slot { member, grace, sessions, data, key: self.keys.get(&member.to).cloned(), peer, test })
    }

    /// Adds the intervals that are shown while the test runs.
    fn watch_intervals(&self, spec: &mut TestSpec, near_is_here: bool, progress: &Progress) {
        spec.interim |= self.interim;
        if spec.phases.interval_ns == 0 {
            let every = if self.interim {
                INTERIM_INTERVAL
            } else if near_is_here {
                progress.interval(measure_length(spec))
            } else {
                Duration::ZERO
            };
            spec.phases.interval_ns = nanoseconds(every);
        }
    }
}

impl Slot<'_> {
    fn open(&mut self) -> impl Iterator<Item = &mut Session> {
        self.sessions.iter_mut().filter_map(|(_, session)| session.as_mut())
    }

    fn prepare(&mut self) -> Result<Prepared<'_>, ClientError> {
        let timeouts = Timeouts { grace: self.grace, ..Timeouts::default() };
        let mut sessions = self.sessions.iter_mut().map(|(_, session)| session.as_mut());
        match &self.test {
            Test::Ranks(spec) => {
                let slots = sessions.flatten().zip(&self.data);
                let slots = slots.map(|(session, address)| RankSession { session, address: *address });
                client::prepare_ranks(slots.collect(), spec, timeouts)
            }
            Test::Ends(spec) => {
                let (near, far) = (sessions.next().flatten(), sessions.next().flatten());
                let far = match (far, &mut self.peer) {
                    (Some(session), _) => Far::Daemon(session),
                    (None, Some(peer)) => Far::Peer(peer),
                    (None, None) => Far::Service(self.key.clone()),
                };
                let addresses = DataAddresses { far: self.data.get(1).copied().flatten(), ..DataAddresses::default() };
                client::prepare(near, far, spec, &addresses, timeouts)
            }
        }
    }
}

/// Runs tests at the same time: those that can be prepared start at one instant, or `after` it. No message goes to any host
/// between the announcement of that instant and the end of the last measurement, unless a test asks for it.
///
/// `whole`: they are a group, of which none starts where one cannot; then only errors come back.
fn run(
    slots: Vec<&mut Slot<'_>>,
    name: impl Fn(&Member) -> String,
    whole: bool,
    display: &mut Display<'_>,
    stop: &StopFlag,
) -> Vec<Result<Measured, ClientError>> {
    let tests: Vec<(Test<'_>, &Member)> = slots.iter().map(|slot| (slot.test.clone(), slot.member)).collect();
    let prepared = prepared(slots);
    if whole && prepared.iter().any(Result::is_err) {
        return prepared.into_iter().filter_map(Result::err).map(Err).collect();
    }
    // Alone, it starts as soon as it can.
    let t0_ns = (prepared.len() > 1).then(|| common_start_ns(prepared.iter().flatten()));
    let mut started: Vec<Result<RunningTest<'_>, ClientError>> = Vec::with_capacity(prepared.len());
    for (test, (_, member)) in prepared.into_iter().zip(&tests) {
        let begin_ns = t0_ns.map(|t0_ns| t0_ns.saturating_add(nanoseconds(member.after)));
        started.push(test.and_then(|test| test.start(begin_ns)));
    }
    if whole && started.iter().any(Result::is_err) {
        return started.into_iter().filter_map(Result::err).map(Err).collect();
    }
    let (sender, news) = mpsc::channel();
    thread::scope(|scope| {
        let mut waiting = Vec::with_capacity(started.len());
        for (running, (test, member)) in started.into_iter().zip(tests) {
            waiting.push(running.map(|running| {
                let number = display.add(name(member), &test.phases(), test.headline(), running.t0_ns());
                let news = sender.clone();
                scope.spawn(move || test.wait(running, (number, news), stop))
            }));
        }
        drop(sender);
        display.follow(&news);
        waiting.into_iter().map(|waiting| join(waiting?)).collect()
    })
}

impl Test<'_> {
    fn phases(&self) -> Phases {
        match self {
            Self::Ends(spec) => spec.phases,
            Self::Ranks(spec) => {
                // A kernel runs to its end.
                let stop = spec.length_ns().map_or(Stop::AfterTransactions(1), |_| spec.stop);
                Phases { warmup_ns: spec.warmup_ns, settle_ns: 0, stop, cooldown_ns: 0, interval_ns: 0 }
            }
        }
    }

    fn headline(&self) -> Side {
        if let Self::Ends(spec) = self { headline_side(spec) } else { Side::Near }
    }

    /// Waits for its end. `news` is dropped then.
    fn wait(
        self,
        running: RunningTest<'_>,
        (number, news): (usize, mpsc::Sender<IntervalReport>),
        stop: &StopFlag,
    ) -> Result<Measured, ClientError> {
        Ok(match self {
            Self::Ends(spec) => {
                let mut watch = Watch::new(number, &spec, news);
                let outcome = running.wait(&mut watch, stop)?;
                let start_skew = outcome.start_skew_ns.map(|ns| Duration::from_nanos(ns.unsigned_abs()));
                Measured { members: vec![outcome], start_skew, settled: watch.settled(), ..Measured::default() }
            }
            Self::Ranks(_) => {
                let outcome = running.wait_ranks(&mut (), stop)?;
                drop(news);
                Measured { whole: Some(Whole::Ranks(outcome)), ..Measured::default() }
            }
        })
    }
}

/// Prepares tests at the same time: each takes several round trips.
fn prepared<'s>(slots: Vec<&'s mut Slot<'_>>) -> Vec<Result<Prepared<'s>, ClientError>> {
    thread::scope(|scope| {
        let preparing: Vec<_> = slots.into_iter().map(|slot| scope.spawn(|| slot.prepare())).collect();
        preparing.into_iter().map(join).collect()
    })
}

/// An instant at which all of them can start.
fn common_start_ns<'p>(prepared: impl Iterator<Item = &'p Prepared<'p>>) -> u64 {
    let (lead, count) = prepared.fold((Duration::ZERO, 0), |(lead, n), test| (lead.max(test.lead()), n + 1));
    monotonic_ns() + u64::try_from(lead.as_nanos()).unwrap_or(u64::MAX / 2) + LEAD_PER_MEMBER_NS * count
}

/// The members of a case together.
fn joined(mut ended: Vec<Measured>, members: &[Member]) -> Measured {
    if ended.len() == 1 {
        return ended.remove(0);
    }
    let outcomes: Vec<Outcome> = ended.into_iter().flat_map(|measured| measured.members).collect();
    // Without `after`, the load should start at t0 everywhere; a member is measured its own warm-up later.
    let warmup_ns = |member: &Member| member.spec().map_or(0, |spec| spec.phases.warmup_ns);
    let later = members.iter().map(|member| warmup_ns(member).saturating_add(nanoseconds(member.after)));
    let loaded = outcomes.iter().zip(later).flat_map(|(outcome, later)| {
        let ends = [outcome.near_loaded_ns, outcome.far_loaded_ns];
        ends.into_iter().flatten().map(move |start| start.saturating_sub(later))
    });
    let starts: Vec<u64> = loaded.collect();
    let start_skew = starts.iter().max().zip(starts.iter().min()).map(|(a, b)| Duration::from_nanos(a - b));
    Measured { members: outcomes, start_skew, ..Measured::default() }
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
