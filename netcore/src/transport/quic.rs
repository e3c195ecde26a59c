//! QUIC (RFC 9000) over the pair of sockets of a flow: the loop that moves the packets of its connections, and their handshakes.
//!
//! The sockets are connected to each other after the near end has proven the session's token, as those of UDP: the kernel drops the
//! packets of strangers, and the address is known, so that no Retry is needed. The certificate is that of the test ([`super::tls`]).
//!
//! The library is a state machine. The thread that uses a connection drives it with [`Node::turn`]: timers, packets to send, a wait,
//! packets that came. A stream or request/response has one connection, made before the load, with a stream of each end to the other.

use std::{
    collections::VecDeque,
    fmt,
    io::{self, ErrorKind, IoSliceMut},
    net::SocketAddr,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use nix::{
    poll::{PollFd, PollFlags, ppoll},
    sys::{
        socket::{MsgFlags, send},
        time::TimeSpec,
    },
};
use quinn_proto::{
    ClientConfig, Connection, ConnectionError, ConnectionHandle, DatagramEvent, Dir, EcnCodepoint, Endpoint,
    EndpointConfig, EndpointEvent, Event, MtuDiscoveryConfig, ReadError, ReadableError, SendStream, ServerConfig, Side,
    StreamEvent, StreamId, Transmit, TransportConfig, VarInt, WriteError, congestion,
    crypto::rustls::{QuicClientConfig, QuicServerConfig},
};
use quinn_udp::{BATCH_SIZE, RecvMeta, UdpSocketState};
use rustls::{
    NamedGroup,
    client::{ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls13ClientSessionValue},
    crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256,
    pki_types::ServerName,
};

use super::{Deadline, Link, address, connection, tls};
use crate::{
    error::EndError,
    measure::counters::Published,
    report::{Granted, QuicInfo},
    spec::{QuicCongestionControl, Session, TestSpec},
};

/// The protocol's name in handshakes (ALPN).
const PROTOCOL: &[u8] = b"plumb";

/// Bytes of a buffer for what one entry of a receiving call gives.
const PIECE_BYTES: usize = 65_535;

/// Most bytes of a sending call: the length of a datagram that the kernel splits.
const CALL_BYTES: usize = 65_000;

/// Most receiving calls in a row: then it is time for acknowledgements.
const CALLS_PER_TURN: usize = 4;

/// Least bytes that a stream may hold ahead of its acknowledgements, whatever the congestion window.
const LEAST_AHEAD: u64 = 256 << 10;

/// Least time between two looks for packets of a sender that has not to wait.
const TAKEN_PAUSE: Duration = Duration::from_micros(200);

/// Least time between two updates of the figures for the sampler.
const FIGURES_PAUSE: Duration = Duration::from_micros(100);

/// Longest wait at a time, so that the end of the test is noticed.
const LOOK_UP: Duration = Duration::from_millis(50);

/// Connections of a connect pattern that a far end keeps at most: the present one, and those whose end got lost.
const MOST_CONNECTIONS: usize = 64;

/// Time without a packet after which a connection of a connect pattern counts as lost, milliseconds.
const IDLE_MS: u32 = 10_000;

/// Tickets of a flow that are kept.
const TICKETS: usize = 16;

/// Empty datagrams by which a near end says that it begins no more connections. One may be lost.
const FAREWELLS: usize = 3;

/// QUIC of a flow, until its loop takes it; the sampler reads its figures.
#[derive(Debug)]
pub struct Flow {
    node: Mutex<Option<Box<Node>>>,
    figures: Arc<Published<QuicInfo>>,
    congestion_control: QuicCongestionControl,
    asked: Option<QuicCongestionControl>,
    cipher: &'static str,
    asked_cipher: Option<&'static str>,
}

impl Flow {
    /// Takes the connections; one loop has them.
    pub fn take(&self) -> Option<Box<Node>> {
        self.node.lock().unwrap_or_else(PoisonError::into_inner).take()
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

/// Tickets of earlier connections of a flow. A connection uses one and brings others, and whoever wants to use one next waits until
/// it is there.
#[derive(Debug, Default)]
pub struct Tickets(Mutex<(Option<NamedGroup>, VecDeque<Tls13ClientSessionValue>)>);

impl Tickets {
    fn state(&self) -> std::sync::MutexGuard<'_, (Option<NamedGroup>, VecDeque<Tls13ClientSessionValue>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_empty(&self) -> bool {
        self.state().1.is_empty()
    }
}

impl ClientSessionStore for Tickets {
    fn set_kx_hint(&self, _: ServerName<'static>, group: NamedGroup) {
        self.state().0 = Some(group);
    }

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        self.state().0
    }

    /// TLS 1.2 is not offered.
    fn set_tls12_session(&self, _: ServerName<'static>, _: Tls12ClientSessionValue) {}

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {}

    fn insert_tls13_ticket(&self, _: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        let mut state = self.state();
        state.1.truncate(TICKETS - 1);
        state.1.push_front(ticket);
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.state().1.pop_front()
    }
}

/// What a near end begins its connections with.
struct Opening {
    config: ClientConfig,
    /// Set when the far end's certificate is checked, which no resumed handshake does.
    checked: Arc<AtomicBool>,
    /// `None`: each connection has a full handshake.
    tickets: Option<Arc<Tickets>>,
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

/// The streams of a connection: which one is it?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// From this end to the other, of a stream or request/response.
    Out,
    /// From the other end to this one.
    In,
    /// The request and its response, of a connect pattern.
    Exchange,
}

/// An end of the connections over a flow's sockets.
pub struct Node {
    endpoint: Endpoint,
    socket: Arc<OwnedFd>,
    state: UdpSocketState,
    /// The flow's link has this end of it.
    peer: SocketAddr,
    opening: Option<Opening>,
    /// Connections that a far end accepts at the same time.
    most: usize,
    open: Vec<Open>,
    /// Bytes that a stream may hold ahead of its acknowledgements at most.
    window: u64,
    pieces: Box<[u8]>,
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

impl Stream {
    fn id(self, side: Side) -> StreamId {
        match self {
            Self::Out => StreamId::new(side, Dir::Uni, 0),
            Self::In => StreamId::new(!side, Dir::Uni, 0),
            Self::Exchange => StreamId::new(Side::Client, Dir::Bi, 0),
        }
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

/// The connection has no such stream any more.
fn gone() -> io::Error {
    io::Error::new(ErrorKind::BrokenPipe, "the stream of QUIC is closed")
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
        if wait.is_zero() || self.wait(PollFlags::POLLIN, wait)? { self.take_packets() } else { Ok(()) }
    }

    /// Sends what may be sent now, and takes what has come unless it did so just now: a sender that never waits has
    /// acknowledgements to read, too.
    pub fn go_on(&mut self) -> io::Result<()> {
        if self.taken.elapsed() >= TAKEN_PAUSE {
            self.take_packets()?;
        }
        self.transmit()
    }

    /// Waits for an event of the socket. `true`: it has come.
    fn wait(&self, event: PollFlags, at_most: Duration) -> io::Result<bool> {
        match ppoll(&mut [PollFd::new(self.socket.as_fd(), event)], Some(TimeSpec::from_duration(at_most)), None) {
            Ok(ready) => Ok(ready > 0),
            Err(nix::Error::EINTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
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
                    self.wait(PollFlags::POLLOUT, LOOK_UP)?;
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

    /// Takes the packets that have come.
    fn take_packets(&mut self) -> io::Result<()> {
        self.taken = Instant::now();
        for _ in 0..CALLS_PER_TURN {
            let mut metas = [RecvMeta::default(); BATCH_SIZE];
            let mut pieces = std::mem::take(&mut self.pieces);
            let received = {
                let mut parts: Vec<IoSliceMut<'_>> = pieces.chunks_mut(PIECE_BYTES).map(IoSliceMut::new).collect();
                self.state.recv((&self.socket).into(), &mut parts, &mut metas)
            };
            let done = match received {
                Ok(count) => {
                    self.calls.1 += 1;
                    let now = Instant::now();
                    let mut all = metas[..count].iter().zip(pieces.chunks(PIECE_BYTES));
                    let taken = all.try_for_each(|(meta, piece)| self.take_piece(now, meta, &piece[..meta.len]));
                    taken.map(|()| count < BATCH_SIZE)
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(true),
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                    self.is_refused = true;
                    Ok(false)
                }
                Err(error) => Err(error),
            };
            self.pieces = pieces;
            if done? {
                break;
            }
        }
        if std::mem::take(&mut self.is_refused) {
            // Its last packets may have said why it left.
            (0..self.open.len()).for_each(|at| self.take_events(at));
            self.open.iter_mut().for_each(|open| _ = open.lost.get_or_insert(ConnectionError::Reset));
        }
        Ok(())
    }

    /// Takes packets that came as one piece.
    fn take_piece(&mut self, now: Instant, meta: &RecvMeta, piece: &[u8]) -> io::Result<()> {
        self.has_left |= piece.is_empty();
        let mut all = BytesMut::from(piece);
        while !all.is_empty() {
            let packet = all.split_to(meta.stride.clamp(1, all.len()));
            // Left over from before the handshake.
            if connection::is_greeting(&packet, packet.len(), connection::PREAMBLE_BYTES as u64) {
                continue;
            }
            self.output.clear();
            let ecn = meta.ecn.and_then(|ecn| EcnCodepoint::from_bits(ecn as u8));
            match self.endpoint.handle(now, self.peer, None, ecn, packet, &mut self.output) {
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

    /// Writes to a stream of the `at`-th connection; `None`: it holds as much as it may. As with TCP, that grows with the congestion
    /// window: what a stream holds beyond it has only been waiting longer.
    pub fn write(
        &mut self,
        (at, stream): (usize, Stream),
        write: impl FnOnce(&mut SendStream<'_>) -> Result<usize, WriteError>,
    ) -> io::Result<Option<usize>> {
        let window = self.window;
        let open = self.get(at)?;
        if let Some(reason) = &open.lost {
            return Err(over(reason));
        }
        let ahead = (2 * open.connection.congestion_state().window()).clamp(LEAST_AHEAD.min(window), window);
        open.connection.set_send_window(ahead);
        let stream = stream.id(open.connection.side());
        match write(&mut open.connection.send_stream(stream)) {
            Ok(written) => Ok(Some(written)),
            Err(WriteError::Blocked) => Ok(None),
            Err(_) => Err(gone()),
        }
    }

    /// Takes bytes that have come on a stream of the `at`-th connection; 0: its end. `None`: none are there.
    pub fn read(&mut self, (at, stream): (usize, Stream), buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let open = self.get(at)?;
        let stream = stream.id(open.connection.side());
        let mut receive = open.connection.recv_stream(stream);
        let mut chunks = match receive.read(true) {
            Ok(chunks) => chunks,
            Err(ReadableError::ClosedStream) => return Ok(Some(0)),
            Err(ReadableError::IllegalOrderedRead) => return Err(gone()),
        };
        let mut got = 0;
        let end = loop {
            if got == buffer.len() {
                break Ok(None);
            }
            match chunks.next(buffer.len() - got) {
                Ok(Some(chunk)) => {
                    buffer[got..got + chunk.bytes.len()].copy_from_slice(&chunk.bytes);
                    got += chunk.bytes.len();
                }
                Ok(None) => break Ok(Some(())),
                Err(ReadError::Blocked) => break Ok(None),
                Err(ReadError::Reset(_)) => break Err(gone()),
            }
        };
        let _ = chunks.finalize();
        match end? {
            _ if got > 0 => Ok(Some(got)),
            Some(()) => Ok(Some(0)),
            // What came before the end of the connection is still there.
            None => open.lost.as_ref().map_or(Ok(None), |reason| Err(over(reason))),
        }
    }

    /// Ends a stream of the `at`-th connection.
    pub fn finish(&mut self, (at, stream): (usize, Stream)) {
        if let Ok(open) = self.get(at) {
            let stream = stream.id(open.connection.side());
            // It fails if the stream has ended.
            let _ = open.connection.send_stream(stream).finish();
        }
    }

    /// Whether the other end has all of a stream's bytes, or is gone.
    pub fn is_settled(&mut self) -> bool {
        self.get(0).map_or(true, |open| open.is_acknowledged || open.lost.is_some())
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

// Connections of the connect patterns.
impl Node {
    /// Near end: begins a connection, which is then the last one.
    pub fn begin(&mut self) -> io::Result<()> {
        let Some(opening) = &self.opening else { return Ok(()) };
        opening.checked.store(false, Relaxed);
        let begun = self.endpoint.connect(Instant::now(), opening.config.clone(), self.peer, tls::NAME);
        let (handle, connection) = begun.map_err(io::Error::other)?;
        self.add(handle, connection);
        Ok(())
    }

    /// Connections that are open.
    pub fn count(&self) -> usize {
        self.open.len()
    }

    /// Whether the handshake of the `at`-th connection has ended. An error if the connection has.
    pub fn is_made(&mut self, at: usize) -> io::Result<bool> {
        let open = self.get(at)?;
        match &open.lost {
            Some(reason) => Err(over(reason)),
            None => Ok(open.is_made),
        }
    }

    /// Whether the handshake of the `at`-th connection ended, before the connection perhaps did.
    pub fn was_made(&self, at: usize) -> bool {
        self.open.get(at).is_some_and(|open| open.is_made)
    }

    /// Near end: opens the stream of the last connection's request, if it can be sent now: in the first flight with the ticket of a
    /// session, else after the handshake.
    pub fn open_exchange(&mut self) -> io::Result<bool> {
        let at = self.open.len().saturating_sub(1);
        let open = self.get(at)?;
        if open.connection.is_handshaking() && !open.connection.has_0rtt() {
            return Ok(false);
        }
        open.connection.streams().open(Dir::Bi).map(|_| true).ok_or_else(gone)
    }

    /// Near end, after the handshake of the last connection: its place in [`crate::spec::HANDSHAKES`].
    pub fn kind_of_handshake(&mut self) -> usize {
        let is_full = self.opening.as_ref().is_none_or(|opening| opening.checked.load(Relaxed));
        let is_early = self.open.last().is_some_and(|open| open.connection.accepted_0rtt());
        match (is_full, is_early) {
            (true, _) => 0,
            (false, false) => 1,
            (false, true) => 2,
        }
    }

    /// Near end: whether the next connection has what it begins with: a ticket, if it is to resume a session.
    pub fn may_begin(&self) -> bool {
        self.opening.as_ref().and_then(|opening| opening.tickets.as_ref()).is_none_or(|tickets| !tickets.is_empty())
    }

    /// Near end: says that it begins no more connections.
    pub fn leave(&self) {
        for _ in 0..FAREWELLS {
            // The peer may be gone.
            let _ = send(self.socket.as_raw_fd(), &[], MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT);
        }
    }

    /// Far end: whether the other end has said so.
    pub fn has_left(&self) -> bool {
        self.has_left
    }
}

/// The transport's settings, which both ends share.
fn transport(spec: &TestSpec) -> Arc<TransportConfig> {
    let options = spec.quic_options().unwrap_or_default();
    let window = VarInt::from_u64(options.window_bytes()).unwrap_or(VarInt::MAX);
    let mut discovery = MtuDiscoveryConfig::default();
    discovery.upper_bound(options.mtu_bytes());
    let mut config = TransportConfig::default();
    config
        .stream_receive_window(window)
        .receive_window(window)
        .send_window(options.window_bytes())
        .max_concurrent_uni_streams(VarInt::from_u32(1))
        .max_concurrent_bidi_streams(VarInt::from_u32(1))
        .mtu_discovery_config(Some(discovery))
        .datagram_receive_buffer_size(None)
        .crypto_buffer_size(16 << 10)
        .allow_spin(false)
        // The test has a deadline of its own.
        .max_idle_timeout(spec.pattern.is_connecting().then(|| VarInt::from_u32(IDLE_MS).into()));
    match options.congestion_control.unwrap_or_default() {
        QuicCongestionControl::Cubic => {}
        QuicCongestionControl::NewReno => {
            config.congestion_controller_factory(Arc::new(congestion::NewRenoConfig::default()));
        }
        QuicCongestionControl::Bbr => {
            config.congestion_controller_factory(Arc::new(congestion::BbrConfig::default()));
        }
    }
    Arc::new(config)
}

fn failed(error: impl fmt::Display) -> EndError {
    EndError::Impossible(format!("cannot begin QUIC: {error}"))
}

/// Prepares an end of a flow.
fn node(link: &Link, spec: &TestSpec, part: tls::Part<'_>) -> Result<Node, EndError> {
    let options = spec.quic_options().unwrap_or_default();
    let initial = TLS13_AES_128_GCM_SHA256.tls13().and_then(rustls::Tls13CipherSuite::quic_suite);
    let initial = initial.ok_or_else(|| failed("its library lacks AES-128"))?;
    let (mut server, mut opening) = (None, None);
    match part {
        tls::Part::Far(identity) => {
            let mut config = (*identity.config).clone();
            config.alpn_protocols = vec![PROTOCOL.to_vec()];
            if config.max_early_data_size > 0 {
                // QUIC bounds it by its windows: RFC 9001, section 4.6.1.
                config.max_early_data_size = u32::MAX;
            }
            let crypto = QuicServerConfig::with_initial(Arc::new(config), initial).map_err(failed)?;
            let mut config = ServerConfig::with_crypto(Arc::new(crypto));
            config
                .transport_config(transport(spec))
                .migration(false)
                .max_incoming(MOST_CONNECTIONS)
                .incoming_buffer_size(64 << 10)
                .incoming_buffer_size_total(1 << 20);
            server = Some(Arc::new(config));
        }
        tls::Part::Near(fingerprint) => {
            let cipher = spec.cipher().unwrap_or_default();
            let (mut config, _, checked) = tls::client(cipher, fingerprint).map_err(failed)?;
            config.alpn_protocols = vec![PROTOCOL.to_vec()];
            let tickets =
                spec.session().filter(|session| *session != Session::Full).map(|_| Arc::new(Tickets::default()));
            if let Some(tickets) = &tickets {
                config.resumption = Resumption::store(tickets.clone());
                config.enable_early_data = spec.session() == Some(Session::Early);
            }
            let crypto = QuicClientConfig::with_initial(Arc::new(config), initial).map_err(failed)?;
            let mut config = ClientConfig::new(Arc::new(crypto));
            config.transport_config(transport(spec));
            opening = Some(Opening { config, checked, tickets });
        }
    }
    let state =
        UdpSocketState::new((&link.receive).into()).map_err(EndError::system("cannot prepare a socket for QUIC"))?;
    let mut config = EndpointConfig::default();
    config.max_udp_payload_size(options.mtu_bytes().max(1472)).map_err(failed)?;
    let most = if spec.pattern.is_connecting() { MOST_CONNECTIONS } else { 1 };
    Ok(Node {
        endpoint: Endpoint::new(Arc::new(config), server, !state.may_fragment(), None),
        socket: link.receive.clone(),
        state,
        peer: address::peer_ip(&link.receive)?,
        opening,
        most,
        open: Vec::with_capacity(most),
        window: options.window_bytes(),
        pieces: vec![0; BATCH_SIZE * PIECE_BYTES].into_boxed_slice(),
        output: Vec::with_capacity(1 << 16),
        figures: Arc::default(),
        taken: Instant::now(),
        published: Instant::now(),
        calls: (0, 0),
        is_refused: false,
        has_left: false,
    })
}

/// Makes the handshakes of all flows, at the same time; of a connect pattern, prepares them.
pub fn secure(
    links: &[Arc<Link>],
    spec: &TestSpec,
    part: tls::Part<'_>,
    deadline: &Deadline<'_>,
) -> Result<(), EndError> {
    let Some(options) = spec.quic_options() else { return Ok(()) };
    let prepare = |link: &Arc<Link>| Ok(Handshake { flow: link.flow, node: node(link, spec, part)?, quiet_by: None });
    let mut all: Vec<Handshake> = links.iter().map(prepare).collect::<Result<_, EndError>>()?;
    if !spec.pattern.is_connecting() {
        shake_hands(&mut all, deadline)?;
    }
    for (link, Handshake { node, .. }) in links.iter().zip(all) {
        // A link has one end. No other cipher is offered, so every handshake agrees on it or fails.
        let _ = link.quic.set(Flow {
            figures: node.figures.clone(),
            node: Mutex::new(Some(Box::new(node))),
            congestion_control: options.congestion_control.unwrap_or_default(),
            asked: options.congestion_control,
            cipher: spec.cipher().unwrap_or_default().name(),
            asked_cipher: spec.tls.map(|tls| tls.cipher.name()),
        });
    }
    Ok(())
}

/// A flow whose connection is being made.
struct Handshake {
    flow: u32,
    node: Node,
    /// When it need not wait any longer for the last acknowledgement, once it is made.
    quiet_by: Option<Instant>,
}

/// Makes the connections of all flows, and goes on until nothing is under way: the path's MTU is known then, and the first round trip
/// of the load has no packet of before. An end cannot know that the other one has its last acknowledgement, so this has a bound.
fn shake_hands(all: &mut [Handshake], deadline: &Deadline<'_>) -> Result<(), EndError> {
    let count = all.len();
    let mut left: Vec<&mut Handshake> = all.iter_mut().collect();
    for each in &mut left {
        each.node.begin().map_err(|error| each.failed(&error))?;
    }
    while !left.is_empty() {
        if deadline.left().is_zero() {
            let flows = u32::try_from(count).unwrap_or(u32::MAX);
            return Err(deadline.missed(count - left.len(), flows, "a QUIC handshake did not end"));
        }
        // Of several, none waits long for its own packets.
        let wait = if left.len() == 1 { deadline.slice() } else { Duration::from_micros(200) };
        let mut waiting = Vec::with_capacity(left.len());
        for each in left {
            if !each.go_on(wait)? {
                waiting.push(each);
            }
        }
        left = waiting;
    }
    Ok(())
}

impl Handshake {
    fn failed(&self, reason: &dyn fmt::Display) -> EndError {
        EndError::Impossible(format!("flow {}: the QUIC handshake failed: {reason}", self.flow))
    }

    /// Goes on for a while. Whether it has ended.
    fn go_on(&mut self, wait: Duration) -> Result<bool, EndError> {
        self.node.transmit().map_err(|error| self.failed(&error))?;
        if let Some(open) = self.node.open.last_mut() {
            if let Some(reason) = &open.lost {
                let reason = because(reason);
                return Err(self.failed(&reason));
            }
            if !open.connection.is_handshaking() {
                let now = Instant::now();
                let by = *self.quiet_by.get_or_insert_with(|| now + 10 * open.connection.rtt() + 5 * LOOK_UP);
                if open.connection.poll_timeout().is_none() || now >= by {
                    // Each end has one stream to the other.
                    let opened = open.connection.streams().open(Dir::Uni);
                    return opened.map(|_| true).ok_or_else(|| self.failed(&"the other end allows no stream"));
                }
            }
        }
        self.node.turn(Instant::now() + wait).map_err(|error| self.failed(&error))?;
        Ok(false)
    }
}
