//! Sources of the numbers beside the byte counters. Nothing here runs inside the data path's loops: samples are taken
//! at the edges of phases and intervals.
//!
//! | module | answers |
//! | --- | --- |
//! | [`addresses`] | at which addresses other hosts reach this one |
//! | [`cgroup`] | which CPU quota is in force here, and for how long it held this end back |
//! | [`clock`] | what time it is, on the clock that both ends cut their counters by |
//! | [`counter_log`] | what the kernel and its interfaces counted: the system log and its relatives |
//! | [`envelope`] | how far the clocks of two hosts are apart |
//! | [`histogram`] | how latencies are spread |
//! | [`cpu`] | how busy the machine's CPUs were between two edges |
//! | [`sample`] | what held this end back |
//! | [`host`] | what kind of machine this is |
//! | `outage` | when a path was down |
//! | `reflections` | what a reflector's answers say beside their times |
//! | `one_way` | how long requests and answers were under way, told apart |
//! | [`nic`] | which interface the packets use, and what it is like |
//! | [`tasks`] | for how long the data threads ran, and waited for a CPU |
//! | [`tcp_info`] | what the kernel knows about a TCP connection |

pub mod addresses;
pub mod cgroup;
pub mod clock;
pub mod counter_log;
pub(crate) mod counters;
pub mod cpu;
mod drops;
pub mod envelope;
pub mod histogram;
pub mod host;
pub(crate) mod kernel;
#[cfg(test)]
pub(crate) mod namespace;
mod netlink;
pub mod nic;
pub(crate) mod one_way;
pub(crate) mod outage;
pub(crate) mod reflections;
pub mod sample;
pub(crate) mod sampler;
pub mod tasks;
pub mod tcp_info;
pub(crate) mod watch;
mod windows;

/// Limit of the bytes of histograms of intervals in a report, and of the counters of intervals.
pub const KEPT_BYTES: usize = 32 << 20;

/// A full histogram of a reading, or the counters of a large machine in an interval, bytes.
pub const LARGEST_KEPT_BYTES: usize = 128 << 10;
