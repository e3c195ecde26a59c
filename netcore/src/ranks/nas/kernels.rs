//! The kernels EP and IS.
//!
//! EP, "embarrassingly parallel": Gaussian deviates from pairs of random numbers. The ranks talk only to add up their results.
//!
//! IS, "integer sort": ranks of keys by a bucket sort in which all ranks send keys to all. Each iteration adds up the sizes of
//! the buckets, gives each rank a run of buckets with nearly as many keys as any other, sends the keys there, and counts them.
//! Any number of ranks sorts the same keys, since each begins at its place in the sequence; the suite asks for a power of two.

use super::{Calls, Random};
use crate::{ranks::RankError, spec::ranks::Class};

const IS_SEED: u64 = 314_159_265;

/// Timed iterations. One more comes before them.
const ITERATIONS: u32 = 10;

/// Keys whose rank is known.
const TESTS: usize = 5;

const KEY_BYTES: usize = size_of::<u32>();

/// Sizes as base-2 logarithms, and places of test keys with their ranks.
struct Facts {
    keys: u32,
    greatest: u32,
    buckets: u32,
    places: [u64; TESTS],
    ranks: [i64; TESTS],
    /// Sign and offset by which the iteration's number is added to a rank.
    moves: [(i64, i64); TESTS],
}

fn facts_of_is(class: Class) -> Facts {
    const UP: (i64, i64) = (1, 0);
    const DOWN: (i64, i64) = (-1, 0);
    match class {
        Class::S => Facts {
            keys: 16,
            greatest: 11,
            buckets: 9,
            places: [48_427, 17_148, 23_627, 62_548, 4_431],
            ranks: [0, 18, 346, 64_917, 65_463],
            moves: [UP, UP, UP, DOWN, DOWN],
        },
        Class::W => Facts {
            keys: 20,
            greatest: 16,
            buckets: 10,
            places: [357_773, 934_767, 875_723, 898_999, 404_505],
            ranks: [1_249, 11_698, 1_039_987, 1_043_896, 1_048_018],
            moves: [(1, -2), (1, -2), DOWN, DOWN, DOWN],
        },
        Class::A => Facts {
            keys: 23,
            greatest: 19,
            buckets: 10,
            places: [2_112_377, 662_041, 5_336_171, 3_642_833, 4_250_760],
            ranks: [104, 17_523, 123_928, 8_288_932, 8_388_264],
            moves: [(1, -1), (1, -1), (1, -1), (-1, 1), (-1, 1)],
        },
        Class::B => Facts {
            keys: 25,
            greatest: 21,
            buckets: 10,
            places: [41_869, 812_306, 5_102_857, 18_232_239, 26_860_214],
            ranks: [33_422_937, 10_244, 59_149, 33_135_281, 99],
            moves: [DOWN, UP, UP, DOWN, UP],
        },
    }
}

/// Memory of the rank that needs most, bytes: its keys, the same in buckets, those that it gets with room for a third more,
/// the same sorted, and a count for each value.
pub fn memory_bytes(class: Class, ranks: u32) -> u64 {
    let facts = facts_of_is(class);
    let own = (1_u64 << facts.keys).div_ceil(u64::from(ranks.max(1)));
    let values = (1_u64 << facts.greatest).div_ceil(u64::from(ranks.max(1))) * 3;
    let bytes = KEY_BYTES as u64;
    own * bytes * 2 + most_keys(own) * bytes * 2 + values * bytes + (64 << facts.buckets)
}

/// Room for the keys that a rank gets: buckets are not cut.
fn most_keys(own: u64) -> u64 {
    own + own / 3 + 4096
}

/// Keys ranked by all ranks.
pub fn operations_of_is(class: Class) -> f64 {
    f64::from(ITERATIONS) * (1_u64 << facts_of_is(class).keys) as f64
}

pub struct Is {
    pub class: Class,
    facts: Facts,
    size: usize,
    /// Place of this rank's first key among all.
    first: u64,
    keys: Vec<u32>,
    /// The keys in the order of their buckets, as they travel.
    bucketed: Vec<u8>,
    /// Sizes of the buckets over all ranks, and values of the test keys.
    totals: Vec<f64>,
    /// Keys that this rank has got, in no order.
    received: Vec<u8>,
    /// Number of keys of each value from `least` on.
    counts: Vec<u32>,
    least: u32,
    /// Keys at the ranks before.
    before: u64,
    passed: u32,
}

impl Is {
    /// Draws the keys. `None`: the memory is not there.
    pub fn new(class: Class, rank: usize, size: usize) -> Option<Self> {
        let facts = facts_of_is(class);
        let all = 1_u128 << facts.keys;
        let start = |rank: usize| u64::try_from(all * rank as u128 / size as u128).unwrap_or(u64::MAX);
        let first = start(rank);
        let own = usize::try_from(start(rank + 1) - first).ok()?;
        let mut keys = Vec::new();
        keys.try_reserve_exact(own).ok()?;
        let mut random = Random::after(IS_SEED, 4 * first);
        let quarter = f64::from(1_u32 << facts.greatest) / 4.0;
        keys.extend((0..own).map(|_| {
            let sum = random.draw() + random.draw() + random.draw() + random.draw();
            // Below 2^21.
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let key = (quarter * sum) as u32;
            key
        }));
        let mut bucketed = Vec::new();
        bucketed.try_reserve_exact(own * KEY_BYTES).ok()?;
        bucketed.resize(own * KEY_BYTES, 0);
        let mut received = Vec::new();
        received.try_reserve_exact(usize::try_from(most_keys(own as u64)).ok()? * KEY_BYTES).ok()?;
        let totals = vec![0.0; (1 << facts.buckets) + TESTS];
        let (counts, least, before, passed) = (Vec::new(), 0, 0, 0);
        Some(Self { class, facts, size, first, keys, bucketed, totals, received, counts, least, before, passed })
    }

    /// Changes a key.
    #[cfg(test)]
    pub fn spoil(&mut self) {
        self.keys[500] ^= 1 << (self.facts.greatest - 1);
    }

    /// The timed iterations.
    pub fn sort(&mut self, calls: &mut Calls<'_>) -> Result<(), RankError> {
        self.passed = 0;
        for iteration in 1..=ITERATIONS {
            self.iterate(calls, iteration)?;
        }
        Ok(())
    }

    /// Ranks the keys once, with two of them changed.
    pub fn iterate(&mut self, calls: &mut Calls<'_>, iteration: u32) -> Result<(), RankError> {
        calls.go_on()?;
        self.set(iteration.into(), iteration);
        self.set(u64::from(iteration + ITERATIONS), (1 << self.facts.greatest) - iteration);
        let sizes = self.fill_buckets();
        self.tell_tests();
        calls.allreduce(&mut self.totals)?;
        let first_buckets = self.distribute();
        self.send_keys(calls, &sizes, &first_buckets)?;
        self.count(&first_buckets, calls.rank());
        self.check(iteration);
        Ok(())
    }

    /// Changes the key at a place, if it is this rank's.
    fn set(&mut self, place: u64, key: u32) {
        let own = place.checked_sub(self.first).and_then(|place| self.keys.get_mut(usize::try_from(place).ok()?));
        if let Some(own) = own {
            *own = key;
        }
    }

    /// The place of the first bit of a key's bucket.
    fn shift(&self) -> u32 {
        self.facts.greatest - self.facts.buckets
    }

    /// Sorts this rank's keys into buckets and returns their sizes, which are also its part of the totals.
    fn fill_buckets(&mut self) -> Vec<usize> {
        let shift = self.shift();
        let mut sizes = vec![0; 1 << self.facts.buckets];
        self.keys.iter().for_each(|key| sizes[(key >> shift) as usize] += 1);
        let mut places: Vec<usize> = sizes
            .iter()
            .scan(0, |end, size| {
                *end += size;
                Some(*end - size)
            })
            .collect();
        let bucketed = self.bucketed.as_chunks_mut::<KEY_BYTES>().0;
        for key in &self.keys {
            let place = &mut places[(key >> shift) as usize];
            bucketed[*place] = key.to_ne_bytes();
            *place += 1;
        }
        self.totals.iter_mut().zip(&sizes).for_each(|(total, size)| *total = *size as f64);
        sizes
    }

    /// Puts the test keys that this rank has behind the sizes. Those of the others are 0, so that sums tell them to all.
    fn tell_tests(&mut self) {
        let behind = self.totals.len() - TESTS;
        for (told, place) in self.totals[behind..].iter_mut().zip(self.facts.places) {
            let own = place.checked_sub(self.first).and_then(|place| self.keys.get(usize::try_from(place).ok()?));
            *told = own.copied().map_or(0.0, f64::from);
        }
    }

    /// The first bucket of each rank, and the end of the last: each takes buckets until all before have their share.
    fn distribute(&self) -> Vec<usize> {
        let buckets = 1 << self.facts.buckets;
        let all = (1_u64 << self.facts.keys) as f64;
        let mut firsts = Vec::with_capacity(self.size + 1);
        firsts.push(0);
        let mut keys = 0.0;
        for (bucket, total) in self.totals[..buckets].iter().enumerate() {
            keys += total;
            if keys * self.size as f64 >= firsts.len() as f64 * all && firsts.len() < self.size {
                firsts.push(bucket + 1);
            }
        }
        firsts.resize(self.size + 1, buckets);
        firsts
    }

    fn send_keys(&mut self, calls: &mut Calls<'_>, sizes: &[usize], first_buckets: &[usize]) -> Result<(), RankError> {
        let numbers = |runs: &[usize]| -> Vec<u32> {
            // A part of 2^25 keys.
            let number = |run: &[usize]| sizes[run[0]..run[1]].iter().sum::<usize>();
            runs.windows(2).map(|run| u32::try_from(number(run)).unwrap_or(u32::MAX)).collect()
        };
        let given = numbers(first_buckets);
        let mut got = vec![0; self.size];
        calls.alltoall(&given, &mut got)?;
        let starts = |numbers: &[u32]| -> Vec<usize> {
            let ends = numbers.iter().scan(0, |end, number| {
                *end += *number as usize * KEY_BYTES;
                Some(*end)
            });
            std::iter::once(0).chain(ends).collect()
        };
        let (out, into) = (starts(&given), starts(&got));
        self.received.resize(into[self.size], 0);
        calls.alltoallv(&self.bucketed, &out, &mut self.received, &into)
    }

    /// Counts the keys of each value, and those at the ranks before.
    fn count(&mut self, first_buckets: &[usize], rank: usize) {
        let shift = self.shift();
        let (first, end) = (first_buckets[rank], first_buckets[rank + 1]);
        self.before = whole(self.totals[..first].iter().sum());
        // Values are below 2^21.
        self.least = u32::try_from(first << shift).unwrap_or(u32::MAX);
        self.counts.clear();
        self.counts.resize((end - first) << shift, 0);
        for key in self.received.as_chunks::<KEY_BYTES>().0 {
            self.counts[(u32::from_ne_bytes(*key) - self.least) as usize] += 1;
        }
    }

    /// Compares the ranks of the test keys whose values are this rank's.
    fn check(&mut self, iteration: u32) {
        let tests = self.totals[self.totals.len() - TESTS..].iter().map(|key| whole(*key));
        for (index, key) in tests.enumerate() {
            let Some(below) = key.checked_sub(self.least.into()).and_then(|below| usize::try_from(below).ok()) else {
                continue;
            };
            if below >= self.counts.len() {
                continue;
            }
            let smaller: u64 = self.counts[..below].iter().map(|count| u64::from(*count)).sum();
            let (sign, offset) = self.facts.moves[index];
            let published = self.facts.ranks[index] + sign * i64::from(iteration) + offset;
            self.passed += u32::from(i64::try_from(self.before + smaller) == Ok(published));
        }
    }

    /// Sorts the keys by their counts and compares them with those of the rank before. Returns the checks of all ranks, and
    /// those that held.
    pub fn verify(&mut self, calls: &mut Calls<'_>) -> Result<(u32, u32), RankError> {
        let mut places: Vec<usize> = self
            .counts
            .iter()
            .scan(0, |end, count| {
                *end += *count as usize;
                Some(*end - *count as usize)
            })
            .collect();
        let mut sorted = vec![0; self.received.len() / KEY_BYTES];
        for key in self.received.as_chunks::<KEY_BYTES>().0 {
            let key = u32::from_ne_bytes(*key);
            let place = &mut places[(key - self.least) as usize];
            sorted[*place] = key;
            *place += 1;
        }
        let mut in_order = sorted.is_sorted();
        calls.chain(0, |greatest_before| {
            in_order &= sorted.first().is_none_or(|first| greatest_before <= *first);
            sorted.last().copied().unwrap_or(greatest_before)
        })?;
        let passed = self.passed + u32::from(in_order);
        let mut sum = [f64::from(passed), sorted.len() as f64];
        calls.allreduce(&mut sum)?;
        // A key that was lost would be missed by every rank.
        let complete = whole(sum[1]) == 1 << self.facts.keys;
        let ranks = u32::try_from(self.size).unwrap_or(u32::MAX);
        let passed = u32::try_from(whole(sum[0])).unwrap_or(0);
        Ok((ITERATIONS * u32::try_from(TESTS).unwrap_or(0) + ranks, if complete { passed } else { 0 }))
    }
}

/// A sum of whole numbers, all far below 2^53.
fn whole(sum: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let whole = sum as u64;
    whole
}

/// Memory of a rank, bytes: there are no arrays.
pub const EP_BYTES: u64 = 64 * 1024;

const EP_SEED: u64 = 271_828_183;

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
fn facts_of_ep(class: Class) -> (u32, [f64; 2]) {
    match class {
        Class::S => (24, [-3.247_834_652_034_74e3, -6.958_407_078_382_297e3]),
        Class::W => (25, [-2.863_319_731_645_753e3, -6.320_053_679_109_499e3]),
        Class::A => (28, [-4.295_875_165_629_892e3, -1.580_732_573_678_431e4]),
        Class::B => (30, [4.033_815_542_441_498e4, -2.660_669_192_809_235e4]),
    }
}

/// Random numbers drawn by all ranks.
pub fn operations_of_ep(class: Class) -> f64 {
    (1_u64 << (facts_of_ep(class).0 + 1)) as f64
}

impl Ep {
    pub fn new(class: Class, rank: usize, size: usize) -> Self {
        let pairs = 1_u128 << facts_of_ep(class).0;
        // A part of 2^30 pairs.
        let start = |rank: usize| u64::try_from(pairs * rank as u128 / size as u128).unwrap_or(u64::MAX);
        Self { class, first: start(rank), end: start(rank + 1), sums: [0.0; 2 + ANNULI] }
    }

    /// The timed part.
    pub fn generate(&mut self, calls: &mut Calls<'_>) -> Result<(), RankError> {
        let mut random = Random::after(EP_SEED, 2 * self.first);
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
        let published = facts_of_ep(self.class).1;
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
