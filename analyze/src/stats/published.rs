//! The statistics against SciPy 1.17.1 (and R where it says so). Above each number stands the call that made it, with
//! `S`, `T`, `SKEWED`, `A`, `B` as below.

use super::{bootstrap, compare, confidence, moments, quantiles, series};

const S: [f64; 10] = [41.2, 42.3, 40.8, 41.9, 42.8, 41.1, 41.7, 42.0, 41.5, 39.9];
const T: [f64; 8] = [40.1, 40.9, 39.7, 40.5, 41.0, 40.3, 39.2, 40.7];
const SKEWED: [f64; 10] = [0.2, 0.5, 0.9, 1.1, 1.3, 1.9, 2.8, 4.4, 7.1, 12.5];
const A: [f64; 8] = [1.0, 2.0, 2.0, 3.0, 3.0, 3.0, 4.0, 5.0];
const B: [f64; 9] = [2.0, 3.0, 4.0, 4.0, 5.0, 6.0, 6.0, 7.0, 7.0];

#[track_caller]
fn close(ours: f64, theirs: f64, tolerance: f64) {
    assert!((ours - theirs).abs() <= tolerance * theirs.abs(), "{ours} is not {theirs}");
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut values = values.to_vec();
    quantiles::sort(&mut values);
    values
}

#[test]
fn t_quantiles() {
    // scipy.stats.t.ppf(p, df)
    for (p, df, expected) in [
        (0.975, 1.0, 12.706_204_736_174_694),
        (0.975, 4.0, 2.776_445_105_197_793_4),
        (0.995, 9.0, 3.249_835_541_592_126),
        (0.95, 29.5, 1.698_177_638_838_005_6),
    ] {
        close(confidence::t_quantile(p, df).unwrap(), expected, 1e-10);
    }
}

#[test]
fn moments_and_quantiles() {
    // numpy.mean(S), numpy.var(S, ddof=1)
    close(moments::mean(&S).unwrap(), 41.519_999_999_999_996, 1e-14);
    close(moments::stddev(&S).unwrap().powi(2), 0.675_111_111_111_110_4, 1e-12);
    // numpy.quantile(S, [.1, .5, .9, .99])
    for (q, expected) in [(0.1, 40.71), (0.5, 41.6), (0.9, 42.35), (0.99, 42.755)] {
        close(quantiles::quantile(&sorted(&S), q).unwrap(), expected, 1e-12);
    }
    // scipy.stats.trim_mean(S, .1), scipy.stats.trim_mean(S, .25)
    close(quantiles::trimmed_mean(&sorted(&S), 0.1).unwrap(), 41.5625, 1e-12);
    close(quantiles::trimmed_mean(&sorted(&S), 0.25).unwrap(), 41.566_666_666_666_67, 1e-12);
}

#[test]
fn intervals_of_the_mean() {
    // scipy.stats.t.interval(.95, 9, numpy.mean(S), scipy.stats.sem(S)), and .99
    for (level, low, high) in
        [(0.95, 40.932_225_958_406_4, 42.107_774_041_593_59), (0.99, 40.675_598_469_368_36, 42.364_401_530_631_63)]
    {
        let i = confidence::t_interval(&S, level).unwrap();
        close(i.low, low, 1e-10);
        close(i.high, high, 1e-10);
    }
}

#[test]
fn coverage_of_order_statistics() {
    // 1 - 2 * scipy.stats.binom.cdf(k - 1, n, .5) for (n, k) = (10, 2), (25, 8), (100, 40)
    for (n, k, coverage) in
        [(10, 2, 0.978_515_625), (25, 8, 0.956_714_749_336_242_7), (100, 40, 0.964_799_799_782_295_1)]
    {
        let values: Vec<f64> = (1..=n).map(f64::from).collect();
        let i = confidence::median_interval(&values, 0.95).unwrap();
        assert_eq!((i.low, i.high), (f64::from(k), f64::from(n + 1 - k)));
        close(i.level, coverage, 1e-12);
    }
}

#[test]
fn bootstrap_intervals() {
    // scipy.stats.bootstrap((SKEWED,), numpy.mean, method='BCa', n_resamples=999999, random_state=default_rng(1))
    // Ours has 10 000 resamples, and the seed moves the ends of so skewed a sample by 2 % (SciPy's too, with as many).
    let i = bootstrap::bca(&SKEWED, 0.95, bootstrap::SEED, moments::mean).unwrap();
    close(i.low, 1.61, 0.04);
    close(i.high, 6.65, 0.04);
    // scipy.stats.bootstrap((S,), numpy.mean, …)
    let i = bootstrap::bca(&S, 0.95, bootstrap::SEED, moments::mean).unwrap();
    close(i.low, 40.98, 0.001);
    close(i.high, 41.96, 0.001);
    // scipy.stats.bootstrap((S,), numpy.median, …), and of SKEWED
    let median = |values: &[f64]| quantiles::select_median(&mut values.to_vec());
    let i = bootstrap::bca(&S, 0.95, bootstrap::SEED, median).unwrap();
    close(i.low, 41.1, 1e-9);
    close(i.high, 42.1, 1e-9);
    // The resampled medians are few: SciPy's own end is 4.5 with a million of them and 4.95 with ten thousand.
    let i = bootstrap::bca(&SKEWED, 0.95, bootstrap::SEED, median).unwrap();
    close(i.low, 0.8, 1e-9);
    assert!((4.5..=4.95).contains(&i.high), "{i:?}");
    // scipy.stats.bootstrap((S,), lambda a, axis: scipy.stats.trim_mean(a, .1, axis=axis), …)
    let trimmed = |values: &[f64]| quantiles::trimmed_mean(&sorted(values), 0.1);
    let i = bootstrap::bca(&S, 0.95, bootstrap::SEED, trimmed).unwrap();
    close(i.low, 41.0, 0.001);
    close(i.high, 42.025, 0.001);
    // scipy.stats.bootstrap((S, T), lambda a, b: mean(b) / mean(a), …)
    let ratio = |a: &[f64], b: &[f64]| Some(moments::mean(b)? / moments::mean(a)?);
    let (i, _) = bootstrap::bca_two(&S, &T, 0.95, bootstrap::SEED, ratio).unwrap();
    close(i.low, 0.955_917_300_380_228_3, 0.001);
    close(i.high, 0.985_594_456_601_021_1, 0.001);
}

#[test]
fn rank_tests() {
    // scipy.stats.mannwhitneyu(S, T, method='exact')
    close(compare::mann_whitney(&S, &T).unwrap(), 0.003_062_297_179_944_238_7, 1e-10);
    // scipy.stats.mannwhitneyu([1, 2, 3], [4, 5, 6], method='exact')
    close(compare::mann_whitney(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]).unwrap(), 0.1, 1e-12);
    // scipy.stats.mannwhitneyu(A, B, method='asymptotic')
    close(compare::mann_whitney(&A, &B).unwrap(), 0.028_273_367_813_967_3, 1e-9);
}

#[test]
fn t_tests() {
    // scipy.stats.ttest_ind(T, S, equal_var=False)
    let w = compare::welch(&S, &T).unwrap();
    close(w.t, -3.597_409_946_456_944_7, 1e-10);
    close(w.df, 15.961_080_510_323_615, 1e-10);
    close(w.p, 0.002_420_487_691_965_478_7, 1e-9);
}

#[test]
fn adjusted_p_values() {
    // R: p.adjust(c(0.01, 0.02, 0.03, 0.04, 0.05), "holm") gives 0.05 0.08 0.09 0.09 0.09; here in another order.
    let p = [0.03, 0.01, 0.05, 0.02, 0.04].map(Some);
    for (ours, theirs) in compare::holm(&p).into_iter().zip([0.09, 0.05, 0.09, 0.08, 0.09]) {
        close(ours.unwrap(), theirs, 1e-12);
    }
}

#[test]
fn series_in_time() {
    // x = S - mean(S); dot(x[:-1], x[1:]) / dot(x, x)
    close(series::lag1(&S).unwrap(), -0.181_435_154_707_042_47, 1e-10);
    // scipy.stats.linregress(range(10), S)
    let d = series::drift(&S).unwrap();
    close(d.slope, -0.082_424_242_424_242_34, 1e-10);
    close(d.p, 0.393_582_285_589_620_33, 1e-9);
    let x: Vec<f64> = (0..10).map(f64::from).collect();
    let line = series::line(&x, &S).unwrap();
    close(line.intercept, 41.890_909_090_909_08, 1e-12);
    close(line.r2.unwrap(), 0.303_719_765_462_065_03_f64.powi(2), 1e-9);
}
