//! A survey of hosts on a bridge names the slow host and the slow link, and no others.

use std::fs;

use crate::{
    fleet::{Fleet, fleet_hosts},
    needs::has_program,
    program::{Folder, Row, number, of, rows},
};

/// Hosts that send at 50 Mbit/s, so that their links decide, and not the CPUs of this machine.
fn shaped(count: usize) -> Option<Fleet> {
    if !has_program("tc", "iproute2") {
        return None;
    }
    let fleet = Fleet::new(count)?;
    for host in fleet.hosts() {
        shape(&fleet, &host, "50mbit");
    }
    Some(fleet)
}

fn shape(fleet: &Fleet, host: &str, rate: &str) {
    let words = format!("tc qdisc replace dev eth0 root tbf rate {rate} burst 16kb latency 40ms");
    fleet.read(host, &words.split(' ').collect::<Vec<_>>());
}

/// Whatever `host` sends to the address goes at another rate.
fn shape_link(fleet: &Fleet, host: &str, to: &str, rate: &str) {
    for words in [
        "tc qdisc del dev eth0 root",
        "tc qdisc add dev eth0 root handle 1: htb default 10",
        "tc class add dev eth0 parent 1: classid 1:10 htb rate 50mbit burst 16kb",
        &format!("tc class add dev eth0 parent 1: classid 1:20 htb rate {rate} burst 16kb"),
        &format!("tc filter add dev eth0 parent 1: protocol ip u32 match ip dst {to}/32 flowid 1:20"),
    ] {
        fleet.read(host, &words.split(' ').collect::<Vec<_>>());
    }
}

#[test]
fn a_slow_host_and_a_slow_link_are_the_suspects() {
    let Some(fleet) = shaped(8) else { return };
    shape(&fleet, "h6", "40mbit");
    shape_link(&fleet, "h2", "10.77.0.5", "35mbit");
    let folder = Folder::new();
    let tests = "  links: {workload: tcp_stream, warmup: 300ms, duration: 700ms, pairs: {of: h}, assert: [suspects == 0, {that: spread < 90%, severity: warn}]}";
    // BBR, which may be the default, takes a pair's rate for less than it is when others delay one of its packets.
    let control = "defaults: {socket: {congestion_control: cubic}}";
    let top = format!("{}\n{control}\noutput: {{junit: {}}}", fleet_hosts(8), folder.name("j.xml"));
    let plan = folder.plan(&top, tests);
    let ran = fleet.plumb(&["run", &plan, "-o", &folder.name("r.csv"), "--progress", "never"]);
    assert_eq!(ran.code, Some(1), "{}{}", ran.stdout, ran.stderr);
    let all = rows(&folder.path("r.csv"));
    let links: Vec<&Row> = of(&all, "iteration");
    assert!(links.iter().all(|row| row["status"] == "ok" && number(row, "throughput_bits_per_s") < 52e6));

    // The run, its files, and the filters say the same.
    let said = |text: &str| {
        assert!(text.contains("h6 is slow as a sender: "), "{text}");
        assert!(text.contains("h2>h5 is slow: "), "{text}");
        assert!(!text.contains("as a receiver") && !text.contains("in both directions"), "{text}");
        let named = text.matches(" is slow").count() - text.matches(" is slower").count();
        assert_eq!(named % 2, 0, "{text}");
    };
    said(&ran.stdout);
    // Pairs that others disturbed are measured again. A machine that was not left alone for so long tells how many it lost.
    let number_before = |words: &str| -> usize {
        let before = ran.stdout.split(words).next().filter(|before| before.len() < ran.stdout.len());
        before.and_then(|before| before.split_whitespace().next_back()?.parse().ok()).unwrap_or(0)
    };
    let disturbed = number_before(" pairs measured only while others took")
        + number_before(" pair measured only while others took");
    assert_eq!(number_before(" pairs\n") + disturbed, 56, "{}", ran.stdout);
    let gated = fleet.plumb(&["gate", &folder.name("r.csv"), "--plan", &plan, "--format", "csv"]);
    assert_eq!(gated.code, Some(1), "{}{}", gated.stdout, gated.stderr);
    said(&gated.stdout);
    let junit = fs::read_to_string(folder.path("j.xml")).unwrap();
    said(&junit.replace("&gt;", ">"));
    let survey = fleet.plumb(&["survey", &folder.name("r.csv"), "--where", "test=links", "--fail-on", "suspects"]);
    assert_eq!(survey.code, Some(1), "{}{}", survey.stdout, survey.stderr);
}
