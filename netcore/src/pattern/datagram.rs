//! One end sends datagrams without waiting for answers; the other counts what arrives.
//!
//! The datagrams do not tell the receiver that no more will come. It stops on its own schedule or on an end-of-data
//! message, and then receives the rest, until nothing has come for a moment. In netperf's dialect an empty datagram says so.

pub mod packets;

use std::{
    io,
    os::fd::AsRawFd,
    sync::atomic::Ordering::Relaxed,
    time::{Duration, Instant},
};

use nix::sys::socket::MsgFlags;

use super::{Worker, WorkerError, between, sequence};
use crate::{
    io::{batch::Batch, buffers::Expected, wait::Wait},
    measure::{
        clock::{ArrivalClock, monotonic_ns, raw_ns},
        counters::phase_of,
        one_way::Trips,
    },
    pace::{Ahead, Pacer, Schedule, Unpaced},
    spec::{Dialect, PaceMode, Role, TestSpec, Transport, memory::stamped},
    transport::{connection::is_greeting, datagram::send_to, flow_options, link, listener::Event},
};

/// Longest time that the receiver goes on after the end while datagrams still come.
const LINGER: Duration = Duration::from_secs(1);

/// Empty datagrams that end a test in netperf's dialect.
const END_MARKS: usize = 3;

/// Interval at which a waiting loop checks whether the test is over, nanoseconds.
const LOOK_UP_NS: u64 = 100_000_000;

/// Pause of a sender without due times after a send that failed because the path is down, nanoseconds.
const PAUSE_NS: u64 = 1_000_000;

/// The sending loop.
pub fn send<W: Wait>(worker: &mut Worker, wait: &W) -> Result<(), WorkerError> {
    let result = match worker.spec.pace {
        Some(pace) if pace.mode == PaceMode::User => send_loop(worker, wait, Schedule::new(&pace)),
        Some(pace) if pace.mode == PaceMode::Txtime => {
            send_loop(worker, wait, Ahead::new(&pace, worker.send_buffers.per_call()))
        }
        _ => send_loop(worker, wait, Unpaced),
    };
    let result = worker.end_of_loop(result);
    end_of_datagrams(worker);
    result
}

/// Tells the peer that no more will come, where an empty datagram says so. Copies, since one may be lost.
pub(super) fn end_of_datagrams(worker: &Worker) {
    if worker.spec.dialect.ends_with_empty_datagram() {
        for _ in 0..END_MARKS {
            // The peer may be gone.
            let _ = send_to(worker.link.send.as_raw_fd(), &[], worker.link.peer, MsgFlags::MSG_NOSIGNAL);
        }
    }
}

fn send_loop<W: Wait, P: Pacer>(worker: &mut Worker, wait: &W, mut pacer: P) -> Result<(), WorkerError> {
    worker.prepend_header();
    let buffers = std::mem::take(&mut worker.send_buffers);
    let (size, per_call, touched) = (buffers.message_bytes(), buffers.per_call(), buffers.are_touched());
    let burst = match worker.spec.pace {
        Some(pace) if pace.mode == PaceMode::User => pace.burst.max(1) as usize,
        _ => per_call,
    };
    let mark = worker.spec.dialect.mark();
    let segments = worker.spec.segments(worker.side, worker.role);
    let mut batch = Batch::new(buffers).with_segments(segments);
    if let Some(peer) = worker.link.peer {
        batch = batch.to(peer);
    }
    if pacer.ahead().is_some() {
        batch = batch.with_times();
    }
    let (fd, one_way) = (worker.link.send.as_raw_fd(), worker.spec.one_way);
    let (mut messages, mut calls, mut errors) = (0u64, 0u64, 0u64);
    let mut of_phase = [0u64; 4];
    let mut gaps = worker.gaps.as_ref().map(|_| worker.gaps());
    let mut times = worker.latency_slot.as_ref().map(|_| worker.latencies());
    let mut before_ns = None;
    // Messages of the current burst still to be sent: it may take several calls.
    let mut left = 0;
    loop {
        wait.turn();
        let limit = worker.cell.limit();
        let sent_bytes = messages * size as u64;
        if sent_bytes >= limit {
            return Ok(());
        }
        let begins = left == 0;
        if begins {
            if pacer.wait(wait, || worker.is_over()).is_none() {
                return Ok(());
            }
            left = pacer.ahead().map_or(burst, <[u64]>::len);
        }
        // A stop by bytes is met in whole messages.
        let wanted = usize::try_from((limit - sent_bytes).div_ceil(size as u64)).unwrap_or(usize::MAX);
        let wanted = wanted.min(left).min(per_call);
        left -= wanted;
        let (epoch, now_ns) = (worker.cell.epoch(), monotonic_ns());
        let phase = phase_of(epoch);
        if let Some(gaps) = &mut gaps
            && begins
            && let Some(before_ns) = before_ns.replace(now_ns)
        {
            gaps.record(epoch, now_ns - before_ns);
        }
        let mut first = batch.buffers().slot_of(messages);
        let end = first + wanted;
        if touched {
            (first..end).for_each(|index| batch.buffers().touch_beginning(index, usize::MAX));
        }
        let dues = pacer.ahead();
        if let Some(dues) = dues {
            batch.set_times(first, dues);
        }
        // The receiver compares this clock with its own, so it must not be slewed.
        let stamp_ns = if one_way { raw_ns() } else { now_ns };
        batch.buffers().for_messages(first..end, |index, message| {
            let at_ns = dues.map_or(stamp_ns, |dues| dues[index]);
            sequence::mark(mark, message, messages + index as u64, phase, at_ns);
        });
        while first < end {
            let start = times.as_ref().map(|_| Instant::now());
            let sent = batch.send(fd, first, end - first, wait.flags().bits());
            match sent.or_else(|error| worker.lost(wait, error, &mut errors)) {
                Ok(n) => {
                    if let (Some(times), Some(start)) = (&mut times, start) {
                        times.record(epoch, between(start, Instant::now()));
                    }
                    wait.succeeded(Event::Room);
                    first += n;
                    messages += n as u64;
                    of_phase[phase] += n as u64;
                    calls += 1;
                    let sent = &worker.cell.sent.0;
                    sent.bytes.store(messages * size as u64, Relaxed);
                    sent.calls.store(calls, Relaxed);
                    sent.messages.store(messages, Relaxed);
                    sent.of_phase[phase].store(of_phase[phase], Relaxed);
                    sent.dropped.store(pacer.dropped(), Relaxed);
                }
                Err(error) => match error.raw_os_error() {
                    Some(libc::EINTR) => {}
                    _ if worker.is_over() => return Ok(()),
                    // A timeout, or the next round of a spin.
                    Some(libc::EAGAIN) => {
                        wait.for_room(&worker.link, LOOK_UP_NS).map_err(worker.error("wait for room"))?;
                    }
                    // The interface's queue is full: the message was not sent, and is tried again.
                    Some(libc::ENOBUFS | libc::ENOMEM) => {
                        errors += 1;
                        worker.cell.operations.0.errors.store(errors, Relaxed);
                        wait.turn();
                    }
                    _ => return Err(worker.send_error(error, segments)),
                },
            }
        }
    }
}

impl Worker {
    /// Whether a call failed because the path is down: in a test that looks for that, or after something has passed. What was sent has,
    /// if the far end was greeted.
    #[cold]
    pub(super) fn is_outage(&self, error: &io::Error) -> bool {
        let down = [libc::ENETUNREACH, libc::EHOSTUNREACH, libc::ENETDOWN, libc::EHOSTDOWN];
        let [sent, received] = [&self.cell.sent.0.calls, &self.cell.received.0.calls].map(|calls| calls.load(Relaxed));
        let has_passed = received > 0 || (sent > 0 && self.role == Role::Sender && !self.spec.is_alone());
        (self.spec.outage_ns > 0 || has_passed) && error.raw_os_error().is_some_and(|code| down.contains(&code))
    }

    /// The message of a send that failed because the path is down is lost, as others on this path are now.
    #[cold]
    pub(super) fn lost(&self, wait: &impl Wait, error: io::Error, errors: &mut u64) -> io::Result<usize> {
        if !self.is_outage(&error) {
            return Err(error);
        }
        *errors += 1;
        self.cell.operations.0.errors.store(*errors, Relaxed);
        if self.spec.pace.is_none_or(|pace| pace.mode == PaceMode::Kernel) {
            wait.sleep_until(monotonic_ns() + PAUSE_NS);
        }
        Ok(1)
    }

    /// A failed send of datagrams of up to `segments` messages.
    #[cold]
    fn send_error(&self, error: io::Error, segments: usize) -> WorkerError {
        let meaning = (segments > 1)
            .then(|| flow_options::explain_segments(&self.link, self.spec.sizes.message_bytes, segments, &error))
            .flatten();
        match meaning {
            Some(sentence) => {
                WorkerError::Io { flow: self.link.flow, what: "send", source: io::Error::new(error.kind(), sentence) }
            }
            None => self.error("send")(error),
        }
    }
}

/// The receiving loop.
pub fn receive<W: Wait>(worker: &mut Worker, wait: &W) -> Result<(), WorkerError> {
    let expected = worker.expected(worker.spec.sizes.message_bytes)?;
    let mut ledger = sequence::Ledger::new(worker.spec.dialect.mark());
    let mut trips = worker.one_way.as_ref().and_then(|slot| slot.take());
    let result = receive_loop(worker, wait, expected.as_ref(), &mut ledger, trips.as_mut());
    worker.one_way.iter().for_each(|slot| slot.leave(trips.take()));
    ledger.finish(&worker.cell.received.0);
    let result = worker.end_of_loop(result);
    end_of_datagrams(worker);
    result
}

/// The receiver's buffers, with senders on an unconnected socket, and with room for several messages in a datagram.
fn to_receive(worker: &mut Worker) -> Batch {
    let batch = Batch::new(std::mem::take(&mut worker.receive_buffers));
    let batch = if worker.link.peer.is_some() { batch.with_senders() } else { batch };
    let batch = if worker.spec.merges(worker.side, worker.role) { batch.with_segment_lengths() } else { batch };
    let batch = if worker.spec.one_way { batch.with_arrival_times() } else { batch };
    if worker.spec.ecn(worker.side).is_some() { batch.with_code_points() } else { batch }
}

/// Counts the messages of a datagram of `length` bytes by their code point of ECN.
fn count_code_point(worker: &Worker, batch: &Batch, index: usize, length: usize) {
    if let Some(code_point) = batch.code_point(index) {
        let messages = batch.segment_bytes(index).map_or(1, |each| length.div_ceil(each)) as u64;
        let count = &worker.cell.received.0.code_points[code_point];
        count.store(count.load(Relaxed) + messages, Relaxed);
    }
}

/// Keeps the times of a datagram's messages of `each` bytes, where they are told.
fn keep_arrival(
    trips: &mut Option<(&mut Trips, ArrivalClock)>,
    batch: &Batch,
    (index, message): (usize, &[u8]),
    each: Option<usize>,
    epoch: u64,
) {
    if let Some((trips, clock)) = trips {
        let (arrived_ns, _) = clock.arrival(batch.arrival_ns(index));
        for (number, sent_ns) in message.chunks(each.unwrap_or(usize::MAX)).filter_map(sequence::stamp) {
            trips.arrived(epoch, number, sent_ns, arrived_ns);
        }
    }
}

/// Shows the sampler the bytes and the receive calls so far, and what the numbers of the messages tell.
#[inline]
fn has_received(worker: &Worker, ledger: &sequence::Ledger, (bytes, calls): (u64, u64), now_ns: u64) {
    let received = &worker.cell.received.0;
    received.bytes.store(bytes, Relaxed);
    received.calls.store(calls, Relaxed);
    received.last_ns.store(now_ns, Relaxed);
    ledger.store(received);
}

/// Whether a datagram of `length` bytes that begins with `start` is a greeting that was sent again.
#[inline]
fn greets(spec: &TestSpec, start: &[u8], length: usize) -> bool {
    match spec.dialect {
        Dialect::Plumb => is_greeting(start, length, spec.sizes.message_bytes),
        // Shorter than its mark.
        Dialect::Iperf3 { .. } => length < spec.dialect.mark().bytes(usize::MAX),
        Dialect::Netperf | Dialect::Service | Dialect::Stamp { .. } => false,
    }
}

fn receive_loop<W: Wait>(
    worker: &mut Worker,
    wait: &W,
    expected: Option<&Expected>,
    ledger: &mut sequence::Ledger,
    trips: Option<&mut Trips>,
) -> Result<(), WorkerError> {
    let mut trips = trips.map(|trips| (trips, ArrivalClock::default()));
    let framed = !worker.link.header.is_empty();
    let touched = worker.receive_buffers.are_touched();
    let (peer, merged) = (worker.link.peer, worker.spec.merges(worker.side, worker.role));
    let looks_closer = trips.is_some() || worker.spec.ecn(worker.side).is_some();
    let mut batch = to_receive(worker);
    let fd = worker.link.receive.as_raw_fd();
    // An empty message of ours says that the peer has closed its connection, one of netperf's that no more will come.
    let ends_empty = worker.spec.transport == Transport::Dccp || worker.spec.dialect.ends_with_empty_datagram();
    let check = |message: &[u8]| {
        if expected.is_none() {
            return Ok(());
        }
        let at = stamped(message.len());
        worker.check_message(expected, "a message", sequence::number(message), (at, &message[at..]))
    };
    let (mut bytes, mut calls, mut taken) = (0u64, 0u64, 0u64);
    let mut times = worker.latency_slot.as_ref().map(|_| worker.latencies());
    // Empty receive calls since the end. Two are needed: the first may have begun before the last datagrams came.
    let (mut over_since, mut found_nothing): (Option<Instant>, u32) = (None, 0);
    loop {
        wait.turn();
        let start = times.as_ref().map(|_| Instant::now());
        let first = batch.buffers().slot_of(taken);
        if worker.link.is_freed() {
            // The socket was shut down: it would return empty datagrams without end.
            return Ok(());
        }
        match batch.receive(fd, first, wait.flags().bits()) {
            Ok(n) => {
                wait.succeeded(Event::Input);
                let now_ns = monotonic_ns();
                let epoch = worker.cell.epoch();
                let present = phase_of(epoch);
                if let (Some(times), Some(start)) = (&mut times, start) {
                    times.record(epoch, between(start, Instant::now()));
                }
                let (mut ended, before) = (false, bytes);
                found_nothing = 0;
                taken += n as u64;
                let call = first..first + n;
                let received = batch.received(call.clone()).zip(batch.lengths(call.clone()));
                for (index, (message, length)) in call.clone().zip(received) {
                    if peer.is_some() && batch.sender(index) != peer {
                        // From a stranger.
                        continue;
                    }
                    let message = if framed { link::message(message) } else { message };
                    // The message's own, also where only its beginning was received.
                    let length = if framed { message.len() } else { length };
                    if ends_empty && length == 0 {
                        ended = true;
                        break;
                    }
                    let each = if merged { batch.segment_bytes(index) } else { None };
                    if greets(&worker.spec, message, each.unwrap_or(length)) {
                        continue;
                    }
                    bytes += length as u64;
                    if looks_closer {
                        count_code_point(worker, &batch, index, length);
                        keep_arrival(&mut trips, &batch, (index, message), each, epoch);
                    }
                    if let Some(each) = each {
                        ledger.arrive_together(message, each, present, now_ns);
                        message.chunks(each).try_for_each(check)?;
                    } else {
                        ledger.arrive(message, present, now_ns);
                        check(message)?;
                    }
                }
                if touched {
                    batch.touch_received(call);
                }
                if bytes > before {
                    calls += 1;
                    has_received(worker, ledger, (bytes, calls), now_ns);
                }
                if ended {
                    return Ok(());
                }
            }
            Err(error) => match error.raw_os_error() {
                Some(libc::EAGAIN)
                    if wait.after_nothing(&worker.link, LOOK_UP_NS).map_err(worker.error("wait to receive"))? => {}
                Some(libc::EAGAIN) if worker.is_over() => {
                    found_nothing += 1;
                    if found_nothing > 1 {
                        return Ok(());
                    }
                }
                Some(libc::EAGAIN | libc::EINTR) => {}
                _ if worker.is_over() => return Ok(()),
                // The peer's answer to an earlier message, or the path is down: not a reason to stop.
                code if code == Some(libc::ECONNREFUSED) || worker.is_outage(&error) => {}
                _ => return Err(worker.error("receive")(error)),
            },
        }
        if worker.is_over() && over_since.get_or_insert_with(Instant::now).elapsed() > LINGER {
            return Ok(());
        }
    }
}
