//! The request for a test, as a netserver gets it; and the tests that a netserver cannot be the far end of, with the plan's key
//! to blame and what to write instead.

use std::net::IpAddr;

use super::{
    messages::{self, direction, flag, socket_type},
    wire::{ANY_CPU, Message, Text, WireIp, family, kind},
};
use crate::spec::{
    BufferOptions, Close, Direction, Pattern, Payload, SocketOptions, Stop, TestSpec, Transport, key,
    socket::{SOCKET_OPTIONS, Setter, SocketOption},
    support::{Unsupported, refuse_if},
};

/// The data connection as far as the request names it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place {
    pub v6: bool,
    /// The near end's data port, if it is bound already; otherwise 0.
    pub near_port: u16,
    /// The near end's data address, if the plan gives one.
    pub near: Option<IpAddr>,
    /// The far end's data address, if the plan gives one.
    pub far: Option<IpAddr>,
}

/// Value of a size or an option that the server chooses itself.
const DEFAULT: i32 = -1;

/// The request for a test that [`check`] has passed. Numbers that do not fit are cut to the largest.
pub fn request(spec: &TestSpec, place: &Place) -> Message {
    let cpu = spec.far.cpus.as_ref().and_then(|cpus| cpus.0.first().copied());
    let of = |kind| Message::new(kind, cpu.unwrap_or(ANY_CPU));
    if spec.pattern == Pattern::Connect {
        // OMNI's own form of this test sends and receives nothing either, and needs a newer server.
        let mut message = of(kind::TCP_CC);
        connect(spec, place).write(&mut message);
        return message;
    }
    let mut message = of(kind::OMNI);
    omni(spec, place).write(&mut message);
    message
}

fn number(value: u64) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

fn option(value: Option<u64>) -> i32 {
    value.map_or(DEFAULT, number)
}

/// Seconds; less than 0: bytes or transactions; 0: to the end of the data.
fn test_length(spec: &TestSpec) -> i32 {
    match spec.phases.stop {
        Stop::AfterNs(_) => number(spec.phases.length_ns().unwrap_or(u64::MAX).div_ceil(1_000_000_000)).max(1),
        // A receiving server also ends with the data.
        Stop::AfterBytes(bytes) if bytes > MOST => 0,
        Stop::AfterBytes(count) | Stop::AfterTransactions(count) => -number(count),
    }
}

fn ip_family(place: &Place) -> u32 {
    if place.v6 { family::V6 } else { family::V4 }
}

fn connect(spec: &TestSpec, place: &Place) -> messages::ExchangeRequest {
    let SocketOptions { send_buffer, receive_buffer, no_delay, .. } = spec.far.socket;
    messages::ExchangeRequest {
        receive_buffer: option(receive_buffer.map(u64::from)),
        send_buffer: option(send_buffer.map(u64::from)),
        receive_alignment: ALIGNMENT,
        send_alignment: ALIGNMENT,
        request_size: 1,
        response_size: 1,
        no_delay: i32::from(no_delay == Some(true)),
        measure_cpu: i32::from(spec.collect.cpu),
        test_length: test_length(spec),
        data_port: spec.far.port.unwrap_or(0).into(),
        family: ip_family(place),
        ..messages::ExchangeRequest::default()
    }
}

/// netperf's own alignment of buffers.
const ALIGNMENT: i32 = 8;

fn flags(spec: &TestSpec) -> u32 {
    let (near, far) = (&spec.near.socket, &spec.far.socket);
    let set = [
        (far.no_delay == Some(true), flag::NO_DELAY),
        (spec.pattern.is_connecting(), flag::CONNECT),
        (spec.collect.cpu, flag::MEASURE_CPU),
        (far.no_checksum == Some(true), flag::NO_CHECKSUM),
        (near.dont_route != Some(true), flag::ROUTING_ALLOWED),
        (far.fastopen == Some(true), flag::FAST_OPEN),
        (far.keepalive == Some(true), flag::KEEPALIVE),
    ];
    set.into_iter().filter(|(is_set, _)| *is_set).fold(0, |flags, (_, flag)| flags | flag)
}

fn omni(spec: &TestSpec, place: &Place) -> messages::OmniRequest {
    let (buffers, socket, sizes) = (&spec.far.buffers, &spec.far.socket, &spec.sizes);
    let stream = spec.pattern == Pattern::Stream;
    let sends = !stream || spec.direction == Direction::Reverse;
    let receives = !stream || spec.direction != Direction::Reverse;
    // A datagram that is longer than the call asks for loses its end.
    let receive_bytes =
        if spec.transport.is_datagram() { sizes.receive_bytes.max(sizes.message_bytes) } else { sizes.receive_bytes };
    let (protocol, socket_type) = match spec.transport {
        Transport::Udp => (libc::IPPROTO_UDP, socket_type::DATAGRAM),
        Transport::Sctp => (libc::IPPROTO_SCTP, socket_type::STREAM),
        _ => (libc::IPPROTO_TCP, socket_type::STREAM),
    };
    let width = |used: bool| if used { number(buffers.ring.into()) } else { 0 };
    let alignment = buffers.alignment.map_or(ALIGNMENT, number);
    let offset = number(buffers.offset);
    let address = |ip: Option<IpAddr>| ip.map(WireIp::of).unwrap_or_default();
    messages::OmniRequest {
        send_buffer: option(socket.send_buffer.map(u64::from)),
        send_size: if stream && sends { number(sizes.message_bytes) } else { DEFAULT },
        send_alignment: alignment,
        send_offset: offset,
        send_width: width(sends),
        request_size: if stream { DEFAULT } else { number(sizes.request_bytes) },
        receive_buffer: option(socket.receive_buffer.map(u64::from)),
        receive_size: if stream && receives { number(receive_bytes) } else { DEFAULT },
        receive_alignment: alignment,
        receive_offset: offset,
        receive_width: width(receives),
        response_size: if stream { DEFAULT } else { number(sizes.response_bytes) },
        flags: flags(spec),
        cpu_rate: 0.0,
        test_length: test_length(spec),
        receive_avoidance: 0,
        send_avoidance: 0,
        send_dirty: DEFAULT,
        receive_dirty: DEFAULT,
        receive_clean: DEFAULT,
        data_port: spec.far.port.unwrap_or(0).into(),
        family: ip_family(place),
        socket_type,
        protocol: protocol.cast_unsigned(),
        direction: if sends { direction::SEND } else { 0 } | if receives { direction::RECEIVE } else { 0 },
        client_port: place.near_port.into(),
        interval_burst: 0,
        interval_us: 0,
        client_address: address(place.near),
        server_address: address(place.far),
        priority: option(socket.priority.map(u64::from)),
        tos: option(socket.dscp.map(|dscp| u64::from(dscp.0) << 2)),
        congestion_control: socket.congestion_control.as_deref().and_then(Text::new).unwrap_or_default(),
        fill_file: Text::default(),
    }
}

/// Largest number that a request can hold.
pub(super) const MOST: u64 = i32::MAX as u64;

/// Whether the near end counts the headline: then the far end need not know the edges of the phases.
pub(super) fn near_counts(spec: &TestSpec) -> bool {
    spec.pattern != Pattern::Stream || spec.direction == Direction::Reverse
}

/// Checks a test that the engines can run ([`crate::spec::support::check`]).
pub fn check(spec: &TestSpec) -> Result<(), Unsupported> {
    workload(spec)?;
    phases(spec)?;
    stop(spec)?;
    sizes(spec)?;
    far_end(spec)
}

fn workload(spec: &TestSpec) -> Result<(), Unsupported> {
    let known = match spec.pattern {
        Pattern::Stream | Pattern::RequestResponse => {
            matches!(spec.transport, Transport::Tcp | Transport::Udp | Transport::Sctp)
        }
        Pattern::Connect | Pattern::ConnectRequestResponse => spec.transport == Transport::Tcp,
        Pattern::Ping => false,
    };
    let reverse = spec.direction == Direction::Reverse;
    refuse_if! {
        !known =>
            key::workload, "netperf lacks this workload: use tcp_stream, tcp_rr, tcp_crr, tcp_cc, udp_stream, udp_rr, sctp_stream or sctp_rr";
        spec.direction == Direction::Duplex =>
            key::workload, "netperf sends one way on a connection: use two `concurrent` members, one of them with `direction: reverse`";
        spec.direction == Direction::Bidirectional =>
            key::direction, "a netperf test goes one way: use two `concurrent` members, one of them with `direction: reverse`";
        reverse && spec.transport == Transport::Udp =>
            key::direction, "netperf's UDP streams go to the netserver: leave `direction` out";
        spec.streams > 1 =>
            key::streams, "a netperf test has one connection: use a `concurrent` member for each stream";
        spec.integrity =>
            key::integrity, "netperf neither checks nor repeats the bytes that arrive: leave `integrity` out";
        spec.pace.is_some() && reverse =>
            key::rate, "netperf sends without a rate: leave `rate` out, or exchange `from` and `to`";
        spec.close == Close::NearFirst =>
            key::close, "netperf's server closes each connection first: use `far_first` or `reset`";
    }
    Ok(())
}

fn phases(spec: &TestSpec) -> Result<(), Unsupported> {
    let phases = &spec.phases;
    let far = !near_counts(spec);
    refuse_if! {
        phases.settle_ns > 0 =>
            key::warmup, "netperf tells nothing while a test runs, so the end of a warm-up cannot be found: give it as a time";
        far && phases.warmup_ns > 0 =>
            key::warmup, "netperf counts what arrives from the first byte on: leave `warmup` out, or measure `direction: reverse`";
        far && phases.cooldown_ns > 0 =>
            key::cooldown, "netperf counts what arrives to the last byte: leave `cooldown` out, or measure `direction: reverse`";
    }
    Ok(())
}

fn stop(spec: &TestSpec) -> Result<(), Unsupported> {
    const SECOND_NS: u64 = 1_000_000_000;
    let stop = spec.phases.stop;
    let warm = spec.phases.warmup_ns > 0;
    let reverse = spec.direction == Direction::Reverse;
    let length_ns = match stop {
        Stop::AfterNs(_) => spec.phases.length_ns().unwrap_or(u64::MAX),
        _ => 0,
    };
    refuse_if! {
        length_ns.div_ceil(SECOND_NS) > MOST =>
            key::duration, "netperf runs at most {MOST} seconds";
        reverse && !length_ns.is_multiple_of(SECOND_NS) =>
            key::duration, "the sending netserver counts whole seconds: choose `duration`, with `warmup` and `cooldown`, so that they \
             make whole seconds";
        reverse && matches!(stop, Stop::AfterBytes(bytes) if bytes > MOST) =>
            key::bytes, "a netserver sends at most {MOST} bytes: use `duration`";
        warm && matches!(stop, Stop::AfterBytes(_)) =>
            key::warmup, "netperf counts bytes from the first one on: leave `warmup` out, or use `duration`";
        matches!(stop, Stop::AfterTransactions(transactions) if transactions > MOST) =>
            key::transactions, "netperf counts at most {MOST} transactions: use `duration`";
        warm && matches!(stop, Stop::AfterTransactions(_)) =>
            key::warmup, "netperf counts transactions from the first one on: leave `warmup` out, or use `duration`";
    }
    Ok(())
}

fn sizes(spec: &TestSpec) -> Result<(), Unsupported> {
    let sizes = &spec.sizes;
    let keys = match spec.pattern {
        Pattern::Stream => [(key::message_size, sizes.message_bytes), (key::receive_size, sizes.receive_bytes)],
        _ => [(key::request_size, sizes.request_bytes), (key::response_size, sizes.response_bytes)],
    };
    for (key, bytes) in keys {
        refuse_if! { bytes > MOST => key, "{key}: netperf has at most {MOST} bytes"; }
    }
    Ok(())
}

/// Options of the netserver's end.
fn far_end(spec: &TestSpec) -> Result<(), Unsupported> {
    let far = &spec.far;
    let BufferOptions { ring, alignment, offset, dirty, clean, fill_file } = &far.buffers;
    let sends = spec.pattern != Pattern::Stream || spec.direction == Direction::Reverse;
    let too_large = u64::from(*ring) > MOST || alignment.unwrap_or(0) > MOST || *offset > MOST;
    if let Some(row) = unavailable(&spec.near.socket, &far.socket) {
        let reason = format!("netperf cannot set {} at its end: leave it out of `remote_socket`", row.name);
        return Err(Unsupported { key: row.remote_key, reason });
    }
    refuse_if! {
        far.socket.congestion_control.as_ref().is_some_and(|name| name.len() > 15) =>
            "remote_socket.congestion_control", "a request to netperf has room for 15 characters";
        too_large =>
            key::remote_buffers, "numbers in a request to netperf are at most {MOST}";
        *dirty > 0 || *clean > 0 =>
            key::remote_buffers, "most netservers cannot dirty their buffers: write remote_buffers: {{dirty: 0, clean: 0}}";
        sends && (fill_file.is_some() || matches!(spec.payload, Payload::File(_))) =>
            key::payload, "a netserver sends bytes of its own: leave the file out";
        far.cpus.as_ref().is_some_and(|cpus| cpus.0.len() != 1) =>
            key::remote_cpu, "a netserver runs on one CPU: name one";
        far.bind.len() > 1 =>
            key::remote_ports, "a netserver has one data address: name one in hosts.NAME.bind";
    }
    Ok(())
}

/// Options that a request can ask for.
const ASKABLE: [&str; 9] = [
    "send_buffer",
    "receive_buffer",
    "no_delay",
    "congestion_control",
    "dscp",
    "priority",
    "keepalive",
    "fastopen",
    "no_checksum",
];

/// An option that a netserver does not set on request. The far end has the near end's options unless the plan says otherwise:
/// those are set at the near end only, and the report says so ([`near_only`]).
fn unavailable(near: &SocketOptions, far: &SocketOptions) -> Option<&'static SocketOption> {
    let differs = |row: &&SocketOption| {
        let asked = (row.asked)(far);
        asked.is_some() && asked != (row.asked)(near) && !ASKABLE.contains(&row.name)
    };
    SOCKET_OPTIONS.iter().find(differs)
}

/// Options that the near end has and a netserver cannot set. `dont_route` is asked for in another way.
pub(super) fn near_only(spec: &TestSpec) -> impl Iterator<Item = &'static str> {
    let far = &spec.far.socket;
    let set = |row: &&SocketOption| {
        (row.asked)(far).is_some()
            && !ASKABLE.contains(&row.name)
            && row.name != "dont_route"
            && (row.setter)(spec.transport, false) != Setter::Meaningless
    };
    SOCKET_OPTIONS.iter().filter(set).map(|row| row.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{Arrival, Bytes, Cpus, Pace, PaceMode};

    fn tcp(pattern: Pattern) -> TestSpec {
        TestSpec::new(pattern, Transport::Tcp)
    }

    #[test]
    fn every_test_of_netperf_passes() {
        for pattern in [Pattern::Stream, Pattern::RequestResponse, Pattern::Connect, Pattern::ConnectRequestResponse] {
            check(&tcp(pattern)).unwrap();
        }
        for transport in [Transport::Udp, Transport::Sctp] {
            check(&TestSpec::new(Pattern::Stream, transport)).unwrap();
            check(&TestSpec::new(Pattern::RequestResponse, transport)).unwrap();
        }
        let mut spec = tcp(Pattern::RequestResponse);
        (spec.inflight, spec.phases.warmup_ns, spec.phases.cooldown_ns) = (16, 1, 1);
        check(&spec).unwrap();
        let mut spec = tcp(Pattern::Stream);
        (spec.direction, spec.phases.warmup_ns) = (Direction::Reverse, 2_000_000_000);
        spec.far.socket.send_buffer = Some(Bytes(1));
        spec.far.cpus = Some("3".parse().unwrap());
        check(&spec).unwrap();
        spec.direction = Direction::Forward;
        (spec.phases.warmup_ns, spec.phases.stop) = (0, Stop::AfterBytes(u64::MAX));
        check(&spec).unwrap();
    }

    #[test]
    fn the_others_name_the_key_and_what_to_do() {
        type Change = fn(&mut TestSpec);
        let cases: [(&str, Pattern, Change); 24] = [
            ("workload", Pattern::Stream, |s| s.transport = Transport::Mptcp),
            ("workload", Pattern::Ping, |_| ()),
            ("workload", Pattern::ConnectRequestResponse, |s| s.transport = Transport::Sctp),
            ("workload", Pattern::Stream, |s| s.direction = Direction::Duplex),
            ("direction", Pattern::Stream, |s| s.direction = Direction::Bidirectional),
            ("direction", Pattern::Stream, |s| (s.direction, s.transport) = (Direction::Reverse, Transport::Udp)),
            ("streams", Pattern::Stream, |s| s.streams = 2),
            ("integrity", Pattern::Stream, |s| s.integrity = true),
            ("rate", Pattern::Stream, |s| {
                s.direction = Direction::Reverse;
                s.pace = Some(Pace {
                    events_per_s: 1.0,
                    mode: PaceMode::User,
                    arrival: Arrival::Closed,
                    burst: 1,
                    catch_up: 0,
                });
            }),
            ("close", Pattern::ConnectRequestResponse, |s| s.close = Close::NearFirst),
            ("warmup", Pattern::RequestResponse, |s| s.phases.settle_ns = 1),
            ("warmup", Pattern::Stream, |s| s.phases.warmup_ns = 1),
            ("cooldown", Pattern::Stream, |s| s.phases.cooldown_ns = 1),
            ("duration", Pattern::Stream, |s| {
                (s.direction, s.phases.stop) = (Direction::Reverse, Stop::AfterNs(1_500_000_000));
            }),
            ("duration", Pattern::Stream, |s| s.phases.stop = Stop::AfterNs(u64::MAX)),
            ("bytes", Pattern::Stream, |s| {
                (s.direction, s.phases.stop) = (Direction::Reverse, Stop::AfterBytes(MOST + 1));
            }),
            ("transactions", Pattern::RequestResponse, |s| s.phases.stop = Stop::AfterTransactions(MOST + 1)),
            ("warmup", Pattern::RequestResponse, |s| {
                (s.phases.warmup_ns, s.phases.stop) = (1, Stop::AfterTransactions(1));
            }),
            ("message_size", Pattern::Stream, |s| s.sizes.message_bytes = MOST + 1),
            ("response_size", Pattern::RequestResponse, |s| s.sizes.response_bytes = MOST + 1),
            ("remote_socket.linger", Pattern::Stream, |s| {
                s.far.socket.linger = Some(crate::spec::quantity::Linger(1));
            }),
            ("remote_buffers", Pattern::Stream, |s| s.far.buffers.dirty = 1),
            ("remote_cpu", Pattern::Stream, |s| s.far.cpus = Some(Cpus(vec![0, 1]))),
            ("payload", Pattern::RequestResponse, |s| s.payload = Payload::File("x".into())),
        ];
        for (key, pattern, change) in cases {
            let mut spec = tcp(pattern);
            change(&mut spec);
            let error = check(&spec).unwrap_err();
            assert_eq!(error.key, key, "{error}");
        }
    }

    #[test]
    fn options_that_can_be_asked_for_are_rows_of_the_table() {
        assert!(ASKABLE.iter().all(|name| SOCKET_OPTIONS.iter().any(|row| row.name == *name)));
    }
}
