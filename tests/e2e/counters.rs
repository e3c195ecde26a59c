//! `plumb beforeafter`, `import` and `export` as a shell sees them: streams, exit codes, pipes.

use std::{
    io::Write,
    path::PathBuf,
    process::{Command, Output, Stdio},
};

fn plumb(args: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_plumb"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("plumb starts");
    let mut stdin = child.stdin.take().expect("piped");
    // A wrong command line is refused before its input is read.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    child.wait_with_output().expect("plumb ends")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn fixture(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../analyze/tests/fixtures").join(name);
    path.to_str().expect("a path in UTF-8").to_owned()
}

#[test]
fn a_command_keeps_its_output_and_its_exit_code() {
    let command = ["-f", "csv", "--zeros", "--", "sh", "-c", "echo its own; exit 7"];
    let output = plumb(&[&["beforeafter", "--collect", "snmp,softirqs"], command.as_slice()].concat(), "");
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(text(&output.stdout), "its own\n");
    let table = text(&output.stderr);
    assert!(table.starts_with("host,source,key,before,after,delta,elapsed_s,rate_per_s,note\n"), "{table}");
    let of = |start: &str| table.lines().filter(|l| l.contains(start)).count();
    assert!(of(",snmp,TcpOutSegs,") == 1 && of(",softirqs,NET_RX,") == 1, "{table}");

    let killed = plumb(&["beforeafter", "--collect", "snmp", "--", "sh", "-c", "kill -TERM $$"], "");
    assert_eq!(killed.status.code(), Some(128 + 15));
}

#[test]
fn differences_of_a_command_follow_its_output_where_asked() {
    let output =
        plumb(&["beforeafter", "--collect", "dev:lo,snmp", "--nonzero", "-o", "-", "--", "echo", "its own"], "");
    let out = text(&output.stdout);
    assert!(output.status.success() && out.starts_with("its own\n# dev:lo, "), "{out}");
}

#[test]
fn a_socket_that_sends_is_seen_by_the_kernels_counters() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("counters.csv");
    // At least ours are counted; other programs' datagrams may be, too.
    let send = "for _ in {1..25}; do echo x > /dev/udp/127.0.0.1/9; done";
    let path = file.to_str().expect("UTF-8");
    let output =
        plumb(&["beforeafter", "--collect", "snmp,dev:lo", "-f", "csv", "-o", path, "--", "bash", "-c", send], "");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let table = std::fs::read_to_string(&file).expect("the table");
    let delta = |key: &str| -> u64 {
        let line = table.lines().find(|l| l.contains(key)).unwrap_or_else(|| panic!("no {key} in {table}"));
        line.split(',').nth(5).and_then(|d| d.parse().ok()).expect("a difference")
    };
    assert!(delta(",snmp,UdpOutDatagrams,") >= 25);
    assert!(delta(",dev:lo,rx_packets,") >= 25);
}

#[test]
fn snapshots_from_a_pipe_and_a_file() {
    let before = std::fs::read_to_string(fixture("counters/netstat-s.before.txt")).expect("a fixture");
    let output = plumb(&["beforeafter", "-", &fixture("counters/netstat-s.after.txt")], &before);
    assert!(output.status.success());
    assert!(text(&output.stdout).contains("    155804 segments sent out\n"));

    let words = plumb(&["beforeafter", "--diagnose", "-", &fixture("counters/netstat-s.after.txt")], &before);
    assert!(text(&words.stdout).starts_with("TCP retransmitted 9 of 155804 segments (0.0058 %)."));
}

#[test]
fn what_cannot_be_subtracted_says_so() {
    let snmp = fixture("counters/snmp.before.txt");
    for (args, code, reason) in [
        (vec!["beforeafter", &snmp, "/nonexistent"], 3, "/nonexistent"),
        (vec!["beforeafter", &snmp], 2, "<AFTER>"),
        (vec!["beforeafter", "--collect", "bogus", "--", "true"], 2, "`bogus` is not one of snmp"),
        (vec!["beforeafter", "--collect", "dev:nope0", "--", "true"], 2, "no interface `nope0`"),
        (vec!["beforeafter", "--collect", "snmp", "--", "/nonexistent"], 2, "cannot run `/nonexistent`"),
        (vec!["beforeafter", "--rate", &snmp, &snmp], 2, "--elapsed"),
        (vec!["beforeafter", "--keys", "(", &snmp, &snmp], 2, "not a regular expression"),
        (vec!["beforeafter", "-", &snmp], 3, "standard input: the snapshot is empty"),
    ] {
        let output = plumb(&args, "");
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}\n{said}");
        assert!(said.contains(reason) && output.stdout.is_empty(), "{args:?}\n{said}");
    }
    // The driver was reloaded: an error only with --strict.
    let reset = "NIC statistics:\n     rx_bytes: 9000000000\n";
    let folder = tempfile::tempdir().expect("a folder");
    let after = folder.path().join("after");
    std::fs::write(&after, "NIC statistics:\n     rx_bytes: 12\n").expect("a file");
    let after = after.to_str().expect("UTF-8");
    let lenient = plumb(&["beforeafter", "-", after], reset);
    assert_eq!((lenient.status.code(), text(&lenient.stdout).contains("rx_bytes: reset")), (Some(0), true));
    let strict = plumb(&["beforeafter", "--strict", "-", after], reset);
    assert_eq!(strict.status.code(), Some(3));
    assert!(text(&strict.stderr).contains(":2: `rx_bytes` of ethtool was set back"), "{}", text(&strict.stderr));
}

#[test]
fn other_programs_outputs_go_through_the_filters() {
    let imported = plumb(&["import", &fixture("import/hpcbench-stream.txt"), "--set", "tag=seed"], "");
    assert!(imported.status.success());
    let table = text(&imported.stdout);
    let output = plumb(&["aggregate", "-g", "case,tag", "-m", "throughput", "-a", "mean,count"], &table);
    let out = text(&output.stdout);
    // The mean of the table's column; hpcbench's own footer trims it.
    assert!(
        out.contains("\"tcp_stream[message_size=65536]\"") || out.contains("tcp_stream[message_size=65536]"),
        "{out}"
    );
    assert!(out.lines().nth(1).is_some_and(|l| l.contains(",seed,") && l.ends_with(",937818800,5")), "{out}");

    let exported = plumb(&["export", "--to", "jsonl"], &table);
    assert_eq!(text(&exported.stdout).lines().count(), 5);
    let nothing = plumb(&["import"], "no output of anybody's\n");
    assert_eq!(nothing.status.code(), Some(3));
    assert!(text(&nothing.stderr).contains("standard input: no known program"), "{}", text(&nothing.stderr));
    let wrong = plumb(&["import", "--set", "bogus=1", &fixture("import/lmbench.txt")], "");
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("there is no column `bogus`"));
}
