//! Colours, and lines on standard error. `anstream` drops the colours if the output is no terminal or `NO_COLOR` is set.

use std::{fmt, io::Write as _};

pub use analyze::style::{ERROR, NOTE, WARNING};

/// Writes a line to standard error and ignores failures: a full disk or a closed pipe must not end a measurement or a daemon.
pub fn tell(text: impl fmt::Display) {
    // One write, so that lines of several processes do not mix.
    let _ = anstream::stderr().write_all(format!("{text}\n").as_bytes());
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
            out.extend(c.escape_default())
        } else {
            out.push(c)
        }
        out
    })
}
