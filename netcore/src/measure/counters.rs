//! Counters of a flow's threads, and the words by which the sampler stops them.
//!
//! Every counter has one writer, the thread that does the work. It keeps its own copy in a register and stores it with
//! relaxed ordering after each operation; the sampler reads whenever it likes. Words that different threads write never
//! share a cache line, so counting costs a store to a line that the thread owns.

use std::sync::{
    Mutex, OnceLock, PoisonError,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use crate::report::{Counts, DatagramPhase, LossRuns, Phase};

/// A cache line of its own: two of 64 bytes, since processors fetch them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Line<T>(pub T);

/// A counter with one writer.
#[cfg(not(plumb_no_counters))]
pub type Counter = AtomicU64;

/// The same compiled to nothing (`--cfg plumb_no_counters`), only for the comparison that shows what counting costs:
/// tests/bench/counters.
#[cfg(plumb_no_counters)]
#[derive(Debug, Default)]
pub struct Counter;

#[cfg(plumb_no_counters)]
impl Counter {
    #[inline]
    pub fn store(&self, _value: u64, _order: std::sync::atomic::Ordering) {}

    #[inline]
    pub fn load(&self, _order: std::sync::atomic::Ordering) -> u64 {
        0
    }
}

/// Figures that one thread writes and the sampler reads.
#[derive(Debug)]
pub struct Published<T>(Mutex<Option<T>>);

impl<T> Default for Published<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T: Copy> Published<T> {
    /// The last figures; `None` before the first.
    pub fn read(&self) -> Option<T> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves them as they were while somebody reads them: the loop that writes must not wait.
    pub fn write(&self, figures: T) {
        if let Ok(mut published) = self.0.try_lock() {
            *published = Some(figures);
        }
    }
}

/// Stands for a limit that is about to be set.
const HELD: u64 = u64::MAX - 1;

/// The sampler's words to the threads of a flow.
#[derive(Debug)]
pub struct Orders {
    /// Count (bytes of a stream's sender, transactions of a requester) at which the thread stops.
    limit: AtomicU64,
    /// The current window: four times its number, plus its phase.
    epoch: AtomicU64,
}

/// Written by the thread that sends.
#[derive(Debug, Default)]
pub struct Sent {
    /// Payload bytes that the kernel took.
    pub bytes: Counter,
    /// Calls that moved data.
    pub calls: Counter,
    pub messages: Counter,
    /// Messages by the phase in their header.
    pub of_phase: [Counter; 4],
    /// Due times that a paced sender dropped.
    pub dropped: Counter,
    /// Zero-copy sends whose completion has come.
    pub completions: Counter,
    /// Of these, sends whose bytes the kernel copied after all.
    pub copied: Counter,
}

/// Written by the thread that receives.
#[derive(Debug, Default)]
pub struct Received {
    /// Payload bytes that the kernel gave.
    pub bytes: Counter,
    /// Calls that moved data.
    pub calls: Counter,
    /// Messages without duplicates.
    pub messages: Counter,
    /// Messages that arrived after a later one.
    pub reordered: Counter,
    /// Messages that arrived again.
    pub duplicated: Counter,
    /// Smoothed interarrival jitter (RFC 3550, section 6.4.1), nanoseconds.
    pub jitter_ns: Counter,
    /// Messages by their code point of ECN, where these are counted.
    pub code_points: [Counter; 4],
    /// When the last message arrived, nanoseconds of the monotonic clock.
    pub last_ns: Counter,
    /// By the phase in the messages' header.
    pub of_phase: [PhaseOfSending; 4],
    /// Runs of loss in the measure phase; set when the last message has been received.
    pub runs: OnceLock<LossRuns>,
}

/// Messages of one phase of sending, as they arrived.
#[derive(Debug, Default)]
pub struct PhaseOfSending {
    /// Messages without duplicates.
    pub messages: Counter,
    /// Messages that arrived after a later one.
    pub reordered: Counter,
    /// Messages that arrived again.
    pub duplicated: Counter,
    /// Highest number so far plus 1, where messages do not tell their phase; otherwise 0.
    pub numbered: Counter,
}

/// Written by the thread that completes operations.
#[derive(Debug, Default)]
pub struct Operations {
    pub transactions: Counter,
    pub connections: Counter,
    /// Operations that failed without ending the test.
    pub errors: Counter,
}

/// Memory that a flow's threads and the sampler share.
#[derive(Debug, Default)]
pub struct FlowCell {
    orders: Line<Orders>,
    pub sent: Line<Sent>,
    pub received: Line<Received>,
    pub operations: Line<Operations>,
}

impl Default for Orders {
    fn default() -> Self {
        Self { limit: AtomicU64::new(u64::MAX), epoch: AtomicU64::new(0) }
    }
}

impl FlowCell {
    /// Count at which to stop: 0 at once, `u64::MAX` never. Waits while the flow is held.
    #[inline]
    pub fn limit(&self) -> u64 {
        let limit = self.orders.0.limit.load(Relaxed);
        if limit == HELD { self.await_limit() } else { limit }
    }

    #[cold]
    fn await_limit(&self) -> u64 {
        loop {
            let limit = self.orders.0.limit.load(Relaxed);
            if limit != HELD {
                return limit;
            }
            // The sampler may need this CPU to set the limit.
            std::thread::yield_now();
        }
    }

    /// Pauses the flow before its next operation until its limit is set: the limit is computed from a count that must
    /// not change meanwhile.
    pub fn hold(&self) {
        self.set_limit(HELD);
    }

    #[inline]
    pub fn is_over(&self) -> bool {
        self.orders.0.limit.load(Relaxed) == 0
    }

    /// Sets the count at which to stop, and releases a held flow.
    pub fn set_limit(&self, limit: u64) {
        self.orders.0.limit.store(limit, Relaxed);
    }

    #[inline]
    pub fn epoch(&self) -> u64 {
        self.orders.0.epoch.load(Relaxed)
    }

    pub fn set_epoch(&self, epoch: u64) {
        self.orders.0.epoch.store(epoch, Relaxed);
    }

    pub fn read(&self) -> Counts {
        let (sent, received, operations) = (&self.sent.0, &self.received.0, &self.operations.0);
        let [not_ect, ect1, ect0, marked] = received.code_points.each_ref().map(|count| count.load(Relaxed));
        Counts {
            bytes_sent: sent.bytes.load(Relaxed),
            bytes_received: received.bytes.load(Relaxed),
            sends: sent.calls.load(Relaxed),
            receives: received.calls.load(Relaxed),
            transactions: operations.transactions.load(Relaxed),
            connections: operations.connections.load(Relaxed),
            errors: operations.errors.load(Relaxed),
            messages_sent: sent.messages.load(Relaxed),
            messages_received: received.messages.load(Relaxed),
            reordered: received.reordered.load(Relaxed),
            duplicated: received.duplicated.load(Relaxed),
            completions: sent.completions.load(Relaxed),
            copied: sent.copied.load(Relaxed),
            not_ect,
            ect0,
            ect1,
            marked,
        }
    }

    /// Current jitter, nanoseconds.
    pub fn jitter_ns(&self) -> u64 {
        self.received.0.jitter_ns.load(Relaxed)
    }

    /// Due times that a paced sender has dropped so far.
    pub fn dropped(&self) -> u64 {
        self.sent.0.dropped.load(Relaxed)
    }

    /// Arrival of the last message, monotonic clock, nanoseconds; 0: none yet.
    pub fn last_arrival_ns(&self) -> u64 {
        self.received.0.last_ns.load(Relaxed)
    }

    /// Fate of the messages that were sent in this phase.
    pub fn of_phase(&self, phase: Phase) -> DatagramPhase {
        let index = phase_index(phase);
        let received = &self.received.0.of_phase[index];
        DatagramPhase {
            sent: self.sent.0.of_phase[index].load(Relaxed),
            received: received.messages.load(Relaxed),
            reordered: received.reordered.load(Relaxed),
            duplicated: received.duplicated.load(Relaxed),
            numbered: Some(received.numbered.load(Relaxed)).filter(|numbered| *numbered > 0),
            before: self.sent.0.of_phase[..index].iter().map(|count| count.load(Relaxed)).sum(),
            runs: self.received.0.runs.get().copied().filter(|_| phase == Phase::Measure),
        }
    }
}

/// Index of a phase in an epoch and in a datagram's header.
pub fn phase_index(phase: Phase) -> usize {
    match phase {
        Phase::Warmup => 0,
        Phase::Measure => 1,
        Phase::Cooldown => 2,
    }
}

/// Index of what is sent after the last phase.
pub const AFTER: usize = 3;

/// Encodes a window's number and phase in one word.
pub fn epoch(number: u64, phase: usize) -> u64 {
    number << 2 | phase as u64
}

/// Index of an epoch's phase.
#[inline]
pub fn phase_of(epoch: u64) -> usize {
    (epoch & 3) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_do_not_share_lines() {
        let cell = FlowCell::default();
        let addresses = [
            std::ptr::from_ref(&cell.orders).addr(),
            std::ptr::from_ref(&cell.sent).addr(),
            std::ptr::from_ref(&cell.received).addr(),
            std::ptr::from_ref(&cell.operations).addr(),
        ];
        for (i, a) in addresses.iter().enumerate() {
            assert_eq!(a % 128, 0);
            assert!(addresses[i + 1..].iter().all(|b| a.abs_diff(*b) >= 128));
        }
    }

    #[test]
    fn differences_are_by_counter() {
        let cell = FlowCell::default();
        cell.sent.0.bytes.store(7, Relaxed);
        let before = cell.read();
        cell.sent.0.bytes.store(10, Relaxed);
        cell.operations.0.transactions.store(2, Relaxed);
        assert_eq!(cell.read() - before, Counts { bytes_sent: 3, transactions: 2, ..Counts::default() });
    }

    #[test]
    fn a_held_flow_waits_for_its_limit() {
        let cell = std::sync::Arc::new(FlowCell::default());
        assert_eq!(cell.limit(), u64::MAX);
        cell.hold();
        assert!(!cell.is_over());
        let waiter = std::thread::spawn({
            let cell = std::sync::Arc::clone(&cell);
            move || cell.limit()
        });
        std::thread::sleep(std::time::Duration::from_millis(5));
        assert!(!waiter.is_finished());
        cell.set_limit(7);
        assert_eq!(waiter.join().unwrap(), 7);
    }

    #[test]
    fn epochs_carry_their_phase() {
        assert_eq!(phase_of(epoch(17, phase_index(Phase::Cooldown))), 2);
        assert_ne!(epoch(1, 1), epoch(2, 1));
    }
}
