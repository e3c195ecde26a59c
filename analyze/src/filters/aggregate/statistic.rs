//! What `-a` can ask for: names, and the columns each becomes.

use schemas::metrics::{Better, Metric};

use super::group::Values;
use crate::error::Error;
use crate::stats::{confidence, histogram, quantiles};

/// How `ci` is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Method {
    /// Student's t, for the mean
    T,
    /// Order statistics, for the median; no assumption about the distribution
    Order,
}

/// One statistic of one metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Statistic {
    Count,
    Sum,
    Mean,
    Median,
    Stddev,
    Variation,
    Min,
    Max,
    Best,
    Trimmed,
    /// A quantile, 0 … 1.
    Quantile(f64),
    Interval,
    Pooled,
}

/// For messages.
const NAMES: &str =
    "count, sum, mean, median, stddev, cv, min, max, best, trimmed, ci, pooled and percentiles such as p99";

impl Statistic {
    pub(super) fn parse(name: &str) -> Result<Self, Error> {
        Ok(match name {
            "count" | "n" => Self::Count,
            "sum" => Self::Sum,
            "mean" => Self::Mean,
            "median" => Self::Median,
            "stddev" => Self::Stddev,
            "cv" => Self::Variation,
            "min" => Self::Min,
            "max" => Self::Max,
            "best" => Self::Best,
            "trimmed" => Self::Trimmed,
            "ci" => Self::Interval,
            "pooled" => Self::Pooled,
            _ => Self::Quantile(
                histogram::percentile_name(name)
                    .ok_or_else(|| Error::Usage(format!("unknown statistic `{name}`: there are {NAMES}")))?,
            ),
        })
    }

    /// The suffixes of the columns it becomes.
    pub(super) fn suffixes(self, name: &str) -> Vec<String> {
        match self {
            Self::Interval => ["ci_low", "ci_high", "margin_ratio"].map(str::to_owned).to_vec(),
            Self::Variation => vec!["cv_ratio".to_owned()],
            Self::Count => vec!["count".to_owned()],
            _ => vec![name.replace('.', "")],
        }
    }

    /// The values of those columns.
    pub(super) fn values(
        self,
        of: &Values,
        column: &str,
        metric: Option<&Metric>,
        level: f64,
        method: Method,
    ) -> Vec<Option<f64>> {
        let m = &of.moments;
        let one = match self {
            Self::Count => Some(m.count() as f64),
            Self::Sum => m.sum(),
            Self::Mean => m.mean(),
            Self::Median => of.sketch.quantile(0.5),
            Self::Stddev => m.stddev(),
            Self::Variation => m.variation(),
            Self::Min => m.min(),
            Self::Best if metric.is_some_and(|m| m.better == Better::Lower) => m.min(),
            Self::Best | Self::Max => m.max(),
            Self::Trimmed => of.sketch.exact().and_then(|sorted| quantiles::trimmed_mean(sorted, 0.1)),
            Self::Quantile(q) => of.sketch.quantile(q),
            Self::Pooled => of.latencies.as_ref().and_then(|l| l.column(column)),
            Self::Interval => {
                let interval = match method {
                    Method::T => confidence::t_interval_of(m, level),
                    Method::Order => of.sketch.exact().and_then(|sorted| confidence::median_interval(sorted, level)),
                };
                return vec![
                    interval.map(|i| i.low),
                    interval.map(|i| i.high),
                    interval.and_then(|i| i.margin_ratio()),
                ];
            }
        };
        vec![one]
    }
}
