//! `io: uring`: the flows of a thread over one submission ring. Counts agree with the interface's, the calls are those of
//! the ring (seen by strace), and a kernel that has or allows none gets a sentence.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::{Command, Stdio},
};

use netcore::{control::capabilities::has, spec::Transport};
use nix::{
    sys::signal::{Signal, kill},
    unistd::{Pid, Uid},
};

use crate::{
    needs::skip,
    netns::Namespace,
    program::{Folder, Ran, Row, Serve, command, count, end, number, of, parse, plumb, until},
    strace::{self, Traced},
};

const PLUMB: &str = env!("CARGO_BIN_EXE_plumb");

/// Whether this machine has submission rings; prints the reason if not.
fn has_rings() -> bool {
    let folder = Folder::new();
    let plan = folder.plan("", "  it: {workload: tcp_rr, io: uring, transactions: 1}");
    let ran = plumb(&["run", &plan, "--progress", "never"]);
    if ran.stderr.contains("no submission ring") {
        skip(&ran.stderr);
        return false;
    }
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    true
}

/// The rows of a plan with these tests, which must succeed, and the notes.
fn measured(top: &str, tests: &str) -> (Vec<Row>, String) {
    let folder = Folder::new();
    let ran = plumb(&["run", &folder.plan(top, tests), "--progress", "never"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let rows = parse(&ran.stdout);
    assert!(of(&rows, "iteration").iter().all(|row| row["status"] == "ok" && row["io"] == "uring"), "{}", ran.stdout);
    (rows, ran.stderr)
}

#[test]
fn many_streams_over_rings_are_what_the_interface_carried() {
    let Some(alone) = Namespace::new().filter(|_| has_rings()) else { return };
    let folder = Folder::new();
    // Small messages go through the ring's own buffers, large ones into the flows'.
    for (streams, message, integrity) in [(16usize, "16KiB", true), (256, "64KiB", false), (8, "500", true)] {
        let test = format!(
            "  it: {{workload: tcp_stream, io: uring, streams: {streams}, threads: 2, bytes: 64MiB, message_size: {message}, \
             receive_size: {message}, integrity: {integrity}, socket: {{congestion_control: reno}}}}"
        );
        let plan = folder.plan("", &test);
        let (rows, [before, after]) = alone.carried(&plan);
        let iteration = of(&rows, "iteration")[0];
        assert_eq!((count(iteration, "threads"), iteration["io"].as_str()), (2, "uring"));
        let received: Vec<u64> = of(&rows, "stream").iter().map(|row| count(row, "bytes_received")).collect();
        assert_eq!(received, vec![(64 << 20) / streams as u64; streams], "{message}");
        assert_eq!(count(iteration, "bytes_received"), 64 << 20, "{message}");
        // Besides the payload: headers of 54 to 94 bytes a packet, what was sent again, and the control connection.
        let carried = after.received_bytes - before.received_bytes;
        let headers = 94 * (after.received_packets - before.received_packets);
        let sent = count(iteration, "bytes_sent");
        assert!(carried >= sent && carried <= sent + headers + (16 << 20), "{message}: {sent} sent, {carried} carried");
    }
}

#[test]
fn requests_over_rings_are_all_counted_and_timed() {
    if !has_rings() {
        return;
    }
    let (rows, notes) = measured(
        "defaults: {io: uring, streams: 8}",
        "  closed: {workload: tcp_rr, threads: 1, transactions: 4000, integrity: true}\n  \
         own: {workload: tcp_rr, transactions: 4000}\n  \
         deep: {workload: tcp_rr, threads: 2, transactions: 4000, inflight: 8, integrity: true}\n  \
         coalesced: {workload: tcp_rr, threads: 2, transactions: 4000, inflight: 8, coalesce: true}\n  \
         offered: {workload: tcp_rr, threads: 1, transactions: 800, rate: 500/s, arrival: poisson}\n  \
         large: {workload: tcp_rr, threads: 1, transactions: 400, request_size: 5000, response_size: 300000, integrity: true}\n  \
         unix: {workload: unix_rr, threads: 1, transactions: 4000}",
    );
    let latencies = netcore::measure::histogram::decode;
    for iteration in of(&rows, "iteration") {
        let case = &iteration["case"];
        let streams: Vec<&Row> = of(&rows, "stream").into_iter().filter(|row| row["case"] == *case).collect();
        let transactions: Vec<u64> = streams.iter().map(|row| count(row, "transactions")).collect();
        let wanted = match case.as_str() {
            "offered" => 800,
            "large" => 400,
            _ => 4000,
        };
        assert_eq!(transactions, [wanted / 8; 8], "{case}");
        assert_eq!(latencies(&iteration["latency_histogram"]).unwrap().len(), wanted, "{case}: one per transaction");
    }
    assert!(notes.contains("io_uring of the far end:") && notes.contains("per call"), "{notes}");
}

#[test]
fn requests_that_exceed_the_socket_buffers_do_not_block_both_ends() {
    if !has_rings() {
        return;
    }
    // 64 requests and responses of 64 KiB in flight, over buffers of a few: each end could wait for the other to read.
    let (rows, _) = measured(
        "",
        "  it: {workload: tcp_rr, io: uring, streams: 2, threads: 1, inflight: 64, transactions: 1000, \
         request_size: 64KiB, response_size: 64KiB, socket: {send_buffer: 16KiB, receive_buffer: 16KiB}, \
         remote_socket: {send_buffer: 16KiB, receive_buffer: 16KiB}}",
    );
    assert_eq!(count(of(&rows, "iteration")[0], "transactions"), 1000);
}

#[test]
fn both_ways_phases_and_rates_work_over_rings() {
    if !has_rings() {
        return;
    }
    let mut tests = String::from(
        "  duplex: {workload: tcp_duplex, streams: 4, threads: 2, bytes: 4MiB, message_size: 16KiB, integrity: true}\n  \
         own: {workload: tcp_duplex, streams: 2, bytes: 4MiB, message_size: 1000}\n  \
         both: {workload: tcp_stream, streams: 4, threads: 1, bytes: 4MiB, message_size: 16KiB, direction: bidirectional}\n  \
         back: {workload: tcp_maerts, streams: 4, threads: 1, bytes: 4MiB, collect: [latency]}\n  \
         paced: {workload: tcp_stream, streams: 8, threads: 1, bytes: 400kB, message_size: 1000, rate: 400/s, \
         pacing: {catch_up: 100000}}\n  \
         timed: {workload: tcp_stream, streams: 4, threads: 2, warmup: 100ms, duration: 300ms, interval: 100ms}\n  \
         unix: {workload: unix_stream, streams: 4, threads: 2, bytes: 4MiB, integrity: true}\n",
    );
    if has(Transport::Mptcp) {
        tests += "  mptcp: {workload: mptcp_stream, streams: 4, threads: 2, bytes: 4MiB}\n";
    }
    let (rows, _) = measured("defaults: {io: uring}", &tests);
    for row in of(&rows, "iteration") {
        let (case, received) = (row["case"].as_str(), number(row, "bytes_received"));
        match case {
            "paced" => {
                assert_eq!(count(row, "bytes_sent"), 400_000);
                // The first send of each flow is due at once. The receiver's clock tells the time, to some milliseconds.
                let due = 400.0 * (number(row, "elapsed_s") + 0.05) + 8.0;
                assert!(400.0 <= due, "400 of {due} that were due");
            }
            "timed" => assert!(received > 0.0),
            _ => {}
        }
    }
    for row in of(&rows, "stream").iter().filter(|row| !["paced", "timed"].contains(&row["case"].as_str())) {
        let bytes = match row["case"].as_str() {
            "duplex" => 2 << 20,
            "own" => 4 << 20,
            _ => 1 << 20,
        };
        assert_eq!(count(row, "bytes_received"), bytes, "{row:?}");
    }
}

#[test]
fn flows_over_rings_end_with_the_run_and_with_their_peer() {
    if !has_rings() {
        return;
    }
    let folder = Folder::new();
    let endless = "  it: {workload: tcp_rr, io: uring, streams: 64, threads: 2, duration: 1h}";
    let path = folder.path("rows.csv");
    let begin = |top: &str, test: &str| {
        let plan = folder.plan(top, test);
        let child = command(&["run", &plan, "--progress", "never", "-o", &path.display().to_string()]).spawn().unwrap();
        let carries = || data_threads(child.id().cast_signed()) >= 2;
        until("data threads", carries);
        child
    };
    let child = begin("", endless);
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).unwrap();
    assert_eq!(end(child).code, Some(130));
    let mut serve = Serve::start(&[]);
    let top = format!("hosts: {{b: {{address: 127.0.0.1, control: \"{}\"}}}}", serve.address);
    std::fs::remove_file(&path).unwrap();
    let child = begin(&top, &endless.replace("tcp_rr,", "tcp_rr, to: b,"));
    serve.kill();
    let ran = end(child);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
}

/// Number of data threads of a process.
fn data_threads(pid: i32) -> usize {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.starts_with("data ")).count()
}

#[test]
fn a_thread_of_many_flows_makes_one_kind_of_call() {
    let folder = Folder::new();
    if !has_rings() {
        return;
    }
    for test in [
        "  it: {workload: tcp_rr, io: uring, streams: 32, threads: 1, transactions: 6400}",
        "  it: {workload: tcp_stream, io: uring, streams: 8, threads: 1, bytes: 8MiB}",
        "  it: {workload: tcp_rr, io: uring, streams: 8, threads: 1, transactions: 400, rate: 4000/s}",
    ] {
        let moves = "io_uring_enter,sendto,recvfrom,sendmsg,recvmsg,epoll_wait,epoll_pwait,ppoll,poll";
        let Some(traced) = strace::run_here(moves, &[], &folder.plan("", test)) else { return };
        assert_eq!(traced.ran.code, Some(0), "{}", traced.ran.stderr);
        let mut calls: BTreeMap<&str, BTreeMap<&str, u64>> = BTreeMap::new();
        for (thread, call) in &traced.calls {
            let Some((name, _)) = call.split_once('(').filter(|(name, _)| !name.contains('<')) else { continue };
            *calls.entry(thread).or_default().entry(name).or_default() += 1;
        }
        let rings: Vec<_> = calls.values().filter(|calls| calls.contains_key("io_uring_enter")).collect();
        assert_eq!(rings.len(), 2, "a data thread at each end: {calls:?}");
        for ring in rings {
            assert_eq!(ring.keys().copied().collect::<BTreeSet<_>>(), BTreeSet::from(["io_uring_enter"]), "{ring:?}");
            if test.contains("6400") {
                // A send and a receive each.
                assert!(ring["io_uring_enter"] < 6400, "{ring:?}");
            }
        }
    }
}

#[test]
fn a_kernel_that_gives_no_ring_has_a_sentence() {
    if !has_rings() {
        return;
    }
    let folder = Folder::new();
    let plan = folder.plan("", "  it: {workload: tcp_rr, io: uring, streams: 4, threads: 1, transactions: 40}");
    for (call, errno, sentences) in [
        ("io_uring_setup", "ENOSYS", ["this kernel has no io_uring (ENOSYS)", "leave `io` out"]),
        ("io_uring_setup", "EPERM", ["io_uring is forbidden here", "or leave `io` out"]),
        ("io_uring_setup", "ENOMEM", ["no memory for the ring", "raise `ulimit -l`"]),
        ("io_uring_register", "ENOMEM", ["no memory for the ring", "raise `ulimit -l`"]),
        ("io_uring_enter", "EBADFD", ["cannot wait for its submission ring", "case it"]),
    ] {
        // Later calls work: with a ring whose every call fails, memory could not be taken back.
        let when = if call == "io_uring_enter" { ":when=2..3" } else { "" };
        let inject = format!("inject={call}:error={errno}{when}");
        let Some(Traced { ran, .. }) = strace::run_here(call, &["-e", &inject], &plan) else { return };
        assert_eq!(ran.code, Some(3), "{call} {errno}: {}", ran.stderr);
        for sentence in sentences {
            assert!(ran.stderr.contains(sentence), "{call} {errno}, {sentence}: {}", ran.stderr);
        }
    }
}

#[test]
fn an_older_kernel_is_used_with_what_it_has() {
    if !has_rings() {
        return;
    }
    let folder = Folder::new();
    let plan = folder.plan(
        "defaults: {io: uring, streams: 4, threads: 1}",
        "  requests: {workload: tcp_rr, transactions: 400, integrity: true}\n  \
         offered: {workload: tcp_rr, transactions: 40, rate: 400/s}\n  \
         bulk: {workload: tcp_stream, bytes: 4MiB, integrity: true}",
    );
    // The first two calls of each thread: neither of the newer flags is known.
    let inject = "inject=io_uring_setup:error=EINVAL:when=1..2";
    let Some(traced) = strace::run_here("io_uring_setup", &["-e", inject], &plan) else { return };
    let ran = &traced.ran;
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(traced.count(&["INJECTED"]) > 0, "{:?}", traced.calls);
    let rows = parse(&ran.stdout);
    let counts: Vec<&str> = of(&rows, "iteration").iter().map(|row| row["transactions"].as_str()).collect();
    assert_eq!(counts, ["400", "40", ""]);
}

#[test]
fn a_user_whose_memory_may_not_be_locked_is_told_the_limit() {
    if !has_rings() || !Uid::effective().is_root() {
        return;
    }
    let folder = Folder::new();
    let plan = folder.plan("", "  it: {workload: tcp_rr, io: uring, streams: 64, threads: 1, transactions: 640}");
    let own = std::os::unix::fs::chown(folder.path("."), Some(65534), Some(65534));
    own.unwrap();
    let program = folder.name("plumb");
    std::fs::copy(PLUMB, &program).unwrap();
    let run = |bytes: &str| -> Ran {
        let mut limited = Command::new("prlimit");
        limited.arg(format!("--memlock={bytes}:{bytes}"));
        limited.args(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all"]);
        limited.args([&program, "run", "--progress", "never", &plan]);
        limited.env("HOME", folder.path(".")).stdin(Stdio::null()).output().unwrap().into()
    };
    let ran = run("8388608");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let ran = run("4096");
    // Kernels from 5.12 to 6.13 count no ring against this limit.
    if ran.code == Some(0) {
        return skip("this kernel does not count rings as locked memory");
    }
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("locked memory is limited to 4 KiB"), "{}", ran.stderr);
}

#[test]
fn what_rings_do_not_run_is_refused() {
    let folder = Folder::new();
    for (test, reason) in [
        ("workload: udp_stream", "io: uring does not run this workload"),
        ("workload: tcp_crr", "io: uring does not run this workload"),
        ("workload: pipe_rr", "io: uring does not run this workload"),
        ("workload: tcp_stream, receive: discard", "leave `receive`"),
    ] {
        let ran = plumb(&["check", &folder.plan("", &format!("  it: {{{test}, io: uring}}"))]);
        assert_eq!(ran.code, Some(2), "{test}: {}", ran.stderr);
        assert!(ran.stderr.contains(reason), "{test}: {}", ran.stderr);
    }
}
