//! Cleans up what the end of a process does not free: an allocation, pods, containers.

use std::{
    io,
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Time for the clean-up when the run ends. It goes on by itself after that.
const PATIENCE: Duration = Duration::from_secs(15);

/// A small process that waits until this one is gone, however it went, and then runs a command twice: what was being made
/// at that moment may appear after the first time.
///
/// It holds the reading end of a pipe, whose writing end only this process has. It ignores the signals of a terminal and is
/// in a process group of its own.
#[derive(Debug)]
pub struct Guardian {
    child: Child,
}

impl Guardian {
    pub fn start(cleanup: &[String]) -> io::Result<Self> {
        let child = Command::new("sh")
            .args(["-c", r#"trap "" INT TERM HUP; cat >/dev/null; "$@"; sleep 1; exec "$@""#, "plumb-guardian"])
            .args(cleanup)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        Ok(Self { child })
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let until = Instant::now() + PATIENCE;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < until {
            thread::sleep(Duration::from_millis(20));
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
        let guardian = Guardian::start(&["rm".into(), "-rf".into(), made.display().to_string()]).unwrap();
        thread::sleep(Duration::from_millis(50));
        assert!(made.exists());
        drop(guardian);
        assert!(!made.exists());
    }
}
