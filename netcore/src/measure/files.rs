//! Text files of the kernel.

use std::{fs, path::Path};

/// A file's text; empty where it cannot be read.
pub(super) fn text(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// First line of a file, trimmed; `None` if it is empty or cannot be read.
pub(super) fn line(path: impl AsRef<Path>) -> Option<String> {
    let text = text(path);
    let first = text.lines().next()?.trim();
    (!first.is_empty()).then(|| first.to_owned())
}
