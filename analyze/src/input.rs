//! Whole texts from files or standard input, for the filters that read what other programs print.

use std::io::Read;
use std::path::Path;

use crate::error::{Error, Place};

/// A fault in a text, before the name of its file is known.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ParseError {
    /// From 1; 0 means the whole text.
    line: usize,
    column: Option<String>,
    reason: String,
}

impl ParseError {
    pub fn new(line: usize, reason: impl Into<String>) -> Self {
        Self { line, column: None, reason: reason.into() }
    }

    /// An error in one column of a table.
    pub fn in_column(line: usize, column: &str, reason: impl Into<String>) -> Self {
        Self { column: Some(column.to_owned()), ..Self::new(line, reason) }
    }

    /// A line that its program would not have written.
    pub fn expected(line: usize, wanted: &str, found: &str) -> Self {
        let found: String = found.trim().chars().take(60).collect();
        Self::new(line, format!("expected {wanted}, found `{found}`"))
    }

    /// The error, with the name of the file.
    pub fn of(self, file: &str) -> Error {
        let place = Place { file: file.to_owned(), line: self.line as u64, column: self.column };
        Error::Data { place, reason: self.reason }
    }
}

/// A file's name for messages, and its text. `-` is standard input.
pub fn read_text(path: &Path) -> Result<(String, String), Error> {
    let name = path.display().to_string();
    let failed = |source| Error::unreadable(path, source);
    let bytes = if name == "-" {
        let mut bytes = Vec::new();
        std::io::stdin().lock().read_to_end(&mut bytes).map_err(failed)?;
        bytes
    } else {
        std::fs::read(path).map_err(failed)?
    };
    String::from_utf8(bytes).map(|text| (name.clone(), text)).map_err(|e| {
        let before = &e.as_bytes()[..e.utf8_error().valid_up_to()];
        let line = memchr::memchr_iter(b'\n', before).count() + 1;
        ParseError::new(line, "the text is not UTF-8 here").of(&name)
    })
}
