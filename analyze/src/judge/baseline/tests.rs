//! The rules of a baseline, over samples made by hand.

use super::*;
use crate::judge::samples::{Key, Observation};
use schemas::{metrics, run_record::RunRecord};
use serde_json::json;

fn promise() -> Promise {
    let metric = metrics::find("throughput").unwrap();
    let rule = Rule::of(metric);
    Promise { metric, rule, case_ids: vec!["c1".into()], file: "p.yaml".into(), line: Some(7), column: Some(5) }
}

fn case(values: &[f64]) -> Case {
    let key = Key { id: "c1".into(), direction: "forward".into(), ..Key::default() };
    Case { key, name: "bulk".into(), values: vec![values.to_vec()], ..Case::default() }
}

fn around(mean: f64) -> Vec<f64> {
    [0.3, -0.8, 0.9, -0.1, -0.5, 0.6, 0.1, -0.3].iter().map(|x| mean * (1.0 + x / 100.0)).collect()
}

fn here(cpu: &str, kernel: &str) -> Environment {
    let run = json!({"hosts": {"local": {"facts": {"cpu_model": cpu, "kernel_release": kernel}}}});
    Environment::of(&serde_json::from_value::<RunRecord>(run).unwrap())
}

fn terms(source: &str, on_missing: OnMissing) -> Terms {
    let (promises, planned) = (vec![promise()], BTreeMap::new());
    Terms { source: source.into(), on_missing, require_same: None, promises, planned }
}

fn baseline(samples: Samples, require_same: Option<Vec<String>>) -> Baseline {
    Baseline {
        terms: Terms { require_same, ..terms("b.csv", OnMissing::Warn) },
        samples: Some(samples),
        environment: Ok(here("A", "6.1")),
        measured: BTreeMap::new(),
        plans: 1,
    }
}

fn judged(require_same: Option<&[&str]>, here: &Environment, new: f64) -> VerdictRow {
    let samples = Samples::of(vec![case(&around(100.0))]);
    let require_same = require_same.map(|f| f.iter().map(|f| (*f).to_owned()).collect());
    baseline(samples, require_same).judge(&[case(&around(new))], here).remove(0)
}

#[test]
fn a_regression_is_one_in_the_bad_direction() {
    let verdict = |new| judged(None, &here("A", "6.1"), new).verdict;
    assert_eq!(
        [verdict(90.0), verdict(110.0), verdict(100.5)],
        [Verdict::Regression, Verdict::Improvement, Verdict::Same]
    );
    let row = judged(None, &here("A", "6.1"), 90.0);
    assert_eq!((row.assertion.as_str(), row.line, row.fails()), ("throughput at most 3 % below b.csv", Some(7), true));
}

#[test]
fn a_side_from_which_others_took_a_cpu_decides_nothing_against_itself() {
    let taken = |case: Case, cpu_taken: f64| {
        let rows = vec![Observation { cpu_taken: Some(cpu_taken), ..Observation::default() }; 8];
        Case { rows, ..case }
    };
    let verdict = |base: f64, new: (f64, f64)| {
        let baseline = baseline(Samples::of(vec![taken(case(&around(100.0)), base)]), None);
        let row = baseline.judge(&[taken(case(&around(new.0)), new.1)], &here("A", "6.1")).remove(0);
        (row.verdict.to_string(), row.note)
    };
    // Worse while others worked beside it; better than a baseline beside which others worked.
    let (worse, why) = verdict(0.02, (90.0, 0.34));
    assert_eq!(worse, "inconclusive");
    assert!(why.starts_with("the new side was disturbed: others took a CPU for 34 % of its time, 2.0 % of"), "{why}");
    let (better, why) = verdict(0.34, (110.0, 0.0));
    assert!(better == "inconclusive" && why.starts_with("the baseline was disturbed"), "{better}: {why}");
    assert_eq!(verdict(0.34, (100.5, 0.0)).0, "inconclusive");
    // What holds all the more; and both alike.
    assert_eq!(verdict(0.34, (90.0, 0.0)).0, "regression");
    assert_eq!(verdict(0.0, (110.0, 0.34)).0, "improvement");
    assert_eq!(verdict(0.34, (90.0, 0.3)).0, "regression");
    assert_eq!(verdict(0.0, (90.0, 0.08)).0, "regression");
    // A baseline that does not tell is not said to have been left alone.
    let why = samples::disturbed(&case(&around(100.0)), &taken(case(&around(90.0)), 0.34));
    assert_eq!(
        why,
        [
            None,
            Some(
                "the new side was disturbed: others took a CPU for 34 % of its time, an unknown share of the other's"
                    .into()
            )
        ]
    );
}

#[test]
fn another_machine_is_not_judged_unless_the_plan_says_so() {
    let row = judged(None, &here("B", "6.12"), 90.0);
    assert_eq!(row.verdict, Verdict::Inconclusive);
    assert!(row.note.starts_with("the baseline is of another machine: host.cpu_model was A, is B"), "{}", row.note);
    let row = judged(Some(&[]), &here("B", "6.12"), 90.0);
    assert_eq!(row.verdict, Verdict::Regression);
    assert!(row.note.contains("host.cpu_model was A, is B"), "{}", row.note);
}

#[test]
fn another_setting_is_said_and_judged_unless_it_must_be_the_same() {
    let row = judged(None, &here("A", "6.12"), 90.0);
    assert_eq!((row.verdict.as_str(), row.note.as_str()), ("regression", "host.kernel was 6.1, is 6.12"));
    let row = judged(Some(&["host.kernel"]), &here("A", "6.12"), 90.0);
    assert_eq!(row.verdict, Verdict::Error);
    assert_eq!(row.note, "the baseline b.csv is of another environment: host.kernel was 6.1, is 6.12");
    let row = judged(Some(&["host.nic_speed"]), &here("A", "6.1"), 90.0);
    assert!(row.note.contains("host.nic_speed is not known of it"), "{}", row.note);
}

#[test]
fn nothing_to_compare_with_is_what_the_plan_says() {
    for (on_missing, verdict, fails) in
        [(OnMissing::Warn, "inconclusive", false), (OnMissing::Fail, "fail", true), (OnMissing::Pass, "missing", false)]
    {
        let row = Baseline::read(terms("/nowhere/b.csv", on_missing))
            .unwrap()
            .judge(&[case(&around(1.0))], &here("A", "6.1"))
            .remove(0);
        assert_eq!((row.verdict.as_str(), row.fails()), (verdict, fails));
        assert!(row.note.contains("plumb baseline promote"), "{}", row.note);
    }
}

#[test]
fn a_case_without_a_sample_fails() {
    let row = judged(None, &here("A", "6.1"), 100.0);
    assert_eq!(row.verdict, Verdict::Same);
    let row =
        Baseline::read(terms("/b.csv", OnMissing::Pass)).unwrap().judge(&[case(&[])], &here("A", "6.1")).remove(0);
    assert_eq!((row.verdict.as_str(), row.note.as_str()), ("fail", "there is no sample of throughput"));
}
