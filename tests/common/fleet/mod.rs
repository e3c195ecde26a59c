//! Hosts that a test makes itself, with the daemons of real launch engines: sshd, Slurm, and what MPI and podman need.
//!
//! `fleet.sh` says how they are made, and why nothing of them is left when a test is killed.

mod cleanup;

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use crate::{
    needs::{has_program, skip, skip_without},
    program::Ran,
};

pub use cleanup::{Traces, children, command_line};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/common/fleet/fleet.sh");

/// The conductor's host.
pub const HUB: &str = "ctl";

/// Open MPI's launcher, on these hosts.
pub const OPEN_MPI: &str = "mpirun.openmpi --allow-run-as-root --bind-to none --mca plm_rsh_agent /run/fleet/bin/agent \
                            --mca oob_tcp_if_include 10.77.0.0/24 --mca btl_tcp_if_include 10.77.0.0/24 -host h1,h2";

/// MPICH's launcher, on these hosts. Without `-iface`, ranks call it back by a name that nothing resolves.
pub const MPICH: &str = "mpiexec.mpich -launcher ssh -launcher-exec /run/fleet/bin/agent -iface br0 -hosts h1,h2";

/// A conductor's host and others that it reaches over a bridge; all end when this is dropped.
pub struct Fleet {
    /// `unshare`: with its standard input, process 1 of the fleet ends, and everything with that.
    outer: Child,
    /// Process 1 of the fleet, as this test sees it.
    init: i32,
    hosts: usize,
}

impl Fleet {
    /// Makes hosts `h1` … `hN`. If that is impossible prints why and returns `None`: the test is skipped.
    pub fn new(hosts: usize) -> Option<Self> {
        if !nix::unistd::geteuid().is_root() {
            skip("hosts of their own take root");
            return None;
        }
        if !has_program("ip", "iproute2") {
            return None;
        }
        let mut outer = Command::new("unshare")
            .args(["--pid", "--fork", "--kill-child", "--mount-proc", "--net", "--uts", "--mount"])
            .args(["bash", SCRIPT, "up", &hosts.to_string()])
            .env("PLUMB", env!("CARGO_BIN_EXE_plumb"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("unshare starts");
        let mut said = String::new();
        BufReader::new(outer.stdout.take().expect("piped")).read_line(&mut said).expect("it says when hosts are up");
        if said.trim() != "ready" {
            let ran: Ran = outer.wait_with_output().expect("unshare ends").into();
            skip(&format!("no hosts can be made here: {}", ran.stderr.trim()));
            return None;
        }
        let init = children(outer.id().cast_signed())[0];
        Some(Self { outer, init, hosts })
    }

    /// The names of the hosts.
    pub fn hosts(&self) -> impl Iterator<Item = String> + use<> {
        (1..=self.hosts).map(|i| format!("h{i}"))
    }

    /// They and the conductor's host.
    pub fn all_hosts(&self) -> Vec<String> {
        self.hosts().chain([HUB.to_owned()]).collect()
    }

    /// An sshd on each host, with these lines in front of its configuration; `ssh h1` then works on the conductor's host.
    pub fn with_sshd(self, lines: &str) -> Option<Self> {
        self.with(&[("/usr/sbin/sshd", "openssh-server"), ("/usr/bin/ssh", "openssh-client")], &["sshd", lines])
    }

    /// A Slurm cluster of all hosts.
    pub fn with_slurm(self) -> Option<Self> {
        let programs =
            [("/usr/sbin/slurmctld", "slurmctld"), ("/usr/sbin/slurmd", "slurmd"), ("/usr/bin/srun", "slurm-client")];
        self.with(&programs, &["slurm"])
    }

    /// Open MPI and MPICH; they reach hosts by `/run/fleet/bin/agent`.
    pub fn with_mpi(self) -> Option<Self> {
        self.with(&[("/usr/bin/mpirun.openmpi", "openmpi-bin"), ("/usr/bin/mpiexec.mpich", "mpich")], &["true"])
    }

    /// podman on the conductor's host, with an image `plumb`.
    pub fn with_podman(self) -> Option<Self> {
        self.with(&[("/usr/bin/podman", "podman"), ("/usr/sbin/runc", "runc")], &["podman"])
    }

    /// Calls a function of the script, unless a program is missing.
    fn with(self, programs: &[(&str, &str)], call: &[&str]) -> Option<Self> {
        for (program, package) in programs {
            if !Path::new(program).exists() {
                skip_without(package, &format!("there is no {program}"));
                return None;
            }
        }
        self.read(HUB, &[&["bash", SCRIPT], call].concat());
        Some(self)
    }

    /// A command on a host, its three streams piped. On the conductor's host it is the only child of the process that this
    /// starts.
    pub fn command(&self, host: &str, words: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.args([&format!("--target={}", self.init), "--all", "--"]);
        if host != HUB {
            command.args(["/run/fleet/bin/on", host]);
        }
        command.args(words).env("PLUMB", env!("CARGO_BIN_EXE_plumb"));
        command.env_remove("GITHUB_ACTIONS").env_remove("GITHUB_STEP_SUMMARY");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs a program on a host to its end.
    pub fn run(&self, host: &str, words: &[&str]) -> Ran {
        self.command(host, words).output().expect("nsenter starts").into()
    }

    /// The same for one that must succeed; returns its output.
    pub fn read(&self, host: &str, words: &[&str]) -> String {
        let ran = self.run(host, words);
        assert_eq!(ran.code, Some(0), "{host}: {words:?}: {}{}", ran.stdout, ran.stderr);
        ran.stdout
    }

    /// Runs `plumb` on the conductor's host.
    pub fn plumb(&self, arguments: &[&str]) -> Ran {
        self.run(HUB, &[&["/run/fleet/bin/plumb"], arguments].concat())
    }

    /// A path of a host, as this test can open it.
    pub fn path(&self, host: &str, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.first_process(host)))
    }

    /// Bytes that a host's link has carried away, as its kernel counts them.
    pub fn sent_bytes(&self, host: &str) -> u64 {
        let table = fs::read_to_string(format!("/proc/{}/net/dev", self.first_process(host))).expect("the table");
        let line = table.lines().find_map(|l| l.trim().strip_prefix("eth0:")).expect("its link");
        line.split_whitespace().nth(8).expect("sent bytes").parse().expect("a count")
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        drop(self.outer.stdin.take());
        let _ = self.outer.wait();
    }
}

/// Hosts whose daemons are started by a command, with their addresses as a range.
pub fn fleet_hosts(count: usize) -> String {
    format!(
        "hosts: {{h: {{address: \"10.77.0.[1-{count}]\", launch: {{command: {{run: [/run/fleet/bin/on, \"{{host}}\"], program: /run/fleet/bin/plumb}}}}}}}}"
    )
}
