//! Requests and responses on connections that stay open.
//!
//! Each request is one send call. With more than one in flight, a read may return several responses. Each of them is
//! followed by one send call of a new request, all timed with the clock reading after the read. With `coalesce` the
//! requester refills with one call for all of them and the responder answers likewise: fewer system calls, and other
//! semantics than netperf's bursts.
//!
//! netperf's burst form deadlocks if requests and responses in flight exceed the socket buffers, since both ends block
//! in send. Here the requester never blocks in send while responses are due: the rest waits until one of them has been
//! read.

use std::{collections::VecDeque, sync::atomic::Ordering::Relaxed, time::Instant};

use super::{Worker, WorkerError, between, end_of_requests};
use crate::{
    io::{Channel, wait::Sleep},
    measure::{clock::monotonic_ns, histogram::Recorder},
    pace::{Pacer, Schedule},
    spec::{Arrival, Pace},
};

/// Send times of the requests in flight, oldest first: a ring of the greatest possible length.
struct Stamps {
    times: Vec<Instant>,
    first: usize,
    count: usize,
}

impl Stamps {
    fn new(capacity: usize) -> Self {
        Self { times: vec![Instant::now(); capacity], first: 0, count: 0 }
    }

    #[inline]
    fn push(&mut self, time: Instant) {
        let at = (self.first + self.count) % self.times.len();
        self.times[at] = time;
        self.count += 1;
    }

    #[inline]
    fn pop(&mut self) -> Instant {
        let time = self.times[self.first];
        self.first = (self.first + 1) % self.times.len();
        self.count -= 1;
        time
    }
}

/// A requester's or responder's counters, in registers, stored after each operation.
#[derive(Default)]
pub struct Tally {
    bytes_sent: u64,
    sends: u64,
    pub bytes_received: u64,
    receives: u64,
    pub transactions: u64,
}

impl Tally {
    #[inline]
    pub fn sent(&mut self, worker: &Worker, bytes: usize, calls: u64) {
        self.bytes_sent += bytes as u64;
        self.sends += calls;
        worker.cell.sent.0.bytes.store(self.bytes_sent, Relaxed);
        worker.cell.sent.0.calls.store(self.sends, Relaxed);
    }

    #[inline]
    pub fn received(&mut self, worker: &Worker, bytes: usize) {
        self.bytes_received += bytes as u64;
        self.receives += 1;
        worker.cell.received.0.bytes.store(self.bytes_received, Relaxed);
        worker.cell.received.0.calls.store(self.receives, Relaxed);
    }

    #[inline]
    pub fn completed(&mut self, worker: &Worker, transactions: u64) {
        self.transactions += transactions;
        worker.cell.operations.0.transactions.store(self.transactions, Relaxed);
    }
}

/// The requesting loop and its orderly end.
pub fn request<C: Channel>(worker: &mut Worker, mut channel: C) -> Result<(), WorkerError> {
    let recorder = worker.latencies();
    let result = if worker.spec.inflight == 1 {
        one_at_a_time(worker, &mut channel, recorder)
    } else {
        several(worker, &mut channel, recorder)
    };
    end_of_requests(worker, &mut channel, result)
}

fn one_at_a_time<C: Channel>(worker: &mut Worker, channel: &mut C, mut recorder: Recorder) -> Result<(), WorkerError> {
    let response_bytes = worker.receive_buffers.size();
    let mut expected = worker.expected(worker.spec.sizes.response_bytes)?;
    let mut tally = Tally::default();
    let mut start = Instant::now();
    while tally.transactions < worker.cell.limit() {
        worker.send_buffers.touch();
        let request = worker.send_buffers.present();
        let calls = channel.send_all(request).map_err(worker.error("send a request"))?;
        tally.sent(worker, request.len(), calls);
        let mut got = 0;
        while got < response_bytes {
            let n = channel
                .receive(&mut worker.receive_buffers.present_mut()[got..])
                .map_err(worker.error("receive a response"))?;
            if n == 0 {
                return Err(WorkerError::Closed { flow: worker.link.flow });
            }
            worker.check(&mut expected, got..got + n, tally.bytes_received)?;
            got += n;
            tally.received(worker, n);
        }
        // A response's arrival is the next request's start: one clock reading per transaction.
        let now = Instant::now();
        tally.completed(worker, 1);
        recorder.record(worker.cell.epoch(), between(start, now));
        start = now;
        worker.receive_buffers.touch();
        worker.receive_buffers.advance();
        worker.send_buffers.advance();
    }
    Ok(())
}

fn several<C: Channel>(worker: &mut Worker, channel: &mut C, mut recorder: Recorder) -> Result<(), WorkerError> {
    let inflight = worker.spec.inflight as usize;
    let (request_bytes, response_bytes) = (worker.send_buffers.size(), size(worker.spec.sizes.response_bytes));
    let coalesce = worker.spec.coalesce;
    // All requests of a refill, contiguous.
    let batch = if coalesce { worker.send_buffers.present().repeat(inflight) } else { Vec::new() };
    let mut expected = worker.expected(worker.spec.sizes.response_bytes)?;
    let mut stamps = Stamps::new(inflight);
    let mut tally = Tally::default();
    // Free places in flight, bytes of the next request that were sent, and requests sent so far.
    let (mut owed, mut partly, mut begun) = (inflight, 0, 0u64);
    // Received bytes of the current response.
    let mut got = 0;
    let mut now = Instant::now();
    worker.send_buffers.touch();
    loop {
        // A stop by count is met exactly.
        let left = worker.cell.limit().saturating_sub(begun);
        let mut allowed = owed.min(usize::try_from(left).unwrap_or(usize::MAX));
        while allowed > 0 {
            let bytes = if coalesce { &batch[..allowed * request_bytes] } else { worker.send_buffers.present() };
            let sent = if stamps.count == 0 {
                channel.send(&bytes[partly..])
            } else {
                match channel.try_send(&bytes[partly..]) {
                    // A response is due and will come, whatever happens to this request: read it first.
                    Ok(None) => break,
                    Ok(Some(sent)) => Ok(sent),
                    Err(error) => Err(error),
                }
            };
            let sent = sent.map_err(worker.error("send a request"))?;
            tally.sent(worker, sent, 1);
            partly += sent;
            let whole = partly / request_bytes;
            partly %= request_bytes;
            (0..whole).for_each(|_| stamps.push(now));
            if whole > 0 && !coalesce {
                worker.send_buffers.advance();
                worker.send_buffers.touch();
            }
            (owed, allowed, begun) = (owed - whole, allowed - whole, begun + whole as u64);
        }
        if stamps.count == 0 {
            return Ok(());
        }
        let n = channel.receive(worker.receive_buffers.present_mut()).map_err(worker.error("receive a response"))?;
        if n == 0 {
            return Err(WorkerError::Closed { flow: worker.link.flow });
        }
        now = Instant::now();
        worker.check(&mut expected, 0..n, tally.bytes_received)?;
        worker.receive_buffers.touch();
        worker.receive_buffers.advance();
        tally.received(worker, n);
        let completed = (got + n) / response_bytes;
        got = (got + n) % response_bytes;
        if completed > stamps.count {
            return Err(WorkerError::Surplus { flow: worker.link.flow });
        }
        let epoch = worker.cell.epoch();
        (0..completed).for_each(|_| recorder.record(epoch, between(stamps.pop(), now)));
        tally.completed(worker, completed as u64);
        owed += completed;
    }
}

/// Buffers of this size were allocated, so it fits.
fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// The answering loop and its orderly end.
pub fn respond<C: Channel>(worker: &mut Worker, mut channel: C) -> Result<(), WorkerError> {
    let result = respond_loop(worker, &mut channel);
    let result = worker.end_of_loop(result);
    channel.finish();
    worker.link.end_of_stream();
    result
}

fn respond_loop<C: Channel>(worker: &mut Worker, channel: &mut C) -> Result<(), WorkerError> {
    let (request_bytes, response_bytes) = (size(worker.spec.sizes.request_bytes), worker.send_buffers.size());
    let coalesce = worker.spec.coalesce;
    let batch = if coalesce { worker.send_buffers.present().repeat(worker.spec.inflight as usize) } else { Vec::new() };
    let mut expected = worker.expected(worker.spec.sizes.request_bytes)?;
    let mut tally = Tally::default();
    let mut got = 0;
    loop {
        let n = channel.receive(worker.receive_buffers.present_mut()).map_err(worker.error("receive a request"))?;
        if n == 0 {
            return Ok(());
        }
        worker.check(&mut expected, 0..n, tally.bytes_received)?;
        tally.received(worker, n);
        let requests = (got + n) / request_bytes;
        got = (got + n) % request_bytes;
        if requests == 0 {
            continue;
        }
        worker.receive_buffers.touch();
        worker.receive_buffers.advance();
        if coalesce {
            let Some(responses) = batch.get(..requests * response_bytes) else {
                return Err(WorkerError::Surplus { flow: worker.link.flow });
            };
            let calls = channel.send_all(responses).map_err(worker.error("send a response"))?;
            tally.sent(worker, responses.len(), calls);
            tally.completed(worker, requests as u64);
            continue;
        }
        for _ in 0..requests {
            worker.send_buffers.touch();
            let calls = channel.send_all(worker.send_buffers.present()).map_err(worker.error("send a response"))?;
            worker.send_buffers.advance();
            tally.sent(worker, response_bytes, calls);
            tally.completed(worker, 1);
        }
    }
}

// Requests at due times: an offered load instead of a closed loop.
//
// With `arrival: uniform` or `poisson` a latency counts from the due time, not from the sending, so it includes the
// wait of requests behind a stall. Leaving that out is known as coordinated omission. With `closed` a due time is only
// the earliest instant, and a latency counts from the sending. Then a request that is sent as soon as an answer comes goes
// in step with a load that has the same round trip, and always meets the same part of its queue. Without catching up it
// waits for the next due time instead.

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
pub fn request_offered<C: Channel>(worker: &mut Worker, mut channel: C, pace: &Pace) -> Result<(), WorkerError> {
    let (recorder, offer) = (worker.latencies(), Offer::new(pace, worker.gaps()));
    let result = offered_loop(worker, &mut channel, recorder, offer);
    end_of_requests(worker, &mut channel, result)
}

fn offered_loop<C: Channel>(
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
