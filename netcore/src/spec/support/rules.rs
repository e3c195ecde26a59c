//! Rules of single transports, of ends that do not copy (senders of pages and receivers that discard), and of Explicit Congestion
//! Notification (`socket.ecn`).

use super::{Unsupported, refuse_if};
use crate::spec::{
    Dialect, Direction, Ecn, EndSpec, Io, LONGEST_DATAGRAM, PaceMode, Pattern, Role, Side, Stop, TestSpec, Transport,
    key,
    memory::{STAMPED_BYTES, TLV_BYTES, reflected_bytes, stamped},
};

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
        ping && sizes.message_bytes > LONGEST_DATAGRAM => key::message_size,
            "an ICMP echo carries at most {LONGEST_DATAGRAM} bytes, not {}", sizes.message_bytes;
        ping && spec.inflight > 1 << 16 => key::inflight,
            "an ICMP echo's number has 16 bits: at most 65536 can be told apart";
    }
    if ping {
        return Ok(());
    }
    refuse_if! {
        matches!(spec.transport, Transport::Udp | Transport::UdpLite) && largest > LONGEST_DATAGRAM => key,
            "a UDP datagram carries at most {LONGEST_DATAGRAM} bytes, not {largest}";
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
const NUMBERED: u64 = crate::spec::memory::NUMBERED_BYTES as u64;

/// Shortest message with the times of `one_way`, bytes.
const ONE_WAY: u64 = crate::spec::memory::ONE_WAY_BYTES as u64;

/// Longest frame of any interface (loopback's MTU), less the bytes that tell flows apart.
const LARGEST_FRAME: u64 = 65_536 - 10;

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

impl TestSpec {
    /// The code point of this end's packets, if it takes part in Explicit Congestion Notification.
    pub fn ecn(&self, side: Side) -> Option<Ecn> {
        let has_meaning = matches!(self.transport, Transport::Tcp | Transport::Udp);
        self.end(side).socket.ecn.filter(|ecn| has_meaning && *ecn != Ecn::Off)
    }
}

/// Rules of the delay of each direction.
pub(super) fn one_way(spec: &TestSpec) -> Result<(), Unsupported> {
    let is_stream = spec.pattern == Pattern::Stream;
    let short = !is_stream && (spec.sizes.request_bytes < ONE_WAY || spec.sizes.response_bytes < ONE_WAY);
    let key = if spec.sizes.request_bytes < ONE_WAY { key::request_size } else { key::response_size };
    refuse_if! {
        !spec.one_way => key::timestamps, "timestamps: without `one_way` messages carry no times: leave `one_way: false` out";
        spec.pattern == Pattern::Ping => key::one_way,
            "one_way: an echo comes back without a time of the far end, which is the kernel there and no program: use udp_rr";
        !is_stream && spec.pattern != Pattern::RequestResponse
            || !matches!(spec.transport, Transport::Udp | Transport::UdpLite | Transport::QuicDatagram) => key::one_way,
            "one_way: only messages of UDP and UDP-Lite, of streams and requests, and datagrams of QUIC carry the times of their sending \
             and arrival";
        spec.dialect != Dialect::Plumb && !spec.is_reflected() =>
            key::one_way, "one_way: only a far end of Plumbline writes down when a message came and when its answer left";
        short && !spec.is_reflected() => key, "one_way: number and times take {ONE_WAY} bytes, of request and response";
        is_stream && !spec.times_messages() =>
            key::message_size, "one_way: number and time take {STAMPED_BYTES} bytes of a message";
        is_stream && spec.pace.is_some_and(|pace| pace.mode == PaceMode::Txtime) =>
            key::pacing, "one_way: with `mode: txtime` messages are stamped before they leave: choose another mode";
        spec.kernel_times && is_stream =>
            key::timestamps, "timestamps: the times in both hosts are told of requests and answers: use udp_rr, or leave it out";
        !spec.connected => key::connected, "one_way: leave `connected` out: only connected sockets ask for the times of packets";
    }
    Ok(())
}

/// Most requests of a test with a reflector: their numbers have 32 bits, and half of them tells before from after.
const MOST_REFLECTED: f64 = 2_147_483_648.0;

/// Rules of a far end that is a reflector of STAMP.
pub(super) fn reflected(spec: &TestSpec, authenticated: bool) -> Result<(), Unsupported> {
    let (least, bytes) = (reflected_bytes(authenticated) as u64, spec.sizes.request_bytes);
    let rate = spec.pace.map_or(0.0, |pace| pace.events_per_s);
    let requests = match spec.phases.stop {
        Stop::AfterTransactions(count) => count as f64,
        _ => rate * spec.phases.length_ns().unwrap_or(0) as f64 / 1e9,
    };
    refuse_if! {
        spec.transport != Transport::Udp || spec.pattern != Pattern::RequestResponse =>
            key::workload, "a reflector of STAMP answers the requests of udp_rr";
        !spec.one_way => key::one_way, "one_way: packets of STAMP always carry their times: leave it out";
        spec.pace.is_none() => key::rate, "a reflector is asked at a rate: write one, for example 100/s";
        bytes < least => key::request_size, "request_size: a packet of STAMP has at least {least} bytes here";
        (least + 1..least + TLV_BYTES as u64).contains(&bytes) =>
            key::request_size, "request_size: padding has a header: {least} bytes, or {} and more", least + TLV_BYTES as u64;
        bytes != spec.sizes.response_bytes => key::response_size, "response_size: an answer is as long as its request: leave it out";
        bytes > LONGEST_DATAGRAM => key::request_size, "request_size: at most {LONGEST_DATAGRAM} bytes fit a datagram";
        spec.integrity => key::integrity, "integrity: a reflector writes into the packets that it returns";
        requests > MOST_REFLECTED => key::rate, "the numbers of packets have 32 bits: this test has too many requests";
    }
    Ok(())
}

/// Least messages in an outage.
const LEAST_IN_OUTAGE: u64 = 5;

/// Rules of the search for outages.
pub(super) fn outage(spec: &TestSpec) -> Result<(), Unsupported> {
    let paced = spec.outages();
    refuse_if! {
        !spec.one_way => key::outage, "outage: only messages with times show one, those of udp_rr and udp_stream with `one_way`";
        paced.is_none() => key::outage, "outage: without a `rate` silence is nothing unusual: write one, for example 1k/s";
        spec.streams > 1 => key::streams, "outage: each stream would count the same outage: leave `streams` out";
        paced.is_some_and(|(length_ns, gap_ns)| length_ns < gap_ns.saturating_mul(LEAST_IN_OUTAGE)) =>
            key::outage, "outage: at this `rate` fewer than {LEAST_IN_OUTAGE} messages fall into one: raise the rate, or look for longer ones";
    }
    Ok(())
}

/// Refuses what cannot be counted.
pub(super) fn ecn(spec: &TestSpec) -> Result<(), Unsupported> {
    let (key, ecn) = match [Side::Near, Side::Far].map(|side| spec.ecn(side)) {
        [Some(ecn), _] => ("socket.ecn", ecn),
        [_, Some(ecn)] => ("remote_socket.ecn", ecn),
        _ => return Ok(()),
    };
    let udp = spec.transport == Transport::Udp;
    refuse_if! {
        !udp && ecn != Ecn::On => key,
            "ecn: of TCP the kernel itself writes the code points, and no socket option asks for another: write `ecn: true`, or use udp_stream";
        spec.pattern.is_connecting() => key,
            "ecn: these connections are closed again before anybody can look at them: use tcp_stream or tcp_rr, or leave it out";
        udp && spec.pattern != Pattern::Stream => key,
            "ecn: marks are counted of the messages of a stream: use udp_stream, or leave it out";
        udp && spec.dialect != Dialect::Plumb => key,
            "ecn: only a far end of Plumbline marks its messages and counts marks: leave it out, or name a host without `speaks`";
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{super::check, *};
    use crate::spec::Receive;

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

    #[test]
    fn directions_are_told_apart_where_messages_carry_times() {
        let with = |transport, pattern, change: fn(&mut TestSpec)| {
            let mut spec = TestSpec::new(pattern, transport);
            (spec.one_way, spec.sizes.request_bytes, spec.sizes.response_bytes) = (true, 40, 40);
            change(&mut spec);
            check(&spec).map_err(|refusal| refusal.key)
        };
        let rr = Pattern::RequestResponse;
        assert_eq!(with(Transport::Udp, rr, |_| ()), Ok(()));
        assert_eq!(with(Transport::UdpLite, rr, |_| ()), Ok(()));
        assert_eq!(with(Transport::Udp, Pattern::Stream, |_| ()), Ok(()));
        for (transport, pattern, change, key) in [
            (Transport::Tcp, rr, (|_| ()) as fn(&mut TestSpec), "one_way"),
            (Transport::Pipe, rr, |_| (), "one_way"),
            (Transport::UnixDatagram, rr, |_| (), "one_way"),
            (Transport::Udp, Pattern::Stream, |spec| spec.sizes.message_bytes = 15, "message_size"),
            (Transport::Icmp, Pattern::Ping, |_| (), "one_way"),
            (Transport::Udp, rr, |spec| spec.dialect = Dialect::Netperf, "one_way"),
            (Transport::Udp, rr, |spec| spec.sizes.request_bytes = 39, "request_size"),
            (Transport::Udp, rr, |spec| spec.sizes.response_bytes = 39, "response_size"),
            (Transport::Udp, rr, |spec| spec.connected = false, "connected"),
            (Transport::Udp, Pattern::Stream, |spec| spec.kernel_times = true, "timestamps"),
            (Transport::Udp, rr, |spec| spec.coalesce = true, "coalesce"),
        ] {
            assert_eq!(with(transport, pattern, change), Err(key), "{transport:?} {pattern:?}");
        }
    }

    #[test]
    fn outages_are_looked_for_where_requests_have_times_and_a_rate() {
        let with = |change: fn(&mut TestSpec)| {
            let mut spec = TestSpec::new(Pattern::RequestResponse, Transport::Udp);
            (spec.one_way, spec.sizes.request_bytes, spec.sizes.response_bytes) = (true, 40, 40);
            spec.outage_ns = 20_000_000;
            spec.pace = Some(crate::spec::Pace {
                events_per_s: 1000.0,
                mode: PaceMode::User,
                arrival: crate::spec::Arrival::Closed,
                burst: 1,
                catch_up: 1,
            });
            change(&mut spec);
            check(&spec).map_err(|refusal| refusal.key)
        };
        assert_eq!(with(|_| ()), Ok(()));
        assert_eq!(with(|spec| spec.one_way = false), Err("outage"));
        assert_eq!(with(|spec| spec.pace = None), Err("outage"));
        assert_eq!(with(|spec| spec.outage_ns = 4_000_000), Err("outage"));
        assert_eq!(with(|spec| spec.streams = 2), Err("streams"));
    }

    #[test]
    fn marks_that_nobody_counts_are_refused() {
        let with = |transport, pattern, near, far| {
            let mut spec = TestSpec::new(pattern, transport);
            (spec.near.socket.ecn, spec.far.socket.ecn) = (near, far);
            check(&spec).map_err(|refusal| (refusal.key, refusal.reason))
        };
        let (yes, ect1) = (Some(Ecn::On), Some(Ecn::Ect1));
        for (transport, pattern) in [
            (Transport::Tcp, Pattern::Stream),
            (Transport::Tcp, Pattern::RequestResponse),
            (Transport::Udp, Pattern::Stream),
            // It means nothing there, and a note says so.
            (Transport::UnixStream, Pattern::Stream),
        ] {
            assert_eq!(with(transport, pattern, yes, yes), Ok(()));
        }
        assert_eq!(with(Transport::Tcp, Pattern::Connect, Some(Ecn::Off), None), Ok(()));
        assert_eq!(with(Transport::Udp, Pattern::Stream, ect1, ect1), Ok(()));
        for (transport, pattern, near, key, word) in [
            (Transport::Tcp, Pattern::Stream, ect1, "socket.ecn", "use udp_stream"),
            (Transport::Tcp, Pattern::Connect, yes, "socket.ecn", "closed again"),
            (Transport::Udp, Pattern::RequestResponse, yes, "socket.ecn", "use udp_stream"),
            (Transport::Udp, Pattern::RequestResponse, None, "remote_socket.ecn", "use udp_stream"),
        ] {
            let (at, reason) = with(transport, pattern, near, yes).unwrap_err();
            assert!(at == key && reason.contains(word), "{at}: {reason}");
        }
    }
}
