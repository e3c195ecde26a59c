//! A reflector of STAMP, as its answers show it.

use serde::{Deserialize, Serialize};

/// Findings from the answers of the measure phase beside their times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reflector {
    /// Requests and answers that got lost before the last answer came. `None`: the reflector does not count requests, or counts them
    /// wrong.
    pub lost: Option<(u64, u64)>,
    /// Least TTL or hop limit with which a request came there; requests leave with 255.
    pub ttl: Option<u8>,
}
