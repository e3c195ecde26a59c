//! The program's numbers against independent counters: the kernel's, of interfaces, queues and protocols, and
//! `ss`. Each test has namespaces of its own, where the kernel counts this test only.

use std::{
    thread,
    time::{Duration, Instant},
};

use crate::{
    needs::has_program,
    netns::{Namespace, Pair},
    program::{Folder, count, despite_stalls, end, number, of, parse, until},
};

const MIB: u64 = 1 << 20;

#[test]
fn tcp_bytes_are_those_that_the_interface_carried() {
    let Some(alone) = Namespace::new() else { return };
    let plan = "{version: 1, name: witness, tests: {it: {workload: tcp_stream, bytes: 64MiB, message_size: 64KiB}}}";
    let (ran, [(before, sent_again_before), (after, sent_again_after)]) =
        alone.around(&Folder::new().text(plan), |inside| (inside.interface("lo"), inside.snmp("Tcp", "RetransSegs")));
    let rows = parse(&ran.stdout);
    let row = of(&rows, "iteration")[0];
    assert_eq!(row["status"], "ok");
    let sent = count(row, "bytes_sent");
    assert_eq!(count(row, "bytes_received"), sent);
    assert!(sent >= 64 * MIB, "{sent} bytes is less than the plan asked for");
    let carried = after.received_bytes - before.received_bytes;
    let packets = after.received_packets - before.received_packets;
    // A packet has an Ethernet, an IP and a TCP header (54 bytes), with options at most 94. The control connection
    // uses the same interface. On a machine that is busy the kernel sends segments of up to 64 KiB again.
    let (conversation, sent_again) = (MIB / 2, (sent_again_after - sent_again_before) * (64 << 10));
    let (least, most) = (sent + 54 * packets, sent + 94 * packets + conversation + sent_again);
    assert!(
        (least..=most).contains(&carried),
        "{sent} bytes reported; {carried} carried in {packets} packets, expected {least} to {most}"
    );
}

#[test]
fn datagrams_are_those_that_the_kernel_counted() {
    let Some(alone) = Namespace::new() else { return };
    let folder = Folder::new();
    let plan = folder.plan("", "  it: {workload: udp_stream, duration: 1s, message_size: 1000, rate: 20k/s}");
    let (ran, [before, after]) =
        alone.around(&plan, |inside| ["OutDatagrams", "InDatagrams"].map(|key| inside.snmp("Udp", key)));
    let [out, delivered] = [0, 1].map(|i| after[i] - before[i]);
    let rows = parse(&ran.stdout);
    let row = of(&rows, "iteration")[0];
    let (sent, received) = (count(row, "messages_sent"), count(row, "messages_received"));
    // Each flow begins with a few datagrams that prove its owner, and ends with a few that announce the end.
    assert!((sent..=sent + 100).contains(&out), "{sent} messages reported, {out} datagrams sent");
    assert!((received..=received + 100).contains(&delivered), "{received} reported, {delivered} delivered");
    assert_eq!(count(row, "lost"), sent - received);
}

#[test]
fn messages_that_leave_in_fragments_are_said_to() {
    let Some(alone) = Namespace::new() else { return };
    assert!(alone.command("ip").args(["link", "set", "lo", "mtu", "1500"]).status().unwrap().success());
    let folder = Folder::new();
    for (bytes, fragments) in [(1472, 1), (3000, 3)] {
        let test = format!("  it: {{workload: udp_stream, bytes: 1MB, message_size: {bytes}, rate: 2k/s}}");
        let plan = folder.plan("", &test);
        let (ran, [before, after]) = alone.around(&plan, |inside| inside.snmp("Ip", "FragCreates"));
        let sent = count(of(&parse(&ran.stdout), "iteration")[0], "messages_sent");
        let made = after - before;
        let note = format!("message_size of {bytes} bytes leaves lo in {fragments} fragments");
        assert_eq!(ran.stderr.contains(&note), fragments > 1, "{}", ran.stderr);
        assert_eq!(made, if fragments > 1 { sent * fragments } else { 0 }, "{sent} messages");
    }
}

#[test]
fn udp_loss_is_what_the_queue_dropped() {
    despite_stalls(compares_loss);
}

fn compares_loss() {
    let Some(pair) = Pair::new() else { return };
    // The queue is shorter than the socket's send buffer: with a longer one the sender would wait and nothing be lost.
    if !pair.limit("50mbit", "5ms") {
        return;
    }
    let (_daemon, hosts) = pair.serve();
    let rows = pair.near.measure(&format!(
        "{{version: 1, name: witness, {hosts}, tests: {{it: {{workload: udp_stream, to: far, duration: 2s, \
             message_size: 1400, rate: 80Mbit/s}}}}}}"
    ));
    let dropped = pair.dropped() + pair.far.snmp("Udp", "RcvbufErrors");
    let (sent, lost) = (count(&rows[0], "messages_sent"), count(&rows[0], "lost"));
    assert!(dropped > 100, "the queue dropped {dropped}: this link did not lose what the test needs it to lose");
    // The queue may also have dropped datagrams outside the window: proofs of the flow, and those
    // in flight when the window was cut.
    assert!(
        (lost..=lost + 10).contains(&dropped),
        "of {sent} messages {lost} are reported lost; the queue dropped {dropped}"
    );
    assert_eq!(sent - lost, count(&rows[0], "messages_received"));
    assert!((number(&rows[0], "loss_ratio") - lost as f64 / sent as f64).abs() < 1e-9);
}

#[test]
fn an_idle_daemon_sleeps() {
    let Some(pair) = Pair::new() else { return };
    let (daemon, _) = pair.serve();
    // `ip netns exec` execs its program, so the process is the daemon itself.
    let switches = || -> u64 {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap();
        let status = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("status")).unwrap());
        let count =
            |text: String| text.lines().find_map(|l| l.strip_prefix("voluntary_ctxt_switches:")?.trim().parse().ok());
        status.map(|text| count(text).unwrap_or(0)).sum()
    };
    // Its threads may not sleep yet.
    let mut before = switches();
    until("the daemon sleeps", || {
        thread::sleep(Duration::from_millis(500));
        std::mem::replace(&mut before, switches()) == before
    });
    thread::sleep(Duration::from_secs(2));
    assert_eq!(switches(), before, "an idle daemon woke up");
}

#[test]
fn tcp_info_is_what_ss_shows() {
    despite_stalls(compares_tcp_info);
}

fn compares_tcp_info() {
    let Some(pair) = Pair::new() else { return };
    // The queue is so short that segments are lost: the test compares retransmissions.
    if !pair.limit("50mbit", "4ms") {
        return;
    }
    if !has_program("ss", "iproute2") {
        return;
    }
    let (_daemon, hosts) = pair.serve();
    let (_folder, run) = pair.start(
        &hosts,
        "{workload: tcp_stream, to: far, duration: 2s, cooldown: 6s, socket: {congestion_control: reno}}",
    );
    // The data connection is the one to the data link's address. It is watched until it is gone.
    let (mut seen, begun) = (Vec::new(), Instant::now());
    while begun.elapsed() < Duration::from_mins(1) {
        let text = pair.near.read("ss", &["-Htin", "dst", Pair::FAR]);
        if !text.contains("retrans") && !seen.is_empty() && text.trim().is_empty() {
            break;
        }
        if text.contains(" reno ") {
            seen.push(text);
        }
        thread::sleep(Duration::from_millis(20));
    }
    let ran = end(run);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let rows = parse(&ran.stdout);
    let row = of(&rows, "iteration")[0];
    let last = seen.last().expect("ss saw the connection");
    let field = |text: &str, key: &str| {
        let word = text.split_whitespace().find_map(|w| w.strip_prefix(&format!("{key}:")).map(str::to_owned));
        word.map(|w| w.rsplit('/').next().unwrap().to_owned())
    };
    assert_eq!(row["congestion_control"], "reno");
    assert_eq!(row["mss_bytes"], field(last, "mss").unwrap());
    // The measure phase ends before the cool-down: the count lies between the first and the last that ss showed.
    let final_count: u64 = field(last, "retrans").map_or(0, |r| r.parse().unwrap());
    let reported = count(row, "retransmits");
    assert!(final_count > 0, "nothing was retransmitted on a link that loses segments: {last}");
    assert!((1..=final_count).contains(&reported), "{reported} reported, ss had {final_count} at the end");
    let cooldown: u64 = rows
        .iter()
        .filter(|r| r["record"] == "iteration" && r["phase"] == "cooldown")
        .map(|r| count(r, "retransmits"))
        .sum();
    assert!(reported + cooldown >= final_count.saturating_sub(3), "{reported} and {cooldown} against {final_count}");
    let congestion_windows: Vec<u64> = seen.iter().filter_map(|t| field(t, "cwnd")?.parse().ok()).collect();
    let (smallest, largest) = (congestion_windows.iter().min().unwrap(), congestion_windows.iter().max().unwrap());
    let segments = count(row, "cwnd_bytes") / count(row, "mss_bytes");
    assert!(
        (*smallest..=*largest).contains(&segments),
        "window of {segments} segments, ss saw {smallest} to {largest}"
    );
}

#[test]
fn retransmits_of_a_reverse_stream_are_those_of_the_far_kernel() {
    let Some(pair) = Pair::new() else { return };
    // The far end's sending runs into a queue that is too short; the near end's does not.
    if !pair.far.limit("50mbit", "4ms") {
        return;
    }
    let (_daemon, hosts) = pair.serve();
    let again = |end: &Namespace| end.snmp("Tcp", "RetransSegs");
    let before = [again(&pair.near), again(&pair.far)];
    let reno = "socket: {congestion_control: reno}, assert: [retransmits == 0]";
    let (_folder, run) = pair.start(&hosts, &format!("{{workload: tcp_maerts, to: far, bytes: 16MiB, {reno}}}"));
    let ran = end(run);
    let rows = parse(&ran.stdout);
    let row = of(&rows, "iteration")[0];
    let [near, far] = [again(&pair.near) - before[0], again(&pair.far) - before[1]];
    let [all, local, remote] = ["retransmits", "local_retransmits", "remote_retransmits"].map(|c| count(row, c));
    assert!(all > 0 && all == remote && remote <= far && local <= near, "{all}, {local}, {remote}: {near}, {far}");
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stderr.contains("retransmits == 0"), "{}", ran.stderr);
}
