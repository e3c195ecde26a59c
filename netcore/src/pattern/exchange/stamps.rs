//! The times that the messages of a test with `one_way` carry: when a request left and came, and when its answer left and came.
//! A loop without them is compiled without a trace of them.
//!
//! Both ends put their times on CLOCK_MONOTONIC_RAW. A message is stamped before its send call; its arrival is the kernel's
//! time. So a delay holds all that a message waits for in the sending host, and nothing of the wait for a thread of the
//! receiving one, and each instant lies on the side of the truth that a bound of the clocks' offset needs.

use std::{os::fd::OwnedFd, sync::Arc};

use nix::sys::socket::MsgFlags;

use super::super::Worker;
use crate::{
    measure::{
        clock::{ArrivalClock, raw_ns},
        counters::FlowCell,
        envelope::RoundTrip,
        one_way::{Trips, TripsSlot},
    },
    spec::memory::{NUMBERED_BYTES, ONE_WAY_BYTES},
    transport::{
        Link,
        datagram::{arrival_space, departure, receive_at, receive_from},
        flow_options::stamp_departures,
    },
};

/// Offsets of the times in a message, behind its number.
const SENT: usize = NUMBERED_BYTES;
const ARRIVED: usize = SENT + 8;
const ANSWERED: usize = ARRIVED + 8;
/// Offset of a word: requests that the far end has received, times 2, and 1 more if its kernel told the arrival of the last one.
const TAKEN: usize = ANSWERED + 8;

/// The times of a loop's messages.
pub trait Stamps {
    /// Bytes at a message's start that an answer returns as they came, beside the number.
    const RETURNED: usize;
    /// Bytes at a message's start that are written, or 0.
    const WRITTEN: usize;

    /// The first request's number.
    const FIRST: u64 = 0;

    /// Receives a datagram.
    fn receive(&mut self, link: &Link, buffer: &mut [u8], flags: MsgFlags) -> nix::Result<usize>;
    /// A request with this number is sent next.
    fn request(&mut self, number: u64, message: &mut [u8]);
    /// An answer is sent next, to the message that was received last.
    fn answer(&mut self, message: &mut [u8]);
    /// Whether a message can be an answer.
    #[inline]
    fn accepts(&mut self, _message: &[u8]) -> bool {
        true
    }
    /// The message that was received last is an answer. Returns the far end's own time in the round trip, nanoseconds, if that is
    /// no part of its latency.
    fn answered(&mut self, epoch: u64, message: &[u8]) -> u64;
    /// Why there is no answer so far, if the datagrams that came tell it.
    fn silence(&self) -> Option<String> {
        None
    }
}

/// Without times.
impl Stamps for () {
    const RETURNED: usize = 0;
    const WRITTEN: usize = 0;

    #[inline]
    fn receive(&mut self, link: &Link, buffer: &mut [u8], flags: MsgFlags) -> nix::Result<usize> {
        receive_from(link, buffer, flags)
    }
    #[inline]
    fn request(&mut self, _: u64, _: &mut [u8]) {}
    #[inline]
    fn answer(&mut self, _: &mut [u8]) {}
    #[inline]
    fn answered(&mut self, _: u64, _: &[u8]) -> u64 {
        0
    }
}

/// The times of one flow.
pub struct Clocked {
    clock: ArrivalClock,
    control: Vec<u8>,
    /// When the last datagram arrived, and whether the kernel told it.
    pub arrived: (u64, bool),
    /// Requests that were received.
    taken: u64,
    /// Of a requester, and of a responder that tells of the times in its host.
    pub trips: Option<Trips>,
    slot: Option<Arc<TripsSlot>>,
    departures: Option<Departures>,
}

/// Of so many messages the kernel is asked when one leaves: of all it would cost a call and a note for each.
const SAMPLED: u64 = 16;

/// A message that has not left after so long was dropped, nanoseconds.
const GIVEN_UP_NS: u64 = 1_000_000_000;

/// The departures of some of a flow's messages, by the kernel's notes.
struct Departures {
    socket: Arc<OwnedFd>,
    cell: Arc<FlowCell>,
    control: Vec<u8>,
    /// Messages that were sent.
    count: u64,
    /// Whether the kernel notes what is sent now.
    is_on: bool,
    /// The number of the next note, at least: a send that failed may have taken one.
    next: u32,
    /// When the program sent the message whose note is awaited.
    awaited_ns: Option<u64>,
}

impl Departures {
    /// A message is sent next. Before its time is read: the call that asks for the note is no part of what it measures.
    #[inline]
    fn before_sending(&mut self) {
        self.sent();
        self.count += 1;
        if !self.count.is_multiple_of(SAMPLED) {
            return;
        }
        // A queue may hold a message for longer than the next ones take to be sent.
        let may_come = self.awaited_ns.is_some_and(|before_ns| raw_ns().saturating_sub(before_ns) < GIVEN_UP_NS);
        self.is_on = !may_come && stamp_departures(&self.socket, true).is_ok();
    }

    /// It is sent now.
    #[inline]
    fn sending(&mut self, sent_ns: u64) {
        if self.is_on && self.awaited_ns.replace(sent_ns).is_some() {
            self.next = self.next.wrapping_add(1);
        }
    }

    /// The message has been sent.
    #[inline]
    fn sent(&mut self) {
        if self.is_on {
            self.is_on = stamp_departures(&self.socket, false).is_err();
        }
    }

    /// Takes the kernel's notes, if one is awaited.
    #[inline]
    fn look(&mut self, clock: &mut ArrivalClock, trips: &mut Trips) {
        self.sent();
        let Some(sent_ns) = self.awaited_ns else { return };
        while let Ok(note) = departure(&self.socket, &mut self.control) {
            // One of a message that was given up is of no use.
            let Some((number, time_ns)) = note.filter(|(number, _)| *number >= self.next) else { continue };
            (self.next, self.awaited_ns) = (number.wrapping_add(1), None);
            let (left_ns, by_kernel) = clock.arrival(Some(time_ns));
            if let (Some(in_host_ns), true) = (left_ns.checked_sub(sent_ns), by_kernel) {
                trips.in_host(self.cell.epoch(), true, in_host_ns);
            }
        }
    }
}

impl Clocked {
    pub fn new(worker: &Worker) -> Self {
        Self {
            clock: ArrivalClock::default(),
            control: arrival_space(),
            arrived: (0, false),
            taken: 0,
            trips: worker.one_way.as_ref().and_then(|slot| slot.take()),
            slot: worker.one_way.clone(),
            departures: worker.spec.kernel_times.then(|| Departures {
                socket: worker.link.send.clone(),
                cell: worker.cell.clone(),
                control: arrival_space(),
                count: 0,
                is_on: false,
                next: 0,
                awaited_ns: None,
            }),
        }
    }

    /// The message that was received last is handed to the program, which looks at some.
    #[inline]
    fn handed_over(&mut self, number: u64, epoch: u64) {
        if self.departures.is_some()
            && number.is_multiple_of(SAMPLED)
            && self.arrived.1
            && let Some(trips) = &mut self.trips
        {
            trips.in_host(epoch, false, raw_ns().saturating_sub(self.arrived.0));
        }
    }

    /// A request is sent now.
    pub fn requested(&mut self, sent_ns: u64) {
        if let Some(outages) = self.trips.as_mut().and_then(|trips| trips.outages.as_mut()) {
            outages.requested(sent_ns);
        }
    }
}

impl Drop for Clocked {
    fn drop(&mut self) {
        if let Some(slot) = &self.slot {
            slot.leave(self.trips.take());
        }
    }
}

impl Stamps for Clocked {
    const RETURNED: usize = ARRIVED;
    const WRITTEN: usize = ONE_WAY_BYTES;

    fn receive(&mut self, link: &Link, buffer: &mut [u8], flags: MsgFlags) -> nix::Result<usize> {
        if let (Some(departures), Some(trips)) = (&mut self.departures, &mut self.trips) {
            departures.look(&mut self.clock, trips);
        }
        let (bytes, time_ns) = receive_at(link, buffer, flags, &mut self.control)?;
        self.arrived = self.clock.arrival(time_ns);
        Ok(bytes)
    }

    fn request(&mut self, _: u64, message: &mut [u8]) {
        self.departures.iter_mut().for_each(Departures::before_sending);
        let sent_ns = raw_ns();
        write(message, SENT, sent_ns);
        self.requested(sent_ns);
        self.departures.iter_mut().for_each(|departures| departures.sending(sent_ns));
    }

    fn answer(&mut self, message: &mut [u8]) {
        let (arrived_ns, kernel) = self.arrived;
        write(message, ARRIVED, arrived_ns);
        self.taken += 1;
        write(message, TAKEN, self.taken << 1 | u64::from(kernel));
        if let Some(epoch) = self.departures.as_ref().map(|departures| departures.cell.epoch()) {
            self.handed_over(self.taken, epoch);
        }
        self.departures.iter_mut().for_each(Departures::before_sending);
        let answered_ns = raw_ns();
        write(message, ANSWERED, answered_ns);
        self.departures.iter_mut().for_each(|departures| departures.sending(answered_ns));
    }

    fn answered(&mut self, epoch: u64, message: &[u8]) -> u64 {
        self.handed_over(read(message, 0), epoch);
        let (received_ns, kernel) = self.arrived;
        let trip = RoundTrip {
            sent_ns: read(message, SENT),
            arrived_ns: read(message, ARRIVED),
            answered_ns: read(message, ANSWERED),
            received_ns,
        };
        let Some(trips) = &mut self.trips else { return 0 };
        let taken = read(message, TAKEN);
        if let (Some(outages), Some(on_the_way)) = (&mut trips.outages, trip.on_the_way_ns()) {
            outages.answered(read(message, 0), trip.sent_ns, on_the_way, Some(taken >> 1));
        }
        trips.record(epoch, &trip, kernel && taken & 1 == 1);
        0
    }
}

/// Writes a time; messages of such a test have room for it.
fn write(message: &mut [u8], at: usize, value: u64) {
    if let Some(bytes) = message.get_mut(at..at + 8) {
        bytes.copy_from_slice(&value.to_le_bytes());
    }
}

fn read(message: &[u8], at: usize) -> u64 {
    message.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u64::from_le_bytes(*bytes))
}
