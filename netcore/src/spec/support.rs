//! Refuses combinations of pattern, transport, io, direction and options that the engines cannot run, with a sentence.
//!
//! The plan's check and the daemon's admission both call [`check`]: the engines can run every test that passes.

mod rules;

use super::{
    Arrival, Close, Dialect, Direction, Io, PaceMode, Pattern, Receive, Reuseport, Side, Stop, TestSpec, Transport,
    ends, key, memory, quic, segments, tls,
};
use rules::{constant, datagrams, discard, messages, pipes};

pub use super::key::Unsupported;
pub(crate) use super::key::refuse_if;

pub fn check(spec: &TestSpec) -> Result<(), Unsupported> {
    let (transport, io) = (spec.transport.name(), spec.io.name());
    let methods = spec.transport.methods(spec.pattern);
    refuse_if! { methods.is_empty() => key::workload, "this pattern over {transport} is not available yet"; }
    sizes(spec)?;
    memory::check(spec)?;
    ends::check_threads(spec)?;
    // A thread of several flows must not block in a call.
    let in_turn = spec.io == Io::Nonblocking && spec.shares_threads();
    let known = || methods.iter().map(|io| io.name()).collect::<Vec<_>>().join(", ");
    refuse_if! {
        spec.transport == Transport::Sctp && matches!(spec.io, Io::Nonblocking | Io::Spin) =>
            key::io, "{}: leave `io` out, or `blocking`", ends::NO_END_OF_SCTP;
        spec.io != Io::Auto && !in_turn && !methods.contains(&spec.io) =>
            key::io, "io: {io} does not run this workload: leave `io` out, or write {}", known();
    }
    let dirty = spec.near.buffers.dirty > 0 || spec.far.buffers.dirty > 0;
    refuse_if! {
        spec.integrity && spec.pattern == Pattern::Connect =>
            key::integrity, "integrity: these connections carry no bytes to check; choose a workload that ends in _crr";
        spec.integrity && dirty =>
            key::integrity, "integrity: the receiver does not expect the bytes that `dirty` writes before each send";
    }
    if spec.receive == Receive::Discard {
        discard(spec)?;
    }
    constant(spec)?;
    if spec.is_alone() {
        alone(spec)?;
    }
    let stream = spec.pattern == Pattern::Stream;
    refuse_if! {
        spec.hops && !spec.transport.uses_ip() =>
            key::hops, "hops: {transport} has no hops, only IP has";
        spec.hops && spec.dialect.is_foreign() =>
            key::hops, "hops: the program at the far end begins when it is connected, and leaves no time to probe the idle path";
        !spec.connected && !matches!(spec.transport, Transport::Udp | Transport::UdpLite) =>
            key::connected, "connected: false is for udp and udplite, not for {transport}";
        spec.coalesce && (touches(&spec.near) || touches(&spec.far)) =>
            key::buffers, "`coalesce` sends many requests from one buffer: leave out ring, dirty and clean";
        !stream && spec.direction != Direction::Forward =>
            key::direction, "requests go from the near end to the far end: exchange `from` and `to` instead";
        spec.phases.cooldown_ns > 0 && !matches!(spec.phases.stop, Stop::AfterNs(_)) =>
            key::cooldown, "a cool-down needs `duration`: after a count of bytes or transactions the load is over";
        matches!(spec.phases.stop, Stop::AfterTransactions(_)) && stream =>
            key::transactions, "a stream has no transactions: stop it by `duration` or `bytes`";
        matches!(spec.phases.stop, Stop::AfterBytes(_)) && !stream =>
            key::bytes, "requests and connections are counted by `transactions`, not by `bytes`";
        spec.pattern.is_connecting() && spec.inflight != 1 =>
            key::inflight, "a connection test has one connection at a time and stream: use `streams` instead";
    }
    if spec.pattern == Pattern::Connect {
        dataless(spec)?;
    }
    refuse_if! {
        spec.opens_sockets() && spec.near.port_count.is_some() && spec.near.port.is_none() =>
            key::port_count, "a range of local ports needs its first one: `port`";
        // The kernel silently truncates a packet that does not fit the receive call; for MPI that is an error.
        spec.transport.has_messages() && stream && spec.sizes.receive_bytes < spec.sizes.message_bytes =>
            key::receive_size, "over {transport} messages are received whole: receive_size must not be less than message_size";
    }
    if let Some(reuseport) = spec.far.socket.reuseport {
        shared_port(spec, reuseport)?;
    }
    ports(spec)?;
    if spec.transport.is_datagram() {
        datagrams(spec)?;
    }
    if spec.transport == Transport::Pipe {
        pipes(spec)?;
    }
    if spec.transport == Transport::Mpi {
        messages(spec)?;
    }
    segments::check(spec)?;
    tls::check(spec)?;
    quic::check(spec)?;
    rules::ecn(spec)?;
    if let Dialect::Stamp { authenticated } = spec.dialect {
        rules::reflected(spec, authenticated)?;
    }
    if spec.one_way || spec.kernel_times {
        rules::one_way(spec)?;
    }
    if spec.outage_ns > 0 {
        rules::outage(spec)?;
    }
    pace(spec)
}

/// Ports are counted up from the first: none may be beyond the last.
fn ports(spec: &TestSpec) -> Result<(), Unsupported> {
    let connecting = spec.opens_sockets();
    let near = if connecting { spec.near.port_count.map_or(1, u32::from) } else { spec.flows() };
    let each_listens = connecting && spec.reuseport().is_none();
    let far = if each_listens || spec.transport.is_datagram() { spec.flows() } else { 1 };
    let last = |first: Option<u16>, count: u32| u32::from(first.unwrap_or(0)).saturating_add(count.saturating_sub(1));
    let (last_near, last_far) = (last(spec.near.port, near), last(spec.far.port, far));
    refuse_if! {
        spec.near.port.is_some() && last_near > 65535 => key::port,
            "the near end takes {near} ports, and the last one would be {last_near}: begin at {} or below", 65536 - near.min(65535);
        spec.far.port.is_some() && last_far > 65535 => key::remote_ports,
            "the far end takes {far} ports, and the last one would be {last_far}: begin at {} or below", 65536 - far.min(65535);
    }
    Ok(())
}

/// Rules of listening sockets that share one port.
fn shared_port(spec: &TestSpec, reuseport: Reuseport) -> Result<(), Unsupported> {
    let key = if spec.near.socket.reuseport.is_some() { "socket.reuseport" } else { "remote_socket.reuseport" };
    let cpus = spec.far.cpus.as_ref().map_or(u32::MAX, |cpus| u32::try_from(cpus.0.len()).unwrap_or(u32::MAX));
    refuse_if! {
        !spec.pattern.is_connecting() || spec.transport != Transport::Tcp => key,
            "reuseport spreads the connections of tcp_cc and tcp_crr over listeners of one port; other workloads have one \
             connection or socket per stream";
        !spec.has_daemon() => key,
            "reuseport is about the listeners of plumb serve, and the far end of this test is another program";
        reuseport == Reuseport::Cpu && spec.shares_threads() => key,
            "reuseport: cpu gives each listener's thread the connections of its CPU: leave `threads` out, or write hash";
        reuseport == Reuseport::Cpu && spec.flows() > cpus => key,
            "reuseport: cpu steers to one listener for each CPU, and remote_cpu has {cpus} for {} streams: lower \
             `streams`, or write hash", spec.flows();
    }
    Ok(())
}

/// Whether an end does more with its buffers than send from them.
fn touches(end: &super::EndSpec) -> bool {
    end.buffers.ring > 1 || end.buffers.dirty > 0 || end.buffers.clean > 0
}

/// Rules of connections that carry no data.
fn dataless(spec: &TestSpec) -> Result<(), Unsupported> {
    let (near, far) = (&spec.near.socket, &spec.far.socket);
    let deferred = if near.defer_accept.is_some() { "socket.defer_accept" } else { "remote_socket.defer_accept" };
    refuse_if! {
        near.fastopen == Some(true) => "socket.fastopen",
            "Fast Open sends data in the first packet, and these connections carry none: use tcp_crr";
        far.defer_accept.is_some() && spec.close != Close::NearFirst => deferred,
            "defer_accept waits for data before it accepts, and these connections carry none: use tcp_crr";
    }
    Ok(())
}

/// Rules of a far end that is a plain service.
fn alone(spec: &TestSpec) -> Result<(), Unsupported> {
    if spec.transport == Transport::Icmp {
        // The kernel of any host answers.
        return Ok(());
    }
    let (tcp, udp) = (spec.transport == Transport::Tcp, spec.transport == Transport::Udp);
    let reverse = spec.direction == Direction::Reverse;
    let echoed = matches!(spec.pattern, Pattern::RequestResponse | Pattern::ConnectRequestResponse);
    refuse_if! {
        !tcp && !udp => key::control,
            "control: none is for ping and for services over TCP and UDP, not over {}", spec.transport.name();
        spec.far.port.is_none() && !spec.is_reflected() => key::control,
            "control: none needs the port of the service: remote_ports (7 echoes, 9 discards, 19 generates characters)";
        matches!(spec.direction, Direction::Bidirectional | Direction::Duplex) => key::direction,
            "with control: none only the near end reports: what arrives at the far end is unknown";
        reverse && udp => key::direction, "a service sends one datagram for each that it receives: use udp_rr";
        reverse && spec.integrity => key::integrity,
            "with control: none the receiver does not know what the service sends";
        reverse && !matches!(spec.phases.stop, Stop::AfterNs(_)) => key::bytes,
            "with control: none the receiver cannot tell the sender to stop: use `duration`";
        spec.pattern.is_connecting() && spec.close == Close::FarFirst => key::close,
            "a service waits for the near end to close: `close: near_first` or `reset`";
        echoed && tcp && spec.sizes.request_bytes != spec.sizes.response_bytes => key::response_size,
            "an echo is as long as its request: response_size must equal request_size";
    }
    Ok(())
}

/// Counts and sizes must be at least 1.
fn sizes(spec: &TestSpec) -> Result<(), Unsupported> {
    let sizes = &spec.sizes;
    let stream = spec.pattern == Pattern::Stream;
    let data = matches!(spec.pattern, Pattern::RequestResponse | Pattern::ConnectRequestResponse);
    let zero = [
        (key::streams, spec.streams == 0),
        (key::inflight, spec.inflight == 0),
        (key::message_size, stream && sizes.message_bytes == 0),
        (key::receive_size, stream && sizes.receive_bytes == 0),
        (key::request_size, data && sizes.request_bytes == 0),
        (key::response_size, data && sizes.response_bytes == 0),
    ];
    for (key, is_zero) in zero {
        refuse_if! { is_zero => key, "{key}: at least 1"; }
    }
    Ok(())
}

/// Rules of an offered rate.
fn pace(spec: &TestSpec) -> Result<(), Unsupported> {
    let Some(pace) = spec.pace else { return Ok(()) };
    let requests = spec.pattern != Pattern::Stream;
    let user = pace.mode == PaceMode::User;
    let kernel = pace.mode == PaceMode::Kernel;
    let udp = matches!(spec.transport, Transport::Udp | Transport::UdpLite);
    refuse_if! {
        !(pace.events_per_s.is_finite() && pace.events_per_s > 0.0) => key::rate, "the rate must be a positive number";
        requests && !user => key::pacing, "requests are paced by the requester: `mode: user`";
        requests && pace.burst > 1 => key::pacing, "requests come one at a time: a burst is for streams";
        requests && spec.coalesce => key::coalesce,
            "requests that wait for their due times cannot share a call: leave out `rate` or `coalesce`";
        !user && pace.burst > 1 => key::pacing, "the kernel spreads messages out: a burst needs `mode: user`";
        kernel && pace.arrival != Arrival::Closed => key::arrival,
            "the kernel paces evenly by itself: for an arrival use `mode: user` or `txtime`";
        // The queueing discipline for UDP is checked once the flows exist.
        kernel && !spec.transport.is_tcp() && !udp => key::pacing,
            "the kernel paces TCP and UDP; for other transports use `mode: user`";
        pace.mode == PaceMode::Txtime && !udp => key::pacing, "SO_TXTIME is for UDP: use `mode: kernel` or `user`";
    }
    Ok(())
}

/// Whether only its peer can tell an end, over the control connection, that a counted test is over. An early stop is then
/// the ordinary end of its measurement.
pub fn learns_its_end(spec: &TestSpec, side: Side) -> bool {
    let counted = !matches!(spec.phases.stop, Stop::AfterNs(_));
    let connectionless = spec.transport.is_datagram();
    let only_answers = (spec.pattern.is_connecting() || spec.pattern == Pattern::Ping) && side == Side::Far;
    counted && (connectionless || only_answers)
}

/// Whether both ends send datagrams up to a count. Each then reports when it has sent its own; once both have, both are
/// told to end.
pub fn ends_by_word(spec: &TestSpec) -> bool {
    spec.pattern == Pattern::Stream
        && spec.direction == Direction::Bidirectional
        && spec.transport.is_datagram()
        && !matches!(spec.phases.stop, Stop::AfterNs(_))
}

/// Keys that are set and mean nothing to the workload, by their names in plans. They are noted and accepted, since `defaults`
/// serve many workloads. A key set to its default looks like an absent key.
pub fn unused(spec: &TestSpec) -> Vec<&'static str> {
    let default = TestSpec::new(spec.pattern, spec.transport);
    let (now, then) = (&spec.sizes, &default.sizes);
    let stream = spec.pattern == Pattern::Stream;
    let exchange = matches!(spec.pattern, Pattern::RequestResponse | Pattern::ConnectRequestResponse);
    let answers_may_be_lost = spec.transport.is_datagram() && !stream;
    let ports = spec.transport.uses_ip() && spec.transport != Transport::Icmp;
    let remote_ports = ports || spec.transport == Transport::Vsock;
    [
        (key::message_size, now.message_bytes != then.message_bytes && !stream && spec.pattern != Pattern::Ping),
        (key::receive_size, now.receive_bytes > then.receive_bytes.max(now.message_bytes) && !stream),
        (key::request_size, now.request_bytes != then.request_bytes && !exchange),
        (key::response_size, now.response_bytes != then.response_bytes && !exchange),
        (
            key::inflight,
            spec.inflight != default.inflight
                && stream
                && !(spec.has_window() && spec.resolved_io() == Io::Nonblocking),
        ),
        (key::coalesce, spec.coalesce && spec.pattern != Pattern::RequestResponse),
        (key::close, spec.close != default.close && !spec.opens_sockets()),
        (key::reply_timeout, spec.reply_timeout_ns != default.reply_timeout_ns && !answers_may_be_lost),
        (key::payload, spec.payload != default.payload && spec.pattern == Pattern::Connect),
        (key::ports, spec.near.port.is_some() && !ports),
        (key::remote_ports, spec.far.port.is_some() && !remote_ports),
    ]
    .into_iter()
    .chain(segments::is_unused(spec))
    .filter_map(|(key, is_unused)| is_unused.then_some(key))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{Close, Dialect, Pace, quantity::Seconds};

    #[track_caller]
    fn refused(spec: &TestSpec, key: &str) {
        let error = check(spec).unwrap_err();
        assert_eq!(error.key, key, "{error}");
    }

    #[test]
    fn over_mpi_one_thread_takes_whole_messages() {
        let good = TestSpec::new(Pattern::Stream, Transport::Mpi);
        check(&good).unwrap();
        for (key, change) in [
            ("threads", (|spec| spec.threads = Some(2)) as fn(&mut TestSpec)),
            ("receive_size", |spec| spec.sizes.message_bytes = spec.sizes.receive_bytes + 1),
            ("io", |spec| (spec.streams, spec.io) = (2, Io::Blocking)),
        ] {
            let mut spec = good.clone();
            change(&mut spec);
            refused(&spec, key);
        }
    }

    #[test]
    fn nothing_of_anything_is_refused() {
        let good = TestSpec::new(Pattern::Stream, Transport::Udp);
        check(&good).unwrap();
        for (key, change) in [
            ("streams", (|spec| spec.streams = 0) as fn(&mut TestSpec)),
            ("inflight", |spec| spec.inflight = 0),
            ("message_size", |spec| spec.sizes.message_bytes = 0),
            ("receive_size", |spec| spec.sizes.receive_bytes = 0),
            ("threads", |spec| spec.threads = Some(0)),
        ] {
            let mut spec = good.clone();
            change(&mut spec);
            refused(&spec, key);
        }
        let mut spec = TestSpec::new(Pattern::RequestResponse, Transport::Tcp);
        spec.sizes.message_bytes = 0;
        check(&spec).unwrap();
        spec.sizes.response_bytes = 0;
        refused(&spec, "response_size");
        let mut spec = TestSpec::new(Pattern::Ping, Transport::Icmp);
        spec.sizes.message_bytes = 0;
        check(&spec).unwrap();
    }

    #[test]
    fn a_service_does_only_what_services_do() {
        let mut spec = TestSpec::new(Pattern::Stream, Transport::Tcp);
        spec.dialect = Dialect::Service;
        refused(&spec, "control");
        spec.connected = false;
        spec.dialect = Dialect::Plumb;
        refused(&spec, "connected");
        (spec.connected, spec.dialect) = (true, Dialect::Service);
        spec.far.port = Some(9);
        check(&spec).unwrap();
        spec.direction = Direction::Duplex;
        refused(&spec, "direction");
        spec.direction = Direction::Reverse;
        check(&spec).unwrap();
        spec.phases.stop = Stop::AfterBytes(1);
        refused(&spec, "bytes");
        let mut spec = TestSpec::new(Pattern::ConnectRequestResponse, Transport::Tcp);
        (spec.dialect, spec.far.port) = (Dialect::Service, Some(7));
        refused(&spec, "close");
        spec.close = Close::NearFirst;
        check(&spec).unwrap();
        spec.sizes.response_bytes = 2;
        refused(&spec, "response_size");
        spec.transport = Transport::UnixStream;
        refused(&spec, "control");
        let mut ping = TestSpec::new(Pattern::Ping, Transport::Icmp);
        ping.dialect = Dialect::Service;
        check(&ping).unwrap();
    }

    #[test]
    fn connections_without_data_do_not_wait_for_some() {
        let mut spec = TestSpec::new(Pattern::Connect, Transport::Tcp);
        spec.near.socket.fastopen = Some(true);
        refused(&spec, "socket.fastopen");
        spec.near.socket.fastopen = None;
        spec.far.socket.defer_accept = Some(Seconds(1));
        refused(&spec, "remote_socket.defer_accept");
        spec.near.socket.defer_accept = Some(Seconds(1));
        refused(&spec, "socket.defer_accept");
        spec.close = Close::NearFirst;
        check(&spec).unwrap();
        (spec.pattern, spec.close) = (Pattern::ConnectRequestResponse, Close::FarFirst);
        spec.near.socket.fastopen = Some(true);
        check(&spec).unwrap();
    }

    #[test]
    fn only_bytes_that_the_receiver_knows_can_be_checked() {
        let mut spec = TestSpec::new(Pattern::Connect, Transport::Tcp);
        spec.integrity = true;
        refused(&spec, "integrity");
        spec.pattern = Pattern::ConnectRequestResponse;
        check(&spec).unwrap();
        spec.far.buffers.dirty = 1;
        refused(&spec, "integrity");
        // A datagram of a ring is known by its number.
        let mut spec = TestSpec::new(Pattern::Stream, Transport::Udp);
        (spec.integrity, spec.near.buffers.ring, spec.sizes.message_bytes) = (true, 2, 8);
        check(&spec).unwrap();
        spec.sizes.message_bytes = 7;
        refused(&spec, "integrity");
        spec.direction = Direction::Reverse;
        check(&spec).unwrap();
        // A short request has a short number.
        (spec.pattern, spec.direction) = (Pattern::RequestResponse, Direction::Forward);
        check(&spec).unwrap();
        (spec.sizes.request_bytes, spec.sizes.response_bytes) = (8, 8);
        check(&spec).unwrap();
    }

    #[test]
    fn rates_that_cannot_be_kept_are_refused() {
        let mut spec = TestSpec::new(Pattern::RequestResponse, Transport::Tcp);
        let pace = Pace { events_per_s: 10.0, mode: PaceMode::User, arrival: Arrival::Poisson, burst: 1, catch_up: 0 };
        spec.pace = Some(pace);
        check(&spec).unwrap();
        spec.pace = Some(Pace { burst: 2, ..pace });
        refused(&spec, "pacing");
        spec.pace = Some(Pace { mode: PaceMode::Kernel, ..pace });
        refused(&spec, "pacing");
        spec.pattern = Pattern::Stream;
        refused(&spec, "arrival");
        spec.pace = Some(Pace { mode: PaceMode::Txtime, ..pace });
        refused(&spec, "pacing");
        let mut datagrams = TestSpec::new(Pattern::Stream, Transport::Udp);
        datagrams.pace = spec.pace;
        check(&datagrams).unwrap();
        datagrams.pace = Some(Pace { mode: PaceMode::Txtime, burst: 2, ..pace });
        refused(&datagrams, "pacing");
        for events_per_s in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            spec.pace = Some(Pace { events_per_s, ..pace });
            refused(&spec, "rate");
        }
    }

    #[test]
    fn who_learns_of_the_end_from_the_peer() {
        let mut spec = TestSpec::new(Pattern::Stream, Transport::Udp);
        assert!(!learns_its_end(&spec, Side::Far), "by its own schedule");
        spec.phases.stop = Stop::AfterBytes(1);
        assert!(learns_its_end(&spec, Side::Far));
        spec.transport = Transport::Tcp;
        assert!(!learns_its_end(&spec, Side::Far), "by the end of the stream");
        let mut spec = TestSpec::new(Pattern::Connect, Transport::Tcp);
        spec.phases.stop = Stop::AfterTransactions(1);
        assert!(learns_its_end(&spec, Side::Far) && !learns_its_end(&spec, Side::Near));
    }

    #[test]
    fn defaults_for_many_workloads_are_told_where_they_do_nothing() {
        let mut spec = TestSpec::new(Pattern::Stream, Transport::Tcp);
        assert!(unused(&spec).is_empty());
        (spec.inflight, spec.close, spec.reply_timeout_ns, spec.near.port) = (4, Close::Reset, 1, Some(5000));
        (spec.sizes.request_bytes, spec.sizes.message_bytes) = (10, 10);
        assert_eq!(unused(&spec), ["request_size", "inflight", "close", "reply_timeout"]);
        (spec.pattern, spec.transport, spec.sizes.receive_bytes) =
            (Pattern::RequestResponse, Transport::UnixDatagram, 1472);
        assert_eq!(unused(&spec), ["message_size", "close", "ports"]);
        (spec.pattern, spec.transport) = (Pattern::ConnectRequestResponse, Transport::Tcp);
        assert_eq!(unused(&spec), ["message_size", "reply_timeout"]);
    }
}
