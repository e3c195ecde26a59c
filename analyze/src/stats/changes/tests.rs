use super::*;

/// Noise of a shape, with a standard deviation of about 1.
fn noise(shape: &str, rng: &mut ChaCha8Rng) -> f64 {
    let normal = |rng: &mut ChaCha8Rng| {
        let (a, b): (f64, f64) =
            (rng.random_range(f64::MIN_POSITIVE..1.0), rng.random_range(0.0..std::f64::consts::TAU));
        (-2.0 * a.ln()).sqrt() * b.cos()
    };
    match shape {
        "skewed" => (0.8 * normal(rng)).exp(),
        "two-humped" => 0.3 * normal(rng) + if rng.random_bool(0.5) { 2.0 } else { 0.0 },
        "rarely higher" => 0.3 * normal(rng) + if rng.random_bool(0.1) { 3.0 } else { 0.0 },
        _ => normal(rng),
    }
}

/// A series of 100 + noise in percent, with steps in percent at their indexes.
fn series(seed: u64, n: usize, shape: &str, steps: &[(usize, f64)]) -> Vec<f64> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let level = |i: usize| steps.iter().filter(|(at, _)| *at <= i).map(|(_, step)| step).sum::<f64>();
    (0..n).map(|i| 100.0 + level(i) + noise(shape, &mut rng)).collect()
}

fn places(values: &[f64]) -> Vec<usize> {
    changes(values).iter().map(|change| change.at).collect()
}

#[test]
fn steps_are_found_where_they_are_and_nothing_else() {
    let found = places(&series(1, 90, "normal", &[(30, -5.0), (60, 8.0)]));
    assert_eq!(found, [30, 60]);
    // A rise and fall of eight values amid two hundred.
    let found = places(&series(2, 200, "normal", &[(100, 5.0), (108, -5.0)]));
    assert_eq!(found, [100, 108]);
    let long = places(&series(3, 1500, "normal", &[(390, 4.0), (1111, -4.0)]));
    assert_eq!(long, [390, 1111]);
}

#[test]
fn what_does_not_vary_or_is_too_short_has_no_change() {
    assert!(places(&[3.3; 50]).is_empty());
    assert!(places(&[1.0, 1.0, 1.0, 9.0, 9.0]).is_empty());
    assert!(places(&[]).is_empty());
    let outlier: Vec<f64> =
        series(4, 50, "normal", &[]).iter().enumerate().map(|(i, v)| v + if i == 30 { 50.0 } else { 0.0 }).collect();
    assert!(places(&outlier).is_empty(), "one outlier is no level");
}

#[test]
fn the_same_values_give_the_same_answer() {
    let values = series(5, 120, "skewed", &[(70, 3.0)]);
    assert_eq!(changes(&values), changes(&values));
}

#[test]
fn a_drift_is_called_a_drift_and_a_step_a_step() {
    let drift: Vec<f64> = series(6, 100, "normal", &[]).iter().enumerate().map(|(i, v)| v + i as f64 * 0.1).collect();
    assert!(
        matches!(movements(&drift).as_slice(), [Movement::Drift { start: 0, end: 100 }]),
        "{:?}",
        movements(&drift)
    );
    let step = series(7, 100, "normal", &[(50, 4.0)]);
    assert!(matches!(movements(&step).as_slice(), [Movement::Step(Change { at: 50, .. })]), "{:?}", movements(&step));
    let stairs = series(8, 120, "normal", &[(40, 6.0), (80, 6.0)]);
    assert_eq!(movements(&stairs).len(), 2, "{:?}", movements(&stairs));
}

/// A level that rises and falls again has one drift after the other, and no value in both.
#[test]
fn drifts_that_turn_share_no_value() {
    let mut turned = 0;
    for seed in 0..12 {
        for slope in [0.05, 0.1, 0.3] {
            let n = 120 + 40 * usize::try_from(seed).unwrap();
            let height = |i: usize| (i % 80).min(80 - i % 80) as f64 * slope;
            let values: Vec<f64> =
                series(seed, n, "normal", &[]).iter().enumerate().map(|(i, v)| v + height(i)).collect();
            let mut end_before = 0;
            let mut was_drift = false;
            for movement in movements(&values) {
                let (start, end, is_drift) = match movement {
                    Movement::Step(change) => (change.at, change.at, false),
                    Movement::Drift { start, end } => (start, end, true),
                };
                assert!(start >= end_before && end >= start && end <= n, "{seed} {slope}: {:?}", movements(&values));
                turned += usize::from(is_drift && was_drift);
                (end_before, was_drift) = (end, is_drift);
            }
        }
    }
    assert!(turned > 3, "{turned}");
}

#[test]
fn few_stationary_series_have_a_change() {
    for shape in ["normal", "skewed", "two-humped", "rarely higher"] {
        let false_ones = (0..60).filter(|seed| !places(&series(1000 + seed, 100, shape, &[])).is_empty()).count();
        // One in a hundred: more than four of sixty come once in ten thousand times.
        assert!(false_ones <= 4, "{shape}: {false_ones} of 60");
    }
}

/// The table in docs/reference/statistics.md.
#[test]
#[ignore = "takes minutes in a release build"]
fn simulation() {
    const SERIES: u64 = 1000;
    let share = |count: usize| format!("{:.1} %", 100.0 * count as f64 / SERIES as f64);
    let mut lines = Vec::new();
    for runs in [20, 100, 365] {
        for shape in ["normal", "skewed", "two-humped", "rarely higher"] {
            let count = (0..SERIES).filter(|seed| !places(&series(*seed, runs, shape, &[])).is_empty()).count();
            lines.push(format!("{runs} runs, stationary, {shape}: {}", share(count)));
        }
    }
    for correlation in [0.2, 0.4] {
        let correlated = |seed: u64| {
            let mut state = 0.0;
            let step = |v: &f64| {
                state = correlation * state + (v - 100.0);
                100.0 + state
            };
            series(seed, 100, "normal", &[]).iter().map(step).collect::<Vec<f64>>()
        };
        let count = (0..SERIES).filter(|seed| !places(&correlated(*seed)).is_empty()).count();
        lines.push(format!("stationary, lag-1 correlation {correlation}: {}", share(count)));
    }
    for before in [20, 40, 100, 365] {
        let found = |seed: u64| {
            let values = series(seed, before + 5, "normal", &[(before, -3.0)]);
            (3..=5).any(|n| places(&values[..before + n]).iter().any(|at| at.abs_diff(before) <= 2))
        };
        lines.push(format!(
            "3 % at 1 % noise after {before} runs, found within five: {}",
            share((0..SERIES).filter(|s| found(*s)).count())
        ));
    }
    for slope in [0.02, 0.05, 0.1] {
        let drift = |seed: u64| {
            series(seed, 100, "normal", &[]).iter().enumerate().map(|(i, v)| v + slope * i as f64).collect::<Vec<_>>()
        };
        let kinds: Vec<Vec<Movement>> = (0..SERIES).map(|seed| movements(&drift(seed))).collect();
        let drifts =
            kinds.iter().filter(|m| m.iter().all(|m| matches!(m, Movement::Drift { .. })) && !m.is_empty()).count();
        let steps = kinds.iter().filter(|m| m.iter().any(|m| matches!(m, Movement::Step(_)))).count();
        lines.push(format!("drift of {slope} % per run: drift {}, step {}", share(drifts), share(steps)));
    }
    println!("{}", lines.join("\n"));
}
