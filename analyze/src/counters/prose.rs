//! `netstat -s` and any other text: the words around a number and the headings above it are its key.

use super::builder::Builder;
use super::{Bits, Kind, Value};

/// Levels and settings of `netstat -s`, by heading and words.
const GAUGES: &[&str] = &[
    "Ip: Forwarding",
    "Ip: DefaultTTL",
    "Ip: Default TTL is",
    "Ip6: Forwarding",
    "Tcp: connections established",
    "Tcp: RtoMin",
    "Tcp: RtoMax",
    "Tcp: MaxConn",
    "Sctp: Current Associations",
];

/// Reads every number that stands by itself. Its key is the path of headings (by indentation) and the words of its
/// line.
pub fn read(b: &mut Builder<'_>, netstat: bool) {
    let source = b.source.clone();
    let plain = if netstat { Kind::Counter(Bits::SixtyFour) } else { Kind::Number };
    // Open headings: indentation, and the length of `path` up to their end.
    let mut open: Vec<(usize, usize)> = Vec::new();
    let mut path = String::new();
    for line in b.text.lines() {
        let words = line.trim();
        if words.is_empty() {
            continue;
        }
        let numbers = find_numbers(words);
        // A line of numbers alone belongs to the heading above it: its indentation shifts with the width of the
        // numbers.
        let bare = words.bytes().all(|c| c.is_ascii_digit() || c == b' ' || c == b'.');
        let indent = match open.last() {
            Some((above, _)) if bare => above + 1,
            _ => indent(line),
        };
        while open.last().is_some_and(|(i, _)| *i >= indent) {
            open.pop();
        }
        path.truncate(open.last().map_or(0, |(_, len)| *len));
        let own = match numbers.as_slice() {
            [] => one_blank(words.trim_end_matches(':')),
            [one] if one.unit == 0 => around(words, one),
            several => skeleton(words, several),
        };
        for (index, number) in numbers.iter().enumerate() {
            let place = if numbers.len() > 1 { format!(" [{}]", index + 1) } else { String::new() };
            let key = format!("{path}{own}{place}");
            let gauge = number.level || (netstat && GAUGES.contains(&key.as_str()));
            let kind = if gauge { Kind::Gauge } else { plain };
            b.push(&source, None, key, number.digits, number.value, kind);
        }
        if !bare {
            path.push_str(&own);
            path.push_str(": ");
            open.push((indent, path.len()));
        }
    }
}

/// A number of a line.
struct Number<'a> {
    start: usize,
    digits: &'a str,
    value: Value,
    /// A share, a setting, or a repeated number in readable form: not subtracted.
    level: bool,
    /// Length of the unit after it, in bytes. The unit changes with the value (`3.1 KiB`, later `3.9 GiB`), so it is no
    /// part of the key.
    unit: usize,
}

fn indent(line: &str) -> usize {
    let mut columns = 0;
    for c in line.bytes() {
        match c {
            b' ' => columns += 1,
            b'\t' => columns = (columns / 8 + 1) * 8,
            _ => break,
        }
    }
    columns
}

/// The line without its only number. `{}` marks its place between words.
fn around(line: &str, number: &Number<'_>) -> String {
    let (head, tail) = (line[..number.start].trim(), line[number.start + number.digits.len()..].trim());
    match (head, tail) {
        ("", tail) => one_blank(tail),
        (head, "") => one_blank(head.trim_end_matches([':', '=']).trim_end()),
        (head, tail) => format!("{} {{}} {}", one_blank(head), one_blank(tail)),
    }
}

fn skeleton(line: &str, numbers: &[Number<'_>]) -> String {
    let mut out = String::with_capacity(line.len());
    let mut from = 0;
    for number in numbers {
        out += &one_blank(&line[from..number.start]);
        out.push_str("{}");
        from = number.start + number.digits.len() + number.unit;
    }
    out += &one_blank(&line[from..]);
    out.trim().to_owned()
}

/// Replaces each run of blanks with one: columns shift with the width of numbers.
fn one_blank(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            c if !c.is_whitespace() => out.push(c),
            _ if out.ends_with(' ') => {}
            _ => out.push(' '),
        }
    }
    out
}

/// Finds numbers that stand by themselves or after `name:`, outside words, addresses, times, dates and `0x…`.
fn find_numbers(line: &str) -> Vec<Number<'_>> {
    let mut out = Vec::new();
    let bytes = line.as_bytes();
    let is_word = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'.' | b':' | b'-' | b'+') || c >= 0x80;
    let mut at = 0;
    let mut last_was_number = false;
    while at < bytes.len() {
        if !is_word(bytes[at]) {
            at += 1;
            continue;
        }
        let start = at;
        while at < bytes.len() && is_word(bytes[at]) {
            at += 1;
        }
        let mut end = at;
        while end > start && matches!(bytes[end - 1], b'.' | b':' | b'-' | b'+') {
            end -= 1;
        }
        let mut from = start;
        // `bytes:123` is a number; `12:30:01`, `fe80::1` and `00:11:22` are not.
        if let Some(colon) = memchr::memrchr(b':', &bytes[start..end]) {
            let name = &bytes[start..start + colon];
            let short_hex = name.len() <= 2 && name.iter().all(u8::is_ascii_hexdigit);
            let words = name.first().is_some_and(u8::is_ascii_alphabetic);
            let is_name = words && !short_hex && !name.contains(&b':') && !name.contains(&b'.');
            if is_name {
                from = start + colon + 1;
            }
        }
        // `3/17` is two numbers; a prefix length (`10.0.0.0/24`) and a path are not.
        let after_slash = start > 0 && bytes[start - 1] == b'/' && !last_was_number;
        let candidate = &line[from..end];
        // `2: eth0` is a label.
        let label = start == 0 && from == 0 && bytes.get(end) == Some(&b':');
        match Value::parse(candidate).filter(|_| !after_slash && !label) {
            Some(value) => {
                let unit = if from > 0 && bytes[from - 1] == b'(' { readable_unit(&line[end..]) } else { 0 };
                let level = unit > 0 || bytes.get(end) == Some(&b'%') || is_setting(&line[..from]);
                out.push(Number { start: from, digits: candidate, value, level, unit });
                last_was_number = true;
            }
            None => last_was_number = false,
        }
    }
    out
}

/// Length of the unit in a number repeated for people: ` KiB)` and its like.
fn readable_unit(rest: &str) -> usize {
    let unit = rest.split(')').next().unwrap_or_default();
    let prefix = unit.trim_start().strip_suffix("iB").or_else(|| unit.trim_start().strip_suffix('B'));
    if prefix.is_some_and(|p| matches!(p, "" | "K" | "k" | "M" | "G" | "T" | "P")) { unit.len() } else { 0 }
}

/// Whether the word before a number names a setting of an interface.
fn is_setting(before: &str) -> bool {
    const SETTINGS: &[&str] = &["mtu", "qlen", "txqueuelen", "prefixlen", "scopeid", "metric", "flags"];
    let word = before.trim_end_matches([' ', '=', ':']).rsplit([' ', '\t', ',']).next().unwrap_or_default();
    SETTINGS.iter().any(|s| word.eq_ignore_ascii_case(s))
}

/// A key with its plurals as singulars: the plural changes with the number.
pub fn without_plurals(key: &str) -> String {
    let mut out = String::with_capacity(key.len());
    for (index, word) in key.split(' ').enumerate() {
        if index > 0 {
            out.push(' ');
        }
        let (stem, mark) = match word.find(|c: char| !c.is_alphanumeric()) {
            Some(at) if at > 0 => word.split_at(at),
            _ => (word, ""),
        };
        match stem {
            "was" | "were" => out.push_str("was"),
            "has" | "have" => out.push_str("has"),
            _ if stem.len() > 4 && stem.ends_with("ies") => {
                out.push_str(&stem[..stem.len() - 3]);
                out.push('y');
            }
            _ if stem.len() > 3 && stem.ends_with('s') && !stem.ends_with("ss") => {
                out.push_str(&stem[..stem.len() - 1]);
            }
            _ => out.push_str(stem),
        }
        out.push_str(mark);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(line: &str) -> Vec<&str> {
        find_numbers(line).into_iter().map(|n| n.digits).collect()
    }

    #[test]
    fn only_numbers_that_stand_by_themselves() {
        assert_eq!(numbers("5910 total packets received"), ["5910"]);
        assert_eq!(numbers("rx0_drops InType3: 7"), ["7"]);
        assert_eq!(numbers("RX packets:12 errors:0"), ["12", "0"]);
        assert_eq!(numbers("inet 10.0.0.1/24 at 00:11:22:33:44:55, 12:30:01 on 2024-01-02, fe80::1"), [] as [&str; 0]);
        assert_eq!(numbers("0x1f 3ms v2 1.2.3"), [] as [&str; 0]);
        assert_eq!(numbers("(12) 45% -3 1.50, 7."), ["12", "45", "-3", "1.50", "7"]);
        assert_eq!(numbers("done 3/17"), ["3", "17"]);
    }

    #[test]
    fn singular_and_plural_pair() {
        for (one, many) in [
            ("packet received", "packets received"),
            ("query sent", "queries sent"),
            ("Tcp: ACK was sent", "Tcp: ACKs were sent"),
            ("address, lost", "address, lost"),
        ] {
            assert_eq!(without_plurals(one), without_plurals(many));
        }
        assert_ne!(without_plurals("segments received"), without_plurals("segments sent"));
    }
}
