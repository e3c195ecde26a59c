//! Colours, and lines on standard error. `anstream` drops the colours unless the output is a terminal, and if `NO_COLOR` is
//! set.

use std::{
    fmt,
    io::{self, Write},
};

use anstream::{AutoStream, ColorChoice, adapter::strip_str};

pub use analyze::style::{ERROR, NOTE, WARNING};
use analyze::{
    style::Style,
    table::layout::{Sheet, wrapped},
};
use schemas::text::{is_hostile, plain_lines, short_names};

/// Writes a line to standard error and ignores failures: a full disk or a closed pipe must not end a measurement or a daemon.
pub fn tell(text: impl fmt::Display) {
    let mut line = format!("{text}\n");
    let mut stderr = io::stderr().lock();
    // One write, so that lines of several processes do not mix: a stream that drops colours would write what lies between them.
    if AutoStream::choice(&stderr) == ColorChoice::Never {
        line = strip_str(&line).to_string();
    }
    let _ = stderr.write_all(line.as_bytes());
}

/// A terminal, to which colours pass and no other code: texts come from files and other hosts.
pub struct ColourFilter<W: Write> {
    to: W,
    /// The begin of a character or a code.
    rest: Vec<u8>,
}

impl<W: Write> ColourFilter<W> {
    pub fn new(to: W) -> Self {
        Self { to, rest: Vec::new() }
    }

    /// Writes what is complete; `last`: the rest, too.
    fn pass(&mut self, last: bool) -> io::Result<()> {
        let bytes = std::mem::take(&mut self.rest);
        let (whole, broken) = match std::str::from_utf8(&bytes) {
            Err(error) if error.error_len().is_none() && !last => bytes.split_at(error.valid_up_to()),
            _ => bytes.split_at(bytes.len()),
        };
        let text = String::from_utf8_lossy(whole);
        let (mut out, mut at) = (String::with_capacity(text.len()), 0);
        while let Some(c) = text[at..].chars().next() {
            let rest = &text[at..];
            at += match colour(rest) {
                Colour::Whole(length) => {
                    out.push_str(&rest[..length]);
                    length
                }
                Colour::Begun if !last => break,
                _ => {
                    if is_hostile(c) && !matches!(c, '\n' | '\t') {
                        out.extend(c.escape_default());
                    } else {
                        out.push(c);
                    }
                    c.len_utf8()
                }
            };
        }
        self.rest = [&text.as_bytes()[at..], broken].concat();
        self.to.write_all(out.as_bytes())
    }
}

/// Whether a text begins with a code for colours: ESC, `[`, numbers, `m`.
enum Colour {
    Whole(usize),
    /// As far as it goes.
    Begun,
    Other,
}

fn colour(text: &str) -> Colour {
    /// Longer than any of ours.
    const LONGEST: usize = 32;
    let Some(code) = text.strip_prefix('\u{1b}') else { return Colour::Other };
    let Some(numbers) = code.strip_prefix('[') else {
        return if code.is_empty() { Colour::Begun } else { Colour::Other };
    };
    match numbers.find(|c: char| !c.is_ascii_digit() && c != ';') {
        Some(end) if numbers[end..].starts_with('m') => Colour::Whole(end + 3),
        None if numbers.len() < LONGEST => Colour::Begun,
        _ => Colour::Other,
    }
}

impl<W: Write> Write for ColourFilter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.rest.extend_from_slice(bytes);
        self.pass(false)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

impl<W: Write> Drop for ColourFilter<W> {
    fn drop(&mut self) {
        // A terminal that is gone takes nothing.
        let _ = self.pass(true).and_then(|()| self.to.flush());
    }
}

/// `note: …`, with its lines below each other in a terminal's width.
pub fn remark(sheet: &Sheet, style: Style, word: &str, text: &str) -> String {
    let indent = " ".repeat(word.len() + 2);
    let room = sheet.width.map_or(usize::MAX, |width| width.saturating_sub(indent.len()).max(20));
    let text = plain_lines(&short_names(text));
    let lines: Vec<String> = text.lines().flat_map(|line| wrapped(line.trim_start(), room)).collect();
    format!("{style}{word}:{style:#} {}", lines.join(&format!("\n{indent}")))
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
        let hostile = remark(&Sheet::PLAIN, Style::new(), "error", "a\x1b]0;b\x07\n  ::error::c");
        assert_eq!(hostile, "error: a\\u{1b}]0;b\\u{7}\n       \\u{3a}:error::c");
    }

    #[test]
    fn a_terminal_gets_colours_and_no_other_codes() {
        let text = "\x1b[1;32mpass\x1b[0m µ\t\x1b[2J\x1b]0;x\x07\u{9b}2J\r\n\x1b";
        for size in [1, 2, 3, 7, 100] {
            let mut out = Vec::new();
            let mut guarded = ColourFilter::new(&mut out);
            text.as_bytes().chunks(size).for_each(|part| guarded.write_all(part).unwrap());
            drop(guarded);
            let shown = "\x1b[1;32mpass\x1b[0m µ\t\\u{1b}[2J\\u{1b}]0;x\\u{7}\\u{9b}2J\\r\n\\u{1b}";
            assert_eq!(String::from_utf8(out).unwrap(), shown, "{size}");
        }
    }
}
