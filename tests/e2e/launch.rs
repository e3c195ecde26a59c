//! Far ends that `plumb run` starts itself: real ssh, and other commands, on hosts of their own.

use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::{
    fleet::{Fleet, HUB},
    program::{Folder, Ran, count, of, rows},
};

/// Hosts `h1` … `hN` with an sshd each.
fn with_sshd(hosts: usize) -> Option<Fleet> {
    Fleet::new(hosts)?.with_sshd("")
}

/// Runs tests with this inventory; the table is `r.csv` in the folder.
pub fn run(fleet: &Fleet, folder: &Folder, hosts: &str, tests: &str) -> Ran {
    let plan = folder.plan(&format!("hosts: {hosts}"), tests);
    fleet.plumb(&["run", &plan, "-o", &folder.name("r.csv"), "--progress", "never"])
}

/// How a host was started, as `run.json` has it.
pub fn launch_of(folder: &Folder, host: &str) -> Value {
    let record: Value = serde_json::from_slice(&std::fs::read(folder.path("r.run.json")).unwrap()).unwrap();
    record["hosts"][host]["launch"].clone()
}

/// Bytes that arrived in the only iteration of a test.
fn arrived(folder: &Folder, test: &str) -> u64 {
    let rows = rows(&folder.path("r.csv"));
    count(of(&rows, "iteration").iter().find(|r| r["test"] == test).expect("its row"), "bytes_received")
}

#[test]
fn ssh_starts_two_ends_and_the_data_go_from_one_to_the_other() {
    let Some(fleet) = with_sshd(2) else { return };
    let (folder, hosts) = (Folder::new(), fleet.all_hosts());
    let before = fleet.traces(&hosts);
    let sent = [fleet.sent_bytes("h1"), fleet.sent_bytes("h2")];
    // One program is installed there, the other travels.
    let ran = run(
        &fleet,
        &folder,
        "{h1: {launch: ssh}, b: {launch: {ssh: {host: h2, user: root, port: 22, copy: true}}}}",
        "  bulk: {workload: tcp_stream, from: h1, to: b, bytes: 20MB}\n  here: {workload: tcp_rr, to: b, transactions: 10}",
    );
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    fleet.await_clean("after a run", &hosts, &before, &[]);
    // The copy crosses the link of `b` inwards.
    let [by_h1, by_h2] = [fleet.sent_bytes("h1") - sent[0], fleet.sent_bytes("h2") - sent[1]];
    let moved = arrived(&folder, "bulk");
    assert!(moved > 0 && by_h1 > moved, "{moved} bytes arrived, the link carried {by_h1}");
    assert!(by_h2 < 20_000_000, "{by_h2}");
    for (host, copied, address) in [("h1", false, "10.77.0.1"), ("b", true, "10.77.0.2")] {
        let launch = launch_of(&folder, host);
        assert_eq!(launch["engine"], "ssh", "{launch}");
        assert_eq!(launch["copied"], copied, "{launch}");
        assert_eq!(launch["control"], "address", "{launch}");
        assert_eq!((&launch["data_address"], &launch["data_interface"]), (&address.into(), &"eth0".into()), "{launch}");
    }
}

#[test]
fn control_goes_through_ssh_where_only_that_reaches_the_host() {
    let Some(fleet) = with_sshd(2) else { return };
    let folder = Folder::new();
    // Only h1 hears from h2.
    fleet.read("h2", &["ip", "route", "add", "blackhole", "10.77.0.254"]);
    let run = |control: &str| {
        run(
            &fleet,
            &folder,
            &format!("{{h1: {{launch: ssh}}, h2: {{{control} launch: {{ssh: {{jump: h1}}}}}}}}"),
            "  bulk: {workload: tcp_stream, from: h1, to: h2, bytes: 5MB}",
        )
    };
    let ran = run("control: launcher,");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(launch_of(&folder, "h1")["control"], "address");
    assert_eq!(launch_of(&folder, "h2")["control"], "launcher");
    assert!(arrived(&folder, "bulk") > 0);
    let ran = run("");
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("host `h2`"), "{}", ran.stderr);
}

#[test]
fn a_host_of_the_command_line_is_launched() {
    let Some(fleet) = with_sshd(1) else { return };
    let folder = Folder::new();
    let plan = concat!(env!("CARGO_MANIFEST_DIR"), "/../plans/quick.yaml");
    let short = ["--set", "warmup=0s", "--set", "duration=50ms", "--set", "iterations=1", "-o", &folder.name("r.csv")];
    let host = ["run", plan, "--host", "server=ssh://root@h1", "--set", "to=server"];
    let ran = fleet.plumb(&[&host[..], &short].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(launch_of(&folder, "server")["engine"], "ssh");
    let rows = rows(&folder.path("r.csv"));
    assert!(of(&rows, "iteration").iter().all(|r| r["to"] == "server" && r["status"] == "ok"), "{rows:?}");
}

#[test]
fn measure_starts_the_far_end_once_and_leaves_nothing() {
    let Some(fleet) = with_sshd(1) else { return };
    let (folder, hosts) = (Folder::new(), fleet.all_hosts());
    let before = fleet.traces(&hosts);
    // Each call of ssh leaves a line.
    let wrapper =
        format!("#!/bin/sh\necho call >> {}\nPATH=/usr/bin:/bin exec ssh \"$@\"\n", folder.path("calls").display());
    std::fs::write(folder.path("ssh"), wrapper).unwrap();
    std::fs::set_permissions(folder.path("ssh"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("PATH={}:/usr/sbin:/usr/bin:/sbin:/bin", folder.path("").display());
    let measure =
        ["/run/fleet/bin/plumb", "measure", "ssh://root@h1", "-t", "2", "tcp_rr", "-o", &folder.name("r.csv")];
    let ran = fleet.run(HUB, &[&["env", &path], &measure[..]].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stdout.contains("tcp_rr"), "{}", ran.stdout);
    assert_eq!(std::fs::read_to_string(folder.path("calls")).unwrap(), "call\n");
    assert_eq!(launch_of(&folder, "server")["engine"], "ssh");
    fleet.await_clean("after measure", &hosts, &before, &[]);
}

#[test]
fn sixteen_hosts_start_together_and_measure_together() {
    let Some(fleet) = with_sshd(16) else { return };
    let (folder, hosts) = (Folder::new(), fleet.all_hosts());
    let before = fleet.traces(&hosts);
    let inventory: Vec<_> = fleet.hosts().map(|h| format!("{h}: {{launch: ssh}}")).collect();
    let members: Vec<_> = (1..=8).map(|i| format!("m{i}: {{workload: tcp_rr, from: h{i}, to: h{}}}", i + 8)).collect();
    let test = format!(
        "  all: {{duration: 300ms, concurrent: {{start: {{max_skew: 10s}}, members: {{{}}}}}}}",
        members.join(", ")
    );
    let ran = run(&fleet, &folder, &format!("{{{}}}", inventory.join(", ")), &test);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let rows = rows(&folder.path("r.csv"));
    let measured = of(&rows, "iteration").iter().filter(|r| !r["member"].is_empty() && r["status"] == "ok").count();
    assert_eq!(measured, 8, "{rows:?}");
    assert!(fleet.hosts().all(|h| launch_of(&folder, &h)["engine"] == "ssh"));
    fleet.await_clean("after sixteen", &hosts, &before, &[]);
}

#[test]
fn a_jump_host_is_passed_and_the_data_are_not_sent_through_it() {
    let Some(fleet) = with_sshd(2) else { return };
    let folder = Folder::new();
    let sent = fleet.sent_bytes("h1");
    let ran = run(
        &fleet,
        &folder,
        "{far: {launch: {ssh: {host: h2, jump: h1}}}}",
        "  bulk: {workload: tcp_maerts, to: far, bytes: 20MB}",
    );
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(launch_of(&folder, "far")["data_address"], "10.77.0.2");
    let through = fleet.sent_bytes("h1") - sent;
    assert!(through > 0 && through < arrived(&folder, "bulk") / 2, "{through} bytes over the jump host's link");
}

#[test]
fn the_plan_chooses_the_address_of_the_data_by_interface_or_network() {
    let Some(fleet) = with_sshd(2) else { return };
    let folder = Folder::new();
    for host in ["h1", "h2"] {
        let number = &host[1..];
        fleet.read(host, &["ip", "address", "add", &format!("10.78.0.{number}/24"), "dev", "eth0"]);
    }
    let tests = "  rr: {workload: tcp_rr, from: h1, to: h2, transactions: 10}";
    // Control goes by the address that ssh reaches.
    let hosts = |far: &str| format!("{{h1: {{launch: ssh}}, h2: {{control: 10.77.0.2, {far}, launch: ssh}}}}");
    let ran = run(&fleet, &folder, &hosts("network: 10.78.0.0/16"), tests);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(launch_of(&folder, "h2")["data_address"], "10.78.0.2");
    for (choice, words) in [
        ("interface: eth0", vec!["host `h2`", "10.77.0.2 (eth0)", "10.78.0.2 (eth0)"]),
        ("interface: ib0", vec!["host `h2`", "no address on `ib0`", "10.77.0.2 (eth0)"]),
        ("network: 10.79.0.0/16", vec!["host `h2`", "no address in 10.79.0.0/16"]),
    ] {
        let ran = run(&fleet, &folder, &hosts(choice), tests);
        assert_eq!(ran.code, Some(3), "{choice}: {}", ran.stderr);
        assert!(words.iter().all(|w| ran.stderr.contains(w)), "{choice}: {}", ran.stderr);
    }
}

#[test]
fn any_command_that_carries_standard_input_is_an_engine() {
    let Some(fleet) = Fleet::new(2) else { return };
    let (folder, hosts) = (Folder::new(), fleet.all_hosts());
    let before = fleet.traces(&hosts);
    let on = |i: u32, more: &str| {
        format!(
            "h{i}: {{address: 10.77.0.{i}, launch: {{command: {{run: [/run/fleet/bin/on, \"{{host}}\"], {more}}}}}}}"
        )
    };
    let ran = run(
        &fleet,
        &folder,
        &format!("{{{}, {}}}", on(1, "program: /run/fleet/bin/plumb"), on(2, "copy: true")),
        "  bulk: {workload: tcp_stream, from: h1, to: h2, bytes: 5MB}",
    );
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(launch_of(&folder, "h1")["engine"], "command");
    assert!(fleet.sent_bytes("h1") > arrived(&folder, "bulk"));
    fleet.await_clean("after a run", &hosts, &before, &[]);
}

#[test]
fn a_container_of_podman_is_a_far_end() {
    let Some(fleet) = Fleet::new(1).and_then(Fleet::with_podman) else { return };
    let (folder, hosts) = (Folder::new(), fleet.all_hosts());
    let before = fleet.traces(&hosts);
    // The image's entry point would be in front of the program's name.
    let run_container = "[podman, run, -i, --rm, --network, \"ns:/run/netns/{host}\", --entrypoint, \"\", plumb]";
    let ran = run(
        &fleet,
        &folder,
        &format!("{{h1: {{launch: {{command: {run_container}}}}}}}"),
        "  bulk: {workload: tcp_maerts, to: h1, bytes: 5MB}",
    );
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(launch_of(&folder, "h1")["data_address"], "10.77.0.1");
    assert!(fleet.sent_bytes("h1") > arrived(&folder, "bulk"));
    assert_eq!(fleet.read(HUB, &["podman", "ps", "--all", "--quiet"]), "");
    fleet.await_clean("after a run", &hosts, &before, &[]);
}
