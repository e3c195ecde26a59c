//! Compares one metric of one case on two sides: size of the change, significance, and verdict.

use schemars::JsonSchema;
use schemas::{metrics::Better, units, words::Verdict};
use serde::{Deserialize, Serialize};

use crate::stats::{bootstrap, compare as ranks, confidence, moments, quantiles, series};

/// Test of significance.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "RegressionTest")]
pub enum Test {
    /// Mann–Whitney's rank test, and the Hodges–Lehmann shift: no assumption about the distribution
    #[default]
    MannWhitney,
    /// Welch's t test of the means
    Welch,
    /// BCa bootstrap interval of the ratio of medians, from eight iterations a side on
    Bootstrap,
}

/// What counts as a change.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    pub better: Better,
    pub test: Test,
    /// The largest significant p, after the correction for the number of comparisons.
    pub alpha: f64,
    /// The smallest change that counts, over the baseline's centre.
    pub min_ratio: f64,
    /// The smallest change that counts, in the metric's unit; 0: any.
    pub min_difference: f64,
    pub seed: u64,
}

/// One metric of one case, two sides.
#[derive(Debug, Clone)]
pub struct Comparison {
    pub rule: Rule,
    /// The baseline's centre: the median, or the mean with Welch's test.
    pub base: Option<f64>,
    /// The new side's centre.
    pub new: Option<f64>,
    /// Number of values of the baseline and of the new side.
    pub n: (usize, usize),
    /// The change over the baseline's centre.
    pub change: Option<f64>,
    /// Its interval at level 1 − α.
    pub interval: Option<(f64, f64)>,
    /// As tested; [`decide`] corrects it.
    pub p: Option<f64>,
    /// Inconclusive until [`decide`].
    pub verdict: Verdict,
    /// Reasons and doubts.
    pub notes: Vec<String>,
    /// Iterations per side that would decide.
    pub needed: Option<u64>,
}

impl Comparison {
    /// A case that only one side has.
    pub fn missing(rule: Rule, n: (usize, usize), note: impl Into<String>) -> Self {
        Self {
            rule,
            base: None,
            new: None,
            n,
            change: None,
            interval: None,
            p: None,
            verdict: Verdict::Missing,
            notes: vec![note.into()],
            needed: None,
        }
    }

    /// Compares two samples; the values of each are in the order of time.
    pub fn of(a: &[f64], b: &[f64], rule: Rule) -> Self {
        let centre = |values: &[f64]| {
            let mut sorted = values.to_vec();
            quantiles::sort(&mut sorted);
            if rule.test == Test::Welch { moments::mean(values) } else { quantiles::median(&sorted) }
        };
        let (ca, cb) = (centre(a), centre(b));
        let level = 1.0 - rule.alpha;
        let mut comparison = Self {
            base: ca,
            new: cb,
            verdict: Verdict::Inconclusive,
            notes: [doubts(a, "baseline"), doubts(b, "new")].concat(),
            ..Self::missing(rule, (a.len(), b.len()), "")
        };
        match (ca, cb) {
            (Some(ca), Some(cb)) if ca != 0.0 => {
                let ratio = |v: f64| v / ca.abs();
                comparison.change = Some(ratio(cb - ca));
                match rule.test {
                    Test::MannWhitney => {
                        comparison.p = ranks::mann_whitney(a, b).map(|t| t.p);
                        let shift = ranks::shift(a, b, level);
                        comparison.change = shift.map(|s| ratio(s.centre)).or(comparison.change);
                        comparison.interval = shift.map(|s| (ratio(s.low), ratio(s.high)));
                    }
                    Test::Welch => {
                        let welch = ranks::welch(a, b);
                        comparison.p = welch.map(|w| w.p);
                        comparison.interval = welch.and_then(|w| {
                            let half = confidence::t_quantile(1.0 - rule.alpha / 2.0, w.df)? * w.standard_error;
                            Some((ratio(w.difference - half), ratio(w.difference + half)))
                        });
                    }
                    Test::Bootstrap if a.len().min(b.len()) >= bootstrap::FEWEST => {
                        let change = |a: &[f64], b: &[f64]| centre(a).zip(centre(b)).map(|(a, b)| (b - a) / a.abs());
                        let resampled = bootstrap::bca_two(a, b, level, rule.seed, change);
                        comparison.interval = resampled.map(|(i, _)| (i.low, i.high));
                        comparison.p = resampled.map(|(_, p)| p);
                    }
                    Test::Bootstrap => {}
                }
            }
            (Some(_), Some(cb)) => {
                // 0 on both sides is no change; a change from 0 has no ratio.
                comparison.change = (cb == 0.0).then_some(0.0);
                comparison.interval = (cb == 0.0).then_some((0.0, 0.0));
                comparison.p = ranks::mann_whitney(a, b).map(|t| t.p);
                if cb != 0.0 && rule.min_difference == 0.0 {
                    let note =
                        "the baseline is 0, and there is no ratio to it: say which difference counts (min_effect)";
                    comparison.notes.insert(0, note.to_owned());
                }
            }
            (None, _) => comparison.notes.insert(0, "the baseline has no sample".to_owned()),
            (_, None) => comparison.notes.insert(0, "the new side has no sample".to_owned()),
        }
        comparison
    }

    /// Decides it as if it were the only significant one of so many comparisons.
    pub fn decide_among(&mut self, comparisons: usize) {
        self.p = self.p.map(|p| (p * comparisons.max(1) as f64).min(1.0));
        self.conclude(comparisons);
    }

    /// Sets the verdict from p, corrected for `comparisons` of them.
    fn conclude(&mut self, comparisons: usize) {
        let (Some(base), Some(new)) = (self.base, self.new) else { return };
        let Rule { better, alpha, min_ratio, min_difference, .. } = self.rule;
        let significant = self.p.is_some_and(|p| p <= alpha);
        let (difference, large) = match self.change {
            Some(change) => (change, change.abs() >= min_ratio && change.abs() * base.abs() >= min_difference),
            None => (new - base, min_difference > 0.0 && (new - base).abs() >= min_difference),
        };
        if significant && large {
            self.verdict = match better {
                Better::Higher if difference < 0.0 => Verdict::Regression,
                Better::Lower if difference > 0.0 => Verdict::Regression,
                Better::Neither => Verdict::Changed,
                Better::Higher | Better::Lower => Verdict::Improvement,
            };
            return;
        }
        // A change must pass both bounds to count: the interval has to stay below the larger one.
        let bound = if base == 0.0 { min_ratio } else { min_ratio.max(min_difference / base.abs()) };
        let within = self.interval.is_some_and(|(low, high)| low > -bound && high < bound);
        let measurable = self.change.is_some() || min_difference > 0.0;
        if within || significant && measurable {
            self.verdict = Verdict::Same;
            return;
        }
        self.verdict = Verdict::Inconclusive;
        let shortest = self.n.0.min(self.n.1);
        let needed = match self.rule.test {
            // The fewest values per side that can be significant with so many comparisons.
            Test::MannWhitney => ranks::needed_per_side(alpha / comparisons.max(1) as f64),
            Test::Bootstrap => Some(bootstrap::FEWEST),
            Test::Welch => Some(2),
        };
        if let Some(needed) = needed.filter(|needed| *needed > shortest) {
            self.needed = Some(needed as u64);
            let of = if comparisons > 1 { format!(" with {comparisons} comparisons") } else { String::new() };
            self.notes.insert(0, format!("need {needed} iterations per side for α = {alpha}{of}"));
        } else if self.change.is_some() {
            self.notes.insert(0, "the interval leaves room for a change that counts".to_owned());
        }
    }

    /// `+0.4 % (−0.6 … +1.5)`; empty without a ratio.
    pub fn change_text(&self) -> String {
        change_text(self.change, self.interval)
    }
}

/// `+0.4 % (−0.6 … +1.5)`, from ratios.
pub fn change_text(change: Option<f64>, interval: Option<(f64, f64)>) -> String {
    let signed = |v: f64| {
        let text = units::margin(v.abs());
        let digits = text.trim_end_matches(" %").to_owned();
        if v < 0.0 { format!("−{digits}") } else { format!("+{digits}") }
    };
    match (change, interval) {
        (None, _) => String::new(),
        (Some(change), None) => format!("{} %", signed(change)),
        (Some(change), Some((low, high))) => format!("{} % ({} … {})", signed(change), signed(low), signed(high)),
    }
}

/// Decides several comparisons together. Corrects p by Holm's step-down method unless `corrected` is false. A
/// regression or improvement must be large enough **and** significant.
pub fn decide<'a>(comparisons: impl IntoIterator<Item = &'a mut Comparison>, corrected: bool) {
    let mut comparisons: Vec<&mut Comparison> =
        comparisons.into_iter().filter(|c| c.verdict != Verdict::Missing).collect();
    let p: Vec<Option<f64>> = comparisons.iter().map(|c| c.p).collect();
    let tested = if corrected { p.iter().flatten().count() } else { 1 };
    let adjusted = if corrected { ranks::holm(&p) } else { p };
    for (comparison, p) in comparisons.iter_mut().zip(adjusted) {
        comparison.p = p;
        comparison.conclude(tested);
    }
}

/// Warnings about one side that weaken the comparison.
fn doubts(values: &[f64], side: &str) -> Vec<String> {
    let mut doubts = Vec::new();
    if series::correlated(values) {
        doubts.push(format!("{side}: iterations are serially correlated, p is too small"));
    }
    if let Some(drift) = series::drifting(values) {
        doubts.push(format!("{side}: drifts by {}", units::margin(drift.ratio)));
    }
    let severe = quantiles::severe_outliers(values);
    if severe > 0 {
        doubts.push(format!("{side}: {severe} severe outlier{}", if severe == 1 { "" } else { "s" }));
    }
    doubts
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: Rule = Rule {
        better: Better::Higher,
        test: Test::MannWhitney,
        alpha: 0.01,
        min_ratio: 0.03,
        min_difference: 0.0,
        seed: 1,
    };

    fn compared(base: &[f64], new: &[f64], rule: Rule) -> Comparison {
        let mut c = Comparison::of(base, new, rule);
        decide([&mut c], true);
        c
    }

    /// Ten values around `mean` that are all different.
    fn around(mean: f64) -> Vec<f64> {
        [0.3, -0.8, 0.9, -0.1, -0.5, 0.6, 0.1, -0.3, 0.8, -0.9].iter().map(|x| mean * (1.0 + x / 100.0)).collect()
    }

    #[test]
    fn every_finding() {
        for test in [Test::MannWhitney, Test::Welch, Test::Bootstrap] {
            let rule = Rule { test, ..RULE };
            let finding = |new: f64| compared(&around(100.0), &around(new), rule).verdict;
            assert_eq!(finding(95.0), Verdict::Regression, "{test:?}");
            assert_eq!(finding(105.0), Verdict::Improvement, "{test:?}");
            assert_eq!(finding(98.5), Verdict::Same, "{test:?}");
            assert_eq!(finding(100.1), Verdict::Same, "{test:?}");
            let lower = Rule { better: Better::Lower, ..rule };
            assert_eq!(compared(&around(100.0), &around(105.0), lower).verdict, Verdict::Regression, "{test:?}");
        }
    }

    #[test]
    fn a_change_must_pass_both_bounds() {
        let rule = Rule { min_difference: 10.0, ..RULE };
        assert_eq!(compared(&around(100.0), &around(95.0), rule).verdict, Verdict::Same);
        assert_eq!(compared(&around(1000.0), &around(950.0), rule).verdict, Verdict::Regression);
    }

    #[test]
    fn few_iterations_are_inconclusive_and_say_what_it_takes() {
        let c = compared(&[100.0, 101.0, 102.0], &[80.0, 81.0, 82.0], RULE);
        assert_eq!((c.verdict, c.needed), (Verdict::Inconclusive, Some(5)));
        assert_eq!(c.notes[0], "need 5 iterations per side for α = 0.01");
        let c = compared(&around(100.0)[..6], &around(80.0)[..6], Rule { test: Test::Bootstrap, ..RULE });
        assert_eq!((c.verdict, c.needed), (Verdict::Inconclusive, Some(8)));
    }

    #[test]
    fn from_nothing_to_something_takes_a_difference_that_counts() {
        let lower = Rule { better: Better::Lower, ..RULE };
        let some = [3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
        let c = compared(&[0.0; 6], &some, lower);
        assert_eq!((c.verdict, c.change), (Verdict::Inconclusive, None));
        assert!(c.notes[0].contains("the baseline is 0"), "{:?}", c.notes);
        let counted = Rule { min_difference: 2.0, ..lower };
        assert_eq!(compared(&[0.0; 6], &some, counted).verdict, Verdict::Regression);
        assert_eq!(compared(&[0.0; 5], &[0.0; 5], lower).verdict, Verdict::Same);
    }

    #[test]
    fn a_side_without_values() {
        let c = compared(&[], &around(1.0), RULE);
        assert_eq!((c.verdict, c.change), (Verdict::Inconclusive, None));
        assert_eq!(c.notes[0], "the baseline has no sample");
    }

    #[test]
    fn several_comparisons_pay_for_each_other() {
        // 5 against 5 reach p = 0.008 at best: alone that is significant, twice it is not.
        let pair = || Comparison::of(&around(100.0)[..5], &around(90.0)[..5], RULE);
        let mut two = [pair(), pair()];
        decide(&mut two, true);
        assert!(two.iter().all(|c| c.verdict == Verdict::Inconclusive && c.needed == Some(6)), "{two:?}");
        let mut alone = [pair(), pair()];
        decide(&mut alone, false);
        assert!(alone.iter().all(|c| c.verdict == Verdict::Regression));
    }
}
