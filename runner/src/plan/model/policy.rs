//! Warm-up, iterations, assertions and searches of a test.

use std::collections::BTreeMap;

use analyze::judge::{Judge, Scope};
use schemars::JsonSchema;
use schemas::words::Severity;
use serde::{Deserialize, Serialize};

use super::{
    FindBy, Statement,
    common::{STATEMENT, Word, word_or_map},
};
use crate::plan::quantity::{MetricName, Ratio, Time};

/// Load before the measurement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum Warmup {
    /// This long.
    For(Time),
    /// Until the last intervals are flat.
    Auto(WarmupAuto),
}

/// Bounds of a warm-up that ends by itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WarmupAuto {
    /// The longest it may take; 10 s by default.
    pub max: Option<Time>,
}

/// Number of iterations of a case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum Iterations {
    /// This often.
    Count(u32),
    /// Until confident.
    Until(IterationsDetail),
}

/// Measured until every metric's mean is known to a margin.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct IterationsDetail {
    /// At least this often; 3 by default.
    #[schemars(range(min = 1))]
    pub min: Option<u32>,
    /// At most this often; 30 by default.
    #[schemars(range(min = 1))]
    pub max: Option<u32>,
    /// The confidence level; 95 % by default.
    pub confidence: Option<Ratio>,
    /// The half-width of the interval relative to the mean: 2.5 % by default (netperf -I 99,5 is 99 %, 2.5 %).
    pub margin: Option<Ratio>,
    /// The metrics; by default the workload's headline.
    pub metrics: Option<Vec<MetricName>>,
}

word_or_map!(
    Warmup,
    WarmupAuto,
    "a duration, auto, or {max: 30s}",
    {"type": ["string", "number"], "minimum": 0},
    |text| if text == "auto" {
        Ok(Warmup::Auto(WarmupAuto::default()))
    } else {
        schemas::units::parse_duration(text).map(|d| Warmup::For(Time(d)))
    },
    |detail| Warmup::Auto(detail)
);

word_or_map!(
    Iterations,
    IterationsDetail,
    "a count, or {min, max, confidence, margin, metrics}",
    {"type": "integer", "minimum": 1},
    |text| text.parse().ok().filter(|n| *n > 0).map(Iterations::Count).ok_or_else(|| format!(
        "`{text}` is not a count: write 5, or a map such as {{min: 5, max: 30, margin: 2.5%}}"
    )),
    |detail| Iterations::Until(detail)
);

/// A statement that must hold.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Assert(pub AssertDetail);

/// A statement with its conditions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AssertDetail {
    /// METRIC OP LIMIT.
    pub that: Statement,
    /// Only for cases whose keys have these values, or fulfil comparisons such as "<=64KiB".
    #[serde(default)]
    pub when: Option<BTreeMap<String, Word>>,
    /// error (fails the run) or warn.
    #[serde(default)]
    pub severity: Option<Severity>,
    /// Whether the interval or the point is judged; by default the interval where there are three iterations.
    #[serde(default)]
    pub judge: Option<Judge>,
    /// Rows that are judged; by default the total.
    #[serde(default)]
    pub scope: Option<Scope>,
    /// Member of a concurrent group.
    #[serde(default)]
    pub member: Option<String>,
}

fn bare(that: Statement) -> AssertDetail {
    AssertDetail { that, when: None, severity: None, judge: None, scope: None, member: None }
}

word_or_map!(
    Assert,
    AssertDetail,
    "METRIC OP LIMIT, or {that, when, severity, judge, scope, member}",
    {"type": "string", "pattern": STATEMENT},
    |text| Statement::parse(text).map(|that| Assert(bare(that))),
    |detail| Assert(detail)
);

/// A condition that skips the rest of an axis.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StopWhen(pub StopWhenDetail);

/// A statement, and the axis whose rest is skipped once it holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StopWhenDetail {
    /// METRIC OP LIMIT.
    pub that: Statement,
    /// The axis; by default the only one there is.
    #[serde(default)]
    pub axis: Option<String>,
}

word_or_map!(
    StopWhen,
    StopWhenDetail,
    "METRIC OP LIMIT, or {that, axis}",
    {"type": "string", "pattern": STATEMENT},
    |text| Statement::parse(text).map(|that| StopWhen(StopWhenDetail { that, axis: None })),
    |detail| StopWhen(detail)
);

/// The search for the highest offered load at which something holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Find {
    /// The metric that has a bound.
    pub metric: MetricName,
    /// The most it may be.
    #[serde(default)]
    pub at_most: Option<Word>,
    /// The least it may be.
    #[serde(default)]
    pub at_least: Option<Word>,
    /// The key that is searched: `rate` or `inflight`.
    pub by: FindBy,
    /// The lowest load.
    #[serde(default)]
    pub from: Option<Word>,
    /// The highest load. Without one, the load is doubled until the bound is exceeded.
    #[serde(default)]
    pub to: Option<Word>,
    /// Precision of the answer, relative to it; 1 % by default.
    #[serde(default)]
    pub within: Option<Ratio>,
    /// The most probes; 40 by default.
    #[serde(default)]
    pub max_probes: Option<u32>,
}
