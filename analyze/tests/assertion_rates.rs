//! Rates of false passes, false fails and inconclusive verdicts of assertions, over drawn iterations whose truth is
//! known, with fixed seeds.
//!
//! `FULL=1 cargo test --release -p analyze --test assertion_rates -- --nocapture` prints the tables of
//! docs/reference/statistics.md; without FULL, fewer trials check the same bounds in seconds.

mod common;

use analyze::judge::{Judge, judge};
use analyze::stats::confidence::fewest_for_median;
use chacha20::ChaCha8Rng;
use common::is_full;
use rand::{RngExt, SeedableRng};
use schemas::assertion::{Assertion, Operator, parse};
use schemas::words::Verdict;
use statrs::distribution::{Beta, ContinuousCDF, Normal};

/// Shapes of the values' noise.
#[derive(Clone, Copy, Debug)]
enum Shape {
    /// Normal, 5 % of the mean.
    Symmetric,
    /// Lognormal: σ = 0.5 on the logarithmic scale.
    Skewed,
    /// This share half as large again as the others, each hump 1 % wide.
    TwoHumps(f64),
    /// Pareto with exponent 1, which has no mean.
    HeavyTail,
}

impl Shape {
    fn name(self) -> &'static str {
        match self {
            Self::Symmetric => "symmetric",
            Self::Skewed => "skewed",
            Self::TwoHumps(_) => "two humps",
            Self::HeavyTail => "heavy tail",
        }
    }

    /// The value that the share `u` of all values does not exceed.
    fn quantile(self, u: f64) -> f64 {
        // Neither end of a hump is infinite.
        let normal = |u: f64| Normal::standard().inverse_cdf(u.clamp(1e-9, 1.0 - 1e-9));
        match self {
            Self::Symmetric => 1.0 + 0.05 * normal(u),
            Self::Skewed => (0.5 * normal(u)).exp(),
            Self::TwoHumps(share) if u < 1.0 - share => 1.0 + 0.01 * normal(u / (1.0 - share)),
            Self::TwoHumps(share) => 1.5 + 0.01 * normal((u - (1.0 - share)) / share),
            Self::HeavyTail => 1.0 / (1.0 - u),
        }
    }
}

/// Kinds of an iteration's value.
#[derive(Clone, Copy, Debug)]
enum Metric {
    /// A value of the shape: a rate, a mean.
    Whole,
    /// The 99th percentile of a thousand values of the shape.
    Percentile,
}

/// Values of an iteration, and the rank of their 99th percentile.
const VALUES: u32 = 1000;
const RANK: u32 = 990;

impl Metric {
    fn shapes(self) -> [Shape; 4] {
        let two_humps = match self {
            Self::Whole => Shape::TwoHumps(0.5),
            // The percentile lies in one hump or the other.
            Self::Percentile => Shape::TwoHumps(0.01),
        };
        [Shape::Symmetric, Shape::Skewed, two_humps, Shape::HeavyTail]
    }

    fn draw(self, rng: &mut ChaCha8Rng, shape: Shape) -> f64 {
        let mut uniform = || 1.0 - rng.random::<f64>();
        let u = match self {
            Self::Whole => uniform(),
            // From the largest of uniform values down: the largest of m has the distribution of u^(1/m).
            Self::Percentile => (RANK..=VALUES).rev().fold(1.0, |u, m| u * uniform().powf(1.0 / f64::from(m))),
        };
        shape.quantile(u.min(1.0 - 1e-12))
    }

    /// The value that the share `u` of all iterations does not exceed.
    fn quantile(self, shape: Shape, u: f64) -> f64 {
        shape.quantile(match self {
            Self::Whole => u,
            Self::Percentile => {
                Beta::new(f64::from(RANK), f64::from(VALUES + 1 - RANK)).expect("positive").inverse_cdf(u)
            }
        })
    }
}

/// Shares of the verdicts.
#[derive(Clone, Copy, Debug, Default)]
struct Rates {
    pass: f64,
    fail: f64,
    inconclusive: f64,
}

/// The verdicts over n iterations on a limit that the share `kept` of all iterations keeps.
fn rates(metric: Metric, shape: Shape, operator: Operator, n: usize, kept: f64, level: f64) -> Rates {
    let below = matches!(operator, Operator::Less);
    let limit = metric.quantile(shape, if below { kept } else { 1.0 - kept });
    let assertion = Assertion { operator, limit, ..parse("latency.p99 < 1us").expect("an assertion") };
    let mut rng = ChaCha8Rng::seed_from_u64(n as u64);
    let mut rates = Rates::default();
    let trials = if is_full() { 10_000 } else { 250 };
    for _ in 0..trials {
        let samples: Vec<f64> = (0..n).map(|_| metric.draw(&mut rng, shape)).collect();
        *match judge(&assertion, &samples, None, level, Judge::Ci).verdict {
            Verdict::Pass => &mut rates.pass,
            Verdict::Fail => &mut rates.fail,
            _ => &mut rates.inconclusive,
        } += 1.0 / f64::from(trials);
    }
    let noise = 4.0 * (promised(n, level) / f64::from(trials)).sqrt();
    // If half keep it, neither verdict is right more often than the other: both are counted as false.
    if kept <= 0.5 {
        assert!(rates.pass <= promised(n, level) + noise, "{metric:?} {shape:?} {n} {kept}: {rates:?}");
    }
    if kept >= 0.5 {
        assert!(rates.fail <= promised(n, level) + noise, "{metric:?} {shape:?} {n} {kept}: {rates:?}");
    }
    rates
}

/// The largest share of false passes, and of false fails, that docs/reference/statistics.md promises.
fn promised(n: usize, level: f64) -> f64 {
    if n as u64 >= fewest_for_median(level) { (1.0 - level) / 2.0 } else { 0.5f64.powf(n as f64) }
}

#[test]
fn false_verdicts_are_as_rare_as_promised() {
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    for metric in [Metric::Whole, Metric::Percentile] {
        println!("\n{metric:?}\n");
        println!(
            "| iterations | values | promised | false passes | false fails | inconclusive: limit at the centre | kept by 75 % | 90 % | 99 % | violated by 90 % |"
        );
        println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
        for n in [3, 5, 10, 30] {
            for shape in metric.shapes() {
                let both = |kept: f64| {
                    [Operator::Less, Operator::Greater].map(|operator| rates(metric, shape, operator, n, kept, 0.95))
                };
                let worst = |of: [Rates; 2], which: fn(&Rates) -> f64| of.iter().map(which).fold(0.0, f64::max);
                let centre = both(0.5);
                let unclear = |kept: f64| percent(worst(both(kept), |r| r.inconclusive));
                println!(
                    "| {n} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
                    shape.name(),
                    percent(promised(n, 0.95)),
                    percent(worst(centre, |r| r.pass)),
                    percent(worst(centre, |r| r.fail)),
                    percent(worst(centre, |r| r.inconclusive)),
                    unclear(0.75),
                    unclear(0.9),
                    unclear(0.99),
                    unclear(0.1),
                );
            }
        }
    }
}

#[test]
fn the_promise_holds_at_other_levels() {
    for level in [0.8, 0.99] {
        for n in [1, 2, 4, 7, 9] {
            for kept in [0.1, 0.4, 0.5, 0.6, 0.9] {
                rates(Metric::Whole, Shape::Skewed, Operator::Less, n, kept, level);
                rates(Metric::Whole, Shape::TwoHumps(0.5), Operator::Greater, n, kept, level);
            }
        }
    }
}
