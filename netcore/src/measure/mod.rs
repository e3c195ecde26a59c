//! Where the numbers beside the byte counters come from. Nothing here runs inside the data path's loops: readings are
//! taken at the edges of phases and intervals.
//!
//! | module | answers |
//! | --- | --- |
//! | [`clock`] | what time it is, on the clock that both ends cut their counters by |
//! | [`counter_log`] | what the kernel and its interfaces counted: the system log and its relatives |
//! | [`cpu`] | how busy the machine's CPUs were between two edges |
//! | [`host`] | what kind of machine this is |
//! | [`nic`] | which interface the packets use, and what it is like |
//! | [`tcp_info`] | what the kernel knows about a TCP connection |

pub mod clock;
pub mod counter_log;
pub mod cpu;
pub mod host;
mod interrupts;
mod netlink;
pub mod nic;
mod snmp;
mod system;
pub mod tcp_info;
