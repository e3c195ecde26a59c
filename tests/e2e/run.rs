//! `plumb run` on a terminal and in a pipe.

use std::process::Stdio;

use crate::{
    needs::skip,
    program::{Folder, Serve, command, count, end, is_interim, number, of, parse, plumb, rows},
};

/// A stream and round trips. They stop by counts: a machine that stands still while they run delays them.
const TWO: &str = "  bulk: {workload: tcp_stream, bytes: 50MB}\n  trips: {workload: tcp_rr, transactions: 500}";

#[test]
fn a_plan_without_hosts_runs_over_loopback_into_a_file() {
    let folder = Folder::new();
    let plan = folder.plan("defaults: {iterations: 2}", TWO);
    let ran = plumb(&["run", &plan, "-o", &folder.name("r.csv"), "--progress", "never"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let rows = rows(&folder.path("r.csv"));
    let iterations = of(&rows, "iteration");
    assert_eq!(iterations.len(), 4);
    // Interleaved: the first iteration of every case, then the second.
    let order: Vec<_> = iterations.iter().map(|r| (r["case"].as_str(), r["iteration"].as_str())).collect();
    assert_eq!(order, [("bulk", "1"), ("trips", "1"), ("bulk", "2"), ("trips", "2")]);
    for row in &iterations {
        assert_eq!(row["status"], "ok");
        assert!(number(row, "elapsed_s") > 0.0);
        // Throughput is the receiver's count over its own clock.
        let bits = number(row, "bytes_received") * 8.0;
        if row["workload"] == "tcp_stream" {
            let rate = bits / number(row, "elapsed_s");
            assert!((rate / number(row, "throughput_bits_per_s") - 1.0).abs() < 1e-9);
            assert!(number(row, "bytes_sent") > 0.0);
        } else {
            let rate = number(row, "transactions") / number(row, "elapsed_s");
            assert!((rate / number(row, "transactions_per_s") - 1.0).abs() < 1e-9);
            assert!(number(row, "latency_p50_us") <= number(row, "latency_p99_us"));
            assert_eq!(row["latency_kind"], "round_trip");
        }
    }
    let summaries = of(&rows, "summary");
    assert_eq!(summaries.len(), 2);
    assert!(summaries.iter().all(|r| r["iterations"] == "2" && r["status"] == "ok"));
    // The summary is for people, on standard output.
    assert!(ran.stdout.contains("bulk") && ran.stdout.contains("bit/s"), "{}", ran.stdout);
    assert!(ran.stdout.contains("the two ends share this machine"), "{}", ran.stdout);
}

#[test]
fn what_is_not_in_the_table_stands_beside_it() {
    let folder = Folder::new();
    let plan = folder.plan("labels: {site: lab}", "  bulk: {workload: tcp_stream}\n  trips: {workload: tcp_rr}");
    let ran = plumb(&["run", &plan, "-o", &folder.name("r.csv"), "--set", "duration=100ms", "--only", "bulk"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let text = std::fs::read_to_string(folder.path("r.run.json")).unwrap();
    let facts: serde_json::Value = serde_json::from_str(&text).unwrap();
    let table = rows(&folder.path("r.csv"));
    assert_eq!(facts["run_id"].as_str(), Some(table[0]["run_id"].as_str()));
    assert_eq!(facts["plans"][0]["text"].as_str().unwrap(), std::fs::read_to_string(&plan).unwrap());
    assert!(facts["plans"][0]["resolved"].as_str().unwrap().contains("100ms"));
    assert_eq!(facts["plans"][0]["overrides"][0], "--set duration=100ms");
    assert_eq!(facts["plans"][0]["partial"], true);
    assert!(facts["hosts"]["local"]["facts"]["kernel_release"].is_string());
    assert!(facts["hosts"]["embedded"]["clock"]["bound_ns"].is_u64());
    assert!(facts["ended"].is_string());
    let case = facts["cases"].as_object().unwrap().values().next().unwrap();
    assert!(case["near_options"].as_array().unwrap().iter().any(|o| o["option"] == "congestion_control"), "{case:#}");
}

#[test]
fn rows_go_down_a_pipe_and_filters_take_them() {
    let folder = Folder::new();
    let plan = folder.plan("", TWO);
    let written = plumb(&["run", &plan, "--progress", "never", "-o", "-"]);
    assert_eq!((written.code, parse(&written.stdout).is_empty()), (Some(0), false), "{}", written.stderr);
    assert!(!std::path::Path::new("-").exists(), "no file of that name");
    let mut run = command(&["run", &plan, "--progress", "never"]).spawn().unwrap();
    let mut aggregate = command(&["aggregate", "-g", "case", "-m", "throughput_bits_per_s"])
        .stdin(run.stdout.take().unwrap())
        .spawn()
        .unwrap();
    let table = command(&["table"]).stdin(aggregate.stdout.take().unwrap()).spawn().unwrap();
    let table = end(table);
    assert_eq!((end(run).code, end(aggregate).code, table.code), (Some(0), Some(0), Some(0)));
    assert!(table.stdout.contains("bulk") && table.stdout.contains("bit/s"), "{}", table.stdout);
}

#[test]
fn both_directions_have_their_rows_and_streams_theirs() {
    let folder = Folder::new();
    let plan = folder
        .plan("", "  both: {workload: tcp_stream, direction: bidirectional, streams: 2, duration: 200ms, warmup: 50ms, cooldown: 50ms}");
    let ran = plumb(&["run", &plan, "--progress", "never"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let rows = parse(&ran.stdout);
    let directions: Vec<_> = of(&rows, "iteration").iter().map(|r| r["direction"].clone()).collect();
    assert_eq!(directions, ["forward", "reverse", "both"]);
    // Each direction has a window of its own on a busy machine, so that only the bytes add up.
    let bytes: Vec<u64> = of(&rows, "iteration").iter().map(|r| count(r, "bytes_received")).collect();
    assert_eq!(bytes[0] + bytes[1], bytes[2]);
    assert_eq!(of(&rows, "stream").len(), 4);
    let phases: Vec<_> = rows.iter().filter(|r| r["record"] == "iteration").map(|r| r["phase"].as_str()).collect();
    assert_eq!(phases.iter().filter(|p| **p == "warmup").count(), 3);
    assert_eq!(phases.iter().filter(|p| **p == "cooldown").count(), 3);
    let warmup = rows.iter().find(|r| r["phase"] == "warmup").unwrap();
    assert!(number(warmup, "start_s") < 0.0);
}

#[test]
fn intervals_are_rows_only_where_the_plan_asks_and_lines_where_the_user_does() {
    let folder = Folder::new();
    let plan = folder.plan("", "  bulk: {workload: tcp_stream, bytes: 4MB, rate: 100Mbit/s, interval: 100ms}");
    let ran = plumb(&["run", &plan, "--interim"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let rows = parse(&ran.stdout);
    let intervals = of(&rows, "interval");
    assert!(intervals.len() >= 2, "{}", ran.stdout);
    let whole: f64 = intervals.iter().map(|r| number(r, "bytes_received")).sum();
    assert!((whole - number(of(&rows, "iteration")[0], "bytes_received")).abs() < 1.0, "intervals add up");
    let line = ran.stderr.lines().find(|l| is_interim(l)).expect("an interim line");
    assert!(line.contains("bit/s") && line.contains("ending ") && line.ends_with('Z'), "{line}");
}

#[test]
fn interim_lines_of_a_group_name_the_member() {
    let folder = Folder::new();
    let plan = folder.plan(
        "",
        "  both:\n    concurrent: {start: {max_skew: 5s}, members: {load: {workload: tcp_stream}, probe: {workload: tcp_rr}}}\n    \
         duration: 300ms\n    interval: 100ms",
    );
    let ran = plumb(&["run", &plan, "--interim"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    for (member, unit) in [("both load  measure  ", "bit/s"), ("both probe  measure  ", "/s")] {
        let line = ran.stderr.lines().find(|l| l.starts_with(member)).expect(member);
        assert!(line.contains(unit) && is_interim(line), "{line}");
    }
    // On a busy machine there may be no total.
    let rows = parse(&ran.stdout);
    assert!(of(&rows, "iteration").len() >= 2, "{}", ran.stdout);
}

#[test]
fn a_terminal_has_a_line_per_member_of_a_group() {
    let folder = Folder::new();
    let plan = folder.plan(
        "",
        "  both:\n    concurrent: {start: {max_skew: 5s}, members: {load: {workload: tcp_stream}, probe: {workload: tcp_rr}}}\n    duration: 6s",
    );
    // The lines are drawn only on a terminal, which `script` makes.
    let program = format!("stty cols 80; {} run {plan} -o {}", env!("CARGO_BIN_EXE_plumb"), folder.name("r.csv"));
    let Ok(drawn) = std::process::Command::new("script").args(["-qec", &program, "/dev/null"]).output() else {
        return skip("no `script` here");
    };
    let drawn = String::from_utf8_lossy(&drawn.stdout).into_owned();
    for word in ["load   measure ", "probe  measure ", " s left"] {
        assert!(drawn.contains(word), "{word}: {drawn}");
    }
}

#[test]
fn confidence_goes_on_until_it_is_reached_or_says_loudly_that_it_is_not() {
    let folder = Folder::new();
    let plan = folder.plan(
        "",
        "  easy: {workload: tcp_rr, duration: 100ms, iterations: {min: 2, max: 20, margin: 500%}}\n  \
         hard: {workload: tcp_rr, duration: 100ms, iterations: {min: 2, max: 3, margin: 0.0001%}}",
    );
    let ran = plumb(&["run", &plan, "-o", &folder.name("r.csv"), "--progress", "never"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let rows = rows(&folder.path("r.csv"));
    let summaries = of(&rows, "summary");
    let easy = summaries.iter().find(|r| r["case"] == "easy").unwrap();
    let hard = summaries.iter().find(|r| r["case"] == "hard").unwrap();
    assert_eq!((easy["confident"].as_str(), hard["confident"].as_str()), ("true", "false"));
    assert_eq!(hard["iterations"], "3");
    assert!(number(easy, "margin_ratio") <= 5.0);
    // A busy machine has warnings of its own.
    let warning = ran.stderr.lines().find(|l| l.starts_with("warning: case hard: ")).expect("a warning");
    for word in ["transaction_rate", "after 3 iterations", "± 0.00 %"] {
        assert!(warning.contains(word), "{warning}");
    }
}

#[test]
fn assertions_decide_the_exit_code_and_are_kept() {
    let folder = Folder::new();
    let plan = folder.plan(
        "",
        "  bulk:\n    workload: tcp_stream\n    bytes: 10MB\n    assert:\n      - throughput >= 1kbit/s\n      \
         - throughput >= 900Tbit/s\n      - {that: throughput >= 900Tbit/s, severity: warn}",
    );
    let ran = plumb(&["run", &plan, "-o", &folder.name("r.csv"), "--progress", "never"]);
    assert_eq!(ran.code, Some(1), "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains("plan.yaml:10"), "the plan's own line: {}", ran.stdout);
    let verdicts = rows(&folder.path("r.verdicts.csv"));
    let all: Vec<_> = verdicts.iter().map(|v| (v["verdict"].as_str(), v["severity"].as_str())).collect();
    assert_eq!(all, [("pass", "error"), ("fail", "error"), ("fail", "warn")]);
    assert_eq!(verdicts[1]["line"], "10");
}

#[test]
fn a_warning_alone_fails_nothing() {
    let folder = Folder::new();
    let plan = folder.plan(
        "",
        "  bulk: {workload: tcp_stream, bytes: 10MB, assert: [{that: throughput > 900Tbit/s, severity: warn}]}",
    );
    assert_eq!(plumb(&["run", &plan, "-o", &folder.name("r.csv"), "--progress", "never"]).code, Some(0));
}

#[test]
fn a_far_end_on_another_port_serves_with_a_key() {
    let folder = Folder::new();
    let key = folder.name("lab.key");
    assert_eq!(plumb(&["key", &key]).code, Some(0));
    let serve = Serve::start(&["--key-file", &key]);
    let plan =
        folder.plan("hosts: {b: {address: 127.0.0.1}}", "  bulk: {workload: tcp_stream, to: b, duration: 100ms}");
    let host = format!("b={}", serve.address);
    let ran = plumb(&["run", &plan, "--host", &host, "--key-file", &key, "--progress", "never"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let rows = parse(&ran.stdout);
    let of_it = of(&rows, "iteration");
    assert_eq!((of_it.len(), of_it[0]["to"].as_str(), of(&rows, "summary").len()), (1, "b", 1));

    let without = plumb(&["run", &plan, "--host", &host, "--progress", "never"]);
    assert_eq!(without.code, Some(3), "{}", without.stderr);
    assert!(without.stderr.contains("requires a key") && without.stderr.contains("hosts.b.key_file"));
}

#[test]
fn swept_keys_without_a_column_get_an_axis_column() {
    let folder = Folder::new();
    let plan = folder.plan(
        "",
        "  bulk: {workload: tcp_stream, duration: 100ms, matrix: {socket.no_delay: [true, false], streams: [1]}}",
    );
    let ran = plumb(&["run", &plan, "--progress", "never"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let header = ran.stdout.lines().next().unwrap();
    assert!(header.ends_with(",axis_socket_no_delay"), "{header}");
    let rows = parse(&ran.stdout);
    let values: Vec<_> = of(&rows, "iteration").iter().map(|r| r["axis_socket_no_delay"].clone()).collect();
    assert_eq!(values, ["true", "false"]);
    assert_eq!(of(&rows, "iteration")[0]["no_delay"], "true");
}

#[test]
fn a_skipped_test_is_a_row() {
    let folder = Folder::new();
    let plan = folder.plan("", "  a: {workload: tcp_rr, skip: needs a network}");
    let ran = plumb(&["run", &plan, "--progress", "never"]);
    let rows = parse(&ran.stdout);
    assert_eq!((ran.code, rows.len()), (Some(0), 1), "{}", ran.stderr);
    assert_eq!((rows[0]["status"].as_str(), rows[0]["error"].as_str()), ("skipped", "needs a network"));
}

#[test]
fn progress_is_plain_lines_on_a_pipe_and_nothing_when_refused() {
    let folder = Folder::new();
    let plan = folder.plan("", "  bulk: {workload: tcp_stream, bytes: 10MB}");
    let lines = command(&["run", &plan]).stdout(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&lines.stderr).into_owned();
    assert!(text.contains("[1/1] bulk  iteration 1 of 1"), "{text}");
    assert!(!text.contains('\u{1b}'), "no escape sequences on a pipe: {text:?}");
    let silent = command(&["run", &plan, "--progress", "never"]).stdout(Stdio::null()).output().unwrap();
    let notes = String::from_utf8_lossy(&silent.stderr).into_owned();
    assert!(notes.contains("note: the two ends share this machine"), "{notes}");
    // The answer stands beside the rows, and is no progress.
    assert!(notes.contains("\n  bulk  tcp_stream ") && !notes.contains("[1/1]"), "{notes}");
}

#[test]
fn ipv6_runs_over_its_own_loopback() {
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        return skip("this machine has no IPv6 loopback");
    }
    let folder = Folder::new();
    let plan = folder.plan("", "  bulk: {workload: tcp_stream, duration: 100ms, socket: {ipv6: true}}");
    let ran = plumb(&["run", &plan, "--progress", "never"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(of(&parse(&ran.stdout), "iteration")[0]["status"], "ok");
}

#[test]
fn what_a_plan_requires_of_its_hosts_is_checked_before_anything_runs() {
    let folder = Folder::new();
    let kernel = |limit: &str, severity: &str| {
        folder.plan(
            &format!("require:\n  - {{check: kernel, at_least: \"{limit}\", severity: {severity}}}"),
            "  bulk: {workload: tcp_stream, duration: 100ms}",
        )
    };
    assert_eq!(plumb(&["run", &kernel("2.6", "error"), "--progress", "never"]).code, Some(0));
    let ran = plumb(&["run", &kernel("999.0", "error"), "--progress", "never"]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    for word in ["plan.yaml:4:", "host `local`: kernel is ", "must be at least 999.0"] {
        assert!(ran.stderr.contains(word), "{word}: {}", ran.stderr);
    }
    assert_eq!(parse(&ran.stdout).len(), 0, "nothing was measured");
    let ran = plumb(&["run", &kernel("999.0", "warn"), "--progress", "never"]);
    assert!(ran.code == Some(0) && ran.stderr.contains("warning: "), "{}", ran.stderr);
}

#[test]
fn both_ends_may_be_elsewhere_and_start_together() {
    let folder = Folder::new();
    let (a, b) = (Serve::start(&[]), Serve::start(&[]));
    let plan = folder.plan(
        &format!(
            "hosts:\n  a: {{address: 127.0.0.1, control: \"{}\"}}\n  b: {{address: 127.0.0.1, control: \"{}\"}}",
            a.address, b.address
        ),
        "  both:\n    duration: 200ms\n    concurrent:\n      start: {max_skew: 10s}\n      window: own\n      members:\n        \
         up: {workload: tcp_stream, from: a, to: b}\n        trips: {workload: tcp_rr, from: b, to: a}",
    );
    let ran = plumb(&["run", &plan, "--progress", "never"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let rows = parse(&ran.stdout);
    let ends: Vec<_> = of(&rows, "iteration").iter().map(|r| (r["from"].clone(), r["to"].clone())).collect();
    let ends: Vec<_> = ends.iter().map(|(f, t)| (f.as_str(), t.as_str())).collect();
    assert_eq!(ends, [("a", "b"), ("b", "a"), ("", "")]);
    assert!(of(&rows, "iteration").iter().all(|r| r["status"] == "ok"));
}

#[test]
fn a_warm_up_ends_by_itself_or_at_its_bound_and_says_which() {
    let folder = Folder::new();
    let serve = Serve::start(&[]);
    let plan = folder.plan(
        &format!("hosts: {{far: {{address: 127.0.0.1, control: \"{}\"}}}}", serve.address),
        "  here: {workload: tcp_rr, warmup: {max: 2s}, duration: 50ms, iterations: 2}\n  \
         there: {workload: tcp_stream, to: far, warmup: {max: 2s}, duration: 50ms}\n  \
         never: {workload: tcp_rr, rate: 5/s, warmup: {max: 200ms}, duration: 50ms}\n  \
         given: {workload: tcp_rr, warmup: 20ms, duration: 50ms}",
    );
    let ran = plumb(&["run", &plan, "-o", &folder.name("r.csv")]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let table = rows(&folder.path("r.csv"));
    let bound = |case: &str| if case == "never" { 0.2 } else { 2.0 };
    for measured in of(&table, "iteration") {
        let case = measured["case"].as_str();
        let said =
            ran.stderr.contains(&format!("case {case}, iteration {}: the load was not flat", measured["iteration"]));
        let warmup = |r: &&crate::program::Row| {
            r["case"] == case && r["iteration"] == measured["iteration"] && r["phase"] == "warmup"
        };
        let warmup = number(table.iter().find(warmup).unwrap(), "elapsed_s");
        assert!(number(measured, "elapsed_s") > 0.0, "{case}");
        match measured["settled"].as_str() {
            // A busy machine may keep any load from being flat; the cell must agree with the note.
            "true" => assert!(warmup < bound(case) + 5.0 && !said, "{case}: {warmup} s\n{}", ran.stderr),
            "false" => assert!(warmup > bound(case) * 0.9 && said, "{case}: {warmup} s\n{}", ran.stderr),
            _ => assert!(case == "given" && !said),
        }
        // A transaction per fifth of a second: most intervals are empty.
        assert!(case != "never" || measured["settled"] == "false", "{measured:?}");
    }
    let facts = std::fs::read_to_string(folder.path("r.run.json")).unwrap();
    assert!(facts.contains("case never, iteration 1: the load was not flat"), "{facts}");
    assert!(table.iter().all(|r| r["record"] != "interval"), "nobody asked for intervals");
}
