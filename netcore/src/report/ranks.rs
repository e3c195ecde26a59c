//! The report of one rank of a test of N ranks. All instants are on the rank's own monotonic clock.

use serde::{Deserialize, Serialize};

use super::{Ending, NicFacts, ThreadUse, Volume};
use crate::foreign;

/// Limit of the instants that a rank reports.
pub const MOST_INSTANTS: usize = 4096;

/// Report of one rank on one iteration. The client joins those of all ranks, and it alone knows the offsets of their clocks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RankReport {
    pub rank: u32,
    /// The algorithm of the operation, or `library` where a library chose it.
    pub algorithm: String,
    /// The library that carried the data, with its version; `None`: our own connections.
    pub library: Option<String>,
    /// The instant at which the measurement began, nanoseconds; 0: it never began.
    pub monotonic_start_ns: u64,
    /// The same on the wall clock, Unix nanoseconds.
    pub wall_start_ns: i64,
    /// Time from the first measured operation to the last, nanoseconds, with what is between them: barriers and the
    /// agreement to go on.
    pub elapsed_ns: u64,
    /// Measured operations: the same number at every rank. A kernel is one.
    pub operations: u64,
    /// Time in the operations: sum, least and greatest, nanoseconds.
    pub sum_ns: u64,
    pub min_ns: u64,
    pub max_ns: u64,
    /// HdrHistogram of the time of each operation, V2, base64.
    #[serde(deserialize_with = "foreign::base64")]
    pub histogram: String,
    /// Every how many operations one is in `instants`; a power of two, the same at every rank.
    pub stride: u64,
    /// Entry and exit of these operations, nanoseconds after `monotonic_start_ns`.
    #[serde(deserialize_with = "foreign::at_most::<_, _, MOST_INSTANTS>")]
    pub instants: Vec<(u64, u64)>,
    /// Time in calls that talk to other ranks, nanoseconds: in an operation without busy time, all of it.
    pub communication_ns: u64,
    /// Traffic of this rank in the measured operations; `None`: a library's own algorithm did it.
    pub traffic: Option<RankTraffic>,
    /// The rank's thread over `elapsed_ns`; `None`: not known, or nothing was measured.
    pub thread: Option<ThreadUse>,
    pub nas: Option<NasResult>,
    /// The interface that routes to the next rank.
    pub nic: Option<NicFacts>,
    pub ending: Ending,
    /// Facts for the reader of the numbers.
    #[serde(deserialize_with = "foreign::at_most::<_, _, { foreign::MOST_SENTENCES }>")]
    pub notes: Vec<String>,
}

/// Messages and payload bytes of a rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RankTraffic {
    pub messages_sent: u64,
    pub messages_received: u64,
    pub bytes_sent: u64,
    pub bytes_received: u64,
}

/// The result of a kernel of the NAS Parallel Benchmarks, the same at every rank.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NasResult {
    /// Million operations per second, as the suite counts them for the kernel.
    pub mops_per_s: f64,
    /// Time of the timed part at the slowest rank, nanoseconds.
    pub timed_ns: u64,
    /// Checks against the published values, and those that held.
    pub checks: u32,
    pub passed: u32,
}

impl RankReport {
    /// Report of a rank without a measurement.
    pub fn empty(rank: u32, ending: Ending) -> Self {
        Self { rank, stride: 1, ending, ..Self::default() }
    }

    pub(crate) fn volume(&self) -> Volume {
        let traffic = self.traffic.unwrap_or_default();
        (traffic.bytes_sent, traffic.bytes_received, self.elapsed_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_bounded_while_it_is_read() {
        let rank = RankReport::empty(0, Ending::Complete);
        let many = vec![String::new(); foreign::MOST_SENTENCES + 1];
        for (report, wrong) in [
            (RankReport { notes: many, ..rank.clone() }, "a list has more than"),
            (RankReport { instants: vec![(0, 1); 4097], ..rank.clone() }, "a list has more than"),
            (RankReport { histogram: "\u{1b}]0;title\u{7}\n".to_owned(), ..rank }, "not in base64"),
        ] {
            let json = serde_json::to_vec(&report).unwrap();
            let said = foreign::from_slice::<RankReport>(&json).unwrap_err().to_string();
            assert!(said.contains(wrong), "{said}");
        }
    }
}
