//! `plumb export -f iperf3` of real runs, beside documents of `iperf3 -J` (analyze/tests/fixtures/export/iperf3).

use std::{collections::BTreeSet, path::Path};

use serde_json::Value;

use crate::program::{Folder, despite_stalls, plumb};

const PLAN: &str = "version: 1
name: shapes
defaults: {duration: 300ms, interval: 100ms, iterations: 1}
tests:
  tcp: {workload: tcp_stream}
  reverse: {workload: tcp_stream, direction: reverse}
  bidir: {workload: tcp_stream, direction: bidirectional}
  udp: {workload: udp_stream, message_size: 1400, rate: 20Mbit/s}
  udp-reverse: {workload: udp_stream, message_size: 1400, rate: 20Mbit/s, direction: reverse}
  parallel: {workload: tcp_stream, streams: 4}
";

/// What iperf3 3.12 has and results do not.
const LEFT_OUT: [&str; 26] = [
    "/start/connected/*/local_port",
    "/start/connected/*/remote_port",
    "/start/connecting_to/port",
    "/start/cookie",
    "/start/sock_bufsize",
    "/start/system_info",
    // Only where a rate was offered.
    "/start/target_bitrate",
    "/start/test_start/target_bitrate",
    "/start/test_start/blocks",
    "/start/test_start/bytes",
    "/start/test_start/tos",
    "/intervals/*/streams/*/pmtu",
    "/intervals/*/streams/*/snd_wnd",
    // The sender knows nothing of loss, where iperf3 writes 0; an interval has its loss only at the end.
    "/end/sum_sent/jitter_ms",
    "/end/sum_sent/lost_packets",
    "/end/sum_sent/lost_percent",
    "/intervals/*/*/lost_packets",
    "/intervals/*/*/lost_percent",
    "/intervals/*/streams/*/lost_packets",
    "/intervals/*/streams/*/lost_percent",
    "/end/streams/*/sender/max_snd_wnd",
    "/end/cpu_utilization_percent/host_system",
    "/end/cpu_utilization_percent/host_user",
    "/end/cpu_utilization_percent/remote_system",
    "/end/cpu_utilization_percent/remote_user",
    "/end/receiver_tcp_congestion",
];

/// What newer versions than 3.12 have, and a title, which is the case.
const MORE: [&str; 3] = ["/start/test_start/bidir", "/start/timestamp/timemillisecs", "/title"];

/// The paths of all values, with `*` for each place in an array.
fn paths(document: &Value, at: &str, found: &mut BTreeSet<String>) {
    match document {
        Value::Object(object) => object.iter().for_each(|(key, value)| paths(value, &format!("{at}/{key}"), found)),
        Value::Array(list) => list.iter().for_each(|value| paths(value, &format!("{at}/*"), found)),
        _ => drop(found.insert(at.to_owned())),
    }
}

fn of(document: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    paths(document, "", &mut found);
    found
}

/// Whether a path is one of these; a `*` in them stands for any key or place.
fn is_among(path: &str, known: &[&str]) -> bool {
    known.iter().any(|known| {
        let (a, b): (Vec<&str>, Vec<&str>) = (path.split('/').collect(), known.split('/').collect());
        a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| *b == "*" || a == b)
    })
}

fn number(document: &Value, path: &str) -> f64 {
    let value = document.pointer(path).and_then(Value::as_f64);
    value.unwrap_or_else(|| panic!("no number at {path} in {document}"))
}

/// The throughput and the other figures as scripts take them from a document, whoever wrote it: k8s-netperf's JSON reader, LKP's
/// `end.sum` or `sum_sent` and `sum_received`, the sum of both ways that dashboards draw.
fn read_as_scripts_do(document: &Value) -> Vec<f64> {
    let protocol = document.pointer("/start/test_start/protocol").and_then(Value::as_str);
    let mut read = if protocol == Some("UDP") {
        ["bits_per_second", "lost_percent", "jitter_ms"].map(|k| number(document, &format!("/end/sum/{k}"))).to_vec()
    } else {
        vec![
            number(document, "/end/sum_received/bits_per_second"),
            number(document, "/end/sum_sent/bits_per_second"),
            number(document, "/end/sum_sent/retransmits"),
        ]
    };
    if document.pointer("/end/sum_received_bidir_reverse").is_some() {
        read.push(number(document, "/end/sum_received_bidir_reverse/bits_per_second"));
        read.push(number(document, "/intervals/0/sum_bidir_reverse/bits_per_second"));
    }
    read.push(number(document, "/intervals/1/sum/bits_per_second"));
    read.push(number(document, "/end/cpu_utilization_percent/host_total"));
    read.push(number(document, "/end/cpu_utilization_percent/remote_total"));
    let streams = document.pointer("/end/streams").and_then(Value::as_array).expect("streams");
    for stream in streams {
        let counted = stream.get("receiver").or(stream.get("udp")).expect("what a stream counted");
        read.push(number(counted, "/bytes"));
    }
    assert!(document.get("error").is_none());
    read
}

#[test]
fn documents_have_the_keys_of_iperf3() {
    // An interval that a stalled machine samples late is missing at one end.
    despite_stalls(compare);
}

fn compare() {
    let folder = Folder::new();
    let (plan, table) = (folder.name("plan.yaml"), folder.name("results.csv"));
    std::fs::write(&plan, PLAN).expect("written");
    let ran = plumb(&["run", "--progress", "never", "-o", &table, &plan]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../analyze/tests/fixtures/export/iperf3");
    for name in ["tcp", "reverse", "bidir", "udp", "udp-reverse", "parallel"] {
        let real = std::fs::read_to_string(fixtures.join(format!("{name}.json"))).expect(name);
        let real: Value = serde_json::from_str(&real).expect("JSON");
        let exported = plumb(&["export", "--to", "iperf3", "--where", &format!("case={name}"), &table]);
        assert_eq!(exported.code, Some(0), "{name}: {}", exported.stderr);
        let ours: Value = serde_json::from_str(&exported.stdout).expect("JSON");
        let (have, want) = (of(&ours), of(&real));
        // Several streams have no intervals of their own.
        let missing: Vec<&String> = want
            .difference(&have)
            .filter(|path| !is_among(path, &LEFT_OUT))
            .filter(|path| name != "parallel" || !path.starts_with("/intervals/*/streams/"))
            .collect();
        let more: Vec<&String> = have.difference(&want).filter(|path| !is_among(path, &MORE)).collect();
        assert!(missing.is_empty() && more.is_empty(), "{name}: missing {missing:?}, more {more:?}\n{ours:#}");
        let (ours, real) = (read_as_scripts_do(&ours), read_as_scripts_do(&real));
        assert_eq!(ours.len(), real.len(), "{name}");
        assert!(ours[0] > 0.0 && real[0] > 0.0, "{name}: {ours:?}");
    }
}

#[test]
fn the_run_must_be_named() {
    let folder = Folder::new();
    let row = |n: u32| format!("bulk,iteration,{n},ok,tcp_stream,1,1000,8000\n");
    let head = "case,record,iteration,status,workload,elapsed_s,bytes_received,throughput_bits_per_s\n";
    let table = folder.name("results.csv");
    std::fs::write(&table, format!("{head}{}{}", row(1), row(2))).expect("written");
    let ran = plumb(&["export", "--to", "iperf3", &table]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("choose one, for example with --where 'iteration=2', or --record summary"),
        "{}",
        ran.stderr
    );
}
