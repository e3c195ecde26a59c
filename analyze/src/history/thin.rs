//! The rows of a history that stay when it is compacted.
//!
//! Each series decides for itself, so a run may keep some of its rows. Old rows stay
//!
//! - within `AROUND` rows of either side of a change, and of the start and the end of the series;
//! - throughout a drift, since it is a line over the runs;
//! - if they are the first of a period;
//! - where a change was accepted.
//!
//! Then the changes are searched again in what would be left. Where the series would tell something else, more of its rows stay,
//! until it tells the same: fewer values could hide a change, or make one up. Both searches stop at the same rows, so a second
//! compaction takes the same decisions and finds nothing to leave out.

use std::collections::{BTreeMap, HashSet};

use rayon::prelude::*;
use schemas::time;

use super::{
    series::{Reading, Run, Series},
    trend::FEWEST,
};
use crate::stats::changes::{Movement, movements};

/// Rows that stay on either side of a change: a level can be told from its neighbour by them.
const AROUND: usize = FEWEST;

/// A stretch of time of which a series keeps one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Period {
    /// One run of each day in UTC
    Day,
    /// One run of each week, from Monday
    Week,
    /// One run of every four weeks
    Month,
}

impl Period {
    /// The number of the period that a moment is in.
    fn of(self, time: &str) -> i64 {
        let days = time::parse(time).map_or(0, |moment| moment.timestamp().div_euclid(86_400));
        // 1970 began on a Thursday.
        let weeks = (days + 3).div_euclid(7);
        match self {
            Self::Day => days,
            Self::Week => weeks,
            Self::Month => weeks.div_euclid(4),
        }
    }
}

/// A row at which a series changes, by its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    Step(usize),
    DriftStart(usize),
    /// The last row of the drift.
    DriftEnd(usize),
}

impl Bound {
    fn at(self) -> usize {
        match self {
            Self::Step(at) | Self::DriftStart(at) | Self::DriftEnd(at) => at,
        }
    }

    /// The same row in another list. `places`: the index there of each row here.
    fn moved(self, places: &[usize]) -> Self {
        match self {
            Self::Step(at) => Self::Step(places[at]),
            Self::DriftStart(at) => Self::DriftStart(places[at]),
            Self::DriftEnd(at) => Self::DriftEnd(places[at]),
        }
    }
}

/// Every series, and for each of its points whether it stays. `before`: only rows of runs that began before this time may go.
/// `accepted`: runs of accepted changes.
pub fn needed(reading: &Reading, before: &str, keep: Period, accepted: &[&str]) -> Vec<(Series, Vec<bool>)> {
    let accepted: HashSet<&str> = accepted.iter().copied().collect();
    let is_fixed = |run: &Run| *run.time >= *before || accepted.contains(&*run.run_id);
    // Of each run: its period, and whether it stays in any case.
    let runs: Vec<(i64, bool)> = reading.runs.iter().map(|run| (keep.of(&run.time), is_fixed(run))).collect();
    let with_rows = |series: Series| {
        let of_points: Vec<(i64, bool)> = series.points.iter().map(|point| runs[point.run]).collect();
        let values: Vec<f64> = series.points.iter().map(|point| point.centre).collect();
        (series, stays(&values, &of_points))
    };
    reading.series().into_par_iter().map(with_rows).collect()
}

/// The rows at which values change.
fn bounds(values: &[f64]) -> Vec<Bound> {
    if values.len() < FEWEST {
        return Vec::new();
    }
    let mut found = Vec::new();
    for movement in movements(values) {
        match movement {
            Movement::Step(change) => found.push(Bound::Step(change.at)),
            Movement::Drift { start, end } => found.extend([Bound::DriftStart(start), Bound::DriftEnd(end - 1)]),
        }
    }
    found
}

/// For each value of a series whether it stays. `runs`: the period of each, and whether it stays in any case.
fn stays(values: &[f64], runs: &[(i64, bool)]) -> Vec<bool> {
    let count = values.len();
    let whole = bounds(values);
    let mut fixed: Vec<bool> = runs.iter().map(|(_, is_fixed)| *is_fixed).collect();
    for at in 0..count {
        fixed[at] |= at < AROUND || at + AROUND >= count || runs[at].0 != runs[at - 1].0;
    }
    let mut drift = 0;
    for bound in &whole {
        match *bound {
            Bound::Step(_) => {}
            Bound::DriftStart(at) => drift = at,
            Bound::DriftEnd(at) => fixed[drift..=at].fill(true),
        }
    }
    // Rows near which others stay, and how many on either side: the bounds, and those at which what would be left changes and
    // the whole series does not.
    let mut edges: BTreeMap<usize, usize> = whole.iter().map(|bound| (bound.at(), AROUND)).collect();
    loop {
        let mut stays = fixed.clone();
        for (at, around) in &edges {
            stays[at.saturating_sub(*around)..count.min(at + around)].fill(true);
        }
        let left: Vec<usize> = (0..count).filter(|at| stays[*at]).collect();
        if left.len() == count {
            return stays;
        }
        let of_left: Vec<f64> = left.iter().map(|at| values[*at]).collect();
        let found: Vec<Bound> = bounds(&of_left).into_iter().map(|bound| bound.moved(&left)).collect();
        if found == whole {
            return stays;
        }
        let lost = whole.iter().filter(|bound| !found.contains(bound));
        let made_up = found.iter().filter(|bound| !whole.contains(bound));
        for bound in lost.chain(made_up) {
            edges.entry(bound.at()).and_modify(|around| *around *= 2).or_insert(AROUND);
        }
    }
}

#[cfg(test)]
mod tests;
