//! Rules of single transports.

use super::{Direction, Io, Pattern, TestSpec, Transport, Unsupported, key, refuse_if};
use crate::spec::{EndSpec, shape::stamped};

/// Whether an end sends from a ring of buffers.
fn sends_from_ring(spec: &TestSpec) -> bool {
    let ring = |end: &EndSpec| end.buffers.ring > 1;
    let streams = spec.pattern == Pattern::Stream;
    let near_sends = !streams || spec.direction != Direction::Reverse;
    // A plain service echoes the near end's bytes.
    let far_sends = !spec.is_alone() && (!streams || spec.direction != Direction::Forward);
    near_sends && ring(&spec.near) || far_sends && ring(&spec.far)
}

pub(super) fn datagrams(spec: &TestSpec) -> Result<(), Unsupported> {
    let sizes = &spec.sizes;
    let (key, largest) = match spec.pattern {
        Pattern::Stream => ("message_size", sizes.message_bytes),
        _ if sizes.request_bytes >= sizes.response_bytes => ("request_size", sizes.request_bytes),
        _ => ("response_size", sizes.response_bytes),
    };
    let number_bytes = match spec.pattern {
        Pattern::Stream => stamped(usize::try_from(sizes.message_bytes).unwrap_or(usize::MAX)),
        _ => spec.request_number_bytes(),
    };
    let (ping, link) = (spec.pattern == Pattern::Ping, spec.transport == Transport::Link);
    refuse_if! {
        spec.direction == Direction::Duplex => key::workload,
            "datagrams go one way on each pair of sockets: choose `direction: bidirectional` instead";
        ping && sizes.message_bytes > LARGEST_UDP => key::message_size,
            "an ICMP echo carries at most {LARGEST_UDP} bytes, not {}", sizes.message_bytes;
        ping && spec.inflight > 1 << 16 => key::inflight,
            "an ICMP echo's number has 16 bits: at most 65536 can be told apart";
    }
    if ping {
        return Ok(());
    }
    refuse_if! {
        matches!(spec.transport, Transport::Udp | Transport::UdpLite) && largest > LARGEST_UDP => key,
            "a UDP datagram carries at most {LARGEST_UDP} bytes, not {largest}";
        link && largest > LARGEST_FRAME => key,
            "a frame carries at most {LARGEST_FRAME} bytes of a message, not {largest}";
        link && (spec.near.socket.device.is_none() || spec.far.socket.device.is_none()) => "socket.device",
            "a link test needs the interface of each end: socket.device and remote_socket.device";
        spec.integrity && number_bytes == 0 && sends_from_ring(spec) => key::integrity,
            "integrity: a datagram of less than {NUMBERED} bytes has no room for the number that names its buffer of the \
             ring: choose longer ones, or one buffer";
        spec.pattern == Pattern::RequestResponse && number_bytes == 0 && spec.inflight > 1 => key::inflight,
            "these messages have no number, by which the answers of several requests can be told apart: leave `inflight` \
             out, or choose request_size and response_size of at least {NUMBERED} bytes and a far end that returns the number";
        spec.pattern == Pattern::RequestResponse && number_bytes < 4 && u64::from(spec.inflight) > 1 << (8 * number_bytes) => key::inflight,
            "messages of less than {NUMBERED} bytes have a number of {} bits: at most {} can be told apart. Choose \
             request_size and response_size of at least {NUMBERED} bytes", 8 * number_bytes, 1 << (8 * number_bytes);
        spec.coalesce => key::coalesce, "datagrams keep their boundaries: requests cannot share one";
    }
    Ok(())
}

pub(super) fn pipes(spec: &TestSpec) -> Result<(), Unsupported> {
    let sizes = &spec.sizes;
    let all = u64::from(spec.inflight).saturating_mul(sizes.request_bytes.max(sizes.response_bytes));
    refuse_if! {
        // Calls on a pipe block: everything in flight must fit.
        spec.pattern == Pattern::RequestResponse && spec.inflight > 1 && all > PIPE_BYTES => key::inflight,
            "a pipe holds {PIPE_BYTES} bytes: {all} in flight could lock both ends up";
    }
    Ok(())
}

/// Rules of messages between ranks.
pub(super) fn messages(spec: &TestSpec) -> Result<(), Unsupported> {
    let touches = |end: &EndSpec| end.buffers.dirty.max(end.buffers.clean) > 0;
    refuse_if! {
        spec.io == Io::Blocking && spec.pattern == Pattern::RequestResponse && spec.inflight > 1 => key::inflight,
            "both ends would wait in MPI_Send: leave `io` out, or write nonblocking";
        spec.resolved_io() == Io::Nonblocking && (touches(&spec.near) || touches(&spec.far)) => key::buffers,
            "io: nonblocking over mpi leaves messages in progress, whose buffers must stay as they are: leave `dirty` and \
             `clean` out, or write io: blocking";
        spec.coalesce => key::coalesce, "messages of MPI keep their boundaries: requests cannot share one";
        spec.streams > MOST_STREAMS => key::streams,
            "each stream over MPI has tags of its own: at most {MOST_STREAMS}, not {}", spec.streams;
        sizes_of(spec).any(|bytes| bytes > LARGEST_MPI) => key::message_size,
            "a message of MPI has at most {LARGEST_MPI} bytes";
    }
    Ok(())
}

fn sizes_of(spec: &TestSpec) -> impl Iterator<Item = u64> {
    let sizes = spec.sizes;
    [sizes.message_bytes, sizes.receive_bytes, sizes.request_bytes, sizes.response_bytes].into_iter()
}

/// Most streams over MPI. Tags are below 32767, and leftovers of tests that were given up keep theirs.
const MOST_STREAMS: u32 = 1024;

/// Largest count of elements of a call.
const LARGEST_MPI: u64 = i32::MAX as u64;

/// Default capacity of a pipe, bytes.
const PIPE_BYTES: u64 = 65_536;

/// Shortest message with a number, bytes.
const NUMBERED: u64 = crate::spec::shape::NUMBERED_BYTES as u64;

/// Payload of the longest UDP datagram over IPv4, bytes.
const LARGEST_UDP: u64 = 65_507;

/// Longest frame of any interface (loopback's MTU), less the bytes that tell flows apart.
const LARGEST_FRAME: u64 = 65_536 - 10;
