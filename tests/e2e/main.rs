//! end to end

mod check_schema;
mod selectors;
