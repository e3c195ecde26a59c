//! Iterations that a signal ended before their end.

use std::collections::BTreeMap;

use netcore::{
    client::Outcome,
    report::{Ending, Phase, SideReport},
    spec::Stop,
};
use schemas::{
    columns::Row,
    units::{Unit, human},
    words::{Phase as RowPhase, Record, Status},
};

use crate::{
    schedule::{bench::Measured, step::Step},
    signals::Interrupts,
};

/// A last interval shorter than this share of the longest one was cut off with its iteration.
const WHOLE: f64 = 0.9;

/// An iteration that is not whole.
pub(super) struct Cut {
    /// `interrupted by SIGTERM after 3.90 of 14.0 s`
    pub(super) sentence: String,
    /// Whether both ends, of every member, had begun to measure.
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
    // A program may print results when it is interrupted, and does not say of how much.
    if measured.printed.is_some() {
        return Some(Cut { sentence: format!("{by} while its program ran"), has_numbers: false });
    }
    if let Some(ranks) = &measured.ranks {
        let stopped = ranks.reports.iter().any(|report| report.ending == Ending::Stopped);
        let elapsed = ranks.reports.iter().map(|report| report.elapsed_ns).max().filter(|ns| *ns > 0);
        let when = elapsed
            .map_or("before it measured".to_owned(), |ns| format!("after {}", human(Unit::Seconds, ns as f64 / 1e9)));
        return stopped.then(|| Cut { sentence: format!("{by} {when}"), has_numbers: elapsed.is_some() });
    }
    if !measured.members.iter().flat_map(ends).any(|end| end.ending == Ending::Stopped) {
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
            Some((ends(reports).filter_map(elapsed).max()?, planned))
        })
        .max();
    let seconds = |ns: u64| human(Unit::Seconds, ns as f64 / 1e9);
    let when = match longest {
        Some((elapsed, Some(planned))) => format!("after {} of {}", seconds(elapsed), seconds(planned)),
        Some((elapsed, None)) => format!("after {}", seconds(elapsed)),
        None => "before it measured".to_owned(),
    };
    let has_begun = |reports: &Outcome| ends(reports).any(|end| elapsed(end).is_some());
    Some(Cut { sentence: format!("{by} {when}"), has_numbers: measured.members.iter().all(has_begun) })
}

fn ends(reports: &Outcome) -> impl Iterator<Item = &SideReport> {
    std::iter::once(&reports.near).chain(&reports.far)
}

/// Length of an end's measure phase, nanoseconds.
fn elapsed(report: &SideReport) -> Option<u64> {
    report.phases.iter().find(|window| window.phase == Phase::Measure).map(|window| window.elapsed_ns)
}

/// Marks the rows of an iteration that was cut off. Intervals that came to their end stay as they are, and so do phases.
pub(super) fn mark(rows: &mut [Row], sentence: &str) {
    let is_measure = |row: &Row| row.phase == Some(RowPhase::Measure);
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
            phase: Some(RowPhase::Measure),
            status: Some(Status::Ok),
            start_s: Some(start_s),
            elapsed_s: Some(elapsed_s),
            ..Row::default()
        };
        let phase = |phase| Row { record: Some(Record::Iteration), phase: Some(phase), ..interval(0.0, 1.0) };
        // One that was sampled late is followed by a short one.
        let intervals = [interval(0.0, 0.5), interval(0.5, 0.8), interval(1.3, 0.2), interval(1.5, 0.1)];
        let mut rows = [&intervals[..], &[phase(RowPhase::Warmup), phase(RowPhase::Measure)]].concat();
        mark(&mut rows, "why");
        let marked: Vec<bool> = rows.iter().map(|r| r.status == Some(Status::Cut)).collect();
        assert_eq!(marked, [false, false, false, true, false, true]);
        assert_eq!(rows[5].error.as_deref(), Some("why"));
        // Cut off before it measured, the phase before that is not whole.
        let mut rows = [phase(RowPhase::Warmup)];
        mark(&mut rows, "why");
        assert_eq!(rows[0].status, Some(Status::Cut));
    }
}
