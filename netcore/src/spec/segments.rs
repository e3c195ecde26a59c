//! Datagrams of several messages: `socket.gso` (UDP_SEGMENT) where an end sends, `socket.gro` (UDP_GRO) where it receives.
//!
//! Each applies to one end by itself, and to that end's flows of its direction.

use super::{
    Direction, LONGEST_DATAGRAM, PaceMode, Pattern, Receive, Role, Side, TestSpec, Transport,
    key::{self, Unsupported, refuse_if},
};

/// Most messages of a datagram (the kernel's UDP_MAX_SEGMENTS; before Linux 6.10 it was 64).
const MOST_SEGMENTS: u32 = 128;

/// Room for a received datagram of several messages: none is longer, over either version of IP.
pub const CHUNK_BYTES: u64 = 65_536;

/// Keys of an option in `socket` and `remote_socket`.
type Keys = [&'static str; 2];

const GSO: Keys = ["socket.gso", "remote_socket.gso"];
const GRO: Keys = ["socket.gro", "remote_socket.gro"];

impl TestSpec {
    /// Messages that this end hands to the kernel as one datagram, in this role; 1: each by itself.
    pub(crate) fn segments(&self, side: Side, role: Role) -> usize {
        let asked = self.end(side).socket.gso.filter(|_| role == Role::Sender && self.pattern == Pattern::Stream);
        asked.unwrap_or(1).max(1) as usize
    }

    /// Whether this end accepts several messages as one datagram, in this role.
    pub(crate) fn merges(&self, side: Side, role: Role) -> bool {
        role == Role::Receiver && self.pattern == Pattern::Stream && self.end(side).socket.gro == Some(true)
    }
}

/// Whether an end sends, and whether it receives.
fn roles(spec: &TestSpec, side: Side) -> (bool, bool) {
    match spec.direction {
        Direction::Forward => (side == Side::Near, side == Side::Far),
        Direction::Reverse => (side == Side::Far, side == Side::Near),
        Direction::Bidirectional | Direction::Duplex => (true, true),
    }
}

/// Whether one of the options is set for ends that do not use it, and for none that does.
pub(super) fn is_unused(spec: &TestSpec) -> [(&'static str, bool); 2] {
    let ends = [Side::Near, Side::Far].map(|side| (&spec.end(side).socket, roles(spec, side)));
    let asked = |of: fn(&super::SocketOptions) -> bool| ends.iter().any(|(socket, _)| of(socket));
    let gso = asked(|socket| socket.gso.is_some());
    let gro = asked(|socket| socket.gro == Some(true));
    let sends = ends.iter().any(|(socket, (sends, _))| *sends && socket.gso.is_some());
    let receives = ends.iter().any(|(socket, (_, receives))| *receives && socket.gro == Some(true));
    [(GSO[1], gso && !sends), (GRO[1], gro && !receives)]
}

/// Refuses what the kernel or the loops cannot do.
pub(super) fn check(spec: &TestSpec) -> Result<(), Unsupported> {
    for (side, place) in [(Side::Near, 0), (Side::Far, 1)] {
        let socket = &spec.end(side).socket;
        if let Some(segments) = socket.gso {
            let key = if spec.near.socket.gso == Some(segments) { GSO[0] } else { GSO[place] };
            streams(spec, key, "gso", "UDP_SEGMENT")?;
            sender(spec, side, key, segments)?;
        }
        if socket.gro == Some(true) {
            let key = if spec.near.socket.gro == Some(true) { GRO[0] } else { GRO[place] };
            streams(spec, key, "gro", "UDP_GRO")?;
            receiver(spec, side, key)?;
        }
    }
    Ok(())
}

fn streams(spec: &TestSpec, key: &'static str, name: &str, option: &str) -> Result<(), Unsupported> {
    let (transport, io) = (spec.transport.name(), spec.resolved_io());
    refuse_if! {
        spec.transport == Transport::UdpLite => key,
            "{name}: the kernel neither splits nor merges datagrams of UDP-Lite (it answers EIO): use udp_stream";
        spec.transport != Transport::Udp => key,
            "{name} is {option}, an option of UDP, and this test runs over {transport}: use udp_stream, or leave it out";
        spec.pattern != Pattern::Stream => key,
            "{name}: requests and responses are datagrams of their own, one at a time: use udp_stream, or leave it out";
        !io.facts().segments => key,
            "{name}: io: {} handles datagrams of one message each: leave out {name} or `io`", io.name();
    }
    Ok(())
}

fn sender(spec: &TestSpec, side: Side, key: &'static str, segments: u32) -> Result<(), Unsupported> {
    let (bytes, ring) = (spec.sizes.message_bytes, spec.end(side).buffers.ring);
    let fits = (LONGEST_DATAGRAM / bytes.max(1)).min(MOST_SEGMENTS.into());
    let advice = if fits < 2 {
        "leave gso out, or choose smaller messages".to_owned()
    } else {
        format!("write {fits} or fewer, at least 2")
    };
    let (sends, _) = roles(spec, side);
    let pace = spec.pace.filter(|_| sends);
    refuse_if! {
        segments < 2 => key, "gso: {segments} has nothing to split: write 2 to {MOST_SEGMENTS}, or leave gso out";
        segments > MOST_SEGMENTS => key,
            "the kernel splits a datagram into at most {MOST_SEGMENTS} messages, not {segments}: {advice}";
        u64::from(segments).saturating_mul(bytes) > LONGEST_DATAGRAM => key,
            "a datagram carries at most {LONGEST_DATAGRAM} bytes, and {segments} messages of {bytes} bytes have {}: {advice}",
            u64::from(segments).saturating_mul(bytes);
        spec.end(side).socket.no_checksum == Some(true) => key,
            "the kernel does not split datagrams without checksums (it answers EINVAL): leave out gso or no_checksum";
        pace.is_some_and(|pace| pace.mode != PaceMode::User) => key,
            "the kernel would space out whole datagrams, each of {segments} messages back to back: use `mode: user` with \
             `burst: {segments}`, or leave gso out";
        pace.is_some_and(|pace| pace.burst < segments) => key,
            "at each due time {} message(s) are sent, fewer than a datagram of {segments} takes: write \
             `pacing: {{burst: {segments}}}`, or leave gso out", pace.map_or(1, |pace| pace.burst);
        sends && ring > 1 && ring < segments => key::buffers,
            "each of a datagram's {segments} messages takes a buffer of its own: write `ring: {segments}` or more, or a \
             smaller gso";
    }
    Ok(())
}

fn receiver(spec: &TestSpec, side: Side, key: &'static str) -> Result<(), Unsupported> {
    let buffers = &spec.end(side).buffers;
    let (_, receives) = roles(spec, side);
    refuse_if! {
        spec.receive == Receive::Discard => key,
            "gro: the messages of a datagram are told apart by the bytes that `receive: discard` leaves where they are: choose one";
        receives && (buffers.ring > 1 || buffers.dirty > 0 || buffers.clean > 0) => key,
            "with gro a buffer receives as many messages as the kernel merged: leave out ring, dirty and clean at that end, \
             or gro";
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{Arrival, BufferOptions, Pace, support};

    fn stream(change: impl FnOnce(&mut TestSpec)) -> TestSpec {
        let mut spec = TestSpec::new(Pattern::Stream, Transport::Udp);
        spec.sizes.message_bytes = 1000;
        change(&mut spec);
        spec
    }

    #[track_caller]
    fn refused(change: impl FnOnce(&mut TestSpec), key: &str, word: &str) {
        let error = support::check(&stream(change)).unwrap_err();
        assert_eq!(error.key, key, "{error}");
        assert!(error.reason.contains(word), "{error}");
    }

    #[test]
    fn each_end_has_its_own() {
        let spec =
            stream(|s| (s.near.socket.gso, s.near.socket.gro, s.far.socket.gro) = (Some(9), Some(true), Some(true)));
        support::check(&spec).unwrap();
        assert_eq!(spec.segments(Side::Near, Role::Sender), 9);
        assert_eq!(spec.segments(Side::Near, Role::Receiver), 1);
        assert_eq!(spec.segments(Side::Far, Role::Sender), 1);
        assert!(spec.merges(Side::Far, Role::Receiver) && !spec.merges(Side::Far, Role::Sender));
        assert!(is_unused(&spec).iter().all(|(_, unused)| !unused));
        let idle = stream(|s| (s.far.socket.gso, s.near.socket.gro) = (Some(9), Some(true)));
        support::check(&idle).unwrap();
        assert!(is_unused(&idle).iter().all(|(_, unused)| *unused));
    }

    #[test]
    fn limits_are_told_with_what_fits() {
        for (bytes, most) in [(1, 128), (64, 128), (511, 128), (512, 127), (1400, 46), (32_753, 2)] {
            let with = |segments| stream(|s| (s.sizes.message_bytes, s.near.socket.gso) = (bytes, Some(segments)));
            support::check(&with(most)).unwrap();
            let error = support::check(&with(most + 1)).unwrap_err();
            assert!(error.reason.contains(&format!("write {most} or fewer")), "{error}");
        }
        refused(|s| (s.sizes.message_bytes, s.near.socket.gso) = (32_754, Some(2)), "socket.gso", "leave gso out");
        refused(|s| s.near.socket.gso = Some(1), "socket.gso", "write 2 to 128");
        refused(|s| s.far.socket.gso = Some(129), "remote_socket.gso", "at most 128 messages");
        refused(|s| (s.near.socket.gso, s.far.socket.gso) = (Some(129), Some(129)), "socket.gso", "at most 128");
    }

    #[test]
    fn what_excludes_each_other_has_a_sentence() {
        let pace = Pace { events_per_s: 9.0, mode: PaceMode::User, arrival: Arrival::Closed, burst: 4, catch_up: 0 };
        let gso = |s: &mut TestSpec| s.near.socket.gso = Some(4);
        let gro = |s: &mut TestSpec| s.far.socket.gro = Some(true);
        refused(|s| (gso(s), s.near.socket.no_checksum = Some(true)).0, "socket.gso", "EINVAL");
        refused(|s| (gso(s), s.transport = Transport::UdpLite).0, "socket.gso", "EIO");
        refused(|s| (gro(s), s.transport = Transport::UnixDatagram).0, "remote_socket.gro", "over unix_dgram");
        refused(|s| (gso(s), s.pattern = Pattern::RequestResponse).0, "socket.gso", "one at a time");
        refused(|s| (gro(s), s.pattern = Pattern::RequestResponse).0, "remote_socket.gro", "one at a time");
        refused(|s| (gso(s), s.pace = Some(Pace { burst: 3, ..pace })).0, "socket.gso", "burst: 4");
        refused(
            |s| (gso(s), s.pace = Some(Pace { burst: 1, mode: PaceMode::Txtime, ..pace })).0,
            "socket.gso",
            "`mode: user`",
        );
        refused(|s| (gso(s), s.near.buffers.ring = 3).0, "buffers", "ring: 4");
        let touched = BufferOptions { clean: 1, ..BufferOptions::default() };
        refused(|s| (gro(s), s.far.buffers = touched.clone()).0, "remote_socket.gro", "clean");
        for allowed in [
            stream(|s| (gso(s), s.pace = Some(pace)).0),
            // The far end paces nothing here.
            stream(|s| (s.far.socket.gso, s.pace) = (Some(9), Some(pace))),
            stream(|s| (gso(s), s.near.buffers.ring = 4, s.near.buffers.alignment = Some(64)).0),
            stream(|s| (gso(s), gro(s), s.near.buffers = touched.clone()).0),
            stream(|s| (gro(s), s.near.socket.no_checksum = Some(true)).0),
        ] {
            support::check(&allowed).unwrap();
        }
    }
}
