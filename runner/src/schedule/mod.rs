//! From steps to sessions: what runs next, how often, and what becomes of its results.
//!
//! - [`step`]: the cases of a plan as the schedule runs them
//! - [`history`]: what an interrupted run has finished
//! - [`order`]: which case comes next
//! - [`confidence`]: when a case is known well enough
//! - [`bench`]: what the loop needs from outside
//! - [`rows`]: from reports to rows
//! - [`run`]: the loop
//! - [`search`]: which load comes next where the highest one that holds is searched

pub mod bench;
pub mod confidence;
#[cfg(test)]
pub(crate) mod fake;
pub mod history;
pub mod order;
pub mod rows;
pub mod run;
pub mod search;
pub mod step;
