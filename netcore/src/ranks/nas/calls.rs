//! The kernels' calls to other ranks: timed and counted.

use crate::{
    measure::clock::monotonic_ns,
    ranks::{
        Communicator, RankError,
        algorithm::Algorithm,
        collectives::{all, alltoall, blocks::NUMBER_BYTES},
        measuring::Counted,
    },
    report::RankTraffic,
    spec::ranks::Operation,
};

pub struct Calls<'a, C> {
    ranks: &'a mut C,
    /// Time in the calls, nanoseconds.
    pub time_ns: u64,
    pub traffic: RankTraffic,
    /// Scratch memory of the calls.
    sums: Vec<u8>,
    other: Vec<u8>,
}

impl<'a, C: Communicator> Calls<'a, C> {
    pub fn new(ranks: &'a mut C) -> Self {
        Self { ranks, time_ns: 0, traffic: RankTraffic::default(), sums: Vec::new(), other: Vec::new() }
    }

    pub fn rank(&self) -> usize {
        self.ranks.rank()
    }

    /// Forgets the time and the messages so far.
    pub fn restart(&mut self) {
        (self.time_ns, self.traffic) = (0, RankTraffic::default());
    }

    /// An error if the rank must leave: for work that is silent for long.
    pub fn go_on(&self) -> Result<(), RankError> {
        self.ranks.go_on()
    }

    fn timed(&mut self, call: impl FnOnce(&mut Counted<'_, C>) -> Result<(), RankError>) -> Result<(), RankError> {
        let begin_ns = monotonic_ns();
        let done = call(&mut Counted { ranks: self.ranks, traffic: &mut self.traffic });
        self.time_ns += monotonic_ns().saturating_sub(begin_ns);
        done
    }

    pub fn barrier(&mut self) -> Result<(), RankError> {
        self.timed(|ranks| all::barrier(ranks))
    }

    /// Replaces numbers by their sums over all ranks.
    pub fn allreduce(&mut self, numbers: &mut [f64]) -> Result<(), RankError> {
        let (mut sums, mut other) = (std::mem::take(&mut self.sums), std::mem::take(&mut self.other));
        sums.clear();
        sums.extend(numbers.iter().flat_map(|number| number.to_ne_bytes()));
        other.resize(sums.len(), 0);
        let algorithm = Algorithm::choose(Operation::Allreduce, sums.len());
        let done = self.timed(|ranks| all::allreduce(ranks, algorithm, &mut sums, &mut other));
        for (number, sum) in numbers.iter_mut().zip(sums.as_chunks::<NUMBER_BYTES>().0) {
            *number = f64::from_ne_bytes(*sum);
        }
        (self.sums, self.other) = (sums, other);
        done
    }

    /// Exchanges a number with each rank.
    pub fn alltoall(&mut self, numbers: &[u32], received: &mut [u32]) -> Result<(), RankError> {
        let given: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
        let (mut got, mut scratch) = (vec![0; given.len()], vec![0; 2 * given.len()]);
        let done = self.timed(|ranks| alltoall::bruck(ranks, &given, &mut got, &mut scratch));
        for (number, bytes) in received.iter_mut().zip(got.as_chunks::<4>().0) {
            *number = u32::from_ne_bytes(*bytes);
        }
        done
    }

    /// Exchanges blocks with each rank, by where they begin.
    pub fn alltoallv(&mut self, given: &[u8], out: &[usize], got: &mut [u8], into: &[usize]) -> Result<(), RankError> {
        self.timed(|ranks| alltoall::pairwise(ranks, given, out, got, into))
    }

    /// The greatest of the numbers of all ranks.
    pub fn greatest(&mut self, number: u64) -> Result<u64, RankError> {
        let mut got = vec![0; 8 * self.ranks.size()];
        let mut scratch = got.clone();
        self.timed(|ranks| all::allgather_bruck(ranks, &number.to_ne_bytes(), &mut got, &mut scratch))?;
        Ok(got.as_chunks::<8>().0.iter().map(|bytes| u64::from_ne_bytes(*bytes)).max().unwrap_or(number))
    }

    /// Passes a number on from rank to rank: `next` makes it of the one before.
    pub fn chain(&mut self, first: u32, next: impl FnOnce(u32) -> u32) -> Result<(), RankError> {
        let (rank, size) = (self.ranks.rank(), self.ranks.size());
        self.timed(|ranks| {
            let mut bytes = first.to_ne_bytes();
            if rank > 0 {
                ranks.receive(rank - 1, &mut bytes)?;
            }
            let bytes = next(u32::from_ne_bytes(bytes)).to_ne_bytes();
            if rank + 1 < size { ranks.send(rank + 1, &bytes) } else { Ok(()) }
        })
    }
}
