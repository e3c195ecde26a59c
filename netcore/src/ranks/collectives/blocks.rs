//! Partitions of a buffer, and sums of its numbers.

use std::ops::Range;

use super::super::{Communicator, RankError};

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
pub fn exchange_within<C: Communicator>(
    ranks: &mut C,
    buffer: &mut [u8],
    (to, out): (usize, Range<usize>),
    (from, into): (usize, Range<usize>),
) -> Result<(), RankError> {
    // Parts are blocks of one partition, so they cannot overlap.
    let [out, into] = buffer.get_disjoint_mut([out, into]).expect("different blocks");
    ranks.exchange(to, out, from, into)
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
