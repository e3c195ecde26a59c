//! One iteration: takes sessions, prepares the tests, starts them at one instant and waits for them.

use std::{
    net::Ipv6Addr,
    sync::mpsc::{self, Receiver},
    thread,
    time::Duration,
};

use netcore::{
    client::{self, ClientError, DataAddresses, Far, Outcome, Peer, Prepared, RunningTest, Session, Timeouts},
    control::{message::ErrorCode, stop::StopFlag},
    error::EndError,
    measure::clock::monotonic_ns,
    spec::{Family, TestSpec},
};

use super::{
    Hosts,
    watch::{Display, News, Watch},
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
}

impl Bench for Hosts {
    fn measure(&mut self, step: &Step, _: u32, progress: &mut Progress) -> Result<Measured, MeasureError> {
        self.measure_once(step, progress).map_err(|error| {
            let names = step.members.iter().flat_map(|member| [member.from.name(), member.to.name()]);
            let error = MeasureError::from(error);
            MeasureError { message: self.explained(names, error.message), ..error }
        })
    }
}

impl Hosts {
    fn measure_once(&mut self, step: &Step, progress: &mut Progress) -> Result<Measured, ClientError> {
        if let Some(job) = step.members.first().and_then(Member::ranks) {
            let what = "tests of several ranks are not available yet";
            return Err(EndError::Impossible(format!(
                "{what}: {} ranks over {}",
                job.ends.len(),
                job.spec.transport.name()
            ))
            .into());
        }
        let mut seats = Vec::with_capacity(step.members.len());
        for (member, spec) in step.members.iter().filter_map(|m| Some((m, m.spec()?))) {
            seats.push(self.seat(member, spec, step.grace, progress)?);
        }
        // After an error the sessions are dropped with the seats: their state is unknown.
        self.take_turns(step, &mut seats, progress)?;
        let mut display = Display::new(progress, &step.name, self.interim);
        let names: Vec<&str> = step.members.iter().map(|member| member.name.as_str()).collect();
        let measured = match seats.as_mut_slice() {
            [seat] => alone(seat, names[0], &mut display, &self.stop)?,
            seats => together(seats, &names, &mut display, &self.stop)?,
        };
        for (member, seat) in step.members.iter().zip(seats) {
            for (end, session) in [(&member.to, seat.far), (&member.from, seat.near)] {
                if let Some(session) = session {
                    self.give_back(end, step.grace, session);
                }
            }
        }
        Ok(measured)
    }

    /// Waits at the daemons that serve one client at a time. A session that a daemon has closed meanwhile is opened again,
    /// and takes its turn again.
    fn take_turns(&mut self, step: &Step, seats: &mut [Seat], progress: &Progress) -> Result<(), ClientError> {
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
            for (member, seat) in step.members.iter().zip(seats.iter_mut()) {
                for (end, session) in [(&member.from, &mut seat.near), (&member.to, &mut seat.far)] {
                    if let Some(session) = session
                        && !session.is_alive()
                    {
                        *session = self.session(end, step.grace)?;
                    }
                }
            }
        }
    }

    fn seat(
        &mut self,
        member: &Member,
        spec: &TestSpec,
        grace: Duration,
        progress: &Progress,
    ) -> Result<Seat, ClientError> {
        let near_is_here = self.places.get(&member.from).is_none_or(|p| p.target.is_none());
        let near = if near_is_here { None } else { Some(self.session(&member.from, grace)?) };
        let far = if spec.has_daemon() { Some(self.session(&member.to, grace)?) } else { None };
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
            } else if near_is_here {
                progress.interval(measure_length(&spec))
            } else {
                Duration::ZERO
            };
            spec.phases.interval_ns = u64::try_from(every.as_nanos()).unwrap_or(0);
        }
        let timeouts = Timeouts { grace, ..Timeouts::default() };
        Ok(Seat { near, far, peer, addresses, timeouts, spec })
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

/// Runs the only member of a case.
fn alone(seat: &mut Seat, name: &str, display: &mut Display<'_>, stop: &StopFlag) -> Result<Measured, ClientError> {
    let spec = seat.spec.clone();
    let running = seat.prepare()?.start(None)?;
    display.add(name, &spec, running.t0_ns());
    let (sender, news) = mpsc::channel();
    let watches = vec![Watch::new(0, &spec, sender)];
    let mut ended = watched(vec![running], watches, &news, display, stop)?;
    let (outcome, settled) = ended.remove(0);
    let start_skew = outcome.start_skew_ns.map(|ns| Duration::from_nanos(ns.unsigned_abs()));
    Ok(Measured { members: vec![outcome], start_skew, settled, printed: None })
}

/// Waits for all members, each in a thread of its own, and shows what they do. Returns with each outcome whether its warm-up
/// has settled.
fn watched(
    running: Vec<RunningTest<'_>>,
    watches: Vec<Watch>,
    news: &Receiver<News>,
    display: &mut Display<'_>,
    stop: &StopFlag,
) -> Result<Vec<(Outcome, Option<bool>)>, ClientError> {
    thread::scope(|scope| {
        let mut waiting = Vec::with_capacity(running.len());
        for (test, mut watch) in running.into_iter().zip(watches) {
            waiting.push(scope.spawn(move || test.wait(&mut watch, stop).map(|outcome| (outcome, watch.settled()))));
        }
        display.follow(news);
        waiting.into_iter().map(join).collect()
    })
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
    // In parallel: each takes several round trips.
    let prepared: Vec<Prepared<'_>> = thread::scope(|scope| {
        let preparing: Vec<_> = seats.iter_mut().map(|seat| scope.spawn(|| seat.prepare())).collect();
        preparing.into_iter().map(join).collect::<Result<_, _>>()
    })?;
    let lead = prepared.iter().map(Prepared::lead).max().unwrap_or_default();
    let t0_ns = monotonic_ns()
        + u64::try_from(lead.as_nanos()).unwrap_or(u64::MAX / 2)
        + LEAD_PER_MEMBER_NS * prepared.len() as u64;
    let running: Vec<RunningTest<'_>> = prepared.into_iter().map(|p| p.start(Some(t0_ns))).collect::<Result<_, _>>()?;
    let (sender, news) = mpsc::channel();
    let watches = specs.iter().enumerate().map(|(m, spec)| Watch::new(m, spec, sender.clone())).collect();
    drop(sender);
    for (name, spec) in names.iter().zip(&specs) {
        display.add(name, spec, t0_ns);
    }
    let ended = watched(running, watches, &news, display, stop)?;
    let outcomes: Vec<Outcome> = ended.into_iter().map(|(outcome, _)| outcome).collect();
    // The load should start at t0 everywhere; a member is measured its own warm-up later.
    let starts: Vec<u64> = outcomes
        .iter()
        .zip(specs.iter().map(|spec| spec.phases.warmup_ns))
        .flat_map(|(o, warmup)| [o.near_loaded_ns, o.far_loaded_ns].map(|s| s.map(|s| s.saturating_sub(warmup))))
        .flatten()
        .collect();
    let start_skew = starts.iter().max().zip(starts.iter().min()).map(|(a, b)| Duration::from_nanos(a - b));
    Ok(Measured { members: outcomes, start_skew, ..Measured::default() })
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
