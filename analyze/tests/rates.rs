//! How often a comparison cries wolf, and how often it finds what is there: over drawn samples, with fixed seeds.
//!
//! `FULL=1 cargo test --release -p analyze --test rates -- --nocapture` prints the tables of docs/methodology.md; without
//! FULL, fewer trials check the same bounds in seconds.

use analyze::judge::comparison::{Comparison, Finding, Rule, Test, decide};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use schemas::metrics::Better;

/// What a plan's baseline uses unless told otherwise.
const RULE: Rule = Rule {
    better: Better::Higher,
    test: Test::MannWhitney,
    alpha: 0.01,
    min_ratio: 0.03,
    min_difference: 0.0,
    seed: 1,
};

/// So many trials for the documentation's tables, so many to check the bounds.
fn trials(full: u32, quick: u32) -> u32 {
    if is_full() { full } else { quick }
}

fn is_full() -> bool {
    std::env::var_os("FULL").is_some()
}

/// Iterations a side. The exact distribution for twenty takes long without optimisation.
fn lengths() -> &'static [usize] {
    if is_full() { &[5, 10, 20] } else { &[5, 10] }
}

/// How iterations vary.
#[derive(Clone, Copy, Debug)]
enum Noise {
    /// Normal.
    Normal,
    /// One iteration in ten is up to eight standard deviations too slow: something else ran.
    Disturbed,
}

/// A standard normal value (Box and Muller, Annals of Mathematical Statistics 29, 1958).
fn normal(rng: &mut ChaCha8Rng) -> f64 {
    let (u, v): (f64, f64) = (rng.random(), rng.random());
    (-2.0 * (1.0 - u).ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}

fn sample(rng: &mut ChaCha8Rng, n: usize, mean: f64, variation: f64, noise: Noise) -> Vec<f64> {
    let value = |rng: &mut ChaCha8Rng| {
        let disturbed = matches!(noise, Noise::Disturbed) && rng.random::<f64>() < 0.1;
        let slower = if disturbed { 8.0 * rng.random::<f64>() } else { 0.0 };
        mean * (1.0 + variation * (normal(rng) - slower))
    };
    (0..n).map(|_| value(rng)).collect()
}

/// The share of so many trials in which a change by `worse` is called a regression.
fn share(rule: Rule, noise: Noise, n: usize, variation: f64, worse: f64, trials: u32) -> f64 {
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let mut found = 0;
    for _ in 0..trials {
        let base = sample(&mut rng, n, 100.0, variation, noise);
        let new = sample(&mut rng, n, 100.0 * (1.0 - worse), variation, noise);
        let mut comparison = Comparison::of(&base, &new, rule);
        decide([&mut comparison], true);
        found += u32::from(comparison.finding == Finding::Regression);
    }
    f64::from(found) / f64::from(trials)
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

#[test]
fn no_change_is_rarely_called_a_regression() {
    println!("| test | noise | iterations | variation 1 % | 3 % | 5 % |\n| --- | --- | --- | --- | --- | --- |");
    for test in [Test::MannWhitney, Test::Welch] {
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
fn a_regression_is_found_in_its_share_of_runs() {
    println!("| variation | iterations | 3 % slower | 5 % | 10 % | 20 % |\n| --- | --- | --- | --- | --- | --- |");
    for variation in [0.01, 0.03, 0.05] {
        for n in lengths().iter().copied() {
            let found =
                [0.03, 0.05, 0.1, 0.2].map(|worse| share(RULE, Noise::Normal, n, variation, worse, trials(1000, 200)));
            println!("| {} | {n} | {} |", percent(variation), found.map(percent).join(" | "));
            // What is larger is found more often.
            assert!(found.windows(2).all(|w| w[0] <= w[1] + 0.02), "{variation} {n}: {found:?}");
        }
    }
    // One as large as what counts is called one as often as not, however much is measured.
    let even = share(RULE, Noise::Normal, 10, 0.01, 0.03, 400);
    assert!((0.35..0.65).contains(&even), "{even}");
    assert!(share(RULE, Noise::Normal, 10, 0.01, 0.05, 200) > 0.98);
    assert!(share(RULE, Noise::Normal, 10, 0.03, 0.1, 200) > 0.98);
    assert!(share(RULE, Noise::Normal, 5, 0.03, 0.2, 200) > 0.98);
    // The other direction is no regression, ever.
    assert!(share(RULE, Noise::Normal, 10, 0.03, -0.1, 200) < 1e-9);
}

#[test]
fn many_comparisons_together_cry_wolf_no_more_often_than_one() {
    const CASES: usize = 20;
    // Half a percent counts here, so that the significance alone stands between chance and an alarm.
    let rule = Rule { min_ratio: 0.005, ..RULE };
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let mut alarms = [0, 0];
    let trials = trials(500, 100);
    for _ in 0..trials {
        let draw = |rng: &mut ChaCha8Rng| sample(rng, 10, 100.0, 0.03, Noise::Normal);
        let plain: Vec<Comparison> =
            (0..CASES).map(|_| Comparison::of(&draw(&mut rng), &draw(&mut rng), rule)).collect();
        for (corrected, alarms) in [true, false].into_iter().zip(&mut alarms) {
            let mut comparisons = plain.clone();
            decide(&mut comparisons, corrected);
            *alarms += u32::from(comparisons.iter().any(|c| c.finding == Finding::Regression));
        }
    }
    let [with, without] = alarms.map(|n| f64::from(n) / f64::from(trials));
    println!(
        "{CASES} cases without a change: an alarm in {} of runs with Holm, {} without",
        percent(with),
        percent(without)
    );
    assert!(with <= rule.alpha, "{with}");
    assert!(without > 5.0 * rule.alpha, "{without}: the correction is not for nothing");
}
