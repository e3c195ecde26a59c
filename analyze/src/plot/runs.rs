//! The runs of a history along an axis.

use crate::{
    history::{
        sentences,
        series::{Point, Reading},
        told::Told,
    },
    stats::quantiles,
};
use schemas::text::short_id;

/// Most dots of a series in a picture. Of more runs, neighbours share one.
pub const DOTS: usize = 400;

/// The runs of some series in the order of time.
pub struct Order<'a> {
    reading: &'a Reading,
    /// Indices in [`Reading::runs`].
    runs: Vec<usize>,
    /// The place of each run of the reading in `runs`; of the others, 0.
    places: Vec<usize>,
}

impl<'a> Order<'a> {
    pub fn of(reading: &'a Reading, all: &[&Told]) -> Self {
        let mut runs: Vec<usize> =
            all.iter().flat_map(|told| told.series.points.iter().map(|point| point.run)).collect();
        runs.sort_unstable();
        runs.dedup();
        // Stable: runs of the same time stay in the order of their arrival, as in a series.
        runs.sort_by(|a, b| reading.runs[*a].time.cmp(&reading.runs[*b].time));
        let mut places = vec![0; reading.runs.len()];
        for (place, run) in runs.iter().enumerate() {
            places[*run] = place;
        }
        Self { reading, runs, places }
    }

    /// Place of a run, by its index in [`Reading::runs`].
    pub fn place(&self, run: usize) -> usize {
        self.places[run]
    }

    fn day(&self, run: usize) -> &str {
        sentences::day(&self.reading.runs[run])
    }

    fn days(&self) -> usize {
        self.runs.chunk_by(|a, b| self.day(*a) == self.day(*b)).count()
    }

    /// Whether most days have several runs.
    fn by_minute(&self) -> bool {
        self.runs.len() > 2 * self.days()
    }

    /// The day of each run; where days have several, with the minute and without the year. Of one day, the minute.
    pub fn names(&self) -> Vec<String> {
        let by_minute = self.by_minute();
        let start = if self.days() == 1 { 11 } else { 5 };
        let name = |run: &usize| {
            let time = &self.reading.runs[*run].time;
            match time.get(start..16).filter(|_| by_minute) {
                Some(minute) => minute.replace('T', " "),
                None => self.day(*run).to_owned(),
            }
        };
        self.runs.iter().map(name).collect()
    }

    pub fn title(&self) -> String {
        match self.runs.first() {
            Some(first) if self.by_minute() && self.days() == 1 => {
                format!("runs of {} in their order, by time (UTC)", self.day(*first))
            }
            _ if self.by_minute() => "runs in their order, by month, day and time (UTC)".to_owned(),
            _ => "runs in their order, by day (UTC)".to_owned(),
        }
    }

    /// The number of runs, the first and the last.
    pub fn span(&self) -> String {
        let s = if self.runs.len() == 1 { "" } else { "s" };
        let (Some(first), Some(last)) = (self.runs.first(), self.runs.last()) else { return "no runs".to_owned() };
        let [first, last] = [first, last].map(|run| &self.reading.runs[*run]);
        let days = sentences::days(first, last);
        format!("{} run{s}, {days}, through run {}", self.runs.len(), short_id(&last.run_id))
    }
}

/// A run, or neighbouring runs of one level.
pub struct Dot {
    /// The middle of their places.
    pub x: f64,
    /// The median of their values.
    pub centre: f64,
    /// A run's interval; of several runs, their smallest and largest values.
    pub range: Option<(f64, f64)>,
    pub runs: usize,
    /// Whether it is the first of a level.
    pub begins: bool,
}

/// The dots of a series, about `most`. `breaks`: the first indices of its levels, which no dot crosses.
pub fn condensed(points: &[Point], places: &[usize], breaks: &[usize], most: usize) -> Vec<Dot> {
    let each = points.len().div_ceil(most).max(1);
    let mut dots = Vec::new();
    let ends = breaks.iter().skip(1).copied().chain([points.len()]);
    for (start, end) in breaks.iter().copied().zip(ends) {
        for from in (start..end).step_by(each) {
            let to = (from + each).min(end);
            let mut values: Vec<f64> = points[from..to].iter().map(|point| point.centre).collect();
            quantiles::sort(&mut values);
            let range = match &points[from..to] {
                [one] => one.low.zip(one.high),
                _ => values.first().copied().zip(values.last().copied()),
            };
            dots.push(Dot {
                x: f64::midpoint(places[from] as f64, places[to - 1] as f64),
                centre: quantiles::median(&values).unwrap_or(f64::NAN),
                range,
                runs: to - from,
                begins: from == start && from > 0,
            });
        }
    }
    dots
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_are_bounded_and_cross_no_level() {
        let points: Vec<Point> = (0..3650)
            .map(|run| Point { run, centre: if run < 1001 { 1.0 } else { 2.0 }, low: None, high: None })
            .collect();
        let places: Vec<usize> = (0..3650).collect();
        let dots = condensed(&points, &places, &[0, 1001], DOTS);
        assert!(dots.len() <= DOTS + 2, "{}", dots.len());
        assert_eq!(dots.iter().map(|dot| dot.runs).sum::<usize>(), 3650);
        assert!(dots.iter().all(|dot| dot.range.is_none_or(|(low, high)| low == high)), "one level each");
        assert_eq!(dots.iter().filter(|dot| dot.begins).count(), 1);
        let few = condensed(&points[..3], &places[..3], &[0], DOTS);
        assert_eq!(few.iter().map(|dot| dot.x).collect::<Vec<_>>(), [0.0, 1.0, 2.0]);
    }
}
