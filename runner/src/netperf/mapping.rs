//! A request as the engine's test, with the sizes that netperf takes from a socket of the test before it begins.

use std::{os::fd::OwnedFd, time::Duration};

use netcore::{
    measure::clock::nanoseconds,
    spec::{
        Arrival, Bytes, Close, Cpus, Dialect, Dscp, EndSpec, Family, Io, LONGEST_DATAGRAM, Pace, PaceMode, Pattern,
        Payload, Stop, TestSpec, Transport, key,
        quantity::{Bytes32, Seconds},
        socket::MtuDiscover,
    },
};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockProtocol, SockType, getsockopt, setsockopt, socket,
    sockopt::{RcvBuf, SndBuf},
};

use super::{
    globals::Length,
    kind::{Calls, Shape},
    request::Request,
    words::Pair,
};

/// A test that is to run until it is stopped ends after this long.
const LONGEST: Duration = Duration::from_hours(24);

/// Options of the command line by the keys with which the engine refuses a test.
const KEYS: &[(&str, &str)] = &[
    (key::workload, "-t"),
    (key::direction, "-d"),
    (key::duration, "-l"),
    (key::bytes, "-l"),
    (key::transactions, "-l"),
    (key::message_size, "-m"),
    (key::receive_size, "-M"),
    (key::request_size, "-r"),
    (key::response_size, "-r"),
    (key::inflight, "-b"),
    (key::rate, "-q"),
    (key::pacing, "-q"),
    (key::payload, "-F"),
    (key::port, "-P"),
    (key::port_count, "-p"),
    (key::remote_ports, "-P"),
    (key::remote_cpu, "-T"),
    ("cpu", "-T"),
    (key::buffers, "-W"),
    (key::integrity, "-F"),
];

/// The same for keys of socket options, at either end.
const SOCKET_KEYS: &[(&str, &str)] = &[
    ("congestion_control", "-K"),
    ("cork", "-C"),
    ("mss", "-G"),
    ("ttl", "-l after --"),
    ("mtu_discover", "-f after --"),
    ("fastopen", "-F after --"),
    ("defer_accept", "-a after --"),
    ("dscp", "-Y"),
    ("priority", "-y"),
    ("send_buffer", "-s, -S"),
    ("receive_buffer", "-s, -S"),
    ("no_delay", "-D after --"),
    ("keepalive", "-S"),
    ("dont_route", "-R"),
];

/// The command line's option for a key of a test.
pub fn option_of(key: &str) -> Option<&'static str> {
    let (table, name) = match key.split_once('.') {
        Some((_, name)) => (SOCKET_KEYS, name),
        None => (KEYS, key),
    };
    table.iter().find(|(known, _)| *known == name).map(|(_, option)| *option)
}

/// Makes the test. An error names the option.
pub fn test_spec(request: &Request, defaults: DefaultSizes) -> Result<TestSpec, String> {
    let Request { globals, specifics, shape, .. } = request;
    refused(request)?;
    let mut spec = TestSpec::new(pattern(*shape), shape.transport);
    spec.dialect = Dialect::Netperf;
    spec.family = specifics.family.unwrap_or(Family::Any);
    spec.io = match request.test() {
        Some(test) if test.sends_file => Io::Sendfile,
        // A call per datagram: the latency of a call with many would be another figure.
        _ if shape.transport.is_datagram() && request.wants_latency => Io::Blocking,
        _ => Io::Auto,
    };
    sizes(request, defaults, &mut spec);
    if shape.calls == Calls::RECEIVE && !shape.has_transactions() {
        spec.direction = netcore::spec::Direction::Reverse;
    }
    if shape.calls == Calls::BOTH && !shape.connects {
        spec.inflight = specifics.burst.saturating_add(1);
    }
    spec.phases.stop = match globals.length {
        Length::Time(Duration::ZERO) => Stop::AfterNs(nanoseconds(LONGEST)),
        Length::Time(time) => Stop::AfterNs(nanoseconds(time)),
        Length::Count(count) if shape.has_transactions() => Stop::AfterTransactions(count),
        Length::Count(count) => Stop::AfterBytes(count),
    };
    spec.phases.interval_ns = nanoseconds(globals.interim);
    spec.collect.cpu = globals.local_cpu || globals.remote_cpu;
    spec.collect.tcp_info = shape.transport == Transport::Tcp;
    spec.collect.latency = request.wants_latency;
    if let Some(time) = specifics.timeout {
        spec.reply_timeout_ns = nanoseconds(time);
    }
    if specifics.pacing_rate > 0 {
        let events_per_s = specifics.pacing_rate as f64 / spec.sizes.message_bytes.max(1) as f64;
        let mode = PaceMode::Kernel;
        spec.pace = Some(Pace { events_per_s, mode, arrival: Arrival::Closed, burst: 1, catch_up: 0 });
    }
    if let Some(path) = &globals.fill.local {
        match path.as_str() {
            // The engine fills its buffers once, with bytes of its own.
            "/dev/urandom" | "/dev/random" => spec.payload = Payload::Random,
            "/dev/zero" => spec.payload = Payload::Zero,
            path => spec.near.buffers.fill_file = Some(path.into()),
        }
    }
    ends(request, &mut spec)?;
    if globals.no_control {
        service(*shape, &mut spec);
    }
    Ok(spec)
}

/// Without a control connection the far end is a service of inetd: one that discards, generates characters or echoes.
fn service(shape: Shape, spec: &mut TestSpec) {
    spec.dialect = Dialect::Service;
    spec.far.port = spec.far.port.or(Some(service_port(shape)));
    // An echo is as long as its request, and the service waits for the near end to close.
    spec.sizes.response_bytes = spec.sizes.request_bytes;
    spec.close = Close::NearFirst;
}

/// The well-known port of the service for a test (RFC 862 to 864).
pub fn service_port(shape: Shape) -> u16 {
    match shape.calls {
        Calls::SEND => 9,
        Calls::RECEIVE => 19,
        _ => 7,
    }
}

/// Options that have no counterpart.
fn refused(request: &Request) -> Result<(), String> {
    let Request { globals, shape, .. } = request;
    for (is_asked, why) in [
        (
            globals.local_port.is_some(),
            "-p: the local port of the control connection cannot be chosen: leave out the second value",
        ),
        (
            globals.fill.remote.is_some(),
            "-F: only this end's buffers can be filled from a file: leave out the second value",
        ),
        (
            shape.connects && !matches!(shape.calls, Calls::BOTH | Calls::NONE),
            "-c: a connection test has no direction, or both: leave out -d, or write -d rr",
        ),
    ] {
        if is_asked {
            return Err(why.to_owned());
        }
    }
    Ok(())
}

fn pattern(shape: Shape) -> Pattern {
    match (shape.connects, shape.calls) {
        (true, Calls::NONE) => Pattern::Connect,
        (true, _) => Pattern::ConnectRequestResponse,
        (false, Calls::BOTH) => Pattern::RequestResponse,
        (false, _) => Pattern::Stream,
    }
}

/// Sizes by default are those of netperf: a stream's calls are as long as the sender's and the receiver's socket buffer.
fn sizes(request: &Request, defaults: DefaultSizes, spec: &mut TestSpec) {
    let Request { specifics, shape, .. } = request;
    let (send, receive) = (specifics.send_size, specifics.receive_size);
    // -m and -M name the end; the test has one sender and one receiver.
    let (send, receive) =
        if shape.calls == Calls::RECEIVE { (send.remote, receive.local) } else { (send.local, receive.remote) };
    let longest = if shape.transport.is_datagram() { LONGEST_DATAGRAM } else { u64::MAX };
    spec.sizes.message_bytes = send.unwrap_or(defaults.send_buffer.min(longest));
    spec.sizes.receive_bytes = receive.unwrap_or(defaults.receive_buffer).max(1);
    spec.sizes.request_bytes = specifics.exchange.local.unwrap_or(1);
    spec.sizes.response_bytes = specifics.exchange.remote.unwrap_or(1);
}

fn ends(request: &Request, spec: &mut TestSpec) -> Result<(), String> {
    let Request { globals, specifics, shape, .. } = request;
    let bytes = |size: Option<u64>| size.map(Bytes);
    let (near, far) = (&mut spec.near, &mut spec.far);
    (near.socket.send_buffer, near.socket.receive_buffer) =
        (bytes(specifics.local_buffers.local), bytes(specifics.local_buffers.remote));
    (far.socket.send_buffer, far.socket.receive_buffer) =
        (bytes(specifics.remote_buffers.local), bytes(specifics.remote_buffers.remote));
    let delays = shape.transport.is_tcp() || shape.transport == Transport::Sctp;
    for (end, service, priority, cpu) in [
        (&mut *near, globals.service.local, globals.priority.local, globals.cpu.local),
        (&mut *far, globals.service.remote, globals.priority.remote, globals.cpu.remote),
    ] {
        let EndSpec { socket, cpus, .. } = end;
        socket.dscp = service.map(code_point).transpose()?;
        socket.priority = priority;
        socket.no_delay = (specifics.no_delay && delays).then_some(true);
        socket.keepalive = globals.keepalive.then_some(true);
        socket.fastopen = (specifics.fast_open && shape.transport.is_tcp()).then_some(true);
        *cpus = cpu.map(|cpu| Cpus(vec![cpu]));
    }
    near.socket.cork = specifics.cork.then_some(true);
    near.socket.congestion_control.clone_from(&specifics.congestion_control.local);
    // netperf does not send shorter names.
    far.socket.congestion_control = specifics.congestion_control.remote.clone().filter(|name| name.len() >= 3);
    near.socket.mss = specifics.mss.map(|mss| Bytes32(u32::try_from(mss).unwrap_or(u32::MAX)));
    near.socket.ttl = specifics.ttl;
    near.socket.mtu_discover = specifics.discovers_mtu.then_some(MtuDiscover::Do);
    far.socket.defer_accept = specifics.defers_accept.then_some(Seconds(5));
    // By default a UDP stream must not leave the local network: nothing slows it down.
    let one_way_datagrams = shape.transport == Transport::Udp && !shape.has_transactions();
    near.socket.dont_route = (!specifics.routing.unwrap_or(!one_way_datagrams)).then_some(true);
    near.buffers.alignment = globals.alignment.local;
    near.buffers.offset = globals.offset.local.unwrap_or(0);
    let ring = specifics.ring.or(if shape.calls == Calls::RECEIVE { globals.ring.remote } else { globals.ring.local });
    near.buffers.ring = ring.map_or(1, |ring| u32::try_from(ring).unwrap_or(u32::MAX)).max(1);
    near.port = specifics.ports.local.filter(|port| *port > 0);
    far.port = specifics.ports.remote.filter(|port| *port > 0);
    if let (true, Some(first)) = (shape.connects, specifics.port_range.local) {
        let last = specifics.port_range.remote.unwrap_or(u16::MAX);
        let count = last.checked_sub(first).filter(|count| *count > 0);
        near.port = Some(first);
        near.port_count = Some(count.ok_or_else(|| format!("-p: {first} is not before {last}"))?);
    }
    Ok(())
}

/// The six bits that belong to the sender; the other two belong to ECN.
fn code_point(service: u8) -> Result<Dscp, String> {
    match service & 3 {
        0 => Ok(Dscp(service >> 2)),
        _ => Err(format!("-Y: 0x{service:02x} sets bits of ECN, which belong to the kernel: use a multiple of 4")),
    }
}

/// netperf's sizes where the kernel tells none, bytes.
const UNKNOWN: u64 = 4096;

/// Socket buffers as the kernel reports them. A stream's calls are as long by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DefaultSizes {
    pub send_buffer: u64,
    pub receive_buffer: u64,
}

impl DefaultSizes {
    /// Sizes of a new socket with the buffers that were asked for.
    pub fn of(transport: Transport, asked: Pair<u64>) -> Self {
        let Some(socket) = opened(transport) else { return Self { send_buffer: UNKNOWN, receive_buffer: UNKNOWN } };
        let wanted = |size: u64| usize::try_from(size).unwrap_or(usize::MAX).min(i32::MAX as usize);
        // A refusal is told when the test sets them.
        if let Some(size) = asked.local {
            let _ = setsockopt(&socket, SndBuf, &wanted(size));
        }
        if let Some(size) = asked.remote {
            let _ = setsockopt(&socket, RcvBuf, &wanted(size));
        }
        let size = |read: nix::Result<usize>| read.ok().filter(|size| *size > 0).map_or(UNKNOWN, |size| size as u64);
        Self { send_buffer: size(getsockopt(&socket, SndBuf)), receive_buffer: size(getsockopt(&socket, RcvBuf)) }
    }
}

fn opened(transport: Transport) -> Option<OwnedFd> {
    let kind = if transport.is_datagram() { SockType::Datagram } else { SockType::Stream };
    let protocol = match transport {
        Transport::Tcp => Some(SockProtocol::Tcp),
        Transport::Udp => Some(SockProtocol::Udp),
        _ => None,
    };
    socket(AddressFamily::Inet, kind, SockFlag::SOCK_CLOEXEC, protocol).ok()
}

#[cfg(test)]
mod tests {
    use netcore::spec::Direction;

    use super::*;

    const DEFAULTS: DefaultSizes = DefaultSizes { send_buffer: 16_384, receive_buffer: 131_072 };

    fn spec(line: &str) -> Result<TestSpec, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        test_spec(&Request::parse("netperf", &words).unwrap(), DEFAULTS)
    }

    #[test]
    fn tests_become_patterns() {
        for (line, pattern, transport, direction) in [
            ("", Pattern::Stream, Transport::Tcp, Direction::Forward),
            ("-t tcp_maerts", Pattern::Stream, Transport::Tcp, Direction::Reverse),
            ("-t tcp_rr", Pattern::RequestResponse, Transport::Tcp, Direction::Forward),
            ("-t tcp_crr", Pattern::ConnectRequestResponse, Transport::Tcp, Direction::Forward),
            ("-t tcp_cc", Pattern::Connect, Transport::Tcp, Direction::Forward),
            ("-t udp_stream", Pattern::Stream, Transport::Udp, Direction::Forward),
            ("-t udp_rr", Pattern::RequestResponse, Transport::Udp, Direction::Forward),
            ("-t sctp_rr", Pattern::RequestResponse, Transport::Sctp, Direction::Forward),
            ("-t omni -- -T udp -d rr", Pattern::RequestResponse, Transport::Udp, Direction::Forward),
            ("-t omni -- -c -d 0", Pattern::Connect, Transport::Tcp, Direction::Forward),
        ] {
            let spec = spec(line).unwrap();
            assert_eq!((spec.pattern, spec.transport, spec.direction), (pattern, transport, direction), "{line}");
            netcore::spec::support::check(&spec).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
        assert_eq!(spec("-t tcp_sendfile").unwrap().io, Io::Sendfile);
        assert_eq!((spec("-t udp_stream").unwrap().io, spec("-j -t udp_stream").unwrap().io), (Io::Auto, Io::Blocking));
    }

    #[test]
    fn sizes_follow_the_end_that_uses_them() {
        let sizes = |line: &str| {
            let sizes = spec(line).unwrap().sizes;
            (sizes.message_bytes, sizes.receive_bytes)
        };
        assert_eq!(sizes(""), (16_384, 131_072));
        assert_eq!(sizes("-- -m 1K,2K -M 3K,4K"), (1024, 3072));
        assert_eq!(sizes("-t tcp_maerts -- -m 1K,2K -M 3K,4K"), (2048, 4096));
        let words: Vec<String> = ["-t", "udp_stream"].map(str::to_owned).into();
        let defaults = DefaultSizes { send_buffer: 212_992, receive_buffer: 212_992 };
        let spec = test_spec(&Request::parse("netperf", &words).unwrap(), defaults).unwrap();
        assert_eq!(spec.sizes.message_bytes, LONGEST_DATAGRAM);
    }

    #[test]
    fn lengths_are_times_and_counts() {
        let stop = |line: &str| spec(line).unwrap().phases.stop;
        assert_eq!(stop("-l 5"), Stop::AfterNs(5_000_000_000));
        assert_eq!(stop("-l 0"), Stop::AfterNs(86_400_000_000_000));
        assert_eq!(stop("-l -1000"), Stop::AfterBytes(1000));
        assert_eq!(stop("-l -1000 -t tcp_crr"), Stop::AfterTransactions(1000));
        assert_eq!(spec("-D -0.20").unwrap().phases.interval_ns, 200_000_000);
        assert_eq!(spec("").unwrap().phases.interval_ns, 0);
    }

    #[test]
    fn options_reach_both_ends() {
        let both = spec("-Y 0xb8,0x28 -y 3 -T ,1 -S -- -D -K reno,cubic -s 8K,9K -S 10K -P 4000,5000 -C").unwrap();
        assert_eq!((both.near.socket.dscp, both.far.socket.dscp), (Some(Dscp(46)), Some(Dscp(10))));
        assert_eq!((both.near.socket.priority, both.far.socket.priority), (Some(3), Some(3)));
        assert_eq!((both.near.cpus.clone(), both.far.cpus.clone()), (None, Some(Cpus(vec![1]))));
        assert_eq!((both.near.socket.no_delay, both.far.socket.keepalive), (Some(true), Some(true)));
        assert_eq!(both.near.socket.congestion_control.as_deref(), Some("reno"));
        assert_eq!(both.far.socket.congestion_control.as_deref(), Some("cubic"));
        assert_eq!(
            (both.near.socket.send_buffer, both.near.socket.receive_buffer),
            (Some(Bytes(8192)), Some(Bytes(9216)))
        );
        assert_eq!(both.far.socket.receive_buffer, Some(Bytes(10_240)));
        assert_eq!((both.near.port, both.far.port), (Some(4000), Some(5000)));
        assert_eq!((both.near.socket.cork, both.far.socket.cork), (Some(true), None));
        assert_eq!(spec("-t tcp_rr -- -b 16").unwrap().inflight, 17);
        assert_eq!(spec("-t udp_rr -- -e 2").unwrap().reply_timeout_ns, 2_000_000_000);
    }

    #[test]
    fn a_udp_stream_stays_on_the_local_network_unless_told() {
        let kept = |line: &str| spec(line).unwrap().near.socket.dont_route;
        assert_eq!(kept("-t udp_stream"), Some(true));
        assert_eq!(kept("-t udp_stream -- -R 1"), None);
        assert_eq!(kept("-t udp_rr"), None);
        assert_eq!(kept("-- -R 0"), Some(true));
    }

    #[test]
    fn devices_of_random_bytes_are_the_random_payload() {
        assert_eq!(spec("-F /dev/urandom").unwrap().near.buffers.fill_file, None);
        assert_eq!(spec("-F /dev/zero").unwrap().payload, Payload::Zero);
        assert_eq!(spec("-F /etc/passwd").unwrap().near.buffers.fill_file, Some("/etc/passwd".into()));
    }

    #[test]
    fn a_service_needs_no_control_connection() {
        for (line, port) in [("-N", 9), ("-N -t tcp_maerts", 19), ("-N -t tcp_rr", 7), ("-N -t udp_rr -- -P ,99", 99)] {
            let spec = spec(line).unwrap();
            assert_eq!((spec.dialect, spec.far.port), (Dialect::Service, Some(port)), "{line}");
            netcore::spec::support::check(&spec).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
        assert_eq!(spec("-N -t tcp_crr -- -r 5,7").unwrap().sizes.response_bytes, 5);
    }

    #[test]
    fn what_is_not_available_is_refused_by_its_option() {
        for (line, option) in [
            ("-p 1,2", "-p"),
            ("-F a,b", "-F"),
            ("-Y 0x01", "-Y"),
            ("-t tcp_crr -- -p 6000,5000", "-p"),
            ("-t omni -- -c -d send", "-c"),
        ] {
            let why = spec(line).unwrap_err();
            assert!(why.starts_with(&format!("{option}: ")), "{line}: {why}");
        }
        assert_eq!(option_of("duration"), Some("-l"));
        assert_eq!(option_of("remote_socket.congestion_control"), Some("-K"));
        assert_eq!(option_of("streams"), None);
    }

    #[test]
    fn the_kernel_tells_the_sizes() {
        let none = DefaultSizes::of(Transport::Tcp, Pair::default());
        assert!(none.send_buffer >= 4096 && none.receive_buffer >= 4096, "{none:?}");
        // The kernel doubles what is set.
        let asked = DefaultSizes::of(Transport::Udp, Pair { local: Some(8192), remote: None });
        assert_eq!(asked.send_buffer, 16_384);
    }
}
