//! The connect patterns' ends: a listener that accepts a connection for each operation, a connector that opens it.

use std::{
    cell::Cell,
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, AsRawFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{Shutdown, shutdown},
};
use socket2::SockRef;

use super::{
    Deadline, Link, Protocol,
    address::{Address, is_v6, peer_ip},
    connection::{self, Token},
    control_port::{Acceptor, Reserved},
    options::{self, Prepared},
};
use crate::{
    error::EndError,
    lock::Lock,
    spec::{Close, Io, SocketOptions, TestSpec, Transport},
    sys::{self, opt},
};

/// Time that the far end waits for the next connection before it checks for the end of the test.
const LOOK_UP: Duration = Duration::from_millis(50);

/// The event that a call on a connection waits for. A wait for room ends with input too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// Bytes to receive, or the end.
    Input,
    /// Room to send, or the end of a connection attempt.
    Room,
}

/// Far end of a flow of a connect pattern: accepts one connection for each operation.
#[derive(Debug)]
pub struct Listener {
    socket: Arc<OwnedFd>,
    /// Addresses of the peer. Empty where the transport has no addresses that could be a stranger's.
    peers: Vec<IpAddr>,
    /// Whether to wait for connections by poll.
    polled: bool,
    /// Options that an accepted connection does not inherit from the listening socket.
    accepted: Accepted,
    /// Set if the listening socket is that of the control port.
    at_control: Option<Acceptor>,
    /// Connections by which the near end's flows have proven themselves, where any of them may connect to this socket; empty
    /// where only this flow does.
    group: Vec<Arc<OwnedFd>>,
    pub present: Present,
}

/// Options of accepted connections.
#[derive(Debug)]
enum Accepted {
    /// The options that the listening socket does not pass on.
    Rest(Prepared),
    /// All of them.
    All(SocketOptions),
}

impl Accepted {
    fn apply(&self, socket: &OwnedFd) -> Result<(), EndError> {
        match self {
            Self::Rest(options) => options.apply(socket),
            Self::All(options) => options::apply_accepted(socket, options),
        }
    }
}

/// Near end of a flow of a connect pattern: opens one connection for each operation.
#[derive(Debug)]
pub struct Connector {
    protocol: Protocol,
    options: Prepared,
    fastopen: bool,
    to: Address,
    from: Vec<IpAddr>,
    /// First local port, and how many are used in turn.
    ports: Option<(u16, u16)>,
    reset: bool,
    pub present: Present,
}

/// The connection of the present operation, so that a thread that is blocked on it can be freed.
#[derive(Debug, Default)]
pub struct Present(Lock<Option<Arc<OwnedFd>>>);

impl Present {
    fn enter(&self, socket: OwnedFd) -> Connection {
        let socket = Arc::new(socket);
        *self.0.lock() = Some(socket.clone());
        Connection::new(socket)
    }

    /// Closes the connection. The caller's handle must be the only other one.
    pub fn leave(&self, connection: Connection) {
        self.0.lock().take();
        drop(connection);
    }

    /// Frees a thread that waits on the connection.
    pub fn free(&self) {
        if let Some(socket) = self.0.lock().clone() {
            free(&socket);
        }
    }
}

/// Frees threads that are blocked on a socket. It fails on one that is not connected any more, whose threads are free.
fn free(socket: &OwnedFd) {
    let _ = shutdown(socket.as_raw_fd(), Shutdown::Both);
}

/// One connection of a connect pattern.
#[derive(Debug)]
pub struct Connection {
    pub socket: Arc<OwnedFd>,
    /// For a thread of several flows: the event that it has registered with the kernel.
    pub watched: Cell<Option<Event>>,
    /// Whether connect(2) returned before the connection was made.
    pending: Cell<bool>,
}

impl Listener {
    fn new(socket: Arc<OwnedFd>, peers: Vec<IpAddr>, spec: &TestSpec) -> Result<Self, EndError> {
        let waits = waits(spec);
        // MPTCP accepts on its first subflow, which ignores the socket's time limit.
        let polled = spec.transport == Transport::Mptcp && waits;
        connection::set_blocking(&socket, waits && !polled)?;
        SockRef::from(&socket)
            .set_read_timeout(Some(LOOK_UP))
            .map_err(EndError::system("cannot bound the wait for connections"))?;
        let accepted = Accepted::Rest(Prepared::accepted(&spec.far.socket, spec.transport, is_v6(&socket)));
        let (at_control, group, present) = (None, Vec::new(), Present::default());
        Ok(Self { socket, peers, polled, accepted, at_control, group, present })
    }

    /// The proofs of all flows that may connect here, if there are others than this one's.
    pub fn group(&self) -> &[Arc<OwnedFd>] {
        &self.group
    }

    pub fn socket(&self) -> &Arc<OwnedFd> {
        &self.socket
    }

    /// Frees a thread that waits for a connection or on one.
    pub fn free(&self) {
        // The daemon goes on to listen on the control port, and its calls return soon.
        if self.at_control.is_none() {
            free(&self.socket);
        }
        self.present.free();
    }

    /// Accepts the next connection of the peer; `Ok(None)`: a connection was gone again, or was a stranger's and dropped. An
    /// error of the kind `WouldBlock`: no connection came for a while, or at once where the listener does not wait.
    pub fn accept(&self) -> std::io::Result<Option<Connection>> {
        match self.next() {
            Ok((socket, from)) => {
                let Some(socket) = self.own(socket, from) else { return Ok(None) };
                self.accepted.apply(&socket).map_err(std::io::Error::other)?;
                Ok(Some(self.present.enter(socket)))
            }
            Err(error) if error.kind() != std::io::ErrorKind::WouldBlock && connection::is_passing(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The connection, unless it is a stranger's. `from`: `None` where it was looked at before, or has no address.
    fn own(&self, socket: OwnedFd, from: Option<SocketAddr>) -> Option<OwnedFd> {
        match (from, &self.at_control) {
            (None, _) => Some(socket),
            (Some(from), Some(acceptor)) => acceptor.take(socket, from, &self.peers),
            (Some(from), None) => self.peers.contains(&from.ip().to_canonical()).then_some(socket),
        }
    }

    fn next(&self) -> std::io::Result<(OwnedFd, Option<SocketAddr>)> {
        if let Some(early) = self.at_control.as_ref().and_then(Acceptor::early) {
            return Ok((early, None));
        }
        match sys::accept(&self.socket) {
            Err(error) if self.polled && error.kind() == std::io::ErrorKind::WouldBlock => {
                sys::wait_for(&self.socket, PollFlags::POLLIN, LOOK_UP)?;
                sys::accept(&self.socket)
            }
            other => other,
        }
    }
}

impl Connection {
    pub fn new(socket: Arc<OwnedFd>) -> Self {
        Self { socket, watched: Cell::new(None), pending: Cell::new(false) }
    }

    /// Whether the connection is made by now; an error: it never will be. Asks the kernel, since a wake-up proves nothing, but
    /// not for a connection that was made when connect(2) returned.
    pub fn is_made(&self) -> Result<bool, ConnectError> {
        if !self.pending.get() {
            return Ok(true);
        }
        let mut fds = [PollFd::new(self.socket.as_fd(), PollFlags::POLLOUT)];
        match poll(&mut fds, PollTimeout::ZERO) {
            Ok(0) | Err(nix::Error::EINTR) => return Ok(false),
            Ok(_) => {}
            Err(error) => return Err(ConnectError::Fatal(error.into())),
        }
        if fds[0].revents().is_some_and(|events| events.intersects(PollFlags::POLLERR | PollFlags::POLLHUP)) {
            match opt::get_int(&*self.socket, opt::SO_ERROR).map_err(ConnectError::Fatal)? {
                // It was freed, or made and reset.
                0 => return Err(ConnectError::Fatal(std::io::ErrorKind::ConnectionAborted.into())),
                error => return Err(ConnectError::of(std::io::Error::from_raw_os_error(error))),
            }
        }
        self.pending.set(false);
        Ok(true)
    }
}

/// The failure to make a connection.
#[derive(Debug)]
pub enum ConnectError {
    /// The local port is in use or in TIME_WAIT: the next one may be free.
    Port,
    Fatal(std::io::Error),
}

impl ConnectError {
    fn of(error: std::io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EADDRINUSE | libc::EADDRNOTAVAIL) => Self::Port,
            _ => Self::Fatal(error),
        }
    }
}

impl Connector {
    fn new(spec: &TestSpec, protocol: Protocol, to: Address, from: Vec<IpAddr>) -> Self {
        let options = Prepared::new(&spec.near.socket, spec.transport, to.family() == libc::AF_INET6);
        let ports = spec.near.port.map(|first| (first, spec.near.port_count.unwrap_or(1).max(1)));
        Self {
            protocol: if spec.shares_threads() || spec.io == Io::Spin { protocol.nonblocking() } else { protocol },
            options,
            fastopen: spec.transport.is_tcp() && spec.near.socket.fastopen == Some(true),
            to,
            from,
            ports,
            reset: spec.close == Close::Reset,
            present: Present::default(),
        }
    }

    /// Opens the `number`-th connection, from the next port and address that the test names. Where the thread must not block,
    /// it only begins to: [`Connection::is_made`].
    pub fn connect(&self, number: u64) -> Result<Connection, ConnectError> {
        let connection = self.present.enter(self.next(number)?);
        match self.to.connect(&connection.socket) {
            Ok(()) => {}
            Err(nix::Error::EINPROGRESS) => connection.pending.set(true),
            Err(error) => {
                self.present.leave(connection);
                return Err(ConnectError::of(error.into()));
            }
        }
        Ok(connection)
    }

    /// The socket of the `number`-th connection.
    fn next(&self, number: u64) -> Result<OwnedFd, ConnectError> {
        let fatal = |error: EndError| match error {
            EndError::System { source, .. } => ConnectError::of(source),
            other => ConnectError::Fatal(std::io::Error::other(other)),
        };
        let family = self.to.family();
        let socket = self.protocol.socket(family).map_err(fatal)?;
        self.options.apply(&socket).map_err(fatal)?;
        if self.fastopen {
            opt::set_int(&socket, opt::TCP_FASTOPEN_CONNECT, 1).map_err(ConnectError::Fatal)?;
        }
        if self.reset {
            options::reset_on_close(&socket).map_err(ConnectError::Fatal)?;
        }
        let Address::Ip(to) = &self.to else { return Ok(socket) };
        // Addresses in turn, and one port further after each round of them.
        let addresses = self.from.len().max(1) as u64;
        let ip = self.from.get(usize::try_from(number % addresses).unwrap_or(0)).copied();
        let port = self.ports.map_or(0, |(first, count)| {
            let offset = u16::try_from(number / addresses % u64::from(count)).unwrap_or(0);
            first.saturating_add(offset)
        });
        if ip.is_none() && port == 0 {
            return Ok(socket);
        }
        if port == 0 {
            // The kernel chooses the port when it knows the destination, so that each destination has all ports of an address.
            opt::set_int(&socket, opt::IP_BIND_ADDRESS_NO_PORT, 1).map_err(ConnectError::Fatal)?;
        } else {
            opt::set_int(&socket, opt::SO_REUSEADDR, 1).map_err(ConnectError::Fatal)?;
        }
        let any = super::address::unspecified(to.ip());
        Address::Ip(SocketAddr::from((ip.unwrap_or(any), port))).bind(&socket).map_err(fatal)?;
        Ok(socket)
    }
}

/// Far end: waits until the peer has proven itself on this flow's listening socket, once from each address that it will use.
pub fn admit(
    socket: Arc<OwnedFd>,
    token: &Token,
    spec: &TestSpec,
    flow: u32,
    deadline: &Deadline<'_>,
) -> Result<Link, EndError> {
    let proofs = connection::accept_flows(&socket, token, proofs(spec), deadline)?;
    let listener = Listener::new(socket, peers(&proofs, spec)?, spec)?;
    let proof = proofs.into_iter().next().ok_or_else(|| deadline.missed(0, 1, "no data connection came"))?;
    admitted(flow, Arc::new(proof), listener)
}

/// Far end: the same for sockets that share a port. All proofs come to the first one, since only it listens yet: the kernel
/// would spread them over the others too.
pub fn admit_group(
    sockets: &[Arc<OwnedFd>],
    token: &Token,
    spec: &TestSpec,
    deadline: &Deadline<'_>,
) -> Result<Vec<Link>, EndError> {
    let Some((first, others)) = sockets.split_first() else { return Ok(Vec::new()) };
    let proofs = connection::accept_flows(first, token, spec.flows().saturating_mul(proofs(spec)), deadline)?;
    // A place in the group is a flow's number, by the order in which they begin to listen.
    for socket in others {
        connection::start_listening(socket, connection::BACKLOG, &"the shared data port")?;
    }
    let (peers, group) = group(proofs, spec)?;
    let admit = |((socket, proof), flow): ((&Arc<OwnedFd>, &Arc<OwnedFd>), u32)| {
        let listener = Listener::new(socket.clone(), peers.clone(), spec)?;
        admitted(flow, proof.clone(), Listener { group: group.clone(), ..listener })
    };
    sockets.iter().zip(&group).zip(0..).map(admit).collect()
}

/// Far end: the same at the control port, for all flows.
pub fn admit_at_control(reserved: &Reserved, spec: &TestSpec, deadline: &Deadline<'_>) -> Result<Vec<Link>, EndError> {
    let options = &spec.far.socket;
    let proofs = reserved.connections(spec.flows().saturating_mul(proofs(spec)), options, deadline)?;
    let (peers, group) = group(proofs, spec)?;
    let admit = |(proof, flow): (&Arc<OwnedFd>, u32)| {
        let acceptor = reserved.acceptor(&peers)?;
        let listener = Listener {
            socket: acceptor.socket.clone(),
            peers: peers.clone(),
            polled: false,
            accepted: Accepted::All(options.clone()),
            at_control: Some(acceptor),
            group: group.clone(),
            present: Present::default(),
        };
        admitted(flow, proof.clone(), listener)
    };
    group.iter().zip(0..).map(admit).collect()
}

/// The longest wait of the calls that accept connections of a test; `None`: they return at once.
pub fn waiting(spec: &TestSpec) -> Option<Duration> {
    waits(spec).then_some(LOOK_UP)
}

fn waits(spec: &TestSpec) -> bool {
    spec.io != Io::Spin && !spec.shares_threads()
}

/// Addresses of the peer's connections. Empty where the transport has no addresses that could be a stranger's.
fn peers(proofs: &[OwnedFd], spec: &TestSpec) -> Result<Vec<IpAddr>, EndError> {
    if !spec.transport.uses_ip() {
        return Ok(Vec::new());
    }
    let mut peers: Vec<IpAddr> = Vec::new();
    for proof in proofs {
        let ip = peer_ip(proof)?.ip().to_canonical();
        if !peers.contains(&ip) {
            peers.push(ip);
        }
    }
    Ok(peers)
}

/// Addresses of the peer's connections, and the first proof of each flow.
fn group(proofs: Vec<OwnedFd>, spec: &TestSpec) -> Result<(Vec<IpAddr>, Vec<Arc<OwnedFd>>), EndError> {
    let peers = peers(&proofs, spec)?;
    let of_a_flow = self::proofs(spec) as usize;
    Ok((peers, proofs.into_iter().step_by(of_a_flow).map(Arc::new).collect()))
}

fn admitted(flow: u32, proof: Arc<OwnedFd>, listener: Listener) -> Result<Link, EndError> {
    // The report of this connection stands for all the others.
    listener.accepted.apply(&proof)?;
    Ok(Link { listener: Some(listener), ..Link::new(flow, proof.clone(), proof) })
}

/// Near end: proves itself on a flow, once from each address that it will use. The first of these connections stays open for
/// the whole test and stands in the report for all the others.
pub fn prove(
    spec: &TestSpec,
    protocol: Protocol,
    to: &Address,
    data_ip: Option<IpAddr>,
    (token, flow, shares_port): (&Token, u32, bool),
    deadline: &Deadline<'_>,
) -> Result<Link, EndError> {
    let from = sources(spec, data_ip);
    // One of the far end's sockets takes the proofs of all flows, if they share a port.
    let begin = if shares_port { flow.saturating_mul(proofs(spec)) } else { 0 };
    let mut first = None;
    for (address, number) in from.iter().copied().map(Some).chain((from.is_empty()).then_some(None)).zip(begin..) {
        let bound = address.map(|ip| Address::Ip((ip, 0).into()));
        let proof = (token, number);
        let socket = connection::connect_and_prove(protocol, bound.as_ref(), to, &spec.near.socket, proof, deadline)?;
        // The others close once read: the far end keeps its side open until then.
        first.get_or_insert(socket);
    }
    let first = first.ok_or_else(|| deadline.missed(0, 1, "no data connection was made"))?;
    let connector = Some(Connector::new(spec, protocol, to.clone(), from));
    Ok(Link { connector, ..Link::of_socket(flow, first) })
}

/// Far end: accepts connections of the peer at these addresses without a proof.
pub fn without_proof(socket: OwnedFd, peers: Vec<IpAddr>, spec: &TestSpec, flow: u32) -> Result<Link, EndError> {
    let socket = Arc::new(socket);
    let listener = Some(Listener::new(socket.clone(), peers, spec)?);
    Ok(Link { listener, ..Link::new(flow, socket.clone(), socket) })
}

/// Near end: prepares connections to a service, which needs no proof. It keeps no connection open, since some services accept
/// one at a time: the options are read from a socket that never connects.
pub fn towards_service(
    spec: &TestSpec,
    protocol: Protocol,
    to: &Address,
    data_ip: Option<IpAddr>,
    flow: u32,
) -> Result<Link, EndError> {
    let socket = protocol.socket(to.family())?;
    options::apply(&socket, &spec.near.socket, spec.transport, to.family() == libc::AF_INET6)?;
    if spec.near.socket.fastopen == Some(true) {
        options::fast_open(&socket)?;
    }
    let connector = Some(Connector::new(spec, protocol, to.clone(), sources(spec, data_ip)));
    Ok(Link { connector, ..Link::of_socket(flow, socket) })
}

/// Local addresses of the near end, used in turn; empty: by the route.
fn sources(spec: &TestSpec, data_ip: Option<IpAddr>) -> Vec<IpAddr> {
    if spec.near.bind.is_empty() { data_ip.into_iter().collect() } else { spec.near.bind.clone() }
}

/// Connections by which the near end proves itself on each flow.
fn proofs(spec: &TestSpec) -> u32 {
    u32::try_from(spec.near.bind.len().max(1)).unwrap_or(u32::MAX)
}
