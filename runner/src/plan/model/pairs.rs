//! `pairs` of a test.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{OneOrMany, Shape};

/// Pairs of hosts that the test measures, instead of `from` and `to`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Pairs {
    /// The hosts in their order: names, ranges, or the name that numbered hosts share (`node` of `node1`, `node2`, …).
    pub of: Option<OneOrMany>,
    /// The pairs among them; `all` by default.
    pub shape: Option<Shape>,
    /// The receiver of an incast.
    pub to: Option<String>,
    /// The sender of an outcast.
    pub from: Option<String>,
    /// Whether each pair is also measured the other way; by default with `all` and `neighbours`.
    pub both_ways: Option<bool>,
    /// Whether to measure one pair at a time.
    pub alone: Option<bool>,
}
