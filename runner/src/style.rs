//! Colours, and lines on standard error. `anstream` drops the colours if the output is no terminal or `NO_COLOR` is set.

use std::{fmt, io::Write as _};

pub use analyze::style::{ERROR, NOTE, WARNING};

/// Writes a line to standard error and ignores failures: a full disk or a closed pipe must not end a measurement or a daemon.
pub fn tell(text: impl fmt::Display) {
    // One write, so that lines of several processes do not mix.
    let _ = anstream::stderr().write_all(format!("{text}\n").as_bytes());
}
