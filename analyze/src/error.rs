//! Errors of filters, and what their verdicts mean for the exit code; whole texts, and the places of their faults.

use schemas::text::plain_lines;
use std::{
    io::{Read, Write as _},
    path::{Path, PathBuf},
};

/// Files that are named in the place of one that does not exist.
const NAMED: usize = 5;

/// Finding of a filter that judges. Other filters return [`Verdict::Ok`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Exit code 0.
    Ok,
    /// An assertion or a comparison failed: exit code 1.
    Failed,
    /// Nothing failed, something could not be decided, and the caller wants to know: exit code 4.
    Inconclusive,
    /// This exit code, of a command that the filter ran for example.
    Exit(u8),
}

/// A place in the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// `-` for standard input.
    pub file: String,
    /// From 1; 0 means the whole file.
    pub line: u64,
    pub column: Option<String>,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let file = if self.file == "-" { "standard input" } else { &self.file };
        write!(f, "{file}")?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        if let Some(column) = &self.column {
            write!(f, ", column `{column}`")?;
        }
        Ok(())
    }
}

/// Why a filter gave up. The messages are printed behind `error: `.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The command line names something that does not exist, or does not fit together: exit code 2.
    #[error("{0}")]
    Usage(String),
    /// The filter cannot read the input: exit code 3.
    #[error("{place}: {reason}")]
    Data {
        place: Place,
        /// The fault, and the remedy.
        reason: String,
    },
    /// A file could not be opened, read, written or renamed: exit code 3.
    #[error("{}: {}", path.display(), reason(path, source))]
    File { path: PathBuf, source: std::io::Error },
    /// The output could not be written. A closed pipe is not an error: callers turn it into success.
    #[error("cannot write the output: {0}")]
    Output(#[from] std::io::Error),
}

/// The folder of a file.
fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Why a file could not be opened, read, written or renamed.
fn reason(path: &Path, source: &std::io::Error) -> String {
    let folder = folder_of(path);
    match source.kind() {
        std::io::ErrorKind::NotFound if !folder.is_dir() => {
            format!("there is no folder {}: make it, or name another", folder.display())
        }
        std::io::ErrorKind::NotFound => "no such file or folder".to_owned(),
        _ => source.to_string(),
    }
}

impl Error {
    /// The same with a remedy, if the table lacks a column.
    pub(crate) fn with_hint(self, hint: &str) -> Self {
        match self {
            Self::Data { place: place @ Place { column: None, line: 1, .. }, reason } => {
                Self::Data { place, reason: format!("{reason}. {hint}") }
            }
            other => other,
        }
    }

    /// The error of a file, ready for `map_err`.
    pub(crate) fn file(path: &Path) -> impl Fn(std::io::Error) -> Self + '_ {
        |source| Self::File { path: path.to_owned(), source }
    }

    /// A file that cannot be read. One that does not exist has a remedy.
    pub(crate) fn unreadable(path: &Path, source: std::io::Error) -> Self {
        if source.kind() != std::io::ErrorKind::NotFound {
            return Self::File { path: path.to_owned(), source };
        }
        let folder = folder_of(path);
        let tables = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let is_alike = |other: &PathBuf| other.extension() == path.extension() && other.is_file();
        let mut names: Vec<String> =
            tables.filter(is_alike).filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect();
        names.sort();
        let reason = match names.len() {
            _ if !folder.is_dir() => "no such file: its folder does not exist".to_owned(),
            0 if path.extension().is_some_and(|end| end == "csv") => {
                format!("no such file; `plumb run PLAN -o {}` writes results", path.display())
            }
            0 => "no such file".to_owned(),
            n if n > NAMED => {
                format!("no such file; there are {}, … and {} more", names[..NAMED].join(", "), n - NAMED)
            }
            _ => format!("no such file; there is {}", names.join(", ")),
        };
        Self::Data { place: Place { file: path.display().to_string(), line: 0, column: None }, reason }
    }

    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            _ => 3,
        }
    }

    /// Moves the place of the error down by `lines`.
    pub(crate) fn after_lines(mut self, lines: u64) -> Self {
        if let Self::Data { place, .. } = &mut self
            && place.line > 0
        {
            place.line += lines;
        }
        self
    }

    /// Whether the reader of our output went away, which is success for a filter.
    pub fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Output(e) if e.kind() == std::io::ErrorKind::BrokenPipe)
    }
}

/// Prints a note for the user to standard error.
pub(crate) fn warn(message: &str) {
    // Standard error may be closed; that must not fail the filter.
    let _ = writeln!(std::io::stderr(), "note: {}", plain_lines(message));
}

/// Ignores a closed pipe: the exit code still tells the verdict to somebody who stopped reading.
pub(crate) fn even_unread(written: Result<(), Error>) -> Result<(), Error> {
    written.or_else(|error| if error.is_closed_pipe() { Ok(()) } else { Err(error) })
}

/// The `csv` crate's writer fails only because of what it writes to.
impl From<csv::Error> for Error {
    fn from(error: csv::Error) -> Self {
        match error.into_kind() {
            csv::ErrorKind::Io(error) => Self::Output(error),
            other => Self::Output(std::io::Error::other(format!("{other:?}"))),
        }
    }
}

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
