//! Errors that end the program, as sentences, and exit codes.

use std::{io, path::Path};

use schemas::text::plain_lines;

use crate::style;

/// The program's end, as an exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// 0.
    Success,
    /// An assertion or a comparison failed: 1.
    Failed,
    /// The command line or the plan is wrong: 2.
    Usage,
    /// A measurement could not be made: 3.
    Measurement,
    /// Nothing failed, but a verdict is inconclusive and the plan says that this fails: 4.
    Inconclusive,
    /// Ended by this signal, with everything written that was measured: 128 + its number.
    Signal(u8),
    /// The exit code of a command that was run for the caller.
    Command(u8),
}

impl Exit {
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

impl From<analyze::Verdict> for Exit {
    fn from(verdict: analyze::Verdict) -> Self {
        match verdict {
            analyze::Verdict::Ok => Self::Success,
            analyze::Verdict::Failed => Self::Failed,
            analyze::Verdict::Inconclusive => Self::Inconclusive,
            analyze::Verdict::Exit(3) => Self::Measurement,
            analyze::Verdict::Exit(code) => Self::Command(code),
        }
    }
}

/// Replaces a file as a whole: a reader, or a crash, sees the old file or the new one.
pub fn replace(path: &Path, bytes: impl AsRef<[u8]>) -> Result<(), Error> {
    analyze::table::replace(path, bytes).map_err(|e| match e {
        analyze::Error::File { path, source } => Error::output(path.display())(source),
        other => other.into(),
    })
}

/// Why the program gave up. Messages follow `error: `.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The command line names something that does not exist, or contradicts itself.
    #[error("{0}")]
    Usage(String),
    /// The plan is wrong. The text is the rendered diagnostics, each with its own `error: `.
    #[error("{0}")]
    Plan(String),
    /// A measurement cannot be made: a host, a port or a file is missing.
    #[error("{0}")]
    Measurement(String),
    #[error("cannot write {to}: {source}{}", remedy(to, source))]
    Output {
        /// The file, or `standard output`.
        to: String,
        source: io::Error,
    },
    #[error(transparent)]
    Filter(#[from] analyze::Error),
}

fn remedy(to: &str, source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            "\n       rows written before this are whole; make room there or name another place with -o"
        }
        io::ErrorKind::PermissionDenied => "\n       name another place with -o",
        // In /proc for example.
        io::ErrorKind::NotFound if Path::new(to).parent().is_some_and(Path::is_dir) => {
            "\n       its folder takes no new files: name another place with -o"
        }
        io::ErrorKind::NotFound => "\n       create the directory first, or name another place with -o",
        _ => "",
    }
}

impl Error {
    /// Why a measurement cannot be made, ready for `map_err`.
    pub fn measurement(why: impl std::fmt::Display) -> Self {
        Self::Measurement(why.to_string())
    }

    /// The error of an output, ready for `map_err`.
    pub fn output(to: impl std::fmt::Display) -> impl FnOnce(io::Error) -> Self {
        let to = to.to_string();
        move |source| Self::Output { to, source }
    }

    /// Its first line, without the mark of a plan's diagnostics.
    pub fn sentence(&self) -> String {
        let text = self.to_string();
        let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
        line.trim_start_matches("error: ").to_owned()
    }

    /// Its exit code. A closed pipe is success: `head` has what it wanted.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Usage(_) | Self::Plan(_) => Exit::Usage,
            Self::Output { source, .. } if source.kind() == io::ErrorKind::BrokenPipe => Exit::Success,
            Self::Filter(e) if e.is_closed_pipe() => Exit::Success,
            Self::Filter(e) if e.exit_code() == 2 => Exit::Usage,
            Self::Measurement(_) | Self::Output { .. } | Self::Filter(_) => Exit::Measurement,
        }
    }

    /// Prints it on standard error, unless it counts as success (see [`Error::exit`]).
    pub fn print(&self) {
        match self {
            _ if self.exit() == Exit::Success => {}
            Self::Plan(rendered) => style::tell(rendered.strip_suffix('\n').unwrap_or(rendered)),
            _ => {
                let text = plain_lines(&self.to_string());
                style::tell(format_args!("{}error:{} {text}", style::ERROR, style::ERROR.render_reset()));
            }
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
        for (to, remedy) in [("/proc/x.csv", "takes no new files"), ("no/such/x.csv", "create the directory first")] {
            let said = Error::Output { to: to.into(), source: io::ErrorKind::NotFound.into() }.to_string();
            assert!(said.contains(remedy), "{said}");
        }
        assert!(output(io::ErrorKind::StorageFull).to_string().contains("rows written before this are whole"));
    }
}
