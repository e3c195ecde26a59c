//! Operations with a root, which is rank 0: its subtrees are ranges of ranks, so that no block has to be moved.
//!
//! In the binomial tree a rank's parent lacks its lowest bit, and its children are those that have one lower bit more. The
//! subtree of a rank is it and the ranks behind it, as many as its lowest bit says.

use super::{
    super::{Communicator, RankError},
    blocks::{Blocks, add},
    halving::Halving,
    ring,
};

/// Ranks in the subtree of a rank, if there were as many; the root's has all.
fn subtree(rank: usize, ranks: usize) -> usize {
    if rank == 0 { ranks.next_power_of_two() } else { rank & rank.wrapping_neg() }
}

/// Distances to the children of a rank, the largest subtree first.
fn children(rank: usize, ranks: usize) -> impl DoubleEndedIterator<Item = usize> {
    let depth = subtree(rank, ranks).trailing_zeros();
    (0..depth).rev().map(|bit| 1 << bit).filter(move |distance| rank + distance < ranks)
}

/// All bytes along the tree.
pub fn bcast_binomial<C: Communicator>(ranks: &mut C, buffer: &mut [u8]) -> Result<(), RankError> {
    let (rank, size) = (ranks.rank(), ranks.size());
    if rank != 0 {
        ranks.receive(rank - subtree(rank, size), buffer)?;
    }
    children(rank, size).try_for_each(|distance| ranks.send(rank + distance, buffer))
}

/// A block for each rank along the tree, then the blocks around the ring, so that no port carries the message more than
/// twice (Thakur, Rabenseifner, Gropp, 2005: "van de Geijn").
pub fn bcast_scatter_allgather<C: Communicator>(ranks: &mut C, buffer: &mut [u8]) -> Result<(), RankError> {
    let blocks = Blocks::of_bytes(buffer.len(), ranks.size());
    if ranks.rank() != 0 {
        receive_subtree(ranks, buffer, blocks)?;
    }
    send_subtrees(ranks, buffer, blocks)?;
    ring::allgather(ranks, buffer, blocks)
}

/// Receives the blocks of this rank's subtree. The buffer has room for those of all ranks.
pub fn receive_subtree<C: Communicator>(ranks: &mut C, buffer: &mut [u8], blocks: Blocks) -> Result<(), RankError> {
    let (rank, size) = (ranks.rank(), ranks.size());
    let subtree = subtree(rank, size);
    ranks.receive(rank - subtree, &mut buffer[blocks.span(rank..size.min(rank + subtree))])
}

/// Sends each child the blocks of its subtree.
pub fn send_subtrees<C: Communicator>(ranks: &mut C, buffer: &[u8], blocks: Blocks) -> Result<(), RankError> {
    let (rank, size) = (ranks.rank(), ranks.size());
    children(rank, size).try_for_each(|distance| {
        let child = rank + distance;
        ranks.send(child, &buffer[blocks.span(child..size.min(child + distance))])
    })
}

/// The blocks of all ranks along the tree. The buffer has this rank's own block in its place, and room for all.
pub fn gather_binomial<C: Communicator>(ranks: &mut C, buffer: &mut [u8], blocks: Blocks) -> Result<(), RankError> {
    let (rank, size) = (ranks.rank(), ranks.size());
    for distance in children(rank, size).rev() {
        let child = rank + distance;
        ranks.receive(child, &mut buffer[blocks.span(child..size.min(child + distance))])?;
    }
    if rank == 0 {
        return Ok(());
    }
    let subtree = subtree(rank, size);
    ranks.send(rank - subtree, &buffer[blocks.span(rank..size.min(rank + subtree))])
}

/// Each rank sends its block to the root, which takes them in the order of the ranks.
pub fn gather_linear<C: Communicator>(ranks: &mut C, own: &[u8], all: &mut [u8]) -> Result<(), RankError> {
    if ranks.rank() != 0 {
        return ranks.send(0, own);
    }
    all[..own.len()].copy_from_slice(own);
    (1..ranks.size()).try_for_each(|rank| ranks.receive(rank, &mut all[own.len() * rank..own.len() * (rank + 1)]))
}

/// The root sends each rank its block, in the order of the ranks.
pub fn scatter_linear<C: Communicator>(ranks: &mut C, all: &[u8], own: &mut [u8]) -> Result<(), RankError> {
    if ranks.rank() != 0 {
        return ranks.receive(0, own);
    }
    let block = own.len();
    own.copy_from_slice(&all[..block]);
    (1..ranks.size()).try_for_each(|rank| ranks.send(rank, &all[block * rank..block * (rank + 1)]))
}

/// Sums along the tree. `sums` begins as this rank's numbers and ends as the sums at the root; `other` is as long.
pub fn reduce_binomial<C: Communicator>(ranks: &mut C, sums: &mut [u8], other: &mut [u8]) -> Result<(), RankError> {
    let (rank, size) = (ranks.rank(), ranks.size());
    for distance in children(rank, size).rev() {
        ranks.receive(rank + distance, other)?;
        add(sums, other);
    }
    if rank == 0 { Ok(()) } else { ranks.send(rank - subtree(rank, size), sums) }
}

/// Rabenseifner's algorithm (2004): halves of the sums are exchanged at halved distances until each rank has one block, and
/// the blocks are gathered along the tree.
pub fn reduce_rabenseifner<C: Communicator>(ranks: &mut C, sums: &mut [u8], other: &mut [u8]) -> Result<(), RankError> {
    let Some(halving) = Halving::fold(ranks, sums, other)? else { return Ok(()) };
    let blocks = Blocks::of_numbers(sums.len(), halving.members);
    halving.reduce_scatter(ranks, sums, other, &|member| blocks.start(member))?;
    let mut distance = 1;
    while distance < halving.members {
        let partner = halving.rank_of(halving.member ^ distance);
        if halving.member & distance != 0 {
            return ranks.send(partner, &sums[blocks.span(halving.member..halving.member + distance)]);
        }
        let behind = halving.member + distance;
        ranks.receive(partner, &mut sums[blocks.span(behind..behind + distance)])?;
        distance *= 2;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_but_the_root_is_the_child_of_its_parent() {
        for ranks in 1..40 {
            let mut parents = vec![0; ranks];
            for rank in 0..ranks {
                for distance in children(rank, ranks) {
                    parents[rank + distance] += 1;
                    assert_eq!(rank + distance - subtree(rank + distance, ranks), rank);
                    assert_eq!(subtree(rank + distance, ranks), distance);
                }
            }
            assert_eq!(parents[0], 0);
            assert!(parents[1..].iter().all(|count| *count == 1), "{ranks}: {parents:?}");
        }
    }
}
