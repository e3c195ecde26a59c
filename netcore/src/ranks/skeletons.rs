//! Patterns of applications: who talks to whom, with busy time between, but without the numerics.
//!
//! - `ring`: a shift to the next rank.
//! - `halo3d`: faces to six neighbours in a periodic cube, one dimension after the other, as MG does on its finest level.
//! - `butterfly`: exchanges at distances 1, 2, 4, …, then one with the rank at the transposed place, as CG does for its
//!   sums and its vector.
//! - `wavefront`: fronts that follow each other through a plane of ranks from corner to corner, then back, as in LU.

use super::{Communicator, RankError};
use crate::{
    measure::clock::{monotonic_ns, thread_ns},
    spec::ranks::Operation,
};

/// Fronts in each direction of an operation of `wavefront`.
const FRONTS: usize = 8;

/// CPU time between two looks of a busy rank, nanoseconds.
const LOOK_NS: u64 = 1_000_000;

/// Busy time of a rank before each exchange.
#[derive(Clone, Copy, Debug)]
pub struct Busy {
    each_ns: u64,
    /// Busy time so far, with waits for the CPU, nanoseconds.
    pub spent_ns: u64,
}

impl Busy {
    pub fn new(each_ns: u64) -> Self {
        Self { each_ns, spent_ns: 0 }
    }

    /// Uses the CPU for the time, by the thread's own clock: a rank that shares its CPU has as much work as another. It
    /// looks every [`LOOK_NS`] whether the rank must leave.
    fn work(&mut self, ranks: &dyn Communicator) -> Result<(), RankError> {
        if self.each_ns == 0 {
            return Ok(());
        }
        let begin_ns = monotonic_ns();
        let mut cpu_ns = thread_ns();
        let until_ns = cpu_ns.saturating_add(self.each_ns);
        let mut look_ns = cpu_ns;
        while cpu_ns < until_ns {
            if cpu_ns >= look_ns {
                ranks.go_on()?;
                look_ns = cpu_ns + LOOK_NS;
            }
            (0..64).for_each(|_| std::hint::spin_loop());
            cpu_ns = thread_ns();
        }
        self.spent_ns += monotonic_ns().saturating_sub(begin_ns);
        Ok(())
    }
}

/// Number of messages in the buffers to give and to get.
pub fn messages(operation: Operation, ranks: usize) -> (usize, usize) {
    match operation {
        Operation::Halo3d => (6, 6),
        Operation::Butterfly => (1, ranks.ilog2() as usize + 1),
        Operation::Wavefront => (4, 4),
        _ => (1, 1),
    }
}

/// The messages that a rank gets: the place in its buffer, the rank that sends it, and its number there.
pub fn got(operation: Operation, rank: usize, ranks: usize) -> Vec<(usize, usize, usize)> {
    match operation {
        Operation::Ring => vec![(0, (rank + ranks - 1) % ranks, 0)],
        Operation::Halo3d => {
            let faces = Cube::of(ranks).neighbours(rank).into_iter().enumerate();
            // The upper neighbour's lower face arrives at the upper side, and the other way round.
            faces.filter(|(_, neighbour)| *neighbour != rank).map(|(side, from)| (side, from, side ^ 1)).collect()
        }
        Operation::Butterfly => {
            let steps = (0..ranks.ilog2() as usize).map(|step| (step, rank ^ (1 << step), 0));
            let transposed = transposed(rank, ranks);
            let last = (transposed != rank).then_some((ranks.ilog2() as usize, transposed, 0));
            steps.chain(last).collect()
        }
        Operation::Wavefront => {
            let sides = plane(rank, ranks).into_iter().enumerate();
            sides.filter_map(|(side, neighbour)| Some((side, neighbour?, side ^ 1))).collect()
        }
        _ => Vec::new(),
    }
}

pub fn ring(ranks: &mut dyn Communicator, busy: &mut Busy, send: &[u8], receive: &mut [u8]) -> Result<(), RankError> {
    let (rank, size) = (ranks.rank(), ranks.size());
    busy.work(ranks)?;
    ranks.exchange((rank + 1) % size, send, (rank + size - 1) % size, receive)
}

pub fn halo3d(ranks: &mut dyn Communicator, busy: &mut Busy, send: &[u8], receive: &mut [u8]) -> Result<(), RankError> {
    let face = send.len() / 6;
    let rank = ranks.rank();
    let neighbours = Cube::of(ranks.size()).neighbours(rank);
    busy.work(ranks)?;
    for (side, to) in neighbours.into_iter().enumerate() {
        let from = neighbours[side ^ 1];
        // A dimension of one rank needs no exchange.
        if to != rank {
            let into = &mut receive[face * (side ^ 1)..face * ((side ^ 1) + 1)];
            ranks.exchange(to, &send[face * side..face * (side + 1)], from, into)?;
        }
    }
    Ok(())
}

pub fn butterfly(
    ranks: &mut dyn Communicator,
    busy: &mut Busy,
    send: &[u8],
    receive: &mut [u8],
) -> Result<(), RankError> {
    let (rank, size) = (ranks.rank(), ranks.size());
    let steps = size.ilog2() as usize;
    let place = |step: usize| step * send.len()..(step + 1) * send.len();
    for step in 0..steps {
        let partner = rank ^ (1 << step);
        busy.work(ranks)?;
        ranks.exchange(partner, send, partner, &mut receive[place(step)])?;
    }
    busy.work(ranks)?;
    match transposed(rank, size) {
        partner if partner == rank => Ok(()),
        partner => ranks.exchange(partner, send, partner, &mut receive[place(steps)]),
    }
}

pub fn wavefront(
    ranks: &mut dyn Communicator,
    busy: &mut Busy,
    send: &[u8],
    receive: &mut [u8],
) -> Result<(), RankError> {
    let message = send.len() / 4;
    let place = |side: usize| side * message..(side + 1) * message;
    let neighbours = plane(ranks.rank(), ranks.size());
    // Forward it comes from the sides 0 and 2 and goes to 1 and 3.
    for back in [0, 1] {
        for _ in 0..FRONTS {
            for side in [back, 2 + back] {
                if let Some(from) = neighbours[side] {
                    ranks.receive(from, &mut receive[place(side)])?;
                }
            }
            busy.work(ranks)?;
            for side in [1 - back, 3 - back] {
                if let Some(to) = neighbours[side] {
                    ranks.send(to, &send[place(side)])?;
                }
            }
        }
    }
    Ok(())
}

/// Ranks in three dimensions, as near a cube as their number allows; the first dimension has most and its ranks are
/// neighbours by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cube([usize; 3]);

impl Cube {
    fn of(ranks: usize) -> Self {
        let z = divisor(ranks, ranks.isqrt(), |z| z * z * z <= ranks);
        let y = divisor(ranks / z, (ranks / z).isqrt(), |_| true);
        let mut sides = [ranks / z / y, y, z];
        sides.sort_unstable_by(|a, b| b.cmp(a));
        Self(sides)
    }

    /// The lower and the upper neighbour in each dimension. The cube is periodic.
    fn neighbours(self, rank: usize) -> [usize; 6] {
        let [x, y, _] = self.0;
        let strides = [1, x, x * y];
        std::array::from_fn(|side| {
            let (length, stride) = (self.0[side / 2], strides[side / 2]);
            let own = rank / stride % length;
            let other = (own + if side % 2 == 0 { length - 1 } else { 1 }) % length;
            rank - own * stride + other * stride
        })
    }
}

/// The largest divisor up to `most` that fits.
fn divisor(of: usize, most: usize, fits: impl Fn(usize) -> bool) -> usize {
    (1..=most).rev().find(|candidate| of.is_multiple_of(*candidate) && fits(*candidate)).unwrap_or(1)
}

/// Neighbours in a plane without wrapping: before and behind in its rows, then in its columns.
fn plane(rank: usize, ranks: usize) -> [Option<usize>; 4] {
    let rows = divisor(ranks, ranks.isqrt(), |_| true);
    let columns = ranks / rows;
    let (row, column) = (rank / columns, rank % columns);
    [
        (column > 0).then(|| rank - 1),
        (column + 1 < columns).then(|| rank + 1),
        (row > 0).then(|| rank - columns),
        (row + 1 < rows).then(|| rank + columns),
    ]
}

/// The rank at the transposed place of CG's grid, which has as many columns as rows or twice as many.
fn transposed(rank: usize, ranks: usize) -> usize {
    let rows = 1 << (ranks.ilog2() / 2);
    if rows * rows == ranks {
        return rank % rows * rows + rank / rows;
    }
    2 * (rank / 2 % rows * rows + rank / 2 / rows) + rank % 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cubes_are_as_near_to_cubes_as_their_number_allows() {
        for (ranks, sides) in [
            (1, [1, 1, 1]),
            (2, [2, 1, 1]),
            (4, [2, 2, 1]),
            (8, [2, 2, 2]),
            (9, [3, 3, 1]),
            (7, [7, 1, 1]),
            (12, [3, 2, 2]),
            (64, [4, 4, 4]),
        ] {
            assert_eq!(Cube::of(ranks), Cube(sides), "{ranks}");
        }
        assert_eq!(Cube::of(27).neighbours(13), [12, 14, 10, 16, 4, 22]);
        assert_eq!(Cube::of(27).neighbours(0), [2, 1, 6, 3, 18, 9]);
    }

    #[test]
    fn every_neighbour_is_a_neighbour_back() {
        for ranks in 1..30 {
            for rank in 0..ranks {
                for (side, other) in Cube::of(ranks).neighbours(rank).into_iter().enumerate() {
                    assert_eq!(Cube::of(ranks).neighbours(other)[side ^ 1], rank);
                }
                for (side, other) in plane(rank, ranks).into_iter().enumerate() {
                    assert!(other.is_none_or(|other| plane(other, ranks)[side ^ 1] == Some(rank)));
                }
            }
        }
    }

    #[test]
    fn transposing_twice_leads_back() {
        for ranks in [2, 4, 8, 16, 32, 64] {
            assert!((0..ranks).all(|rank| transposed(transposed(rank, ranks), ranks) == rank), "{ranks}");
        }
        assert_eq!(transposed(1, 4), 2);
    }
}
