//! Where results go.
//!
//! - [`csv`]: the results table
//! - [`notes`]: what to know about the numbers
//! - [`progress`]: what a person sees while it runs
//! - [`run_json`]: what the table does not hold
//! - [`table`]: the summary at the end

pub mod csv;
pub mod notes;
pub mod progress;
pub mod run_json;
pub mod table;
