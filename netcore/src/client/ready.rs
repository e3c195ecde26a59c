//! Making a test ready: both ends prepared and connected, nothing sent yet.

use std::{
    net::IpAddr,
    time::{Duration, Instant},
};

use super::{
    ClientError, Observer, Outcome, RunningTest, Session, Timeouts,
    running::{Party, Plan},
};
use crate::{
    control::{
        channel::ChannelError,
        event::wait,
        load::Load,
        message::{Connect, Peer, Prepare, Reply, Request},
        netns,
        stop::StopFlag,
    },
    end::{End, Endpoints, Token},
    error::EndError,
    measure::clock::monotonic_ns,
    spec::{Side, TestSpec},
};

/// Time between the decision to start and the load, besides the time that the message takes: threads must be awake.
const LEAD: Duration = Duration::from_millis(10);

/// How long a daemon may take to say why our connection to it failed.
const LAST_WORD: Duration = Duration::from_millis(50);

/// Where the data goes, if elsewhere than the control connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DataAddresses {
    /// Local address of the near end's data sockets; `None`: by the route.
    pub near: Option<IpAddr>,
    /// Address that the near end connects to; `None`: the one that the far end's daemon was reached at.
    pub far: Option<IpAddr>,
    /// Network namespace of the near end's data sockets where the near end is this process; `None`: the process's own.
    pub near_netns: Option<String>,
}

pub(super) enum Near<'s> {
    Here { end: Box<End>, netns: Option<String> },
    There(&'s mut Session),
}

/// A test that is connected at both ends and waits for its start. Dropping it makes both ends forget it.
pub struct Prepared<'s> {
    near: Near<'s>,
    /// `None`: a service that takes no part.
    far: Option<&'s mut Session>,
    plan: Plan,
}

impl Session {
    /// Makes a test ready whose near end is this process and whose far end is this session's daemon.
    pub fn prepare(&mut self, spec: &TestSpec, addresses: &DataAddresses) -> Result<Prepared<'_>, ClientError> {
        self.begin()?;
        let token = token()?;
        let far_address = addresses.far.unwrap_or(self.peer().address);
        let endpoints = prepare_remote(self, spec, Side::Far, addresses.far, token)?;
        check_endpoints(self, spec, far_address, &endpoints)?;
        let within = self.timeouts.ready;
        self.send(&Request::Connect(Connect { peer: None, within_ns: nanoseconds(within) }))?;
        let namespace = addresses.near_netns.clone();
        let end = netns::within(namespace.as_deref(), || -> Result<End, EndError> {
            let mut end = End::prepare(spec, Side::Near, addresses.near, token)?;
            end.connect(Some((far_address, &endpoints)), within)?;
            Ok(end)
        })?;
        let end = match end {
            Ok(end) => end,
            Err(error) => return Err(self.reason_or(error.into())),
        };
        await_ready(self)?;
        let plan = Plan::new(spec, self.timeouts, self.peer().limits.duration_ns);
        Ok(Prepared { near: Near::Here { end: Box::new(end), netns: namespace }, far: Some(self), plan })
    }

    /// Runs a test from beginning to end.
    pub fn run(
        &mut self,
        spec: &TestSpec,
        addresses: &DataAddresses,
        observer: &mut dyn Observer,
        stop: &StopFlag,
    ) -> Result<Outcome, ClientError> {
        self.prepare(spec, addresses)?.start(None)?.wait(observer, stop)
    }

    /// What the daemon has to say about a failure here, if it says something soon: it often knows the cause.
    fn reason_or(&mut self, ours: ClientError) -> ClientError {
        let host = self.host.clone();
        match self.channel.recv(Instant::now() + LAST_WORD + Duration::from_nanos(self.peer().clock.rtt_ns)) {
            Ok(Reply::Error(error)) => ClientError::Daemon { host, error },
            Err(ChannelError::Closed) => ClientError::Vanished { host },
            _ => ours,
        }
    }
}

/// Makes a test ready whose ends are both on daemons: this process only conducts. The near end's daemon must allow
/// connections to the far end's address (`plumb serve --allow-connect`).
pub fn conduct<'s>(
    near: &'s mut Session,
    far: &'s mut Session,
    spec: &TestSpec,
    addresses: &DataAddresses,
) -> Result<Prepared<'s>, ClientError> {
    near.begin()?;
    far.begin()?;
    let token = token()?;
    let far_address = addresses.far.unwrap_or(far.peer().address);
    let endpoints = prepare_remote(far, spec, Side::Far, addresses.far, token)?;
    prepare_remote(near, spec, Side::Near, addresses.near, token)?;
    far.send(&Request::Connect(Connect { peer: None, within_ns: nanoseconds(far.timeouts.ready) }))?;
    let peer = Peer { address: far_address, endpoints };
    near.send(&Request::Connect(Connect { peer: Some(peer), within_ns: nanoseconds(near.timeouts.ready) }))?;
    // Whoever fails answers first; the other one would keep us waiting until its own time is over.
    let patience = |session: &Session| session.timeouts.ready + session.timeouts.reply;
    let patience = Instant::now() + patience(far).max(patience(near));
    let first = {
        use std::os::fd::AsFd;
        wait([Some(near.channel.as_fd()), Some(far.channel.as_fd())], Some(patience))
            .map_err(|source| ClientError::System { what: "waiting for both daemons failed", source })?
    };
    if first[0] {
        await_ready(near)?;
        await_ready(far)?;
    } else {
        await_ready(far)?;
        await_ready(near)?;
    }
    let limit = near.peer().limits.duration_ns.min(far.peer().limits.duration_ns);
    let plan = Plan::new(spec, far.timeouts, limit);
    Ok(Prepared { near: Near::There(near), far: Some(far), plan })
}

/// Makes a test ready whose far end is a service that takes no part ([`TestSpec::alone`]), at `addresses.far`. The near end
/// is this process, or the daemon of a session, which must allow connections to the service's address.
pub fn alone<'s>(
    near: Option<&'s mut Session>,
    spec: &TestSpec,
    addresses: &DataAddresses,
    timeouts: Timeouts,
) -> Result<Prepared<'s>, ClientError> {
    let address = addresses.far.ok_or_else(|| EndError::Impossible("the service has no address".to_owned()))?;
    let token = token()?;
    let Some(near) = near else {
        let netns = addresses.near_netns.clone();
        let end = netns::within(netns.as_deref(), || -> Result<End, EndError> {
            let mut end = End::prepare(spec, Side::Near, addresses.near, token)?;
            end.connect(Some((address, &Endpoints::default())), timeouts.ready)?;
            Ok(end)
        })??;
        let plan = Plan::new(spec, timeouts, u64::MAX);
        return Ok(Prepared { near: Near::Here { end: Box::new(end), netns }, far: None, plan });
    };
    near.begin()?;
    prepare_remote(near, spec, Side::Near, addresses.near, token)?;
    let peer = Peer { address, endpoints: Endpoints::default() };
    near.send(&Request::Connect(Connect { peer: Some(peer), within_ns: nanoseconds(timeouts.ready) }))?;
    await_ready(near)?;
    let plan = Plan::new(spec, timeouts, near.peer().limits.duration_ns);
    Ok(Prepared { near: Near::There(near), far: None, plan })
}

impl<'s> Prepared<'s> {
    /// The least time before the start that [`Prepared::start`] should be called: for the messages to arrive and the
    /// threads to wake up.
    #[must_use]
    pub fn lead(&self) -> Duration {
        let rtt = |session: &Session| session.peer().clock.rtt_ns;
        let near = match &self.near {
            Near::Here { .. } => 0,
            Near::There(session) => rtt(session),
        };
        let far = self.far.as_deref().map_or(0, rtt);
        LEAD + Duration::from_nanos(far.max(near).saturating_mul(2))
    }

    /// Starts both ends at the same instant of this host's monotonic clock ([`crate::measure::clock::monotonic_ns`]):
    /// the load begins then, first the warm-up. `None`: as soon as possible.
    pub fn start(self, t0_ns: Option<u64>) -> Result<RunningTest<'s>, ClientError> {
        let t0_ns = t0_ns.unwrap_or_else(|| monotonic_ns() + nanoseconds(self.lead()));
        let Self { near, mut far, plan } = self;
        if let Some(far) = &mut far {
            start_remote(far, t0_ns, &plan)?;
        }
        let near = match near {
            Near::There(session) => {
                start_remote(session, t0_ns, &plan)?;
                Party::there(session)
            }
            Near::Here { end, netns } => {
                let watched = plan.watched;
                Party::here(netns::within(netns.as_deref(), || Load::start(*end, t0_ns, watched))??)
            }
        };
        Ok(RunningTest::new(near, far.map(Party::there), plan, t0_ns))
    }
}

fn prepare_remote(
    session: &mut Session,
    spec: &TestSpec,
    side: Side,
    data_address: Option<IpAddr>,
    token: Token,
) -> Result<Endpoints, ClientError> {
    let prepare = Prepare { spec: spec.clone(), side, token, data_address };
    session.send(&Request::Prepare(Box::new(prepare)))?;
    session.expect("prepare", session.timeouts.reply, |reply| match reply {
        Reply::Prepared(endpoints) => Ok(endpoints),
        other => Err(other),
    })
}

fn await_ready(session: &mut Session) -> Result<(), ClientError> {
    session.expect("connect", session.timeouts.ready + session.timeouts.reply, |reply| match reply {
        Reply::Ready => Ok(()),
        other => Err(other),
    })
}

fn start_remote(session: &mut Session, t0_ns: u64, plan: &Plan) -> Result<(), ClientError> {
    let theirs = session.peer().clock.to_theirs(t0_ns);
    let t0_ns = theirs.ok_or_else(|| ClientError::Clock { host: session.host.clone(), probes: 0 })?;
    // A test of known length is watched by its deadline and its window stays free of everything, keep-alive included.
    session
        .channel
        .set_keepalive(plan.is_counted())
        .map_err(|source| ClientError::Channel { host: session.host.clone(), source })?;
    session.send(&Request::Start { t0_ns })
}

/// A daemon may not send this process anywhere else than to itself.
fn check_endpoints(session: &Session, spec: &TestSpec, far: IpAddr, endpoints: &Endpoints) -> Result<(), ClientError> {
    let elsewhere = |place: String| Err(ClientError::Elsewhere { host: session.host.clone(), place });
    match endpoints.address {
        Some(address) if address != far && address != session.peer().address && !spec.far.bind.contains(&address) => {
            elsewhere(address.to_string())
        }
        _ if !endpoints.paths.is_empty() && !far.is_loopback() && !session.peer().address.is_loopback() => {
            elsewhere(endpoints.paths[0].display().to_string())
        }
        _ => Ok(()),
    }
}

fn token() -> Result<Token, ClientError> {
    let mut token = Token::default();
    getrandom::fill(&mut token).map_err(|error| ClientError::System {
        what: "the system gives no random bytes",
        source: std::io::Error::other(error.to_string()),
    })?;
    Ok(token)
}

pub(super) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
