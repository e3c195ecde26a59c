//! Connections of QUIC: all those of a flow over one pair of sockets, told apart by the identifiers in their packets.
//!
//! The near end closes a connection as soon as it has what it wants, as clients of QUIC do: no port is in use after that, and there is
//! no TIME_WAIT.

use std::{
    io,
    time::{Duration, Instant},
};

use super::{State, WorkerError, bytes, carries_data, next_start};
use crate::{
    io::wait::Block,
    pattern::{Worker, between, request_response::Offer},
    transport::quic::{Flow, Node, Stream},
};

/// Longest wait at a time, so that the end of the test is noticed.
const LOOK_UP: Duration = Duration::from_millis(50);

/// Longest wait for the ticket of a connection that has done its work. It is one round trip away.
const TICKET: Duration = Duration::from_secs(1);

fn take(worker: &Worker) -> Result<Box<Node>, WorkerError> {
    let node = worker.link.quic.get().and_then(Flow::take);
    node.ok_or_else(|| worker.error("take its connections")(io::Error::other("another loop has them")))
}

/// Goes on with all connections for a while.
fn turn(worker: &Worker, node: &mut Node) -> io::Result<()> {
    if worker.link.is_freed() {
        return Err(io::ErrorKind::ConnectionAborted.into());
    }
    node.turn(Instant::now() + LOOK_UP)?;
    node.transmit()
}

/// Writes a whole request or response to the stream of a connection, and ends it.
fn put(worker: &Worker, node: &mut Node, at: usize, mut message: &[u8]) -> io::Result<()> {
    while !message.is_empty() {
        match node.write((at, Stream::Exchange), |stream| stream.write(message))? {
            Some(n) => message = &message[n..],
            None => turn(worker, node)?,
        }
    }
    node.finish((at, Stream::Exchange));
    node.transmit()
}

/// Waits for what follows a whole response. Whether it is the end of the stream, and no more data.
fn stream_end(worker: &Worker, node: &mut Node, at: usize) -> io::Result<bool> {
    loop {
        match node.read((at, Stream::Exchange), &mut [0])? {
            Some(more) => return Ok(more == 0),
            None => turn(worker, node)?,
        }
    }
}

/// The near end's loop.
pub fn open(worker: &mut Worker) -> Result<(), WorkerError> {
    let mut node = take(worker)?;
    let result = open_loop(worker, &mut node);
    let result = worker.end_of_loop(result);
    node.leave();
    result
}

fn open_loop(worker: &mut Worker, node: &mut Node) -> Result<(), WorkerError> {
    let mut recorder = worker.latencies();
    let mut offer = worker.spec.pace.map(|pace| Offer::new(&pace, worker.gaps()));
    let mut state = State::new(worker, worker.spec.sizes.response_bytes)?;
    while state.tally.transactions < worker.cell.limit() {
        let Some((start, waited_ns)) = next_start(worker, &mut offer, &Block) else { break };
        let nanoseconds = transact(worker, node, start, &mut state)?;
        state.has_done(worker, &mut recorder, nanoseconds + waited_ns);
        if let Some(offer) = &mut offer {
            offer.was_full();
        }
    }
    Ok(())
}

/// One connection at the near end; returns its latency, nanoseconds.
fn transact(worker: &mut Worker, node: &mut Node, start: Instant, state: &mut State) -> Result<u64, WorkerError> {
    node.begin().map_err(worker.error("begin a connection"))?;
    // The only one.
    let at = node.count() - 1;
    if carries_data(worker) {
        worker.send_buffers.touch();
    }
    let asks = |worker: &Worker, node: &mut Node| {
        let opened = carries_data(worker) && node.open_exchange()?;
        if opened {
            put(worker, node, at, worker.send_buffers.present())?;
        }
        Ok(opened)
    };
    let mut has_asked = asks(worker, node).map_err(worker.error("send a request"))?;
    state.tally.sends += u64::from(has_asked);
    while !node.is_made(at).map_err(worker.error("make a QUIC handshake"))? {
        turn(worker, node).map_err(worker.error("make a QUIC handshake"))?;
    }
    let mut done = Instant::now();
    let kind = node.kind_of_handshake();
    if let Some(handshakes) = &mut state.handshakes {
        handshakes[kind].record(worker.cell.epoch(), between(start, done));
    }
    if carries_data(worker) {
        // The far end has thrown an early request away if it did not take it.
        has_asked &= kind == EARLY;
        if !has_asked {
            asks(worker, node).map_err(worker.error("send a request"))?;
            state.tally.sends += 1;
        }
        worker.send_buffers.advance();
        let size = worker.receive_buffers.size();
        let mut got = 0;
        loop {
            let buffer = worker.receive_buffers.present_mut();
            match node.read((at, Stream::Exchange), &mut buffer[got..]).map_err(worker.error("receive a response"))? {
                Some(0) if got < size => return Err(WorkerError::Closed { flow: worker.link.flow }),
                Some(n) => got += n,
                None => turn(worker, node).map_err(worker.error("receive a response"))?,
            }
            if got == size {
                break;
            }
        }
        done = Instant::now();
        let ends = stream_end(worker, node, at).map_err(worker.error("receive a response"))?;
        if !ends {
            return Err(WorkerError::Surplus { flow: worker.link.flow });
        }
        state.tally.receives += 1;
        worker.check(&mut state.expected, 0..size, 0)?;
        worker.receive_buffers.touch();
        worker.receive_buffers.advance();
    }
    let by = Instant::now() + TICKET;
    while !node.may_begin() && Instant::now() < by && !worker.is_over() {
        turn(worker, node).map_err(worker.error("receive a ticket"))?;
    }
    node.close(at);
    Ok(between(start, done))
}

/// The place of an early handshake in [`crate::spec::HANDSHAKES`].
const EARLY: usize = 2;

/// The progress of a connection at the far end, which has the same place among these as in its node.
#[derive(Default)]
struct Served {
    /// Bytes of the request that have come.
    got: usize,
    /// Whether it has been counted: it was made, and its response written.
    is_done: bool,
}

/// The far end's loop.
pub fn accept(worker: &mut Worker) -> Result<(), WorkerError> {
    let mut node = take(worker)?;
    let mut state = State::new(worker, worker.spec.sizes.request_bytes)?;
    let mut served: Vec<Served> = Vec::new();
    let result = loop {
        match turn(worker, &mut node) {
            Ok(()) => {}
            Err(_) if worker.is_over() => break Ok(()),
            Err(error) => break Err(worker.error("receive packets")(error)),
        }
        served.resize_with(node.count(), Served::default);
        let answered = (0..node.count()).try_for_each(|at| serve(worker, &mut node, at, (&mut served[at], &mut state)));
        if let Err(error) = answered {
            break Err(error);
        }
        for at in (0..node.count()).rev() {
            if node.is_made(at).is_err() {
                node.close(at);
                state.tally.errors += u64::from(!served.remove(at).is_done);
            }
        }
        let (received, sent) = bytes(worker);
        state.tally.store(worker, sent, received);
        if worker.is_over() && node.has_left() && node.count() == 0 {
            break Ok(());
        }
    };
    worker.end_of_loop(result)
}

/// Goes on with a connection at the far end as far as its packets have come. One that breaks does not stop the others: the near end
/// decides whether it counts.
fn serve(
    worker: &mut Worker,
    node: &mut Node,
    at: usize,
    (served, state): (&mut Served, &mut State),
) -> Result<(), WorkerError> {
    if served.is_done {
        return Ok(());
    }
    if !carries_data(worker) {
        // A near end that is content has closed it already.
        served.is_done = node.was_made(at);
        state.tally.transactions += u64::from(served.is_done);
        return Ok(());
    }
    let size = worker.receive_buffers.size();
    while served.got < size {
        match node.read((at, Stream::Exchange), &mut worker.receive_buffers.present_mut()[served.got..]) {
            Ok(Some(n @ 1..)) => served.got += n,
            _ => return Ok(()),
        }
    }
    state.tally.receives += 1;
    worker.check(&mut state.expected, 0..size, 0)?;
    worker.receive_buffers.touch();
    worker.receive_buffers.advance();
    worker.send_buffers.touch();
    if put(worker, node, at, worker.send_buffers.present()).is_ok() {
        worker.send_buffers.advance();
        state.tally.sends += 1;
        state.tally.transactions += 1;
        served.is_done = true;
    }
    Ok(())
}
