//! `plumb measure`: the plan that a few options stand for, and its answer on a few lines.
//!
//! - [`mod@plan`]: the plan as text, which `--save` keeps
//! - [`answer`]: lines for people, or one JSON document

pub mod answer;
pub mod plan;

/// Name of the far end in the plan.
pub const SERVER: &str = "server";
