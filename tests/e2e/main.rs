//! The real program against real sockets, daemons and namespaces: a module per promise.

mod baseline;
mod check_docs;
mod check_errors;
mod check_schema;
mod ci;
mod confirm;
mod counters;
mod faults;
mod filters;
mod gate;
mod hosts;
mod keys;
mod migrating;
mod netns;
mod outputs;
mod plans;
mod program;
mod programs;
mod readme;
mod resume;
mod run;
mod selectors;
mod services;
mod signals;
mod witness;
mod workloads;
