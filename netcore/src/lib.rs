//! netcore
