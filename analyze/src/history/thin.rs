//! The runs of a history that stay when it is compacted.
//!
//! A run stays whole or goes whole: one that lost some cases would look like a run of fewer. Old runs stay
//!
//! - within `AROUND` runs of either side of a change, and of the start and the end of each series;
//! - throughout a drift, since it is a line over the runs;
//! - one of each period, for each series;
//! - where a change was accepted.
//!
//! Then the changes are searched again in what would be left. Where a series would tell something else, more of its runs stay,
//! until all tell the same: fewer values could hide a change, or make one up. Both searches stop at the same runs, so a second
//! compaction takes the same decisions and finds nothing to leave out.

use std::collections::{BTreeMap, HashMap, HashSet};

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
    /// Runs near which others stay, and how many on either side: those of the bounds, and those at which what would be left
    /// changes and the whole series does not.
    edges: BTreeMap<usize, usize>,
    /// Points with which the series tells the same.
    proven: Option<usize>,
}

/// For each run of a history whether it stays. `before`: only runs that began before this time may go. `accepted`: runs of
/// accepted changes.
pub fn needed(reading: &Reading, before: &str, keep: Period, accepted: &[&str]) -> Vec<bool> {
    let mut all: Vec<Chosen> = reading.series().into_par_iter().map(Chosen::of).collect();
    let accepted: HashSet<&str> = accepted.iter().copied().collect();
    let is_fixed = |run: &super::series::Run| *run.time >= *before || accepted.contains(&*run.run_id);
    let mut fixed: Vec<bool> = reading.runs.iter().map(is_fixed).collect();
    one_of_each(&all, reading, keep, &mut fixed);
    loop {
        let mut stays = fixed.clone();
        for chosen in &all {
            chosen.mark(&mut stays);
        }
        // All of them, since each that differs needs more.
        let same: Vec<bool> = all.par_iter_mut().map(|chosen| chosen.tells_the_same(&stays)).collect();
        if same.into_iter().all(|same| same) {
            return stays;
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
    fn of(series: Series) -> Self {
        let bounds = bounds(&series.points);
        let edges = bounds.iter().map(|bound| (bound.run(), AROUND)).collect();
        Self { series, bounds, edges, proven: None }
    }

    /// Marks the runs that this series needs.
    fn mark(&self, stays: &mut [bool]) {
        let points = &self.series.points;
        let place: HashMap<usize, usize> = points.iter().enumerate().map(|(at, point)| (point.run, at)).collect();
        let mut keep = |start: usize, end: usize| {
            points[start..end.min(points.len())].iter().for_each(|point| stays[point.run] = true);
        };
        keep(0, AROUND);
        keep(points.len().saturating_sub(AROUND), points.len());
        for (run, around) in &self.edges {
            let at = place[run];
            keep(at.saturating_sub(*around), at + around);
        }
        let mut drift = 0;
        for bound in &self.bounds {
            match bound {
                Bound::Step(_) => {}
                Bound::DriftStart(run) => drift = place[run],
                Bound::DriftEnd(run) => keep(drift, place[run] + 1),
            }
        }
    }

    /// Whether the runs that would stay tell the same. If not, twice as many will stay where they do not.
    fn tells_the_same(&mut self, stays: &[bool]) -> bool {
        let left: Vec<Point> = self.series.points.iter().copied().filter(|point| stays[point.run]).collect();
        // Runs are only added, so as many are the same ones.
        if left.len() == self.series.points.len() || self.proven == Some(left.len()) {
            return true;
        }
        let found = bounds(&left);
        if found == self.bounds {
            self.proven = Some(left.len());
            return true;
        }
        let lost = self.bounds.iter().filter(|bound| !found.contains(bound));
        let made_up = found.iter().filter(|bound| !self.bounds.contains(bound));
        for bound in lost.chain(made_up) {
            self.edges.entry(bound.run()).and_modify(|around| *around *= 2).or_insert(AROUND);
        }
        false
    }
}

#[cfg(test)]
mod tests;
