//! What can go wrong in a filter, and what its verdict means for the exit code.

use std::{io::Write as _, path::PathBuf};

/// What a filter found, where it judges; filters that do not judge return [`Verdict::Ok`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing to complain about: exit code 0.
    Ok,
    /// An assertion or a comparison failed: exit code 1.
    Failed,
    /// Nothing failed, something could not be decided, and the caller asked that this counts: exit code 4.
    Inconclusive,
    /// The exit code of a command that the filter ran.
    Exit(u8),
}

/// Where in the input something was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file, `-` for standard input.
    pub file: String,
    /// Its line, from 1; 0 where the whole file is meant.
    pub line: u64,
    /// The column's name, where one is to blame.
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

/// Why a filter gave up. The messages are sentences for people and end up behind `error: `.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The command line asks for something that does not exist or does not fit together: exit code 2.
    #[error("{0}")]
    Usage(String),
    /// The input is not what the filter can read: exit code 3.
    #[error("{place}: {reason}")]
    Data {
        /// Where.
        place: Place,
        /// What is wrong with it and what to do.
        reason: String,
    },
    /// A file could not be opened, read, written or renamed: exit code 3.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The output could not be written. A closed pipe is not an error: callers turn it into success.
    #[error("cannot write the output: {0}")]
    Output(#[from] std::io::Error),
}

impl Error {
    /// The program's exit code for it.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            _ => 3,
        }
    }

    /// The same so many lines further down.
    #[must_use]
    pub(crate) fn after_lines(mut self, lines: u64) -> Self {
        if let Self::Data { place, .. } = &mut self
            && place.line > 0
        {
            place.line += lines;
        }
        self
    }

    /// Whether it only says that the reader of our output went away, which is success for a filter.
    #[must_use]
    pub fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Output(e) if e.kind() == std::io::ErrorKind::BrokenPipe)
    }
}

/// Prints a note for the user to standard error.
pub(crate) fn warn(message: &str) {
    // Standard error may be closed; that is no reason to fail.
    let _ = writeln!(std::io::stderr(), "note: {message}");
}

/// What became of writing for a reader who may have left: the exit code tells what was judged all the same.
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
