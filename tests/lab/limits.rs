//! Each cause of `limited_by`, produced on purpose: `tests/bench/limits` has the set-ups, and counts the answers.

use std::process::Command;

use crate::{needs::has_program, netns::Namespace};

/// Rounds of a set-up until its cause has been named. Other load on the machine may take the CPUs of a round.
const ROUNDS: u32 = 4;

/// The answers to a set-up: how many were right, and the wrong ones in words.
struct Answers {
    setup: String,
    right: u32,
    wrong: Vec<(u32, String)>,
}

/// Runs the set-ups whose cause or name contains this text.
fn answers(which: &str) -> Vec<Answers> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/bench/limits");
    let output =
        Command::new(script).args(["-r", "3", which]).env("PLUMB", env!("CARGO_BIN_EXE_plumb")).output().unwrap();
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{table}{}", String::from_utf8_lossy(&output.stderr));
    let lines = table.lines().skip(2).map(|line| line.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>());
    let count = |cell: &str| cell.parse::<u32>().unwrap();
    lines
        .map(|cells| Answers {
            setup: cells[0].to_owned(),
            right: count(cells[2]),
            wrong: cells[4]
                .split(", ")
                .filter_map(|one| one.split_once(' '))
                .map(|(n, by)| (count(n), by.into()))
                .collect(),
        })
        .collect()
}

/// Expects that a cause is found in each of its set-ups, and none is named falsely. A machine with other load may make a CPU
/// the limit of any of them.
fn finds(cause: &str) {
    // Says why, where no namespace can be made here.
    let Some(_) = Namespace::new() else { return };
    if !has_program("python3", "python3") {
        return;
    }
    let mut open: Vec<String> = Vec::new();
    for round in 0..ROUNDS {
        let all = answers(cause);
        assert!(!all.is_empty(), "no set-up produces `{cause}`");
        for one in &all {
            let falsely = one.wrong.iter().find(|(_, by)| !by.ends_with("CPU"));
            assert!(falsely.is_none(), "{}: {falsely:?}", one.setup);
        }
        let missed: Vec<String> = all.into_iter().filter(|one| one.right == 0).map(|one| one.setup).collect();
        open = if round == 0 { missed } else { open.into_iter().filter(|setup| missed.contains(setup)).collect() };
        if open.is_empty() {
            return;
        }
    }
    panic!("`{cause}` was not named: {open:?}");
}

#[test]
fn windows_and_buffers_are_found() {
    finds("receiver window");
    finds("congestion window");
}

#[test]
fn full_cpus_are_found() {
    finds("sender CPU");
    finds("receiver CPU");
}

#[test]
fn full_wires_queues_and_losses_are_found() {
    finds("wire");
    finds("queue");
    finds("loss");
}

#[test]
fn one_full_link_is_found_whatever_fills_it() {
    finds("path");
}

#[test]
fn pacing_and_waiting_are_found() {
    finds("pacing");
    finds("application");
    finds("round trip");
}
