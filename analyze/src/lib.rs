//! Filters over the results contract: CSV in; CSV, a table for people, or a picture out.
//!
//! Each filter is one file in [`filters`] of one shape: a doc comment that is also its help, `Args`, and
//! `run(&Args, &mut dyn Write)`. They share [`error`] and know columns by name; none has ever heard of a socket.
#![forbid(unsafe_code)]

pub mod error;
pub mod filters;

pub use error::{Error, Verdict};

use std::io::Write;

/// The filters, as the program's subcommands.
#[derive(Debug, clap::Subcommand)]
pub enum Filter {}

impl Filter {
    /// Runs the filter with `output` as its standard output. A closed pipe is success.
    pub fn run(&self, _output: &mut dyn Write) -> Result<Verdict, Error> {
        match *self {}
    }
}
