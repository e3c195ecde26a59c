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

/// Every metric, in the order of its column. A metric is declared beside its column, in [`crate::columns::results`].
pub use crate::columns::results::METRICS;

/// The metric of that name, or the one held by the column of that name. `throughput.mean` is `throughput`.
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
