//! Ends: of a case, with its summary, warnings about its numbers, and the rows of skipped cases; of iterations that a signal cut.

use std::collections::BTreeMap;

use analyze::{
    judge::comparison::change_text,
    limits,
    stats::{confidence::MOST_NEEDED, moments::mean},
};
use netcore::{
    client::Outcome,
    report::{Ending, Phase, SideReport},
    spec::Stop,
};
use schemas::{
    columns::Row,
    metrics::Family,
    text::counted,
    units::{self, Unit, human},
    words::{Record, Status},
};

use super::{Failure, Run, WIDE, checked};
use crate::{
    error::Error,
    schedule::{Measured, confidence::Samples, rows::group, search::Search, step::Step},
    signals::Interrupts,
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
        group::name_directions(step, &mut rows.iter_mut().map(|(.., row)| row).collect::<Vec<_>>());
        let written: Vec<Row> = rows.iter().map(|(_, _, row)| row.clone()).collect();
        self.sink.rows(&written)?;
        self.states[i].result.summaries = rows;
        for doubt in self.doubts(i) {
            self.doubt(doubt);
        }
        self.states[i].result.unsteady = self.unsteady(i);
        self.leave_line(i)
    }

    /// What had the CPUs of a case whose interval is wide, if its plan asks for no margin: one that misses its margin has a warning. The
    /// members of a group take each other's.
    fn unsteady(&self, i: usize) -> Option<String> {
        let state = &self.states[i];
        let is_asked = state.samples.policy().margin.is_none() && self.steps[i].members.len() == 1;
        let is_wide = is_asked && state.samples.worst_margin()? > WIDE;
        let whole = state.result.summaries.iter().rev().map(|(.., row)| row);
        whole.filter(|_| is_wide).find_map(limits::unsteady)
    }

    /// Warnings for readers of the numbers.
    fn doubts(&self, i: usize) -> Vec<String> {
        let (step, state) = (&self.steps[i], &self.states[i]);
        let policy = state.samples.policy();
        let mut doubts = Vec::new();
        // A case that failed or was cut off before its fewest iterations says so.
        let goal = policy.margin.filter(|_| state.result.done >= policy.min);
        if let (Some(goal), Some(false)) = (goal, state.samples.confident()) {
            for (metric, reached) in policy.metrics.iter().zip(state.samples.reached()) {
                if reached.margin.is_some_and(|m| m <= goal) {
                    continue;
                }
                let what = reached.margin.map_or_else(
                    || "has no margin (too few values, or a mean of zero)".to_owned(),
                    |m| format!("reached ± {} of its mean", units::margin(m)),
                );
                let needed = reached.margin.map_or_else(String::new, |_| {
                    let count =
                        reached.needed.map_or_else(|| format!("more than {MOST_NEEDED}"), |n| format!("about {n}"));
                    format!("; its variation would need {count} iterations")
                });
                // Of a group, the load: it is the last member.
                let whole = state.result.summaries.iter().rev().map(|(.., row)| row);
                let why = whole.filter(|row| row.number(metric.column).is_some()).find_map(limits::unsteady);
                let why = why.map_or_else(String::new, |why| format!(": {why}"));
                let times = counted(state.result.done, "iteration");
                doubts.push(format!(
                    "case {}: {} {what} after {times}, not the ± {} asked for{why}{needed}",
                    step.name,
                    metric.name,
                    units::margin(goal),
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
                "case {}: it drifts: {} of its mean from the first iteration to the last (p {:.4}): its mean describes no state of the \
                 machine",
                step.name,
                change_text(Some(drift.ratio), None),
                drift.p
            ));
        }
        let is_probe = |m: &usize| step.members.get(*m).is_some_and(|member| member.idle.is_some());
        for (_, _, row) in state.result.summaries.iter().filter(|(m, ..)| is_probe(m)) {
            if let (Some(again @ 1..), Some(trips)) = (row.retransmits, row.transactions) {
                doubts.push(format!(
                    "case {}: of {} under load over TCP, {} sent again: what was lost waited for TCP's timeout, which is no queue",
                    step.name,
                    counted(trips, "round trip"),
                    if again == 1 { "a segment was".to_owned() } else { format!("{again} segments were") },
                ));
            }
        }
        let waited = mean(&state.out_of_order).unwrap_or(0.0);
        if waited.abs() > checked::OUT_OF_ORDER {
            let sentence = if waited > 0.0 {
                "of what was read while it measured had arrived before, and waited for lost segments: a longer warm-up"
            } else {
                "more arrived while it measured, waited for lost segments at its end, and is not counted: a longer duration"
            };
            let share = units::margin(waited.abs());
            doubts.push(format!("case {}: {share} {sentence} gives the true rate", step.name));
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
                (None, None) if state.result.done > 0 => by(self.stop),
                (None, None) => format!("{} before it ran", by(self.stop)),
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
    let headline = Family::from(&*row).headline(|m| row.number(m.column).is_some());
    row.mean = headline.and_then(|metric| samples.mean_of(metric));
    row.stddev = samples.stddev();
    row.drift_ratio = samples.drift_ratio();
}

/// A last interval shorter than this share of the longest one was cut off with its iteration.
const WHOLE: f64 = 0.9;

/// An iteration that is not whole.
pub(super) struct Cut {
    /// `interrupted by SIGTERM after 3.90 of 14.0 s`
    pub(super) sentence: String,
    /// Whether every member had begun to measure, at one end at least: another program tells nothing of a test that was cut.
    pub(super) has_numbers: bool,
}

/// `interrupted by SIGINT`, or where no signal came: `interrupted`.
pub(super) fn by(signals: &Interrupts) -> String {
    signals.name().map_or_else(|| "interrupted".to_owned(), |name| format!("interrupted by {name}"))
}

/// The cut of an iteration; `None`: it came to its end.
pub(super) fn of(step: &Step, measured: &Measured, signals: &Interrupts) -> Option<Cut> {
    if !signals.requested() {
        return None;
    }
    let by = by(signals);
    if let Some(whole) = &measured.whole {
        let (when, has_numbers) = whole.cut()?;
        return Some(Cut { sentence: format!("{by} {when}"), has_numbers });
    }
    if !measured.members.iter().flat_map(Outcome::ends).any(|end| end.ending == Ending::Stopped) {
        return None;
    }
    let longest = step
        .members
        .iter()
        .zip(&measured.members)
        .filter_map(|(member, reports)| {
            let planned = match member.spec()?.phases.stop {
                Stop::AfterNs(ns) => Some(ns),
                _ => None,
            };
            Some((reports.ends().filter_map(elapsed).max()?, planned))
        })
        .max();
    let seconds = |ns: u64| human(Unit::Seconds, ns as f64 / 1e9);
    let when = match longest {
        Some((elapsed, Some(planned))) => format!("after {} of {}", seconds(elapsed), seconds(planned)),
        Some((elapsed, None)) => format!("after {}", seconds(elapsed)),
        None => "before it measured".to_owned(),
    };
    let has_begun = |reports: &Outcome| reports.ends().any(|end| elapsed(end).is_some());
    Some(Cut { sentence: format!("{by} {when}"), has_numbers: measured.members.iter().all(has_begun) })
}

/// Length of an end's measure phase, nanoseconds.
fn elapsed(report: &SideReport) -> Option<u64> {
    report.phase(Phase::Measure).map(|window| window.elapsed_ns)
}

/// Marks the rows of an iteration that was cut off. Intervals that came to their end stay as they are, and so do phases.
pub(super) fn mark(rows: &mut [Row], sentence: &str) {
    let is_measure = |row: &Row| row.phase == Some(Phase::Measure);
    let measured = rows.iter().any(|row| is_measure(row) && row.record != Some(Record::Interval));
    let end = |row: &Row| row.start_s.unwrap_or(0.0) + row.elapsed_s.unwrap_or(0.0);
    // The longest interval of a member and a way, and the end of the last.
    let mut of_member: BTreeMap<_, (f64, f64)> = BTreeMap::new();
    for row in rows.iter().filter(|r| r.record == Some(Record::Interval) && is_measure(r)) {
        let (longest, last) = of_member.entry((row.member.clone(), row.direction)).or_default();
        (*longest, *last) = (longest.max(row.elapsed_s.unwrap_or(0.0)), last.max(end(row)));
    }
    let is_cut = |row: &Row| match row.record {
        Some(Record::Interval) => {
            let (longest, last) = of_member.get(&(row.member.clone(), row.direction)).copied().unwrap_or_default();
            // The ends of a test cut their windows almost at the same time.
            let is_last = end(row) > last - longest / 10.0;
            is_measure(row) && is_last && row.elapsed_s.unwrap_or(0.0) < WHOLE * longest
        }
        // Without a measure phase, the phase before it was cut off.
        _ => is_measure(row) || !measured,
    };
    let cut: Vec<bool> = rows.iter().map(is_cut).collect();
    for (row, _) in rows.iter_mut().zip(cut).filter(|(_, cut)| *cut) {
        row.status = Some(Status::Cut);
        row.error = Some(sentence.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_iteration_and_its_last_interval_are_marked() {
        let interval = |start_s, elapsed_s| Row {
            record: Some(Record::Interval),
            phase: Some(Phase::Measure),
            status: Some(Status::Ok),
            start_s: Some(start_s),
            elapsed_s: Some(elapsed_s),
            ..Row::default()
        };
        let phase = |phase| Row { record: Some(Record::Iteration), phase: Some(phase), ..interval(0.0, 1.0) };
        // One that was sampled late is followed by a short one.
        let times = [(0.0, 0.5), (0.5, 0.8), (1.3, 0.2), (1.5, 0.1)];
        let intervals: Vec<Row> = times.into_iter().map(|(start_s, elapsed_s)| interval(start_s, elapsed_s)).collect();
        let mut rows = [&intervals[..], &[phase(Phase::Warmup), phase(Phase::Measure)]].concat();
        mark(&mut rows, "why");
        let marked: Vec<bool> = rows.iter().map(|r| r.status == Some(Status::Cut)).collect();
        assert_eq!(marked, [false, false, false, true, false, true]);
        assert_eq!(rows[5].error.as_deref(), Some("why"));
        // Cut off before it measured, the phase before that is not whole.
        let mut rows = [phase(Phase::Warmup)];
        mark(&mut rows, "why");
        assert_eq!(rows[0].status, Some(Status::Cut));
    }
}
