//! One file per filter.

pub mod aggregate;
pub mod beforeafter;
pub mod table;
