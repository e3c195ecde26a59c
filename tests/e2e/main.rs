//! end to end

mod check_docs;
mod check_errors;
mod check_schema;
mod plans;
mod selectors;
