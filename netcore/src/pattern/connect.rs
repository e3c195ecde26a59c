//! Connections opened and closed (netperf's TCP_CC), or opened for one request and response each (TCP_CRR).
//!
//! By default the far end closes first, so that TIME_WAIT gathers where it costs no ports: the near end, which needs a
//! new port for every connection, never runs out. With `close: near_first` it does, like an ordinary client. With
//! `reset` no connection ends in TIME_WAIT: the near end answers the far end's close with a reset.
//!
//! The connection that proved a flow's token stays open as long as the near end goes on. Its end tells the far end that
//! no more connections will come. netperf waits for four seconds instead.

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
    sync::atomic::Ordering::Relaxed,
    time::Instant,
};

use nix::sys::socket::{MsgFlags, Shutdown, recv, send, shutdown};

use super::{Worker, WorkerError, between, request_response::Offer};
use crate::{
    io::{buffers::Expected, wait::Wait},
    measure::clock::monotonic_ns,
    spec::{Close, Pattern},
    transport::{
        Link,
        listener::{ConnectError, Connection, Connector, Event, Listener},
    },
};

/// The test gives up after this many taken ports in a row.
const TAKEN_PORTS: u32 = 70_000;

/// Longest wait of the far end for the next connection before it checks whether the test is over, nanoseconds.
const LOOK_UP_NS: u64 = 50_000_000;

/// Repeats a call that was interrupted, or that would block while the test goes on.
#[inline]
fn repeat<W: Wait>(
    worker: &Worker,
    wait: &W,
    (connection, event): (&Connection, Event),
    mut call: impl FnMut(i32, MsgFlags) -> nix::Result<usize>,
) -> io::Result<usize> {
    loop {
        match call(connection.socket.as_raw_fd(), MsgFlags::MSG_NOSIGNAL | wait.flags()) {
            Ok(n) => {
                wait.succeeded(event);
                return Ok(n);
            }
            Err(nix::Error::EINTR) => {}
            // Also a timeout inherited from the listener, or Fast Open without data in the SYN.
            Err(error @ (nix::Error::EAGAIN | nix::Error::EINPROGRESS)) => {
                if !wait.for_connection(connection, event)? && worker.is_over() {
                    return Err(error.into());
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
}

#[inline]
fn receive<W: Wait>(worker: &Worker, wait: &W, connection: &Connection, buffer: &mut [u8]) -> io::Result<usize> {
    repeat(worker, wait, (connection, Event::Input), |fd, flags| recv(fd, buffer, flags))
}

fn receive_all<W: Wait>(worker: &Worker, wait: &W, connection: &Connection, buffer: &mut [u8]) -> io::Result<u64> {
    let (mut got, mut calls) = (0, 0);
    while got < buffer.len() {
        let n = receive(worker, wait, connection, &mut buffer[got..])?;
        if n == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        got += n;
        calls += 1;
    }
    Ok(calls)
}

fn send_all<W: Wait>(worker: &Worker, wait: &W, connection: &Connection, bytes: &[u8]) -> io::Result<u64> {
    let (mut sent, mut calls) = (0, 0);
    while sent < bytes.len() {
        sent += repeat(worker, wait, (connection, Event::Room), |fd, flags| send(fd, &bytes[sent..], flags))?;
        calls += 1;
    }
    Ok(calls)
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
    let mut tally = Tally::default();
    let mut number = 0;
    let mut taken = 0;
    let mut expected = worker.expected(worker.spec.sizes.response_bytes)?;
    let result = loop {
        if tally.transactions >= worker.cell.limit() {
            break Ok(());
        }
        wait.yield_now();
        let mut start = Instant::now();
        let mut waited_ns = 0;
        if let Some(offer) = &mut offer {
            if !offer.wait(worker, wait) {
                break Ok(());
            }
            let Some(start_ns) = offer.take(worker) else { continue };
            start = Instant::now();
            waited_ns = monotonic_ns().saturating_sub(start_ns);
        }
        let connection = match connect(connector, number, wait) {
            Ok(connection) => connection,
            Err(ConnectError::Port) => {
                number += 1;
                taken += 1;
                tally.errors += 1;
                worker.cell.operations.0.errors.store(tally.errors, Relaxed);
                if taken > TAKEN_PORTS {
                    break Err(WorkerError::Ports { flow: link.flow, tried: taken });
                }
                continue;
            }
            Err(ConnectError::Fatal(error)) => break Err(worker.error("connect")(error)),
        };
        (number, taken) = (number + 1, 0);
        match transact(worker, wait, &connection, start, &mut tally, &mut expected) {
            Ok(nanoseconds) => {
                connector.present.leave(connection);
                tally.transactions += 1;
                let (sent, received) = bytes(worker);
                tally.store(worker, sent, received);
                recorder.record(worker.cell.epoch(), nanoseconds + waited_ns);
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

/// One connection at the near end, until it may be closed; returns its latency, nanoseconds.
fn transact<W: Wait>(
    worker: &mut Worker,
    wait: &W,
    connection: &Connection,
    start: Instant,
    tally: &mut Tally,
    expected: &mut Option<Expected>,
) -> Result<u64, WorkerError> {
    let mut done = Instant::now();
    if carries_data(worker) {
        worker.send_buffers.touch();
        let request = worker.send_buffers.present();
        tally.sends += send_all(worker, wait, connection, request).map_err(worker.error("send a request"))?;
        worker.send_buffers.advance();
        tally.receives += take(worker, wait, connection, expected, "receive a response")?;
        done = Instant::now();
    }
    if worker.spec.close == Close::NearFirst {
        // A peer that is gone has closed too.
        let _ = shutdown(connection.socket.as_raw_fd(), Shutdown::Write);
    }
    match receive(worker, wait, connection, &mut [0]) {
        Ok(0) => Ok(between(start, done)),
        Ok(_) => Err(WorkerError::Surplus { flow: worker.link.flow }),
        Err(error) => Err(worker.error("close a connection")(error)),
    }
}

/// Receives a whole request or response; returns the number of calls.
fn take<W: Wait>(
    worker: &mut Worker,
    wait: &W,
    connection: &Connection,
    expected: &mut Option<Expected>,
    what: &'static str,
) -> Result<u64, WorkerError> {
    let mut buffers = std::mem::take(&mut worker.receive_buffers);
    let received = receive_all(worker, wait, connection, buffers.present_mut());
    worker.receive_buffers = buffers;
    let calls = received.map_err(worker.error(what))?;
    worker.check(expected, 0..worker.receive_buffers.size(), 0)?;
    worker.receive_buffers.touch();
    worker.receive_buffers.advance();
    Ok(calls)
}

/// The far end's loop.
pub fn accept<W: Wait>(worker: &mut Worker, wait: &W) -> Result<(), WorkerError> {
    let link = worker.link.clone();
    let Some(listener) = &link.listener else { return Ok(()) };
    let mut expected = worker.expected(worker.spec.sizes.request_bytes)?;
    let mut tally = Tally::default();
    let result = loop {
        wait.yield_now();
        match next(worker, wait, listener) {
            Ok(Some(connection)) => {
                match serve(worker, wait, &connection, &mut tally, &mut expected) {
                    Ok(()) => tally.transactions += 1,
                    // A broken connection does not stop the others: the near end decides whether it counts.
                    Err(WorkerError::Io { .. }) => tally.errors += 1,
                    Err(error) => {
                        let told = worker.end_of_loop(Err(error));
                        listener.present.leave(connection);
                        break told;
                    }
                }
                listener.present.leave(connection);
                let (received, sent) = bytes(worker);
                tally.store(worker, sent, received);
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
    tally: &mut Tally,
    expected: &mut Option<Expected>,
) -> Result<(), WorkerError> {
    if carries_data(worker) {
        tally.receives += take(worker, wait, connection, expected, "receive a request")?;
        worker.send_buffers.touch();
        let sent = send_all(worker, wait, connection, worker.send_buffers.present());
        tally.sends += sent.map_err(worker.error("send a response"))?;
        worker.send_buffers.advance();
    }
    if worker.spec.close == Close::NearFirst {
        receive(worker, wait, connection, &mut [0]).map_err(worker.error("see a connection closed"))?;
    }
    Ok(())
}
