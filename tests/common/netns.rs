//! Network namespaces that a test makes and removes itself, where no other program sends a packet.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    process::{Child, ChildStdout, Command, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use crate::{
    needs::{has_program, skip},
    program::{Folder, Ran, Row, Serve, of, parse},
};

const PLUMB: &str = env!("CARGO_BIN_EXE_plumb");

/// Before the name of a plan.
const RUN: [&str; 3] = ["run", "--progress", "never"];

/// Runs a program and expects it to succeed.
fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output =
        Command::new(program).args(arguments).output().map_err(|e| format!("{program} cannot be started: {e}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(format!("{program} {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim()))
    }
}

/// A network namespace with its loopback interface up; removed when dropped.
pub struct Namespace {
    /// Its name, as `ip netns` has it.
    pub name: String,
}

impl Namespace {
    /// Makes one. If that is impossible (not root, no `ip`, a container without the right) prints why and returns
    /// `None`: the test is skipped.
    pub fn new() -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        if !has_program("ip", "iproute2") {
            return None;
        }
        let name = format!("plumb-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let made = run("ip", &["netns", "add", &name]).map(|_| Self { name });
        let ready = made.and_then(|n| n.ip(&["link", "set", "lo", "up"]).map(|()| n));
        ready.map_err(|why| skip(&format!("no network namespace can be made here: {why}"))).ok()
    }

    /// A command that runs inside.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command
    }

    /// Runs a program inside, which must succeed; returns its output.
    pub fn read(&self, program: &str, arguments: &[&str]) -> String {
        let Output { status, stdout, stderr } = self.command(program).args(arguments).output().unwrap();
        assert!(status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&stderr));
        String::from_utf8_lossy(&stdout).into_owned()
    }

    /// Runs the plan of this file inside.
    pub fn run(&self, plan: &str) -> Ran {
        self.command(PLUMB).args(RUN).arg(plan).output().unwrap().into()
    }

    /// Begins to run the plan of this file inside.
    pub fn start(&self, plan: &str) -> Child {
        self.command(PLUMB).args(RUN).arg(plan).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Runs a plan of this text inside, which must succeed; returns the measured rows of its iterations.
    pub fn measure(&self, text: &str) -> Vec<Row> {
        let ran = self.run(&Folder::new().text(text));
        assert_eq!(ran.code, Some(0), "{}\n{text}", ran.stderr);
        let rows: Vec<Row> = of(&parse(&ran.stdout), "iteration").into_iter().cloned().collect();
        assert!(rows.iter().all(|r| r["status"] == "ok") && !rows.is_empty(), "{rows:?}\n{}", ran.stderr);
        rows
    }

    /// Counters of an interface: received and sent bytes and packets, as `/proc/net/dev` has them.
    pub fn interface(&self, name: &str) -> Interface {
        let text = self.read("cat", &["/proc/net/dev"]);
        let line = text.lines().find_map(|l| l.trim().strip_prefix(&format!("{name}:")).map(str::to_owned)).unwrap();
        let columns: Vec<u64> = line.split_whitespace().map(|c| c.parse().unwrap()).collect();
        Interface { received_bytes: columns[0], received_packets: columns[1] }
    }

    /// A counter of `/proc/net/snmp`.
    pub fn snmp(&self, group: &str, key: &str) -> u64 {
        self.snmp_of("/proc/net/snmp", group, key)
    }

    /// A counter of a file with the format of `/proc/net/snmp`.
    pub fn snmp_of(&self, file: &str, group: &str, key: &str) -> u64 {
        let text = self.read("cat", &[file]);
        let mut lines = text.lines().filter(|l| l.starts_with(&format!("{group}:"))).map(str::split_whitespace);
        let place = lines.next().unwrap().position(|w| w == key).unwrap();
        lines.next().unwrap().nth(place).unwrap().parse().unwrap()
    }

    /// Runs a plan inside, which must succeed; returns what it printed, and the kernel's counters before and after it. A run that
    /// discarded a try, which these counters have as well, is repeated.
    pub fn around<T>(&self, plan: &str, counters: impl Fn(&Self) -> T) -> (Ran, [T; 2]) {
        for _ in 0..10 {
            let before = counters(self);
            let ran = self.run(plan);
            let after = counters(self);
            assert_eq!(ran.code, Some(0), "{}", ran.stderr);
            if parse(&ran.stdout).iter().all(|row| row["status"] != "discarded") {
                return (ran, [before, after]);
            }
        }
        panic!("each of ten runs discarded a try");
    }

    /// The rows of such a run, and what loopback had carried.
    pub fn carried(&self, plan: &str) -> (Vec<Row>, [Interface; 2]) {
        let (ran, carried) = self.around(plan, |inside| inside.interface("lo"));
        (parse(&ran.stdout), carried)
    }

    /// Limits its sending over the interface `data` to `rate`, with a queue of `latency`; `false` and a printed reason if
    /// this kernel has no token bucket.
    pub fn limit(&self, rate: &str, latency: &str) -> bool {
        let shape = ["qdisc", "add", "dev", "data", "root", "tbf", "rate", rate, "burst", "16kb", "latency", latency];
        run("tc", &[&["-n", self.name.as_str()], &shape[..]].concat())
            .map_err(|why| skip(&format!("no token-bucket queue: {why}")))
            .is_ok()
    }

    fn ip(&self, arguments: &[&str]) -> Result<(), String> {
        run("ip", &[&["-n", self.name.as_str()], arguments].concat()).map(drop)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = run("ip", &["netns", "del", &self.name]);
    }
}

/// An `ip` of a namespace that was started before it is needed: under a load a program takes time to start.
pub struct Waiting {
    ip: Child,
    answers: BufReader<ChildStdout>,
}

impl Waiting {
    pub fn new(namespace: &Namespace) -> Self {
        let mut command = Command::new("ip");
        command.args(["-oneline", "-n", &namespace.name, "-batch", "-"]);
        let mut ip = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let answers = BufReader::new(ip.stdout.take().unwrap());
        let mut waiting = Self { ip, answers };
        // It runs once it has answered.
        waiting.carry_out("");
        waiting
    }

    /// Carries out a command, as after `ip`; returns when that began, and when it was done.
    pub fn carry_out(&mut self, command: &str) -> (Instant, Instant) {
        let begin = Instant::now();
        // It says nothing of one that succeeds, so another one tells that this is done. Where one fails, it ends.
        write!(self.ip.stdin.as_mut().unwrap(), "{command}\nlink show lo\n").unwrap();
        let mut lines = self.answers.by_ref().lines().map_while(Result::ok);
        assert!(lines.any(|line| line.starts_with("1: lo:")), "ip {command}");
        (begin, Instant::now())
    }

    /// Has one command carried out, and the other one so long after it, at least; returns the longest and the least time between the two,
    /// microseconds.
    pub fn for_a_time(&mut self, first: &str, length: Duration, then: &str) -> (f64, f64) {
        let (begin, done) = self.carry_out(first);
        thread::sleep(length);
        let (ending, ended) = self.carry_out(then);
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        (micros(ended - begin), micros(ending - done))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // The end of its input ends it.
        drop(self.ip.stdin.take());
        let _ = self.ip.wait();
    }
}

/// Counters of an interface's receive side.
#[derive(Clone, Copy, Debug)]
pub struct Interface {
    pub received_bytes: u64,
    pub received_packets: u64,
}

/// Two namespaces with a link for data (interface `data`, [`Pair::NEAR`] and [`Pair::FAR`]) and another one
/// for control (`talk`, [`Pair::FAR_TALK`] at the far end): a queue of the data link holds nothing else.
pub struct Pair {
    pub near: Namespace,
    pub far: Namespace,
}

impl Pair {
    /// The near end's address on the link.
    pub const NEAR: &str = "10.77.0.1";
    /// The far end's address on the link.
    pub const FAR: &str = "10.77.0.2";
    pub const FAR_TALK: &str = "10.78.0.2";

    /// Makes them without segmentation offload, so that the link carries single frames.
    pub fn new() -> Option<Self> {
        let pair = Self { near: Namespace::new()?, far: Namespace::new()? };
        for (link, net) in [("data", "10.77.0"), ("talk", "10.78.0")] {
            pair.near
                .ip(&["link", "add", link, "type", "veth", "peer", "name", link, "netns", &pair.far.name])
                .unwrap();
            for (end, host) in [(&pair.near, 1), (&pair.far, 2)] {
                end.ip(&["address", "add", &format!("{net}.{host}/24"), "dev", link]).unwrap();
                end.ip(&["link", "set", link, "up"]).unwrap();
                // Without it segmentation stays on.
                if has_program("ethtool", "ethtool") {
                    end.read("ethtool", &["-K", link, "tso", "off", "gso", "off", "gro", "off"]);
                }
            }
        }
        Some(pair)
    }

    /// Limits the near end's sending over the data link; see [`Namespace::limit`].
    pub fn limit(&self, rate: &str, latency: &str) -> bool {
        self.near.limit(rate, latency)
    }

    /// A daemon in the far namespace, and a plan's inventory with it as `far`.
    pub fn serve(&self) -> (Serve, String) {
        let listen = format!("{}:12864", Self::FAR_TALK);
        let mut serve = self.far.command(PLUMB);
        // Data and control use different links, so datagrams come from another address than the client's.
        serve.args(["serve", "--listen", &listen, "--allow", "10.0.0.0/8", "--allow-connect", Self::NEAR]);
        serve.stdout(Stdio::piped()).stderr(Stdio::null());
        let hosts = format!("hosts: {{far: {{address: {}, control: \"{listen}\"}}}}", Self::FAR);
        (Serve::of(serve), hosts)
    }

    /// Begins to run a plan with this test (YAML between braces) in the near namespace.
    pub fn start(&self, hosts: &str, test: &str) -> (Folder, Child) {
        let folder = Folder::new();
        let plan = folder.plan(hosts, &format!("  it: {test}"));
        let child = self.near.start(&plan);
        (folder, child)
    }

    /// Loses this share of what the near end sends over the data link; `false` and a printed reason if this kernel cannot.
    pub fn lose(&self, percent: &str) -> bool {
        let shape = ["qdisc", "add", "dev", "data", "root", "netem", "loss", percent];
        run("tc", &[&["-n", self.near.name.as_str()], &shape[..]].concat())
            .map_err(|why| skip(&format!("no queue that loses packets: {why}")))
            .is_ok()
    }

    /// Packets that the near end's queue has dropped.
    pub fn dropped(&self) -> u64 {
        let text = run("tc", &["-n", &self.near.name, "-s", "qdisc", "show", "dev", "data"]).unwrap();
        text.split("dropped ").nth(1).unwrap().split(',').next().unwrap().trim().parse().unwrap()
    }
}

/// Hosts in a row, each a router with a link to the next: its interface `east` is `10.7n.0.1` and `fd7n::1`, and the other end, `west`,
/// `10.7n.0.2` and `fd7n::2`. The first one is the near end, the last one the far end.
pub struct Chain(pub Vec<Namespace>);

impl Chain {
    /// Makes so many, at most 9.
    pub fn new(count: usize) -> Option<Self> {
        let hosts: Vec<Namespace> = (0..count).map(|_| Namespace::new()).collect::<Option<_>>()?;
        for host in &hosts {
            host.read("sysctl", &["-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"]);
        }
        for (n, two) in (1..).zip(hosts.windows(2)) {
            two[0].ip(&["link", "add", "east", "type", "veth", "peer", "name", "west", "netns", &two[1].name]).unwrap();
            for (host, link, end) in [(&two[0], "east", 1), (&two[1], "west", 2)] {
                host.ip(&["address", "add", &format!("10.7{n}.0.{end}/24"), "dev", link]).unwrap();
                host.ip(&["address", "add", &format!("fd7{n}::{end}/64"), "dev", link, "nodad"]).unwrap();
                host.ip(&["link", "set", link, "up"]).unwrap();
            }
        }
        for (n, host) in (1..).zip(&hosts) {
            for link in (1..count).filter(|link| *link != n && *link + 1 != n) {
                // The link's own number, and the neighbour on the way to it.
                let (by, end) = if link > n { (n, 2) } else { (n - 1, 1) };
                for (to, via) in [
                    (format!("10.7{link}.0.0/24"), format!("10.7{by}.0.{end}")),
                    (format!("fd7{link}::/64"), format!("fd7{by}::{end}")),
                ] {
                    host.ip(&["route", "add", &to, "via", &via]).unwrap();
                }
            }
        }
        Some(Self(hosts))
    }

    /// The far end's address.
    pub fn far(&self, v6: bool) -> String {
        let link = self.0.len() - 1;
        if v6 { format!("fd7{link}::2") } else { format!("10.7{link}.0.2") }
    }

    /// Limits what leaves over the link behind that host, counted from 0, away from the near end or towards it; `false` and a printed
    /// reason if this kernel has no token bucket.
    pub fn limit(&self, behind: usize, forward: bool, rate: &str) -> bool {
        let (host, link) = if forward { (behind, "east") } else { (behind + 1, "west") };
        let shape = ["qdisc", "add", "dev", link, "root", "tbf", "rate", rate, "burst", "16kb", "latency", "60ms"];
        run("tc", &[&["-n", self.0[host].name.as_str()], &shape[..]].concat())
            .map_err(|why| skip(&format!("no token-bucket queue: {why}")))
            .is_ok()
    }

    /// Lets the router at that hop send no ICMP errors: its limit has room for the first one after a day.
    pub fn silence(&self, hop: usize) {
        let day = ["net.ipv4.icmp_ratelimit=100000000", "net.ipv6.icmp.ratelimit=100000000"];
        self.0[hop].read("sysctl", &[&["-qw"], &day[..]].concat());
    }

    /// A daemon in the last one, and a plan's inventory with it as `far`.
    pub fn serve(&self, v6: bool) -> (Serve, String) {
        let far = self.far(v6);
        let control = if v6 { format!("[{far}]:12864") } else { format!("{far}:12864") };
        let mut serve = self.0[self.0.len() - 1].command(PLUMB);
        serve.args(["serve", "--listen", &control, "--allow", "10.0.0.0/8", "--allow", "fd00::/8"]);
        serve.stdout(Stdio::piped()).stderr(Stdio::null());
        (Serve::of(serve), format!("hosts: {{far: {{address: \"{far}\", control: \"{control}\"}}}}"))
    }
}
