//! Cells that only some workloads fill.

use std::collections::BTreeSet;

use netcore::{control::capabilities::has, spec::Transport};
use runner::plan::workload::names_over;

use crate::program::{Folder, number, of, parse, plumb, rows};
use crate::{needs::skip, netns::Namespace};

#[test]
fn connect_tests_show_what_is_in_time_wait_at_both_ends() {
    let folder = Folder::new();
    let plan = folder.plan("", "  it: {workload: tcp_cc, transactions: 200, close: near_first}");
    let ran = plumb(&["run", &plan, "-o", &folder.name("r.csv"), "--progress", "never"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let rows = rows(&folder.path("r.csv"));
    let row = of(&rows, "iteration")[0];
    // Connections that the near end closed first stay for a minute; both ends are in one network namespace. What was there before
    // expires meanwhile, so the level after them is theirs and no difference is. The kernel may use a few of their ports again.
    for end in ["local", "remote"] {
        assert!(number(row, &format!("{end}_time_wait_before")) >= 0.0);
        let after = number(row, &format!("{end}_time_wait_after"));
        assert!(after >= 150.0, "{end}: {after} of 200");
    }
    assert!(ran.stdout.contains("connections in TIME_WAIT at the end that connects: "), "{}", ran.stdout);
}

/// Every name that is published runs on this machine, unless its kernel lacks the transport.
#[test]
fn every_published_workload_runs() {
    let folder = Folder::new();
    // A kernel may have vsock and not its loopback; MPI takes a launcher, and has tests of its own.
    let elsewhere = [Transport::Vsock, Transport::Mpi];
    let here = Transport::ALL.into_iter().filter(|t| has(*t) && !elsewhere.contains(t));
    let names: Vec<String> = here.flat_map(names_over).collect();
    assert!(names.contains(&"unix_crr".to_owned()));
    let lo = ", socket: {device: lo}, remote_socket: {device: lo}";
    // By counts: a machine that stands still delays them. Messages are few enough for any queue.
    let stop = |name: &str| match name {
        _ if ["_rr", "_cc", "_crr", "_pingpong"].iter().any(|end| name.ends_with(end)) => "transactions: 50",
        _ => "bytes: 64kB, message_size: 1000, rate: 1000/s",
    };
    let tests: Vec<String> = names
        .iter()
        .map(|name| {
            format!("  {name}: {{workload: {name}, {}{}}}", stop(name), if name.starts_with("link") { lo } else { "" })
        })
        .collect();
    let plan = folder.plan("", &tests.join("\n"));
    let ran = plumb(&["run", &plan, "-o", &folder.name("r.csv"), "--progress", "never"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let rows = rows(&folder.path("r.csv"));
    // A duplex test has a row for each direction too.
    let iterations = of(&rows, "iteration");
    let ran: BTreeSet<&str> = iterations.iter().map(|row| row["test"].as_str()).collect();
    assert_eq!(ran, names.iter().map(String::as_str).collect());
    for row in iterations {
        assert_eq!(row["status"], "ok", "{}: {}", row["test"], row["error"]);
    }
}

#[test]
fn udp_works_without_connections_too_and_only_udp_takes_the_key() {
    let folder = Folder::new();
    let plan = folder.plan(
        "defaults: {connected: false}",
        "  stream: {workload: udp_stream, rate: 500/s, message_size: 1000, bytes: 50kB}\n  \
         trips: {workload: udp_rr, transactions: 200, reply_timeout: 1m}",
    );
    let ran = plumb(&["run", &plan, "--progress", "never"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let rows = parse(&ran.stdout);
    let iterations = of(&rows, "iteration");
    assert!(number(iterations[0], "messages_received") > 0.0 && number(iterations[1], "transactions") > 0.0);
    // Answered requests count as transactions, lost ones as errors.
    assert_eq!((iterations[1]["messages_sent"].as_str(), iterations[1]["errors"].as_str()), ("", "0"));
    let plan = folder.plan("", "  it: {workload: tcp_rr, connected: false}");
    let ran = plumb(&["check", &plan]);
    assert_eq!(ran.code, Some(2));
    assert!((ran.stdout + &ran.stderr).contains("for udp and udplite"));
}

#[test]
fn streams_show_their_send_and_their_receive_calls_where_they_are_timed() {
    let folder = Folder::new();
    let plan = folder.plan(
        "",
        "  it: {workload: tcp_stream, bytes: 20MB, iterations: 2, collect: [latency], assert: [receive_call.p99 > 0us]}\n  \
           not: {workload: tcp_stream, bytes: 10MB}",
    );
    let ran = plumb(&["run", &plan, "--progress", "never"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let rows = parse(&ran.stdout);
    for row in rows.iter().filter(|row| row["test"] == "it" && row["status"] != "discarded") {
        assert_eq!(row["latency_kind"], "send");
        assert!(number(row, "latency_p50_us") <= number(row, "latency_max_us"));
        assert!(number(row, "receive_call_p50_us") <= number(row, "receive_call_p99_us"));
        assert!(number(row, "receive_call_p99_us") <= number(row, "receive_call_max_us"));
        assert!(!row["receive_call_histogram"].is_empty());
    }
    assert!(rows.iter().filter(|row| row["test"] == "not").all(|row| row["receive_call_max_us"].is_empty()));
}

#[test]
fn a_transport_that_a_kernel_lacks_is_told_before_anything_runs() {
    let folder = Folder::new();
    for (transport, workload, module) in [
        (Transport::Sctp, "sctp_stream", "modprobe sctp"),
        (Transport::Dccp, "dccp_rr", "modprobe dccp_ipv4"),
        (Transport::Vsock, "vsock_rr", "modprobe vsock"),
    ] {
        if has(transport) {
            skip(&format!("this kernel has {workload}"));
            continue;
        }
        let plan = folder.plan(
            "",
            &format!("  first: {{workload: tcp_rr, duration: 100ms}}\n  it: {{workload: {workload}, duration: 100ms}}"),
        );
        let ran = plumb(&["run", &plan, "--progress", "never"]);
        assert_eq!(ran.code, Some(3), "{workload}");
        assert!(ran.stderr.contains("is not available") && ran.stderr.contains(module), "{}", ran.stderr);
        assert!(of(&parse(&ran.stdout), "iteration").is_empty(), "nothing runs: {}", ran.stdout);
    }
}

#[test]
fn a_kernel_that_would_not_pace_datagrams_says_so() {
    let folder = Folder::new();
    for mode in ["kernel", "txtime"] {
        let body = format!("{{workload: udp_stream, rate: 1000/s, duration: 100ms, pacing: {{mode: {mode}}}}}");
        let plan = folder.plan("", &format!("  it: {body}"));
        let ran = plumb(&["run", &plan, "--progress", "never"]);
        if ran.code == Some(0) {
            skip("the loopback has fq here: it paces");
            continue;
        }
        assert_eq!(ran.code, Some(3));
        assert!(
            ran.stderr.contains("queueing discipline of lo is ") && ran.stderr.contains("root fq"),
            "{}",
            ran.stderr
        );
    }
}

#[test]
fn netperfs_xti_tests_run_over_sockets_and_say_so() {
    let folder = Folder::new();
    let plan = folder.plan(
        "defaults: {duration: 100ms}",
        "  trips: {workload: XTI_TCP_RR}\n  datagrams: {workload: xti_udp_stream, rate: 500/s}",
    );
    let ran = plumb(&["run", &plan, "--progress", "never"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let rows = parse(&ran.stdout);
    let workloads: Vec<_> = of(&rows, "iteration").iter().map(|row| row["workload"].clone()).collect();
    assert_eq!(workloads, ["tcp_rr", "udp_stream"]);
    assert_eq!(ran.stderr.matches("XTI has no implementation on Linux: the socket engine runs this").count(), 2);
}

#[test]
fn what_a_message_is_too_short_to_say_is_left_empty() {
    let folder = Folder::new();
    let plan = folder.plan(
        "defaults: {rate: 500/s, workload: udp_stream}",
        "  unnumbered: {message_size: 7, bytes: 350}\n  untimed: {message_size: 8, bytes: 400}\n  \
           whole: {message_size: 16, bytes: 800}",
    );
    let ran = plumb(&["run", &plan, "--progress", "never"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let rows = parse(&ran.stdout);
    let rows = of(&rows, "iteration");
    for (row, [lost, reordered, jitter]) in
        rows.iter().zip([[true, true, true], [false, false, true], [false, false, false]])
    {
        let empty = |column: &str| row[column].is_empty();
        assert_eq!(
            [empty("lost"), empty("reordered"), empty("jitter_us")],
            [lost, reordered, jitter],
            "{}",
            row["test"]
        );
        // All bytes sent arrive, also where only bytes can be counted.
        assert!(number(row, "messages_received") > 0.0 && number(row, "bytes_received") > 0.0);
    }
    let body = "  it: {workload: udp_stream, message_size: 7, rate: 500/s, assert: [loss_ratio < 1%]}";
    let ran = plumb(&["check", &folder.plan("", body)]);
    assert!(ran.code == Some(2) && (ran.stdout + &ran.stderr).contains("needs 8 bytes for the number"));
}

#[test]
fn fast_open_acts_or_is_refused() {
    let Some(namespace) = Namespace::new() else { return };
    let folder = Folder::new();
    let plan = folder.plan("", "  it: {workload: tcp_crr, transactions: 50, socket: {fastopen: true}}");
    let run = || {
        let run = ["run", &plan, "-o", &folder.name("r.csv"), "--progress", "never"];
        namespace.command(env!("CARGO_BIN_EXE_plumb")).args(run).output().unwrap()
    };
    namespace.read("sysctl", &["-q", "-w", "net.ipv4.tcp_fastopen=1"]);
    let ran = run();
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert_eq!(ran.status.code(), Some(3), "{said}");
    assert!(said.contains("accepts no TCP Fast Open (net.ipv4.tcp_fastopen is 1)"), "{said}");
    namespace.read("sysctl", &["-q", "-w", "net.ipv4.tcp_fastopen=3"]);
    assert_eq!(run().status.code(), Some(0));
    // Every connection except the first, which fetches the cookie.
    let counted = |key: &str| namespace.snmp_of("/proc/net/netstat", "TcpExt", key);
    assert!(counted("TCPFastOpenActive") >= 50 && counted("TCPFastOpenPassive") >= 50);
    let record = std::fs::read_to_string(folder.path("r.run.json")).unwrap();
    let record: serde_json::Value = serde_json::from_str(&record).unwrap();
    let case = record["cases"].as_object().unwrap().values().next().unwrap();
    for end in ["near_options", "far_options"] {
        let options = case[end].as_array().unwrap();
        let granted = options.iter().find(|granted| granted["option"] == "fastopen").unwrap();
        assert_eq!((&granted["requested"], &granted["at_end"]), (&"true".into(), &"true".into()), "{end}");
    }
}
