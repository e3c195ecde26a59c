//! Runs of the program under strace: the system calls of its threads, and calls that are made to fail.

use std::process::{Command, Stdio};

use crate::{
    needs::{has_program, skip},
    program::{Folder, Ran, parse},
};

/// A run, and the lines of its calls, each with its thread.
pub struct Traced {
    pub ran: Ran,
    pub calls: Vec<(String, String)>,
}

/// Runs a plan under `strace`, a command that a namespace may have made, which logs these calls and is given further options.
/// `None`: there is no strace, or programs cannot be traced here. A run that discarded a try, whose calls are in the log as well, is
/// repeated.
pub fn run(mut strace: Command, calls: &str, options: &[&str], plan: &str) -> Option<Traced> {
    if !has_program("strace", "strace") {
        return None;
    }
    let folder = Folder::new();
    let log = folder.name("strace");
    strace.args(["-f", "-qq", "-o", &log, "-e", &format!("trace={calls}")]).args(options);
    strace.args([env!("CARGO_BIN_EXE_plumb"), "run", "--progress", "never", plan]).stdin(Stdio::null());
    for _ in 0..10 {
        let ran: Ran = strace.output().unwrap().into();
        if ran.stderr.contains("ptrace") && ran.code != Some(0) {
            skip(&format!("programs cannot be traced here: {}", ran.stderr));
            return None;
        }
        if ran.code != Some(0) || parse(&ran.stdout).iter().all(|row| row["status"] != "discarded") {
            let log = std::fs::read_to_string(log).unwrap();
            return Some(Traced { ran, calls: calls_of(&log) });
        }
    }
    panic!("each of ten runs discarded a try");
}

/// The calls in a log, each where it began. strace cuts a call in two where another thread's comes between.
fn calls_of(log: &str) -> Vec<(String, String)> {
    let mut calls: Vec<(String, String)> = Vec::new();
    for (thread, text) in log.lines().filter_map(|line| line.split_once(' ')) {
        let text = text.trim_start();
        let end = text.strip_prefix("<... ").and_then(|rest| rest.split_once(" resumed>")).map(|(_, end)| end);
        let begun = calls.iter_mut().rev().find(|(by, call)| by == thread && call.ends_with(CUT));
        match (end, begun) {
            (Some(end), Some((_, call))) => *call = format!("{}{end}", call.trim_end_matches(CUT)),
            _ => calls.push((thread.to_owned(), text.to_owned())),
        }
    }
    calls
}

/// End of the first half of a call.
const CUT: &str = " <unfinished ...>";

#[test]
fn a_call_that_is_cut_in_two_is_one() {
    let log = "1 send(3 <unfinished ...>\n2  recv(4) = 5\n1 <... send resumed>) = -1 EIO\n2 recv(4 <unfinished ...>\n";
    let calls = calls_of(log);
    let texts: Vec<&str> = calls.iter().map(|(_, call)| call.as_str()).collect();
    assert_eq!(texts, ["send(3) = -1 EIO", "recv(4) = 5", "recv(4 <unfinished ...>"]);
}

/// The same outside of a namespace.
pub fn run_here(calls: &str, options: &[&str], plan: &str) -> Option<Traced> {
    run(Command::new("strace"), calls, options, plan)
}

impl Traced {
    /// Number of lines with all of these parts.
    pub fn count(&self, parts: &[&str]) -> usize {
        self.calls.iter().filter(|(_, call)| parts.iter().all(|part| call.contains(part))).count()
    }

    /// Faults that make the calls with this word fail, one for each thread that makes one. strace counts the calls of each
    /// thread by itself, so that each fault may hit another thread's call of the same number, too. For a trace of one call only.
    pub fn faults(&self, word: &str, errno: &str) -> Vec<String> {
        let mut faults = Vec::new();
        for (thread, line) in self.calls.iter().filter(|(_, line)| line.contains(word)) {
            let name = line.split('(').next().unwrap_or_default();
            let begun = self.calls.iter().filter(|(by, line)| by == thread && line.starts_with(&format!("{name}(")));
            let place = begun.take_while(|(_, line)| !line.contains(word)).count() + 1;
            let fault = format!("inject={name}:error={errno}:when={place}");
            if !faults.contains(&fault) {
                faults.push(fault);
            }
        }
        faults
    }
}
