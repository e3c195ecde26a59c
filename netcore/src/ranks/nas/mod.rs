//! Two kernels of the NAS Parallel Benchmarks: EP and IS, the ends of what a network can matter to an application.
//!
//! Algorithms, sizes and values for the verification are those of the suite (D. Bailey et al., "The NAS Parallel Benchmarks",
//! RNR-94-007, 1994, and version 3 of the programs); the code is our own. Sums travel as `f64`, so IS sends twice the bytes
//! of the suite for the sizes of its buckets.

mod kernels;

use super::{Communicator, RankError};
use crate::{
    error::EndError,
    measure::{
        clock::{monotonic_ns, wall_ns},
        histogram,
        tasks::OwnTime,
    },
    ranks::{
        collectives::{self, Algorithm, steps::NUMBER_BYTES},
        measuring::Counted,
    },
    report::{NasResult, RankReport, RankTraffic},
    spec::ranks::{Class, Kernel, Operation},
};

/// A kernel with its memory.
pub enum Prepared {
    Ep(kernels::Ep),
    Is(Box<kernels::Is>),
}

/// Memory that a kernel takes at the rank that needs most, bytes.
pub fn memory_bytes(kernel: Kernel, class: Class, ranks: u32) -> u64 {
    match kernel {
        Kernel::Ep => kernels::EP_BYTES,
        Kernel::Is => kernels::memory_bytes(class, ranks),
    }
}

/// Operations of a kernel by all ranks, as its Mop/s counts them.
pub fn operations(kernel: Kernel, class: Class) -> f64 {
    match kernel {
        Kernel::Ep => kernels::operations_of_ep(class),
        Kernel::Is => kernels::operations_of_is(class),
    }
}

impl Prepared {
    pub fn new(kernel: Kernel, class: Class, ranks: &dyn Communicator) -> Result<Self, EndError> {
        let (rank, size) = (ranks.rank(), ranks.size());
        Ok(match kernel {
            Kernel::Ep => Self::Ep(kernels::Ep::new(class, rank, size)),
            Kernel::Is => Self::Is(Box::new(kernels::Is::new(class, rank, size).ok_or_else(|| {
                let bytes = kernels::memory_bytes(class, u32::try_from(size).unwrap_or(u32::MAX));
                EndError::Impossible(format!(
                    "{} of class {} takes {bytes} bytes of memory per rank, which are not free here: use more hosts or a \
                     smaller class",
                    kernel.as_str(),
                    class.as_str()
                ))
            })?)),
        })
    }

    /// Runs the kernel once, and reports it as one operation, also if the verification fails, which is an error.
    pub fn run(&mut self, ranks: &mut dyn Communicator, report: &mut RankReport) -> Result<(), RankError> {
        let (kernel, class) = match self {
            Self::Ep(kernel) => (Kernel::Ep, kernel.class),
            Self::Is(kernel) => (Kernel::Is, kernel.class),
        };
        let mut calls = Calls::new(ranks);
        if let Self::Is(kernel) = self {
            kernel.iterate(&mut calls, 1)?;
        }
        calls.barrier()?;
        // All that came before is not counted.
        calls.restart();
        (report.monotonic_start_ns, report.wall_start_ns) = (monotonic_ns(), wall_ns());
        let own_time = OwnTime::begin();
        match self {
            Self::Ep(kernel) => kernel.generate(&mut calls)?,
            Self::Is(kernel) => kernel.sort(&mut calls)?,
        }
        let elapsed_ns = monotonic_ns().saturating_sub(report.monotonic_start_ns);
        let thread = own_time.and_then(|time| time.within(elapsed_ns));
        let (communication_ns, traffic) = (calls.time_ns, Some(calls.traffic));
        let (checks, passed) = match self {
            Self::Ep(kernel) => kernel.verify(),
            Self::Is(kernel) => kernel.verify(&mut calls)?,
        };
        let timed_ns = calls.greatest(elapsed_ns)?;
        let mops = operations(kernel, class) / (timed_ns.max(1) as f64 / 1e9) / 1e6;
        let mut histogram = histogram::empty();
        histogram.saturating_record(elapsed_ns);
        *report = RankReport {
            nas: Some(NasResult { mops_per_s: mops, timed_ns, checks, passed }),
            elapsed_ns,
            operations: 1,
            sum_ns: elapsed_ns,
            min_ns: elapsed_ns,
            max_ns: elapsed_ns,
            histogram: histogram::encode(&histogram),
            instants: vec![(0, elapsed_ns)],
            communication_ns,
            traffic,
            thread,
            ..std::mem::take(report)
        };
        if passed < checks {
            let (name, class) = (kernel.as_str(), class.as_str());
            return Err(RankError::Wrong(format!(
                "the verification of {name}, class {class}, has failed: {passed} of {checks} published values were met"
            )));
        }
        Ok(())
    }
}

// The calls to other ranks: timed and counted.

pub struct Calls<'a> {
    ranks: &'a mut dyn Communicator,
    /// Time in the calls, nanoseconds.
    pub time_ns: u64,
    pub traffic: RankTraffic,
    /// Scratch memory of the calls.
    sums: Vec<u8>,
    other: Vec<u8>,
}

impl<'a> Calls<'a> {
    pub fn new(ranks: &'a mut dyn Communicator) -> Self {
        Self { ranks, time_ns: 0, traffic: RankTraffic::default(), sums: Vec::new(), other: Vec::new() }
    }

    pub fn rank(&self) -> usize {
        self.ranks.rank()
    }

    /// Forgets the time and the messages so far.
    fn restart(&mut self) {
        (self.time_ns, self.traffic) = (0, RankTraffic::default());
    }

    /// An error if the rank must leave: for work that is silent for long.
    pub fn go_on(&self) -> Result<(), RankError> {
        self.ranks.go_on()
    }

    fn timed(&mut self, call: impl FnOnce(&mut Counted<'_>) -> Result<(), RankError>) -> Result<(), RankError> {
        let begin_ns = monotonic_ns();
        let done = call(&mut Counted { ranks: self.ranks, traffic: &mut self.traffic });
        self.time_ns += monotonic_ns().saturating_sub(begin_ns);
        done
    }

    pub fn barrier(&mut self) -> Result<(), RankError> {
        self.timed(|ranks| collectives::barrier(ranks))
    }

    /// Replaces numbers by their sums over all ranks.
    pub fn allreduce(&mut self, numbers: &mut [f64]) -> Result<(), RankError> {
        let (mut sums, mut other) = (std::mem::take(&mut self.sums), std::mem::take(&mut self.other));
        sums.clear();
        sums.extend(numbers.iter().flat_map(|number| number.to_ne_bytes()));
        other.resize(sums.len(), 0);
        let algorithm = Algorithm::choose(Operation::Allreduce, sums.len());
        let done = self.timed(|ranks| collectives::allreduce(ranks, algorithm, &mut sums, &mut other));
        for (number, sum) in numbers.iter_mut().zip(sums.as_chunks::<NUMBER_BYTES>().0) {
            *number = f64::from_ne_bytes(*sum);
        }
        (self.sums, self.other) = (sums, other);
        done
    }

    /// Exchanges a number with each rank.
    pub fn alltoall(&mut self, numbers: &[u32], received: &mut [u32]) -> Result<(), RankError> {
        let given: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
        let (mut got, mut scratch) = (vec![0; given.len()], vec![0; 2 * given.len()]);
        let done = self.timed(|ranks| collectives::bruck(ranks, &given, &mut got, &mut scratch));
        for (number, bytes) in received.iter_mut().zip(got.as_chunks::<4>().0) {
            *number = u32::from_ne_bytes(*bytes);
        }
        done
    }

    /// Exchanges blocks with each rank, by where they begin.
    pub fn alltoallv(&mut self, given: &[u8], out: &[usize], got: &mut [u8], into: &[usize]) -> Result<(), RankError> {
        self.timed(|ranks| collectives::pairwise(ranks, given, out, got, into))
    }

    /// The greatest of the numbers of all ranks.
    pub fn greatest(&mut self, number: u64) -> Result<u64, RankError> {
        let mut got = vec![0; 8 * self.ranks.size()];
        let mut scratch = got.clone();
        self.timed(|ranks| collectives::allgather_bruck(ranks, &number.to_ne_bytes(), &mut got, &mut scratch))?;
        Ok(got.as_chunks::<8>().0.iter().map(|bytes| u64::from_ne_bytes(*bytes)).max().unwrap_or(number))
    }

    /// Passes a number on from rank to rank: `next` makes it of the one before.
    pub fn chain(&mut self, first: u32, next: impl FnOnce(u32) -> u32) -> Result<(), RankError> {
        let (rank, size) = (self.ranks.rank(), self.ranks.size());
        self.timed(|ranks| {
            let mut bytes = first.to_ne_bytes();
            if rank > 0 {
                ranks.receive(rank - 1, &mut bytes)?;
            }
            let bytes = next(u32::from_ne_bytes(bytes)).to_ne_bytes();
            if rank + 1 < size { ranks.send(rank + 1, &bytes) } else { Ok(()) }
        })
    }
}

// The suite's random numbers: x ← 5^13 x mod 2^46, of which x / 2^46 is the value. Any place of the sequence can be reached
// at once, so that ranks can take parts of it.

/// 5^13.
const MULTIPLIER: u64 = 1_220_703_125;
const MASK: u64 = (1 << 46) - 1;

/// A place in a sequence.
#[derive(Clone, Copy, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of a seed, after so many numbers.
    pub fn after(seed: u64, numbers: u64) -> Self {
        // Powers by squaring. Products are exact modulo 2^64, and so modulo 2^46.
        let (mut power, mut left, mut factor) = (1_u64, numbers, MULTIPLIER);
        while left > 0 {
            if left & 1 == 1 {
                power = power.wrapping_mul(factor) & MASK;
            }
            factor = factor.wrapping_mul(factor) & MASK;
            left >>= 1;
        }
        Self(seed.wrapping_mul(power) & MASK)
    }

    /// The next number, between 0 and 1.
    #[inline]
    pub fn draw(&mut self) -> f64 {
        const SCALE: f64 = 1.0 / (1_u64 << 46) as f64;
        self.0 = MULTIPLIER.wrapping_mul(self.0) & MASK;
        self.0 as f64 * SCALE
    }
}

#[cfg(test)]
mod tests;
