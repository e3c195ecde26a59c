//! Sockets of every transport: creates them, applies options, connects, accepts, and proves that a connection belongs to the
//! session.

pub mod address;
pub mod certificate;
pub mod connection;
pub mod control_port;
pub mod datagram;
pub mod flow_options;
pub mod hops;
pub mod icmp;
pub mod ktls;
pub mod link;
pub mod listener;
pub mod meeting;
pub mod mpi;
pub mod options;
pub mod pipe;
pub mod quic;
pub mod records;
pub mod rendezvous;
pub mod stamp;
pub mod tls;

use std::{
    net::{IpAddr, SocketAddr},
    os::fd::{AsRawFd, OwnedFd},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use nix::sys::socket::{Shutdown, shutdown};

use crate::{
    error::EndError,
    mpi::Route,
    spec::{Family, Pattern, TestSpec, Transport},
    sys::{self, opt},
};
use listener::{Connector, Listener};

/// The descriptors of one flow. For a socket both are the same.
#[derive(Debug)]
pub struct Link {
    pub flow: u32,
    pub send: Arc<OwnedFd>,
    pub receive: Arc<OwnedFd>,
    /// Far end of a connect pattern: accepts its connections.
    pub listener: Option<Listener>,
    /// Near end of a connect pattern: opens its connections.
    pub connector: Option<Connector>,
    /// ICMP: the form of its messages.
    pub icmp: Option<icmp::Form>,
    pub is_pipe: bool,
    /// Unconnected datagram sockets: the address that datagrams go to and must come from.
    pub peer: Option<SocketAddr>,
    /// Header of each message on the link layer; empty elsewhere.
    pub header: Vec<u8>,
    /// The way of messages between ranks. The descriptors then stand for nothing.
    pub route: Option<Route>,
    /// The keys of a TLS connection, after its handshake.
    pub secured: OnceLock<tls::Secured>,
    /// QUIC over the sockets, after its handshake.
    pub quic: OnceLock<quic::Flow>,
    /// Set before blocked threads of a pipe are freed.
    freed: AtomicBool,
}

impl Link {
    pub fn of_socket(flow: u32, socket: OwnedFd) -> Self {
        let socket = Arc::new(socket);
        Self::new(flow, socket.clone(), socket)
    }

    pub fn new(flow: u32, send: Arc<OwnedFd>, receive: Arc<OwnedFd>) -> Self {
        Self {
            flow,
            send,
            receive,
            listener: None,
            connector: None,
            icmp: None,
            is_pipe: false,
            peer: None,
            header: Vec::new(),
            route: None,
            secured: OnceLock::new(),
            quic: OnceLock::new(),
            freed: AtomicBool::new(false),
        }
    }

    /// The descriptor that a thread of several flows waits for: of a connect pattern, the listening socket.
    pub fn lasting(&self) -> &Arc<OwnedFd> {
        self.listener.as_ref().map_or(&self.receive, Listener::socket)
    }

    /// The socket that receives; of a connect pattern, the listening one. `None`: a pipe, or messages between ranks.
    pub fn socket(&self) -> Option<&Arc<OwnedFd>> {
        (!self.is_pipe && self.route.is_none()).then(|| self.lasting())
    }

    /// The peer's address, where it is an IP address.
    pub fn peer_ip(&self) -> Option<IpAddr> {
        let peer = self.peer.or_else(|| address::peer_ip(&self.send).ok())?;
        Some(peer.ip().to_canonical())
    }

    /// Whether both ends are on this host, as far as the addresses tell.
    pub fn is_within_host(&self, transport: Transport) -> bool {
        let here = || address::local_ip(&self.send).map(|address| address.ip().to_canonical());
        meeting::has_names(transport)
            || self.peer_ip().is_some_and(|peer| peer.is_loopback() || here().is_ok_and(|here| here == peer))
    }

    /// Whether the flow's threads must leave, whatever the result of their last call.
    #[inline]
    pub fn is_freed(&self) -> bool {
        self.freed.load(Relaxed)
    }

    /// Ends the stream: the peer reads to its end.
    pub fn end_of_stream(&self) {
        if let Some(route) = &self.route {
            route.end();
            return;
        }
        if self.quic.get().is_some() {
            // Its own packets say so.
            return;
        }
        if self.is_pipe {
            // A pipe ends when its last writer is gone. The descriptor stays valid and refers to /dev/null.
            let _ = sys::lead_nowhere(&self.send);
            return;
        }
        // It fails if the peer has gone, which ends the stream too.
        let _ = shutdown(self.send.as_raw_fd(), Shutdown::Write);
    }

    /// Frees threads like [`Self::free`]. The peer can still read what was sent, to its end.
    pub fn free_after_sending(&self) {
        self.freed.store(true, Relaxed);
        let _ = shutdown(self.send.as_raw_fd(), Shutdown::Both);
    }

    /// Frees threads that are blocked on the flow's descriptors. Call it repeatedly until they have left.
    pub fn free(&self) {
        self.freed.store(true, Relaxed);
        if self.route.is_some() {
            // The peer ends, too, and that frees a thread in the library.
            return;
        }
        if self.is_pipe {
            pipe::free(self);
            return;
        }
        // The close that follows must be a reset. A peer that is blocked in send would otherwise wait for a minute: if its last
        // bytes are read after the shutdown, the kernel forgets the connection with its window still shut.
        let _ = options::reset_on_close(&self.send);
        // It fails on a socket that is not connected any more, whose threads are free.
        let _ = shutdown(self.send.as_raw_fd(), Shutdown::Both);
        if let Some(listener) = &self.listener {
            listener.free();
        }
        if let Some(connector) = &self.connector {
            connector.present.free();
        }
    }
}

/// Numbers of a transport's sockets, as socket(2) takes them.
#[derive(Clone, Copy, Debug)]
pub struct Protocol {
    transport: Transport,
    pub kind: libc::c_int,
    pub number: libc::c_int,
}

/// The service code of DCCP connections, which must be the same at both ends.
const SERVICE: &[u8; 4] = b"PLMB";

/// Whether each flow of a transport has its own pair of datagram sockets, without listening and accepting.
pub fn has_socket_pairs(transport: Transport) -> bool {
    Protocol::of(transport).is_some_and(|protocol| protocol.kind == libc::SOCK_DGRAM)
}

impl Protocol {
    /// `None`: the transport does not listen, connect and accept.
    pub fn connecting(transport: Transport) -> Option<Self> {
        Self::of(transport).filter(|protocol| protocol.kind != libc::SOCK_DGRAM)
    }

    /// `None`: a pipe, or MPI.
    pub fn of(transport: Transport) -> Option<Self> {
        let (kind, number) = match transport {
            Transport::Tcp | Transport::Tls => (libc::SOCK_STREAM, libc::IPPROTO_TCP),
            Transport::Mptcp => (libc::SOCK_STREAM, libc::IPPROTO_MPTCP),
            Transport::Sctp => (libc::SOCK_STREAM, libc::IPPROTO_SCTP),
            Transport::Dccp => (libc::SOCK_DCCP, libc::IPPROTO_DCCP),
            Transport::UnixStream | Transport::Vsock => (libc::SOCK_STREAM, 0),
            Transport::UnixSeqpacket => (libc::SOCK_SEQPACKET, 0),
            Transport::Udp | Transport::Quic | Transport::QuicDatagram => (libc::SOCK_DGRAM, libc::IPPROTO_UDP),
            Transport::UdpLite => (libc::SOCK_DGRAM, libc::IPPROTO_UDPLITE),
            Transport::Icmp => (libc::SOCK_DGRAM, libc::IPPROTO_ICMP),
            Transport::UnixDatagram | Transport::Link => (libc::SOCK_DGRAM, 0),
            Transport::Pipe | Transport::Mpi => return None,
        };
        Some(Self { transport, kind, number })
    }

    pub fn nonblocking(self) -> Self {
        Self { kind: self.kind | libc::SOCK_NONBLOCK, ..self }
    }

    pub fn socket(self, family: libc::c_int) -> Result<OwnedFd, EndError> {
        let socket = sys::socket(family, self.kind, self.number).map_err(|source| {
            let name = self.transport.name();
            let what = match (self.transport.module(), self.transport, source.raw_os_error()) {
                (Some(module), _, Some(libc::EPROTONOSUPPORT | libc::ESOCKTNOSUPPORT | libc::EAFNOSUPPORT)) => {
                    format!("this kernel has no {name}; load it with: modprobe {module}")
                }
                (None, Transport::Mptcp, Some(libc::EPROTONOSUPPORT | libc::ENOPROTOOPT)) => {
                    "this kernel has no MPTCP, or it is off; switch it on with: sysctl net.mptcp.enabled=1".to_owned()
                }
                _ => format!("no socket for {name}"),
            };
            EndError::System { what, source }
        })?;
        if self.transport == Transport::Dccp {
            opt::set(&socket, opt::DCCP_SOCKOPT_SERVICE, SERVICE)
                .map_err(EndError::system("cannot set the DCCP service code"))?;
        }
        Ok(socket)
    }
}

/// Capacity of a DCCP packet on the present path, bytes.
pub fn largest_packet(socket: &OwnedFd) -> Option<u64> {
    opt::get_int(socket, opt::DCCP_SOCKOPT_GET_CUR_MPS).ok().and_then(|bytes| bytes.try_into().ok())
}

/// The largest message of a test, bytes.
pub fn largest_message(spec: &TestSpec) -> u64 {
    let sizes = &spec.sizes;
    match spec.pattern {
        Pattern::Stream => sizes.message_bytes,
        _ => sizes.request_bytes.max(sizes.response_bytes),
    }
}

/// A time limit that several waits share and that may be cancelled.
#[derive(Clone, Copy)]
pub struct Deadline<'a> {
    start: Instant,
    allowed: Duration,
    cancelled: &'a dyn Fn() -> bool,
}

/// Interval at which a wait checks for cancellation.
const LOOK_UP: Duration = Duration::from_millis(50);

impl<'a> Deadline<'a> {
    pub fn after(allowed: Duration, cancelled: &'a dyn Fn() -> bool) -> Self {
        Self { start: Instant::now(), allowed, cancelled }
    }

    /// The remaining time; zero once cancelled.
    pub fn left(&self) -> Duration {
        if (self.cancelled)() { Duration::ZERO } else { self.allowed.saturating_sub(self.start.elapsed()) }
    }

    /// Time since the begin, seconds.
    pub fn elapsed_s(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    pub fn is_cancelled(&self) -> bool {
        (self.cancelled)()
    }

    /// The time to wait before the next check of the remaining time.
    pub fn slice(&self) -> Duration {
        self.left().min(LOOK_UP)
    }

    /// The error at the end of the time.
    pub fn missed(&self, connected: usize, flows: u32, hint: &str) -> EndError {
        if (self.cancelled)() {
            return EndError::Cancelled;
        }
        let connected = u32::try_from(connected).unwrap_or(u32::MAX);
        EndError::Timeout { connected, flows, seconds: self.allowed.as_secs_f64(), hint: hint.to_owned() }
    }
}

/// Checks that the address fits the family that the test asks for.
pub fn check_family(spec: &TestSpec, address: IpAddr) -> Result<(), EndError> {
    if spec.family.fits(address) {
        return Ok(());
    }
    let version = if spec.family == Family::V4 { "IPv4" } else { "IPv6" };
    Err(EndError::Impossible(format!(
        "the test asks for {version}, but the data address is {address}: give the host an {version} address"
    )))
}
