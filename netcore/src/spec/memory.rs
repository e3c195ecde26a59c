//! Memory for the buffers of a test at an end, and its limit.
//!
//! It is allocated, filled and touched before the load, while the other end waits.

use super::{Io, Role, Side, TestSpec, Transport, key, rings, shape::shapes};

/// Limit for the buffers of a test at one end, bytes.
pub const MOST_BYTES: u64 = 1 << 30;

/// Record of a transaction in flight (its start and its number), bytes.
const FLIGHT_BYTES: u128 = 32;

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
    let all = forward.saturating_add(reverse).saturating_add(rings::bytes(spec, side));
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
        Role::Sender if of_messages => ring(side, sizes.message_bytes),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        io::fill::FillFiles,
        pattern,
        spec::{Dialect, Direction, Pattern, Receive},
    };

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
}
