//! The figures that join members of a group: what a load adds to the latency of a probe, and whether both were stable.
//!
//! A probe names the member that measures the same round trip on the idle path (`idle` in the plan). The load beside it is
//! every stream of the group that is measured in the probe's window, by plan.

use analyze::stats::responsiveness::{self, INTERVAL_S, MOVING};
use netcore::spec::Pattern;
use schemas::{
    columns::Row,
    words::{Confidence, Phase, Record, Way},
};

use super::latency::Merged;
use crate::{plan::case::Member, schedule::step::Step};

/// Fills the cells of the probes under load, in the rows of an iteration and in the copies that statistics are made of.
pub fn join(step: &Step, written: &mut [Row], measured: &mut [(usize, Way, Row)]) {
    for (m, member) in step.members.iter().enumerate() {
        let Some(idle) = member.idle.as_ref().and_then(|name| step.members.iter().position(|one| one.name == *name))
        else {
            continue;
        };
        let of = |m: usize| measured.iter().find(|(at, ..)| *at == m).map(|(.., row)| row);
        let Some((probe, idle)) = of(m).zip(of(idle)) else { continue };
        let difference = |cell: fn(&Row) -> Option<f64>| Some(cell(probe)? - cell(idle)?);
        let p50 = difference(|row| row.latency_p50_us);
        let p95 = difference(|row| row.latency_p95_us);
        let load = step.members.iter().filter(|one| is_load(one, member));
        let load = load.filter_map(|one| of_load(written, one, member)).min();
        let responsiveness = of_probe(written, member);
        let fill = |row: &mut Row| {
            (row.added_latency_p50_us, row.added_latency_p95_us) = (p50, p95);
            (row.load_confidence, row.responsiveness_confidence) = (load, responsiveness);
        };
        measured.iter_mut().filter(|(at, ..)| *at == m).for_each(|(.., row)| fill(row));
        let is_whole = |row: &&mut Row| {
            row.record == Some(Record::Iteration) && row.phase == Some(Phase::Measure) && is_of(row, member)
        };
        written.iter_mut().filter(is_whole).for_each(fill);
    }
}

fn is_of(row: &Row, member: &Member) -> bool {
    row.member.as_deref() == Some(&member.name)
}

/// Whether a member is load beside a probe: a stream whose window shares a part of the probe's.
fn is_load(member: &Member, probe: &Member) -> bool {
    let is_stream = member.spec().is_some_and(|spec| spec.pattern == Pattern::Stream);
    let windows = member.measured_ns().zip(probe.measured_ns());
    is_stream && windows.is_some_and(|(load, probe)| load.0 < probe.1 && probe.0 < load.1)
}

fn of_load(rows: &[Row], load: &Member, probe: &Member) -> Option<Confidence> {
    let work = |bin: &[&Row]| {
        let seconds = |row: &Row| row.elapsed_s.unwrap_or(0.0);
        let bits: f64 = bin.iter().map(|row| row.throughput_bits_per_s.unwrap_or(0.0) * seconds(row)).sum();
        (bits, bin.iter().map(|row| seconds(row)).sum::<f64>())
    };
    let bins: Vec<(f64, f64)> = bins(rows, load, probe)?.iter().map(|bin| work(bin)).collect();
    let average = |bins: &[(f64, f64)]| {
        let (work, time) = bins.iter().fold((0.0, 0.0), |sum, bin| (sum.0 + bin.0, sum.1 + bin.1));
        work / time
    };
    Some(responsiveness::confidence(&bins.windows(MOVING).map(average).collect::<Vec<_>>()))
}

fn of_probe(rows: &[Row], probe: &Member) -> Option<Confidence> {
    let merge = |all: Merged, one: &Merged| all.with(one);
    let merged = |bin: &Vec<&Row>| {
        let mut histograms = bin.iter().filter_map(|row| Merged::of_row(row));
        let first = histograms.next();
        first.map(|first| histograms.fold(first, |all, one| merge(all, &one)))
    };
    let bins: Vec<Option<Merged>> = bins(rows, probe, probe)?.iter().map(merged).collect();
    // An interval without an answer adds no time; four of them have no rate.
    let average = |bins: &[Option<Merged>]| {
        let mut there = bins.iter().flatten();
        let first = there.next().cloned();
        first.and_then(|first| there.fold(first, merge).round_trips_per_min()).unwrap_or(0.0)
    };
    Some(responsiveness::confidence(&bins.windows(MOVING).map(average).collect::<Vec<_>>()))
}

/// A member's intervals inside a probe's window, together in steps of the draft's interval, counted from the end of the window.
/// `None`: the plan has no intervals.
fn bins<'r>(rows: &'r [Row], member: &Member, probe: &Member) -> Option<Vec<Vec<&'r Row>>> {
    let nominal_s = member.spec()?.phases.interval_ns as f64 / 1e9;
    if nominal_s <= 0.0 {
        return None;
    }
    let seconds = |ns: u64| ns as f64 / 1e9;
    let begin = seconds(member.measured_ns()?.0);
    let (low, high) = probe.measured_ns().map(|(low, high)| (seconds(low), seconds(high)))?;
    let way = *super::ways(member.spec()?.direction).last()?;
    let inside = |row: &&Row| {
        let (start, elapsed) = (begin + row.start_s.unwrap_or(0.0), row.elapsed_s.unwrap_or(0.0));
        // The last interval of a phase may be cut short, and edges are as late as the thread that wakes for them.
        start >= low - nominal_s / 2.0 && start + elapsed <= high + nominal_s / 2.0 && elapsed >= nominal_s / 2.0
    };
    let is_interval = |row: &&Row| {
        row.record == Some(Record::Interval)
            && row.phase == Some(Phase::Measure)
            && row.direction == Some(way)
            && is_of(row, member)
    };
    let all: Vec<&Row> = rows.iter().filter(is_interval).filter(inside).collect();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at least 1")]
    let together = (INTERVAL_S / nominal_s).round().max(1.0) as usize;
    Some(all.rchunks_exact(together).rev().map(<[&Row]>::to_vec).collect())
}
