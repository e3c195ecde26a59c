//! One end sends without waiting for answers.
//!
//! The end is a handshake: the sender says that no more comes, the receiver reads to that end and says so in turn. So
//! the two ends' totals agree to the byte. iperf3's control connection tells of the end instead, and its server then closes.

use std::{sync::atomic::Ordering::Relaxed, time::Instant};

use super::{Worker, WorkerError, between, drain};
use crate::{
    io::{
        Channel,
        buffers::{Buffers, Expected},
        message::Receives,
        wait::{Sleep, Wait},
    },
    measure::histogram::Recorder,
    pace::{Pacer, Schedule, Unpaced},
    spec::{PaceMode, Role, Side, memory},
};

/// Timing of each call, or none: chosen before the loop.
trait Timing {
    fn begin(&mut self);
    fn end(&mut self, epoch: impl FnOnce() -> u64);
}

struct Untimed;

impl Timing for Untimed {
    #[inline]
    fn begin(&mut self) {}
    #[inline]
    fn end(&mut self, _epoch: impl FnOnce() -> u64) {}
}

/// Two clock readings per call, since a stream's thread may do other things between calls.
pub(super) struct Timed {
    pub(super) recorder: Recorder,
    pub(super) start: Instant,
}

impl Timed {
    pub(super) fn of(worker: &Worker) -> Option<Self> {
        worker.latency_slot.as_ref().map(|_| Self { recorder: worker.latencies(), start: Instant::now() })
    }
}

impl Timing for Timed {
    #[inline]
    fn begin(&mut self) {
        self.start = Instant::now();
    }

    #[inline]
    fn end(&mut self, epoch: impl FnOnce() -> u64) {
        let elapsed = self.start.elapsed();
        // No call takes 584 years.
        #[expect(clippy::cast_possible_truncation)]
        self.recorder.record(epoch(), elapsed.as_nanos() as u64);
    }
}

/// Pacing of each message, or none: chosen before the loop.
trait Due {
    /// Waits for the next message's due time. `false`: the test has ended before.
    fn wait(&mut self, worker: &Worker, wait: &impl Sleep) -> bool;
}

impl Due for Unpaced {
    #[inline]
    fn wait(&mut self, _worker: &Worker, _wait: &impl Sleep) -> bool {
        true
    }
}

/// Messages at due times, some of them back to back.
struct Paced {
    schedule: Schedule,
    gaps: Recorder,
    /// Start of the last burst.
    before: Option<Instant>,
    /// Messages of the current burst still to be sent.
    left: u32,
    burst: u32,
}

impl Due for Paced {
    fn wait(&mut self, worker: &Worker, wait: &impl Sleep) -> bool {
        if self.left > 0 {
            self.left -= 1;
            return true;
        }
        if self.schedule.wait(wait, || worker.is_over()).is_none() {
            return false;
        }
        self.left = self.burst.max(1) - 1;
        let now = Instant::now();
        if let Some(before) = self.before.replace(now) {
            self.gaps.record(worker.cell.epoch(), between(before, now));
        }
        worker.cell.sent.0.dropped.store(self.schedule.dropped(), Relaxed);
        true
    }
}

/// The sending loop and its orderly end.
pub fn send<C: Channel>(worker: &mut Worker, mut channel: C) -> Result<(), WorkerError> {
    match worker.spec.pace {
        Some(pace) if pace.mode == PaceMode::User => {
            let (schedule, gaps) = (Schedule::new(&pace), worker.gaps());
            send_timed(worker, &mut channel, Paced { schedule, gaps, before: None, left: 0, burst: pace.burst })?;
        }
        _ => send_timed(worker, &mut channel, Unpaced)?,
    }
    worker.load_over();
    channel.finish();
    if worker.spec.dialect.ends_streams_by_word() {
        // The server ends its streams when the client tells it to. The client keeps its own open until the server has counted.
        if worker.side == Side::Far {
            worker.link.end_of_stream();
        }
    } else {
        worker.link.end_of_stream();
        if !worker.duplex {
            drain(&mut channel);
        }
    }
    if let Err(error) = channel.settle()
        && !worker.link.is_freed()
    {
        worker.watch.note(format!("flow {}: {error}", worker.link.flow));
    }
    Ok(())
}

fn send_timed<C: Channel, P: Due>(worker: &mut Worker, channel: &mut C, due: P) -> Result<(), WorkerError> {
    match Timed::of(worker) {
        Some(timed) => send_loop(worker, channel, timed, due),
        None => send_loop(worker, channel, Untimed, due),
    }
}

fn send_loop<C: Channel, T: Timing, P: Due>(
    worker: &mut Worker,
    channel: &mut C,
    mut timing: T,
    mut due: P,
) -> Result<(), WorkerError> {
    let (mut bytes, mut calls) = (0u64, 0u64);
    // Sent bytes of the current message: a call may take less than it is given.
    let mut at = 0usize;
    let size = worker.send_buffers.size();
    let failed = loop {
        let limit = worker.cell.limit();
        if bytes >= limit {
            break None;
        }
        if at == 0 {
            if !due.wait(worker, channel.wait()) {
                break None;
            }
            worker.send_buffers.touch();
        }
        let left = usize::try_from(limit - bytes).unwrap_or(usize::MAX);
        let piece = &worker.send_buffers.present()[at..size.min(at.saturating_add(left))];
        timing.begin();
        match channel.send(piece) {
            Ok(n) => {
                timing.end(|| worker.cell.epoch());
                bytes += n as u64;
                calls += 1;
                worker.cell.sent.0.bytes.store(bytes, Relaxed);
                worker.cell.sent.0.calls.store(calls, Relaxed);
                at += n;
                if at == size {
                    at = 0;
                    worker.send_buffers.advance();
                }
            }
            Err(error) => break Some(error),
        }
    };
    match failed {
        Some(error) if !worker.is_over() => Err(worker.error("send")(error)),
        _ => Ok(()),
    }
}

/// The receiving loop and its orderly end.
pub fn receive<C: Channel>(worker: &mut Worker, mut channel: C) -> Result<(), WorkerError> {
    let mut expected = worker.expected(worker.spec.sizes.message_bytes)?;
    match Timed::of(worker) {
        Some(timed) => receive_loop(worker, &mut channel, timed, &mut expected)?,
        None => receive_loop(worker, &mut channel, Untimed, &mut expected)?,
    }
    worker.load_over();
    if !worker.duplex {
        channel.finish();
        worker.link.end_of_stream();
    }
    Ok(())
}

fn receive_loop<C: Channel, T: Timing>(
    worker: &mut Worker,
    channel: &mut C,
    mut timing: T,
    expected: &mut Option<Expected>,
) -> Result<(), WorkerError> {
    let (mut bytes, mut calls) = (0u64, 0u64);
    // A service sends until the connection is closed.
    let endless = worker.spec.is_alone();
    loop {
        if endless && worker.is_over() {
            return Ok(());
        }
        timing.begin();
        match channel.receive(worker.receive_buffers.present_mut()) {
            Ok(0) => return Ok(()),
            Ok(n) => {
                timing.end(|| worker.cell.epoch());
                worker.check(expected, 0..n, bytes)?;
                bytes += n as u64;
                calls += 1;
                worker.cell.received.0.bytes.store(bytes, Relaxed);
                worker.cell.received.0.calls.store(calls, Relaxed);
                worker.receive_buffers.touch();
                worker.receive_buffers.advance();
            }
            Err(_) if worker.is_over() => return Ok(()),
            Err(error) => return Err(worker.error("receive")(error)),
        }
    }
}

/// The receiving loop, and its orderly end, of messages that arrive in buffers that wait for them: several receives of MPI in
/// progress.
pub fn receive_windowed<W: Wait>(worker: &mut Worker, wait: &W) -> Result<(), WorkerError> {
    let result = windowed_loop(worker, wait);
    worker.load_over();
    if !worker.duplex {
        worker.link.end_of_stream();
    }
    result
}

fn windowed_loop<W: Wait>(worker: &Worker, wait: &W) -> Result<(), WorkerError> {
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
            timed.start = Instant::now();
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
            timed.recorder.record(worker.cell.epoch(), between(timed.start, Instant::now()));
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
