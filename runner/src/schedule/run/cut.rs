//! Iterations that a signal ended before their end.

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

/// An interval shorter than this share of the longest one was cut off with its iteration.
const WHOLE: f64 = 0.9;

/// An iteration that is not whole.
pub(super) struct Cut {
    /// `interrupted by SIGTERM after 3.90 of 14.0 s`
    pub(super) sentence: String,
    /// Whether both ends had begun to measure.
    pub(super) has_numbers: bool,
}

/// `interrupted by SIGINT`, or where no signal came: `interrupted`.
pub(super) fn by(stop: &Interrupts) -> String {
    stop.name().map_or_else(|| "interrupted".to_owned(), |name| format!("interrupted by {name}"))
}

/// How an iteration was cut off; `None`: it came to its end.
pub(super) fn of(step: &Step, measured: &Measured, stop: &Interrupts) -> Option<Cut> {
    if !stop.requested() {
        return None;
    }
    let by = by(stop);
    // A program may print results when it is interrupted: nobody knows of how much.
    if measured.printed.is_some() {
        return Some(Cut { sentence: format!("{by} while its program ran"), has_numbers: false });
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
    Some(Cut { sentence: format!("{by} {when}"), has_numbers: longest.is_some() })
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
    let of_member = |row: &Row| (row.member.clone(), row.direction);
    let longest = |of: &Row| {
        let intervals = rows.iter().filter(|r| r.record == Some(Record::Interval) && is_measure(r));
        let alike = intervals.filter(|r| of_member(r) == of_member(of)).filter_map(|r| r.elapsed_s);
        alike.fold(0.0, f64::max)
    };
    let is_cut = |row: &Row| match row.record {
        Some(Record::Interval) => is_measure(row) && row.elapsed_s.is_none_or(|elapsed| elapsed < WHOLE * longest(row)),
        // Without a measure phase, the phase before it was cut off.
        _ => is_measure(row) || !measured,
    };
    let cut: Vec<bool> = rows.iter().map(is_cut).collect();
    for (row, _) in rows.iter_mut().zip(cut).filter(|(_, cut)| *cut) {
        row.status = Some(Status::Cut);
        row.error = Some(sentence.to_owned());
    }
}
