//! The few colours, and how people are told something. Colours are written through `anstream`, which leaves them out where
//! the output is no terminal or `NO_COLOR` is set.

use std::{fmt, io::Write as _};

use anstyle::{AnsiColor, Style};

/// `error:` and failures.
pub const ERROR: Style = AnsiColor::Red.on_default().bold();
/// `warning:` and what is inconclusive.
pub const WARNING: Style = AnsiColor::Yellow.on_default().bold();
/// `note:`.
pub const NOTE: Style = AnsiColor::Cyan.on_default();
/// Table heads.
pub const HEAD: Style = Style::new().bold();

/// Writes a line to standard error. A log on a full disk, or a reader that has left, ends no measurement and no daemon.
pub fn tell(text: impl fmt::Display) {
    // In one write, so that the lines of several processes do not mix.
    let _ = anstream::stderr().write_all(format!("{text}\n").as_bytes());
}
