//! A client's request as a test of this daemon's engines. Every number is judged before anything is allocated for it.

use std::net::IpAddr;

use nix::errno::Errno;

use super::{
    messages::{self, Test, direction, flag, socket_type},
    wire::{Message, family, kind},
};
use crate::spec::{
    Bytes, Dialect, Direction, Dscp, Family, LONGEST_DATAGRAM, Pattern, SocketOptions, Stop, TestSpec, Transport,
};

/// Limit of the bytes of one call of a stream.
pub const MOST_STREAM_BYTES: u64 = 16 << 20;

/// Limit of a request or response, bytes.
pub const MOST_EXCHANGE_BYTES: u64 = 64 << 20;

/// Bytes of a receive call where the client leaves them to the server. netserver takes the size of its receive buffer, which
/// by default has this size.
const RECEIVE_BYTES: u64 = 131_072;

/// Bytes of a send call where the client leaves them to the server, likewise.
const SEND_BYTES: u64 = 16_384;

/// The highest priority that needs no privilege.
const MOST_PRIORITY: i32 = 6;

/// The lowest data port that a client may choose.
const LOWEST_PORT: u32 = 1024;

/// The time that netserver waits for the end of the data after its own timer, nanoseconds.
pub const PAD_NS: u64 = 4_000_000_000;

/// Form of the answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Omni,
    Classic(Test),
}

/// When the client means to end the test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    Seconds(u32),
    /// Bytes or transactions.
    Count(u32),
    /// When the client wants.
    Open,
}

impl Length {
    fn of(test_length: i32) -> Self {
        match test_length {
            0 => Self::Open,
            1.. => Self::Seconds(test_length.unsigned_abs()),
            _ => Self::Count(test_length.unsigned_abs()),
        }
    }
}

/// A client's request.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    pub form: Form,
    /// The far end of it runs here. Its stop rule is the latest end: the client, or the data, ends the test before.
    pub spec: TestSpec,
    pub length: Length,
    /// The client's data address, if it gives one.
    pub client: Option<IpAddr>,
    /// The client's data port, if it is bound already; otherwise 0.
    pub client_port: u16,
    /// The address of this host that the client wants to reach, if it gives one.
    pub server: Option<IpAddr>,
    /// `IP_TOS` and the priority as the response shows them; -1: left alone.
    pub tos: i32,
    pub priority: i32,
    pub wants_congestion_control: bool,
}

/// Refusal of a request, with the error for its answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Refused {
    pub errno: u32,
    pub reason: String,
}

impl Refused {
    pub fn new(errno: Errno, reason: impl Into<String>) -> Self {
        Self { errno: (errno as i32).unsigned_abs(), reason: reason.into() }
    }
}

/// The policy of the daemon, as far as a request must be known by it.
#[derive(Clone, Copy, Debug)]
pub struct Policy<'a> {
    /// The longest load, nanoseconds.
    pub longest_ns: u64,
    /// Congestion controls that a client may choose.
    pub congestion_controls: &'a [String],
}

/// Reads the request for a test; `None`: the message asks for something else.
pub fn asked(message: &Message, policy: &Policy<'_>) -> Option<Result<Asked, Refused>> {
    if message.kind() == kind::OMNI {
        return Some(omni(&messages::OmniRequest::read(message), policy));
    }
    let test = Test::of(message)?;
    Some(classic(test, message, policy))
}

/// Bytes that a client chooses, up to `most`; `None`: it leaves them to the server.
fn bytes(what: &str, value: i32, most: u64) -> Result<Option<u64>, Refused> {
    match u64::try_from(value) {
        Err(_) if value == -1 => Ok(None),
        Ok(size) if (1..=most).contains(&size) => Ok(Some(size)),
        _ => Err(Refused::new(Errno::EINVAL, format!("{what} of {value} bytes: from 1 to {most}"))),
    }
}

/// Size of a socket's buffer; `None`: the system's default. The kernel cuts it to what needs no privilege.
fn buffer(what: &str, value: i32) -> Result<Option<Bytes>, Refused> {
    match value {
        -1 | 0 => Ok(None),
        1.. => Ok(Some(Bytes(value.unsigned_abs().into()))),
        _ => Err(Refused::new(Errno::EINVAL, format!("{what} of {value} bytes"))),
    }
}

fn port(value: u32) -> Result<Option<u16>, Refused> {
    match u16::try_from(value) {
        Ok(0) => Ok(None),
        Ok(port) if value >= LOWEST_PORT => Ok(Some(port)),
        Ok(port) => Err(Refused::new(Errno::EACCES, format!("data port {port}: 0, or at least {LOWEST_PORT}"))),
        Err(_) => Err(Refused::new(Errno::EINVAL, format!("data port {value}"))),
    }
}

fn ip_family(value: u32) -> Result<Family, Refused> {
    match value {
        family::UNSPECIFIED => Ok(Family::Any),
        family::V4 => Ok(Family::V4),
        family::V6 => Ok(Family::V6),
        _ => Err(Refused::new(Errno::EAFNOSUPPORT, format!("address family {value}"))),
    }
}

/// Pattern and direction of a request, from what the server receives and sends.
fn pattern(asked: &messages::OmniRequest, transport: Transport) -> Result<(Pattern, Direction), Refused> {
    const BOTH: u32 = direction::SEND | direction::RECEIVE;
    let connects = asked.flags & flag::CONNECT != 0;
    let tcp = transport == Transport::Tcp;
    match (connects, asked.direction) {
        (true, 0) if tcp => Ok((Pattern::Connect, Direction::Forward)),
        (true, BOTH) if tcp => Ok((Pattern::ConnectRequestResponse, Direction::Forward)),
        (false, BOTH) => Ok((Pattern::RequestResponse, Direction::Forward)),
        (false, direction::RECEIVE) => Ok((Pattern::Stream, Direction::Forward)),
        // Nothing proves that a datagram's receiver wants it.
        (false, direction::SEND) if transport.is_datagram() => {
            Err(Refused::new(Errno::EOPNOTSUPP, "this daemon sends no streams of datagrams"))
        }
        (false, direction::SEND) => Ok((Pattern::Stream, Direction::Reverse)),
        (_, other) => Err(Refused::new(Errno::EOPNOTSUPP, format!("direction {other}, connections: {connects}"))),
    }
}

fn omni(asked: &messages::OmniRequest, policy: &Policy<'_>) -> Result<Asked, Refused> {
    const PROTOCOLS: [(i32, u32, Transport); 3] = [
        (libc::IPPROTO_TCP, socket_type::STREAM, Transport::Tcp),
        (libc::IPPROTO_UDP, socket_type::DATAGRAM, Transport::Udp),
        (libc::IPPROTO_SCTP, socket_type::STREAM, Transport::Sctp),
    ];
    let known = |(number, kind, _): &&(i32, u32, Transport)| {
        number.cast_unsigned() == asked.protocol && *kind == asked.socket_type
    };
    let (protocol, kind) = (asked.protocol, asked.socket_type);
    let Some((_, _, transport)) = PROTOCOLS.iter().find(known) else {
        return Err(Refused::new(Errno::EPROTONOSUPPORT, format!("protocol {protocol} with sockets of type {kind}")));
    };
    let (pattern, direction) = pattern(asked, *transport)?;
    let mut spec = TestSpec { dialect: Dialect::Netperf, ..TestSpec::new(pattern, *transport) };
    (spec.direction, spec.family) = (direction, ip_family(asked.family)?);
    let (send_bytes, receive_bytes) = (
        bytes("a send call", asked.send_size, MOST_STREAM_BYTES)?,
        bytes("a receive call", asked.receive_size, MOST_STREAM_BYTES)?,
    );
    stream_sizes(&mut spec, send_bytes, receive_bytes);
    if matches!(pattern, Pattern::RequestResponse | Pattern::ConnectRequestResponse) {
        exchange_sizes(&mut spec, asked.request_size, asked.response_size)?;
    }
    let tos = if asked.tos > 0 && asked.tos <= 255 { asked.tos & !3 } else { -1 };
    let priority = if (0..=MOST_PRIORITY).contains(&asked.priority) { asked.priority } else { -1 };
    let name = asked.congestion_control.text();
    spec.far.socket = SocketOptions {
        send_buffer: buffer("a send buffer", asked.send_buffer)?,
        receive_buffer: buffer("a receive buffer", asked.receive_buffer)?,
        no_delay: (asked.flags & flag::NO_DELAY != 0).then_some(true),
        keepalive: (asked.flags & flag::KEEPALIVE != 0).then_some(true),
        fastopen: (asked.flags & flag::FAST_OPEN != 0 && *transport == Transport::Tcp).then_some(true),
        no_checksum: (asked.flags & flag::NO_CHECKSUM != 0 && *transport == Transport::Udp).then_some(true),
        dont_route: (asked.flags & flag::ROUTING_ALLOWED == 0).then_some(true),
        dscp: u8::try_from(tos).ok().map(|tos| Dscp(tos >> 2)),
        priority: u32::try_from(priority).ok(),
        congestion_control: policy.congestion_controls.iter().find(|known| *known == name).cloned(),
        ..SocketOptions::default()
    };
    spec.collect.cpu = asked.flags & flag::MEASURE_CPU != 0;
    spec.far.port = port(asked.data_port)?;
    let length = stop(&mut spec, asked.test_length, policy)?;
    Ok(Asked {
        form: Form::Omni,
        spec,
        length,
        client: asked.client_address.ip(asked.family),
        client_port: u16::try_from(asked.client_port).unwrap_or(0),
        server: asked.server_address.ip(asked.family),
        tos,
        priority,
        // Without CPU figures the client asks for it, too.
        wants_congestion_control: asked.flags & flag::ROUTING_ALLOWED != 0,
    })
}

/// The sizes of a stream's calls. A datagram is received whole, whatever the client sends.
fn stream_sizes(spec: &mut TestSpec, send_bytes: Option<u64>, receive_bytes: Option<u64>) {
    if spec.pattern != Pattern::Stream {
        return;
    }
    if spec.transport.is_datagram() {
        (spec.sizes.message_bytes, spec.sizes.receive_bytes) = (LONGEST_DATAGRAM, LONGEST_DATAGRAM);
        return;
    }
    spec.sizes.message_bytes = send_bytes.unwrap_or(SEND_BYTES);
    spec.sizes.receive_bytes = receive_bytes.unwrap_or(RECEIVE_BYTES);
}

fn exchange_sizes(spec: &mut TestSpec, request: i32, response: i32) -> Result<(), Refused> {
    let most = if spec.transport.is_datagram() { LONGEST_DATAGRAM } else { MOST_EXCHANGE_BYTES };
    let size = |what, value| {
        bytes(what, value, most)?.ok_or_else(|| Refused::new(Errno::EINVAL, format!("{what} without a size")))
    };
    (spec.sizes.request_bytes, spec.sizes.response_bytes) =
        (size("a request", request)?, size("a response", response)?);
    Ok(())
}

/// Sets the latest end of the load.
fn stop(spec: &mut TestSpec, test_length: i32, policy: &Policy<'_>) -> Result<Length, Refused> {
    let length = Length::of(test_length);
    let sends = spec.direction == Direction::Reverse;
    spec.phases.stop = match length {
        Length::Seconds(seconds) => {
            let most = most_seconds(policy).unsigned_abs();
            if seconds > most {
                let reason = format!("{seconds} s are more than the {most} s granted here (--max-duration)");
                return Err(Refused::new(Errno::EINVAL, reason));
            }
            let asked_ns = u64::from(seconds) * 1_000_000_000;
            Stop::AfterNs(if sends { asked_ns } else { asked_ns.saturating_add(PAD_NS).min(policy.longest_ns) })
        }
        Length::Count(bytes) if sends => Stop::AfterBytes(bytes.into()),
        Length::Count(_) | Length::Open => Stop::AfterNs(policy.longest_ns),
    };
    Ok(length)
}

fn most_seconds(policy: &Policy<'_>) -> i32 {
    i32::try_from(policy.longest_ns / 1_000_000_000).unwrap_or(i32::MAX)
}

fn classic(test: Test, message: &Message, policy: &Policy<'_>) -> Result<Asked, Refused> {
    let (pattern, transport) = match test {
        Test::TcpStream | Test::TcpMaerts => (Pattern::Stream, Transport::Tcp),
        Test::UdpStream => (Pattern::Stream, Transport::Udp),
        Test::TcpRr => (Pattern::RequestResponse, Transport::Tcp),
        Test::UdpRr => (Pattern::RequestResponse, Transport::Udp),
        Test::TcpCrr => (Pattern::ConnectRequestResponse, Transport::Tcp),
        Test::TcpCc => (Pattern::Connect, Transport::Tcp),
    };
    let mut spec = TestSpec { dialect: Dialect::Netperf, ..TestSpec::new(pattern, transport) };
    let options = |send: i32, receive: i32, no_delay: i32| -> Result<SocketOptions, Refused> {
        Ok(SocketOptions {
            send_buffer: buffer("a send buffer", send)?,
            receive_buffer: buffer("a receive buffer", receive)?,
            no_delay: (no_delay != 0).then_some(true),
            ..SocketOptions::default()
        })
    };
    let (test_length, data_port, family, measure_cpu) = match test {
        Test::TcpStream | Test::TcpMaerts => {
            let asked = messages::StreamRequest::read(message);
            if test == Test::TcpMaerts {
                spec.direction = Direction::Reverse;
            }
            // 0 is this request's word for the default.
            let size = bytes("a call", if asked.size == 0 { -1 } else { asked.size }, MOST_STREAM_BYTES)?;
            stream_sizes(&mut spec, size, size);
            spec.far.socket = options(asked.send_buffer, asked.receive_buffer, asked.no_delay)?;
            // A stream may have a positive count of bytes here. It ends with the data, or when the client closes.
            let counts = asked.test_length > most_seconds(policy);
            (if counts { 0 } else { asked.test_length }, asked.data_port, asked.family, asked.measure_cpu)
        }
        Test::UdpStream => {
            let asked = messages::DatagramRequest::read(message);
            stream_sizes(&mut spec, None, None);
            // A shorter datagram ends the test.
            bytes("a message", asked.message_size, LONGEST_DATAGRAM)?;
            spec.far.socket = options(-1, asked.receive_buffer, 0)?;
            (asked.test_length, asked.data_port, asked.family, asked.measure_cpu)
        }
        Test::TcpRr | Test::TcpCrr | Test::TcpCc | Test::UdpRr => {
            let asked = messages::ExchangeRequest::read(message);
            if test != Test::TcpCc {
                exchange_sizes(&mut spec, asked.request_size, asked.response_size)?;
            }
            spec.far.socket = options(asked.send_buffer, asked.receive_buffer, asked.no_delay)?;
            (asked.test_length, asked.data_port, asked.family, asked.measure_cpu)
        }
    };
    spec.family = ip_family(family)?;
    spec.far.port = port(data_port)?;
    spec.collect.cpu = measure_cpu != 0;
    let length = stop(&mut spec, test_length, policy)?;
    Ok(Asked {
        form: Form::Classic(test),
        spec,
        length,
        client: None,
        client_port: 0,
        server: None,
        tos: -1,
        priority: -1,
        wants_congestion_control: false,
    })
}
