//! Tests whose assertion is a rate, a duration, a share, or a statistical decision about a real path. They need a machine that has
//! nothing else to do: `tests/lab/run` (`just lab`) looks whether it is quiet, and runs them one after the other.

mod bisect;
mod fit;
#[allow(dead_code, unused_imports, reason = "what only the other tests use")]
#[path = "../common/fleet/mod.rs"]
mod fleet;
mod hops;
mod limits;
mod links;
mod loaded;
mod measure;
#[allow(dead_code, reason = "what only the other tests use")]
#[path = "../common/needs.rs"]
mod needs;
#[allow(dead_code, reason = "what only the other tests use")]
#[path = "../common/netns.rs"]
mod netns;
mod outage;
#[allow(dead_code, reason = "what only the other tests use")]
#[path = "../common/program.rs"]
mod program;
#[path = "../common/repository.rs"]
mod repository;
mod suspects;
mod trend;
mod why;
