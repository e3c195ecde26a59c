//! The control connection to one daemon.

use std::{
    collections::BTreeMap,
    fmt, io,
    net::{IpAddr, Shutdown, SocketAddr},
    os::{fd::AsFd, unix::net::UnixStream},
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use socket2::Socket;

use super::{ClientError, HostLabel, Target, Timeouts};
use crate::{
    control::{
        channel::{Channel, ChannelError},
        child,
        clock::{ClockOffset, PROBES, Probe},
        dial::{dial, resolve},
        frame::{GREETING_BOUND, REPLY_BOUND, REQUEST_BOUND},
        message::{self, Execute, Executed, Greeting, Hello, Limits, Look, Reply, Request, Seen},
        netns,
        stop::{StopFlag, Urgency, wait},
    },
    end::Endpoints,
    lock::Lock,
    measure::{
        clock::{self, monotonic_ns},
        envelope::Envelope,
        host::HostFacts,
    },
    mpi::RankFacts,
};

/// After this long the clocks are compared again before a test.
const CLOCK_AGE: Duration = Duration::from_secs(5);

/// Facts about a daemon and its host.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerFacts {
    pub tool_version: String,
    pub limits: Limits,
    pub host: HostFacts,
    pub clock: ClockOffset,
    /// The address at which it was reached, or that of its traffic where its control connection is relayed.
    pub address: IpAddr,
    /// A random number of the daemon.
    pub number: u64,
    /// The daemon as a rank of MPI, if it is one.
    pub mpi: Option<RankFacts>,
}

#[derive(Debug)]
pub struct Session {
    pub(super) host: HostLabel,
    pub(super) timeouts: Timeouts,
    pub(super) channel: Channel,
    peer: PeerFacts,
    /// The bounds from all comparisons of the clocks.
    clocks: Envelope,
    /// The port at which the daemon was reached; `None`: through a launcher.
    port: Option<u16>,
    /// Whether the daemon may still hold a test, or have a message about one on the way.
    dirty: bool,
    /// Whether an `abort` is unanswered.
    aborting: bool,
    /// Whether the next test may begin at a daemon that gives turns.
    pub(super) has_turn: bool,
    _cuttable: Option<Cuttable>,
}

impl Session {
    /// Connects, greets, and compares clocks.
    pub fn connect(target: &Target) -> Result<Self, ClientError> {
        let host =
            HostLabel { name: target.name.clone(), control: target.control.clone(), launched: target.cutter.is_some() };
        let deadline = Instant::now() + target.timeouts.connect;
        let unreached = |source| ClientError::Connect { host: host.clone(), source };
        let (stream, address, port) = if let Some(relay) = &target.relay {
            (Socket::from(relay.dial().map_err(unreached)?), relay.address, None)
        } else {
            let addresses =
                resolve(&target.control).map_err(|source| ClientError::Resolve { host: host.clone(), source })?;
            let stream = netns::within(target.netns.as_deref(), || dial(&addresses, target.bind, deadline))?
                .map_err(unreached)?;
            let reached = stream.peer_addr().map_err(unreached)?;
            (stream.into(), reached.ip().to_canonical(), Some(reached.port()))
        };
        let cuttable = target.cutter.as_ref().map(|cutter| cutter.add(&stream)).transpose().map_err(unreached)?;
        let mut channel =
            Channel::initiate(stream, target.key.as_ref(), deadline).map_err(|error| greeting_error(&host, error))?;
        let error = |source| ClientError::Channel { host: host.clone(), source };
        channel.send(&our_hello(), GREETING_BOUND, deadline).map_err(error)?;
        let hello = match channel.recv::<Greeting>(deadline).map_err(error)? {
            Greeting::Hello(hello) => hello,
            Greeting::Error(error) => return Err(ClientError::Daemon { host, error }),
        };
        channel.set_bound(REPLY_BOUND);
        let peer = PeerFacts {
            tool_version: hello.tool_version,
            limits: hello.limits.unwrap_or_default(),
            host: hello.host,
            clock: ClockOffset::default(),
            address,
            number: hello.process,
            mpi: hello.mpi,
        };
        let mut session = Self {
            host,
            timeouts: target.timeouts,
            channel,
            peer,
            clocks: Envelope::default(),
            port,
            dirty: false,
            aborting: false,
            has_turn: false,
            _cuttable: cuttable,
        };
        session.compare_clocks()?;
        Ok(session)
    }

    /// Whether the daemon is still there and ready for a test, after one that went well. A daemon that has been silent for
    /// some seconds is asked.
    pub fn is_alive(&mut self) -> bool {
        // Unasked, a daemon tells only of the end of the session.
        matches!(self.channel.try_recv::<Reply>(), Ok(None))
            && (self.clock_age() <= CLOCK_AGE || self.compare_clocks().is_ok())
    }

    fn clock_age(&self) -> Duration {
        Duration::from_nanos(monotonic_ns().saturating_sub(self.peer.clock.ours.monotonic_ns))
    }

    pub fn peer(&self) -> &PeerFacts {
        &self.peer
    }

    pub fn host(&self) -> &HostLabel {
        &self.host
    }

    /// Takes the port at which the daemon was reached for data at its control port: a gateway may lead to it from another
    /// one. `data`: the address for data, if it is another.
    pub(super) fn route(&self, endpoints: &mut Endpoints, data: Option<IpAddr>) {
        endpoints.at_control &= data.is_none_or(|address| address == self.peer.address) && self.port.is_some();
        if let Some(port) = self.port.filter(|_| endpoints.at_control) {
            endpoints.ports = vec![port];
        }
    }

    /// Address of this end of the control connection.
    pub fn local_addr(&self) -> Result<SocketAddr, ClientError> {
        self.channel
            .local_addr()
            .map_err(|source| ClientError::System { what: "the control connection has no address", source })
    }

    /// Asks for facts that the greeting does not tell.
    pub fn look(&mut self, look: Look) -> Result<Seen, ClientError> {
        self.send(&Request::Look(look))?;
        self.expect("look", self.timeouts.reply + Look::CPU_WINDOW, |reply| match reply {
            Reply::Seen(seen) => Ok(*seen),
            other => Err(other),
        })
    }

    /// Runs a program there to its end. When the flag rises above `heeds` the program is asked to end, and at its second
    /// rise it is ended with the session, which is of no use after an error.
    pub fn execute(&mut self, asked: Execute, stop: &StopFlag, heeds: Urgency) -> Result<Executed, ClientError> {
        let deadline =
            Instant::now() + Duration::from_nanos(asked.limit_ns).saturating_add(child::GRACE + self.timeouts.reply);
        self.send(&Request::Execute(Box::new(asked)))?;
        let mut asked_to_end = false;
        let executed = loop {
            match self.channel.try_recv().map_err(|source| self.channel_error(source))? {
                Some(Reply::Executed(executed)) => break *executed,
                Some(other) => return Err(self.unexpected("execute", other)),
                None => {}
            }
            let urgency = stop.urgency();
            if urgency == Urgency::Now && heeds < Urgency::Now {
                return Err(ClientError::Interrupted);
            }
            if urgency > heeds && !asked_to_end {
                self.send(&Request::Abort)?;
                asked_to_end = true;
            }
            if Instant::now() >= deadline {
                return Err(self.invalid("the hook's time is over and nothing is heard of its end".to_owned()));
            }
            wait([Some(self.channel.as_fd()), stop.beyond(urgency.max(heeds))], Some(deadline)).map_err(|source| {
                ClientError::System { what: "waiting for the end of a program on another host failed", source }
            })?;
        };
        if asked_to_end {
            self.expect("abort", self.timeouts.reply, |reply| match reply {
                Reply::Idle => Ok(()),
                other => Err(other),
            })?;
        }
        Ok(executed)
    }

    pub(super) fn compare_clocks(&mut self) -> Result<(), ClientError> {
        let mut probes = Vec::with_capacity(PROBES);
        for _ in 0..PROBES {
            let sent = clock::reading();
            self.send(&Request::Probe)?;
            let probe = self.expect("probe", self.timeouts.reply, |reply| match reply {
                Reply::Probed { arrived_ns, answered } => {
                    Ok(Probe { sent, arrived_ns, answered, received: clock::reading() })
                }
                other => Err(other),
            })?;
            probes.push(probe);
        }
        let offset = ClockOffset::of(&mut self.clocks, &probes);
        self.peer.clock = offset.ok_or_else(|| ClientError::Clock { host: self.host.clone(), probes: PROBES })?;
        Ok(())
    }

    /// Makes sure that the daemon holds no test, except for a turn, and that the clock is fresh.
    pub(super) fn begin(&mut self) -> Result<(), ClientError> {
        if self.dirty && !self.has_turn {
            self.abort()?;
            // An end that was waiting for its flows first says that it gave them up.
            let deadline = Instant::now() + self.timeouts.reply + self.timeouts.ready;
            loop {
                match self.try_recv()? {
                    Some(Reply::Idle) => break,
                    // After each message: a daemon that never pauses must not keep the client here.
                    _ if Instant::now() >= deadline => {
                        let reason = "it was told to forget its test, and has not answered that";
                        return Err(self.invalid(reason.to_owned()));
                    }
                    Some(_) => {}
                    None => {
                        wait([Some(self.channel.as_fd())], Some(deadline)).map_err(|source| ClientError::System {
                            what: "waiting for a daemon to forget a test failed",
                            source,
                        })?;
                    }
                }
            }
            (self.dirty, self.aborting) = (false, false);
        }
        if self.clock_age() > CLOCK_AGE {
            self.compare_clocks()?;
        }
        self.dirty = true;
        Ok(())
    }

    /// Asks the daemon to forget the test; the next test begins by waiting for its answer.
    pub(super) fn abort(&mut self) -> Result<(), ClientError> {
        if !self.aborting {
            (self.has_turn, self.dirty) = (false, true);
            self.send(&Request::Abort)?;
            self.aborting = true;
        }
        Ok(())
    }

    /// [`Self::abort`] where the daemon may hold a test or a turn.
    pub(super) fn forget(&mut self) {
        if self.dirty {
            // Fails only if the connection is broken, and its next user hears of that.
            let _ = self.abort();
        }
    }

    /// The daemon has sent its report: it holds no test any more.
    pub(super) fn completed(&mut self) {
        self.dirty = false;
    }

    pub(super) fn send(&mut self, request: &Request) -> Result<(), ClientError> {
        let deadline = Instant::now() + self.timeouts.reply;
        self.channel.send(request, REQUEST_BOUND, deadline).map_err(|source| self.channel_error(source))
    }

    pub(super) fn recv(&mut self, deadline: Instant) -> Result<Reply, ClientError> {
        self.channel.recv(deadline).map_err(|source| self.channel_error(source))
    }

    pub(super) fn try_recv(&mut self) -> Result<Option<Reply>, ClientError> {
        self.channel.try_recv().map_err(|source| match source {
            ChannelError::Closed => ClientError::Vanished { host: self.host.clone() },
            source => self.channel_error(source),
        })
    }

    /// The longest that the daemon may take to connect its flows and say so.
    pub(super) fn time_to_connect(&self) -> Duration {
        self.timeouts.ready + self.timeouts.reply
    }

    /// Waits for one kind of reply.
    pub(super) fn expect<T>(
        &mut self,
        request: &'static str,
        within: Duration,
        take: impl FnOnce(Reply) -> Result<T, Reply>,
    ) -> Result<T, ClientError> {
        let reply = self.recv(Instant::now() + within)?;
        take(reply).map_err(|other| self.unexpected(request, other))
    }

    pub(super) fn unexpected(&self, request: &'static str, reply: Reply) -> ClientError {
        let host = self.host.clone();
        match reply {
            Reply::Error(error) => ClientError::Daemon { host, error },
            other => ClientError::UnexpectedReply { host, request, reply: message::name(&other) },
        }
    }

    pub(super) fn invalid(&self, reason: String) -> ClientError {
        ClientError::Invalid { host: self.host.clone(), reason }
    }

    pub(super) fn channel_error(&self, source: ChannelError) -> ClientError {
        ClientError::Channel { host: self.host.clone(), source }
    }
}

fn our_hello() -> Hello {
    // The facts do not change while the process lives, and asking the kernel for them takes milliseconds.
    static FACTS: OnceLock<(u64, HostFacts)> = OnceLock::new();
    // Without random numbers no test gets a token either.
    let (process, host) = FACTS.get_or_init(|| (getrandom::u64().unwrap_or_default(), HostFacts::collect())).clone();
    Hello { tool_version: env!("CARGO_PKG_VERSION").to_owned(), process, limits: None, host, mpi: None }
}

fn greeting_error(host: &HostLabel, error: ChannelError) -> ClientError {
    let host = host.clone();
    match error {
        ChannelError::KeyRequired => ClientError::KeyRequired { host },
        ChannelError::KeyUnknown => ClientError::KeyUnknown { host },
        ChannelError::KeyDiffers => ClientError::KeyDiffers { host },
        source => ClientError::Channel { host, source },
    }
}

/// Opens control connections to one daemon that something else than the network carries: ends of socket pairs, which only this
/// process can reach.
#[derive(Clone)]
pub struct Relayed {
    /// Address of the daemon's traffic: the connection itself shows none.
    pub(super) address: IpAddr,
    open: Arc<dyn Fn() -> io::Result<UnixStream> + Send + Sync>,
}

impl Relayed {
    pub fn new(address: IpAddr, open: impl Fn() -> io::Result<UnixStream> + Send + Sync + 'static) -> Self {
        Self { address, open: Arc::new(open) }
    }

    pub(super) fn dial(&self) -> io::Result<UnixStream> {
        (self.open)()
    }
}

impl fmt::Debug for Relayed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relayed").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Cuts the control connections to a host from another thread: its daemon is known to be gone before the network says so. Clones
/// cut the same ones.
#[derive(Clone, Debug, Default)]
pub struct Cutter(Arc<Lock<Connections>>);

#[derive(Debug, Default)]
struct Connections {
    cut: bool,
    next: u64,
    open: BTreeMap<u64, Socket>,
}

impl Cutter {
    /// Ends all open connections, and every later one at once.
    pub fn cut(&self) {
        let mut connections = self.0.lock();
        connections.cut = true;
        for connection in connections.open.values() {
            // It may have ended by itself.
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    pub(super) fn add(&self, connection: &Socket) -> io::Result<Cuttable> {
        let connection = connection.try_clone()?;
        let mut connections = self.0.lock();
        if connections.cut {
            connection.shutdown(Shutdown::Both)?;
        }
        connections.next += 1;
        let number = connections.next;
        connections.open.insert(number, connection);
        Ok(Cuttable { cutter: self.clone(), number })
    }
}

/// A connection that can be cut. Dropping this closes the cutter's handle on it, without which the peer would not see the
/// connection's end.
#[derive(Debug)]
pub(super) struct Cuttable {
    cutter: Cutter,
    number: u64,
}

impl Drop for Cuttable {
    fn drop(&mut self) {
        self.cutter.0.lock().open.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::Read,
        net::{TcpListener, TcpStream},
    };

    use super::*;

    #[test]
    fn connections_are_cut_and_those_that_ended_are_forgotten() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = || Socket::from(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        let cutter = Cutter::default();
        let (mut first, second) = (connect(), connect());
        let _first = cutter.add(&first).unwrap();
        drop(cutter.add(&second).unwrap());
        cutter.cut();
        assert_eq!(first.read(&mut [0]).unwrap(), 0);
        assert_eq!(cutter.0.lock().open.len(), 1);
        let mut late = connect();
        let _late = cutter.add(&late).unwrap();
        assert_eq!(late.read(&mut [0]).unwrap(), 0);
        second.set_nonblocking(true).unwrap();
        assert_eq!((&second).read(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
