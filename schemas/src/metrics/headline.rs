//! The headline of a workload: the one metric that stands for a result where none is named.
//!
//! `run`'s table, `compare`, `report`, `baseline promote` and default pictures all take it from here.

use super::{Metric, find};

/// The kind of work that a workload does, as far as its headline depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Family {
    /// Moves bytes: `tcp_stream`, `udp_maerts`.
    Stream,
    /// Counts transactions or connections: `tcp_rr`, `unix_pingpong`, `tcp_crr`.
    Transactions,
    /// Measures time only: `ping`.
    Ping,
    /// Operations of many ranks: `tcp_collective`.
    Collective,
    /// A kernel of the NAS Parallel Benchmarks: `nas_is`.
    Nas,
    /// A program, a group of several workloads, or a table without the column.
    #[default]
    Other,
}

impl Family {
    pub const ALL: [Self; 6] = [Self::Stream, Self::Transactions, Self::Ping, Self::Collective, Self::Nas, Self::Other];

    /// The family of a workload's name, as in the column `workload`.
    pub fn of(workload: &str) -> Self {
        if workload == "ping" {
            return Self::Ping;
        }
        if workload.ends_with("nas_ep") || workload.ends_with("nas_is") {
            return Self::Nas;
        }
        match workload.rsplit_once('_').map(|(_, last)| last) {
            Some("stream" | "maerts" | "duplex" | "sendfile") => Self::Stream,
            Some("collective") => Self::Collective,
            Some("rr" | "pingpong" | "crr" | "cc") => Self::Transactions,
            _ => Self::Other,
        }
    }

    /// Names of the metrics that can be the headline, the best first.
    pub const fn headlines(self) -> &'static [&'static str] {
        match self {
            // `sent`: the far end does not count arrivals (`control: none`).
            Self::Stream => &["throughput", "sent"],
            Self::Transactions => &["transaction_rate", "latency.p50", "latency.mean", "throughput"],
            Self::Ping => &["latency.p50", "latency.mean"],
            Self::Collective => &["operation_time"],
            Self::Nas => &["mops", "elapsed"],
            Self::Other => &[
                "throughput",
                "transaction_rate",
                "sent",
                "latency.p50",
                "latency.mean",
                "latency.p99",
                "mops",
                "elapsed",
            ],
        }
    }

    /// The headline: the best metric that there is. `has` says whether there are values of a metric.
    pub fn headline(self, mut has: impl FnMut(&Metric) -> bool) -> Option<&'static Metric> {
        self.headlines().iter().filter_map(|name| find(name)).find(|metric| has(metric))
    }

    /// Metrics that belong beside the headline; empty for streams.
    pub const fn beside(self) -> &'static [&'static str] {
        match self {
            Self::Transactions => &["latency.p50", "latency.p99"],
            Self::Ping => &["latency.p99"],
            Self::Collective => &["own_time", "arrival_spread"],
            Self::Nas => &["communication"],
            Self::Stream | Self::Other => &[],
        }
    }
}

/// The headline of a workload, by its name. `has` says whether there are values of a metric.
pub fn headline(workload: &str, has: impl FnMut(&Metric) -> bool) -> Option<&'static Metric> {
    Family::of(workload).headline(has)
}

/// Every metric that can be a headline, each once: what to read of a table before its workloads are known.
pub fn headlines() -> Vec<&'static Metric> {
    let mut all: Vec<&'static Metric> = Vec::new();
    for family in Family::ALL {
        for metric in family.headlines().iter().filter_map(|name| find(name)) {
            if !all.iter().any(|known| known.name == metric.name) {
                all.push(metric);
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(workload: &str, there: &[&str]) -> Option<&'static str> {
        headline(workload, |m| there.contains(&m.name)).map(|m| m.name)
    }

    #[test]
    fn a_workload_has_one_headline() {
        // Requests carry payload and pings are counted, but neither is what their test asks.
        let all: Vec<&str> = headlines().iter().map(|m| m.name).collect();
        for (workload, name) in [
            ("tcp_stream", "throughput"),
            ("udp_maerts", "throughput"),
            ("tcp_duplex", "throughput"),
            ("tcp_sendfile", "throughput"),
            ("unix_dgram_stream", "throughput"),
            ("tcp_rr", "transaction_rate"),
            ("unix_pingpong", "transaction_rate"),
            ("tcp_crr", "transaction_rate"),
            ("tcp_cc", "transaction_rate"),
            ("ping", "latency.p50"),
            ("mpi_collective", "operation_time"),
            ("mpi_nas_is", "mops"),
            ("command", "throughput"),
            ("", "throughput"),
        ] {
            assert_eq!(of(workload, &all), Some(name), "{workload}");
        }
    }

    #[test]
    fn without_its_values_the_next_best_stands_for_it() {
        assert_eq!(of("tcp_stream", &["sent", "latency.p50"]), Some("sent"));
        assert_eq!(of("tcp_rr", &["throughput", "latency.mean"]), Some("latency.mean"));
        assert_eq!(of("command", &["latency.mean", "elapsed"]), Some("latency.mean"));
        assert_eq!(of("tcp_stream", &["latency.p50"]), None);
    }

    #[test]
    fn every_name_is_a_metric() {
        for family in Family::ALL {
            assert!(family.headlines().iter().chain(family.beside()).all(|name| find(name).is_some()), "{family:?}");
        }
    }
}
