//! Every plan of docs/start/coming-from.md runs, shortened, and measures something.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command, thread};

use crate::{
    needs::{has_files, skip},
    program::privileged,
};

const HEAD: &str = "version: 1\nname: migrated\nhosts:\n  server: {address: b.lab}\n";

/// The command lines that a block replaces, and the block.
fn blocks() -> Vec<(String, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/start/coming-from.md");
    let page = fs::read_to_string(path).expect("docs/start/coming-from.md is part of the project");
    let mut parts = page.split("```yaml\n");
    let mut before = parts.next().unwrap_or_default().to_owned();
    let mut blocks = Vec::new();
    for part in parts {
        let (block, rest) = part.split_once("```").expect("a block ends");
        let commands = before.trim_end().rsplit("\n\n").next().unwrap_or_default().to_owned();
        blocks.push((commands, block.to_owned()));
        rest.clone_into(&mut before);
    }
    blocks
}

/// Fakes of other programs, first in PATH, which print recorded output.
fn stand_ins(dir: &Path) -> String {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../analyze/tests/fixtures/import");
    let iperf3 = format!("cat {}", fixtures.join("iperf3-tcp.json").display());
    let ep = " EP Benchmark Completed.\n Class           =                        A\n Time in seconds =                     4.31\n \
              Total processes =                        4\n Mop/s total     =                   124.60\n";
    for (name, script) in [("iperf3", iperf3), ("mpirun", format!("cat <<'END'\n{ep}END"))] {
        let path = dir.join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("made a program");
    }
    format!("{}:{}", dir.display(), std::env::var("PATH").unwrap_or_default())
}

#[test]
fn every_command_line_is_a_plan_that_runs() {
    let mut blocks = blocks();
    let (_, head) = blocks.remove(0);
    assert_eq!(head, HEAD, "the page shows what its plans begin with");
    let commands: usize = blocks.iter().map(|(c, _)| c.matches('`').count() / 2).sum();
    assert!(commands >= 30, "{commands} command lines");
    // A run waits more than it works.
    let wrong: String = thread::scope(|scope| {
        let parts: Vec<_> = blocks.chunks(blocks.len().div_ceil(4)).collect();
        let runs: Vec<_> = parts
            .into_iter()
            .map(|part| {
                scope.spawn(|| {
                    part.iter().filter_map(|(command, block)| lasting_fault(command, block)).collect::<String>()
                })
            })
            .collect();
        runs.into_iter().map(|run| run.join().expect("it ends")).collect()
    });
    assert!(wrong.is_empty(), "{wrong}");
}

/// Runs a plan; returns a fault that it has three times. A machine that stands still can fail a run of a thousand streams.
fn lasting_fault(command: &str, block: &str) -> Option<String> {
    let mut wrong = None;
    for _ in 0..if block.contains("streams: 1000") { 3 } else { 1 } {
        wrong = Some(fault(command, block)?);
    }
    wrong
}

/// Runs a plan, shortened; returns what was wrong.
fn fault(command: &str, block: &str) -> Option<String> {
    let dir = tempfile::tempdir().expect("a directory");
    let plan = dir.path().join("plan.yaml");
    fs::write(&plan, format!("{HEAD}{block}")).expect("written");
    if block.contains("streams: 1000") && !has_files(2500) {
        return None;
    }
    // With the far end in this process; tests that stop by a count are short already.
    let mut args = vec!["--set", "warmup=0s", "--set", "iterations=1", "--set", "to=local"];
    if block.contains("bytes: ") {
        args.extend(["--set", "bytes=1MiB"]);
    } else if !block.contains("transactions: ") {
        // A thousand connections take longer to begin at both ends than a short window lasts.
        args.extend(["--set", if block.contains("streams: 1000") { "duration=1s" } else { "duration=20ms" }]);
    }
    if block.contains("factor: ") {
        args.extend(["--set", "matrix.message_size=[1, 4KiB]"]);
    }
    if block.contains("interval: ") {
        args.extend(["--set", "interval=10ms"]);
    }
    let output = Command::new(env!("CARGO_BIN_EXE_plumb"))
        .args(["run", "--progress", "never", "--allow-commands"])
        .env("PATH", stand_ins(dir.path()))
        .args(&args)
        .arg(&plan)
        .output()
        .expect("plumb starts");
    let rows = String::from_utf8_lossy(&output.stdout);
    let says = String::from_utf8_lossy(&output.stderr);
    if block.contains("workload: ping") && says.contains("cap_net_raw") {
        skip(&format!("ICMP sockets are not allowed: {command}"));
        return None;
    }
    if let Some(why) = privileged(&says) {
        skip(&format!("{why}: {command}"));
        return None;
    }
    let lines: Vec<&str> = rows.lines().collect();
    let column = |name: &str| lines.first().and_then(|h| h.split(',').position(|c| c == name));
    let (Some(record), Some(status)) = (column("record"), column("status")) else {
        return Some(format!("\n--- {command}\nno rows: {says}"));
    };
    let measured = lines
        .iter()
        .skip(1)
        .map(|l| l.split(',').collect::<Vec<_>>())
        .filter(|c| c.get(record) == Some(&"iteration") && c.get(status) != Some(&"discarded"));
    let good = measured.clone().filter(|c| c.get(status) == Some(&"ok")).count();
    (!output.status.success() || good == 0 || good != measured.count())
        .then(|| format!("\n--- {command}\nexit {:?}, {good} good rows: {says}", output.status.code()))
}
