//! Compares one metric of one case on two sides: size of the change, significance, and verdict.

use crate::stats::{bootstrap, compare as two_sample, confidence, moments, quantiles, ranks, series};
use schemars::JsonSchema;
use schemas::{
    metrics::{Better, Metric, Range},
    text::counted,
    units,
    words::Verdict,
};
use serde::{Deserialize, Serialize};

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

impl Test {
    /// The statistic of each side's values that is shown.
    #[must_use]
    pub fn statistic(self) -> &'static str {
        if self == Self::Welch { "mean" } else { "median" }
    }
}

/// Difference between the change of the medians and the change of a rank test from which on a note tells of it, as a share
/// of the latter.
const FAR_APART: f64 = 0.25;

/// What rounding may take from a change, as a share of it.
const ROUNDING: f64 = 1e-9;

/// The rule for changes that count.
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

impl Rule {
    /// The defaults of `plumb compare` and of a plan's `baseline`, for a metric that may have any value.
    pub const DEFAULT: Self = Self {
        better: Better::Neither,
        test: Test::Rank,
        alpha: 0.01,
        min_ratio: 0.03,
        min_difference: 0.0,
        range: Range::ANY,
        seed: bootstrap::SEED,
    };

    /// The defaults for a metric.
    pub fn of(metric: &Metric) -> Self {
        Self { better: metric.better, range: metric.range(), ..Self::DEFAULT }
    }
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
    /// The change over the baseline's centre: with rank tests the median of the ratios between the sides' values (of their
    /// differences, where some are not positive), else the difference of the centres. At least −1. `None` where the baseline
    /// is 0 or less, to which there is no ratio; two equal centres have the change 0.
    pub change: Option<f64>,
    /// Its interval at level 1 − α.
    pub interval: Option<(f64, f64)>,
    /// Without a ratio: the interval of the difference, in the metric's unit.
    difference: Option<(f64, f64)>,
    /// As tested; [`decide`] corrects it.
    pub p: Option<f64>,
    /// As tested, before the correction.
    pub p_alone: Option<f64>,
    /// Number of rounds in which both sides were measured in turns, if that was used.
    pub rounds: Option<usize>,
    /// Why the values of the baseline, and of the new side, are doubtful: something slowed that side alone.
    pub disturbed: [Option<String>; 2],
    /// Inconclusive until [`decide`].
    pub verdict: Verdict,
    /// Reasons and doubts.
    pub notes: Vec<String>,
    /// Iterations per side that would decide.
    pub needed: Option<u64>,
}

impl Comparison {
    /// A case that only one side has: unlike one of which a side has no value, it has no centre.
    pub fn missing(rule: Rule, n: (usize, usize), note: impl Into<String>) -> Self {
        Self {
            rule,
            base: None,
            new: None,
            n,
            change: None,
            interval: None,
            difference: None,
            p: None,
            p_alone: None,
            rounds: None,
            disturbed: [None, None],
            verdict: Verdict::Missing,
            notes: vec![note.into()],
            needed: None,
        }
    }

    /// Compares two samples; the values of each are in the order of time.
    pub fn of(a: &[f64], b: &[f64], rule: Rule) -> Self {
        let doubts = [doubts(a, "baseline", true), doubts(b, "new", true)].concat();
        let scaled = Scaled::of(a, b);
        Self::tested(a, b, rule, &scaled, &ranks::Sides::apart(&scaled.a, &scaled.b), doubts)
    }

    /// Compares two sides of one run that were measured in turns, as one of so many `comparisons`: the i-th values of both
    /// are of the same round. Only [`Test::Rank`] uses the rounds.
    pub fn in_turns(rounds: &[(f64, f64)], rule: Rule, comparisons: usize) -> Self {
        let (a, b): (Vec<f64>, Vec<f64>) = rounds.iter().copied().unzip();
        let alpha = rule.alpha / comparisons.max(1) as f64;
        let scaled = Scaled::of(&a, &b);
        let sides = ranks::Sides::in_turns(&scaled.a, &scaled.b, alpha);
        let Some(sides) = sides.filter(|s| rule.test == Test::Rank && s.blocks() > 1) else {
            return Self::of(&a, &b, rule);
        };
        let differences: Vec<f64> = scaled.a.iter().zip(&scaled.b).map(|(a, b)| b - a).collect();
        let mut doubts = [doubts(&a, "baseline", false), doubts(&b, "new", false)].concat();
        if series::correlated(&differences) {
            doubts.push("the differences are serially correlated, p is too small".to_owned());
        }
        Self { rounds: Some(rounds.len()), ..Self::tested(&a, &b, rule, &scaled, &sides, doubts) }
    }

    fn tested(
        a: &[f64],
        b: &[f64],
        rule: Rule,
        scaled: &Scaled,
        sides: &ranks::Sides<'_>,
        doubts: Vec<String>,
    ) -> Self {
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
            (Some(ca), Some(cb)) if ca > 0.0 => {
                // The new side stays within the metric's range, and nothing is left at −1.
                let ratio = |v: f64| ((rule.range.clamp(ca + v) - ca) / ca).max(-1.0);
                comparison.change = Some(ratio(cb - ca));
                match rule.test {
                    Test::Rank | Test::MannWhitney => {
                        let (p, shift) = match rule.test {
                            Test::Rank => (sides.p(), sides.shift(level)),
                            _ => (
                                two_sample::mann_whitney(&scaled.a, &scaled.b),
                                two_sample::shift(&scaled.a, &scaled.b, level),
                            ),
                        };
                        comparison.p = p;
                        if let Some(shift) = shift {
                            let of_shift = |v: f64| ratio(if scaled.is_logarithm { ca * v.exp_m1() } else { v });
                            let (medians, change) = (ratio(cb - ca), of_shift(shift.centre));
                            comparison.change = Some(change);
                            comparison.interval = Some((of_shift(shift.low), of_shift(shift.high)));
                            if (medians - change).abs() >= rule.min_ratio.max(change.abs() * FAR_APART) {
                                comparison.notes.insert(0, medians_differ(medians, sides.blocks() > 1));
                            }
                        }
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
                        let within = |v: f64| ratio(v * ca);
                        comparison.interval = resampled.map(|(i, _)| (within(i.low), within(i.high)));
                        comparison.p = resampled.map(|(_, p)| p);
                    }
                    Test::Bootstrap => {}
                }
            }
            (Some(ca), Some(cb)) => {
                // Equal centres count as unchanged; a change from 0 or less lacks a ratio.
                let is_equal = ca.total_cmp(&cb).is_eq() || ca == 0.0 && cb == 0.0;
                comparison.change = is_equal.then_some(0.0);
                comparison.interval = is_equal.then_some((0.0, 0.0));
                comparison.p = sides.p();
                comparison.difference = sides.shift(level).map(|shift| (shift.low, shift.high));
                if !is_equal && rule.min_difference == 0.0 {
                    let less = if ca == 0.0 { "" } else { "less than " };
                    let note = format!(
                        "the baseline is {less}0, and there is no ratio to it: give min_effect in the plan's baseline, \
                         which plumb gate judges by, or compare another metric"
                    );
                    comparison.notes.insert(0, note);
                }
            }
            _ => {
                // A side without values is as if it had not been measured.
                if ca.or(cb).is_some() {
                    comparison.verdict = Verdict::Missing;
                }
                let side = if ca.is_none() { "baseline" } else { "new side" };
                comparison.notes.insert(0, format!("the {side} has no sample"));
            }
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

    /// Sets the verdict from p, corrected for `comparisons` of them, and from what is known of the sides.
    fn conclude(&mut self, comparisons: usize) {
        self.weigh(comparisons);
        let [base, new] = std::mem::take(&mut self.disturbed);
        // A side that something slowed may be better than its values: what they say against it is doubtful.
        let slowed = match self.verdict {
            Verdict::Regression => new,
            Verdict::Improvement | Verdict::NoWorse => base,
            // Without the disturbance the sides may differ, or differ by another amount.
            Verdict::Changed | Verdict::Same => base.or(new),
            _ => None,
        };
        if let Some(why) = slowed {
            self.verdict = Verdict::Inconclusive;
            self.notes.insert(0, why);
        }
    }

    fn weigh(&mut self, comparisons: usize) {
        let (Some(base), Some(new)) = (self.base, self.new) else { return };
        let Rule { better, alpha, min_ratio, min_difference, .. } = self.rule;
        // A change of exactly the least that counts does count, whatever its last digit is rounded to.
        let [min_ratio, min_difference] = [min_ratio, min_difference].map(|least| least * (1.0 - ROUNDING));
        let differs = self.p.is_some_and(|p| p <= alpha);
        let significant = differs && self.interval.is_none_or(excludes_no_change);
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
        // Sides that differ in more than their medians have no interval that tells by how much.
        let told = self.interval.filter(|_| significant || !differs);
        // A change must pass both bounds to count: the interval has to stay below the larger one.
        let (interval, bound) = match self.change {
            Some(_) if base > 0.0 => (told, min_ratio.max(min_difference / base)),
            Some(_) if told.is_some() => (told, min_ratio),
            _ => (self.difference.filter(|_| min_difference > 0.0), min_difference),
        };
        if let Some((low, high)) = interval {
            if low > -bound && high < bound {
                self.verdict = Verdict::Same;
                return;
            }
            // Room for a change for the better does not put in doubt that there is none for the worse.
            if is_no_worse(better, (low, high), bound) {
                self.verdict = Verdict::NoWorse;
                return;
            }
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

    /// Whether a worsening of the new side was found; of a metric that has no better direction, any change.
    pub fn is_noticed(&self) -> bool {
        matches!(self.verdict, Verdict::Regression | Verdict::Changed)
    }

    /// Why an inconclusive comparison is one. It agrees with interval and p. `None`: a note says it already.
    fn undecided(&self, comparisons: usize, bound: f64) -> Option<String> {
        let alpha = self.rule.alpha;
        let of = if comparisons > 1 { format!(" with {comparisons} comparisons") } else { String::new() };
        if let Some(needed) = self.needed {
            return Some(format!("need {needed} iterations per side for α = {alpha}{of}"));
        }
        if self.change.is_none() {
            let (low, high) = self.difference.filter(|_| self.rule.min_difference > 0.0)?;
            let number = units::three_digits;
            return Some(format!(
                "the difference lies between {} and {}, and {} counts",
                number(low),
                number(high),
                number(bound)
            ));
        }
        let counts = units::margin(bound);
        Some(match (self.interval, self.p_alone, self.p) {
            (None, ..) | (_, None, _) | (.., None) => "neither side varies, and this test then cannot tell".to_owned(),
            (Some(_), Some(alone), Some(p)) if alone <= alpha && p > alpha => {
                format!("p = {} alone, but {}{of}: above α = {alpha}", p_text(alone), p_text(p))
            }
            (_, _, Some(p)) if p > alpha => {
                format!("p is above α = {alpha}, and the interval leaves room for a change that counts ({counts})")
            }
            (Some(interval), ..) if excludes_no_change(interval) => {
                format!("there is a change, smaller than {counts}, and the interval leaves room for one that counts")
            }
            (Some(_), _, Some(p)) => {
                let (p, statistic) = (p_text(p), self.rule.test.statistic());
                format!(
                    "p = {p} says that the sides differ, and the interval that their {statistic}s may be equal: look at the values"
                )
            }
        })
    }

    /// `+0.4 % (−0.6 … +1.5)`; empty without a ratio.
    pub fn change_text(&self) -> String {
        change_text(self.change, self.interval)
    }
}

/// The values of two sides on the scale on which rank tests take their differences: logarithms, whose differences are
/// ratios, if all values are positive.
struct Scaled {
    a: Vec<f64>,
    b: Vec<f64>,
    is_logarithm: bool,
}

impl Scaled {
    fn of(a: &[f64], b: &[f64]) -> Self {
        let is_logarithm = a.iter().chain(b).all(|v| *v > 0.0 && v.is_finite());
        let scale = |values: &[f64]| values.iter().map(|v| if is_logarithm { v.ln() } else { *v }).collect();
        Self { a: scale(a), b: scale(b), is_logarithm }
    }
}

/// Whether every change of an interval is smaller than `bound` for the worse. A metric that is neither better nor worse
/// gets worse by a change in either direction.
pub fn is_no_worse(better: Better, (low, high): (f64, f64), bound: f64) -> bool {
    match better {
        Better::Higher => low > -bound,
        Better::Lower => high < bound,
        Better::Neither => low > -bound && high < bound,
    }
}

/// Explains a change that the centres beside it do not have.
fn medians_differ(by: f64, in_rounds: bool) -> String {
    let of = if in_rounds { "pairs within blocks of rounds" } else { "all pairs" };
    format!("the medians differ by {}, the change is the median over {of}", change_text(Some(by), None))
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

/// `+0.4 % (−0.6 … +1.5)`, from ratios; `from 0` without a ratio.
pub fn change_text(change: Option<f64>, interval: Option<(f64, f64)>) -> String {
    let signed = |v: f64| {
        let text = units::margin(v.abs());
        let digits = text.trim_end_matches(" %").to_owned();
        if v < 0.0 { format!("−{digits}") } else { format!("+{digits}") }
    };
    match (change, interval) {
        (None, _) => String::new(),
        (Some(change), _) if change.is_infinite() => "from 0".to_owned(),
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
        doubts.push(format!("{side}: {}", counted(severe, "severe outlier")));
    }
    doubts
}

#[cfg(test)]
mod tests;
