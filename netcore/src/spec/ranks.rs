//! A test of N ranks as one serialisable value: a collective operation, a pattern of applications, or a kernel of the NAS
//! Parallel Benchmarks. It crosses the wire unchanged, and every rank runs from it.

use serde::{Deserialize, Serialize};

use super::{Cpus, Family, SocketOptions, Stop, Transport};

/// Most ranks of a test.
pub const MOST_RANKS: u32 = 4096;

/// Longest busy time before an exchange, nanoseconds: a rank in an MPI library hears only between operations that the test
/// is given up.
pub const MOST_COMPUTE_NS: u64 = 10_000_000_000;

/// A whole test of N ranks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RanksSpec {
    /// The way between ranks: one with [`Transport::has_ranks`].
    pub transport: Transport,
    pub family: Family,
    pub work: Work,
    /// Uncounted operations before the measurement take this long, nanoseconds.
    pub warmup_ns: u64,
    /// After a time, or after a number of transactions, which are operations here. A kernel runs to its end.
    pub stop: Stop,
    /// Check the result of every operation.
    pub integrity: bool,
    /// Options of every connection, at every rank.
    pub socket: SocketOptions,
    /// CPUs of the thread of every rank; `None`: not pinned.
    pub cpus: Option<Cpus>,
}

impl RanksSpec {
    /// From the begin of the load to its scheduled end, nanoseconds; `None`: it stops by a count, or is a kernel.
    pub fn length_ns(&self) -> Option<u64> {
        match (self.work, self.stop) {
            (Work::Operation { .. }, Stop::AfterNs(ns)) => Some(self.warmup_ns.saturating_add(ns)),
            _ => None,
        }
    }

    /// A test with every option at its default: ten seconds, no warm-up.
    pub fn new(transport: Transport, work: Work) -> Self {
        Self {
            transport,
            family: Family::Any,
            work,
            warmup_ns: 0,
            stop: Stop::AfterNs(10_000_000_000),
            integrity: false,
            socket: SocketOptions::default(),
            cpus: None,
        }
    }
}

/// The work of the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Work {
    /// The same operation again and again.
    Operation {
        operation: Operation,
        /// Bytes per operation, as [`Operation::facts`] says.
        message_bytes: u64,
        /// Busy time of each rank before each exchange of a pattern of applications, nanoseconds; at most
        /// [`MOST_COMPUTE_NS`].
        compute_ns: u64,
    },
    /// A kernel of the NAS Parallel Benchmarks, once.
    Nas { kernel: Kernel, class: Class },
}

schemas::words! {
    /// An exchange between all ranks.
    #[derive(Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[serde(rename_all = "snake_case")]
    Operation {
        /// No rank leaves before all have come.
        Barrier = "barrier",
        /// Rank 0 sends the same bytes to all.
        Bcast = "bcast",
        /// The sum of all arrives at rank 0.
        Reduce = "reduce",
        /// The sum of all arrives at all.
        Allreduce = "allreduce",
        /// A block of each rank arrives at rank 0.
        Gather = "gather",
        /// Rank 0 sends each rank a block of its own.
        Scatter = "scatter",
        /// A block of each rank arrives at all.
        Allgather = "allgather",
        /// Each rank sends each other one a block of its own.
        Alltoall = "alltoall",
        /// The same with blocks of different lengths.
        Alltoallv = "alltoallv",
        /// The sum of all, of which each rank gets a block.
        ReduceScatter = "reduce_scatter",
        /// Each rank sends to the next one and receives from the one before.
        Ring = "ring",
        /// Each rank exchanges faces with its neighbours in a cube of three dimensions, as MG does.
        Halo3d = "halo3d",
        /// Exchanges at distances 1, 2, 4, …, as the sums and the transpose of CG.
        Butterfly = "butterfly",
        /// A front that goes through a plane of ranks from corner to corner, as in LU.
        Wavefront = "wavefront",
    }
}

/// A row of the table of operations.
#[derive(Clone, Copy, Debug)]
pub struct OperationFacts {
    /// The meaning of the message size.
    pub message: &'static str,
    /// Bus bandwidth by the definitions of nccl-tests (doc/PERFORMANCE.md), in message sizes m over the time t of an
    /// operation with n ranks; `None`: the bytes have no such bound.
    pub bus: Option<Bus>,
    /// Whether it adds numbers: its message is a multiple of 8 bytes.
    pub adds: bool,
    /// Whether it is a pattern of applications, with busy time between exchanges.
    pub skeleton: bool,
}

schemas::words! {
    /// A formula of bus bandwidth, as results name it.
    Bus {
        /// Every byte crosses the busiest port once.
        Once = "m/t",
        /// 2 (n − 1) / n times: scattered sums, and their collection.
        TwiceAround = "2(n-1)/n*m/t",
        /// A block for each other rank.
        Others = "(n-1)*m/t",
    }
}

impl Bus {
    /// Messages per operation that cross the busiest port.
    pub fn messages(self, ranks: u32) -> f64 {
        let n = f64::from(ranks);
        match self {
            Self::Once => 1.0,
            Self::TwiceAround => 2.0 * (n - 1.0) / n,
            Self::Others => n - 1.0,
        }
    }
}

const fn facts(message: &'static str, bus: Option<Bus>) -> OperationFacts {
    OperationFacts { message, bus, adds: false, skeleton: false }
}

impl Operation {
    pub const fn facts(self) -> OperationFacts {
        match self {
            Self::Barrier => facts("none", None),
            Self::Bcast => facts("what every rank gets", Some(Bus::Once)),
            Self::Reduce => adds("what every rank adds", Bus::Once),
            Self::Allreduce => adds("what every rank adds", Bus::TwiceAround),
            Self::Gather | Self::Scatter | Self::Allgather => facts("the block of a rank", Some(Bus::Others)),
            Self::Alltoall => facts("the block for a rank", Some(Bus::Others)),
            Self::Alltoallv => facts("the mean block for a rank", Some(Bus::Others)),
            Self::ReduceScatter => adds("the block that a rank gets", Bus::Others),
            Self::Ring => skeleton("what a rank sends"),
            Self::Halo3d => skeleton("a face"),
            Self::Butterfly => skeleton("what a rank sends in an exchange"),
            Self::Wavefront => skeleton("what a rank sends to each of two neighbours"),
        }
    }
}

const fn adds(message: &'static str, bus: Bus) -> OperationFacts {
    OperationFacts { adds: true, ..facts(message, Some(bus)) }
}

const fn skeleton(message: &'static str) -> OperationFacts {
    OperationFacts { skeleton: true, ..facts(message, None) }
}

schemas::words! {
    /// A kernel of the NAS Parallel Benchmarks, by its workload in plans and results.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    Kernel {
        /// Embarrassingly parallel: pairs of random numbers; the ranks talk at the end only.
        Ep = "nas_ep",
        /// Integer sort: all ranks send keys to all in each of ten iterations.
        Is = "nas_is",
    }

    /// The size of a kernel.
    #[derive(Default, Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    Class {
        #[default]
        S = "S",
        W = "W",
        A = "A",
        B = "B",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_wire() {
        for operation in Operation::ALL {
            assert_eq!(serde_json::to_value(operation).unwrap(), operation.as_str());
        }
        for class in [Class::S, Class::W, Class::A, Class::B] {
            assert_eq!(serde_json::to_value(class).unwrap(), class.as_str());
        }
    }

    /// nccl-tests, doc/PERFORMANCE.md: an allreduce of 8 ranks has a factor of 1.75. Its size of the others is that of the
    /// whole result, n blocks.
    #[test]
    fn bus_bandwidth_has_the_usual_factors() {
        let close = |a: f64, b: f64| (a - b).abs() < 1e-12;
        assert!(close(Bus::TwiceAround.messages(8), 1.75));
        assert!(close(Bus::Others.messages(8) / 8.0, 7.0 / 8.0));
        assert!(close(Bus::Once.messages(8), 1.0));
    }
}
