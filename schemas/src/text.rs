//! Foreign text, made safe to print: what another program, another host or a file says ends up on terminals and in the logs of
//! CI systems, and both obey some of it.

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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
        fn what_was_escaped_stays(text in "(.|::[a-z]{1,5}|##\\[|\\PC|\\p{Cc}){0,20}") {
            let once = plain(&text);
            prop_assert!(!once.contains(is_hostile), "{once:?}");
            prop_assert_eq!(plain(&once), once);
        }
    }
}
