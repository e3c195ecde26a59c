//! Congestion marks (`socket.ecn`) against those that a rule of the kernel's packet filter sets and counts, and runs of loss against what was lost.

use crate::{
    needs::{has_program, skip},
    netns::{Chain, Pair},
    program::{Folder, Ran, Row, count, despite_stalls, number, of, parse},
};

/// The measured row of a test in the near namespace.
fn measure(pair: &Pair, hosts: &str, test: &str) -> Row {
    let ran = run(pair, hosts, test);
    assert_eq!(ran.code, Some(0), "{test}\n{}{}", ran.stdout, ran.stderr);
    of(&parse(&ran.stdout), "iteration")[0].clone()
}

fn run(pair: &Pair, hosts: &str, test: &str) -> Ran {
    let folder = Folder::new();
    let plan = folder.plan(hosts, &format!("  it: {{{test}, to: far}}"));
    pair.near.run(&plan)
}

/// Marks every seventh packet that the near end sends as ECT(0), as a congested queue would; `false`: that cannot be done here.
fn mark(pair: &Pair) -> bool {
    if !has_program("iptables-legacy", "iptables") {
        return false;
    }
    let rule = "-t mangle -A POSTROUTING -o data -m ecn --ecn-ip-ect 2 -m statistic --mode nth --every 7 --packet 0 -j TOS --set-tos \
        0x03/0x03";
    let made = pair.near.command("iptables-legacy").args(rule.split(' ')).output().unwrap();
    if !made.status.success() {
        skip(&format!("this kernel sets no congestion marks: {}", String::from_utf8_lossy(&made.stderr)));
    }
    made.status.success()
}

/// Packets that this rule has marked.
fn marked(pair: &Pair) -> u64 {
    let text = pair.near.read("iptables-legacy", &["-t", "mangle", "-L", "POSTROUTING", "-v", "-x", "-n"]);
    let rule = text.lines().find(|line| line.contains("TOS set")).unwrap();
    rule.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn marks_are_those_that_were_set_on_the_way() {
    despite_stalls(compares_marks);
}

fn compares_marks() {
    let Some(pair) = Pair::new() else { return };
    if !mark(&pair) {
        return;
    }
    let (_daemon, hosts) = pair.serve();
    let arrived = || ["InCEPkts", "InECT0Pkts"].map(|key| pair.far.snmp_of("/proc/net/netstat", "IpExt", key));
    // Datagrams: one by one, in batches, and several as one.
    for how in
        ["io: blocking", "io: batch", "io: batch, remote_socket: {gro: true}", "receive: discard, direction: forward"]
    {
        let (before, [ce, ect]) = (marked(&pair), arrived());
        let test = format!(
            "workload: udp_stream, message_size: 1000, rate: 20Mbit/s, bytes: 1500kB, {how}, socket: {{ecn: true, dscp: af41}}"
        );
        let row = measure(&pair, &hosts, &test);
        let (after, [ce_after, ect_after]) = (marked(&pair), arrived());
        let marks = after - before;
        assert!(marks >= 200, "{how}: {marks} marks");
        assert_eq!((count(&row, "remote_ce_packets"), count(&row, "local_ce_packets")), (marks, 0), "{how}");
        assert_eq!((ce_after - ce, row["ecn"].as_str()), (marks, "true"), "{how}");
        assert_eq!(ect_after - ect, count(&row, "messages_received") - marks, "{how}: every message can be marked");
    }
    let row = measure(&pair, &hosts, "workload: udp_stream, message_size: 1000, rate: 1Mbit/s, bytes: 10kB");
    assert_eq!((row["ecn"].as_str(), count(&row, "remote_ce_packets")), ("", 0));
    // A connection: only where the opening host asks for it.
    let tcp = "workload: tcp_stream, bytes: 2MB, socket: {ecn: true, congestion_control: cubic}";
    let refused = run(&pair, &hosts, tcp);
    assert_eq!(refused.code, Some(3), "{}{}", refused.stdout, refused.stderr);
    assert!(refused.stderr.contains("(`from`) needs net.ipv4.tcp_ecn=1 (it is "), "{}", refused.stderr);
    pair.near.read("sh", &["-c", "echo 1 > /proc/sys/net/ipv4/tcp_ecn"]);
    let before = marked(&pair);
    let row = measure(&pair, &hosts, tcp);
    let marks = marked(&pair) - before;
    let counted = count(&row, "remote_ce_packets");
    // Packets that are under way at an edge are on one side of it for the queue and on the other for the receiver.
    assert!(marks > 100 && marks.abs_diff(counted) <= 60, "{marks} marks, {counted} counted");
    assert!(count(&row, "ce_echoed") > 0 && row["ecn"] == "true", "{row:?}");
}

/// A router on the way leaves the code points of datagrams alone, clears them, writes another one, or marks.
#[test]
fn a_path_that_changes_code_points_is_told() {
    if !has_program("iptables-legacy", "iptables") {
        return;
    }
    for (v6, program) in [(false, "iptables-legacy"), (true, "ip6tables-legacy")] {
        let Some(chain) = Chain::new(3) else { return };
        let (_daemon, hosts) = chain.serve(v6);
        let table = |arguments: &str| {
            let all = format!("-t mangle {arguments}");
            chain.0[1].command(program).args(all.split(' ')).output().unwrap()
        };
        let every = "-m statistic --mode nth --every 10 --packet 0 ";
        for (sent, rule, path, [not_ect, ect0, ect1, marked]) in [
            ("ect1", None, "kept", [0, 0, 500, 0]),
            ("ect1", Some(("", "0x00/0x03")), "bleached", [500, 0, 0, 0]),
            ("ect1", Some(("", "0x02/0x03")), "remarked", [0, 500, 0, 0]),
            ("ect1", Some((every, "0x03/0x03")), "marked", [0, 0, 450, 50]),
            ("ect0", Some((every, "0x03/0x03")), "marked", [0, 450, 0, 50]),
            ("ce", Some(("", "0x00/0x03")), "bleached", [500, 0, 0, 0]),
        ] {
            table("-F FORWARD");
            if let Some((which, bits)) = rule {
                let made = table(&format!("-A FORWARD -p udp -i west {which}-j TOS --set-tos {bits}"));
                if !made.status.success() {
                    skip(&format!("this kernel writes no code points: {}", String::from_utf8_lossy(&made.stderr)));
                    return;
                }
            }
            let folder = Folder::new();
            let test = format!(
                "  it: {{workload: udp_stream, to: far, message_size: 1000, rate: 4Mbit/s, bytes: 500kB, iterations: 1, \
                 socket: {{ecn: {sent}, dscp: af41}}}}"
            );
            let ran = chain.0[0].run(&folder.plan(&hosts, &test));
            assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
            let rows = parse(&ran.stdout);
            for record in ["iteration", "summary"] {
                let row = of(&rows, record)[0];
                assert_eq!((row["ecn_sent"].as_str(), row["ecn_path"].as_str()), (sent, path), "{program} {record}");
                let counts =
                    ["not_ect", "ect0", "ect1", "ce"].map(|name| count(row, &format!("remote_{name}_packets")));
                let total: u64 = counts.iter().sum();
                // Greetings pass the rule, too, and one in ten is known to one.
                let all_there = counts.iter().zip([not_ect, ect0, ect1, marked]).all(|(a, b)| a.abs_diff(b) <= 1);
                assert!(total == 500 && all_there, "{program} {sent} {path}: {counts:?}");
            }
        }
    }
}

#[test]
fn runs_of_loss_add_up_to_what_was_lost() {
    despite_stalls(compares_runs);
}

fn compares_runs() {
    let Some(pair) = Pair::new() else { return };
    if !pair.limit("10mbit", "10ms") {
        return;
    }
    let (_daemon, hosts) = pair.serve();
    // The losses do not stop at the edges of the phase.
    for how in [
        "io: batch",
        "io: blocking, warmup: 300ms, cooldown: 300ms",
        "streams: 2, socket: {gso: 4}, remote_socket: {gro: true}, pacing: {burst: 4}",
    ] {
        let test = format!("workload: udp_stream, message_size: 1000, rate: 15Mbit/s, duration: 1s, {how}");
        let row = measure(&pair, &hosts, &test);
        let [lost, runs, longest] = ["lost", "loss_runs", "loss_run_max"].map(|column| count(&row, column));
        let mean = number(&row, "loss_run_mean");
        assert!(runs > 10 && longest as f64 >= mean && mean >= 1.0, "{how}: {runs} runs, {mean}, {longest}");
        assert!((runs as f64 * mean - lost as f64).abs() < 0.5, "{how}: {runs} × {mean} is not {lost}");
    }
    let row = measure(&pair, &hosts, "workload: udp_stream, message_size: 1000, rate: 1Mbit/s, bytes: 50kB");
    assert_eq!(
        ["lost", "loss_runs", "loss_run_max", "loss_run_mean"].map(|column| row[column].as_str()),
        ["0", "0", "0", ""]
    );
}
