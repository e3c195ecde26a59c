//! The trend of a series: its level, its noise, its changes and drifts.

use schemas::metrics::{self, Better, Metric};
use statrs::distribution::{ContinuousCDF, StudentsT};

use super::series::Series;
use crate::stats::{
    changes::{Movement, movements},
    compare, moments, series,
};

/// Fewest runs of a series that is searched for changes.
pub const FEWEST: usize = 20;

/// Level of the interval of a change.
pub const LEVEL: f64 = 0.95;

/// A change of the level, or a drift.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Index of the first point of the new level, or of the drift.
    pub at: usize,
    /// Index behind the last point of the new level, or of the drift.
    pub end: usize,
    pub is_drift: bool,
    /// Levels before and after it; of a drift, its line at both ends.
    pub was: f64,
    pub is: f64,
    /// Change over the level before, with its interval where there is one.
    pub ratio: f64,
    pub interval: Option<(f64, f64)>,
    /// Share of the orders of the runs with a change as large; `None` for a drift.
    pub p: Option<f64>,
    /// `Some(true)`: for the worse; `None`: the metric is neither better nor worse.
    pub worse: Option<bool>,
}

/// Runs of one level, or of one drift.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stretch {
    /// Index of the first point, and the one behind the last.
    pub start: usize,
    pub end: usize,
    /// The mean at both ends; of a drift, its line there.
    pub from: f64,
    pub to: f64,
}

#[derive(Clone, Debug)]
pub struct Trend {
    /// `None`: this version does not know the metric.
    pub metric: Option<&'static Metric>,
    pub findings: Vec<Finding>,
    /// All runs, in stretches of one level or drift each; also of movements that are too small for a finding.
    pub stretches: Vec<Stretch>,
    /// Mean of the present level.
    pub level: Option<f64>,
    /// Standard deviation of the values around their levels, over the present level.
    pub noise_ratio: Option<f64>,
    /// Lag-1 autocorrelation of the values around their levels, where it is so large that changes may be false.
    pub correlated: Option<f64>,
    /// Runs that are missing for a search; 0: it was searched.
    pub missing: usize,
}

/// The trend of a series. Changes below `least` (a ratio) are left out.
pub fn trend(series: &Series, least: f64) -> Trend {
    let mut values: Vec<f64> = series.points.iter().map(|point| point.centre).collect();
    // Squares of extreme values have no number: the search sees them over a power of two, which loses nothing.
    let unit = unit_of(&values);
    for value in &mut values {
        *value /= unit;
    }
    let metric = metrics::find(&series.key.metric);
    let missing = FEWEST.saturating_sub(values.len());
    let found = if missing > 0 { Vec::new() } else { movements(&values) };
    let mut bounds = vec![0];
    for movement in &found {
        match movement {
            Movement::Step(change) => bounds.push(change.at),
            Movement::Drift { start, end } => bounds.extend([*start, *end]),
        }
    }
    bounds.push(values.len());
    bounds.dedup();
    let stretches = stretches(&values, &found, &bounds);
    let around: Vec<f64> = stretches.iter().flat_map(|stretch| stretch.residuals(&values)).collect();
    let mean = |values: &[f64]| moments::mean(values).unwrap_or(f64::NAN);
    let worse = |change: f64| match metric.map_or(Better::Neither, |m| m.better) {
        Better::Higher => Some(change < 0.0),
        Better::Lower => Some(change > 0.0),
        Better::Neither => None,
    };
    let mut findings = Vec::new();
    for movement in &found {
        let (at, p) = match *movement {
            Movement::Step(change) => (change.at, Some(change.p)),
            Movement::Drift { start, .. } => (start, None),
        };
        let Some(place) = stretches.iter().position(|stretch| stretch.start == at) else { continue };
        let own = stretches[place];
        let (was, is, interval) = match place.checked_sub(1).filter(|_| p.is_some()) {
            Some(earlier) => {
                let (before, after) = (&values[stretches[earlier].start..at], &values[at..own.end]);
                let was = mean(before);
                (was, mean(after), interval(before, after, was))
            }
            None => (own.from, own.to, None),
        };
        let (is_drift, ratio, worse) = (p.is_none(), (is - was) / was.abs(), worse(is - was));
        let finding = Finding { at, end: own.end, is_drift, was, is, ratio, interval, p, worse };
        // A few extreme values move a mean whose interval then has both signs: no direction can be told.
        let is_clear = finding.interval.is_none_or(|(low, high)| low * high > 0.0);
        if finding.ratio.abs() >= least && is_clear {
            findings.push(finding);
        }
    }
    let level = match found.last() {
        Some(Movement::Drift { end, .. }) if *end == values.len() => findings.last().map(|finding| finding.is),
        _ => stretches.last().map(|last| mean(&values[last.start..])),
    };
    let noise = (around.len() > bounds.len()).then(|| {
        let squares: f64 = around.iter().map(|value| value * value).sum();
        (squares / (around.len() + 1 - bounds.len()) as f64).sqrt()
    });
    for finding in &mut findings {
        finding.was *= unit;
        finding.is *= unit;
    }
    let stretches = stretches
        .into_iter()
        .map(|stretch| Stretch { from: stretch.from * unit, to: stretch.to * unit, ..stretch })
        .collect();
    Trend {
        metric,
        findings,
        stretches,
        level: level.map(|level| level * unit),
        noise_ratio: noise.zip(level).map(|(noise, level)| noise / level.abs()).filter(|ratio| ratio.is_finite()),
        correlated: series::correlated(&around).then(|| series::lag1(&around)).flatten(),
        missing,
    }
}

/// 1, or for values whose squares are too large or too small for a number, a power of two near the largest.
fn unit_of(values: &[f64]) -> f64 {
    const PLAIN: std::ops::Range<f64> = 1e-100..1e100;
    let largest = values.iter().fold(0.0, |largest: f64, value| largest.max(value.abs()));
    if largest == 0.0 || PLAIN.contains(&largest) { 1.0 } else { largest.log2().floor().clamp(-1000.0, 1023.0).exp2() }
}

/// The levels and drifts between the bounds.
fn stretches(values: &[f64], found: &[Movement], bounds: &[usize]) -> Vec<Stretch> {
    let of = |start: usize, end: usize| {
        let part = &values[start..end];
        let is_drift =
            found.iter().any(|m| matches!(m, Movement::Drift { start: s, end: e } if (*s, *e) == (start, end)));
        let x: Vec<f64> = (0..part.len()).map(|i| i as f64).collect();
        let line = if is_drift { series::line(&x, part) } else { None };
        let mean = moments::mean(part).unwrap_or(0.0);
        let (from, to) = line.map_or((mean, mean), |l| (l.intercept, l.intercept + l.slope * (part.len() - 1) as f64));
        Stretch { start, end, from, to }
    };
    bounds.windows(2).map(|pair| of(pair[0], pair[1])).collect()
}

impl Stretch {
    /// The level at one of its points.
    pub fn at(&self, index: usize) -> f64 {
        let steps = (self.end - self.start).saturating_sub(1).max(1) as f64;
        self.from + (self.to - self.from) * (index - self.start) as f64 / steps
    }

    /// The values around the level.
    fn residuals<'a>(&'a self, values: &'a [f64]) -> impl Iterator<Item = f64> + 'a {
        (self.start..self.end).map(|index| values[index] - self.at(index))
    }
}

/// Welch's interval of the difference of two levels, over the level before.
fn interval(before: &[f64], after: &[f64], was: f64) -> Option<(f64, f64)> {
    let welch = compare::welch(before, after)?;
    let t = StudentsT::new(0.0, 1.0, welch.df).ok()?.inverse_cdf(f64::midpoint(1.0, LEVEL));
    let difference = moments::mean(after)? - moments::mean(before)?;
    let half = t * welch.standard_error;
    Some(((difference - half) / was.abs(), (difference + half) / was.abs()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::series::{Key, Reading};

    fn of(values: &[f64]) -> Trend {
        let mut reading = Reading::default();
        for (run, value) in values.iter().enumerate() {
            let index = reading.run(&format!("r{run}"), ["2026-01-01T00:00:00Z", "", "", ""]);
            let key = Key { metric: "latency.p99".into(), ..Key::default() };
            reading.add(key, "rr", index, [Some(*value), None, None]);
        }
        trend(&reading.series()[0], 0.01)
    }

    #[test]
    fn a_few_extreme_runs_are_no_direction() {
        let mut values: Vec<f64> = (0..60).map(|run| 30.0 + f64::from(run * 5 % 7) / 7.0).collect();
        values.extend([400.0, 2800.0, 9000.0]);
        // The search tells two levels apart: in few orders of these runs the extreme ones stand together.
        let trend = of(&values);
        assert_eq!((trend.stretches.len(), trend.findings), (2, Vec::new()));
        let step: Vec<f64> = values[..60].iter().copied().chain(values[..8].iter().map(|value| value * 1.1)).collect();
        let trend = of(&step);
        assert_eq!(trend.findings.len(), 1);
        assert!(trend.findings[0].interval.is_some_and(|(low, _)| low > 0.08), "{:?}", trend.findings);
    }
}
