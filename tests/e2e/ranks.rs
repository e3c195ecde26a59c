//! Tests of several ranks: collectives, patterns of applications and NAS kernels over connections of their own.

use std::{
    collections::BTreeMap,
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use netcore::spec::ranks::Operation;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    fleet::Fleet,
    launch::run,
    program::{Folder, Ran, Serve, command, count, end, number, of, plumb, rows, until},
};

/// Hosts of a fleet whose daemons a command starts, as an inventory.
fn launched(hosts: usize) -> String {
    let host = |i: usize| {
        format!(
            "h{i}: {{address: 10.77.0.{i}, launch: {{command: {{run: [/run/fleet/bin/on, \"{{host}}\"], program: \
             /run/fleet/bin/plumb}}}}}}"
        )
    };
    format!("{{{}}}", (1..=hosts).map(host).collect::<Vec<_>>().join(", "))
}

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

fn measured(folder: &Folder, top: &str, tests: &str) -> Ran {
    let plan = folder.plan(top, tests);
    plumb(&["run", &plan, "-o", &folder.name("r.csv"), "--progress", "never"])
}

#[test]
fn every_operation_gives_a_row_of_all_and_one_of_each_rank() {
    let folder = Folder::new();
    let names: Vec<&str> = Operation::ALL.iter().map(|operation| operation.as_str()).collect();
    let tests = format!(
        "  c: {{workload: tcp_collective, ranks: 4, transactions: 20, integrity: true, message_size: 800, matrix: {{operation: \
         [{}]}}}}",
        names.join(", ")
    );
    let ran = measured(&folder, "", &tests);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let rows = rows(&folder.path("r.csv"));
    for &operation in Operation::ALL {
        let name = operation.as_str();
        let of_it = |record| -> Vec<_> {
            of(&rows, record).into_iter().filter(|row| row["operation"] == name).cloned().collect()
        };
        let (all, each) = (of_it("iteration"), of_it("stream"));
        assert_eq!((all.len(), each.len()), (1, 4), "{name}");
        let all = &all[0];
        assert!(count(all, "transactions") >= 20, "{name}");
        assert_eq!((all["ranks"].as_str(), all["workload"].as_str()), ("4", "tcp_collective"));
        assert!(!all["algorithm"].is_empty(), "{name}");
        let times: Vec<f64> = each.iter().map(|row| number(row, "operation_time_us")).collect();
        let greatest = times.iter().copied().fold(0.0, f64::max);
        // The slowest rank of each operation may be another one.
        assert!(number(all, "operation_time_us") >= 0.999 * greatest, "{name}: {times:?}");
        let mean = times.iter().sum::<f64>() / 4.0;
        assert!((number(all, "operation_time_mean_us") - mean).abs() < 0.01 * mean, "{name}: {times:?}");
        assert!(number(all, "own_time_us") >= 0.0 && number(all, "arrival_spread_us") >= 0.0, "{name}");
        // The ranks share a clock.
        assert!(number(all, "arrival_bound_us") < 0.001, "{name}");
        for (sent, received) in [("bytes_sent", "bytes_received"), ("messages_sent", "messages_received")] {
            let sum = |column| each.iter().map(|row| count(row, column)).sum::<u64>();
            assert_eq!(sum(sent), sum(received), "{name}");
            assert_eq!(sum(sent), count(all, sent), "{name}");
        }
        match operation.facts().bus {
            Some(bus) => {
                let bits = bus.messages(4) * 800.0 * 8.0 / (number(all, "operation_time_us") / 1e6);
                assert!((number(all, "bus_bits_per_s") / bits - 1.0).abs() < 0.001, "{name}");
                assert_eq!(all["bus_formula"], bus.as_str());
            }
            None => assert_eq!(all["bus_bits_per_s"], "", "{name}"),
        }
    }
}

/// Every rank sends three blocks to the others in an alltoall by pairs: the links carry these bytes and headers.
#[test]
fn bytes_between_hosts_are_those_of_their_interfaces() {
    let Some(fleet) = Fleet::new(4) else { return };
    let folder = Folder::new();
    let before: Vec<u64> = fleet.hosts().map(|host| fleet.sent_bytes(&host)).collect();
    let ran = run(
        &fleet,
        &folder,
        &launched(4),
        "  all: {workload: tcp_collective, ranks: [h1, \"h[2-4]\"], operation: alltoall, message_size: 100000, transactions: 20}",
    );
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let rows = rows(&folder.path("r.csv"));
    let all = of(&rows, "iteration")[0];
    assert_eq!(
        (all["from"].as_str(), all["to"].as_str(), all["algorithm"].as_str()),
        ("h1", "h[2-4]", "pairwise_exchange")
    );
    let each: BTreeMap<String, u64> =
        of(&rows, "stream").iter().map(|row| (row["from"].clone(), count(row, "bytes_sent"))).collect();
    assert_eq!(each.len(), 4);
    let operations = count(all, "transactions");
    for (host, before) in fleet.hosts().zip(before) {
        let payload = operations * 3 * 100_000;
        assert_eq!(each[&host], payload, "{host}");
        let carried = fleet.sent_bytes(&host) - before;
        // Warm-up and the agreement to go on are not counted; headers are few beside such blocks.
        assert!(carried > payload && carried < payload * 12 / 10 + 3_000_000, "{host}: {carried} for {payload}");
    }
}

/// Every host sends through a token bucket of 50 Mbit/s: operations whose algorithm keeps every link busy come near it, and
/// none has more.
#[test]
fn bus_bandwidth_is_bounded_by_the_links() {
    let Some(fleet) = Fleet::new(4) else { return };
    for host in fleet.hosts() {
        fleet.read(&host, &words("tc qdisc add dev eth0 root tbf rate 50mbit burst 16kb latency 50ms"));
    }
    let folder = Folder::new();
    let ran = run(
        &fleet,
        &folder,
        &launched(4),
        "  c: {workload: tcp_collective, ranks: \"h[1-4]\", message_size: 240000, duration: 2s, matrix: {operation: [allreduce, \
         allgather, alltoall, scatter]}}",
    );
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    for row in of(&rows(&folder.path("r.csv")), "iteration") {
        let bus = number(row, "bus_bits_per_s");
        assert!(bus > 20e6 && bus < 51e6, "{}: {bus}", row["operation"]);
    }
}

#[test]
fn kernels_verify_and_say_how_much_they_talked() {
    let folder = Folder::new();
    let tests = "  k: {ranks: 4, matrix: {workload: [nas_ep, nas_is], class: [S]}}";
    let ran = measured(&folder, "", tests);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let rows = rows(&folder.path("r.csv"));
    let of_kernel = |name| of(&rows, "iteration").into_iter().find(|row| row["workload"] == name).unwrap();
    let (ep, is) = (of_kernel("nas_ep"), of_kernel("nas_is"));
    for row in [ep, is] {
        assert_eq!((row["verified"].as_str(), row["class"].as_str()), ("true", "S"));
        assert!(number(row, "mops_per_s") > 0.0);
    }
    // 2^25 operations of EP, ten times 2^16 keys of IS.
    for (row, mops) in [(ep, 33.554_432), (is, 0.655_36)] {
        assert!((number(row, "mops_per_s") * number(row, "elapsed_s") / mops - 1.0).abs() < 0.01);
    }
    // All keys cross between ranks in each of ten iterations; EP sends sums.
    assert!(count(is, "bytes_sent") > 10 * 65_536 * 4 / 2, "{}", is["bytes_sent"]);
    assert!(count(ep, "bytes_sent") < 100_000, "{}", ep["bytes_sent"]);
}

/// One daemon is killed in the middle: the case fails with the rank and the host, the rows before stay, no process is stuck.
#[test]
fn a_rank_that_dies_is_named() {
    let folder = Folder::new();
    let mut daemons: Vec<Serve> = (0..3).map(|_| Serve::start(&[])).collect();
    let hosts: Vec<String> = daemons
        .iter()
        .enumerate()
        .map(|(i, d)| format!("n{i}: {{address: 127.0.0.1, control: \"{}\"}}", d.address))
        .collect();
    let plan = folder.plan(
        &format!("hosts: {{{}}}", hosts.join(", ")),
        "  first: {workload: tcp_collective, ranks: \"n[0-2]\", operation: allreduce, transactions: 50}\n  long: {workload: \
         tcp_collective, ranks: \"n[0-2]\", operation: allreduce, duration: 60s}\n  after: {workload: tcp_collective, ranks: \
         \"n[0-1]\", operation: barrier, transactions: 50}",
    );
    let table = folder.path("r.csv");
    let child = command(&["run", &plan, "-o", &table.display().to_string(), "--progress", "never"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    until("the first case is written", || table.exists() && of(&rows(&table), "iteration").len() == 1);
    // The load of the next case begins.
    thread::sleep(Duration::from_millis(700));
    daemons[2].kill();
    let began = Instant::now();
    let ran = end(child);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(began.elapsed() < Duration::from_secs(40), "the others wait no longer than they must");
    assert!(ran.stderr.contains("n2"), "{}", ran.stderr);
    let rows = rows(&table);
    let status: BTreeMap<&str, &str> =
        of(&rows, "iteration").iter().map(|row| (row["test"].as_str(), row["status"].as_str())).collect();
    assert_eq!(status, BTreeMap::from([("after", "ok"), ("first", "ok"), ("long", "failed")]), "{}", ran.stderr);
}

#[test]
fn an_interrupted_operation_ends_at_all_ranks() {
    let folder = Folder::new();
    let plan = folder.plan("", "  long: {workload: tcp_collective, ranks: 3, operation: allgather, duration: 60s}");
    let table = folder.name("r.csv");
    let child = command(&["run", &plan, "-o", &table, "--progress", "never"]).stderr(Stdio::piped()).spawn().unwrap();
    thread::sleep(Duration::from_secs(2));
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).unwrap();
    let ran = end(child);
    assert_eq!(ran.code, Some(130), "{}", ran.stderr);
    let rows = rows(&folder.path("r.csv"));
    let row = of(&rows, "iteration")[0];
    assert_eq!(row["status"], "cut");
    assert!(row["error"].contains("interrupted by SIGINT after"), "{}", row["error"]);
    assert!(count(row, "transactions") > 0);
}

#[test]
fn mistakes_are_told_at_their_place() {
    let hosts = "hosts: {\"n[1-4]\": {address: \"10.1.0.[1-4]\"}, iperf: {address: 10.0.0.2, speaks: iperf3}}";
    for (test, sentence) in [
        ("workload: tcp_collective, operation: bcast", "no `ranks` says between whom"),
        ("workload: tcp_collective, ranks: 4", "no `operation` says what the ranks do"),
        ("workload: tcp_collective, ranks: 1, operation: bcast", "1 rank here"),
        ("workload: tcp_collective, ranks: n1, operation: bcast", "1 rank here"),
        ("workload: tcp_collective, ranks: [\"n[1-2]\", n2], operation: bcast", "host `n2` is in `ranks` twice"),
        ("workload: tcp_collective, ranks: \"n[1-9]\", operation: bcast", "unknown host `n[5-9]`"),
        ("workload: tcp_collective, ranks: [n1, iperf], operation: bcast", "a rank needs a daemon"),
        ("workload: tcp_collective, ranks: \"n[3-1]\", operation: bcast", "n[3-1]"),
        ("workload: tcp_collective, ranks: 4, operation: bcast, ranks_per_host: 0", "`ranks_per_host` is 0"),
        ("workload: tcp_collective, ranks: 4, operation: bcst", "bcst"),
        ("workload: tcp_collective, ranks: 4, operation: allreduce, message_size: 12", "12 bytes are no whole number"),
        ("workload: tcp_collective, ranks: 4, operation: bcast, compute: 1ms", "bcast has no busy time"),
        ("workload: tcp_collective, ranks: 4, operation: ring, compute: 9000h", "`compute` is 32400000 s"),
        ("workload: tcp_collective, ranks: 6, operation: butterfly", "a power of two as the number of ranks"),
        ("workload: tcp_collective, ranks: 4, operation: alltoall, message_size: 1GiB", "a daemon grants 1073741824"),
        ("workload: tcp_collective, ranks: 4, operation: bcast, streams: 2", "`streams` means nothing to ranks"),
        ("workload: tcp_collective, ranks: 4, operation: bcast, to: n1", "`to` means nothing to ranks"),
        ("workload: tcp_collective, ranks: 4, operation: bcast, class: S", "`class` means nothing to a collective"),
        ("workload: nas_is, ranks: 4, operation: bcast", "`operation` means nothing to a kernel"),
        ("workload: nas_is, ranks: 4, class: Z", "Z"),
        ("workload: tcp_stream, operation: bcast", "`operation` is for workloads of several ranks"),
        ("workload: udp_collective, ranks: 4", "unknown workload"),
        ("concurrent: {members: {a: {workload: nas_is, ranks: 4}}}", "cannot be a member of a group"),
    ] {
        let folder = Folder::new();
        let ran = plumb(&["check", &folder.plan(hosts, &format!("  t: {{{test}}}"))]);
        assert_eq!(ran.code, Some(2), "{test}: {}", ran.stderr);
        assert!(ran.stderr.contains(sentence) && ran.stderr.contains("plan.yaml:5:"), "{test}: {}", ran.stderr);
    }
}
