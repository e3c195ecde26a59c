//! Collective operations in terms of messages between two ranks. The choice by size and number of ranks follows R. Thakur,
//! R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in MPICH" (2005): few messages for short
//! buffers, few bytes for long ones. The root is rank 0, and sums are of `f64`.

pub mod steps;

use super::{Communicator, RankError};
use crate::spec::ranks::Operation;
use steps::{Blocks, Halving, add};

/// Dissemination (Hensgen, Finkel, Manber, 1988): in step k each rank tells the one 2^k further. After log2 n steps all have
/// heard of all.
pub fn barrier(ranks: &mut dyn Communicator) -> Result<(), RankError> {
    let (rank, size) = (ranks.rank(), ranks.size());
    let mut distance = 1;
    while distance < size {
        ranks.exchange((rank + distance) % size, &[1], (rank + size - distance) % size, &mut [0])?;
        distance *= 2;
    }
    Ok(())
}

/// Leaves when all ranks are done: the first barrier tells that they are, and during the second each may leave.
pub fn part(ranks: &mut dyn Communicator) -> Result<(), RankError> {
    barrier(ranks)?;
    ranks.part();
    barrier(ranks)
}

/// Sums at all ranks by one of the algorithms below. `sums` begins as this rank's numbers; `other` is as long.
pub fn allreduce(
    ranks: &mut dyn Communicator,
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
fn allreduce_doubling(ranks: &mut dyn Communicator, sums: &mut [u8], other: &mut [u8]) -> Result<(), RankError> {
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
fn allreduce_rabenseifner(ranks: &mut dyn Communicator, sums: &mut [u8], other: &mut [u8]) -> Result<(), RankError> {
    let Some(halving) = Halving::fold(ranks, sums, other)? else { return ranks.receive(ranks.rank() - 1, sums) };
    let blocks = Blocks::of_numbers(sums.len(), halving.members);
    halving.reduce_scatter(ranks, sums, other, &|member| blocks.start(member))?;
    halving.allgather(ranks, sums, &|member| blocks.start(member))?;
    unfold(ranks, halving, sums)
}

/// Around the ring twice: first the sums of each block, then the blocks (Patarasuk, Yuan, 2009).
fn allreduce_ring(ranks: &mut dyn Communicator, sums: &mut [u8], other: &mut [u8]) -> Result<(), RankError> {
    let blocks = Blocks::of_numbers(sums.len(), ranks.size());
    steps::ring_reduce_scatter(ranks, sums, other, blocks)?;
    steps::ring_allgather(ranks, sums, blocks)
}

/// Sends the result to the rank that stayed out.
fn unfold(ranks: &mut dyn Communicator, halving: Halving, sums: &[u8]) -> Result<(), RankError> {
    if halving.has_neighbour() { ranks.send(ranks.rank() + 1, sums) } else { Ok(()) }
}

/// Bruck et al. (1997): in step k each rank sends all the blocks that it has, up to 2^k, to the one 2^k before it.
/// `gathered` is as long as `all`.
pub fn allgather_bruck(
    ranks: &mut dyn Communicator,
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
pub fn allgather_ring(ranks: &mut dyn Communicator, own: &[u8], all: &mut [u8]) -> Result<(), RankError> {
    let blocks = Blocks::of_bytes(all.len(), ranks.size());
    all[blocks.one(ranks.rank())].copy_from_slice(own);
    steps::ring_allgather(ranks, all, blocks)
}

/// Recursive halving; a rank that the fold leaves out gets its block from its neighbour, which sums it up with its own.
/// `sums` begins as this rank's numbers for all; `other` is as long.
pub fn reduce_scatter_halving(
    ranks: &mut dyn Communicator,
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
pub fn reduce_scatter_pairwise(
    ranks: &mut dyn Communicator,
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

/// Bruck et al. (1997): in step k all blocks whose distance has bit k travel 2^k ranks further: log2 n messages instead of
/// n - 1, each of half the blocks. `scratch` is twice as long as `blocks`.
pub fn bruck(
    ranks: &mut dyn Communicator,
    blocks: &[u8],
    received: &mut [u8],
    scratch: &mut [u8],
) -> Result<(), RankError> {
    let (rank, size) = (ranks.rank(), ranks.size());
    let block = blocks.len() / size;
    let (travelling, packed) = scratch.split_at_mut(blocks.len());
    // The block at distance i at place i.
    travelling[..(size - rank) * block].copy_from_slice(&blocks[rank * block..]);
    travelling[(size - rank) * block..].copy_from_slice(&blocks[..rank * block]);
    let place = |index: usize| index * block..(index + 1) * block;
    let mut distance = 1;
    while distance < size {
        let moving = move || (distance..size).filter(move |index| index & distance != 0);
        // At most half of the blocks move, rounded up to the next power of two: the room for both directions suffices.
        let (out, into) = packed.split_at_mut(packed.len() / 2);
        let mut packets = 0;
        for index in moving() {
            out[place(packets)].copy_from_slice(&travelling[place(index)]);
            packets += 1;
        }
        let length = packets * block;
        ranks.exchange(
            (rank + distance) % size,
            &out[..length],
            (rank + size - distance) % size,
            &mut into[..length],
        )?;
        for (packet, index) in moving().enumerate() {
            travelling[place(index)].copy_from_slice(&into[place(packet)]);
        }
        distance *= 2;
    }
    // The block at place i came from i ranks before.
    for index in 0..size {
        received[place((rank + size - index) % size)].copy_from_slice(&travelling[place(index)]);
    }
    Ok(())
}

/// Pairwise exchange: in step i each rank sends to the rank i further and receives from the rank i before. `out` and `into`:
/// where the block for and from each rank begins, and where the last ends.
pub fn pairwise(
    ranks: &mut dyn Communicator,
    blocks: &[u8],
    out: &[usize],
    received: &mut [u8],
    into: &[usize],
) -> Result<(), RankError> {
    let (rank, size) = (ranks.rank(), ranks.size());
    received[into[rank]..into[rank + 1]].copy_from_slice(&blocks[out[rank]..out[rank + 1]]);
    for step in 1..size {
        let (to, from) = ((rank + step) % size, (rank + size - step) % size);
        ranks.exchange(to, &blocks[out[to]..out[to + 1]], from, &mut received[into[from]..into[from + 1]])?;
    }
    Ok(())
}

// Operations with a root, which is rank 0: its subtrees are ranges of ranks, so that no block has to be moved.
//
// In the binomial tree a rank's parent lacks its lowest bit, and its children are those that have one lower bit more. The
// subtree of a rank is it and the ranks behind it, as many as its lowest bit says.

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
pub fn bcast_binomial(ranks: &mut dyn Communicator, buffer: &mut [u8]) -> Result<(), RankError> {
    let (rank, size) = (ranks.rank(), ranks.size());
    if rank != 0 {
        ranks.receive(rank - subtree(rank, size), buffer)?;
    }
    children(rank, size).try_for_each(|distance| ranks.send(rank + distance, buffer))
}

/// A block for each rank along the tree, then the blocks around the ring, so that no port carries the message more than
/// twice (Thakur, Rabenseifner, Gropp, 2005: "van de Geijn").
pub fn bcast_scatter_allgather(ranks: &mut dyn Communicator, buffer: &mut [u8]) -> Result<(), RankError> {
    let blocks = Blocks::of_bytes(buffer.len(), ranks.size());
    if ranks.rank() != 0 {
        receive_subtree(ranks, buffer, blocks)?;
    }
    send_subtrees(ranks, buffer, blocks)?;
    steps::ring_allgather(ranks, buffer, blocks)
}

/// Receives the blocks of this rank's subtree. The buffer has room for those of all ranks.
pub fn receive_subtree(ranks: &mut dyn Communicator, buffer: &mut [u8], blocks: Blocks) -> Result<(), RankError> {
    let (rank, size) = (ranks.rank(), ranks.size());
    let subtree = subtree(rank, size);
    ranks.receive(rank - subtree, &mut buffer[blocks.span(rank..size.min(rank + subtree))])
}

/// Sends each child the blocks of its subtree.
pub fn send_subtrees(ranks: &mut dyn Communicator, buffer: &[u8], blocks: Blocks) -> Result<(), RankError> {
    let (rank, size) = (ranks.rank(), ranks.size());
    children(rank, size).try_for_each(|distance| {
        let child = rank + distance;
        ranks.send(child, &buffer[blocks.span(child..size.min(child + distance))])
    })
}

/// The blocks of all ranks along the tree. The buffer has this rank's own block in its place, and room for all.
pub fn gather_binomial(ranks: &mut dyn Communicator, buffer: &mut [u8], blocks: Blocks) -> Result<(), RankError> {
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
pub fn gather_linear(ranks: &mut dyn Communicator, own: &[u8], all: &mut [u8]) -> Result<(), RankError> {
    if ranks.rank() != 0 {
        return ranks.send(0, own);
    }
    all[..own.len()].copy_from_slice(own);
    (1..ranks.size()).try_for_each(|rank| ranks.receive(rank, &mut all[own.len() * rank..own.len() * (rank + 1)]))
}

/// The root sends each rank its block, in the order of the ranks.
pub fn scatter_linear(ranks: &mut dyn Communicator, all: &[u8], own: &mut [u8]) -> Result<(), RankError> {
    if ranks.rank() != 0 {
        return ranks.receive(0, own);
    }
    let block = own.len();
    own.copy_from_slice(&all[..block]);
    (1..ranks.size()).try_for_each(|rank| ranks.send(rank, &all[block * rank..block * (rank + 1)]))
}

/// Sums along the tree. `sums` begins as this rank's numbers and ends as the sums at the root; `other` is as long.
pub fn reduce_binomial(ranks: &mut dyn Communicator, sums: &mut [u8], other: &mut [u8]) -> Result<(), RankError> {
    let (rank, size) = (ranks.rank(), ranks.size());
    for distance in children(rank, size).rev() {
        ranks.receive(rank + distance, other)?;
        add(sums, other);
    }
    if rank == 0 { Ok(()) } else { ranks.send(rank - subtree(rank, size), sums) }
}

/// Rabenseifner's algorithm (2004): halves of the sums are exchanged at halved distances until each rank has one block, and
/// the blocks are gathered along the tree.
pub fn reduce_rabenseifner(ranks: &mut dyn Communicator, sums: &mut [u8], other: &mut [u8]) -> Result<(), RankError> {
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

schemas::words! {
    /// A way to do an operation, chosen before the first one.
    Algorithm {
        Dissemination = "dissemination",
        BinomialTree = "binomial_tree",
        ScatterAllgather = "scatter_allgather",
        Linear = "linear",
        Rabenseifner = "rabenseifner",
        RecursiveDoubling = "recursive_doubling",
        RecursiveHalving = "recursive_halving",
        Ring = "ring",
        Bruck = "bruck",
        Pairwise = "pairwise_exchange",
        /// A pattern of applications has one way.
        Neighbours = "neighbours",
        /// The library's own choice.
        Library = "library",
    }
}

impl Algorithm {
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

#[cfg(test)]
pub mod tests;
