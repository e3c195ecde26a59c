//! Statistics as pure functions on slices, each with its source. The runner decides with the same code when a case is
//! known well enough, so its numbers and the filters' are the same numbers.
//!
//! Checked against SciPy and R in the tests; `docs/statistics.md` says why these and not others.

pub mod bootstrap;
pub mod compare;
pub mod confidence;
pub mod histogram;
pub mod hockney;
pub mod moments;
pub mod quantiles;
pub mod series;
pub mod sketch;

#[cfg(test)]
mod published;
