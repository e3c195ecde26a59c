//! The registry of metrics: which column holds them, their unit, and which way is better.

pub use crate::columns::metric::{Better, Kind, Metric};
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
