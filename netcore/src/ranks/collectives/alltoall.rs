//! A block from each rank to each other one.

use super::super::{Communicator, RankError};

/// Bruck et al. (1997): in step k all blocks whose distance has bit k travel 2^k ranks further: log2 n messages instead of
/// n - 1, each of half the blocks. `scratch` is twice as long as `blocks`.
pub fn bruck<C: Communicator>(
    ranks: &mut C,
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
pub fn pairwise<C: Communicator>(
    ranks: &mut C,
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
