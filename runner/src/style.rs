//! Colours, and lines on standard error. `anstream` drops the colours unless the output is a terminal, and if `NO_COLOR` is
//! set.

use std::{fmt, io::Write as _};

pub use analyze::style::{ERROR, NOTE, WARNING};
use analyze::{
    style::Style,
    table::layout::{Sheet, wrapped},
};

/// Writes a line to standard error and ignores failures: a full disk or a closed pipe must not end a measurement or a daemon.
pub fn tell(text: impl fmt::Display) {
    // One write, so that lines of several processes do not mix.
    let _ = anstream::stderr().write_all(format!("{text}\n").as_bytes());
}

/// `note: …`, with its lines below each other in a terminal's width.
pub fn remark(sheet: &Sheet, style: Style, word: &str, text: &str) -> String {
    let indent = " ".repeat(word.len() + 2);
    let room = sheet.width.map_or(usize::MAX, |width| width.saturating_sub(indent.len()).max(20));
    let lines: Vec<String> = text.lines().flat_map(|line| wrapped(line.trim_start(), room)).collect();
    format!("{style}{word}:{style:#} {}", lines.join(&format!("\n{indent}")))
}

/// Whether a terminal obeys this character, or it reorders or hides others.
pub fn is_hostile(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// Foreign text in one line, with hostile characters escaped.
pub fn plain(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut out, c| {
        if is_hostile(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remarks_fit_a_terminal_and_stay_whole_in_a_pipe() {
        let text = "the two ends share this machine: this measures its kernel, not a network, and that for long";
        let whole = remark(&Sheet::PLAIN, Style::new(), "note", text);
        assert_eq!(whole, format!("note: {text}"));
        let lines = remark(&Sheet { width: Some(40), ..Sheet::PLAIN }, Style::new(), "note", text);
        assert!(lines.lines().count() > 2 && lines.lines().all(|line| line.chars().count() <= 40), "{lines}");
        assert!(lines.lines().skip(1).all(|line| line.starts_with("      ") && !line[6..].starts_with(' ')), "{lines}");
        assert_eq!(remark(&Sheet::PLAIN, Style::new(), "error", "a\n       b"), "error: a\n       b");
    }

    #[test]
    fn hostile_characters_are_escaped() {
        assert_eq!(plain("a\x1b[2J\nb\u{202e}µ"), "a\\u{1b}[2J\\nb\\u{202e}µ");
    }
}
