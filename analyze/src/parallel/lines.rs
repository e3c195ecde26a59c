//! Finds the starts of the cells of lines: the innermost loop of [`super::fold`].

use std::ops::Range;

use fearless_simd::{Level, Simd, dispatch, prelude::*, u8x64};
use memchr::{memchr_iter, memchr2};

use super::bits::{EIGHT, nth, offset, within_quotes, write_all};

/// Bytes per step.
const STEP: usize = 64;

/// Lines that are searched in one go. Then choosing the processor's best instructions costs nothing per line, and the
/// results stay in the nearest cache.
const LINES: usize = 32;

/// The separators that [`Starts`] looks for in each line. Separator 0 is before the first cell, the last one after the
/// last cell.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted {
    /// The separators to find, ascending; always includes the first and the last.
    separators: Vec<u32>,
    /// For each separator its index in that list, or [`ELSEWHERE`].
    slots: Vec<u32>,
}

/// The slot of a separator that is not wanted.
pub(super) const ELSEWHERE: u32 = u32::MAX;

impl Wanted {
    /// Every cell of lines of `width` cells.
    pub(super) fn all(width: usize) -> Self {
        Self::separators(width, |_| true)
    }

    /// The ends of runs of neighbouring cells, given as first and last.
    pub(super) fn runs(width: usize, runs: &[(usize, usize)]) -> Self {
        let some = Self::separators(width, |s| {
            s == 0 || s == width || runs.iter().any(|(first, last)| *first == s || *last + 1 == s)
        });
        // If most are wanted, one by one costs more than all together.
        if some.separators.len() * 2 > width { Self::all(width) } else { some }
    }

    fn separators(width: usize, wanted: impl Fn(usize) -> bool) -> Self {
        let mut new = Self::default();
        for separator in 0..=width {
            new.slots.push(if wanted(separator) { offset(new.separators.len()) } else { ELSEWHERE });
            if wanted(separator) {
                new.separators.push(offset(separator));
            }
        }
        new
    }

    /// The index of a separator in [`Starts::slots`], or [`ELSEWHERE`].
    pub(super) fn slot(&self, separator: usize) -> u32 {
        self.slots[separator]
    }

    /// The nearest wanted separator at or before this one.
    pub(super) fn before(&self, separator: usize) -> usize {
        self.slots[..=separator].iter().rposition(|slot| *slot != ELSEWHERE).unwrap_or(0)
    }

    fn is_all(&self) -> bool {
        self.separators.len() == self.slots.len()
    }
}

/// Whether one bit per quote tells which commas are text: every quote begins or ends a cell, none is doubled, and no
/// quoted cell has a line end. A case's name with two axes is quoted like that (`"bulk[streams=4,message_size=64]"`).
pub(super) fn simply_quoted(text: &[u8]) -> bool {
    let mut quotes = memchr_iter(b'"', text);
    while let Some(open) = quotes.next() {
        let Some(close) = quotes.next() else { return false };
        let begins = open == 0 || matches!(text[open - 1], b',' | b'\n');
        let ends = matches!(&text[close + 1..], [] | [b',' | b'\n', ..] | [b'\r', b'\n', ..]);
        if !begins || !ends || memchr2(b'\n', b'\r', &text[open..close]).is_some() {
            return false;
        }
    }
    true
}

/// Starts of the wanted cells of consecutive lines. Quotes in the lines are simple ([`simply_quoted`]).
#[derive(Debug, Default)]
pub(super) struct Starts {
    /// Whether there are quotes.
    quoted: bool,
    /// For each line and wanted separator, the offset in the text of what follows it. The space behind is scratch.
    at: Vec<u32>,
    /// The number of cells of each line.
    cells: Vec<u32>,
    /// Wanted separators per line.
    stride: usize,
    /// The current line, and the number of lines found.
    line: usize,
    lines: usize,
    /// The start of the line after them.
    end: usize,
}

impl Starts {
    pub(super) fn new(quoted: bool) -> Self {
        Self { quoted, ..Self::default() }
    }

    /// Moves to the next line of `text`; `false` after the last.
    #[inline]
    pub(super) fn advance(&mut self, text: &[u8], wanted: &Wanted) -> bool {
        self.line += 1;
        if self.line >= self.lines {
            if self.end >= text.len() {
                return false;
            }
            dispatch!(Level::new(), simd => self.find(simd, text, wanted));
        }
        true
    }

    /// For each wanted separator of the line, the offset in the text of what follows it.
    #[inline]
    pub(super) fn slots(&self) -> &[u32] {
        &self.at[self.line * self.stride..][..self.stride]
    }

    /// The line without its line end.
    #[inline]
    pub(super) fn range(&self) -> Range<usize> {
        let slots = self.slots();
        slots[0] as usize..slots[self.stride - 1] as usize - 1
    }

    /// The number of cells of the line. If it differs from the width of [`Wanted`], the slots mean nothing.
    #[inline]
    pub(super) fn width(&self) -> usize {
        self.cells[self.line] as usize
    }

    /// Finds the wanted cells of the next [`LINES`] lines.
    ///
    /// Most of the contract's hundred columns are empty or short. So commas are too dense for a search that starts anew
    /// after each one. Here 64 bytes become one word with a bit for each comma. Cells that were not asked for are only
    /// counted.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "to be compiled for the instructions of the caller's choice")]
    fn find<S: Simd>(&mut self, simd: S, text: &[u8], wanted: &Wanted) {
        let stride = wanted.separators.len();
        let inner = &wanted.separators[..stride - 1];
        let all = wanted.is_all();
        // Space for one more step of commas, which are written eight at a time.
        self.at.resize(LINES * stride + STEP + EIGHT, 0);
        self.cells.resize(LINES, 0);
        self.stride = stride;
        (self.line, self.lines) = (0, 0);
        let comma = u8x64::splat(simd, b',');
        let newline = u8x64::splat(simd, b'\n');
        let quote = u8x64::splat(simd, b'"');
        let quoted = self.quoted;
        while self.lines < LINES && self.end < text.len() {
            let slots = &mut self.at[self.lines * stride..];
            slots[0] = offset(self.end);
            // Commas so far, and the next wanted separator.
            let (mut commas, mut next) = (0, 1);
            let mut base = self.end;
            // All ones while a quote is open at the end of a step.
            let mut open = 0;
            let end = loop {
                let bytes: u8x64<S> = match text[base..].first_chunk::<STEP>() {
                    Some(bytes) => (*bytes).simd_into(simd),
                    None => padded(&text[base..]).simd_into(simd),
                };
                let ends = bytes.simd_eq(newline).to_bitmask();
                // All bits below the lowest line end; all bits if there is none.
                let within = ends.wrapping_sub(1) & !ends;
                let mut set = bytes.simd_eq(comma).to_bitmask() & within;
                if quoted {
                    set &= !within_quotes(bytes.simd_eq(quote).to_bitmask(), &mut open);
                }
                let count = set.count_ones();
                if all {
                    if (commas as usize) < stride {
                        write_all(&mut slots[1 + commas as usize..], set, base);
                    }
                } else {
                    while let Some(separator) = inner.get(next)
                        && *separator <= commas + count
                    {
                        slots[next] = offset(base) + nth(simd, set, *separator - commas - 1) + 1;
                        next += 1;
                    }
                }
                commas += count;
                if ends != 0 {
                    break base + ends.trailing_zeros() as usize;
                }
                base += STEP;
                if base >= text.len() {
                    break text.len();
                }
            };
            let carriage_return = end > self.end && text[end - 1] == b'\r';
            slots[stride - 1] = offset(end - usize::from(carriage_return) + 1);
            self.cells[self.lines] = commas + 1;
            self.lines += 1;
            self.end = end + 1;
        }
    }
}

fn padded(bytes: &[u8]) -> [u8; STEP] {
    let mut padded = [0; STEP];
    padded[..bytes.len()].copy_from_slice(bytes);
    padded
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The finds in every line: its text, its number of cells, and the cells of the runs if that number is the width.
    fn found(
        text: &[u8],
        wanted: &Wanted,
        width: usize,
        runs: &[(usize, usize)],
    ) -> Vec<(Vec<u8>, usize, Vec<Vec<u8>>)> {
        let mut starts = Starts::default();
        let mut lines = Vec::new();
        while starts.advance(text, wanted) {
            let mut cells = Vec::new();
            if starts.width() == width {
                let at = |separator: usize| starts.slots()[wanted.slot(separator) as usize] as usize;
                cells = runs.iter().map(|(a, b)| text[at(*a)..at(b + 1) - 1].to_vec()).collect();
            }
            lines.push((text[starts.range()].to_vec(), starts.width(), cells));
        }
        lines
    }

    /// The same, the plain way.
    fn split(text: &[u8], width: usize, runs: &[(usize, usize)]) -> Vec<(Vec<u8>, usize, Vec<Vec<u8>>)> {
        let mut lines: Vec<&[u8]> = text.split(|b| *b == b'\n').collect();
        if lines.last().is_some_and(|last| last.is_empty()) {
            lines.pop();
        }
        let line = |line: &[u8]| {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let cells: Vec<&[u8]> = line.split(|b| *b == b',').collect();
            let mut wanted = Vec::new();
            if cells.len() == width {
                wanted = runs.iter().map(|(a, b)| cells[*a..=*b].join(&b',')).collect();
            }
            (line.to_vec(), cells.len(), wanted)
        };
        lines.into_iter().map(line).collect()
    }

    fn some_runs(width: usize, seeds: &[usize]) -> Vec<(usize, usize)> {
        let run = |seed: &usize| (seed % width, seed % width + seed / width % (width - seed % width));
        seeds.iter().map(run).collect()
    }

    const LETTERS: &str = "abcdefghijklmnopqrstuvwxyz";

    proptest! {
        /// Lines that are as wide as wanted, at every place in a step of 64 bytes, with others among them.
        #[test]
        fn cells_are_what_splitting_gives(
            width in 1usize..90,
            lengths in prop::collection::vec(prop::collection::vec(prop_oneof![0usize..4, 0usize..91], 90), 0..9),
            odd in "([a,]{0,9}\r?\n){0,3}",
            ending in prop::sample::select(vec!["\n", "\r\n"]),
            last in any::<bool>(),
            seeds in prop::collection::vec(0usize..8100, 0..6),
        ) {
            let mut text = odd.clone();
            for (line, lengths) in lengths.iter().enumerate() {
                // Neighbours have other letters.
                let cell = |(i, length): (usize, &usize)| LETTERS[(3 * line + i) % 26..][..1].repeat(*length);
                text += &lengths[..width].iter().enumerate().map(cell).collect::<Vec<_>>().join(",");
                text += ending;
            }
            text += &odd;
            if last {
                text += &vec!["z"; width].join(",");
            }
            let runs = some_runs(width, &seeds);
            let expected = split(text.as_bytes(), width, &runs);
            let sparse = Wanted::separators(width, |s| s == 0 || s == width || runs.iter().any(|(a, b)| *a == s || *b + 1 == s));
            for wanted in [Wanted::all(width), Wanted::runs(width, &runs), sparse] {
                prop_assert_eq!(&found(text.as_bytes(), &wanted, width, &runs), &expected);
            }
        }

        /// Any bytes at all, ragged and empty lines included.
        #[test]
        fn random_bytes(
            bytes in prop::collection::vec(prop::sample::select(b",,,\n\r\"a\x00\xff\xac\x2d".to_vec()), 0..700),
            width in 1usize..30, seeds in prop::collection::vec(0usize..900, 0..6),
        ) {
            let runs = some_runs(width, &seeds);
            let expected = split(&bytes, width, &runs);
            prop_assert_eq!(&found(&bytes, &Wanted::all(width), width, &runs), &expected);
            prop_assert_eq!(&found(&bytes, &Wanted::runs(width, &runs), width, &runs), &expected);
        }
    }

    /// Every instruction set that this machine has says the same.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn older_processors_find_the_same() {
        let lines: Vec<String> = (0..500).map(|i| format!("{},,{},x", i * i, "y".repeat(i % 70))).collect();
        let text = lines.join("\n");
        let text = text.as_bytes();
        let best = Level::new();
        for wanted in [Wanted::all(4), Wanted::separators(4, |s| s != 2)] {
            let mut results = Vec::new();
            let mut all = |find: &dyn Fn(&mut Starts)| {
                let mut starts = Starts::default();
                let mut lines = Vec::new();
                while starts.end < text.len() {
                    find(&mut starts);
                    lines.push((
                        starts.at[..starts.lines * starts.stride].to_vec(),
                        starts.cells[..starts.lines].to_vec(),
                    ));
                }
                results.push(lines);
            };
            if let Some(simd) = best.as_avx512() {
                all(&|starts| starts.find(simd, text, &wanted));
            }
            if let Some(simd) = best.as_avx2() {
                all(&|starts| starts.find(simd, text, &wanted));
            }
            if let Some(simd) = best.as_sse4_2() {
                all(&|starts| starts.find(simd, text, &wanted));
            }
            if let Some(simd) = best.as_sse2() {
                all(&|starts| starts.find(simd, text, &wanted));
            }
            assert!(results.len() > 1 && results.windows(2).all(|pair| pair[0] == pair[1]));
        }
    }
}
