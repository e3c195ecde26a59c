//! The few colours. They are written through `anstream`, which leaves them out where the output is no terminal or
//! `NO_COLOR` is set.

use anstyle::{AnsiColor, Style};

/// `error:` and failures.
pub const ERROR: Style = AnsiColor::Red.on_default().bold();
/// `warning:` and what is inconclusive.
pub const WARNING: Style = AnsiColor::Yellow.on_default().bold();
/// `note:`.
pub const NOTE: Style = AnsiColor::Cyan.on_default();
/// Table heads.
pub const HEAD: Style = Style::new().bold();
