//! The files of a run: `output.dir`, pictures, and reports for CI systems.

use std::fs;

use crate::filters::shell;
use crate::program::{Folder, Row, command, despite_stalls, end, number, of, plumb, rows};

#[test]
fn a_folder_holds_everything() {
    let folder = Folder::new();
    let plan = folder.plan(
        &format!(
            "output:\n  dir: {}/${{run.id}}\n  tables: [results, intervals, verdicts, counters]\n  junit: ci/junit.xml\n  \
             markdown: summary.md\n  plots:\n    - {{kind: timeseries, tests: [bulk], y: throughput, file: bulk.svg}}\n    \
             - {{kind: heatmap, tests: [bulk], x: streams, y: message_size, value: bytes_received, file: map.svg}}",
            folder.name("out")
        ),
        "  bulk: {workload: tcp_stream, bytes: 4MB, rate: 100Mbit/s, interval: 50ms, collect: [cpu, snmp], assert: [throughput > 1kbit/s]}",
    );
    let ran = plumb(&["run", &plan, "--progress", "never"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let mut made = fs::read_dir(folder.path("out")).unwrap();
    let dir = made.next().unwrap().unwrap().path();
    let table = rows(&dir.join("results.csv"));
    assert!(dir.ends_with(&table[0]["run_id"]), "the folder is named after the run");
    assert!(table.iter().all(|r| r["record"] != "interval"), "intervals have a table of their own");
    assert!(rows(&dir.join("intervals.csv")).iter().all(|r| r["record"] == "interval"));
    assert_eq!(rows(&dir.join("verdicts.csv"))[0]["verdict"], "pass");
    let counters = rows(&dir.join("counters.csv"));
    let segments = counters.iter().find(|r| r["key"].contains("OutSegs") && r["span"] == "measure").expect("snmp");
    assert!(number(segments, "delta") > 0.0);
    assert_eq!(fs::read_to_string(dir.join("plan.yaml")).unwrap(), fs::read_to_string(&plan).unwrap());
    assert!(fs::read_to_string(dir.join("plan.resolved.yaml")).unwrap().contains("tcp_stream"));
    assert!(fs::read_to_string(dir.join("run.json")).unwrap().contains("\"ended\""));
    assert!(fs::read_to_string(dir.join("bulk.svg")).unwrap().contains("<svg"));
    let named = format!("pictures: {}, {}", dir.join("bulk.svg").display(), dir.join("map.svg").display());
    assert!(ran.stdout.contains(&named), "{}", ran.stdout);
    assert!(fs::read_to_string(dir.join("map.svg")).unwrap().contains("bytes received"), "{}", ran.stderr);
    assert!(fs::read_to_string(dir.join("ci/junit.xml")).unwrap().contains("throughput &gt; 1kbit/s"));
    assert!(fs::read_to_string(dir.join("summary.md")).unwrap().contains("| bulk |"));
}

#[test]
fn github_gets_annotations_at_the_plans_line_and_a_summary() {
    let folder = Folder::new();
    let plan =
        folder.plan("", "  bulk:\n    workload: tcp_stream\n    bytes: 10MB\n    assert: [throughput > 900Tbit/s]");
    let ran = command(&["run", &plan, "-o", &folder.name("r.csv"), "--junit", &folder.name("j.xml")])
        .env("GITHUB_ACTIONS", "true")
        .env("GITHUB_STEP_SUMMARY", folder.path("step.md"))
        .spawn()
        .unwrap();
    let ran = end(ran);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    let line = ran.stderr.lines().find(|l| l.starts_with("::error ")).expect("an annotation");
    assert!(line.contains("plan.yaml,line=8,col=14::bulk: throughput > 900Tbit/s does not hold"), "{line}");
    let summary = fs::read_to_string(folder.path("step.md")).unwrap();
    assert!(summary.contains("**The assertion fails: bulk throughput > 900Tbit/s ("), "{summary}");
    assert!(fs::read_to_string(folder.path("j.xml")).unwrap().contains("failures=\"1\""));
}

#[test]
fn a_group_has_its_members_and_their_total() {
    // Members that stood still at different times have no interval in common, and so no total.
    despite_stalls(measures_a_group);
}

fn measures_a_group() {
    let folder = Folder::new();
    let plan = folder.plan(
        "",
        "  both:\n    duration: 300ms\n    warmup: 50ms\n    concurrent:\n      start: {max_skew: 10s}\n      window: own\n      members:\n        \
         up: {workload: tcp_stream}\n        down: {workload: tcp_stream, direction: reverse}\n    assert:\n      \
         - throughput > 1kbit/s\n      - {that: throughput > 900Tbit/s, member: down, severity: warn}",
    );
    let ran = plumb(&["run", &plan, "-o", &folder.name("r.csv"), "--progress", "never"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let table = rows(&folder.path("r.csv"));
    let iterations = of(&table, "iteration");
    let members: Vec<_> = iterations.iter().map(|r| r["member"].as_str()).collect();
    assert_eq!(members, ["up", "down", ""]);
    let rate = |i: usize| number(iterations[i], "throughput_bits_per_s");
    assert!(((rate(0) + rate(1)) / rate(2) - 1.0).abs() < 1e-6);
    assert!(number(iterations[2], "start_skew_us") >= 0.0);
    let verdicts = rows(&folder.path("r.verdicts.csv"));
    let judged: Vec<_> = verdicts.iter().map(|v| (v["member"].as_str(), v["verdict"].as_str())).collect();
    assert_eq!(judged, [("", "pass"), ("down", "fail")]);
}

#[test]
fn what_cannot_be_decided_is_said_and_fails_only_where_the_gate_says_so() {
    let folder = Folder::new();
    // A hundred transactions have no 99.9th percentile, however small the figure.
    let test = "  a: {workload: tcp_rr, transactions: 100, iterations: 3, assert: [latency.p999 < 100000s]}";
    for (gate, code) in [("fail", 4), ("warn", 0)] {
        let plan = folder.plan(&format!("gate: {{on_inconclusive: {gate}}}"), test);
        let ran = plumb(&["run", &plan, "-o", &folder.name("r.csv"), "--progress", "never"]);
        assert_eq!(ran.code, Some(code), "{}", ran.stderr);
        let verdicts = rows(&folder.path("r.verdicts.csv"));
        assert_eq!(verdicts[0]["verdict"], "inconclusive");
        assert!(ran.stdout.contains("takes at least 10000 observations"), "{}", ran.stdout);
    }
}

#[test]
fn what_every_iteration_violates_fails_the_run() {
    let folder = Folder::new();
    for (iterations, level) in [("3", 0.95), ("{min: 3, max: 3, confidence: 99%, margin: 1%}", 0.99)] {
        // No request and reply over loopback takes less than a microsecond, however busy the machine.
        let test = format!(
            "  a: {{workload: tcp_rr, transactions: 500, iterations: {iterations}, \
             assert: [latency.p99 < 1us]}}"
        );
        let plan = folder.plan("", &test);
        let ran = plumb(&["run", &plan, "-o", &folder.name("r.csv"), "--progress", "never"]);
        assert_eq!(ran.code, Some(1), "{}", ran.stderr);
        let verdicts = rows(&folder.path("r.verdicts.csv"));
        let words: Vec<_> = verdicts.iter().map(|v| v["verdict"].as_str()).collect();
        assert_eq!(words, ["fail"]);
        // Three equal values have no interval.
        for v in verdicts.iter().filter(|v| !v["ci_low"].is_empty()) {
            assert!(number(v, "ci_low") > 0.0 && (number(v, "confidence_level") - level).abs() < 1e-9, "{v:?}");
        }
    }
}

#[test]
fn what_cannot_be_done_yet_is_refused_at_its_place() {
    let folder = Folder::new();
    for (top, test, what, place) in [
        (
            "",
            "  a: {workload: mpi_stream}",
            "a test over MPI is between ranks, and `local` in `from` is none",
            "plan.yaml:5:",
        ),
        ("", "  a: {workload: udp_stream, io: uring}", "io: uring does not run this workload", "plan.yaml:5:"),
        ("", "  a: {workload: tcp_stream, io: dpdk}", "unknown value `dpdk`", "plan.yaml:5:"),
        ("", "  a: {workload: tcp_stream, direction: duplex}", "unknown value `duplex`", "plan.yaml:5:"),
    ] {
        let plan = folder.plan(top, test);
        for verb in ["run", "check"] {
            let ran = plumb(&[verb, &plan]);
            assert_eq!(ran.code, Some(2), "{}", ran.stderr);
            assert!(ran.stderr.contains(what) && ran.stderr.contains(place), "{}", ran.stderr);
        }
    }
}

#[test]
fn what_only_leaves_out_may_be_beyond_the_engines() {
    let folder = Folder::new();
    let plan = folder.plan(
        "x-a: 1",
        "  good: {workload: tcp_rr, duration: 10ms}\n  bad: {workload: udp_stream, message_size: 64KiB}",
    );
    let ran = plumb(&["run", &plan, "-o", &folder.name("r.csv"), "--only", "good"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    for args in [&["run", &plan][..], &["run", &plan, "--only", "bad"]] {
        let ran = plumb(args);
        assert_eq!(ran.code, Some(2), "{}", ran.stderr);
        assert!(ran.stderr.contains("65536") && ran.stderr.contains("plan.yaml:6:"), "{}", ran.stderr);
    }
}

#[test]
fn the_rest_of_an_axis_is_skipped_with_its_reason_and_nothing_is_asserted_of_it() {
    let folder = Folder::new();
    let plan = folder.plan(
        "x-a: 1",
        "  a:\n    workload: tcp_rr\n    matrix: {transactions: [10, 20, 30, 40], request_size: [1, 2]}\n    \
         stop_when: {that: transactions >= 20, axis: transactions}\n    assert: [transactions > 0]",
    );
    for resume in [false, true] {
        let out = folder.name("out");
        let mut args = vec!["run", &plan, "--progress", "never", "--set"];
        let dir = format!("output.dir={out}");
        args.push(&dir);
        if resume {
            args.extend(["--resume", &out]);
        }
        let ran = plumb(&args);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let rows = rows(&folder.path("out/results.csv"));
        assert_eq!(of(&rows, "iteration").len(), 4, "10 and 20 transactions of each size");
        let skipped: Vec<_> = of(&rows, "summary").into_iter().filter(|r| r["status"] == "skipped").collect();
        assert_eq!(skipped.len(), 4);
        for row in skipped {
            let size = if row["case"].contains("request_size=1") { 1 } else { 2 };
            let by = format!("stop_when: transactions >= 20 at a[transactions=20,request_size={size}] (20)");
            assert_eq!(row["error"], by);
        }
    }
}

#[test]
fn a_search_in_which_nothing_holds_has_no_number_and_fails_what_is_asserted() {
    let folder = Folder::new();
    let plan = folder.plan(
        "gate: {confirm: 1}",
        "  a:\n    workload: tcp_rr\n    duration: 10ms\n    find: {metric: elapsed, at_most: 1us, by: inflight, to: 8}\n    \
         assert: [transaction_rate > 1/s]",
    );
    let ran = plumb(&["run", &plan, "--progress", "never", "-o", &folder.name("r.csv")]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    let sentence = "does not hold even at 1 in flight, the lowest load of the search";
    assert!(ran.stderr.contains(sentence) && ran.stdout.contains("nothing held"), "{}\n{}", ran.stderr, ran.stdout);
    let table = rows(&folder.path("r.csv"));
    assert_eq!(of(&table, "iteration").len(), 0, "nothing held, and no try of a probe is one");
    let probes: Vec<_> = of(&table, "probe").iter().map(|r| (r["iteration"].as_str(), r["status"].as_str())).collect();
    // A failure is believed when several probes agree.
    let each = probes.len() / 2;
    assert!(each >= 3, "{probes:?}");
    let statuses = std::iter::repeat_n("ok", each).chain(std::iter::repeat_n("confirm", each));
    let numbers: Vec<String> = (1..=2 * each).map(|n| n.to_string()).collect();
    let numbered = numbers.iter().map(String::as_str).zip(statuses);
    assert_eq!(probes, numbered.collect::<Vec<_>>(), "each has a number of its own");
    let summary = of(&table, "summary")[0];
    assert_eq!((summary["search"].as_str(), summary["inflight"].as_str()), ("nothing", ""));
    let verdicts = rows(&folder.path("r.verdicts.csv"));
    assert!(verdicts[0]["verdict"] == "fail" && verdicts[0]["note"].contains(sentence), "{verdicts:?}");
}

#[test]
fn a_message_is_told_once_where_one_file_has_both_outputs() {
    let folder = Folder::new();
    // Two values are never within this margin of their mean.
    let keys = "workload: tcp_rr, transactions: 200, iterations: {min: 2, max: 2, margin: 0.00001%}";
    folder.plan("", &format!("  rtt: {{{keys}}}"));
    let run = "plumb run --progress never plan.yaml -o r.csv --overwrite";
    let told = |redirection: &str, file: &str| {
        let ran = shell(&folder.path(""), &format!("{run} {redirection}"));
        assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
        fs::read_to_string(folder.path(file)).unwrap().matches("asked for").count()
    };
    assert_eq!(told("> both 2>&1", "both"), 1);
    assert_eq!((told("> out 2> err", "out"), told("> out 2> err", "err")), (1, 1), "each file is whole");
}

#[test]
fn an_empty_line_stands_between_the_parts_of_a_summary() {
    let folder = Folder::new();
    // Two values are never within this margin of their mean, which is a note.
    let keys = "workload: tcp_rr, transactions: 200, iterations: {min: 2, max: 2, margin: 0.00001%}";
    let parts = |more: &str| {
        let plan = folder.plan("", &format!("  rtt: {{{keys}, matrix: {{streams: [1]}}{more}}}"));
        let ran = plumb(&["run", &plan, "--progress", "never", "-o", &folder.name("r.csv"), "--overwrite"]);
        let firsts = ran.stdout.trim_end().split("\n\n").map(|part| part.split_whitespace().next().unwrap_or_default());
        // What limited it may be known or not.
        (firsts.filter(|first| !first.starts_with("rtt")).collect::<Vec<_>>().join(" "), ran.stdout.clone())
    };
    let (firsts, text) = parts(", assert: [transaction_rate > 1/s]");
    assert_eq!(firsts, "The case note: verdict rows:", "{text}");
    assert!(text.contains("The assertion holds: rtt[1 stream] ") && !text.contains("streams=1"), "{text}");
    let (firsts, text) = parts("");
    assert_eq!(firsts, "case note:", "{text}");
    assert!(text.lines().last().unwrap().starts_with("rows: "), "{text}");
}

#[test]
fn what_a_load_adds_is_the_headline_of_its_probe_with_an_interval_of_its_own() {
    let folder = Folder::new();
    let file = folder.name("r.csv");
    let measured = |duration: &str| {
        let keys = format!(
            "workload: responsiveness, direction: forward, warmup: 100ms, duration: {duration}, iterations: 3, \
             concurrent: {{start: {{max_skew: 10s}}}}"
        );
        let plan = folder.plan("", &format!("  load: {{{keys}}}"));
        let ran = plumb(&["run", "--progress", "never", &plan, "-o", &file]);
        assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
        (ran, rows(&folder.path("r.csv")))
    };
    let of_probe = |table: &[Row], record: &str| -> Vec<Row> {
        let all = table.iter().filter(|row| row["record"] == record && row["member"] == "upload-tcp");
        all.filter(|row| record == "summary" || row["phase"] == "measure").cloned().collect()
    };
    // On a busy machine a probe may have no answer within a short time.
    let mut durations = ["300ms", "1s", "3s", "10s"].into_iter();
    let (ran, table) = loop {
        let (ran, table) = measured(durations.next().expect("some time has answers"));
        if of_probe(&table, "iteration").iter().all(|row| !row["added_latency_p50_us"].is_empty()) {
            break (ran, table);
        }
    };
    let probe = |record: &str| of_probe(&table, record);
    let added: Vec<f64> = probe("iteration").iter().map(|row| number(row, "added_latency_p50_us")).collect();
    let [a, b, c] = added[..] else { panic!("{added:?}") };
    let mean = (a + b + c) / 3.0;
    let stddev = (added.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 2.0).sqrt();
    let near = |got: f64, want: f64| (got - want).abs() <= 1e-9 * want.abs().max(1.0);
    let summary = &probe("summary")[0];
    assert!(
        near(number(summary, "added_latency_p50_us"), mean) && near(number(summary, "stddev"), stddev),
        "{summary:?}"
    );
    let line = |text: &str, name: &str| text.lines().find(|line| line.contains(name)).unwrap_or_default().to_owned();
    let loaded = line(&ran.stdout, "load upload-tcp");
    assert!(loaded.contains(" under load") && loaded.contains('±'), "{}", ran.stdout);
    assert!(line(&ran.stdout, "load idle-tcp").contains("p50 "), "{}", ran.stdout);
    assert!(!ran.stdout.contains("upload-tcp: "), "nothing limits a probe: {}", ran.stdout);
    let again = plumb(&["table", "--summary", &file]);
    assert!(line(&again.stdout, "load upload-tcp").contains("added latency, median"), "{}", again.stdout);
}
