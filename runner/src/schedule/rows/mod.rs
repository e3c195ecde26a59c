//! From what two ends report to rows of the results table.
//!
//! - [`both`]: a phase or interval at both ends
//! - [`ecn`]: congestion marks
//! - [`hops`]: at which link of the path the queue stands
//! - [`identity`]: the cells of what the kernels granted
//! - [`window`]: the cells of one phase or interval
//! - [`latency`]: histograms, merged
//! - `limited`: why the test was not faster
//! - [`limits`]: evidence on what held the test back
//! - [`loaded`]: what a load adds to the latency of a probe beside it
//! - [`loss`]: runs of lost messages
//! - [`printed`]: what a program printed
//! - [`ranks`]: what several ranks did
//! - [`summary`]: what the iterations of a case say together
//! - [`total`]: what the members of a group did together
//! - [`wire`]: how much of the wire a stream took

pub mod both;
pub mod ecn;
pub mod hops;
pub mod identity;
pub mod latency;
mod limited;
pub mod limits;
pub mod loaded;
pub mod loss;
pub mod printed;
pub mod ranks;
pub mod summary;
pub mod total;
pub mod window;
pub mod wire;

use netcore::{
    report::{Phase, SideReport, TimeWait, Window},
    spec::TestSpec,
};
use schemas::{
    columns::Row,
    words::{Record, Way},
};

use self::both::Pair;
pub use crate::plan::requested::ways;

/// The rows of one iteration, in the order in which they are written.
#[derive(Clone, Debug, Default)]
pub struct IterationRows {
    /// Intervals in order of time, then streams, then the phases.
    pub rows: Vec<Row>,
    /// Copies of the measure phase's `iteration` rows, one per way: what statistics are made of.
    pub measured: Vec<(Way, Row)>,
}

/// Makes the rows of an iteration from what its two ends reported, or the near one alone where the far one is a service.
/// `identity` carries the cells that every row shares.
pub fn of_iteration(identity: &Row, spec: &TestSpec, near: &SideReport, far: Option<&SideReport>) -> IterationRows {
    let granted = |way: Way| {
        let mut identity = identity.clone();
        identity::granted(&mut identity, way, near, far);
        identity
    };
    let identities = [Way::Forward, Way::Reverse, Way::Both].map(granted);
    let mut made = IterationRows::default();

    for pair in pairs(&near.intervals, intervals(far), spec.phases.interval_ns) {
        for way in ways(spec.direction) {
            let mut row = window::row(&identities[*way as usize], spec, pair, *way, None);
            row.record = Some(Record::Interval);
            made.rows.push(row);
        }
    }
    let measure = Pair { near: phase(near, Phase::Measure), far: far.and_then(|far| phase(far, Phase::Measure)) };
    if spec.flows() > 1 {
        for stream in 0..spec.flows() {
            if let Some(way) = window::way_of(spec.direction, measure, stream) {
                let mut row = window::row(&identities[way as usize], spec, measure, way, Some(stream));
                row.record = Some(Record::Stream);
                made.rows.push(row);
            }
        }
    }
    for which in [Phase::Warmup, Phase::Measure, Phase::Cooldown] {
        let pair = Pair { near: phase(near, which), far: far.and_then(|far| phase(far, which)) };
        if pair.near.is_none() && pair.far.is_none() {
            continue;
        }
        let mut rows: Vec<(Way, Row)> = Vec::new();
        for way in ways(spec.direction) {
            let mut row = window::row(&identities[*way as usize], spec, pair, *way, None);
            row.record = Some(Record::Iteration);
            wire::fill(&mut row, spec, near, far);
            if which == Phase::Measure {
                time_wait(&mut row, near, far);
                hops::fill(&mut row, near);
            }
            rows.push((*way, row));
        }
        if which == Phase::Measure {
            for (_, row) in &mut rows {
                row.cpu_taken_ratio = analyze::limits::taken(row);
            }
            limited::fill(&mut rows, spec, pair);
            made.measured.extend(rows.iter().cloned());
        }
        made.rows.extend(rows.into_iter().map(|(_, row)| row));
    }
    made
}

/// Taken before the load and after all of it, so that they belong to the iteration and to none of its intervals.
fn time_wait(row: &mut Row, near: &SideReport, far: Option<&SideReport>) {
    let cells = |counts: Option<TimeWait>| (counts.map(|t| t.before), counts.map(|t| t.after));
    (row.local_time_wait_before, row.local_time_wait_after) = cells(near.time_wait);
    (row.remote_time_wait_before, row.remote_time_wait_after) = cells(far.and_then(|far| far.time_wait));
}

/// The intervals of an end that may be none.
fn intervals(report: Option<&SideReport>) -> &[Window] {
    report.map_or(&[], |report| &report.intervals)
}

fn phase(report: &SideReport, phase: Phase) -> Option<&Window> {
    report.phases.iter().find(|w| w.phase == phase)
}

/// The intervals of the two ends, in order of time, joined where both were cut at the same edges: to within half of their
/// nominal length, since each end reads when its thread wakes. One that was woken so late that it missed an edge has a longer
/// interval; that and those of the other end in its time stand alone.
fn pairs<'a>(near: &'a [Window], far: &'a [Window], nominal_ns: u64) -> Vec<Pair<'a>> {
    let tolerance = nominal_ns / 2;
    let end = |w: &Window| w.start_ns.saturating_add_unsigned(w.elapsed_ns);
    let same =
        |a: &Window, b: &Window| a.start_ns.abs_diff(b.start_ns) <= tolerance && end(a).abs_diff(end(b)) <= tolerance;
    let mut all = Vec::new();
    for which in [Phase::Warmup, Phase::Measure, Phase::Cooldown] {
        let mut near = near.iter().filter(|w| w.phase == which).peekable();
        let mut far = far.iter().filter(|w| w.phase == which).peekable();
        loop {
            let pair = match (near.peek(), far.peek()) {
                (None, None) => break,
                (Some(a), Some(b)) if same(a, b) => Pair { near: near.next(), far: far.next() },
                (Some(a), Some(b)) if end(a) > end(b) => Pair { near: None, far: far.next() },
                (None, Some(_)) => Pair { near: None, far: far.next() },
                (Some(_), _) => Pair { near: near.next(), far: None },
            };
            all.push(pair);
        }
    }
    all
}

#[cfg(test)]
mod tests;
