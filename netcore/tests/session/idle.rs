//! An idle daemon, in a process of its own, uses no CPU.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Read},
    net::TcpStream,
    process::{Command, Stdio},
    time::Duration,
};

use netcore::{
    client::{Session, Target},
    daemon::Config,
};

use crate::common::Served;

const CHILD: &str = "PLUMB_TEST_IDLE_DAEMON";

/// The daemon's process; does nothing as an ordinary test.
#[test]
fn child() {
    if std::env::var_os(CHILD).is_some() {
        let served = Served::new(Config::default());
        println!("\naddress {}", served.address);
        // Until the parent is gone.
        let _ = std::io::stdin().read(&mut [0]);
    }
}

/// Context switches and clock ticks of every thread.
fn activity(process: u32) -> BTreeMap<String, (u64, u64)> {
    let mut threads = BTreeMap::new();
    for task in fs::read_dir(format!("/proc/{process}/task")).unwrap() {
        let path = task.unwrap().path();
        let status = fs::read_to_string(path.join("status")).unwrap();
        let switches = status
            .lines()
            .filter(|line| line.contains("ctxt_switches"))
            .filter_map(|line| line.split_whitespace().last()?.parse::<u64>().ok())
            .sum();
        let stat = fs::read_to_string(path.join("stat")).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        // utime and stime, the 14th and 15th field of proc(5), of which two are before the parenthesis.
        let ticks = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
        threads.insert(path.display().to_string(), (switches, ticks));
    }
    threads
}

#[test]
fn an_idle_daemon_is_not_woken() {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "idle::child", "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let address = BufReader::new(child.stdout.as_mut().unwrap())
        .lines()
        .find_map(|line| line.unwrap().strip_prefix("address ").map(str::to_owned))
        .unwrap();
    let session = Session::connect(&Target::new("idle", address.clone())).unwrap();
    let half_open = TcpStream::connect(&address).unwrap();
    // A busy machine may let the last threads settle late; a daemon that ticks would never have one quiet second.
    let mut quiet = false;
    for _ in 0..8 {
        let before = activity(child.id());
        std::thread::sleep(Duration::from_secs(1));
        // The harness's thread, the test's, the daemon's and two sessions'.
        quiet = before.len() >= 5 && before == activity(child.id());
        if quiet {
            break;
        }
    }
    drop((session, half_open, child.stdin.take()));
    child.wait().unwrap();
    assert!(quiet, "in each of eight seconds some thread of the idle daemon was awake");
}
