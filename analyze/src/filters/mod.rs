//! One file per filter.

pub mod aggregate;
pub mod beforeafter;
pub mod compare;
pub mod export;
pub mod fit;
pub mod gate;
pub mod import;
pub mod percentiles;
pub mod plot;
pub mod report;
pub mod steady;
pub mod table;
pub mod window;
