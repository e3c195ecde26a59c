//! QUIC (RFC 9000) over the pair of sockets of a flow: the loop that moves the packets of its connections.
//!
//! - `handshake`: the ends before the load, and the handshakes of a test
//! - `streams`, `datagrams`: the data of a connection
//! - `connections`: those of the connect patterns
//!
//! The sockets are connected to each other after the near end has proven the session's token, as those of UDP: the kernel drops the
//! packets of strangers, and the address is known, so that no Retry is needed. The certificate is that of the test ([`super::tls`]).
//!
//! The library is a state machine. The thread that uses a connection drives it with [`Node::turn`]: timers, packets to send, a wait,
//! packets that came. A stream or request/response has one connection, made before the load, with a stream of each end to the other.

mod connections;
mod datagrams;
mod handshake;
mod streams;

use std::{
    fmt,
    io::{self, ErrorKind, IoSliceMut},
    net::SocketAddr,
    os::fd::{AsRawFd, OwnedFd},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use nix::{
    poll::PollFlags,
    sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg},
};
use quinn_proto::{
    Connection, ConnectionError, ConnectionHandle, DatagramEvent, EcnCodepoint, Endpoint, EndpointEvent, Event,
    StreamEvent, Transmit, VarInt,
};
use quinn_udp::UdpSocketState;

use super::{connection, tls};
use crate::{
    lock::Lock,
    measure::counters::Published,
    report::{Granted, QuicInfo},
    spec::QuicCongestionControl,
    sys,
};
use handshake::Opening;

pub use handshake::secure;
pub use streams::Stream;

/// Bytes of the buffer for what one receiving call gives: a packet, or several that the kernel hands over as one.
const PIECE_BYTES: usize = 65_535;

/// Room for the control messages of a receiving call: length of its packets, code point, address.
const CONTROL_BYTES: usize = 256;

/// Most bytes of a sending call: the length of a datagram that the kernel splits.
const CALL_BYTES: usize = 65_000;

/// Most receiving calls in a row, each of up to 64 KiB: then it is time for acknowledgements.
const CALLS_PER_TURN: usize = 32;

/// A packet that came alone after this time was waited for, so that a further call would find none.
const WAITED: Duration = Duration::from_micros(5);

/// Least time between two looks for packets of a sender that finds room.
const TAKEN_PAUSE: Duration = Duration::from_micros(200);

/// Least time between two updates of the figures for the sampler.
const FIGURES_PAUSE: Duration = Duration::from_micros(100);

/// Longest wait at a time, so that the end of the test is noticed.
const LOOK_UP: Duration = Duration::from_millis(50);

/// Longest wait in a receiving call. The kernel ends it at a tick of its clock, up to 10 ms late.
const BLOCKED: Duration = Duration::from_millis(10);

/// Least wait for which a receiving call waits itself. A shorter one takes a call of its own, which ends on time.
const BLOCKS_FROM: Duration = Duration::from_millis(20);

/// Connections of a connect pattern that a far end keeps at most: the present one, and those whose end got lost.
pub(crate) const MOST_CONNECTIONS: usize = 64;

/// Time without a packet after which a connection of a connect pattern counts as lost.
pub(crate) const IDLE: Duration = Duration::from_secs(10);

/// Most bytes that wait for a connection which is not accepted yet, and for all such connections of a flow.
pub(crate) const INCOMING_BYTES: u64 = 64 << 10;
pub(crate) const INCOMING_BYTES_IN_ALL: u64 = 1 << 20;

/// QUIC of a flow, until its loop takes it; the sampler reads its figures.
#[derive(Debug)]
pub struct Flow {
    node: Lock<Option<Box<Node>>>,
    figures: Arc<Published<QuicInfo>>,
    congestion_control: QuicCongestionControl,
    asked: Option<QuicCongestionControl>,
    cipher: &'static str,
    asked_cipher: Option<&'static str>,
}

impl Flow {
    /// Takes the connections; one loop has them.
    pub fn take(&self) -> Option<Box<Node>> {
        self.node.lock().take()
    }

    /// The figures of the connection.
    pub fn figures(&self) -> Arc<Published<QuicInfo>> {
        self.figures.clone()
    }

    /// The options that were asked for, and those that the connection has.
    pub fn granted(&self, flow: u32) -> [Granted; 2] {
        let of = |option, requested: Option<&str>, granted: &str| {
            Granted::constant(flow, option, requested.map(str::to_owned), Some(granted.to_owned()))
        };
        let congestion_control = self.congestion_control.name();
        [
            of("congestion_control", self.asked.map(QuicCongestionControl::name), congestion_control),
            of("tls.cipher", self.asked_cipher, self.cipher),
        ]
    }
}

/// An open connection.
struct Open {
    handle: ConnectionHandle,
    connection: Connection,
    /// Whether its handshake has ended.
    is_made: bool,
    /// Why it is over.
    lost: Option<ConnectionError>,
    /// Whether this end's stream has ended and the other end has all of it.
    is_acknowledged: bool,
}

/// The packets of a receiving call: bytes in all, bytes of each but the last one, and their code point.
struct Packets {
    bytes: usize,
    stride: usize,
    ecn: Option<EcnCodepoint>,
}

/// An end of the connections over a flow's sockets.
pub struct Node {
    endpoint: Endpoint,
    socket: Arc<OwnedFd>,
    state: UdpSocketState,
    /// Address of the other end.
    peer: SocketAddr,
    opening: Option<Opening>,
    /// Connections that a far end accepts at the same time.
    most: usize,
    open: Vec<Open>,
    /// Bytes that a stream may hold ahead of its acknowledgements at most.
    window: u64,
    /// Packets of a receiving call, and its control messages.
    piece: Box<[u8]>,
    control: Box<[u8]>,
    output: Vec<u8>,
    figures: Arc<Published<QuicInfo>>,
    /// When it last looked for packets.
    taken: Instant,
    /// When it last updated its figures.
    published: Instant,
    /// Calls that sent packets, and that received some.
    calls: (u64, u64),
    /// Whether the other end's socket is gone.
    is_refused: bool,
    /// Whether the other end begins no more connections.
    has_left: bool,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("peer", &self.peer).field("connections", &self.open.len()).finish_non_exhaustive()
    }
}

/// Why a connection is over, as a sentence.
fn over(reason: &ConnectionError) -> io::Error {
    let kind = match reason {
        ConnectionError::TimedOut => ErrorKind::TimedOut,
        ConnectionError::Reset => ErrorKind::ConnectionReset,
        _ => ErrorKind::ConnectionAborted,
    };
    io::Error::new(kind, because(reason))
}

fn because(reason: &ConnectionError) -> String {
    match reason {
        ConnectionError::ApplicationClosed(_) | ConnectionError::LocallyClosed => {
            "the other end closed the connection".to_owned()
        }
        ConnectionError::TimedOut => "the other end answers no packet any more".to_owned(),
        ConnectionError::Reset => "the other end's socket is gone".to_owned(),
        ConnectionError::TransportError(error) if error.reason.contains("ApplicationVerificationFailure") => {
            tls::because(&rustls::CertificateError::ApplicationVerificationFailure.into())
        }
        reason => format!("QUIC: {reason}"),
    }
}

impl Node {
    fn get(&mut self, at: usize) -> io::Result<&mut Open> {
        self.open.get_mut(at).ok_or_else(|| io::Error::new(ErrorKind::NotConnected, "no connection of QUIC is open"))
    }

    /// Sends what is due, waits until packets or a timer at most until `until`, and takes what has come.
    pub fn turn(&mut self, until: Instant) -> io::Result<()> {
        self.transmit()?;
        let timer = self.open.iter_mut().filter_map(|open| open.connection.poll_timeout()).min();
        let now = Instant::now();
        let until = timer.map_or(until, |timer| timer.min(until)).min(now + LOOK_UP);
        let wait = until.saturating_duration_since(now);
        let blocks = wait >= BLOCKS_FROM;
        if blocks || wait.is_zero() || sys::wait_for(&self.socket, PollFlags::POLLIN, wait)? {
            self.take_packets(now, blocks)
        } else {
            Ok(())
        }
    }

    /// Sends what may be sent now, and takes what has come unless it did so just now: a sender that never waits has
    /// acknowledgements to read, too.
    pub fn go_on(&mut self) -> io::Result<()> {
        let now = Instant::now();
        if now.duration_since(self.taken) >= TAKEN_PAUSE {
            self.take_packets(now, false)?;
        }
        self.transmit()
    }

    /// Runs the timers that are due, and sends all that may be sent now.
    pub fn transmit(&mut self) -> io::Result<()> {
        let now = Instant::now();
        for at in 0..self.open.len() {
            if self.open[at].connection.poll_timeout().is_some_and(|timer| timer <= now) {
                self.open[at].connection.handle_timeout(now);
            }
            loop {
                let connection = &mut self.open[at].connection;
                let segments = self.state.max_gso_segments().min(CALL_BYTES / usize::from(connection.current_mtu()));
                self.output.clear();
                let Some(transmit) = connection.poll_transmit(now, segments.max(1), &mut self.output) else { break };
                self.send(&transmit)?;
            }
            self.take_events(at);
        }
        if now.duration_since(self.published) >= FIGURES_PAUSE {
            self.published = now;
            self.publish();
        }
        Ok(())
    }

    /// Sends what the library has written to the output.
    fn send(&mut self, transmit: &Transmit) -> io::Result<()> {
        let packets = quinn_udp::Transmit {
            destination: transmit.destination,
            ecn: transmit.ecn.and_then(|ecn| quinn_udp::EcnCodepoint::from_bits(ecn as u8)),
            contents: &self.output[..transmit.size],
            segment_size: transmit.segment_size,
            src_ip: None,
        };
        loop {
            match self.state.try_send((&self.socket).into(), &packets) {
                Ok(()) => {
                    self.calls.0 += 1;
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    sys::wait_for(&self.socket, PollFlags::POLLOUT, LOOK_UP)?;
                }
                Err(error) => match error.raw_os_error() {
                    // A packet that searches for the path's MTU may be too long for the interface. Another may find a queue full. Both
                    // count as lost, and the library sends again.
                    Some(libc::EMSGSIZE | libc::ENOBUFS | libc::EINTR) => return Ok(()),
                    Some(libc::ECONNREFUSED) => {
                        self.is_refused = true;
                        return Ok(());
                    }
                    _ => return Err(error),
                },
            }
        }
    }

    /// Takes the packets that have come since `began`. `blocks`: waits for the first ones.
    fn take_packets(&mut self, mut began: Instant, blocks: bool) -> io::Result<()> {
        let mut flags = if blocks { MsgFlags::empty() } else { MsgFlags::MSG_DONTWAIT };
        for _ in 0..CALLS_PER_TURN {
            let mut piece = std::mem::take(&mut self.piece);
            let received = self.receive(&mut piece, flags);
            let now = Instant::now();
            self.taken = now;
            let more = match received {
                Ok(packets) => {
                    self.calls.1 += 1;
                    let is_alone = packets.stride >= packets.bytes && now.duration_since(began) >= WAITED;
                    self.take_piece(now, &packets, &piece[..packets.bytes]).map(|()| !is_alone)
                }
                Err(nix::Error::EAGAIN | nix::Error::EINTR) => Ok(false),
                Err(nix::Error::ECONNREFUSED) => {
                    self.is_refused = true;
                    Ok(true)
                }
                Err(error) => Err(error.into()),
            };
            self.piece = piece;
            if !more? {
                break;
            }
            (flags, began) = (MsgFlags::MSG_DONTWAIT, now);
        }
        if std::mem::take(&mut self.is_refused) {
            // Its last packets may have said why it left.
            (0..self.open.len()).for_each(|at| self.take_events(at));
            self.open.iter_mut().for_each(|open| _ = open.lost.get_or_insert(ConnectionError::Reset));
        }
        Ok(())
    }

    /// Receives one piece.
    fn receive(&mut self, piece: &mut [u8], flags: MsgFlags) -> nix::Result<Packets> {
        let mut parts = [IoSliceMut::new(piece)];
        let message = recvmsg::<SockaddrStorage>(self.socket.as_raw_fd(), &mut parts, Some(&mut self.control), flags)?;
        let mut packets = Packets { bytes: message.bytes, stride: message.bytes, ecn: None };
        for control in message.cmsgs()? {
            match control {
                ControlMessageOwned::UdpGroSegments(bytes) => packets.stride = usize::try_from(bytes).unwrap_or(0),
                ControlMessageOwned::Ipv4Tos(tos) => packets.ecn = EcnCodepoint::from_bits(tos & 3),
                ControlMessageOwned::Ipv6TClass(class) => {
                    packets.ecn = u8::try_from(class & 3).ok().and_then(EcnCodepoint::from_bits);
                }
                _ => {}
            }
        }
        Ok(packets)
    }

    /// Takes packets that came as one piece.
    fn take_piece(&mut self, now: Instant, packets: &Packets, piece: &[u8]) -> io::Result<()> {
        self.has_left |= piece.is_empty();
        let mut all = BytesMut::from(piece);
        while !all.is_empty() {
            let packet = all.split_to(packets.stride.clamp(1, all.len()));
            // Left over from before the handshake.
            if connection::is_greeting(&packet, packet.len(), connection::PREAMBLE_BYTES as u64) {
                continue;
            }
            self.output.clear();
            match self.endpoint.handle(now, self.peer, None, packets.ecn, packet, &mut self.output) {
                Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                    if let Some(open) = self.open.iter_mut().find(|open| open.handle == handle) {
                        open.connection.handle_event(event);
                    }
                }
                Some(DatagramEvent::NewConnection(incoming)) if self.open.len() >= self.most => {
                    self.endpoint.ignore(incoming);
                }
                Some(DatagramEvent::NewConnection(incoming)) => {
                    match self.endpoint.accept(incoming, now, &mut self.output, None) {
                        Ok((handle, connection)) => self.add(handle, connection),
                        Err(error) => error.response.map_or(Ok(()), |response| self.send(&response))?,
                    }
                }
                Some(DatagramEvent::Response(response)) => self.send(&response)?,
                None => {}
            }
        }
        Ok(())
    }

    fn add(&mut self, handle: ConnectionHandle, connection: Connection) {
        self.open.push(Open { handle, connection, is_made: false, lost: None, is_acknowledged: false });
    }

    /// Hands events of a connection to its endpoint, and notes those of its stream.
    fn take_events(&mut self, at: usize) {
        let open = &mut self.open[at];
        while let Some(event) = open.connection.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(open.handle, event) {
                open.connection.handle_event(event);
            }
        }
        while let Some(event) = open.connection.poll() {
            match event {
                Event::Connected => open.is_made = true,
                // They are read by their numbers; the library counts those that were accepted.
                Event::Stream(StreamEvent::Opened { dir }) => while open.connection.streams().accept(dir).is_some() {},
                Event::ConnectionLost { reason } => open.lost = Some(reason),
                Event::Stream(StreamEvent::Finished { .. } | StreamEvent::Stopped { .. }) => {
                    open.is_acknowledged = true;
                }
                _ => {}
            }
        }
    }

    /// Shows the sampler the last connection's figures.
    fn publish(&mut self) {
        let Some(open) = self.open.last() else { return };
        let stats = open.connection.stats();
        let us = |time: Duration| u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
        self.figures.write(QuicInfo {
            rtt_us: us(stats.path.rtt),
            min_rtt_us: us(stats.path.min_rtt),
            cwnd_bytes: stats.path.cwnd,
            mtu_bytes: stats.path.current_mtu.into(),
            packets_sent: stats.path.sent_packets,
            packets_lost: stats.path.lost_packets,
            congestion_events: stats.path.congestion_events,
            blocked: stats.frame_tx.data_blocked + stats.frame_tx.stream_data_blocked,
            datagrams_sent: stats.udp_tx.datagrams,
            datagrams_received: stats.udp_rx.datagrams,
            udp_bytes_sent: stats.udp_tx.bytes,
            send_calls: self.calls.0,
            receive_calls: self.calls.1,
        });
    }

    /// Closes the `at`-th connection, says so, and forgets it.
    pub fn close(&mut self, at: usize) {
        if let Ok(open) = self.get(at) {
            open.connection.close(Instant::now(), VarInt::from_u32(0), Bytes::new());
            // It fails if the peer has gone.
            let _ = self.transmit();
            self.publish();
            let open = self.open.remove(at);
            self.endpoint.handle_event(open.handle, EndpointEvent::drained());
        }
    }
}
