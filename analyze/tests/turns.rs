//! The gain of rounds and bounded scores: one run that measures two sides in turns, with what machines do to such runs.
//!
//! `FULL=1 cargo test --release -p analyze --test turns -- --nocapture` prints the table of docs/reference/statistics.md; without FULL,
//! fewer trials check the same in seconds.

mod common;

use analyze::{
    judge::comparison::Rule,
    stats::{compare::mann_whitney, ranks::Sides},
};
use chacha20::ChaCha8Rng;
use common::{is_full, normal};
use rand::{RngExt, SeedableRng};

const ALPHA: f64 = Rule::DEFAULT.alpha;

fn trials() -> u32 {
    if is_full() { 20_000 } else { 200 }
}

/// Shapes of a run's noise. Sizes are shares of the mean.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Run {
    /// Normal.
    Noise(f64),
    /// The same, and one iteration of all is a fifth to two fifths too slow.
    Outlier(f64),
    /// One iteration in ten is up to eight standard deviations too slow.
    Disturbed(f64),
    /// Lognormal.
    Skewed(f64),
    /// Three iterations in ten are 5 % slower; normal noise of 1 %.
    TwoHumps,
    /// The machine grows steadily faster by this share over the run; noise of 1 %.
    Drift(f64),
    /// Each measurement starts where the last one was, give or take this share; noise of 1 %.
    Walk(f64),
    /// The same with an outlier.
    WalkAndOutlier(f64),
}

/// Both sides of a run with that many rounds; the second is slower by `worse`.
fn run(rng: &mut ChaCha8Rng, how: Run, rounds: usize, worse: f64) -> (Vec<f64>, Vec<f64>) {
    let mut level = 0.0;
    let mut all: Vec<f64> = (0..2 * rounds)
        .map(|i| {
            if let Run::Walk(step) | Run::WalkAndOutlier(step) = how {
                level += step * normal(rng);
            }
            let noise = match how {
                Run::Noise(size) | Run::Outlier(size) => size * normal(rng),
                Run::Disturbed(size) => {
                    size * (normal(rng) - if rng.random::<f64>() < 0.1 { 8.0 * rng.random::<f64>() } else { 0.0 })
                }
                Run::Skewed(size) => (-size * normal(rng)).exp() - 1.0,
                Run::TwoHumps => 0.01 * normal(rng) - if rng.random::<f64>() < 0.3 { 0.05 } else { 0.0 },
                Run::Drift(size) => 0.01 * normal(rng) + size * i as f64 / (2 * rounds) as f64,
                Run::Walk(_) | Run::WalkAndOutlier(_) => 0.01 * normal(rng) + level,
            };
            100.0 * (1.0 + noise) * if i % 2 == 1 { 1.0 - worse } else { 1.0 }
        })
        .collect();
    if matches!(how, Run::Outlier(_) | Run::WalkAndOutlier(_)) {
        let at = rng.random_range(0..all.len());
        all[at] *= 0.6 + 0.2 * rng.random::<f64>();
    }
    (all.iter().step_by(2).copied().collect(), all.iter().skip(1).step_by(2).copied().collect())
}

/// The signed-rank test of the pairs, exact, two-sided: for comparison only (Wilcoxon, Biometrics Bulletin 1, 1945).
fn signed_ranks(a: &[f64], b: &[f64]) -> f64 {
    let mut differences: Vec<f64> = a.iter().zip(b).map(|(a, b)| b - a).collect();
    differences.sort_by(|x, y| x.abs().total_cmp(&y.abs()));
    let up: usize = (1..).zip(&differences).filter(|(_, d)| **d > 0.0).map(|(rank, _)| rank).sum();
    let n = differences.len();
    let larger = up.max(n * (n + 1) / 2 - up);
    let sums =
        (0u32..1 << n).filter(|signs| (0..n).filter(|i| signs >> i & 1 == 1).map(|i| i + 1).sum::<usize>() >= larger);
    (2.0 * sums.count() as f64 / f64::from(1u32 << n)).min(1.0)
}

/// Shares of runs in which p ≤ α: Mann–Whitney, bounded scores, signed ranks of the pairs, bounded scores in rounds.
fn shares(how: Run, rounds: usize, worse: f64) -> [f64; 4] {
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    let mut found = [0u32; 4];
    for _ in 0..trials() {
        let (a, b) = run(&mut rng, how, rounds, worse);
        let p = [
            mann_whitney(&a, &b),
            Sides::apart(&a, &b).p(),
            Some(signed_ranks(&a, &b)),
            Sides::in_turns(&a, &b, ALPHA).and_then(|sides| sides.p()),
        ];
        for (count, p) in found.iter_mut().zip(p) {
            *count += u32::from(p.is_some_and(|p| p <= ALPHA));
        }
    }
    found.map(|count| f64::from(count) / f64::from(trials()))
}

#[test]
fn rounds_find_more_and_cry_wolf_no_more_often() {
    let runs = [
        Run::Noise(0.01),
        Run::Noise(0.02),
        Run::Outlier(0.01),
        Run::Outlier(0.02),
        Run::Disturbed(0.02),
        Run::Skewed(0.02),
        Run::TwoHumps,
        Run::Drift(0.2),
        Run::Walk(0.01),
        Run::Walk(0.02),
        Run::WalkAndOutlier(0.01),
    ];
    // Three standard errors of a share of α.
    let slack = 3.0 * (ALPHA / f64::from(trials())).sqrt();
    let tables = [(8, 0.0), (8, 0.05), (6, 0.0), (6, 0.05)];
    for (rounds, worse) in tables.into_iter().take(if is_full() { 4 } else { 2 }) {
        println!(
            "| {rounds} rounds, {} % slower | Mann–Whitney | bounded scores | signed ranks | in rounds |",
            worse * 100.0
        );
        println!("| --- | --- | --- | --- | --- |");
        for how in runs {
            let shares @ [whitney, apart, _, turns] = shares(how, rounds, worse);
            println!("| {how:?} | {} |", shares.map(|s| format!("{:.1} %", s * 100.0)).join(" | "));
            if worse == 0.0 {
                // Without a drift every test keeps its level; in rounds also with one.
                assert!(turns <= ALPHA + slack, "{how:?}, {rounds} rounds: {turns}");
                if !matches!(how, Run::Drift(_) | Run::Walk(_) | Run::WalkAndOutlier(_)) {
                    assert!(apart <= ALPHA + slack && whitney <= ALPHA + slack, "{how:?}: {apart} {whitney}");
                }
            } else if rounds == 8 {
                match how {
                    Run::Outlier(size) if size < 0.02 => assert!(apart > 0.9 && turns > 0.9 && whitney < 0.6),
                    Run::Drift(_) => assert!(apart < 0.1 && turns > 0.8, "{apart} {turns}"),
                    Run::Walk(step) => {
                        assert!(turns > apart && (step < 0.02 || turns > apart + 0.2), "{apart} {turns}");
                    }
                    _ => {}
                }
            }
        }
    }
}
