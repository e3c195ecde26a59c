//! Making a test ready: all parts prepared and connected, nothing sent yet.

use std::{
    net::IpAddr,
    os::fd::AsFd,
    time::{Duration, Instant},
};

use super::{
    ClientError, HostLabel, Observer, Outcome, Peer, RunningTest, Session, Timeouts,
    running::{Participant, Plan},
};
use crate::{
    control::{
        channel::ChannelError,
        key::Key,
        message::{self, Connect, Part, Prepare, Reply, Request},
        netns,
        part::Load,
        stop::{StopFlag, Urgency, wait_any},
    },
    end::{End, Endpoints, Token},
    error::EndError,
    measure::clock::{monotonic_ns, nanoseconds},
    peers::DataPath,
    spec::{Side, TestSpec},
    transport::meeting::has_names,
};

/// Time for the threads to wake up before the load, besides the time that the messages take.
const LEAD: Duration = Duration::from_millis(10);

/// Time added to the common start per daemon: telling one takes a message.
const LEAD_PER_DAEMON: Duration = Duration::from_micros(100);

/// Addresses of the data, where they differ from those of the control connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DataAddresses {
    /// Local address of the near end's data sockets; `None`: by the route.
    pub near: Option<IpAddr>,
    /// Address that the near end connects to; `None`: the one at which the far end's daemon was reached.
    pub far: Option<IpAddr>,
    /// Network namespace of the data sockets of a near end in this process; `None`: the process's own.
    pub near_netns: Option<String>,
}

/// A test whose parts are connected and wait for their start. Dropping it makes all of them forget it.
pub struct Prepared<'s> {
    /// The near end, and the network namespace of its sockets; `None`: it is on a daemon.
    here: Option<(End, Option<String>)>,
    there: Daemons<'s>,
    /// A far end that is another program.
    peer: Option<&'s mut Peer>,
    plan: Plan,
}

/// The far end of a test.
pub enum Far<'s> {
    /// A daemon.
    Daemon(&'s mut Session),
    /// A service at `addresses.far` that takes no part ([`TestSpec::is_alone`]). A reflector may have a key.
    Service(Option<Key>),
    /// Another program. The near end must be this process.
    Peer(&'s mut Peer),
}

/// The sessions of a test before its start: an end or rank that accepts comes before those that connect to it. Dropping them
/// makes their daemons forget the test.
pub(super) struct Daemons<'s>(pub(super) Vec<&'s mut Session>);

impl Drop for Daemons<'_> {
    fn drop(&mut self) {
        self.0.iter_mut().for_each(|session| session.forget());
    }
}

impl<'s> Daemons<'s> {
    /// Prepares a part at each daemon, with the address of its data. Returns the places of the parts.
    pub(super) fn prepare(
        &mut self,
        parts: impl IntoIterator<Item = (Part, Option<IpAddr>)>,
        token: Token,
    ) -> Result<Vec<message::Peer>, ClientError> {
        self.0.iter_mut().try_for_each(|session| session.begin())?;
        let mut addresses = Vec::with_capacity(self.0.len());
        for (session, (part, data_address)) in self.0.iter_mut().zip(parts) {
            // The test takes the turn with it.
            session.has_turn = false;
            session.send(&Request::Prepare(Box::new(Prepare { part, token, data_address })))?;
            addresses.push(data_address);
        }
        let mut places = Vec::with_capacity(addresses.len());
        for (session, data) in self.0.iter_mut().zip(addresses) {
            let mut endpoints = session.expect("prepare", session.timeouts.reply, |reply| match reply {
                Reply::Prepared(endpoints) => Ok(endpoints),
                other => Err(other),
            })?;
            session.route(&mut endpoints, data);
            places.push(message::Peer { address: data.unwrap_or(session.peer().address), endpoints });
        }
        Ok(places)
    }

    /// Waits until the daemons say that every flow is connected.
    pub(super) fn await_connected(&mut self) -> Result<(), ClientError> {
        let patience = self.0.iter().map(|session| session.time_to_connect()).max().unwrap_or_default();
        let deadline = Instant::now() + patience;
        let mut waiting: Vec<usize> = (0..self.0.len()).collect();
        loop {
            let mut still = Vec::with_capacity(waiting.len());
            for at in waiting {
                match self.0[at].is_connected() {
                    Ok(true) => {}
                    Ok(false) => still.push(at),
                    // The part that fails answers first. The one that it connects to often knows the cause.
                    Err(error) => {
                        return Err(match &mut self.0[..] {
                            [far, _] if at == 1 => far.reason_or(error),
                            _ => error,
                        });
                    }
                }
            }
            let Some(first) = still.first() else { return Ok(()) };
            if Instant::now() >= deadline {
                let late = self.0[*first].channel.late("no answer came", patience.as_secs_f64());
                return Err(self.0[*first].channel_error(late));
            }
            let fds: Vec<_> = still.iter().map(|at| Some(self.0[*at].channel.as_fd())).collect();
            wait_any(&fds, Some(deadline))
                .map_err(|source| ClientError::System { what: "waiting for the daemons to connect failed", source })?;
            waiting = still;
        }
    }

    /// The test that they are connected for, all of whose parts are there.
    pub(super) fn ready(self, plan: impl FnOnce(u64) -> Plan) -> Prepared<'s> {
        let limit_ns = self.0.iter().map(|session| session.peer().limits.duration_ns).min().unwrap_or(u64::MAX);
        Prepared { here: None, there: self, peer: None, plan: plan(limit_ns) }
    }
}

/// Makes a test of two ends ready. Daemons that give turns need [`take_turns`] before. After an error both ends forget the
/// test, and the turns are given back.
///
/// - `near`: the daemon of the near end, which must allow connections to the far end's address
///   (`plumb serve --allow-connect`); `None`: the near end is this process.
/// - `far`: the far end.
pub fn prepare<'s>(
    near: Option<&'s mut Session>,
    far: Far<'s>,
    spec: &TestSpec,
    addresses: &DataAddresses,
    timeouts: Timeouts,
) -> Result<Prepared<'s>, ClientError> {
    let (far, key) = match far {
        Far::Daemon(session) => (Some(session), None),
        Far::Service(key) => (None, key),
        Far::Peer(_) if near.is_some() => {
            let reason = "the near end of a test with another program must be the process that runs the plan";
            return Err(EndError::Impossible(reason.to_owned()).into());
        }
        Far::Peer(peer) => return with_peer(peer, spec, addresses, timeouts),
    };
    let (near_is_here, far_is_there) = (near.is_none(), far.is_some());
    let part = |side, address| (Part::End { spec: Box::new(spec.clone()), side }, address);
    let parts =
        [far.as_ref().map(|_| part(Side::Far, addresses.far)), near.as_ref().map(|_| part(Side::Near, addresses.near))];
    let mut there = Daemons([far, near].into_iter().flatten().collect());
    let token = token()?;
    let places = there.prepare(parts.into_iter().flatten(), token)?;
    let no_address = || EndError::Impossible("the service has no address".to_owned());
    let mut to = match places.into_iter().next().filter(|_| far_is_there) {
        Some(far) => far,
        None => message::Peer { address: addresses.far.ok_or_else(no_address)?, endpoints: Endpoints::default() },
    };
    to.endpoints.at_control &= near_is_here;
    if let Some(far) = there.0.first().filter(|_| near_is_here) {
        check_endpoints(far, spec, &to)?;
    }
    for (at, session) in there.0.iter_mut().enumerate() {
        let is_far = far_is_there && at == 0;
        session.connect_part(if is_far { Vec::new() } else { vec![to.clone()] })?;
    }
    let mut here = None;
    if near_is_here {
        here = match connect_here(spec, (addresses, key), &to, token, timeouts.ready) {
            Ok(end) => Some((end, addresses.near_netns.clone())),
            Err(error) => {
                return Err(match there.0.first_mut() {
                    Some(far) => far.reason_or(error),
                    None => error,
                });
            }
        };
    }
    there.await_connected()?;
    Ok(Prepared { here, ..there.ready(|limit_ns| Plan::of_ends(spec, timeouts, limit_ns)) })
}

fn with_peer<'s>(
    peer: &'s mut Peer,
    spec: &TestSpec,
    addresses: &DataAddresses,
    timeouts: Timeouts,
) -> Result<Prepared<'s>, ClientError> {
    let path = DataPath { near: addresses.near, far: addresses.far };
    let netns = addresses.near_netns.clone();
    let end = netns::within(netns.as_deref(), || peer.agree(spec, path, timeouts))??;
    let plan = Plan::of_ends(spec, timeouts, u64::MAX);
    Ok(Prepared { here: Some((end, netns)), there: Daemons(Vec::new()), peer: Some(peer), plan })
}

impl Session {
    /// Makes a test ready whose near end is this process and whose far end is this session's daemon.
    pub fn prepare(&mut self, spec: &TestSpec, addresses: &DataAddresses) -> Result<Prepared<'_>, ClientError> {
        let timeouts = self.timeouts;
        prepare(None, Far::Daemon(self), spec, addresses, timeouts)
    }

    /// Runs a test from beginning to end.
    pub fn run(
        &mut self,
        spec: &TestSpec,
        addresses: &DataAddresses,
        observer: &mut dyn Observer,
        stop: &StopFlag,
    ) -> Result<Outcome, ClientError> {
        take_turns([&mut *self], stop, &mut |_, _| ())?;
        self.prepare(spec, addresses)?.start(None)?.wait(observer, stop)
    }

    /// Asks it to connect its part to these. One that only accepts has longer: the other one fails first, and knows more of the way.
    pub(super) fn connect_part(&mut self, peers: Vec<message::Peer>) -> Result<(), ClientError> {
        let longer = if peers.is_empty() { self.timeouts.reply / 2 } else { Duration::ZERO };
        self.send(&Request::Connect(Connect { peers, within_ns: nanoseconds(self.timeouts.ready + longer) }))
    }

    /// Whether it has said that its part is connected.
    fn is_connected(&mut self) -> Result<bool, ClientError> {
        match self.try_recv()? {
            None => Ok(false),
            Some(Reply::Ready) => Ok(true),
            Some(other) => Err(self.unexpected("connect", other)),
        }
    }

    /// The daemon's account of a failure at the other end: it often knows the cause. The daemon gives its flows up, and so answers
    /// soon: with its reason where it failed before, or else that it was told to.
    fn reason_or(&mut self, ours: ClientError) -> ClientError {
        let host = self.host.clone();
        // A daemon that is gone may have said why.
        let _ = self.abort();
        match self.channel.recv(Instant::now() + self.timeouts.reply) {
            Ok(Reply::Error(error)) if error.message == EndError::Cancelled.to_string() => ours,
            Ok(Reply::Error(error)) => ClientError::Daemon { host, error },
            Err(ChannelError::Closed) => ClientError::Vanished { host },
            _ => ours,
        }
    }
}

impl<'s> Prepared<'s> {
    /// The least time between [`Prepared::start`] and `t0_ns`: for the messages to arrive and the threads to wake up.
    pub fn lead(&self) -> Duration {
        let rtt_ns = self.there.0.iter().map(|session| session.peer().clock.rtt_ns).max().unwrap_or(0);
        if self.peer.is_some() && self.plan.near_receives {
            // Its data is under way already.
            return Duration::ZERO;
        }
        let daemons = u32::try_from(self.there.0.len()).unwrap_or(u32::MAX);
        LEAD + LEAD_PER_DAEMON * daemons + Duration::from_nanos(rtt_ns.saturating_mul(2)) + self.plan.idle
    }

    /// Starts all parts at the same instant of this host's monotonic clock ([`crate::measure::clock::monotonic_ns`]):
    /// the load begins then, first the warm-up. `None`: as soon as possible.
    pub fn start(self, t0_ns: Option<u64>) -> Result<RunningTest<'s>, ClientError> {
        let lead = self.lead();
        let Self { here, mut there, mut peer, plan } = self;
        if let Some(peer) = &mut peer {
            peer.begin(plan.timeouts)?;
        }
        let t0_ns = t0_ns.unwrap_or_else(|| monotonic_ns() + nanoseconds(lead));
        for session in &mut there.0 {
            start_session(session, t0_ns, plan.length_ns.is_none())?;
        }
        let start = |(end, netns): (End, Option<String>)| {
            let running = netns::within(netns.as_deref(), || Load::start(end, t0_ns, plan.watched))??;
            Ok::<_, ClientError>(Participant::here(running))
        };
        let here = here.map(start).transpose()?;
        let there = std::mem::take(&mut there.0).into_iter().map(|session| Participant::there(session, &plan));
        let participants = peer.map(Participant::peer).into_iter().chain(there).chain(here).collect();
        Ok(RunningTest::new(participants, plan, t0_ns))
    }
}

fn connect_here(
    spec: &TestSpec,
    (addresses, key): (&DataAddresses, Option<Key>),
    to: &message::Peer,
    token: Token,
    within: Duration,
) -> Result<End, ClientError> {
    let end = netns::within(addresses.near_netns.as_deref(), || -> Result<End, EndError> {
        let mut end = End::prepare(spec, Side::Near, addresses.near, token)?;
        if let Some(key) = key {
            end.prove_with(key.secret());
        }
        end.connect(Some((to.address, &to.endpoints)), within)?;
        Ok(end)
    })?;
    Ok(end?)
}

/// `is_open`: whether the test stops by a count.
fn start_session(session: &mut Session, t0_ns: u64, is_open: bool) -> Result<(), ClientError> {
    let theirs = session.peer().clock.to_theirs(t0_ns);
    let t0_ns = theirs.ok_or_else(|| ClientError::Clock { host: session.host.clone(), probes: 0 })?;
    // A test of known length is watched by its deadline, and its window stays free of everything, keep-alive included.
    session.channel.set_keepalive(is_open).map_err(|source| session.channel_error(source))?;
    session.send(&Request::Start { t0_ns })
}

/// A daemon may direct this process only to the daemon's own host.
fn check_endpoints(session: &Session, spec: &TestSpec, to: &message::Peer) -> Result<(), ClientError> {
    let far = to.address;
    let elsewhere = |place: String| Err(ClientError::Elsewhere { host: session.host.clone(), place });
    match to.endpoints.address {
        Some(address) if address != far && address != session.peer().address && !spec.far.bind.contains(&address) => {
            elsewhere(address.to_string())
        }
        _ if has_names(spec.transport) && !far.is_loopback() && !session.peer().address.is_loopback() => {
            elsewhere(format!("a {} of that host", spec.transport.name()))
        }
        _ => Ok(()),
    }
}

pub(super) fn token() -> Result<Token, ClientError> {
    let mut token = Token::default();
    getrandom::fill(&mut token).map_err(|error| ClientError::System {
        what: "the system gives no random bytes",
        source: std::io::Error::other(error.to_string()),
    })?;
    Ok(token)
}

/// Waits for a turn at each of the daemons that gives turns ([`crate::control::message::Limits::queue_ns`]), for one test
/// of each session, to be prepared next. A group of tests needs all of its sessions here at once.
///
/// All clients ask daemons in the same order, that of their numbers: two clients never wait for each other. A session that
/// has an unused turn keeps it, unless one before it in that order has none.
///
/// `waiting` hears the place, from 1, whenever it changes. A raised `stop` gives up: [`ClientError::Interrupted`]. A turn
/// that a daemon takes back while the client waits at another one is an error too. After an error no session has a turn.
pub fn take_turns<'s>(
    sessions: impl IntoIterator<Item = &'s mut Session>,
    stop: &StopFlag,
    waiting: &mut dyn FnMut(&HostLabel, u32),
) -> Result<(), ClientError> {
    let mut sessions: Vec<&mut Session> =
        sessions.into_iter().filter(|session| session.peer().limits.queue_ns.is_some()).collect();
    sessions.sort_by_key(|session| session.peer().number);
    let first = sessions.iter().position(|session| !session.has_turn).unwrap_or(sessions.len());
    for later in sessions[first..].iter_mut().filter(|session| session.has_turn) {
        later.abort()?;
    }
    for asking in first..sessions.len() {
        let (granted, rest) = sessions.split_at_mut(asking);
        if let Err(error) = rest[0].take_turn(granted, stop, waiting) {
            for session in &mut sessions[..=asking] {
                // Fails only if the connection is broken, and then the daemon takes the turn back anyway.
                let _ = session.abort();
            }
            return Err(error);
        }
    }
    Ok(())
}

impl Session {
    /// Waits for a turn. `granted`: the client's sessions that have one already.
    fn take_turn(
        &mut self,
        granted: &mut [&mut Session],
        stop: &StopFlag,
        waiting: &mut dyn FnMut(&HostLabel, u32),
    ) -> Result<(), ClientError> {
        self.begin()?;
        // Keep-alive detects a dead daemon during a silent wait.
        self.channel.set_keepalive(true).map_err(|source| self.channel_error(source))?;
        self.send(&Request::Turn)?;
        let longest = Duration::from_nanos(self.peer().limits.queue_ns.unwrap_or(0)).min(self.timeouts.turn);
        let asked = Instant::now();
        let mut deadline = asked + self.timeouts.reply;
        loop {
            if stop.urgency() > Urgency::None {
                return Err(ClientError::Interrupted);
            }
            if Instant::now() >= deadline {
                let seconds = asked.elapsed().as_secs_f64();
                return Err(
                    self.invalid(format!("it was asked for a turn {seconds:.0} s ago, and nothing more is heard"))
                );
            }
            for session in granted.iter_mut() {
                // Unasked, a daemon tells only of the end of the session.
                if let Some(reply) = session.try_recv()? {
                    return Err(session.unexpected("turn", reply));
                }
            }
            match self.try_recv()? {
                Some(Reply::Granted) => {
                    self.has_turn = true;
                    return Ok(());
                }
                Some(Reply::Waiting { place }) => {
                    deadline = asked + longest + self.timeouts.reply;
                    waiting(&self.host, place);
                }
                Some(other) => return Err(self.unexpected("turn", other)),
                None => {
                    let mut fds = vec![Some(self.channel.as_fd()), stop.beyond(Urgency::None)];
                    fds.extend(granted.iter().map(|session| Some(session.channel.as_fd())));
                    wait_any(&fds, Some(deadline))
                        .map_err(|source| ClientError::System { what: "waiting for a turn failed", source })?;
                }
            }
        }
    }
}
