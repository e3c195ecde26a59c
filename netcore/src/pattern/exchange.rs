//! Requests and responses by datagrams, which may be lost.
//!
//! A request without an answer after `reply_timeout` counts as an error and is replaced by a new one, so a loss neither
//! stalls the test nor shows as a long latency. An answer returns the number of its request, which distinguishes a late
//! answer from a timely one. Messages of less than 8 bytes have a shorter number ([`Numbers`]); those to netperf have none,
//! and only one is under way at a time.
//!
//! ICMP echo is the same with the kernel as the peer: its messages have a 16-bit number. A reflector of STAMP is another peer, with
//! messages of its own form.

mod numbers;
mod reflected;
mod stamps;

pub use reflected::REMEMBERED_BYTES;

use std::{
    collections::VecDeque,
    io,
    os::fd::AsRawFd,
    sync::atomic::Ordering::Relaxed,
    time::{Duration, Instant},
};

use nix::sys::socket::MsgFlags;
use socket2::SockRef;

use self::{
    numbers::Numbers,
    reflected::{Named, Reflected},
    stamps::{Clocked, Stamps},
};
use super::{Worker, WorkerError, between, datagram::end_of_datagrams, request_response::Offer};
use crate::{
    io::wait::Wait,
    measure::{clock::monotonic_ns, counters::phase_of, histogram::Recorder},
    spec::{
        Dialect, Stop, Transport,
        memory::{ICMP_HEADER_BYTES, NUMBERED_BYTES, STAMPED_BYTES},
    },
    transport::{connection::is_greeting, datagram::send_to, icmp, link, listener::Event, stamp::Packets},
};

/// A request in flight.
#[derive(Clone, Copy)]
struct Flight {
    number: u64,
    /// Time of sending.
    start: Instant,
    /// Time before `start` from which its latency counts, nanoseconds.
    waited_ns: u64,
    /// Phase of its sending.
    phase: usize,
}

/// Interval at which a waiting loop checks whether the test is over, nanoseconds.
const LOOK_UP_NS: u64 = 100_000_000;

/// Longest time for which strangers' datagrams after the end are put aside.
const LINGER: Duration = Duration::from_secs(1);

/// A service or reflector that has answered nothing for so long is not there: a test that stops by a count would never end.
const SILENCE: Duration = Duration::from_secs(10);

/// Tries to receive: a message's own length, also where only its beginning fits the buffer, or `None` for now.
/// `look_up_ns`: longest wait, if the call itself does not wait; 0: none.
/// `over_since`: the first look after the end, of all attempts of a worker.
#[inline]
fn attempt<W: Wait, S: Stamps>(
    worker: &mut Worker,
    wait: &W,
    stamps: &mut S,
    look_up_ns: u64,
    over_since: &mut Option<Instant>,
) -> io::Result<Option<usize>> {
    let waits = look_up_ns > 0;
    loop {
        let mut flags = MsgFlags::MSG_DONTWAIT;
        if waits {
            wait.turn();
            flags = wait.flags();
        }
        match stamps.receive(&worker.link, worker.receive_buffers.present_mut(), flags | MsgFlags::MSG_TRUNC) {
            // Our messages are never empty: the peer has closed its connection.
            Ok(0) if worker.spec.transport == Transport::Dccp => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => {
                wait.succeeded(Event::Input);
                return Ok(Some(n));
            }
            Err(nix::Error::EAGAIN) if waits && wait.after_nothing(&worker.link, look_up_ns)? => {}
            // Behind a stranger's datagram there may be the peer's. After the end, `None` means that there is nothing more.
            Err(nix::Error::EINTR)
                if worker.is_over() && over_since.get_or_insert_with(Instant::now).elapsed() < LINGER => {}
            // A refusal answers an earlier message: the peer's socket was not open yet, or is closed already.
            Err(nix::Error::EAGAIN | nix::Error::EINTR | nix::Error::ECONNREFUSED) => return Ok(None),
            Err(error) if worker.is_outage(&error.into()) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Error of a failed attempt.
fn failure(worker: &Worker, what: &'static str) -> impl FnOnce(io::Error) -> WorkerError {
    let flow = worker.link.flow;
    move |source| match source.kind() {
        io::ErrorKind::UnexpectedEof => WorkerError::Closed { flow },
        _ => WorkerError::Io { flow, what, source },
    }
}

/// Sends a message, and retries as long as it takes. `false`: the test is over.
#[inline]
fn deliver<W: Wait>(worker: &Worker, wait: &W, errors: &mut u64) -> io::Result<bool> {
    loop {
        let (link, flags) = (&worker.link, MsgFlags::MSG_NOSIGNAL | wait.flags());
        match send_to(link.send.as_raw_fd(), worker.send_buffers.present(), link.peer, flags) {
            Ok(_) => {
                wait.succeeded(Event::Room);
                return Ok(true);
            }
            Err(_) if worker.is_over() => return Ok(false),
            Err(nix::Error::EINTR) => {}
            Err(nix::Error::EAGAIN) => wait.for_room(link, LOOK_UP_NS)?,
            Err(nix::Error::ENOBUFS | nix::Error::ENOMEM | nix::Error::ECONNREFUSED) => {
                *errors += 1;
                worker.cell.operations.0.errors.store(*errors, Relaxed);
                wait.turn();
            }
            Err(error) => return worker.lost(wait, error.into(), errors).map(|_| true),
        }
    }
}

/// Matching of answers to requests.
trait Framing {
    /// Bits of a request's number that its answer returns; 0: none.
    const NUMBER_BITS: u32;
    /// Whether the kernel answers: then only this end knows the losses.
    const ALONE: bool;
    /// Writes a request's number.
    fn mark(&self, message: &mut [u8], number: u64);
    /// Number of the answered request; `None`: not an answer to this test.
    fn read(&self, message: &[u8]) -> Option<u64>;
    /// The part of an answer that must equal the sent message, and its offset there.
    fn fixed<'m>(&self, message: &'m [u8]) -> (usize, &'m [u8]);
}

/// Messages with a number of so many bytes.
struct Numbered<const BYTES: usize>;

impl<const BYTES: usize> Framing for Numbered<BYTES> {
    // At most 8 bytes.
    #[expect(clippy::cast_possible_truncation)]
    const NUMBER_BITS: u32 = 8 * BYTES as u32;
    const ALONE: bool = false;
    #[inline]
    fn mark(&self, message: &mut [u8], number: u64) {
        message[..BYTES].copy_from_slice(&number.to_le_bytes()[..BYTES]);
    }
    #[inline]
    fn read(&self, message: &[u8]) -> Option<u64> {
        let mut number = [0; NUMBERED_BYTES];
        number[..BYTES].copy_from_slice(message.get(..BYTES)?);
        Some(u64::from_le_bytes(number))
    }
    fn fixed<'m>(&self, message: &'m [u8]) -> (usize, &'m [u8]) {
        (BYTES, message.get(BYTES..).unwrap_or_default())
    }
}

impl Framing for icmp::Form {
    const NUMBER_BITS: u32 = 16;
    const ALONE: bool = true;
    #[inline]
    fn mark(&self, message: &mut [u8], number: u64) {
        // The header has room for the lower 16 bits.
        #[expect(clippy::cast_possible_truncation)]
        icmp::Form::mark(*self, message, number as u16);
    }
    #[inline]
    fn read(&self, message: &[u8]) -> Option<u64> {
        icmp::Form::read(*self, message).map(u64::from)
    }
    fn fixed<'m>(&self, message: &'m [u8]) -> (usize, &'m [u8]) {
        (ICMP_HEADER_BYTES, icmp::Form::payload(*self, message))
    }
}

/// The requesting loop.
pub fn request<W: Wait>(worker: &mut Worker, wait: &W) -> Result<(), WorkerError> {
    let recorder = worker.latencies();
    SockRef::from(&worker.link.receive)
        .set_read_timeout(Some(Duration::from_nanos(look_up_ns(worker))))
        .map_err(worker.error("bound the wait for responses"))?;
    let offer = worker.spec.pace.map(|pace| Offer::new(&pace, worker.gaps()));
    let result = match worker.link.icmp {
        Some(form) => request_loop(worker, wait, &form, (), recorder, offer),
        None if worker.spec.is_reflected() => {
            let packets = Packets::new(worker.secret.clone());
            let stamps = Reflected::new(worker, packets.clone());
            request_loop(worker, wait, &Named(packets), stamps, recorder, offer)
        }
        None => match worker.spec.request_number_bytes() {
            NUMBERED_BYTES if worker.spec.one_way => {
                let stamps = Clocked::new(worker);
                request_loop(worker, wait, &Numbered::<NUMBERED_BYTES>, stamps, recorder, offer)
            }
            NUMBERED_BYTES => request_loop(worker, wait, &Numbered::<NUMBERED_BYTES>, (), recorder, offer),
            2 => request_loop(worker, wait, &Numbered::<2>, (), recorder, offer),
            1 => request_loop(worker, wait, &Numbered::<1>, (), recorder, offer),
            _ => request_loop(worker, wait, &Numbered::<0>, (), recorder, offer),
        },
    };
    let result = worker.end_of_loop(result);
    end_of_datagrams(worker);
    result
}

/// Fails if a service has answered none of the requests that a test counts, or a reflector none at all.
fn is_there(worker: &Worker, stamps: &impl Stamps, transactions: u64, began: Instant) -> Result<(), WorkerError> {
    let spec = &worker.spec;
    let is_awaited = spec.is_reflected() || !matches!(spec.phases.stop, Stop::AfterNs(_));
    if transactions > 0 || !(spec.is_alone() && is_awaited) || began.elapsed() <= SILENCE {
        return Ok(());
    }
    let unheard = || "no answer from the service: is it there, and does a firewall let UDP through?".to_owned();
    Err(WorkerError::Silent { flow: worker.link.flow, why: stamps.silence().unwrap_or_else(unheard) })
}

fn request_loop<W: Wait, F: Framing, S: Stamps>(
    worker: &mut Worker,
    wait: &W,
    framing: &F,
    mut stamps: S,
    mut recorder: Recorder,
    mut offer: Option<Offer>,
) -> Result<(), WorkerError> {
    let inflight = worker.spec.inflight as usize;
    let (timeout, sizes) = (Duration::from_nanos(worker.spec.reply_timeout_ns), worker.spec.sizes);
    let (request_bytes, response_bytes) =
        if F::ALONE { (sizes.message_bytes, sizes.message_bytes) } else { (sizes.request_bytes, sizes.response_bytes) };
    worker.prepend_header();
    // The kernel returns our own messages.
    let expected = if F::ALONE {
        worker.expected_of(worker.side, request_bytes + ICMP_HEADER_BYTES as u64)?
    } else {
        worker.expected(response_bytes)?
    };
    let mut numbers = Numbers::new(F::NUMBER_BITS, S::FIRST, timeout);
    let mut of_phase = [[0u64; 2]; 4];
    // Oldest first. Answers may overtake each other, so any of them may leave.
    let mut flights: VecDeque<Flight> = VecDeque::with_capacity(inflight);
    let (mut sent, mut transactions, mut errors, mut stray, mut received_bytes) = (0u64, 0u64, 0u64, 0u64, 0u64);
    let alone = worker.spec.is_alone();
    // A service's answers may have any length, and the kernel's come with headers.
    let answer_bytes = if alone || F::ALONE { None } else { Some(response_bytes) };
    let (began, mut now, mut over_since) = (Instant::now(), Instant::now(), None);
    loop {
        let limit = worker.cell.limit();
        while flights.len() < inflight && transactions + (flights.len() as u64) < limit {
            let Some(number) = numbers.next(now) else { break };
            let mut waited_ns = 0;
            if let Some(offer) = &mut offer {
                let Some(start_ns) = offer.take(worker) else { break };
                now = Instant::now();
                waited_ns = monotonic_ns().saturating_sub(start_ns);
            }
            numbers.take();
            worker.send_buffers.go_to(if F::NUMBER_BITS == 0 { sent } else { number });
            worker.send_buffers.touch();
            framing.mark(worker.send_buffers.present_message_mut(), number);
            stamps.request(number, worker.send_buffers.present_message_mut());
            if !deliver(worker, wait, &mut errors).map_err(worker.error("send a request"))? {
                return Ok(());
            }
            let phase = phase_of(worker.cell.epoch());
            flights.push_back(Flight { number, start: now, waited_ns, phase });
            sent += 1;
            worker.cell.sent.0.bytes.store(sent * request_bytes, Relaxed);
            worker.cell.sent.0.calls.store(sent, Relaxed);
            if F::ALONE {
                of_phase[phase][0] += 1;
                worker.cell.sent.0.messages.store(sent, Relaxed);
                worker.cell.sent.0.of_phase[phase].store(of_phase[phase][0], Relaxed);
            }
        }
        let more = transactions < worker.cell.limit();
        let has_number = numbers.next(now).is_some();
        if flights.is_empty() && (has_number || !more) {
            if offer.as_mut().is_some_and(|offer| more && offer.wait(worker, wait)) {
                continue;
            }
            return Ok(());
        }
        let is_full = !has_number || flights.len() == inflight;
        let received = next_answer(worker, wait, &mut stamps, offer.as_ref(), is_full, &mut over_since)?;
        now = Instant::now();
        if is_full {
            offer.iter_mut().for_each(Offer::was_full);
        }
        let Some(n) = received else {
            is_there(worker, &stamps, transactions, began)?;
            let patient = offer.is_some() || F::ALONE;
            if worker.is_over() && (!patient || flights.iter().all(|flight| now - flight.start > timeout)) {
                // After the end, missing answers are waited for only once.
                return Ok(());
            }
            errors += give_up(&mut flights, &mut numbers, now, timeout);
            worker.cell.operations.0.errors.store(errors, Relaxed);
            std::hint::spin_loop();
            continue;
        };
        let Some(message) = body(worker, n, answer_bytes).filter(|message| stamps.accepts(message)) else { continue };
        let number = framing.read(message);
        let place = number.and_then(|number| flights.iter().position(|flight| flight.number == number));
        let Some(flight) = place.and_then(|place| flights.remove(place)) else {
            if let Some(number) = number {
                numbers.come_late(number);
            }
            stray += 1;
            worker.cell.received.0.duplicated.store(stray, Relaxed);
            continue;
        };
        numbers.release(flight.number);
        let slot = if F::NUMBER_BITS == 0 { sent - 1 } else { flight.number };
        worker.check_message(expected.as_ref(), "a response", slot, fixed::<F, S>(framing, message))?;
        let there_ns = stamps.answered(worker.cell.epoch(), message);
        worker.receive_buffers.touch_received(n);
        worker.receive_buffers.advance();
        transactions += 1;
        received_bytes += if alone { n as u64 } else { response_bytes };
        worker.cell.received.0.bytes.store(received_bytes, Relaxed);
        worker.cell.received.0.calls.store(transactions, Relaxed);
        if F::ALONE {
            of_phase[flight.phase][1] += 1;
            worker.cell.received.0.messages.store(transactions, Relaxed);
            worker.cell.received.0.of_phase[flight.phase].messages.store(of_phase[flight.phase][1], Relaxed);
        }
        worker.cell.operations.0.transactions.store(transactions, Relaxed);
        recorder.record(worker.cell.epoch(), (between(flight.start, now) + flight.waited_ns).saturating_sub(there_ns));
    }
}

/// The part of an answer that is as it was sent: without its number and its times.
fn fixed<'m, F: Framing, S: Stamps>(framing: &F, message: &'m [u8]) -> (usize, &'m [u8]) {
    if S::WRITTEN > 0 { (S::WRITTEN, message.get(S::WRITTEN..).unwrap_or_default()) } else { framing.fixed(message) }
}

/// Gives up the requests that have waited too long for their answers; returns how many.
fn give_up(flights: &mut VecDeque<Flight>, numbers: &mut Numbers, now: Instant, timeout: Duration) -> u64 {
    let mut lost = 0;
    while let Some(flight) = flights.pop_front_if(|flight| now - flight.start >= timeout) {
        numbers.lose(flight.number, now);
        lost += 1;
    }
    lost
}

/// Longest wait of a requester at a time, nanoseconds. No longer than the reply timeout, which must be noticed in time.
fn look_up_ns(worker: &Worker) -> u64 {
    worker.spec.reply_timeout_ns.clamp(1000, LOOK_UP_NS)
}

/// Receives a possible answer; `None` if none came before a request is due or before the time for a check.
#[inline]
fn next_answer<W: Wait, S: Stamps>(
    worker: &mut Worker,
    wait: &W,
    stamps: &mut S,
    offer: Option<&Offer>,
    is_full: bool,
    over_since: &mut Option<Instant>,
) -> Result<Option<usize>, WorkerError> {
    // If nothing may be sent before an answer comes, or the test is over, waiting for the answer is all there is to do.
    let mut look_up_ns = look_up_ns(worker);
    if let Some(offer) = offer
        && !is_full
        && !worker.is_over()
    {
        wait.turn();
        wait.for_input(&worker.link, offer.next_due()).map_err(worker.error("wait for a response"))?;
        look_up_ns = 0;
    }
    attempt(worker, wait, stamps, look_up_ns, over_since).map_err(failure(worker, "receive a response"))
}

/// The message in the received bytes, of which there were `n`: on the link layer, those between header and padding. `None`: it
/// has another length than the test's, or is a greeting that was sent again.
#[inline]
fn body(worker: &Worker, n: usize, message_bytes: Option<u64>) -> Option<&[u8]> {
    let received = worker.receive_buffers.present();
    let received = &received[..n.min(received.len())];
    let Some(bytes) = message_bytes else { return Some(received) };
    let (message, length) = if worker.link.header.is_empty() {
        (received, n)
    } else {
        let message = link::message(received);
        (message, message.len())
    };
    (length as u64 == bytes && !is_greeting(message, length, bytes)).then_some(message)
}

/// The answering loop.
pub fn respond<W: Wait>(worker: &mut Worker, wait: &W) -> Result<(), WorkerError> {
    let result = if worker.spec.one_way {
        let stamps = Clocked::new(worker);
        respond_loop(worker, wait, stamps)
    } else {
        respond_loop(worker, wait, ())
    };
    let result = worker.end_of_loop(result);
    end_of_datagrams(worker);
    result
}

fn respond_loop<W: Wait, S: Stamps>(worker: &mut Worker, wait: &W, mut stamps: S) -> Result<(), WorkerError> {
    let sizes = worker.spec.sizes;
    let number_bytes = worker.spec.request_number_bytes();
    let ends_empty = worker.spec.dialect.ends_with_empty_datagram();
    let message_bytes = (worker.spec.dialect == Dialect::Plumb).then_some(sizes.request_bytes);
    worker.prepend_header();
    let expected = worker.expected(sizes.request_bytes)?;
    let (mut transactions, mut errors) = (0u64, 0u64);
    // Empty receive calls since the end. Two are needed: the first may have begun before the end.
    let mut found_nothing = 0;
    let mut over_since = None;
    loop {
        let received = match attempt(worker, wait, &mut stamps, LOOK_UP_NS, &mut over_since)
            .map_err(failure(worker, "receive a request"))
        {
            Err(WorkerError::Closed { .. }) => return Ok(()),
            received => received?,
        };
        let Some(n) = received else {
            if worker.is_over() {
                found_nothing += 1;
                if found_nothing > 1 {
                    return Ok(());
                }
            }
            std::hint::spin_loop();
            continue;
        };
        if n == 0 && ends_empty {
            return Ok(());
        }
        found_nothing = 0;
        let Some(message) = body(worker, n, message_bytes) else { continue };
        let (mut name, at) = ([0; STAMPED_BYTES], number_bytes.max(S::RETURNED).min(message.len()));
        name[..at].copy_from_slice(&message[..at]);
        // An answer is sent from the slot of its request's number, so that the requester knows its contents; without
        // numbers, from the next slot.
        let number =
            if number_bytes > 0 { u64::from_le_bytes(*name.first_chunk().unwrap_or(&[0; 8])) } else { transactions };
        let fixed = at.max(S::WRITTEN);
        worker.check_message(expected.as_ref(), "a request", number, (fixed, &message[fixed..]))?;
        worker.receive_buffers.touch_received(n);
        worker.receive_buffers.advance();
        worker.send_buffers.go_to(number);
        worker.send_buffers.touch();
        worker.send_buffers.present_message_mut()[..at].copy_from_slice(&name[..at]);
        stamps.answer(worker.send_buffers.present_message_mut());
        if !deliver(worker, wait, &mut errors).map_err(worker.error("send a response"))? {
            return Ok(());
        }
        transactions += 1;
        let cell = &worker.cell;
        cell.received.0.bytes.store(transactions * sizes.request_bytes, Relaxed);
        cell.received.0.calls.store(transactions, Relaxed);
        cell.sent.0.bytes.store(transactions * sizes.response_bytes, Relaxed);
        cell.sent.0.calls.store(transactions, Relaxed);
        cell.operations.0.transactions.store(transactions, Relaxed);
    }
}
