//! Tests of the hosts themselves.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
};

use crate::{
    fleet::{Fleet, HUB, MPICH, OPEN_MPI},
    program::until,
};

#[test]
fn hosts_have_names_homes_and_links() {
    let Some(fleet) = Fleet::new(2) else { return };
    let sent = fleet.sent_bytes("h2");
    // Nothing listens there, which the link's packets say.
    let said =
        fleet.read("h2", &["bash", "-c", "hostname; cd; ls -A . /tmp; : < /dev/tcp/10.77.0.1/9; ls /sys/class/net"]);
    assert_eq!(said.lines().next(), Some("h2"));
    assert_eq!(said.lines().skip(1).collect::<Vec<_>>()[..], [".:", "", "/tmp:", "eth0", "lo"]);
    assert!(fleet.sent_bytes("h2") > sent);
}

#[test]
fn what_is_left_on_a_host_is_found() {
    let Some(fleet) = Fleet::new(2).and_then(|f| f.with_sshd("")) else { return };
    let hosts = fleet.all_hosts();
    let before = fleet.traces(&hosts);
    assert!(before.contains_key("h2 tcp port 22") && !before.contains_key("h2 tcp port 4000"), "{before:?}");
    let script = "mkdir ~/left; echo > ~/left/file; exec perl -MIO::Socket -e \
                  'my $s = IO::Socket::INET->new(Listen => 1, LocalPort => 4000); sleep 600'";
    let mut ssh = fleet.command(HUB, &["ssh", "h2", script]).spawn().unwrap();
    let new = || fleet.traces(&hosts).into_iter().filter(|(t, _)| !before.contains_key(t)).collect::<Vec<_>>();
    until("the port is open", || new().iter().any(|(t, _)| t == "h2 tcp port 4000"));
    let found = new();
    let mut hosts_of_perl: Vec<_> = found.iter().filter(|(_, l)| l.contains("perl")).map(|(t, _)| &t[..3]).collect();
    hosts_of_perl.dedup();
    assert_eq!(hosts_of_perl, ["ctl", "h2 "], "ssh here, perl there: {found:?}");
    assert!(found.iter().any(|(t, _)| t == "h2 file /root/left/file"), "{found:?}");
    fleet.read("h2", &["sh", "-c", "rm -r ~/left; kill $(pidof perl)"]);
    assert!(!ssh.wait().unwrap().success());
    fleet.await_clean("after its end", &hosts, &before, &[]);
}

#[test]
#[ignore = "holds hosts until it is killed, for the test below"]
fn holds_hosts() {
    let Some(fleet) = Fleet::new(1).and_then(|f| f.with_sshd("")) else { return };
    println!("\ninit {}", fleet.first_process(HUB));
    std::thread::park();
}

#[test]
fn hosts_end_with_a_test_that_is_killed() {
    if Fleet::new(0).is_none() {
        return;
    }
    let mut test = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--ignored", "--nocapture", "fleet::selftest::holds_hosts"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(test.stdout.take().unwrap()).lines().map_while(Result::ok);
    let init = lines.into_iter().find_map(|l| l.strip_prefix("init ").map(str::to_owned));
    test.kill().unwrap();
    test.wait().unwrap();
    // Without sshd it was skipped.
    if let Some(init) = init {
        until("its hosts end", || !Path::new(&format!("/proc/{init}")).exists());
    }
}

#[test]
fn slurm_starts_a_task_on_every_host() {
    let Some(fleet) = Fleet::new(3).and_then(Fleet::with_slurm) else { return };
    let said = fleet.read(HUB, &["srun", "-N3", "-l", "hostname"]);
    let mut lines: Vec<_> = said.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["0: h1", "1: h2", "2: h3"]);
}

#[test]
fn both_mpis_start_a_rank_on_every_host() {
    let Some(fleet) = Fleet::new(2).and_then(Fleet::with_mpi) else { return };
    for launcher in [OPEN_MPI, MPICH] {
        let said = fleet.read(HUB, &[&launcher.split(' ').collect::<Vec<_>>()[..], &["-np", "2", "hostname"]].concat());
        let mut lines: Vec<_> = said.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["h1", "h2"], "{launcher}");
    }
}

#[test]
fn podman_starts_a_container_in_a_hosts_network() {
    let Some(fleet) = Fleet::new(1).and_then(Fleet::with_podman) else { return };
    let words = ["podman", "run", "-i", "--rm", "--network", "ns:/run/netns/h1", "plumb", "--version"];
    let said = fleet.read(HUB, &words);
    assert!(said.starts_with("plumb "), "{said}");
}
