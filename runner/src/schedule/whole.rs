//! Results of the kinds of tests that are not between two ends: ranks, and programs. The other rooms ask a [`Whole`] and do not
//! tell the kinds apart.

use netcore::client::RanksOutcome;
use schemas::{columns::Row, run_record::CaseRecord, words::Way};

use super::{
    Printed,
    history::Done,
    rows::{printed, ranks},
    step::Step,
};

pub use ranks::Waits;

/// The result of such a test.
#[derive(Debug)]
pub enum Whole {
    /// Reports of all ranks.
    Ranks(RanksOutcome),
    /// Output of a program.
    Program(Printed),
}

impl Whole {
    /// Why it failed, as a sentence.
    pub(super) fn failure(&self, step: &Step) -> Option<String> {
        match self {
            Self::Ranks(outcome) => ranks::failure(ranks::job(step)?, outcome),
            Self::Program(_) => None,
        }
    }

    /// When a signal ended it, and whether it has numbers nevertheless; `None`: it came to its end.
    pub(super) fn cut(&self) -> Option<(String, bool)> {
        match self {
            Self::Ranks(outcome) => ranks::cut(outcome),
            // It may print results when it is interrupted, and does not say of how much.
            Self::Program(_) => Some(("while its program ran".to_owned(), false)),
        }
    }

    /// Adds the rows of an iteration to those that are written, and the values for statistics to those that count.
    pub(super) fn add(&self, identity: &Row, step: &Step, written: &mut Vec<Row>, done: &mut Done) {
        match self {
            Self::Ranks(outcome) => {
                let Some(job) = ranks::job(step) else { return };
                let (each, all) = ranks::of_iteration(identity, job, outcome);
                done.streams.extend(each.iter().filter_map(|row| Some((0, row.stream?, row.clone()))));
                done.measured.push((0, Way::Both, all.clone()));
                written.extend(each);
                written.push(all);
            }
            Self::Program(printed) => {
                let made = printed::of_program(identity, &printed.lines);
                written.extend(made.rows);
                done.measured.extend(made.measured);
            }
        }
    }

    /// Writes what it says about itself into the record of its case in `run.json`.
    pub fn describe(&self, step: &Step, record: &mut CaseRecord) {
        match self {
            Self::Ranks(outcome) => ranks::describe(step, outcome, record),
            Self::Program(printed) => record.command = serde_json::to_value(&printed.facts).ok(),
        }
    }

    /// Keeps which of its threads waited for a CPU.
    pub fn keep_waits(&self, case: &str, waits: &mut Waits) {
        if let Self::Ranks(outcome) = self {
            waits.keep(case, outcome);
        }
    }

    /// Sentences for readers of the numbers.
    pub fn notes(&self) -> Vec<String> {
        match self {
            Self::Ranks(outcome) => outcome.reports.iter().flat_map(|report| report.notes.clone()).collect(),
            Self::Program(_) => Vec::new(),
        }
    }
}
