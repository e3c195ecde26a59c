//! `outage`: times in which a path is down, that a test has made.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use crate::{
    netns::{Chain, Namespace},
    program::{Folder, Row, despite_stalls, is_interim, number, of, parse, plumb},
};

/// Sets a link down and up again after so long, at least; returns the longest and the least that it was down, microseconds.
fn interrupt(router: &Namespace, link: &str, length: Duration) -> (f64, f64) {
    let before = Instant::now();
    router.read("ip", &["link", "set", link, "down"]);
    let down = Instant::now();
    sleep(length);
    let raising = Instant::now();
    router.read("ip", &["link", "set", link, "up"]);
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    (micros(before.elapsed()), micros(raising - down))
}

fn start(chain: &Chain, folder: &Folder, hosts: &str, keys: &str) -> Child {
    let test = format!("  it: {{workload: udp_rr, to: far, rate: 1k/s, outage: 20ms, iterations: 1, {keys}}}");
    let plan = folder.plan(hosts, &test);
    let mut run = chain.0[0].command(env!("CARGO_BIN_EXE_plumb"));
    run.args(["run", &plan, "-o", &folder.name("rows.csv"), "--progress", "never"]);
    run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn row(folder: &Folder, child: Child, code: i32) -> (Row, String) {
    let ran = child.wait_with_output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert_eq!(ran.status.code(), Some(code), "{said}");
    let rows = parse(&std::fs::read_to_string(folder.name("rows.csv")).unwrap());
    (of(&rows, "iteration").into_iter().find(|row| row["phase"] == "measure").unwrap().clone(), said)
}

/// The router's link goes down beside the test, and comes up after some time. Neighbours are resolved anew then.
#[test]
fn a_link_that_was_down_is_an_outage_of_its_length() {
    let Some(chain) = Chain::new(3) else { return };
    let (_daemon, hosts) = chain.serve(false);
    let folder = Folder::new();
    let child = start(&chain, &folder, &hosts, "duration: 5s, assert: [outage.max < 100ms]");
    sleep(Duration::from_millis(1500));
    let (most, least) = interrupt(&chain.0[1], "east", Duration::from_millis(137));
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
    let mut run = chain.0[0].command(env!("CARGO_BIN_EXE_plumb"));
    run.args(["run", &plan, "-o", &folder.name("rows.csv"), "--progress", "never", "--interim"]);
    let mut child = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| is_interim(&line)), "no interval was told");
    // Longer than what is left of the load.
    interrupt(&chain.0[1], "east", Duration::from_millis(2500));
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
        ("workload: udp_rr, outage: 20ms, rate: 100/s", "fewer than 5 requests"),
        ("workload: udp_stream, outage: 20ms, rate: 1k/s", "only the messages of udp_rr"),
        ("workload: udp_rr, outage: 20ms, rate: 1k/s, one_way: false", "only messages with times"),
        ("workload: udp_rr, rate: 1k/s, assert: [outage.max < 1s]", "only a test with `outage`"),
    ] {
        let folder = Folder::new();
        let ran = plumb(&["check", &folder.plan("", &format!("  it: {{{keys}, duration: 1s}}"))]);
        assert!(ran.code == Some(2) && ran.stderr.contains(says), "{keys}: {:?} {}", ran.code, ran.stderr);
    }
}
