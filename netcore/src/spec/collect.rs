//! The data that a test collects besides byte counters, one row each.

use serde::{Deserialize, Serialize};

macro_rules! collect {
    ($($(#[$doc:meta])* $word:ident is $field:ident, $default:literal;)*) => {
        /// Data collected besides byte counters.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(rename_all = "snake_case")]
        pub enum Collectable { $($(#[$doc])* $word),* }

        /// The same as switches.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct Collect { $($(#[$doc])* pub $field: bool),* }

        impl Default for Collect {
            fn default() -> Self {
                Self { $($field: $default),* }
            }
        }

        impl FromIterator<Collectable> for Collect {
            fn from_iter<I: IntoIterator<Item = Collectable>>(words: I) -> Self {
                let mut collect = Self { $($field: false),* };
                for word in words {
                    match word { $(Collectable::$word => collect.$field = true),* }
                }
                collect
            }
        }
    };
}

collect! {
    /// CPU shares by state, from `/proc/stat`.
    Cpu is cpu, true;
    /// Evidence on what limited the load: data threads, soft interrupts, drops, congestion marks.
    Limits is limits, true;
    /// CPU shares of each core.
    CpuPerCore is cpu_per_core, false;
    /// TCP_INFO at the edges, and at intervals.
    TcpInfo is tcp_info, true;
    /// Latency of a stream's send and receive calls; round trips are always timed.
    Latency is latency, false;
    /// Counters of the interface that the route uses.
    Nic is nic, false;
    /// Interrupts by CPU, from `/proc/interrupts`.
    Interrupts is interrupts, false;
    /// Protocol counters of the kernel: `/proc/net/snmp` and `/proc/net/netstat`.
    Snmp is snmp, false;
    /// The system log: CPU per core, memory, interrupts, paging, context switches and interfaces per interval.
    System is system, false;
}
