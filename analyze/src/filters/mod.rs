//! One file per filter.

pub mod aggregate;
pub mod beforeafter;
pub mod plot;
pub mod table;
