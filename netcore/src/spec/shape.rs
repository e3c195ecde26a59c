//! How long buffers are, how many there are of them and how they lie: what they are for, and what the test asks of them.

use super::{BufferOptions, Io, PaceMode, Pattern, Role, TestSpec, Transport};

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

/// The kernel takes no more messages from one call (UIO_MAXIOV).
const MOST_PER_CALL: u32 = 1024;

/// Alignment of the buffers where the test does not say and a page's is what serves, bytes.
const PAGE: u64 = 4096;

/// What a worker's buffers are for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shape {
    /// Bytes of a message.
    pub message_bytes: u64,
    /// Bytes before it that the engine writes: a frame's header.
    pub header_bytes: usize,
    /// Bytes at the message's beginning that the engine writes too, such as its number.
    pub stamp_bytes: usize,
    /// Datagrams of one call, each of them in a buffer of its own; 0: bytes of a stream, or one datagram at a time.
    pub per_call: usize,
}

impl Shape {
    /// For messages of `message_bytes` that are the payload and nothing else, one at a time.
    #[must_use]
    pub fn plain(message_bytes: u64) -> Self {
        Self { message_bytes, ..Self::default() }
    }

    /// What the buffers' beginnings are multiples of, but for their offset, bytes. Those of a call lie one after the other
    /// unless the test says where.
    pub(crate) fn alignment(self, options: &BufferOptions) -> u64 {
        let unasked = if self.per_call > 0 && options.offset == 0 { 1 } else { PAGE };
        options.alignment.unwrap_or(unasked).max(1)
    }

    /// Bytes from one buffer to the next.
    pub(crate) fn stride(self, options: &BufferOptions) -> u128 {
        let bytes = u128::from(self.message_bytes) + self.header_bytes as u128 + u128::from(options.offset);
        bytes.next_multiple_of(self.alignment(options).into())
    }

    /// How many buffers there are: those of the ring, or, without one, those of a call.
    pub(crate) fn count(self, options: &BufferOptions) -> usize {
        if options.ring > 1 { options.ring as usize } else { self.per_call.max(1) }
    }

    /// Bytes of memory that buffers of this shape take.
    #[must_use]
    pub fn memory_bytes(self, options: &BufferOptions) -> u128 {
        self.stride(options) * self.count(options) as u128 + u128::from(self.alignment(options))
    }

    /// The same as it counts: nothing where nothing is sent or received, and no page to align the first one.
    #[must_use]
    pub fn counted_bytes(self, options: &BufferOptions) -> u128 {
        if self.message_bytes == 0 {
            return 0;
        }
        self.memory_bytes(options) - u128::from(self.alignment(options).min(PAGE))
    }
}

impl TestSpec {
    /// Messages of one call, where there are buffers for so many.
    pub(super) fn messages_per_call(&self, role: Role) -> usize {
        match (self.resolved_io(), &self.pace) {
            (Io::Batch, Some(pace)) if pace.mode == PaceMode::User && role == Role::Sender => {
                pace.burst.clamp(1, MOST_PER_CALL) as usize
            }
            (Io::Batch, _) => BATCH_MESSAGES,
            _ => 1,
        }
    }

    /// Whether datagram requests and responses are long enough for a number.
    pub(crate) fn numbers_requests(&self) -> bool {
        self.sizes.request_bytes.min(self.sizes.response_bytes) >= NUMBERED_BYTES as u64
    }

    /// Bytes at the beginning of every message that are the engine's: its number, and when it was sent.
    pub(super) fn stamp_bytes(&self) -> usize {
        match (self.pattern, self.transport) {
            (_, Transport::Icmp) => ICMP_HEADER_BYTES,
            (_, transport) if !transport.is_datagram() => 0,
            (Pattern::Stream, _) => stamped(usize::try_from(self.sizes.message_bytes).unwrap_or(usize::MAX)),
            _ if self.numbers_requests() => NUMBERED_BYTES,
            _ => 0,
        }
    }
}

/// Bytes of a stream's datagram of this length that its number, phase and time of sending take.
#[must_use]
pub fn stamped(length: usize) -> usize {
    match length {
        STAMPED_BYTES.. => STAMPED_BYTES,
        NUMBERED_BYTES.. => NUMBERED_BYTES,
        _ => 0,
    }
}
