//! The published schemas match the types, and every shipped plan satisfies both schema and parser.

use std::path::{Path, PathBuf};

use runner::plan::{Format, LoadOptions, load_str, model::Host};

use crate::{dictionary::dictionary, plan_schema::plan_schema};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn published(name: &str) -> serde_json::Value {
    let path = root().join("schemas").join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn plans() -> Vec<(String, String)> {
    let mut plans: Vec<(String, String)> = std::fs::read_dir(root().join("plans"))
        .expect("plans/ is part of the project")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|e| e == "yaml"))
        .map(|path| (path.display().to_string(), std::fs::read_to_string(&path).expect("readable")))
        .collect();
    plans.sort();
    plans
}

fn mistakes(schema: &jsonschema::Validator, text: &str) -> Vec<String> {
    let value: serde_json::Value = serde_yaml::from_str(text).expect("YAML");
    schema.iter_errors(&value).map(|e| format!("{}: {e}", e.instance_path())).collect()
}

#[test]
fn the_published_schemas_are_those_of_the_types() {
    assert_eq!(published("plan.schema.json"), plan_schema(), "run `just schemas`");
    assert_eq!(published("results.schema.json"), schemas::publish::results_schema(), "run `just schemas`");
}

#[test]
fn the_documented_dictionary_is_the_registry() {
    let page = include_str!("../../docs/reference/results.md");
    let (_, rest) = page.split_once("<!-- dictionary -->\n").expect("docs/reference/results.md has its marks");
    let (written, _) = rest.split_once("<!-- end -->").expect("docs/reference/results.md has its marks");
    assert!(written.trim() == dictionary().trim(), "docs/reference/results.md is stale: `just schemas` writes it anew");
}

#[test]
fn every_plan_satisfies_the_schema_and_the_parser() {
    let schema = jsonschema::validator_for(&plan_schema()).expect("a valid schema");
    let plans = plans();
    assert!(!plans.is_empty());
    for (name, text) in plans {
        assert_eq!(mistakes(&schema, &text), [] as [String; 0], "{name} against the schema");
        let plan = load_str(&name, &text, &LoadOptions::default())
            .unwrap_or_else(|e| panic!("{name} against the parser:\n{}", e.render(Format::Human)));
        assert!(plan.description.is_some_and(|d| d.contains('?')), "{name} says which question it answers");
        let by_mpi = |host: &Host| host.launch.as_ref().is_some_and(|launch| launch.mpi.is_some());
        let is_here = plan.hosts.values().all(|host| host.address.as_deref() == Some("127.0.0.1") || by_mpi(host));
        assert!(is_here, "{name} runs as it stands");
    }
}

/// Schema and parser refuse the same plans: users meet any drift in their editors.
#[test]
fn schema_and_parser_refuse_the_same_things() {
    let schema = jsonschema::validator_for(&plan_schema()).expect("a valid schema");
    let head = "version: 1\nname: t\n";
    for body in [
        "tests: {a: {workload: tcp_rr, mesage_size: 1}}",
        "tests: {a: {workload: tcp_stream, rate: 10Mbps}}",
        "tests: {a: {workload: tcp_stream, rate: 10}}",
        "tests: {a: {workload: tcp_stream, message_size: 64 kilobytes}}",
        "tests: {a: {workload: tcp_stream, duration: soon}}",
        "tests: {a: {workload: tcp_stream, direction: up}}",
        "tests: {a: {workload: tcp_stream, socket: {no_delay: 1}}}",
        "tests: {a: {workload: tcp_stream, iterations: {margn: 1%}}}",
        "tests: {a: {workload: tcp_stream, assert: [throughput]}}",
        "tests: {a: {workload: tcp_stream, collect: [disks]}}",
        "tests: {a: {workload: tcp_stream, streams: -1}}",
        "tests: [a]",
        "tests: {a b: {workload: tcp_rr}}",
        "tests: {\"a[1-2]\": {workload: tcp_rr}}",
        "hosts: {\"[1-2]\": {address: x}}\ntests: {a: {workload: tcp_rr}}",
        "tests: {a: {workload: tcp_rr, matrix: {to: local}}}",
        "tests: {a: {workload: tcp_rr, concurrent: {members: {1: {streams: 1}}}}}",
        "run: {order: backwards}\ntests: {a: {workload: tcp_rr}}",
        "output: {plots: [{kind: pie, file: a.png}]}\ntests: {a: {workload: tcp_rr}}",
        "baseline: {source: a.csv, compare: [{metric: speed, max_regression: 3%}]}\ntests: {a: {workload: tcp_rr}}",
    ] {
        let text = format!("{head}{body}\n");
        assert!(!mistakes(&schema, &text).is_empty(), "the schema accepts {body}");
        assert!(load_str("t.yaml", &text, &LoadOptions::default()).is_err(), "the parser accepts {body}");
    }
}

/// A plan with every kind of value that has two forms.
#[test]
fn schema_and_parser_accept_the_same_things() {
    let schema = jsonschema::validator_for(&plan_schema()).expect("a valid schema");
    let text = r#"
version: 1
name: t
labels: {link: 25, site: lab}
vars: {size: {default: 64, env: PLUMB_TEST_UNSET_SIZE, help: bytes}}
hosts:
  a: {address: 10.0.0.1, bind: 10.0.0.1%eth0, cpus: 2}
  b: {address: 10.0.0.2, bind: [10.0.0.2, 10.0.0.3], cpus: "2-5", control: "mgmt:12864"}
require:
  - {check: mtu, at_least: 9000}
  - {host: a, check: sysctl.net.ipv4.tcp_sack, equals: 1, severity: warn}
  - {check: nic_speed, at_least: 25Gbit/s}
x-note: [anything, {at: all}]
profiles:
  bulk: {workload: TCP_STREAM, x-why: a habit, socket: {dscp: ef, mss: 1400}}
tests:
  a:
    extends: bulk
    from: a
    to: b
    message_size: "${vars.size}"
    warmup: 1
    duration: 1.5
    iterations: {min: 3, max: 5, confidence: 99%, margin: 0.025, metrics: [throughput]}
    assert:
      - throughput >= 1Gbit/s
      - {that: retransmits == 0, when: {streams: "<=4"}, severity: warn, judge: point, scope: total}
    matrix:
      streams: {from: 1, to: 4, factor: 2}
      socket.no_delay: [true, false]
      exclude: [{streams: ">2", socket.no_delay: false}]
    stop_when: {that: retransmits > 100, axis: streams}
    hooks: {setup: [ip, link], cleanup: {run: [sleep, 1], on: local, timeout: 5s}}
    cpu: [0, 1]
    skip: because
  b:
    extends: [bulk]
    iterations: 2
    collect: [cpu, tcp_info, nic]
    skip: true
baseline:
  source: a.csv
  compare: [{metric: throughput, max_regression: 3%, min_effect: 50Mbit/s, test: welch, alpha: 0.01}]
gate: {on_inconclusive: fail, confirm: 1}
output:
  dir: results/${run.id}
  tables: [results, intervals]
  junit: junit.xml
  plots: [{kind: sweep, tests: [a], x: streams, y: throughput, by: socket.no_delay, log: x, file: a.png},
          {kind: sweep, x: streams, by: [test, socket.no_delay], file: c.png},
          {kind: heatmap, x: streams, y: socket.no_delay, value: throughput, log: none, file: b.svg}]
"#;
    assert_eq!(mistakes(&schema, text), [] as [String; 0]);
    let plan =
        load_str("t.yaml", text, &LoadOptions::default()).unwrap_or_else(|e| panic!("{}", e.render(Format::Human)));
    assert_eq!(plan.cases.len(), 6);
    assert_eq!(plan.axis_paths, ["socket.no_delay"]);
}
