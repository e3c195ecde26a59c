//! What a test is: one serialisable value that crosses the wire unchanged and that both ends run from.
//!
//! pattern × transport × io × direction are orthogonal; [`support`] says which combinations exist.

mod collect;
mod ends;
pub mod memory;
pub mod names;
mod payload;
pub mod quantity;
pub(crate) mod shape;
mod side;
pub mod socket;
pub mod support;
mod threads;
pub mod unused;

pub use collect::{Collect, Collectable};
pub use ends::{BufferOptions, Cpus, EndSpec};
pub use payload::Payload;
pub use quantity::Bytes;
use serde::{Deserialize, Serialize};
pub use side::{Role, Side};
pub use socket::{Dscp, SocketOptions};

/// What the two ends say to each other.
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
    /// TCP.
    Tcp,
    /// Multipath TCP.
    Mptcp,
    /// UDP.
    Udp,
    /// UDP-Lite.
    UdpLite,
    /// SCTP, one-to-one style.
    Sctp,
    /// DCCP.
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
    /// ICMP echo.
    Icmp,
    /// A pipe within one process.
    Pipe,
}

/// By which calls bytes cross the socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Io {
    /// What is best for the workload; results say what it was.
    #[default]
    Auto,
    /// One blocking call per operation.
    Blocking,
    /// Non-blocking calls driven by poll.
    Nonblocking,
    /// Non-blocking calls in a busy loop: a whole CPU per thread at both ends.
    Spin,
    /// sendfile from a file in memory.
    Sendfile,
    /// Several messages per call (sendmmsg, recvmmsg).
    Batch,
}

/// Which way the payload goes.
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
    /// As the address says.
    #[default]
    Any,
    /// IPv4 only.
    V4,
    /// IPv6 only.
    V6,
}

/// Bytes per operation. Every value is at least 1 where the pattern uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sizes {
    /// Per send call of a stream, bytes.
    pub message_bytes: u64,
    /// Asked for per receive call of a stream, bytes.
    pub receive_bytes: u64,
    /// Per request, bytes.
    pub request_bytes: u64,
    /// Per response, bytes.
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
    /// Load without counting before the measurement, nanoseconds; at most that where `settle_ns` is set.
    pub warmup_ns: u64,
    /// Length of the intervals by which whoever conducts the test judges whether the warm-up may end early, nanoseconds; 0:
    /// it lasts as long as it is to last. They are told while the warm-up lasts, and never after it.
    pub settle_ns: u64,
    /// The measurement.
    pub stop: Stop,
    /// Load without counting after the measurement, nanoseconds; only with [`Stop::AfterNs`].
    pub cooldown_ns: u64,
    /// Length of interim intervals, nanoseconds; 0: none are taken.
    pub interval_ns: u64,
}

/// The rate at which the senders, or the requesters, of one direction offer load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pace {
    /// Messages or transactions per second and stream.
    pub events_per_s: f64,
    /// Who keeps the time.
    pub mode: PaceMode,
    /// How the due times are spread.
    pub arrival: Arrival,
    /// Messages sent back to back at each due time.
    pub burst: u32,
    /// How many due times may be made up for after a stall; what is later is dropped from the schedule.
    pub catch_up: u32,
}

/// Who keeps the time of an offered load.
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

/// How due times are spread.
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

/// How connections of the connect workloads are closed.
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

/// One test, whole. Both ends run from the same value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches, named as in the plan")]
pub struct TestSpec {
    /// What the ends say to each other.
    pub pattern: Pattern,
    /// Over which protocol.
    pub transport: Transport,
    /// Over which IP version.
    pub family: Family,
    /// By which calls.
    pub io: Io,
    /// Which way the payload goes.
    pub direction: Direction,
    /// Parallel connections in each direction, at least 1.
    pub streams: u32,
    /// Threads that move data at each end; `None`: one per flow (duplex: two). Fewer carry several flows each, in turn.
    pub threads: Option<u32>,
    /// Bytes per operation.
    pub sizes: Sizes,
    /// Outstanding transactions per stream, at least 1.
    pub inflight: u32,
    /// Drain all replies at hand with one read and refill with one send (other semantics than one call per request).
    pub coalesce: bool,
    /// Offered load; `None`: as fast as it goes.
    pub pace: Option<Pace>,
    /// Phases and stop rule.
    pub phases: Phases,
    /// Options of the near end.
    pub near: EndSpec,
    /// Options of the far end.
    pub far: EndSpec,
    /// What is sent.
    pub payload: Payload,
    /// Check every byte that arrives.
    pub integrity: bool,
    /// How connections of the connect patterns are closed.
    pub close: Close,
    /// A datagram request without an answer for this long is counted as lost and replaced, nanoseconds.
    pub reply_timeout_ns: u64,
    /// What is collected besides counters.
    pub collect: Collect,
    /// Whether interim reports of the far end travel while the measurement runs.
    pub interim: bool,
    /// The far end is a service that takes no part in the test (echo, discard, chargen: RFC 862 to 864): the near end goes
    /// to its port, `far.port`, without a proof, and reports alone.
    pub alone: bool,
    /// Whether UDP sockets are connected to each other. Without that every send names its destination, and every receive
    /// its sender, whose datagrams alone are counted.
    pub connected: bool,
}

impl TestSpec {
    /// A test of that pattern and transport with every option at its default: one stream, 128 KiB messages (1472 bytes
    /// for datagrams), one byte each way for requests, ten seconds, no warm-up.
    #[must_use]
    pub fn new(pattern: Pattern, transport: Transport) -> Self {
        let message_bytes = match transport {
            Transport::Udp | Transport::UdpLite | Transport::UnixDatagram | Transport::Link => 1472,
            // Its header is longer than UDP's and may carry options.
            Transport::Dccp => 1400,
            Transport::Icmp => 56,
            _ => 128 * 1024,
        };
        Self {
            pattern,
            transport,
            family: Family::Any,
            io: Io::Auto,
            direction: Direction::Forward,
            streams: 1,
            threads: None,
            sizes: Sizes { message_bytes, receive_bytes: message_bytes, request_bytes: 1, response_bytes: 1 },
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
            interim: false,
            alone: false,
            connected: true,
        }
    }

    /// The io method that the engines use: [`Io::Auto`] stands for another one.
    #[must_use]
    pub fn resolved_io(&self) -> Io {
        match self.io {
            Io::Auto if self.transport.is_datagram() && self.pattern == Pattern::Stream => Io::Batch,
            Io::Auto if self.shares_threads() => Io::Nonblocking,
            Io::Auto => Io::Blocking,
            chosen => chosen,
        }
    }

    /// Whether its messages have room for a sequence number (8 bytes): without one nobody can tell which of them were lost,
    /// late or repeated.
    #[must_use]
    pub fn numbers_messages(&self) -> bool {
        self.pattern != Pattern::Stream || self.sizes.message_bytes >= shape::NUMBERED_BYTES as u64
    }

    /// Whether its messages have room for the time of their sending too (16 bytes): without it there is no jitter.
    #[must_use]
    pub fn times_messages(&self) -> bool {
        self.pattern != Pattern::Stream || self.sizes.message_bytes >= shape::STAMPED_BYTES as u64
    }

    /// How many flows (connections, or pairs of datagram sockets) the test has: `streams`, twice that when bidirectional.
    #[must_use]
    pub fn flows(&self) -> u32 {
        match self.direction {
            Direction::Bidirectional => self.streams.saturating_mul(2),
            _ => self.streams,
        }
    }
}
