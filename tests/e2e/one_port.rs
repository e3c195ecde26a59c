//! Tests through firewalls that let in one port, and through address translation on both sides.

use std::{process::Stdio, sync::Mutex, thread};

use crate::{
    needs::has_program,
    netns::Namespace,
    program::{Folder, Serve, of, rows},
};

/// A near end behind a masquerade, a gateway, and a far end behind the gateway's address, of which one port leads on.
struct Site {
    near: Namespace,
    _gateway: Namespace,
    far: Namespace,
}

/// The gateway's address at the near end's side, and the port that leads to 12864 at the far end.
const DOOR: &str = "10.81.0.254:2864";

impl Site {
    fn new() -> Option<Self> {
        if !has_program("iptables", "iptables") {
            return None;
        }
        let (near, gateway, far) = (Namespace::new()?, Namespace::new()?, Namespace::new()?);
        for (net, end) in [("10.81.0", &near), ("10.82.0", &far)] {
            let link = format!("v{}", &net[4..5]);
            gateway.read("ip", &["link", "add", &link, "type", "veth", "peer", "name", "v0", "netns", &end.name]);
            gateway.read("ip", &["address", "add", &format!("{net}.254/24"), "dev", &link]);
            gateway.read("ip", &["link", "set", &link, "up"]);
            end.read("ip", &["address", "add", &format!("{net}.1/24"), "dev", "v0"]);
            end.read("ip", &["link", "set", "v0", "up"]);
            end.read("ip", &["route", "add", "default", "via", &format!("{net}.254")]);
        }
        gateway.read("sysctl", &["-q", "net.ipv4.ip_forward=1"]);
        let rules = |place: &Namespace, rules: &[&str]| {
            for rule in rules {
                place.read("iptables", &rule.split(' ').collect::<Vec<_>>());
            }
        };
        rules(
            &near,
            &["-A INPUT -i lo -j ACCEPT", "-A INPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT", "-P INPUT DROP"],
        );
        rules(
            &gateway,
            &[
                "-t nat -A POSTROUTING -o v2 -j MASQUERADE",
                "-t nat -A PREROUTING -i v1 -p tcp --dport 2864 -j DNAT --to-destination 10.82.0.1:12864",
                "-t nat -A PREROUTING -i v1 -p udp --dport 2864 -j DNAT --to-destination 10.82.0.1:12864",
            ],
        );
        rules(
            &far,
            &[
                "-A INPUT -i lo -j ACCEPT",
                "-A INPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT",
                "-A INPUT -p tcp --dport 12864 -j ACCEPT",
                "-A INPUT -p udp --dport 12864 -j ACCEPT",
                "-P INPUT DROP",
            ],
        );
        Some(Self { near, _gateway: gateway, far })
    }

    fn serve(&self, args: &[&str]) -> Serve {
        let mut serve = self.far.command(env!("CARGO_BIN_EXE_plumb"));
        serve.args(["serve", "--listen", "0.0.0.0:12864", "--allow", "10.0.0.0/8"]).args(args);
        serve.stdout(Stdio::piped()).stderr(Stdio::null());
        Serve::of(serve)
    }

    /// Runs a plan in the near namespace; returns the errors of its measurements, and their number.
    fn run(&self, plan: &str, args: &[&str]) -> (Vec<String>, usize) {
        let folder = Folder::new();
        let table = folder.path("rows.csv");
        let output = self
            .near
            .command(env!("CARGO_BIN_EXE_plumb"))
            .args(["run", plan, "--to", DOOR, "--progress", "never", "-o"])
            .arg(&table)
            .args(args)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(table.exists(), "{plan}: {said}");
        let rows = rows(&table);
        // A search has probes only.
        let measured = [of(&rows, "iteration"), of(&rows, "probe")].concat();
        assert!(!measured.is_empty(), "{plan}: {said}");
        let bad = measured.iter().filter(|row| !["ok", "discarded"].contains(&row["status"].as_str()));
        (bad.map(|row| format!("{}: {}", row["case"], row["error"])).collect(), measured.len())
    }
}

const TOP: &str = "defaults: {duration: 200ms, warmup: 0s, iterations: 1}";

const TESTS: &str = "  streams: {workload: tcp_stream, matrix: {streams: [1, 64], direction: [forward, reverse, bidirectional]}}
  trips: {workload: tcp_rr, streams: 64}
  connects: {matrix: {workload: [tcp_cc, tcp_crr], streams: [1, 64]}}
  threads: {workload: tcp_crr, streams: 16, threads: 2}
  closes: {workload: tcp_cc, matrix: {close: [near_first, reset]}}
  datagrams: {workload: udp_stream, rate: 20Mbit/s, matrix: {streams: [1, 8], direction: [forward, reverse, bidirectional]}}
  requests: {workload: udp_rr, streams: 64}
  sealed: {matrix: {workload: [tls_stream, tls_rr, quic_stream, quic_rr]}, streams: 8}
  hands: {matrix: {workload: [tls_cc, tls_crr, quic_cc, quic_crr], streams: [1, 8]}}
  buffers: {workload: tcp_stream, remote_socket: {receive_buffer: 32KiB}, socket: {receive_buffer: 8KiB}}
";

#[test]
fn one_open_port_is_enough_for_every_workload_of_tcp_tls_udp_and_quic() {
    let Some(site) = Site::new() else { return };
    let _serve = site.serve(&["--max-flows", "128"]);
    let folder = Folder::new();
    let (bad, measured) = site.run(&folder.plan(TOP, TESTS), &[]);
    assert!(bad.is_empty() && measured >= 20, "{bad:#?}");
}

/// The control connection shows that TCP passes.
#[test]
fn a_firewall_that_drops_udp_alone_is_told() {
    let Some(site) = Site::new() else { return };
    let _serve = site.serve(&[]);
    site.far.read("iptables", &["-I", "INPUT", "-p", "udp", "-j", "DROP"]);
    let folder = Folder::new();
    let (bad, _) = site.run(&folder.plan(TOP, "  one: {workload: udp_stream, rate: 1Mbit/s}"), &[]);
    let says = "no answer from 10.81.0.254:2864, though TCP passes there: a firewall may drop UDP";
    assert!(bad.len() == 1 && bad[0].contains(says), "{bad:#?}");
}

/// The same way with ports apart ends where the gateway does not lead to them, and the error names the address.
#[test]
fn ports_apart_need_a_gateway_that_leads_to_them() {
    let Some(site) = Site::new() else { return };
    let serve = site.serve(&["--data-ports", "20000-20100"]);
    let folder = Folder::new();
    let (bad, _) = site.run(&folder.plan(TOP, "  one: {workload: tcp_stream}"), &[]);
    assert!(bad.len() == 1 && bad[0].contains("10.81.0.254:20000, which is no address of this host"), "{bad:#?}");
    drop(serve);
    // A buffer that is smaller than what an accepted connection has offered takes a listening socket of its own.
    let _serve = site.serve(&[]);
    let (bad, _) = site.run(&folder.plan(TOP, "  one: {workload: tcp_stream, socket: {receive_buffer: 16KiB}}"), &[]);
    assert!(bad.len() == 1 && bad[0].contains("which is no address of this host"), "{bad:#?}");
}

#[test]
fn the_shipped_plans_over_tcp_and_udp_need_one_port() {
    let short = ["warmup=0s", "cooldown=0s", "iterations=1", "interval=10ms", "duration=20ms"];
    let short: Vec<&str> = short.iter().flat_map(|set| ["--set", set]).collect();
    let skews = |tests: &[&str]| {
        let of = |test: &&str| format!("tests.{test}.concurrent.start.max_skew=10s");
        tests.iter().map(of).collect::<Vec<_>>()
    };
    let plans = [
        ("aggregate", skews(&["outbound", "both-ways"]), &[][..]),
        ("burst", vec![], &[]),
        ("cpu-cost", vec![], &[]),
        ("fast-paths", vec![], &[]),
        ("find-rate", vec![], &[]),
        ("hpcbench-tcp", vec![], &[]),
        ("hpcbench-udp", vec![], &[]),
        // The others need no network.
        ("lmbench", vec![], &["bw-tcp", "lat-tcp", "lat-connect", "lat-udp"]),
        ("message-size", vec![], &[]),
        ("netperf-classics", vec![], &[]),
        ("netpipe", vec![], &[]),
        ("path", skews(&["upload", "download"]), &[]),
        ("quick", vec![], &[]),
        ("responsiveness", skews(&["load"]), &[]),
        ("soak", [skews(&["soak"]), vec!["vars.duration=20ms".to_owned()]].concat(), &[]),
        ("udp-loss", vec![], &[]),
    ];
    let measures = |site: &Site, plan: &str, sets: &[String], only: &[&str]| {
        let path = format!("{}/../plans/{plan}.yaml", env!("CARGO_MANIFEST_DIR"));
        let sets = sets.iter().flat_map(|set| ["--set", set]);
        let only = only.iter().flat_map(|test| ["--only", test]);
        let (mut bad, _) = site.run(&path, &short.iter().copied().chain(sets).chain(only).collect::<Vec<_>>());
        // As with netperf, so small a buffer must be there before the connection is accepted.
        bad.retain(|case| !(case.contains("receive_buffer=8192]") && case.contains("cannot bind a data socket")));
        assert!(bad.is_empty(), "{plan}: {bad:#?}");
    };
    // A run waits more than it works: several at a time, each with a site of its own.
    let left = Mutex::new(plans.iter());
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let Some(site) = Site::new() else { return };
                let _serve = site.serve(&[]);
                while let Some((plan, sets, only)) = { left.lock().unwrap().next() } {
                    measures(&site, plan, sets, only);
                }
            });
        }
    });
}

/// Ranks connect to those before them: the one behind the masquerade comes last, since the others cannot connect to it.
#[test]
fn ranks_meet_through_one_port() {
    let Some(site) = Site::new() else { return };
    let _serve = site.serve(&[]);
    let folder = Folder::new();
    let here =
        format!("hosts: {{here: {{launch: {{command: {{run: [env], program: {}}}}}}}}}", env!("CARGO_BIN_EXE_plumb"));
    let ranks = "ranks: [server, here]";
    let tests = format!(
        "  it: {{workload: tcp_collective, {ranks}, operation: allreduce}}\n  is: {{workload: nas_is, {ranks}}}"
    );
    let (bad, measured) = site.run(&folder.plan(&format!("{here}\n{TOP}"), &tests), &[]);
    assert!(bad.is_empty() && measured == 2, "{bad:#?}");
}
