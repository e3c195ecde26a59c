//! Verdicts: assertions over samples, and comparisons of two sides.
//!
//! - [`judge()`]: whether a statement holds: pass, fail, or inconclusive
//! - [`comparison`]: two sides of a metric: regression, improvement, same, or inconclusive
//! - [`baseline`]: a run against an earlier one
//! - [`power`]: how many iterations a comparison needs; one that is tested again while iterations are added
//! - [`environment`]: the machine a run was made on, and how it differs from another
//! - [`incomplete`]: what a run was to measure and did not
//! - [`offered`]: whether the load was offered that the values are about
//! - [`worsening`]: whether data made worse on purpose fail
//! - [`survey`]: figures of a survey of pairs
//! - [`setting`]: settings in which two cases differ
//! - [`samples`]: the values that are judged, case by case
//! - [`statement`]: statements about the cases of a table or a run
//! - [`verdicts`]: rows of the `verdicts` table, printed and as CSV

mod answer;
mod assertion;
pub mod baseline;
pub mod comparison;
pub mod environment;
pub mod incomplete;
pub mod offered;
pub mod power;
pub mod samples;
pub mod setting;
pub mod statement;
pub mod survey;
pub mod verdicts;
pub mod worsening;

pub use answer::answer;
pub use assertion::{Judge, Judgement, Scope, judge};
pub use schemas::{columns::VerdictRow, words::Severity};
pub use verdicts::{Origin, compared, of_assertion};
