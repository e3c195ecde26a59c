//! Connections opened and closed (netperf's TCP_CC), or opened for one request and response each (TCP_CRR).
//!
//! By default the far end closes first, so that TIME_WAIT gathers where it costs no ports: the near end, which needs a
//! new port for every connection, never runs out. With `close: near_first` it does, like an ordinary client. With
//! `reset` no connection ends in TIME_WAIT: the near end answers the far end's close with a reset.
//!
//! The connection that proved a flow's token stays open as long as the near end goes on. Its end tells the far end that
//! no more connections will come. netperf waits for four seconds instead.

pub mod packets;
mod secured;

use std::{
    io::{self, IoSlice, Read, Write},
    os::fd::{AsRawFd, OwnedFd},
    sync::atomic::Ordering::Relaxed,
    time::Instant,
};

use nix::sys::socket::{MsgFlags, Shutdown, recv, send, sendmsg, shutdown};

use secured::Secured;

use super::{Worker, WorkerError, between, request_response::Offer};
use crate::{
    io::{
        buffers::Expected,
        wait::{LOOK_UP_NS, Sleep, Wait},
    },
    measure::{clock::monotonic_ns, histogram::Recorder},
    spec::{Close, Pattern},
    transport::{
        Link,
        listener::{ConnectError, Connection, Connector, Event, Listener},
    },
};

/// The test gives up after this many taken ports in a row.
const TAKEN_PORTS: u32 = 70_000;

/// The calls of a loop on one connection.
struct Calls<'a, W> {
    worker: &'a Worker,
    wait: &'a W,
    connection: &'a Connection,
    sends: u64,
    receives: u64,
}

impl<'a, W: Wait> Calls<'a, W> {
    fn new(worker: &'a Worker, wait: &'a W, connection: &'a Connection) -> Self {
        Self { worker, wait, connection, sends: 0, receives: 0 }
    }

    /// Repeats a call that was interrupted, or that would block while the test goes on.
    #[inline]
    fn repeat(&self, event: Event, mut call: impl FnMut(i32, MsgFlags) -> nix::Result<usize>) -> io::Result<usize> {
        loop {
            match call(self.connection.socket.as_raw_fd(), MsgFlags::MSG_NOSIGNAL | self.wait.flags()) {
                Ok(n) => {
                    self.wait.succeeded(event);
                    return Ok(n);
                }
                Err(nix::Error::EINTR) => {}
                // Also a timeout inherited from the listener, or Fast Open without data in the SYN.
                Err(error @ (nix::Error::EAGAIN | nix::Error::EINPROGRESS)) => {
                    if !self.wait.for_connection(self.connection, event)? && self.is_given_up() {
                        return Err(error.into());
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Whether the other end no longer uses this connection. The far end's own time does not say so: the near end may still be in its
    /// last transaction, and would take a close for a failure.
    fn is_given_up(&self) -> bool {
        let link = &self.worker.link;
        self.worker.is_over() && link.listener.as_ref().is_none_or(|listener| have_left(link, listener))
    }

    /// Sends a whole request or response.
    fn put(&mut self, tls: &mut Option<Secured>, bytes: &[u8]) -> io::Result<()> {
        match tls {
            Some(tls) => tls.send_all(self, bytes),
            None => self.write_all(bytes),
        }
    }

    /// Receives a whole request or response.
    fn get(&mut self, tls: &mut Option<Secured>, buffer: &mut [u8]) -> io::Result<()> {
        match tls {
            Some(tls) => tls.receive_all(self, buffer),
            None => self.read_exact(buffer),
        }
    }

    /// Says that this end sends no more, which a connection without TLS does by its close.
    fn end(&mut self, tls: &mut Option<Secured>) -> io::Result<()> {
        tls.as_mut().map_or(Ok(()), |tls| tls.end(self))
    }

    /// Waits for the peer's end: 0, or the number of bytes that came in its place.
    fn peer_end(&mut self, tls: &mut Option<Secured>) -> io::Result<usize> {
        match tls {
            Some(tls) => tls.peer_end(self),
            None => self.read(&mut [0]),
        }
    }
}

impl<W: Wait> Read for Calls<'_, W> {
    #[inline]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.repeat(Event::Input, |fd, flags| recv(fd, buffer, flags))?;
        self.receives += 1;
        Ok(n)
    }
}

impl<W: Wait> Write for Calls<'_, W> {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.repeat(Event::Room, |fd, flags| send(fd, bytes, flags))?;
        self.sends += 1;
        Ok(n)
    }

    /// In one call, so that one segment carries them.
    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let n = self.repeat(Event::Room, |fd, flags| sendmsg::<()>(fd, parts, &[], flags, None))?;
        self.sends += 1;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Counters of either side.
#[derive(Default)]
struct Tally {
    transactions: u64,
    sends: u64,
    receives: u64,
    errors: u64,
}

impl Tally {
    fn store(&self, worker: &Worker, sent_bytes: u64, received_bytes: u64) {
        let cell = &worker.cell;
        cell.sent.0.bytes.store(self.transactions * sent_bytes, Relaxed);
        cell.sent.0.calls.store(self.sends, Relaxed);
        cell.received.0.bytes.store(self.transactions * received_bytes, Relaxed);
        cell.received.0.calls.store(self.receives, Relaxed);
        cell.operations.0.transactions.store(self.transactions, Relaxed);
        cell.operations.0.connections.store(self.transactions, Relaxed);
        cell.operations.0.errors.store(self.errors, Relaxed);
    }
}

/// Whether each connection carries a request and its response.
fn carries_data(worker: &Worker) -> bool {
    worker.spec.pattern == Pattern::ConnectRequestResponse
}

/// The near end's loop; then tells the far end that no more connections will come.
pub fn open<W: Wait>(worker: &mut Worker, wait: &W) -> Result<(), WorkerError> {
    let result = open_loop(worker, wait);
    worker.link.end_of_stream();
    result
}

fn open_loop<W: Wait>(worker: &mut Worker, wait: &W) -> Result<(), WorkerError> {
    let link = worker.link.clone();
    let Some(connector) = &link.connector else { return Ok(()) };
    let mut recorder = worker.latencies();
    let mut offer = worker.spec.pace.map(|pace| Offer::new(&pace, worker.gaps()));
    let mut state = State::new(worker, worker.spec.sizes.response_bytes)?;
    let mut number = 0;
    let mut taken = 0;
    let result = loop {
        if state.tally.transactions >= worker.cell.limit() {
            break Ok(());
        }
        wait.yield_now();
        let Some((start, waited_ns)) = next_start(worker, &mut offer, wait) else { break Ok(()) };
        let connection = match connect(connector, number, wait) {
            Ok(connection) => connection,
            Err(ConnectError::Port) => {
                number += 1;
                taken += 1;
                state.tally.errors += 1;
                worker.cell.operations.0.errors.store(state.tally.errors, Relaxed);
                if taken > TAKEN_PORTS {
                    break Err(WorkerError::Ports { flow: link.flow, tried: taken });
                }
                continue;
            }
            Err(ConnectError::Fatal(error)) => break Err(worker.error("connect")(error)),
        };
        (number, taken) = (number + 1, 0);
        match transact(worker, wait, &connection, start, &mut state) {
            Ok(nanoseconds) => {
                connector.present.leave(connection);
                state.has_done(worker, &mut recorder, nanoseconds + waited_ns);
                if let Some(offer) = &mut offer {
                    offer.was_full();
                }
            }
            Err(error) => {
                let told = worker.end_of_loop(Err(error));
                connector.present.leave(connection);
                break told;
            }
        }
    };
    worker.end_of_loop(result)
}

/// The instant at which the next connection begins, and the time since it was due, nanoseconds. `None`: the load is over.
fn next_start(worker: &Worker, offer: &mut Option<Offer>, wait: &impl Sleep) -> Option<(Instant, u64)> {
    let Some(offer) = offer else { return Some((Instant::now(), 0)) };
    while offer.wait(worker, wait) {
        if let Some(due_ns) = offer.take(worker) {
            return Some((Instant::now(), monotonic_ns().saturating_sub(due_ns)));
        }
    }
    None
}

/// Opens a connection and waits until it is established.
fn connect<W: Wait>(connector: &Connector, number: u64, wait: &W) -> Result<Connection, ConnectError> {
    let connection = connector.connect(number)?;
    loop {
        let failed = match connection.is_made() {
            Ok(true) => {
                wait.succeeded(Event::Room);
                return Ok(connection);
            }
            Ok(false) => wait.for_connection(&connection, Event::Room).err().map(ConnectError::Fatal),
            Err(error) => Some(error),
        };
        if let Some(error) = failed {
            connector.present.leave(connection);
            return Err(error);
        }
    }
}

/// Bytes that the near end sends and receives per transaction.
fn bytes(worker: &Worker) -> (u64, u64) {
    if carries_data(worker) { (worker.spec.sizes.request_bytes, worker.spec.sizes.response_bytes) } else { (0, 0) }
}

/// A loop's state besides its worker: what it counts, the data that it expects, and the durations of its handshakes.
struct State {
    tally: Tally,
    expected: Option<Expected>,
    handshakes: Option<[Recorder; 3]>,
}

impl State {
    /// Of a loop that receives messages of so many bytes.
    fn new(worker: &Worker, bytes: u64) -> Result<Self, WorkerError> {
        let expected = worker.expected(bytes)?;
        Ok(Self { tally: Tally::default(), expected, handshakes: worker.handshakes() })
    }

    /// Counts a connection of the near end with its latency, nanoseconds.
    fn has_done(&mut self, worker: &Worker, recorder: &mut Recorder, nanoseconds: u64) {
        self.tally.transactions += 1;
        let (sent, received) = bytes(worker);
        self.tally.store(worker, sent, received);
        recorder.record(worker.cell.epoch(), nanoseconds);
    }
}

/// One connection at the near end, until it may be closed; returns its latency, nanoseconds.
fn transact<W: Wait>(
    worker: &mut Worker,
    wait: &W,
    connection: &Connection,
    start: Instant,
    state: &mut State,
) -> Result<u64, WorkerError> {
    let mut tls = Secured::begin(&worker.link).map_err(worker.error("begin a TLS handshake"))?;
    if carries_data(worker) {
        worker.send_buffers.touch();
    }
    let mut calls = Calls::new(worker, wait, connection);
    let request = if carries_data(worker) { worker.send_buffers.present() } else { &[] };
    let mut taken = 0;
    if let Some(tls) = &mut tls {
        let begun = Instant::now();
        let kind;
        (kind, taken) = tls.shake_hands(&mut calls, request).map_err(worker.error("make a TLS handshake"))?;
        if let Some(handshakes) = &mut state.handshakes {
            handshakes[kind].record(worker.cell.epoch(), between(begun, Instant::now()));
        }
    }
    state.tally.receives += calls.receives;
    let mut done = Instant::now();
    if carries_data(worker) {
        calls.put(&mut tls, &request[taken..]).map_err(worker.error("send a request"))?;
        state.tally.sends += calls.sends;
        worker.send_buffers.advance();
        take(worker, wait, connection, (state, &mut tls), "receive a response")?;
        done = Instant::now();
    }
    let mut calls = Calls::new(worker, wait, connection);
    if worker.spec.close == Close::NearFirst {
        // A peer that is gone has closed too.
        let _ = calls.end(&mut tls);
        let _ = shutdown(connection.socket.as_raw_fd(), Shutdown::Write);
    }
    match calls.peer_end(&mut tls) {
        Ok(0) => Ok(between(start, done)),
        Ok(_) => Err(WorkerError::Surplus { flow: worker.link.flow }),
        Err(error) => Err(worker.error("close a connection")(error)),
    }
}

/// Receives a whole request or response.
fn take<W: Wait>(
    worker: &mut Worker,
    wait: &W,
    connection: &Connection,
    (state, tls): (&mut State, &mut Option<Secured>),
    what: &'static str,
) -> Result<(), WorkerError> {
    let mut buffers = std::mem::take(&mut worker.receive_buffers);
    let mut calls = Calls::new(worker, wait, connection);
    let received = calls.get(tls, buffers.present_mut());
    state.tally.receives += calls.receives;
    worker.receive_buffers = buffers;
    received.map_err(worker.error(what))?;
    worker.check(&mut state.expected, 0..worker.receive_buffers.size(), 0)?;
    worker.receive_buffers.touch();
    worker.receive_buffers.advance();
    Ok(())
}

/// The far end's loop.
pub fn accept<W: Wait>(worker: &mut Worker, wait: &W) -> Result<(), WorkerError> {
    let link = worker.link.clone();
    let Some(listener) = &link.listener else { return Ok(()) };
    let mut state = State::new(worker, worker.spec.sizes.request_bytes)?;
    let result = loop {
        wait.yield_now();
        match next(worker, wait, listener) {
            Ok(Some(connection)) => {
                match serve(worker, wait, &connection, &mut state) {
                    Ok(()) => state.tally.transactions += 1,
                    // A broken connection does not stop the others: the near end decides whether it counts.
                    Err(WorkerError::Io { .. }) => state.tally.errors += 1,
                    Err(error) => {
                        let told = worker.end_of_loop(Err(error));
                        listener.present.leave(connection);
                        break told;
                    }
                }
                listener.present.leave(connection);
                let (received, sent) = bytes(worker);
                state.tally.store(worker, sent, received);
            }
            Ok(None) if worker.is_over() && have_left(&worker.link, listener) => break Ok(()),
            Ok(None) => {}
            Err(_) if worker.is_over() => break Ok(()),
            Err(error) => break Err(worker.error("accept")(error)),
        }
    };
    worker.end_of_loop(result)
}

/// Whether all flows of the near end that may connect here have finished or are gone.
fn have_left(link: &Link, listener: &Listener) -> bool {
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_PEEK;
    let has_left = |proof: &OwnedFd| {
        !matches!(recv(proof.as_raw_fd(), &mut [0], flags), Ok(1..) | Err(nix::Error::EAGAIN | nix::Error::EINTR))
    };
    has_left(&link.receive) && listener.group().iter().all(|proof| has_left(proof))
}

/// The next connection; `None` if none came for a while.
fn next<W: Wait>(worker: &Worker, wait: &W, listener: &Listener) -> io::Result<Option<Connection>> {
    loop {
        match listener.accept() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            other => {
                wait.succeeded(Event::Input);
                return other;
            }
        }
        if !wait.after_nothing(&worker.link, LOOK_UP_NS)? {
            return Ok(None);
        }
    }
}

fn serve<W: Wait>(
    worker: &mut Worker,
    wait: &W,
    connection: &Connection,
    state: &mut State,
) -> Result<(), WorkerError> {
    let mut tls = Secured::begin(&worker.link).map_err(worker.error("begin a TLS handshake"))?;
    if carries_data(worker) {
        take(worker, wait, connection, (state, &mut tls), "receive a request")?;
        worker.send_buffers.touch();
        let mut calls = Calls::new(worker, wait, connection);
        let sent = calls.put(&mut tls, worker.send_buffers.present());
        state.tally.sends += calls.sends;
        sent.map_err(worker.error("send a response"))?;
        worker.send_buffers.advance();
    }
    let mut calls = Calls::new(worker, wait, connection);
    if worker.spec.close == Close::NearFirst {
        calls.peer_end(&mut tls).map_err(worker.error("see a connection closed"))?;
    }
    calls.end(&mut tls).map_err(worker.error("end a TLS connection"))
}
