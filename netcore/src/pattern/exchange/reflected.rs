//! Requests and answers in the form of STAMP, as their sender writes and reads them.
//!
//! An answer counts if it names a request of the last ones with the very time of its sending, in this session, with times that can
//! be. The reflector's own time, from the arrival of a request to its answer, is no part of a round trip.

use nix::sys::socket::MsgFlags;

use super::{
    super::Worker,
    Framing,
    stamps::{Clocked, Stamps},
};
use crate::{
    measure::{
        clock::{raw_ns, wall_ns},
        counters::phase_of,
        envelope::RoundTrip,
        reflections::{Reflections, Refusal},
    },
    spec::memory::{TLV_BYTES, reflected_bytes},
    sys,
    transport::{
        Link,
        stamp::{Answer, ErrorEstimate, Packets, Request, Wrong, ntp},
    },
};

/// Requests whose times are remembered. An answer that comes later than so many further requests is not known any more.
const REMEMBERED: usize = 1 << 14;

/// Their memory, bytes.
pub const REMEMBERED_BYTES: u64 = (REMEMBERED * size_of::<(u64, u64, u64)>()) as u64;

/// Requests between two looks at the error of the own clock.
const LOOKS: u64 = 1024;

/// The number in an answer is that of its request.
pub struct Named(pub Packets);

impl Framing for Named {
    const NUMBER_BITS: u32 = 64;
    const ALONE: bool = false;
    fn mark(&self, _: &mut [u8], _: u64) {}
    #[inline]
    fn read(&self, message: &[u8]) -> Option<u64> {
        self.0.named(message).map(u64::from)
    }
    fn fixed<'m>(&self, _: &'m [u8]) -> (usize, &'m [u8]) {
        (0, &[])
    }
}

/// The times of one flow's packets.
pub struct Reflected {
    clocked: Clocked,
    packets: Packets,
    ssid: u16,
    error: ErrorEstimate,
    /// By number: number, time of sending (0 after its answer came), and the same as it was written.
    sent: Vec<(u64, u64, u64)>,
    /// The answer that was received last.
    last: Option<(Answer, RoundTrip)>,
}

impl Reflected {
    pub fn new(worker: &Worker, packets: Packets) -> Self {
        let mut clocked = Clocked::new(worker);
        if let Some(trips) = &mut clocked.trips {
            trips.reflections = Some(Reflections::default());
        }
        // Without random numbers the session is told apart by its addresses and times. 0 would say that there is none.
        #[expect(clippy::cast_possible_truncation)]
        let ssid = (getrandom::u64().unwrap_or_default() as u16).max(1);
        Self {
            clocked,
            packets,
            ssid,
            error: ErrorEstimate::default(),
            sent: vec![(u64::MAX, 0, 0); REMEMBERED],
            last: None,
        }
    }

    /// The answer in a datagram, and its times.
    fn read(&self, message: &[u8]) -> Result<(Answer, RoundTrip), Refusal> {
        let answer = self.packets.read_answer(message).map_err(|wrong| match wrong {
            Wrong::Short => Refusal::Short,
            Wrong::Tag => Refusal::Tag,
            Wrong::Times => Refusal::Times,
        })?;
        // A reflector that knows no sessions writes 0.
        if answer.ssid != self.ssid && answer.ssid != 0 {
            return Err(Refusal::Session);
        }
        let number = u64::from(answer.request_number);
        let (sent_number, sent_ns, written) = self.sent[answer.request_number as usize % REMEMBERED];
        if (sent_number, written) != (number, answer.request_sent) {
            return Err(Refusal::Request);
        }
        if sent_ns == 0 {
            return Err(Refusal::Again);
        }
        let trip = RoundTrip {
            sent_ns,
            arrived_ns: answer.received_ns,
            answered_ns: answer.sent_ns,
            received_ns: self.clocked.arrived.0,
        };
        if trip.on_the_way_ns().is_some() { Ok((answer, trip)) } else { Err(Refusal::Times) }
    }
}

impl Stamps for Reflected {
    const RETURNED: usize = 0;
    // Both forms are written whole, and the header of the padding behind them.
    const WRITTEN: usize = reflected_bytes(true) + TLV_BYTES;
    const FIRST: u64 = 1;

    fn receive(&mut self, link: &Link, buffer: &mut [u8], flags: MsgFlags) -> nix::Result<usize> {
        self.clocked.receive(link, buffer, flags)
    }

    fn request(&mut self, number: u64, message: &mut [u8]) {
        if number % LOOKS == Self::FIRST {
            let clock = sys::wall_clock();
            self.error = ErrorEstimate::new(clock.max_error_ns, clock.synchronised);
        }
        // A test has fewer than 2^31 requests.
        #[expect(clippy::cast_possible_truncation)]
        let short = number as u32;
        let sent = ntp(wall_ns());
        let sent_ns = raw_ns();
        self.packets.write_request(message, &Request { number: short, sent, error: self.error, ssid: self.ssid });
        self.sent[short as usize % REMEMBERED] = (number, sent_ns, sent);
        self.clocked.requested(sent_ns);
    }

    fn answer(&mut self, _: &mut [u8]) {}

    fn accepts(&mut self, message: &[u8]) -> bool {
        let read = self.read(message);
        self.last = read.ok();
        let Some(reflections) = self.clocked.trips.as_mut().and_then(|trips| trips.reflections.as_mut()) else {
            return false;
        };
        match read {
            Ok(_) => true,
            Err(why) => {
                reflections.refused(why);
                false
            }
        }
    }

    fn answered(&mut self, epoch: u64, _: &[u8]) -> u64 {
        let (Some((answer, trip)), Some(trips)) = (self.last, &mut self.clocked.trips) else { return 0 };
        let (phase, number) = (phase_of(epoch), u64::from(answer.request_number));
        let mut taken = None;
        if let Some(reflections) = &mut trips.reflections {
            let synchronised = answer.error.is_synchronised();
            reflections.answered(phase, (number, answer.number), answer.ttl, synchronised);
            taken = reflections.taken();
        }
        if let (Some(outages), Some(on_the_way)) = (&mut trips.outages, trip.on_the_way_ns()) {
            outages.answered(number, trip.sent_ns, on_the_way, taken);
        }
        // Whether the reflector's times are those of its kernel or hardware is not known.
        trips.record(epoch, &trip, false);
        self.sent[answer.request_number as usize % REMEMBERED].1 = 0;
        answer.sent_ns - answer.received_ns
    }

    fn silence(&self) -> Option<String> {
        self.clocked.trips.as_ref()?.reflections.as_ref()?.silence()
    }
}
