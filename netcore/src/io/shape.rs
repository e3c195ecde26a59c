//! How long buffers are, how many there are of them and how they lie: what they are for, and what the test asks of them.

use crate::spec::BufferOptions;

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
    pub(super) fn alignment(self, options: &BufferOptions) -> u64 {
        let unasked = if self.per_call > 0 && options.offset == 0 { 1 } else { PAGE };
        options.alignment.unwrap_or(unasked).max(1)
    }

    /// Bytes from one buffer to the next.
    pub(super) fn stride(self, options: &BufferOptions) -> u128 {
        let bytes = u128::from(self.message_bytes) + self.header_bytes as u128 + u128::from(options.offset);
        bytes.next_multiple_of(self.alignment(options).into())
    }

    /// How many buffers there are: those of the ring, or, without one, those of a call.
    pub(super) fn count(self, options: &BufferOptions) -> usize {
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
