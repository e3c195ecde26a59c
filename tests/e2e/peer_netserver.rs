//! This program against the real netserver: a plan with `speaks: netperf`.

use std::process::{Child, Stdio};

use crate::{
    netns::Namespace,
    peer_netperf::namespace,
    program::{Folder, Ran, count, number, of, parse, plumb, until},
};

/// A netserver in a namespace; it is killed when this is dropped.
struct Netserver {
    namespace: Namespace,
    child: Child,
}

impl Netserver {
    fn new() -> Option<Self> {
        let namespace = namespace("netserver")?;
        let mut command = namespace.command("netserver");
        let child = command.arg("-D").stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        until("netserver listens", || namespace.read("ss", &["-tln"]).contains(":12865"));
        Some(Self { namespace, child })
    }

    /// Processes that serve a client.
    fn sessions(&self) -> usize {
        let id = self.child.id();
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
        children.split_whitespace().count()
    }
}

impl Drop for Netserver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_netserver_is_the_far_end_of_every_test_that_it_has() {
    let Some(server) = Netserver::new() else { return };
    let folder = Folder::new();
    let plan = folder.plan(
        "hosts: {old: {address: 127.0.0.1, speaks: netperf}}",
        "  stream: {workload: tcp_stream, to: old, bytes: 100MB}
  maerts: {workload: tcp_maerts, to: old, bytes: 100MB}
  rr: {workload: tcp_rr, to: old, transactions: 1000, inflight: 4, request_size: 100, response_size: 200}
  crr: {workload: tcp_crr, to: old, transactions: 200}
  cc: {workload: tcp_cc, to: old, transactions: 200}
  udp: {workload: udp_rr, to: old, transactions: 500}
  datagrams: {workload: udp_stream, to: old, message_size: 1000, rate: 2000/s, duration: 1s}
  back: {workload: tcp_stream, to: old, direction: reverse, warmup: 500ms, duration: 500ms, socket: {mss: 1000}}",
    );
    let before = server.namespace.interface("lo").received_bytes;
    let mut command = server.namespace.command(env!("CARGO_BIN_EXE_plumb"));
    let ran: Ran = command.args(["run", &plan, "--progress", "never"]).output().unwrap().into();
    let moved = server.namespace.interface("lo").received_bytes - before;
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let rows = parse(&ran.stdout);
    let row = |test: &str| *of(&rows, "iteration").iter().find(|row| row["test"] == test).unwrap();
    let mut sum = 0;
    for (test, bytes) in [("stream", 100_000_000), ("maerts", 100_000_000)] {
        let row = row(test);
        // Whole buffers: netserver sends until it has sent the count.
        let (sent, received) = (count(row, "bytes_sent"), count(row, "bytes_received"));
        assert_eq!(sent, received, "{test}");
        assert!((bytes..bytes + 131_072).contains(&received), "{test}: {received}");
        assert!(number(row, "throughput_bits_per_s") > 0.0 && number(row, "remote_cpu_ratio") <= 1.0, "{test}");
        assert!(row["remote_cpu_steal_ratio"].is_empty(), "netperf does not tell: {test}");
        sum += received;
    }
    assert!(count(row("stream"), "remote_receive_buffer_bytes") > 0);
    assert!(count(row("maerts"), "remote_send_buffer_bytes") > 0);
    assert!(sum <= moved, "{moved} bytes over loopback, {sum} counted");
    for (test, transactions, bytes) in [("rr", 1000, 300_000), ("crr", 200, 400), ("cc", 200, 0), ("udp", 500, 16_000)]
    {
        let row = row(test);
        assert_eq!(count(row, "transactions"), transactions, "{test}");
        assert_eq!((count(row, "bytes_sent"), count(row, "bytes_received")), (bytes, bytes), "{test}");
        assert!(number(row, "latency_p50_us") > 0.0, "{test}");
    }
    let datagrams = row("datagrams");
    let (sent, received) = (count(datagrams, "messages_sent"), count(datagrams, "messages_received"));
    assert!(0 < received && received <= sent, "{datagrams:?}");
    assert_eq!(count(datagrams, "lost"), sent - received);
    assert_eq!(count(datagrams, "bytes_received"), received * 1000);
    let back = row("back");
    assert!(number(back, "throughput_bits_per_s") > 0.0 && count(back, "bytes_received") > 0, "{back:?}");
    assert!(back["remote_cpu_ratio"].is_empty(), "its CPU figures contain the warm-up");
    assert!(ran.stderr.contains("netperf cannot set mss"), "{}", ran.stderr);
    for row in of(&rows, "iteration") {
        assert_eq!((row["control"].as_str(), row["status"].as_str()), ("netperf", "ok"), "{row:?}");
    }
    until("netserver's sessions have ended", || server.sessions() == 0);
}

#[test]
fn a_netserver_alone_is_measured_to_without_a_plan() {
    let Some(server) = Netserver::new() else { return };
    let mut command = server.namespace.command(env!("CARGO_BIN_EXE_plumb"));
    let ran: Ran = command.args(["measure", "127.0.0.1", "-t", "3"]).output().unwrap().into();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stdout.contains(" · speaks to netserver on port 12865 · "), "{}", ran.stdout);
    assert!(["idle", "download", "upload"].iter().all(|test| ran.stdout.contains(test)), "{}", ran.stdout);
}

#[test]
fn tests_that_netperf_lacks_are_refused_at_their_lines() {
    let folder = Folder::new();
    for (body, word, advice) in [
        ("workload: tcp_stream, streams: 2", "streams", "one connection"),
        ("workload: tcp_stream, warmup: 1s", "warmup", "direction: reverse"),
        ("workload: tcp_rr, cooldown: 1s, transactions: 5", "cooldown", "duration"),
        ("workload: tcp_stream, direction: bidirectional", "direction", "concurrent"),
        ("workload: tcp_maerts, duration: 1500ms", "duration", "whole seconds"),
        ("workload: mptcp_stream", "workload", "tcp_stream"),
        ("workload: ping", "workload", "lacks"),
        ("workload: tcp_stream, integrity: true", "integrity", "leave"),
        ("workload: tcp_crr, close: near_first", "close", "far_first"),
        ("workload: tcp_stream, remote_socket: {mss: 1000}", "mss", "leave it out"),
    ] {
        let hosts = "hosts: {old: {address: 127.0.0.1, speaks: netperf}}";
        let plan = folder.plan(hosts, &format!("  it: {{to: old, {body}}}"));
        let ran = plumb(&["check", &plan]);
        assert_eq!(ran.code, Some(2), "{body}: {}", ran.stdout);
        assert!(ran.stderr.contains("plan.yaml:5") && ran.stderr.contains(word), "{body}: {}", ran.stderr);
        assert!(ran.stderr.contains(advice), "{body}: {}", ran.stderr);
    }
}
