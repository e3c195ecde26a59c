//! `one_way`: the delay of each direction against clocks whose offset is known.

use std::process::{Command, Stdio};

use netcore::measure::{clock::monotonic_ns, histogram::decode};
use serde_json::Value;

use crate::{
    needs::{has_program, skip},
    netns::Pair,
    program::{Folder, Ran, Row, Serve, number, of, parse, plumb},
};

/// The first process of a time namespace whose monotonic clocks are ahead by these seconds and nanoseconds, and then the program.
/// `unshare` of util-linux sets whole seconds only.
const IN_TIME_NAMESPACE: &str = "import ctypes, os, sys
ctypes.CDLL(None).unshare(0x80)
open('/proc/self/timens_offsets', 'w').write(f'monotonic {sys.argv[1]} {sys.argv[2]}')
child = os.fork()
if child == 0:
    ctypes.CDLL(None).prctl(1, 9)
    os.execv(sys.argv[3], sys.argv[3:])
os.waitpid(child, 0)";

/// A daemon whose clocks are ahead by so much; `None` where this kernel has no time namespaces.
fn ahead(pair: &Pair, offset_ns: u64) -> Option<Serve> {
    if !has_program("python3", "python3") {
        return None;
    }
    let made = Command::new("unshare").args(["-T", "true"]).output();
    if !made.is_ok_and(|made| made.status.success()) {
        skip("no time namespace can be made here");
        return None;
    }
    let (seconds, rest) = (offset_ns / 1_000_000_000, offset_ns % 1_000_000_000);
    let mut command: Command = pair.far.command("python3");
    command.args(["-c", IN_TIME_NAMESPACE, &seconds.to_string(), &rest.to_string(), env!("CARGO_BIN_EXE_plumb")]);
    command.args(["serve", "--listen", &format!("{}:12864", Pair::FAR), "--allow", "10.0.0.0/8"]);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    Some(Serve::of(command))
}

fn measured(pair: &Pair, tests: &str) -> (Ran, Vec<Row>, Folder) {
    let folder = Folder::new();
    let hosts = format!("hosts: {{far: {{address: {0}, control: \"{0}:12864\"}}}}", Pair::FAR);
    let (plan, table) = (folder.plan(&hosts, tests), folder.name("rows.csv"));
    let mut run = pair.near.command(env!("CARGO_BIN_EXE_plumb"));
    let ran = Ran::from(run.args(["run", &plan, "-o", &table, "--progress", "never"]).output().unwrap());
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
    let rows = parse(&std::fs::read_to_string(&table).unwrap());
    (ran, rows, folder)
}

fn measure_row<'a>(rows: &'a [Row], record: &str) -> &'a Row {
    of(rows, record).into_iter().find(|row| row["phase"] == "measure").unwrap()
}

#[test]
fn a_known_offset_of_the_clocks_lies_within_the_bound() {
    let Some(pair) = Pair::new() else { return };
    // Neither whole seconds nor the same in each run.
    let truth_ns = 5_000_000_000_000 + monotonic_ns() % 1_000_000_000;
    let Some(_daemon) = ahead(&pair, truth_ns) else { return };
    let (ran, rows, folder) = measured(
        &pair,
        "  it: {workload: udp_rr, to: far, one_way: true, rate: 500/s, transactions: 400, interval: 100ms, iterations: 2}",
    );
    for row in of(&rows, "iteration") {
        let (offset, bound) = (number(row, "one_way_offset_us"), number(row, "one_way_bound_us"));
        let off = (offset - truth_ns as f64 / 1000.0).abs();
        assert!(off <= bound + 0.02, "off by {off} µs, ± {bound}");
        assert!(bound >= 1.0);
        // One machine, but two clocks.
        assert_eq!((&*row["same_machine"], &*row["one_way_clock"]), ("true", "kernel"));
        for way in ["forward", "reverse"] {
            let [p50, p95, p99] = ["p50", "p95", "p99"].map(|p| number(row, &format!("{way}_variation_{p}_us")));
            assert!(0.0 <= p50 && p50 <= p95 && p95 <= p99, "{p50} {p95} {p99}");
            for part in ["min", "p50", "p95", "p99"] {
                let delay = &row[&format!("{way}_delay_{part}_us")];
                assert!(delay.is_empty() || delay.parse::<f64>().unwrap() >= bound, "{delay} ± {bound}");
            }
        }
    }
    let in_intervals = of(&rows, "interval");
    assert!(in_intervals.iter().any(|row| !row["reverse_variation_p50_us"].is_empty()));
    assert!(in_intervals.iter().all(|row| row["forward_delay_p50_us"].is_empty()));
    let summary = measure_row(&rows, "summary");
    assert!(!summary["forward_variation_p99_us"].is_empty() && ran.stdout.contains(&summary["one_way_because"]));
    // The clock behind the figures, and what the kernels say of theirs.
    let record: Value = serde_json::from_str(&std::fs::read_to_string(folder.name("rows.run.json")).unwrap()).unwrap();
    let clocks = &record["cases"][&summary["case_id"]]["clocks"];
    let last = of(&rows, "iteration").into_iter().rfind(|row| row["phase"] == "measure").unwrap();
    assert_eq!(clocks["source"], "kernel");
    for (key, cell) in [("bound_us", "one_way_bound_us"), ("drift_ppm", "one_way_drift_ppm")] {
        assert_eq!(clocks[key].as_f64(), Some(number(last, cell)), "{key}: {clocks}");
    }
    assert_eq!(clocks["round_trips_bound_us"], clocks["bound_us"]);
    for host in ["local", "far"] {
        let wall = &record["hosts"][host]["facts"]["wall_clock"];
        assert!(wall["synchronised"].is_boolean() && wall["max_error_ns"].as_u64() > Some(0), "{host}: {wall}");
        assert_eq!(wall["synchronised"] == true, clocks["near_wall_error_us"].is_number(), "{wall} {clocks}");
    }
    // Each direction has its own distribution, and one picture shows both.
    for way in ["forward", "reverse"] {
        let timed = decode(&last[&format!("{way}_variation_histogram")]).unwrap();
        assert_eq!(timed.len(), 400, "{way}");
        assert!(summary[&format!("{way}_variation_histogram")].is_empty(), "{way}");
    }
    let (table, points) = (folder.name("rows.csv"), folder.name("points.csv"));
    let [x, beside] = ["forward_variation_histogram", "reverse_variation_histogram"];
    let drawn = plumb(&["plot", "cdf", "-x", x, "--beside", beside, "--term", "--data", &points, &table]);
    assert_eq!(drawn.code, Some(0), "{}", drawn.stderr);
    let points = parse(&std::fs::read_to_string(&points).unwrap());
    for series in ["upload variation", "download variation"] {
        let mut shares = points.iter().filter(|point| point["series"] == series).map(|point| number(point, "share"));
        assert_eq!(shares.next_back(), Some(1.0), "{series}");
    }
}

/// Here both ends have one clock, and the delays are what they are: a token bucket delays the requests.
#[test]
fn the_direction_of_a_queue_shows() {
    let Some(pair) = Pair::new() else { return };
    if !pair.limit("8mbit", "200ms") {
        return;
    }
    let mut serve = pair.far.command(env!("CARGO_BIN_EXE_plumb"));
    serve.args(["serve", "--listen", &format!("{}:12864", Pair::FAR), "--allow", "10.0.0.0/8"]);
    let _daemon = Serve::of({
        serve.stdout(Stdio::piped()).stderr(Stdio::null());
        serve
    });
    let probe = "workload: udp_rr, to: far, timestamps: kernel, rate: 100/s, pacing: {catch_up: 0}";
    let members = [
        format!("idle: {{{probe}, duration: 1s}}"),
        "load: {workload: tcp_stream, to: far, after: 1500ms, warmup: 1s, duration: 2s}".to_owned(),
        format!("loaded: {{{probe}, after: 1500ms, warmup: 1s, duration: 2s, idle: idle}}"),
    ];
    let members = members.map(|member| format!("        {member}\n")).concat();
    let (ran, rows, _) = measured(
        &pair,
        &format!("  it:\n    iterations: 1\n    concurrent:\n      start: {{max_skew: 1s}}\n      members:\n{members}"),
    );
    let of_member = |name: &str| {
        let is_it = |row: &&Row| row["member"] == name && row["record"] == "iteration" && row["phase"] == "measure";
        rows.iter().find(is_it).unwrap()
    };
    let (load, loaded) = (of_member("load"), of_member("loaded"));
    assert_eq!(loaded["one_way_clock"], "shared", "{}", loaded["one_way_because"]);
    let [forward, reverse] = ["added_forward_p50_us", "added_reverse_p50_us"].map(|cell| number(loaded, cell));
    assert!(forward > 5_000.0 && forward > 4.0 * reverse, "{forward} {reverse}");
    assert!(number(loaded, "forward_delay_p50_us") > 5_000.0);
    assert!(
        loaded["one_way_because"].contains("under load upload + ") && ran.stdout.contains(&loaded["one_way_because"])
    );
    // The queue is in the host of the requests' sender, behind its program and before its interface.
    let host = |way: &str, end: &str| number(loaded, &format!("{way}_{end}_host_p50_us"));
    let (requests, answers) = (host("forward", "sender"), host("reverse", "sender"));
    assert!(requests > 5_000.0 && requests > 4.0 * answers, "{requests} {answers}");
    assert!(host("forward", "receiver") > 0.0 && host("reverse", "receiver") > 0.0, "{loaded:?}");
    assert!(loaded["one_way_because"].contains("; in the sender's host upload "), "{}", loaded["one_way_because"]);
    // In the iteration, and in the summary that people read.
    for row in rows.iter().filter(|row| row["member"] == "load" && !row["limited_because"].is_empty()) {
        let because = &row["limited_because"];
        assert_eq!(row["limited_by"] == "path", because.contains("; under load upload + "), "{because}");
    }
    assert!(!load["limited_because"].is_empty());
}

#[test]
fn directions_are_told_apart_only_where_they_can_be() {
    let check = |test: &str| {
        let folder = Folder::new();
        plumb(&["check", &folder.plan("", &format!("  it: {test}"))])
    };
    for (test, says) in [
        ("{workload: tcp_rr, one_way: true, duration: 1s}", "only messages of UDP and UDP-Lite"),
        ("{workload: ping, one_way: true, duration: 1s}", "no program: use udp_rr"),
        ("{workload: udp_stream, one_way: true, message_size: 15, duration: 1s}", "take 16 bytes of a message"),
        ("{workload: udp_stream, timestamps: kernel, duration: 1s}", "use udp_rr, or leave it out"),
        (
            "{workload: udp_rr, timestamps: kernel, one_way: false, duration: 1s}",
            "without `one_way` messages carry no times",
        ),
        (
            "{workload: udp_rr, one_way: true, duration: 1s, assert: [forward_sender_host.p50 < 1ms]}",
            "`timestamps: kernel`",
        ),
        ("{workload: udp_rr, one_way: true, request_size: 39, duration: 1s}", "take 40 bytes"),
        ("{workload: udp_rr, duration: 1s, assert: [forward_delay.p50 < 1ms]}", "only a test with `one_way`"),
    ] {
        let ran = check(test);
        assert!(ran.code == Some(2) && ran.stderr.contains(says), "{test}: {:?} {}", ran.code, ran.stderr);
    }
    let ran =
        check("{workload: udp_rr, one_way: true, response_size: 40, duration: 1s, assert: [forward_delay.p50 < 1ms]}");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
}
