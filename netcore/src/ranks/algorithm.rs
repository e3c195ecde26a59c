//! The algorithm of an operation, chosen by its size and the number of ranks before the first one.

use crate::spec::ranks::Operation;

/// A way to do an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    Dissemination,
    BinomialTree,
    ScatterAllgather,
    Linear,
    Rabenseifner,
    RecursiveDoubling,
    RecursiveHalving,
    Ring,
    Bruck,
    Pairwise,
    /// A pattern of applications has one way.
    Neighbours,
    /// The library's own choice.
    Library,
}

impl Algorithm {
    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dissemination => "dissemination",
            Self::BinomialTree => "binomial_tree",
            Self::ScatterAllgather => "scatter_allgather",
            Self::Linear => "linear",
            Self::Rabenseifner => "rabenseifner",
            Self::RecursiveDoubling => "recursive_doubling",
            Self::RecursiveHalving => "recursive_halving",
            Self::Ring => "ring",
            Self::Bruck => "bruck",
            Self::Pairwise => "pairwise_exchange",
            Self::Neighbours => "neighbours",
            Self::Library => "library",
        }
    }

    /// The algorithms of an operation: the one for short messages, and the longest such message in bytes; the one for longer.
    const fn of(operation: Operation) -> (Self, usize, Self) {
        const KIB: usize = 1024;
        match operation {
            Operation::Barrier => (Self::Dissemination, usize::MAX, Self::Dissemination),
            Operation::Bcast => (Self::BinomialTree, 64 * KIB, Self::ScatterAllgather),
            Operation::Reduce => (Self::BinomialTree, 16 * KIB, Self::Rabenseifner),
            Operation::Allreduce => (Self::RecursiveDoubling, 8 * KIB, Self::Rabenseifner),
            Operation::Gather | Operation::Scatter => (Self::BinomialTree, 8 * KIB, Self::Linear),
            Operation::Allgather => (Self::Bruck, 8 * KIB, Self::Ring),
            Operation::Alltoall => (Self::Bruck, KIB, Self::Pairwise),
            Operation::Alltoallv => (Self::Pairwise, usize::MAX, Self::Pairwise),
            Operation::ReduceScatter => (Self::RecursiveHalving, 16 * KIB, Self::Pairwise),
            Operation::Ring | Operation::Halo3d | Operation::Butterfly | Operation::Wavefront => {
                (Self::Neighbours, usize::MAX, Self::Neighbours)
            }
        }
    }

    /// The algorithm for messages of so many bytes.
    pub fn choose(operation: Operation, message_bytes: usize) -> Self {
        /// From here on, blocks are as long as messages that are worth a ring.
        const RING_BLOCK: usize = 1024 * 1024;
        let (short, longest, long) = Self::of(operation);
        match operation {
            _ if message_bytes <= longest => short,
            Operation::Allreduce if message_bytes > RING_BLOCK => Self::Ring,
            _ => long,
        }
    }

    /// Both algorithms of an operation, and the ring where sums are long.
    #[cfg(test)]
    pub fn all_of(operation: Operation) -> Vec<Self> {
        let (short, _, long) = Self::of(operation);
        let mut all = vec![short];
        all.extend((long != short).then_some(long));
        all.extend((operation == Operation::Allreduce).then_some(Self::Ring));
        all
    }
}
