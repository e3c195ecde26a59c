//! Changes of the level of a series: one value per run, in the order of the runs.
//!
//! A segment is tested for one change against all orders of its own values: if no change took place, every order is as
//! likely as the one that was seen (E-divisive with means: Matteson and James, "A nonparametric approach for multiple
//! change point analysis of multivariate data", 2014, section 3; used on benchmarks by Daly and others, "The use of change
//! point detection to identify software performance regressions in a continuous integration system", 2020). No shape of the
//! noise is assumed; independence of the runs is. The statistic of a split is the reduction of the sum of squares
//! (n ÷ (l (n − l))) (S_l − l x̄)², and that of a segment its maximum over the splits of the segment and of half, a quarter …
//! of it, overlapping by half (Kovács and others, "Seeded binary segmentation", 2023): so a short rise and fall is found as
//! well as a step. What is significant is split, and both parts are tested in turn.

use chacha20::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

/// Fewest values of a segment between two changes: fewer cannot be told from outliers.
pub const LEAST: usize = 3;

/// Orders that are tried beside the one that was seen.
const ORDERS: usize = 999;

/// A change counts if at most this many of these have one as large: six of a thousand with the one that was seen.
/// `docs/reference/statistics.md` has the simulation that this value comes from.
const AS_LARGE: usize = 5;

/// Shortest of the overlapping parts of a segment.
const SHORTEST_PART: usize = 24;

/// Longest stretch that is tested at once. Longer series are tested stretch by stretch, so that the time grows with their
/// length only, and so that one change in a hundred is not judged by the noise of ten thousand runs.
const STRETCH: usize = 400;

/// A change of the level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// Index of the first value of the new level.
    pub at: usize,
    /// Share of the orders of its segment with a change as large.
    pub p: f64,
}

/// The changes of a series, in its order. The same values give the same answer.
pub fn changes(values: &[f64]) -> Vec<Change> {
    let mut rng = ChaCha8Rng::seed_from_u64(super::bootstrap::SEED);
    let mut found: Vec<Change> = Vec::new();
    let mut start = 0;
    loop {
        let end = values.len().min(start + STRETCH);
        let mut of_stretch = Vec::new();
        split(&values[start..end], start, &mut rng, &mut of_stretch);
        let last = of_stretch.last().map(|change| change.at);
        found.extend(of_stretch);
        if end == values.len() {
            break;
        }
        // The next stretch begins in the present level, and overlaps so that a change at this one's end has values around it.
        start = (end - STRETCH / 2).max(last.unwrap_or(0));
    }
    place(values, &mut found);
    found
}

/// Adds the changes of a segment that begins at index `offset` of the series.
fn split(values: &[f64], offset: usize, rng: &mut ChaCha8Rng, found: &mut Vec<Change>) {
    let Some(change) = change(values, rng) else { return };
    split(&values[..change.at], offset, rng, found);
    found.push(Change { at: offset + change.at, ..change });
    split(&values[change.at..], offset + change.at, rng, found);
}

/// The largest change of a segment, if it is significant.
fn change(values: &[f64], rng: &mut ChaCha8Rng) -> Option<Change> {
    let n = values.len();
    if n < 2 * LEAST {
        return None;
    }
    let mean = super::moments::mean(values)?;
    let mut order: Vec<f64> = values.iter().map(|value| value - mean).collect();
    let parts = parts(n);
    let mut sums = vec![0.0; n + 1];
    let (seen, at) = largest(&order, &parts, &mut sums)?;
    // Rounding leaves something where nothing varies.
    if seen <= f64::EPSILON * mean * mean {
        return None;
    }
    let mut as_large = 0;
    for _ in 0..ORDERS {
        for i in (1..n).rev() {
            order.swap(i, rng.random_range(0..=i));
        }
        as_large += usize::from(largest(&order, &parts, &mut sums).is_some_and(|(size, _)| size >= seen));
        if as_large > AS_LARGE {
            return None;
        }
    }
    Some(Change { at, p: (as_large + 1) as f64 / (ORDERS + 1) as f64 })
}

/// The parts of a segment of `n` values that are searched, as ranges: the whole, then halves, quarters …, each layer
/// overlapping by half.
fn parts(n: usize) -> Vec<(usize, usize)> {
    let mut parts = vec![(0, n)];
    let mut count = 3;
    let mut length = n.div_ceil(2);
    while length >= SHORTEST_PART {
        parts.extend((0..count).map(|i| {
            let start = i * (n - length) / (count - 1);
            (start, start + length)
        }));
        count = 2 * count + 1;
        length = length.div_ceil(2);
    }
    parts
}

/// The largest reduction of the sum of squares by a split of one of the parts, and the split.
fn largest(values: &[f64], parts: &[(usize, usize)], sums: &mut [f64]) -> Option<(f64, usize)> {
    for (i, value) in values.iter().enumerate() {
        sums[i + 1] = sums[i] + value;
    }
    parts.iter().filter_map(|&(start, end)| best_split(sums, start, end)).max_by(|a, b| a.0.total_cmp(&b.0))
}

/// The split of `start..end` that reduces the sum of squares most, and by how much. `sums`: of all values before an index.
fn best_split(sums: &[f64], start: usize, end: usize) -> Option<(f64, usize)> {
    let n = (end - start) as f64;
    let mean = (sums[end] - sums[start]) / n;
    let mut best: Option<(f64, usize)> = None;
    for at in start + LEAST..=end.checked_sub(LEAST)? {
        let left = (at - start) as f64;
        let excess = sums[at] - sums[start] - left * mean;
        let reduction = excess * excess * n / (left * (n - left));
        if best.is_none_or(|(most, _)| reduction > most) {
            best = Some((reduction, at));
        }
    }
    best
}

/// Moves each change to the best split between its neighbours: the first ones were found before the others were known.
fn place(values: &[f64], found: &mut [Change]) {
    let mut sums = vec![0.0; values.len() + 1];
    let level = super::moments::mean(values).unwrap_or(0.0);
    for (i, value) in values.iter().enumerate() {
        sums[i + 1] = sums[i] + (value - level);
    }
    for i in 0..found.len() {
        let start = if i == 0 { 0 } else { found[i - 1].at };
        let end = found.get(i + 1).map_or(values.len(), |next| next.at);
        if let Some((_, at)) = best_split(&sums, start, end) {
            found[i].at = at;
        }
    }
}

/// A stretch in which the level moves: by one step or several, or steadily.
#[derive(Clone, Debug, PartialEq)]
pub enum Movement {
    Step(Change),
    /// The level drifts from index `start` on, up to and without index `end`: a straight line explains the values better than
    /// the steps in its place.
    Drift {
        start: usize,
        end: usize,
    },
}

/// The changes of a series, those of a drift as one, in its order; no two of them share a value. The same values give the same answer.
pub fn movements(values: &[f64]) -> Vec<Movement> {
    let changes = changes(values);
    let mut bounds: Vec<usize> = vec![0];
    bounds.extend(changes.iter().map(|change| change.at));
    bounds.push(values.len());
    let level = |i: usize| super::moments::mean(&values[bounds[i]..bounds[i + 1]]).unwrap_or(0.0);
    let rises: Vec<bool> = (0..changes.len()).map(|i| level(i + 1) > level(i)).collect();
    let mut found = Vec::new();
    // Bound behind the last drift: the level at which a rise turns into a fall belongs to the first of the two.
    let (mut first, mut taken) = (0, 0);
    while first < changes.len() {
        let mut last = first;
        while last + 1 < changes.len() && rises[last + 1] == rises[first] {
            last += 1;
        }
        let inner = &bounds[first.max(taken)..=last + 2];
        if inner.len() > 2 && is_line(values, inner) {
            found.push(Movement::Drift { start: inner[0], end: inner[inner.len() - 1] });
            taken = last + 2;
        } else {
            found.extend(changes[first..=last].iter().map(|change| Movement::Step(*change)));
        }
        first = last + 1;
    }
    found
}

/// Whether a line explains the values between the first and the last bound better than a level between each two, by the
/// Bayesian information criterion n ln(RSS ÷ n) + k ln n (Schwarz 1978). A line has k = 2, and m levels have k = 2m − 1.
fn is_line(values: &[f64], bounds: &[usize]) -> bool {
    let (start, end) = (bounds[0], bounds[bounds.len() - 1]);
    let part = &values[start..end];
    let n = part.len() as f64;
    let squares = |part: &[f64]| {
        let mean = super::moments::mean(part).unwrap_or(0.0);
        part.iter().map(|value| (value - mean).powi(2)).sum::<f64>()
    };
    let of_levels: f64 = bounds.windows(2).map(|pair| squares(&values[pair[0]..pair[1]])).sum();
    let x: Vec<f64> = (0..part.len()).map(|i| i as f64).collect();
    let Some(line) = super::series::line(&x, part) else { return false };
    let of_line = squares(part) * (1.0 - line.r2.unwrap_or(0.0));
    let criterion = |rss: f64, k: f64| n * (rss.max(f64::MIN_POSITIVE) / n).ln() + k * n.ln();
    criterion(of_line, 2.0) < criterion(of_levels, (2 * bounds.len() - 3) as f64)
}

#[cfg(test)]
mod tests;
