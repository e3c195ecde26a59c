//! An operation with its buffers, ready to run again and again without an allocation; and the contents of the buffers: each
//! message says which rank gave it, and in which round.

use std::ops::Range;

use super::{
    Communicator, RankError,
    collectives::{
        self, Algorithm,
        steps::{Blocks, NUMBER_BYTES},
    },
    skeletons::{self, Busy},
};
use crate::{error::EndError, spec::ranks::Operation};

/// One rank's part of an operation.
pub struct Prepared {
    pub operation: Operation,
    pub algorithm: Algorithm,
    message: usize,
    rank: usize,
    size: usize,
    /// The bytes that this rank gives, and those that it gets.
    send: Vec<u8>,
    receive: Vec<u8>,
    scratch: Vec<u8>,
    /// Beginnings of the blocks in both, where each rank has one, and the end of the last.
    starts: Vec<usize>,
    /// Messages in both, to fill and to check.
    contents: Contents,
    /// Work between the exchanges of a pattern of applications.
    pub busy: Busy,
}

/// Bytes of a rank's three buffers: to give, to get, and scratch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Room {
    send: usize,
    receive: usize,
    scratch: usize,
}

impl Room {
    fn of(operation: Operation, algorithm: Algorithm, message: usize, rank: usize, size: usize) -> Self {
        let all = message.saturating_mul(size);
        let root = rank == 0;
        let library = algorithm == Algorithm::Library;
        match operation {
            Operation::Barrier => Self::default(),
            Operation::Reduce | Operation::Allreduce => {
                Self { send: message, receive: message, scratch: if library { 0 } else { message } }
            }
            // In the tree every rank has room for the blocks of its subtree.
            Operation::Gather if root || algorithm == Algorithm::BinomialTree => {
                Self { send: message, receive: all, scratch: 0 }
            }
            Operation::Gather => Self { send: message, receive: 0, scratch: 0 },
            Operation::Scatter if root => Self { send: all, receive: message, scratch: 0 },
            Operation::Scatter if algorithm == Algorithm::BinomialTree => {
                Self { send: 0, receive: message, scratch: all }
            }
            Operation::Bcast | Operation::Scatter => Self { send: 0, receive: message, scratch: 0 },
            Operation::Allgather => {
                Self { send: message, receive: all, scratch: if algorithm == Algorithm::Bruck { all } else { 0 } }
            }
            Operation::Alltoall => {
                let scratch = if algorithm == Algorithm::Bruck { all.saturating_mul(2) } else { 0 };
                Self { send: all, receive: all, scratch }
            }
            Operation::Alltoallv => {
                let whole = starts(operation, message, rank, size).last().copied().unwrap_or(0);
                Self { send: whole, receive: whole, scratch: 0 }
            }
            Operation::ReduceScatter => Self {
                send: all,
                receive: message,
                scratch: match algorithm {
                    Algorithm::RecursiveHalving => all.saturating_mul(2),
                    Algorithm::Library => 0,
                    _ => message,
                },
            },
            Operation::Ring | Operation::Halo3d | Operation::Butterfly | Operation::Wavefront => {
                let (send, receive) = skeletons::messages(operation, size);
                Self { send: message.saturating_mul(send), receive: message.saturating_mul(receive), scratch: 0 }
            }
        }
    }

    fn total(self) -> u64 {
        [self.send, self.receive, self.scratch].iter().map(|bytes| *bytes as u64).fold(0, u64::saturating_add)
    }
}

/// Bytes of an alltoallv between two ranks, in either direction: from 2/(n + 1) to 2n/(n + 1) of the message size, so that
/// their mean is the message size, but for the rounding.
pub fn uneven(message: usize, rank: usize, peer: usize, size: usize) -> usize {
    let share = (rank + peer) % size + 1;
    // At most twice the message.
    usize::try_from(2 * message as u128 * share as u128 / (size as u128 + 1)).unwrap_or(usize::MAX)
}

/// Begin of the block of each rank in the buffers of one rank, and the end of the last.
pub fn starts(operation: Operation, message: usize, rank: usize, size: usize) -> Vec<usize> {
    let bytes = |peer| match operation {
        Operation::Alltoallv => uneven(message, rank, peer, size),
        _ => message,
    };
    let ends = (0..size).scan(0_usize, |end, peer| {
        *end = end.saturating_add(bytes(peer));
        Some(*end)
    });
    std::iter::once(0).chain(ends).collect()
}

/// Memory that the buffers of an operation take at the rank that needs most, bytes.
pub fn memory_bytes(operation: Operation, message_bytes: u64, ranks: u32) -> u64 {
    let message = usize::try_from(message_bytes).unwrap_or(usize::MAX);
    let algorithm = Algorithm::choose(operation, message);
    let room = |rank| Room::of(operation, algorithm, message, rank, ranks as usize).total();
    room(0).max(room(1))
}

/// Why an operation is impossible between so many ranks, or with messages of so many bytes.
pub fn check(operation: Operation, message_bytes: u64, ranks: usize) -> Result<(), EndError> {
    let name = operation.as_str();
    let wrong = |sentence: String| Err(EndError::Impossible(sentence));
    if operation.facts().adds && !message_bytes.is_multiple_of(NUMBER_BYTES as u64) {
        return wrong(format!(
            "{name} adds numbers of {NUMBER_BYTES} bytes, and {message_bytes} bytes are no whole number of them: give a \
             message size that is a multiple of {NUMBER_BYTES}"
        ));
    }
    if operation == Operation::Butterfly && !ranks.is_power_of_two() {
        return wrong(format!("{name} needs a power of two as the number of ranks, and there are {ranks}"));
    }
    if ranks < 2 {
        return wrong(format!("{name} needs at least 2 ranks, and there is {ranks}"));
    }
    Ok(())
}

impl Prepared {
    /// With buffers that are allocated and touched. `library`: whether the ranks' library has its own algorithms.
    pub fn new(
        operation: Operation,
        message_bytes: u64,
        compute_ns: u64,
        ranks: &dyn Communicator,
    ) -> Result<Self, EndError> {
        let (rank, size) = (ranks.rank(), ranks.size());
        check(operation, message_bytes, size)?;
        let too_long = || EndError::Impossible(format!("{message_bytes} bytes per message do not fit this machine"));
        let message = usize::try_from(message_bytes).map_err(|_| too_long())?;
        let algorithm = if ranks.has_collectives() && !operation.facts().skeleton {
            Algorithm::Library
        } else {
            Algorithm::choose(operation, message)
        };
        Self::with(operation, algorithm, message, compute_ns, rank, size).ok_or_else(too_long)
    }

    /// With this algorithm; `None`: the buffers do not fit.
    pub(super) fn with(
        operation: Operation,
        algorithm: Algorithm,
        message: usize,
        compute_ns: u64,
        rank: usize,
        size: usize,
    ) -> Option<Self> {
        let room = Room::of(operation, algorithm, message, rank, size);
        let starts = starts(operation, message, rank, size);
        let mut prepared = Self {
            operation,
            algorithm,
            message,
            rank,
            size,
            send: touched(room.send)?,
            receive: touched(room.receive)?,
            scratch: touched(room.scratch)?,
            contents: Contents::of(operation, &starts, rank, size),
            starts,
            busy: Busy::new(compute_ns),
        };
        prepared.fill(0);
        Some(prepared)
    }

    /// Whether a barrier comes before the operation, so that all enter it together.
    pub fn needs_barrier(&self) -> bool {
        self.operation != Operation::Barrier
    }

    /// Writes what this rank gives, and scribbles over what it has got. The content differs from round to round.
    pub fn fill(&mut self, round: u64) {
        self.contents.fill(round, &mut self.send, &mut self.receive);
    }

    /// Checks all that this rank has got since [`Self::fill`].
    pub fn check(&self, round: u64) -> Result<(), RankError> {
        self.contents.check(round, &self.receive)
    }

    /// The operation.
    pub fn run(&mut self, ranks: &mut dyn Communicator) -> Result<(), RankError> {
        let Self { operation, algorithm, message, rank, send, receive, scratch, starts, busy, .. } = self;
        let (message, rank, size) = (*message, *rank, self.size);
        match (*operation, *algorithm) {
            (operation, Algorithm::Library) => ranks.collective(operation, message, send, receive),
            (Operation::Barrier, _) => collectives::barrier(ranks),
            (Operation::Bcast, Algorithm::BinomialTree) => collectives::bcast_binomial(ranks, receive),
            (Operation::Bcast, _) => collectives::bcast_scatter_allgather(ranks, receive),
            (Operation::Reduce, algorithm) => {
                receive.copy_from_slice(send);
                match algorithm {
                    Algorithm::BinomialTree => collectives::reduce_binomial(ranks, receive, scratch),
                    _ => collectives::reduce_rabenseifner(ranks, receive, scratch),
                }
            }
            (Operation::Allreduce, algorithm) => {
                receive.copy_from_slice(send);
                collectives::allreduce(ranks, algorithm, receive, scratch)
            }
            (Operation::Gather, Algorithm::BinomialTree) => {
                let blocks = Blocks::of_bytes(receive.len(), size);
                receive[blocks.one(rank)].copy_from_slice(send);
                collectives::gather_binomial(ranks, receive, blocks)
            }
            (Operation::Gather, _) => collectives::gather_linear(ranks, send, receive),
            (Operation::Scatter, Algorithm::BinomialTree) => {
                let blocks = Blocks::of_bytes(message * size, size);
                if rank != 0 {
                    collectives::receive_subtree(ranks, scratch, blocks)?;
                }
                let all = if rank == 0 { send } else { scratch };
                collectives::send_subtrees(ranks, all, blocks)?;
                receive.copy_from_slice(&all[blocks.one(rank)]);
                Ok(())
            }
            (Operation::Scatter, _) => collectives::scatter_linear(ranks, send, receive),
            (Operation::Allgather, Algorithm::Bruck) => collectives::allgather_bruck(ranks, send, receive, scratch),
            (Operation::Allgather, _) => collectives::allgather_ring(ranks, send, receive),
            (Operation::Alltoall, Algorithm::Bruck) => collectives::bruck(ranks, send, receive, scratch),
            (Operation::Alltoall | Operation::Alltoallv, _) => {
                collectives::pairwise(ranks, send, starts, receive, starts)
            }
            (Operation::ReduceScatter, Algorithm::RecursiveHalving) => {
                let (sums, other) = scratch.split_at_mut(send.len());
                sums.copy_from_slice(send);
                collectives::reduce_scatter_halving(ranks, sums, other, receive)
            }
            (Operation::ReduceScatter, _) => collectives::reduce_scatter_pairwise(ranks, send, scratch, receive),
            (Operation::Ring, _) => skeletons::ring(ranks, busy, send, receive),
            (Operation::Halo3d, _) => skeletons::halo3d(ranks, busy, send, receive),
            (Operation::Butterfly, _) => skeletons::butterfly(ranks, busy, send, receive),
            (Operation::Wavefront, _) => skeletons::wavefront(ranks, busy, send, receive),
        }
    }
}

/// Zeroed memory whose pages are there; `None`: it does not fit.
fn touched(bytes: usize) -> Option<Vec<u8>> {
    let mut buffer = Vec::new();
    buffer.try_reserve_exact(bytes).ok()?;
    buffer.resize(bytes, 0);
    // A zeroed page may be shared until it is written.
    buffer.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
    Some(buffer)
}

/// The bytes that one rank gives and those that it must get.
pub struct Contents {
    operation: Operation,
    rank: usize,
    size: usize,
    given: Vec<Message>,
    got: Vec<Message>,
    /// The buffer to get into holds the bytes that this rank gives, as in a broadcast.
    shared: bool,
}

/// A message in one of the buffers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub at: Range<usize>,
    /// The rank that gives it.
    pub from: usize,
    /// Its number among the messages that this rank gives.
    pub number: usize,
}

impl Contents {
    /// `starts`: beginnings of the blocks of all ranks, and the end of the last.
    pub fn of(operation: Operation, starts: &[usize], rank: usize, size: usize) -> Self {
        let block = starts[1];
        let root = rank == 0;
        let one = |from, number| vec![Message { at: 0..block, from, number }];
        let each = |message: &dyn Fn(usize) -> (usize, usize)| -> Vec<Message> {
            let messages = starts.windows(2).enumerate().map(|(peer, ends)| {
                let (from, number) = message(peer);
                Message { at: ends[0]..ends[1], from, number }
            });
            messages.collect()
        };
        let (given, got) = match operation {
            // Sums are not messages of one rank.
            Operation::Barrier | Operation::Reduce | Operation::Allreduce | Operation::ReduceScatter => {
                (vec![], vec![])
            }
            Operation::Bcast => (if root { one(0, 0) } else { vec![] }, one(0, 0)),
            Operation::Gather => (one(rank, 0), if root { each(&|peer| (peer, 0)) } else { vec![] }),
            Operation::Scatter => (if root { each(&|peer| (0, peer)) } else { vec![] }, one(0, rank)),
            Operation::Allgather => (one(rank, 0), each(&|peer| (peer, 0))),
            Operation::Alltoall | Operation::Alltoallv => (each(&|peer| (rank, peer)), each(&|peer| (peer, rank))),
            Operation::Ring | Operation::Halo3d | Operation::Butterfly | Operation::Wavefront => {
                let placed = |(place, from, number)| Message { at: place * block..(place + 1) * block, from, number };
                let (send, _) = skeletons::messages(operation, size);
                let given = (0..send).map(|number| placed((number, rank, number))).collect();
                (given, skeletons::got(operation, rank, size).into_iter().map(placed).collect())
            }
        };
        Self { operation, rank, size, given, got, shared: operation == Operation::Bcast }
    }

    /// Writes what this rank gives, and scribbles over what it has got.
    pub fn fill(&self, round: u64, send: &mut [u8], receive: &mut [u8]) {
        receive.fill(0xa5);
        let send = if self.shared { receive } else { send };
        for message in &self.given {
            for (byte, at) in send[message.at.clone()].iter_mut().zip(0..) {
                *byte = byte_of(message, round, at);
            }
        }
        if self.operation.facts().adds {
            for (number, at) in send.as_chunks_mut::<NUMBER_BYTES>().0.iter_mut().zip(0..) {
                *number = (weight(self.rank) * number_of(round, at)).to_ne_bytes();
            }
        }
    }

    /// Checks all that this rank has got.
    pub fn check(&self, round: u64, receive: &[u8]) -> Result<(), RankError> {
        let wrong = |at: usize, from: &str| {
            let (name, rank) = (self.operation.as_str(), self.rank);
            Err(RankError::Wrong(format!("rank {rank} got a wrong result of {name} at byte {at}{from}")))
        };
        for message in &self.got {
            let bytes = &receive[message.at.clone()];
            if let Some((at, _)) = (0..).zip(bytes).find(|(at, byte)| **byte != byte_of(message, round, *at)) {
                return wrong(message.at.start + at, &format!(", which rank {} sent", message.from));
            }
        }
        let first = match self.operation {
            Operation::Allreduce => 0,
            Operation::Reduce if self.rank == 0 => 0,
            Operation::ReduceScatter => self.rank * (receive.len() / NUMBER_BYTES),
            _ => return Ok(()),
        };
        let weights: f64 = (0..self.size).map(weight).sum();
        let sums = receive.as_chunks::<NUMBER_BYTES>().0;
        // Whole numbers far below 2^53: every order of adding gives the same bits.
        let is_wrong =
            |(at, sum): &(usize, &[u8; NUMBER_BYTES])| **sum != (weights * number_of(round, *at)).to_ne_bytes();
        match (first..).zip(sums).find(is_wrong) {
            Some((at, _)) => wrong((at - first) * NUMBER_BYTES, ""),
            None => Ok(()),
        }
    }
}

/// The content of a message at a place: it repeats after a prime number of bytes, so that no block looks like its neighbour.
fn byte_of(message: &Message, round: u64, at: usize) -> u8 {
    // Below 251.
    #[expect(clippy::cast_possible_truncation)]
    let byte = ((message.from * 101 + message.number * 29 + (round % 251) as usize * 17 + at) % 251) as u8;
    byte
}

/// The number at a place that each rank gives its multiple of.
fn number_of(round: u64, at: usize) -> f64 {
    ((at as u64 + round % 1009) % 1009 + 1) as f64
}

fn weight(rank: usize) -> f64 {
    (rank + 1) as f64
}
