//! How much memory the buffers of a test take at an end, and the most that they may.
//!
//! All of it is allocated, filled and touched before the load, while the other end waits.

use super::{BufferOptions, Direction, Pattern, TestSpec, Transport, support};
use crate::{
    report::{Role, Side},
    transport::{icmp, link},
};

/// The most that the buffers of a test may take at one end, bytes.
pub const MOST_BYTES: u64 = 1 << 30;

/// Reads of requests and responses in flight take at most so many bytes at once, unless one alone is larger.
const PIPELINE_BYTES: u64 = 256 * 1024;

/// A service may answer with any datagram.
const LARGEST_ANSWER: u64 = 65_536;

/// What is kept of each transaction in flight: when it began, and which it is.
const FLIGHT_BYTES: u128 = 32;

/// What the threads of a flow do at an end.
pub(crate) fn roles(spec: &TestSpec, side: Side, flow: u32) -> &'static [Role] {
    if spec.transport == Transport::Icmp && side == Side::Far {
        // The kernel answers.
        return &[];
    }
    if spec.pattern != Pattern::Stream {
        return match side {
            Side::Near => &[Role::Requester],
            Side::Far => &[Role::Responder],
        };
    }
    let near_sends = match spec.direction {
        Direction::Forward => true,
        Direction::Reverse => false,
        // The first half of the flows goes forward.
        Direction::Bidirectional => flow < spec.streams,
        Direction::Duplex => return &[Role::Sender, Role::Receiver],
    };
    if near_sends == (side == Side::Near) { &[Role::Sender] } else { &[Role::Receiver] }
}

/// Bytes of a buffer that is sent from, and of one that is received into; 0: there is none.
pub(crate) fn calls(spec: &TestSpec, role: Role) -> (u64, u64) {
    let sizes = spec.sizes;
    let several = |bytes: u64| {
        let all = bytes.saturating_mul(spec.inflight.into());
        match spec.inflight {
            1 => bytes,
            _ if spec.coalesce => all,
            _ => all.min(bytes.max(PIPELINE_BYTES)),
        }
    };
    // Requests and responses are sent from where they lie, with the header of a frame before them.
    let head = if spec.transport == Transport::Link && spec.pattern != Pattern::Stream {
        link::HEADER_BYTES as u64
    } else {
        0
    };
    let (send, receive) = match role {
        Role::Sender => (sizes.message_bytes, 0),
        // A datagram that does not fit the call would be cut off in silence.
        Role::Receiver | Role::Duplex if spec.transport.is_datagram() => {
            (0, sizes.receive_bytes.max(sizes.message_bytes))
        }
        Role::Receiver | Role::Duplex => (0, sizes.receive_bytes),
        Role::Requester if spec.transport == Transport::Icmp => {
            let message = sizes.message_bytes.saturating_add(icmp::HEADER_BYTES as u64);
            (message, message.saturating_add(icmp::IP_HEADER_BYTES as u64))
        }
        Role::Requester if spec.alone && spec.transport.is_datagram() => (sizes.request_bytes, LARGEST_ANSWER),
        Role::Requester => (sizes.request_bytes, several(sizes.response_bytes)),
        Role::Responder => (sizes.response_bytes, several(sizes.request_bytes)),
    };
    (send.saturating_add(head), receive.saturating_add(head))
}

/// Bytes that the buffers of an end take; [`u64::MAX`] where they are more than that.
#[must_use]
pub fn buffer_bytes(spec: &TestSpec, side: Side) -> u64 {
    let options = match side {
        Side::Near => &spec.near.buffers,
        Side::Far => &spec.far.buffers,
    };
    let of_role = |role: &Role| -> u128 {
        let (send, receive) = calls(spec, *role);
        ring_bytes(send, options) + ring_bytes(receive, options) + in_flight(spec, *role, send)
    };
    let flow = |flow: u32| -> u128 { roles(spec, side, flow).iter().map(of_role).sum() };
    // The flows of a direction are all alike: the first of each.
    let forward = u128::from(spec.streams) * flow(0);
    let reverse = u128::from(spec.flows().saturating_sub(spec.streams)) * flow(spec.streams);
    u64::try_from(forward + reverse).unwrap_or(u64::MAX)
}

fn ring_bytes(size: u64, options: &BufferOptions) -> u128 {
    if size == 0 {
        return 0;
    }
    let alignment = u128::from(options.alignment.max(1));
    let stride = (u128::from(size) + u128::from(options.offset)).next_multiple_of(alignment);
    // To align the first one takes up to an alignment more; a page of that does not count.
    u128::from(options.ring.max(1)).saturating_mul(stride) + alignment.saturating_sub(4096)
}

/// Bytes that stand beside the buffers: one for each transaction in flight.
fn in_flight(spec: &TestSpec, role: Role, send: u64) -> u128 {
    if spec.inflight == 1 || !matches!(role, Role::Requester | Role::Responder) {
        return 0;
    }
    let times = if role == Role::Requester { FLIGHT_BYTES } else { 0 };
    // All that one call may send at once.
    let batch = if spec.coalesce { u128::from(send) } else { 0 };
    u128::from(spec.inflight) * (times + batch)
}

/// Refuses a test whose buffers take more than they may at an end.
pub(super) fn check(spec: &TestSpec) -> Result<(), support::Unsupported> {
    // A service has its own.
    let sides: &[Side] = if spec.alone { &[Side::Near] } else { &[Side::Near, Side::Far] };
    let bytes = sides.iter().map(|side| buffer_bytes(spec, *side)).max().unwrap_or(0);
    if bytes <= MOST_BYTES {
        return Ok(());
    }
    let key = match spec {
        _ if spec.near.buffers.ring.max(spec.far.buffers.ring) > 1 => "buffers",
        _ if spec.streams > 1 => "streams",
        _ if spec.inflight > 1 => "inflight",
        _ => "message_size",
    };
    support::no(
        key,
        format!(
            "the buffers of one end would take {:.1} GiB, more than the {} GiB that a test is granted: use smaller \
             messages, a smaller ring, or fewer streams",
            bytes as f64 / f64::from(1 << 30),
            MOST_BYTES >> 30
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern;

    fn spec(change: impl FnOnce(&mut TestSpec)) -> TestSpec {
        let mut spec = TestSpec::new(Pattern::Stream, Transport::Tcp);
        change(&mut spec);
        spec
    }

    #[test]
    fn it_is_what_the_ends_allocate() {
        let specs = [
            spec(|_| {}),
            spec(|s| (s.streams, s.direction) = (3, Direction::Bidirectional)),
            spec(|s| (s.near.buffers.ring, s.near.buffers.offset, s.direction) = (7, 100, Direction::Duplex)),
            spec(|s| (s.far.buffers.alignment, s.direction) = (1 << 20, Direction::Reverse)),
            spec(|s| (s.pattern, s.sizes.response_bytes) = (Pattern::RequestResponse, 500)),
            spec(|s| (s.pattern, s.transport) = (Pattern::Ping, Transport::Icmp)),
        ];
        for spec in specs {
            for side in [Side::Near, Side::Far] {
                let crew = pattern::crew(&spec, side).unwrap();
                let rings: Vec<u64> = crew
                    .iter()
                    .flat_map(|place| [&place.send_buffers, &place.receive_buffers])
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
        refused(|s| s.near.buffers.alignment = 1 << 40, "message_size");
        refused(|s| (s.pattern, s.inflight) = (Pattern::RequestResponse, u32::MAX), "inflight");
        refused(
            |s| {
                (s.pattern, s.coalesce, s.inflight) = (Pattern::RequestResponse, true, 1 << 20);
                s.sizes.response_bytes = 1 << 10;
            },
            "inflight",
        );
        let mut alone = spec(|s| s.far.buffers.ring = u32::MAX);
        alone.alone = true;
        assert_eq!(check(&alone), Ok(()));
    }
}
