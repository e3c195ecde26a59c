//! Socket options whose effect somebody else sees.

use crate::{
    needs::has_program,
    netns::Pair,
    program::{Folder, count, of, parse},
};

/// Bytes of packets that leave a namespace with this mark, as a rule of its packet filter counts them.
fn count_marked(pair: &Pair, mark: &str) -> impl Fn() -> [u64; 2] {
    let ends = [&pair.near, &pair.far];
    for end in ends {
        end.read("iptables-legacy", &["-A", "OUTPUT", "-m", "mark", "--mark", mark]);
    }
    move || {
        ends.map(|end| {
            let text = end.read("iptables-legacy", &["-L", "OUTPUT", "-v", "-x", "-n"]);
            let rule = text.lines().find(|line| line.contains("mark match")).expect("the rule");
            rule.split_whitespace().nth(1).expect("bytes").parse().expect("a count")
        })
    }
}

#[test]
fn packets_carry_the_mark_that_a_test_asks_for() {
    if !has_program("iptables-legacy", "iptables") {
        return;
    }
    let Some(pair) = Pair::new() else { return };
    let marked = count_marked(&pair, "7");
    let (_daemon, hosts) = pair.serve();
    let folder = Folder::new();
    let mut before = marked();
    for (test, marks) in [
        ("workload: tcp_stream, bytes: 2MB", [false, false]),
        ("workload: tcp_stream, bytes: 2MB, socket: {mark: 7}, remote_socket: {mark: ~}", [true, false]),
        ("workload: tcp_maerts, bytes: 2MB, socket: {mark: 7}", [true, true]),
        (
            "workload: udp_stream, rate: 20Mbit/s, bytes: 500kB, socket: {mark: 7}, remote_socket: {mark: 8}",
            [true, false],
        ),
        ("workload: tcp_crr, transactions: 20, remote_socket: {mark: 7}", [false, true]),
    ] {
        let ran = pair.near.run(&folder.plan(&hosts, &format!("  it: {{{test}, to: far}}")));
        assert_eq!(ran.code, Some(0), "{test}: {}", ran.stderr);
        let rows = parse(&ran.stdout);
        let row = &of(&rows, "iteration")[0];
        let now = marked();
        let carried = [now[0] - before[0], now[1] - before[1]];
        assert_eq!(carried.map(|bytes| bytes > 0), marks, "{test}: {carried:?}");
        if test.starts_with("workload: tcp_maerts") {
            assert!(carried[1] > count(row, "bytes_received"), "{test}: {carried:?}");
        }
        before = now;
    }
}
