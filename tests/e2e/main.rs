//! end to end

mod selectors;
