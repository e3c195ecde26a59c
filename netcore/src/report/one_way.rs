//! Delays of the two directions, each by the clocks of both hosts.

use serde::{Deserialize, Serialize};

/// The relation of the two hosts' clocks, by the requests and answers of a test with `one_way`, as the requester found it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OneWay {
    /// Whether the kernels of both hosts told when each message arrived; otherwise the programs did, later.
    pub kernel: bool,
    /// CLOCK_MONOTONIC_RAW of the far end minus that of the near end at the begin of the measure phase, nanoseconds.
    pub offset_ns: i64,
    /// Bound of the error of the offset at any instant of the measure phase, nanoseconds.
    pub bound_ns: u64,
    /// Drift of the far end's clock against the near end's, parts per billion.
    pub drift_ppb: i64,
    /// The least delay of a message by that offset, nanoseconds. It is the same in both directions, since the offset is taken in
    /// the middle.
    pub least_ns: u64,
}
