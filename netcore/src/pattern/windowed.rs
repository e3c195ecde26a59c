//! The receiver of a stream whose messages arrive in buffers that wait for them: several receives of MPI in progress.

use std::sync::atomic::Ordering::Relaxed;

use super::{Worker, WorkerError, between, stream::Timed};
use crate::{
    io::{buffers::Buffers, message::Receives, wait::Wait},
    spec::{Role, memory},
};

/// The receiving loop and its orderly end.
pub fn receive<W: Wait>(worker: &mut Worker, wait: &W) -> Result<(), WorkerError> {
    let result = receive_loop(worker, wait);
    worker.load_over();
    if !worker.duplex {
        worker.link.end_of_stream();
    }
    result
}

fn receive_loop<W: Wait>(worker: &Worker, wait: &W) -> Result<(), WorkerError> {
    let mut expected = worker.expected(worker.spec.sizes.message_bytes)?;
    let (_, shape) = memory::shapes(&worker.spec, worker.side, Role::Receiver);
    let buffer = |_| Buffers::to_receive(shape, &worker.spec.end(worker.side).buffers);
    let buffers: Result<Vec<_>, _> = (0..worker.spec.inflight).map(buffer).collect();
    let buffers = buffers.map_err(|error| worker.error("make its buffers")(std::io::Error::other(error)))?;
    let mut receives = Receives::begin(worker.link.clone(), buffers).map_err(worker.error("receive"))?;
    let mut timed = Timed::of(worker);
    let (mut bytes, mut calls) = (0u64, 0u64);
    loop {
        if let Some(timed) = &mut timed {
            timed.start = std::time::Instant::now();
        }
        let message = loop {
            if let Some(message) = receives.poll().map_err(worker.error("receive"))? {
                break message;
            }
            if worker.link.is_freed() {
                return Ok(());
            }
            wait.yield_now();
        };
        if message.is_empty() {
            return Ok(());
        }
        if let Some(timed) = &mut timed {
            timed.recorder.record(worker.cell.epoch(), between(timed.start, std::time::Instant::now()));
        }
        if let Some(expected) = &mut expected {
            expected.check(message).map_err(|at| worker.corrupt("the stream", bytes + at as u64))?;
        }
        bytes += message.len() as u64;
        calls += 1;
        worker.cell.received.0.bytes.store(bytes, Relaxed);
        worker.cell.received.0.calls.store(calls, Relaxed);
        receives.next().map_err(worker.error("receive"))?;
    }
}
