//! The runner: from a plan's text to cases, from cases to sessions, from results to rows and a verdict.
//!
//! [`plan`] reads a YAML plan, checks it whole and expands it into cases. It knows no sockets.
#![forbid(unsafe_code)]

pub mod plan;
