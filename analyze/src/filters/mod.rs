//! One file per filter.

pub mod aggregate;
pub mod beforeafter;
pub mod compare;
pub mod fit;
pub mod export;
pub mod gate;
pub mod import;
pub mod percentiles;
pub mod plot;
pub(crate) mod samples;
pub mod steady;
pub mod table;
pub mod verdicts;
pub mod window;
