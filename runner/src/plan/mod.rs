//! Plans: YAML text in, checked cases out.
