//! One file per filter.

pub mod aggregate;
pub mod beforeafter;
pub mod compare;
pub mod gate;
pub mod import;
pub mod plot;
pub(crate) mod samples;
pub mod table;
pub(crate) mod verdicts;
