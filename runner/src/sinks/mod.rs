//! Destinations of results.
//!
//! - [`files`]: which files a run leaves behind; [`claim`]: their place, and what an earlier run left there
//! - [`csv`]: the results table; [`counters`]: the kernels' counters; [`hops`]: the hops of paths; [`appended`]: the files of all three
//! - [`run_json`]: what the tables do not hold; [`hook_log`]: what hooks printed
//! - [`ci`]: JUnit, Markdown, annotations; [`plots`]: pictures
//! - [`table`]: the summary at the end; [`notes`]: what to know about its numbers; [`disturbance`]: of these, what disturbed
//!   an end

pub mod appended;
pub mod ci;
pub mod claim;
pub mod counters;
pub mod csv;
pub mod disturbance;
pub mod files;
pub mod hook_log;
pub mod hops;
pub mod notes;
pub mod plots;
pub mod run_json;
pub mod table;
