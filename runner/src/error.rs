//! What ends the program early, as sentences, with the exit code each stands for.

use std::io;

use crate::style;

/// How the program ended, as its exit code says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// All well: 0.
    Success,
    /// An assertion or a comparison failed: 1.
    Failed,
    /// The command line or the plan is wrong: 2.
    Usage,
    /// A measurement could not be made: 3.
    Measurement,
    /// Nothing failed, something could not be decided, and that counts: 4.
    Inconclusive,
    /// Ended by this signal, with everything that was measured written: 128 + its number.
    Signal(u8),
    /// As a command that was run for the caller ended: its own code.
    Command(u8),
}

impl Exit {
    /// The code for the shell.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Measurement => 3,
            Self::Inconclusive => 4,
            Self::Signal(number) => 128 + number,
            Self::Command(code) => code,
        }
    }
}

/// Why the program could not do what it was asked. The messages stand behind `error: `.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The command line asks for something that does not exist or does not fit together.
    #[error("{0}")]
    Usage(String),
    /// The plan is wrong; the text is the rendered diagnostics, each with its own `error: `.
    #[error("{0}")]
    Plan(String),
    /// Something that a measurement needs could not be had: a host, a port, a file.
    #[error("{0}")]
    Measurement(String),
    /// Output could not be written.
    #[error("cannot write {to}: {source}{}", remedy(source))]
    Output {
        /// The file, or `standard output`.
        to: String,
        /// What the system said.
        source: io::Error,
    },
    /// A filter gave up.
    #[error(transparent)]
    Filter(#[from] analyze::Error),
}

fn remedy(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            "\n       rows written before this are whole; make room there or name another place with -o"
        }
        io::ErrorKind::PermissionDenied => "\n       name another place with -o",
        io::ErrorKind::NotFound => "\n       create the directory first, or name another place with -o",
        _ => "",
    }
}

impl Error {
    /// The error of an output, ready for `map_err`.
    pub fn output(to: impl std::fmt::Display) -> impl FnOnce(io::Error) -> Self {
        let to = to.to_string();
        move |source| Self::Output { to, source }
    }

    /// The exit it stands for. A reader that went away is success: whoever pipes into `head` has what he wanted.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            Self::Usage(_) | Self::Plan(_) => Exit::Usage,
            Self::Output { source, .. } if source.kind() == io::ErrorKind::BrokenPipe => Exit::Success,
            Self::Filter(e) if e.is_closed_pipe() => Exit::Success,
            Self::Filter(e) if e.exit_code() == 2 => Exit::Usage,
            Self::Measurement(_) | Self::Output { .. } | Self::Filter(_) => Exit::Measurement,
        }
    }

    /// Prints it on standard error, unless it is none (see [`Error::exit`]).
    pub fn print(&self) {
        match self {
            _ if self.exit() == Exit::Success => {}
            Self::Plan(rendered) => style::tell(rendered.strip_suffix('\n').unwrap_or(rendered)),
            _ => style::tell(format_args!("{}error:{} {self}", style::ERROR, style::ERROR.render_reset())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_has_its_documented_exit_code() {
        let output = |kind: io::ErrorKind| Error::Output { to: "x".into(), source: kind.into() };
        assert_eq!(Error::Usage(String::new()).exit().code(), 2);
        assert_eq!(Error::Plan(String::new()).exit().code(), 2);
        assert_eq!(Error::Measurement(String::new()).exit().code(), 3);
        assert_eq!(output(io::ErrorKind::StorageFull).exit().code(), 3);
        assert_eq!(output(io::ErrorKind::BrokenPipe).exit().code(), 0);
        assert_eq!(Exit::Signal(2).code(), 130);
        assert_eq!(Exit::Signal(15).code(), 143);
        assert!(output(io::ErrorKind::StorageFull).to_string().contains("rows written before this are whole"));
    }
}
