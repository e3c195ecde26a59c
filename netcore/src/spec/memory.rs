//! Layout of the buffers of a test at an end, from the test and the worker's role: their length, number and alignment; their
//! memory, and its limit. It is allocated, filled and touched before the load, while the other end waits.

use super::{
    BufferOptions, Dialect, Io, PaceMode, Pattern, Receive, Role, Side, TestSpec, Transport, key, segments::CHUNK_BYTES,
};

/// Bytes that a message needs for its sequence number.
pub const NUMBERED_BYTES: usize = 8;

/// Bytes that a datagram of a stream needs for its sequence number and the time of its sending.
pub const STAMPED_BYTES: usize = 16;

/// Bytes that requests and answers need for their number and the times of `one_way`.
pub const ONE_WAY_BYTES: usize = 40;

/// Bytes of the shortest packet of STAMP.
pub const fn reflected_bytes(authenticated: bool) -> usize {
    if authenticated { 112 } else { 44 }
}

/// Bytes of the header of an extension of STAMP, a TLV: flags, type, length.
pub const TLV_BYTES: usize = 4;

/// Bytes before a message on the link layer: the Ethernet header (14), session, flow and length.
pub const LINK_HEADER_BYTES: usize = 14 + 4 + 4 + 2;

/// Bytes before the payload of an ICMP echo.
pub const ICMP_HEADER_BYTES: usize = 8;

/// The longest header that may precede the message on a raw IPv4 socket.
const IP_HEADER_BYTES: usize = 60;

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
    fn counted_bytes(self, options: &BufferOptions) -> u128 {
        if self.message_bytes == 0 {
            return 0;
        }
        self.memory_bytes(options) - u128::from(self.alignment(options).min(PAGE))
    }
}

impl TestSpec {
    /// Messages per call, if there are as many buffers.
    fn messages_per_call(&self, side: Side, role: Role) -> usize {
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
            _ if let Dialect::Stamp { authenticated } = self.dialect => reflected_bytes(authenticated),
            _ if self.one_way => ONE_WAY_BYTES,
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

/// Limit for the buffers of a test at one end, bytes.
pub const MOST_BYTES: u64 = 1 << 30;

/// Record of a transaction in flight (its start and its number), bytes.
const FLIGHT_BYTES: u128 = 32;

/// Records of TLS of one call, each of 16 KiB with its header and its seal, and one that began: received, and sealed, bytes.
pub const RECORDS_BYTES: usize = 9 * (16_384 + 256 + 5);

/// Packets of QUIC of one call: received, and sent, bytes.
const PACKETS_BYTES: u64 = 2 << 16;

/// Most bytes of unreliable datagrams of QUIC that have arrived and were not read: more than a turn takes, after which all are read.
/// The library would drop the oldest.
pub const ARRIVED_BYTES: usize = 16 << 20;

/// Most bytes of such datagrams that wait to be sent: some sending calls.
pub const AHEAD_BYTES: usize = 256 << 10;

/// Bytes of the buffers of an end; [`u64::MAX`] if they are more.
pub fn buffer_bytes(spec: &TestSpec, side: Side) -> u64 {
    let options = &spec.end(side).buffers;
    let of_role = |role: &Role| -> u128 {
        let (send, receive) = shapes(spec, side, *role);
        send.counted_bytes(options)
            + receive.counted_bytes(options)
            + in_flight(spec, *role, send.message_bytes)
            + copies(spec, side, *role)
            + windows(spec, *role, receive.counted_bytes(options))
    };
    let flow = |flow: u32| -> u128 { spec.roles(side, flow).iter().map(of_role).sum() };
    // The flows of a direction are alike: computed from the first of each.
    let forward = flow(0).saturating_mul(spec.streams.into());
    let reverse = flow(spec.streams).saturating_mul(spec.flows().saturating_sub(spec.streams).into());
    let records = spec.records(side).map_or(0, |_| 2 * RECORDS_BYTES as u128);
    let packets = spec.quic_options().map_or(0, |quic| {
        let held =
            if spec.transport.is_datagram() { (ARRIVED_BYTES + AHEAD_BYTES) as u64 } else { 2 * quic.window_bytes() };
        u128::from(held + PACKETS_BYTES)
    });
    let sealed = (records + packets) * u128::from(spec.flows());
    let all = forward.saturating_add(reverse).saturating_add(sealed).saturating_add(ring_bytes(spec, side));
    u64::try_from(all).unwrap_or(u64::MAX)
}

/// Bytes of the copies of a ring: the file or pages that the kernel sends, and the data that `integrity` expects, which are made
/// from a ring of their own.
fn copies(spec: &TestSpec, side: Side, role: Role) -> u128 {
    let ring = |side: Side, bytes: u64| u128::from(spec.end(side).buffers.ring) * u128::from(bytes);
    let other = if side == Side::Near { Side::Far } else { Side::Near };
    let sizes = &spec.sizes;
    // Messages in progress lie in a ring of their own.
    let of_messages = spec.transport == Transport::Mpi && spec.resolved_io() == Io::Nonblocking;
    let sent = match role {
        Role::Sender | Role::Duplex if !spec.resolved_io().facts().copies => ring(side, sizes.message_bytes),
        Role::Sender if of_messages || spec.transport == Transport::Quic => ring(side, sizes.message_bytes),
        Role::Requester if of_messages => ring(side, sizes.request_bytes),
        Role::Responder if of_messages => ring(side, sizes.response_bytes),
        _ => 0,
    };
    let expected = match role {
        _ if !spec.integrity => 0,
        Role::Sender => 0,
        Role::Receiver | Role::Duplex => ring(other, sizes.message_bytes),
        Role::Requester => ring(other, sizes.response_bytes),
        Role::Responder => ring(other, sizes.request_bytes),
    };
    sent + 2 * expected
}

/// Bytes of the buffers of receives in progress, which wait for messages between ranks.
fn windows(spec: &TestSpec, role: Role, receive: u128) -> u128 {
    if spec.has_window() && role == Role::Receiver { receive.saturating_mul(spec.inflight.into()) } else { 0 }
}

/// Bytes beside the buffers, for the transactions in flight.
fn in_flight(spec: &TestSpec, role: Role, send: u64) -> u128 {
    if spec.inflight == 1 || !matches!(role, Role::Requester | Role::Responder) {
        return 0;
    }
    let times = if role == Role::Requester { FLIGHT_BYTES } else { 0 };
    // The messages of one call.
    let batch = if spec.coalesce { u128::from(send) } else { 0 };
    u128::from(spec.inflight) * (times + batch)
}

/// Refuses a test whose buffers exceed the limit at an end.
pub(super) fn check(spec: &TestSpec) -> Result<(), key::Unsupported> {
    // A service allocates its own buffers.
    let sides: &[Side] = if spec.is_alone() { &[Side::Near] } else { &[Side::Near, Side::Far] };
    let bytes = sides.iter().map(|side| buffer_bytes(spec, *side)).max().unwrap_or(0);
    let key = match spec {
        _ if spec.near.buffers.ring.max(spec.far.buffers.ring) > 1 => "buffers",
        _ if spec.streams > 1 => "streams",
        _ if spec.inflight > 1 => "inflight",
        _ => "message_size",
    };
    key::refuse_if! {
        bytes > MOST_BYTES => key,
            "the buffers of one end would take {:.1} GiB, more than the {} GiB that a test is granted: use smaller \
             messages, a smaller ring, or fewer streams", bytes as f64 / f64::from(1 << 30), MOST_BYTES >> 30;
    }
    Ok(())
}

// Memory of submission rings (`io: uring`): each thread receives small messages into buffers of its ring's own.

/// Largest receive that is served from a ring's own buffers, bytes: for a larger one the copy from there costs more than
/// is saved.
pub const LARGEST_RECEIVE: usize = 4096;

/// Alignment of each buffer, bytes: a cache line.
pub const LINE: usize = 64;

/// Buffers per loop, so that a flow which is read late does not take those of the others.
const PER_LOOP: usize = 4;

/// Number of buffers of a thread with so many loops: a power of two, as the kernel asks for.
pub fn ring_buffers(loops: usize) -> u16 {
    let count = loops.saturating_mul(PER_LOOP).clamp(16, 1 << 15).next_power_of_two();
    u16::try_from(count).unwrap_or(1 << 15)
}

/// Bytes of the buffers of all rings of an end.
pub(super) fn ring_bytes(spec: &TestSpec, side: Side) -> u128 {
    if spec.io != Io::Uring {
        return 0;
    }
    let roles = [0, spec.flows().saturating_sub(1)].into_iter().flat_map(|flow| spec.roles(side, flow));
    let receive = roles.map(|role| shapes(spec, side, *role).1.message_bytes).max().unwrap_or(0);
    let bytes = usize::try_from(receive).unwrap_or(usize::MAX);
    if !(1..=LARGEST_RECEIVE).contains(&bytes) {
        return 0;
    }
    let threads = spec.threads.unwrap_or(u32::MAX).min(spec.loops()).max(1);
    let loops = spec.loops().div_ceil(threads) as usize;
    u128::from(threads) * u128::from(ring_buffers(loops)) * bytes.next_multiple_of(LINE) as u128
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        io::fill::FillFiles,
        pattern,
        spec::{Dialect, Direction, Pattern, Receive, Transport},
    };

    fn spec(change: impl FnOnce(&mut TestSpec)) -> TestSpec {
        let mut spec = TestSpec::new(Pattern::Stream, Transport::Tcp);
        change(&mut spec);
        spec
    }

    /// A peer can make the library hold these, whatever `quic.window` says.
    #[test]
    fn datagrams_that_wait_in_the_library_of_quic_count() {
        for (streams, side) in [(1, Side::Near), (3, Side::Far)] {
            let spec = spec(|s| (s.transport, s.streams) = (Transport::QuicDatagram, streams));
            let held = u64::from(streams) * (ARRIVED_BYTES + AHEAD_BYTES) as u64;
            assert!((held..held * 2).contains(&buffer_bytes(&spec, side)), "{streams}");
        }
    }

    #[test]
    fn it_is_what_the_ends_allocate() {
        let specs = [
            spec(|_| {}),
            spec(|s| (s.streams, s.direction) = (3, Direction::Bidirectional)),
            spec(|s| (s.near.buffers.ring, s.near.buffers.offset, s.direction) = (7, 100, Direction::Duplex)),
            spec(|s| (s.far.buffers.alignment, s.direction) = (Some(1 << 20), Direction::Reverse)),
            spec(|s| (s.pattern, s.sizes.response_bytes) = (Pattern::RequestResponse, 500)),
            spec(|s| (s.pattern, s.transport) = (Pattern::Ping, Transport::Icmp)),
            // With an offset, the buffers of a call begin at pages.
            spec(|s| (s.transport, s.near.buffers.offset, s.far.buffers.offset) = (Transport::Udp, 1, 3)),
            spec(|s| {
                (s.transport, s.receive) = (Transport::Udp, Receive::Discard);
                (s.near.buffers.offset, s.far.buffers.offset) = (1, 3);
            }),
            spec(|s| {
                (s.transport, s.receive, s.sizes.message_bytes) = (Transport::Udp, Receive::Discard, 4);
                (s.near.buffers.offset, s.far.buffers.offset) = (1, 3);
            }),
            spec(|s| {
                (s.transport, s.far.buffers.ring) = (Transport::Link, 40);
                (s.near.buffers.alignment, s.far.buffers.alignment) = (Some(4096), Some(8192));
            }),
        ];
        for spec in specs {
            for side in [Side::Near, Side::Far] {
                let assignments = pattern::assignments(&spec, side, &FillFiles::default()).unwrap();
                let rings: Vec<u64> = assignments
                    .iter()
                    .flat_map(|assignment| [&assignment.send_buffers, &assignment.receive_buffers])
                    .map(|ring| ring.memory_bytes() as u64)
                    .collect();
                // The page that does not count.
                let uncounted: u64 = rings.iter().filter(|bytes| **bytes > 0).map(|_| 4096).sum();
                assert_eq!(buffer_bytes(&spec, side), rings.iter().sum::<u64>() - uncounted, "{side:?} of {spec:?}");
            }
        }
    }

    #[test]
    fn more_than_a_gibibyte_is_refused_at_what_makes_it_so_much() {
        assert_eq!(check(&spec(|s| s.sizes.message_bytes = MOST_BYTES)), Ok(()));
        let refused = |change: fn(&mut TestSpec), key| {
            let unsupported = check(&spec(change)).unwrap_err();
            assert_eq!(unsupported.key, key, "{unsupported}");
            assert!(unsupported.reason.contains("more than the 1 GiB"), "{unsupported}");
        };
        refused(|s| s.near.buffers.ring = 100_000, "buffers");
        refused(|s| s.far.buffers.ring = u32::MAX, "buffers");
        refused(|s| (s.streams, s.direction) = (u32::MAX, Direction::Bidirectional), "streams");
        refused(|s| s.sizes.message_bytes = u64::MAX, "message_size");
        refused(|s| s.near.buffers.alignment = Some(1 << 40), "message_size");
        // Each of the 32 of a call has a place of its own.
        refused(|s| (s.transport, s.far.buffers.alignment) = (Transport::Udp, Some(1 << 26)), "message_size");
        refused(|s| (s.pattern, s.inflight) = (Pattern::RequestResponse, u32::MAX), "inflight");
        refused(
            |s| {
                (s.pattern, s.coalesce, s.inflight) = (Pattern::RequestResponse, true, 1 << 20);
                s.sizes.response_bytes = 1 << 10;
            },
            "inflight",
        );
        let mut alone = spec(|s| s.far.buffers.ring = u32::MAX);
        alone.dialect = Dialect::Service;
        assert_eq!(check(&alone), Ok(()));
    }

    #[test]
    fn small_messages_have_buffers_of_the_rings() {
        let mut spec = TestSpec::new(Pattern::RequestResponse, Transport::Tcp);
        assert_eq!(ring_bytes(&spec, Side::Far), 0);
        spec.io = Io::Uring;
        assert_eq!(ring_bytes(&spec, Side::Far), 16 * 64, "one thread with the least number");
        spec.streams = 256;
        assert_eq!(ring_bytes(&spec, Side::Far), 256 * 16 * 64);
        spec.threads = Some(2);
        spec.sizes.response_bytes = 100;
        assert_eq!(ring_bytes(&spec, Side::Near), 2 * 512 * 128);
        assert_eq!(ring_bytes(&spec, Side::Far), 2 * 512 * 64);
        spec.sizes.response_bytes = 5000;
        assert_eq!(ring_bytes(&spec, Side::Near), 0, "received into the flow's own buffer");
        assert_eq!((ring_buffers(0), ring_buffers(5), ring_buffers(1 << 20)), (16, 32, 1 << 15));
    }
}
