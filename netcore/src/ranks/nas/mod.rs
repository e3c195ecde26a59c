//! Two kernels of the NAS Parallel Benchmarks: EP and IS, the ends of what a network can matter to an application.
//!
//! Algorithms, sizes and values for the verification are those of the suite (D. Bailey et al., "The NAS Parallel Benchmarks",
//! RNR-94-007, 1994, and version 3 of the programs); the code is our own. Sums travel as `f64`, so IS sends twice the bytes
//! of the suite for the sizes of its buckets.

mod calls;
mod ep;
mod is;
mod random;
#[cfg(test)]
mod tests;

use super::{Communicator, RankError};
use crate::{
    error::EndError,
    measure::{
        clock::{monotonic_ns, wall_ns},
        tasks::OwnTime,
    },
    report::{NasResult, RankTraffic, ThreadUse},
    spec::ranks::{Class, Kernel},
};
use calls::Calls;

/// A kernel with its memory.
pub enum Prepared {
    Ep(ep::Ep),
    Is(Box<is::Is>),
}

/// The timed part of a kernel at one rank.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    pub monotonic_start_ns: u64,
    pub wall_start_ns: i64,
    pub elapsed_ns: u64,
    pub thread: Option<ThreadUse>,
    /// Time in calls to other ranks, with the wait for them.
    pub communication_ns: u64,
    pub traffic: RankTraffic,
    pub result: Option<NasResult>,
}

/// Memory that a kernel takes at the rank that needs most, bytes.
pub fn memory_bytes(kernel: Kernel, class: Class, ranks: u32) -> u64 {
    match kernel {
        Kernel::Ep => ep::BYTES,
        Kernel::Is => is::memory_bytes(class, ranks),
    }
}

/// Operations of a kernel by all ranks, as its Mop/s counts them.
pub fn operations(kernel: Kernel, class: Class) -> f64 {
    match kernel {
        Kernel::Ep => ep::operations(class),
        Kernel::Is => is::operations(class),
    }
}

impl Prepared {
    pub fn new(kernel: Kernel, class: Class, ranks: &impl Communicator) -> Result<Self, EndError> {
        let (rank, size) = (ranks.rank(), ranks.size());
        Ok(match kernel {
            Kernel::Ep => Self::Ep(ep::Ep::new(class, rank, size)),
            Kernel::Is => Self::Is(Box::new(is::Is::new(class, rank, size).ok_or_else(|| {
                let bytes = is::memory_bytes(class, u32::try_from(size).unwrap_or(u32::MAX));
                EndError::Impossible(format!(
                    "{} of class {} takes {bytes} bytes of memory per rank, which are not free here: use more hosts or a \
                     smaller class",
                    kernel.name(),
                    class.name()
                ))
            })?)),
        })
    }

    /// Runs the kernel once. The outcome is complete even if the verification fails, which is an error.
    pub fn run<C: Communicator>(&mut self, ranks: &mut C, outcome: &mut Outcome) -> Result<(), RankError> {
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
        (outcome.monotonic_start_ns, outcome.wall_start_ns) = (monotonic_ns(), wall_ns());
        let own_time = OwnTime::begin();
        match self {
            Self::Ep(kernel) => kernel.generate(&mut calls)?,
            Self::Is(kernel) => kernel.sort(&mut calls)?,
        }
        outcome.elapsed_ns = monotonic_ns().saturating_sub(outcome.monotonic_start_ns);
        outcome.thread = own_time.and_then(|time| time.within(outcome.elapsed_ns));
        (outcome.communication_ns, outcome.traffic) = (calls.time_ns, calls.traffic);
        let (checks, passed) = match self {
            Self::Ep(kernel) => kernel.verify(),
            Self::Is(kernel) => kernel.verify(&mut calls)?,
        };
        let timed_ns = calls.greatest(outcome.elapsed_ns)?;
        let mops = operations(kernel, class) / (timed_ns.max(1) as f64 / 1e9) / 1e6;
        outcome.result = Some(NasResult { mops_per_s: mops, timed_ns, checks, passed });
        if passed < checks {
            let (name, class) = (kernel.name(), class.name());
            return Err(RankError::Wrong(format!(
                "the verification of {name}, class {class}, has failed: {passed} of {checks} published values were met"
            )));
        }
        Ok(())
    }
}
