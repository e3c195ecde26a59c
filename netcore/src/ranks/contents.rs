//! Contents of the buffers of an operation: each message says which rank gave it, and in which round.

use std::ops::Range;

use super::{RankError, collectives::blocks::NUMBER_BYTES, skeletons};
use crate::spec::ranks::Operation;

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
            let (name, rank) = (self.operation.name(), self.rank);
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
