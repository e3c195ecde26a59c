//! Rates of false alarms and of found changes in comparisons, over drawn samples, with fixed seeds.
//!
//! `FULL=1 cargo test --release -p analyze --test rates -- --nocapture` prints the tables of docs/reference/methodology.md; without
//! FULL, fewer trials check the same bounds in seconds.

mod common;

use analyze::judge::comparison::{Comparison, Rule, Test, decide};
use chacha20::ChaCha8Rng;
use common::{is_full, normal};
use rand::{RngExt, SeedableRng};
use schemas::metrics::{Better, Range};
use schemas::words::Verdict;

/// The defaults of a plan's baseline.
const RULE: Rule = Rule { better: Better::Higher, range: Range::POSITIVE, ..Rule::DEFAULT };

/// So many trials for the documentation's tables, so many to check the bounds.
fn trials(full: u32, quick: u32) -> u32 {
    if is_full() { full } else { quick }
}

/// Iterations a side. The exact distribution for twenty takes long without optimisation.
fn lengths() -> &'static [usize] {
    if is_full() { &[5, 10, 20] } else { &[5, 10] }
}

/// Shapes of the iterations' noise.
#[derive(Clone, Copy, Debug)]
enum Noise {
    /// Normal.
    Normal,
    /// One iteration in ten is up to eight standard deviations too slow: something else ran.
    Disturbed,
    /// Lognormal: most are a little faster than the mean, a few much slower.
    Skewed,
    /// Three iterations in ten are 5 % slower than the others: another CPU, another path.
    TwoHumps,
    /// Each depends on the one before, with this autocorrelation.
    Dependent(f64),
}

fn sample(rng: &mut ChaCha8Rng, n: usize, mean: f64, variation: f64, noise: Noise) -> Vec<f64> {
    let mut last = if matches!(noise, Noise::Dependent(_)) { normal(rng) } else { 0.0 };
    let mut value = |rng: &mut ChaCha8Rng| match noise {
        Noise::Normal => 1.0 + variation * normal(rng),
        Noise::Disturbed => {
            let slower = if rng.random::<f64>() < 0.1 { 8.0 * rng.random::<f64>() } else { 0.0 };
            1.0 + variation * (normal(rng) - slower)
        }
        Noise::Skewed => (-variation * normal(rng)).exp(),
        Noise::TwoHumps => (if rng.random::<f64>() < 0.3 { 0.95 } else { 1.0 }) * (1.0 + variation * normal(rng)),
        Noise::Dependent(correlation) => {
            last = correlation * last + (1.0 - correlation * correlation).sqrt() * normal(rng);
            1.0 + variation * last
        }
    };
    (0..n).map(|_| mean * value(rng)).collect()
}

/// The share of so many trials in which a change by `worse` is called a regression.
fn share(rule: Rule, noise: Noise, n: usize, variation: f64, worse: f64, trials: u32) -> f64 {
    shares(rule, noise, n, variation, worse, trials).0
}

/// The share of trials in which the promise is kept beside a change by `worse`: no worse, same, or an improvement.
fn proven(rule: Rule, noise: Noise, n: usize, variation: f64, worse: f64, trials: u32) -> f64 {
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    let judged = (0..trials).map(|_| {
        let base = sample(&mut rng, n, 100.0, variation, noise);
        let new = sample(&mut rng, n, 100.0 * (1.0 - worse), variation, noise);
        let mut comparison = Comparison::of(&base, &new, rule);
        decide([&mut comparison], true);
        comparison.verdict
    });
    let held = judged.filter(|verdict| verdict.is_well()).count();
    held as f64 / f64::from(trials)
}

/// The same, and in which share of those a note says that the iterations drift or depend on each other.
fn shares(rule: Rule, noise: Noise, n: usize, variation: f64, worse: f64, trials: u32) -> (f64, f64) {
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let (mut found, mut noted) = (0, 0);
    for _ in 0..trials {
        let base = sample(&mut rng, n, 100.0, variation, noise);
        let new = sample(&mut rng, n, 100.0 * (1.0 - worse), variation, noise);
        let mut comparison = Comparison::of(&base, &new, rule);
        decide([&mut comparison], true);
        if comparison.verdict == Verdict::Regression {
            found += 1;
            noted += u32::from(comparison.notes.iter().any(|n| n.contains("correlated") || n.contains("drifts")));
        }
    }
    (f64::from(found) / f64::from(trials), f64::from(noted) / f64::from(found.max(1)))
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

#[test]
fn no_change_is_rarely_called_a_regression() {
    println!("| test | noise | iterations | variation 1 % | 3 % | 5 % |\n| --- | --- | --- | --- | --- | --- |");
    for test in [Test::Rank, Test::MannWhitney, Test::Welch] {
        for noise in [Noise::Normal, Noise::Disturbed] {
            for n in lengths().iter().copied() {
                let rule = Rule { test, ..RULE };
                let rates = [0.01, 0.03, 0.05].map(|v| share(rule, noise, n, v, 0.0, trials(4000, 600)));
                println!("| {test:?} | {noise:?} | {n} | {} |", rates.map(percent).join(" | "));
                for rate in rates {
                    assert!(rate < RULE.alpha, "{test:?} {noise:?} {n}: {rate}");
                }
            }
        }
    }
    // Resampling takes longer, so it is tried less often.
    let rate = share(Rule { test: Test::Bootstrap, ..RULE }, Noise::Normal, 10, 0.03, 0.0, trials(300, 50));
    println!("| Bootstrap | Normal | 10 | | {} | |", percent(rate));
    assert!(rate < 2.0 * RULE.alpha, "{rate}");
}

#[test]
fn noise_of_other_shapes_keeps_the_promise_unless_iterations_depend_on_each_other() {
    for (noise, variation) in [(Noise::Skewed, 0.03), (Noise::TwoHumps, 0.01)] {
        for n in lengths().iter().copied() {
            let alarms = share(RULE, noise, n, variation, 0.0, trials(4000, 600));
            let found = [0.05, 0.1].map(|worse| share(RULE, noise, n, variation, worse, trials(1000, 200)));
            println!("| {noise:?} | {n} | {} | {} |", percent(alarms), found.map(percent).join(" | "));
            assert!(alarms < RULE.alpha, "{noise:?} {n}: {alarms}");
        }
    }
    for correlation in [0.5, 0.8] {
        let (alarms, noted) = shares(RULE, Noise::Dependent(correlation), 10, 0.03, 0.0, trials(4000, 600));
        println!("| correlation {correlation} | 10 | {}, of which {} with a note |", percent(alarms), percent(noted));
        // No test of so few values can tell: what the documentation says of it would be wrong otherwise.
        assert!(alarms > RULE.alpha, "{correlation}: {alarms}");
        assert!(noted > if correlation > 0.6 { 0.5 } else { 0.1 }, "{correlation}: {noted}");
    }
}

#[test]
fn a_regression_is_found_in_its_share_of_runs() {
    println!("| variation | iterations | 3 % slower | 5 % | 10 % | 20 % |\n| --- | --- | --- | --- | --- | --- |");
    for variation in [0.01, 0.03, 0.05] {
        for n in lengths().iter().copied() {
            let found =
                [0.03, 0.05, 0.1, 0.2].map(|worse| share(RULE, Noise::Normal, n, variation, worse, trials(1000, 200)));
            println!("| {} | {n} | {} |", percent(variation), found.map(percent).join(" | "));
            // A larger change is found more often.
            assert!(found.windows(2).all(|w| w[0] <= w[1] + 0.02), "{variation} {n}: {found:?}");
        }
    }
    // One as large as what counts is called one as often as not, however much is measured.
    let even = share(RULE, Noise::Normal, 10, 0.01, 0.03, 400);
    assert!((0.35..0.65).contains(&even), "{even}");
    assert!(share(RULE, Noise::Normal, 10, 0.01, 0.05, 200) > 0.98);
    assert!(share(RULE, Noise::Normal, 10, 0.03, 0.1, 200) > 0.98);
    assert!(share(RULE, Noise::Normal, 5, 0.03, 0.2, 200) > 0.98);
    // A change in the other direction is never a regression.
    assert!(share(RULE, Noise::Normal, 10, 0.03, -0.1, 200) < 1e-9);
}

/// A change as large as the smallest that counts must not be called no worse: with half of α, as one side is promised.
#[test]
fn what_got_worse_is_rarely_called_no_worse() {
    println!("| noise | iterations | variation 1 % | 3 % | 5 % |\n| --- | --- | --- | --- | --- |");
    for noise in [Noise::Normal, Noise::Disturbed, Noise::Skewed, Noise::TwoHumps] {
        for n in lengths().iter().copied() {
            let variations: &[f64] = if matches!(noise, Noise::TwoHumps) { &[0.01] } else { &[0.01, 0.03, 0.05] };
            let rates = variations.iter().map(|v| proven(RULE, noise, n, *v, 0.03, trials(10_000, 600)));
            let rates: Vec<f64> = rates.collect();
            println!("| {noise:?} | {n} | {} |", rates.iter().copied().map(percent).collect::<Vec<_>>().join(" | "));
            for rate in rates {
                assert!(rate < if is_full() { 0.0075 } else { RULE.alpha }, "{noise:?} {n}: {rate}");
            }
        }
    }
    println!("| variation | iterations | no change | 5 % faster |\n| --- | --- | --- | --- |");
    for variation in [0.01, 0.03, 0.05] {
        for n in lengths().iter().copied() {
            let held = [0.0, -0.05].map(|worse| proven(RULE, Noise::Normal, n, variation, worse, trials(1000, 200)));
            println!("| {} | {n} | {} |", percent(variation), held.map(percent).join(" | "));
        }
    }
}

#[test]
fn many_comparisons_together_cry_wolf_no_more_often_than_one() {
    const CASES: usize = 20;
    // Half a percent counts here, so that the significance alone stands between chance and an alarm.
    let rule = Rule { min_ratio: 0.005, ..RULE };
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let mut alarms = [0, 0];
    let trials = trials(500, 200);
    for _ in 0..trials {
        let draw = |rng: &mut ChaCha8Rng| sample(rng, 10, 100.0, 0.03, Noise::Normal);
        let plain: Vec<Comparison> =
            (0..CASES).map(|_| Comparison::of(&draw(&mut rng), &draw(&mut rng), rule)).collect();
        for (corrected, alarms) in [true, false].into_iter().zip(&mut alarms) {
            let mut comparisons = plain.clone();
            decide(&mut comparisons, corrected);
            *alarms += u32::from(comparisons.iter().any(|c| c.verdict == Verdict::Regression));
        }
    }
    let [with, without] = alarms.map(|n| f64::from(n) / f64::from(trials));
    println!(
        "{CASES} cases without a change: an alarm in {} of runs with Holm, {} without",
        percent(with),
        percent(without)
    );
    assert!(with <= rule.alpha, "{with}");
    assert!(without > 3.0 * rule.alpha, "{without}: the correction is not for nothing");
}
