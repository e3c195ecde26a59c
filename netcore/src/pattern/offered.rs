//! Requests at due times on connections that stay open: an offered load instead of a closed loop.
//!
//! With `arrival: uniform` or `poisson` a latency counts from the due time, not from the sending, so it includes the
//! wait of requests behind a stall. Leaving that out is known as coordinated omission. With `closed` a due time is only
//! the earliest instant, and a latency counts from the sending. Then a request that is sent as soon as an answer comes goes
//! in step with a load that has the same round trip, and always meets the same part of its queue. Without catching up it
//! waits for the next due time instead.

use std::{collections::VecDeque, sync::atomic::Ordering::Relaxed};

use super::{Worker, WorkerError, end_of_requests, request_response::Tally};
use crate::{
    io::{Channel, wait::Sleep},
    measure::{clock::monotonic_ns, histogram::Recorder},
    pace::{Pacer, Schedule},
    spec::{Arrival, Pace},
};

/// The clock of one thread's offered load.
pub struct Offer {
    schedule: Schedule,
    from_due: bool,
    /// Due times that pass while no request may begin are dropped.
    keeps_to_due_times: bool,
    gaps: Recorder,
    before_ns: Option<u64>,
}

impl Offer {
    pub fn new(pace: &Pace, gaps: Recorder) -> Self {
        crate::sys::precise_timers();
        let from_due = pace.arrival != Arrival::Closed;
        let keeps_to_due_times = !from_due && pace.catch_up == 0;
        Self { schedule: Schedule::new(pace), from_due, keeps_to_due_times, gaps, before_ns: None }
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

    /// Until now no request could begin, since as many as may be were under way.
    pub fn was_full(&mut self) {
        if self.keeps_to_due_times {
            self.schedule.skip_to(monotonic_ns());
        }
    }

    /// Due time of the next request.
    pub fn next_due(&self) -> u64 {
        self.schedule.next_due()
    }

    /// Sleeps, and then spins, until a request is due. `false`: the test has ended before.
    pub fn wait(&mut self, worker: &Worker, wait: &impl Sleep) -> bool {
        let due_ns = self.schedule.next_due();
        self.schedule.wait_until(due_ns, wait, || worker.is_over())
    }
}

/// The requesting loop and its orderly end.
pub fn request<C: Channel>(worker: &mut Worker, mut channel: C, pace: &Pace) -> Result<(), WorkerError> {
    let (recorder, offer) = (worker.latencies(), Offer::new(pace, worker.gaps()));
    let result = request_loop(worker, &mut channel, recorder, offer);
    end_of_requests(worker, &mut channel, result)
}

fn request_loop<C: Channel>(
    worker: &mut Worker,
    channel: &mut C,
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
            worker.send_buffers.touch();
            let calls = channel.send_all(worker.send_buffers.present()).map_err(worker.error("send a request"))?;
            worker.send_buffers.advance();
            starts.push_back(start_ns);
            begun += 1;
            tally.sent(worker, request_bytes, calls);
        }
        if starts.is_empty() {
            if begun >= worker.cell.limit() || !offer.wait(worker, channel.wait()) {
                return Ok(());
            }
            continue;
        }
        let may_send = starts.len() < inflight && !worker.is_over();
        let until_ns = if may_send { offer.next_due() } else { u64::MAX };
        let received = channel.receive_by(worker.receive_buffers.present_mut(), until_ns);
        let Some(n) = received.map_err(worker.error("receive a response"))? else { continue };
        if n == 0 {
            return Err(WorkerError::Closed { flow: worker.link.flow });
        }
        let now_ns = monotonic_ns();
        if !may_send {
            offer.was_full();
        }
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
