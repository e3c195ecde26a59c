//! The serde types of a plan, from which the published JSON Schema is generated. A test's options for the engines have the
//! types of [`netcore::spec`].
//!
//! Everything is optional here, because any layer (defaults, profile, test, matrix, member) may leave it out. What must
//! be there in the end is checked on the merged test.

mod body;
mod common;
mod file;
mod programs;

pub use analyze::plot::Plot;
pub use body::{
    Assert, AssertDetail, Concurrent, Find, Iterations, IterationsDetail, Matrix, MatrixValue, Pacing, Start, StopWhen,
    StopWhenDetail, TestBody, Warmup, WarmupAuto,
};
pub use common::{Control, FindBy, Name, Pairs, Ports, Ranks, Shape, Statement, Window, Word};
pub use file::{
    Baseline, Comparison, Gate, Host, LaunchGroup, OnUncertain, Order, Output, PlanFile, Precondition, Run, Table, Var,
};
pub use programs::{
    BY_ADDRESS, BY_LAUNCHER, Command, CommandLaunch, Hook, Hooks, Kubernetes, Launch, Mpi, Skip, Slurm, Ssh,
};
pub use schemas::one_or_many::OneOrMany;
