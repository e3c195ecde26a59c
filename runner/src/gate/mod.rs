//! Expectations → verdicts → exit code: assertions, comparisons with a baseline, and confirmation of failures.
//! A bisection measures [`until`] its comparisons are decided. [`power`] says how many iterations a change takes.

pub mod baseline;
pub mod confirm;
pub mod evidence;
pub mod power;
pub mod promote;
pub mod survey;
pub mod until;

use std::{collections::HashMap, io::Write, path::Path};

use analyze::judge::{
    VerdictRow,
    baseline::Baseline,
    environment::Environment,
    statement::{self, Statement},
    verdicts::{self, Format},
};
use analyze::table::layout::Sheet;

use crate::{
    error::{Error, Exit, replace},
    plan::{Plan, model::OnUncertain},
    schedule::{run::Finished, step::Step},
};

/// All verdicts of a run.
#[derive(Clone, Debug, Default)]
pub struct Verdicts {
    rows: Vec<VerdictRow>,
    inconclusive_fails: bool,
}

/// The assertions and comparisons of a plan.
pub struct Expectations<'a> {
    plan: &'a Plan,
    baseline: Option<Baseline>,
}

impl<'a> Expectations<'a> {
    /// Reads the plan's baseline, if any: an unreadable one is reported before anything is measured.
    pub fn of(plan: &'a Plan) -> Result<Self, Error> {
        let baseline = baseline::terms(plan).map(Baseline::read).transpose()?;
        Ok(Self { plan, baseline })
    }

    /// Fails if the baseline must not be compared with results of these hosts, as far as that is known beforehand.
    pub fn check(&self, here: &Environment) -> Result<(), Error> {
        let Some(baseline) = &self.baseline else { return Ok(()) };
        baseline.refuses(here, true).map_err(|why| {
            let places = self.plan.baseline.as_ref().and_then(|(_, spans)| spans.first());
            let file = places.map_or_else(String::new, |span| format!("{}: ", self.plan.sources.place(*span).file));
            Error::Measurement(format!(
                "{file}{why}\n       measure where it was measured, promote a baseline of this environment, or take the fact \
                 out of baseline.require_same"
            ))
        })
    }

    /// Judges cases of the plan. One list of verdicts per case: its assertions, then its comparisons.
    pub fn judge(&self, cases: &[(&Step, &Finished)], here: &Environment) -> Vec<Vec<VerdictRow>> {
        // Assertions of cases that were skipped on purpose do not count.
        let ran = || cases.iter().filter(|(_, finished)| !finished.left_out);
        let compared = self.baseline.as_ref().map(|baseline| {
            let samples: Vec<_> = ran().flat_map(|(s, f)| evidence::promised(s, f, baseline.promises())).collect();
            baseline.judge(&samples, here)
        });
        let mut compared_of: HashMap<String, Vec<VerdictRow>> = HashMap::new();
        for row in compared.into_iter().flatten() {
            compared_of.entry(row.case_id.clone()).or_default().push(row);
        }
        let stated: Vec<Vec<Statement>> = cases.iter().map(|(step, _)| evidence::statements(step)).collect();
        let columns = statement::columns(&stated.concat(), None);
        let evidence = evidence::of_run(&ran().copied().collect::<Vec<_>>(), columns);
        let index = evidence.index();
        let judged = |((step, finished), statements): (&(&Step, &Finished), &Vec<Statement>)| {
            let mut rows = Vec::new();
            if !finished.left_out {
                let of_statement = |statement| evidence.of_statement(&index, statement, None);
                rows.extend(statements.iter().flat_map(of_statement).map(|row| explained(row, finished)));
                rows.extend(compared_of.get(&step.id).into_iter().flatten().cloned());
            }
            rows
        };
        cases.iter().zip(&stated).map(judged).collect()
    }
}

/// Says of a case without a value why it has none.
fn explained(mut row: VerdictRow, finished: &Finished) -> VerdictRow {
    if row.n == 0 {
        match (&finished.failed, &finished.answer) {
            (Some(fault), _) => row.note = format!("the case failed: {}", fault.message),
            (None, Some(answer)) => row.note.clone_from(answer),
            (None, None) => {}
        }
    }
    row
}

impl Verdicts {
    /// Adds the verdicts of a case.
    pub fn add(&mut self, plan: &Plan, rows: &[VerdictRow]) {
        self.rows.extend_from_slice(rows);
        self.inconclusive_fails |= plan.gate.on_inconclusive == Some(OnUncertain::Fail);
    }

    /// In the order of the cases.
    pub fn rows(&self) -> &[VerdictRow] {
        &self.rows
    }

    pub fn exit(&self) -> Exit {
        match verdicts::outcome(&self.rows, self.inconclusive_fails) {
            analyze::Verdict::Ok => Exit::Success,
            analyze::Verdict::Failed => Exit::Failed,
            analyze::Verdict::Inconclusive => Exit::Inconclusive,
            analyze::Verdict::Exit(_) => Exit::Measurement,
        }
    }

    /// Writes the table for people and a line with counts; nothing if nothing was judged.
    pub fn write_table(&self, sheet: &Sheet, out: &mut dyn Write) -> Result<(), Error> {
        if self.rows.is_empty() {
            return Ok(());
        }
        Ok(verdicts::write(&self.rows, Format::Text, sheet, out)?)
    }

    /// Writes the `verdicts` table.
    pub fn write_csv(&self, path: &Path) -> Result<(), Error> {
        let mut bytes = Vec::new();
        verdicts::csv(&self.rows, &mut bytes)?;
        replace(path, &bytes)
    }
}
