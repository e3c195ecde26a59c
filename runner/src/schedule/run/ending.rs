//! The end of a case: its summary, warnings about its numbers, and the rows of skipped cases.

use analyze::limits;
use schemas::{
    columns::Row,
    units,
    words::{Record, Status},
};

use super::{Failure, Run, cut};
use crate::{
    error::Error,
    schedule::{confidence::Samples, search::Search},
};

impl Run<'_> {
    /// Writes the summary of a case.
    pub(super) fn conclude(&mut self, i: usize) -> Result<(), Error> {
        let step = &self.steps[i];
        self.states[i].open = false;
        let state = &self.states[i];
        let failed = state.result.failed.as_ref().map(|fault| (fault.status(), fault.message.clone()));
        let mut rows = Vec::new();
        for ((m, way), summary) in &state.summaries {
            let Some(mut row) = summary.row() else { continue };
            confidence_cells(&mut row, state.own.get(&(*m, *way)).unwrap_or(&state.samples));
            if let Some((status, message)) = &failed {
                (row.status, row.error) = (Some(*status), Some(message.clone()));
            }
            rows.push((*m, *way, row));
        }
        // A search in which nothing held has a result too, but no number.
        if rows.is_empty() && (state.answer.is_some() || failed.is_some()) {
            for (m, identity) in step.identities.iter().enumerate() {
                let (status, message) = failed.clone().map_or((Status::Ok, None), |(status, why)| (status, Some(why)));
                let row = blank(identity, Record::Summary, status, "");
                rows.push((m, step.headline_way(m), Row { error: message, iterations: Some(0), ..row }));
            }
        }
        if let Some((outcome, above)) = &state.answer {
            for (_, _, row) in &mut rows {
                (row.search, row.search_above) = (Some(*outcome), *above);
            }
        }
        let written: Vec<Row> = rows.iter().map(|(_, _, row)| row.clone()).collect();
        self.sink.rows(&written)?;
        self.states[i].result.summaries = rows;
        for doubt in self.doubts(i) {
            self.doubt(doubt);
        }
        self.leave_line(i)
    }

    /// Warnings for readers of the numbers.
    fn doubts(&self, i: usize) -> Vec<String> {
        let (step, state) = (&self.steps[i], &self.states[i]);
        let policy = state.samples.policy();
        let mut doubts = Vec::new();
        if let (Some(goal), Some(false)) = (policy.margin, state.samples.confident()) {
            for (metric, reached) in policy.metrics.iter().zip(state.samples.reached()) {
                if reached.margin.is_some_and(|m| m <= goal) {
                    continue;
                }
                let what = reached.margin.map_or_else(
                    || "has no margin (too few values, or a mean of zero)".to_owned(),
                    |m| format!("reached ±{:.1} % of its mean", m * 100.0),
                );
                let needed = reached
                    .needed
                    .map_or_else(String::new, |n| format!("; its variation would need about {n} iterations"));
                // Of a group, the load: it is the last member.
                let whole = state.result.summaries.iter().rev().map(|(.., row)| row);
                let why = whole.filter(|row| row.number(metric.column).is_some()).find_map(limits::unsteady);
                let why = why.map_or_else(String::new, |why| format!(": {why}"));
                let done = state.result.done;
                let times = if done == 1 { "1 iteration".to_owned() } else { format!("{done} iterations") };
                doubts.push(format!(
                    "case {}: {} {what} after {times}, not the ±{:.1} % asked for{why}{needed}",
                    step.name,
                    metric.name,
                    goal * 100.0,
                ));
            }
        }
        if let Some(r) = state.samples.serial_correlation() {
            doubts.push(format!(
                "case {}: successive iterations resemble each other (lag-1 correlation {r:.2}): its interval is too narrow",
                step.name
            ));
        }
        if let Some(drift) = state.samples.drift() {
            doubts.push(format!(
                "case {}: it drifts: {} from the first iteration to the last (p {:.4}): its mean describes no state of the \
                 machine",
                step.name,
                signed(drift.ratio),
                drift.p
            ));
        }
        doubts
    }

    /// Skips a case because the plan says so.
    pub(super) fn leave_out(&mut self, i: usize, reason: &str) -> Result<(), Error> {
        self.states[i].result.left_out = true;
        self.skip(i, reason)
    }

    pub(super) fn skip(&mut self, i: usize, reason: &str) -> Result<(), Error> {
        let rows: Vec<Row> =
            self.steps[i].identities.iter().map(|row| blank(row, Record::Summary, Status::Skipped, reason)).collect();
        self.sink.rows(&rows)?;
        self.states[i].open = false;
        self.states[i].result.skipped = Some(reason.to_owned());
        Ok(())
    }

    /// Ends the cases that are still open: with a summary of their iterations, or with a row that says why there is none.
    /// Failures become notes.
    pub(super) fn close(&mut self) -> Result<(), Error> {
        for Failure { sentence, more, .. } in std::mem::take(&mut self.failures) {
            let cases = if more == 1 { "case" } else { "cases" };
            let more = if more > 0 { format!(" (and {more} more {cases} in the same words)") } else { String::new() };
            self.sink.note(sentence + &more);
        }
        for i in 0..self.steps.len() {
            let state = &self.states[i];
            if !state.open {
                continue;
            }
            let reason = match (&self.give_up, &state.cut) {
                (Some(reason), _) | (None, Some(reason)) => reason.clone(),
                (None, None) if state.result.done > 0 => cut::by(self.stop),
                (None, None) => format!("{} before it ran", cut::by(self.stop)),
            };
            if state.result.done > 0 {
                match self.states[i].search.as_ref().map(Search::so_far) {
                    Some(answer) => self.answer(i, answer)?,
                    None => self.conclude(i)?,
                }
                self.states[i].result.skipped = Some(reason.clone());
            } else {
                self.skip(i, &reason)?;
            }
        }
        Ok(())
    }
}

/// A row without a result.
pub(super) fn blank(identity: &Row, record: Record, status: Status, error: &str) -> Row {
    let mut row = identity.clone();
    row.record = Some(record);
    row.status = Some(status);
    row.error = Some(error.into());
    row.time = Some(schemas::time::now());
    row
}

fn confidence_cells(row: &mut Row, samples: &Samples) {
    let policy = samples.policy();
    row.confidence_level = Some(policy.level);
    row.margin_ratio = samples.worst_margin();
    row.margin_goal_ratio = policy.margin;
    row.confident = samples.confident();
    row.stddev = samples.stddev();
    row.drift_ratio = samples.drift_ratio();
}

/// `+12 %`, `−3.1 %`
fn signed(ratio: f64) -> String {
    format!("{}{}", if ratio < 0.0 { "−" } else { "+" }, units::margin(ratio.abs()))
}
