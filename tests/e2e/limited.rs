//! What limited a test stands in its rows, below the table and in the report.

use crate::{
    netns::Pair,
    program::{Folder, count, number, of, parse, plumb, rows},
};

#[test]
fn rows_summaries_and_the_table_have_the_answer() {
    let folder = Folder::new();
    let plan = folder.plan(
        "",
        "  paced: {workload: tcp_stream, rate: 8Mbit/s, message_size: 1KiB, duration: 300ms, iterations: 2}\n  \
         both: {workload: tcp_stream, direction: bidirectional, rate: 8Mbit/s, message_size: 1KiB, duration: 300ms}\n  \
         without: {workload: tcp_stream, duration: 50ms, collect: [cpu, tcp_info]}",
    );
    let ran = plumb(&["run", &plan, "-o", &folder.name("r.csv"), "--progress", "never"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let table = rows(&folder.path("r.csv"));
    for row in of(&table, "iteration").iter().chain(&of(&table, "summary")) {
        let asked = row["test"] != "without";
        assert_eq!(!row["limited_by"].is_empty(), asked && row["phase"] == "measure", "{row:?}");
        assert_eq!(row["limited_because"].is_empty(), row["limited_by"].is_empty());
    }
    // Each is told once. Cases with the same answer share a line. On a loaded machine the two ways may have different answers: then
    // each has its own.
    let told = ran.stdout.lines().filter_map(|line| line.strip_prefix("  ")?.split_once(": "));
    let told = told.filter(|(_, why)| why.starts_with("limited by ") || why.starts_with("limit unknown"));
    let mut told: Vec<&str> = told.flat_map(|(names, _)| names.split(", ")).collect();
    told.sort_unstable();
    let ways = ["both (download)", "both (upload)", "paced"];
    assert!(told == ["both", "paced"] || told == ways, "{}", ran.stdout);
    let csv = folder.name("r.csv");
    let sides = [&["compare", &csv, &csv][..], &["compare", "--by", "file", &csv, &csv]].map(|line| plumb(line).stdout);
    assert_eq!(sides[0], sides[1], "files are the sides without --by, too");
    let report = plumb(&["report", &csv]);
    assert!(
        report.stdout.lines().any(|line| line.starts_with("- paced") && line.contains(" limit")),
        "{}",
        report.stdout
    );
}

/// A send buffer of 4 MiB before a link of 2 Mbit/s takes sixteen seconds to empty, longer than the ends wait.
#[test]
fn what_was_measured_counts_though_the_rest_takes_long() {
    let Some(pair) = Pair::new() else { return };
    if !pair.limit("2mbit", "500ms") {
        return;
    }
    let (_serve, hosts) = pair.serve();
    let folder = Folder::new();
    let slow = "workload: tcp_stream, to: far, socket: {send_buffer: 4MiB, congestion_control: reno}";
    let tests = format!("  timed: {{{slow}, warmup: 300ms, duration: 1s}}\n  counted: {{{slow}, bytes: 1600kB}}");
    let ran = pair.near.run(&folder.plan(&hosts, &tests));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let table = parse(&ran.stdout);
    let [timed, counted] = of(&table, "iteration")[..] else { panic!("{}", ran.stdout) };
    for row in [timed, counted] {
        assert!((1.2e6..2e6).contains(&number(row, "throughput_bits_per_s")), "{row:?}");
    }
    assert!(ran.stderr.contains("did not drain within 5 s"), "{}", ran.stderr);
    assert_eq!((count(counted, "bytes_sent"), count(counted, "bytes_received")), (1_600_000, 1_600_000));
    assert_eq!(counted["limited_by"], "unknown", "its thread was done in a moment: {counted:?}");
}

#[test]
fn a_statement_about_a_cause_is_checked_before_anything_runs() {
    let folder = Folder::new();
    let wrong = |test: &str| {
        let checked = plumb(&["check", &folder.plan("", &format!("  a: {test}"))]);
        assert_eq!(checked.code, Some(2), "{}{}", checked.stdout, checked.stderr);
        checked.stdout + &checked.stderr
    };
    let text = wrong("{workload: tcp_stream, assert: [limited_by == cpu]}");
    assert!(text.contains("`cpu` is no cause") && text.contains("sender_cpu, receiver_cpu, path, wire"), "{text}");
    let text = wrong("{workload: tcp_stream, assert: [limited_by < path]}");
    assert!(text.contains("a cause has no size"), "{text}");
    let text = wrong("{workload: tcp_stream, collect: [cpu], assert: [limited_by == path]}");
    assert!(text.contains("`limits` is not in `collect`"), "{text}");
    let text = wrong("{workload: tcp_collective, operation: barrier, ranks: 2, assert: [limited_by == path]}");
    assert!(text.contains("only a test between two ends has a cause"), "{text}");
    let text = wrong("{workload: tcp_stream, matrix: {streams: [1, 2]}, stop_when: limited_by == wire}");
    assert!(text.contains("`stop_when` judges a number"), "{text}");
    let group = "{concurrent: {members: {up: {workload: tcp_stream}, down: {workload: tcp_maerts}}}, assert: [limited_by == path]}";
    assert!(wrong(group).contains("name the `member` of a group"));
    let plan = folder.plan("", "  a: {workload: tcp_stream, assert: [limited_by == path, limited_by != sender CPU]}");
    assert_eq!(plumb(&["check", &plan]).code, Some(0));
}
