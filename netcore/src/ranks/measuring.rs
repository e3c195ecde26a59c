//! The measuring loop of one rank: blocks of operations, so that all ranks do the same number of them.
//!
//! Rank 0 decides between two blocks how many operations follow, or that they are over, and tells the others. Neither
//! this nor the barrier before each operation is counted or timed.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::{Communicator, RankError, collectives, prepared::Prepared};
use crate::{
    measure::{
        clock::{monotonic_ns, wall_ns},
        histogram::{self, Histogram},
        tasks::OwnTime,
    },
    report::{MOST_INSTANTS, RankTraffic, ThreadUse},
    spec::Stop,
};

/// Length of a block that rank 0 aims at: how late a stop may be.
const BLOCK_NS: u64 = 20_000_000;

/// Everything that a rank counts in its operations.
pub struct Measured {
    pub monotonic_start_ns: u64,
    pub wall_start_ns: i64,
    pub elapsed_ns: u64,
    pub thread: Option<ThreadUse>,
    pub operations: u64,
    pub sum_ns: u64,
    pub min_ns: u64,
    pub max_ns: u64,
    pub histogram: Histogram<u64>,
    pub kept: Kept,
    pub traffic: RankTraffic,
    /// Busy time in the operations, nanoseconds.
    pub busy_ns: u64,
    /// Whether a request ended it early.
    pub stopped: bool,
}

impl Default for Measured {
    fn default() -> Self {
        Self {
            monotonic_start_ns: 0,
            wall_start_ns: 0,
            elapsed_ns: 0,
            thread: None,
            operations: 0,
            sum_ns: 0,
            min_ns: u64::MAX,
            max_ns: 0,
            histogram: histogram::empty(),
            kept: Kept { stride: 1, instants: Vec::with_capacity(MOST_INSTANTS) },
            traffic: RankTraffic::default(),
            busy_ns: 0,
            stopped: false,
        }
    }
}

impl Measured {
    /// Forgets the warm-up.
    fn begin(&mut self) {
        (self.monotonic_start_ns, self.wall_start_ns) = (monotonic_ns(), wall_ns());
    }

    fn record(&mut self, entry_ns: u64, exit_ns: u64) {
        let time_ns = exit_ns.saturating_sub(entry_ns);
        self.sum_ns += time_ns;
        self.min_ns = self.min_ns.min(time_ns);
        self.max_ns = self.max_ns.max(time_ns);
        self.histogram.saturating_record(time_ns);
        let since = |at_ns: u64| at_ns.saturating_sub(self.monotonic_start_ns);
        self.kept.keep(self.operations, (since(entry_ns), since(exit_ns)));
        self.operations += 1;
    }
}

/// Entry and exit of every 2^k-th operation: the same ones at every rank, since all do the same number.
pub struct Kept {
    pub stride: u64,
    pub instants: Vec<(u64, u64)>,
}

impl Kept {
    fn keep(&mut self, number: u64, instants: (u64, u64)) {
        if !number.is_multiple_of(self.stride) {
            return;
        }
        if self.instants.len() == MOST_INSTANTS {
            let mut index = 0;
            self.instants.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.stride *= 2;
            if !number.is_multiple_of(self.stride) {
                return;
            }
        }
        self.instants.push(instants);
    }
}

/// Counts what a rank sends and receives.
pub struct Counted<'a> {
    pub ranks: &'a mut dyn Communicator,
    pub traffic: &'a mut RankTraffic,
}

impl Counted<'_> {
    fn sent(&mut self, bytes: usize) {
        self.traffic.messages_sent += u64::from(bytes > 0);
        self.traffic.bytes_sent += bytes as u64;
    }

    fn received(&mut self, bytes: usize) {
        self.traffic.messages_received += u64::from(bytes > 0);
        self.traffic.bytes_received += bytes as u64;
    }
}

impl Communicator for Counted<'_> {
    fn rank(&self) -> usize {
        self.ranks.rank()
    }

    fn size(&self) -> usize {
        self.ranks.size()
    }

    fn send(&mut self, to: usize, bytes: &[u8]) -> Result<(), RankError> {
        self.sent(bytes.len());
        self.ranks.send(to, bytes)
    }

    fn receive(&mut self, from: usize, buffer: &mut [u8]) -> Result<(), RankError> {
        self.received(buffer.len());
        self.ranks.receive(from, buffer)
    }

    fn exchange(&mut self, to: usize, bytes: &[u8], from: usize, buffer: &mut [u8]) -> Result<(), RankError> {
        self.sent(bytes.len());
        self.received(buffer.len());
        self.ranks.exchange(to, bytes, from, buffer)
    }

    fn go_on(&self) -> Result<(), RankError> {
        self.ranks.go_on()
    }

    fn has_collectives(&self) -> bool {
        self.ranks.has_collectives()
    }

    fn collective(
        &mut self,
        operation: crate::spec::ranks::Operation,
        message: usize,
        send: &[u8],
        receive: &mut [u8],
    ) -> Result<(), RankError> {
        self.ranks.collective(operation, message, send, receive)
    }
}

/// The work of a measurement.
pub struct Loop<'a> {
    pub prepared: &'a mut Prepared,
    pub warmup_ns: u64,
    pub stop: Stop,
    pub integrity: bool,
    /// The instant at which to end early, nanoseconds; `u64::MAX`: none. Rank 0 looks at it.
    pub stop_at_ns: &'a AtomicU64,
}

/// Rank 0's word before a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    Warmup(u64),
    Measure(u64),
    /// The work is done.
    Over,
    /// It was ended early.
    Stopped,
}

impl Word {
    fn bytes(self) -> [u8; 9] {
        let (kind, operations) = match self {
            Self::Warmup(operations) => (0, operations),
            Self::Measure(operations) => (1, operations),
            Self::Over => (2, 0),
            Self::Stopped => (3, 0),
        };
        let mut bytes = [kind; 9];
        bytes[1..].copy_from_slice(&operations.to_le_bytes());
        bytes
    }

    fn read(bytes: [u8; 9]) -> Self {
        let [kind, operations @ ..] = bytes;
        let operations = u64::from_le_bytes(operations);
        match kind {
            0 => Self::Warmup(operations),
            1 => Self::Measure(operations),
            2 => Self::Over,
            _ => Self::Stopped,
        }
    }
}

/// Rank 0's decisions.
struct Decision {
    begin_ns: u64,
    /// Operations of the last block, and when it began.
    block: u64,
    block_ns: u64,
    measuring: bool,
}

impl Decision {
    /// The word before the next block, `done` operations into the measurement.
    fn next(&mut self, work: &Loop<'_>, done: u64) -> Word {
        let now_ns = monotonic_ns();
        if now_ns >= work.stop_at_ns.load(Relaxed) {
            return Word::Stopped;
        }
        let took_ns = now_ns.saturating_sub(self.block_ns).max(1);
        let goal = u128::from(BLOCK_NS) * u128::from(self.block) / u128::from(took_ns);
        let fits = u64::try_from(goal).unwrap_or(u64::MAX);
        self.block = fits.clamp(1, self.block * 2);
        self.block_ns = now_ns;
        if !self.measuring {
            if now_ns < self.begin_ns.saturating_add(work.warmup_ns) {
                return Word::Warmup(self.block);
            }
            (self.measuring, self.begin_ns) = (true, now_ns);
        }
        let left = match work.stop {
            Stop::AfterNs(length_ns) => {
                let left_ns = self.begin_ns.saturating_add(length_ns).saturating_sub(now_ns);
                // Blocks shrink towards the end, and the last operation ends after it.
                let left = u128::from(left_ns) * u128::from(self.block) / u128::from(took_ns.min(BLOCK_NS));
                u64::try_from(left).unwrap_or(u64::MAX).max(u64::from(left_ns > 0))
            }
            Stop::AfterTransactions(count) | Stop::AfterBytes(count) => count.saturating_sub(done),
        };
        if left == 0 { Word::Over } else { Word::Measure(self.block.min(left)) }
    }
}

/// Runs operations to their end. What was measured before an error is kept.
pub fn run(ranks: &mut dyn Communicator, mut work: Loop<'_>, measured: &mut Measured) -> Result<(), RankError> {
    let now_ns = monotonic_ns();
    let mut decision = Decision { begin_ns: now_ns, block: 1, block_ns: now_ns, measuring: false };
    let mut own_time = None;
    let mut round = 0;
    loop {
        let mut bytes = [0; 9];
        if ranks.rank() == 0 {
            bytes = decision.next(&work, measured.operations).bytes();
        }
        collectives::bcast_binomial(ranks, &mut bytes)?;
        let (operations, counts) = match Word::read(bytes) {
            Word::Warmup(operations) => (operations, false),
            Word::Measure(operations) => (operations, true),
            end => {
                measured.stopped = end == Word::Stopped;
                return Ok(());
            }
        };
        if counts && measured.monotonic_start_ns == 0 {
            measured.begin();
            own_time = OwnTime::begin();
        }
        for _ in 0..operations {
            round += 1;
            one(ranks, &mut work, round, counts, measured)?;
        }
        if counts {
            measured.elapsed_ns = monotonic_ns().saturating_sub(measured.monotonic_start_ns);
            measured.thread = own_time.as_ref().and_then(|time| time.within(measured.elapsed_ns));
        }
    }
}

fn one(
    ranks: &mut dyn Communicator,
    work: &mut Loop<'_>,
    round: u64,
    counts: bool,
    measured: &mut Measured,
) -> Result<(), RankError> {
    if work.integrity {
        work.prepared.fill(round);
    }
    if work.prepared.needs_barrier() {
        collectives::barrier(ranks)?;
    }
    let mut unmeasured = RankTraffic::default();
    let busy_ns = work.prepared.busy.spent_ns;
    let traffic = if counts { &mut measured.traffic } else { &mut unmeasured };
    let entry_ns = monotonic_ns();
    work.prepared.run(&mut Counted { ranks, traffic })?;
    let exit_ns = monotonic_ns();
    if work.integrity {
        work.prepared.check(round)?;
    }
    if counts {
        measured.record(entry_ns, exit_ns);
        measured.busy_ns += work.prepared.busy.spent_ns - busy_ns;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ranks::{collectives::Algorithm, memory},
        spec::ranks::Operation,
    };

    fn measured(size: usize, warmup_ns: u64, stop: Stop, stop_at_ns: u64) -> Vec<Measured> {
        let stop_at_ns = AtomicU64::new(stop_at_ns);
        memory::run(size, 4096, |ranks| {
            let (rank, size) = (ranks.rank(), ranks.size());
            let mut prepared =
                Prepared::with(Operation::Allreduce, Algorithm::RecursiveDoubling, 64, 0, rank, size).unwrap();
            let work = Loop { prepared: &mut prepared, warmup_ns, stop, integrity: true, stop_at_ns: &stop_at_ns };
            let mut measured = Measured::default();
            run(ranks, work, &mut measured).unwrap();
            measured
        })
    }

    #[test]
    fn all_ranks_do_the_same_number() {
        let ranks = measured(3, 2_000_000, Stop::AfterTransactions(9000), u64::MAX);
        for rank in &ranks {
            assert_eq!((rank.operations, rank.histogram.len(), rank.kept.stride), (9000, 9000, 4));
            assert_eq!(rank.kept.instants.len(), 2250);
            assert!(rank.kept.instants.is_sorted() && rank.kept.instants.iter().all(|(entry, exit)| entry <= exit));
            assert!(rank.min_ns <= rank.max_ns && rank.sum_ns <= rank.elapsed_ns && !rank.stopped);
        }
        // Recursive doubling with the fold: of three ranks one stays out.
        assert_eq!(ranks.iter().map(|rank| rank.traffic.messages_sent).collect::<Vec<_>>(), [18000, 9000, 9000]);
        assert_eq!(ranks[1].traffic.bytes_sent, 9000 * 64);
    }

    #[test]
    fn time_and_a_request_end_it() {
        let ranks = measured(2, 0, Stop::AfterNs(30_000_000), u64::MAX);
        assert!(ranks[0].operations > 0 && ranks[0].operations == ranks[1].operations);
        let ranks = measured(2, 0, Stop::AfterNs(u64::MAX), monotonic_ns() + 30_000_000);
        assert!(ranks.iter().all(|rank| rank.stopped && rank.operations == ranks[0].operations));
    }

    #[test]
    fn every_second_instant_goes_when_there_is_no_room() {
        let mut kept = Kept { stride: 1, instants: Vec::with_capacity(MOST_INSTANTS) };
        (0..20_000).for_each(|number| kept.keep(number, (number, number)));
        assert_eq!((kept.stride, kept.instants.len()), (8, 2500));
        assert!(kept.instants.iter().zip(0..).all(|((entry, _), index)| *entry == index * 8));
    }
}
