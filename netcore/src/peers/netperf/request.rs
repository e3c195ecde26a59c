//! The request for a test, as a netserver gets it.

use std::net::IpAddr;

use super::{
    check::MOST,
    classic,
    omni::{self, direction, flag, socket_type},
    wire::{ANY_CPU, Message, Text, WireIp, family, kind},
};
use crate::spec::{Direction, Pattern, SocketOptions, Stop, TestSpec, Transport};

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

/// The request for a test that [`super::check::check`] has passed. Numbers that do not fit are cut to the largest.
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

fn connect(spec: &TestSpec, place: &Place) -> classic::ExchangeRequest {
    let SocketOptions { send_buffer, receive_buffer, no_delay, .. } = spec.far.socket;
    classic::ExchangeRequest {
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
        ..classic::ExchangeRequest::default()
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

fn omni(spec: &TestSpec, place: &Place) -> omni::Request {
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
    omni::Request {
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
