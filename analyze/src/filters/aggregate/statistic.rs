//! Statistics for `-a`: their names, and the columns of each.

use schemas::metrics::{Better, Metric, Range};

use super::group::Values;
use crate::error::Error;
use crate::stats::confidence::Interval;
use crate::stats::{bootstrap, confidence, histogram, moments, quantiles};

/// Method of `ci`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Method {
    /// Student's t, for the mean
    T,
    /// Order statistics, for the median; no assumption about the distribution
    Order,
    /// BCa bootstrap, for the first of mean, median and trimmed in -a (mean if there is none); no assumption about the
    /// distribution. 10 000 resamples of at least 8 and at most 4096 values: fewer give empty cells, more are an error
    Bootstrap,
}

/// The centre of a bootstrap interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Centre {
    Mean,
    Median,
    Trimmed,
}

#[derive(Clone, Copy, Debug)]
pub struct Intervals {
    pub method: Method,
    /// Confidence level, 0 … 1.
    pub level: f64,
    /// For the bootstrap.
    pub centre: Centre,
    pub seed: u64,
}

impl Intervals {
    /// The interval of sorted values; `None` if there is none, or if more values were seen than are kept.
    fn of(self, values: &Values) -> Option<Interval> {
        match self.method {
            Method::T => confidence::t_interval_of(&values.moments, self.level),
            Method::Order => confidence::median_interval(values.sketch.exact()?, self.level),
            Method::Bootstrap => {
                let sorted = values.sketch.exact().filter(|sorted| sorted.len() >= bootstrap::FEWEST)?;
                bootstrap::bca(sorted, self.level, self.seed, |sample| self.centre.of(sample))
            }
        }
    }
}

impl Centre {
    /// The first centre among the statistics, else the mean.
    pub fn among(statistics: &[(String, Statistic)]) -> Self {
        let centre = |(name, statistic): &(String, Statistic)| match statistic {
            Statistic::Mean => Some(Self::Mean),
            Statistic::Median => Some(Self::Median),
            Statistic::Quantile(_) if name == "p50" => Some(Self::Median),
            Statistic::Trimmed => Some(Self::Trimmed),
            _ => None,
        };
        statistics.iter().find_map(centre).unwrap_or(Self::Mean)
    }

    /// The centre of unsorted values.
    fn of(self, values: &[f64]) -> Option<f64> {
        match self {
            Self::Mean => moments::mean(values),
            Self::Median => quantiles::select_median(&mut values.to_vec()),
            Self::Trimmed => {
                let mut sorted = values.to_vec();
                quantiles::sort(&mut sorted);
                quantiles::trimmed_mean(&sorted, TRIM)
            }
        }
    }
}

/// The share that `trimmed` leaves out at each end.
const TRIM: f64 = 0.1;

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
    Fairness,
}

/// For messages.
const NAMES: &str =
    "count, sum, mean, median, stddev, cv, min, max, best, trimmed, ci, pooled, fairness and percentiles such as p99";

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
            "fairness" => Self::Fairness,
            _ if name.starts_with('p') && name[1..].starts_with(|c: char| c.is_ascii_digit()) => {
                Self::Quantile(histogram::asked_percentile(name).map_err(|e| Error::Usage(format!("-a: {e}")))?)
            }
            _ => return Err(Error::Usage(format!("unknown statistic `{name}`: there are {NAMES}"))),
        })
    }

    pub(super) fn suffixes(self, name: &str) -> Vec<String> {
        match self {
            Self::Interval => ["ci_low", "ci_high", "margin_ratio"].map(str::to_owned).to_vec(),
            Self::Variation => vec!["cv_ratio".to_owned()],
            Self::Count => vec!["count".to_owned()],
            Self::Fairness => vec!["fairness_ratio".to_owned()],
            Self::Quantile(q) => vec![histogram::quantile_name(q)],
            _ => vec![name.to_owned()],
        }
    }

    /// The values of its columns.
    pub(super) fn values(
        self,
        of: &Values,
        column: &str,
        metric: Option<&Metric>,
        intervals: Intervals,
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
            Self::Trimmed => of.sketch.exact().and_then(|sorted| quantiles::trimmed_mean(sorted, TRIM)),
            Self::Quantile(q) => of.sketch.quantile(q),
            Self::Fairness => m.fairness(),
            Self::Pooled => of.latencies.as_ref().and_then(|l| l.column(column)),
            Self::Interval => {
                let interval = intervals.of(of);
                // The part within the range would seem more precise than the mean is.
                let margin = interval.and_then(|i| i.margin_ratio());
                let interval = interval.map(|i| i.within(metric.map_or(Range::ANY, Metric::range)));
                return vec![interval.map(|i| i.low), interval.map(|i| i.high), margin];
            }
        };
        vec![one]
    }
}
