//! Rules of ends that do not copy: senders of pages and receivers that discard.

use super::{Direction, Io, Pattern, TestSpec, Unsupported, key, refuse_if};
use crate::spec::{Role, Side};

/// Whether a loop writes to, or reads from, more of an end's buffers than its calls do.
fn is_touched(spec: &TestSpec, side: Side, role: Role) -> bool {
    let buffers = &spec.end(side).buffers;
    spec.has_role(side, role) && buffers.dirty.max(buffers.clean) > 0
}

/// Rules of a sender whose pages the kernel sends.
pub(super) fn constant(spec: &TestSpec) -> Result<(), Unsupported> {
    let io = spec.io.name();
    let dirty = spec.near.buffers.dirty > 0 || spec.far.buffers.dirty > 0;
    // The file that sendfile sends from was never one of the buffers.
    let of_pages = matches!(spec.io, Io::Splice | Io::Vmsplice | Io::Zerocopy);
    let touched = |side| of_pages && is_touched(spec, side, Role::Sender);
    refuse_if! {
        !spec.io.facts().copies && dirty || touched(Side::Near) || touched(Side::Far) =>
            key::buffers, "io: {io} sends pages that must stay as they are: leave `dirty` and `clean` out";
        of_pages && spec.is_alone() && spec.direction == Direction::Reverse => key::io,
            "with control: none the sender is a service, which sends as it does: leave `io` out";
    }
    Ok(())
}

/// Rules of a receiver that does not copy.
pub(super) fn discard(spec: &TestSpec) -> Result<(), Unsupported> {
    let (transport, io) = (spec.transport.name(), spec.resolved_io());
    let touched = |side| is_touched(spec, side, Role::Receiver);
    refuse_if! {
        spec.pattern != Pattern::Stream => key::receive,
            "receive: discard is for streams: requests and responses are counted by their bytes";
        !spec.transport.discards() => key::receive, "over {transport} a receiver cannot discard: leave `receive` out";
        !io.facts().discards => key::receive,
            "io: {} receives into buffers of its own: leave `receive` or `io` out", io.name();
        spec.integrity => key::integrity, "integrity checks bytes that `receive: discard` leaves where they are: choose one";
        touched(Side::Near) || touched(Side::Far) => key::buffers,
            "receive: discard leaves nothing for the receiver to read or write: leave `dirty` and `clean` out there";
        spec.is_alone() && spec.direction == Direction::Forward => key::receive,
            "with control: none the receiver is a service, which receives as it does: leave `receive` out";
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use crate::spec::{Dialect, Direction, Io, Pattern, Receive, TestSpec, Transport};

    fn stream(transport: Transport, change: impl FnOnce(&mut TestSpec)) -> TestSpec {
        let mut spec = TestSpec::new(Pattern::Stream, transport);
        change(&mut spec);
        spec
    }

    #[track_caller]
    fn refused(spec: &TestSpec, key: &str) {
        let error = check(spec).unwrap_err();
        assert_eq!(error.key, key, "{error}");
    }

    #[test]
    fn pages_are_sent_only_where_the_kernel_takes_them() {
        let (tcp, unix) = (Transport::Tcp, Transport::UnixStream);
        for (io, transports) in
            [(Io::Splice, &[tcp, unix][..]), (Io::Vmsplice, &[tcp, unix][..]), (Io::Zerocopy, &[tcp][..])]
        {
            for transport in Transport::ALL {
                let spec = stream(transport, |s| {
                    s.io = io;
                    // A link needs the interface of each end.
                    (s.near.socket.device, s.far.socket.device) = (Some("lo".into()), Some("lo".into()));
                });
                if transports.contains(&transport) {
                    check(&spec).unwrap();
                } else {
                    refused(&spec, if transport == Transport::Icmp { "workload" } else { "io" });
                }
            }
            let mut requests = TestSpec::new(Pattern::RequestResponse, tcp);
            requests.io = io;
            refused(&requests, "io");
            refused(&stream(tcp, |s| (s.io, s.streams, s.threads) = (io, 2, Some(1))), "io");
        }
    }

    #[test]
    fn pages_stay_as_they_are() {
        for io in [Io::Splice, Io::Vmsplice, Io::Zerocopy] {
            check(&stream(Transport::Tcp, |s| (s.io, s.integrity, s.near.buffers.ring) = (io, true, 4))).unwrap();
            refused(&stream(Transport::Tcp, |s| (s.io, s.near.buffers.dirty) = (io, 1)), "buffers");
            refused(&stream(Transport::Tcp, |s| (s.io, s.near.buffers.clean) = (io, 1)), "buffers");
            let receiver_reads = |s: &mut TestSpec| (s.io, s.far.buffers.clean) = (io, 1);
            check(&stream(Transport::Tcp, receiver_reads)).unwrap();
            let both_ways = stream(Transport::Tcp, |s| {
                receiver_reads(s);
                s.direction = Direction::Duplex;
            });
            refused(&both_ways, "buffers");
            let service = stream(Transport::Tcp, |s| {
                (s.io, s.dialect, s.far.port, s.direction) = (io, Dialect::Service, Some(19), Direction::Reverse);
            });
            refused(&service, "io");
            check(&TestSpec { direction: Direction::Forward, ..service }).unwrap();
        }
        check(&stream(Transport::Tcp, |s| (s.io, s.near.buffers.clean) = (Io::Sendfile, 1))).unwrap();
        refused(&stream(Transport::Tcp, |s| (s.io, s.near.buffers.dirty) = (Io::Sendfile, 1)), "buffers");
    }

    #[test]
    fn bytes_are_discarded_only_where_the_kernel_can() {
        let discards = [Transport::Tcp, Transport::Mptcp, Transport::Udp, Transport::UdpLite];
        for transport in Transport::ALL {
            let spec = stream(transport, |s| {
                s.receive = Receive::Discard;
                (s.near.socket.device, s.far.socket.device) = (Some("lo".into()), Some("lo".into()));
            });
            if discards.contains(&transport) {
                check(&spec).unwrap();
                refused(&TestSpec { integrity: true, ..spec.clone() }, "integrity");
                refused(&TestSpec { pattern: Pattern::RequestResponse, ..spec }, "receive");
            } else {
                refused(&spec, if transport == Transport::Icmp { "workload" } else { "receive" });
            }
        }
    }

    #[test]
    fn a_receiver_that_discards_has_no_use_for_its_buffers_and_belongs_to_this_program() {
        let discard = |change: fn(&mut TestSpec)| {
            stream(Transport::Tcp, |s| {
                s.receive = Receive::Discard;
                change(s);
            })
        };
        check(&discard(|s| (s.near.buffers.dirty, s.near.buffers.clean) = (1, 1))).unwrap();
        refused(&discard(|s| s.far.buffers.clean = 1), "buffers");
        refused(&discard(|s| (s.near.buffers.clean, s.direction) = (1, Direction::Reverse)), "buffers");
        refused(&discard(|s| (s.near.buffers.dirty, s.direction) = (1, Direction::Bidirectional)), "buffers");
        check(&discard(|s| (s.streams, s.threads) = (4, Some(1)))).unwrap();
        let service = discard(|s| (s.dialect, s.far.port) = (Dialect::Service, Some(9)));
        refused(&service, "receive");
        check(&TestSpec { direction: Direction::Reverse, ..service }).unwrap();
    }
}
