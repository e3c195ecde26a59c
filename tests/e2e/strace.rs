//! Runs of the program under strace: the system calls of its threads, and calls that are made to fail.

use std::process::{Command, Stdio};

use crate::{
    netns::is_installed,
    program::{Folder, Ran, skip, skip_without},
};

/// A run, and the lines of its calls, each with its thread.
pub struct Traced {
    pub ran: Ran,
    pub calls: Vec<(String, String)>,
}

/// Runs a plan under `strace`, a command that a namespace may have made, which logs these calls and is given further options.
/// `None`: there is no strace, or programs cannot be traced here.
pub fn run(mut strace: Command, calls: &str, options: &[&str], plan: &str) -> Option<Traced> {
    if !is_installed("strace") {
        skip_without("strace", "system calls cannot be seen");
        return None;
    }
    let folder = Folder::new();
    let log = folder.name("strace");
    strace.args(["-f", "-qq", "-o", &log, "-e", &format!("trace={calls}")]).args(options);
    strace.args([env!("CARGO_BIN_EXE_plumb"), "run", "--progress", "never", plan]).stdin(Stdio::null());
    let ran: Ran = strace.output().unwrap().into();
    if ran.stderr.contains("ptrace") && ran.code != Some(0) {
        skip(&format!("programs cannot be traced here: {}", ran.stderr));
        return None;
    }
    let log = std::fs::read_to_string(log).unwrap();
    let calls = log.lines().filter_map(|line| line.split_once(' '));
    Some(Traced { ran, calls: calls.map(|(thread, call)| (thread.to_owned(), call.trim_start().to_owned())).collect() })
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
