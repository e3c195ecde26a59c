//! A process as the kernel shows it: descriptors, threads, memory, CPU time and listening sockets.

use std::{collections::BTreeSet, fs, net::Ipv4Addr};

/// One look at a process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample {
    pub files: u64,
    pub threads: u64,
    /// Resident memory, bytes.
    pub memory: u64,
}

impl Sample {
    pub fn of(pid: i32) -> Self {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process lives");
        let field = |name: &str| -> u64 {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a field of every Linux");
            line.split_whitespace().next().and_then(|word| word.parse().ok()).expect("a number")
        };
        let files = fs::read_dir(format!("/proc/{pid}/fd")).expect("our own process's").count() as u64;
        Self { files, threads: field("Threads:"), memory: field("VmRSS:") * 1024 }
    }

    /// The larger of each.
    pub fn max(self, other: Self) -> Self {
        Self {
            files: self.files.max(other.files),
            threads: self.threads.max(other.threads),
            memory: self.memory.max(other.memory),
        }
    }
}

/// CPU time of a process so far, seconds of user and system together. `self` names this one.
pub fn cpu_seconds(pid: &str) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process lives");
    // The name may hold spaces; user and system time are the 12th and 13th field after it.
    let (_, fields) = stat.rsplit_once(')').expect("a name in brackets");
    let ticks = |n: usize| fields.split_whitespace().nth(n).and_then(|word| word.parse::<f64>().ok()).expect("a count");
    // Linux shows a hundredth of a second to programs (USER_HZ).
    (ticks(11) + ticks(12)) / 100.0
}

/// Ports of a process's own sockets on 127.0.0.1 in a table of `/proc/net`: listening TCP sockets or UDP sockets.
pub fn ports(pid: i32, table: &str) -> Vec<u16> {
    let Ok(folder) = fs::read_dir(format!("/proc/{pid}/fd")) else { return Vec::new() };
    let own: BTreeSet<String> = folder
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .filter_map(|link| Some(link.to_str()?.strip_prefix("socket:[")?.trim_end_matches(']').to_owned()))
        .collect();
    let text = fs::read_to_string(format!("/proc/net/{table}")).unwrap_or_default();
    let listening = if table == "tcp" { "0A" } else { "07" };
    let local = format!("{:08X}", u32::from(Ipv4Addr::LOCALHOST).swap_bytes());
    let port = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (address, port) = words.get(1)?.split_once(':')?;
        let ours = own.contains(*words.get(9)?) && address == local && *words.get(3)? == listening;
        ours.then(|| u16::from_str_radix(port, 16).ok()).flatten()
    };
    text.lines().filter_map(port).collect()
}
