//! The registry of metrics: which column holds them, their unit, and which way is better.

use crate::units::Unit;

/// The direction in which a metric improves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
    /// Neither: it describes the run.
    Neither,
}

impl Better {
    /// `higher`, `lower` or `neither`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Higher => "higher",
            Self::Lower => "lower",
            Self::Neither => "neither",
        }
    }
}

/// How values of a metric combine when rows are condensed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Work per time: condensed as Σwork ÷ Σtime within an iteration, as the mean over iterations.
    Rate,
    /// A count: sums within an iteration.
    Count,
    /// A statistic of a distribution: never averaged within an iteration, only recomputed from histograms.
    Distribution,
    /// A state or share at a moment or over a window.
    Gauge,
}

impl Kind {
    /// `rate`, `count`, `distribution` or `gauge`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Count => "count",
            Self::Distribution => "distribution",
            Self::Gauge => "gauge",
        }
    }
}

/// A quantity that people compare, assert on and plot.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// The name in plans and on command lines: `throughput`, `latency.p99`.
    pub name: &'static str,
    /// The column that holds it.
    pub column: &'static str,
    /// The unit of that column.
    pub unit: Unit,
    /// Which way is better.
    pub better: Better,
    /// How it combines.
    pub kind: Kind,
    /// What a person calls it on an axis or in a table.
    pub label: &'static str,
}

use Better::{Higher, Lower, Neither};
use Kind::{Count, Distribution, Gauge, Rate};

const fn metric(
    name: &'static str,
    column: &'static str,
    unit: Unit,
    better: Better,
    kind: Kind,
    label: &'static str,
) -> Metric {
    Metric { name, column, unit, better, kind, label }
}

/// Every metric.
pub const METRICS: &[Metric] = &[
    metric("throughput", "throughput_bits_per_s", Unit::BitsPerSecond, Higher, Rate, "throughput"),
    metric("sent", "sent_bits_per_s", Unit::BitsPerSecond, Higher, Rate, "sent"),
    metric("transaction_rate", "transactions_per_s", Unit::PerSecond, Higher, Rate, "transaction rate"),
    metric("transactions", "transactions", Unit::Count, Higher, Count, "transactions"),
    metric("bytes_sent", "bytes_sent", Unit::Bytes, Higher, Count, "bytes sent"),
    metric("bytes_received", "bytes_received", Unit::Bytes, Higher, Count, "bytes received"),
    metric("connections", "connections", Unit::Count, Higher, Count, "connections"),
    metric("errors", "errors", Unit::Count, Lower, Count, "errors"),
    metric("messages_sent", "messages_sent", Unit::Count, Higher, Count, "messages sent"),
    metric("messages_received", "messages_received", Unit::Count, Higher, Count, "messages received"),
    metric("lost", "lost", Unit::Count, Lower, Count, "messages lost"),
    metric("loss_ratio", "loss_ratio", Unit::Ratio, Lower, Gauge, "loss"),
    metric("reordered", "reordered", Unit::Count, Lower, Count, "messages reordered"),
    metric("duplicated", "duplicated", Unit::Count, Lower, Count, "messages duplicated"),
    metric("jitter", "jitter_us", Unit::Microseconds, Lower, Gauge, "jitter"),
    metric("rate_error", "rate_error_ratio", Unit::Ratio, Neither, Gauge, "rate error"),
    metric("gap.p50", "gap_p50_us", Unit::Microseconds, Neither, Distribution, "gap between sends, median"),
    metric("gap.p99", "gap_p99_us", Unit::Microseconds, Lower, Distribution, "gap between sends, 99th percentile"),
    metric("gap.max", "gap_max_us", Unit::Microseconds, Lower, Distribution, "gap between sends, largest"),
    metric("latency.min", "latency_min_us", Unit::Microseconds, Lower, Distribution, "latency, smallest"),
    metric("latency.mean", "latency_mean_us", Unit::Microseconds, Lower, Distribution, "latency, mean"),
    metric("latency.p50", "latency_p50_us", Unit::Microseconds, Lower, Distribution, "latency, median"),
    metric("latency.p90", "latency_p90_us", Unit::Microseconds, Lower, Distribution, "latency, 90th percentile"),
    metric("latency.p95", "latency_p95_us", Unit::Microseconds, Lower, Distribution, "latency, 95th percentile"),
    metric("latency.p99", "latency_p99_us", Unit::Microseconds, Lower, Distribution, "latency, 99th percentile"),
    metric("latency.p999", "latency_p999_us", Unit::Microseconds, Lower, Distribution, "latency, 99.9th percentile"),
    metric("latency.max", "latency_max_us", Unit::Microseconds, Lower, Distribution, "latency, largest"),
    metric(
        "latency.stddev",
        "latency_stddev_us",
        Unit::Microseconds,
        Lower,
        Distribution,
        "latency, standard deviation",
    ),
    metric("receive_call.mean", "receive_call_mean_us", Unit::Microseconds, Lower, Distribution, "receive call, mean"),
    metric("receive_call.p50", "receive_call_p50_us", Unit::Microseconds, Lower, Distribution, "receive call, median"),
    metric(
        "receive_call.p90",
        "receive_call_p90_us",
        Unit::Microseconds,
        Lower,
        Distribution,
        "receive call, 90th percentile",
    ),
    metric(
        "receive_call.p99",
        "receive_call_p99_us",
        Unit::Microseconds,
        Lower,
        Distribution,
        "receive call, 99th percentile",
    ),
    metric("receive_call.max", "receive_call_max_us", Unit::Microseconds, Lower, Distribution, "receive call, largest"),
    metric("cpu.local", "local_cpu_ratio", Unit::Ratio, Lower, Gauge, "CPU here"),
    metric("cpu.remote", "remote_cpu_ratio", Unit::Ratio, Lower, Gauge, "CPU there"),
    metric("cpu.local_peak", "local_cpu_peak_ratio", Unit::Ratio, Lower, Gauge, "busiest CPU here"),
    metric("cpu.remote_peak", "remote_cpu_peak_ratio", Unit::Ratio, Lower, Gauge, "busiest CPU there"),
    metric("service_demand.local", "local_service_demand", Unit::ServiceDemand, Lower, Gauge, "service demand here"),
    metric("service_demand.remote", "remote_service_demand", Unit::ServiceDemand, Lower, Gauge, "service demand there"),
    metric("retransmits", "retransmits", Unit::Count, Lower, Count, "retransmits"),
    metric("remote_retransmits", "remote_retransmits", Unit::Count, Lower, Count, "retransmits there"),
    metric("rtt", "rtt_us", Unit::Microseconds, Lower, Gauge, "TCP round-trip time"),
    metric("rtt_var", "rtt_var_us", Unit::Microseconds, Lower, Gauge, "TCP round-trip time variation"),
    metric("cwnd", "cwnd_bytes", Unit::Bytes, Neither, Gauge, "congestion window"),
    metric("delivery_rate", "delivery_rate_bits_per_s", Unit::BitsPerSecond, Neither, Gauge, "TCP delivery rate"),
    metric("start_skew", "start_skew_us", Unit::Microseconds, Lower, Gauge, "start skew"),
    metric("elapsed", "elapsed_s", Unit::Seconds, Neither, Gauge, "elapsed time"),
    metric("message_size", "message_bytes", Unit::Bytes, Neither, Gauge, "message size"),
    metric("request_size", "request_bytes", Unit::Bytes, Neither, Gauge, "request size"),
    metric("response_size", "response_bytes", Unit::Bytes, Neither, Gauge, "response size"),
];

/// The metric of that name, or the one held by the column of that name. `throughput.mean` is `throughput`.
#[must_use]
pub fn find(name: &str) -> Option<&'static Metric> {
    METRICS
        .iter()
        .find(|m| m.name == name || m.column == name)
        .or_else(|| name.strip_suffix(".mean").and_then(|stem| METRICS.iter().find(|m| m.name == stem)))
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
    fn names_columns_and_means_are_found() {
        assert_eq!(find("throughput.mean").map(|m| m.column), Some("throughput_bits_per_s"));
        assert_eq!(find("latency_p99_us").map(|m| m.name), Some("latency.p99"));
        assert_eq!(find("latency.mean").map(|m| m.column), Some("latency_mean_us"));
        assert!(find("thruput").is_none());
    }
}
