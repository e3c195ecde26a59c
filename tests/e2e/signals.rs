//! Signals end a measurement early but whole.

use std::{
    io::{BufRead, BufReader},
    process::Child,
    thread,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::program::{Folder, Ran, Serve, command, end, number, of, rows};

/// Starts a minute's measurement and waits until it is under way.
fn long(folder: &Folder) -> Child {
    let plan = folder.plan("", "  bulk: {workload: tcp_stream, duration: 60s}\n  next: {workload: tcp_stream}");
    let mut child = command(&["run", &plan, "-o", &folder.name("r.csv")]).spawn().unwrap();
    let stderr = child.stderr.take().unwrap();
    let mut lines = BufReader::new(stderr).lines().map_while(Result::ok);
    assert!(lines.any(|l| l.contains("bulk  iteration 1")));
    // Nobody may be left holding the other end of a pipe that nobody reads.
    thread::spawn(move || lines.for_each(drop));
    thread::sleep(Duration::from_millis(400));
    child
}

fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(child.id().cast_signed()), signal).unwrap();
}

fn ended_whole(folder: &Folder, ran: &Ran, code: i32) {
    assert_eq!(ran.code, Some(code), "{}", ran.stderr);
    let rows = rows(&folder.path("r.csv"));
    let iterations = of(&rows, "iteration");
    assert_eq!(iterations.len(), 1);
    assert_eq!(iterations[0]["status"], "ok");
    let elapsed = number(iterations[0], "elapsed_s");
    assert!(elapsed > 0.05 && elapsed < 59.0, "{elapsed}");
    assert!(number(iterations[0], "throughput_bits_per_s") > 0.0);
    let status: Vec<_> = of(&rows, "summary").iter().map(|r| (r["case"].as_str(), r["status"].as_str())).collect();
    assert_eq!(status, [("bulk", "ok"), ("next", "skipped")]);
    assert!(ran.stdout.contains("bulk"), "the results of what was measured are shown: {}", ran.stdout);
}

#[test]
fn sigint_ends_it_whole() {
    let folder = Folder::new();
    let child = long(&folder);
    signal(&child, Signal::SIGINT);
    ended_whole(&folder, &end(child), 130);
}

#[test]
fn sigterm_ends_it_whole() {
    let folder = Folder::new();
    let child = long(&folder);
    signal(&child, Signal::SIGTERM);
    ended_whole(&folder, &end(child), 143);
}

#[test]
fn sigalrm_is_a_timers_way_to_end_it_and_no_failure() {
    let folder = Folder::new();
    let child = long(&folder);
    signal(&child, Signal::SIGALRM);
    ended_whole(&folder, &end(child), 0);
}

#[test]
fn a_daemon_that_is_asked_to_end_ends() {
    for which in [Signal::SIGTERM, Signal::SIGINT] {
        let mut serve = Serve::start(&[]);
        kill(Pid::from_raw(serve.pid()), which).unwrap();
        assert_eq!(serve.wait(), Some(0));
    }
}
