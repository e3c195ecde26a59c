//! `pairs` of a plan between hosts on a bridge: rounds, loads, suspects, and a daemon that is killed.

use std::{collections::BTreeSet, fs, process::Child};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    fleet::{Fleet, HUB, fleet_hosts},
    launch::launch_of,
    program::{Folder, Row, Serve, end, number, of, plumb, rows, until},
};

fn pairs_of(rows: &[Row]) -> BTreeSet<(String, String)> {
    rows.iter().map(|row| (row["from"].clone(), row["to"].clone())).collect()
}

#[test]
fn every_pair_is_measured_and_no_host_has_two_at_once() {
    let Some(fleet) = Fleet::new(8) else { return };
    let folder = Folder::new();
    let tests = "  links: {workload: tcp_stream, duration: 100ms, pairs: {of: h}, assert: [suspects < 100]}\n  \
                 delays: {workload: tcp_rr, duration: 100ms, pairs: {of: \"h[1-4]\", shape: neighbours}}\n  \
                 halves: {workload: tcp_stream, rate: 50Mbit/s, duration: 500ms, interval: 20ms, pairs: {of: h, shape: bisection}, concurrent: {start: {max_skew: 5s}}}\n  \
                 crowd: {workload: tcp_stream, rate: 50Mbit/s, duration: 500ms, interval: 20ms, pairs: {of: h, shape: incast, to: \"h[1]\"}, concurrent: {start: {max_skew: 5s}}}";
    let plan = folder.plan(&fleet_hosts(8), tests);
    let ran = fleet.plumb(&["run", &plan, "-o", &folder.name("r.csv"), "--progress", "never"]);
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
    let all = rows(&folder.path("r.csv"));
    let iterations = of(&all, "iteration");
    let links: Vec<Row> = iterations.iter().filter(|row| row["test"] == "links").map(|row| (*row).clone()).collect();
    assert_eq!((links.len(), pairs_of(&links).len()), (56, 56));
    assert!(links.iter().all(|row| row["status"] == "ok"));
    // No host is in two pairs of a round.
    for round in 1..=14 {
        let of_round: Vec<&Row> = links.iter().filter(|row| row["round"] == round.to_string()).collect();
        let ends: BTreeSet<&str> = of_round.iter().flat_map(|row| [row["from"].as_str(), &row["to"]]).collect();
        assert_eq!((of_round.len(), ends.len()), (4, 8), "round {round}");
    }
    let total = |test: &str| -> Vec<f64> {
        let is_it = |row: &&&Row| row["test"] == test && row["member"].is_empty();
        iterations.iter().filter(is_it).map(|row| number(row, "throughput_bits_per_s")).collect()
    };
    // Hosts that were paused for different parts of it share no window, which is told instead.
    for test in ["halves", "crowd"] {
        let is_told = ran.stderr.contains(&format!("case {test}, iteration 1 has no total"));
        assert_eq!(total(test).len(), usize::from(!is_told), "{test}: {}", ran.stderr);
    }
    assert_eq!(iterations.iter().filter(|row| row["test"] == "crowd").count(), 7 + total("crowd").len());
    assert_eq!(iterations.iter().filter(|row| row["test"] == "delays").count(), 6);

    // Of a pair from which others took a CPU in all of its starts the survey says so, and has no value.
    // Below the verdicts in a sentence, the survey stands where the results begin, and its pairs have no lines of their own.
    let (answer, results) = ran.stdout.trim_start().split_once('\n').unwrap();
    assert!(answer.starts_with("The assertion ") && answer.contains(": links suspects < 100"), "{answer}");
    assert!(results.starts_with("\nlinks: throughput, 8 hosts\n\n"), "{}", ran.stdout);
    assert!(ran.stdout.contains("from \\ to") && ran.stdout.contains("\ndelays: "), "{}", ran.stdout);
    assert!(!ran.stdout.contains("\n  links[") && ran.stdout.contains("\n  halves"), "{}", ran.stdout);
    let alone = fleet.plumb(&["gate", &folder.name("r.csv"), "--assert", "suspects == 0"]);
    assert_eq!(alone.code, Some(2), "{}", alone.stderr);
    assert!(alone.stderr.contains("which only a plan knows: give --plan PLAN"), "{}", alone.stderr);
}

/// The daemon of a host, once there is a row of a survey.
fn daemon_in_the_middle(fleet: &Fleet, folder: &Folder, host: &str, running: &mut Child) -> Pid {
    let table = folder.path("r.csv");
    let is_begun = || fs::read_to_string(&table).is_ok_and(|text| text.lines().count() > 2);
    until("the first rows", || is_begun() || running.try_wait().unwrap().is_some());
    assert!(running.try_wait().unwrap().is_none(), "the run has ended");
    let is_daemon = |line: &str| line.contains(" serve --launched");
    let found = fleet.processes(host).into_iter().find(|(_, line)| is_daemon(line)).expect("its daemon runs");
    Pid::from_raw(found.0)
}

#[test]
fn a_daemon_that_is_killed_takes_its_own_pairs_along_and_no_others() {
    let Some(fleet) = Fleet::new(6) else { return };
    let folder = Folder::new();
    let tests =
        "  links: {workload: tcp_stream, duration: 500ms, rate: 1Mbit/s, pairs: {of: h}, assert: [spread < 100%]}";
    let plan = folder.plan(&fleet_hosts(6), tests);
    let words = ["/run/fleet/bin/plumb", "run", &plan, "-o", &folder.name("r.csv"), "--progress", "never"];
    let mut running = fleet.command(HUB, &words).spawn().unwrap();
    kill(daemon_in_the_middle(&fleet, &folder, "h3", &mut running), Signal::SIGKILL).unwrap();
    let ran = end(running);
    assert_eq!(ran.code, Some(3), "{}{}", ran.stdout, ran.stderr);
    let first = rows(&folder.path("r.csv"));
    let with = |status: &str| -> Vec<Row> {
        let is_it = |row: &&&Row| row["status"] == status;
        of(&first, "iteration").iter().filter(is_it).map(|row| (*row).clone()).collect()
    };
    let (good, failed) = (with("ok"), with("failed"));
    assert_eq!(good.len() + failed.len(), 30, "{}", ran.stderr);
    assert!(!failed.is_empty() && failed.iter().all(|row| row["from"] == "h3" || row["to"] == "h3"), "{}", ran.stderr);
    assert!(failed.iter().all(|row| row["error"].contains("h3")), "{}", failed[0]["error"]);
    // The other hosts measured among themselves, to the end.
    assert_eq!(good.iter().filter(|row| row["from"] != "h3" && row["to"] != "h3").count(), 20);
    assert!(ran.stdout.contains(" without a value: "), "{}", ran.stdout);

    // The rows that are there stay as they are, and only what failed is measured.
    let folder_of = folder.name("r.csv");
    let ran = fleet.plumb(&["run", &plan, "--resume", &folder_of]);
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
    let all = rows(&folder.path("r.csv"));
    let whole: Vec<Row> = of(&all, "iteration").iter().map(|row| (*row).clone()).collect();
    assert_eq!((whole.len(), pairs_of(&whole).len()), (30, 30));
    assert!(whole.iter().all(|row| row["status"] == "ok"));
    let times = |rows: &[Row]| -> BTreeSet<String> { rows.iter().map(|row| row["time"].clone()).collect() };
    assert!(times(&whole).is_superset(&times(&good)));
    // Each round has one pair of the host. One from which others took a CPU starts up to three times.
    let again: BTreeSet<_> = failed.iter().map(|row| row["case_id"].clone()).collect();
    let rounds = ran.stderr.matches("links round ").count();
    assert!((again.len()..=3 * again.len()).contains(&rounds), "{rounds} for {}: {}", again.len(), ran.stderr);
}

#[test]
fn a_range_of_addresses_is_one_allocation_and_each_host_has_its_own() {
    let Some(fleet) = Fleet::new(3).and_then(Fleet::with_slurm) else { return };
    let folder = Folder::new();
    // Slurm numbers its tasks by its own list of nodes.
    let top = "hosts: {node: {address: \"10.77.0.[3,1,2]\", launch: slurm}}";
    let plan = folder.plan(top, "  links: {workload: tcp_rr, transactions: 10, pairs: {of: node}}");
    let ran = fleet.plumb(&["run", &plan, "-o", &folder.name("r.csv"), "--progress", "never"]);
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
    assert_eq!(pairs_of(&rows(&folder.path("r.csv"))).len(), 6);
    for (host, node, address) in
        [("node1", "h3", "10.77.0.3"), ("node2", "h1", "10.77.0.1"), ("node3", "h2", "10.77.0.2")]
    {
        let launch = launch_of(&folder, host);
        assert_eq!((&launch["node"], &launch["data_address"]), (&node.into(), &address.into()), "{launch}");
    }
    let plan = folder.plan(&top.replace("[3,1,2]", "[1-2,9]"), "  links: {workload: tcp_rr, pairs: {of: node}}");
    let ran = fleet.plumb(&["run", &plan, "--progress", "never"]);
    assert_eq!(ran.code, Some(3), "{}{}", ran.stdout, ran.stderr);
    assert!(
        ran.stderr.contains("has the address 10.77.0.9 of host `node3`; the others have 10.77.0.3"),
        "{}",
        ran.stderr
    );
}

#[test]
fn a_daemon_that_grants_too_few_sessions_is_named_before_anything_is_measured() {
    let receiver = Serve::start(&["--max-sessions", "4", "--max-sessions-per-client", "2"]);
    let senders: Vec<Serve> = (0..3).map(|_| Serve::start(&[])).collect();
    let folder = Folder::new();
    let tests = "  crowd: {workload: tcp_rr, transactions: 10, pairs: {of: h, shape: incast, to: h1}}\n  \
                 links: {workload: tcp_rr, transactions: 10, pairs: {of: h}}";
    let plan = folder.plan("hosts: {\"h[1-4]\": {address: 127.0.0.1}}", tests);
    let hosts: Vec<String> =
        [&receiver].into_iter().chain(&senders).zip(1..).map(|(it, n)| format!("h{n}={}", it.address)).collect();
    let mut words = vec!["run", plan.as_str(), "--progress", "never"];
    for host in &hosts {
        words.extend(["--host", host.as_str()]);
    }
    let ran = plumb(&words);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    let sentence = "host `h1` grants 2 sessions to one client, and crowd needs 3 at the same time: start its daemon with \
                    --max-sessions 3 --max-sessions-per-client 3";
    assert!(ran.stderr.contains(sentence), "{}", ran.stderr);
    words.extend(["--only", "links"]);
    let ran = plumb(&words);
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
}
