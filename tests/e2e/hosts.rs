//! Hosts of a plan: namespaces in which plumb runs the ends itself, and preconditions.

use crate::{
    fleet::Fleet,
    needs::has_program,
    netns::{Chain, Pair},
    program::{Folder, Ran, Serve, command, count, despite_stalls, number, of, parse, plumb},
};

/// The words of the line about a host.
fn shown<'a>(ran: &'a Ran, host: &str) -> Vec<&'a str> {
    let lines = ran.stdout.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines.into_iter().find(|words| words.first() == Some(&host)).unwrap_or_else(|| panic!("{host}: {}", ran.stdout))
}

#[test]
fn hosts_are_shown_before_a_campaign() {
    let (one, two) = (Serve::start(&[]), Serve::start(&[]));
    let folder = Folder::new();
    let plan = folder.plan(
        &format!(
            "hosts:\n  h[1-2]: {{address: 127.0.0.1}}\n  here: {{address: 127.0.0.1, launch: {{command: {{run: [env]}}}}}}\n  \
             there: {{address: 127.0.0.1, control: launcher, launch: {{command: {{run: [env], program: {program}}}}}}}\n  \
             unused: {{address: 192.0.2.1}}\n\
             require:\n  - {{host: \"h[1-2]\", check: mtu, at_least: 1000}}",
            program = env!("CARGO_BIN_EXE_plumb")
        ),
        "  a: {workload: tcp_rr, matrix: {to: \"h[1-2],here,there\"}}\n  s: {workload: tcp_rr, to: unused, skip: true}\n  \
         e: {workload: udp_rr, to: h1, control: none, remote_ports: 7}",
    );
    let hosts = [format!("h1={}", one.address), format!("h2={}", two.address)];
    let arguments = ["hosts", &plan, "--host", &hosts[0], "--host", &hosts[1]];
    // `here` is started by this program's name, which is on no path.
    let plumb = |words: &[&str]| Ran::from(command(words).env("PATH", "/usr/bin:/bin").output().unwrap());
    let ran = plumb(&arguments);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let names: Vec<&str> = ran.stdout.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(names, ["host", "local", "h1", "h2", "here", "there"]);
    assert!(!ran.stdout.contains('\u{1b}'), "no colours in a pipe: {}", ran.stdout);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let line = shown(&ran, "h1").join(" ");
    for words in [env!("CARGO_PKG_VERSION"), kernel.trim(), " lo mtu 65536 127.0.0.1 ", " ± ", &one.address] {
        assert!(line.contains(words), "{words}: {line}");
    }
    assert!(shown(&ran, "here").join(" ").ends_with(", started by command"), "{}", ran.stdout);
    assert!(shown(&ran, "there").join(" ").ends_with("through command"), "{}", ran.stdout);
    assert!(shown(&ran, "local").join(" ").ends_with("this process"), "{}", ran.stdout);
    // The same facts for programs.
    let ran = plumb(&[&arguments[..], &["--json"]].concat());
    let json: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(json["hosts"][1]["record"]["facts"]["kernel_release"], kernel.trim());
    assert_eq!(json["hosts"][3]["data_address"], "127.0.0.1");
    assert_eq!(json["missing"], serde_json::json!([]));
}

#[test]
fn every_missing_host_is_named_and_the_others_are_shown() {
    let daemon = Serve::start(&[]);
    // Ports at which nothing listens: another address of loopback.
    let folder = Folder::new();
    let plan = folder.plan(
        &format!(
            "hosts:\n  h[1-9]: {{address: \"127.0.0.{{host}}\"}}\n  never: {{address: 127.0.0.1, launch: {{command: [{}]}}}}",
            "\"false\""
        ),
        "  a: {workload: tcp_rr, matrix: {to: \"h[1-4],never\"}}",
    );
    let host = format!("h3={}", daemon.address);
    let ran = plumb(&["hosts", &plan, "--host", "h[1-2,4]=127.9.9.9:9", "--host", &host]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert_eq!(shown(&ran, "h3")[1], env!("CARGO_PKG_VERSION"));
    for words in [
        "error: 4 of 5 hosts are missing: h[1-2,4],never",
        "host `h1` (127.9.9.9:9) cannot be reached",
        "host `h2` (127.9.9.9:9) cannot be reached",
        "host `h4` (127.9.9.9:9) cannot be reached",
        "host `never`: false ended",
    ] {
        assert!(ran.stderr.contains(words), "{words}: {}", ran.stderr);
    }
    // A run names them too, before it measures anything.
    let ran = plumb(&["run", &plan, "--progress", "never", "--host", "h[1-2,4]=127.9.9.9:9", "--host", &host]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(["`h1`", "`h2`", "`h4`", "`never`"].iter().all(|name| ran.stderr.contains(name)), "{}", ran.stderr);
}

#[test]
fn hosts_that_are_started_for_the_look_are_ended_after_it() {
    let Some(fleet) = Fleet::new(5).and_then(|fleet| fleet.with_sshd("")) else { return };
    let (folder, hosts) = (Folder::new(), fleet.all_hosts());
    let before = fleet.traces(&hosts);
    let plan = folder.plan("hosts:\n  h[1-5]: {launch: ssh}", "  a: {workload: tcp_rr, matrix: {to: \"h[1-5]\"}}");
    let ran = fleet.plumb(&["hosts", &plan]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    for n in 1..=5 {
        let line = shown(&ran, &format!("h{n}")).join(" ");
        assert!(line.contains(&format!(" eth0 veth 10 Gbit/s mtu 1500 10.77.0.{n} ")), "{line}");
        assert!(line.ends_with(", started by ssh"), "{line}");
    }
    fleet.await_clean("after a look", &hosts, &before, &[]);
    // Two that cannot be started: all others are shown, and ended.
    let plan = folder.plan("hosts:\n  h[1-7]: {launch: ssh}", "  a: {workload: tcp_rr, matrix: {to: \"h[1-7]\"}}");
    let ran = fleet.plumb(&["hosts", &plan]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("error: 2 of 7 hosts are missing: h[6-7]"), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("host `h6`: ssh ended") && ran.stderr.contains("host `h7`: ssh ended"),
        "{}",
        ran.stderr
    );
    assert_eq!(ran.stdout.lines().count(), 2 + 5, "{}", ran.stdout);
    fleet.await_clean("after a look with failures", &hosts, &before, &[]);
}

#[test]
fn hosts_in_namespaces_are_shown_with_their_interfaces() {
    let Some(pair) = Pair::new() else { return };
    let folder = Folder::new();
    let top = format!("{}\nrequire: [{{check: mtu, at_least: 9000, host: b}}]", hosts(&pair));
    let plan = folder.plan(&top, "  bulk: {workload: tcp_stream, from: a, to: b}");
    let ran = plumb(&["hosts", &plan]);
    for (host, address, netns) in [("a", Pair::NEAR, &pair.near.name), ("b", Pair::FAR, &pair.far.name)] {
        let line = shown(&ran, host).join(" ");
        assert!(line.contains(&format!(" data veth 10 Gbit/s mtu 1500 {address} ")), "{line}");
        assert!(line.ends_with(&format!("here, in {netns}")), "{line}");
    }
    // They are there, and do not meet the preconditions.
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("host `b`: mtu of data is 1500, and must be at least 9000"), "{}", ran.stderr);
    assert_eq!(ran.stdout.lines().count(), 3, "no line for this process, which takes no part: {}", ran.stdout);
}

/// The inventory of a pair's two namespaces.
fn hosts(pair: &Pair) -> String {
    format!(
        "hosts:\n  a: {{netns: {}, address: {}}}\n  b: {{netns: {}, address: {}}}",
        pair.near.name,
        Pair::NEAR,
        pair.far.name,
        Pair::FAR
    )
}

fn run(folder: &Folder, top: &str, tests: &str) -> Ran {
    plumb(&["run", &folder.plan(top, tests), "--progress", "never", "--allow-commands", "--allow-hooks"])
}

#[test]
fn both_ends_of_a_test_are_put_into_their_namespaces() {
    let Some(pair) = Pair::new() else { return };
    let folder = Folder::new();
    let before = pair.far.interface("data").received_bytes;
    let mark = folder.name("mark");
    let ran = run(
        &folder,
        &hosts(&pair),
        &format!(
            "  bulk: {{workload: tcp_stream, from: a, to: b, bytes: 20MB}}\n  \
             loss: {{workload: udp_stream, from: b, to: a, rate: 2Mbit/s, message_size: 1000, bytes: 50kB, assert: [lost == 0]}}\n  \
             alone: {{workload: unix_rr, duration: 10ms, hooks: {{setup: {{run: [sh, -c, 'ip -o -4 address > {mark}'], on: b}}}}}}\n  \
             link:\n    workload: command\n    from: b\n    \
             command: {{run: [cat, /proc/net/dev], regex: 'data: *(?<bytes_received>[0-9]+)'}}"
        ),
    );
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let rows = parse(&ran.stdout);
    let iterations = of(&rows, "iteration");
    let places: Vec<_> =
        iterations.iter().map(|r| (r["test"].as_str(), r["from"].as_str(), r["to"].as_str())).collect();
    assert_eq!(places, [("bulk", "a", "b"), ("loss", "b", "a"), ("alone", "local", "embedded"), ("link", "b", "")]);
    let moved = count(iterations[0], "bytes_received");
    let carried = pair.far.interface("data").received_bytes - before;
    assert!(moved > 0 && carried >= moved, "{moved} bytes arrived, the link carried {carried}");
    // A program there sees the namespace's own counters.
    assert!(count(iterations[3], "bytes_received") >= moved);
    let addresses = std::fs::read_to_string(mark).unwrap();
    assert!(addresses.contains(Pair::FAR) && !addresses.contains(Pair::NEAR), "{addresses}");
}

#[test]
fn a_range_of_hosts_is_each_of_them() {
    let Some(pair) = Pair::new() else { return };
    let folder = Folder::new();
    let both = format!("{},{}", pair.near.name, pair.far.name);
    let mark = folder.name("mark");
    let plan = folder.plan(
        &format!(
            "hosts:\n  {both}: {{netns: \"{{host}}\", address: local}}\n\
             require:\n  - {{host: \"{both}\", check: sysctl.net.ipv4.tcp_sack, at_least: 0}}"
        ),
        &format!(
            "  each:\n    workload: tcp_rr\n    transactions: 10\n    matrix: {{to: \"{both}\"}}\n    from: {near}\n    \
             hooks: {{setup: {{run: [sh, -c, 'ip -o -4 address >> {mark}'], on: \"{both}\"}}}}\n    \
             assert: [{{that: latency.p50 < 10s, when: {{to: \"{both}\"}}}}]",
            near = pair.near.name
        ),
    );
    let (near, far) = (format!("{}={}", pair.near.name, Pair::NEAR), format!("{}={}", pair.far.name, Pair::FAR));
    let ran = plumb(&["run", &plan, "--progress", "never", "--allow-hooks", "--host", &near, "--host", &far]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let rows = parse(&ran.stdout);
    let ends: Vec<_> = of(&rows, "iteration").into_iter().map(|row| row["to"].clone()).collect();
    assert_eq!(ends, [pair.near.name.as_str(), &pair.far.name]);
    // Each of the two cases is set up in both namespaces.
    let addresses = std::fs::read_to_string(mark).unwrap();
    assert_eq!((addresses.matches(Pair::NEAR).count(), addresses.matches(Pair::FAR).count()), (2, 2), "{addresses}");
}

#[test]
fn a_hook_that_fails_on_some_hosts_names_them() {
    let Some(pair) = Pair::new() else { return };
    let folder = Folder::new();
    let both = format!("{},{}", pair.near.name, pair.far.name);
    let ran = run(
        &folder,
        &format!("hosts:\n  {both}: {{netns: \"{{host}}\", address: local}}"),
        &format!(
            "  a: {{workload: tcp_rr, to: {}, duration: 10ms, hooks: {{setup: {{run: [sh, -c, 'ip -o -4 address | grep -q {}'], on: \"{both}\"}}}}}}",
            pair.near.name,
            Pair::FAR
        ),
    );
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    let words = format!("hook setup: on {}: ", pair.near.name);
    assert!(ran.stderr.contains(&words) && !ran.stderr.contains(&format!("on {}", pair.far.name)), "{}", ran.stderr);
}

#[test]
fn members_over_several_daemons_start_together_and_say_how_nearly() {
    // Members that stood still at different times have no interval in common, and so no total.
    despite_stalls(measures_a_ring);
}

fn measures_a_ring() {
    let daemons: Vec<Serve> = (0..3).map(|_| Serve::start(&[])).collect();
    let host = |(i, d): (usize, &Serve)| format!("  h{i}: {{address: 127.0.0.1, control: \"{}\"}}", d.address);
    let hosts: Vec<String> = daemons.iter().enumerate().map(host).collect();
    let folder = Folder::new();
    let ran = run(
        &folder,
        &format!("hosts:\n{}", hosts.join("\n")),
        "  ring:\n    duration: 400ms\n    interval: 20ms\n    iterations: 2\n    concurrent:\n      start: {max_skew: 10s}\n      members:\n        \
         x: {workload: tcp_rr, from: h0, to: h1}\n        y: {workload: tcp_rr, from: h1, to: h2}\n        \
         z: {workload: tcp_rr, from: h2, to: h0}\n        here: {workload: tcp_rr, to: h0}",
    );
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let rows = parse(&ran.stdout);
    for iteration in ["1", "2"] {
        let of_it: Vec<_> = of(&rows, "iteration").into_iter().filter(|r| r["iteration"] == iteration).collect();
        let members: Vec<_> =
            of_it.iter().map(|r| (r["member"].as_str(), r["from"].as_str(), r["to"].as_str())).collect();
        assert_eq!(
            members,
            [("x", "h0", "h1"), ("y", "h1", "h2"), ("z", "h2", "h0"), ("here", "local", "h0"), ("", "", "")]
        );
        // One skew over all ends of all members, within the plan's limit.
        let skew = number(of_it[0], "start_skew_us");
        assert!(skew > 0.0 && skew <= 10e6, "{skew}");
        assert!(of_it.iter().all(|r| r["start_skew_us"] == of_it[0]["start_skew_us"]), "{of_it:?}");
        // The total covers the common window, which is at most as long as each member's own.
        let window = number(of_it[4], "elapsed_s");
        assert!(of_it[..4].iter().all(|r| number(r, "elapsed_s") >= window * 0.999), "{of_it:?}");
        assert!(number(of_it[4], "transactions_per_s") > 0.0);
    }
}

#[test]
fn interfaces_of_the_route_and_free_cpus_can_be_required() {
    let Some(pair) = Pair::new() else { return };
    let folder = Folder::new();
    let require = |lines: &str| {
        let top = format!("{}\nrequire:\n{lines}", hosts(&pair));
        run(
            &folder,
            &top,
            "  rr: {workload: udp_rr, from: a, to: b, duration: 10ms}\n  un: {workload: unix_rr, duration: 10ms}",
        )
    };
    let fine = "  - {check: mtu, equals: 1500, host: b}\n  - {check: mtu, at_least: 1kB, host: a}\n  - {check: free_cpus, at_least: 0}\n  \
                - {check: nic_speed, at_least: 10Mbit/s, host: a}";
    let ran = require(fine);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let ran = require(
        "  - {check: mtu, at_least: 9000, host: b}\n  - {check: free_cpus, at_least: 100k, host: a}\n  - {check: mtu, at_least: 1, host: local, severity: warn}",
    );
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    for words in [
        "host `b`: mtu of data is 1500, and must be at least 9000",
        "host `a`: free_cpus is ",
        "and must be at least 100k",
    ] {
        assert!(ran.stderr.contains(words), "{words}: {}", ran.stderr);
    }
    let ran = require("  - {check: mtu, at_least: 1, host: local, severity: warn}");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains("host `local`: cannot check mtu: no test sends packets from there"), "{}", ran.stderr);
}

#[test]
fn loopback_has_a_size_and_no_speed() {
    let folder = Folder::new();
    let test = "  rr: {workload: tcp_rr, duration: 10ms}";
    let ran = run(&folder, "require: [{check: mtu, at_least: 1500}]", test);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let ran = run(&folder, "require: [{check: nic_speed, at_least: 1Gbit/s}]", test);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    let words = "cannot check nic_speed: lo, the interface that routes to 127.0.0.1, does not report it";
    assert!(ran.stderr.contains(words), "{}", ran.stderr);
}

#[test]
fn a_namespace_that_cannot_be_is_said_before_anything_runs() {
    let folder = Folder::new();
    let test = "  bulk: {workload: tcp_rr, to: b, duration: 10ms}";
    let ran = run(&folder, "hosts: {b: {netns: no-such-namespace, address: 10.0.0.2}}", test);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("host `b`: no daemon in its network namespace"), "{}", ran.stderr);
    assert!(ran.stderr.contains("`no-such-namespace`") && ran.stderr.contains("ip netns list"), "{}", ran.stderr);
    assert!(ran.stdout.lines().count() <= 1, "{}", ran.stdout);
    let ran = run(&folder, "hosts: {b: {netns: blue, address: 10.0.0.2, control: \"10.0.0.3:1\"}}", test);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(ran.stderr.contains("`netns` and `control` exclude each other"), "{}", ran.stderr);
}

/// The link behind a router is shorter than both ends think, and the router's errors about it are dropped.
#[test]
fn a_path_that_drops_full_packets_is_told_from_a_host_that_is_silent() {
    let Some(chain) = Chain::new(3).filter(|_| has_program("iptables", "iptables")) else { return };
    let (_daemon, hosts) = chain.serve(false);
    chain.0[1].read("ip", &["link", "set", "east", "mtu", "1000"]);
    chain.0[1].read("iptables", &["-A", "OUTPUT", "-p", "icmp", "-j", "DROP"]);
    for (host, link) in [(0, "east"), (2, "west")] {
        // A packet of several segments passes as one, whatever the length of the link.
        chain.0[host].read("ip", &["link", "set", link, "gso_max_segs", "1"]);
    }
    let folder = Folder::new();
    let plan = folder.plan(&hosts, "  it: {workload: tcp_rr, to: far, duration: 1s}");
    let ran = Ran::from(chain.0[0].command(env!("CARGO_BIN_EXE_plumb")).args(["hosts", &plan]).output().unwrap());
    let said = format!("{}{}", ran.stdout, ran.stderr);
    assert!(said.contains("the connection is up, but") && said.contains("full packets may not pass (MTU)"), "{said}");
}
