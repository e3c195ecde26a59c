//! Fits a table into a width: titles break, long texts wrap at blanks, long names are shortened in the middle, and only
//! then columns are left out, the last ones first. Numbers are never cut.

use std::{cmp::Reverse, collections::HashSet};

use schemas::columns::AXIS_PREFIX;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::Column;

/// Blanks between columns.
pub const GAP: usize = 2;
/// The least width to which a long name is shortened.
const NAME: usize = 20;
/// The least width of notes beside a row; with less room they stand below it.
const NOTES: usize = 24;
/// The most names of a column that are compared to find its least width.
const SAMPLE: usize = 200;
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

/// Chooses columns and widths; `room` is the width of the whole table. `all_columns` leaves none out, even
/// if the table becomes too wide.
pub fn fit(columns: &[Column], room: Option<usize>, all_columns: bool) -> Fitted {
    let natural: Vec<usize> = columns.iter().map(Column::width).collect();
    let all: Vec<usize> = (0..columns.len()).collect();
    let whole = |shown: &[usize]| shown.iter().map(|i| (*i, natural[*i])).collect();
    let Some(room) = room.filter(|room| total(&natural) > *room) else {
        return Fitted { shown: whole(&all), below: None, left_out: Vec::new() };
    };
    let least: Vec<usize> =
        columns.iter().zip(&natural).map(|(column, natural)| least_width(column, *natural)).collect();
    let notes = columns.iter().position(is_notes);
    let mut shown = all;
    let mut left_out = Vec::new();
    loop {
        if let Some(shown) = squeezed(columns, &natural, &least, &shown, room) {
            return Fitted { shown, below: None, left_out };
        }
        if let Some(notes) = notes {
            let others: Vec<usize> = shown.iter().copied().filter(|i| *i != notes).collect();
            if let Some(shown) = squeezed(columns, &natural, &least, &others, room) {
                return Fitted { shown, below: Some(notes), left_out };
            }
        }
        let droppable = |i: &usize| *i != shown[0] && Some(*i) != notes && !KEPT.contains(&columns[*i].title.as_str());
        // The name of the case has the values of swept keys already.
        let axis = |i: &usize| columns[*i].title.starts_with(AXIS_PREFIX);
        let empty = |i: &usize| columns[*i].cells.iter().all(String::is_empty);
        let mut candidates = shown.iter().copied().filter(droppable).filter(|_| !all_columns);
        let first = candidates.clone().rfind(empty).or_else(|| candidates.clone().rfind(axis));
        let Some(last) = first.or_else(|| candidates.next_back()) else {
            let shown: Vec<usize> = shown.iter().copied().filter(|i| Some(*i) != notes).collect();
            let shown = shown.iter().map(|i| (*i, least[*i])).collect();
            return Fitted { shown, below: notes, left_out };
        };
        shown.retain(|i| *i != last);
        left_out.push(last);
        left_out.sort_unstable();
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
fn squeezed(
    columns: &[Column],
    natural: &[usize],
    least: &[usize],
    shown: &[usize],
    room: usize,
) -> Option<Vec<(usize, usize)>> {
    let least: Vec<usize> = shown.iter().map(|i| least[*i]).collect();
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

/// The parts between which a title may break: at blanks, and behind the underscores of a column's name.
fn title_parts(title: &str) -> impl Iterator<Item = &str> {
    parts(title).into_iter().flat_map(|word| word.split_inclusive('_'))
}

/// The lines of a title within a width.
pub fn title_lines(title: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in parts(title) {
        for (at, part) in word.split_inclusive('_').enumerate() {
            let blank = if at == 0 { " " } else { "" };
            match lines.last_mut() {
                Some(line) if line.width() + blank.len() + part.width() <= width => {
                    line.push_str(blank);
                    line.push_str(part);
                }
                _ => lines.push(part.to_owned()),
            }
        }
    }
    lines
}

/// The width of a column whose title breaks.
fn without_title(column: &Column) -> usize {
    column.cells.iter().map(|c| c.width()).max().unwrap_or(0).max(title_width(column))
}

fn title_width(column: &Column) -> usize {
    title_parts(&column.title).map(UnicodeWidthStr::width).max().unwrap_or(0)
}

/// The least width of a column: numbers stay whole, texts break at blanks, and names are shortened as long as those that
/// differ remain different.
fn least_width(column: &Column, natural: usize) -> usize {
    if column.right {
        return without_title(column);
    }
    let parts = || column.cells.iter().flat_map(|cell| parts(cell));
    let names: HashSet<&str> = parts().filter(|part| is_name(part) && part.width() > NAME).collect();
    let whole = parts().filter(|part| !names.contains(part)).map(UnicodeWidthStr::width).max().unwrap_or(0);
    let longest = names.iter().map(|name| name.width()).max().unwrap_or(0);
    let listed: Vec<String> = names.iter().take(SAMPLE).map(|name| (*name).to_owned()).collect();
    let different = |width: &usize| shortened(&listed, *width).iter().collect::<HashSet<_>>().len() == listed.len();
    let name = if names.is_empty() { 0 } else { (NAME..longest).find(different).unwrap_or(longest) };
    let least = whole.max(name).max(title_width(column));
    if is_notes(column) { least.max(NOTES.min(natural)) } else { least }
}

/// Whether a part of a text may lose its middle: a quantity and a comparison may not.
fn is_name(part: &str) -> bool {
    !part.contains([' ', '<', '>']) && !part.contains("==")
}

/// The parts between which a text may break: at blanks, but not between a number and its unit or its label, nor before or
/// within `under load`.
fn parts(text: &str) -> Vec<&str> {
    let mut parts: Vec<&str> = Vec::new();
    let mut start = None;
    let (mut at, mut end) = (0, 0);
    let mut words = text.split(' ').peekable();
    while let Some(word) = words.next() {
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
        let percentile = word.strip_prefix('p').is_some_and(|n| n.starts_with(|c: char| c.is_ascii_digit()));
        let label = percentile || word == "loss";
        let is_phrase = word == "under" || words.peek() == Some(&"under");
        if bare || sign || label || is_phrase {
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

/// The cells of a column, names longer than the width shortened: first the keys in the names of cases, then the middle,
/// where the most of them stay different, and where they lose the least of what differs.
pub fn shortened(cells: &[String], width: usize) -> Vec<String> {
    let long = |part: &&str| is_name(part) && part.width() > width;
    let names: HashSet<&str> = cells.iter().flat_map(|cell| parts(cell)).filter(long).collect();
    if names.is_empty() || width < 3 {
        return cells.to_vec();
    }
    if names.iter().any(|name| without_keys(name).is_some()) {
        let unkeyed =
            |part: &str| if long(&part) { without_keys(part) } else { None }.unwrap_or_else(|| part.to_owned());
        let cells: Vec<String> =
            cells.iter().map(|cell| parts(cell).into_iter().map(unkeyed).collect::<Vec<_>>().join(" ")).collect();
        return shortened(&cells, width);
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
        if !parts.iter().any(long) {
            return cell.clone();
        }
        let parts: Vec<String> =
            parts.iter().map(|part| if long(part) { cut(part, head, width) } else { (*part).to_owned() }).collect();
        parts.join(" ")
    };
    cells.iter().map(text).collect()
}

/// The name of a case without the keys of its values: `bulk[message_size=4096,streams=2]` → `bulk[…4096,…2]`.
fn without_keys(name: &str) -> Option<String> {
    let (test, values) = name.split_once('[')?;
    if !values.contains('=') {
        return None;
    }
    let value = |part: &str| part.split_once('=').map_or_else(|| part.to_owned(), |(_, value)| format!("…{value}"));
    Some(format!("{test}[{}", values.split(',').map(value).collect::<Vec<_>>().join(",")))
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
    let end: String = taken(name.chars().rev(), width - 1 - start.width()).into_iter().rev().collect();
    // Keys that were left out have left their own marks.
    format!("{}…{}", start.trim_end_matches('…'), end.trim_start_matches('…'))
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
        assert_eq!(short, ["upload[…1024,…1]", "upload[…65536,…1]"]);
        let tails = owned(&["tests/very/long/path/of/a.yaml:1", "tests/very/long/path/of/a.yaml:2"]);
        assert!(shortened(&tails, 16)[1].ends_with(":2"));
        assert_eq!(shortened(&owned(&["short"]), 16), ["short"]);
    }

    #[test]
    fn values_of_swept_keys_survive_wherever_they_differ() {
        let case = |control: &str, size: &str| format!("bulk[socket.congestion_control={control},message_size={size}]");
        let cases = [case("cubic", "4096"), case("reno", "4096"), case("cubic", "65536"), case("reno", "65536")];
        let column = Column { title: "case".into(), right: false, cells: cases.to_vec() };
        let least = least_width(&column, column.width());
        let short = shortened(&cases, least);
        assert_eq!(short.iter().collect::<HashSet<_>>().len(), 4, "{short:?}");
        assert!(least <= 20, "{least} {short:?}");
        assert!(shortened(&cases, 16).iter().all(|name| !name.contains("……")));
        let statement =
            Column { title: String::new(), right: false, cells: vec!["throughput_bits_per_s>=10Gbit/s".into()] };
        assert_eq!(least_width(&statement, 31), 31);
        assert_eq!(shortened(&cases, 20)[3], "bulk[…reno,…65536]");
    }

    #[test]
    fn titles_break_at_underscores() {
        assert_eq!(title_lines("axis_socket_congestion_control", 12), ["axis_socket_", "congestion_", "control"]);
        assert_eq!(title_lines("latency p99", 8), ["latency", "p99"]);
    }

    #[test]
    fn numbers_keep_their_units() {
        assert_eq!(wrapped("94.1 Gbit/s ± 0.32 %", 12), ["94.1 Gbit/s", "± 0.32 %"]);
        assert_eq!(wrapped("throughput >= 9Gbit/s", 12), ["throughput", ">= 9Gbit/s"]);
        assert_eq!(wrapped("157 µs (12.5 µs … 394 µs)", 10), ["157 µs", "(12.5 µs …", "394 µs)"]);
        assert_eq!(wrapped("20.7 k/s  p50 9.51 µs  p99 53.4 µs", 13), ["20.7 k/s", "p50 9.51 µs", "p99 53.4 µs"]);
        assert_eq!(wrapped("87.0 Mbit/s  loss 0 %", 16), ["87.0 Mbit/s", "loss 0 %"]);
        assert_eq!(wrapped("+ 854 µs under load  p95 + 377 µs", 12), ["+ 854 µs under load", "p95 + 377 µs"]);
        assert_eq!(title_lines("± 95 %", 4), ["± 95 %"]);
        assert_eq!(wrapped("fits", 10), ["fits"]);
    }
}
