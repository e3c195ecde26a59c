//! Ranks that talk over TCP: a connection between each two of them.
//!
//! A message has no header: both sides know its length and its place in the order. A message that fits the socket's buffer
//! costs one system call at each side; only an exchange whose message does not fit polls both directions.
//!
//! A rank that dies closes its connections to all others. A thread of each rank waits for that beside the worker and
//! frees it, since the worker may be blocked on a third rank, which waits for the dead one too. It shuts down the receiving
//! direction only: the other ranks see nothing of it, and name the rank that died first. A rank that ends because of another's
//! death keeps its connections a while longer ([`GRACE`]).

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        eventfd::{EfdFlags, EventFd},
        socket::{MsgFlags, Shutdown, recv, send, shutdown},
    },
};

use super::{Communicator, RankError};
use crate::{
    error::EndError,
    measure::{clock::monotonic_ns, tcp_info},
    spec::{EndSpec, Family, SocketOptions, ranks::RanksSpec},
    transport::{
        Deadline, Protocol,
        address::{Address, local_ip},
        connection::{self, Token},
        control_port::{DataPorts, Reserved},
        meeting::Endpoints,
    },
};

/// Time after another rank's end in which a rank keeps its connections: the others find by then who went first.
pub const GRACE: Duration = Duration::from_millis(300);

/// A rank's connections to all others.
pub struct Mesh {
    rank: usize,
    peers: Vec<Option<Arc<OwnedFd>>>,
    guard: Arc<Guard>,
    watcher: Option<JoinHandle<()>>,
}

/// Frees the rank's worker from another thread.
pub struct Guard {
    peers: Vec<Option<Arc<OwnedFd>>>,
    /// Readable once the worker must leave, or has left.
    over: EventFd,
    aborted: AtomicBool,
    /// The first rank that was found to be gone; `usize::MAX`: none.
    gone: AtomicUsize,
    /// Whether the work is done everywhere, so that connections may close.
    parting: AtomicBool,
}

impl Guard {
    /// Without connections: the worker looks at it between its calls.
    pub fn alone() -> Result<Self, EndError> {
        Self::over(Vec::new())
    }

    fn over(peers: Vec<Option<Arc<OwnedFd>>>) -> Result<Self, EndError> {
        let over = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
            .map_err(EndError::system("no descriptor for an event"))?;
        let (aborted, parting) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(Self { peers, over, aborted, gone: AtomicUsize::new(usize::MAX), parting })
    }

    /// Gives up the test: the worker's call fails with [`RankError::Aborted`].
    pub fn abort(&self) {
        self.aborted.store(true, SeqCst);
        self.free();
    }

    /// Waits until an instant of the monotonic clock; an error: the worker must leave.
    pub fn sleep_until(&self, at_ns: u64) -> Result<(), RankError> {
        loop {
            let left = Duration::from_nanos(at_ns.saturating_sub(monotonic_ns()));
            // The last millisecond is slept, since poll rounds up.
            let whole = PollTimeout::try_from(left.as_millis()).unwrap_or(PollTimeout::MAX);
            match poll(&mut [PollFd::new(self.over.as_fd(), PollFlags::POLLIN)], whole) {
                Ok(0) if left < Duration::from_millis(1) => {
                    thread::sleep(left);
                    return Ok(());
                }
                Ok(0) | Err(Errno::EINTR) => {}
                _ if self.aborted.load(SeqCst) => return Err(RankError::Aborted),
                _ => {
                    let reason = "it has closed its connections".to_owned();
                    return Err(RankError::Gone { rank: self.gone.load(SeqCst), reason });
                }
            }
        }
    }

    /// Frees the worker from any call.
    fn free(&self) {
        // It can fail only for a counter that is full, and then the event is set.
        let _ = self.over.write(1);
        for peer in self.peers.iter().flatten() {
            // It fails on a connection that has ended, on which the worker does not wait.
            let _ = shutdown(peer.as_raw_fd(), Shutdown::Read);
        }
    }

    /// Waits until a peer has closed its connection before the ranks part.
    fn watch(&self) {
        let mut fds = vec![PollFd::new(self.over.as_fd(), PollFlags::POLLIN)];
        let (ranks, sockets): (Vec<usize>, Vec<BorrowedFd<'_>>) =
            self.peers.iter().enumerate().filter_map(|(rank, peer)| Some((rank, peer.as_ref()?.as_fd()))).unzip();
        // Without POLLIN, data do not wake it.
        let closed = PollFlags::from_bits_retain(libc::POLLRDHUP);
        fds.extend(sockets.into_iter().map(|socket| PollFd::new(socket, closed)));
        while let Err(Errno::EINTR) = poll(&mut fds, PollTimeout::NONE) {}
        let is_over = fds[0].any().unwrap_or(true);
        let gone = ranks.iter().zip(&fds[1..]).filter(|(_, fd)| fd.any().unwrap_or(true)).map(|(rank, _)| *rank);
        // Of several, the one whose last packet is oldest: the others followed it.
        let silence_ms = |rank: &usize| tcp_info::silence_ms(self.peers[*rank].as_ref()?.as_fd());
        if let (false, Some(first), false) = (is_over, gone.max_by_key(silence_ms), self.parting.load(SeqCst)) {
            self.lost(first);
            self.free();
        }
    }

    /// Keeps the first rank that is gone and returns it.
    fn lost(&self, rank: usize) -> usize {
        self.gone.compare_exchange(usize::MAX, rank, SeqCst, SeqCst).err().unwrap_or(rank)
    }

    fn is_free(&self) -> bool {
        self.aborted.load(SeqCst) || self.gone.load(SeqCst) != usize::MAX
    }
}

impl Mesh {
    /// Over connections to all ranks but this one, by their ranks.
    pub fn new(rank: usize, peers: Vec<Option<OwnedFd>>) -> Result<Self, EndError> {
        let peers: Vec<_> = peers.into_iter().map(|peer| peer.map(Arc::new)).collect();
        let guard = Arc::new(Guard::over(peers.clone())?);
        let watcher = {
            let guard = guard.clone();
            thread::Builder::new().name("rank watch".to_owned()).spawn(move || guard.watch())
        };
        let watcher = watcher.map_err(EndError::system("no thread to watch the connections"))?;
        Ok(Self { rank, peers, guard, watcher: Some(watcher) })
    }

    pub fn guard(&self) -> &Arc<Guard> {
        &self.guard
    }

    fn socket(&self, rank: usize) -> &OwnedFd {
        // No algorithm sends to its own rank or beyond the last.
        self.peers[rank].as_ref().expect("a rank has connections to all others")
    }

    #[cold]
    fn failed(&self, rank: usize, error: Errno) -> RankError {
        if self.guard.aborted.load(SeqCst) {
            return RankError::Aborted;
        }
        let first = self.guard.lost(rank);
        let reason = match error {
            Errno::UnknownErrno | Errno::ECONNRESET | Errno::EPIPE => "it has closed its connections".to_owned(),
            _ if first != rank => "it has closed its connections".to_owned(),
            error => io::Error::from(error).to_string(),
        };
        RankError::Gone { rank: first, reason }
    }

    /// Sends what the buffer takes; returns its length.
    fn push(&self, to: usize, bytes: &[u8]) -> Result<usize, RankError> {
        loop {
            match send(self.socket(to).as_raw_fd(), bytes, MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT) {
                Ok(sent) => return Ok(sent),
                Err(Errno::EAGAIN) => return Ok(0),
                Err(Errno::EINTR) => {}
                Err(error) => return Err(self.failed(to, error)),
            }
        }
    }

    /// Takes what has arrived, or waits for all of it; returns its length.
    fn pull(&self, from: usize, buffer: &mut [u8], flag: MsgFlags) -> Result<usize, RankError> {
        loop {
            match recv(self.socket(from).as_raw_fd(), buffer, flag) {
                Ok(0) => return Err(self.failed(from, Errno::UnknownErrno)),
                Ok(received) => return Ok(received),
                Err(Errno::EAGAIN) => return Ok(0),
                Err(Errno::EINTR) => {}
                Err(error) => return Err(self.failed(from, error)),
            }
        }
    }

    /// Waits until one of the directions can go on, or the worker must leave.
    fn wait(&self, to: Option<usize>, from: Option<usize>) -> Result<(), RankError> {
        let room = to.map(|rank| (rank, PollFlags::POLLOUT));
        let input = from.map(|rank| (rank, PollFlags::POLLIN));
        let over = || PollFd::new(self.guard.over.as_fd(), PollFlags::POLLIN);
        let fd = |(rank, events): (usize, PollFlags)| PollFd::new(self.socket(rank).as_fd(), events);
        let mut fds = [over(), over(), over()];
        let mut waits = 1;
        for wait in [room, input].into_iter().flatten() {
            fds[waits] = fd(wait);
            waits += 1;
        }
        match poll(&mut fds[..waits], PollTimeout::NONE) {
            Err(error) if error != Errno::EINTR => Err(self.failed(to.or(from).unwrap_or(self.rank), error)),
            _ if self.guard.is_free() => Err(self.failed(to.or(from).unwrap_or(self.rank), Errno::UnknownErrno)),
            _ => Ok(()),
        }
    }
}

impl Communicator for Mesh {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.peers.len()
    }

    fn send(&mut self, to: usize, mut bytes: &[u8]) -> Result<(), RankError> {
        while !bytes.is_empty() {
            let sent = self.push(to, bytes)?;
            bytes = &bytes[sent..];
            if !bytes.is_empty() {
                self.wait(Some(to), None)?;
            }
        }
        Ok(())
    }

    fn receive(&mut self, from: usize, mut buffer: &mut [u8]) -> Result<(), RankError> {
        while !buffer.is_empty() {
            let received = self.pull(from, buffer, MsgFlags::MSG_WAITALL)?;
            buffer = &mut buffer[received..];
        }
        Ok(())
    }

    /// Moves both messages as far as the buffers allow, in turn, until they are through.
    fn exchange(&mut self, to: usize, mut bytes: &[u8], from: usize, mut buffer: &mut [u8]) -> Result<(), RankError> {
        loop {
            let mut moved = 0;
            if !bytes.is_empty() {
                let sent = self.push(to, bytes)?;
                bytes = &bytes[sent..];
                moved += sent;
            }
            if bytes.is_empty() {
                return self.receive(from, buffer);
            }
            if !buffer.is_empty() {
                let received = self.pull(from, buffer, MsgFlags::MSG_DONTWAIT)?;
                buffer = &mut buffer[received..];
                moved += received;
            }
            if moved == 0 {
                self.wait(Some(to), (!buffer.is_empty()).then_some(from))?;
            }
        }
    }

    fn go_on(&self) -> Result<(), RankError> {
        if self.guard.is_free() { Err(self.failed(self.rank, Errno::UnknownErrno)) } else { Ok(()) }
    }

    fn part(&mut self) {
        self.guard.parting.store(true, SeqCst);
    }
}

impl Drop for Mesh {
    fn drop(&mut self) {
        self.guard.parting.store(true, SeqCst);
        let _ = self.guard.over.write(1);
        if let Some(watcher) = self.watcher.take() {
            // It cannot panic, and it ends with the event.
            let _ = watcher.join();
        }
    }
}

// Connections between each two ranks: the higher rank connects, the lower one accepts. All listen before the first connects, so
// none waits for another in a circle.

/// A rank that listens.
pub struct Listening {
    rank: usize,
    token: Token,
    protocol: Protocol,
    socket: SocketOptions,
    from: Option<IpAddr>,
    arrivals: Arrivals,
}

/// The place at which connections of higher ranks arrive.
enum Arrivals {
    Own(OwnedFd, u16),
    AtControl(Reserved),
}

impl Listening {
    /// `address`: the local address of the data sockets; `None`: the kernel's choice.
    pub fn new(
        spec: &RanksSpec,
        rank: usize,
        (address, ports): (Option<IpAddr>, &DataPorts),
        token: Token,
    ) -> Result<Self, EndError> {
        let protocol = Protocol::connecting(spec.transport)
            .ok_or_else(|| EndError::Impossible(format!("ranks have no connections over {}", spec.transport.name())))?;
        let mut socket = spec.socket.clone();
        // Small messages follow each other: a delayed one would wait for the acknowledgement of the last.
        socket.no_delay.get_or_insert(true);
        let end = EndSpec { socket, ..EndSpec::default() };
        let of_rank = token_of(&token, rank);
        if let (DataPorts::Control(port), Some(ip)) = (ports, address)
            && let Some(reserved) = port.reserve(spec.transport, &end, (ip, &of_rank), false)
        {
            let arrivals = Arrivals::AtControl(reserved);
            return Ok(Self { rank, token, protocol, socket: end.socket, from: address, arrivals });
        }
        let on = |ip: IpAddr| {
            let open =
                |port| connection::listener(protocol, &Address::Ip((ip, port).into()), &end, connection::BACKLOG);
            ports.open(0, open)
        };
        let listener = match (address, spec.family) {
            (Some(address), _) => on(address)?,
            (None, Family::V4) => on(Ipv4Addr::UNSPECIFIED.into())?,
            (None, Family::V6) => on(Ipv6Addr::UNSPECIFIED.into())?,
            // A host may lack IPv6.
            (None, Family::Any) => on(Ipv6Addr::UNSPECIFIED.into()).or_else(|_| on(Ipv4Addr::UNSPECIFIED.into()))?,
        };
        let port = local_ip(&listener)?.port();
        let arrivals = Arrivals::Own(listener, port);
        Ok(Self { rank, token, protocol, socket: end.socket, from: address, arrivals })
    }

    /// The endpoints that other ranks connect to.
    pub fn endpoints(&self) -> Endpoints {
        match &self.arrivals {
            Arrivals::Own(_, port) => Endpoints { ports: vec![*port], ..Endpoints::default() },
            Arrivals::AtControl(reserved) => reserved.endpoints(),
        }
    }

    /// Connects to all ranks in time. `peers`: address and endpoints of each rank, this one among them.
    pub fn connect(self, peers: &[(IpAddr, Endpoints)], deadline: &Deadline<'_>) -> Result<Mesh, EndError> {
        let mut sockets: Vec<Option<OwnedFd>> = Vec::with_capacity(peers.len());
        for (lower, (ip, endpoints)) in peers.iter().enumerate().take(self.rank) {
            let port = *endpoints
                .ports
                .first()
                .ok_or_else(|| EndError::Impossible(format!("rank {lower} has not named its data port")))?;
            let to = Address::Ip((endpoints.address.unwrap_or(*ip), port).into());
            let from = self.from.map(|from| Address::Ip((from, 0).into()));
            // Of the lower rank's connections, this one is counted from the rank after it.
            let proof = (&token_of(&self.token, lower), number(self.rank - lower - 1));
            let connect = connection::connect_and_prove;
            sockets.push(Some(connect(self.protocol, from.as_ref(), &to, &self.socket, proof, deadline)?));
        }
        sockets.push(None);
        let higher = number(peers.len().saturating_sub(self.rank + 1));
        let accepted = match &self.arrivals {
            Arrivals::Own(listener, _) => {
                connection::accept_flows(listener, &token_of(&self.token, self.rank), higher, deadline)?
            }
            Arrivals::AtControl(reserved) => reserved.connections(higher, &self.socket, deadline)?,
        };
        for socket in &accepted {
            connection::set_blocking(socket, true)?;
        }
        sockets.extend(accepted.into_iter().map(Some));
        Mesh::new(self.rank, sockets)
    }
}

/// The secret of a rank's connections, made from the test's: several ranks may be at the same control port.
fn token_of(token: &Token, rank: usize) -> Token {
    let mut of_rank = *token;
    of_rank.iter_mut().zip(number(rank).to_le_bytes()).for_each(|(byte, rank)| *byte ^= rank);
    of_rank
}

fn number(rank: usize) -> u32 {
    u32::try_from(rank).unwrap_or(u32::MAX)
}

#[cfg(test)]
pub mod tests;
