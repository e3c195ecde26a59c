//! `plumb export` as trackers of benchmarks take it, by the published rules of Bencher and of github-action-benchmark.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::{
    export_consumers::{exported, rows},
    program::{Folder, plumb},
};

/// A run with every kind of headline: streams in both directions, a group, and request/response. It stops by counts: a time in which
/// a busy machine made no transaction has no latency.
const PLAN: &str = "version: 1
name: tracked
defaults: {warmup: 0s, iterations: 3}
tests:
  up: {workload: tcp_stream, bytes: 4MB}
  both: {workload: tcp_stream, bytes: 4MB, direction: bidirectional}
  ask: {workload: tcp_rr, transactions: 200}
  sizes: {workload: tcp_stream, bytes: 1MB, matrix: {message_size: [64, 1KiB]}}
";

/// The results of the plan, and its iterations by case and direction.
fn tracked(folder: &Folder) -> (String, Vec<BTreeMap<String, String>>) {
    let (plan, table) = (folder.name("plan.yaml"), folder.name("results.csv"));
    std::fs::write(&plan, PLAN).expect("written");
    let ran = plumb(&["run", "--progress", "never", "-o", &table, &plan]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let counts =
        |r: &BTreeMap<String, String>| r["record"] == "iteration" && r["phase"] == "measure" && r["status"] == "ok";
    let iterations = rows(&table).into_iter().filter(counts).collect();
    (table, iterations)
}

/// Mean and half of Student's interval at 95 % of the iterations of a benchmark.
fn of_iterations(rows: &[BTreeMap<String, String>], name: &str, column: &str) -> (f64, f64) {
    let (case, direction) = match name.strip_suffix(')').and_then(|n| n.rsplit_once(" (")) {
        Some((case, direction)) => (case, Some(direction)),
        None => (name, None),
    };
    let matches = |r: &&BTreeMap<String, String>| {
        r["case"] == case && direction.is_none_or(|direction| r["direction"] == direction)
    };
    let values: Vec<f64> = rows.iter().filter(matches).map(|r| r[column].parse().expect("a number")).collect();
    // The quantiles of Student's t for one and two degrees of freedom, from tables.
    let t = [12.706_204_736, 4.302_652_730].get(values.len() - 2).copied().expect("two or three iterations");
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0);
    (mean, t * (variance / n).sqrt())
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-8 * b.abs().max(1e-9)
}

/// Bencher's server and its CLI are in no registry, so its rules stand here: the schema of https://bencher.dev/bmf.json, and the
/// lengths of names that its reference gives.
#[test]
fn bencher_metric_format_keeps_its_rules() {
    let folder = Folder::new();
    let (table, iterations) = tracked(&folder);
    let schema = json!({
        "type": "object",
        "minProperties": 1,
        "propertyNames": { "minLength": 1, "maxLength": 1024 },
        "additionalProperties": {
            "type": "object",
            "minProperties": 1,
            "propertyNames": { "pattern": "^[a-z0-9]+(-[a-z0-9]+)*$", "maxLength": 64 },
            "additionalProperties": {
                "type": "object",
                "required": ["value"],
                "additionalProperties": false,
                "properties": {
                    "value": { "type": "number" },
                    "lower_value": { "type": "number" },
                    "upper_value": { "type": "number" },
                },
            },
        },
    });
    let rules = jsonschema::validator_for(&schema).expect("a schema");
    let text = exported(&["bencher", &table]);
    let value: Value = serde_json::from_str(&text).expect("JSON");
    let errors: Vec<String> = rules.iter_errors(&value).map(|e| format!("{}: {e}", e.instance_path())).collect();
    assert!(errors.is_empty(), "{errors:?}\n{text}");
    let names: BTreeSet<&str> = value.as_object().expect("an object").keys().map(String::as_str).collect();
    let wanted = [
        "ask",
        "both (both)",
        "both (forward)",
        "both (reverse)",
        "sizes[message_size=1024]",
        "sizes[message_size=64]",
        "up",
    ];
    assert_eq!(names, BTreeSet::from(wanted));
    let measures: Vec<&String> = value["ask"].as_object().expect("an object").keys().collect();
    assert_eq!(measures, ["transactions-per-s", "latency-p50-us", "latency-p99-us"]);
    for (name, measures) in value.as_object().expect("an object") {
        for (measure, metric) in measures.as_object().expect("an object") {
            let (mean, half) = of_iterations(&iterations, name, &measure.replace('-', "_"));
            let [value, low, high] =
                ["value", "lower_value", "upper_value"].map(|key| metric[key].as_f64().expect("a number"));
            assert!(near(value, mean), "{name} {measure}: {value} is not {mean}");
            // A difference that nearly vanishes, as on a busy machine, is as exact as what it is made of.
            let low_is_near = (low - (mean - half).max(0.0)).abs() <= 1e-8 * (mean + half);
            assert!(low_is_near && near(high, mean + half), "{name} {measure}: {metric}, {half}");
        }
    }
}

/// github-action-benchmark has no package in npm's registry, so the rules of its README stand here: a list that is not empty, of
/// `name`, `unit` and `value`, with `range` and `extra` as texts. Its charts find the number of a range behind `±`.
#[test]
fn github_action_benchmark_keeps_its_rules() {
    let folder = Folder::new();
    let (table, iterations) = tracked(&folder);
    let schema = json!({
        "type": "array",
        "minItems": 1,
        "items": {
            "type": "object",
            "required": ["name", "unit", "value"],
            "additionalProperties": false,
            "properties": {
                "name": { "type": "string", "minLength": 1 },
                "unit": { "type": "string", "minLength": 1 },
                "value": { "type": "number" },
                "range": { "type": "string", "pattern": "^± [0-9].+$" },
                "extra": { "type": "string" },
            },
        },
    });
    let rules = jsonschema::validator_for(&schema).expect("a schema");
    let mut names = BTreeSet::new();
    for better in ["higher", "lower"] {
        let text = exported(&["github-action-benchmark", "--better", better, &table]);
        let value: Value = serde_json::from_str(&text).expect("JSON");
        let errors: Vec<String> = rules.iter_errors(&value).map(|e| format!("{}: {e}", e.instance_path())).collect();
        assert!(errors.is_empty(), "{errors:?}\n{text}");
        for entry in value.as_array().expect("a list") {
            let name = entry["name"].as_str().expect("a name");
            assert!(names.insert(name.to_owned()), "{name} is there twice");
            let (case, metric) = name.rsplit_once(": ").expect("a case and a metric");
            let metric = schemas::metrics::find(metric).expect("a metric");
            assert_eq!((metric.better.as_str(), &entry["unit"]), (better, &json!(metric.unit.as_str())), "{name}");
            let (mean, half) = of_iterations(&iterations, case, metric.column);
            let range: f64 = entry["range"].as_str().and_then(|r| r[3..].parse().ok()).expect("a number");
            assert!(
                near(entry["value"].as_f64().expect("a number"), mean) && near(range, half),
                "{entry}: {mean} ± {half}"
            );
        }
    }
    assert_eq!(names.len(), 9, "{names:?}");
    let both = plumb(&["export", "--to", "github-action-benchmark", &table]);
    assert_eq!((both.code, both.stdout.as_str()), (Some(2), ""), "{}", both.stderr);
    assert!(both.stderr.contains("--better higher (customBiggerIsBetter)"), "{}", both.stderr);
}
