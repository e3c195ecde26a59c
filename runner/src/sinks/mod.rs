//! Where results go.
//!
//! - [`csv`]: the results table
//! - [`progress`]: what a person sees while it runs
//! - [`table`]: the summary at the end

pub mod csv;
pub mod progress;
pub mod table;
