//! Text as it is shown. Foreign text is made safe to print: what another program, another host or a file says ends up on
//! terminals and in the logs of CI systems, and both obey some of it.

use std::fmt::{Display, Write as _};

/// Commands that CI systems look for anywhere in a line: GitHub's and Azure's older form, and `TeamCity`'s.
const ANYWHERE: [&str; 3] = ["##[", "##vso[", "##teamcity["];

/// Whether a terminal obeys this character, or it reorders or hides others.
pub fn is_hostile(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{2069}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// Foreign text in one line: hostile characters and the begins of commands of CI systems are escaped. A text that is safe
/// stays as it is, also one that was escaped before.
pub fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut before = ' ';
    for (at, c) in text.char_indices() {
        let rest = &text[at..];
        let commands = match c {
            ':' => before.is_whitespace() && is_command(rest),
            '#' => ANYWHERE.iter().any(|command| rest.starts_with(command)),
            _ => false,
        };
        match c {
            _ if is_hostile(c) => out.extend(c.escape_default()),
            _ if commands => out.extend(c.escape_unicode()),
            _ => out.push(c),
        }
        before = c;
    }
    out
}

/// [`plain`] of each line. For sentences that have lines of their own and quote others.
pub fn plain_lines(text: &str) -> String {
    text.split('\n').map(plain).collect::<Vec<_>>().join("\n")
}

/// Whether it begins as a command of a GitHub workflow, `::error …::`. An address does not: `::1`, `::ffff:192.0.2.1`.
fn is_command(text: &str) -> bool {
    let word = text.strip_prefix("::").unwrap_or_default();
    let word = &word[..word.find(|c: char| !c.is_ascii_alphanumeric() && c != '-').unwrap_or(word.len())];
    word.contains(|c: char| !c.is_ascii_hexdigit())
}

/// An identifier as people tell it from others: its end, since that is random, and its start is a time.
#[must_use]
pub fn short_id(id: &str) -> String {
    match id.char_indices().nth_back(5) {
        Some((at, _)) if at > 6 => format!("…{}", &id[at..]),
        _ => id.to_owned(),
    }
}

/// A text in which each case is named by the values that tell it apart: `load[cubic, 1 stream]` where the text has
/// `load[socket.congestion_control=cubic,streams=1]`. For people: tables and options have the whole names. What stands in
/// quotes or backticks is meant to be typed, and stays. Directions are those of the end that opens the connections: `bidi (upload)`
/// where the text has `bidi (forward)`.
pub fn short_names(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut is_command = false;
    while let Some((open, close)) = rest.find('[').and_then(|open| Some((open, open + rest[open..].find(']')?))) {
        let (before, inside) = (&rest[..open], &rest[open + 1..close]);
        let name = before.rsplit(|c: char| c.is_whitespace() || c == '(').next().unwrap_or_default();
        is_command ^= before.matches('`').count() % 2 == 1;
        let is_case = !is_command && !name.is_empty() && !name.contains(['\'', '"', '=']);
        match swept(inside).filter(|_| is_case) {
            Some(pairs) => {
                out.push_str(before);
                // Writing to a String cannot fail.
                let _ = write!(out, "[{}]", values_in_words(&pairs).join(", "));
            }
            None => out.push_str(&rest[..=close]),
        }
        is_command ^= inside.matches('`').count() % 2 == 1;
        rest = &rest[close + 1..];
    }
    out.push_str(rest);
    WAYS.into_iter().fold(out, |text, (way, shown)| text.replace(&format!(" ({way})"), &format!(" ({shown})")))
}

/// The words of the column `direction`, and those for people, who sit at the end that opens the connections.
const WAYS: [(&str, &str); 3] = [("forward", "upload"), ("reverse", "download"), ("both", "both ways")];

/// A word of the column `direction` for people: `upload` for `forward`.
#[must_use]
pub fn shown_way(way: &str) -> &str {
    WAYS.iter().find(|(word, _)| *word == way).map_or(way, |(_, shown)| shown)
}

/// A case's name as its test and its swept keys with their values: `bulk[streams=4,rate=1Gbit/s]`.
#[must_use]
pub fn case_parts(case: &str) -> (&str, Vec<(&str, &str)>) {
    let parts = case.strip_suffix(']').and_then(|rest| rest.split_once('['));
    parts.and_then(|(test, inside)| Some((test, swept(inside)?))).unwrap_or((case, Vec::new()))
}

/// The pairs of `key=value,key=value`; `None` for other text.
fn swept(text: &str) -> Option<Vec<(&str, &str)>> {
    let mut all: Vec<(&str, &str)> = Vec::new();
    let mut end = 0;
    for part in text.split(',') {
        let start = end;
        end = start + part.len() + 1;
        match part.split_once('=').filter(|(key, _)| is_key(key)) {
            Some(pair) => all.push(pair),
            // A comma inside a value.
            None => all.last_mut().map(|(_, value)| *value = &text[start - 1 - value.len()..end - 1])?,
        }
    }
    Some(all)
}

/// Swept values in words, with their keys where a value does not say what it is of: `1 stream`, `cubic`, `mss 500`.
#[must_use]
pub fn values_in_words(pairs: &[(&str, &str)]) -> Vec<String> {
    let is_alone = |value: &str| pairs.iter().filter(|(_, other)| *other == value).count() == 1;
    pairs.iter().map(|(key, value)| of_key(key, value, is_alone(value))).collect()
}

fn is_key(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'))
}

/// A value in words: `1 stream`, `8 in flight`, `64 KiB`, `cubic`, `send_buffer 64 KiB`.
fn of_key(key: &str, value: &str, is_alone: bool) -> String {
    let own = key.rsplit('.').next().unwrap_or(key);
    let count: Option<u64> = value.parse().ok();
    let size = count.filter(|_| ["send_buffer", "receive_buffer"].contains(&own)).map(bytes);
    let value = size.as_deref().unwrap_or(value);
    match (own, count) {
        _ if value == "~" => format!("no {own}"),
        ("streams" | "threads", Some(1)) => format!("1 {}", own.trim_end_matches('s')),
        ("streams" | "threads", Some(n)) => format!("{n} {own}"),
        ("inflight", Some(n)) => format!("{n} in flight"),
        ("message_size" | "message_bytes", Some(n)) => bytes(n),
        ("request_size" | "response_size", Some(n)) => format!("{} {}", own.trim_end_matches("_size"), bytes(n)),
        _ if is_alone && is_word(value) => value.to_owned(),
        _ if key.starts_with("remote_") => format!("{key} {value}"),
        _ => format!("{own} {value}"),
    }
}

/// Bytes as lower-case hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A word as it is typed in a shell: in single quotes, unless it has only letters, digits, `-_./:=,+@%` and those that are
/// named here.
#[must_use]
pub fn shell_word(word: &str, as_they_are: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c) || as_they_are.contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// `1 case`, `3 cases`.
#[must_use]
pub fn counted(n: impl Display, noun: &str) -> String {
    let n = n.to_string();
    let s = if n == "1" { "" } else { "s" };
    format!("{n} {noun}{s}")
}

/// A size, exact: swept ones may differ by a byte.
#[must_use]
pub fn bytes(n: u64) -> String {
    const STEPS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let step = STEPS.into_iter().find(|(step, _)| n >= *step && n.is_multiple_of(*step));
    step.map_or_else(|| format!("{n} B"), |(step, unit)| format!("{} {unit}", n / step))
}

/// Whether a value says by itself what it is of.
fn is_word(value: &str) -> bool {
    value.starts_with(|c: char| c.is_ascii_alphabetic()) && !matches!(value, "true" | "false" | "auto" | "none")
}

/// A short name of a text: FNV-1a, 64 bits, the same on every machine and in every version.
pub fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn directions_and_absent_values_have_words_of_their_own() {
        assert_eq!(
            short_names("bidi[streams=4] (forward), bidi (reverse)"),
            "bidi[4 streams] (upload), bidi (download)"
        );
        assert_eq!(short_names("k[workload=nas_ep,socket.pacing_rate=~]"), "k[nas_ep, no pacing_rate]");
        assert_eq!((shown_way("both"), shown_way("up")), ("both ways", "up"));
    }

    #[test]
    fn what_terminals_and_ci_systems_obey_is_escaped() {
        for (foreign, shown) in [
            ("a\x1b[2J\nb\u{202e}µ", "a\\u{1b}[2J\\nb\\u{202e}µ"),
            ("\x1b]0;title\x07", "\\u{1b}]0;title\\u{7}"),
            ("\u{9b}2J\r", "\\u{9b}2J\\r"),
            ("::set-output name=a::b", "\\u{3a}:set-output name=a::b"),
            ("gone\n::error::x", "gone\\n\\u{3a}:error::x"),
            ("a  ::error::x", "a  \\u{3a}:error::x"),
            ("##[group]a ##vso[b]", "\\u{23}#[group]a \\u{23}#vso[b]"),
        ] {
            assert_eq!(plain(foreign), shown);
        }
    }

    #[test]
    fn a_case_is_named_by_the_values_that_tell_it_apart() {
        for (whole, short) in [
            ("load[socket.congestion_control=cubic,streams=1]", "load[cubic, 1 stream]"),
            ("load[streams=4,message_size=65536] up: slow", "load[4 streams, 64 KiB] up: slow"),
            ("a[message_size=65537], b[inflight=8]", "a[65537 B], b[8 in flight]"),
            ("a[socket.no_delay=true,remote_socket.priority=1]", "a[no_delay true, remote_socket.priority 1]"),
            ("(a[from=x,to=x])", "(a[from x, to x])"),
            ("a[remote_socket.receive_buffer=16384]", "a[remote_socket.receive_buffer 16 KiB]"),
        ] {
            assert_eq!(short_names(whole), short);
        }
    }

    #[test]
    fn identifiers_are_shown_by_their_end() {
        assert_eq!(short_id("01a214a9-ad12-726a-b2fa-85a3a0da064b"), "…da064b");
        assert_eq!([short_id("r1"), short_id("nightly-1204"), short_id("")], ["r1", "nightly-1204", ""]);
    }

    #[test]
    fn a_case_is_its_test_and_its_swept_values() {
        assert_eq!(case_parts("bulk"), ("bulk", vec![]));
        assert_eq!(case_parts("bulk[streams=4,rate=1Gbit/s]"), ("bulk", vec![("streams", "4"), ("rate", "1Gbit/s")]));
        assert_eq!(case_parts("b[cpus=0,2,3,streams=4]"), ("b", vec![("cpus", "0,2,3"), ("streams", "4")]));
        assert_eq!(case_parts("odd[name]"), ("odd[name]", vec![]));
    }

    #[test]
    fn what_is_typed_keeps_its_whole_name() {
        for text in [
            "`plumb run p.yaml --only bulk[streams=1]`",
            "with --only 'bulk[streams=1]'",
            "hosts h[1-3], [2/3] and tests.a[0]",
            "--set=x[a=b]",
        ] {
            assert_eq!(short_names(text), text);
        }
        // Before and behind what is typed, names are short.
        let text = "a[streams=1]: `b[streams=2]`, c[streams=3]";
        assert_eq!(short_names(text), "a[1 stream]: `b[streams=2]`, c[3 streams]");
    }

    #[test]
    fn other_text_stays_as_it_is() {
        for text in
            ["größe 10 µs …", "::1", "at ::ffff:192.0.2.1", "std::io::Error", "## a title", "\u{e9} e\u{301} नमस्ते"]
        {
            assert_eq!(plain(text), text);
        }
        assert_eq!(plain_lines("a\n  b\x07"), "a\n  b\\u{7}");
    }

    proptest! {
        #[test]
        fn cases_that_differ_have_names_that_differ(
            a in (1..5u64, 1..100_000u64, "cubic|bbr|reno|1"),
            b in (1..5u64, 1..100_000u64, "cubic|bbr|reno|1"),
        ) {
            let name = |(streams, size, word): &(u64, u64, String)| {
                short_names(&format!("t[streams={streams},message_size={size},socket.x={word},remote_socket.x={streams}]"))
            };
            prop_assert_eq!(name(&a) == name(&b), a == b);
        }

        #[test]
        fn what_was_escaped_stays(text in "(.|::[a-z]{1,5}|##\\[|\\PC|\\p{Cc}){0,20}") {
            let once = plain(&text);
            prop_assert!(!once.contains(is_hostile), "{once:?}");
            prop_assert_eq!(plain(&once), once);
        }
    }
}
