//! `threads`: several flows on one thread. Every flow moves, their counts add up, and the number of threads is what the
//! kernel counts.

use std::{
    collections::BTreeSet,
    thread,
    time::{Duration, Instant},
};

use netcore::{control::capabilities::has, spec::Transport};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    needs::{has_files, skip},
    netns::Namespace,
    program::{Folder, Row, Serve, command, count, end, number, of, parse, plumb, rows},
};

/// The rows of a plan with these tests, which must succeed.
fn measured(top: &str, tests: &str) -> Vec<Row> {
    let folder = Folder::new();
    let ran = plumb(&["run", &folder.plan(top, tests), "--progress", "never"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let rows = parse(&ran.stdout);
    assert!(of(&rows, "iteration").iter().all(|row| row["status"] == "ok"), "{}", ran.stdout);
    rows
}

/// Jain's fairness index: 1 for equal shares, 1/n if one of n has everything.
fn fairness(shares: &[f64]) -> f64 {
    let (sum, squares) = shares.iter().fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
    sum * sum / (shares.len() as f64 * squares)
}

/// The data threads of a process, as the kernel names them.
fn data_threads(pid: i32) -> BTreeSet<String> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.starts_with("data ")).map(|name| name.trim().to_owned()).collect()
}

/// CPU time of each data thread of a process, in the kernel's ticks.
fn ticks(pid: i32) -> Vec<u64> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    let stats = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("stat")).ok());
    let spent = |stat: String| -> Option<u64> {
        let (name, rest) = stat.split_once(") ")?;
        let words: Vec<&str> = rest.split_whitespace().collect();
        // Fields 14 and 15: user and system time.
        name.contains("(data ").then(|| words[11..13].iter().filter_map(|word| word.parse::<u64>().ok()).sum())
    };
    stats.filter_map(spent).collect()
}

#[test]
fn every_stream_on_a_shared_thread_has_its_share_and_they_add_up_to_what_the_interface_carried() {
    let Some(alone) = Namespace::new() else { return };
    let folder = Folder::new();
    for threads in [1, 2] {
        let test = format!(
            "  it: {{workload: tcp_stream, streams: 16, threads: {threads}, bytes: 200MB, message_size: 16KiB, \
             receive_size: 16KiB, socket: {{congestion_control: reno}}, interval: 100ms}}"
        );
        let plan = folder.plan("", &test);
        // An interval that one end samples late, on a machine that stands still, has no bytes of that end: such a try proves
        // nothing about the sum.
        let mut tries = 0;
        let (rows, [before, after]) = loop {
            let (rows, carried) = alone.carried(&plan);
            if of(&rows, "interval").iter().all(|row| !row["bytes_received"].is_empty()) {
                break (rows, carried);
            }
            tries += 1;
            assert!(tries < 10, "no try had all intervals: {rows:?}");
        };
        let iteration = of(&rows, "iteration")[0];
        assert_eq!((count(iteration, "threads"), iteration["io"].as_str()), (threads, "nonblocking"));
        let received =
            |record: &str| -> Vec<u64> { of(&rows, record).iter().map(|row| count(row, "bytes_received")).collect() };
        assert_eq!(received("stream"), [12_500_000; 16], "{threads} threads");
        assert_eq!(
            (received("interval").iter().sum::<u64>(), count(iteration, "bytes_received")),
            (200_000_000, 200_000_000)
        );
        // Besides the payload: headers of 54 to 94 bytes a packet, what was in the buffers at the window's end, and the
        // control connection.
        let carried = after.received_bytes - before.received_bytes;
        let headers = 94 * (after.received_packets - before.received_packets);
        let (sent, received) = (count(iteration, "bytes_sent"), count(iteration, "bytes_received"));
        assert!(carried >= received, "{threads} threads: {received} reported, {carried} carried");
        let most = sent + headers + (16 << 20);
        assert!(carried <= most, "{threads} threads: {sent} sent with {headers} of headers, {carried} carried");
    }
}

#[test]
fn both_ends_have_as_many_data_threads_as_the_plan_says() {
    let folder = Folder::new();
    let serve = Serve::start(&[]);
    let top = format!("hosts: {{b: {{address: 127.0.0.1, control: \"{}\"}}}}", serve.address);
    for (workload, threads) in [("tcp_rr", 1), ("tcp_rr", 3), ("tcp_rr", 8), ("tcp_crr", 2)] {
        let test = format!("  it: {{workload: {workload}, to: b, streams: 8, threads: {threads}, duration: 1h}}");
        let child = command(&["run", &folder.plan(&top, &test), "--progress", "never"]).spawn().unwrap();
        let (near, far, begun) = (child.id().cast_signed(), serve.pid(), Instant::now());
        // All of them exist from the start of the load to its end.
        let mut most = (BTreeSet::new(), BTreeSet::new());
        while begun.elapsed() < Duration::from_mins(1) && (most.0.len() < threads || most.1.len() < threads) {
            let now = (data_threads(near), data_threads(far));
            most = (
                if now.0.len() > most.0.len() { now.0 } else { most.0 },
                if now.1.len() > most.1.len() { now.1 } else { most.1 },
            );
            thread::sleep(Duration::from_millis(5));
        }
        // Any further thread would exist by now.
        thread::sleep(Duration::from_millis(100));
        let now = (data_threads(near), data_threads(far));
        kill(Pid::from_raw(near), Signal::SIGINT).unwrap();
        let ran = end(child);
        assert_eq!(ran.code, Some(130), "{}", ran.stderr);
        assert_eq!((most.0.len(), most.1.len()), (threads, threads), "{most:?}");
        assert!(now.0.len() <= threads && now.1.len() <= threads, "{now:?}");
        let rows = parse(&ran.stdout);
        assert_eq!(count(of(&rows, "iteration")[0], "threads"), threads as u64);
    }
}

#[test]
fn requests_on_one_thread_are_all_counted_and_timed() {
    let rows = measured(
        "",
        "  closed: {workload: tcp_rr, streams: 8, threads: 1, transactions: 4000, integrity: true}\n  \
         deep: {workload: tcp_rr, streams: 8, threads: 2, transactions: 4000, inflight: 8}\n  \
         offered: {workload: tcp_rr, streams: 8, threads: 1, transactions: 800, rate: 500/s, arrival: poisson}\n  \
         datagrams: {workload: udp_rr, streams: 8, threads: 1, transactions: 4000, inflight: 2}\n  \
         unix: {workload: unix_rr, streams: 8, threads: 1, transactions: 4000}",
    );
    let latencies = netcore::measure::histogram::decode;
    for iteration in of(&rows, "iteration") {
        let case = &iteration["case"];
        let streams: Vec<&Row> = of(&rows, "stream").into_iter().filter(|row| row["case"] == *case).collect();
        let transactions: Vec<u64> = streams.iter().map(|row| count(row, "transactions")).collect();
        let wanted = if case == "offered" { 800 } else { 4000 };
        assert_eq!(transactions, [wanted / 8; 8], "{case}");
        assert_eq!(count(iteration, "transactions"), wanted, "{case}");
        // One latency per transaction.
        let recorded = latencies(&iteration["latency_histogram"]).unwrap().len();
        assert_eq!(recorded, wanted, "{case}");
        assert_eq!(iteration["threads"], if case == "deep" { "2" } else { "1" });
    }
}

#[test]
fn datagrams_on_a_shared_thread_all_arrive_at_a_modest_rate() {
    // All messages of a flow together fit its socket's buffer: a receiver that stands still loses none.
    let rows = measured(
        "",
        "  it: {workload: udp_stream, streams: 4, threads: 1, bytes: 160kB, message_size: 500, rate: 200/s}\n  \
         single: {workload: udp_stream, streams: 4, threads: 2, bytes: 160kB, message_size: 500, rate: 200/s, io: nonblocking}",
    );
    for (iteration, io) in of(&rows, "iteration").into_iter().zip(["batch", "nonblocking"]) {
        assert_eq!(iteration["io"], io);
        assert_eq!(count(iteration, "messages_sent"), 320);
        assert_eq!((count(iteration, "lost"), count(iteration, "duplicated")), (0, 0), "{iteration:?}");
    }
}

#[test]
fn a_schedule_is_kept_by_several_flows_on_one_thread() {
    // A late flow catches up: all sends that are due happen, and none before its time.
    let rows = measured(
        "defaults: {streams: 8, threads: 1, rate: 400/s, pacing: {catch_up: 100000}}",
        "  stream: {workload: tcp_stream, bytes: 400kB, message_size: 1000}\n  \
         requests: {workload: tcp_rr, transactions: 400, arrival: uniform}",
    );
    for row in of(&rows, "iteration") {
        let stream = row["case"] == "stream";
        let done = if stream { count(row, "bytes_sent") / 1000 } else { count(row, "transactions") };
        assert_eq!(done, 400, "{}", row["case"]);
        // The first send of each flow is due at once.
        let due = 400.0 * number(row, "elapsed_s") + 8.0;
        assert!(done as f64 <= due, "{}: {done} of {due} that were due", row["case"]);
    }
}

#[test]
fn both_ways_and_every_transport_share_threads() {
    let folder = Folder::new();
    let kinds = ["mptcp_stream", "mptcp_cc", "dccp_rr", "unix_seqpacket_stream", "unix_dgram_rr", "udplite_stream"];
    let mut tests = String::from(
        "  duplex: {workload: tcp_duplex, streams: 4, threads: 2, bytes: 4MiB, message_size: 16KiB, integrity: true}\n  \
         both: {workload: tcp_stream, streams: 4, threads: 1, bytes: 4MiB, message_size: 16KiB, direction: bidirectional}\n",
    );
    for kind in kinds {
        let name = kind.rsplit_once('_').unwrap().0;
        if Transport::ALL.into_iter().any(|transport| transport.name() == name && has(transport)) {
            let keys = "streams: 4, threads: 2, message_size: 1000";
            let stop = if kind.ends_with("_stream") { "bytes: 400kB" } else { "transactions: 400, reply_timeout: 1m" };
            tests = format!("{tests}  {kind}: {{workload: {kind}, {keys}, {stop}}}\n");
        } else {
            skip(&format!("this kernel has no {name}"));
        }
    }
    let ran = plumb(&["run", &folder.plan("", &tests), "--progress", "never"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let rows = parse(&ran.stdout);
    for row in of(&rows, "stream") {
        let moved = if row["case"] == "mptcp_cc" { "connections" } else { "bytes_received" };
        assert!(number(row, moved) > 0.0, "{row:?}");
    }
    for row in of(&rows, "stream").iter().filter(|row| row["case"] == "duplex" || row["case"] == "both") {
        let ways = if row["case"] == "duplex" { 2 } else { 1 };
        assert_eq!(count(row, "bytes_received"), ways << 20, "{row:?}");
    }
}

#[test]
fn five_hundred_connections_run_on_two_threads() {
    if !has_files(1500) {
        return;
    }
    let rows = measured("", "  it: {workload: tcp_rr, streams: 500, threads: 2, transactions: 20000}");
    let row = of(&rows, "iteration")[0];
    assert_eq!((count(row, "streams"), count(row, "threads"), count(row, "transactions")), (500, 2, 20_000));
    let shares: Vec<u64> = of(&rows, "stream").iter().map(|row| count(row, "transactions")).collect();
    assert_eq!(shares, vec![40; 500]);
}

#[test]
fn connections_on_shared_threads_are_those_that_the_kernel_counted() {
    const FLOWS: u64 = 200;
    const EACH: u64 = 20;
    let Some(alone) = Namespace::new() else { return };
    alone.read("sysctl", &["-q", "-w", "net.ipv4.tcp_fastopen=3"]);
    let folder = Folder::new();
    let all = FLOWS * EACH;
    for (workload, keys) in [
        ("tcp_cc", ""),
        ("tcp_cc", ", close: near_first, ports: 20000-29999"),
        ("tcp_crr", ", integrity: true, response_size: 5000"),
        ("tcp_crr", ", close: near_first"),
        ("tcp_crr", ", close: reset"),
        ("tcp_crr", ", socket: {fastopen: true}"),
        ("tcp_crr", ", rate: 8000/s, arrival: uniform"),
    ] {
        let test = format!("  it: {{workload: {workload}, streams: {FLOWS}, threads: 2, transactions: {all}{keys}}}");
        let plan = folder.plan("", &test);
        let (ran, [before, after]) = alone.around(&plan, |inside| {
            let tcp = ["ActiveOpens", "PassiveOpens", "OutRsts"].map(|key| inside.snmp("Tcp", key));
            let fast = ["TCPFastOpenActive", "TCPFastOpenPassive"]
                .map(|key| inside.snmp_of("/proc/net/netstat", "TcpExt", key));
            [tcp[0], tcp[1], tcp[2], fast[0], fast[1]]
        });
        let [active, passive, resets, fast_active, fast_passive] = std::array::from_fn(|i| after[i] - before[i]);
        let rows = parse(&ran.stdout);
        let row = of(&rows, "iteration")[0];
        assert_eq!((count(row, "threads"), row["io"].as_str()), (2, "nonblocking"));
        assert_eq!((count(row, "transactions"), count(row, "errors")), (all, 0), "{test}");
        let shares: Vec<u64> = of(&rows, "stream").iter().map(|row| count(row, "transactions")).collect();
        assert_eq!(shares, vec![EACH; 200], "{test}");
        assert_eq!(netcore::measure::histogram::decode(&row["latency_histogram"]).unwrap().len(), all, "{test}");
        // The others are the proofs of each flow, and control.
        let expected = all + FLOWS..=all + FLOWS + 4;
        assert!(expected.contains(&active) && expected.contains(&passive), "{test}: {active} {passive}");
        assert_eq!(resets >= all, keys.contains("reset"), "{test}: {resets} resets");
        assert_eq!(fast_active >= all && fast_passive >= all, keys.contains("fastopen"), "{test}: {fast_active}");
    }
}

#[test]
fn connecting_flows_of_a_shared_thread_have_even_shares_and_end_when_they_are_told_to() {
    let folder = Folder::new();
    let serve = Serve::start(&["--max-flows", "200"]);
    let top = format!("hosts: {{b: {{address: 127.0.0.1, control: \"{}\"}}}}", serve.address);
    for workload in ["tcp_cc", "tcp_crr"] {
        let test = format!("  it: {{workload: {workload}, to: b, streams: 200, threads: 2, duration: 1h}}");
        let plan = folder.plan(&top, &test);
        let table = folder.name(&format!("{workload}.csv"));
        let child = command(&["run", &plan, "-o", &table, "--progress", "never"]).spawn().unwrap();
        let (pid, begun) = (child.id().cast_signed(), Instant::now());
        // Enough for several turns of every flow on a busy machine.
        while (ticks(pid).len() < 2 || ticks(pid).iter().any(|ticks| *ticks < 30))
            && begun.elapsed() < Duration::from_mins(1)
        {
            thread::sleep(Duration::from_millis(5));
        }
        kill(Pid::from_raw(pid), Signal::SIGINT).unwrap();
        let ran = end(child);
        assert_eq!(ran.code, Some(130), "{workload}: {}", ran.stderr);
        assert!(!ran.stderr.contains("did not drain") && !ran.stderr.contains("left behind"), "{}", ran.stderr);
        let rows = rows(&folder.path(&format!("{workload}.csv")));
        let row = of(&rows, "iteration")[0];
        assert_eq!(row["status"], "cut");
        assert!(count(row, "connections") > 0, "{row:?}");
        // Flows are assigned round-robin; the kernel's scheduler decides the share of each thread.
        let shares: Vec<f64> = of(&rows, "stream").iter().map(|row| number(row, "connections")).collect();
        for first in 0..2 {
            let of_one: Vec<f64> = shares.iter().copied().skip(first).step_by(2).collect();
            assert!(of_one.iter().all(|share| *share > 0.0) && fairness(&of_one) > 0.8, "{workload}: {of_one:?}");
        }
        assert!((shares.iter().sum::<f64>() - number(row, "connections")).abs() < 0.5);
        let told = Instant::now();
        while !data_threads(serve.pid()).is_empty() {
            assert!(told.elapsed() < Duration::from_mins(1), "{workload}: threads of the far end stay");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn a_peer_that_dies_frees_every_flow_of_a_shared_thread() {
    let folder = Folder::new();
    for workload in ["tcp_stream", "tcp_rr", "udp_rr", "tcp_cc", "tcp_crr"] {
        let mut serve = Serve::start(&[]);
        let top = format!("hosts: {{b: {{address: 127.0.0.1, control: \"{}\"}}}}", serve.address);
        let test = format!("  it: {{workload: {workload}, to: b, streams: 8, threads: 1, duration: 60s}}");
        let plan = folder.plan(&top, &test);
        let child = command(&["run", &plan, "-o", &folder.name("r.csv"), "--progress", "never"]).spawn().unwrap();
        let (pid, begun) = (child.id().cast_signed(), Instant::now());
        while data_threads(pid).is_empty() && begun.elapsed() < Duration::from_secs(20) {
            thread::sleep(Duration::from_millis(5));
        }
        thread::sleep(Duration::from_millis(200));
        serve.kill();
        let ran = end(child);
        assert_eq!(ran.code, Some(3), "{workload}: {}", ran.stderr);
        assert!(ran.stderr.contains("error: case it, iteration 1: host `b`"), "{workload}: {}", ran.stderr);
        let rows = rows(&folder.path("r.csv"));
        assert_eq!(of(&rows, "summary")[0]["status"], "failed");
    }
}

#[test]
fn what_cannot_share_a_thread_is_refused_by_name() {
    let folder = Folder::new();
    for (keys, sentence) in [
        ("workload: tcp_stream, streams: 4, threads: 5", "raise `streams`"),
        ("workload: tcp_stream, streams: 4, threads: 2, io: blocking", "io: blocking needs a thread for each loop"),
        ("workload: tcp_sendfile, streams: 4, threads: 2", "io: sendfile needs a thread for each loop"),
        ("workload: sctp_rr, streams: 4, threads: 2", "over sctp only a blocking call learns"),
        ("workload: sctp_rr, io: nonblocking", "over sctp only a blocking call learns"),
        ("workload: pipe_stream, streams: 4, threads: 2", "calls on a pipe block"),
    ] {
        let ran = plumb(&["check", &folder.plan("", &format!("  it: {{{keys}}}"))]);
        assert_eq!(ran.code, Some(2), "{keys}");
        let said = ran.stdout + &ran.stderr;
        assert!(said.contains(sentence), "{keys}: {said}");
    }
}
