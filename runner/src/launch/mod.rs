//! Far ends that start themselves: `launch` of a host.
//!
//! One contract serves every engine: the launcher carries standard input to `plumb serve --launched` at the far end, whose
//! first line is a key for this run and whose end is the daemon's end.
//!
//! - `contract`: the lines that both sides exchange, and which of a host's addresses carries the traffic
//! - `lifeline`: the far side of it, `plumb serve --launched`
//! - `process`: the near side, one launcher process, with control connections over the life line (`control: launcher`)
//! - `remote`: the far end's command, with a program that is there or one that travels
//! - `recipe`: by engine, from a host of the plan to the launcher's command, and what to do about its errors
//! - `kubernetes`: pods for daemons, made before their launchers start
//! - `launchers`: all launchers of a run, from their start to their end
//!
//! [`Watchdog`] cleans up what the end of a process does not free: an allocation, pods, containers.

pub mod contract;
mod kubernetes;
pub mod launchers;
pub mod lifeline;
mod process;
pub mod recipe;
mod remote;

use std::{
    io,
    os::{fd::AsFd, unix::process::CommandExt},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use netcore::control::stop::wait;

/// Time for the first clean-up when the run ends. It goes on by itself after that.
const PATIENCE: Duration = Duration::from_secs(15);

/// A small process that waits until this one is gone, however it went, and then runs a command twice: what was being made
/// at that moment may appear after the first time.
///
/// It holds the reading end of a pipe, whose writing end only this process has. It ignores the signals of a terminal and is
/// in a process group of its own.
#[derive(Debug)]
pub struct Watchdog {
    child: Child,
}

impl Watchdog {
    pub fn start(cleanup: &[String]) -> io::Result<Self> {
        let child = Command::new("sh")
            .args([
                "-c",
                r#"trap "" INT TERM HUP; cat >/dev/null; "$@" >/dev/null; exec >/dev/null; sleep 1; exec "$@""#,
                "plumb-guardian",
            ])
            .args(cleanup)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        Ok(Self { child })
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // Its output ends after the first time.
        if let Some(output) = &self.child.stdout {
            let _ = wait([Some(output.as_fd())], Some(Instant::now() + PATIENCE));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_cleans_up_when_its_pipe_closes() {
        let folder = tempfile::tempdir().unwrap();
        let made = folder.path().join("made");
        std::fs::create_dir(&made).unwrap();
        let watchdog = Watchdog::start(&["rm".into(), "-rf".into(), made.display().to_string()]).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        assert!(made.exists());
        drop(watchdog);
        assert!(!made.exists());
    }
}
