//! Shows that a gate can fail: data made worse on purpose must not pass.

use schemas::{
    metrics::{Better, Kind, Metric},
    units::{self, Unit},
};

use schemas::{columns::VerdictRow, words::Verdict};

/// The direction in which a metric gets worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Worse {
    /// Smaller values.
    Down,
    /// Larger values.
    Up,
}

impl Worse {
    /// The bad direction of a metric. A metric that is neither better nor worse counts as better when larger.
    pub fn of(better: Better) -> Self {
        if better == Better::Lower { Self::Up } else { Self::Down }
    }

    /// The value, worse by a share of itself. A 0 has no share: a count becomes 1, a ratio becomes the share, anything
    /// else stays.
    pub fn make(self, value: f64, metric: Option<&Metric>, by: f64) -> f64 {
        match (self, metric) {
            (Self::Down, _) => value * (1.0 - by),
            (Self::Up, Some(m)) if value == 0.0 && m.kind == Kind::Count && by > 0.0 => 1.0,
            (Self::Up, Some(m)) if value == 0.0 && m.unit == Unit::Ratio => by,
            // A count gets worse by at least one.
            (Self::Up, Some(m)) if m.kind == Kind::Count && by > 0.0 => (value * (1.0 + by)).max(value + 1.0),
            (Self::Up, _) => value * (1.0 + by),
        }
    }
}

/// A worsening up to this size is as good as the smallest possible one.
const LEAST: f64 = 1e-4;

/// The smallest worsening that fails, to about one part in a thousand. `fails(by)` says whether data made worse by that
/// share fail; more of it must not pass if less fails. `None`: nothing fails, down to 0 or up to a thousandfold.
pub fn least_noticed(worse: Worse, fails: impl Fn(f64) -> bool) -> Option<f64> {
    if fails(0.0) {
        return Some(0.0);
    }
    let mut high = 1.0;
    while !fails(high) {
        high *= 2.0;
        if worse == Worse::Down || high > 1024.0 {
            return None;
        }
    }
    let mut low = 0.0;
    while high > LEAST && high - low > 0.0005 * high.min(1.0) {
        let middle = f64::midpoint(low, high);
        if fails(middle) { high = middle } else { low = middle }
    }
    Some(high)
}

/// The row for data made worse by `by`: `noticed` or `unnoticed`, with the smallest worsening that is noticed.
/// `judged(by)` is the verdict over the data made worse by that share.
pub fn row(worse: Worse, by: f64, judged: impl Fn(f64) -> VerdictRow) -> VerdictRow {
    let mut row = judged(by);
    if row.n == 0 {
        // It fails without samples, not because anything got worse.
        row.verdict = Verdict::Unnoticed;
        return row;
    }
    // Statements that only warn are tested too.
    let least = least_noticed(worse, |by| judged(by).verdict.is_bad());
    let noticed = row.verdict.is_bad();
    let mut notes = vec![match least {
        Some(0.0) => "fails as it is".to_owned(),
        Some(least) if least <= LEAST => "noticed from the least on".to_owned(),
        Some(least) => format!("noticed from {} on", units::margin(least)),
        None => "no worsening is noticed".to_owned(),
    }];
    if !noticed {
        let still = match row.verdict {
            Verdict::Pass => "still passes".to_owned(),
            other => format!("is {other}"),
        };
        notes.push(format!("made {} worse, it {still}", units::margin(by)));
        notes.extend(Some(row.note).filter(|n| !n.is_empty()));
    }
    row.note = notes.join("; ");
    row.needed_iterations = None;
    row.verdict = if noticed { Verdict::Noticed } else { Verdict::Unnoticed };
    row
}

#[cfg(test)]
mod tests {
    use super::*;
    use schemas::metrics::find;

    #[test]
    fn worse_is_worse_also_from_nothing() {
        let up = |v, name| Worse::of(find(name).unwrap().better).make(v, find(name), 0.1);
        assert!((up(100.0, "throughput") - 90.0).abs() < 1e-9);
        assert!((up(100.0, "latency.p99") - 110.0).abs() < 1e-9);
        assert_eq!((up(0.0, "retransmits"), up(3.0, "retransmits")), (1.0, 4.0));
        assert!((up(0.0, "loss_ratio") - 0.1).abs() < 1e-12);
    }

    #[test]
    fn the_least_is_found() {
        let found = least_noticed(Worse::Down, |by| by >= 0.0432).unwrap();
        assert!((0.0432..0.0433).contains(&found), "{found}");
        assert_eq!(least_noticed(Worse::Down, |by| by > 1.0), None);
        let far = least_noticed(Worse::Up, |by| by >= 37.0).unwrap();
        assert!((37.0..37.1).contains(&far), "{far}");
        assert_eq!(least_noticed(Worse::Up, |_| true), Some(0.0));
        // A count that may not happen at all.
        assert!(least_noticed(Worse::Up, |by| by > 0.0).unwrap() <= LEAST);
    }
}
