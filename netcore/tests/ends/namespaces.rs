//! Links of known properties, between network namespaces that the test makes itself. Skipped without root.

use std::{
    cell::Cell,
    fs::File,
    process::{Command, Stdio},
    sync::mpsc,
    thread,
};

use netcore::{
    end::End,
    measure::clock::monotonic_ns,
    report::{Ending, Phase, SideReport},
    spec::{Pattern, Side, TestSpec, Transport},
};
use nix::sched::{CloneFlags, setns};

use crate::needs::{has_program, skip};
use crate::pair::{MS, PATIENCE, lasting, measured, phase, sum, token, undisturbed};

/// Two namespaces with a link of limited rate from the first to the second. They are deleted when it is dropped.
struct Link {
    near: String,
    far: String,
}

fn command(line: &str) -> bool {
    let mut words = line.split_whitespace();
    let status = Command::new(words.next().unwrap()).args(words).stderr(Stdio::null()).stdout(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

impl Link {
    /// `None`: this user may not make namespaces.
    fn new(name: &str, shaping: &str) -> Option<Self> {
        let id = std::process::id();
        let link = Self { near: format!("plumb-{name}-{id}-a"), far: format!("plumb-{name}-{id}-b") };
        let (a, b) = (&link.near, &link.far);
        let made = command(&format!("ip netns add {a}"))
            && command(&format!("ip netns add {b}"))
            && command(&format!("ip -n {a} link add v0 type veth peer name v1 netns {b}"));
        if !made {
            if has_program("ip", "iproute2") {
                skip("no network namespace can be made here");
            }
            return None;
        }
        for line in [
            // IPv6 neighbour discovery would use the measured link.
            format!("ip netns exec {a} sysctl -q net.ipv6.conf.all.disable_ipv6=1"),
            format!("ip netns exec {b} sysctl -q net.ipv6.conf.all.disable_ipv6=1"),
            format!("ip -n {a} addr add 10.99.0.1/24 dev v0"),
            format!("ip -n {b} addr add 10.99.0.2/24 dev v1"),
            format!("ip -n {a} link set v0 up"),
            format!("ip -n {b} link set v1 up"),
            format!("tc -n {a} qdisc add dev v0 root {shaping}"),
        ] {
            assert!(command(&line), "{line}");
        }
        Some(link)
    }

    /// Packets that the link's queue has dropped.
    fn dropped(&self) -> u64 {
        let output = Command::new("tc").args(["-n", &self.near, "-s", "-j", "qdisc", "show", "dev", "v0"]).output();
        let queues: serde_json::Value = serde_json::from_slice(&output.unwrap().stdout).unwrap();
        queues[0]["drops"].as_u64().unwrap()
    }

    /// Runs both ends, each in its namespace.
    fn run(&self, spec: &TestSpec) -> (SideReport, SideReport) {
        let enter = |name: &str| {
            setns(File::open(format!("/run/netns/{name}")).unwrap(), CloneFlags::CLONE_NEWNET).unwrap();
        };
        let (t0, token) = (monotonic_ns() + 500 * MS, token());
        thread::scope(|scope| {
            let (tell, hear) = mpsc::channel();
            let far = scope.spawn(move || {
                enter(&self.far);
                let mut far = End::prepare(spec, Side::Far, "10.99.0.2".parse().ok(), token).unwrap();
                tell.send(far.endpoints()).unwrap();
                far.connect(None, PATIENCE).unwrap();
                far.start(t0, None).unwrap().finish()
            });
            let near = scope.spawn(move || {
                enter(&self.near);
                let mut near = End::prepare(spec, Side::Near, None, token).unwrap();
                let endpoints = hear.recv().unwrap();
                near.connect(Some(("10.99.0.2".parse().unwrap(), &endpoints)), PATIENCE).unwrap();
                near.start(t0, None).unwrap().finish()
            });
            (near.join().unwrap(), far.join().unwrap())
        })
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        for name in [&self.near, &self.far] {
            let _ = command(&format!("ip netns delete {name}"));
        }
    }
}

/// `spec` measures the rate of the link, unless the machine stops an end: bytes that waited for their reader before the window count in
/// it, and a sender that is stopped sends less. `wire` is the most that the link carries, in bits of payload per second; `above` is the
/// share that a burst adds. `check` sees each run.
fn fill(link: &Link, spec: &TestSpec, wire: f64, above: f64, check: impl Fn(&SideReport, &SideReport)) {
    undisturbed(|| {
        let (near, far) = link.run(spec);
        assert_eq!((&near.ending, &far.ending), (&Ending::Complete, &Ending::Complete));
        check(&near, &far);
        let seconds = phase(&far, Phase::Measure).elapsed_ns as f64 / 1e9;
        let rate = measured(&far).bytes_received as f64 * 8.0 / seconds;
        let fills = (0.9..1.0 + above).contains(&(rate / wire));
        fills.then_some(()).ok_or_else(|| format!("{rate} of {wire} bit/s"))
    });
}

#[test]
fn what_udp_loses_is_what_the_queue_dropped() {
    let Some(link) = Link::new("udp", "tbf rate 20mbit burst 16kb limit 30kb") else { return };
    let mut spec = lasting(Pattern::Stream, Transport::Udp, 300);
    spec.sizes.message_bytes = 1400;
    spec.phases.warmup_ns = 100 * MS;
    let before = Cell::new(link.dropped());
    // The link carries 1400 of every 1442 bytes at 20 Mbit/s, within the bursts at either end.
    fill(&link, &spec, 20e6 * 1400.0 / 1442.0, 0.1, |near, far| {
        let lost = sum(&near.totals).messages_sent - sum(&far.totals).messages_received;
        assert!(lost > 0, "without pacing the queue must overflow");
        assert_eq!(lost, link.dropped() - before.replace(link.dropped()));
        assert!(phase(far, Phase::Measure).flows[0].jitter_ns.unwrap() > 0);
    });
}

#[test]
fn the_queue_drops_what_the_evidence_says() {
    let Some(link) = Link::new("evd", "tbf rate 20mbit burst 16kb limit 30kb") else { return };
    let mut spec = lasting(Pattern::Stream, Transport::Udp, 300);
    spec.sizes.message_bytes = 1400;
    let before = link.dropped();
    let (near, far) = link.run(&spec);
    let all = link.dropped() - before;
    let of = |report: &SideReport| phase(report, Phase::Measure).evidence.clone().unwrap();
    let dropped = of(&near).drops.qdisc.unwrap();
    // The sender may finish a few calls after the end of its window.
    let late = sum(&near.totals).messages_sent - measured(&near).messages_sent;
    assert!(dropped > 0 && (all - late.min(all)..=all).contains(&dropped), "{dropped} of {all}, {late} late");
    assert_eq!(of(&far).drops.qdisc, Some(0), "the other end's interface queues nothing");
    assert_eq!((of(&near).missing.len(), of(&far).missing.len()), (0, 0));
}

#[test]
fn tcp_fills_the_link_and_no_more() {
    let Some(link) = Link::new("tcp", "tbf rate 50mbit burst 32kb limit 200kb") else { return };
    let mut spec = lasting(Pattern::Stream, Transport::Tcp, 500);
    spec.phases.warmup_ns = 300 * MS;
    spec.near.socket.congestion_control = Some("cubic".into());
    // 1448 bytes of payload in each frame of 1514: Ethernet, IP, TCP with timestamps.
    fill(&link, &spec, 50e6 * 1448.0 / 1514.0, 0.03, |near, far| {
        assert_eq!(sum(&near.totals).bytes_sent, sum(&far.totals).bytes_received);
    });
}
