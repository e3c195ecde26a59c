//! One comparison: how large, how sure, and what follows.

use schemas::metrics::{Better, Metric};

use super::doubts;
use crate::filters::samples::Case;
use crate::stats::{bootstrap, compare, confidence, moments, quantiles};

/// How significance is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Test {
    /// Mann–Whitney's rank test, and the Hodges–Lehmann shift: no assumption about the distribution
    MannWhitney,
    /// Welch's t test of the means
    Welch,
    /// BCa bootstrap interval of the ratio of medians; significant where it does not contain 0
    Bootstrap,
}

/// What a comparison found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finding {
    Regression,
    Improvement,
    /// Large and significant in a metric that is neither better nor worse.
    Changed,
    Same,
    Inconclusive,
    Missing,
}

impl Finding {
    pub fn name(self) -> &'static str {
        match self {
            Self::Regression => "regression",
            Self::Improvement => "improvement",
            Self::Changed => "changed",
            Self::Same => "same",
            Self::Inconclusive => "inconclusive",
            Self::Missing => "missing",
        }
    }
}

/// One case, one metric, two sides.
#[derive(Debug, Clone)]
pub struct Comparison {
    pub case: Case,
    pub label: String,
    pub column: String,
    pub metric: Option<&'static Metric>,
    /// Centres: medians, or means with Welch's test.
    pub base: Option<f64>,
    pub new: Option<f64>,
    pub n: (usize, usize),
    /// (new − base) ÷ base, and its interval at level 1 − α.
    pub change: Option<f64>,
    pub interval: Option<(f64, f64)>,
    pub level: f64,
    /// As tested; later as corrected.
    pub p: Option<f64>,
    /// Whether the test found a difference where it gives no p (bootstrap).
    significant: Option<bool>,
    pub finding: Finding,
    pub notes: Vec<String>,
    /// Iterations a side that would decide.
    pub needed: Option<u64>,
}

impl Comparison {
    /// A case that only one side has.
    pub fn missing(
        case: &Case,
        m: usize,
        column: &str,
        metric: Option<&'static Metric>,
        label: String,
        note: &str,
    ) -> Self {
        Self {
            case: case.clone(),
            label,
            column: column.to_owned(),
            metric,
            base: None,
            new: None,
            n: (case.values[m].len(), 0),
            change: None,
            interval: None,
            level: 0.0,
            p: None,
            significant: None,
            finding: Finding::Missing,
            notes: vec![note.to_owned()],
            needed: None,
        }
    }

    /// The verdict, once p has been corrected for `comparisons` of them.
    pub fn decide(&mut self, alpha: f64, min_effect: f64, comparisons: usize) {
        let Some(change) = self.change.filter(|_| self.finding != Finding::Missing) else { return };
        let significant = self.significant.unwrap_or_else(|| self.p.is_some_and(|p| p <= alpha));
        let large = change.abs() >= min_effect;
        let worse = match self.metric.map(|m| m.better) {
            Some(Better::Higher) => Some(change < 0.0),
            Some(Better::Lower) => Some(change > 0.0),
            _ => None,
        };
        if significant && large {
            self.finding = match worse {
                Some(true) => Finding::Regression,
                Some(false) => Finding::Improvement,
                None => Finding::Changed,
            };
            return;
        }
        let within = self.interval.is_some_and(|(low, high)| low > -min_effect && high < min_effect);
        if within || significant {
            self.finding = Finding::Same;
            return;
        }
        self.finding = Finding::Inconclusive;
        let Some(shortest) = self.n.0.min(self.n.1).try_into().ok().filter(|_| self.significant.is_none()) else {
            return;
        };
        // Could this many values a side ever have been significant, with so many comparisons?
        let share = alpha / comparisons.max(1) as f64;
        if let Some(needed) = compare::needed_per_side(share).filter(|needed| (*needed as u64) > shortest) {
            self.needed = Some(needed as u64);
            let of = if comparisons > 1 { format!(" with {comparisons} comparisons") } else { String::new() };
            self.notes.insert(0, format!("need {needed} iterations per side for α = {alpha}{of}"));
        } else {
            self.notes.insert(0, "the interval leaves room for a change that counts".to_owned());
        }
    }
}

/// Compares one metric of one case.
#[expect(clippy::too_many_arguments, reason = "one call site, and a struct for it would only repeat these names")]
pub fn compare(
    base: &Case,
    new: &Case,
    m: usize,
    column: &str,
    metric: Option<&'static Metric>,
    label: String,
    test: Test,
    alpha: f64,
    seed: u64,
) -> Comparison {
    let (a, b) = (&base.values[m], &new.values[m]);
    let centre = |values: &[f64]| {
        let mut sorted = values.to_vec();
        quantiles::sort(&mut sorted);
        if test == Test::Welch { moments::mean(values) } else { quantiles::median(&sorted) }
    };
    let (ca, cb) = (centre(a), centre(b));
    let level = 1.0 - alpha;
    let mut notes = [doubts(base, m, "baseline"), doubts(new, m, "new")].concat();
    let mut comparison = Comparison {
        base: ca,
        new: cb,
        n: (a.len(), b.len()),
        level,
        finding: Finding::Inconclusive,
        ..Comparison::missing(base, m, column, metric, label, "")
    };
    match (ca, cb) {
        (Some(ca), Some(cb)) if ca != 0.0 => {
            let ratio = |v: f64| v / ca.abs();
            comparison.change = Some(ratio(cb - ca));
            match test {
                Test::MannWhitney => {
                    comparison.p = compare::mann_whitney(a, b).map(|t| t.p);
                    let shift = compare::shift(a, b, level);
                    comparison.change = shift.map(|s| ratio(s.centre)).or(comparison.change);
                    comparison.interval = shift.map(|s| (ratio(s.low), ratio(s.high)));
                }
                Test::Welch => {
                    let welch = compare::welch(a, b);
                    comparison.p = welch.map(|w| w.p);
                    comparison.interval = welch.and_then(|w| {
                        let half = confidence::t_quantile(1.0 - alpha / 2.0, w.df)? * w.standard_error;
                        Some((ratio(w.difference - half), ratio(w.difference + half)))
                    });
                }
                Test::Bootstrap => {
                    let statistic = |a: &[f64], b: &[f64]| centre(a).zip(centre(b)).map(|(a, b)| (b - a) / a.abs());
                    let interval = bootstrap::bca_two(a, b, level, seed, statistic);
                    comparison.interval = interval.map(|i| (i.low, i.high));
                    comparison.significant = Some(interval.is_some_and(|i| i.low > 0.0 || i.high < 0.0));
                }
            }
        }
        (Some(_), Some(cb)) => {
            notes.insert(0, "the baseline is 0: there is no ratio to it".to_owned());
            // Nothing on both sides is no change.
            comparison.change = (cb == 0.0).then_some(0.0);
            comparison.interval = (cb == 0.0).then_some((0.0, 0.0));
        }
        (None, _) => notes.insert(0, "the baseline has no sample".to_owned()),
        (_, None) => notes.insert(0, "the new side has no sample".to_owned()),
    }
    comparison.notes = notes;
    comparison
}

#[cfg(test)]
mod tests {
    use super::*;
    use schemas::metrics;

    fn case(values: &[f64]) -> Case {
        Case { values: vec![values.to_vec()], ..Case::default() }
    }

    fn compared(base: &[f64], new: &[f64], test: Test) -> Comparison {
        let column = "throughput_bits_per_s";
        let mut c = compare(&case(base), &case(new), 0, column, metrics::find(column), "a".into(), test, 0.01, 1);
        c.decide(0.01, 0.03, 1);
        c
    }

    /// Ten values around `mean` that are all different.
    fn around(mean: f64) -> Vec<f64> {
        [0.3, -0.8, 0.9, -0.1, -0.5, 0.6, 0.1, -0.3, 0.8, -0.9].iter().map(|x| mean * (1.0 + x / 100.0)).collect()
    }

    #[test]
    fn every_finding() {
        for test in [Test::MannWhitney, Test::Welch, Test::Bootstrap] {
            let finding = |new: f64| compared(&around(100.0), &around(new), test).finding;
            assert_eq!(finding(95.0), Finding::Regression, "{test:?}");
            assert_eq!(finding(105.0), Finding::Improvement, "{test:?}");
            assert_eq!(finding(98.5), Finding::Same, "{test:?}");
            assert_eq!(finding(100.1), Finding::Same, "{test:?}");
        }
    }

    #[test]
    fn few_iterations_are_inconclusive_and_say_what_it_takes() {
        let c = compared(&[100.0, 101.0, 102.0], &[80.0, 81.0, 82.0], Test::MannWhitney);
        assert_eq!((c.finding, c.needed), (Finding::Inconclusive, Some(5)));
        assert_eq!(c.notes[0], "need 5 iterations per side for α = 0.01");
    }

    #[test]
    fn a_side_without_values() {
        let c = compared(&[], &around(1.0), Test::MannWhitney);
        assert_eq!((c.finding, c.change), (Finding::Inconclusive, None));
        assert_eq!(c.notes[0], "the baseline has no sample");
        assert_eq!(compared(&[0.0; 5], &[0.0; 5], Test::MannWhitney).finding, Finding::Same);
    }
}
