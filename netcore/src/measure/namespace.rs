//! A network namespace for a test, where no other program sends a packet.

use std::{fs, process::Command, thread};

use nix::sched::{CloneFlags, unshare};

use crate::needs::{has_program, skip};

/// Runs a test on a thread in a network namespace of its own, with its loopback interface up. Prints why and skips the test
/// where that is impossible (not root).
pub fn inside(test: impl FnOnce() + Send) {
    thread::scope(|scope| {
        scope.spawn(|| {
            if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
                return skip(&format!("no network namespace can be made here: {error}"));
            }
            if !has_program("ip", "iproute2") {
                return;
            }
            run("ip link set lo up");
            test();
        });
    });
}

/// Runs a command in the calling thread's namespace, which must succeed; returns its output.
pub fn run(line: &str) -> String {
    let mut words = line.split_whitespace();
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Sets a value below `/proc/sys/net` of the calling thread's namespace.
pub fn set(name: &str, value: &str) {
    fs::write(format!("/proc/sys/net/{name}"), value).unwrap();
}
