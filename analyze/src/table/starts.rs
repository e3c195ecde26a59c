//! Where the cells of a line begin: the innermost loop of every filter.

use std::ops::Range;

use memchr::memchr_iter;

/// Where the first cells of a line without quotes begin.
#[derive(Debug, Default)]
pub(super) struct Starts {
    /// Offsets into the block, one more than there are wanted cells, and then room that [`Starts::find`] writes into
    /// without looking.
    at: Vec<u32>,
    wanted: usize,
}

/// How many bytes are looked at together.
const STEP: usize = 8;

/// For every set of commas among eight bytes, as bits from the first byte on: where the cells after them begin.
const PLACES: [[u32; STEP]; 256] = {
    let mut places = [[0; STEP]; 256];
    let mut set = 0;
    while set < 256 {
        let (mut byte, mut found) = (0, 0);
        while byte < STEP {
            if set >> byte & 1 == 1 {
                places[set][found] = offset(byte + 1);
                found += 1;
            }
            byte += 1;
        }
        set += 1;
    }
    places
};

impl Starts {
    /// Finds the first `wanted` cells of the line that begins at `start` and ends with `text`, and counts the others.
    /// Returns how many there are; where that is fewer than were wanted, the rest are not to be asked for.
    ///
    /// Most cells of the contract's hundred columns are empty or short, so commas are too dense for a search that starts
    /// anew after each. Eight bytes are looked at together: x has a zero byte where there is a comma, and the sum below
    /// sets a byte's top bit exactly where it is not zero (Hacker's Delight, 6-1). How many commas eight bytes hold is
    /// hard to predict for the processor, so there is no branch on it: their places are looked up, eight are written in
    /// any case, and those too many are overwritten by the next.
    pub(super) fn find(&mut self, text: &[u8], start: usize, wanted: usize) -> usize {
        const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
        const ONES: u64 = 0x0101_0101_0101_0101;
        const COMMAS: u64 = b',' as u64 * ONES;
        // Brings the lowest bit of byte i to bit 56 + i.
        const GATHER: u64 = 0x0102_0408_1020_4080;
        self.wanted = wanted;
        // One for the first cell and one past the last, and a step's worth of commas more than were wanted.
        self.at.resize(wanted + 2 + STEP, 0);
        self.at[0] = offset(start);
        let mut found = 1;
        let mut base = start;
        let (words, rest) = text[start..].as_chunks::<STEP>();
        let mut words = words.iter();
        while found <= wanted {
            let Some(word) = words.next() else {
                for (i, byte) in rest.iter().enumerate() {
                    if *byte == b',' {
                        // Not more than a step's worth.
                        self.at[found] = offset(base + i + 1);
                        found += 1;
                    }
                }
                if found <= wanted {
                    self.at[found] = offset(text.len() + 1);
                }
                return found;
            };
            let x = u64::from_le_bytes(*word) ^ COMMAS;
            let commas = !(((x & LOW) + LOW) | x | LOW) >> 7;
            let places = &PLACES[(commas.wrapping_mul(GATHER) >> 56) as usize];
            if let Some(slots) = self.at[found..].first_chunk_mut::<STEP>() {
                let base = offset(base);
                slots.iter_mut().zip(places).for_each(|(slot, place)| *slot = base + place);
            }
            found += (commas.wrapping_mul(ONES) >> 56) as usize;
            base += STEP;
        }
        found + memchr_iter(b',', &text[base..]).count()
    }

    /// The bytes of neighbouring wanted cells, `first` to `last`, with the separators between them.
    #[inline]
    pub(super) fn cells(&self, first: usize, last: usize) -> Range<usize> {
        assert!(last < self.wanted, "cell {last} is looked at, but only the first {} were wanted", self.wanted);
        self.at[first] as usize..self.at[last + 1] as usize - 1
    }
}

#[expect(clippy::cast_possible_truncation, reason = "blocks are far below 4 GiB (RECORD_LIMIT)")]
const fn offset(at: usize) -> u32 {
    at as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn cells_are_what_splitting_gives(before in "[a,]{0,9}", line in "[a,]{0,60}|[a,b-f]{0,200}", wanted in 0usize..40) {
            let text = before.clone() + &line;
            let expected: Vec<&str> = line.split(',').collect();
            let mut starts = Starts::default();
            // What an earlier, longer line left behind must not matter.
            starts.find(",".repeat(300).as_bytes(), 0, 299);
            prop_assert_eq!(starts.find(text.as_bytes(), before.len(), wanted), expected.len());
            for (i, cell) in expected.iter().enumerate().take(wanted) {
                prop_assert_eq!(&text[starts.cells(i, i)], *cell);
            }
            if expected.len() >= wanted && wanted > 1 {
                prop_assert_eq!(&text[starts.cells(1, wanted - 1)], expected[1..wanted].join(","));
            }
        }
    }
}
