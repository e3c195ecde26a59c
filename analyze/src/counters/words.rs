//! Words between blanks, and the numbers among them.

/// The words of a line: what ASCII blanks divide, looked at byte by byte. In the tables that this is for, nothing else
/// divides, and `split_whitespace` spends its time on characters.
pub fn words(line: &str) -> impl Iterator<Item = &str> {
    let mut rest = line;
    std::iter::from_fn(move || {
        let start = rest.bytes().position(|b| !is_blank(b))?;
        let word = &rest[start..];
        let end = word.bytes().position(is_blank).unwrap_or(word.len());
        rest = &word[end..];
        Some(&word[..end])
    })
}

/// What stands before and after the last colon.
pub fn at_last_colon(line: &str) -> Option<(&str, &str)> {
    memchr::memrchr(b':', line.as_bytes()).map(|at| (&line[..at], &line[at + 1..]))
}

/// The blanks of ASCII as [`char::is_whitespace`] has them, which `is_ascii_whitespace` does not all.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// A word that should be a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Where it stands in the text.
    pub at: usize,
    /// Its length in bytes.
    pub len: usize,
    /// Its value where it is nothing but one to nineteen digits, which any 64 bits hold. Nearly every counter is.
    pub whole: Option<u64>,
}

/// The words between two places of a text, as [`words`] has them. Eight bytes are looked at together, which may be those
/// after the end: only at the end of the whole text are they looked at one by one.
pub struct Cells<'a> {
    text: &'a [u8],
    at: usize,
    end: usize,
}

impl<'a> Cells<'a> {
    pub fn new(text: &'a str, from: usize, end: usize) -> Self {
        Self { text: text.as_bytes(), at: from, end }
    }
}

impl Iterator for Cells<'_> {
    type Item = Cell;

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "handing a cell over in memory takes as long as finding it")]
    fn next(&mut self) -> Option<Cell> {
        let mut at = self.at;
        while let Some(eight) = eight(self.text, at) {
            let blanks = first_set(eight ^ u64::from_le_bytes([b' '; 8]));
            at += blanks;
            if blanks < 8 {
                break;
            }
        }
        while at < self.end && is_blank(self.text[at]) {
            at += 1;
        }
        if at >= self.end {
            self.at = self.end;
            return None;
        }
        let (len, whole) = digits(self.text, at);
        self.at = at + len;
        if self.at == self.end || (self.at < self.end && is_blank(self.text[self.at])) {
            return Some(Cell { at, len, whole });
        }
        self.at = blank(self.text, at, self.end);
        Some(Cell { at, len: self.at - at, whole: None })
    }
}

/// The first blank from a place on; `end` where there is none before it.
fn blank(text: &[u8], from: usize, end: usize) -> usize {
    let mut at = from;
    while at < end {
        match eight(text, at) {
            Some(eight) => {
                // A byte's highest bit is set where it is below `!`. What is borrowed spoils only the bytes after it.
                let below = eight.wrapping_sub(u64::from_le_bytes([b'!'; 8])) & !eight & HIGHEST;
                at += first_set(below);
                if below == 0 {
                    continue;
                }
            }
            None if text[at] > b' ' => {
                at += 1;
                continue;
            }
            None => {}
        }
        if at < end && is_blank(text[at]) {
            return at;
        }
        at += 1;
    }
    end
}

/// The highest bit of each byte.
const HIGHEST: u64 = u64::from_le_bytes([128; 8]);

fn eight(text: &[u8], at: usize) -> Option<u64> {
    text.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

/// The index of the first byte in which a bit is set; 8 where there is none.
fn first_set(bytes: u64) -> usize {
    bytes.trailing_zeros() as usize / 8
}

/// How many digits there are from a place on, and their value unless they are more than nineteen.
#[inline]
fn digits(text: &[u8], from: usize) -> (usize, Option<u64>) {
    const POWERS: [u64; 9] = [1, 10, 100, 1000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000];
    let (mut len, mut value) = (0, 0_u64);
    let mut inside = true;
    while inside && let Some(eight) = eight(text, from + len) {
        let values = eight ^ u64::from_le_bytes([b'0'; 8]);
        // A byte's highest bit is set where it is above nine. What carries over spoils only the bytes after it.
        let above = (values.wrapping_add(u64::from_le_bytes([118; 8])) | values) & HIGHEST;
        let count = first_set(above);
        if count > 0 {
            value = value.wrapping_mul(POWERS[count]).wrapping_add(eight_digits(values << (64 - 8 * count)));
        }
        len += count;
        inside = count == 8;
    }
    while inside && let Some(digit) = text.get(from + len).map(|b| b.wrapping_sub(b'0')).filter(|d| *d <= 9) {
        value = value.wrapping_mul(10).wrapping_add(digit.into());
        len += 1;
    }
    (len, (1..20).contains(&len).then_some(value))
}

/// The number that eight digits make, the first of them in the lowest byte: neighbours are put together three times.
fn eight_digits(digits: u64) -> u64 {
    let pairs = digits.wrapping_mul(10).wrapping_add(digits >> 8);
    let low = (pairs & 0x0000_00ff_0000_00ff).wrapping_mul(0x000f_4240_0000_0064);
    let high = (pairs >> 16 & 0x0000_00ff_0000_00ff).wrapping_mul(0x0000_2710_0000_0001);
    low.wrapping_add(high) >> 32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn words_are_those_of_the_standard_library(line in "[a-z0-9é \t\x0b\x0c\r]{0,40}") {
            prop_assert_eq!(words(&line).collect::<Vec<_>>(), line.split_whitespace().collect::<Vec<_>>());
        }

        #[test]
        fn cells_are_words_with_their_values(
            line in "([ \t\x0b]{0,12}([0-9]{1,22}|[a-z0-9é.:/\x01\x1f-]{1,12}))*\r?",
            after in "(\n[0-9a-z ]{0,20})?",
        ) {
            let text = format!("{line}{after}");
            let cells: Vec<Cell> = Cells::new(&text, 0, line.len()).collect();
            let found: Vec<&str> = cells.iter().map(|c| &text[c.at..c.at + c.len]).collect();
            prop_assert_eq!(&found, &line.split_whitespace().collect::<Vec<_>>());
            for (word, cell) in found.iter().zip(&cells) {
                let is_short = word.len() < 20 && word.bytes().all(|b| b.is_ascii_digit());
                prop_assert_eq!(cell.whole, is_short.then(|| word.parse().unwrap()));
            }
        }
    }
}
