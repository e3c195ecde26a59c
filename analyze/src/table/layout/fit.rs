//! Fits a table into a width: titles break, long texts wrap at blanks, long names are shortened in the middle, and only
//! then columns are left out, the last ones first. Numbers are never cut.

use std::{cmp::Reverse, collections::HashSet};

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::Column;

/// Blanks between columns.
pub const GAP: usize = 2;
/// The least width to which a long name is shortened.
const NAME: usize = 16;
/// The least width of notes beside a row; with less room they stand below it.
const NOTES: usize = 24;
/// Columns that stay where others are left out.
const KEPT: [&str; 4] = ["verdict", "status", "case", "case_id"];

/// A table that fits.
pub struct Fitted {
    /// Indices of the columns shown, with their widths.
    pub shown: Vec<(usize, usize)>,
    /// The column of notes that stand below their rows.
    pub below: Option<usize>,
    /// Indices of columns left out.
    pub left_out: Vec<usize>,
}

/// Chooses columns and widths; `room` is the width of the whole table.
pub fn fit(columns: &[Column], room: Option<usize>) -> Fitted {
    let natural: Vec<usize> = columns.iter().map(Column::width).collect();
    let all: Vec<usize> = (0..columns.len()).collect();
    let whole = |shown: &[usize]| shown.iter().map(|i| (*i, natural[*i])).collect();
    let Some(room) = room.filter(|room| total(&natural) > *room) else {
        return Fitted { shown: whole(&all), below: None, left_out: Vec::new() };
    };
    let notes = columns.iter().position(is_notes);
    let mut shown = all;
    let mut left_out = Vec::new();
    loop {
        if let Some(shown) = squeezed(columns, &natural, &shown, room) {
            return Fitted { shown, below: None, left_out };
        }
        if let Some(notes) = notes {
            let others: Vec<usize> = shown.iter().copied().filter(|i| *i != notes).collect();
            if let Some(shown) = squeezed(columns, &natural, &others, room) {
                return Fitted { shown, below: Some(notes), left_out };
            }
        }
        let droppable = |i: &usize| *i != shown[0] && Some(*i) != notes && !KEPT.contains(&columns[*i].title.as_str());
        let Some(last) = shown.iter().copied().rfind(droppable) else {
            let shown: Vec<usize> = shown.iter().copied().filter(|i| Some(*i) != notes).collect();
            let shown = shown.iter().map(|i| (*i, least(&columns[*i], natural[*i]))).collect();
            return Fitted { shown, below: notes, left_out };
        };
        shown.retain(|i| *i != last);
        left_out.insert(0, last);
    }
}

fn total(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1)
}

/// Sentences, which may stand below their row.
fn is_notes(column: &Column) -> bool {
    !column.right && matches!(column.title.as_str(), "" | "note" | "notes" | "error")
}

/// The widths of these columns within the room; `None` where they do not fit.
fn squeezed(columns: &[Column], natural: &[usize], shown: &[usize], room: usize) -> Option<Vec<(usize, usize)>> {
    let least: Vec<usize> = shown.iter().map(|i| least(&columns[*i], natural[*i])).collect();
    if total(&least) > room {
        return None;
    }
    let mut widths: Vec<usize> = shown.iter().map(|i| natural[*i]).collect();
    let mut over = total(&widths).saturating_sub(room);
    // Titles break first, because that takes nothing away.
    for (width, i) in widths.iter_mut().zip(shown) {
        let give = width.saturating_sub(without_title(&columns[*i])).min(over);
        *width -= give;
        over -= give;
    }
    // Then the widest gives way.
    while over > 0 {
        let widest = (0..widths.len()).filter(|at| widths[*at] > least[*at]).max_by_key(|at| widths[*at])?;
        widths[widest] -= 1;
        over -= 1;
    }
    Some(shown.iter().copied().zip(widths).collect())
}

/// The width of a column whose title breaks at its blanks.
fn without_title(column: &Column) -> usize {
    let title = column.title.split(' ').map(UnicodeWidthStr::width);
    column.cells.iter().map(|c| c.width()).chain(title).max().unwrap_or(0)
}

/// The least width of a column.
fn least(column: &Column, natural: usize) -> usize {
    if column.right {
        return without_title(column);
    }
    let title = column.title.split(' ').map(UnicodeWidthStr::width).max().unwrap_or(0);
    let part = column.cells.iter().flat_map(|cell| parts(cell)).map(|part| shortest(part)).max().unwrap_or(0);
    let least = part.max(title);
    if is_notes(column) { least.max(NOTES.min(natural)) } else { least }
}

/// The least width of a part of a text: names can be shortened, quantities cannot.
fn shortest(part: &str) -> usize {
    let width = part.width();
    if part.contains(' ') { width } else { width.min(NAME) }
}

/// The parts between which a text may break: at blanks, but not between a number and its unit.
fn parts(text: &str) -> Vec<&str> {
    let mut parts: Vec<&str> = Vec::new();
    let mut start = None;
    let (mut at, mut end) = (0, 0);
    for word in text.split(' ') {
        let begin = start.unwrap_or(at);
        at += word.len() + 1;
        if word.is_empty() {
            continue;
        }
        end = at - 1;
        let number = word
            .trim_start_matches(['(', '±', '−', '-', '+', '<', '>', '=', '~'])
            .starts_with(|c: char| c.is_ascii_digit());
        let bare = number && word.ends_with(|c: char| c.is_ascii_digit());
        let sign = matches!(word, "±" | "<" | "<=" | ">" | ">=" | "==" | "!=" | "+" | "−");
        if bare || sign {
            start = Some(begin);
        } else {
            parts.push(&text[begin..end]);
            start = None;
        }
    }
    parts.extend(start.map(|start| &text[start..end]));
    parts
}

/// The lines of a text within a width. Parts that are too long stand alone, and stick out.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    if text.width() <= width {
        return vec![text.to_owned()];
    }
    let mut lines: Vec<String> = Vec::new();
    for part in parts(text) {
        match lines.last_mut() {
            Some(line) if line.width() + 1 + part.width() <= width => {
                line.push(' ');
                line.push_str(part);
            }
            _ => lines.push(part.to_owned()),
        }
    }
    lines
}

/// The cells of a column, names longer than the width shortened in the middle: where the most of them stay different, and
/// where they lose the least of what differs.
pub fn shortened(cells: &[String], width: usize) -> Vec<String> {
    let long = |part: &&str| !part.contains(' ') && part.width() > width;
    let names: HashSet<&str> = cells.iter().flat_map(|cell| parts(cell)).filter(long).collect();
    if names.is_empty() || width < 3 {
        return cells.to_vec();
    }
    let different = |head: usize| names.iter().map(|name| cut(name, head, width)).collect::<HashSet<_>>().len();
    let same = (alike(&names, |name| Box::new(name.chars())), alike(&names, |name| Box::new(name.chars().rev())));
    // Characters of what differs that a cut takes away, over all names.
    let lost = |head: usize| -> usize {
        let of = |name: &&str| {
            let length = name.chars().count();
            let (from, to) =
                (head.max(same.0), (length + head + 1 - width.min(length)).min(length.saturating_sub(same.1)));
            to.saturating_sub(from)
        };
        names.iter().map(of).sum()
    };
    // The beginning of a name says the most, unless it is the same in all.
    let usual = width * 2 / 5;
    let head = (1..width - 1)
        .max_by_key(|head| (different(*head), Reverse(lost(*head)), Reverse(head.abs_diff(usual))))
        .unwrap_or(usual);
    let text = |cell: &String| {
        let parts = parts(cell);
        if !parts.iter().any(|part| long(&part)) {
            return cell.clone();
        }
        let parts: Vec<String> =
            parts.iter().map(|part| if long(&part) { cut(part, head, width) } else { (*part).to_owned() }).collect();
        parts.join(" ")
    };
    cells.iter().map(text).collect()
}

/// The number of characters that all names begin (or, read from their ends, end) with.
fn alike<'a>(names: &HashSet<&'a str>, read: impl Fn(&'a str) -> Box<dyn Iterator<Item = char> + 'a>) -> usize {
    let Some(first) = names.iter().next() else { return 0 };
    let same = |other: &&'a str| read(first).zip(read(other)).take_while(|(a, b)| a == b).count();
    names.iter().map(same).min().unwrap_or(0)
}

/// A name with `…` after its first `head` columns, and as much of its end as fits.
fn cut(name: &str, head: usize, width: usize) -> String {
    let start: String = taken(name.chars(), head).into_iter().collect();
    let end = taken(name.chars().rev(), width - 1 - start.width());
    format!("{start}…{}", end.into_iter().rev().collect::<String>())
}

/// The first characters, as many as fit.
fn taken(chars: impl Iterator<Item = char>, room: usize) -> Vec<char> {
    let mut used = 0;
    let fits = |c: &char| {
        used += c.width().unwrap_or(0);
        used <= room
    };
    chars.take_while(fits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|t| (*t).to_owned()).collect()
    }

    #[test]
    fn names_keep_the_part_that_differs() {
        let cases = owned(&["upload[message_size=1024,streams=1]", "upload[message_size=65536,streams=1]"]);
        let short = shortened(&cases, 20);
        assert!(short[0] != short[1] && short.iter().all(|s| s.width() <= 20 && s.contains('…')), "{short:?}");
        assert!(short[0].contains("=1024") && short[1].contains("65536") && short[0].starts_with("upl"), "{short:?}");
        let tails = owned(&["tests/very/long/path/of/a.yaml:1", "tests/very/long/path/of/a.yaml:2"]);
        assert!(shortened(&tails, 16)[1].ends_with(":2"));
        assert_eq!(shortened(&owned(&["short"]), 16), ["short"]);
    }

    #[test]
    fn numbers_keep_their_units() {
        assert_eq!(wrapped("94.1 Gbit/s ± 0.32 %", 12), ["94.1 Gbit/s", "± 0.32 %"]);
        assert_eq!(wrapped("throughput >= 9Gbit/s", 12), ["throughput", ">= 9Gbit/s"]);
        assert_eq!(wrapped("157 µs (12.5 µs … 394 µs)", 10), ["157 µs", "(12.5 µs …", "394 µs)"]);
        assert_eq!(wrapped("fits", 10), ["fits"]);
    }
}
