//! Failures of a program, as error messages.

use std::{fmt, io, os::unix::process::ExitStatusExt, process::ExitStatus, time::Duration};

use nix::sys::signal::Signal;

use crate::control::netns::NetnsError;

/// Lines of a failed program's output that its error message quotes, and characters of each.
const LINES: usize = 3;
const WIDTH: usize = 200;

/// The failure of a program. `command` is its argv as a person would type it.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error("`{program}` was not found; it is looked for in PATH, from the folder in which plumb was started")]
    NotFound { program: String },
    #[error("`{program}` could not be started: {source}")]
    NotStarted { program: String, source: io::Error },
    #[error("{0}")]
    Netns(#[from] NetnsError),
    #[error("`{command}` was still running after {limit:?} and was ended, with all that it had started{said}")]
    TimedOut { command: String, limit: Duration, said: Said },
    #[error("`{command}` was ended with the run")]
    Interrupted { command: String },
    #[error("`{command}` printed more than {} MiB and was ended: have it print results only", bytes >> 20)]
    TooMuch { command: String, bytes: usize },
    #[error("`{command}` {}{said}", how(*status))]
    Failed { command: String, status: ExitStatus, said: Said },
    #[error("`{command}` could not be waited for: {source}")]
    System { command: String, source: io::Error },
}

impl Failure {
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::TimedOut { .. })
    }
}

fn how(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with {code}"),
        (None, Some(signal)) => match Signal::try_from(signal) {
            Ok(signal) => format!("was ended by {signal}"),
            Err(_) => format!("was ended by signal {signal}"),
        },
        (None, None) => "ended in an unknown way".to_owned(),
    }
}

/// The first lines of a program's standard error, or else of its standard output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said(Vec<String>);

impl Said {
    pub fn of(stdout: &[u8], stderr: &[u8]) -> Self {
        let lines = |bytes: &[u8]| -> Vec<String> {
            let text = String::from_utf8_lossy(bytes);
            let lines = text.lines().map(str::trim_end).filter(|l| !l.trim().is_empty());
            // Control characters would reach the terminal.
            let tame = |line: &str| line.chars().filter(|c| !c.is_control()).take(WIDTH).collect();
            lines.take(LINES).map(tame).collect()
        };
        let complaints = lines(stderr);
        Self(if complaints.is_empty() { lines(stdout) } else { complaints })
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str(", and said nothing");
        }
        self.0.iter().enumerate().try_for_each(|(i, line)| {
            let lead = if i == 0 { ": " } else { " | " };
            write!(f, "{lead}{line}")
        })
    }
}

/// An argv as a person would type it.
pub fn shown(argv: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    let word = |word: &String| {
        if !word.is_empty() && word.chars().all(plain) {
            word.clone()
        } else {
            format!("'{}'", word.replace('\'', "'\\''"))
        }
    };
    argv.iter().map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_argv_is_shown_so_that_it_can_be_typed() {
        let argv = ["printf", "%s\\n", "it's", ""].map(str::to_owned);
        assert_eq!(shown(&argv), "printf '%s\\n' 'it'\\''s' ''");
    }
}
