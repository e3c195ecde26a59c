//! The registry of metrics: which column holds them, their unit, and which way is better.

pub use crate::{
    columns::metric::{Better, Kind, Metric},
    units::Range,
};

/// Every metric, in the order of its column. A metric is declared beside its column, in [`crate::columns::results`].
pub use crate::columns::results::METRICS;

use crate::{
    columns::{Row, results::column},
    units::Unit,
    words::{OfferedUnit, Search, Way},
};

/// The metric of that name, or the one held by the column of that name. `throughput.mean` is `throughput`.
pub fn find(name: &str) -> Option<&'static Metric> {
    METRICS
        .iter()
        .find(|m| m.name == name || m.column == name)
        .or_else(|| name.strip_suffix(".mean").and_then(|stem| METRICS.iter().find(|m| m.name == stem)))
}

/// Figures of a survey: of all pairs of a test together, so no row has a column for them. `schemas::assertion` knows them,
/// and `plumb survey` computes them.
pub const SURVEY: &[Metric] = &[
    Metric {
        name: "suspects",
        column: "suspects",
        unit: Unit::Count,
        better: Better::Lower,
        kind: Kind::Count,
        label: "suspects",
        own_range: None,
    },
    Metric {
        name: "spread",
        column: "spread_ratio",
        unit: Unit::Ratio,
        better: Better::Lower,
        kind: Kind::Gauge,
        label: "spread",
        own_range: Some(Range::POSITIVE),
    },
];

/// The cause of `limited_by`, of which statements name a word. Unlike a metric it has no numbers, only an index into
/// [`LimitedBy::ALL`](crate::words::LimitedBy::ALL).
pub const LIMITED_BY: &Metric = &Metric {
    name: "limited_by",
    column: "limited_by",
    unit: Unit::Count,
    better: Better::Neither,
    kind: Kind::Count,
    label: "limited by",
    own_range: None,
};

/// The figure of a survey with that name, or as verdicts name it.
pub fn of_survey(name: &str) -> Option<&'static Metric> {
    SURVEY.iter().find(|figure| figure.name == name || figure.column == name)
}

/// The range of the metric in that column (or of that name). A column without a metric can have any value.
pub fn range_of(column: &str) -> Range {
    find(column).map_or(Range::ANY, Metric::range)
}

// The headline of a workload: the one metric that stands for a result where none is named.
//
// `run`'s table, `compare`, `report`, `baseline promote` and default pictures all take it from here.

/// The metric that says how much longer a round trip takes under load.
pub const ADDED: &str = "added_latency.p50";

/// The kind of work that a workload does, as far as its headline depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Family {
    /// Moves bytes: `tcp_stream`, `udp_maerts`.
    Stream,
    /// Counts transactions or connections: `tcp_rr`, `unix_pingpong`, `tcp_crr`.
    Transactions,
    /// Measures time only: `ping`.
    Ping,
    /// Measures latency: transactions or connections at a rate that the plan sets, and no search finds.
    Probe,
    /// Operations of many ranks: `tcp_collective`.
    Collective,
    /// A kernel of the NAS Parallel Benchmarks: `nas_is`.
    Nas,
    /// A program, a group of several workloads, or a table without the column.
    #[default]
    Other,
}

/// A workload for people, who sit at the end that opens the connections: `tcp_stream, download` is the `tcp_maerts` of
/// netperf, and a stream whose direction is `reverse`.
pub fn shown_workload(workload: &str, direction: Option<Way>) -> String {
    let stream = workload.strip_suffix("_maerts").map(|transport| format!("{transport}_stream"));
    let is_download = stream.is_some() || direction == Some(Way::Reverse) && Family::of(workload) == Family::Stream;
    let name = stream.unwrap_or_else(|| workload.to_owned());
    if is_download { format!("{name}, download") } else { name }
}

impl Family {
    pub const ALL: [Self; 7] =
        [Self::Stream, Self::Transactions, Self::Ping, Self::Probe, Self::Collective, Self::Nas, Self::Other];

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

    /// The columns that tell the family of a row.
    pub const CELLS: [&str; 3] = [column::workload, column::offered_unit, column::search];

    /// The family of a row, from its cells in [`Self::CELLS`].
    pub fn of_row([workload, offered_unit, search]: [&str; 3]) -> Self {
        match Self::of(workload) {
            Self::Transactions if offered_unit == OfferedUnit::Transactions.as_str() && search.is_empty() => {
                Self::Probe
            }
            family => family,
        }
    }

    /// Whether a metric follows from what the test was asked to do, and says nothing of the path: the payload of requests,
    /// the rate of a probe.
    pub fn is_incidental(self, metric: &str) -> bool {
        match self {
            Self::Transactions | Self::Ping => matches!(metric, "throughput" | "sent"),
            Self::Probe => matches!(metric, "throughput" | "sent" | "transaction_rate"),
            _ => false,
        }
    }

    /// Names of the metrics that can be the headline, the best first.
    pub const fn headlines(self) -> &'static [&'static str] {
        match self {
            // `sent`: the far end does not count arrivals (`control: none`).
            Self::Stream => &["throughput", "sent"],
            // What a load adds is there only in rows of a probe that names the one on the idle path.
            Self::Transactions => &[ADDED, "transaction_rate", "latency.p50", "latency.mean", "throughput"],
            Self::Ping => &[ADDED, "latency.p50", "latency.mean"],
            // Latencies may not be collected.
            Self::Probe => &[ADDED, "latency.p50", "latency.mean", "transaction_rate"],
            // Other benches may print the mean of the ranks alone.
            Self::Collective => &["operation_time", "operation_time.mean"],
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
            Self::Transactions | Self::Probe => &["latency.p50", "latency.p99"],
            Self::Ping => &["latency.p99"],
            Self::Collective => &["own_time", "arrival_spread"],
            Self::Nas => &["communication"],
            Self::Stream | Self::Other => &[],
        }
    }
}

impl From<&Row> for Family {
    fn from(row: &Row) -> Self {
        let workload = row.workload.as_deref().unwrap_or_default();
        let search = row.search.map_or("", Search::as_str);
        Self::of_row([workload, row.offered_unit.map_or("", OfferedUnit::as_str), search])
    }
}

/// Whether a row is of a member of a group that measures the latency beside a load: nothing limits it but the load.
pub fn is_beside_load(row: &Row) -> bool {
    row.member.is_some() && (row.added_latency_p50_us.is_some() || Family::from(row) == Family::Probe)
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
    use crate::columns;

    #[test]
    fn every_metric_has_its_numeric_column_and_a_unique_name() {
        let mut names = std::collections::HashSet::new();
        for m in METRICS {
            let column = columns::find(m.column).unwrap_or_else(|| panic!("{} has no column {}", m.name, m.column));
            assert!(matches!(column.ty, columns::ColumnType::Integer | columns::ColumnType::Number));
            assert!(names.insert(m.name));
            assert!(m.name == m.column || names.insert(m.column), "column {} has two metrics", m.column);
        }
    }

    #[test]
    fn ranges_follow_units_and_meanings() {
        for m in METRICS {
            let text = columns::find(m.column).unwrap().description();
            let range = m.range();
            assert!(!text.contains("0 … 1") || range == Range::SHARE, "{}", m.name);
            let is_difference = m.name.starts_with("added_") || ["rate_error", "delay_asymmetry"].contains(&m.name);
            assert!(is_difference || range.low.abs() < f64::EPSILON, "{}", m.name);
        }
        assert_eq!(range_of("throughput_bits_per_s"), Range::POSITIVE);
        assert_eq!(range_of("loss_ratio"), Range::SHARE);
        assert_eq!(range_of("cpu.local_peak"), Range::SHARE);
        // A sender may reach more than the offered rate, but not less than nothing.
        assert_eq!(range_of("rate_error_ratio"), Range::at_least(-1.0));
        // A path may answer faster under load.
        assert_eq!(range_of("added_latency.p95"), Range::ANY);
        assert_eq!(range_of("start_s"), Range::ANY);
        assert!(Range::SHARE.contains(1.0) && !Range::SHARE.contains(1.1));
        assert!((Range::SHARE.clamp(1.1) - 1.0).abs() < f64::EPSILON);
    }

    #[test]
    fn names_columns_and_means_are_found() {
        assert_eq!(find("throughput.mean").map(|m| m.column), Some("throughput_bits_per_s"));
        assert_eq!(find("latency_p99_us").map(|m| m.name), Some("latency.p99"));
        assert_eq!(find("latency.mean").map(|m| m.column), Some("latency_mean_us"));
        assert!(find("thruput").is_none());
    }

    fn of(workload: &str, there: &[&str]) -> Option<&'static str> {
        Family::of(workload).headline(|m| there.contains(&m.name)).map(|m| m.name)
    }

    #[test]
    fn a_download_is_called_so() {
        for (workload, direction, shown) in [
            ("tcp_maerts", Some(Way::Reverse), "tcp_stream, download"),
            ("udp_maerts", None, "udp_stream, download"),
            ("tcp_sendfile", Some(Way::Reverse), "tcp_sendfile, download"),
            ("tcp_stream", Some(Way::Forward), "tcp_stream"),
            ("tcp_duplex", Some(Way::Both), "tcp_duplex"),
            ("tcp_rr", Some(Way::Reverse), "tcp_rr"),
        ] {
            assert_eq!(shown_workload(workload, direction), shown);
        }
    }

    #[test]
    fn a_workload_has_one_headline() {
        // Requests carry payload and pings are counted, but neither is what their test asks.
        let all: Vec<&str> = headlines().iter().map(|m| m.name).filter(|name| *name != ADDED).collect();
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
    fn a_probe_measures_latency_and_what_a_load_adds_to_it() {
        let has = |there: &'static [&str]| move |m: &Metric| there.contains(&m.name);
        let rr = ["transaction_rate", "latency.p50", "throughput"];
        let probe = Family::of_row(["tcp_rr", "transactions", ""]);
        assert_eq!(probe, Family::Probe);
        assert_eq!(probe.headline(|m| rr.contains(&m.name)).map(|m| m.name), Some("latency.p50"));
        assert_eq!(probe.headline(has(&[ADDED, "latency.p50"])).map(|m| m.name), Some(ADDED));
        // Without a rate of its own, and where the rate is what was searched, it counts transactions.
        for family in [["tcp_rr", "", ""], ["tcp_rr", "transactions", "held"]].map(Family::of_row) {
            assert_eq!(family.headline(|m| rr.contains(&m.name)).map(|m| m.name), Some("transaction_rate"));
        }
        assert_eq!(Family::of_row(["udp_stream", "messages", ""]), Family::Stream);
        assert!(probe.is_incidental("transaction_rate") && !Family::Stream.is_incidental("throughput"));
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
