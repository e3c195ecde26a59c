//! The data path: the loops that both ends run, one file per pattern.
//!
//! A loop is chosen once, by [`run`], and is generic over its io method. Inside it there is one system call, the stores
//! of its counters, and the load of one word that says when to stop.

mod connect;
mod datagram;
mod exchange;
mod multiplex;
mod request_response;
pub(crate) mod sequence;
mod stream;
mod workers;

#[cfg(any(test, fuzzing))]
pub use workers::MOST_HISTOGRAM_BYTES;
pub use workers::{
    Assignment, assignments, awaiting_end_of_data, has_latencies, histogram_bytes, onto_threads, thread,
};

use std::{io, ops::Range, sync::Arc, time::Instant};

use nix::sys::socket::MsgFlags;

use crate::{
    io::{
        Channel, Pipe, SocketCalls,
        buffers::{Buffers, Expected},
        fill::FillFiles,
        message::{Messages, Window},
        pages::{Conduit, Sendfile, Splice, Vmsplice},
        quic::Quic,
        tls::Records,
        wait::{Block, Poll, Spin, Wait},
        zerocopy::Zerocopy,
    },
    measure::{
        clock::monotonic_ns,
        counters::FlowCell,
        histogram::{HistogramSlot, Recorder},
        one_way::TripsSlot,
        watch::Watch,
    },
    spec::{self, Io, Receive, Role, Side, TestSpec, Transport, memory},
    transport::{Link, link, stamp::Secret},
};

/// One direction of a flow, with all that its loop needs. It has a thread of its own, unless the test's threads carry
/// several flows.
pub struct Worker {
    /// Index among this end's workers.
    pub index: usize,
    pub spec: Arc<TestSpec>,
    pub side: Side,
    /// Never [`Role::Duplex`]: there are two workers for it.
    pub role: Role,
    /// Whether another worker of this end uses the connection the other way.
    pub duplex: bool,
    pub cell: Arc<FlowCell>,
    pub link: Arc<Link>,
    pub send_buffers: Buffers,
    pub receive_buffers: Buffers,
    pub files: Arc<FillFiles>,
    /// Pipe to send through, for the io methods that need one.
    pub conduit: Option<Conduit>,
    pub latency_slot: Option<Arc<HistogramSlot>>,
    /// Slot for the gaps between a paced worker's sends.
    pub gaps: Option<Arc<HistogramSlot>>,
    /// Slots for the durations of its handshakes, by kind.
    pub handshakes: Option<[Arc<HistogramSlot>; 3]>,
    /// Slot for its round trips or arrivals, if the directions are told apart.
    pub one_way: Option<Arc<TripsSlot>>,
    /// For packets to a reflector that proves them.
    pub secret: Option<Secret>,
    pub watch: Arc<Watch>,
}

/// Why a worker's loop failed.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// A call failed.
    #[error("flow {flow} cannot {what}: {source}")]
    Io {
        flow: u32,
        /// The call: `send`, `receive`.
        what: &'static str,
        source: io::Error,
    },
    /// The peer ended its side of the connection during the test.
    #[error("flow {flow}: the peer closed the connection before the test's end")]
    Closed { flow: u32 },
    /// The peer sent more than was asked for.
    #[error("flow {flow}: the peer sent more than was asked for: are both ends running the same test?")]
    Surplus { flow: u32 },
    /// The far end answers nothing.
    #[error("flow {flow}: {why}")]
    Silent { flow: u32, why: String },
    /// Every local port is taken.
    #[error(
        "flow {flow}: {tried} local ports in a row are taken or in TIME_WAIT: let the far end close first, name \
         more source addresses (bind), widen net.ipv4.ip_local_port_range, or close by reset"
    )]
    Ports { flow: u32, tried: u32 },
    /// A received byte differs from the one that was sent.
    #[error("flow {flow}: wrong data: byte {at} of {what} is not what was sent")]
    Corrupt {
        flow: u32,
        /// Offset, from 0.
        at: u64,
        /// Thing at whose begin the offset is 0: `the stream`, `a message`.
        what: &'static str,
    },
}

/// Adds the meaning of an error on this transport, and the remedy.
fn explain(error: io::Error, transport: Transport) -> io::Error {
    let sentence = match error.raw_os_error() {
        // It says that the peer's socket is closed.
        Some(libc::ECONNREFUSED) if transport.is_datagram() => "the peer's socket is gone (connection refused)",
        Some(libc::EMSGSIZE) if matches!(transport, Transport::UnixDatagram | Transport::UnixSeqpacket) => {
            "the message does not fit the send buffer: choose a smaller one, or ask for more by socket.send_buffer \
             (net.core.wmem_max bounds it)"
        }
        Some(libc::EMSGSIZE) => {
            "the message is too long for the path or the socket: choose a smaller one, or let it be fragmented \
             (mtu_discover: dont)"
        }
        _ => return error,
    };
    io::Error::new(error.kind(), sentence)
}

impl Worker {
    fn error(&self, what: &'static str) -> impl FnOnce(io::Error) -> WorkerError {
        let (flow, transport) = (self.link.flow, self.spec.transport);
        move |source| WorkerError::Io { flow, what, source: explain(source, transport) }
    }

    /// Recorder of this worker's latencies. They are dropped where the test does not collect them.
    fn latencies(&self) -> Recorder {
        Recorder::new(self.latency_slot.clone().unwrap_or_default(), self.cell.epoch())
    }

    /// Recorder of the gaps between a paced worker's sends.
    fn gaps(&self) -> Recorder {
        Recorder::new(self.gaps.clone().unwrap_or_default(), self.cell.epoch())
    }

    /// Recorders of the handshakes of its connections, by kind.
    fn handshakes(&self) -> Option<[Recorder; 3]> {
        self.handshakes.clone().map(|slots| slots.map(|slot| Recorder::new(slot, self.cell.epoch())))
    }

    fn corrupt(&self, what: &'static str, at: u64) -> WorkerError {
        WorkerError::Corrupt { flow: self.link.flow, at, what }
    }

    /// The peer's messages of `bytes`, made anew from the test itself; `None` without `integrity`.
    fn expected(&self, bytes: u64) -> Result<Option<Expected>, WorkerError> {
        // An echo returns our own bytes.
        let sender = if self.side == Side::Near && !self.spec.is_echo() { Side::Far } else { Side::Near };
        self.expected_of(sender, bytes)
    }

    /// The messages of that end.
    fn expected_of(&self, side: Side, bytes: u64) -> Result<Option<Expected>, WorkerError> {
        if !self.spec.integrity {
            return Ok(None);
        }
        Expected::new(bytes, &self.spec.end(side).buffers, self.files.contents(&self.spec, side))
            .map(Some)
            .map_err(|error| self.error("make the expected data")(io::Error::other(error)))
    }

    /// Checks the newly received bytes of the current buffer, which begin at byte `before` of the stream.
    #[inline]
    fn check(&self, expected: &mut Option<Expected>, came: Range<usize>, before: u64) -> Result<(), WorkerError> {
        let Some(expected) = expected else { return Ok(()) };
        let wrong = expected.check(&self.receive_buffers.present()[came]);
        wrong.map_err(|at| self.corrupt("the stream", before + at as u64))
    }

    /// Checks message `number` from byte `at` on, with `integrity`.
    #[inline]
    fn check_message(
        &self,
        expected: Option<&Expected>,
        what: &'static str,
        number: u64,
        (at, rest): (usize, &[u8]),
    ) -> Result<(), WorkerError> {
        let Some(expected) = expected else { return Ok(()) };
        expected.check_rest(number, at, rest).map_err(|wrong| self.corrupt(what, wrong as u64))
    }

    /// Writes the link layer's header before every message to send, where there is one.
    fn prepend_header(&mut self) {
        let (header, bytes) = (&self.link.header, self.send_buffers.message_bytes());
        if !header.is_empty() {
            self.send_buffers.for_each(|frame| link::prepend(header, frame, bytes));
        }
    }

    /// Flags of every receive call on a stream of bytes: by `MSG_TRUNC` the kernel drops them instead of copying them.
    fn receive_flags(&self) -> MsgFlags {
        match self.spec.receive {
            Receive::Copy => MsgFlags::empty(),
            Receive::Discard => MsgFlags::MSG_TRUNC,
        }
    }

    /// Marks the end of this worker's load; the orderly end follows.
    fn load_over(&self) {
        self.watch.load_over(self.index, monotonic_ns());
    }

    /// Ends the loop. An error counts unless the test's end explains it. It is recorded at once: otherwise the peer
    /// could see this end leave, and the sampler would take that for the end of the load.
    fn end_of_loop(&self, result: Result<(), WorkerError>) -> Result<(), WorkerError> {
        match result {
            Err(error) if !self.is_over() || matches!(error, WorkerError::Corrupt { .. }) => {
                self.watch.failed(error.to_string());
                Err(error)
            }
            _ => {
                self.load_over();
                Ok(())
            }
        }
    }

    /// Whether the test has ended, which explains a failed call: the peer, or this end by force, has closed.
    fn is_over(&self) -> bool {
        self.cell.is_over()
    }
}

/// Orderly end of a requester's connection: says that no more comes, and reads to the peer's end.
fn end_of_requests(
    worker: &Worker,
    channel: &mut impl Channel,
    result: Result<(), WorkerError>,
) -> Result<(), WorkerError> {
    let broken = result.is_err();
    let result = worker.end_of_loop(result);
    channel.finish();
    worker.link.end_of_stream();
    if !broken {
        drain(channel);
    }
    result
}

/// Reads to the end of the stream. The peer's last bytes would otherwise meet a closed socket, whose reset destroys
/// what the peer has not read yet.
fn drain(channel: &mut impl Channel) {
    let mut rest = [0; 4096];
    while let Ok(1..) = channel.receive(&mut rest) {}
}

/// Runs a worker's loop on its own thread, from the load's start to the orderly end.
pub fn run(worker: &mut Worker) -> Result<(), WorkerError> {
    let link = worker.link.clone();
    let spins = worker.spec.resolved_io() == Io::Spin;
    if worker.spec.transport.is_quic() {
        return by_quic(worker);
    }
    if worker.spec.pattern.is_connecting() {
        return if spins { by_connections(worker, &spin(worker)) } else { by_connections(worker, &Block) };
    }
    if worker.spec.transport.is_datagram() {
        return if spins { by_datagrams(worker, &spin(worker)) } else { by_datagrams(worker, &Block) };
    }
    if worker.spec.transport == Transport::Mpi {
        return by_messages(worker, Block);
    }
    if worker.spec.transport == Transport::Pipe {
        return over(worker, Pipe { link });
    }
    if worker.spec.records(worker.side) == Some(spec::Records::User) {
        return match worker.spec.resolved_io() {
            Io::Nonblocking => by_records(worker, Poll),
            Io::Spin => {
                let wait = spin(worker);
                by_records(worker, wait)
            }
            _ => by_records(worker, Block),
        };
    }
    let receive_flags = worker.receive_flags();
    match (worker.spec.resolved_io(), worker.role) {
        (Io::Nonblocking, _) => over(worker, SocketCalls { link, wait: Poll, receive_flags }),
        (Io::Spin, _) => {
            let wait = spin(worker);
            over(worker, SocketCalls { link, wait, receive_flags })
        }
        (Io::Sendfile | Io::Splice | Io::Vmsplice | Io::Zerocopy, Role::Sender) => send_pages(worker),
        _ => over(worker, SocketCalls { link, wait: Block, receive_flags }),
    }
}

/// Runs a sender of a constant payload whose pages the kernel sends.
fn send_pages(worker: &mut Worker) -> Result<(), WorkerError> {
    const WHAT: &str = "prepare the pages to send";
    let (link, ring) = (worker.link.clone(), &worker.send_buffers);
    match (worker.spec.resolved_io(), worker.conduit.take()) {
        (Io::Splice, Some(conduit)) => {
            let channel = Splice::new(link, conduit, ring).map_err(worker.error(WHAT))?;
            stream::send(worker, channel)
        }
        (Io::Vmsplice, Some(conduit)) => {
            let channel = Vmsplice::new(link, conduit, ring).map_err(worker.error(WHAT))?;
            stream::send(worker, channel)
        }
        (Io::Zerocopy, _) => {
            let channel = Zerocopy::new(link, worker.cell.clone(), ring).map_err(worker.error(WHAT))?;
            stream::send(worker, channel)
        }
        _ => {
            let channel = Sendfile::new(link, ring).map_err(worker.error(WHAT))?;
            stream::send(worker, channel)
        }
    }
}

fn spin(worker: &Worker) -> Spin {
    let within_host = worker.link.is_within_host(worker.spec.transport);
    let pinned = worker.spec.common_cpu(worker.side, worker.index).filter(|_| within_host);
    Spin::new(worker.watch.clone(), &worker.link, within_host, pinned)
}

/// Runs a worker's loop as one of several on its thread: it yields instead of waiting.
fn run_multiplexed(worker: &mut Worker, turns: multiplex::Turns<'_>) -> Result<(), WorkerError> {
    if worker.spec.pattern.is_connecting() {
        return by_connections(worker, &turns);
    }
    if worker.spec.transport.is_datagram() {
        return by_datagrams(worker, &turns);
    }
    if worker.spec.transport == Transport::Mpi {
        return by_messages(worker, turns);
    }
    if worker.spec.records(worker.side) == Some(spec::Records::User) {
        return by_records(worker, turns);
    }
    let link = worker.link.clone();
    let receive_flags = worker.receive_flags();
    over(worker, SocketCalls { link, wait: turns, receive_flags })
}

/// Runs a worker's loop over TLS. Two workers of one connection have a half each.
fn by_records<W: Wait>(worker: &mut Worker, wait: W) -> Result<(), WorkerError> {
    let sends = !worker.duplex || worker.role == Role::Sender;
    let receives = !worker.duplex || worker.role != Role::Sender;
    let channel = Records::new(worker.link.clone(), wait, sends, receives);
    over(worker, channel)
}

/// Runs a worker's loop over QUIC.
fn by_quic(worker: &mut Worker) -> Result<(), WorkerError> {
    if worker.spec.pattern.is_connecting() {
        return match worker.role {
            Role::Requester => connect::packets::open(worker),
            _ => connect::packets::accept(worker),
        };
    }
    let datagrams = worker.spec.transport.is_datagram();
    let messages = (worker.role == Role::Sender && !datagrams).then_some(&worker.send_buffers);
    let channel = Quic::new(worker.link.clone(), messages).map_err(worker.error("take its connection"))?;
    match worker.role {
        Role::Sender if datagrams => datagram::packets::send(worker, channel),
        _ if datagrams => datagram::packets::receive(worker, channel),
        _ => over(worker, channel),
    }
}

/// Runs a worker's loop over messages between ranks.
fn by_messages<W: Wait>(worker: &mut Worker, wait: W) -> Result<(), WorkerError> {
    const WHAT: &str = "prepare its messages";
    let link = worker.link.clone();
    if worker.spec.resolved_io() == Io::Blocking {
        let channel = Messages::new(&link).map_err(worker.error(WHAT))?;
        return over(worker, channel);
    }
    let receives = matches!(worker.role, Role::Receiver | Role::Duplex);
    if receives && worker.spec.has_window() {
        return stream::receive_windowed(worker, &wait);
    }
    let (shape, _) = memory::shapes(&worker.spec, worker.side, worker.role);
    let contents = worker.files.contents(&worker.spec, worker.side);
    let ring = Buffers::to_send(shape, &worker.spec.end(worker.side).buffers, contents);
    let ring = ring.map_err(|error| worker.error(WHAT)(io::Error::other(error)))?;
    let most = worker.spec.inflight as usize;
    let channel = Window::new(link, wait, ring, most).map_err(worker.error(WHAT))?;
    over(worker, channel)
}

/// Runs a worker's loop over the submission ring of its thread.
fn run_submitted(worker: &mut Worker, channel: multiplex::ring::Submitted<'_>) -> Result<(), WorkerError> {
    over(worker, channel)
}

fn by_connections<W: Wait>(worker: &mut Worker, wait: &W) -> Result<(), WorkerError> {
    match worker.role {
        Role::Requester => connect::open(worker, wait),
        _ => connect::accept(worker, wait),
    }
}

fn by_datagrams<W: Wait>(worker: &mut Worker, wait: &W) -> Result<(), WorkerError> {
    match worker.role {
        Role::Sender => datagram::send(worker, wait),
        Role::Receiver | Role::Duplex => datagram::receive(worker, wait),
        Role::Requester => exchange::request(worker, wait),
        Role::Responder => exchange::respond(worker, wait),
    }
}

#[inline]
fn between(start: Instant, end: Instant) -> u64 {
    // No operation takes 584 years.
    #[expect(clippy::cast_possible_truncation)]
    let nanoseconds = end.saturating_duration_since(start).as_nanos() as u64;
    nanoseconds
}

fn over<C: Channel>(worker: &mut Worker, channel: C) -> Result<(), WorkerError> {
    match worker.role {
        Role::Sender => stream::send(worker, channel),
        Role::Receiver | Role::Duplex => stream::receive(worker, channel),
        Role::Requester => match worker.spec.pace {
            Some(pace) => request_response::request_offered(worker, channel, &pace),
            None => request_response::request(worker, channel),
        },
        Role::Responder => request_response::respond(worker, channel),
    }
}
