//! Where numbers come from.

pub mod clock;
