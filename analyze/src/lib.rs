//! Filters over the results contract: CSV in; CSV, a table for people, or a picture out.
//!
//! Each filter is one file in [`filters`] of one shape: a doc comment that is also its help, `Args`, and
//! `run(&Args, &mut dyn Write)`. They share the reader in [`table`], the pure functions in [`stats`] and [`error`], and
//! know columns by name; none has ever heard of a socket.
#![forbid(unsafe_code)]
#![allow(
    clippy::many_single_char_names,
    clippy::similar_names,
    reason = "formulas are written with the letters of their sources"
)]
#![cfg_attr(
    test,
    allow(clippy::float_cmp, clippy::format_push_string, reason = "tests compare exact values and build tables")
)]

pub mod counters;
pub mod error;
pub mod export;
pub mod filters;
pub mod import;
mod input;
pub mod judge;
pub mod parallel;
pub mod plot;
pub mod stats;
pub mod table;
mod time;

pub(crate) use error::warn;
pub use error::{Error, Verdict};

use std::io::Write;

/// The filters, as the program's subcommands. Each one's help is the doc comment of its `Args`.
#[derive(Debug, clap::Subcommand)]
#[expect(missing_docs, reason = "a doc comment here would replace the filter's own help")]
pub enum Filter {
    Aggregate(filters::aggregate::Args),
    Beforeafter(Box<filters::beforeafter::Args>),
    Compare(Box<filters::compare::Args>),
    Fit(Box<filters::fit::Args>),
    Export(Box<filters::export::Args>),
    Gate(Box<filters::gate::Args>),
    Import(filters::import::Args),
    Percentiles(Box<filters::percentiles::Args>),
    Plot(Box<filters::plot::Args>),
    Report(filters::report::Args),
    Steady(Box<filters::steady::Args>),
    Table(filters::table::Args),
    Window(Box<filters::window::Args>),
}

impl Filter {
    /// Runs the filter with `output` as its standard output. A closed pipe is success.
    pub fn run(&self, output: &mut dyn Write) -> Result<Verdict, Error> {
        let result = match self {
            Self::Aggregate(args) => filters::aggregate::run(args, output),
            Self::Beforeafter(args) => filters::beforeafter::run(args, output),
            Self::Compare(args) => filters::compare::run(args, output),
            Self::Fit(args) => filters::fit::run(args, output),
            Self::Export(args) => filters::export::run(args, output),
            Self::Gate(args) => filters::gate::run(args, output),
            Self::Import(args) => filters::import::run(args, output),
            Self::Percentiles(args) => filters::percentiles::run(args, output),
            Self::Plot(args) => filters::plot::run(args, output),
            Self::Report(args) => filters::report::run(args, output),
            Self::Steady(args) => filters::steady::run(args, output),
            Self::Table(args) => filters::table::run(args, output),
            Self::Window(args) => filters::window::run(args, output),
        };
        match result {
            Err(error) if error.is_closed_pipe() => Ok(Verdict::Ok),
            other => other,
        }
    }
}
