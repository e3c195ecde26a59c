//! From steps to sessions: the order of iterations, their number, and the rows of their results.
//!
//! - [`step`]: the cases of a plan as the schedule runs them, and their order
//! - [`history`]: finished iterations of an interrupted run
//! - [`confidence`]: when a case is known well enough
//! - [`Bench`], [`RowSink`]: the interfaces of the loop, to measuring and to the sinks
//! - [`rows`]: from reports to rows
//! - [`whole`]: results of tests that are not between two ends
//! - [`run`]: the loop
//! - [`search`]: the next load in a search for the highest one that holds

pub mod confidence;
#[cfg(test)]
pub(crate) mod fake;
pub mod history;
pub mod rows;
pub mod run;
pub mod search;
pub mod step;
pub mod whole;

use std::time::Duration;

use netcore::client::Outcome;
use schemas::{columns::Row, words::Status};
use serde::Serialize;

use self::{step::Step, whole::Whole};
use crate::{error::Error, progress::Progress};

/// Runs one iteration.
pub trait Bench {
    /// Runs all members of a step once, at the same time. Iterations count from 1; a failed one that is tried again keeps its
    /// number.
    fn measure(&mut self, step: &Step, iteration: u32, progress: &mut Progress) -> Result<Measured, MeasureError>;

    /// The same for the steps of a round, at the same time, each with its iteration. Returns a result for each, in their order.
    fn measure_round(
        &mut self,
        steps: &[(&Step, u32)],
        progress: &mut Progress,
    ) -> Vec<Result<Measured, MeasureError>> {
        steps.iter().map(|(step, iteration)| self.measure(step, *iteration, progress)).collect()
    }

    /// Called when a step is not run again.
    fn done(&mut self, _step: &Step, _progress: &mut Progress) {}
}

/// Results of one iteration.
#[derive(Debug, Default)]
pub struct Measured {
    /// Reports of both ends of each member.
    pub members: Vec<Outcome>,
    /// The result of a test that is not between two ends.
    pub whole: Option<Whole>,
    /// The largest difference between the instants at which ends started to measure.
    pub start_skew: Option<Duration>,
    /// Whether the load was flat when a warm-up without a fixed length ended; `None`: its length was fixed.
    pub settled: Option<bool>,
    /// The hook `during`.
    pub hook: Option<HookRun>,
}

/// A hook that ran during an iteration, on this host's monotonic clock, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HookRun {
    /// Before it was started.
    pub begin_ns: u64,
    /// After it had ended.
    pub end_ns: u64,
}

/// Output of a program, and its cost.
#[derive(Clone, Debug)]
pub struct Printed {
    /// Results read from its output.
    pub lines: Vec<Row>,
    /// For `run.json`.
    pub facts: ProgramFacts,
}

/// One run of a program in `run.json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProgramFacts {
    /// The program and its arguments.
    pub run: Vec<String>,
    /// From its start to its end, seconds.
    pub elapsed_s: f64,
    /// CPU time in user mode of it and of the processes that it waited for, seconds.
    pub cpu_user_s: f64,
    /// The same in the kernel.
    pub cpu_system_s: f64,
    /// The first lines of its standard error.
    pub complaints: Option<String>,
}

/// Why an iteration has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeasureError {
    /// Whether it took too long, as opposed to having failed.
    pub timeout: bool,
    pub message: String,
}

impl MeasureError {
    /// A failure other than a timeout.
    pub fn failed(message: impl Into<String>) -> Self {
        Self { timeout: false, message: message.into() }
    }

    pub(super) fn status(&self) -> Status {
        if self.timeout { Status::Timeout } else { Status::Failed }
    }
}

/// A destination of rows.
pub trait RowSink {
    /// Takes the rows of an iteration together, as soon as they are known: a crash leaves all of them or none.
    fn rows(&mut self, rows: &[Row]) -> Result<(), Error>;
    /// Takes the reports of an iteration.
    fn reports(&mut self, step: &Step, iteration: u32, measured: &Measured) -> Result<(), Error>;
    /// Takes a note about a case for readers of its numbers.
    fn note(&mut self, sentence: String);
    /// Whether the reader of the rows has left: nothing more needs to be measured.
    fn is_closed(&self) -> bool;
}
