//! The two ends of a test, what a flow does at each, and the program at the other end of the data connections.

use serde::{Deserialize, Serialize};

use super::{Direction, EndSpec, Pattern, TestSpec, Transport, memory};

/// One of the two ends of a test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The end that opens the data connections (`from`).
    #[default]
    Near,
    /// The end that accepts them (`to`).
    Far,
}

/// Role of a flow at one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Sends a stream.
    Sender,
    /// Receives a stream.
    Receiver,
    /// Sends and receives a stream on one connection.
    Duplex,
    /// Sends requests (or opens connections).
    Requester,
    /// Answers requests (or accepts connections).
    Responder,
}

impl TestSpec {
    /// Options of one end.
    pub fn end(&self, side: Side) -> &EndSpec {
        match side {
            Side::Near => &self.near,
            Side::Far => &self.far,
        }
    }

    /// Roles of a flow's threads at an end.
    pub(crate) fn roles(&self, side: Side, flow: u32) -> &'static [Role] {
        if self.transport == Transport::Icmp && side == Side::Far {
            // The kernel answers.
            return &[];
        }
        if self.pattern != Pattern::Stream {
            return match side {
                Side::Near => &[Role::Requester],
                Side::Far => &[Role::Responder],
            };
        }
        let near_sends = match self.direction {
            Direction::Forward => true,
            Direction::Reverse => false,
            // The first half of the flows goes forward.
            Direction::Bidirectional => flow < self.streams,
            Direction::Duplex => return &[Role::Sender, Role::Receiver],
        };
        if near_sends == (side == Side::Near) { &[Role::Sender] } else { &[Role::Receiver] }
    }

    /// Whether a flow has the role at an end.
    pub(crate) fn has_role(&self, side: Side, role: Role) -> bool {
        // The flows of a direction are alike, and the last one is of the other direction where there are two.
        [0, self.flows().saturating_sub(1)].iter().any(|flow| self.roles(side, *flow).contains(&role))
    }
}

/// The way data connections begin, end, and mark their messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dialect {
    /// Both ends are Plumbline: connections prove that they belong to the test, messages have numbers, and a control
    /// connection tells the end of datagrams.
    #[default]
    Plumb,
    /// The far end is a plain service (echo, discard, chargen: RFC 862 to 864). The near end connects to its port,
    /// `far.port`, without a proof, and reports alone.
    Service,
    /// One end is netperf or netserver: messages have no numbers, an empty datagram ends a test over datagrams.
    Netperf,
    /// One end is iperf3: its control connection tells the end of streams too, and datagrams have its header.
    Iperf3 {
        /// Whether the counter in a datagram has 64 bits instead of 32.
        wide_counter: bool,
    },
    /// The far end is a reflector of STAMP (RFC 8762) at `far.port`: requests and answers have its form, and the near end reports
    /// alone.
    Stamp {
        /// Whether a key proves them.
        authenticated: bool,
    },
}

/// The mark at the beginning of a stream's datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// None: datagrams can only be counted.
    None,
    /// Number and phase, time of sending (see `pattern::sequence`).
    Plumb,
    /// Time of sending, counter of 32 or 64 bits.
    Iperf3 { wide_counter: bool },
}

impl Dialect {
    /// The TTL or hop limit of packets of STAMP: what is left of it where they arrive tells the number of routers.
    pub const STAMP_TTL: u8 = 255;

    /// Whether another program's protocol, and no session of ours, opens and ends the connections.
    pub fn is_foreign(self) -> bool {
        matches!(self, Self::Netperf | Self::Iperf3 { .. })
    }

    /// Whether the far end reports sums only: neither calls nor datagrams out of order, and the CPU time of its process alone.
    pub fn reports_sums(self) -> bool {
        matches!(self, Self::Iperf3 { .. })
    }

    /// Whether the control connection tells the end of streams, which the near end keeps open until the far end has counted.
    pub(crate) fn ends_streams_by_word(self) -> bool {
        matches!(self, Self::Iperf3 { .. })
    }

    /// Whether each end stops by its own timer, which interrupts its last call. A receiver that began later reads longer.
    pub(crate) fn stops_by_timer(self) -> bool {
        self == Self::Netperf
    }

    /// Whether an empty datagram says that no more will come.
    pub(crate) fn ends_with_empty_datagram(self) -> bool {
        self == Self::Netperf
    }

    pub fn mark(self) -> Mark {
        match self {
            Self::Plumb | Self::Service | Self::Stamp { .. } => Mark::Plumb,
            Self::Netperf => Mark::None,
            Self::Iperf3 { wide_counter } => Mark::Iperf3 { wide_counter },
        }
    }
}

impl Mark {
    /// Bytes of the mark in a datagram of this length.
    pub(crate) fn bytes(self, length: usize) -> usize {
        match self {
            Self::None => 0,
            Self::Plumb => memory::stamped(length),
            Self::Iperf3 { wide_counter } => (if wide_counter { 16 } else { 12 }).min(length),
        }
    }
}

impl TestSpec {
    /// Whether the far end is a daemon of ours.
    pub fn has_daemon(&self) -> bool {
        self.dialect == Dialect::Plumb
    }

    /// Whether the near end reports alone.
    pub fn is_alone(&self) -> bool {
        matches!(self.dialect, Dialect::Service | Dialect::Stamp { .. })
    }

    /// Whether the far end is a reflector of STAMP.
    pub fn is_reflected(&self) -> bool {
        matches!(self.dialect, Dialect::Stamp { .. })
    }

    /// Bytes of the number with which datagram requests and their responses begin; 0: they have none. Shorter messages
    /// have a shorter number. A service may return anything, so that only a long number tells an echo from it.
    pub(crate) fn request_number_bytes(&self) -> usize {
        match (self.dialect, self.sizes.request_bytes.min(self.sizes.response_bytes)) {
            (Dialect::Netperf, _) | (_, 0) => 0,
            (_, bytes) if bytes >= memory::NUMBERED_BYTES as u64 => memory::NUMBERED_BYTES,
            (Dialect::Service, _) => 0,
            (_, 1) => 1,
            _ => 2,
        }
    }

    /// Whether messages have room for a sequence number (8 bytes). Loss, order and repetition need one.
    pub fn numbers_messages(&self) -> bool {
        self.has_mark_of(memory::NUMBERED_BYTES)
    }

    /// Whether messages also have room for their send time (16 bytes). Jitter needs it.
    pub fn times_messages(&self) -> bool {
        self.has_mark_of(memory::STAMPED_BYTES)
    }

    fn has_mark_of(&self, bytes: usize) -> bool {
        match self.dialect.mark() {
            Mark::None => false,
            _ => self.pattern != Pattern::Stream || self.sizes.message_bytes >= bytes as u64,
        }
    }
}
