//! Filters over the results contract: CSV in; CSV, a table for people, or a picture out.
//!
//! Each filter is one file in [`filters`]. They read tables with [`table`] (large ones on all cores with [`parallel`]),
//! compute with the pure functions in [`stats`], judge with [`judge`], and know columns by name.
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

pub mod cases;
pub mod counters;
pub mod error;
pub mod export;
pub mod filters;
pub mod history;
pub mod import;
pub mod judge;
pub mod limits;
#[cfg(test)]
#[allow(dead_code, reason = "what only other tests use")]
#[path = "../../tests/common/needs.rs"]
mod needs;
pub mod parallel;
pub mod plot;
pub mod site;
pub mod stats;
pub mod style;
pub mod survey;
pub mod table;
pub mod wire;

use schemas::units::parse_ratio;
use std::ffi::OsString;

pub(crate) use error::warn;

pub use error::{Error, Verdict};
pub use filters::Filter;

/// The arguments of a filter, from words as on its command line, its name first.
pub(crate) fn parsed<A: clap::Args>(
    words: impl IntoIterator<Item = impl Into<OsString> + Clone>,
) -> Result<A, clap::Error> {
    A::from_arg_matches(&A::augment_args(clap::Command::new("plumb")).try_get_matches_from(words)?)
}

/// More than nothing and less than all; `otherwise` tells of any other ratio.
pub(crate) fn share(text: &str, otherwise: impl FnOnce() -> String) -> Result<f64, String> {
    let ratio = parse_ratio(text).map_err(|e| e.to_string())?;
    if ratio > 0.0 && ratio < 1.0 { Ok(ratio) } else { Err(otherwise()) }
}

/// A value as the command line has it.
pub fn word(value: &impl clap::ValueEnum) -> String {
    value.to_possible_value().map(|v| v.get_name().to_owned()).unwrap_or_default()
}

/// The first of some texts, and how many more there are.
pub fn first_few(texts: impl ExactSizeIterator<Item = String>, most: usize) -> Vec<String> {
    let more = texts.len().saturating_sub(most);
    let rest = (more > 0).then(|| format!("and {more} more"));
    texts.take(most).chain(rest).collect()
}

/// The items in their order, equal ones once. For few: each is compared with all others.
pub fn distinct<T: PartialEq>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    for item in items {
        if !found.contains(&item) {
            found.push(item);
        }
    }
    found
}
