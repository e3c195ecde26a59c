//! The steps that several operations have: partitions of a buffer and sums of its numbers, blocks that travel around the ring of
//! ranks, and exchanges at halved and doubled distances.

use std::ops::Range;

use super::super::{Communicator, RankError};

/// Each rank begins with its own block and ends with all: every port carries each block once, at the price of n - 1 steps.
pub fn ring_allgather(ranks: &mut dyn Communicator, buffer: &mut [u8], blocks: Blocks) -> Result<(), RankError> {
    let (rank, size) = (ranks.rank(), ranks.size());
    let (next, last) = ((rank + 1) % size, (rank + size - 1) % size);
    for step in 0..size - 1 {
        let (out, into) = ((rank + size - step) % size, (last + size - step) % size);
        exchange_within(ranks, buffer, (next, blocks.one(out)), (last, blocks.one(into)))?;
    }
    Ok(())
}

/// Each rank begins with all of its numbers and ends with the sums of its own block. `other` has room for a block.
pub fn ring_reduce_scatter(
    ranks: &mut dyn Communicator,
    sums: &mut [u8],
    other: &mut [u8],
    blocks: Blocks,
) -> Result<(), RankError> {
    let (rank, size) = (ranks.rank(), ranks.size());
    let (next, last) = ((rank + 1) % size, (rank + size - 1) % size);
    for step in 1..size {
        // A block sets out behind its owner and comes to it in the last step.
        let (out, into) = ((rank + size - step) % size, (last + size - step) % size);
        let into = blocks.one(into);
        let other = &mut other[..into.len()];
        ranks.exchange(next, &sums[blocks.one(out)], last, other)?;
        add(&mut sums[into], other);
    }
    Ok(())
}

/// Bytes of a number: reductions add `f64`.
pub const NUMBER_BYTES: usize = size_of::<f64>();

/// A buffer in blocks of nearly equal lengths: whole units, of which the later blocks get the remainder.
#[derive(Clone, Copy, Debug)]
pub struct Blocks {
    bytes: usize,
    count: usize,
    unit: usize,
}

impl Blocks {
    pub fn of_bytes(bytes: usize, count: usize) -> Self {
        Self { bytes, count, unit: 1 }
    }

    pub fn of_numbers(bytes: usize, count: usize) -> Self {
        Self { bytes, count, unit: NUMBER_BYTES }
    }

    /// Begin of a block. The block after the last begins at the buffer's end.
    pub fn start(self, block: usize) -> usize {
        self.bytes / self.unit * block / self.count * self.unit
    }

    pub fn one(self, block: usize) -> Range<usize> {
        self.start(block)..self.start(block + 1)
    }

    /// From one block to before another.
    pub fn span(self, blocks: Range<usize>) -> Range<usize> {
        self.start(blocks.start)..self.start(blocks.end)
    }
}

/// Adds numbers to numbers. The bytes need no alignment.
pub fn add(sums: &mut [u8], numbers: &[u8]) {
    let sums = sums.as_chunks_mut::<NUMBER_BYTES>().0;
    for (sum, number) in sums.iter_mut().zip(numbers.as_chunks::<NUMBER_BYTES>().0) {
        *sum = (f64::from_ne_bytes(*sum) + f64::from_ne_bytes(*number)).to_ne_bytes();
    }
}

/// Sends one part of a buffer and receives into another, at the same time.
fn exchange_within(
    ranks: &mut dyn Communicator,
    buffer: &mut [u8],
    (to, out): (usize, Range<usize>),
    (from, into): (usize, Range<usize>),
) -> Result<(), RankError> {
    // Parts are blocks of one partition, so they cannot overlap.
    let [out, into] = buffer.get_disjoint_mut([out, into]).expect("different blocks");
    ranks.exchange(to, out, from, into)
}

/// A rank that takes part after the fold, in exchanges at halved and doubled distances.
///
/// With a number of ranks other than a power of two, each odd rank of the first pairs adds its numbers to its neighbour's and
/// stays out (the "fold"). The others are members, counted without gaps.
#[derive(Clone, Copy, Debug)]
pub struct Halving {
    pub member: usize,
    /// Number of members: the largest power of two that the ranks allow.
    pub members: usize,
    /// Pairs that were folded: the first ranks.
    folded: usize,
}

impl Halving {
    /// The member that a rank is; `None`: it stays out.
    fn of(rank: usize, size: usize) -> Option<Self> {
        let members = 1 << size.ilog2();
        let folded = size - members;
        let member = match rank {
            rank if rank >= 2 * folded => rank - folded,
            rank if rank % 2 == 0 => rank / 2,
            _ => return None,
        };
        Some(Self { member, members, folded })
    }

    /// Adds the numbers of the ranks that stay out; `None` at these. `other` is as long as `sums`.
    pub fn fold(ranks: &mut dyn Communicator, sums: &mut [u8], other: &mut [u8]) -> Result<Option<Self>, RankError> {
        let rank = ranks.rank();
        let Some(halving) = Self::of(rank, ranks.size()) else {
            ranks.send(rank - 1, sums)?;
            return Ok(None);
        };
        if halving.has_neighbour() {
            ranks.receive(rank + 1, other)?;
            add(sums, other);
        }
        Ok(Some(halving))
    }

    /// Whether the next rank has stayed out and waits for its result.
    pub fn has_neighbour(self) -> bool {
        self.member < self.folded
    }

    /// The rank that a member is.
    pub fn rank_of(self, member: usize) -> usize {
        if member < self.folded { 2 * member } else { member + self.folded }
    }

    /// Recursive halving: each member ends with the sums from `start(member)` to before the next one's. `other` has room for
    /// what half of the members end with.
    pub fn reduce_scatter(
        self,
        ranks: &mut dyn Communicator,
        sums: &mut [u8],
        other: &mut [u8],
        start: &impl Fn(usize) -> usize,
    ) -> Result<(), RankError> {
        let mut distance = self.members / 2;
        while distance > 0 {
            let first = self.member & !(2 * distance - 1);
            let (lower, middle, upper) = (start(first), start(first + distance), start(first + 2 * distance));
            let (keep, give) = match self.member & distance {
                0 => (lower..middle, middle..upper),
                _ => (middle..upper, lower..middle),
            };
            let partner = self.rank_of(self.member ^ distance);
            let other = &mut other[..keep.len()];
            ranks.exchange(partner, &sums[give], partner, other)?;
            add(&mut sums[keep], other);
            distance /= 2;
        }
        Ok(())
    }

    /// Recursive doubling: each member begins with what [`Self::reduce_scatter`] left it and ends with everything.
    pub fn allgather(
        self,
        ranks: &mut dyn Communicator,
        buffer: &mut [u8],
        start: &impl Fn(usize) -> usize,
    ) -> Result<(), RankError> {
        let mut distance = 1;
        while distance < self.members {
            let first = self.member & !(distance - 1);
            let (own, theirs) = (first, first ^ distance);
            let span = |first: usize| start(first)..start(first + distance);
            let partner = self.rank_of(self.member ^ distance);
            exchange_within(ranks, buffer, (partner, span(own)), (partner, span(theirs)))?;
            distance *= 2;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_cover_the_buffer_in_whole_units() {
        for (bytes, blocks) in [(0, 3), (8, 3), (80, 3), (8 * 1001, 7)] {
            let parts = Blocks::of_numbers(bytes, blocks);
            assert_eq!((parts.start(0), parts.start(blocks)), (0, bytes));
            let lengths: Vec<usize> = (0..blocks).map(|block| parts.one(block).len()).collect();
            assert!(lengths.iter().all(|length| length % NUMBER_BYTES == 0));
            assert!(lengths.iter().max().unwrap() - lengths.iter().min().unwrap() <= NUMBER_BYTES);
        }
        assert_eq!(Blocks::of_bytes(21, 3).span(1..3), 7..21);
    }

    #[test]
    fn sums_need_no_alignment() {
        let mut bytes = [0; 33];
        bytes[1..9].copy_from_slice(&1.5f64.to_ne_bytes());
        let mut sums = [0; 33];
        sums[3..11].copy_from_slice(&2.0f64.to_ne_bytes());
        add(&mut sums[3..11], &bytes[1..9]);
        assert_eq!(f64::from_ne_bytes(sums[3..11].try_into().unwrap()).to_bits(), 3.5f64.to_bits());
    }
}
