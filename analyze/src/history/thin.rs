//! The runs of a history that stay when it is compacted.
//!
//! A run stays whole or goes whole: one that lost some cases would look like a run of fewer. Old runs stay
//!
//! - within [`AROUND`] runs of either side of a change, and of the start and the end of each series;
//! - throughout a drift, since it is a line over the runs;
//! - one of each period, for each series;
//! - where a change was accepted.
//!
//! Then the changes are searched again in what would be left. Where a series would tell something else, more of its runs stay,
//! until all tell the same: fewer values could hide a change, or make one up. Both searches stop at the same runs, so a second
//! compaction takes the same decisions and finds nothing to leave out.

use std::collections::{BTreeMap, HashSet};

use rayon::prelude::*;
use schemas::time;

use super::{
    series::{Point, Reading, Series},
    trend::FEWEST,
};
use crate::stats::changes::{Movement, movements};

/// Runs that stay on either side of a change: a level can be told from its neighbour by them.
const AROUND: usize = FEWEST;

/// A stretch of time of which one run stays.
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

/// A run at which a series changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    Step(usize),
    DriftStart(usize),
    /// The last run of the drift.
    DriftEnd(usize),
}

impl Bound {
    fn run(self) -> usize {
        match self {
            Self::Step(run) | Self::DriftStart(run) | Self::DriftEnd(run) => run,
        }
    }
}

/// A series while runs are chosen.
struct Chosen {
    series: Series,
    bounds: Vec<Bound>,
    /// Runs at which what would be left changes, and the whole series does not.
    disputed: Vec<usize>,
    around: usize,
}

/// For each run of a history whether it stays. `before`: only runs that began before this time may go. `accepted`: runs of
/// accepted changes.
pub fn needed(reading: &Reading, before: &str, keep: Period, accepted: &[&str]) -> Vec<bool> {
    let mut all: Vec<Chosen> = reading
        .series()
        .into_par_iter()
        .map(|series| Chosen { bounds: bounds(&series.points), series, disputed: Vec::new(), around: AROUND })
        .collect();
    let accepted: HashSet<&str> = accepted.iter().copied().collect();
    let is_fixed = |run: &super::series::Run| *run.time >= *before || accepted.contains(&*run.run_id);
    let mut fixed: Vec<bool> = reading.runs.iter().map(is_fixed).collect();
    one_of_each(&all, reading, keep, &mut fixed);
    loop {
        let mut stays = fixed.clone();
        for chosen in &all {
            chosen.mark(&mut stays);
        }
        let differing: Vec<(usize, Vec<usize>)> = all
            .par_iter()
            .enumerate()
            .filter_map(|(i, chosen)| {
                let left: Vec<Point> = chosen.series.points.iter().copied().filter(|p| stays[p.run]).collect();
                let found = if left.len() == chosen.series.points.len() { return None } else { bounds(&left) };
                (found != chosen.bounds).then(|| (i, found.into_iter().map(Bound::run).collect()))
            })
            .collect();
        if differing.is_empty() {
            return stays;
        }
        for (i, disputed) in differing {
            all[i].disputed.extend(disputed);
            all[i].around *= 2;
        }
    }
}

/// The runs at which values change.
fn bounds(points: &[Point]) -> Vec<Bound> {
    if points.len() < FEWEST {
        return Vec::new();
    }
    let values: Vec<f64> = points.iter().map(|point| point.centre).collect();
    let mut found = Vec::new();
    for movement in movements(&values) {
        match movement {
            Movement::Step(change) => found.push(Bound::Step(points[change.at].run)),
            Movement::Drift { start, end } => {
                found.push(Bound::DriftStart(points[start].run));
                found.push(Bound::DriftEnd(points[end - 1].run));
            }
        }
    }
    found
}

/// Keeps runs of each period so that each series has one: first the run with most series, then that with most of the others …
/// A run that stays is also chosen when the others have gone.
fn one_of_each(all: &[Chosen], reading: &Reading, keep: Period, stays: &mut [bool]) {
    let mut series_of: Vec<Vec<usize>> = vec![Vec::new(); reading.runs.len()];
    for (i, chosen) in all.iter().enumerate() {
        chosen.series.points.iter().for_each(|point| series_of[point.run].push(i));
    }
    let mut periods: BTreeMap<i64, Vec<usize>> = BTreeMap::new();
    for (run, facts) in reading.runs.iter().enumerate() {
        periods.entry(keep.of(&facts.time)).or_default().push(run);
    }
    for mut runs in periods.into_values() {
        runs.sort_by_key(|run| &reading.runs[*run].time);
        let mut has = vec![false; all.len()];
        loop {
            let new = |run: usize| series_of[run].iter().filter(|series| !has[**series]).count();
            // The last of equals is the earliest.
            let Some(most) = runs.iter().rev().copied().max_by_key(|run| new(*run)).filter(|run| new(*run) > 0) else {
                break;
            };
            series_of[most].iter().for_each(|series| has[*series] = true);
            stays[most] = true;
        }
    }
}

impl Chosen {
    /// Marks the runs that this series needs.
    fn mark(&self, stays: &mut [bool]) {
        let points = &self.series.points;
        let mut keep = |start: usize, end: usize| points[start..end].iter().for_each(|p| stays[p.run] = true);
        let near = |index: usize| (index.saturating_sub(self.around), (index + self.around).min(points.len()));
        let place = |run: usize| points.iter().position(|point| point.run == run).unwrap_or(0);
        let mut edges = vec![0, points.len()];
        let mut drift = 0;
        for bound in &self.bounds {
            let at = place(bound.run());
            match bound {
                Bound::Step(_) => edges.push(at),
                Bound::DriftStart(_) => {
                    drift = at;
                    edges.push(at);
                }
                Bound::DriftEnd(_) => {
                    keep(drift, at + 1);
                    edges.push(at + 1);
                }
            }
        }
        edges.extend(self.disputed.iter().map(|run| place(*run)));
        for edge in edges {
            let (start, end) = near(edge);
            keep(start, end);
        }
    }
}

#[cfg(test)]
mod tests;
