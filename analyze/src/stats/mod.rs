//! Statistics as pure functions on slices, each with its source. The runner uses the same code to decide whether a case
//! is measured well enough, so its numbers equal the filters'.
//!
//! The tests check against SciPy and R; `docs/reference/statistics.md` gives the reasons for the choice of methods.

pub mod bootstrap;
pub mod changes;
pub mod compare;
pub mod confidence;
pub mod histogram;
pub mod hockney;
pub mod moments;
#[cfg(test)]
mod published;
pub mod quantiles;
pub mod ranks;
pub mod responsiveness;
pub mod series;
