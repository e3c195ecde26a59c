//! Patterns, transports, io methods and directions: their names in plans and results, and the two tables of what runs:
//! the io methods of each transport, and the options that each io method goes with.

use super::{Direction, Io, Pattern, Receive, Transport};

impl Pattern {
    /// Whether every operation has a connection of its own.
    pub fn is_connecting(self) -> bool {
        matches!(self, Self::Connect | Self::ConnectRequestResponse)
    }
}

/// A row of the table of transports. A pattern whose list of io methods is empty does not run over the transport.
#[expect(clippy::struct_excessive_bools, reason = "columns of the table")]
struct Facts {
    name: &'static str,
    ip: bool,
    datagrams: bool,
    /// Whether the receiver of a stream may leave the bytes where they are (`receive: discard`).
    discards: bool,
    /// Whether tests of N ranks run over it.
    ranks: bool,
    /// The kernel module, for transports that a kernel may lack.
    module: Option<&'static str>,
    stream: &'static [Io],
    request_response: &'static [Io],
    /// Both patterns that make connections.
    connect: &'static [Io],
    ping: &'static [Io],
}

const NOTHING: Facts = Facts {
    name: "",
    ip: false,
    datagrams: false,
    discards: false,
    ranks: false,
    module: None,
    stream: &[],
    request_response: &[],
    connect: &[],
    ping: &[],
};

/// Streams of bytes.
const BYTES: Facts = Facts {
    stream: &[Io::Blocking, Io::Nonblocking, Io::Spin, Io::Sendfile, Io::Uring],
    request_response: &[Io::Blocking, Io::Nonblocking, Io::Spin, Io::Uring],
    connect: &[Io::Blocking, Io::Spin],
    ..NOTHING
};

/// Connections without `sendfile` and the connect patterns.
const CONNECTIONS: Facts = Facts {
    stream: &[Io::Blocking, Io::Nonblocking, Io::Spin],
    request_response: &[Io::Blocking, Io::Nonblocking, Io::Spin],
    ..NOTHING
};

const DATAGRAMS: Facts = Facts {
    datagrams: true,
    stream: &[Io::Batch, Io::Blocking, Io::Spin],
    request_response: &[Io::Blocking, Io::Spin],
    ..NOTHING
};

/// Messages of a library that waits by itself.
const MESSAGES: Facts =
    Facts { stream: &[Io::Blocking, Io::Nonblocking], request_response: &[Io::Blocking, Io::Nonblocking], ..NOTHING };

/// Blocking calls only.
const WAITING: Facts = Facts { stream: &[Io::Blocking], request_response: &[Io::Blocking], ..NOTHING };

impl Transport {
    /// All transports, in the order of the enum.
    pub const ALL: [Self; 17] = [
        Self::Tcp,
        Self::Mptcp,
        Self::Tls,
        Self::Quic,
        Self::QuicDatagram,
        Self::Udp,
        Self::UdpLite,
        Self::Sctp,
        Self::Dccp,
        Self::UnixStream,
        Self::UnixSeqpacket,
        Self::UnixDatagram,
        Self::Vsock,
        Self::Link,
        Self::Icmp,
        Self::Pipe,
        Self::Mpi,
    ];

    const fn facts(self) -> Facts {
        match self {
            Self::Tcp => Facts {
                name: "tcp",
                ip: true,
                discards: true,
                ranks: true,
                stream: &[
                    Io::Blocking,
                    Io::Nonblocking,
                    Io::Spin,
                    Io::Sendfile,
                    Io::Splice,
                    Io::Vmsplice,
                    Io::Zerocopy,
                    Io::Uring,
                ],
                ..BYTES
            },
            // The kernel (seen on 6.18) copies what splice gives it, and has no MSG_ZEROCOPY here.
            Self::Mptcp => Facts { name: "mptcp", ip: true, discards: true, ..BYTES },
            // Only the kernel can take them from a file or from pages, where it seals the records.
            Self::Tls => Facts {
                name: "tls",
                ip: true,
                stream: &[Io::Blocking, Io::Nonblocking, Io::Spin, Io::Sendfile, Io::Splice, Io::Vmsplice],
                connect: BYTES.connect,
                ..CONNECTIONS
            },
            // Its packets go by batches in every pattern.
            Self::Quic => Facts {
                name: "quic",
                ip: true,
                stream: &[Io::Batch],
                request_response: &[Io::Batch],
                connect: &[Io::Batch],
                ..NOTHING
            },
            Self::QuicDatagram => {
                Facts { name: "quic_dgram", ip: true, datagrams: true, stream: &[Io::Batch], ..NOTHING }
            }
            Self::Udp => Facts { name: "udp", ip: true, discards: true, ..DATAGRAMS },
            Self::UdpLite => Facts { name: "udplite", ip: true, discards: true, ..DATAGRAMS },
            // The kernel (seen on 6.1) reports the end of an association to blocking calls only.
            Self::Sctp => Facts { name: "sctp", ip: true, module: Some("sctp"), ..WAITING },
            Self::Dccp => Facts {
                name: "dccp",
                ip: true,
                module: Some("dccp_ipv4 and dccp_ipv6 (gone from Linux 6.16 on)"),
                ..DATAGRAMS
            },
            // It has no MSG_ZEROCOPY, and receives of a stream know no MSG_TRUNC.
            Self::UnixStream => Facts {
                name: "unix",
                stream: &[Io::Blocking, Io::Nonblocking, Io::Spin, Io::Sendfile, Io::Splice, Io::Vmsplice, Io::Uring],
                ..BYTES
            },
            Self::UnixSeqpacket => Facts { name: "unix_seqpacket", ..CONNECTIONS },
            Self::UnixDatagram => Facts { name: "unix_dgram", ..DATAGRAMS },
            Self::Vsock => Facts {
                name: "vsock",
                module: Some("vsock and vsock_loopback, or the hypervisor's transport"),
                ..CONNECTIONS
            },
            Self::Link => Facts { name: "link", ..DATAGRAMS },
            Self::Icmp => Facts { name: "icmp", ip: true, datagrams: true, ping: &[Io::Blocking, Io::Spin], ..NOTHING },
            Self::Pipe => Facts { name: "pipe", ..WAITING },
            Self::Mpi => Facts { name: "mpi", ranks: true, ..MESSAGES },
        }
    }

    /// Name in plans and results.
    pub fn name(self) -> &'static str {
        self.facts().name
    }

    /// The io methods of a pattern besides `auto`; empty if the pattern does not run over this transport.
    pub fn methods(self, pattern: Pattern) -> &'static [Io] {
        let facts = self.facts();
        match pattern {
            Pattern::Stream => facts.stream,
            Pattern::RequestResponse => facts.request_response,
            Pattern::Connect | Pattern::ConnectRequestResponse => facts.connect,
            Pattern::Ping => facts.ping,
        }
    }

    /// The kernel module, for transports that a kernel may lack.
    pub fn module(self) -> Option<&'static str> {
        self.facts().module
    }

    /// Whether it keeps message boundaries and may lose messages.
    pub fn is_datagram(self) -> bool {
        self.facts().datagrams
    }

    /// Whether the receiver of a stream may discard (`receive: discard`).
    pub fn discards(self) -> bool {
        self.facts().discards
    }

    /// Whether tests of N ranks run over it.
    pub fn has_ranks(self) -> bool {
        self.facts().ranks
    }

    /// Whether it runs over IP: IP's options have a meaning, and a route chooses the interface.
    pub fn uses_ip(self) -> bool {
        self.facts().ip
    }

    /// Whether its sockets can be bound to a network interface.
    pub fn has_interface(self) -> bool {
        self.uses_ip() || self == Self::Link
    }

    /// Whether it keeps message boundaries and loses nothing.
    pub fn has_messages(self) -> bool {
        matches!(self, Self::UnixSeqpacket | Self::Mpi)
    }

    /// Whether its connections can be kept alive and linger.
    pub fn has_connections(self) -> bool {
        self.is_tcp() || matches!(self, Self::Sctp | Self::Dccp)
    }

    /// Whether its packets are those of QUIC.
    pub fn is_quic(self) -> bool {
        matches!(self, Self::Quic | Self::QuicDatagram)
    }

    /// Whether its options and TCP_INFO are TCP's.
    pub fn is_tcp(self) -> bool {
        matches!(self, Self::Tcp | Self::Mptcp | Self::Tls)
    }
}

/// A row of the table of io methods.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "columns of the table")]
pub struct IoFacts {
    /// Name in plans and results.
    pub name: &'static str,
    /// Whether several flows of one thread can take turns.
    pub shares_threads: bool,
    /// Whether the receiver of a stream may discard (`receive: discard`).
    pub discards: bool,
    /// Whether a sender may write to its buffers before each send (`buffers.dirty`). If not, the kernel sends the pages
    /// themselves, which must stay as they are.
    pub copies: bool,
    /// Whether it handles datagrams of several messages (`socket.gso`, `socket.gro`).
    pub segments: bool,
}

impl Io {
    /// All io methods, in the order of the enum.
    pub const ALL: [Self; 10] = [
        Self::Auto,
        Self::Blocking,
        Self::Nonblocking,
        Self::Spin,
        Self::Sendfile,
        Self::Batch,
        Self::Splice,
        Self::Vmsplice,
        Self::Zerocopy,
        Self::Uring,
    ];

    /// The io method's row.
    pub const fn facts(self) -> IoFacts {
        const CALLS: IoFacts =
            IoFacts { name: "", shares_threads: false, discards: true, copies: true, segments: true };
        const TURNS: IoFacts = IoFacts { shares_threads: true, ..CALLS };
        const PAGES: IoFacts = IoFacts { copies: false, segments: false, ..CALLS };
        match self {
            Self::Auto => IoFacts { name: "auto", ..TURNS },
            Self::Blocking => IoFacts { name: "blocking", ..CALLS },
            Self::Nonblocking => IoFacts { name: "nonblocking", ..TURNS },
            Self::Spin => IoFacts { name: "spin", ..CALLS },
            Self::Sendfile => IoFacts { name: "sendfile", ..PAGES },
            Self::Batch => IoFacts { name: "batch", ..TURNS },
            Self::Splice => IoFacts { name: "splice", ..PAGES },
            Self::Vmsplice => IoFacts { name: "vmsplice", ..PAGES },
            Self::Zerocopy => IoFacts { name: "zerocopy", ..PAGES },
            // Its receives are into registered buffers.
            Self::Uring => IoFacts { name: "uring", discards: false, segments: false, ..TURNS },
        }
    }

    /// Name in plans and results.
    pub fn name(self) -> &'static str {
        self.facts().name
    }
}

impl Receive {
    /// Name in plans and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Discard => "discard",
        }
    }
}

impl Direction {
    /// Name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Reverse => "reverse",
            Self::Bidirectional | Self::Duplex => "both",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// A transport missing from the list would have no workload.
    #[test]
    fn every_transport_is_listed() {
        let numbers: Vec<usize> = Transport::ALL.iter().map(|transport| *transport as usize).collect();
        assert_eq!(numbers, (0..Transport::ALL.len()).collect::<Vec<_>>());
        let names: BTreeSet<&str> = Transport::ALL.iter().map(|transport| transport.name()).collect();
        assert_eq!(names.len(), Transport::ALL.len());
    }

    #[test]
    fn every_io_method_is_listed() {
        let numbers: Vec<usize> = Io::ALL.iter().map(|io| *io as usize).collect();
        assert_eq!(numbers, (0..Io::ALL.len()).collect::<Vec<_>>());
        let names: BTreeSet<&str> = Io::ALL.iter().map(|io| io.name()).collect();
        assert_eq!(names.len(), Io::ALL.len());
    }
}
