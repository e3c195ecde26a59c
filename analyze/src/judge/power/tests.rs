use schemas::metrics;

use super::*;

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
            hits += i32::from(comparison.verdict == Verdict::Regression);
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
