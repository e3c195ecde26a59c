use chacha20::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use schemas::metrics;

use super::*;
use crate::judge::{
    compared,
    comparison::{Comparison, Rule},
};

#[test]
fn looks_double_up_to_the_last() {
    let looks = |first, last| Looks::new(first, last).0;
    assert_eq!(looks(10, 80), [10, 20, 40, 80]);
    assert_eq!(looks(5, 30), [5, 10, 20, 30]);
    assert_eq!(looks(9, 4), [4]);
    assert_eq!(looks(0, 3), [1, 2, 3]);
}

#[test]
fn a_statement_needs_the_whole_interval() {
    let said = |name: &str, low, high| {
        let row = VerdictRow { ci_low: Some(low), ci_high: Some(high), limit: Some(0.03), ..VerdictRow::default() };
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
    let looks = Looks::new(10, 80);
    let alpha = Rule::DEFAULT.alpha / looks.count() as f64;
    let rule = Rule { alpha, better: Better::Higher, ..Rule::DEFAULT };
    let throughput = metrics::find("throughput").unwrap();
    let mut counts = [0.0; 4];
    for _ in 0..trials {
        let base: Vec<f64> = (0..10).map(|_| 100.0 * (1.0 + variation * normal())).collect();
        let mut new = Vec::new();
        let mut outcome = Said::Undecided;
        for n in 1..=looks.last() {
            if outcome != Said::Undecided {
                break;
            }
            new.push(100.0 * (1.0 + change) * (1.0 + variation * normal()));
            if looks.has(n) {
                let mut row = VerdictRow { limit: Some(rule.min_ratio), ..VerdictRow::default() };
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
