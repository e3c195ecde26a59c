//! Ends in network namespaces of their own, joined by a virtual cable. Needs root and `ip`; says so where it cannot.

use std::process::{Command, Stdio};

use netcore::{
    client::{DataAddresses, Session},
    daemon::Daemon,
    report::Ending,
};

use crate::common::{between, never_stopped, stream};
use crate::needs::{has_program, skip};

struct Cable {
    near: String,
    far: String,
}

fn ip(line: &str) -> bool {
    let status = Command::new("ip").args(line.split_whitespace()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

impl Cable {
    /// 198.51.100.1 in the near namespace, 198.51.100.2 in the far one.
    fn new() -> Option<Self> {
        let process = std::process::id();
        let cable = Self { near: format!("plumb-n{process}"), far: format!("plumb-f{process}") };
        let Self { near, far } = &cable;
        let done = [
            format!("netns add {near}"),
            format!("netns add {far}"),
            format!("-n {near} link set lo up"),
            format!("-n {far} link set lo up"),
            format!("-n {near} link add v0 type veth peer name v0 netns {far}"),
            format!("-n {near} address add 198.51.100.1/24 dev v0"),
            format!("-n {far} address add 198.51.100.2/24 dev v0"),
            format!("-n {near} link set v0 up"),
            format!("-n {far} link set v0 up"),
        ]
        .iter()
        .all(|line| ip(line));
        if !done {
            if has_program("ip", "iproute2") {
                skip("no network namespace can be made here");
            }
            return None;
        }
        Some(cable)
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        ip(&format!("netns delete {}", self.near));
        ip(&format!("netns delete {}", self.far));
    }
}

#[test]
fn ends_meet_across_namespaces() {
    let Some(cable) = Cable::new() else { return };
    let embedded = |name: &String| Daemon::spawn_embedded(Some(name.clone())).unwrap();
    let (one, other) = (embedded(&cable.near), embedded(&cable.far));
    let mut far = Session::connect(&other.target("far")).unwrap();

    // The near end in this process, its sockets in the namespace.
    let addresses = DataAddresses {
        far: Some("198.51.100.2".parse().unwrap()),
        near: Some("198.51.100.1".parse().unwrap()),
        near_netns: Some(cable.near.clone()),
    };
    let outcome = far.run(&stream(50), &addresses, &mut (), &never_stopped()).unwrap();
    assert_eq!((&outcome.near.ending, &outcome.far.as_ref().unwrap().ending), (&Ending::Complete, &Ending::Complete));
    let crossed: u64 = outcome.far.as_ref().unwrap().totals.iter().map(|flow| flow.counts.bytes_received).sum();
    let interface = Command::new("ip")
        .args(["netns", "exec", &cable.far, "cat", "/sys/class/net/v0/statistics/rx_bytes"])
        .output()
        .unwrap();
    let counted: u64 = String::from_utf8(interface.stdout).unwrap().trim().parse().unwrap();
    assert!(crossed > 0 && counted >= crossed, "{crossed} bytes arrived, {counted} crossed the cable");

    // Both ends on daemons; this process is in neither namespace.
    let mut near = Session::connect(&one.target("near")).unwrap();
    let addresses = DataAddresses { near_netns: None, ..addresses };
    let running = between(&mut near, &mut far, &stream(50), &addresses).unwrap().start(None).unwrap();
    let outcome = running.wait(&mut (), &never_stopped()).unwrap();
    assert_eq!((&outcome.near.ending, &outcome.far.as_ref().unwrap().ending), (&Ending::Complete, &Ending::Complete));
}
