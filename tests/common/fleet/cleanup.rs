//! Everything that runs, listens or lies on a host: what a run may not leave behind.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use crate::fleet::{Fleet, HUB};

/// Nothing may be left after 15 s, on a machine that does not stand still.
const CLEAN_WITHIN: Duration = Duration::from_secs(30);

/// Processes, ports and files of hosts: `h1 process 4711` and its command line, `h1 tcp port 22`, `h1 file /tmp/x`.
pub type Traces = BTreeMap<String, String>;

/// Processes that a process started, by whichever thread.
pub fn children(pid: i32) -> Vec<i32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let texts = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let pids = texts.map(|t| t.split_whitespace().map(|p| p.parse().expect("a process id")).collect::<Vec<i32>>());
    pids.flatten().collect()
}

/// The command line; `None` once it has ended.
pub fn command_line(pid: i32) -> Option<String> {
    let words = fs::read(format!("/proc/{pid}/cmdline")).ok().filter(|w| !w.is_empty())?;
    Some(words.split(|b| *b == 0).map(String::from_utf8_lossy).collect::<Vec<_>>().join(" ").trim().to_owned())
}

impl Fleet {
    /// The process that holds a host's namespaces.
    pub fn first_process(&self, host: &str) -> i32 {
        if host == HUB {
            return self.init;
        }
        let is_it = |pid: &i32| command_line(*pid).is_some_and(|c| c.split(' ').next() == Some(host));
        // The kernel's list is whole only while none of the children starts or ends.
        let deadline = Instant::now() + CLEAN_WITHIN;
        loop {
            match children(self.init).into_iter().find(is_it) {
                Some(pid) => return pid,
                None => assert!(Instant::now() < deadline, "the first process of {host} does not run"),
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Processes on a host, with their command lines.
    pub fn processes(&self, host: &str) -> Vec<(i32, String)> {
        let network = |pid: i32| fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        let wanted = network(self.first_process(host));
        let all = fs::read_dir("/proc").expect("/proc is there").flatten();
        let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(|pid| network(*pid) == wanted).filter_map(|pid| Some((pid, command_line(pid)?))).collect()
    }

    /// What is on these hosts now.
    pub fn traces(&self, hosts: &[String]) -> Traces {
        let mut traces = Traces::new();
        for host in hosts {
            for (pid, line) in self.processes(host) {
                traces.insert(format!("{host} process {pid}"), line);
            }
            let first = self.first_process(host);
            for protocol in ["tcp", "tcp6", "udp", "udp6"] {
                let table = fs::read_to_string(format!("/proc/{first}/net/{protocol}")).unwrap_or_default();
                for line in table.lines().skip(1) {
                    let columns: Vec<&str> = line.split_whitespace().collect();
                    // Listening TCP sockets, and UDP sockets without a peer.
                    if ["0A", "07"].contains(&columns[3]) {
                        let port = u16::from_str_radix(columns[1].rsplit(':').next().expect("a port"), 16);
                        traces.insert(format!("{host} {protocol} port {}", port.expect("a port")), String::new());
                    }
                }
            }
            if host != HUB {
                for folder in [&std::env::var("HOME").unwrap_or("/root".into()), "/tmp", "/var/tmp", "/dev/shm"] {
                    files(&self.path(host, folder), &format!("{host} file {folder}"), &mut traces);
                }
            }
        }
        traces
    }

    /// Waits until these hosts have nothing that they did not have `before`. Processes whose command lines begin with one of
    /// `others` may stay.
    pub fn await_clean(&self, what: &str, hosts: &[String], before: &Traces, others: &[&str]) {
        let began = Instant::now();
        let is_left = |trace: &str, line: &str| {
            !before.contains_key(trace) && others.iter().all(|begin| !line.starts_with(begin))
        };
        loop {
            let left: Traces = self.traces(hosts).into_iter().filter(|(trace, line)| is_left(trace, line)).collect();
            if left.is_empty() {
                return;
            }
            assert!(began.elapsed() < CLEAN_WITHIN, "{what}: left behind after {:?}: {left:#?}", began.elapsed());
            thread::sleep(Duration::from_millis(50));
        }
    }
}

fn files(folder: &Path, shown: &str, traces: &mut Traces) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let shown = format!("{shown}/{}", entry.file_name().display());
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            files(&entry.path(), &shown, traces);
        }
        traces.insert(shown, String::new());
    }
}
