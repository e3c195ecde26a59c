//! How two ends meet: sockets made, options applied, connections opened, accepted and proven to belong to the session.

pub mod address;
pub mod connection;
pub mod datagram;
pub mod door;
pub mod icmp;
pub mod link;
pub mod meeting;
pub mod options;
pub mod pipe;
mod scratch;
mod vsock;

use std::{
    net::{IpAddr, SocketAddr},
    os::fd::{AsRawFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use door::Door;
use nix::sys::socket::{Shutdown, shutdown};

use crate::{
    end::EndError,
    spec::{Family, TestSpec, Transport},
    sys,
};

/// The descriptors of one flow. For a socket both are the same.
#[derive(Debug)]
pub struct Link {
    /// Number of the flow.
    pub flow: u32,
    /// What is sent on.
    pub send: Arc<OwnedFd>,
    /// What is received on.
    pub receive: Arc<OwnedFd>,
    /// For the connect patterns: what their connections come through.
    pub door: Option<Door>,
    /// For ICMP: how its messages look.
    pub icmp: Option<icmp::Form>,
    /// Whether the descriptors are a pipe's.
    pub is_pipe: bool,
    /// For datagrams between sockets that are not connected: where they go to and must come from.
    pub peer: Option<SocketAddr>,
    /// What precedes each message on the link layer; empty elsewhere.
    pub header: Vec<u8>,
    /// Set before blocked threads of a pipe are freed.
    freed: AtomicBool,
}

impl Link {
    /// Of one socket.
    #[must_use]
    pub fn of_socket(flow: u32, socket: OwnedFd) -> Self {
        let socket = Arc::new(socket);
        Self::new(flow, socket.clone(), socket)
    }

    /// Of two descriptors.
    #[must_use]
    pub fn new(flow: u32, send: Arc<OwnedFd>, receive: Arc<OwnedFd>) -> Self {
        Self {
            flow,
            send,
            receive,
            door: None,
            icmp: None,
            is_pipe: false,
            peer: None,
            header: Vec::new(),
            freed: AtomicBool::new(false),
        }
    }

    /// The address that the flow goes to, where it is an IP address.
    #[must_use]
    pub fn peer_ip(&self) -> Option<IpAddr> {
        let peer = self.peer.or_else(|| address::peer_ip(&self.send).ok())?;
        Some(peer.ip().to_canonical())
    }

    /// Whether the flow's threads are to leave, whatever their last call has given.
    #[inline]
    #[must_use]
    pub fn is_freed(&self) -> bool {
        self.freed.load(Relaxed)
    }

    /// Says that nothing more will be sent: the peer reads to the end of the stream.
    pub fn end_of_stream(&self) {
        if self.is_pipe {
            // A pipe ends when its last writer is gone. The descriptor stays valid and leads nowhere.
            let _ = sys::lead_nowhere(&self.send);
            return;
        }
        // A peer that has gone already has ended the stream too.
        let _ = shutdown(self.send.as_raw_fd(), Shutdown::Write);
    }

    /// Frees threads that are blocked on the flow's descriptors. May be called again and again until they have left.
    pub fn free(&self) {
        self.freed.store(true, Relaxed);
        if self.is_pipe {
            pipe::free(self);
            return;
        }
        // What is not connected any more frees its threads by that.
        let _ = shutdown(self.send.as_raw_fd(), Shutdown::Both);
        if let Some(door) = &self.door {
            door.free();
        }
    }
}

/// The numbers of a connection-oriented protocol, as socket(2) takes them.
#[derive(Clone, Copy, Debug)]
pub struct Protocol {
    transport: Transport,
    kind: libc::c_int,
    number: libc::c_int,
    /// The kernel module that brings it.
    module: Option<&'static str>,
}

const IPPROTO_MPTCP: libc::c_int = 262;

impl Protocol {
    /// Of the transports that listen, connect and accept.
    #[must_use]
    pub fn of(transport: Transport) -> Option<Self> {
        let (kind, number, module) = match transport {
            Transport::Tcp => (libc::SOCK_STREAM, libc::IPPROTO_TCP, None),
            Transport::Mptcp => (libc::SOCK_STREAM, IPPROTO_MPTCP, None),
            Transport::Sctp => (libc::SOCK_STREAM, libc::IPPROTO_SCTP, Some("sctp")),
            Transport::Dccp => (libc::SOCK_DCCP, libc::IPPROTO_DCCP, Some("dccp_ipv4 and dccp_ipv6")),
            Transport::UnixStream => (libc::SOCK_STREAM, 0, None),
            Transport::UnixSeqpacket => (libc::SOCK_SEQPACKET, 0, None),
            Transport::Vsock => (libc::SOCK_STREAM, 0, Some("vsock and vsock_loopback, or the hypervisor's transport")),
            _ => return None,
        };
        Some(Self { transport, kind, number, module })
    }

    /// A socket of this protocol and family.
    pub fn socket(self, family: libc::c_int) -> Result<OwnedFd, EndError> {
        sys::socket(family, self.kind, self.number).map_err(|source| {
            let name = self.transport.name();
            let hint = match (self.module, self.transport, source.raw_os_error()) {
                (Some(module), _, Some(libc::EPROTONOSUPPORT | libc::ESOCKTNOSUPPORT | libc::EAFNOSUPPORT)) => {
                    format!("this kernel has no {name}; load it with: modprobe {module}")
                }
                (None, Transport::Mptcp, Some(libc::EPROTONOSUPPORT | libc::ENOPROTOOPT)) => {
                    "this kernel has no MPTCP, or it is off; switch it on with: sysctl net.mptcp.enabled=1".to_owned()
                }
                _ => format!("no socket for {name}"),
            };
            EndError::System { what: hint, source }
        })
    }
}

/// A time limit that several waits share.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    start: Instant,
    allowed: Duration,
}

impl Deadline {
    /// From now on.
    #[must_use]
    pub fn after(allowed: Duration) -> Self {
        Self { start: Instant::now(), allowed }
    }

    /// What is left of it.
    #[must_use]
    pub fn left(&self) -> Duration {
        self.allowed.saturating_sub(self.start.elapsed())
    }

    /// The error for the time being up.
    #[must_use]
    pub fn missed(&self, connected: usize, flows: u32, hint: &str) -> EndError {
        let connected = u32::try_from(connected).unwrap_or(u32::MAX);
        EndError::Timeout { connected, flows, seconds: self.allowed.as_secs_f64(), hint: hint.to_owned() }
    }
}

/// Whether the address fits the family that the test asks for.
pub fn check_family(spec: &TestSpec, address: IpAddr) -> Result<(), EndError> {
    let fits = match spec.family {
        Family::Any => true,
        Family::V4 => address.is_ipv4(),
        Family::V6 => address.is_ipv6(),
    };
    if fits {
        return Ok(());
    }
    let version = if spec.family == Family::V4 { "IPv4" } else { "IPv6" };
    Err(EndError::Impossible(format!(
        "the test asks for {version}, but the data address is {address}: give the host an {version} address"
    )))
}
