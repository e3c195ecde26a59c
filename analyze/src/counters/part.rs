//! Parts of two texts that can be read, paired and written by themselves.
//!
//! Two snapshots of one machine nearly always have the same lines in the same order. They are cut after the same number of
//! lines; whether the parts then belong together, their counters' names decide ([`super::walk`]).

use memchr::{memchr, memchr_iter};

use super::Format;

/// Some of the lines of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Bytes of the text's head, which says what the columns are and is read before the lines of each part.
    head: usize,
    /// Its first byte.
    pub from: usize,
    /// The first byte after it.
    pub to: usize,
    /// How many lines the text has before it.
    before: u64,
}

impl Part {
    /// All of a text.
    pub fn whole(text: &str) -> Self {
        Self { head: 0, from: 0, to: text.len(), before: 0 }
    }

    /// The part and all that follows it.
    pub fn to_end(self, text: &str) -> Self {
        Self { to: text.len(), ..self }
    }

    /// The lines with their numbers from 1, those of the head first.
    pub fn lines<'a>(&self, text: &'a str) -> impl Iterator<Item = (u64, &'a str)> + use<'a> {
        // The first part has the head as its own.
        let head = if self.from == 0 { "" } else { &text[..self.head] };
        (1..).zip(lines(head)).chain((self.before + 1..).zip(lines(&text[self.from..self.to])))
    }
}

/// What [`str::lines`] gives, which looks for the ends of short lines more slowly.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let Some(end) = memchr(b'\n', rest.as_bytes()) else { return Some(std::mem::take(&mut rest)) };
        let line = &rest[..end];
        rest = &rest[end + 1..];
        Some(line.strip_suffix('\r').unwrap_or(line))
    })
}

/// Cuts two texts of one format into parts.
#[derive(Clone)]
pub struct Cuts<'a> {
    before: &'a [u8],
    after: &'a [u8],
    /// The least size of AFTER's parts; `None` where the format's lines mean nothing by themselves.
    bytes: Option<usize>,
    /// The number of lines of each part is a multiple of this.
    step: usize,
    /// Where the next parts start.
    rest: (Part, Part),
}

impl<'a> Cuts<'a> {
    /// Parts of AFTER of at least so many bytes, and what lies in the same lines of BEFORE.
    pub fn new(format: Format, before: &'a str, after: &'a str, bytes: usize) -> Self {
        let rest = (Part::whole(before), Part::whole(after));
        let mut cuts = Self { before: before.as_bytes(), after: after.as_bytes(), bytes: None, step: 1, rest };
        let (head, step) = match format {
            Format::Dev => (2, 1),
            Format::Interrupts | Format::Softirqs => (1, 1),
            // A line of names, a line of values.
            Format::Snmp => (0, 2),
            Format::Snmp6 | Format::Softnet | Format::Nstat | Format::Ethtool | Format::KeyValue => (0, 1),
            // Headings, types, quoted line ends and brackets reach over any number of lines.
            _ => return cuts,
        };
        let heads = (after_lines(cuts.before, 0, head), after_lines(cuts.after, 0, head));
        if let (Some(old), Some(new)) = heads {
            (cuts.rest.0.head, cuts.rest.1.head) = (old, new);
            (cuts.bytes, cuts.step) = (Some(bytes), step);
        }
        cuts
    }

    /// What has not been cut off yet.
    pub fn rest(&self) -> (Part, Part) {
        self.rest
    }
}

impl Iterator for Cuts<'_> {
    type Item = (Part, Part);

    /// The next parts; none where the rest is too short for two.
    fn next(&mut self) -> Option<(Part, Part)> {
        let (mut old, mut new) = self.rest;
        let line_end = |from| memchr(b'\n', self.after.get(from..)?).map(|at| from + at + 1);
        let mut end = line_end(new.from.saturating_add(self.bytes?).max(new.head))?;
        let mut lines = memchr_iter(b'\n', &self.after[new.from..end]).count();
        while !lines.is_multiple_of(self.step) {
            end = line_end(end)?;
            lines += 1;
        }
        new.to = end;
        old.to = after_lines(self.before, old.from, lines)?;
        for (rest, cut) in [(&mut self.rest.0, old), (&mut self.rest.1, new)] {
            rest.from = cut.to;
            rest.before += lines as u64;
        }
        Some((old, new))
    }
}

/// Where the text is after so many lines from a place on; `None` where it has fewer.
fn after_lines(text: &[u8], from: usize, lines: usize) -> Option<usize> {
    /// Counting is much faster than looking at each, so only the last of these is looked at.
    const WINDOW: usize = 4096;
    let Some(last) = lines.checked_sub(1) else { return Some(from) };
    let mut seen = 0;
    for (index, window) in text[from..].chunks(WINDOW).enumerate() {
        let here = memchr_iter(b'\n', window).count();
        if seen + here > last {
            return memchr_iter(b'\n', window).nth(last - seen).map(|at| from + index * WINDOW + at + 1);
        }
        seen += here;
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn lines_are_those_of_the_standard_library(text in "[a\r\n]{0,40}") {
            prop_assert_eq!(lines(&text).collect::<Vec<_>>(), text.lines().collect::<Vec<_>>());
        }

        #[test]
        fn parts_are_the_same_lines_of_both_and_make_up_the_whole(
            before in "([a-c]{0,3}\n){0,40}",
            after in "([a-c]{0,3}\r?\n){0,40}[a-c]?",
            bytes in 1usize..30,
            format in prop::sample::select(vec![Format::Dev, Format::Snmp, Format::KeyValue, Format::Text]),
        ) {
            let mut cuts = Cuts::new(format, &before, &after, bytes);
            let mut parts: Vec<_> = cuts.by_ref().collect();
            let head = cuts.rest().1.head;
            for (old, new) in &parts {
                let count = before[old.from..old.to].lines().count();
                prop_assert_eq!(count, after[new.from..new.to].lines().count());
                prop_assert!(format != Format::Snmp || count % 2 == 0);
                prop_assert!(new.to >= head && new.to - new.from >= bytes);
            }
            prop_assert!(format != Format::Text || parts.is_empty());
            parts.push(cuts.rest());
            let numbered = |text: &str, part: &Part| -> Vec<(u64, String)> {
                let own = if part.from == 0 { 0 } else { text[..part.head].lines().count() };
                part.lines(text).skip(own).map(|(at, line)| (at, line.to_owned())).collect()
            };
            let whole = |text: &str| -> Vec<(u64, String)> { (1..).zip(text.lines().map(str::to_owned)).collect() };
            prop_assert_eq!(parts.iter().flat_map(|(p, _)| numbered(&before, p)).collect::<Vec<_>>(), whole(&before));
            prop_assert_eq!(parts.iter().flat_map(|(_, p)| numbered(&after, p)).collect::<Vec<_>>(), whole(&after));
        }
    }
}
