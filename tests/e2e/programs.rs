//! Programs that a plan starts: their output becomes rows, and each failure a sentence.

use std::{fs, os::unix::fs::PermissionsExt};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::program::{Folder, Ran, Row, Serve, command, end, number, of, parse, plumb, rows, until};

/// Runs a plan with one test, with the permissions that it needs.
fn run(folder: &Folder, body: &str) -> Ran {
    let plan = folder.plan("", &format!("  it: {{{body}}}"));
    plumb(&["run", &plan, "--progress", "never", "--allow-commands", "--allow-hooks"])
}

fn the(ran: &Ran, record: &str) -> Row {
    let rows = parse(&ran.stdout);
    let found = of(&rows, record);
    assert_eq!(found.len(), 1, "{}{}", ran.stdout, ran.stderr);
    found[0].clone()
}

/// A program of that name in a folder of its own.
fn program(folder: &Folder, name: &str, script: &str) -> String {
    let path = folder.path(name);
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

#[test]
fn nothing_runs_that_is_not_allowed() {
    let folder = Folder::new();
    let mark = folder.name("mark");
    let plan = folder.plan(
        "",
        &format!(
            "  it:\n    workload: command\n    command: {{run: [touch, {mark}], regex: '(?<throughput>x)'}}\n  \
             hooked: {{workload: tcp_rr, duration: 10ms, hooks: {{setup: [touch, {mark}]}}}}"
        ),
    );
    let ran = plumb(&["run", &plan]);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    for words in [
        "a program of its author's choice",
        "--allow-commands",
        "programs around its",
        "--allow-hooks",
        ":7:5",
        ":8:46",
    ] {
        assert!(ran.stderr.contains(words), "{words}: {}", ran.stderr);
    }
    let ran = plumb(&["run", &plan, "--allow-commands"]);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(!ran.stderr.contains("author's choice") && ran.stderr.contains("--allow-hooks"), "{}", ran.stderr);
    assert!(!folder.path("mark").exists());
    assert_eq!(plumb(&["check", &plan]).code, Some(0), "to look at a plan nothing need be allowed");
}

#[test]
fn a_number_is_measured_confident_and_judged_as_any_other() {
    let folder = Folder::new();
    let plan = folder.plan(
        "",
        "  it:\n    workload: command\n    command: {run: [printf, 'rate %s MB/s', '12.5'], regex: 'rate (?<throughput>[0-9.]+ MB/s)'}\n    \
         iterations: {min: 3, max: 5, margin: 1%}\n    assert: [throughput >= 90Mbit/s, throughput < 1Mbit/s, elapsed < 1m]",
    );
    let out = folder.name("r.csv");
    let ran = plumb(&["run", &plan, "--progress", "never", "--allow-commands", "-o", &out]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    let table = rows(&folder.path("r.csv"));
    let iterations = of(&table, "iteration");
    assert_eq!(iterations.len(), 3);
    assert!(iterations.iter().all(|r| r["throughput_bits_per_s"] == "100000000" && number(r, "elapsed_s") > 0.0));
    let summary = of(&table, "summary")[0].clone();
    assert_eq!((summary["workload"].as_str(), summary["confident"].as_str()), ("command", "true"));
    assert_eq!((summary["from"].as_str(), summary["to"].as_str()), ("local", ""));
    assert!(ran.stdout.contains("100 Mbit/s"), "{}", ran.stdout);
    assert!(ran.stdout.contains("\n1 of 3 assertions fails: "), "{}", ran.stdout);
    let facts: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(folder.path("r.run.json")).unwrap()).unwrap();
    let record = &facts["cases"][&summary["case_id"]]["command"];
    assert_eq!(record["run"][0], "printf");
    assert!(record["cpu_user_s"].is_number() && record["elapsed_s"].is_number(), "{record}");
}

#[test]
fn a_table_has_a_summary_for_each_line() {
    let folder = Folder::new();
    let print = program(&folder, "sizes", "printf '1 7.5\\n64 8.5\\n1024 9\\n'");
    let body = format!(
        "workload: command, iterations: 2, assert: [latency.mean < 8us],
    command: {{run: [{print}], regex: '(?m)^(?<message_size>[0-9]+) (?<latency.mean>[0-9.]+)$'}}"
    );
    let ran = run(&folder, &body);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    let rows = parse(&ran.stdout);
    let sizes: Vec<_> =
        of(&rows, "summary").iter().map(|r| (number(r, "message_bytes"), number(r, "latency_mean_us"))).collect();
    assert_eq!(sizes, [(1.0, 7.5), (64.0, 8.5), (1024.0, 9.0)]);
    assert!(of(&rows, "summary").iter().all(|r| r["iterations"] == "2"));
    assert!(ran.stderr.contains("line 2") && ran.stderr.contains("2 of 3 assertions fail: "), "{}", ran.stderr);
    let ran = run(
        &folder,
        &format!("{body}, iterations: {{margin: 5%, metrics: [latency.mean]}}").replace("iterations: 2, ", ""),
    );
    assert_eq!(the(&ran, "iteration")["status"], "failed");
    assert!(ran.stderr.contains("printed 3 results"), "{}", ran.stderr);
}

#[test]
fn a_known_programs_output_is_imported() {
    let folder = Folder::new();
    let ping = program(
        &folder,
        "ping",
        "cat <<END\nPING 127.0.0.1 (127.0.0.1) 56(84) bytes of data.\n64 bytes from 127.0.0.1: icmp_seq=1 ttl=64 time=0.024 ms\n\
         64 bytes from 127.0.0.1: icmp_seq=2 ttl=64 time=0.034 ms\n\n--- 127.0.0.1 ping statistics ---\n\
         2 packets transmitted, 2 received, 0% packet loss, time 1001ms\nrtt min/avg/max/mdev = 0.024/0.029/0.034/0.005 ms\nEND",
    );
    let ran = run(
        &folder,
        &format!("workload: command, assert: [loss_ratio == 0], command: {{run: [{ping}], import: ping}}"),
    );
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let row = the(&ran, "iteration");
    assert_eq!((row["test"].as_str(), row["plan"].as_str(), row["transport"].as_str()), ("it", "t", "icmp"));
    assert_eq!(row["latency_mean_us"], "29");
}

#[test]
fn every_failure_has_its_sentence_and_the_plan_goes_on() {
    let folder = Folder::new();
    let regex = "regex: 'rate (?<throughput>[0-9.]+)'";
    for (run_, timeout, status, words) in [
        ("[sh, -c, 'echo no route to host >&2; exit 3']", "10s", "failed", "exited with 3: no route to host"),
        (
            "[echo, nothing of the kind]",
            "10s",
            "failed",
            "nothing in its output matches `rate (?<throughput>[0-9.]+)`: nothing of the kind",
        ),
        ("[no-such-program-here]", "10s", "failed", "`no-such-program-here` was not found"),
        ("[sh, -c, 'echo begun; sleep 600']", "200ms", "timeout", "still running after 200ms"),
        (
            "['yes', 'a line that is repeated for ever and ever and ever and ever and ever']",
            "60s",
            "failed",
            "printed more than 64 MiB",
        ),
    ] {
        let body = format!("workload: command, timeout: {timeout}, command: {{run: {run_}, {regex}}}");
        let plan = folder.plan("", &format!("  it: {{{body}}}\n  next: {{workload: unix_rr, transactions: 10}}"));
        let ran = plumb(&["run", &plan, "--progress", "never", "--allow-commands"]);
        assert_eq!(ran.code, Some(3), "{}", ran.stderr);
        let rows = parse(&ran.stdout);
        let iterations = of(&rows, "iteration");
        assert_eq!(
            (iterations[0]["status"].as_str(), iterations[1]["status"].as_str()),
            (status, "ok"),
            "{}",
            ran.stderr
        );
        assert!(iterations[0]["error"].contains(words), "{words}: {}", iterations[0]["error"]);
    }
}

#[test]
fn a_plans_mistakes_about_programs_are_said_at_their_places() {
    let folder = Folder::new();
    for (body, words) in [
        ("workload: command, command: {run: [x], regex: '(?<throughptu>.)'}", "did you mean `throughput`?"),
        ("workload: command, command: {run: [x], import: iperf}", "did you mean `iperf3`?"),
        ("workload: command, command: {run: [], import: iperf3}", "a command without a program"),
        ("workload: command, streams: 4, command: {run: [x], import: iperf3}", "`streams` means nothing to a command"),
        (
            "workload: command, matrix: {inflight: [1, 2]}, command: {run: [x], import: iperf3}",
            "`inflight` means nothing to a command",
        ),
        (
            "workload: command, from: far, command: {run: [x], import: iperf3}",
            "a command runs on this machine, and `far` is elsewhere",
        ),
        (
            "workload: command, assert: [latency.p99 < 1ms], command: {run: [x], regex: '(?<throughput>.)'}",
            "the expression has no group for it",
        ),
        (
            "concurrent: {members: {a: {workload: command, command: {run: [x], import: ping}}, b: {workload: tcp_rr}}}",
            "cannot be a member of a group",
        ),
        ("workload: tcp_rr, hooks: {setup: {run: [x], on: fra}}", "unknown host `fra`"),
    ] {
        let plan = folder.plan(
            "hosts: {far: {address: 192.0.2.1}}",
            &format!("  it: {{{body}}}\n  x: {{workload: tcp_rr, to: far}}"),
        );
        let ran = plumb(&["check", &plan]);
        assert_eq!(ran.code, Some(2), "{body}: {}", ran.stderr);
        assert!(ran.stderr.contains(words) && ran.stderr.contains(":5:"), "{words}: {}", ran.stderr);
    }
}

#[test]
fn hooks_run_where_they_belong_and_know_what_for() {
    let folder = Folder::new();
    let note = program(
        &folder,
        "note",
        "echo $1 $PLUMB_HOOK $PLUMB_CASE $PLUMB_ITERATION >> $PLUMB_RUN_DIR/notes; echo said $1",
    );
    let plan = folder.plan(
        &format!("output: {{dir: {}}}", folder.name("out")),
        &format!(
            "  a: {{workload: unix_rr, transactions: 10, iterations: 2,\n    hooks: {{setup: [{note}, s], prepare: [{note}, p], conclude: [{note}, c], cleanup: [{note}, e]}}}}"
        ),
    );
    let ran = plumb(&["run", &plan, "--progress", "never", "--allow-hooks"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let notes = fs::read_to_string(folder.path("out/notes")).unwrap();
    let expected = "s setup a 1\np prepare a 1\nc conclude a 1\np prepare a 2\nc conclude a 2\ne cleanup a\n";
    assert_eq!(notes, expected);
    let log = fs::read_to_string(folder.path("out/hooks.log")).unwrap();
    assert_eq!(log.matches("said p").count(), 2, "{log}");
    assert!(log.contains("cleanup of a: ") && log.contains("prepare of a, iteration 2: "), "{log}");
    let facts = fs::read_to_string(folder.path("out/run.json")).unwrap();
    let facts: serde_json::Value = serde_json::from_str(&facts).unwrap();
    let case = facts["cases"].as_object().unwrap().values().next().unwrap();
    assert_eq!(case["hooks"]["cleanup"]["run"][1], "e", "{case}");
}

#[test]
fn a_hook_that_fails_before_fails_the_iteration_and_one_after_warns() {
    let folder = Folder::new();
    let mark = folder.name("mark");
    let hooks = format!("setup: [sh, -c, 'echo busy >&2; exit 7'], cleanup: [touch, {mark}]");
    let ran = run(&folder, &format!("workload: unix_rr, transactions: 10, hooks: {{{hooks}}}"));
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    let row = the(&ran, "iteration");
    assert_eq!(row["status"], "failed");
    assert!(
        row["error"].contains("hook setup: `sh -c 'echo busy >&2; exit 7'` exited with 7: busy"),
        "{}",
        row["error"]
    );
    assert!(folder.path("mark").exists(), "what was begun is cleaned up");
    let hooks = "conclude: [sh, -c, 'exit 9'], cleanup: {run: [sleep, 600], timeout: 100ms}";
    let ran = run(&folder, &format!("workload: unix_rr, transactions: 10, hooks: {{{hooks}}}"));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(the(&ran, "iteration")["status"], "ok");
    for words in
        ["hook conclude: `sh -c 'exit 9'` exited with 9", "hook cleanup: `sleep 600` was still running after 100ms"]
    {
        assert!(ran.stderr.contains(words), "{words}: {}", ran.stderr);
    }
}

#[test]
fn an_interrupt_ends_the_program_and_still_cleans_up() {
    let folder = Folder::new();
    let (mark, pid) = (folder.name("mark"), folder.name("pid"));
    let plan = folder.plan(
        "",
        &format!(
            "  it:\n    workload: command\n    command: {{run: [sh, -c, 'echo $$ > {pid}.new; mv {pid}.new {pid}; sleep 600'], regex: '(?<throughput>x)'}}\n    \
             hooks: {{cleanup: [touch, {mark}]}}\n  never: {{workload: unix_rr, transactions: 10}}"
        ),
    );
    let child = command(&["run", &plan, "--progress", "never", "--allow-commands", "--allow-hooks"]).spawn().unwrap();
    until("the program has begun", || folder.path("pid").exists());
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).unwrap();
    let ran = end(child);
    assert_eq!(ran.code, Some(130), "{}", ran.stderr);
    assert!(folder.path("mark").exists());
    let left = fs::read_to_string(folder.path("pid")).unwrap();
    assert!(!fs::exists(format!("/proc/{}/cmdline", left.trim())).unwrap(), "it still runs");
    let rows = parse(&ran.stdout);
    assert_eq!(of(&rows, "summary").iter().filter(|r| r["status"] == "skipped").count(), 2, "{}", ran.stdout);
}

/// A daemon with a key on another address, the inventory that names it `far`, and the arguments that let plans run.
fn far(folder: &Folder, args: &[&str]) -> (Serve, String) {
    let key = folder.name("key");
    if !folder.path("key").exists() {
        assert_eq!(plumb(&["key", &key]).code, Some(0));
    }
    let serve = Serve::on("127.0.0.2", &[&["--key-file", &key], args].concat());
    let hosts = format!("hosts: {{far: {{address: 127.0.0.2, control: \"{}\", key_file: {key}}}}}", serve.address);
    (serve, hosts)
}

/// Waits for the process whose id is in a file.
fn written(folder: &Folder, name: &str) -> String {
    until("the program has begun", || folder.path(name).exists());
    fs::read_to_string(folder.path(name)).unwrap().trim().to_owned()
}

fn is_alive(pid: &str) -> bool {
    fs::exists(format!("/proc/{pid}/cmdline")).unwrap()
}

#[test]
fn a_hook_runs_on_another_host_whose_daemon_allows_it() {
    let folder = Folder::new();
    let (serve, hosts) = far(&folder, &["--allow-hooks"]);
    let mark = folder.name("mark");
    let note = program(
        &folder,
        "note",
        &format!("echo $PPID $PLUMB_HOOK $PLUMB_CASE $PLUMB_TO .$PLUMB_RUN_DIR >> {mark}; echo said $1; echo so >&2"),
    );
    let plan = folder.plan(
        &format!("output: {{dir: {}}}\n{hosts}", folder.name("out")),
        &format!(
            "  it: {{workload: tcp_rr, to: far, transactions: 10,\n    hooks: {{setup: {{run: [{note}, up], on: far}}, \
             prepare: ['true'], cleanup: {{run: [{note}, down], on: far}}}}}}"
        ),
    );
    let ran = plumb(&["run", &plan, "--progress", "never", "--allow-hooks"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(!ran.stderr.contains("warning"), "{}", ran.stderr);
    // The daemon started them with the case in their environment; the folder of the results is not on its host.
    let daemon = serve.pid();
    assert_eq!(
        fs::read_to_string(&mark).unwrap(),
        format!("{daemon} setup it 127.0.0.2 .\n{daemon} cleanup it 127.0.0.2 .\n")
    );
    let log = fs::read_to_string(folder.path("out/hooks.log")).unwrap();
    for words in [", on far: ", "  said up\n  so\n  done after ", "  said down\n  so\n"] {
        assert!(log.contains(words), "{words}: {log}");
    }
    assert_eq!(log.matches(", on far: ").count(), 2, "{log}");
    assert_eq!(plumb(&["run", &plan, "--progress", "never"]).code, Some(2), "the runner has to be told, too");
}

#[test]
fn a_daemon_runs_hooks_only_where_it_was_told_to_and_has_a_key() {
    let folder = Folder::new();
    let mark = folder.name("mark");
    let tests = format!(
        "  it: {{workload: unix_rr, transactions: 10, hooks: {{setup: {{run: [touch, {mark}], on: far}}, \
         cleanup: {{run: [touch, {mark}], on: far}}}}}}"
    );
    let (_keyed, hosts) = far(&folder, &[]);
    let clear = Serve::on("127.0.0.2", &[]);
    let open = format!("hosts: {{far: {{address: 127.0.0.2, control: \"{}\"}}}}", clear.address);
    for hosts in [hosts, open] {
        let ran =
            plumb(&["run", &folder.plan(&hosts, &tests), "--progress", "never", "--allow-commands", "--allow-hooks"]);
        assert_eq!(ran.code, Some(3), "{}", ran.stderr);
        let error = the(&ran, "iteration")["error"].clone();
        for words in ["hook setup: host `far` (127.0.0.2:", "runs no programs for its clients", "--allow-hooks"] {
            assert!(error.contains(words), "{words}: {error}");
        }
        assert!(ran.stderr.contains("hook cleanup: host `far`"), "{}", ran.stderr);
        assert!(!folder.path("mark").exists());
    }
    let ran = plumb(&["serve", "--listen", "127.0.0.1:0", "--allow-hooks"]);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(ran.stderr.contains("--key-file"), "{}", ran.stderr);
}

#[test]
fn a_hook_on_another_host_that_fails_or_hangs_is_ended_there() {
    let folder = Folder::new();
    let (_serve, hosts) = far(&folder, &["--allow-hooks"]);
    let pid = folder.name("pid");
    let setup = |words: &str, timeout: &str| {
        let body = format!(
            "workload: unix_rr, transactions: 10, hooks: {{setup: {{run: {words}, on: far, timeout: {timeout}}}}}"
        );
        folder.plan(&hosts, &format!("  it: {{{body}}}"))
    };
    let run = |plan: &str| plumb(&["run", plan, "--progress", "never", "--allow-hooks"]);

    let ran = run(&setup("[sh, -c, 'echo busy >&2; exit 7']", "30s"));
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    let row = the(&ran, "iteration");
    assert_eq!(row["status"], "failed");
    assert!(row["error"].contains("exited with 7: busy") && row["error"].contains("host `far`"), "{}", row["error"]);

    let hangs = format!("[sh, -c, 'echo $$ > {pid}.new; mv {pid}.new {pid}; sleep 600']");
    // Time enough to write the file on a busy machine.
    let ran = run(&setup(&hangs, "10s"));
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    let row = the(&ran, "iteration");
    assert_eq!(row["status"], "timeout");
    assert!(row["error"].contains("was still running after 10s"), "{}", row["error"]);
    assert!(!is_alive(&written(&folder, "pid")), "it still runs");

    // It ends with its run: an interrupted one, and a killed one.
    for signal in [Signal::SIGINT, Signal::SIGKILL] {
        fs::remove_file(&pid).unwrap();
        let plan = setup(&hangs, "10m");
        let child = command(&["run", &plan, "--progress", "never", "--allow-hooks"]).spawn().unwrap();
        let hook = written(&folder, "pid");
        assert!(is_alive(&hook));
        kill(Pid::from_raw(child.id().cast_signed()), signal).unwrap();
        let ran = end(child);
        assert_eq!(ran.code, (signal == Signal::SIGINT).then_some(130), "{}", ran.stderr);
        // The daemon notices at once, but not before we do.
        until("it has ended", || !is_alive(&hook));
    }
}
