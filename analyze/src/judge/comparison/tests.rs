use super::*;

const RULE: Rule = Rule { better: Better::Higher, range: Range::POSITIVE, ..Rule::DEFAULT };

fn compared(base: &[f64], new: &[f64], rule: Rule) -> Comparison {
    let mut c = Comparison::of(base, new, rule);
    decide([&mut c], true);
    c
}

/// Ten values around `mean` that are all different.
fn around(mean: f64) -> Vec<f64> {
    [0.3, -0.8, 0.9, -0.1, -0.5, 0.6, 0.1, -0.3, 0.8, -0.9].iter().map(|x| mean * (1.0 + x / 100.0)).collect()
}

#[test]
fn every_finding() {
    for test in [Test::Rank, Test::MannWhitney, Test::Welch, Test::Bootstrap] {
        let rule = Rule { test, ..RULE };
        let finding = |new: f64| compared(&around(100.0), &around(new), rule).verdict;
        assert_eq!(finding(95.0), Verdict::Regression, "{test:?}");
        assert_eq!(finding(105.0), Verdict::Improvement, "{test:?}");
        assert_eq!(finding(98.5), Verdict::Same, "{test:?}");
        assert_eq!(finding(100.1), Verdict::Same, "{test:?}");
        let lower = Rule { better: Better::Lower, ..rule };
        assert_eq!(compared(&around(100.0), &around(105.0), lower).verdict, Verdict::Regression, "{test:?}");
    }
}

#[test]
fn a_change_must_pass_both_bounds() {
    let rule = Rule { min_difference: 10.0, ..RULE };
    assert_eq!(compared(&around(100.0), &around(95.0), rule).verdict, Verdict::Same);
    assert_eq!(compared(&around(1000.0), &around(950.0), rule).verdict, Verdict::Regression);
}

#[test]
fn few_iterations_are_inconclusive_and_say_what_it_takes() {
    let c = compared(&[100.0, 101.0, 102.0], &[80.0, 81.0, 82.0], RULE);
    assert_eq!((c.verdict, c.needed), (Verdict::Inconclusive, Some(5)));
    assert_eq!(c.notes[0], "need 5 iterations per side for α = 0.01");
    let c = compared(&around(100.0)[..6], &around(80.0)[..6], Rule { test: Test::Bootstrap, ..RULE });
    assert_eq!((c.verdict, c.needed), (Verdict::Inconclusive, Some(8)));
}

#[test]
fn from_nothing_to_something_takes_a_difference_that_counts() {
    let lower = Rule { better: Better::Lower, ..RULE };
    let some = [3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
    let c = compared(&[0.0; 6], &some, lower);
    assert_eq!((c.verdict, c.change), (Verdict::Inconclusive, None));
    assert!(c.notes[0].contains("the baseline is 0"), "{:?}", c.notes);
    let counted = Rule { min_difference: 2.0, ..lower };
    assert_eq!(compared(&[0.0; 6], &some, counted).verdict, Verdict::Regression);
    assert_eq!(compared(&[0.0; 5], &[0.0; 5], lower).verdict, Verdict::Same);
}

#[test]
fn a_side_without_values() {
    for (base, new, verdict, note) in [
        (&[][..], &around(1.0)[..], Verdict::Missing, "the baseline has no sample"),
        (&around(1.0), &[], Verdict::Missing, "the new side has no sample"),
        (&[], &[], Verdict::Inconclusive, "the baseline has no sample"),
    ] {
        let c = compared(base, new, RULE);
        assert_eq!((c.verdict, c.change, c.notes[0].as_str()), (verdict, None, note));
    }
}

/// Nearly half of the new side's values lost packets: the medians alone do not tell.
#[test]
fn sides_that_differ_in_more_than_their_medians_are_not_the_same() {
    let (calm, lossy) = ([0.0; 20], [[0.0; 11].as_slice(), &[0.5; 9]].concat());
    let lower = |min_difference| Rule { better: Better::Lower, range: Range::ANY, min_difference, ..RULE };
    let told =
        "p = 0.0012 says that the sides differ, and the interval that their medians may be equal: look at the values";
    for (base, new) in [(&calm[..], &lossy[..]), (&lossy, &calm)] {
        let found = compared(base, new, lower(0.0));
        assert_eq!((found.verdict, found.notes[0].as_str()), (Verdict::Inconclusive, told), "{found:?}");
        assert_eq!(compared(base, new, lower(0.6)).verdict, Verdict::Same, "no value differs by so much");
        assert_eq!(compared(base, new, Rule { better: Better::Higher, ..lower(0.0) }).verdict, Verdict::Inconclusive);
    }
    // Values that tie, and a few that do not, are chance.
    let few = [[0.0; 17].as_slice(), &[0.5; 3]].concat();
    for (base, new) in [(&calm[..], &few[..]), (&few, &calm), (&calm, &calm), (&lossy, &lossy)] {
        assert_eq!(compared(base, new, lower(0.0)).verdict, Verdict::Same, "{new:?}");
    }
}

#[test]
fn a_change_of_exactly_the_least_counts_whatever_the_baseline() {
    for base in 1..60 {
        let base: Vec<f64> = around(f64::from(base) * 0.7);
        let scaled = |by: f64| base.iter().map(|v| v * by).collect::<Vec<f64>>();
        for test in [Test::Rank, Test::MannWhitney, Test::Welch] {
            let rule = Rule { test, ..RULE };
            assert_eq!(compared(&base, &scaled(0.97), rule).verdict, Verdict::Regression, "{test:?} {base:?}");
            assert_eq!(compared(&base, &scaled(1.03), rule).verdict, Verdict::Improvement, "{test:?} {base:?}");
            let in_unit = Rule { min_ratio: 0.0, min_difference: base[0] * 0.03, ..rule };
            let (even, less) = (vec![base[0]; 10], vec![base[0] * 0.97; 10]);
            if test == Test::Rank {
                assert_eq!(compared(&even, &less, in_unit).verdict, Verdict::Regression, "{base:?}");
            }
        }
    }
}

#[test]
fn several_comparisons_pay_for_each_other() {
    // 5 against 5 reach p = 0.008 at best: alone that is significant, twice it is not.
    let pair = || Comparison::of(&around(100.0)[..5], &around(90.0)[..5], RULE);
    let mut two = [pair(), pair()];
    decide(&mut two, true);
    assert!(two.iter().all(|c| c.verdict == Verdict::Inconclusive && c.needed == Some(6)), "{two:?}");
    let mut alone = [pair(), pair()];
    decide(&mut alone, false);
    assert!(alone.iter().all(|c| c.verdict == Verdict::Regression));
}

#[test]
fn an_outlier_among_eight_does_not_hide_a_regression() {
    let (mut base, new) = (around(100.0)[..8].to_vec(), around(95.0)[1..9].to_vec());
    base[5] = 60.0;
    let found = |test| compared(&base, &new, Rule { test, ..RULE });
    assert_eq!(found(Test::Rank).verdict, Verdict::Regression);
    let found = found(Test::MannWhitney);
    assert_eq!((found.verdict, found.p.map(|p| format!("{p:.4}"))), (Verdict::Inconclusive, Some("0.0104".to_owned())));
    let (low, high) = found.interval.unwrap();
    assert!(low < 0.0 && high >= 0.0 && found.notes[0].contains("p is above α"), "{found:?}");
}

#[test]
fn a_correction_that_undoes_significance_is_named() {
    let base: Vec<f64> = (0..7).map(|i| 101.0 + f64::from(i)).collect();
    let new: Vec<f64> = base.iter().map(|v| v - 4.5).collect();
    let mut seven: Vec<Comparison> =
        (0..7).map(|i| Comparison::of(&base, if i == 0 { &new } else { &base }, RULE)).collect();
    decide(&mut seven, true);
    let found = &seven[0];
    assert_eq!(found.verdict, Verdict::Inconclusive, "{found:?}");
    // The interval is that of this comparison alone, and does not reach 0.
    assert!(found.interval.unwrap().1 < 0.0, "{found:?}");
    assert!(found.notes[0].contains(" alone, but ") && found.notes[0].contains("with 7 comparisons"), "{found:?}");
}

#[test]
fn rounds_cancel_a_drift_that_both_sides_share() {
    let drifting: Vec<(f64, f64)> = (around(100.0).iter().zip(around(95.0)[1..].iter().chain(&[95.3])).enumerate())
        .map(|(i, (a, b))| (a * (1.0 + i as f64 / 50.0), b * (1.0 + i as f64 / 50.0)))
        .collect();
    let mut c = Comparison::in_turns(&drifting, RULE, 1);
    decide([&mut c], true);
    assert_eq!((c.verdict, c.rounds), (Verdict::Regression, Some(10)), "{c:?}");
    let (a, b): (Vec<f64>, Vec<f64>) = drifting.into_iter().unzip();
    assert_eq!(compared(&a, &b, RULE).verdict, Verdict::Inconclusive);
    // Five rounds are too few to be kept apart at 1 %.
    assert_eq!(Comparison::in_turns(&[(1.0, 2.0); 5], RULE, 1).rounds, None);
}

#[test]
fn a_change_that_the_medians_do_not_have_is_explained() {
    // Two humps each: most pairs are further apart than the medians.
    let base = [1.0, 1.01, 1.02, 1.03, 2.2, 2.21, 2.22, 2.23, 2.24];
    let new = [2.6, 2.61, 2.62, 2.63, 2.64, 3.8, 3.81, 3.82, 3.83];
    let told = "the medians differ by +20 %, the change is the median over all pairs";
    for test in [Test::Rank, Test::MannWhitney] {
        let found = compared(&base, &new, Rule { test, ..RULE });
        assert!(found.verdict == Verdict::Improvement && found.change.unwrap() > 0.5, "{found:?}");
        assert_eq!(found.notes.first().map(String::as_str), Some(told), "{test:?}");
    }
    // The decisive reason comes first.
    let mut found = Comparison::of(&base, &new, Rule { better: Better::Lower, ..RULE });
    found.decide_among(1000);
    assert_eq!((found.verdict, &found.notes[1][..]), (Verdict::Inconclusive, told), "{found:?}");
    // Without such values the two are close, and the others compare the centres themselves.
    let quiet = compared(&around(100.0), &around(90.0), RULE);
    assert_eq!(quiet.notes, Vec::<String>::new());
    let welch = compared(&base, &new, Rule { test: Test::Welch, ..RULE });
    assert!(!welch.notes.iter().any(|n| n.contains("medians")), "{welch:?}");
}

#[test]
fn a_change_within_rounds_against_that_of_the_medians_is_explained() {
    // The machine changes its speed between rounds. The second side wins every round, and has the lower median.
    let base = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0];
    let rounds: Vec<(f64, f64)> =
        base.iter().enumerate().map(|(i, v)| (v + i as f64 / 1e3, v * 1.09 + i as f64 / 1e3)).collect();
    let rounds = [&rounds[..], &[(2.2, 1.2), (2.2, 1.2)]].concat();
    let mut found = Comparison::in_turns(&rounds, RULE, 1);
    decide([&mut found], true);
    assert!(found.rounds.is_some(), "{found:?}");
    let told = found.notes.iter().find(|n| n.starts_with("the medians differ by "));
    assert!(told.is_some_and(|n| n.ends_with("within blocks of rounds")), "{found:?}");
}

/// The baseline was disturbed, so it is open how much better the new side is. That it is no worse is certain.
#[test]
fn a_promise_with_one_side_is_judged_on_that_side() {
    let base = [94.6, 90.1, 95.4, 94.1, 95.5, 89.9, 95.2, 91.0];
    let new = [95.6, 95.5, 95.7, 95.6, 95.4, 95.6, 95.7, 95.5];
    let rule = Rule { min_ratio: 0.02, ..RULE };
    let found = compared(&base, &new, rule);
    let (low, high) = found.interval.unwrap();
    assert!(low > -0.02 && high > 0.02 && found.p.unwrap() > 0.0, "{found:?}");
    assert_eq!((found.verdict, found.needed, found.notes.len()), (Verdict::NoWorse, None, 0), "{found:?}");
    // Room on the bad side stays room.
    assert_eq!(compared(&new, &base, rule).verdict, Verdict::Inconclusive);
    let slower = |values: &[f64]| values.iter().map(|v| 1e4 / v).collect::<Vec<_>>();
    let lower = Rule { better: Better::Lower, ..rule };
    assert_eq!(compared(&slower(&base), &slower(&new), lower).verdict, Verdict::NoWorse);
    // A metric that is neither better nor worse has two sides.
    let neither = Rule { better: Better::Neither, ..rule };
    assert_eq!(compared(&base, &new, neither).verdict, Verdict::Inconclusive);
}

/// A count that was 0 has no ratio: the interval of the difference is judged.
#[test]
fn a_difference_without_a_ratio_is_judged_by_its_interval() {
    let base = [0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0];
    let new = [1.0, 2.0, 0.0, 3.0, 1.0, 2.0, 1.0, 0.0];
    let lower = |min_difference| Rule { better: Better::Lower, min_difference, ..RULE };
    let found = compared(&base, &new, lower(5.0));
    assert_eq!((found.verdict, found.change), (Verdict::Same, None), "{found:?}");
    let found = compared(&base, &new, lower(2.0));
    assert_eq!(found.verdict, Verdict::Inconclusive);
    assert_eq!(found.notes[0], "the difference lies between 0 and 2.00, and 2.00 counts");
    let fewer = compared(&[-4.0, -3.0, -5.0, -4.5, -3.5, -4.2], &[-9.0, -8.0, -30.0, -7.0, -9.5, -8.8], lower(2.0));
    assert_eq!((fewer.verdict, fewer.change), (Verdict::Improvement, None), "{fewer:?}");
}

#[test]
fn a_positive_quantity_cannot_lose_more_than_all() {
    let base = [1.0, 30.0, 100.0, 100.0, 110.0, 400.0];
    let new = [0.0, 0.0, 1.0, 2.0, 90.0, 350.0];
    for test in [Test::Rank, Test::MannWhitney, Test::Welch] {
        let found = Comparison::of(&base, &new, Rule { test, ..RULE });
        let (low, high) = found.interval.unwrap();
        assert!(low >= -1.0 && high > low, "{test:?} {low} {high}");
        // A difference of two latencies may be less than 0: nothing is left of it then.
        let added: Vec<f64> = new.iter().map(|v| v - 20.0).collect();
        let signed = Comparison::of(&base, &added, Rule { test, range: Range::ANY, ..RULE });
        assert!(signed.interval.unwrap().0 >= -1.0, "{test:?} {signed:?}");
    }
}

/// Of one stream: 95th percentiles of the added latency, in milliseconds, by two congestion controls. Differences over the
/// baseline's median would reach from −146 %.
#[test]
fn ratios_are_taken_on_logarithms() {
    let cubic = [49.0, 48.1, 12.2, 50.3, 71.6];
    let bbr = [7.2, 9.5, 6.1, 8.8, 7.7];
    for range in [Range::POSITIVE, Range::ANY] {
        let rule = Rule { better: Better::Lower, range, ..Rule::DEFAULT };
        let found = compared(&cubic, &bbr, rule);
        let (low, high) = found.interval.unwrap();
        assert!(low > -1.0 && high < 0.0 && found.verdict == Verdict::Improvement, "{found:?}");
        // A ratio and its reciprocal are one statement.
        let back = compared(&bbr, &cubic, rule);
        let (back_low, back_high) = back.interval.unwrap();
        for (there, back) in [(found.change.unwrap(), back.change.unwrap()), (low, back_high), (high, back_low)] {
            assert!(((1.0 + there) * (1.0 + back) - 1.0).abs() < 1e-9, "{there} {back}");
        }
    }
}

proptest::proptest! {
    /// Verdict, reason, p and interval never contradict each other.
    #[test]
    fn a_verdict_agrees_with_its_interval(
        base in proptest::collection::vec(0u32..40, 0..12), new in proptest::collection::vec(0u32..40, 0..12),
        coarse in 1u32..30, by in -30i32..30, least in 0usize..2, test in 0usize..4, comparisons in 1usize..9, in_turns: bool,
    ) {
        let test = [Test::Rank, Test::MannWhitney, Test::Welch, Test::Bootstrap][test];
        let rule = Rule { test, ..RULE };
        let side = |values: &[u32], by: f64| -> Vec<f64> {
            values.iter().map(|v| [60.0 + by, 0.0][least] + f64::from(v / coarse * coarse)).collect()
        };
        let (base, new) = (side(&base, 0.0), side(&new, f64::from(by)));
        let rounds: Vec<(f64, f64)> = base.iter().copied().zip(new.iter().copied()).collect();
        let mut c = if in_turns { Comparison::in_turns(&rounds, rule, comparisons) } else { Comparison::of(&base, &new, rule) };
        c.decide_among(comparisons);
        let (p, (low, high)) = (c.p.unwrap_or(1.0), c.interval.unwrap_or((f64::NEG_INFINITY, f64::INFINITY)));
        let (bound, excluded) = (rule.min_ratio * (1.0 - ROUNDING), excludes_no_change((low, high)));
        match c.verdict {
            Verdict::Regression | Verdict::Improvement => {
                proptest::prop_assert!(p <= rule.alpha && excluded && c.change.unwrap().abs() >= bound, "{c:?}");
            }
            Verdict::Same => proptest::prop_assert!(low > -bound && high < bound && (p > rule.alpha || excluded), "{c:?}"),
            Verdict::NoWorse => {
                proptest::prop_assert!(low > -bound && high >= bound && (p > rule.alpha || excluded), "{c:?}");
            }
            Verdict::Missing => proptest::prop_assert!(c.base.is_none() != c.new.is_none(), "{c:?}"),
            _ => {
                let reason = c.notes.first().map_or("", String::as_str);
                let reaches = low <= -bound || high >= bound;
                let right = match reason {
                    r if r.starts_with("need ") => c.needed.is_some(),
                    r if r.contains(" alone, but ") => c.p_alone.unwrap() <= rule.alpha && p > rule.alpha,
                    r if r.starts_with("p is above") => p > rule.alpha && low <= 0.0 && high >= 0.0 && reaches,
                    r if r.starts_with("there is a change") => p <= rule.alpha && excluded && reaches,
                    r if r.starts_with("p = ") => p <= rule.alpha && !excluded,
                    r if r.starts_with("neither side varies") => c.p.is_none() || c.interval.is_none(),
                    r => r.contains("no sample") || r.contains("no ratio to it"),
                };
                proptest::prop_assert!(right, "{c:?}");
            }
        }
    }
}
