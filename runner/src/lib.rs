//! The runner: from a plan's text to cases, from cases to sessions, from results to rows and a verdict.
//!
//! [`cli`] is the program's command line. [`plan`] reads a YAML plan, checks it and expands it into cases. [`campaign`] runs
//! them; the order of the modules is in docs/internals/architecture.md.
#![forbid(unsafe_code)]

pub mod campaign;
pub mod cli;
pub mod error;
pub mod gate;
pub mod hosts;
pub mod launch;
pub mod measure;
pub mod metrics;
pub mod netperf;
pub mod plan;
pub mod programs;
pub mod progress;
pub mod resume;
pub mod schedule;
pub mod signals;
pub mod sinks;
pub mod style;
pub mod watch;
pub mod why;
