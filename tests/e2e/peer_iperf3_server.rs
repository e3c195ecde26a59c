//! Plans whose far end is the real `iperf3 -s`, in network namespaces.

use std::{
    process::{Child, Stdio},
    thread,
};

use serde_json::Value;

use crate::{
    needs::has_program,
    netns::Namespace,
    peer_iperf3::count as counted,
    program::{Folder, Ran, Row, command, count, of, rows, until},
};

/// A namespace with `iperf3 -s`, which prints a document for each test.
struct Server {
    namespace: Namespace,
    child: Child,
    folder: Folder,
}

impl Server {
    fn new(arguments: &[&str]) -> Option<Self> {
        if !has_program("iperf3", "iperf3") {
            return None;
        }
        let (namespace, folder) = (Namespace::new()?, Folder::new());
        let log = std::fs::File::create(folder.path("server.json")).unwrap();
        let mut command = namespace.command("iperf3");
        let child = command.args(["-s", "-J"]).args(arguments).stdout(log).stderr(Stdio::null()).spawn().unwrap();
        let server = Self { namespace, child, folder };
        until("the server listens", || server.namespace.read("ss", &["-Htln"]).contains(":5201"));
        Some(server)
    }

    /// Runs tests with a plan's defaults.
    fn run(&self, defaults: &str, tests: &str) -> (Ran, Vec<Row>) {
        let top = format!("hosts: {{box: {{address: 127.0.0.1, speaks: iperf3}}}}\ndefaults: {{to: box{defaults}}}");
        let (plan, out) = (self.folder.plan(&top, tests), self.folder.path("out.csv"));
        let mut inside = self.namespace.command(env!("CARGO_BIN_EXE_plumb"));
        inside.args(["run", &plan, "--overwrite", "-o"]).arg(&out);
        let ran = inside.stdin(Stdio::null()).output().expect("plumb starts").into();
        let rows = if out.exists() { rows(&out) } else { Vec::new() };
        (ran, rows)
    }

    /// The documents of the tests so far.
    fn documents(&self, tests: usize) -> Vec<Value> {
        let read = || -> Vec<Value> {
            let text = std::fs::read_to_string(self.folder.path("server.json")).unwrap();
            serde_json::Deserializer::from_str(&text).into_iter::<Value>().filter_map(Result::ok).collect()
        };
        until("the server's document", || read().len() >= tests);
        read()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn iteration<'r>(rows: &'r [Row], test: &str) -> Vec<&'r Row> {
    of(rows, "iteration").into_iter().filter(|row| row["test"] == test).collect()
}

/// A test, and the check of its rows with the server's document.
type Case<'c> = (&'c str, fn(&[Row], &Value));

/// Runs one test per server, all at once, and compares both programs' counts.
fn compare(tests: &[Case<'_>]) {
    thread::scope(|scope| {
        for (body, check) in tests {
            scope.spawn(move || {
                let Some(server) = Server::new(&[]) else { return };
                let (ran, rows) = server.run(", iterations: 1", &format!("  t: {body}"));
                assert_eq!(ran.code, Some(0), "{body}: {}", ran.stderr);
                let rows: Vec<Row> = iteration(&rows, "t").into_iter().cloned().collect();
                assert!(rows.iter().all(|row| row["status"] == "ok" && row["control"] == "iperf3"), "{body}: {rows:?}");
                check(&rows, &server.documents(1)[0]);
            });
        }
    });
}

/// The server's own count is the row's, and what was sent arrived.
fn arrived(rows: &[Row], document: &Value) {
    let [row] = rows else { panic!("{rows:?}") };
    assert_eq!(count(row, "bytes_received"), counted(document, "/end/sum_received/bytes"), "{row:?}");
    assert!(count(row, "bytes_received") > 0);
    assert_ne!(row["remote_process_cpus"], "");
    assert_eq!(row["remote_cpu_ratio"], "", "the server does not say how busy the machine is");
}

/// Both programs miss the same datagrams. The server knows of those before the last that it has seen.
fn lost(row: &Row, document: &Value) {
    let unseen = count(row, "messages_sent") - counted(document, "/end/sum/packets");
    assert_eq!(count(row, "lost"), counted(document, "/end/sum/lost_packets") + unseen, "{row:?}");
}

/// Datagrams of a direction: both ends' counts and the loss agree.
fn datagrams(row: &Row) {
    assert_eq!(count(row, "messages_sent"), count(row, "messages_received") + count(row, "lost"), "{row:?}");
    assert_ne!(row["jitter_us"], "");
}

#[test]
fn the_counts_of_both_programs_are_equal() {
    compare(&[
        ("{workload: tcp_stream, duration: 1s}", arrived),
        ("{workload: tcp_stream, duration: 1s, streams: 4, rate: 400Mbit/s}", arrived),
        (
            "{workload: tcp_stream, bytes: 20MB, socket: {congestion_control: reno, mss: 1000, no_delay: true, dscp: ef}}",
            |rows, document| {
                arrived(rows, document);
                assert_eq!(count(&rows[0], "bytes_received"), 20_000_000);
                assert_eq!(document.pointer("/end/receiver_tcp_congestion").and_then(Value::as_str), Some("reno"));
            },
        ),
        ("{workload: tcp_stream, duration: 1s, direction: reverse}", |rows, document| {
            let row = &rows[0];
            assert_eq!(count(row, "bytes_sent"), counted(document, "/end/sum_sent/bytes"));
            assert!(count(row, "bytes_received") > 0 && !row["remote_retransmits"].is_empty(), "{row:?}");
        }),
        ("{workload: tcp_stream, duration: 1s, warmup: 1s, direction: reverse}", |rows, document| {
            assert_eq!(count(&rows[0], "bytes_sent"), counted(document, "/end/sum_sent/bytes"));
        }),
        ("{workload: tcp_stream, duration: 1s, direction: bidirectional, streams: 2}", |rows, document| {
            let [forward, reverse, _both] = rows else { panic!("{rows:?}") };
            assert_eq!(count(forward, "bytes_received"), counted(document, "/end/sum_received/bytes"));
            assert_eq!(count(reverse, "bytes_sent"), counted(document, "/end/sum_sent_bidir_reverse/bytes"));
        }),
        ("{workload: udp_stream, duration: 1s, rate: 10Mbit/s, streams: 2}", |rows, document| {
            datagrams(&rows[0]);
            lost(&rows[0], document);
            assert_eq!(rows[0]["reordered"], "", "the server does not say which came late");
        }),
        ("{workload: udp_stream, duration: 1s, rate: 10Mbit/s, direction: reverse}", |rows, document| {
            datagrams(&rows[0]);
            assert_eq!(count(&rows[0], "messages_sent"), counted(document, "/end/sum/packets"));
            assert_eq!(rows[0]["reordered"], "0");
        }),
        ("{workload: udp_stream, duration: 1s, warmup: 1s, rate: 10Mbit/s}", |rows, _| datagrams(&rows[0])),
        // Datagrams of several messages at our end alone: theirs gets, and sends, each message by itself.
        (
            "{workload: udp_stream, bytes: 500kB, message_size: 500, rate: 2000/s, pacing: {burst: 20}, socket: {gso: 20}}",
            |rows, document| {
                datagrams(&rows[0]);
                assert_eq!((count(&rows[0], "messages_sent"), rows[0]["gso"].as_str()), (1000, "20"));
                assert_eq!(rows[0]["messages_per_send"], "20");
                lost(&rows[0], document);
            },
        ),
        (
            "{workload: udp_stream, duration: 1s, rate: 10Mbit/s, direction: reverse, socket: {gro: true}}",
            |rows, document| {
                datagrams(&rows[0]);
                assert_eq!(rows[0]["gro"], "true");
                assert_eq!(count(&rows[0], "bytes_sent"), counted(document, "/end/sum_sent/bytes"));
            },
        ),
        ("{workload: udp_stream, duration: 1s, warmup: 1s, rate: 10Mbit/s, direction: reverse}", |rows, _| {
            datagrams(&rows[0]);
        }),
        ("{workload: udp_stream, duration: 1s, rate: 10Mbit/s, direction: bidirectional}", |rows, _| {
            datagrams(&rows[0]);
            datagrams(&rows[1]);
        }),
    ]);
}

/// The server closes its port between two tests.
#[test]
fn tests_follow_each_other_at_once() {
    let Some(server) = Server::new(&[]) else { return };
    let (ran, rows) = server
        .run(", iterations: 15", "  a: {workload: tcp_stream, bytes: 1MB}\n  b: {workload: tcp_stream, bytes: 2MB}");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(of(&rows, "iteration").len(), 30);
    assert!(of(&rows, "iteration").iter().all(|row| row["status"] == "ok"), "{}", ran.stderr);
}

#[test]
fn refusals_of_a_server_are_sentences() {
    let refused = |server: &Server, body: &str, word: &str| {
        let (ran, _) = server.run(", iterations: 1", &format!("  t: {body}"));
        assert_eq!(ran.code, Some(3), "{}", ran.stderr);
        assert!(ran.stderr.contains("host `box`") && ran.stderr.contains(word), "{}", ran.stderr);
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            let Some(limited) = Server::new(&["--server-bitrate-limit", "1M"]) else { return };
            refused(&limited, "{workload: tcp_stream, duration: 1s, rate: 10Mbit/s}", "--server-bitrate-limit");
        });
        scope.spawn(|| {
            let Some(busy) = Server::new(&[]) else { return };
            let mut other = busy.namespace.command("iperf3");
            other.args(["-c", "127.0.0.1", "-t", "60", "-b", "1M"]).stdout(Stdio::null()).stderr(Stdio::null());
            let mut other = other.spawn().unwrap();
            until("the other test", || busy.namespace.read("ss", &["-Htn"]).matches(":5201").count() >= 4);
            refused(&busy, "{workload: tcp_stream, duration: 1s}", "busy");
            let _ = other.kill();
            let _ = other.wait();
        });
        scope.spawn(|| {
            let Some(mut gone) = Server::new(&[]) else { return };
            let _ = gone.child.kill();
            let _ = gone.child.wait();
            refused(&gone, "{workload: tcp_stream, duration: 1s}", "refused");
        });
    });
}

/// What iperf3 cannot do is an error of the plan, at its line.
#[test]
fn what_a_server_cannot_do_is_refused_in_the_plan() {
    let folder = Folder::new();
    for (body, word) in [
        ("{workload: tcp_rr}", "iperf3 has no requests"),
        ("{workload: tcp_stream, warmup: 500ms}", "whole seconds"),
        ("{workload: tcp_stream, direction: reverse, bytes: 1MB}", "until its client ends the test"),
        ("{workload: tcp_stream, streams: 129}", "at most 128"),
    ] {
        let plan = folder.plan(
            "hosts: {box: {address: 127.0.0.1, speaks: iperf3}}",
            &format!("  t: {}", body.replacen('{', "{to: box, ", 1)),
        );
        let ran: Ran = command(&["check", &plan]).output().unwrap().into();
        assert_eq!(ran.code, Some(2), "{body}: {ran:?}");
        assert!(ran.stderr.contains(word) && ran.stderr.contains("plan.yaml:"), "{body}: {}", ran.stderr);
    }
}
