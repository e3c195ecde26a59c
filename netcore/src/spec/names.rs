//! The words for patterns, transports, io methods and directions, as they stand in plans and results.

use super::{Direction, Io, Pattern, Transport};

impl Pattern {
    /// Whether every operation has a connection of its own.
    #[must_use]
    pub fn is_connecting(self) -> bool {
        matches!(self, Self::Connect | Self::ConnectRequestResponse)
    }
}

impl Transport {
    /// The transport's name in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Mptcp => "mptcp",
            Self::Udp => "udp",
            Self::UdpLite => "udplite",
            Self::Sctp => "sctp",
            Self::Dccp => "dccp",
            Self::UnixStream => "unix",
            Self::UnixSeqpacket => "unix_seqpacket",
            Self::UnixDatagram => "unix_dgram",
            Self::Vsock => "vsock",
            Self::Link => "link",
            Self::Icmp => "icmp",
            Self::Pipe => "pipe",
        }
    }

    /// The kernel module that brings it, where a kernel may be without.
    #[must_use]
    pub fn module(self) -> Option<&'static str> {
        match self {
            Self::Sctp => Some("sctp"),
            Self::Dccp => Some("dccp_ipv4 and dccp_ipv6 (gone from Linux 6.16 on)"),
            Self::Vsock => Some("vsock and vsock_loopback, or the hypervisor's transport"),
            _ => None,
        }
    }

    /// Whether it keeps message boundaries and may lose messages.
    #[must_use]
    pub fn is_datagram(self) -> bool {
        matches!(self, Self::Udp | Self::UdpLite | Self::UnixDatagram | Self::Dccp | Self::Link | Self::Icmp)
    }

    /// Whether it runs over IP: then IP's options have a meaning on it, and a route decides by which interface it leaves.
    #[must_use]
    pub fn uses_ip(self) -> bool {
        !matches!(
            self,
            Self::UnixStream | Self::UnixSeqpacket | Self::UnixDatagram | Self::Vsock | Self::Link | Self::Pipe
        )
    }

    /// Whether its sockets can be bound to a network interface.
    #[must_use]
    pub fn has_interface(self) -> bool {
        self.uses_ip() || self == Self::Link
    }

    /// Whether its options and TCP_INFO are TCP's.
    #[must_use]
    pub fn is_tcp(self) -> bool {
        matches!(self, Self::Tcp | Self::Mptcp)
    }
}

impl Io {
    /// The io method's name in plans and results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Blocking => "blocking",
            Self::Nonblocking => "nonblocking",
            Self::Spin => "spin",
            Self::Sendfile => "sendfile",
            Self::Batch => "batch",
            Self::Uring => "uring",
            Self::Splice => "splice",
            Self::Zerocopy => "zerocopy",
        }
    }
}

impl Direction {
    /// The direction's name in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Reverse => "reverse",
            Self::Bidirectional | Self::Duplex => "both",
        }
    }
}
