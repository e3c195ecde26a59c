//! The typed plan: what may be written, in serde types from which the published JSON Schema is made.
//!
//! Everything is optional here, because any layer (defaults, profile, test, matrix, member) may leave it out. What must
//! be there in the end is checked on the merged test.

mod body;
mod common;
mod file;
mod socket;

pub use body::{
    Arrival, Assert, AssertDetail, Collect, Command, Concurrent, Direction, Find, FindBy, Hook, Hooks, Io, Iterations,
    IterationsDetail, Judge, Matrix, MatrixValue, Pacing, PacingMode, Payload, Scope, Skip, Start, StopWhen,
    StopWhenDetail, TestBody, Warmup, WarmupAuto, Window,
};
pub use common::{CpuList, Level, Name, OneOrMany, Ports, Statement, Word};
pub use file::{
    Annotations, Baseline, Comparison, Gate, Host, Launch, LogAxes, OnMissing, OnUncertain, Order, Output, PlanFile,
    Plot, PlotKind, Precondition, RegressionTest, Run, Table, Var,
};
pub use socket::{Buffers, Close, Dscp, MtuDiscover, Socket};
