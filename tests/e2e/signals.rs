//! Signals end a measurement early but complete.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    needs::skip,
    program::{Folder, Ran, Serve, command, end, is_interim, number, of, parse, rows, until},
};

/// Starts a measurement of a minute and waits until it runs.
fn long(folder: &Folder) -> Child {
    let plan = folder
        .plan("", "  bulk: {workload: tcp_stream, rate: 200Mbit/s, duration: 60s}\n  next: {workload: tcp_stream}");
    under_way(folder, &plan)
}

/// Starts a plan and waits until `bulk` is measured.
pub fn under_way(folder: &Folder, plan: &str) -> Child {
    let interim = ["--interim", "--set", "tests.bulk.interval=100ms"];
    let run = ["run", plan, "-o", &folder.name("r.csv")];
    let mut child = command(&[&run[..], &interim].concat()).spawn().unwrap();
    let stderr = child.stderr.take().unwrap();
    let mut lines = BufReader::new(stderr).lines().map_while(Result::ok);
    assert!(lines.any(|l| l.contains("bulk") && is_interim(&l)), "no interval was measured");
    // The pipe must be read to its end, or the child would block.
    thread::spawn(move || lines.for_each(drop));
    child
}

pub fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(child.id().cast_signed()), signal).unwrap();
}

/// Whole rows of all that was measured. `by`: the signal, unless it is a timer's, after which the only iteration counts.
fn ended_whole(folder: &Folder, ran: &Ran, code: i32, by: Option<&str>) {
    assert_eq!(ran.code, Some(code), "{}", ran.stderr);
    let rows = rows(&folder.path("r.csv"));
    let iterations = of(&rows, "iteration");
    assert_eq!(iterations.len(), 1);
    assert_eq!(iterations[0]["status"], if by.is_some() { "cut" } else { "ok" });
    let elapsed = number(iterations[0], "elapsed_s");
    assert!(elapsed > 0.05 && elapsed < 59.0, "{elapsed}");
    assert!(number(iterations[0], "throughput_bits_per_s") > 0.0);
    let status: Vec<_> = of(&rows, "summary").iter().map(|r| (r["case"].as_str(), r["status"].as_str())).collect();
    assert_eq!(status, [("bulk", if by.is_some() { "skipped" } else { "ok" }), ("next", "skipped")]);
    assert!(ran.stdout.contains("bulk"), "the results of what was measured are shown: {}", ran.stdout);
    let answer = by.map(|by| format!("The run was interrupted ({by}); 2 cases were not measured to their end."));
    let begins = answer.is_none_or(|answer| ran.stdout.trim_start().starts_with(&answer));
    assert!(begins && by.is_some() == ran.stdout.contains("The run was interrupted"), "{}", ran.stdout);
    // The note names the signal, and where each case ended.
    let interrupted = format!("interrupted by {}: ", by.unwrap_or("SIGALRM"));
    assert!(ran.stdout.contains(&interrupted) && ran.stdout.contains("next (before it ran)"), "{}", ran.stdout);
    let facts = std::fs::read_to_string(folder.path("r.run.json")).unwrap();
    let facts: serde_json::Value = serde_json::from_str(&facts).unwrap();
    assert_eq!(facts["interrupted"], by.unwrap_or("SIGALRM"));
    let unfinished: Vec<_> =
        facts["unfinished"].as_array().unwrap().iter().map(|c| c["case"].as_str().unwrap()).collect();
    if let Some(by) = by {
        assert_eq!(unfinished, ["bulk", "next"]);
        let said = &iterations[0]["error"];
        assert!(said.starts_with(&format!("interrupted by {by} after ")) && said.ends_with(" of 60.0 s"), "{said}");
        let intervals = of(&rows, "interval");
        assert!(intervals.iter().any(|r| r["status"] == "ok"), "whole intervals are facts");
        assert!(ran.stdout.contains("--resume"), "{}", ran.stdout);
    } else {
        assert_eq!(unfinished, ["next"]);
        assert!(ran.stdout.contains("its only iteration was interrupted by SIGALRM after"), "{}", ran.stdout);
    }
}

#[test]
fn sigint_ends_it_whole() {
    let folder = Folder::new();
    let child = long(&folder);
    signal(&child, Signal::SIGINT);
    ended_whole(&folder, &end(child), 130, Some("SIGINT"));
}

#[test]
fn sigterm_ends_it_whole() {
    let folder = Folder::new();
    let child = long(&folder);
    signal(&child, Signal::SIGTERM);
    ended_whole(&folder, &end(child), 143, Some("SIGTERM"));
}

/// Whether SIGHUP is ignored here, which programs that tests start inherit. Says so.
fn hangups_are_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    let ignored = u64::from_str_radix(mask.trim(), 16).unwrap() & 1 == 1;
    if ignored {
        skip("SIGHUP is ignored here (nohup)");
    }
    ignored
}

#[test]
fn a_terminal_that_closes_ends_it_whole() {
    if hangups_are_ignored() {
        return;
    }
    let folder = Folder::new();
    let child = long(&folder);
    // The kernel sends one, and the shell another.
    signal(&child, Signal::SIGHUP);
    signal(&child, Signal::SIGHUP);
    ended_whole(&folder, &end(child), 129, Some("SIGHUP"));
}

#[test]
fn a_hangup_that_is_ignored_stays_ignored() {
    let folder = Folder::new();
    let plan = folder.plan("", "  bulk: {workload: tcp_stream, duration: 1s}");
    let words = "trap '' HUP; \"$0\" run \"$1\" --progress never & sleep 0.5; kill -HUP $!; wait $!";
    let ran = Command::new("sh").args(["-c", words, env!("CARGO_BIN_EXE_plumb"), &plan]).output().unwrap();
    assert_eq!(ran.status.code(), Some(0), "{}", String::from_utf8_lossy(&ran.stderr));
    let rows = parse(&String::from_utf8_lossy(&ran.stdout));
    // Its planned end is at half of that.
    assert!(number(of(&rows, "iteration")[0], "elapsed_s") > 0.9);
}

#[test]
fn sigalrm_is_a_timers_way_to_end_it_and_no_failure() {
    let folder = Folder::new();
    let child = long(&folder);
    signal(&child, Signal::SIGALRM);
    ended_whole(&folder, &end(child), 0, None);
}

#[test]
fn a_second_sigint_ends_it_at_once_and_leaves_rows_that_say_so() {
    let folder = Folder::new();
    // After the first signal it waits for a silent far end as long as the plan allows.
    let mut serve = Serve::start(&[]);
    let plan = folder.plan(
        &format!("hosts: {{far: {{address: 127.0.0.1, control: \"{}\"}}}}", serve.address),
        "  bulk: {workload: tcp_stream, rate: 200Mbit/s, to: far, duration: 60s, timeout: 10m}\n  next: {workload: tcp_stream}",
    );
    let began = Instant::now();
    let child = under_way(&folder, &plan);
    let daemon = Pid::from_raw(serve.pid());
    kill(daemon, Signal::SIGSTOP).unwrap();
    signal(&child, Signal::SIGINT);
    // Two signals that are pending at once would be one.
    let status = format!("/proc/{}/status", child.id());
    let is_pending = || {
        let status = std::fs::read_to_string(&status).unwrap();
        let sets = status.lines().filter_map(|l| l.strip_prefix("ShdPnd:").or(l.strip_prefix("SigPnd:")));
        sets.map(|set| u64::from_str_radix(set.trim(), 16).unwrap())
            .any(|set| set & (1 << (Signal::SIGINT as u32 - 1)) != 0)
    };
    until("the first signal is taken", || !is_pending());
    // The thread that counts them must have seen the first, too.
    thread::sleep(Duration::from_secs(1));
    signal(&child, Signal::SIGINT);
    let ran = end(child);
    kill(daemon, Signal::SIGCONT).unwrap();
    serve.kill();
    assert_eq!(ran.code, Some(130), "{}", ran.stderr);
    assert!(began.elapsed() < Duration::from_mins(9), "it waited for the silent end: {:?}", began.elapsed());
    let rows = rows(&folder.path("r.csv"));
    assert!(of(&rows, "iteration").is_empty(), "what was cut off has no result");
    let status: Vec<_> = of(&rows, "summary").iter().map(|r| (r["case"].as_str(), r["status"].as_str())).collect();
    assert_eq!(status, [("bulk", "skipped"), ("next", "skipped")]);
}

#[test]
fn a_daemon_that_is_asked_to_end_ends() {
    let ignored = hangups_are_ignored();
    for which in
        [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP].into_iter().filter(|one| !ignored || *one != Signal::SIGHUP)
    {
        let mut serve = Serve::start(&[]);
        kill(Pid::from_raw(serve.pid()), which).unwrap();
        assert_eq!(serve.wait(), Some(0));
    }
}

#[test]
fn a_group_is_cut_off_as_a_whole_and_junit_says_what_was_not_measured() {
    let folder = Folder::new();
    let plan = folder.plan(
        "",
        "  bulk: {workload: tcp_stream, bytes: 10MB}\n  pair:\n    duration: 10m\n    interval: 100ms\n    concurrent:\n      \
         start: {max_skew: 10s}\n      members:\n        \
         a: {workload: tcp_stream}\n        b: {workload: tcp_rr}",
    );
    let (table, junit) = (folder.name("r.csv"), folder.name("j.xml"));
    let mut child = command(&["run", &plan, "-o", &table, "--junit", &junit, "--interim"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|l| l.starts_with("pair") && is_interim(&l)), "the group was not measured");
    let rest = thread::spawn(move || lines.for_each(drop));
    signal(&child, Signal::SIGINT);
    let ran = end(child);
    rest.join().unwrap();
    assert_eq!(ran.code, Some(130));
    let rows = rows(&folder.path("r.csv"));
    let of_pair: Vec<_> = of(&rows, "iteration").into_iter().filter(|r| r["test"] == "pair").collect();
    let members: Vec<_> = of_pair.iter().map(|r| r["member"].as_str()).filter(|member| !member.is_empty()).collect();
    assert_eq!(members, ["a", "b"]);
    assert!(of_pair.iter().all(|r| r["status"] == "cut"), "{of_pair:?}");
    assert!(of(&rows, "summary").iter().all(|r| (r["test"] == "pair") == (r["status"] == "skipped")));
    let xml = std::fs::read_to_string(junit).unwrap();
    assert!(xml.contains("<skipped") && xml.contains("interrupted by SIGINT"), "{xml}");
}
