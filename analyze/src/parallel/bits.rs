//! Words with a bit for each of 64 bytes: which of them are commas or quotes.
#![expect(clippy::inline_always, reason = "to be compiled for the instructions of the caller's choice")]

use fearless_simd::Simd;

pub(super) const EIGHT: usize = 8;

#[expect(clippy::cast_possible_truncation, reason = "blocks are far below 4 GiB (RECORD_LIMIT)")]
pub(super) const fn offset(at: usize) -> u32 {
    at as u32
}

/// For every byte, the places of its set bits, lowest first.
const PLACES: [[u8; EIGHT]; 256] = {
    let mut places = [[0; EIGHT]; 256];
    let mut set: usize = 0;
    while set < 256 {
        let (mut bit, mut found) = (0, 0);
        while bit < 8 {
            if set >> bit & 1 == 1 {
                places[set][found] = bit;
                found += 1;
            }
            bit += 1;
        }
        set += 1;
    }
    places
};

const ONES: u64 = 0x0101_0101_0101_0101;

/// For each byte, the number of set bits in it and in all lower bytes.
#[inline(always)]
fn counts(set: u64) -> u64 {
    let pairs = set - (set >> 1 & 0x5555_5555_5555_5555);
    let fours = (pairs & 0x3333_3333_3333_3333) + (pairs >> 2 & 0x3333_3333_3333_3333);
    ((fours + (fours >> 4)) & 0x0f0f_0f0f_0f0f_0f0f).wrapping_mul(ONES)
}

/// Writes the offset after each comma of the set. The number of commas in eight bytes is hard to predict, so there is
/// no branch on it: always writes eight, and the next eight overwrite those that are too many.
#[inline(always)]
pub(super) fn write_all(slots: &mut [u32], set: u64, base: usize) {
    let before = counts(set) << 8;
    for i in 0..EIGHT {
        let first = (before >> (8 * i) & 0xff) as usize;
        if let Some(slots) = slots[first..].first_chunk_mut::<EIGHT>() {
            let base = offset(base + 8 * i + 1);
            let places = &PLACES[(set >> (8 * i) & 0xff) as usize];
            slots.iter_mut().zip(places).for_each(|(slot, place)| *slot = base + u32::from(*place));
        }
    }
}

/// The place of the n-th set bit, from 0. `set` must have that many.
#[inline(always)]
#[cfg_attr(not(target_arch = "x86_64"), expect(unused_variables, reason = "only x86_64 has a faster way"))]
pub(super) fn nth<S: Simd>(simd: S, set: u64, n: u32) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if let Some(avx512) = simd.level().as_avx512() {
        return nth_by_deposit(avx512, set, n);
    }
    nth_by_counts(set, n)
}

#[cfg(target_arch = "x86_64")]
fearless_simd::kernel!(
    /// Uses one instruction. AVX2 machines have it too, but the first two generations of Zen take hundreds of cycles
    /// for it.
    #[inline]
    fn nth_by_deposit(avx512: Avx512, set: u64, n: u32) -> u32 {
        core::arch::x86_64::_pdep_u64(1 << n, set).trailing_zeros()
    }
);

/// Uses the number of bits in each byte (Vigna, Broadword implementation of rank/select queries, 2008).
#[inline(always)]
fn nth_by_counts(set: u64, n: u32) -> u32 {
    const TOPS: u64 = 0x80 * ONES;
    let counts = counts(set);
    // A byte's top bit stays set exactly where it and the lower bytes hold at most n bits.
    let bytes = ((((u64::from(n) * ONES) | TOPS) - counts) & TOPS).count_ones();
    let before = (counts << 8) >> (8 * bytes) & 0xff;
    let places = &PLACES[(set >> (8 * bytes) & 0xff) as usize];
    8 * bytes + u32::from(places[((u64::from(n) - before) & 7) as usize])
}

/// Sets a bit for every byte from an opening quote up to its closing quote; `open` is carried from step to step.
#[inline]
pub(super) fn within_quotes(quotes: u64, open: &mut u64) -> u64 {
    // Each bit becomes the number of quotes up to it, modulo two.
    let mut within = quotes;
    for distance in [1, 2, 4, 8, 16, 32] {
        within ^= within << distance;
    }
    within ^= *open;
    *open = if within >> 63 == 1 { u64::MAX } else { 0 };
    within
}

#[cfg(test)]
mod tests {
    use super::*;
    use fearless_simd::{Level, dispatch};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_way_to_the_nth_bit(set: u64, n: u32) {
            prop_assume!(set != 0);
            let n = n % set.count_ones();
            let expected = (0..64).filter(|bit| set >> bit & 1 == 1).nth(n as usize);
            prop_assert_eq!(Some(nth_by_counts(set, n)), expected);
            let best = dispatch!(Level::new(), simd => nth(simd, set, n));
            prop_assert_eq!(Some(best), expected);
        }
    }
}
