//! One file per filter.
