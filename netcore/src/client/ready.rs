//! Making a test ready: both ends prepared and connected, nothing sent yet.

use std::{
    net::IpAddr,
    os::fd::AsFd,
    time::{Duration, Instant},
};

use super::{
    ClientError, Observer, Outcome, Peer, RunningTest, Session, Timeouts,
    running::{Party, Plan},
    take_turns,
};
use crate::{
    control::{
        channel::ChannelError,
        event::wait,
        load::Load,
        message::{self, Connect, Part, Prepare, Reply, Request},
        netns,
        stop::StopFlag,
    },
    end::{End, Endpoints, Token},
    error::EndError,
    measure::clock::{monotonic_ns, nanoseconds},
    peers::DataPath,
    spec::{Side, TestSpec},
    transport::folder::has_names,
};

/// Time for the threads to wake up before the load, besides the time that the message takes.
const LEAD: Duration = Duration::from_millis(10);

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

/// A test that is connected at both ends and waits for its start. Dropping it makes both ends forget it.
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
    /// A service at `addresses.far` that takes no part ([`TestSpec::is_alone`]).
    Service,
    /// Another program. The near end must be this process.
    Peer(&'s mut Peer),
}

/// The sessions of a test before its start. Dropping them makes their daemons forget it.
struct Daemons<'s> {
    /// `None`: the near end is this process.
    near: Option<&'s mut Session>,
    /// `None`: a service that takes no part.
    far: Option<&'s mut Session>,
}

impl Daemons<'_> {
    fn sessions(&mut self) -> impl Iterator<Item = &mut Session> {
        [&mut self.near, &mut self.far].into_iter().filter_map(Option::as_deref_mut)
    }
}

impl Drop for Daemons<'_> {
    fn drop(&mut self) {
        self.sessions().for_each(Session::forget);
    }
}

/// Makes a test ready. Daemons that give turns need [`take_turns`] before. After an error both ends forget the test, and
/// the turns are given back.
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
    let far = match far {
        Far::Daemon(session) => Some(session),
        Far::Service => None,
        Far::Peer(_) if near.is_some() => {
            let reason = "the near end of a test with another program must be the process that runs the plan";
            return Err(EndError::Impossible(reason.to_owned()).into());
        }
        Far::Peer(peer) => return with_peer(peer, spec, addresses, timeouts),
    };
    let mut there = Daemons { near, far };
    there.sessions().try_for_each(Session::begin)?;
    let Daemons { near, far } = &mut there;
    let token = token()?;
    let no_address = || EndError::Impossible("the service has no address".to_owned());
    let (address, endpoints) = match far {
        Some(far) => {
            let mut endpoints = prepare_there(far, spec, Side::Far, addresses.far, token)?;
            far.route(&mut endpoints, addresses.far);
            (addresses.far.unwrap_or(far.peer().address), endpoints)
        }
        None => (addresses.far.ok_or_else(no_address)?, Endpoints::default()),
    };
    match (&mut *near, &*far) {
        (Some(near), _) => drop(prepare_there(near, spec, Side::Near, addresses.near, token)?),
        (None, Some(far)) => check_endpoints(far, spec, address, &endpoints)?,
        (None, None) => {}
    }
    if let Some(far) = far {
        connect_there(far, None)?;
    }
    let here = match near {
        Some(near) => {
            connect_there(near, Some(message::Peer { address, endpoints }))?;
            None
        }
        None => match connect_here(spec, addresses, (address, &endpoints), token, timeouts.ready) {
            Ok(end) => Some((end, addresses.near_netns.clone())),
            Err(error) => {
                return Err(match far {
                    Some(far) => far.reason_or(error),
                    None => error,
                });
            }
        },
    };
    await_connected(&mut there)?;
    let limit_ns = there.sessions().map(|daemon| daemon.peer().limits.duration_ns).min().unwrap_or(u64::MAX);
    Ok(Prepared { here, there, peer: None, plan: Plan::new(spec, timeouts, limit_ns) })
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
    let there = Daemons { near: None, far: None };
    Ok(Prepared { here: Some((end, netns)), there, peer: Some(peer), plan: Plan::new(spec, timeouts, u64::MAX) })
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
        let sessions = self.there.near.iter().chain(&self.there.far);
        let rtt_ns = sessions.map(|session| session.peer().clock.rtt_ns).max().unwrap_or(0);
        if self.peer.is_some() && self.plan.near_receives {
            // Its data is under way already.
            return Duration::ZERO;
        }
        LEAD + Duration::from_nanos(rtt_ns.saturating_mul(2))
    }

    /// Starts both ends at the same instant of this host's monotonic clock ([`crate::measure::clock::monotonic_ns`]):
    /// the load begins then, first the warm-up. `None`: as soon as possible.
    pub fn start(self, t0_ns: Option<u64>) -> Result<RunningTest<'s>, ClientError> {
        let lead = self.lead();
        let Self { here, mut there, mut peer, plan } = self;
        if let Some(peer) = &mut peer {
            peer.begin(plan.timeouts)?;
        }
        let t0_ns = t0_ns.unwrap_or_else(|| monotonic_ns() + nanoseconds(lead));
        let Daemons { near, far } = &mut there;
        for session in [far, near].into_iter().flatten() {
            start_session(session, t0_ns, plan.length_ns.is_none())?;
        }
        let near = match here {
            Some((end, netns)) => {
                Some(Party::here(netns::within(netns.as_deref(), || Load::start(end, t0_ns, plan.watched))??))
            }
            None => there.near.take().map(|near| Party::there(near, &plan)),
        };
        let near = near.ok_or_else(|| EndError::Impossible("the test has no near end".to_owned()))?;
        let far = there.far.take().map(|far| Party::there(far, &plan)).or_else(|| peer.map(Party::peer));
        Ok(RunningTest::new(near, far, plan, t0_ns))
    }
}

fn prepare_there(
    session: &mut Session,
    spec: &TestSpec,
    side: Side,
    data_address: Option<IpAddr>,
    token: Token,
) -> Result<Endpoints, ClientError> {
    let prepare = Prepare { part: Part::End { spec: Box::new(spec.clone()), side }, token, data_address };
    // The test takes the turn with it.
    session.has_turn = false;
    session.send(&Request::Prepare(Box::new(prepare)))?;
    session.expect("prepare", session.timeouts.reply, |reply| match reply {
        Reply::Prepared(endpoints) => Ok(endpoints),
        other => Err(other),
    })
}

fn connect_there(session: &mut Session, peer: Option<message::Peer>) -> Result<(), ClientError> {
    let within_ns = nanoseconds(session.timeouts.ready);
    session.send(&Request::Connect(Connect { peers: peer.into_iter().collect(), within_ns }))
}

fn connect_here(
    spec: &TestSpec,
    addresses: &DataAddresses,
    peer: (IpAddr, &Endpoints),
    token: Token,
    within: Duration,
) -> Result<End, ClientError> {
    let end = netns::within(addresses.near_netns.as_deref(), || -> Result<End, EndError> {
        let mut end = End::prepare(spec, Side::Near, addresses.near, token)?;
        end.connect(Some(peer), within)?;
        Ok(end)
    })?;
    Ok(end?)
}

/// Waits until the daemons say that every flow is connected.
fn await_connected(there: &mut Daemons<'_>) -> Result<(), ClientError> {
    let mut daemons: Vec<&mut Session> = there.sessions().collect();
    let ready = |daemon: &mut Session| {
        daemon.expect("connect", daemon.time_to_connect(), |reply| match reply {
            Reply::Ready => Ok(()),
            other => Err(other),
        })
    };
    if let [near, far] = &mut daemons[..] {
        // The end that fails answers first. Waiting for the other one would take until its own time is over.
        let patience = Instant::now() + near.time_to_connect().max(far.time_to_connect());
        let [near_first, _] = wait([Some(near.channel.as_fd()), Some(far.channel.as_fd())], Some(patience))
            .map_err(|source| ClientError::System { what: "waiting for both daemons failed", source })?;
        if near_first {
            ready(near).map_err(|error| far.reason_or(error))?;
            ready(far)?;
        } else {
            ready(far)?;
            ready(near)?;
        }
    } else {
        daemons.iter_mut().try_for_each(|daemon| ready(daemon))?;
    }
    Ok(())
}

/// `is_open`: whether the test stops by a count.
pub(super) fn start_session(session: &mut Session, t0_ns: u64, is_open: bool) -> Result<(), ClientError> {
    let theirs = session.peer().clock.to_theirs(t0_ns);
    let t0_ns = theirs.ok_or_else(|| ClientError::Clock { host: session.host.clone(), probes: 0 })?;
    // A test of known length is watched by its deadline, and its window stays free of everything, keep-alive included.
    session.channel.set_keepalive(is_open).map_err(|source| session.channel_error(source))?;
    session.send(&Request::Start { t0_ns })
}

/// A daemon may direct this process only to the daemon's own host.
fn check_endpoints(session: &Session, spec: &TestSpec, far: IpAddr, endpoints: &Endpoints) -> Result<(), ClientError> {
    let elsewhere = |place: String| Err(ClientError::Elsewhere { host: session.host.clone(), place });
    match endpoints.address {
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
