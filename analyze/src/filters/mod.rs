//! One file per filter.

pub mod aggregate;
pub mod table;
