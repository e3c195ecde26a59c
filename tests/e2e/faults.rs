//! Bad input gets a clear sentence and the documented exit code, and rows stay readable.

use std::{
    fs::File,
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    process::{Command, Stdio},
    thread,
};

use crate::program::{Folder, Serve, command, end, is_interim, of, parse, plumb, rows};

const BULK: &str = "  bulk: {workload: tcp_stream, duration: 100ms}";
const REMOTE: &str = "  bulk: {workload: tcp_stream, to: b, duration: 100ms}";
const HOSTS: &str = "hosts: {b: {address: 127.0.0.1}}";

#[test]
fn a_missing_plan_is_the_command_lines_fault() {
    let ran = plumb(&["run", "/nonexistent/plan.yaml"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("cannot read the plan /nonexistent/plan.yaml"), "{}", ran.stderr);
    assert!(ran.stdout.is_empty());
}

#[test]
fn a_wrong_plan_measures_nothing() {
    let folder = Folder::new();
    let wrong = [
        ("\tbulk: {workload: tcp_stream}", "a tab cannot indent YAML", "plan.yaml:4:1"),
        ("  bulk: {workload: tcp_stream, rate: 10Mbps}", "does not say bits or bytes", "plan.yaml:4:38"),
    ];
    for (test, sentence, place) in wrong {
        let plan = folder.path("plan.yaml");
        std::fs::write(&plan, format!("version: 1\nname: t\ntests:\n{test}\n")).unwrap();
        let ran = plumb(&["run", &plan.display().to_string(), "-o", &folder.name("r.csv")]);
        assert_eq!(ran.code, Some(2), "{}", ran.stderr);
        assert!(ran.stderr.contains(sentence) && ran.stderr.contains(place), "{}", ran.stderr);
        assert!(!folder.path("r.csv").exists());
    }
}

#[test]
fn a_host_that_refuses_is_named_with_its_remedy() {
    let folder = Folder::new();
    // A port that was free a moment ago.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let plan = folder.plan(HOSTS, REMOTE);
    let ran = plumb(&["run", &plan, "--host", &format!("b=127.0.0.1:{port}"), "--progress", "never"]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    for word in ["error: host `b`", &port.to_string(), "refused", "plumb serve"] {
        assert!(ran.stderr.contains(word), "{word}: {}", ran.stderr);
    }
}

#[test]
fn a_host_that_hangs_is_given_up() {
    let folder = Folder::new();
    // The kernel's queue accepts connections, and they stay unanswered.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let plan = folder.plan(HOSTS, REMOTE);
    let host = format!("b={}", silent.local_addr().unwrap());
    let ran = plumb(&["run", &plan, "--host", &host, "--progress", "never"]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("error: host `b`") && ran.stderr.contains("within"), "{}", ran.stderr);
}

#[test]
fn another_protocol_version_is_said_to_be_one() {
    let folder = Folder::new();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let host = format!("b={}", other.local_addr().unwrap());
    let peer = thread::spawn(move || {
        let (mut stream, _) = other.accept().unwrap();
        stream.write_all(b"plumb\0\xc8\0").unwrap();
        // It does not speak our protocol any more.
        let _ = stream.read_exact(&mut [0; 8]);
    });
    let plan = folder.plan(HOSTS, REMOTE);
    let ran = plumb(&["run", &plan, "--host", &host, "--progress", "never"]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("protocol 200") && ran.stderr.contains("same version"), "{}", ran.stderr);
    peer.join().unwrap();
}

#[test]
fn a_full_disk_is_a_sentence_and_no_panic() {
    let folder = Folder::new();
    let plan = folder.plan("", BULK);
    let ran = plumb(&["run", &plan, "-o", "/dev/full", "--progress", "never"]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("cannot write /dev/full: No space left on device"), "{}", ran.stderr);
    let full = File::options().write(true).open("/dev/full").unwrap();
    let ran = end(command(&["run", &plan, "--progress", "never"]).stdout(full).spawn().unwrap());
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("standard output") && ran.stderr.contains("No space left"), "{}", ran.stderr);
}

#[test]
fn what_no_longer_fits_leaves_no_torn_row() {
    let folder = Folder::new();
    let plan = folder.plan(
        &format!("output: {{dir: {}, tables: [results, intervals, counters]}}", folder.name("out")),
        "  bulk: {workload: tcp_stream, bytes: 1MB, interval: 5ms, rate: 400Mbit/s, iterations: 200, collect: [cpu, snmp]}",
    );
    // Limit of the file size in blocks: the write that reaches it is partial, as on a full disk.
    for blocks in [16, 17, 18, 40] {
        let words = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" run \"$1\" --overwrite --progress never");
        let ran = Command::new("sh").args(["-c", &words, env!("CARGO_BIN_EXE_plumb"), &plan]).output().unwrap();
        let stderr = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(3), "{stderr}");
        assert!(stderr.contains("cannot write") && stderr.contains("are whole"), "{stderr}");
        for table in ["results.csv", "intervals.csv", "counters.csv"] {
            let text = std::fs::read_to_string(folder.path("out").join(table)).unwrap_or_default();
            assert!(text.is_empty() || text.ends_with('\n'), "{table}: …{}", &text[text.len().saturating_sub(80)..]);
            parse(&text);
        }
    }
}

#[test]
fn a_table_that_is_removed_ends_the_run() {
    let folder = Folder::new();
    let plan = folder.plan(
        &format!("output: {{dir: {}}}", folder.name("out")),
        "  bulk: {workload: tcp_stream, duration: 50ms, iterations: 2000}",
    );
    let mut child = command(&["run", &plan]).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|l| l.contains("iteration 2 of")));
    std::fs::remove_dir_all(folder.path("out")).unwrap();
    let said = lines.collect::<Vec<_>>().join("\n");
    assert_eq!(end(child).code, Some(3), "{said}");
    assert!(said.contains("out/results.csv: it was removed") && !said.contains("iteration 2000"), "{said}");
}

#[test]
fn what_a_run_reads_is_not_written_over() {
    let folder = Folder::new();
    let plan = folder.plan(
        &format!(
            "baseline: {{source: {}, compare: [{{metric: throughput, max_regression: 3%}}]}}",
            folder.name("b.csv")
        ),
        BULK,
    );
    std::fs::write(folder.path("b.csv"), "kept").unwrap();
    std::os::unix::fs::symlink("plan.yaml", folder.path("other.yaml")).unwrap();
    for (args, what) in [
        (["-o", &plan], "the plan"),
        (["-o", &folder.name("other.yaml")], "the plan"),
        (["-o", &folder.name("./b.csv")], "the baseline"),
        (["--junit", &plan], "the plan"),
    ] {
        let ran = plumb(&[&["run", &plan][..], &args].concat());
        assert_eq!(ran.code, Some(2), "{}", ran.stderr);
        assert!(ran.stderr.contains(what) && ran.stderr.contains("name another file"), "{}", ran.stderr);
    }
    assert!(std::fs::read_to_string(&plan).unwrap().starts_with("version: 1"));
    assert_eq!(std::fs::read_to_string(folder.path("b.csv")).unwrap(), "kept");
}

#[test]
fn a_reader_that_leaves_ends_the_run_which_says_what_was_not_measured() {
    let folder = Folder::new();
    let plan = folder.plan("", "  bulk: {workload: tcp_stream, duration: 100ms, iterations: 200}");
    let mut child = command(&["run", &plan, "--progress", "never"]).stderr(Stdio::piped()).spawn().unwrap();
    let mut header = String::new();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    reader.read_line(&mut header).unwrap();
    assert!(header.starts_with("run_id,"), "the header is known before the first measurement");
    drop(reader);
    let ran = end(child);
    // A busy machine may have its warnings.
    assert!(ran.code == Some(3) && !ran.stderr.contains("error:"), "{:?} {}", ran.code, ran.stderr);
    assert!(
        ran.stderr.contains("the reader of the rows has left: 1 of 1 cases not measured to the end"),
        "{}",
        ran.stderr
    );
}

/// Standard error on a full disk.
fn full() -> File {
    File::options().write(true).open("/dev/full").unwrap()
}

#[test]
fn a_log_on_a_full_disk_ends_nothing() {
    let folder = Folder::new();
    let plan = folder.plan("", BULK);
    let args = ["run", &plan, "-o", &folder.name("r.csv")];
    let ran = end(command(&args).stderr(full()).spawn().unwrap());
    assert_eq!(ran.code, Some(0), "{}", ran.stdout);
    assert_eq!(of(&rows(&folder.path("r.csv")), "summary")[0]["status"], "ok");
    for (args, code) in [(["run", "/nonexistent"], 2), (["check", "/nonexistent"], 2)] {
        assert_eq!(end(command(&args).stderr(full()).spawn().unwrap()).code, Some(code));
    }
    // It does not end the sessions of a daemon either.
    let serve = Serve::telling(full());
    let plan = folder.plan(HOSTS, REMOTE);
    let ran = plumb(&["run", &plan, "--host", &format!("b={}", serve.address), "--progress", "never"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
}

#[test]
fn a_reader_that_leaves_hides_no_verdict() {
    let folder = Folder::new();
    let plan = folder.plan("", &BULK.replace('}', ", assert: [throughput > 900Tbit/s]}"));
    let table = folder.name("r.csv");
    let gate = ["gate", "--assert", "throughput > 900Tbit/s", &table];
    let compare = ["compare", "--self-test", "1%", &table, &table];
    for args in [
        &["run", &plan, "-o", &table][..],
        &gate,
        &compare,
        &["beforeafter", "--collect", "snmp", "-o", "-", "--", "false"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ran = end(command(args).stdout(writer).spawn().unwrap());
        assert_eq!(ran.code, Some(1), "{args:?}: {}", ran.stderr);
    }
}

#[test]
fn a_daemon_that_dies_fails_the_case_and_spares_the_rows_before() {
    let folder = Folder::new();
    let mut serve = Serve::start(&[]);
    let plan = folder.plan(
        &format!("hosts: {{b: {{address: 127.0.0.1, control: \"{}\"}}}}\nrun: {{order: sequential}}", serve.address),
        "  first: {workload: tcp_stream, to: b, bytes: 10MB}\n  second: {workload: tcp_stream, to: b, rate: 200Mbit/s, duration: 10m, interval: 100ms}\n  \
         third: {workload: tcp_stream, bytes: 10MB}",
    );
    let mut child = command(&["run", &plan, "-o", &folder.name("r.csv"), "--interim"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let is_measured = |l: String| l.starts_with("second") && is_interim(&l);
    assert!(lines.by_ref().map_while(Result::ok).any(is_measured), "the second case is measured");
    serve.kill();
    let rest: Vec<String> = lines.map_while(Result::ok).collect();
    let ran = end(child);
    let said = rest.join("\n");
    assert_eq!(ran.code, Some(3), "{said}");
    assert!(
        said.contains("error: case second, iteration 1: host `b`") && said.contains("going on with the next"),
        "{said}"
    );
    let rows = rows(&folder.path("r.csv"));
    let status: Vec<_> = of(&rows, "summary").iter().map(|r| (r["case"].clone(), r["status"].clone())).collect();
    let want = [("first", "ok"), ("second", "failed"), ("third", "ok")];
    assert_eq!(status, want.map(|(c, s)| (c.to_owned(), s.to_owned())));
}

#[test]
fn a_daemon_that_is_started_anew_between_two_cases_is_found_again() {
    let folder = Folder::new();
    let mut serve = Serve::start(&[]);
    let plan = folder.plan(
        &format!("hosts: {{b: {{address: 127.0.0.1, control: \"{}\"}}}}\nrun: {{order: sequential}}", serve.address),
        &format!(
            "  first: {{workload: tcp_stream, to: b, bytes: 10MB}}\n  \
             second: {{workload: command, command: {{run: [sh, -c, 'until [ -e {} ]; do sleep 0.1; done; echo 1'], regex: '(?<throughput>1)'}}}}\n  \
             third: {{workload: tcp_stream, to: b, rate: 200Mbit/s, duration: 10m, interval: 100ms}}\n  fourth: {{workload: tcp_stream, to: b, bytes: 10MB}}",
            folder.name("restarted")
        ),
    );
    let args = ["run", &plan, "-o", &folder.name("r.csv"), "--allow-commands", "--interim"];
    let mut child = command(&args).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    // Once while it is idle.
    assert!(lines.any(|l| l.contains("second  iteration 1")), "second begins");
    serve.anew();
    File::create(folder.path("restarted")).unwrap();
    // Once while it is in use.
    assert!(lines.any(|l| l.starts_with("third") && is_interim(&l)), "third is measured");
    serve.anew();
    let said = lines.collect::<Vec<_>>().join("\n");
    assert_eq!(end(child).code, Some(3), "{said}");
    let rows = rows(&folder.path("r.csv"));
    let status: Vec<_> = of(&rows, "summary").iter().map(|r| (r["case"].clone(), r["status"].clone())).collect();
    let want = [("first", "ok"), ("second", "ok"), ("third", "failed"), ("fourth", "ok")];
    assert_eq!(status, want.map(|(c, s)| (c.to_owned(), s.to_owned())), "{said}");
}

#[test]
fn too_few_open_files_are_said_with_their_remedy() {
    let folder = Folder::new();
    let plan = folder.plan("", "  bulk: {workload: tcp_stream, duration: 100ms, streams: 100}");
    for files in ["64", "128"] {
        let words = format!("ulimit -n {files}; exec \"$0\" run \"$1\" --progress never");
        let ran = Command::new("sh").args(["-c", &words, env!("CARGO_BIN_EXE_plumb"), &plan]).output().unwrap();
        let stderr = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(3), "{stderr}");
        assert!(stderr.contains("Too many open files") && stderr.contains("ulimit -n"), "{stderr}");
    }
}

#[test]
fn a_congestion_control_that_the_kernel_lacks_fails_its_case_only() {
    let folder = Folder::new();
    let plan = folder.plan(
        "",
        "  odd: {workload: tcp_stream, duration: 100ms, socket: {congestion_control: nosuch}}\n  \
         plain: {workload: tcp_stream, duration: 100ms}",
    );
    let ran = plumb(&["run", &plan, "--progress", "never"]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("nosuch"), "{}", ran.stderr);
    let rows = parse(&ran.stdout);
    let odd = rows.iter().find(|r| r["case"] == "odd").unwrap();
    assert_eq!(odd["status"], "failed");
    assert!(odd["error"].contains("nosuch"));
    assert!(of(&rows, "summary").iter().any(|r| r["case"] == "plain" && r["status"] == "ok"));
}

#[test]
fn fail_fast_leaves_rows_for_what_did_not_run() {
    let folder = Folder::new();
    let plan = folder.plan(
        "run: {fail_fast: true}",
        "  odd: {workload: tcp_stream, duration: 100ms, socket: {congestion_control: nosuch}}\n  \
         plain: {workload: tcp_stream, duration: 100ms}",
    );
    let ran = plumb(&["run", &plan, "--progress", "never"]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    let rows = parse(&ran.stdout);
    let rest = rows.iter().find(|r| r["case"] == "plain").unwrap();
    assert_eq!(rest["status"], "skipped");
    assert!(rest["error"].contains("odd failed"));
}
