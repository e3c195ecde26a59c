//! Outages of a path.

use serde::{Deserialize, Serialize};

/// Outages of the measure phase, as the requester saw them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outages {
    pub count: u64,
    /// Length of all, nanoseconds.
    pub total_ns: u64,
    pub longest: Option<Outage>,
    /// Time between two requests, nanoseconds: begin and length are known to it.
    pub gap_ns: u64,
}

/// Time in which requests were not answered as usual.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outage {
    /// After the begin of the measure phase, nanoseconds.
    pub begin_ns: i64,
    /// At least, if it lasted to the end.
    pub length_ns: u64,
    /// Whether the requests got lost, and not their answers; `None`: it lasted to the end of the test, and nobody can tell.
    pub forward: Option<bool>,
}
