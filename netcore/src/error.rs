//! Why an end fails, from its sockets to its threads.

use crate::spec::support::Unsupported;

/// Why an end could not be made ready or connected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EndError {
    /// The engines have no such test.
    #[error("{0}")]
    Unsupported(#[from] Unsupported),
    /// The system refused something; the sentence says what was tried and what to do.
    #[error("{what}: {source}{}", remedy(source))]
    System {
        /// What was tried, and where.
        what: String,
        /// What came back.
        source: std::io::Error,
    },
    /// Something about the test does not fit this machine.
    #[error("{0}")]
    Impossible(String),
    /// Whoever wanted the connections does no longer.
    #[error("the data connections were given up before all of them were there: whoever asked for the test has left it")]
    Cancelled,
    /// The flows did not come together in time.
    #[error("{connected} of {flows} data connections came together within {seconds} s: {hint}")]
    Timeout {
        /// Flows that did.
        connected: u32,
        /// Flows of the test.
        flows: u32,
        /// The time allowed, seconds.
        seconds: f64,
        /// What to look at.
        hint: String,
    },
}

/// What whoever runs that end can do, where the system's own words do not say so.
pub(crate) fn remedy(source: &std::io::Error) -> &'static str {
    match nix::errno::Errno::from_raw(source.raw_os_error().unwrap_or(0)) {
        nix::errno::Errno::EMFILE => "; allow more of them where that end runs (ulimit -n), or use fewer streams",
        _ => "",
    }
}
