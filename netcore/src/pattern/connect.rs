//! Connections opened and closed (netperf's TCP_CC), or opened for one request and response each (TCP_CRR).
//!
//! By default the far end closes first, so that TIME_WAIT gathers where it costs no ports: the near end, which needs a
//! new port for every connection, never runs out. With `close: near_first` it does, as an ordinary client would, and with
//! `reset` no connection ends in TIME_WAIT at all: the near end answers the far end's close with a reset.
//!
//! Nothing tells the far end that a connection was the last. It waits a moment for the next one after the end of the
//! test, and that is all: netperf waits for four seconds.

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
    sync::atomic::Ordering::Relaxed,
    time::Instant,
};

use nix::sys::socket::{MsgFlags, Shutdown, recv, send, shutdown};

use super::{Fault, Worker, between, offered::Offer};
use crate::{
    io::{buffers::Expected, wait::Block},
    measure::{clock::monotonic_ns, histogram::Recorder},
    spec::{Close, Pattern},
    transport::door::{ConnectError, Door},
};

/// Ports that are tried one after the other, all of them taken, before the test gives up.
const TAKEN_PORTS: u32 = 70_000;

/// One call on a connection: waiting in it, or in a loop around it.
struct Calls<const SPIN: bool>;

impl<const SPIN: bool> Calls<SPIN> {
    const FLAGS: MsgFlags =
        if SPIN { MsgFlags::MSG_NOSIGNAL.union(MsgFlags::MSG_DONTWAIT) } else { MsgFlags::MSG_NOSIGNAL };

    /// Repeats a call that was interrupted, or that has nothing to give yet while the test goes on.
    #[inline]
    fn wait(worker: &Worker, mut call: impl FnMut() -> nix::Result<usize>) -> io::Result<usize> {
        loop {
            match call() {
                Ok(n) => return Ok(n),
                Err(nix::Error::EINTR) => {}
                // A timeout inherited from the listener, or a spin.
                Err(nix::Error::EAGAIN) if !worker.is_over() => std::hint::spin_loop(),
                Err(error) => return Err(error.into()),
            }
        }
    }

    #[inline]
    fn receive(worker: &Worker, socket: &OwnedFd, buffer: &mut [u8]) -> io::Result<usize> {
        Self::wait(worker, || recv(socket.as_raw_fd(), buffer, Self::FLAGS))
    }

    fn receive_all(worker: &Worker, socket: &OwnedFd, buffer: &mut [u8]) -> io::Result<u64> {
        let (mut got, mut calls) = (0, 0);
        while got < buffer.len() {
            let n = Self::receive(worker, socket, &mut buffer[got..])?;
            if n == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            got += n;
            calls += 1;
        }
        Ok(calls)
    }

    fn send_all(worker: &Worker, socket: &OwnedFd, bytes: &[u8]) -> io::Result<u64> {
        let (mut sent, mut calls) = (0, 0);
        while sent < bytes.len() {
            sent += Self::wait(worker, || send(socket.as_raw_fd(), &bytes[sent..], Self::FLAGS))?;
            calls += 1;
        }
        Ok(calls)
    }
}

/// The counters of either side.
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

/// The near end.
pub fn open<const SPIN: bool>(worker: &mut Worker) -> Result<(), Fault> {
    let link = worker.link.clone();
    let Some(door) = &link.door else { return Ok(()) };
    let tray = worker.tray.clone().unwrap_or_default();
    let mut recorder = Recorder::new(&tray, worker.cell.epoch());
    let gaps = worker.gaps.clone().unwrap_or_default();
    let mut offer = worker.spec.pace.map(|pace| Offer::new(&pace, Recorder::new(&gaps, worker.cell.epoch())));
    let mut tally = Tally::default();
    let mut number = 0;
    let mut taken = 0;
    let mut expected = worker.expected(worker.spec.sizes.response_bytes)?;
    let result = loop {
        if tally.transactions >= worker.cell.limit() {
            break Ok(());
        }
        let mut start = Instant::now();
        let mut waited_ns = 0;
        if let Some(offer) = &mut offer {
            if !offer.wait(worker, &Block) {
                break Ok(());
            }
            let Some(start_ns) = offer.take(worker) else { continue };
            start = Instant::now();
            waited_ns = monotonic_ns().saturating_sub(start_ns);
        }
        let socket = match door.connect(number) {
            Ok(socket) => socket,
            Err(ConnectError::Port) => {
                number += 1;
                taken += 1;
                tally.errors += 1;
                worker.cell.operations.0.errors.store(tally.errors, Relaxed);
                if taken > TAKEN_PORTS {
                    break Err(Fault::Ports { flow: link.flow, tried: taken });
                }
                continue;
            }
            Err(ConnectError::Fatal(error)) => break Err(worker.fault("connect")(error)),
        };
        (number, taken) = (number + 1, 0);
        match transact::<SPIN>(worker, &socket, start, &mut tally, &mut expected) {
            Ok(nanoseconds) => {
                door.leave(socket);
                tally.transactions += 1;
                let (sent, received) = bytes(worker);
                tally.store(worker, sent, received);
                recorder.record(worker.cell.epoch(), nanoseconds + waited_ns);
            }
            Err(fault) => {
                let told = worker.end_of_loop(Err(fault));
                door.leave(socket);
                break told;
            }
        }
    };
    worker.end_of_loop(result)
}

/// Bytes that a transaction sends and receives at the near end.
fn bytes(worker: &Worker) -> (u64, u64) {
    if carries_data(worker) { (worker.spec.sizes.request_bytes, worker.spec.sizes.response_bytes) } else { (0, 0) }
}

/// One connection at the near end, up to where it may be closed; says how long what is timed took.
fn transact<const SPIN: bool>(
    worker: &mut Worker,
    socket: &OwnedFd,
    start: Instant,
    tally: &mut Tally,
    expected: &mut Option<Expected>,
) -> Result<u64, Fault> {
    let mut done = Instant::now();
    if carries_data(worker) {
        worker.send_buffers.touch();
        let request = worker.send_buffers.present();
        tally.sends += Calls::<SPIN>::send_all(worker, socket, request).map_err(worker.fault("send a request"))?;
        worker.send_buffers.advance();
        tally.receives += take::<SPIN>(worker, socket, expected, "receive a response")?;
        done = Instant::now();
    }
    if worker.spec.close == Close::NearFirst {
        // A peer that has gone already has closed too.
        let _ = shutdown(socket.as_raw_fd(), Shutdown::Write);
    }
    match Calls::<SPIN>::receive(worker, socket, &mut [0]) {
        Ok(0) => Ok(between(start, done)),
        Ok(_) => Err(Fault::Surplus { flow: worker.link.flow }),
        Err(error) => Err(worker.fault("close a connection")(error)),
    }
}

/// Receives a request or a response whole; says by how many calls.
fn take<const SPIN: bool>(
    worker: &mut Worker,
    socket: &OwnedFd,
    expected: &mut Option<Expected>,
    what: &'static str,
) -> Result<u64, Fault> {
    let mut buffers = std::mem::take(&mut worker.receive_buffers);
    let received = Calls::<SPIN>::receive_all(worker, socket, buffers.present_mut());
    worker.receive_buffers = buffers;
    let calls = received.map_err(worker.fault(what))?;
    worker.check(expected, 0..worker.receive_buffers.size(), 0)?;
    worker.receive_buffers.touch();
    worker.receive_buffers.advance();
    Ok(calls)
}

/// The far end.
pub fn accept<const SPIN: bool>(worker: &mut Worker) -> Result<(), Fault> {
    let link = worker.link.clone();
    let Some(door) = &link.door else { return Ok(()) };
    let mut expected = worker.expected(worker.spec.sizes.request_bytes)?;
    let mut tally = Tally::default();
    let result = loop {
        // While spinning, the wait for the next connection is a spin too.
        match next::<SPIN>(worker, door) {
            Ok(Some(socket)) => {
                match serve::<SPIN>(worker, &socket, &mut tally, &mut expected) {
                    Ok(()) => tally.transactions += 1,
                    // One connection that broke is no reason not to serve the others: the near end says whether it was.
                    Err(Fault::Io { .. }) => tally.errors += 1,
                    Err(fault) => {
                        let told = worker.end_of_loop(Err(fault));
                        door.leave(socket);
                        break told;
                    }
                }
                door.leave(socket);
                let (received, sent) = bytes(worker);
                tally.store(worker, sent, received);
            }
            Ok(None) | Err(_) if worker.is_over() => break Ok(()),
            Ok(None) => {}
            Err(error) => break Err(worker.fault("accept")(error)),
        }
    };
    worker.end_of_loop(result)
}

/// The next connection; `None` after a while without one.
fn next<const SPIN: bool>(worker: &Worker, door: &Door) -> io::Result<Option<std::sync::Arc<OwnedFd>>> {
    if !SPIN {
        return door.accept();
    }
    let start = Instant::now();
    loop {
        if let Some(socket) = door.accept()? {
            return Ok(Some(socket));
        }
        if worker.is_over() && start.elapsed().as_millis() > 50 {
            return Ok(None);
        }
        std::hint::spin_loop();
    }
}

fn serve<const SPIN: bool>(
    worker: &mut Worker,
    socket: &OwnedFd,
    tally: &mut Tally,
    expected: &mut Option<Expected>,
) -> Result<(), Fault> {
    if carries_data(worker) {
        tally.receives += take::<SPIN>(worker, socket, expected, "receive a request")?;
        worker.send_buffers.touch();
        let sent = Calls::<SPIN>::send_all(worker, socket, worker.send_buffers.present());
        tally.sends += sent.map_err(worker.fault("send a response"))?;
        worker.send_buffers.advance();
    }
    if worker.spec.close == Close::NearFirst {
        Calls::<SPIN>::receive(worker, socket, &mut [0]).map_err(worker.fault("see a connection closed"))?;
    }
    Ok(())
}
