//! The history of a plan: what its runs came to, in CSV files that are kept in git.
//!
//! - [`added`]: the rows that a run adds
//! - [`store`]: the folder of files: appending, compacting, and reading what may be damaged
//! - [`series`]: the rows of one case, metric and machine, in the order of time; changes that are known
//! - [`commits`]: the commits between two runs
//! - [`trend`]: what a series tells: its level, its noise, its changes and drifts
//! - [`thin`]: the runs that stay when a history is compacted
//! - [`analysed`]: series that were asked for, with their trend and what is known of it; findings of several that begin at the
//!   same run; [`sentences`] about them

pub mod added;
pub mod analysed;
pub mod commits;
pub mod sentences;
pub mod series;
pub mod store;
pub mod thin;
pub mod trend;
