//! `plumb check` says whether the iterations of a plan can tell two runs apart, and what its hosts need.

use crate::program::{Folder, plumb};

#[test]
fn a_plan_that_cannot_decide_is_told_so() {
    let folder = Folder::new();
    let check = |top: &str, tests: &str| {
        let ran = plumb(&["check", &folder.plan(top, tests)]);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        ran.stdout.lines().skip(1).map(str::trim_start).collect::<Vec<_>>().join("\n")
    };
    let many = |n: u32| {
        format!(
            "  a: {{workload: tcp_rr, iterations: {n}, matrix: {{inflight: [{}]}}}}",
            (1..=33).map(|i| i.to_string()).collect::<Vec<_>>().join(", ")
        )
    };
    assert_eq!(
        check("", &many(5)),
        "note: 33 comparisons with another run need 8 iterations at α = 0.01, and the plan has 5; fewer cases (--only) need fewer"
    );
    assert_eq!(check("", &many(8)), "");
    assert_eq!(check("", &many(1)), "", "it is not repeated to be compared");
    let baseline = "baseline: {source: b.csv, compare: [{metric: latency.p50, max_regression: 5%}, {metric: latency.p99, max_regression: 5%}]}";
    assert_eq!(
        check(baseline, "  a: {workload: tcp_rr}\n  b: {workload: tcp_stream, iterations: 2}"),
        "note: 2 comparisons with its baseline need 6 iterations at α = 0.01, and the plan has 1; fewer cases (--only) need fewer"
    );
    assert_eq!(
        check("", "  a: {workload: tcp_rr, iterations: 4}"),
        "note: a comparison with another run needs 5 iterations at α = 0.01, and the plan has 4"
    );
}

#[test]
fn a_plan_says_what_its_hosts_need() {
    let folder = Folder::new();
    let hosts = "hosts:\n  a: {address: 192.0.2.1}\n  n[1-2]: {launch: ssh}\n  old: {address: 192.0.2.3, speaks: iperf3}\n  \
                 web: {address: 192.0.2.4}\n  b: {address: 192.0.2.5}";
    let tests = "  t: {workload: tcp_rr, matrix: {to: \"a,n[1-2]\"}}\n  o: {workload: tcp_stream, to: old}\n  d: {workload: tcp_rr, from: b, to: a}\n  \
                 w: {workload: tcp_rr, to: web, control: none, remote_ports: 80}\n  \
                 c: {workload: command, command: {run: [\"true\"], regex: \"(?<transaction_rate>[0-9]+)\"}}";
    let ran = plumb(&["check", &folder.plan(hosts, tests)]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    for need in [
        "a: plumb serve at 192.0.2.1",
        "--allow-connect NETWORK as well, since they measure with each other",
        "n[1-2]: ssh, which starts it",
        "old: iperf3 -s at 192.0.2.3",
        "web: a service at 192.0.2.4",
        "plumb run --allow-commands",
    ] {
        assert!(ran.stdout.contains(need), "{need}: {}", ran.stdout);
    }
}

#[test]
fn power_measures_the_noise_and_names_a_number_of_iterations() {
    let folder = Folder::new();
    let plan = folder.plan("", "  a: {workload: tcp_rr, transactions: 200, iterations: 3}\n  f: {workload: tcp_rr, find: {metric: latency.p50, at_most: 1s, by: inflight, to: 2}}");
    let ran = plumb(&["check", "--power", "90%", &plan]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let lines: Vec<&str> = ran.stdout.lines().collect();
    let head = lines.iter().position(|line| line.starts_with("case")).unwrap_or_else(|| panic!("{}", ran.stdout));
    assert!(lines[head].ends_with("iterations for 90 %"), "{}", ran.stdout);
    assert!(lines[head + 1].starts_with("a ") && lines[head + 1].contains("transaction_rate"), "{}", ran.stdout);
    // How much it scatters is this machine's affair: either answer names what to write.
    assert!(ran.stdout.contains("with `iterations: ") || ran.stdout.contains("(`duration`)"), "{}", ran.stdout);
    let commands =
        folder.plan("", "  c: {workload: command, command: {run: [\"true\"], regex: \"(?<transaction_rate>[0-9]+)\"}}");
    let ran = plumb(&["check", "--power", "3%", &commands]);
    assert_eq!(ran.code, Some(2), "{}", ran.stdout);
    assert!(ran.stderr.contains("leave these tests out with --only"), "{}", ran.stderr);
    assert_eq!(plumb(&["check", "--power", "3", &plan]).code, Some(2));
}
