//! Why an end fails, from its sockets to its threads.

use crate::{mpi::MpiError, spec::support::Unsupported};

/// The failure of an end to prepare or connect.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EndError {
    #[error("{0}")]
    Unsupported(#[from] Unsupported),
    /// The system refused `what`.
    #[error("{what}: {source}{}", remedy(source))]
    System { what: String, source: std::io::Error },
    /// The test does not fit this machine.
    #[error("{0}")]
    Impossible(String),
    #[error("the ranks cannot reach each other: {0}")]
    Mpi(#[from] MpiError),
    #[error("the data connections were given up before all of them were there: the client has cancelled the test")]
    Cancelled,
    /// The flows did not connect in time.
    #[error("{connected} of {flows} data connections were made within {seconds} s: {hint}")]
    Timeout { connected: u32, flows: u32, seconds: f64, hint: String },
}

impl EndError {
    /// Turns an error of the system into [`EndError::System`].
    pub(crate) fn system<E: Into<std::io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> Self {
        move |error| Self::System { what: what.into(), source: error.into() }
    }
}

/// The remedy, where the system's own message does not give it.
pub(crate) fn remedy(source: &std::io::Error) -> &'static str {
    match nix::errno::Errno::from_raw(source.raw_os_error().unwrap_or(0)) {
        nix::errno::Errno::EMFILE => "; allow more of them where that end runs (ulimit -n), or use fewer streams",
        _ => "",
    }
}
