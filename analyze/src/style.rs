//! Colours of the terminal, the same for all commands.

pub use anstyle::Style;

use anstyle::AnsiColor;

/// Of `error:`, failures and regressions.
pub const ERROR: Style = AnsiColor::Red.on_default().bold();
/// Of `warning:` and inconclusive verdicts.
pub const WARNING: Style = AnsiColor::Yellow.on_default().bold();
/// Of verdicts that hold.
pub const GOOD: Style = AnsiColor::Green.on_default();
/// Of notes.
pub const NOTE: Style = AnsiColor::Cyan.on_default();
/// Of table heads.
pub const HEAD: Style = Style::new().bold();
