//! The log of `plumb serve`: a line per test, for people and for programs.

use std::{
    fs::File,
    io::{BufRead, BufReader},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;

use crate::program::{Folder, command, plumb};

/// Serves one run of `tests` with `args`; returns the first line and the log.
fn log(args: &[&str], tests: &str) -> (String, String) {
    let folder = Folder::new();
    let path = folder.path("log");
    let all = [&["serve", "--listen", "127.0.0.1:0"], args].concat();
    let mut serve = command(&all).stderr(File::create(&path).unwrap()).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(serve.stdout.take().unwrap()).read_line(&mut first).unwrap();
    let address: String = first.split("127.0.0.1:").nth(1).unwrap().chars().take_while(char::is_ascii_digit).collect();
    let plan = folder.plan("hosts: {b: {address: 127.0.0.1}}", tests);
    let host = format!("b=127.0.0.1:{address}");
    plumb(&["run", &plan, "--host", &host, "--progress", "never"]);
    kill(Pid::from_raw(serve.id().cast_signed()), Signal::SIGTERM).unwrap();
    assert_eq!(serve.wait().unwrap().code(), Some(0));
    (first, std::fs::read_to_string(path).unwrap())
}

/// The first one stops by a count, which a machine that stands still delays.
const TESTS: &str = "  bulk: {workload: tcp_stream, streams: 2, to: b, bytes: 10MB}\n  \
                     many: {workload: tcp_stream, streams: 65, to: b, duration: 100ms}";

#[test]
fn the_log_has_a_line_per_test_with_its_time() {
    let (first, log) = log(&[], TESTS);
    assert!(first.contains(" (TCP and UDP) · no key · "), "{first}");
    let lines: Vec<&str> = log.lines().collect();
    for line in &lines {
        assert!(line.starts_with("20") && line[..40].contains("Z 127.0.0.1:"), "{line}");
    }
    let test = lines.iter().find(|line| line.contains("tcp_stream, 2 streams, ")).expect("a line about the test");
    for word in [" received, ", " ms, complete"] {
        assert!(test.contains(word), "{word}: {test}");
    }
    let refused = lines.iter().find(|line| line.contains("tcp_stream, 65 streams, refused: ")).expect("another one");
    assert!(refused.contains("--max-flows"), "{refused}");
    assert!(log.contains("session opened by plumb ") && log.contains("session ended: "), "{log}");
}

#[test]
fn a_program_reads_the_log_as_json() {
    let (first, log) = log(&["--log-format", "json", "--data-ports", "21500-21599"], TESTS);
    let serving: Value = serde_json::from_str(&first).unwrap();
    assert!(serving["event"] == "serving" && serving["pid"].is_u64(), "{first}");
    assert_eq!(serving["data_ports"], serde_json::json!([21_500, 21_599]), "{first}");
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    assert!(lines.iter().all(|line| line["time"].as_str().is_some_and(|time| time.starts_with("20"))), "{log}");
    // A busy machine may have made the run repeat the first one.
    let tests: Vec<&Value> = lines.iter().filter(|line| line["event"] == "test").collect();
    let [bulk, .., refused] = &tests[..] else { panic!("{log}") };
    assert_eq!(bulk["bytes_received"], 10_000_000, "{bulk}");
    assert!(bulk["elapsed_s"].as_f64() > Some(0.0), "{bulk}");
    for (field, value) in
        [("workload", "tcp_stream"), ("direction", "forward"), ("side", "far"), ("ending", "complete")]
    {
        assert_eq!(bulk[field], value, "{bulk}");
    }
    assert!(bulk["client"].as_str().unwrap().starts_with("127.0.0.1:") && bulk["streams"] == 2, "{bulk}");
    assert_eq!(refused["ending"], "refused", "{log}");
    // The documentation names every field.
    let docs = include_str!("../../docs/reference/protocol.md");
    for field in lines.iter().chain([&serving]).flat_map(|line| line.as_object().unwrap().keys()) {
        assert!(docs.contains(&format!("`{field}`")), "{field} is not in docs/reference/protocol.md");
    }
}
