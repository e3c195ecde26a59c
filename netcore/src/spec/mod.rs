//! A test as one serialisable value. It crosses the wire unchanged, and both ends run from it.
//!
//! Pattern, transport, io and direction are orthogonal. [`names`] lists which io methods a pattern has over a transport,
//! and which options each io method goes with; [`support`] refuses the other combinations with a sentence.

use std::{net::IpAddr, time::Duration};

mod ends;
pub mod key;
pub mod memory;
pub mod names;
mod payload;
pub mod quantity;
pub(crate) mod quic;
pub mod ranks;
pub(crate) mod segments;
mod side;
pub mod socket;
pub mod support;
mod tls;

pub use ends::{BufferOptions, Cpus, EndSpec};
pub use payload::{FileUse, Payload};
pub use quantity::Bytes;
pub use quic::{QuicCongestionControl, QuicOptions};
pub use side::{Dialect, Mark, Role, Side};
pub use socket::{Dscp, Ecn, Reuseport, SocketOptions};
pub use tls::{Cipher, HANDSHAKES, Records, Session, TlsOptions};

use serde::{Deserialize, Serialize};

/// Payload of the longest UDP datagram over IPv4, bytes.
pub const LONGEST_DATAGRAM: u64 = 65_507;

/// The exchange between the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// One end sends without waiting for answers.
    Stream,
    /// Requests and responses on connections that stay open.
    RequestResponse,
    /// Connections opened and closed, nothing else (netperf's `TCP_CC`).
    Connect,
    /// A connection per request and response (netperf's `TCP_CRR`).
    ConnectRequestResponse,
    /// ICMP echo.
    Ping,
}

/// The protocol between the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    Tcp,
    Mptcp,
    /// TLS 1.3 over TCP.
    Tls,
    /// QUIC (RFC 9000): a stream each way on a connection over UDP.
    Quic,
    /// Unreliable datagrams on a connection of QUIC (RFC 9221).
    #[serde(rename = "quic_dgram")]
    QuicDatagram,
    Udp,
    UdpLite,
    /// One-to-one style.
    Sctp,
    Dccp,
    /// Unix domain stream sockets.
    UnixStream,
    /// Unix domain sequenced packets.
    UnixSeqpacket,
    /// Unix domain datagrams.
    UnixDatagram,
    /// `AF_VSOCK` streams.
    Vsock,
    /// `AF_PACKET` frames of one ethertype.
    Link,
    /// Echo.
    Icmp,
    /// A pipe within one process.
    Pipe,
    /// Messages between two ranks of MPI.
    Mpi,
}

/// By which calls bytes cross the socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Io {
    /// The best one for the workload; results name it.
    #[default]
    Auto,
    /// One blocking call per operation.
    Blocking,
    /// Non-blocking calls driven by poll.
    Nonblocking,
    /// Non-blocking calls in a busy loop, for up to 100 µs per wait, and then one that blocks.
    Spin,
    /// sendfile from a file in memory.
    Sendfile,
    /// Several messages per call (sendmmsg, recvmmsg).
    Batch,
    /// splice from a file in memory, through a pipe.
    Splice,
    /// The buffers' own pages, through a pipe (vmsplice and splice).
    Vmsplice,
    /// send with MSG_ZEROCOPY, completions read.
    Zerocopy,
    /// Rings of operations that the kernel completes (io_uring).
    Uring,
}

/// The receiver's use of the bytes of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Receive {
    /// They are copied to its buffers.
    #[default]
    Copy,
    /// They are counted and not copied (MSG_TRUNC).
    Discard,
}

/// Direction of the payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// from → to.
    #[default]
    Forward,
    /// to → from.
    Reverse,
    /// Both at once, each on connections of its own (`streams` each way).
    Bidirectional,
    /// Both at once on the same connections. In plans the workload says so: `tcp_duplex`.
    #[cfg_attr(feature = "schema", schemars(skip))]
    Duplex,
}

/// The IP version of the data connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// The version of the address.
    #[default]
    Any,
    V4,
    V6,
}

impl Family {
    /// Whether an address is of this version.
    pub fn fits(self, address: IpAddr) -> bool {
        match self {
            Self::Any => true,
            Self::V4 => address.is_ipv4(),
            Self::V6 => address.is_ipv6(),
        }
    }
}

/// Bytes per operation. Every value is at least 1 where the pattern uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sizes {
    /// Per send call of a stream, bytes.
    pub message_bytes: u64,
    /// Asked for per receive call of a stream, bytes.
    pub receive_bytes: u64,
    pub request_bytes: u64,
    pub response_bytes: u64,
}

/// When the measure phase ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// After this long, nanoseconds.
    AfterNs(u64),
    /// After this many payload bytes, summed over the streams of a direction.
    AfterBytes(u64),
    /// After this many transactions, summed over the streams.
    AfterTransactions(u64),
}

/// The phases of one iteration. They share their connections; only the counters are cut at the edges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phases {
    /// Uncounted load before the measurement, nanoseconds; an upper bound where `settle_ns` is set.
    pub warmup_ns: u64,
    /// Length of the intervals that end a warm-up early once they are flat, nanoseconds; 0: the warm-up lasts its full
    /// time. The ends report them to the client during the warm-up only.
    pub settle_ns: u64,
    pub stop: Stop,
    /// Uncounted load after the measurement, nanoseconds; only with [`Stop::AfterNs`].
    pub cooldown_ns: u64,
    /// Length of interim intervals, nanoseconds; 0: none.
    pub interval_ns: u64,
}

impl Phases {
    /// From the begin of the load to its scheduled end, nanoseconds; `None`: it stops by a count.
    pub fn length_ns(&self) -> Option<u64> {
        let Stop::AfterNs(measure_ns) = self.stop else { return None };
        Some(self.warmup_ns.saturating_add(measure_ns).saturating_add(self.cooldown_ns))
    }
}

/// The offered load of the senders (or requesters) of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pace {
    /// Messages or transactions per second and stream.
    pub events_per_s: f64,
    pub mode: PaceMode,
    pub arrival: Arrival,
    /// Messages sent back to back at each due time.
    pub burst: u32,
    /// Due times that are made up for after a stall; older ones are dropped from the schedule.
    pub catch_up: u32,
}

impl Pace {
    /// The due times of a second, which are made up for by default. iperf3 makes up for all of them: with less, a sender
    /// beside other work offers less than iperf3 would.
    #[must_use]
    pub fn default_catch_up(events_per_s: f64, burst: u32) -> u32 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive; saturates")]
        let second = (events_per_s / f64::from(burst.max(1))).ceil().max(1.0) as u32;
        second
    }
}

/// The part of the system that paces an offered load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PaceMode {
    /// The sending thread: absolute deadlines, sleep and then a short spin.
    #[default]
    User,
    /// The kernel, by SO_MAX_PACING_RATE.
    Kernel,
    /// The kernel, by SO_TXTIME.
    Txtime,
}

/// Distribution of the due times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Arrival {
    /// Each request waits for the answer to an earlier one; with a pace, due times are only the earliest instants.
    #[default]
    Closed,
    /// Evenly; latency counts from the due time.
    Uniform,
    /// Exponential gaps (a Poisson process); latency counts from the due time.
    Poisson,
}

/// The way to close the connections of the connect workloads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Close {
    /// The far end closes first, so that TIME_WAIT gathers where it costs no ports.
    #[default]
    FarFirst,
    /// The near end closes first.
    NearFirst,
    /// Aborted with a reset: no TIME_WAIT.
    Reset,
}

/// Time before the load of a test with [`TestSpec::hops`] in which the idle path is probed.
pub const IDLE: Duration = Duration::from_secs(3);

/// A whole test. Both ends run from the same value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches, named as in the plan")]
pub struct TestSpec {
    pub pattern: Pattern,
    pub transport: Transport,
    pub family: Family,
    pub io: Io,
    pub receive: Receive,
    pub direction: Direction,
    /// Parallel connections in each direction, at least 1.
    pub streams: u32,
    /// Threads that move data at each end; `None`: one per flow (duplex: two). Fewer carry several flows each, in turn.
    pub threads: Option<u32>,
    pub sizes: Sizes,
    /// Outstanding transactions per stream, at least 1.
    pub inflight: u32,
    /// One read drains all replies at hand and one send refills: other semantics than one call per request.
    pub coalesce: bool,
    /// Offered load; `None`: as fast as it goes.
    pub pace: Option<Pace>,
    pub phases: Phases,
    pub near: EndSpec,
    pub far: EndSpec,
    pub payload: Payload,
    /// Check every byte that arrives.
    pub integrity: bool,
    pub close: Close,
    /// A datagram request without an answer for this long counts as lost and is replaced, nanoseconds.
    pub reply_timeout_ns: u64,
    pub collect: Collect,
    /// Whether the near end probes the hops of the path, before the load and under it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hops: bool,
    /// Whether requests and answers carry the times of their sending and arrival: the delay of each direction.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub one_way: bool,
    /// Whether the kernels say when some of the messages left, so that the time in each host is told apart.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub kernel_times: bool,
    /// Shortest time without usual answers that is an outage of the path, nanoseconds; 0: nobody looks.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub outage_ns: u64,
    /// Options of TLS, which QUIC has within it; `None`: the defaults, or another transport.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsOptions>,
    /// Options of QUIC; `None`: the defaults, or another transport.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quic: Option<QuicOptions>,
    /// Whether interim reports of the far end travel while the measurement runs.
    pub interim: bool,
    /// The program at the other end of the data connections.
    pub dialect: Dialect,
    /// Whether UDP sockets are connected. If not, every send names its destination; every receive learns its sender, and
    /// only the peer's datagrams count.
    pub connected: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(ns: &u64) -> bool {
    *ns == 0
}

impl TestSpec {
    /// Shortest outage that is looked for, and the gap between two messages (or bursts) of its sender, nanoseconds.
    pub fn outages(&self) -> Option<(u64, u64)> {
        let pace = self.pace.filter(|_| self.outage_ns > 0)?;
        // Rates are positive; the conversion saturates.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let gap_ns = (1e9 * f64::from(pace.burst.max(1)) / pace.events_per_s) as u64;
        Some((self.outage_ns, gap_ns))
    }

    /// Time between the instant at which a test could start and the begin of its load.
    pub fn idle(&self) -> Duration {
        if self.hops { IDLE } else { Duration::ZERO }
    }

    /// Way in which the far end's listening sockets share one port; `None`: each has a port of its own.
    pub fn reuseport(&self) -> Option<Reuseport> {
        self.far.socket.reuseport.filter(|_| self.opens_sockets())
    }

    /// Whether connections of any flow may be accepted for any other: at the control port, and with `reuseport`.
    pub fn shares_port(&self) -> bool {
        self.opens_sockets() && self.flows() > 1
    }

    /// Whether each operation has a socket of its own. QUIC makes all connections of a flow over one pair of sockets.
    pub fn opens_sockets(&self) -> bool {
        self.pattern.is_connecting() && self.transport != Transport::Quic
    }

    /// A test with every option at its default: one stream, 128 KiB messages (1472 bytes for datagrams), one byte each
    /// way for requests (16 bytes for datagrams, which need a number), ten seconds, no warm-up.
    pub fn new(pattern: Pattern, transport: Transport) -> Self {
        let message_bytes = match transport {
            Transport::Udp | Transport::UdpLite | Transport::UnixDatagram | Transport::Link => 1472,
            // With the headers of QUIC, UDP and IP it fits a packet of Ethernet.
            Transport::QuicDatagram => 1200,
            // DCCP's header is longer than UDP's and may carry options.
            Transport::Dccp => 1400,
            Transport::Icmp => 56,
            _ => 128 * 1024,
        };
        let exchanged_bytes = if transport.is_datagram() { 16 } else { 1 };
        Self {
            pattern,
            transport,
            family: Family::Any,
            io: Io::Auto,
            receive: Receive::Copy,
            direction: Direction::Forward,
            streams: 1,
            threads: None,
            sizes: Sizes {
                message_bytes,
                receive_bytes: message_bytes,
                request_bytes: exchanged_bytes,
                response_bytes: exchanged_bytes,
            },
            inflight: 1,
            coalesce: false,
            pace: None,
            phases: Phases {
                warmup_ns: 0,
                settle_ns: 0,
                stop: Stop::AfterNs(10_000_000_000),
                cooldown_ns: 0,
                interval_ns: 0,
            },
            near: EndSpec::default(),
            far: EndSpec::default(),
            payload: Payload::Random,
            integrity: false,
            close: Close::FarFirst,
            reply_timeout_ns: 1_000_000_000,
            collect: Collect::default(),
            hops: false,
            one_way: false,
            kernel_times: false,
            outage_ns: 0,
            tls: None,
            quic: None,
            interim: false,
            dialect: Dialect::default(),
            connected: true,
        }
    }

    /// The io method that the engines use in place of [`Io::Auto`].
    pub fn resolved_io(&self) -> Io {
        match self.io {
            Io::Auto if self.transport.is_datagram() && self.pattern == Pattern::Stream => Io::Batch,
            Io::Auto if self.transport.is_quic() => Io::Batch,
            Io::Auto if self.shares_threads() || self.has_window() => Io::Nonblocking,
            Io::Auto => Io::Blocking,
            chosen => chosen,
        }
    }

    /// Whether several messages of a flow are in progress at the same time, without a call for each that waits.
    pub fn has_window(&self) -> bool {
        self.transport == Transport::Mpi && self.inflight > 1
    }

    /// Flows: connections, or pairs of datagram sockets. Twice `streams` when bidirectional.
    pub fn flows(&self) -> u32 {
        match self.direction {
            Direction::Bidirectional => self.streams.saturating_mul(2),
            _ => self.streams,
        }
    }
}

// The data that a test collects besides byte counters, one row each.
macro_rules! collect {
    ($($(#[$doc:meta])* $word:ident is $field:ident, $default:literal;)*) => {
        /// Data collected besides byte counters.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(rename_all = "snake_case")]
        pub enum Collectable { $($(#[$doc])* $word),* }

        /// The same as switches.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct Collect { $($(#[$doc])* pub $field: bool),* }

        impl Default for Collect {
            fn default() -> Self {
                Self { $($field: $default),* }
            }
        }

        impl FromIterator<Collectable> for Collect {
            fn from_iter<I: IntoIterator<Item = Collectable>>(words: I) -> Self {
                let mut collect = Self { $($field: false),* };
                for word in words {
                    match word { $(Collectable::$word => collect.$field = true),* }
                }
                collect
            }
        }
    };
}

collect! {
    /// CPU shares by state, from `/proc/stat`.
    Cpu is cpu, true;
    /// Evidence on what limited the load: data threads, soft interrupts, drops, congestion marks.
    Limits is limits, true;
    /// CPU shares of each core.
    CpuPerCore is cpu_per_core, false;
    /// TCP_INFO at the edges, and at intervals.
    TcpInfo is tcp_info, true;
    /// Latency of a stream's send and receive calls; round trips are always timed.
    Latency is latency, false;
    /// Counters of the interface that the route uses.
    Nic is nic, false;
    /// Interrupts by CPU, from `/proc/interrupts`.
    Interrupts is interrupts, false;
    /// Protocol counters of the kernel: `/proc/net/snmp` and `/proc/net/netstat`.
    Snmp is snmp, false;
    /// The system log: CPU per core, memory, interrupts, paging, context switches and interfaces per interval.
    System is system, false;
}
