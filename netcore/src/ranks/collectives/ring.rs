//! Blocks that travel around the ring of ranks: every port carries each block once, at the price of n - 1 steps.

use super::{
    super::{Communicator, RankError},
    blocks::{Blocks, add, exchange_within},
};

/// Each rank begins with its own block and ends with all.
pub fn allgather<C: Communicator>(ranks: &mut C, buffer: &mut [u8], blocks: Blocks) -> Result<(), RankError> {
    let (rank, size) = (ranks.rank(), ranks.size());
    let (next, last) = ((rank + 1) % size, (rank + size - 1) % size);
    for step in 0..size - 1 {
        let (out, into) = ((rank + size - step) % size, (last + size - step) % size);
        exchange_within(ranks, buffer, (next, blocks.one(out)), (last, blocks.one(into)))?;
    }
    Ok(())
}

/// Each rank begins with all of its numbers and ends with the sums of its own block. `other` has room for a block.
pub fn reduce_scatter<C: Communicator>(
    ranks: &mut C,
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
