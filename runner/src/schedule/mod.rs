//! From steps to sessions: the order of iterations, their number, and the rows of their results.
//!
//! - [`step`]: the cases of a plan as the schedule runs them, and their order
//! - [`history`]: finished iterations of an interrupted run
//! - [`confidence`]: when a case is known well enough
//! - [`mod@bench`]: the interface to measuring and to the sinks
//! - [`rows`]: from reports to rows
//! - [`run`]: the loop
//! - [`search`]: the next load in a search for the highest one that holds

pub mod bench;
pub mod confidence;
#[cfg(test)]
pub(crate) mod fake;
pub mod history;
pub mod rows;
pub mod run;
pub mod search;
pub mod step;
