//! Compares one metric of one case on two sides: size of the change, significance, and verdict.

use schemars::JsonSchema;
use schemas::{
    metrics::{Better, Range},
    units,
    words::Verdict,
};
use serde::{Deserialize, Serialize};

use crate::stats::{bootstrap, compare as two_sample, confidence, moments, quantiles, ranks, series};

/// Test of significance.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "RegressionTest")]
pub enum Test {
    /// Rank test in which an outlier counts little: round by round where both sides were measured in turns
    #[default]
    Rank,
    /// Mann–Whitney's rank test, and the Hodges–Lehmann shift
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
    /// The range of the metric: no interval promises values outside it.
    pub range: Range,
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
    /// As tested, before the correction.
    pub p_alone: Option<f64>,
    /// Number of rounds in which both sides were measured in turns, if that was used.
    pub rounds: Option<usize>,
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
            p_alone: None,
            rounds: None,
            verdict: Verdict::Missing,
            notes: vec![note.into()],
            needed: None,
        }
    }

    /// Compares two samples; the values of each are in the order of time.
    pub fn of(a: &[f64], b: &[f64], rule: Rule) -> Self {
        let doubts = [doubts(a, "baseline", true), doubts(b, "new", true)].concat();
        Self::tested(a, b, rule, &ranks::Sides::apart(a, b), doubts)
    }

    /// Compares two sides of one run that were measured in turns, as one of so many `comparisons`: the i-th values of both
    /// are of the same round. Only [`Test::Rank`] uses the rounds.
    pub fn in_turns(rounds: &[(f64, f64)], rule: Rule, comparisons: usize) -> Self {
        let (a, b): (Vec<f64>, Vec<f64>) = rounds.iter().copied().unzip();
        let alpha = rule.alpha / comparisons.max(1) as f64;
        let sides = ranks::Sides::in_turns(&a, &b, alpha).filter(|s| rule.test == Test::Rank && s.blocks() > 1);
        let Some(sides) = sides else { return Self::of(&a, &b, rule) };
        let differences: Vec<f64> = rounds.iter().map(|(a, b)| b - a).collect();
        let mut doubts = [doubts(&a, "baseline", false), doubts(&b, "new", false)].concat();
        if series::correlated(&differences) {
            doubts.push("the differences are serially correlated, p is too small".to_owned());
        }
        Self { rounds: Some(rounds.len()), ..Self::tested(&a, &b, rule, &sides, doubts) }
    }

    fn tested(a: &[f64], b: &[f64], rule: Rule, sides: &ranks::Sides<'_>, doubts: Vec<String>) -> Self {
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
            notes: doubts,
            ..Self::missing(rule, (a.len(), b.len()), "")
        };
        match (ca, cb) {
            (Some(ca), Some(cb)) if ca != 0.0 => {
                // The new side stays within the metric's range.
                let ratio = |v: f64| (rule.range.clamp(ca + v) - ca) / ca.abs();
                comparison.change = Some(ratio(cb - ca));
                match rule.test {
                    Test::Rank | Test::MannWhitney => {
                        let (p, shift) = match rule.test {
                            Test::Rank => (sides.p(), sides.shift(level)),
                            _ => (two_sample::mann_whitney(a, b).map(|t| t.p), two_sample::shift(a, b, level)),
                        };
                        comparison.p = p;
                        comparison.change = shift.map(|s| ratio(s.centre)).or(comparison.change);
                        comparison.interval = shift.map(|s| (ratio(s.low), ratio(s.high)));
                    }
                    Test::Welch => {
                        let welch = two_sample::welch(a, b);
                        comparison.p = welch.map(|w| w.p);
                        comparison.interval = welch.and_then(|w| {
                            let half = confidence::t_quantile(1.0 - rule.alpha / 2.0, w.df)? * w.standard_error;
                            Some((ratio(w.difference - half), ratio(w.difference + half)))
                        });
                    }
                    Test::Bootstrap if a.len().min(b.len()) >= bootstrap::FEWEST => {
                        let change = |a: &[f64], b: &[f64]| centre(a).zip(centre(b)).map(|(a, b)| (b - a) / a.abs());
                        let resampled = bootstrap::bca_two(a, b, level, rule.seed, change);
                        let within = |v: f64| ratio(v * ca.abs());
                        comparison.interval = resampled.map(|(i, _)| (within(i.low), within(i.high)));
                        comparison.p = resampled.map(|(_, p)| p);
                    }
                    Test::Bootstrap => {}
                }
            }
            (Some(_), Some(cb)) => {
                // 0 on both sides is no change; a change from 0 has no ratio.
                comparison.change = (cb == 0.0).then_some(0.0);
                comparison.interval = (cb == 0.0).then_some((0.0, 0.0));
                comparison.p = sides.p();
                if cb != 0.0 && rule.min_difference == 0.0 {
                    let note =
                        "the baseline is 0, and there is no ratio to it: say which difference counts (min_effect)";
                    comparison.notes.insert(0, note.to_owned());
                }
            }
            (None, _) => comparison.notes.insert(0, "the baseline has no sample".to_owned()),
            (_, None) => comparison.notes.insert(0, "the new side has no sample".to_owned()),
        }
        comparison.agree();
        comparison.p_alone = comparison.p;
        comparison
    }

    /// Makes interval and p agree where ties, or a normal approximation, keep them apart: an interval of a change that is
    /// not significant reaches 0.
    fn agree(&mut self) {
        if let (Some(p), Some((low, high))) = (self.p, self.interval)
            && p > self.rule.alpha
        {
            self.interval = Some((low.min(0.0), high.max(0.0)));
        }
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
        let significant = self.p.is_some_and(|p| p <= alpha) && self.interval.is_none_or(excludes_no_change);
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
        let small = significant && self.change.is_none() && min_difference > 0.0;
        if within || small {
            self.verdict = Verdict::Same;
            return;
        }
        self.verdict = Verdict::Inconclusive;
        let shortest = self.n.0.min(self.n.1);
        let needed = match self.rule.test {
            // The fewest values per side that can be significant with so many comparisons.
            Test::Rank | Test::MannWhitney => two_sample::needed_per_side(alpha / comparisons.max(1) as f64),
            Test::Bootstrap => Some(bootstrap::FEWEST),
            Test::Welch => Some(2),
        };
        self.needed = needed.filter(|needed| *needed > shortest).map(|needed| needed as u64);
        if let Some(reason) = self.undecided(comparisons, bound) {
            self.notes.insert(0, reason);
        }
    }

    /// Why an inconclusive comparison is one. It agrees with interval and p. `None`: a note says it already.
    fn undecided(&self, comparisons: usize, bound: f64) -> Option<String> {
        let alpha = self.rule.alpha;
        let of = if comparisons > 1 { format!(" with {comparisons} comparisons") } else { String::new() };
        if let Some(needed) = self.needed {
            return Some(format!("need {needed} iterations per side for α = {alpha}{of}"));
        }
        self.change?;
        let counts = units::margin(bound);
        Some(match (self.interval, self.p_alone, self.p) {
            (None, ..) | (_, None, _) | (.., None) => "neither side varies, and this test then cannot tell".to_owned(),
            (Some(_), Some(alone), Some(p)) if alone <= alpha && p > alpha => {
                format!("p = {} alone, but {} {of}: above α = {alpha}", p_text(alone), p_text(p)).replace("  ", " ")
            }
            (_, _, Some(p)) if p > alpha => {
                format!("p is above α = {alpha}, and the interval leaves room for a change that counts ({counts})")
            }
            (Some(interval), ..) if excludes_no_change(interval) => {
                format!("there is a change, but the interval does not tell whether it reaches {counts}")
            }
            (Some(_), ..) => format!("equal values: the interval leaves room for no change and for one of {counts}"),
        })
    }

    /// `+0.4 % (−0.6 … +1.5)`; empty without a ratio.
    pub fn change_text(&self) -> String {
        change_text(self.change, self.interval)
    }
}

/// Whether an interval does not have 0 inside.
fn excludes_no_change((low, high): (f64, f64)) -> bool {
    low >= 0.0 && high > 0.0 || high <= 0.0 && low < 0.0
}

/// p with two digits, never a 0.
pub fn p_text(p: f64) -> String {
    match p {
        p if p < 0.0001 => "< 0.0001".to_owned(),
        p if p < 0.02 => format!("{p:.4}"),
        p => format!("{p:.2}"),
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
    let adjusted = if corrected { two_sample::holm(&p) } else { p };
    for (comparison, p) in comparisons.iter_mut().zip(adjusted) {
        comparison.p = p;
        comparison.conclude(tested);
    }
}

/// Warnings about one side that weaken the comparison. A drift that the other side shares (not `apart`) does not.
fn doubts(values: &[f64], side: &str, apart: bool) -> Vec<String> {
    let mut doubts = Vec::new();
    if apart && series::correlated(values) {
        doubts.push(format!("{side}: iterations are serially correlated, p is too small"));
    }
    if let Some(drift) = series::drifting(values) {
        let shared = if apart { "" } else { ", which rounds cancel if the other side does too" };
        doubts.push(format!("{side}: drifts by {}{shared}", units::margin(drift.ratio)));
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
        test: Test::Rank,
        alpha: 0.01,
        min_ratio: 0.03,
        min_difference: 0.0,
        range: Range::POSITIVE,
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
        for test in [Test::Rank, Test::MannWhitney, Test::Welch, Test::Bootstrap] {
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

    #[test]
    fn an_outlier_among_eight_does_not_hide_a_regression() {
        let (mut base, new) = (around(100.0)[..8].to_vec(), around(95.0)[1..9].to_vec());
        base[5] = 60.0;
        let found = |test| compared(&base, &new, Rule { test, ..RULE });
        assert_eq!(found(Test::Rank).verdict, Verdict::Regression);
        let found = found(Test::MannWhitney);
        assert_eq!(
            (found.verdict, found.p.map(|p| format!("{p:.4}"))),
            (Verdict::Inconclusive, Some("0.0104".to_owned()))
        );
        let (low, high) = found.interval.unwrap();
        assert!(low < 0.0 && high >= 0.0 && found.notes[0].contains("p is above α"), "{found:?}");
    }

    #[test]
    fn a_correction_that_undoes_significance_is_named() {
        let base: Vec<f64> = (0..7).map(|i| 101.0 + f64::from(i)).collect();
        let new: Vec<f64> = base.iter().map(|v| v - 4.5).collect();
        let mut seven: Vec<Comparison> =
            (0..7).map(|i| Comparison::of(&base, if i == 0 { &new } else { &base }, RULE)).collect();
        decide(&mut seven, true);
        let found = &seven[0];
        assert_eq!(found.verdict, Verdict::Inconclusive, "{found:?}");
        // The interval is that of this comparison alone, and does not reach 0.
        assert!(found.interval.unwrap().1 < 0.0, "{found:?}");
        assert!(found.notes[0].contains(" alone, but ") && found.notes[0].contains("with 7 comparisons"), "{found:?}");
    }

    #[test]
    fn rounds_cancel_a_drift_that_both_sides_share() {
        let drifting: Vec<(f64, f64)> = (around(100.0).iter().zip(around(95.0)[1..].iter().chain(&[95.3])).enumerate())
            .map(|(i, (a, b))| (a * (1.0 + i as f64 / 50.0), b * (1.0 + i as f64 / 50.0)))
            .collect();
        let mut c = Comparison::in_turns(&drifting, RULE, 1);
        decide([&mut c], true);
        assert_eq!((c.verdict, c.rounds), (Verdict::Regression, Some(10)), "{c:?}");
        let (a, b): (Vec<f64>, Vec<f64>) = drifting.into_iter().unzip();
        assert_eq!(compared(&a, &b, RULE).verdict, Verdict::Inconclusive);
        // Five rounds are too few to be kept apart at 1 %.
        assert_eq!(Comparison::in_turns(&[(1.0, 2.0); 5], RULE, 1).rounds, None);
    }

    #[test]
    fn a_positive_quantity_cannot_lose_more_than_all() {
        let base = [1.0, 30.0, 100.0, 100.0, 110.0, 400.0];
        let new = [0.0, 0.0, 1.0, 2.0, 90.0, 350.0];
        for test in [Test::Rank, Test::MannWhitney, Test::Welch] {
            let found = Comparison::of(&base, &new, Rule { test, ..RULE });
            let (low, high) = found.interval.unwrap();
            assert!(low >= -1.0 && high > low, "{test:?} {low} {high}");
            let free = Comparison::of(&base, &new, Rule { test, range: Range::ANY, ..RULE });
            assert!(free.interval.unwrap().0 < -1.0, "{test:?}");
        }
    }

    proptest::proptest! {
        /// Verdict, reason, p and interval never contradict each other.
        #[test]
        fn a_verdict_agrees_with_its_interval(
            base in proptest::collection::vec(0u32..40, 0..12), new in proptest::collection::vec(0u32..40, 0..12),
            coarse in 1u32..30, by in -30i32..30, test in 0usize..4, comparisons in 1usize..9, in_turns: bool,
        ) {
            let test = [Test::Rank, Test::MannWhitney, Test::Welch, Test::Bootstrap][test];
            let rule = Rule { test, ..RULE };
            let side = |values: &[u32], by: f64| -> Vec<f64> {
                values.iter().map(|v| 60.0 + by + f64::from(v / coarse * coarse)).collect()
            };
            let (base, new) = (side(&base, 0.0), side(&new, f64::from(by)));
            let rounds: Vec<(f64, f64)> = base.iter().copied().zip(new.iter().copied()).collect();
            let mut c = if in_turns { Comparison::in_turns(&rounds, rule, comparisons) } else { Comparison::of(&base, &new, rule) };
            c.decide_among(comparisons);
            let (p, (low, high)) = (c.p.unwrap_or(1.0), c.interval.unwrap_or((f64::NEG_INFINITY, f64::INFINITY)));
            let (bound, excluded) = (rule.min_ratio, excludes_no_change((low, high)));
            match c.verdict {
                Verdict::Regression | Verdict::Improvement => {
                    proptest::prop_assert!(p <= rule.alpha && excluded && c.change.unwrap().abs() >= bound, "{c:?}");
                }
                Verdict::Same => proptest::prop_assert!(low > -bound && high < bound, "{c:?}"),
                _ => {
                    let reason = c.notes.first().map_or("", String::as_str);
                    let reaches = low <= -bound || high >= bound;
                    let right = match reason {
                        r if r.starts_with("need ") => c.needed.is_some(),
                        r if r.contains(" alone, but ") => c.p_alone.unwrap() <= rule.alpha && p > rule.alpha,
                        r if r.starts_with("p is above") => p > rule.alpha && low <= 0.0 && high >= 0.0 && reaches,
                        r if r.starts_with("there is a change") => p <= rule.alpha && excluded && reaches,
                        r if r.starts_with("equal values") => p <= rule.alpha && !excluded && reaches,
                        r if r.starts_with("neither side varies") => c.p.is_none() || c.interval.is_none(),
                        r => r.contains("no sample"),
                    };
                    proptest::prop_assert!(right, "{c:?}");
                }
            }
        }
    }
}
