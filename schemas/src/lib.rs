//! The results contract: what a row of `plumb run` holds, in which unit, and which way is better.
//!
//! Three things live here and nothing else:
//!
//! - [`columns`]: every column of the wide results table, in its fixed order, and [`columns::Row`], one row with a typed
//!   field per column. Both come from one list, so they cannot disagree.
//! - [`metrics`]: the quantities people compare, assert on and plot, each tied to a column, a [`units::Unit`] and the
//!   direction in which it is better.
//! - [`units`]: sizes, durations, rates and ratios as people write them (`64KiB`, `150us`, `1Gbit/s`, `2.5%`), and back
//!   into words for tables and axes.
//!
//! [`text`] makes foreign text safe to print. [`vocabulary`] finds a column by any of its names. [`assertion`] is the small
//! grammar `metric op quantity`, checked against the registry. [`publish`] makes the JSON documents that `schemas/`
//! publishes.
//!
//! ```
//! use schemas::{metrics, units};
//! let throughput = metrics::find("throughput").expect("registered");
//! assert_eq!(throughput.column, "throughput_bits_per_s");
//! assert_eq!(units::parse_size("64KiB").expect("a size"), 65_536);
//! ```
#![forbid(unsafe_code)]

pub mod assertion;
pub mod columns;
pub mod metrics;
pub mod publish;
pub mod run_record;
pub mod text;
pub mod time;
pub mod units;
pub mod vocabulary;
pub mod words;
