//! EP, "embarrassingly parallel": Gaussian deviates from pairs of random numbers. The ranks talk only to add up their results.

use super::{Calls, Random};
use crate::{
    ranks::{Communicator, RankError},
    spec::ranks::Class,
};

/// Memory of a rank, bytes: there are no arrays.
pub const BYTES: u64 = 64 * 1024;

const SEED: u64 = 271_828_183;

/// Pairs between two looks at whether to go on: some milliseconds.
const LOOK_UP: u64 = 1 << 16;

/// Square annuli in which deviates are counted.
const ANNULI: usize = 10;

pub struct Ep {
    pub class: Class,
    /// This rank's pairs.
    first: u64,
    end: u64,
    /// Sums of the deviates, then counts by annulus.
    sums: [f64; 2 + ANNULI],
}

/// The base-2 logarithm of the number of pairs, and the published sums.
fn facts(class: Class) -> (u32, [f64; 2]) {
    match class {
        Class::S => (24, [-3.247_834_652_034_74e3, -6.958_407_078_382_297e3]),
        Class::W => (25, [-2.863_319_731_645_753e3, -6.320_053_679_109_499e3]),
        Class::A => (28, [-4.295_875_165_629_892e3, -1.580_732_573_678_431e4]),
        Class::B => (30, [4.033_815_542_441_498e4, -2.660_669_192_809_235e4]),
    }
}

/// Random numbers drawn by all ranks.
pub fn operations(class: Class) -> f64 {
    (1_u64 << (facts(class).0 + 1)) as f64
}

impl Ep {
    pub fn new(class: Class, rank: usize, size: usize) -> Self {
        let pairs = 1_u128 << facts(class).0;
        // A part of 2^30 pairs.
        let start = |rank: usize| u64::try_from(pairs * rank as u128 / size as u128).unwrap_or(u64::MAX);
        Self { class, first: start(rank), end: start(rank + 1), sums: [0.0; 2 + ANNULI] }
    }

    /// The timed part.
    pub fn generate<C: Communicator>(&mut self, calls: &mut Calls<'_, C>) -> Result<(), RankError> {
        let mut random = Random::after(SEED, 2 * self.first);
        let (mut sums, mut counts) = ([0.0; 2], [0_u32; ANNULI]);
        let mut left = self.end - self.first;
        while left > 0 {
            let pairs = left.min(LOOK_UP);
            deviates(&mut random, pairs, &mut sums, &mut counts);
            left -= pairs;
            calls.go_on()?;
        }
        self.sums[..2].copy_from_slice(&sums);
        for (sum, count) in self.sums[2..].iter_mut().zip(counts) {
            *sum = f64::from(count);
        }
        // Three calls, as in the suite.
        let (x, others) = self.sums.split_at_mut(1);
        let (y, counts) = others.split_at_mut(1);
        calls.allreduce(x)?;
        calls.allreduce(y)?;
        calls.allreduce(counts)
    }

    /// Checks, and those that held.
    pub fn verify(&self) -> (u32, u32) {
        let published = facts(self.class).1;
        let holds = |(sum, published): &(&f64, f64)| ((*sum - published) / published).abs() <= 1e-8;
        let held = self.sums[..2].iter().zip(published).filter(holds).count();
        (2, u32::try_from(held).unwrap_or(0))
    }
}

/// Marsaglia's polar method on so many pairs.
fn deviates(random: &mut Random, pairs: u64, sums: &mut [f64; 2], counts: &mut [u32; ANNULI]) {
    for _ in 0..pairs {
        let x = 2.0 * random.draw() - 1.0;
        let y = 2.0 * random.draw() - 1.0;
        let t = x * x + y * y;
        if t <= 1.0 {
            let factor = (-2.0 * t.ln() / t).sqrt();
            let (x, y) = (x * factor, y * factor);
            // No deviate of these sequences is beyond the last annulus.
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let annulus = x.abs().max(y.abs()) as usize;
            counts[annulus.min(ANNULI - 1)] += 1;
            sums[0] += x;
            sums[1] += y;
        }
    }
}
