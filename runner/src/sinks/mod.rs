//! Destinations of results.
//!
//! - [`files`]: which files a run leaves behind, their place, and what an earlier run left there
//! - [`csv`]: the tables of results and of the kernels' counters
//! - [`hops`]: the table of the hops of paths
//! - [`run_json`]: what the tables do not hold, and what hooks printed
//! - [`ci`]: JUnit, Markdown, annotations
//! - [`table`]: the summary at the end; [`notes`]: what to know about its numbers

pub mod ci;
pub mod csv;
pub mod files;
pub mod hops;
pub mod notes;
pub mod run_json;
pub mod table;
