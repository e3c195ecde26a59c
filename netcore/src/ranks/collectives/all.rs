//! Operations without a root in which all ranks get a part of the same: allreduce, allgather, reduce_scatter and the barrier.

use super::{
    super::{Communicator, RankError, algorithm::Algorithm},
    blocks::{Blocks, add},
    halving::Halving,
    ring,
};

/// Dissemination (Hensgen, Finkel, Manber, 1988): in step k each rank tells the one 2^k further. After log2 n steps all have
/// heard of all.
pub fn barrier<C: Communicator>(ranks: &mut C) -> Result<(), RankError> {
    let (rank, size) = (ranks.rank(), ranks.size());
    let mut distance = 1;
    while distance < size {
        ranks.exchange((rank + distance) % size, &[1], (rank + size - distance) % size, &mut [0])?;
        distance *= 2;
    }
    Ok(())
}

/// Leaves when all ranks are done: the first barrier tells that they are, and during the second each may leave.
pub fn part<C: Communicator>(ranks: &mut C) -> Result<(), RankError> {
    barrier(ranks)?;
    ranks.part();
    barrier(ranks)
}

/// Sums at all ranks by one of the algorithms below. `sums` begins as this rank's numbers; `other` is as long.
pub fn allreduce<C: Communicator>(
    ranks: &mut C,
    algorithm: Algorithm,
    sums: &mut [u8],
    other: &mut [u8],
) -> Result<(), RankError> {
    match algorithm {
        Algorithm::RecursiveDoubling => allreduce_doubling(ranks, sums, other),
        Algorithm::Rabenseifner => allreduce_rabenseifner(ranks, sums, other),
        _ => allreduce_ring(ranks, sums, other),
    }
}

/// Recursive doubling: in each step a rank exchanges all its sums with a partner at twice the distance.
fn allreduce_doubling<C: Communicator>(ranks: &mut C, sums: &mut [u8], other: &mut [u8]) -> Result<(), RankError> {
    let Some(halving) = Halving::fold(ranks, sums, other)? else { return ranks.receive(ranks.rank() - 1, sums) };
    let mut distance = 1;
    while distance < halving.members {
        let partner = halving.rank_of(halving.member ^ distance);
        ranks.exchange(partner, sums, partner, other)?;
        add(sums, other);
        distance *= 2;
    }
    unfold(ranks, halving, sums)
}

/// Rabenseifner's algorithm (2004): recursive halving of the sums, then recursive doubling of what is collected.
fn allreduce_rabenseifner<C: Communicator>(ranks: &mut C, sums: &mut [u8], other: &mut [u8]) -> Result<(), RankError> {
    let Some(halving) = Halving::fold(ranks, sums, other)? else { return ranks.receive(ranks.rank() - 1, sums) };
    let blocks = Blocks::of_numbers(sums.len(), halving.members);
    halving.reduce_scatter(ranks, sums, other, &|member| blocks.start(member))?;
    halving.allgather(ranks, sums, &|member| blocks.start(member))?;
    unfold(ranks, halving, sums)
}

/// Around the ring twice: first the sums of each block, then the blocks (Patarasuk, Yuan, 2009).
fn allreduce_ring<C: Communicator>(ranks: &mut C, sums: &mut [u8], other: &mut [u8]) -> Result<(), RankError> {
    let blocks = Blocks::of_numbers(sums.len(), ranks.size());
    ring::reduce_scatter(ranks, sums, other, blocks)?;
    ring::allgather(ranks, sums, blocks)
}

/// Sends the result to the rank that stayed out.
fn unfold<C: Communicator>(ranks: &mut C, halving: Halving, sums: &[u8]) -> Result<(), RankError> {
    if halving.has_neighbour() { ranks.send(ranks.rank() + 1, sums) } else { Ok(()) }
}

/// Bruck et al. (1997): in step k each rank sends all the blocks that it has, up to 2^k, to the one 2^k before it.
/// `gathered` is as long as `all`.
pub fn allgather_bruck<C: Communicator>(
    ranks: &mut C,
    own: &[u8],
    all: &mut [u8],
    gathered: &mut [u8],
) -> Result<(), RankError> {
    let (rank, size, block) = (ranks.rank(), ranks.size(), own.len());
    // The blocks of this rank and those behind it, in this order.
    gathered[..block].copy_from_slice(own);
    let mut distance = 1;
    while distance < size {
        let count = distance.min(size - distance) * block;
        let (have, room) = gathered.split_at_mut(distance * block);
        ranks.exchange(
            (rank + size - distance) % size,
            &have[..count],
            (rank + distance) % size,
            &mut room[..count],
        )?;
        distance *= 2;
    }
    let (behind, before) = gathered[..size * block].split_at((size - rank) * block);
    all[rank * block..].copy_from_slice(behind);
    all[..rank * block].copy_from_slice(before);
    Ok(())
}

/// Blocks around the ring.
pub fn allgather_ring<C: Communicator>(ranks: &mut C, own: &[u8], all: &mut [u8]) -> Result<(), RankError> {
    let blocks = Blocks::of_bytes(all.len(), ranks.size());
    all[blocks.one(ranks.rank())].copy_from_slice(own);
    ring::allgather(ranks, all, blocks)
}

/// Recursive halving; a rank that the fold leaves out gets its block from its neighbour, which sums it up with its own.
/// `sums` begins as this rank's numbers for all; `other` is as long.
pub fn reduce_scatter_halving<C: Communicator>(
    ranks: &mut C,
    sums: &mut [u8],
    other: &mut [u8],
    own: &mut [u8],
) -> Result<(), RankError> {
    let (rank, block) = (ranks.rank(), own.len());
    let Some(halving) = Halving::fold(ranks, sums, other)? else { return ranks.receive(rank - 1, own) };
    // A member has the blocks of its rank and of those up to the next member.
    let size = ranks.size();
    let start = |member: usize| if member < halving.members { halving.rank_of(member) * block } else { size * block };
    halving.reduce_scatter(ranks, sums, other, &start)?;
    own.copy_from_slice(&sums[rank * block..(rank + 1) * block]);
    if halving.has_neighbour() {
        return ranks.send(rank + 1, &sums[(rank + 1) * block..(rank + 2) * block]);
    }
    Ok(())
}

/// Pairwise exchange: in step i each rank sends the numbers of the rank i further to it. `other` has room for a block.
pub fn reduce_scatter_pairwise<C: Communicator>(
    ranks: &mut C,
    numbers: &[u8],
    other: &mut [u8],
    own: &mut [u8],
) -> Result<(), RankError> {
    let (rank, size, block) = (ranks.rank(), ranks.size(), own.len());
    own.copy_from_slice(&numbers[rank * block..(rank + 1) * block]);
    let other = &mut other[..block];
    for step in 1..size {
        let (to, from) = ((rank + step) % size, (rank + size - step) % size);
        ranks.exchange(to, &numbers[to * block..(to + 1) * block], from, other)?;
        add(own, other);
    }
    Ok(())
}
