use super::*;
use crate::judge::{
    compared,
    comparison::{Comparison, Rule},
};
use chacha20::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use schemas::metrics;

fn normal(rng: &mut ChaCha8Rng) -> f64 {
    Normal::standard().inverse_cdf(1.0 - rng.random::<f64>())
}

/// The share of comparisons that find a change of 5 %, over pilots that each say how many iterations it takes.
fn found(noise: f64, pilot: usize, comparisons: usize) -> f64 {
    let metric = metrics::find("throughput").unwrap();
    let rule = Rule { better: metric.better, range: metric.range(), min_ratio: 0.025, ..Rule::DEFAULT };
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    let (pilots, trials) = (6, 50);
    let mut hits = 0_i32;
    for _ in 0..pilots {
        let mut side =
            |n: usize, centre: f64| -> Vec<f64> { (0..n).map(|_| centre * (noise * normal(&mut rng)).exp()).collect() };
        let needed = Noise::of(&side(pilot, 100.0), metric).unwrap().needed(metric, rule, 0.05, comparisons);
        let needed = needed.expect("so little noise takes fewer than the most");
        for _ in 0..trials {
            let mut comparison = Comparison::of(&side(needed, 100.0), &side(needed, 95.0), rule);
            comparison.decide_among(comparisons);
            hits += i32::from(comparison.is_noticed());
        }
    }
    f64::from(hits) / f64::from(pilots * trials)
}

#[test]
fn the_iterations_that_it_names_find_the_change() {
    for (noise, pilot, comparisons) in [(0.003, 5, 1), (0.01, 10, 6), (0.02, 12, 1)] {
        let share = found(noise, pilot, comparisons);
        assert!(share >= FOUND, "{noise} {pilot} {comparisons}: {share}");
    }
}

#[test]
fn more_noise_and_more_comparisons_take_more_iterations() {
    let metric = metrics::find("latency.p50").unwrap();
    let rule = Rule { better: metric.better, range: metric.range(), min_ratio: 0.015, ..Rule::DEFAULT };
    let values = |noise: f64| (0..10).map(|i| 100.0 * (1.0 + noise * (f64::from(i) - 4.5) / 4.5)).collect::<Vec<_>>();
    let of = |noise: f64| Noise::of(&values(noise), metric).unwrap();
    let needed = |noise, change, comparisons| of(noise).needed(metric, rule, change, comparisons);
    // Nothing but the number of orders decides: 5 a side at 1 %, 8 with 33 comparisons.
    assert_eq!(needed(0.001, 0.03, 1), Some(5));
    assert_eq!(needed(0.001, 0.03, 33), Some(8));
    assert!(needed(0.02, 0.03, 1) > Some(5));
    assert!(needed(0.02, 0.03, 33) > needed(0.02, 0.03, 1));
    // A change that does not count is never found.
    assert_eq!(needed(0.001, 0.01, 1), None);
    assert!((of(0.02).ratio - 0.0134).abs() < 0.001);
    assert!(Noise::of(&[1.0], metric).is_none());
    assert!(Noise::of(&[0.0, 0.0], metric).is_none());
}

#[test]
fn looks_double_up_to_the_last() {
    assert_eq!(looks(10, 80), [10, 20, 40, 80]);
    assert_eq!(looks(5, 30), [5, 10, 20, 30]);
    assert_eq!(looks(9, 4), [4]);
    assert_eq!(looks(0, 3), [1, 2, 3]);
}

#[test]
fn a_statement_needs_the_whole_interval() {
    let said = |name: &str, low, high| {
        let row = VerdictRow {
            ci_low_ratio: Some(low),
            ci_high_ratio: Some(high),
            limit_ratio: Some(0.03),
            ..VerdictRow::default()
        };
        said(metrics::find(name).unwrap(), &row)
    };
    assert_eq!(said("throughput", -0.06, -0.04), Said::Worse);
    assert_eq!(said("throughput", -0.06, -0.02), Said::Undecided);
    assert_eq!(said("throughput", -0.02, 0.2), Said::NoWorse);
    assert_eq!(said("latency.p50", 0.04, 0.2), Said::Worse);
    assert_eq!(said("latency.p50", -0.5, 0.02), Said::NoWorse);
    assert_eq!(said("latency.p50", 0.01, 0.2), Said::Undecided);
    let neither = metrics::METRICS.iter().find(|metric| metric.better == Better::Neither).unwrap().name;
    assert_eq!(said(neither, 0.04, 0.2), Said::Worse);
    assert_eq!(said(neither, -0.5, -0.04), Said::Worse);
    assert_eq!(said(neither, -0.5, 0.01), Said::Undecided);
    assert_eq!(said(neither, -0.01, 0.01), Said::NoWorse);
    let throughput = metrics::find("throughput").unwrap();
    assert_eq!(super::said(throughput, &VerdictRow::default()), Said::Undecided);
}

/// Shares of sequences that say worse, no worse and neither, and the mean number of iterations. The baseline has ten.
fn shares(trials: usize, variation: f64, change: f64) -> [f64; 4] {
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let mut normal = move || {
        let (u, v): (f64, f64) = (rng.random(), rng.random());
        (-2.0 * (1.0 - u).ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    };
    let looks = looks(10, 80);
    let alpha = Rule::DEFAULT.alpha / looks.len() as f64;
    let rule = Rule { alpha, better: Better::Higher, ..Rule::DEFAULT };
    let throughput = metrics::find("throughput").unwrap();
    let mut counts = [0.0; 4];
    for _ in 0..trials {
        let base: Vec<f64> = (0..10).map(|_| 100.0 * (1.0 + variation * normal())).collect();
        let mut new = Vec::new();
        let mut outcome = Said::Undecided;
        for n in 1..=80 {
            if outcome != Said::Undecided {
                break;
            }
            new.push(100.0 * (1.0 + change) * (1.0 + variation * normal()));
            if looks.contains(&n) {
                let mut row = VerdictRow::default();
                compared(&mut row, &Comparison::of(&base, &new, rule));
                outcome = said(throughput, &row);
            }
        }
        counts[outcome as usize] += 1.0;
        counts[3] += new.len() as f64;
    }
    counts.map(|count| count / trials as f64)
}

#[test]
fn decisions_are_rarely_false() {
    // A change as large as the smallest that counts is the hardest case: neither statement is certain there.
    let [worse, no_worse, ..] = shares(200, 0.01, -0.0301);
    assert!(no_worse <= 0.01 && worse < 0.2, "{worse} {no_worse}");
    let [worse, no_worse, ..] = shares(200, 0.01, 0.0);
    assert!(worse == 0.0 && no_worse > 0.95, "{worse} {no_worse}");
    let [worse, no_worse, ..] = shares(200, 0.01, -0.06);
    assert!(worse > 0.95 && no_worse == 0.0, "{worse} {no_worse}");
}

/// The table of docs/reference/statistics.md.
#[test]
#[ignore = "simulation"]
fn simulation() {
    for variation in [0.01, 0.02, 0.03] {
        for change in [0.0, -0.015, -0.0299, -0.0301, -0.05, -0.1] {
            let [worse, no_worse, neither, n] = shares(2000, variation, change);
            let percent = |share: f64| format!("{:.1} %", share * 100.0);
            println!(
                "| {:.0} % | {:.2} % | {} | {} | {} | {n:.0} |",
                variation * 100.0,
                -change * 100.0,
                percent(worse),
                percent(no_worse),
                percent(neither)
            );
        }
    }
}
