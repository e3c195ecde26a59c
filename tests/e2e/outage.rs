//! `outage`: times in which a path is down, that a test has made.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Stdio},
    time::Duration,
};

use crate::{
    netns::{Chain, Namespace, Waiting},
    program::{Folder, Row, despite_stalls, end, is_interim, number, of, parse, plumb, until},
};

/// Sets the router's link to the far end down and up again after so long, at least; returns the longest and the least that it was down,
/// microseconds.
fn interrupt(router: &mut Waiting, length: Duration) -> (f64, f64) {
    router.for_a_time("link set east down", length, "link set east up")
}

fn start(chain: &Chain, folder: &Folder, hosts: &str, keys: &str) -> Child {
    let test = format!("  it: {{to: far, rate: 1k/s, outage: 20ms, iterations: 1, {keys}}}");
    let plan = folder.plan(hosts, &test);
    let mut run = chain.0[0].command(env!("CARGO_BIN_EXE_plumb"));
    run.args(["run", &plan, "-o", &folder.name("rows.csv"), "--progress", "never", "--allow-hooks"]);
    run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits until a second of the load has passed the router. Others that make and remove namespaces can hold back a look for seconds.
fn under_load(router: &Namespace) {
    until("the load runs", || router.interface("east").received_packets > 1000);
}

fn row(folder: &Folder, child: Child, code: i32) -> (Row, String) {
    let ran = child.wait_with_output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    let rows = parse(&std::fs::read_to_string(folder.name("rows.csv")).unwrap());
    assert_eq!(ran.status.code(), Some(code), "{said}\n{rows:?}");
    (of(&rows, "iteration").into_iter().find(|row| row["phase"] == "measure").unwrap().clone(), said)
}

/// The router's link goes down beside the test, and comes up after some time. Neighbours are resolved anew then.
#[test]
fn a_link_that_was_down_is_an_outage_of_its_length() {
    despite_stalls(was_down);
}

fn was_down() {
    let Some(chain) = Chain::new(3) else { return };
    let (_daemon, hosts) = chain.serve(false);
    let folder = Folder::new();
    let mut router = Waiting::new(&chain.0[1]);
    let child = start(&chain, &folder, &hosts, "workload: udp_rr, duration: 5s, assert: [outage.max < 100ms]");
    under_load(&chain.0[1]);
    let (most, least) = interrupt(&mut router, Duration::from_millis(137));
    // The assertion fails.
    let (row, said) = row(&folder, child, 1);
    assert!(number(&row, "outages") >= 1.0, "{said}");
    let found = number(&row, "outage_max_us");
    // Waking this machine's programs may add some, and others may hold the test back.
    assert!(found >= least - 5_000.0 && found <= most + 1_500_000.0, "{found}: {least} to {most}");
    assert!(number(&row, "outage_total_us") >= found && (0.0..5.0).contains(&number(&row, "outage_begin_s")));
    assert_eq!(row["outage_bound_us"], "1000");
    assert!(row["outage_because"].contains("got lost or late") && said.contains(&row["outage_because"]), "{said}");
}

/// The receiver of a stream tells its outage, each of its own direction.
#[test]
fn a_stream_tells_the_outage_of_each_direction() {
    despite_stalls(tells_each_direction);
}

fn tells_each_direction() {
    let Some(chain) = Chain::new(3) else { return };
    let (_daemon, hosts) = chain.serve(false);
    let folder = Folder::new();
    let keys =
        "workload: udp_stream, message_size: 200, direction: bidirectional, duration: 5s, assert: [outage.max < 100ms]";
    let mut router = Waiting::new(&chain.0[1]);
    let child = start(&chain, &folder, &hosts, keys);
    under_load(&chain.0[1]);
    let (most, least) = interrupt(&mut router, Duration::from_millis(137));
    let (_, said) = row(&folder, child, 1);
    let rows = parse(&std::fs::read_to_string(folder.name("rows.csv")).unwrap());
    for way in ["forward", "reverse"] {
        let is_it = |row: &&&Row| row["phase"] == "measure" && row["direction"] == way;
        let row = *of(&rows, "iteration").iter().find(is_it).unwrap();
        let found = number(row, "outage_max_us");
        assert!(found >= least - 5_000.0 && found <= most + 1_500_000.0, "{way} {found}: {least} to {most}\n{said}");
        assert!(number(row, "outages") >= 1.0 && (0.0..5.0).contains(&number(row, "outage_begin_s")), "{said}");
        assert!(row["outage_because"].ends_with("messages got lost or late"), "{}", row["outage_because"]);
        // Only this direction's delay is known, and only how much it varies.
        let other = if way == "forward" { "reverse" } else { "forward" };
        assert!(number(row, &format!("{way}_variation_p99_us")) > 0.0, "{row:?}");
        assert_eq!((&*row[&format!("{other}_variation_p99_us")], &*row["forward_delay_p50_us"]), ("", ""));
        assert!(row["one_way_because"].starts_with("above the least delay: "), "{}", row["one_way_because"]);
    }
}

/// The link goes down for a second under a stream that does not look for outages: it is no full link, by the receiver's intervals.
#[test]
fn a_stream_tells_of_a_time_in_which_nothing_arrived() {
    despite_stalls(tells_of_silence);
}

fn tells_of_silence() {
    let Some(chain) = Chain::new(3) else { return };
    let (_daemon, hosts) = chain.serve(false);
    let folder = Folder::new();
    let plan =
        folder.plan(&hosts, "  it: {to: far, workload: tcp_stream, duration: 5s, interval: 100ms, iterations: 1}");
    let mut router = Waiting::new(&chain.0[1]);
    let child = chain.0[0].start(&plan);
    under_load(&chain.0[1]);
    let (_, least) = interrupt(&mut router, Duration::from_secs(1));
    let ran = end(child);
    let rows = parse(&ran.stdout);
    let row = of(&rows, "iteration").into_iter().find(|row| row["phase"] == "measure").unwrap();
    // An interval at either edge had some data.
    assert!(number(row, "silence_us") >= least - 200_000.0, "{row:?}");
    assert_eq!(row["limited_by"], "unknown", "{row:?}");
    assert!(row["limited_because"].starts_with("nothing arrived for "), "{row:?}");
}

/// The near end's own link goes down for a second: sends fail, the stream goes on, and its row tells of that time.
#[test]
fn a_stream_outlives_an_outage_of_its_own_link() {
    despite_stalls(outlives_its_own_link);
}

fn outlives_its_own_link() {
    for keys in ["rate: 1k/s", "interval: 100ms"] {
        let Some(chain) = Chain::new(2) else { return };
        let (_daemon, hosts) = chain.serve(false);
        let folder = Folder::new();
        let test = format!(
            "  it: {{to: far, workload: udp_stream, message_size: 200, warmup: 0s, duration: 4s, iterations: 1, {keys}}}"
        );
        let plan = folder.plan(&hosts, &test);
        let mut near = Waiting::new(&chain.0[0]);
        let child = chain.0[0].start(&plan);
        until("the load runs", || chain.0[1].interface("west").received_packets > 1000);
        let (_, least) = near.for_a_time("link set east down", Duration::from_secs(1), "link set east up");
        let ran = end(child);
        let rows = parse(&ran.stdout);
        let measured = of(&rows, "iteration").into_iter().find(|row| row["phase"] == "measure");
        let row = measured.unwrap_or_else(|| panic!("{keys}: {}", ran.stderr));
        assert!(row["status"] == "ok" && number(row, "errors") > 100.0, "{keys}: {row:?}\n{}", ran.stderr);
        assert!(number(row, "silence_us") >= least - 200_000.0, "{keys}, {least}: {row:?}");
    }
}

/// A hook takes the link down while the test runs: its instant stands in the row, and the time until the path was back.
#[test]
fn a_hook_that_takes_the_path_down_has_its_convergence_in_the_row() {
    despite_stalls(converges);
}

fn converges() {
    for (workload, after) in [("udp_rr", "500ms"), ("udp_stream, message_size: 200", "0")] {
        let Some(chain) = Chain::new(3) else { return };
        let (_daemon, hosts) = chain.serve(false);
        let folder = Folder::new();
        let router = &chain.0[1].name;
        let set = |to: &str| format!("ip -n {router} link set east {to}");
        let script = format!("{}; sleep 0.137; {}", set("down"), set("up"));
        let keys = format!(
            "workload: {workload}, warmup: 300ms, duration: 4s, assert: [convergence > 100ms], \
             hooks: {{during: {{run: [sh, -c, \"{script}\"], after: {after}}}}}"
        );
        let child = start(&chain, &folder, &hosts, &keys);
        let (row, said) = row(&folder, child, 0);
        let [hook_s, bound, convergence] =
            ["hook_s", "hook_bound_us", "convergence_us"].map(|column| number(&row, column));
        assert!((-0.01..4.0).contains(&hook_s) && hook_s >= if after == "0" { -0.01 } else { 0.49 }, "{hook_s}");
        assert!(bound >= 137_000.0 && convergence >= 132_000.0, "{bound} {convergence}\n{said}");
        let end = number(&row, "outage_begin_s") + number(&row, "outage_max_us") / 1e6;
        assert!((end - hook_s - convergence / 1e6).abs() < 1e-5, "{row:?}");
        assert!(
            row["outage_because"].contains("after the hook at ") && said.contains(&row["outage_because"]),
            "{said}"
        );
        let log = std::fs::read_to_string(folder.name("rows.hooks.log")).unwrap();
        assert!(log.contains(" during of it, iteration 1: sh -c"), "{log}");
    }
}

/// The link goes down under the load and comes up when that is over, so that the far end's report comes.
#[test]
fn a_link_that_stays_down_is_an_outage_to_the_end() {
    despite_stalls(stays_down);
}

fn stays_down() {
    let Some(chain) = Chain::new(3) else { return };
    let (_daemon, hosts) = chain.serve(false);
    let folder = Folder::new();
    let test =
        "  it: {workload: udp_rr, to: far, rate: 1k/s, outage: 20ms, duration: 2s, interval: 200ms, iterations: 1}";
    let plan = folder.plan(&hosts, test);
    let mut router = Waiting::new(&chain.0[1]);
    let mut run = chain.0[0].command(env!("CARGO_BIN_EXE_plumb"));
    run.args(["run", &plan, "-o", &folder.name("rows.csv"), "--progress", "never", "--interim"]);
    let mut child = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| is_interim(&line)), "no interval was told");
    // Longer than what is left of the load.
    interrupt(&mut router, Duration::from_millis(2500));
    let said = lines.collect::<Vec<_>>().join("\n");
    let (row, _) = row(&folder, child, 0);
    assert_eq!(row["outages"], "1", "{said}");
    let (begin, length) = (number(&row, "outage_begin_s"), number(&row, "outage_max_us") / 1e6);
    assert!(begin > 0.1 && length >= 0.02 && begin + length <= 2.1, "{begin} {length}");
    assert!(row["outage_because"].contains("it lasts to the end of the test, at least so long"), "{said}");
}

#[test]
fn outages_are_looked_for_only_where_silence_is_unusual() {
    for (keys, says) in [
        ("workload: udp_rr, outage: 20ms", "without a `rate` silence is nothing unusual"),
        ("workload: udp_rr, outage: 20ms, rate: 100/s", "fewer than 5 messages"),
        ("workload: tcp_stream, outage: 20ms, rate: 1k/s", "only messages of UDP"),
        ("workload: udp_stream, outage: 20ms", "without a `rate` silence is nothing unusual"),
        ("workload: udp_stream, outage: 20ms, rate: 1k/s, message_size: 8", "take 16 bytes of a message"),
        ("workload: udp_stream, outage: 20ms, rate: 1k/s, assert: [forward_delay.p50 < 1s]", "nobody answers"),
        ("workload: udp_rr, outage: 20ms, rate: 1k/s, one_way: false", "only messages with times"),
        ("workload: udp_rr, rate: 1k/s, assert: [outage.max < 1s]", "only a test with `outage`"),
        ("workload: udp_rr, hooks: {prepare: {run: [x], after: 1s}}", "`after` is of the hook `during`"),
    ] {
        let folder = Folder::new();
        let ran = plumb(&["check", &folder.plan("", &format!("  it: {{{keys}, duration: 1s}}"))]);
        assert!(ran.code == Some(2) && ran.stderr.contains(says), "{keys}: {:?} {}", ran.code, ran.stderr);
    }
}
