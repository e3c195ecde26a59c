//! The serde types of a plan, from which the published JSON Schema is generated. A test's options for the engines have the
//! types of [`netcore::spec`].
//!
//! Everything is optional here, because any layer (defaults, profile, test, matrix, member) may leave it out. What must
//! be there in the end is checked on the merged test.

mod body;
mod common;
mod file;
mod launch;
mod pairs;
mod policy;
mod programs;
mod words;

pub use analyze::plot::Plot;
pub use body::{Concurrent, Matrix, MatrixValue, Pacing, Start, TestBody};
pub use common::{Name, Ports, Ranks, Statement, Word};
pub use file::{
    Baseline, Comparison, Gate, Host, LaunchGroup, OnUncertain, Order, Output, PlanFile, Precondition, Run, Table, Var,
};
pub use launch::{BY_ADDRESS, BY_LAUNCHER, CommandLaunch, Kubernetes, Launch, Mpi, Slurm, Ssh};
pub use pairs::Pairs;
pub use policy::{
    Assert, AssertDetail, Find, Iterations, IterationsDetail, StopWhen, StopWhenDetail, Warmup, WarmupAuto,
};
pub use programs::{Command, Hook, Hooks, Skip};
pub use schemas::words::OneOrMany;
pub use words::{Control, FindBy, Shape, Window};
