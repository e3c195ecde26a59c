//! Requests at due times on connections that stay open: an offered load instead of a closed loop.
//!
//! With `arrival: uniform` or `poisson` a latency counts from the due time, not from the sending, so it includes the
//! wait of requests behind a stall. Leaving that out is known as coordinated omission. With `closed` a due time is only
//! the earliest instant, and a latency counts from the sending.

use std::{collections::VecDeque, io, os::fd::AsRawFd, sync::atomic::Ordering::Relaxed};

use nix::{
    sys::socket::{MsgFlags, recv, send},
    unistd::{read, write},
};

use super::{Worker, WorkerError, end_of_requests, request_response::Tally};
use crate::{
    io::{Channel, wait::Wait},
    measure::{clock::monotonic_ns, histogram::Recorder},
    pace::{Pacer, Schedule},
    spec::{Arrival, Pace},
};

/// The clock of one thread's offered load.
pub struct Offer {
    schedule: Schedule,
    from_due: bool,
    gaps: Recorder,
    before_ns: Option<u64>,
}

impl Offer {
    pub fn new(pace: &Pace, gaps: Recorder) -> Self {
        crate::sys::precise_timers();
        let from_due = pace.arrival != Arrival::Closed;
        Self { schedule: Schedule::new(pace), from_due, gaps, before_ns: None }
    }

    /// Takes a due request; returns the instant from which its latency counts. `None`: no request is due.
    pub fn take(&mut self, worker: &Worker) -> Option<u64> {
        let now_ns = monotonic_ns();
        self.schedule.drop_missed(now_ns);
        let due_ns = self.schedule.next_due();
        if due_ns > now_ns {
            return None;
        }
        self.schedule.advance();
        if let Some(before_ns) = self.before_ns.replace(now_ns) {
            self.gaps.record(worker.cell.epoch(), now_ns - before_ns);
        }
        worker.cell.sent.0.dropped.store(self.schedule.dropped(), Relaxed);
        Some(if self.from_due { due_ns } else { now_ns })
    }

    /// Due time of the next request.
    pub fn next_due(&self) -> u64 {
        self.schedule.next_due()
    }

    /// Sleeps, and then spins, until a request is due. `false`: the test has ended before.
    pub fn wait(&mut self, worker: &Worker, wait: &impl Wait) -> bool {
        let due_ns = self.schedule.next_due();
        self.schedule.wait_until(due_ns, wait, || worker.is_over())
    }
}

/// The requesting loop and its orderly end.
pub fn request<C: Channel>(worker: &mut Worker, mut channel: C, pace: &Pace) -> Result<(), WorkerError> {
    let (recorder, offer) = (worker.latencies(), Offer::new(pace, worker.gaps()));
    let result = request_loop(worker, channel.wait(), recorder, offer);
    end_of_requests(worker, &mut channel, result)
}

fn request_loop<W: Wait>(
    worker: &mut Worker,
    wait: &W,
    mut recorder: Recorder,
    mut offer: Offer,
) -> Result<(), WorkerError> {
    let inflight = worker.spec.inflight as usize;
    let (request_bytes, response_bytes) = (worker.send_buffers.size(), worker.spec.sizes.response_bytes);
    let mut expected = worker.expected(response_bytes)?;
    let mut starts: VecDeque<u64> = VecDeque::with_capacity(inflight);
    let (mut begun, mut tally) = (0u64, Tally::default());
    loop {
        while starts.len() < inflight && begun < worker.cell.limit() {
            let Some(start_ns) = offer.take(worker) else { break };
            let calls = send_whole(worker, wait).map_err(worker.error("send a request"))?;
            starts.push_back(start_ns);
            begun += 1;
            tally.sent(worker, request_bytes, calls);
        }
        if starts.is_empty() {
            if begun >= worker.cell.limit() || !offer.wait(worker, wait) {
                return Ok(());
            }
            continue;
        }
        let may_send = starts.len() < inflight && !worker.is_over();
        let until_ns = if may_send { offer.next_due() } else { u64::MAX };
        if !wait.for_input(&worker.link, until_ns).map_err(worker.error("wait for a response"))? {
            continue;
        }
        wait.turn();
        let n = match receive(worker) {
            Ok(0) => return Err(WorkerError::Closed { flow: worker.link.flow }),
            Ok(n) => n,
            Err(nix::Error::EAGAIN | nix::Error::EINTR) => continue,
            Err(error) => return Err(worker.error("receive a response")(error.into())),
        };
        let now_ns = monotonic_ns();
        worker.check(&mut expected, 0..n, tally.bytes_received)?;
        worker.receive_buffers.touch();
        worker.receive_buffers.advance();
        tally.received(worker, n);
        let completed = tally.bytes_received / response_bytes;
        if completed > begun {
            return Err(WorkerError::Surplus { flow: worker.link.flow });
        }
        let epoch = worker.cell.epoch();
        for start_ns in (tally.transactions..completed).filter_map(|_| starts.pop_front()) {
            recorder.record(epoch, now_ns.saturating_sub(start_ns));
        }
        tally.completed(worker, completed - tally.transactions);
    }
}

/// Receives available bytes of a descriptor that may be readable.
fn receive(worker: &mut Worker) -> nix::Result<usize> {
    let link = &worker.link;
    let buffer = worker.receive_buffers.present_mut();
    if !link.is_pipe {
        return recv(link.receive.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT);
    }
    // A pipe's read always waits, but it has one reader: available bytes stay available.
    let n = read(&link.receive, buffer)?;
    if link.is_freed() { Err(nix::Error::ECONNABORTED) } else { Ok(n) }
}

/// Sends a whole request; returns the number of calls.
fn send_whole<W: Wait>(worker: &mut Worker, wait: &W) -> io::Result<u64> {
    worker.send_buffers.touch();
    let mut bytes = worker.send_buffers.present();
    let mut calls = 0;
    while !bytes.is_empty() {
        let link = &worker.link;
        let sent = if link.is_pipe {
            write(&link.send, bytes)
        } else {
            send(link.send.as_raw_fd(), bytes, MsgFlags::MSG_NOSIGNAL | W::FLAGS)
        };
        match sent {
            Ok(_) if link.is_freed() => return Err(io::ErrorKind::ConnectionAborted.into()),
            Ok(n) => {
                bytes = &bytes[n..];
                calls += 1;
            }
            Err(nix::Error::EAGAIN) => wait.for_room(link, u64::MAX)?,
            Err(nix::Error::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    worker.send_buffers.advance();
    Ok(calls)
}
