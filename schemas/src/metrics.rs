//! The registry of metrics: which column holds them, their unit, and which way is better.

mod headline;

pub use crate::columns::metric::{Better, Kind, Metric};
/// Every metric, in the order of its column. A metric is declared beside its column, in [`crate::columns::results`].
pub use crate::columns::results::METRICS;
pub use crate::units::Range;
use crate::units::Unit;
pub use headline::{ADDED, Family, headlines, shown_workload};

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
            assert!(
                m.name == "rate_error" || m.name.starts_with("added_latency.") || range.low.abs() < f64::EPSILON,
                "{}",
                m.name
            );
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
}
