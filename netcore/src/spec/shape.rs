//! Layout of buffers: their length, number and alignment, from the test and the worker's role.

use super::{BufferOptions, Io, PaceMode, Pattern, Receive, Role, Side, TestSpec, Transport, segments::CHUNK_BYTES};

/// Bytes that a message needs for its sequence number.
pub const NUMBERED_BYTES: usize = 8;

/// Bytes that a datagram of a stream needs for its sequence number and the time of its sending.
pub const STAMPED_BYTES: usize = 16;

/// Bytes before a message on the link layer: the Ethernet header (14), session, flow and length.
pub const LINK_HEADER_BYTES: usize = 14 + 4 + 4 + 2;

/// Bytes before the payload of an ICMP echo.
pub const ICMP_HEADER_BYTES: usize = 8;

/// The longest header that may precede the message on a raw IPv4 socket.
pub const IP_HEADER_BYTES: usize = 60;

/// Messages per call of `io: batch`, by default.
const BATCH_MESSAGES: usize = 32;

/// Datagrams of several messages that a call of `io: batch` receives: each has room for the longest.
const CHUNKS_PER_CALL: usize = 16;

/// The kernel takes no more messages from one call (UIO_MAXIOV).
const MOST_PER_CALL: u32 = 1024;

/// Limit for reads of several requests or responses in flight, bytes, unless one alone is larger.
const PIPELINE_BYTES: u64 = 256 * 1024;

/// Largest datagram that a service may answer with, bytes.
const LARGEST_ANSWER: u64 = 65_536;

/// Default alignment of buffers: a page, bytes.
const PAGE: u64 = 4096;

/// Layout of a worker's buffers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shape {
    /// Bytes of a message.
    pub message_bytes: u64,
    /// Bytes before the message that the engine writes: a frame's header.
    pub header_bytes: usize,
    /// Bytes at the message's start that the engine writes too, such as its number.
    pub stamp_bytes: usize,
    /// Datagrams per call, each in a buffer of its own; 0: bytes of a stream, or one datagram at a time.
    pub per_call: usize,
}

impl Shape {
    /// Messages of `message_bytes` without a header, one at a time.
    pub fn plain(message_bytes: u64) -> Self {
        Self { message_bytes, ..Self::default() }
    }

    /// Alignment of the buffers' starts less their offset, bytes. The buffers of a call are contiguous unless the test
    /// asks for an alignment or offset.
    pub(crate) fn alignment(self, options: &BufferOptions) -> u64 {
        let unasked = if self.per_call > 0 && options.offset == 0 { 1 } else { PAGE };
        options.alignment.unwrap_or(unasked).max(1)
    }

    /// Bytes from one buffer to the next.
    pub(crate) fn stride(self, options: &BufferOptions) -> u128 {
        let bytes = u128::from(self.message_bytes) + self.header_bytes as u128 + u128::from(options.offset);
        bytes.next_multiple_of(self.alignment(options).into())
    }

    /// Number of buffers: the ring's, or, without a ring, those of a call.
    pub(crate) fn count(self, options: &BufferOptions) -> usize {
        if options.ring > 1 { options.ring as usize } else { self.per_call.max(1) }
    }

    /// Bytes of memory that buffers of this shape take.
    pub fn memory_bytes(self, options: &BufferOptions) -> u128 {
        self.stride(options) * self.count(options) as u128 + u128::from(self.alignment(options))
    }

    /// The bytes that count towards the limit: 0 where nothing is sent or received, and without the page for alignment.
    pub fn counted_bytes(self, options: &BufferOptions) -> u128 {
        if self.message_bytes == 0 {
            return 0;
        }
        self.memory_bytes(options) - u128::from(self.alignment(options).min(PAGE))
    }
}

impl TestSpec {
    /// Messages per call, if there are as many buffers.
    pub(super) fn messages_per_call(&self, side: Side, role: Role) -> usize {
        if self.merges(side, role) {
            return self.buffers_per_call(role).min(CHUNKS_PER_CALL);
        }
        // The kernel is given whole datagrams.
        self.buffers_per_call(role).next_multiple_of(self.segments(side, role))
    }

    fn buffers_per_call(&self, role: Role) -> usize {
        match (self.resolved_io(), &self.pace) {
            (Io::Batch, Some(pace)) if pace.mode == PaceMode::User && role == Role::Sender => {
                pace.burst.clamp(1, MOST_PER_CALL) as usize
            }
            (Io::Batch, _) => BATCH_MESSAGES,
            _ => 1,
        }
    }

    /// Bytes at the start of every message that the engine writes: its number, and its time of sending.
    pub(super) fn stamp_bytes(&self) -> usize {
        match (self.pattern, self.transport) {
            (_, Transport::Icmp) => ICMP_HEADER_BYTES,
            (_, transport) if !transport.is_datagram() => 0,
            (Pattern::Stream, _) => {
                self.dialect.mark().bytes(usize::try_from(self.sizes.message_bytes).unwrap_or(usize::MAX))
            }
            _ => self.request_number_bytes(),
        }
    }
}

/// Length of the header in a stream's datagram of this length: number and phase, and time of sending.
pub fn stamped(length: usize) -> usize {
    match length {
        STAMPED_BYTES.. => STAMPED_BYTES,
        NUMBERED_BYTES.. => NUMBERED_BYTES,
        _ => 0,
    }
}

/// Layouts of the send and the receive buffers; of 0 bytes where there are none.
pub(crate) fn shapes(spec: &TestSpec, side: Side, role: Role) -> (Shape, Shape) {
    let (sizes, datagrams) = (spec.sizes, spec.transport.is_datagram());
    let several = |bytes: u64| {
        let all = bytes.saturating_mul(spec.inflight.into());
        match spec.inflight {
            1 => bytes,
            _ if spec.coalesce => all,
            _ => all.min(bytes.max(PIPELINE_BYTES)),
        }
    };
    let header_bytes = if spec.transport == Transport::Link { LINK_HEADER_BYTES } else { 0 };
    let stamp_bytes = spec.stamp_bytes();
    let message = |message_bytes| Shape { header_bytes, stamp_bytes, ..Shape::plain(message_bytes) };
    let call = |message_bytes| Shape { per_call: spec.messages_per_call(side, role), ..message(message_bytes) };
    let none = Shape::default();
    match role {
        Role::Sender if datagrams => (call(sizes.message_bytes), none),
        Role::Sender => (message(sizes.message_bytes), none),
        // Only what the engine reads of each.
        Role::Receiver | Role::Duplex if datagrams && spec.receive == Receive::Discard => {
            (none, call(stamp_bytes as u64))
        }
        // A datagram longer than its buffer would be cut off without an error.
        Role::Receiver if spec.merges(side, role) => (none, call(CHUNK_BYTES)),
        Role::Receiver | Role::Duplex if datagrams => (none, call(sizes.receive_bytes.max(sizes.message_bytes))),
        Role::Receiver | Role::Duplex => (none, message(sizes.receive_bytes)),
        Role::Requester if spec.transport == Transport::Icmp => {
            let bytes = sizes.message_bytes.saturating_add(ICMP_HEADER_BYTES as u64);
            (message(bytes), message(bytes.saturating_add(IP_HEADER_BYTES as u64)))
        }
        Role::Requester if spec.is_alone() && datagrams => (message(sizes.request_bytes), message(LARGEST_ANSWER)),
        Role::Requester => (message(sizes.request_bytes), message(several(sizes.response_bytes))),
        Role::Responder => (message(sizes.response_bytes), message(several(sizes.request_bytes))),
    }
}
