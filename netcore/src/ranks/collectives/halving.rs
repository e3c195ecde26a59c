//! Exchanges at halved and doubled distances, for any number of ranks.
//!
//! With a number of ranks other than a power of two, each odd rank of the first pairs adds its numbers to its
//! neighbour's and stays out (the "fold"). The others are members, counted without gaps.

use super::{
    super::{Communicator, RankError},
    blocks::{add, exchange_within},
};

/// A rank that takes part after the fold.
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
    pub fn fold<C: Communicator>(ranks: &mut C, sums: &mut [u8], other: &mut [u8]) -> Result<Option<Self>, RankError> {
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
    pub fn reduce_scatter<C: Communicator>(
        self,
        ranks: &mut C,
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
    pub fn allgather<C: Communicator>(
        self,
        ranks: &mut C,
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
