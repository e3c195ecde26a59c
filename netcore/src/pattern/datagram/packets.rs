//! Unreliable datagrams of QUIC (RFC 9221): the loops of a stream of messages, each a datagram of the connection.
//!
//! They are counted as those of UDP. The sender's library holds back what its congestion control does not let go, and the sender waits
//! until it takes the next message: what a paced sender misses so was not sent, and is not lost.

use std::{sync::atomic::Ordering::Relaxed, time::Instant};

use bytes::Bytes;

use super::{LINGER, LOOK_UP_NS, has_received};
use crate::{
    io::{Channel, quic::Quic},
    measure::{
        clock::{ArrivalClock, monotonic_ns, raw_ns},
        counters::phase_of,
    },
    pace::{Pacer, Schedule, Unpaced},
    pattern::{Worker, WorkerError, between, sequence},
    spec::memory::stamped,
};

/// The sending loop.
pub fn send(worker: &mut Worker, mut channel: Quic) -> Result<(), WorkerError> {
    let result = match worker.spec.pace {
        Some(pace) => send_loop(worker, &mut channel, Schedule::new(&pace)),
        None => send_loop(worker, &mut channel, Unpaced),
    };
    let result = worker.end_of_loop(result);
    channel.flush_datagrams(LINGER);
    result
}

fn send_loop<P: Pacer>(worker: &mut Worker, channel: &mut Quic, mut pacer: P) -> Result<(), WorkerError> {
    let (size, mark) = (worker.send_buffers.message_bytes() as u64, worker.spec.dialect.mark());
    // Without a pace as many as the library joins in a few sending calls.
    let burst = worker.spec.pace.map_or(worker.send_buffers.per_call(), |pace| pace.burst.max(1) as usize);
    let mut gaps = worker.gaps.as_ref().map(|_| worker.gaps());
    let mut times = worker.latency_slot.as_ref().map(|_| worker.latencies());
    let (mut messages, mut of_phase) = (0u64, [0u64; 4]);
    let mut before_ns = None;
    // Messages of the current burst still to be sent.
    let mut left = 0;
    while messages * size < worker.cell.limit() {
        let begins = left == 0;
        if begins {
            if pacer.wait(channel.wait(), || worker.is_over()).is_none() {
                return Ok(());
            }
            left = burst;
        }
        left -= 1;
        let (epoch, now_ns, start) = (worker.cell.epoch(), monotonic_ns(), Instant::now());
        let phase = phase_of(epoch);
        if let Some(gaps) = &mut gaps
            && begins
            && let Some(before_ns) = before_ns.replace(now_ns)
        {
            gaps.record(epoch, now_ns - before_ns);
        }
        let stamp_ns = if worker.spec.one_way { raw_ns() } else { now_ns };
        let message = worker.send_buffers.present_message_mut();
        sequence::mark(mark, message, messages, phase, stamp_ns);
        let mut message = Bytes::copy_from_slice(message);
        worker.send_buffers.advance();
        while let Some(blocked) = channel.send_datagram(message, left > 0).map_err(worker.error("send"))? {
            if worker.is_over() {
                return Ok(());
            }
            message = blocked;
        }
        if let Some(times) = &mut times {
            times.record(epoch, between(start, Instant::now()));
        }
        messages += 1;
        of_phase[phase] += 1;
        let sent = &worker.cell.sent.0;
        sent.bytes.store(messages * size, Relaxed);
        sent.calls.store(messages, Relaxed);
        sent.messages.store(messages, Relaxed);
        sent.of_phase[phase].store(of_phase[phase], Relaxed);
        sent.dropped.store(pacer.dropped(), Relaxed);
    }
    Ok(())
}

/// The receiving loop. It ends with the connection, or when nothing has come for a moment after the test's end.
pub fn receive(worker: &mut Worker, mut channel: Quic) -> Result<(), WorkerError> {
    let mut ledger = sequence::Ledger::new(worker.spec.dialect.mark());
    let result = receive_loop(worker, &mut channel, &mut ledger);
    ledger.finish(&worker.cell.received.0);
    worker.end_of_loop(result)
}

fn receive_loop(worker: &mut Worker, channel: &mut Quic, ledger: &mut sequence::Ledger) -> Result<(), WorkerError> {
    let expected = worker.expected(worker.spec.sizes.message_bytes)?;
    let slot = worker.one_way.clone();
    let mut trips = slot.as_ref().and_then(|slot| slot.take());
    let mut clock = ArrivalClock::default();
    let (mut bytes, mut calls) = (0u64, 0u64);
    // Waits for nothing since the end. Two are needed: the first may have begun before the last datagrams came.
    let (mut over_since, mut found_nothing): (Option<Instant>, u32) = (None, 0);
    let result = loop {
        let message = match channel.receive_datagram(monotonic_ns() + LOOK_UP_NS) {
            Ok(Some(message)) => message,
            // The end of the connection is that of the data: the sender says nothing else.
            Ok(None) if channel.is_closed() => break Ok(()),
            Ok(None) => {
                found_nothing += u32::from(worker.is_over());
                if found_nothing > 1 {
                    break Ok(());
                }
                continue;
            }
            Err(_) if worker.is_over() => break Ok(()),
            Err(error) => break Err(worker.error("receive")(error)),
        };
        found_nothing = 0;
        let (now_ns, epoch) = (monotonic_ns(), worker.cell.epoch());
        if let Some(trips) = &mut trips
            && let Some((number, sent_ns)) = sequence::stamp(&message)
        {
            trips.arrived(epoch, number, sent_ns, clock.arrival(None).0);
        }
        ledger.arrive(&message, phase_of(epoch), now_ns);
        let at = stamped(message.len());
        worker.check_message(expected.as_ref(), "a message", sequence::number(&message), (at, &message[at..]))?;
        bytes += message.len() as u64;
        calls += 1;
        has_received(worker, ledger, (bytes, calls), now_ns);
        if worker.is_over() && over_since.get_or_insert_with(Instant::now).elapsed() > LINGER {
            break Ok(());
        }
    };
    if let Some(slot) = slot {
        slot.leave(trips);
    }
    result
}
