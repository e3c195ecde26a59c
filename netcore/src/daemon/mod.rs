//! The far end as a service: accepts control connections, admits tests, and runs them.
//!
//! Each session has a thread, which sleeps in `poll` while nothing happens: an idle daemon uses no CPU. The cost of
//! strangers is bounded before they have proven anything (connections, time, bytes of a greeting), and the cost of a session
//! by [`Limits`]. [`Daemon::spawn_embedded`] is the same code on a loopback port with a key made for the purpose.

pub(crate) mod admission;
#[cfg(test)]
mod bounds;
mod budget;
mod embedded;
mod log;
mod network;
mod peer_clients;
mod programs;
mod session;
mod turns;
mod waiting;

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::PathBuf,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use nix::sys::socket::{Shutdown, shutdown};

use crate::{
    control::{
        DEFAULT_PORT,
        channel::Channel,
        key::Key,
        netns::{self, NetnsError},
        stop::{StopFlag, Urgency, wait, wait_any},
    },
    end,
    peers::{self, Program, stamp::Reflector},
    transport::control_port::ControlPort,
};
use budget::{Bounds, Budget, Loads, Unproven};
use log::Tally;
use turns::Turns;

pub use crate::control::message::{Limits, Part};
pub use embedded::Embedded;
pub use log::{Cause, ClientLabel, Counts, Event, Log, Snapshot, TestEnding, TestResult};
pub use network::{Listen, Network, NetworkError, Networks, listen};
pub use session::LONGEST_LEAD;

#[derive(Clone)]
pub struct Config {
    /// One or two addresses to listen on ([`listen`] gives the right ones).
    pub listen: Vec<SocketAddr>,
    /// Other programs whose clients are served too, and the addresses for them: one for each version of IP. Their protocols
    /// know no key.
    pub also: Vec<(Program, Vec<SocketAddr>)>,
    /// The key that clients must have; `None`: none.
    pub key: Option<Key>,
    /// First and last port for the data of tests; `None`: they come to the control port.
    pub data_ports: Option<(u16, u16)>,
    /// Networks that clients may come from; empty: any.
    pub allow: Vec<Network>,
    /// Networks that near ends may connect to, besides the client's own address and this daemon's.
    pub allow_connect: Networks,
    /// Folders whose regular files a test may name to be read and sent.
    pub allow_files: Vec<PathBuf>,
    /// Whether clients that have proven the key may run any program here, with this process's rights. Needs a key.
    pub allow_hooks: bool,
    /// Whether clients without a test are probed, so that one whose machine is gone is noticed. An exclusive daemon always
    /// does.
    pub probe_idle: bool,
    pub limits: Limits,
    pub timeouts: Timeouts,
    /// Network namespace of every socket; `None`: the process's own.
    pub netns: Option<String>,
    pub log: Option<Log>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], DEFAULT_PORT))],
            also: Vec::new(),
            key: None,
            data_ports: None,
            allow: Vec::new(),
            allow_connect: Networks::default(),
            allow_files: Vec::new(),
            allow_hooks: false,
            probe_idle: false,
            limits: Limits::default(),
            timeouts: Timeouts::default(),
            netns: None,
            log: None,
        }
    }
}

impl Config {
    /// The longest time that a client of an exclusive daemon may have the turn before its load begins. It may be waiting at
    /// another daemon meanwhile.
    fn hold(&self) -> Duration {
        Duration::from_nanos(self.limits.queue_ns.unwrap_or(0)).max(self.timeouts.prepared)
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config").field("listen", &self.listen).field("key", &self.key).finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For the whole greeting.
    pub greeting: Duration,
    /// For the next request of a session without a test.
    pub idle: Duration,
    /// For the next request of a session whose test is prepared or connected.
    pub prepared: Duration,
    /// For the rest of a message that has begun to arrive, and for the peer to read one.
    pub message: Duration,
    /// For the end of a test after the instant at which it should have ended.
    pub grace: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            greeting: Duration::from_secs(10),
            idle: Duration::from_mins(10),
            prepared: Duration::from_mins(1),
            message: Duration::from_secs(10),
            grace: Duration::from_secs(10),
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DaemonError {
    #[error("cannot listen on {address}: {source}{}", unbound(source, address, *program))]
    Listen {
        address: SocketAddr,
        source: io::Error,
        /// The program whose clients come to it; `None`: Plumbline.
        program: Option<Program>,
    },
    #[error("{0}")]
    Netns(#[from] NetnsError),
    #[error("{0}")]
    Key(#[from] crate::control::key::KeyError),
    /// The system refused something while the daemon served.
    #[error("{what}: {source}")]
    System { what: &'static str, source: io::Error },
}

/// Advice where an address is not to be had.
fn unbound(error: &io::Error, address: &SocketAddr, program: Option<Program>) -> String {
    let other = |port: u16| match program {
        None => format!("--listen {}", SocketAddr::new(address.ip(), port)),
        Some(program) => format!("--also {}={port}", program.as_str()),
    };
    match error.kind() {
        io::ErrorKind::AddrInUse => format!(
            "; another program has this port (`ss -tulnp 'sport = :{}'` names it): end that one, or take another port, \
             `plumb serve {}`",
            address.port(),
            other(address.port().checked_add(1).unwrap_or(DEFAULT_PORT))
        ),
        io::ErrorKind::PermissionDenied => {
            // Such as 8862 instead of 862.
            let free = program.map_or(DEFAULT_PORT, |_| address.port() + 8000);
            format!("; ports below 1024 are root's: take another, `plumb serve {}`", other(free))
        }
        io::ErrorKind::AddrNotAvailable => "; this machine has no such address: `ip address` lists its own".to_owned(),
        _ => String::new(),
    }
}

/// Whether the machine lacks the address or its version of IP.
fn is_absent(error: &io::Error) -> bool {
    // EAFNOSUPPORT has no stable kind of its own.
    error.kind() == io::ErrorKind::AddrNotAvailable || error.raw_os_error() == Some(libc::EAFNOSUPPORT)
}

fn serves_both(bound: &[(Listening, SocketAddr)]) -> bool {
    bound.iter().any(|(_, address)| address.is_ipv6() && address.ip().is_unspecified())
}

/// A listening daemon.
#[derive(Debug)]
pub struct Daemon {
    listeners: Vec<Listening>,
    shared: Shared,
}

/// A port, and whose clients it serves.
#[derive(Debug)]
enum Listening {
    Own(Arc<ControlPort>),
    OfProgram(TcpListener, SocketAddr, Program),
    /// It has a thread of its own.
    Reflecting(Reflector),
}

/// Attempts at a port of the kernel's choice: the one for TCP may be in use for UDP.
const PORTS_TRIED: u32 = 16;

/// The sockets of a control port.
fn bind_own(address: &SocketAddr) -> io::Result<(Listening, SocketAddr)> {
    let mut tried = 1;
    loop {
        let listener = TcpListener::bind(address)?;
        let bound = listener.local_addr()?;
        match UdpSocket::bind(bound) {
            Ok(datagrams) => return Ok((Listening::Own(ControlPort::new(listener, datagrams)?), bound)),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && address.port() == 0 && tried < PORTS_TRIED => {
                tried += 1;
            }
            Err(error) => return Err(io::Error::new(error.kind(), format!("{error} (for UDP)"))),
        }
    }
}

fn bind_for_program(address: &SocketAddr, program: Program) -> io::Result<(Listening, SocketAddr)> {
    if !program.converses() {
        let reflector = Reflector::bind(address)?;
        let bound = reflector.address();
        return Ok((Listening::Reflecting(reflector), bound));
    }
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let bound = listener.local_addr()?;
    Ok((Listening::OfProgram(listener, bound, program), bound))
}

/// State shared by the sessions of a daemon.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    /// A random number of this daemon.
    number: u64,
    budget: Budget,
    unproven: Unproven,
    /// For other programs' clients. A client of iperf3 opens many connections at once.
    unproven_of_programs: Unproven,
    loads: Loads,
    turns: Turns,
    tally: Tally,
    sessions_of_programs: peers::Sessions,
}

impl Shared {
    pub(crate) fn log(&self, event: &Event<'_>) {
        self.tally.count(event);
        if let Some(log) = &self.config.log {
            log(event);
        }
    }
}

impl Daemon {
    /// Listens on those of the addresses that the machine has, at least one.
    pub fn bind(config: Config) -> Result<Self, DaemonError> {
        end::raise_limit();
        let is_taken = |error: &io::Error| error.kind() == io::ErrorKind::AddrInUse;
        let bind_all = |program: Option<Program>, addresses: &[SocketAddr]| {
            let mut bound = Vec::new();
            let mut absent = None;
            for address in addresses.iter().take(2) {
                match program.map_or_else(|| bind_own(address), |program| bind_for_program(address, program)) {
                    Ok(pair) => bound.push(pair),
                    // This machine lacks that version of IP, or the socket for both versions serves IPv4 already.
                    Err(error) if is_absent(&error) || (is_taken(&error) && serves_both(&bound)) => {
                        absent = Some(DaemonError::Listen { address: *address, source: error, program });
                    }
                    Err(source) => return Err(DaemonError::Listen { address: *address, source, program }),
                }
            }
            match absent {
                Some(error) if bound.is_empty() => Err(error),
                _ => Ok(bound),
            }
        };
        let own = std::iter::once((None, &config.listen));
        let all = own.chain(config.also.iter().map(|(program, addresses)| (Some(*program), addresses)));
        let listeners = netns::within(config.netns.as_deref(), || {
            let mut listeners = Vec::new();
            for (program, addresses) in all {
                listeners.extend(bind_all(program, addresses)?.into_iter().map(|(listening, _)| listening));
            }
            Ok::<_, DaemonError>(listeners)
        })??;
        let shared = Shared {
            config,
            // Without random numbers no test gets a token either.
            number: getrandom::u64().unwrap_or_default(),
            budget: Budget::default(),
            unproven: Unproven::new(Bounds::OWN),
            unproven_of_programs: Unproven::new(Bounds::OF_PROGRAMS),
            loads: Loads::default(),
            turns: Turns::default(),
            tally: Tally::default(),
            sessions_of_programs: peers::Sessions::default(),
        };
        Ok(Self { listeners, shared })
    }

    /// The first address that it listens on, with the port that the kernel chose where 0 was asked for.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.local_addrs().next()
    }

    pub fn local_addrs(&self) -> impl Iterator<Item = SocketAddr> {
        self.listening(None)
    }

    /// The addresses for the clients of another program; `None`: for Plumbline's.
    pub fn listening(&self, program: Option<Program>) -> impl Iterator<Item = SocketAddr> {
        self.listeners.iter().filter_map(move |listening| match listening {
            Listening::Own(port) => program.is_none().then(|| port.address()),
            Listening::OfProgram(_, address, served) => (program == Some(*served)).then_some(*address),
            Listening::Reflecting(reflector) => (program == Some(Program::Stamp)).then(|| reflector.address()),
        })
    }

    /// Its state now. Takes the locks of sessions' edges for a few microseconds, none that a data thread takes.
    pub fn snapshot(&self) -> Snapshot {
        self.shared.snapshot()
    }

    /// Serves until `stop` is raised, then lets running tests finish; raised twice, it ends them. Returns when every session
    /// has ended. A daemon serves only once.
    pub fn run(&self, stop: &StopFlag) -> Result<(), DaemonError> {
        netns::within(self.shared.config.netns.as_deref(), || {
            thread::scope(|scope| {
                let accepted = self.reflect(scope, stop).and_then(|()| self.accept_all(scope, stop));
                // While tests finish, new connections are refused and not left waiting, and another daemon may take the port.
                for listening in &self.listeners {
                    match listening {
                        Listening::Own(port) => port.close(),
                        // A failure does no harm.
                        Listening::OfProgram(socket, ..) => drop(shutdown(socket.as_raw_fd(), Shutdown::Both)),
                        Listening::Reflecting(_) => {}
                    }
                }
                accepted
            })
        })?
    }

    /// Starts the threads that answer packets, which end as soon as `stop` is raised.
    fn reflect<'s>(&'s self, scope: &'s thread::Scope<'s, '_>, stop: &StopFlag) -> Result<(), DaemonError> {
        for listening in &self.listeners {
            let Listening::Reflecting(reflector) = listening else { continue };
            let (shared, stop) = (&self.shared, stop.clone());
            let serve = move || {
                let secret = shared.config.key.as_ref().map(Key::secret);
                if let Err(error) = reflector.serve(secret, shared, &stop) {
                    shared.log(&Event::Unaccepted { reason: format!("the reflector has ended: {error}") });
                }
            };
            let what = "no thread for the reflector";
            let spawned = thread::Builder::new().name("reflector".into()).spawn_scoped(scope, serve);
            spawned.map_err(|source| DaemonError::System { what, source })?;
        }
        Ok(())
    }

    fn accept_all<'s>(&'s self, scope: &'s thread::Scope<'s, '_>, stop: &StopFlag) -> Result<(), DaemonError> {
        let system = |what| move |source| DaemonError::System { what, source };
        while stop.urgency() == Urgency::None {
            let mut fds: Vec<_> = self.listeners.iter().flat_map(Listening::awaited).collect();
            fds.push(stop.beyond(Urgency::None));
            let ready = wait_any(&fds, None).map_err(system("waiting for connections failed"))?;
            for (listening, ready) in self.listeners.iter().zip(ready.chunks(AWAITED)) {
                let accepted = match listening {
                    Listening::Own(port) => {
                        if ready[1] {
                            port.receive();
                        }
                        let given_back = if ready[2] { port.take_back() } else { Vec::new() };
                        for (socket, peer) in given_back {
                            self.sort(scope, port, socket, peer, stop);
                        }
                        ready[0].then(|| port.accept().map(|(socket, peer)| self.sort(scope, port, socket, peer, stop)))
                    }
                    Listening::OfProgram(socket, _, program) => ready[0].then(|| {
                        let (stream, peer) = socket.accept()?;
                        self.serve(scope, Client::OfProgram(*program), stream, peer, stop.clone());
                        Ok(())
                    }),
                    Listening::Reflecting(_) => None,
                };
                match accepted {
                    None | Some(Ok(())) => {}
                    Some(Err(error)) => match error.kind() {
                        // Gone again before it was accepted.
                        io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted => {}
                        _ => {
                            self.shared.log(&Event::Unaccepted { reason: error.to_string() });
                            // Without descriptors or memory the connection stays in the queue and would wake us again
                            // at once. A session that ends frees some.
                            let pause = Instant::now() + Duration::from_millis(100);
                            wait([stop.beyond(Urgency::None)], Some(pause))
                                .map_err(system("waiting for descriptors failed"))?;
                        }
                    },
                }
            }
        }
        Ok(())
    }

    /// Serves a connection at a control port, or hands it to the test whose data it carries.
    fn sort<'s>(
        &'s self,
        scope: &'s thread::Scope<'s, '_>,
        port: &'s Arc<ControlPort>,
        socket: OwnedFd,
        peer: SocketAddr,
        stop: &StopFlag,
    ) {
        if let Some(socket) = port.sort(socket, peer) {
            self.serve(scope, Client::Own(port), socket.into(), peer, stop.clone());
        }
    }

    fn serve<'s>(
        &'s self,
        scope: &'s thread::Scope<'s, '_>,
        client: Client<'s>,
        stream: TcpStream,
        peer: SocketAddr,
        stop: StopFlag,
    ) {
        let shared = &self.shared;
        let dropped = |address: String, reason: String, cause| shared.log(&Event::Dropped { address, reason, cause });
        let address = plain(peer);
        if !admission::allows(&shared.config, address) {
            if let Client::Own(_) = client {
                Channel::turn_away(&stream);
            }
            dropped(peer.to_string(), "--allow does not name its network".to_owned(), Cause::Network);
            return;
        }
        let unproven = match client {
            Client::Own(_) => &shared.unproven,
            Client::OfProgram(_) => &shared.unproven_of_programs,
        };
        let place = match unproven.enter(&stream, address) {
            Ok((place, evicted)) => {
                if let Some(evicted) = evicted {
                    dropped(
                        evicted.to_string(),
                        "too many connections are in their greeting".to_owned(),
                        Cause::Crowded,
                    );
                }
                place
            }
            Err(error) => {
                dropped(peer.to_string(), format!("no descriptor for it: {error}"), Cause::Resources);
                return;
            }
        };
        let spawned = thread::Builder::new().name("session".into()).spawn_scoped(scope, move || match client {
            Client::Own(port) => session::serve(shared, port, stream, peer, place, &stop),
            Client::OfProgram(program) => peer_clients::serve(shared, program, stream, peer, place, &stop),
        });
        if let Err(error) = spawned {
            dropped(peer.to_string(), format!("no thread for it: {error}"), Cause::Resources);
        }
    }
}

/// The client that a connection comes from.
enum Client<'s> {
    Own(&'s Arc<ControlPort>),
    OfProgram(Program),
}

/// Descriptors of a port that the daemon waits for.
const AWAITED: usize = 3;

impl Listening {
    fn awaited(&self) -> [Option<BorrowedFd<'_>>; AWAITED] {
        match self {
            Self::Own(port) => port.awaited(),
            Self::OfProgram(socket, ..) => [Some(socket.as_fd()), None, None],
            Self::Reflecting(_) => [None; AWAITED],
        }
    }
}

/// The address, as IPv4 where it is an IPv4 address mapped into IPv6.
fn plain(address: SocketAddr) -> IpAddr {
    address.ip().to_canonical()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_is_not_to_be_had_comes_with_another_one() {
        let said = |port: u16, kind: io::ErrorKind, program| {
            let address = SocketAddr::from(([127, 0, 0, 1], port));
            DaemonError::Listen { address, source: kind.into(), program }.to_string()
        };
        let denied = said(862, io::ErrorKind::PermissionDenied, Some(Program::Stamp));
        assert!(denied.contains("127.0.0.1:862") && denied.contains("`plumb serve --also stamp=8862`"), "{denied}");
        let taken = said(5201, io::ErrorKind::AddrInUse, Some(Program::Iperf3));
        assert!(taken.contains("`plumb serve --also iperf3=5202`"), "{taken}");
        let own = said(80, io::ErrorKind::PermissionDenied, None);
        assert!(own.contains("`plumb serve --listen 127.0.0.1:12864`"), "{own}");
    }
}
