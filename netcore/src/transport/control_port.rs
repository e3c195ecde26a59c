//! The port of a daemon's control connections, at which the data of its tests arrive too: one port to open in a firewall.
//!
//! The daemon accepts connections and sorts them by their first bytes ([`super::connection`]): a data connection begins with
//! the token of a test, and so does the first datagram of a flow. Each flow of datagrams then gets a connected socket on the
//! same port, to which the kernel delivers the rest.
//!
//! The connections of a connect workload have no token, and handing each one over would cost more than the connection. So
//! the threads of such a test accept in the daemon's place while it runs. They know their peer's address, and give back
//! every connection that begins like a control or a data connection. Near ends and clients send these bytes together with
//! the last packet of the handshake ([`options::with_first_bytes`]), so they are there when the connection is accepted.

use std::{
    collections::VecDeque,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket},
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    time::{Duration, Instant},
};

use nix::{
    poll::PollFlags,
    sys::{
        eventfd::{EfdFlags, EventFd},
        socket::{Backlog, MsgFlags, Shutdown, listen, recv, shutdown},
    },
};
use socket2::SockRef;

use super::{
    Deadline, Link,
    address::Address,
    connection::{self, CANDIDATES, MAGIC, PREAMBLE_BYTES, Token, flow_of},
    datagram,
    meeting::Endpoints,
    options,
};
use crate::{
    error::{self, EndError},
    lock::Lock,
    spec::{EndSpec, SocketOptions, TestSpec, Transport},
    sys::{self, opt},
};

/// First bytes of a control connection.
const CONTROL_MAGIC: [u8; 6] = *b"plumb\0";

/// Largest window that the answer to a SYN offers, bytes (RFC 9293: 16 bits, which are not scaled there). The peer's kernel waits
/// for half of the largest window it saw: if the receive buffer, set later, cannot hold that, it sends by its timer, five times a second.
const FIRST_WINDOW: u64 = 65_535;

/// Datagrams that are read before connections are looked at again.
const DATAGRAMS_A_TURN: usize = 64;

/// Ports of a far end's data sockets, where the test names none.
#[derive(Clone, Debug, Default)]
pub enum DataPorts {
    /// Chosen by the kernel.
    #[default]
    Any,
    /// Free ones from the first to the last.
    Among(u16, u16),
    /// The control port, if it can serve the test; otherwise chosen by the kernel.
    Control(Arc<ControlPort>),
}

impl DataPorts {
    /// Opens a socket on the port that is asked for; 0: on any of these.
    pub fn open<T>(&self, asked: u16, open: impl Fn(u16) -> Result<T, EndError>) -> Result<T, EndError> {
        let Self::Among(first, last) = *self else { return open(asked) };
        if asked != 0 {
            return open(asked);
        }
        for port in first..=last {
            match open(port) {
                Err(EndError::System { source, .. }) if source.kind() == io::ErrorKind::AddrInUse => {}
                other => return other,
            }
        }
        Err(EndError::Impossible(format!(
            "all ports of --data-ports {first}-{last} are in use: give `plumb serve` a wider range, or start fewer streams"
        )))
    }
}

/// A port with the sockets of both protocols.
#[derive(Debug)]
pub struct ControlPort {
    address: SocketAddr,
    listener: OwnedFd,
    datagrams: OwnedFd,
    state: Lock<State>,
    /// Readable when a connection was given back or the daemon is to accept again.
    news: EventFd,
}

#[derive(Debug, Default)]
struct State {
    next_id: u64,
    tests: Vec<Expected>,
    /// The test of a connect workload that may accept here.
    connecting: Option<Connecting>,
    given_back: Vec<(OwnedFd, SocketAddr)>,
    /// Why this host cannot accept connections at the moment.
    unaccepted: Option<nix::Error>,
    closed: bool,
}

/// A test whose flows may arrive.
#[derive(Debug)]
struct Expected {
    id: u64,
    token: Token,
    arrivals: SyncSender<Arrival>,
}

#[derive(Debug)]
struct Connecting {
    id: u64,
    /// Addresses of the near end, once they are known.
    peers: Vec<IpAddr>,
    early: Arc<Early>,
    /// Whether its threads accept, and not the daemon.
    accepts: bool,
}

/// Connections of a connect workload that the daemon accepted before the test's threads did.
#[derive(Debug, Default)]
pub struct Early {
    is_there: AtomicBool,
    sockets: Lock<VecDeque<OwnedFd>>,
}

#[derive(Debug)]
enum Arrival {
    Connection(u32, OwnedFd),
    Datagram(u32, SocketAddr),
}

/// The first bytes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beginning {
    Nothing,
    /// Of a data connection.
    Proof,
    Control,
    /// Like one of the two; so many bytes will tell.
    Unfinished(usize),
    Other,
}

impl Beginning {
    fn of(bytes: &[u8]) -> Self {
        let is_begun = |magic: &[u8]| magic.starts_with(&bytes[..bytes.len().min(magic.len())]);
        match (is_begun(MAGIC), is_begun(&CONTROL_MAGIC)) {
            _ if bytes.is_empty() => Self::Nothing,
            (true, true) => Self::Unfinished(CONTROL_MAGIC.len()),
            (false, true) => Self::Control,
            (true, false) if bytes.len() < PREAMBLE_BYTES => Self::Unfinished(PREAMBLE_BYTES),
            (true, false) => Self::Proof,
            (false, false) => Self::Other,
        }
    }

    /// Looks at the bytes and leaves them; the second: their number.
    fn read(socket: &OwnedFd) -> (Self, usize) {
        let mut bytes = [0; PREAMBLE_BYTES];
        match recv(socket.as_raw_fd(), &mut bytes, MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT) {
            Ok(0) => (Self::Other, 0),
            Ok(n) => (Self::of(&bytes[..n]), n),
            Err(nix::Error::EAGAIN | nix::Error::EINTR) => (Self::Nothing, 0),
            Err(_) => (Self::Other, 0),
        }
    }
}

impl ControlPort {
    pub fn new(listener: TcpListener, datagrams: UdpSocket) -> io::Result<Arc<Self>> {
        let address = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        // Connect workloads connect as fast as they can.
        listen(&listener, Backlog::new(connection::BACKLOG.cast_signed())?)?;
        // After it was bound: another daemon still finds the port in use.
        opt::set_int(&datagrams, opt::SO_REUSEPORT, 1)?;
        let news = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        let (listener, datagrams) = (listener.into(), datagrams.into());
        Ok(Arc::new(Self { address, listener, datagrams, state: Lock::default(), news }))
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Descriptors that the daemon waits for: [`Self::accept`], [`Self::receive`], [`Self::take_back`].
    pub fn awaited(&self) -> [Option<BorrowedFd<'_>>; 3] {
        let accepts = self.state.lock().connecting.as_ref().is_some_and(|connecting| connecting.accepts);
        let listener = (!accepts).then(|| self.listener.as_fd());
        [listener, Some(self.datagrams.as_fd()), Some(self.news.as_fd())]
    }

    /// The next connection; an error of the kind `WouldBlock`: there is none, or a test accepts in the daemon's place.
    pub fn accept(&self) -> io::Result<(OwnedFd, SocketAddr)> {
        let mut state = self.state.lock();
        if state.connecting.as_ref().is_some_and(|connecting| connecting.accepts) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let accepted = sys::accept(&self.listener);
        state.unaccepted = match accepted.as_ref().map_err(io::Error::raw_os_error) {
            Ok(_) => None,
            Err(Some(libc::EAGAIN | libc::ECONNABORTED | libc::EINTR)) => state.unaccepted,
            Err(number) => number.map(nix::Error::from_raw),
        };
        let (socket, from) = accepted?;
        Ok((socket, from.ok_or(io::ErrorKind::ConnectionAborted)?))
    }

    /// Connections that a test has accepted and that are not its own.
    pub fn take_back(&self) -> Vec<(OwnedFd, SocketAddr)> {
        // Nothing to read: it was read before.
        let _ = self.news.read();
        std::mem::take(&mut self.state.lock().given_back)
    }

    /// Hands a new connection to its test, as far as its first bytes are there. Returns every other connection.
    pub fn sort(&self, socket: OwnedFd, from: SocketAddr) -> Option<OwnedFd> {
        let (beginning, _) = Beginning::read(&socket);
        if beginning == Beginning::Proof {
            self.deliver(socket);
            return None;
        }
        let state = self.state.lock();
        match &state.connecting {
            Some(connecting) if is_of_workload(beginning, from, &connecting.peers) => {
                connecting.early.push(socket);
                None
            }
            _ => Some(socket),
        }
    }

    /// Waits for the first bytes of a connection, until it is clear whether it is a data connection, and hands that to its
    /// test. Returns every other connection.
    pub fn sort_slowly(&self, socket: OwnedFd, deadline: Instant) -> Option<OwnedFd> {
        let mut seen = 0;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let (beginning, length) = Beginning::read(&socket);
            match beginning {
                Beginning::Proof => {
                    self.deliver(socket);
                    return None;
                }
                Beginning::Unfinished(needed) if length > seen => {
                    seen = length;
                    // Until then a poll would return at once.
                    opt::set_int(&socket, opt::SO_RCVLOWAT, i32::try_from(needed).unwrap_or(1)).ok();
                }
                Beginning::Nothing => {}
                // Also one that ended early.
                _ => break,
            }
            if left.is_zero() || !matches!(connection::wait(&socket, PollFlags::POLLIN, left), Ok(true)) {
                break;
            }
        }
        opt::set_int(&socket, opt::SO_RCVLOWAT, 1).ok();
        Some(socket)
    }

    /// Hands a connection that begins with a proof to the test with its token. Without such a test it is closed.
    fn deliver(&self, socket: OwnedFd) {
        let mut bytes = [0; PREAMBLE_BYTES];
        if recv(socket.as_raw_fd(), &mut bytes, MsgFlags::MSG_DONTWAIT) == Ok(PREAMBLE_BYTES) {
            opt::set_int(&socket, opt::SO_RCVLOWAT, 1).ok();
            self.announce(&bytes, |flow| Arrival::Connection(flow, socket));
        }
    }

    /// Hands the first datagrams of flows to their tests. Others are dropped.
    pub fn receive(&self) {
        // One byte more tells a longer datagram.
        let mut bytes = [0; PREAMBLE_BYTES + 1];
        for _ in 0..DATAGRAMS_A_TURN {
            match sys::receive_from(&self.datagrams, &mut bytes, libc::MSG_DONTWAIT) {
                Ok((n, Some(from))) => {
                    let from = SocketAddr::new(from.ip().to_canonical(), from.port());
                    self.announce(&bytes[..n], |flow| Arrival::Datagram(flow, from));
                }
                Ok(_) => {}
                Err(_) => return,
            }
        }
    }

    fn announce(&self, proof: &[u8], arrival: impl FnOnce(u32) -> Arrival) {
        let state = self.state.lock();
        let found = state.tests.iter().find_map(|test| Some((&test.arrivals, flow_of(proof, &test.token)?)));
        if let Some((arrivals, flow)) = found {
            // A client that sends more than its test needs loses it.
            let _ = arrivals.try_send(arrival(flow));
        }
    }

    /// Whether a far end with this address and these wishes can have its data here: what only a listening socket has, and an
    /// address or a port of the test, takes a socket of its own.
    fn serves(&self, transport: Transport, end: &EndSpec, ip: IpAddr) -> bool {
        let socket = &end.socket;
        let of_listeners = socket.mss.is_some()
            || socket.fastopen == Some(true)
            || socket.defer_accept.is_some()
            || socket.reuseport.is_some()
            || socket.incoming_cpu.is_some()
            || socket.device.is_some()
            || (matches!(transport, Transport::Tcp | Transport::Tls)
                && socket.receive_buffer.is_some_and(|asked| asked.0 * 2 < FIRST_WINDOW));
        let is_here = match self.address.ip() {
            here if here.is_unspecified() => here.is_ipv6() || ip.is_ipv4(),
            here => here.to_canonical() == ip.to_canonical(),
        };
        (transport.is_quic() || matches!(transport, Transport::Tcp | Transport::Tls | Transport::Udp))
            && is_here
            && end.port.is_none()
            && end.bind.is_empty()
            && !of_listeners
    }

    /// Reserves the port for the data of a far end with this local address. `connects`: of a connect workload, of which there
    /// is one at a time. `None`: it needs ports of its own.
    pub fn reserve(
        self: &Arc<Self>,
        transport: Transport,
        end: &EndSpec,
        (ip, token): (IpAddr, &Token),
        connects: bool,
    ) -> Option<Reserved> {
        if !self.serves(transport, end, ip) {
            return None;
        }
        let mut state = self.state.lock();
        if connects && state.connecting.is_some() {
            return None;
        }
        state.unaccepted = None;
        let id = state.next_id;
        state.next_id += 1;
        let early = Arc::<Early>::default();
        if connects {
            state.connecting = Some(Connecting { id, peers: Vec::new(), early: early.clone(), accepts: false });
        }
        let (arrivals, receiver) = sync_channel(CANDIDATES);
        state.tests.push(Expected { id, token: *token, arrivals });
        drop(state);
        Some(Reserved { port: self.clone(), id, ip, token: *token, early, arrivals: Lock::new(receiver) })
    }

    /// Refuses new connections, once no test accepts here any more.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        if !state.connecting.as_ref().is_some_and(|connecting| connecting.accepts) {
            self.refuse_all();
        }
    }

    fn refuse_all(&self) {
        // A failure does no harm.
        let _ = shutdown(self.listener.as_raw_fd(), Shutdown::Both);
    }
}

/// Whether a connection at the control port belongs to the connect workload of these peers.
fn is_of_workload(beginning: Beginning, from: SocketAddr, peers: &[IpAddr]) -> bool {
    let is_other = matches!(beginning, Beginning::Proof | Beginning::Control | Beginning::Unfinished(PREAMBLE_BYTES));
    !is_other && peers.contains(&from.ip().to_canonical())
}

impl Early {
    fn push(&self, socket: OwnedFd) {
        self.sockets.lock().push_back(socket);
        self.is_there.store(true, Relaxed);
    }

    fn pop(&self) -> Option<OwnedFd> {
        if !self.is_there.load(Relaxed) {
            return None;
        }
        let mut sockets = self.sockets.lock();
        let socket = sockets.pop_front();
        self.is_there.store(!sockets.is_empty(), Relaxed);
        socket
    }
}

/// A far end's place at the control port. Dropping it gives the place up.
#[derive(Debug)]
pub struct Reserved {
    port: Arc<ControlPort>,
    id: u64,
    /// Local address of the data.
    ip: IpAddr,
    token: Token,
    early: Arc<Early>,
    arrivals: Lock<Receiver<Arrival>>,
}

impl Reserved {
    fn port(&self) -> u16 {
        self.port.address.port()
    }

    pub fn endpoints(&self) -> Endpoints {
        Endpoints { ports: vec![self.port()], at_control: true, ..Endpoints::default() }
    }

    /// So many connections with these options, by the numbers in their proofs.
    pub fn connections(
        &self,
        count: u32,
        options: &SocketOptions,
        deadline: &Deadline<'_>,
    ) -> Result<Vec<OwnedFd>, EndError> {
        self.gather(count, deadline, |arrival| match arrival {
            Arrival::Connection(_, socket) => options::apply_accepted(&socket, options).map(|()| Some(socket)),
            Arrival::Datagram(..) => Ok(None),
        })
    }

    /// A connected socket for each flow of datagrams, which the near end has been answered on.
    pub fn datagram_flows(&self, spec: &TestSpec, deadline: &Deadline<'_>) -> Result<Vec<Link>, EndError> {
        let here = Address::Ip((self.ip, self.port()).into());
        self.gather(spec.flows(), deadline, |arrival| {
            let Arrival::Datagram(flow, from) = arrival else { return Ok(None) };
            if from.is_ipv4() != self.ip.is_ipv4() {
                return Ok(None);
            }
            let socket = datagram::socket(spec, &spec.far.socket, &here, false)?;
            options::share_port(&socket)?;
            match here.bind(&socket) {
                // Behind a gateway that translates addresses the near end names the gateway's. The route back has this host's.
                Err(EndError::System { source, .. }) if source.kind() == io::ErrorKind::AddrNotAvailable => {
                    let any =
                        if self.ip.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
                    Address::Ip(SocketAddr::new(any, self.port())).bind(&socket)?;
                }
                bound => bound?,
            }
            Address::Ip(from)
                .connect(&socket)
                .map_err(EndError::system(format!("cannot answer the near end at {from}")))?;
            // Until then it took the datagrams of strangers, and of flows that will say again what they said.
            while recv(socket.as_raw_fd(), &mut [0], MsgFlags::MSG_DONTWAIT).is_ok() {}
            let peer = (!spec.connected).then_some(from);
            datagram::answered(Arc::new(socket), peer, &self.token, flow).map(Some)
        })
    }

    /// Waits until something has arrived for each number. `take`: `None`: it is of no use.
    fn gather<T>(
        &self,
        count: u32,
        deadline: &Deadline<'_>,
        take: impl Fn(Arrival) -> Result<Option<T>, EndError>,
    ) -> Result<Vec<T>, EndError> {
        let arrivals = self.arrivals.lock();
        let mut found: Vec<Option<T>> = (0..count).map(|_| None).collect();
        let mut missing = count;
        while missing > 0 {
            if deadline.left().is_zero() {
                let hint = match self.port.state.lock().unaccepted.map(io::Error::from) {
                    Some(error) => format!("this host could not accept more: {error}{}", error::remedy(&error)),
                    None => format!(
                        "the data of the near end did not arrive; is port {} open in the firewall, for TCP and UDP?",
                        self.port()
                    ),
                };
                return Err(deadline.missed((count - missing) as usize, count, &hint));
            }
            let arrival = match arrivals.recv_timeout(deadline.slice()) {
                Ok(arrival) => arrival,
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => continue,
            };
            // The first of a number counts.
            let number = match &arrival {
                Arrival::Connection(number, _) | Arrival::Datagram(number, _) => *number as usize,
            };
            if let Some(slot @ None) = found.get_mut(number)
                && let Some(taken) = take(arrival)?
            {
                *slot = Some(taken);
                missing -= 1;
            }
        }
        Ok(found.into_iter().flatten().collect())
    }

    /// The way of a connect workload to accept here, for one of its flows. `peers`: addresses of the near end.
    pub fn acceptor(&self, peers: &[IpAddr]) -> Result<Acceptor, EndError> {
        if let Some(connecting) =
            self.port.state.lock().connecting.as_mut().filter(|connecting| connecting.id == self.id)
        {
            connecting.peers = peers.to_vec();
        }
        // A descriptor for each flow: a thread of several flows waits for each of them apart.
        let socket =
            self.port.listener.try_clone().map_err(EndError::system("no descriptor for a listening socket"))?;
        Ok(Acceptor { socket: Arc::new(socket), port: self.port.clone(), early: self.early.clone() })
    }

    /// From now on the threads of a connect workload accept, and not the daemon. `waits`: for how long their calls wait;
    /// `None`: they return at once.
    pub fn accept_here(&self, waits: Option<Duration>) -> Result<(), EndError> {
        let mut state = self.port.state.lock();
        if let Some(connecting) = state.connecting.as_mut().filter(|connecting| connecting.id == self.id) {
            connecting.accepts = true;
            self.set_waiting(waits)?;
        }
        drop(state);
        // It wakes the daemon's thread, which then no longer waits for connections.
        let _ = self.port.news.write(1);
        Ok(())
    }

    fn set_waiting(&self, waits: Option<Duration>) -> Result<(), EndError> {
        connection::set_blocking(&self.port.listener, waits.is_some())?;
        SockRef::from(&self.port.listener)
            .set_read_timeout(waits)
            .map_err(EndError::system("cannot bound the wait for connections"))
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let mut state = self.port.state.lock();
        state.tests.retain(|test| test.id != self.id);
        let Some(connecting) = state.connecting.take_if(|connecting| connecting.id == self.id) else { return };
        if connecting.accepts {
            // It worked when the test began.
            let _ = self.set_waiting(None);
            if state.closed {
                self.port.refuse_all();
            }
            let _ = self.port.news.write(1);
        }
    }
}

/// Accepts the connections of one flow of a connect workload at the control port.
#[derive(Debug)]
pub struct Acceptor {
    /// A duplicate of the daemon's listening socket.
    pub socket: Arc<OwnedFd>,
    port: Arc<ControlPort>,
    early: Arc<Early>,
}

impl Acceptor {
    /// A connection that the daemon accepted before the test began to.
    #[inline]
    pub fn early(&self) -> Option<OwnedFd> {
        self.early.pop()
    }

    /// Returns an accepted connection if it belongs to the workload of these peers. Gives others to the daemon.
    pub fn take(&self, socket: OwnedFd, from: SocketAddr, peers: &[IpAddr]) -> Option<OwnedFd> {
        if is_of_workload(Beginning::read(&socket).0, from, peers) {
            return Some(socket);
        }
        // It has inherited that of the listening socket. A failure shows where the connection is used.
        let _ = SockRef::from(&socket).set_read_timeout(None);
        let mut state = self.port.state.lock();
        if !state.closed && state.given_back.len() < CANDIDATES {
            state.given_back.push((socket, from));
        }
        drop(state);
        let _ = self.port.news.write(1);
        None
    }
}
